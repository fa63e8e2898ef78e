//! Generates prost's types and views of the same messages: everyday ones, and those with all kinds of fields.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let out = std::env::var_os("OUT_DIR").ok_or_else(|| std::io::Error::other("cargo sets OUT_DIR"))?;
    let views = |name: &str, pattern: &str, protos: &[&str], include: &str| {
        let dir = Path::new(&out).join(name);
        std::fs::create_dir_all(&dir)?;
        let builder = tollfree_build::configure().out_dir(dir).views(pattern).prost_path("prost");
        builder.compile_protos(protos, &[include])
    };
    views("shop", ".shop", &["shop.proto"], "proto")?;
    views("kinds", ".", &["all2.proto", "all3.proto"], "../processor/tests/fixture")?;
    views("names", ".", &["names.proto"], "proto")
}
