//! `tollfree-lab bench echo` from the outside: its arguments, its result, and what it leaves behind.

use serde_json::Value;
use tollfree_bench::plan::Side;

use crate::run::{Scratch, lab};

/// A tiny real run.
const TINY: [&str; 9] =
    ["bench", "echo", "--seconds", "0.05", "--rounds", "2", "--placement", "same-core", "--json"];

fn rows(stdout: &[u8]) -> Vec<Value> {
    let report: Value = serde_json::from_slice(stdout).expect("standard output is one JSON object");
    assert!(report["machine"]["cores"].as_u64().unwrap() >= 1);
    assert_eq!(report["machine"]["allocator"], "system malloc");
    report["rows"].as_array().unwrap().clone()
}

#[test]
fn a_row_has_the_fields_that_others_rely_on() {
    let scratch = Scratch::new();
    let done = lab(&scratch).args(TINY).args(["--size", "64", "--side", "tonic-unix"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let settings = |stdout: &[u8]| {
        let report: Value = serde_json::from_slice(stdout).unwrap();
        report["machine"]["allocator_settings"].as_object().unwrap().len()
    };
    assert_eq!(settings(&done.stdout), 2, "what malloc keeps is part of the result");
    let plain =
        lab(&scratch).args(TINY).args(["--size", "64", "--side", "floor", "--malloc", "system"]).output();
    assert_eq!(settings(&plain.unwrap().stdout), 0);
    let rows = rows(&done.stdout);
    assert_eq!(rows.len(), 2, "one for each number in flight");
    for (row, inflight) in rows.iter().zip([1, 64]) {
        assert_eq!(row["side"], "tonic-unix");
        assert_eq!(row["size"], 64);
        assert_eq!(row["inflight"], inflight);
        assert_eq!(row["placement"], "same-core");
        assert_eq!(row["runtime"], "current");
        assert_eq!(row["message"], "probe");
        assert!(row["client_cpu_ns"].as_u64() > Some(0), "{row}");
        assert!(row["server_cpu_ns"].is_u64() || row["server_cpu_ns"].is_null(), "{row}");
        let number =
            |field: &str| row[field].as_f64().unwrap_or_else(|| panic!("no number in {field}: {row}"));
        let (p50, p99, p999) = (number("p50_ns"), number("p99_ns"), number("p999_ns"));
        assert!(p50 > 0.0 && p50 <= p99 && p99 <= p999, "{row}");
        assert!(number("mean_ns") > 0.0 && number("rate_per_s") > 0.0 && number("calls") >= 1.0);
        // Calls, rate and time must fit together: two rounds of 0.05 s, longer only where no call ended in one.
        let seconds = number("calls") / number("rate_per_s");
        let stretched = p999 > 50e6;
        assert!(seconds > 0.0999 && (seconds < 0.1001 || stretched), "{seconds} s: {row}");
        assert_eq!(row["rounds"].as_array().unwrap().len(), 2);
        assert_eq!(row["vs_tonic_unix"]["p50"], 1.0);
        assert_eq!(row["not_run"], Value::Null);
    }
}

#[test]
fn every_side_that_there_is_runs_over_every_axis() {
    let scratch = Scratch::new();
    let axes = ["--size", "0,70000", "--inflight", "1,3", "--runtime", "current,multi"];
    let done = lab(&scratch).args(TINY).args(axes).args(["--seconds", "0.02"]).output();
    // The option given twice is an error; a run with the shorter time follows.
    assert_eq!(done.unwrap().status.code(), Some(2));
    let done = lab(&scratch).args(TINY).args(axes).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let rows = rows(&done.stdout);
    assert_eq!(rows.len(), Side::ALL.len() * 2 * 2 * 2);
    for row in rows {
        // A peer that this build hasn't is a row that says so, and how to get it.
        let goal = match row["side"].as_str().unwrap() {
            "iceoryx2" if !cfg!(feature = "iceoryx2") => Some("bench-peers"),
            // The program in Go is beside the build.
            "cpp" | "cpp-stock" | "grpc-cpp" => Some("bench-cpp"),
            "go" | "go-inline" | "go-direct" | "go-to-rust" | "rust-to-go" | "grpc-go" => Some("bench-go"),
            "python" | "python-inline" | "python-aio" | "python-to-rust" | "python-aio-to-rust"
            | "python-ref" | "python-ref-to-rust" | "grpcio" | "grpcio-aio" => Some("bench-python"),
            "c" => Some("bench-c"),
            _ => None,
        };
        if let Some(goal) = goal {
            assert!(row["p50_ns"].is_null() && row["not_run"].as_str().unwrap().contains(goal), "{row}");
        } else {
            assert!(row["p50_ns"].is_u64() && row["not_run"].is_null(), "{row}");
        }
    }
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn messages_with_fields_are_read_and_built_at_both_ends() {
    let scratch = Scratch::new();
    let axes = ["--message", "M3,order,fds-copy", "--inflight", "3"];
    let sides =
        ["--side", "session,tollfree-direct,tollfree-view,tollfree-view-pool,tollfree-blocking,tonic-unix"];
    let done = lab(&scratch).args(TINY).args(axes).args(sides).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let rows = rows(&done.stdout);
    assert_eq!(rows.len(), 6 * 3);
    for row in rows {
        assert!(row["size"].as_u64() > Some(500) && row["metadata"] == 0, "{row}");
        // A side of bytes has a row that says so.
        if row["side"] == "session" {
            assert!(row["p50_ns"].is_null() && row["not_run"].is_string(), "{row}");
        } else {
            assert!(row["p50_ns"].is_u64() && row["not_run"].is_null(), "{row}");
            assert!(row["client_cpu_ns"].as_u64() > Some(0), "{row}");
        }
    }
    let axes = ["--message", "M3", "--corpus", "/nowhere", "--side", "tollfree-view"];
    let done = lab(&scratch).args(TINY).args(axes).output().unwrap();
    assert!(!done.status.success() && String::from_utf8_lossy(&done.stderr).contains("/nowhere"));
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn raw_data_table_and_plot_are_written_and_nothing_else_stays() {
    let scratch = Scratch::new();
    let done =
        lab(&scratch).args(TINY).args(["--size", "64", "--side", "floor,tonic-unix"]).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let out: Vec<_> =
        scratch.path().join("bench-out").read_dir().unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(out.len(), 1, "{out:?}");
    let read = |name: &str| std::fs::read_to_string(out[0].join(name)).unwrap();
    assert_eq!(read("rows.json").trim(), String::from_utf8_lossy(&done.stdout).trim());
    assert!(read("table.txt").contains("tonic-unix"));
    assert!(read("plot.svg").ends_with("</svg>\n"));
    let counted: u64 = read("latencies.csv")
        .lines()
        .skip(1)
        .map(|l| l.rsplit(',').next().unwrap().parse::<u64>().unwrap())
        .sum();
    let reported: u64 = rows(&done.stdout).iter().map(|row| row["calls"].as_u64().unwrap()).sum();
    assert_eq!(counted, reported, "the raw data hold every call");
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn metadata_are_carried_and_their_cost_is_told() {
    let scratch = Scratch::new();
    let axes = ["--size", "64", "--inflight", "1", "--metadata", "0,5"];
    let sides = ["--side", "floor,session,tollfree-direct,tollfree-blocking,tollfree,tonic-unix"];
    let done = lab(&scratch).args(TINY).args(axes).args(sides).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let rows = rows(&done.stdout);
    let median = |row: &Value| row["p50_ns"].as_i64().unwrap();
    let (with, without): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row["metadata"] == 5);
    assert_eq!((with.len(), without.len()), (4, 6), "bytes alone have no metadata");
    for row in with {
        let bare = without.iter().find(|bare| bare["side"] == row["side"]).unwrap();
        assert_eq!(row["metadata_ns"], median(row) - median(bare), "{row}");
    }
    let floor = without.iter().find(|row| row["side"] == "floor").unwrap();
    for row in without.iter().filter(|row| row["metadata_ns"].is_null()) {
        let tail = row["p999_ns"].as_f64().unwrap() / median(row) as f64;
        assert!((row["tail"].as_f64().unwrap() / tail - 1.0).abs() < 1e-9, "{row}");
        let beside = tail / floor["tail"].as_f64().unwrap();
        assert!((row["tail_vs_floor"].as_f64().unwrap() / beside - 1.0).abs() < 1e-9, "{row}");
    }
}

#[test]
fn bad_arguments_are_answered_in_words_with_status_2() {
    let scratch = Scratch::new();
    let names: Vec<_> = Side::ALL.iter().map(|side| side.name()).collect();
    let sides = format!("there are {}", names.join(", "));
    let help = lab(&scratch).args(["bench", "echo", "--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).replace(',', " ");
    for name in names {
        assert!(help.split_whitespace().any(|word| word == name), "{name} is not in the help");
    }
    for (arguments, words) in [
        (&["--side", "pigeon"][..], &*sides),
        (&["--placement", "moon"][..], "split, same-core, unpinned"),
        (&["--runtime", "fast"][..], "current, multi"),
        (&["--malloc", "mine"][..], "keep, system"),
        (&["--size", "many"][..], "--size"),
        (&["--size", "999999999999"][..], "bytes: must be 0 to"),
        (&["--metadata", "101"][..], "metadata pairs"),
        (&["--inflight", "0"][..], "calls in flight"),
        (&["--rounds", "0"][..], "rounds"),
        (&["--seconds", "0"][..], "seconds"),
    ] {
        let done = lab(&scratch).args(["bench", "echo"]).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said:?} lacks {words:?}");
        assert!(done.stdout.is_empty());
    }
}

#[test]
fn split_is_refused_on_one_core() {
    let scratch = Scratch::new();
    let core = rustix::thread::sched_getaffinity(None).unwrap();
    let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| core.is_set(*cpu)).unwrap();
    let mut command = lab(&scratch);
    command.args(["bench", "echo", "--placement", "split"]);
    // A thread of its own, so that only this child is confined.
    let done = std::thread::spawn(move || {
        let mut one = rustix::thread::CpuSet::new();
        one.set(first);
        rustix::thread::sched_setaffinity(None, &one).unwrap();
        command.output().unwrap()
    });
    let done = done.join().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.contains("needs two cores"), "{said}");
}
