//! Processes that record what their sessions do: what their files say, together and each by itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tollfree_driver_tokio::{Address, WaitPolicy};
use tollfree_events::{
    Decision, Doorbell, FrameKinds, Line, Place as Lies, Recorded, SessionEvent, Side, StreamLook,
};
use tollfree_layout::frame::events;
use tollfree_layout::{errors, limits};
use tollfree_testkit::{Frame, HostilePeer, Process, Role, opening_of};

use crate::driver::{Client, PATIENCE, Place, Settings, Start, Which};
use crate::rows;
use crate::service::{ECHO, pattern};

const CALLS: usize = 30;

/// What the children do. Not a test of itself.
#[test]
#[ignore = "runs in processes that other tests start"]
fn as_child() {
    let Some(role) = Role::of_this_process() else { return };
    let which = rows::named(&role.detail);
    let address = Address::Path(role.socket.clone());
    // So that doorbells ring.
    let settings = Settings { wait: WaitPolicy::Park, ..Settings::default() };
    if role.name == "server" {
        let _server = (which.serve)(&address, &settings, &Default::default());
        role.ready();
        std::thread::sleep(PATIENCE);
        return;
    }
    let mut client = (which.connect)(&address, &settings).unwrap();
    (0..CALLS).for_each(|nth| call(&mut *client, nth * 101 % 3000));
    if role.name == "client that never stops calling" {
        role.ready();
        loop {
            call(&mut *client, 100);
        }
    }
    call(&mut *client, 200_000);
}

fn call(client: &mut dyn Client, len: usize) {
    let message = pattern(7, len);
    assert_eq!(client.call(Start::unary(ECHO, message.clone())).messages, [message]);
}

fn start(role: &str, which: Which, socket: &Path, events: &Path) -> Process {
    let program = std::env::current_exe().unwrap();
    let mut command = Process::command(&program, &format!("recording::{role}"), socket, which.name);
    Process::of(command.env("TOLLFREE_EVENTS", events).spawn().unwrap())
}

