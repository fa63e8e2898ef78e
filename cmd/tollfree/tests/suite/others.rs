//! `tollfree demo`, `tollfree echo`, `tollfree pool` and the help, from the outside.

use serde_json::Value;

use crate::run::{Scratch, tollfree};

fn json(command: &mut std::process::Command) -> Value {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).expect("standard output is one JSON object")
}

#[test]
fn the_demo_calls_another_process_and_cleans_up() {
    let scratch = Scratch::new();
    let findings = json(tollfree(&scratch).args(["demo", "--json"]));
    assert_ne!(findings["server_pid"], findings["client_pid"]);
    let unix = &findings["tours"][0];
    assert_eq!(unix["transport"], "unix-http2");
    assert!(unix["path"]["address"].as_str().unwrap().starts_with("unix:/"));
    let calls = unix["calls"].as_array().unwrap();
    assert_eq!(calls[0]["replies"][0], "Hello, Ada!");
    assert_eq!(calls[0]["server_pid"], findings["server_pid"]);
    assert_eq!(calls[2]["replies"].as_array().unwrap().len(), 3, "a stream of three");
    assert!(calls[3]["replies"][0].as_str().unwrap().starts_with("InvalidArgument"));
    assert!(unix["timing"]["p50_ns"].as_u64() <= unix["timing"]["p99_ns"].as_u64());
    let rings = &findings["tours"][1];
    assert_eq!(rings["transport"], "tollfree");
    assert!(rings["path"]["why"].as_str().unwrap().contains("shared memory with process"), "{rings}");
    assert_eq!(rings["calls"], unix["calls"], "the same calls, the same answers");
    let ratio = rings["timing"]["p50_ns"].as_f64().unwrap() / unix["timing"]["p50_ns"].as_f64().unwrap();
    // Decimals may come back with another last bit.
    assert!((findings["p50_ratio"].as_f64().unwrap() / ratio - 1.0).abs() < 1e-9, "{findings}");
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn the_echo_compares_both_transports_and_cleans_up() {
    let scratch = Scratch::new();
    let report = json(tollfree(&scratch).args(["echo", "--json"]));
    assert_ne!(report["server_pid"], report["client_pid"]);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3 * 2 * 2, "sizes, calls in flight, transports");
    for pair in rows.chunks(2) {
        let [socket, rings] = pair else { panic!("rows come in pairs") };
        assert_eq!((&socket["transport"], &rings["transport"]), (&"unix-http2".into(), &"tollfree".into()));
        assert_eq!((&socket["size"], &socket["inflight"]), (&rings["size"], &rings["inflight"]));
        for row in pair {
            assert!(
                row["calls"].as_u64().unwrap() > 0 && row["p50_ns"].as_u64() <= row["p99_ns"].as_u64(),
                "{row}"
            );
        }
        let ratio = rings["p50_ns"].as_f64().unwrap() / socket["p50_ns"].as_f64().unwrap();
        assert!((rings["p50_ratio"].as_f64().unwrap() / ratio - 1.0).abs() < 1e-9, "{rings}");
    }
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn the_help_shows_what_there_is_and_hides_what_is_not_for_people() {
    let scratch = Scratch::new();
    let help = String::from_utf8(tollfree(&scratch).arg("--help").output().unwrap().stdout).unwrap();
    assert!(help.contains("tollfree demo") && help.contains("Exit status"), "{help}");
    assert!(!help.contains("peer"), "{help}");
    assert_eq!(tollfree(&scratch).output().unwrap().status.code(), Some(2));
}

#[test]
fn a_pools_members_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("shm://{}/pool.sock", directory.path().display());
    let capacity = tollfree_pool::Capacity::default();
    let pool =
        tollfree_pool::Pool::create(&address.parse().unwrap(), capacity, tollfree_pool::Config::default())
            .unwrap();
    let scratch = Scratch::new();
    let shown = json(tollfree(&scratch).args(["pool", "show", &address, "--json"]));
    assert_eq!(shown["total_bytes"], capacity.total);
    assert_eq!(shown["members"][0]["process"], std::process::id());
    let table = tollfree(&scratch).args(["pool", "show", &address]).output().unwrap();
    assert!(String::from_utf8_lossy(&table.stdout).contains("attached"), "{table:?}");
    drop(pool);
    let gone = tollfree(&scratch).args(["pool", "show", "shm:///nobody/here.sock"]).output().unwrap();
    assert!(!gone.status.success() && String::from_utf8_lossy(&gone.stderr).contains("/nobody/here.sock"));
}
