//! `tollfree-lab bench paced`, `crowd`, `hostile`, `split` and `device` from the outside: their results as others read them.

use serde_json::Value;

use crate::run::{Scratch, lab};

fn report(arguments: &[&str]) -> Value {
    let scratch = Scratch::new();
    let done = lab(&scratch).arg("bench").args(arguments).arg("--json").output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{arguments:?}: {said}");
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
    let report: Value = serde_json::from_slice(&done.stdout).expect("standard output is one JSON object");
    assert!(report["machine"]["cores"].as_u64().unwrap() >= 1);
    report
}

fn number(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap_or_else(|| panic!("no number in {field}: {row}"))
}

#[test]
fn paced_rows_have_the_fields_that_others_rely_on() {
    let axes = ["--rate", "1000", "--runtime", "current", "--placement", "same-core"];
    let times = ["--seconds", "0.05", "--rounds", "1", "--wait", "default,park"];
    let report = report(&[&["paced"][..], &axes, &times].concat());
    let rows = report["rows"].as_array().unwrap();
    // A side without a runtime, or without a way to wait, has one row for all of them.
    let each =
        [("wake", 1), ("tonic-unix", 1), ("tollfree", 2), ("tollfree-direct", 2), ("tollfree-blocking", 2)];
    for (side, count) in each {
        let alike = rows.iter().filter(|row| row["side"] == side && row["rate"] == 1000);
        assert_eq!(alike.count(), count, "{side}");
    }
    // The programs in Go and Python are beside the build.
    let of = |row: &Value, sides: &[&str]| sides.iter().any(|side| row["side"] == *side);
    let (go, rows): (Vec<_>, Vec<_>) = rows.iter().partition(|row| of(row, &["go", "grpc-go"]));
    assert!(go.len() == 2 && go.iter().all(|row| row["not_run"].as_str().unwrap().contains("bench-go")));
    let (python, rows): (Vec<&Value>, Vec<&Value>) =
        rows.into_iter().partition(|row| of(row, &["python", "python-inline", "grpcio"]));
    assert_eq!(python.len(), 3);
    assert!(python.iter().all(|row| row["not_run"].as_str().unwrap().contains("bench-python")));
    for row in rows {
        assert_eq!((&row["placement"], &row["quota"]), (&"same-core".into(), &Value::Null));
        assert_eq!(row["runtime"], "current");
        assert!(row["wait"] == "default" || row["wait"] == "park", "{row}");
        let (p50, p99, p999) = (number(row, "p50_ns"), number(row, "p99_ns"), number(row, "p999_ns"));
        assert!(p50 > 0 && p50 <= p99 && p99 <= p999, "{row}");
        assert!(number(row, "calls") >= 1 && number(row, "client_cpu_ns") > 0, "{row}");
        let (_, _) = (number(row, "missed"), number(row, "server_cpu_ns"));
        assert_eq!((&row["throttled_ns"], &row["not_run"]), (&Value::Null, &Value::Null), "no quota: {row}");
    }
}

#[test]
fn hostile_rows_have_the_fields_that_others_rely_on() {
    let report = report(&["hostile", "--seconds", "0.05", "--rounds", "1"]);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 8, "attacks");
    for row in rows {
        assert_eq!(row["not_run"], Value::Null, "{row}");
        assert!(row["attack"].is_string() && number(row, "held") > 0, "{row}");
        for ratio in ["rate_ratio", "p99_ratio", "rate_per_s", "quiet_rate_per_s"] {
            assert!(row[ratio].as_f64().unwrap() > 0.0, "{ratio}: {row}");
        }
        assert!(number(row, "p99_ns") > 0 && number(row, "quiet_p99_ns") > 0, "{row}");
    }
}

#[test]
fn crowd_rows_have_the_fields_that_others_rely_on() {
    let axes = ["--clients", "1,3", "--inflight", "2", "--runtime", "current"];
    let report = report(&[&["crowd"][..], &axes, &["--seconds", "0.05", "--rounds", "1"]].concat());
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "two numbers of clients on three sides");
    for row in rows {
        assert_eq!((&row["inflight"], &row["runtime"]), (&2.into(), &"current".into()));
        assert_eq!(row["rate"], Value::Null, "a closed loop: {row}");
        assert!(row["clients"] == 1 || row["clients"] == 3, "{row}");
        let fairness = row["fairness"].as_f64().unwrap();
        assert!(fairness > 0.0 && fairness <= 1.0 && (row["clients"] != 1 || fairness == 1.0), "{row}");
        assert!(row["rate_per_s"].as_f64().unwrap() > 0.0, "{row}");
        let (p50, p99, worst) = (number(row, "p50_ns"), number(row, "p99_ns"), number(row, "worst_ns"));
        assert!(p50 > 0 && p50 <= p99 && p99 <= worst, "{row}");
        assert!(number(row, "calls") >= 1, "{row}");
        // Counted in ticks: a short run may take none.
        let (_, _) = (number(row, "client_cpu_ns"), number(row, "server_cpu_ns"));
        assert_eq!(row["not_run"], Value::Null);
    }
}