/// The file of a process, once it has what is waited for.
fn recorded(directory: &Path, process: &Process, has: impl Fn(&[Line]) -> bool) -> (PathBuf, Recorded) {
    let began = Instant::now();
    let end = format!("-{}.jsonl", process.pid().as_raw_nonzero());
    loop {
        let mut paths = directory.read_dir().unwrap().map(|entry| entry.unwrap().path());
        if let Some(path) = paths.find(|path| path.to_string_lossy().ends_with(&end))
            && let Ok(recorded) = Recorded::read(&std::fs::read(&path).unwrap())
            && has(&recorded.lines)
        {
            return (path, recorded);
        }
        assert!(began.elapsed() < PATIENCE, "the file of {end} does not have what it should");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_ended(lines: &[Line]) -> bool {
    lines.iter().any(|line| matches!(line.event, SessionEvent::Ended { .. }))
}

/// Frames that were sent, or that came, with their times.
fn frames(recorded: &Recorded, sent: bool) -> Vec<(u64, FrameKinds, u16, u32, Lies, u64)> {
    let frame = |line: &Line| match (sent, &line.event) {
        (true, SessionEvent::Sent { stream, kinds, code, len, place })
        | (false, SessionEvent::Received { stream, kinds, code, len, place }) => {
            Some((*stream, *kinds, *code, *len, *place, line.at_ns))
        }
        _ => None,
    };
    recorded.lines.iter().filter_map(frame).collect()
}

/// How often something is there.
fn count(recorded: &Recorded, is_it: impl Fn(&SessionEvent) -> bool) -> usize {
    recorded.lines.iter().filter(|line| is_it(&line.event)).count()
}

/// All that came was sent before, in this order.
fn assert_came(sender: &Recorded, receiver: &Recorded) -> usize {
    let (sent, came) = (frames(sender, true), frames(receiver, false));
    for (sent, came) in sent.iter().zip(&came) {
        assert_eq!((sent.0, sent.1, sent.2, sent.3, sent.4), (came.0, came.1, came.2, came.3, came.4));
        assert!(sent.5 <= came.5, "sent at {} ns, and there at {} ns", sent.5, came.5);
    }
    assert!(came.len() <= sent.len(), "{} came, and {} were sent", came.len(), sent.len());
    came.len()
}

pub(crate) fn two_files_tell_the_same_session_from_both_ends(place: &Place) {
    let directory = tempfile::tempdir().unwrap();
    let socket = place.path();
    let mut server = start("server", place.server, &socket, directory.path());
    server.wait_ready();
    let mut client = start("client", place.client, &socket, directory.path());
    assert!(client.wait_end(PATIENCE).is_some_and(|status| status.success()));
    let (_, of_client) = recorded(directory.path(), &client, is_ended);
    let (_, of_server) = recorded(directory.path(), &server, is_ended);

    for (own, peer, peer_process, is_client) in
        [(&of_client, &of_server, &server, true), (&of_server, &of_client, &client, false)]
    {
        let SessionEvent::Began { client, pid, agent, .. } = &own.lines[0].event else {
            panic!("{:?}", own.lines[0])
        };
        assert_eq!((*client, *pid), (is_client, peer_process.pid().as_raw_nonzero().get()));
        assert!(agent.as_str().starts_with("tollfree-rust/"), "{agent}");
        assert_eq!(peer.head.pid, *pid as u32);
        assert!(own.lines.iter().all(|line| line.session == 1), "each process has one");
        assert_eq!(count(own, |event| matches!(event, SessionEvent::Call { .. })), CALLS + 1);
        for (name, least, found) in [
            (
                "parks",
                1,
                count(own, |event| matches!(event, SessionEvent::Waits { decision: Decision::Park, .. })),
            ),
            ("sleeps", 1, count(own, |event| *event == SessionEvent::Armed { found: false })),
            ("rings", 1, count(own, |event| *event == SessionEvent::Doorbell { done: Doorbell::Rung })),
            ("publications", CALLS, count(own, |event| matches!(event, SessionEvent::Published { .. }))),
            ("rooms given back", 1, count(own, |event| matches!(event, SessionEvent::Released { .. }))),
            ("wake-ups", 1, count(own, |event| *event == SessionEvent::Woken)),
            ("grants", 1, count(own, |event| matches!(event, SessionEvent::Credit { by: Side::Here, .. }))),
        ] {
            assert!(found >= least, "{found} {name} at the {}", if is_client { "client" } else { "server" });
        }
        // Each stream's transitions follow each other, to its end.
        let mut looks: BTreeMap<u64, StreamLook> = BTreeMap::new();
        for line in &own.lines {
            if let SessionEvent::Stream { stream, from, to, .. } = &line.event {
                let before = looks.insert(*stream, *to).unwrap_or_default();
                assert_eq!(before, *from, "{line:?}");
            }
        }
        assert_eq!(looks.len(), CALLS + 1);
        assert!(looks.values().all(|look| !look.live), "{looks:?}");
    }
    let (up, down) = (assert_came(&of_client, &of_server), assert_came(&of_server, &of_client));
    assert!(up > CALLS && down > CALLS, "{up} frames up, and {down} down");
    assert!(
        frames(&of_client, true).iter().any(|frame| frame.4 == Lies::Area),
        "200,000 bytes go by an area"
    );
    let ended = |recorded: &Recorded| {
        recorded.lines.iter().find_map(|line| match line.event {
            SessionEvent::Ended { number, by, .. } => Some((number, by)),
            _ => None,
        })
    };
    assert_eq!(ended(&of_client), Some((errors::SESSION_CLOSED_HERE, Side::Here)));
    assert_eq!(ended(&of_server), Some((errors::SESSION_CLOSED_BY_PEER, Side::Peer)));
}

pub(crate) fn a_process_that_is_killed_leaves_what_it_has_recorded(place: &Place) {
    let directory = tempfile::tempdir().unwrap();
    let socket = place.path();
    let mut server = start("server", place.server, &socket, directory.path());
    server.wait_ready();
    let mut client = start("client that never stops calling", place.client, &socket, directory.path());
    client.wait_ready();
    client.signal(Signal::KILL);
    assert!(client.wait_end(PATIENCE).is_some());
    let (_, of_client) = recorded(directory.path(), &client, |lines| lines.len() > CALLS);
    assert!(!of_client.is_cut && of_client.unread_count == 0);
    // It had made as many calls, and kept at most the last 64 events to itself, of which a call has 8 or more.
    assert!(count(&of_client, |event| matches!(event, SessionEvent::Call { .. })) >= CALLS - 8);
    let (_, of_server) = recorded(directory.path(), &server, is_ended);
    let hung_up = |event: &SessionEvent| {
        matches!(event, SessionEvent::Ended { number: errors::SESSION_HUNG_UP, by: Side::Peer, .. })
    };
    assert_eq!(count(&of_server, hung_up), 1);
}

pub(crate) fn a_hostile_peer_is_recorded_in_bounds_and_in_plain_text(place: &Place) {
    let directory = tempfile::tempdir().unwrap();
    let socket = place.path();
    let mut server = start("server", place.server, &socket, directory.path());
    server.wait_ready();
    let mut peer = HostilePeer::client(&socket).unwrap();
    // A method whose name would write to a terminal, and is as long as a name may be.
    let path = format!("/{}", "\u{1b}[2J\"\n".repeat(40));
    assert!(path.len() < limits::METHOD_PATH_LEN_MAX);
    for stream in 1..=2000 {
        let opening = if stream == 1 {
            opening_of(stream, 0, &path, b"hi")
        } else {
            Frame::new(events::HEADERS, 0, stream)
        };
        peer.send(&opening).unwrap();
        peer.send(&Frame::new(events::CANCEL, 0, stream)).unwrap();
    }
    peer.forge_head(0x1234_5678_9abc_def0);
    peer.ring();
    let (path, of_server) = recorded(directory.path(), &server, is_ended);
    let violation = |event: &SessionEvent| {
        matches!(event, SessionEvent::Violation { number: errors::VIOLATION_RING, .. })
    };
    assert_eq!(count(&of_server, violation), 1);
    assert!(count(&of_server, |event| matches!(event, SessionEvent::Call { .. })) >= 2000);
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n')), "nothing else is in the file");
    assert!(bytes.len() as u64 <= of_server.head.place_of(of_server.head.line_count - 1) + 256);
}
