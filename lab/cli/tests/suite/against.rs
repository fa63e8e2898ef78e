//! `tollfree-lab against` from the outside, with itself as the other build.

use serde_json::Value;

use crate::run::{Scratch, lab};

const TINY: [&str; 9] =
    ["bench", "echo", "--seconds", "0.02", "--placement", "same-core", "--inflight", "1", "--size"];

#[test]
fn two_builds_are_run_by_turns_and_compared() {
    let scratch = Scratch::new();
    let own = env!("CARGO_BIN_EXE_tollfree-lab");
    let mut command = lab(&scratch);
    command.args(["against", "--base", own, "--rounds", "2", "--json", "--"]);
    let done = command.args(TINY).args(["64", "--side", "tonic-unix,tollfree"]).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("round 2 of 2"), "{said}");
    let report: Value = serde_json::from_slice(&done.stdout).expect("standard output is one JSON object");
    let rows = report["rows"].as_array().unwrap();
    let sides: Vec<_> = rows.iter().map(|row| row["case"]["side"].as_str().unwrap()).collect();
    assert_eq!(sides, ["tonic-unix", "tollfree"]);
    for row in rows {
        assert_eq!(row["case"]["size"], 64);
        let figures = row["figures"].as_array().unwrap();
        let p50 = figures.iter().find(|figure| figure["figure"] == "p50, ns").expect("each row has one");
        assert_eq!(p50["ratios"].as_array().unwrap().len(), 2);
        let (low, high) = (p50["interval"][0].as_f64().unwrap(), p50["interval"][1].as_f64().unwrap());
        assert!(low <= p50["ratio"].as_f64().unwrap() && p50["ratio"].as_f64().unwrap() <= high, "{p50}");
    }
    assert!(scratch.path().join("bench-out/against/base-1/rows.json").exists());
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn what_cannot_be_compared_is_said() {
    let scratch = Scratch::new();
    let of = |base: &str, arguments: &[&str]| {
        let mut command = lab(&scratch);
        let done = command.args(["against", "--base", base, "--"]).args(arguments).output().unwrap();
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (code, said) = of("/no/such/build", &TINY);
    assert!(code == Some(1) && said.contains("/no/such/build: cannot be run"), "{said}");
    let (code, said) = of(env!("CARGO_BIN_EXE_tollfree-lab"), &["bench", "echo", "--side", "pigeon"]);
    assert!(code == Some(1) && said.contains("gave no rows") && said.contains("no such side"), "{said}");
}
