//! Commands that documents and hosted machines run exist, and hosted machines run each entry of the nightly list.

use std::collections::BTreeSet;

use crate::{File, files, hold, read};

/// Goals of the Makefile.
fn goals(makefile: &str) -> BTreeSet<&str> {
    let goal = |line: &'_ str| -> Option<usize> {
        let len = line.find(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '-')?;
        (len > 0 && line[len..].starts_with(':') && !line[len..].starts_with(":=")).then_some(len)
    };
    makefile.lines().filter_map(|line| Some(&line[..goal(line)?])).collect()
}

/// Goals that a text has `make` make: what follows the word in code.
fn made(text: &str) -> BTreeSet<&str> {
    let begins = ["`make ", "run: make ", " | make "];
    let mut made = BTreeSet::new();
    for begin in begins {
        for (at, _) in text.match_indices(begin) {
            let words = text[at + begin.len()..].split(['`', '\n', '#']).next().unwrap_or_default();
            let is_goal =
                |word: &&str| word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
            made.extend(
                words
                    .split(' ')
                    .take_while(|word| !word.is_empty())
                    .filter(|word| !word.starts_with("--"))
                    .take_while(is_goal),
            );
        }
    }
    made
}

/// Names of the nightly list.
fn entries(script: &str) -> Vec<&str> {
    let rows = script.split("<<-'TABLE'\n").nth(1).and_then(|rest| rest.split("TABLE").next());
    let rows = rows.unwrap_or_default().lines().filter(|line| line.matches(" | ").count() >= 3);
    rows.filter_map(|row| row.split('|').next().map(str::trim)).collect()
}

/// Names that a workflow has a machine run.
fn matrix(workflow: &str) -> Vec<&str> {
    let list = workflow.split("entry: [").nth(1).and_then(|rest| rest.split(']').next()).unwrap_or_default();
    list.split(", ").collect()
}

#[test]
fn hosted_machines_run_each_entry_of_the_nightly_list() {
    let (script, workflow) = (read(".ci/nightly"), read(".github/workflows/nightly.yml"));
    assert!(entries(&script).len() > 10, "a list was found");
    assert_eq!(entries(&script), matrix(&workflow));
}

#[test]
fn goals_that_are_named_exist() {
    let makefile = read("Makefile");
    let goals = goals(&makefile);
    assert!(goals.contains("test") && goals.contains("bench-check"), "goals were found: {goals:?}");
    let files = files();
    let named = files.iter().filter(|file| file.is_document() || file.path.starts_with(".github/"));
    let script = File {
        path: ".ci/nightly".to_owned(),
        text: read(".ci/nightly").replace("make --no-print-directory ", "make "),
    };
    let missing = named.chain([&script]).flat_map(|file| {
        let missing: Vec<_> = made(&file.text).difference(&goals).map(|goal| (*goal).to_owned()).collect();
        missing.into_iter().map(|goal| format!("{} names `make {goal}`", file.path))
    });
    hold("goals of the Makefile", missing.collect());
}

#[test]
fn rules() {
    assert_eq!(
        goals("a:=1\nTARGET := x\ntest: lint ## Check\n\t@a: b\nbench-2: ##\n"),
        BTreeSet::from(["test", "bench-2"])
    );
    let text = "`make test`, `make fuzz T=x`, `make bench-against REV=main`\n      - run: make deny msrv\nto make a call\n";
    assert_eq!(made(text), BTreeSet::from(["test", "fuzz", "bench-against", "deny", "msrv"]));
    assert_eq!(entries("cat <<-'TABLE'\n\ta | 1 | x | y | z\n\tb | 2 | x | y\n\tTABLE\n"), ["a", "b"]);
    assert_eq!(matrix("matrix:\n  entry: [a, b]\n"), ["a", "b"]);
}
