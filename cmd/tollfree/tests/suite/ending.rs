//! However a command ends, its processes and its temporary files end with it.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::run::{Scratch, tollfree};

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
    let child =
        tollfree(scratch).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
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
    for (arguments, sent, status) in [(&["demo"][..], Signal::INT, 130), (&["echo"][..], Signal::TERM, 143)] {
        let scratch = Scratch::new();
        let (mut child, peers) = start(&scratch, arguments);
        signal(&child, sent);
        assert_eq!(child.wait().unwrap().code(), Some(status), "{arguments:?}");
        eventually("the peers are gone", || !peers.iter().any(|pid| runs(*pid)));
        assert_eq!(scratch.leftovers(), Vec::<String>::new(), "{arguments:?}");
    }
}
