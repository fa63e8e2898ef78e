//! `include/tollfree.h` is what the sources say, and compilers of C and C++ take it.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include/tollfree.h");

fn made() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("the settings");
    let bindings =
        cbindgen::Builder::new().with_crate(root).with_config(config).generate().expect("a header");
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).expect("text")
}

/// `TOLLFREE_WRITE_HEADER=1` writes it.
#[test]
fn the_header_is_what_the_sources_say() {
    let made = made();
    if std::env::var_os("TOLLFREE_WRITE_HEADER").is_some() {
        fs::write(HEADER, made).expect("the header is written");
        return;
    }
    let kept = fs::read_to_string(HEADER).expect("the header");
    assert!(
        kept == made,
        "include/tollfree.h is not what the sources say: TOLLFREE_WRITE_HEADER=1 writes it anew"
    );
}

/// Functions that the sources export.
pub(crate) fn exported() -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).expect("sources") {
        let text = fs::read_to_string(entry.expect("a file").path()).expect("a source");
        for (at, _) in text.match_indices("#[unsafe(no_mangle)]") {
            let rest = &text[at..];
            let name = rest.split("fn ").nth(1).and_then(|rest| rest.split('(').next()).expect("a function");
            names.push(name.to_owned());
        }
    }
    names.sort();
    assert!(names.len() > 25, "functions were found");
    names
}

#[test]
fn each_exported_function_is_declared_and_has_a_version() {
    let header = fs::read_to_string(HEADER).expect("the header");
    let versions =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tollfree.map")).expect("versions");
    let mut versioned: Vec<String> = versions
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';').filter(|name| name.starts_with("tollfree_")))
        .map(str::to_owned)
        .collect();
    versioned.sort();
    assert_eq!(versioned, exported());
    for name in exported() {
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
    }
}

/// A function that is added is misused in a test, too: those that can't fail are the exception.
#[test]
fn each_exported_function_has_a_call_in_the_tests_that_returns_an_error() {
    const NEVER_FAIL: [&str; 4] =
        ["tollfree_error_name", "tollfree_error_text", "tollfree_now_ns", "tollfree_version"];
    let mut misuses = String::new();
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c")).expect("programs") {
        let text = fs::read_to_string(entry.expect("a file").path()).expect("a program");
        misuses.extend(text.lines().filter(|line| line.contains("RETURNS(")));
    }
    for name in exported() {
        let is_misused = misuses.contains(&format!(" {name}("));
        assert!(is_misused || NEVER_FAIL.contains(&name.as_str()), "no test misuses {name}");
    }
}

#[test]
fn compilers_of_c_and_cpp_take_the_header_without_a_warning() {
    for (compiler, language, standard) in
        [("cc", "c", "c11"), ("c++", "c++", "c++17"), ("c++", "c++", "c++20")]
    {
        let mut child = Command::new(compiler)
            .args([
                "-fsyntax-only",
                "-Wall",
                "-Wextra",
                "-Wpedantic",
                "-Wconversion",
                "-Werror",
                "-x",
                language,
                "-",
            ])
            .args([&format!("-std={standard}"), "-I", concat!(env!("CARGO_MANIFEST_DIR"), "/include")])
            .args(["-I", concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec")])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{compiler}: {error}"));
        let program = "#include <tollfree.h>\n#include <tollfree.h>\n#include <tollfree_constants.h>\nint main(void) { return (int)tollfree_text(\"x\").len; }\n";
        child.stdin.take().expect("piped").write_all(program.as_bytes()).expect("it reads");
        assert!(child.wait().expect("it ends").success(), "{compiler} -std={standard}");
    }
}
