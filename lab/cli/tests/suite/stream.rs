//! `tollfree-lab bench stream` from the outside: its arguments, its result, and what it leaves behind.

use serde_json::Value;

use crate::run::{Scratch, lab};

/// A tiny real run.
const TINY: [&str; 7] = ["bench", "stream", "--seconds", "0.02", "--rounds", "1", "--json"];
const SIDES: [&str; 12] = [
    "tonic-unix",
    "tonic-tcp",
    "tonic-pipe",
    "tollfree",
    "tollfree-direct",
    "tollfree-view",
    "tollfree-blocking",
    "gateway",
    "go",
    "grpc-go",
    "python",
    "grpcio",
];

fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("no number in {field}: {row}"))
}

#[test]
fn every_side_streams_every_way_and_a_row_has_the_fields_that_others_rely_on() {
    let scratch = Scratch::new();
    let axes = ["--size", "5000", "--streams", "3", "--placement", "same-core"];
    let done = lab(&scratch).args(TINY).args(axes).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&done.stdout).expect("standard output is one JSON object");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4 * SIDES.len());
    for (row, side) in rows.iter().zip(SIDES.iter().cycle()) {
        assert_eq!((&row["side"], &row["placement"]), (&(*side).into(), &"same-core".into()));
        // The programs in Go and Python are beside the build.
        let goal = match *side {
            "go" | "grpc-go" => Some("bench-go"),
            "python" | "grpcio" => Some("bench-python"),
            _ => None,
        };
        if let Some(goal) = goal {
            assert!(row["not_run"].as_str().unwrap().contains(goal), "{row}");
            continue;
        }
        assert_eq!(row["not_run"], Value::Null, "{row}");
        assert!(number(row, "messages_per_s") > 0.0 && number(row, "messages") >= 2.0, "{row}");
        let (p50, p99) = (number(row, "p50_ns"), number(row, "p99_ns"));
        assert!(p50 > 0.0 && p50 <= p99, "{row}");
        assert!(number(row, "client_cpu_ns") > 0.0, "{row}");
        // Both ends of a pipe are one process.
        assert_eq!(number(row, "server_cpu_ns") > 0.0, *side != "tonic-pipe", "{row}");
        for (yardstick, against) in [("tonic-unix", "vs_tonic_unix"), ("tonic-pipe", "vs_tonic_pipe")] {
            let ratio = number(&row[against], "rate");
            assert!(ratio > 0.0 && (*side != yardstick || ratio == 1.0), "{row}");
            assert!(number(&row[against], "cpu") > 0.0 && number(&row[against], "p50") > 0.0, "{row}");
        }
    }
    let kinds: Vec<_> = rows.chunks(SIDES.len()).map(|alike| alike[0]["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["server", "client", "ping-pong", "burst"]);
    let out: Vec<_> =
        scratch.path().join("bench-out").read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    let read = |name: &str| std::fs::read_to_string(out[0].join(name)).unwrap();
    let table = read("table.txt");
    assert!(
        table.contains("rate : unix") && table.contains("burst, 5000 B, 3 at a time, same-core"),
        "{table}"
    );
    assert!(read("plot.svg").ends_with("</svg>\n"));
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn impossible_arguments_are_refused_in_words() {
    let scratch = Scratch::new();
    for (arguments, words) in [
        (["--kind", "sideways"], "no such kind of stream; there are server, client, ping-pong, burst"),
        (["--side", "session"], "no such side"),
        (["--size", "0"], "0 bytes in a message: must be 1 to 1048576"),
        (["--streams", "0"], "0 streams: must be 1 to 100"),
    ] {
        let done = lab(&scratch).args(TINY).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
}
