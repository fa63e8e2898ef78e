//! `tollfree events`, from the outside.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;
use tollfree_events::{FileHead, LINE_LEN, Line, SessionEvent, VERSION, put_head, put_line};

use crate::run::{Scratch, tollfree};

fn head(program: &str, pid: u32) -> FileHead {
    FileHead {
        version: VERSION,
        pid,
        program: program.into(),
        line_count: 100,
        at_ns: 1_000_000,
        wall_ns: 7_000_000_000,
    }
}

/// A process whose sessions call two methods.
fn lines(first_ns: u64) -> Vec<Line> {
    let call = |stream, path: &str| SessionEvent::Call { stream, path: path.into() };
    let events = [(1, call(1, "/a.A/One")), (1, SessionEvent::Woken), (2, call(2, "/b.B/Two"))];
    let line = |(n, (session, event))| Line { n, at_ns: first_ns + n * 1_000_000, session, event };
    (0..).zip(events).map(line).collect()
}

fn file_of(head: &FileHead, lines: &[Line]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_head(&mut bytes, head);
    lines.iter().for_each(|line| put_line(&mut bytes, line));
    bytes
}

/// Two processes that have recorded in one directory.
fn recorded(scratch: &Scratch) -> PathBuf {
    let directory = scratch.path().join("events");
    std::fs::create_dir(&directory).unwrap();
    for (program, pid, first_ns) in [("client", 11, 5_000_000), ("server", 22, 5_500_000)] {
        let bytes = file_of(&head(program, pid), &lines(first_ns));
        std::fs::write(directory.join(format!("{program}-{pid}.jsonl")), bytes).unwrap();
    }
    directory
}

