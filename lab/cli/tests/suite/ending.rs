//! However a command ends, its processes and its temporary files end with it.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::run::{Scratch, lab};

/// Long enough that only a signal can be what ended it.
const LONG: [&str; 8] =
    ["bench", "echo", "--seconds", "600", "--placement", "unpinned", "--side", "tonic-unix"];

/// As long, with a pool.
const LONG_WORKLOAD: [&str; 6] = ["workload", "echo", "--seconds", "600", "--side", "ref"];

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < patience, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processes whose parent is `pid`. Zombies count: they have not been waited for.
fn children_of(pid: u32) -> Vec<u32> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_ascii_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Ended, and only waiting for its new parent to notice, is ended.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn start(scratch: &Scratch, arguments: &[&str]) -> (Child, Vec<u32>) {
    let child = lab(scratch).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("a server and a client process run", || children_of(child.id()).len() == 2);
    let peers = children_of(child.id());
    assert!(!scratch.leftovers().is_empty(), "the socket directory is where this test looks for it");
    (child, peers)
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
}

#[test]
fn an_interrupt_ends_the_peers_and_removes_the_sockets() {
    for (arguments, sent, status) in [
        (&LONG[..], Signal::INT, 130),
        (&LONG[..], Signal::TERM, 143),
        (&LONG_WORKLOAD[..], Signal::INT, 130),
    ] {
        let scratch = Scratch::new();
        let (mut child, peers) = start(&scratch, arguments);
        signal(&child, sent);
        assert_eq!(child.wait().unwrap().code(), Some(status), "{arguments:?}");
        eventually("the peers are gone", || !peers.iter().any(|pid| runs(*pid)));
        assert_eq!(scratch.leftovers(), Vec::<String>::new(), "{arguments:?}");
    }
}

#[test]
fn a_killed_starter_takes_its_peers_with_it() {
    for arguments in [&LONG[..], &LONG_WORKLOAD[..]] {
        let scratch = Scratch::new();
        let (mut child, peers) = start(&scratch, arguments);
        signal(&child, Signal::KILL);
        child.wait().unwrap();
        eventually("the peers are gone", || !peers.iter().any(|pid| runs(*pid)));
    }
}

#[test]
fn a_killed_server_is_a_row_that_says_so() {
    let scratch = Scratch::new();
    let mut command = lab(&scratch);
    command.args(LONG).args(["--size", "64", "--inflight", "1", "--rounds", "1", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("a server and a client process run", || children_of(child.id()).len() == 2);
    let server = children_of(child.id())[0];
    kill_process(Pid::from_raw(server as i32).unwrap(), Signal::KILL).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1), "{}", String::from_utf8_lossy(&done.stderr));
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let row = &report["rows"][0];
    assert!(row["not_run"].as_str().unwrap().contains("client"), "{row}");
    assert_eq!(row["p50_ns"], serde_json::Value::Null);
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

#[test]
fn a_killed_service_is_a_row_that_says_so_and_the_next_row_runs() {
    let scratch = Scratch::new();
    let mut command = lab(&scratch);
    command.args(["workload", "echo", "--seconds", "3", "--rounds", "1", "--json", "--size", "5000"]);
    command.args(["--side", "inline,ref"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("a service and a load generator run", || children_of(child.id()).len() == 2);
    kill_process(Pid::from_raw(children_of(child.id())[0] as i32).unwrap(), Signal::KILL).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(1), "{}", String::from_utf8_lossy(&done.stderr));
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let (killed, next) = (&report["rows"][0], &report["rows"][1]);
    assert!(killed["not_run"].is_string() && killed["p50_ns"].is_null(), "{killed}");
    assert!(next["not_run"].is_null() && next["calls"].as_u64().unwrap() > 0, "{next}");
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}
