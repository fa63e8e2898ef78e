//! The runner against our own program, which answers everything, and against programs that are wrong on purpose.

use std::collections::BTreeSet;
use std::time::Duration;

use tollfree_vectors::{Case, Outcome, Report, Settings, cases, run};

fn settings(command: &[&str]) -> Settings {
    let command = command.iter().map(|word| (*word).to_owned()).collect();
    Settings { command, time: Duration::from_secs(60), allowed: Vec::new() }
}

fn ours() -> Settings {
    settings(&[env!("CARGO_BIN_EXE_tollfree-vectors-ours")])
}

/// A program in a shell's words. It reads one line at a time into `line`.
fn shell(words: &str) -> Settings {
    settings(&["sh", "-c", words])
}

fn some(count: usize) -> Vec<Case> {
    cases().expect("vectors").into_iter().take(count).collect()
}

fn wrong(report: &Report, case: &Case) -> String {
    match report.outcome(&case.topic, &case.name) {
        Some(Outcome::Wrong(words)) => words.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn our_own_program_answers_every_case_rightly() {
    let cases = cases().expect("vectors");
    let report = run(&cases, &ours()).expect("it starts");
    assert!(report.is_right(), "{report}");
    assert_eq!(report.outcomes().count(), cases.len());
    for topic in [
        "table",
        "fingerprint",
        "describe",
        "decode",
        "verify",
        "extent",
        "ref",
        "take",
        "handshake",
        "violation-to-client",
        "conversation-to-server",
        "conversation-to-client",
        "ring",
        "ring-head",
        "ring-cursor",
        "waiting",
        "load",
        "device",
    ] {
        assert!(cases.iter().any(|case| case.topic == topic), "there are cases of {topic}");
    }
}

#[test]
fn names_are_unique_within_a_topic() {
    let cases = cases().expect("vectors");
    let mut names = BTreeSet::new();
    for case in &cases {
        assert!(names.insert((&case.topic, &case.name)), "{}: {} twice", case.topic, case.name);
    }
}

/// A program that refuses all, or takes all, is found out by the cases of the other kind.
#[test]
fn one_answer_for_everything_is_wrong() {
    let cases = cases().expect("vectors");
    let echo = |answer: &str| {
        let words = format!(
            r#"while read -r line; do id=${{line#*\"id\":}}; id=${{id%%[!0-9]*}}; echo "{{\"id\":$id,{answer}}}"; done"#
        );
        run(&cases, &shell(&words)).expect("it starts")
    };
    let report = echo(r#"\"refused\":\"all\""#);
    for (topic, name, outcome) in report.outcomes() {
        let case = cases.iter().find(|case| case.topic == topic && case.name == name).expect("a case");
        let refuses = case.expected == tollfree_vectors::Expected::Refused;
        assert_eq!(*outcome == Outcome::Right, refuses, "{topic}: {name}: {outcome:?}");
    }
    let report = echo(r#"\"object\":\"00\""#);
    assert!(report.outcomes().all(|(.., outcome)| matches!(outcome, Outcome::Wrong(_))));
    let report = echo(r#"\"not_implemented\":true"#);
    assert!(report.outcomes().all(|(.., outcome)| *outcome == Outcome::NotImplemented));
    assert!(!report.is_right(), "what is not implemented does not pass by itself");
}

/// Our own program with one thing said wrongly, for each kind of what is played: some case finds that.
#[test]
fn a_program_that_is_wrong_in_one_thing_is_found_out() {
    let wrong = [
        ("conversation-to-server", r#"s/"end":"half-close"/"end":"none"/"#),
        ("conversation-to-server", r#"s/"end":"none"/"end":"half-close"/"#),
        ("conversation-to-server", r#"s/"kind":"compressed"/"kind":"encoded"/"#),
        ("conversation-to-server", r#"s/"kind":"segmented"/"kind":"encoded"/"#),
        ("conversation-to-server", r#"s/"kind":"object segmented"/"kind":"segmented"/"#),
        ("conversation-to-server", r#"s/"deadline_ns":"[0-9a-f]*"/"deadline_ns":"0000000000000000"/"#),
        ("conversation-to-server", r#"s/"x-a: b"/"x-a: a"/"#),
        ("conversation-to-server", r#"s:/a.B/D:/a.B/C:"#),
        ("conversation-to-client", r#"s/"end":"refused"/"end":"cancelled 14"/"#),
        ("conversation-to-client", r#"s/"end":"status [1-9][0-9]*"/"end":"status 0"/"#),
        ("conversation-to-client", r#"s/"kind":"object"/"kind":"encoded"/"#),
        ("conversation-to-client", r#"s/"headers":null/"headers":[]/"#),
        ("conversation-to-client", r#"s/"trailers":\[[^]]*\]/"trailers":[]/"#),
        ("conversation-to-client", r#"s/"closed":"[^"]*"/"closed":null/"#),
        ("ring", r#"s/"empty_head_offset":[0-9]*/"empty_head_offset":4096/"#),
        ("ring", r#"s/"consumed":"../"consumed":"ff/"#),
        ("ring", r#"s/"offset":4096/"offset":4160/"#),
        ("ring-head", r#"s/"found":"violation"/"found":"empty"/"#),
        ("ring-head", r#"s/"found":"empty"/"found":"violation"/"#),
        ("ring-head", r#"s/"len":1976/"len":1975/"#),
        ("ring-cursor", r#"s/"found":"violation"/"found":"taken"/"#),
        ("ring-cursor", r#"s/"room":63/"room":64/"#),
        ("waiting", r#"s/"waiting":"0b/"waiting":"09/"#),
        ("waiting", r#"s/"waiting":"04/"waiting":"00/"#),
        ("load", r#"s/"load":"01000000"/"load":"00000000"/"#),
        ("device", r#"s/"violation":true/"violation":false/"#),
        ("device", r#"s/"violation":false/"violation":true/"#),
        ("device", r#"s/"line":[0-9]*/"line":0/g"#),
        ("device", r#"s/"written":0/"written":1/"#),
        ("violation-to-server", r#"s/"violation":"[a-z]*"/"violation":"none"/"#),
        ("table", r#"s/"refused":"[^"]*"/"fingerprint":"0","types":[],"fields":[]/"#),
        ("verify", r#"s/"refused":"[^"]*"/"message":""/"#),
    ];
    let all = cases().expect("vectors");
    for (topic, bend) in wrong {
        let cases: Vec<Case> = all.iter().filter(|case| case.topic == topic).cloned().collect();
        let program = format!("{} | sed -u '{bend}'", env!("CARGO_BIN_EXE_tollfree-vectors-ours"));
        let report = run(&cases, &shell(&program)).expect("it starts");
        let is_wrong = |(.., outcome): (&str, &str, &Outcome)| matches!(outcome, Outcome::Wrong(_));
        let count = report.outcomes().filter(|outcome| is_wrong(*outcome)).count();
        assert!(count > 0, "{topic}: nobody notices {bend}");
        assert!(!report.is_right());
    }
}

#[test]
fn what_may_be_missing_passes_and_is_counted() {
    let cases = some(2);
    let answers = r#"read -r line; echo '{"id":0,"not_implemented":true}'; read -r line; echo '{"id":1,"not_implemented":true}'"#;
    let allowed = Settings { allowed: vec![cases[0].topic.clone()], ..shell(answers) };
    let report = run(&cases, &allowed).expect("it starts");
    assert!(report.is_right());
    assert_eq!(report.to_json()["topics"]["table"]["not_implemented"], 2);
}

#[test]
fn a_program_that_hangs_is_given_up() {
    let cases = some(5);
    let silent = Settings { time: Duration::from_millis(50), ..shell("exec sleep 60") };
    let report = run(&cases, &silent).expect("it starts");
    assert!(wrong(&report, &cases[0]).contains("no answer within"));
    assert!(wrong(&report, &cases[4]).contains("not asked"));
}

#[test]
fn a_program_that_dies_is_started_anew() {
    let cases = some(2);
    let report = run(&cases, &shell("read -r line; exit 3")).expect("it starts");
    for case in &cases {
        assert!(wrong(&report, case).contains("exit status: 3"), "{report}");
    }
}

#[test]
fn words_and_answers_to_other_questions_are_wrong() {
    let cases = some(1);
    let report = run(&cases, &shell("read -r line; echo hello")).expect("it starts");
    assert!(wrong(&report, &cases[0]).contains("no JSON object"));
    let report = run(&cases, &shell(r#"read -r line; echo '{"id":7,"refused":""}'"#)).expect("it starts");
    assert!(wrong(&report, &cases[0]).contains("id is 7"));
}

#[test]
fn the_command_says_by_its_code_whether_all_is_right() {
    let run = |arguments: &[&str]| {
        let command = env!("CARGO_BIN_EXE_tollfree-vectors");
        std::process::Command::new(command).args(arguments).output().expect("it starts")
    };
    let ours = env!("CARGO_BIN_EXE_tollfree-vectors-ours");
    let right = run(&["--json", "--topic", "ref", ours]);
    assert_eq!(right.status.code(), Some(0), "{}", String::from_utf8_lossy(&right.stderr));
    assert!(String::from_utf8_lossy(&right.stdout).contains("\"passes\": true"));
    assert_eq!(run(&["--topic", "ref", "true"]).status.code(), Some(1));
    assert_eq!(run(&["--topic", "nothing", ours]).status.code(), Some(2));
    assert_eq!(run(&["/nonexistent"]).status.code(), Some(2));
}
