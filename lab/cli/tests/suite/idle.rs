//! `tollfree-lab bench idle-sessions` and the help, from the outside.

use serde_json::Value;

use crate::run::{Scratch, lab};

fn json(command: &mut std::process::Command) -> Value {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).expect("standard output is one JSON object")
}

#[test]
fn idle_sessions_are_counted() {
    let scratch = Scratch::new();
    let arguments = ["bench", "idle-sessions", "--side", "tonic-unix", "--sessions", "30", "--size", "65536"];
    let report = json(lab(&scratch).args(arguments).args(["--seconds", "1", "--json"]));
    assert_eq!(report["sessions"], 30);
    // Thirty HTTP/2 connections hold some pages and use next to no processor time. How much of a page is theirs alone
    // depends on what else runs.
    assert!(report["rss_bytes_per_session"].as_f64().unwrap() > 1000.0, "{report}");
    assert!(report["pss_bytes_per_session"].is_f64(), "{report}");
    assert!((0.0..1.0).contains(&report["core_share"].as_f64().unwrap()), "{report}");
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn impossible_idle_runs_are_refused_in_words() {
    let scratch = Scratch::new();
    for (arguments, words) in [(["--sessions", "0"], "1 to 100000"), (["--side", "floor"], "no sessions")] {
        let done = lab(&scratch).args(["bench", "idle-sessions"]).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn the_help_shows_what_there_is_and_hides_what_is_not_for_people() {
    let scratch = Scratch::new();
    let help = String::from_utf8(lab(&scratch).arg("--help").output().unwrap().stdout).unwrap();
    assert!(help.contains("tollfree-lab bench echo") && help.contains("Exit status"), "{help}");
    assert!(!help.contains("peer"), "{help}");
    assert_eq!(lab(&scratch).output().unwrap().status.code(), Some(2));
}
