//! `spec/constants.toml` has every number of the protocol. Rust, Go and C are written from it, and none of them by hand:
//! `TOLLFREE_WRITE_CONSTANTS=1 cargo test -p tollfree-tidy constants::` writes them anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use toml::{Table, Value};

use super::{hold, read, root};

const SOURCE: &str = "spec/constants.toml";
const RUST: &str = "crates/layout/src/constants.rs";
const GO: &str = "go/internal/wire/constants.go";
const C: &str = "spec/tollfree_constants.h";
/// The numbers of errors alone: what users of the C library need, whose header includes them.
const C_ERRORS: &str = "spec/tollfree_errors.h";
const ERRORS: &str = "errors";

/// Groups that Go declares in packages of its own, which it writes by hand.
const NOT_GO: [&str; 5] = ["pool", "pool_kind", "standing", "pool_reason", ERRORS];

struct Group {
    name: String,
    doc: String,
    kind: String,
    /// What names begin with in Go.
    prefix: String,
    /// There is a list of all of them.
    is_listed: bool,
    values: Vec<Constant>,
}

struct Constant {
    name: String,
    value: u64,
    doc: String,
    kind: String,
}

/// What is wrong with the source, or its groups.
fn parse(text: &str) -> Result<Vec<Group>, String> {
    let table: Table = text.parse().map_err(|error| format!("{error}"))?;
    let text_of = |group: &Table, name: &str, key: &str| -> Result<String, String> {
        let value = group.get(key).and_then(Value::as_str);
        value.map(str::to_owned).ok_or(format!("[{name}] has no {key}"))
    };
    let mut groups = Vec::new();
    for (name, group) in &table {
        let group = group.as_table().ok_or(format!("{name} is no group"))?;
        let kind = text_of(group, name, "type")?;
        let values =
            group.get("values").and_then(Value::as_table).ok_or(format!("[{name}] has no values"))?;
        let mut constants = Vec::new();
        for (constant, said) in values {
            let wrong = || format!("{name}.{constant} is to be [number, \"meaning\"], or with a type behind");
            let said = said.as_array().ok_or_else(wrong)?;
            let value = said.first().and_then(Value::as_integer).and_then(|value| u64::try_from(value).ok());
            let doc = said
                .get(1)
                .and_then(Value::as_str)
                .filter(|doc| doc.ends_with(['.', '?']))
                .ok_or_else(wrong)?;
            let own = said.get(2).map(|kind| kind.as_str().ok_or_else(wrong)).transpose()?;
            let kind = own.unwrap_or(&kind).to_owned();
            constants.push(Constant {
                name: constant.clone(),
                value: value.ok_or_else(wrong)?,
                doc: doc.to_owned(),
                kind,
            });
        }
        groups.push(Group {
            name: name.clone(),
            doc: text_of(group, name, "doc")?,
            prefix: text_of(group, name, "prefix")?,
            is_listed: group.get("list").and_then(Value::as_bool).unwrap_or_default(),
            kind,
            values: constants,
        });
    }
    Ok(groups)
}

fn groups() -> Vec<Group> {
    parse(&read(SOURCE)).unwrap_or_else(|error| panic!("{SOURCE}: {error}"))
}

/// All numbers of some groups. Two of one name can't be told apart in a document.
pub(crate) fn numbers(of: &[&str]) -> BTreeMap<String, u64> {
    let mut numbers = BTreeMap::new();
    for group in groups().into_iter().filter(|group| of.contains(&group.name.as_str())) {
        for constant in group.values {
            let name = constant.name.clone();
            assert!(numbers.insert(constant.name, constant.value).is_none(), "{name} stands twice in {of:?}");
        }
    }
    assert!(!numbers.is_empty(), "{SOURCE} has {of:?}");
    numbers
}

fn rust(groups: &[Group]) -> String {
    let mut text = format!(
        "//! Every number of the protocol: written from `{SOURCE}`, and not to be changed here.\n\
         #![allow(unreachable_pub, reason = \"the modules of the layout pass them on\")]\n"
    );
    for group in groups {
        let list = if group.is_listed { "pub " } else { "" };
        write!(text, "\n/// {}\npub mod {} {{\n", group.doc, group.name).expect("memory");
        for constant in &group.values {
            let Constant { name, value, doc, kind } = constant;
            writeln!(text, "    /// {doc}\n    pub const {name}: {kind} = {};", literal(group, *value))
                .expect("memory");
        }
        if !list.is_empty() {
            writeln!(
                text,
                "    /// All of them with their names, in order.\n    pub const ALL: &[({}, &str)] = &[",
                group.kind
            )
            .expect("memory");
            for Constant { name, .. } in &group.values {
                writeln!(text, "        ({name}, \"{name}\"),").expect("memory");
            }
            text.push_str("    ];\n");
        }
        text.push_str("}\n");
    }
    formatted(
        "rustfmt",
        &["--edition", "2024", "--config-path", root().join("rustfmt.toml").to_str().expect("a path")],
        &text,
    )
}

/// Bits are read in hexadecimal.
fn literal(group: &Group, value: u64) -> String {
    let is_bits = group.doc.starts_with("Bits");
    if is_bits { format!("{value:#04x}") } else { decimal(value) }
}

