//! What source files may hold: unsafe code, their length, their name, and nothing of the machine they were written on.

use std::collections::{BTreeMap, BTreeSet};

use crate::{File, files, hold, read, section};

/// The word itself; spelled so that this file doesn't hold it.
const UNSAFE: &str = concat!("un", "safe");
/// Parts in which it may stand.
const MAY_HOLD: [&str; 5] = ["os", "region", "pool", "processor", "capi"];
/// Files in which it may stand beside these.
const FILES_MAY_HOLD: [&str; 2] = ["python/src/buffer.rs", "python/src/dlpack.rs"];
/// In these parts only modules that say so in their first line may hold it.
const MARKED_ONLY: [&str; 1] = ["processor"];
const MARK: &str = "//! Hot module:";
const LINE_COUNT_MAX: usize = 800;
const LINE_COUNT_LONG: usize = 400;
/// Hosts that documents, tests and the lock file may name.
const HOSTS: [&str; 11] = [
    "github.com",
    "pkg.go.dev",
    "keepachangelog.com",
    "semver.org",
    "www.apache.org",
    "www.w3.org",
    "localhost",
    "host",
    "inventory",
    "inventory.invalid",
    "127.0.0.1",
];

/// A line without its comment, and whether it is nothing but one.
fn code(line: &str) -> &str {
    line.find("//").map_or(line, |at| &line[..at])
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

/// Unsafe code where there may be none, and unsafe code that nobody has justified.
fn unsafe_code(file: &File) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().collect();
    let allowed = file.part().is_some_and(|part| {
        MAY_HOLD.contains(&part) && (!MARKED_ONLY.contains(&part) || file.text.starts_with(MARK))
    }) || FILES_MAY_HOLD.contains(&file.path.as_str());
    let mut complaints = Vec::new();
    for (idx, line) in lines.iter().enumerate() {
        let line_code = code(line);
        let place = format!("{}:{}", file.path, idx + 1);
        if line_code.contains("allow(") && line_code.contains(&format!("{UNSAFE}_code")) {
            complaints.push(format!("{place} lifts the ban on {UNSAFE} code"));
        }
        if !has_word(line_code, UNSAFE) {
            continue;
        }
        if !allowed {
            complaints.push(format!(
                "{place} holds {UNSAFE} code; only {MAY_HOLD:?} and {FILES_MAY_HOLD:?} may, and of these {MARKED_ONLY:?} only where the \
                 first line begins with {MARK:?}"
            ));
        } else if [" {", " impl"].iter().any(|begin| line_code.contains(&format!("{UNSAFE}{begin}")))
            && !is_justified(&lines, idx)
        {
            complaints.push(format!("{place} is {UNSAFE} without a SAFETY comment above it"));
        }
    }
    complaints
}

/// Whether the statement that holds a line has a SAFETY comment above it.
fn is_justified(lines: &[&str], idx: usize) -> bool {
    let above = lines[..idx].iter().rev().map(|line| line.trim());
    let mut in_comment = false;
    for line in above.take(16) {
        if line.starts_with("//") {
            in_comment = true;
            if line.contains("SAFETY:") {
                return true;
            }
        } else if in_comment || line.is_empty() || line.ends_with([';', '}']) {
            return false;
        }
    }
    false
}

#[test]
fn unsafe_code_stands_where_it_may_and_is_justified() {
    let files = files();
    let sources = files.iter().filter(|file| file.is_source());
    let mut complaints: Vec<String> = sources.flat_map(unsafe_code).collect();
    let ban = format!("#![forbid({UNSAFE}_code)]");
    let parts: BTreeSet<&str> = files.iter().filter_map(File::part).collect();
    for part in parts.into_iter().filter(|part| !MAY_HOLD.contains(part)) {
        let main = |path: &str| {
            path.ends_with(&format!("/{part}/src/lib.rs")) || path.ends_with(&format!("/{part}/src/main.rs"))
        };
        for file in files.iter().filter(|file| file.part() == Some(part) && main(&file.path)) {
            if !file.text.lines().any(|line| line == ban) {
                complaints.push(format!("{} does not say {ban}", file.path));
            }
        }
    }
    // The text above says where; the manifest makes clippy hold the comments too.
    if !read("Cargo.toml").contains(&format!("undocumented_{UNSAFE}_blocks = \"deny\"")) {
        complaints.push(format!("Cargo.toml does not deny undocumented {UNSAFE} blocks"));
    }
    let architecture = read("ARCHITECTURE.md");
    for part in MAY_HOLD {
        if !section(&architecture, "## Invariants").contains(&format!("`{UNSAFE}` stands in `{part}`")) {
            complaints.push(format!("ARCHITECTURE.md does not say that {UNSAFE} code may stand in {part}"));
        }
    }
    hold(&format!("{UNSAFE} code"), complaints);
}

fn length(file: &File) -> Option<String> {
    let count = file.text.lines().count();
    (count > LINE_COUNT_MAX)
        .then(|| format!("{} has {count} lines; {LINE_COUNT_MAX} are the most", file.path))
}

#[test]
fn no_source_is_too_long() {
    let files = files();
    let sources: Vec<&File> = files.iter().filter(|file| file.is_source()).collect();
    for file in &sources {
        let count = file.text.lines().count();
        if count > LINE_COUNT_LONG {
            println!("{} has {count} lines: two topics?", file.path);
        }
    }
    hold("length of files", sources.into_iter().filter_map(length).collect());
}

/// Names that say nothing, of files and directories.
fn name(path: &str) -> Option<String> {
    let parts = path.split('/').map(|part| part.split('.').next().unwrap_or(part));
    let empty = ["utils", "util", "common", "misc", "helpers", "helper"];
    parts.into_iter().any(|part| empty.contains(&part)).then(|| format!("{path} is called after no topic"))
}

