//! The rules of the project, held by machine: which part uses which, where unsafe code may stand, how long files are, that
//! documents say what the code does and that what they point to is there.
//!
//! Every rule is a function from text to complaints, so that `rules` can show that it is able to complain.

mod commands;
mod constants;
mod devices;
mod documents;
mod faults;
mod parts;
mod pools;
mod sources;
mod spec;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

/// Endings and names of files that people wrote.
const WRITTEN: [&str; 17] = [
    "rs",
    "c",
    "h",
    "map",
    "go",
    "py",
    "toml",
    "md",
    "json",
    "proto",
    "lock",
    "yml",
    "sh",
    "Makefile",
    "LICENSE",
    "run",
    ".gitignore",
];

/// Where parts lie: products, commands, what only tests use, examples, and the laboratory, which is a workspace of its own.
const GROUPS: [&str; 5] = ["crates", "cmd", "tests", "examples", LAB];
const LAB: &str = "lab";

/// A file of the project: its path from the root, and its text.
struct File {
    path: String,
    text: String,
}

impl File {
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The crate's directory name, for files of crates.
    fn part(&self) -> Option<&str> {
        let (group, within) = self.path.split_once('/')?;
        GROUPS.contains(&group).then(|| within.split('/').next())?
    }

    fn is_source(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_document(&self) -> bool {
        self.path.ends_with(".md")
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two directories above").to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Scripts have no ending, and say on their first line what runs them.
fn is_written(name: &str, path: &Path) -> bool {
    let ends = WRITTEN.iter().any(|end| name == *end || name.ends_with(&format!(".{end}")));
    ends || !name.contains('.') && fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"#!"))
}

/// All files that people wrote, whether committed yet or not; sorted.
fn files() -> Vec<File> {
    let root = root();
    let mut found = Vec::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("the project can be read").flatten() {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let kind = entry.file_type().expect("entries have a type");
            if kind.is_dir() {
                // A build's, a bench's and git's directories aren't the project.
                if !matches!(name.as_str(), "target" | "bench-out" | ".git" | "artifacts") {
                    directories.push(path);
                }
            } else if kind.is_file() && is_written(&name, &path) {
                let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
                let path = path.strip_prefix(&root).expect("found below").to_string_lossy().into_owned();
                found.push(File { path, text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 100, "the project was found");
    found
}

/// Fails with all complaints at once.
fn hold(rule: &str, complaints: Vec<String>) {
    assert!(complaints.is_empty(), "{rule}:\n  {}", complaints.join("\n  "));
}

/// Rows of the tables in a piece of Markdown: their cells, trimmed.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let table = text.lines().filter(|line| line.starts_with('|'));
    table.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// What follows a heading, up to the next one of any level.
fn section<'a>(text: &'a str, heading: &str) -> &'a str {
    let start = text.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no heading \"{heading}\""));
    let body = &text[start + heading.len() + 2..];
    let end = body
        .match_indices("\n#")
        .map(|(at, _)| at)
        .find(|at| body[at + 1..].trim_start_matches('#').starts_with(' '));
    &body[..end.unwrap_or(body.len())]
}
