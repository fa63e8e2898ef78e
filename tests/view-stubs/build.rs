//! Generates prost's types and views of the same messages: everyday ones, those with all kinds of fields, and one with very
//! many.

use std::fmt::Write as _;
use std::path::Path;

/// Fields of the wide message.
const WIDE: u32 = 5000;

fn main() -> std::io::Result<()> {
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| std::io::Error::other("cargo sets OUT_DIR"))?;
    let out = Path::new(&out);
    let builder = |name: &str, pattern: &str| {
        let dir = out.join(name);
        std::fs::create_dir_all(&dir)?;
        Ok::<_, std::io::Error>(tollfree_build::configure().out_dir(dir).views(pattern))
    };
    let views = |name: &str, pattern: &str, protos: &[&str], include: &str| {
        builder(name, pattern)?.prost_path("prost").compile_protos(protos, &[include])
    };
    views("shop", ".shop", &["shop.proto"], "proto")?;
    views("kinds", ".", &["all2.proto", "all3.proto"], "../../crates/processor/tests/fixture")?;
    views("json", ".json", &["everything.proto"], "../../crates/json/tests/fixture")?;
    views("names", ".", &["names.proto"], "proto")?;
    views("options", ".", &["options.proto"], "proto")?;
    let (proto, rebuild) = wide();
    std::fs::write(out.join("wide.proto"), proto)?;
    std::fs::write(out.join("rebuild.rs"), rebuild)?;
    // Without prost's types: the compiler takes eight times as long for them.
    let wide =
        builder("wide", ".")?.file_descriptor_set_path(out.join("wide.binpb")).emit_rerun_if_changed(false);
    wide.compile_protos(&["wide.proto"], &[out])
}

/// A message with fields of all kinds by turns, and functions that build it anew by all its getters and setters.
fn wide() -> (String, String) {
    let kinds = [
        "int64",
        "string",
        "optional sint32",
        "repeated uint32",
        "Wide",
        "map<string, int32>",
        "bytes",
        "double",
        "repeated string",
        "optional bool",
        "fixed32",
        "Hue",
        "repeated Hue",
        "repeated Wide",
    ];
    let head = "syntax = \"proto3\"; package wide; enum Hue { NONE = 0; SOME = 1; }";
    let mut proto = format!("{head}\nmessage Wide {{\n");
    let mut parts = Vec::new();
    for (number, kind) in (1..=WIDE).zip(kinds.iter().cycle()) {
        let _ = writeln!(proto, "  {kind} f_{number} = {number};");
        let field = format!("f_{number}");
        parts.push(match kind.split_once([' ', '<']) {
            Some(("optional", _)) => {
                format!("if let Some(value) = from.{field}_opt() {{ to.set_{field}(value)?; }}")
            }
            Some(("repeated", _)) => format!("to.{field}_mut()?.extend(from.{field}())?;"),
            Some(_) => {
                format!("for (key, value) in from.{field}() {{ to.{field}_mut()?.insert(key, value)?; }}")
            }
            None if *kind == "Wide" => {
                format!("if let Some(value) = from.{field}() {{ to.set_{field}(value)?; }}")
            }
            None => format!("to.set_{field}(from.{field}())?;"),
        });
    }
    // A function for some fields: one for all would need a stack of its own.
    let mut rebuild = String::new();
    for (idx, parts) in parts.chunks(250).enumerate() {
        let body = parts.join("\n");
        let _ = writeln!(
            rebuild,
            "fn part_{idx}(from: WideView<'_>, to: &mut WideMut<'_>) -> Built {{ {body} Ok(()) }}"
        );
    }
    let names: Vec<String> = (0..parts.len().div_ceil(250)).map(|idx| format!("part_{idx}")).collect();
    let _ = writeln!(rebuild, "pub const PARTS: &[Part] = &[{}];", names.join(", "));
    (proto + "}\n", rebuild)
}