#[test]
fn every_file_is_called_after_its_topic() {
    hold("names of files", files().iter().filter_map(|file| name(&file.path)).collect());
}

/// The package that a file makes a test binary of, as cargo finds them: each one is linked with all that it tests. Models for loom
/// are another build's, and `tidy` names its one binary itself.
fn test_binary(path: &str) -> Option<&str> {
    let (package, within) = path.split_once("/tests/").filter(|(package, _)| *package != "tests/tidy")?;
    let is_binary = match within.split_once('/') {
        None => within.ends_with(".rs") && within != "loom.rs",
        Some((_, rest)) => rest == "main.rs",
    };
    (is_binary && package.split('/').count() == 2).then_some(package)
}

/// Packages with several.
fn test_binaries<'p>(paths: impl Iterator<Item = &'p str>) -> Vec<String> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for path in paths {
        if let Some(package) = test_binary(path) {
            found.entry(package).or_default().push(path);
        }
    }
    let several = found.into_iter().filter(|(_, paths)| paths.len() > 1);
    several
        .map(|(package, paths)| format!("{package} has several test binaries: {}", paths.join(", ")))
        .collect()
}

#[test]
fn a_package_has_one_test_binary() {
    hold("test binaries", test_binaries(files().iter().map(|file| file.path.as_str())));
}

/// Paths and hosts of the machine on which something was written.
fn origin(file: &File) -> Vec<String> {
    let homes = [concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];
    let mut complaints = Vec::new();
    for (idx, line) in file.text.lines().enumerate() {
        let place = format!("{}:{}", file.path, idx + 1);
        if let Some(path) = homes.iter().find(|path| line.contains(*path)) {
            complaints.push(format!("{place} names a path below {path}"));
        }
        for (at, scheme) in line.match_indices("://") {
            let web = line[..at].ends_with("http") || line[..at].ends_with("https");
            let rest = &line[at + scheme.len()..];
            let host =
                rest.split(|c: char| !c.is_alphanumeric() && !".-_[".contains(c)).next().unwrap_or_default();
            // Not a host at all: a format's place, an IPv6 address, the end of a text.
            let is_host = host.starts_with(|c: char| c.is_alphanumeric());
            // Messages that tests decode hold whatever people write in messages.
            let is_data = file.path.contains("/testdata/");
            // Names that nobody can have (RFC 6761).
            let is_reserved = host.ends_with(".example");
            if web && is_host && !is_data && !is_reserved && !HOSTS.contains(&host) {
                complaints.push(format!("{place} names the host {host}"));
            }
        }
    }
    complaints
}

#[test]
fn nothing_tells_where_it_was_written() {
    let files = files();
    let mut complaints: Vec<String> = files.iter().flat_map(origin).collect();
    for file in files.iter().filter(|file| file.path.contains(".cargo/")) {
        complaints.push(format!("{}: settings of one machine's cargo", file.path));
    }
    for lock in ["Cargo.lock", "lab/Cargo.lock"] {
        for line in read(lock).lines().filter(|line| line.starts_with("source = ")) {
            if line != "source = \"registry+https://github.com/rust-lang/crates.io-index\"" {
                complaints.push(format!("{lock}: {line}"));
            }
        }
    }
    hold("traces of a machine", complaints);
}

#[test]
fn rules() {
    let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
    let block = format!("let a = {UNSAFE} {{ b() }};");
    assert_eq!(unsafe_code(&file("crates/ring/src/a.rs", &block)).len(), 1);
    assert_eq!(unsafe_code(&file("crates/ring/tests/a.rs", &block)).len(), 1);
    assert_eq!(unsafe_code(&file("crates/region/src/a.rs", &block)).len(), 1);
    let justified = format!("// SAFETY: so.\n// And more.\nlet a =\n    {UNSAFE} {{ b() }};");
    assert!(unsafe_code(&file("crates/region/src/a.rs", &justified)).is_empty());
    let of_another = format!("// SAFETY: so.\nc();\n{block}");
    assert_eq!(unsafe_code(&file("crates/region/src/a.rs", &of_another)).len(), 1);
    let lifted = format!("#[allow({UNSAFE}_code)]");
    assert_eq!(unsafe_code(&file("crates/ring/src/a.rs", &lifted)).len(), 1);
    let spoken = format!("// {UNSAFE} {{}}\n#![forbid({UNSAFE}_code)]");
    assert!(unsafe_code(&file("crates/ring/src/a.rs", &spoken)).is_empty());

    assert!(
        length(&file("a.rs", &"\n".repeat(800))).is_none()
            && length(&file("a.rs", &"\n".repeat(801))).is_some()
    );
    assert!(name("crates/a/src/utils.rs").is_some() && name("crates/common/src/a.rs").is_some());
    assert!(name("crates/a/src/ring.rs").is_none());
    let one = [
        "crates/a/tests/suite/main.rs",
        "crates/a/tests/suite/b.rs",
        "crates/a/tests/loom.rs",
        "crates/b/tests/c.rs",
    ];
    assert!(test_binaries(one.into_iter()).is_empty());
    for second in ["crates/b/tests/d.rs", "crates/a/tests/d/main.rs"] {
        assert_eq!(test_binaries(one.into_iter().chain([second])).len(), 1, "{second}");
    }
    for bad in [concat!("see /ho", "me/me/x"), concat!("https:/", "/registry.example.org/x")] {
        assert_eq!(origin(&file("a.md", bad)).len(), 1, "{bad}");
    }
    assert!(origin(&file("a.md", "http://localhost:80 http://{host} shm:///run/x")).is_empty());
}