/// Groups of three digits, from five digits on.
fn decimal(value: u64) -> String {
    let digits = value.to_string();
    if digits.len() < 5 {
        return digits;
    }
    let mut text = String::new();
    for (idx, digit) in digits.chars().enumerate() {
        if idx > 0 && (digits.len() - idx).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

/// `RING_LEN_MAX` as `RingLenMax`.
fn camel(name: &str) -> String {
    let word = |word: &str| match word {
        "CPU" | "ID" | "TCP" => word.to_owned(),
        _ => word[..1].to_owned() + &word[1..].to_lowercase(),
    };
    name.split('_').filter(|part| !part.is_empty()).map(word).collect()
}

fn go(groups: &[Group]) -> String {
    let mut text = format!("// Code generated from {SOURCE}. DO NOT EDIT.\n\npackage wire\n");
    for group in groups.iter().filter(|group| !NOT_GO.contains(&group.name.as_str())) {
        write!(text, "\n// {}\nconst (\n", group.doc).expect("memory");
        for constant in &group.values {
            let name = group.prefix.clone() + &camel(&constant.name);
            writeln!(text, "\t// {name}: {}\n\t{name} = {}", constant.doc, literal(group, constant.value))
                .expect("memory");
        }
        text.push_str(")\n");
    }
    text
}

/// The numbers of errors, or all others, which include them.
fn c(groups: &[Group], is_errors: bool) -> String {
    let (what, guard, includes) = match is_errors {
        true => ("Numbers of errors", "TOLLFREE_ERRORS_H", ""),
        false => {
            ("Every number of the protocol", "TOLLFREE_CONSTANTS_H", "\n#include \"tollfree_errors.h\"\n")
        }
    };
    let mut text = format!(
        "/* {what}: written from {SOURCE}, and not to be changed here. */\n#ifndef {guard}\n#define {guard}\n{includes}"
    );
    for group in groups.iter().filter(|group| (group.name == ERRORS) == is_errors) {
        let prefix = if group.prefix.is_empty() { String::new() } else { snake(&group.prefix) + "_" };
        write!(text, "\n/* {} */\n", group.doc).expect("memory");
        for constant in &group.values {
            let suffix = if constant.value > u64::from(u32::MAX) { "ull" } else { "u" };
            let (name, value) = (&constant.name, constant.value);
            writeln!(text, "#define TOLLFREE_{prefix}{name} {value}{suffix} /* {} */", constant.doc)
                .expect("memory");
        }
    }
    text.push_str("\n#endif\n");
    text
}

/// `PoolKind` as `POOL_KIND`.
fn snake(name: &str) -> String {
    let mut text = String::new();
    for (idx, letter) in name.char_indices() {
        if idx > 0 && letter.is_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

fn formatted(formatter: &str, arguments: &[&str], text: &str) -> String {
    let mut command = Command::new(formatter);
    let child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{formatter}: {error}"));
    child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{formatter} takes what is written:\n{text}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn what_is_written_of_them_is_current() {
    let groups = groups();
    let written = [
        (RUST, rust(&groups)),
        (GO, formatted("gofmt", &[], &go(&groups))),
        (C, c(&groups, false)),
        (C_ERRORS, c(&groups, true)),
    ];
    if std::env::var_os("TOLLFREE_WRITE_CONSTANTS").is_some() {
        for (path, text) in written {
            fs::write(root().join(path), text).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
        return;
    }
    let stale = written.iter().filter(|(path, text)| read(path) != *text);
    let say = |(path, _): &(&str, String)| {
        format!("{path} is not what {SOURCE} says: write it anew (TOLLFREE_WRITE_CONSTANTS=1)")
    };
    hold(SOURCE, stale.map(say).collect());
}

#[test]
fn a_c_compiler_takes_them() {
    let arguments = ["-std=c11", "-Wall", "-Werror", "-fsyntax-only", "-x", "c", "-"];
    let users = "#include <stdint.h>\n_Static_assert(TOLLFREE_RING_LEN_MAX == 32768u && TOLLFREE_ERROR_USE_LOOP == 501u, \"numbers\");\n";
    let spec = format!("-I{}", root().join("spec").display());
    formatted("cc", &[&arguments[..], &[&spec]].concat(), &(c(&groups(), false) + users));
}

#[test]
fn rules() {
    let good = "[a]\ndoc = \"Bits.\"\ntype = \"u8\"\nprefix = \"Bit\"\n[a.values]\nTWO_CPU = [2, \"Two.\"]\nBIG = [10000, \"Big.\", \"u64\"]\n";
    let groups = parse(good).unwrap();
    assert!(
        rust(&groups).contains("pub const TWO_CPU: u8 = 0x02;")
            && rust(&groups).contains("pub const BIG: u64 =")
    );
    assert!(go(&groups).contains("BitTwoCPU = 0x02"));
    assert!(c(&groups, false).contains("#define TOLLFREE_BIT_BIG 10000u /* Big. */"));
    assert_eq!((decimal(9999), decimal(1_048_576)), ("9999".to_owned(), "1_048_576".to_owned()));
    for bad in
        ["TWO = [2]", "TWO = [-2, \"Two.\"]", "TWO = [2, \"two\"]", "TWO = 2", "TWO = [2, \"Two.\", 3]"]
    {
        let text = good.replace("TWO_CPU = [2, \"Two.\"]", bad);
        assert!(parse(&text).is_err_and(|error| error.contains("a.TWO")), "{bad}");
    }
    assert!(parse(&good.replace("prefix = \"Bit\"\n", "")).is_err());
}
