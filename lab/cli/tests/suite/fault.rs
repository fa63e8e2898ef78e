//! `tollfree-lab bench fault` from the outside.

use super::run::{Scratch, lab};
use serde_json::Value;

#[test]
fn calls_go_on_after_a_restart_and_none_is_answered_wrongly() {
    let scratch = Scratch::new();
    let arguments =
        ["bench", "fault", "--side", "tollfree,tonic-unix", "--faults", "2", "--down", "5", "--json"];
    let done = lab(&scratch).args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report: Value = serde_json::from_slice(&done.stdout).expect("standard output is one JSON object");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{report}");
    for row in rows {
        assert_eq!(
            (&row["kind"], &row["faults"], &row["wrong"]),
            (&"restart".into(), &2.into(), &0.into()),
            "{row}"
        );
        assert!(row["outage_ms"].is_f64() && row["lost"].as_u64() < row["calls"].as_u64(), "{row}");
    }
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn impossible_faults_are_refused_in_words() {
    let scratch = Scratch::new();
    for (arguments, words) in
        [(["--faults", "0"], "1 to 1000"), (["--side", "session"], "does not connect again")]
    {
        let done = lab(&scratch).args(["bench", "fault"]).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
}