#[test]
fn what_is_asked_beyond_the_knee_has_a_row_for_each_question_in_each_state() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("not run: it needs two cores");
        return;
    }
    let arguments = ["split", "--beyond=1.5", "--busy-ns", "2000000", "--inflight", "8", "--seconds", "0.3"];
    let report = report(&[&arguments[..], &["--rounds", "1"]].concat());
    assert_eq!(report["share"], 1.5);
    let rows = report["rows"].as_array().unwrap();
    let questions: Vec<_> = rows.iter().map(|row| row["question"].as_str().unwrap()).collect();
    assert_eq!(questions, ["health", "refusal", "other-group"]);
    for row in rows {
        assert!(row["message"] == "echo64" && row["busy_ns"] == 2_000_000, "{row}");
        assert_eq!(row["not_run"], Value::Null, "{row}");
        let states = row["states"].as_array().unwrap();
        let names: Vec<_> = states.iter().map(|state| state["state"].as_str().unwrap()).collect();
        assert_eq!(names, ["quiet", "same-rate", "beyond"]);
        for state in states {
            let (p50, p99) = (number(state, "p50_ns"), number(state, "p99_ns"));
            assert!(p50 > 0 && p50 <= p99 && number(state, "calls") > 0, "{row}");
        }
        assert!(row["p99_of_quiet"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["p99_of_same_rate"].as_f64().unwrap() > 0.0, "{row}");
    }
    let loads = report["loads"].as_array().unwrap();
    let states: Vec<_> = loads.iter().map(|load| load["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["same-rate", "beyond"]);
    // A call takes two milliseconds of the backend's core, so no machine answers more.
    let [answered, due] = ["answered_per_s", "due_per_s"].map(|field| loads[1][field].as_f64().unwrap());
    assert!(answered > 0.0 && answered <= 520.0 && due > 0.0, "{}", loads[1]);
}

#[test]
fn split_rows_have_the_fields_that_others_rely_on() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("not run: it needs two cores");
        return;
    }
    let axes = ["--side", "tonic,gateway-bytes,envoy", "--message", "echo64,M3", "--inflight", "2"];
    let times = ["--busy-ns", "0,1000", "--seconds", "0.1", "--rounds", "1"];
    let report = report(&[&["split"][..], &axes, &times].concat());
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 12, "three sides, two messages, two lengths of application work");
    for row in rows {
        assert_eq!(row["inflight"], 2);
        assert!(row["busy_ns"] == 0 || row["busy_ns"] == 1000, "{row}");
        if row["side"] == "envoy" && row["not_run"].is_string() {
            assert!(row["not_run"].as_str().unwrap().starts_with("not run: there is no envoy"), "{row}");
            assert!(row["p50_ns"].is_null() && row["calls"] == 0, "{row}");
            continue;
        }
        assert_eq!(row["not_run"], Value::Null, "{row}");
        let quantiles = ["p50_ns", "p75_ns", "p90_ns", "p99_ns"].map(|field| number(row, field));
        assert!(quantiles.is_sorted() && quantiles[0] > row["busy_ns"].as_u64().unwrap(), "{row}");
        assert!(row["rate_per_s"].as_f64().unwrap() > 0.0 && number(row, "calls") > 0, "{row}");
        assert!(number(row, "host_cpu_ns") > 0, "{row}");
        assert_eq!(number(row, "infra_cpu_ns") > 0, row["side"] != "tonic", "{row}");
        let long = if row["message"] == "echo64" { 66 } else { 300 };
        assert!(number(row, "message_bytes") >= long, "{row}");
    }
}

#[test]
fn device_rows_have_the_fields_that_others_rely_on() {
    let axes =
        ["--mode", "doorbell,doorbell-batch:11,coherent:4", "--inflight", "4", "--placement", "same-core"];
    let times = ["--seconds", "0.05", "--rounds", "1"];
    let closed = report(&[&["device"][..], &axes, &times].concat());
    let rows = closed["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "three modes and the floor");
    for row in rows {
        assert_eq!((&row["inflight"], &row["rate"], &row["threads"]), (&4.into(), &Value::Null, &1.into()));
        assert!(row["calls_per_s"].as_f64().unwrap() > 0.0 && row["not_run"] == Value::Null, "{row}");
        assert!(number(row, "p50_ns") > 0 && number(row, "p50_ns") <= number(row, "p99_ns"), "{row}");
        if row["mode"] != Value::Null {
            assert!(row["of_floor"].as_f64().unwrap() > 0.0, "{row}");
            assert!(row["sends_per_publication"].as_f64().unwrap() >= 1.0, "{row}");
            assert!(row["rings_per_call"].as_f64().is_some(), "{row}");
        }
    }
    assert_eq!(closed["bounds"].as_array().unwrap().len(), 2, "{}", closed["bounds"]);
    let axes = ["--mode", "coherent:4", "--batch", "auto,1", "--rate", "500", "--threads", "2"];
    let paced = report(&[&["device"][..], &axes, &times].concat());
    let rows = paced["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["rate"], &rows[1]["batch"]), (2, &500.into(), &1.into()));
    assert!(rows.iter().all(|row| row["not_run"] == Value::Null && number(row, "calls") > 0), "{rows:?}");
}
