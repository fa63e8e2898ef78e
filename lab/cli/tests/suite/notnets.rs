//! `tollfree-lab figure notnets-table1` and `notnets-fig1` from the outside.

use serde_json::Value;

use crate::run::{Scratch, lab};

#[test]
fn the_papers_table_has_a_row_for_each_level_and_as_many_calls_as_were_asked_for() {
    let scratch = Scratch::new();
    let table = |arguments: &[&str]| {
        lab(&scratch).args(["figure", "notnets-table1", "--calls", "40"]).args(arguments).output().unwrap()
    };
    let done = table(&["--placement", "same-core"]);
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    for row in ["HTTP/2 ", "level 1", "level 2"] {
        assert!(
            text.lines().any(|line| line.trim().starts_with(row.trim()) && line.contains(" 40 ")),
            "{text}"
        );
    }
    let done = table(&["--placement", "same-core", "--json"]);
    let report: Value = serde_json::from_slice(&done.stdout).expect("standard output is one JSON object");
    assert!(report["rows"].as_array().unwrap().iter().all(|row| row["calls"] == 40));
    assert_eq!(table(&["--calls", "0"]).status.code(), Some(2));
}

#[test]
fn the_papers_figure_has_all_layers_of_all_stacks_for_both_messages() {
    let scratch = Scratch::new();
    let arguments = ["figure", "notnets-fig1", "--seconds", "0.05", "--rounds", "2", "--json"];
    let done = lab(&scratch).args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report: Value = serde_json::from_slice(&done.stdout).expect("standard output is one JSON object");
    assert_eq!(report["label"], "measured");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 4);
    for row in rows {
        let layers = row["layers"].as_array().unwrap();
        let names: Vec<_> = layers.iter().map(|layer| layer["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["serialization", "core", "transport", "kernel"]);
        let sum = |field: &str| layers.iter().map(|layer| layer[field].as_f64().unwrap()).sum::<f64>();
        assert!((sum("share") - 1.0).abs() < 1e-6, "{row}");
        assert!((sum("ns") / row["cpu_ns"].as_f64().unwrap() - 1.0).abs() < 1e-6, "{row}");
        assert!(layers[0]["ns"].as_f64().unwrap() > 0.0 && row["calls"].as_u64().unwrap() > 0, "{row}");
    }
    let bytes = |idx: usize| rows[idx]["bytes"].as_u64().unwrap();
    assert!(bytes(0) < 100 && bytes(7) >= 128 << 10);
    let prost = |idx: usize| rows[idx]["layers"][0]["ns"].as_f64().unwrap();
    assert!(prost(7) > 100.0 * prost(0), "the large message is a thousand times as long");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("32 of 32") && said.contains("prost alone"), "{said}");
    let out: Vec<_> =
        scratch.path().join("bench-out").read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    let read = |name: &str| std::fs::read_to_string(out[0].join(name)).unwrap();
    assert_eq!(read("rows.json").trim(), String::from_utf8_lossy(&done.stdout).trim());
    assert!(read("table.txt").contains("level 2: own stubs") && read("plot.svg").ends_with("</svg>\n"));
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn impossible_figures_are_refused_in_words() {
    let scratch = Scratch::new();
    for (arguments, words) in [
        (["--seconds", "0"], "must be above 0"),
        (["--rounds", "0"], "1 to 1000"),
        (["--corpus", "nowhere"], "nowhere/bench5/M54.binpb"),
    ] {
        let done = lab(&scratch).args(["figure", "notnets-fig1"]).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
}