fn events(scratch: &Scratch, arguments: &[&str]) -> Output {
    tollfree(scratch).arg("events").args(arguments).output().unwrap()
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What it says where it fails, and how.
fn fault(output: &Output) -> (String, Option<i32>) {
    (String::from_utf8(output.stderr.clone()).unwrap(), output.status.code())
}

#[test]
fn several_processes_are_shown_in_one_order() {
    let scratch = Scratch::new();
    recorded(&scratch);
    let table = out(&events(&scratch, &["events"]));
    assert_eq!(
        table.lines().collect::<Vec<_>>(),
        [
            "0 ms is @7.004000, which date -d shows as a time of day",
            "      0.000000  client-11/1  stream 1 calls /a.A/One",
            "      0.500000  server-22/1  stream 1 calls /a.A/One",
            "      1.000000  client-11/1  woken",
            "      1.500000  server-22/1  woken",
            "      2.000000  client-11/2  stream 2 calls /b.B/Two",
            "      2.500000  server-22/2  stream 2 calls /b.B/Two",
        ]
    );
    assert_eq!(out(&events(&scratch, &["events/client-11.jsonl", "events/server-22.jsonl"])), table);
}

#[test]
fn streams_and_sessions_are_picked_out_and_json_has_every_field() {
    let scratch = Scratch::new();
    recorded(&scratch);
    let count = |arguments: &[&str]| out(&events(&scratch, arguments)).lines().skip(1).count();
    assert_eq!(count(&["events", "--stream", "2"]), 2);
    assert_eq!(count(&["events", "--session", "server-22/1"]), 2);
    assert_eq!(count(&["events", "--session", "server-22/2", "--stream", "1"]), 0);
    let text = out(&events(&scratch, &["events", "--json", "--session", "server-22/2"]));
    let row: Value = serde_json::from_str(&text).unwrap();
    let expected = serde_json::json!({
        "name": "server-22/2", "wall_ns": 7_006_500_000_u64, "n": 2, "at_ns": 7_500_000, "session": 2, "event": "call", "stream": 2, "path": "/b.B/Two",
    });
    assert_eq!(row, expected);
}

#[test]
fn what_cannot_be_shown_is_said_with_the_path() {
    let scratch = Scratch::new();
    let directory = recorded(&scratch);
    let write = |name: &str, bytes: &[u8]| std::fs::write(directory.join(name), bytes).unwrap();
    let whole = file_of(&head("p", 1), &lines(0));
    write("cut.jsonl", &whole[..2 * LINE_LEN + 10]);
    write("empty.jsonl", b"");
    write("other.jsonl", b"{\"hello\":1}\n");
    write("newer.jsonl", &file_of(&FileHead { version: 9, ..head("p", 1) }, &[]));
    write("garbled.jsonl", &[&whole[..2 * LINE_LEN], &[b'x'; LINE_LEN]].concat());
    for (path, words) in [
        ("events/none.jsonl", "No such file"),
        ("events/empty.jsonl", "no whole first line"),
        ("events/other.jsonl", "no file of events"),
        ("events/newer.jsonl", "version 9"),
        ("/dev/zero", "regular files"),
    ] {
        let (text, code) = fault(&events(&scratch, &[path]));
        assert!(text.contains(path) && text.contains(words), "{path}: {text}");
        assert_eq!(code, Some(1), "{path}");
    }
    for (path, words) in [("events/cut.jsonl", "middle of a line"), ("events/garbled.jsonl", "1 lines")] {
        let shown = events(&scratch, &[path]);
        let (text, code) = fault(&shown);
        assert!(text.contains(path) && text.contains(words) && code == Some(1), "{path}: {text}");
        assert_eq!(
            String::from_utf8_lossy(&shown.stdout).lines().skip(1).count(),
            1,
            "what is whole is shown"
        );
    }
    // In a directory they are passed over, but for what is whole.
    let (text, code) = fault(&events(&scratch, &["events"]));
    assert!(["empty", "other", "newer"].iter().all(|name| text.contains(&format!("{name}.jsonl"))), "{text}");
    assert_eq!(code, Some(1));
    let (text, code) = fault(&events(&scratch, &["tmp"]));
    assert!(text.contains("TOLLFREE_EVENTS") && code == Some(1), "{text}");
    let (text, code) = fault(&events(&scratch, &["events/client-11.jsonl", "--session", "nobody-1/1"]));
    assert!(text.contains("client-11/1, client-11/2") && code == Some(2), "{text}");
    assert_eq!(events(&scratch, &[]).status.code(), Some(2), "a path is needed");
}

/// Appends lines as a process does, over the oldest where the file is full.
fn append(path: &Path, head: &FileHead, lines: &[Line]) {
    let file = File::options().write(true).open(path).unwrap();
    for line in lines {
        let mut bytes = Vec::new();
        put_line(&mut bytes, line);
        file.write_all_at(&bytes, head.place_of(line.n)).unwrap();
    }
}

#[test]
fn what_comes_is_followed_and_what_is_overwritten_is_counted() {
    let scratch = Scratch::new();
    let directory = scratch.path().join("events");
    std::fs::create_dir(&directory).unwrap();
    let mut following = tollfree(&scratch)
        .args(["events", "--follow", "events"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut rows = BufReader::new(following.stdout.take().unwrap()).lines().map(Result::unwrap);
    // A process begins, and writes on.
    let head = head("late", 33);
    let path = directory.join("late-33.jsonl");
    std::fs::write(&path, file_of(&head, &lines(0))).unwrap();
    let shown: Vec<String> = rows.by_ref().take(4).collect();
    assert!(shown[3].ends_with("late-33/2  stream 2 calls /b.B/Two"), "{shown:?}");
    let line = |n| Line { n, at_ns: n, session: 1, event: SessionEvent::Published { pos: n, unread: 0 } };
    append(&path, &head, &(3..50).map(line).collect::<Vec<_>>());
    let shown: Vec<String> = rows.by_ref().take(47).collect();
    assert!(shown[46].contains("up to line 49;"), "{shown:?}");
    // More than a whole round, at once.
    let later = directory.join("late-33");
    std::fs::copy(&path, &later).unwrap();
    append(&later, &head, &(50..250).map(line).collect::<Vec<_>>());
    std::fs::copy(&later, &path).unwrap();
    let shown: Vec<String> = rows.by_ref().take(100).collect();
    assert!(shown[99].contains("up to line 249;"), "{shown:?}");
    following.kill().unwrap();
    let output = following.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("100 events"), "{output:?}");
}
