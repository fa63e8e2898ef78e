//! `spec/device.md` says what the code does: its messages and their limits.

use crate::constants::numbers;
use crate::{hold, read};

/// What the specification lacks of what the code says.
fn lacks(spec: &str, code: &str) -> Vec<String> {
    let drawn = code.lines().filter_map(|line| line.strip_prefix("//!"));
    let drawn = drawn.map(str::trim).filter(|line| line.contains('|') && !line.contains('`'));
    let mut wanted: Vec<String> = drawn.map(str::to_owned).collect();
    for line in code.lines() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("pub const ")
            && let Some((name, value)) = rest.split_once(": u8 = ")
        {
            wanted.push(format!("{name} {}", value.trim_end_matches(';')));
        }
        if let Some(rest) = line.strip_prefix("pub const PROTOCOL: &[u8] = b\"") {
            wanted.push(format!("`{}`", rest.trim_end_matches("\";")));
        }
    }
    assert!(wanted.len() >= 6, "drawing, kinds and protocol were found: {wanted:?}");
    wanted.retain(|wanted| !spec.contains(wanted.as_str()));
    wanted.into_iter().map(|wanted| format!("spec/device.md lacks: {wanted}")).collect()
}

#[test]
fn messages_are_drawn_and_named_as_they_are() {
    let (spec, code) = (read("spec/device.md"), read("crates/layout/src/device.rs"));
    hold("messages of spec/device.md", lacks(&spec, &code));
    assert!(!lacks(&spec, &code.replace("BEAT: u8 = 3", "BEAT: u8 = 4")).is_empty());
}

#[test]
fn limits_are_those_of_the_code() {
    let spec = read("spec/device.md");
    let row = |what: &str, value: u64| {
        let row = format!("| {what} | {value} |");
        if spec.contains(&row) { None } else { Some(format!("spec/device.md lacks: {row}")) }
    };
    let of = |path: &str, name: &str| -> u64 {
        let code = read(path);
        let line = code.lines().find(|line| line.contains(&format!("const {name}: ")));
        let value = line.and_then(|line| line.split(" = ").nth(1)).expect(name).trim_end_matches(';');
        value.split(" * ").map(|factor| factor.replace('_', "").parse::<u64>().expect(name)).product()
    };
    let limits = numbers(&["limits"]);
    let (line, longest) = (limits["LINE_LEN"], limits["RING_LEN_MAX"]);
    let rows = [
        row("head of a message", of("crates/layout/src/device.rs", "HEAD_LEN")),
        row("line", line),
        row("shortest ring", limits["RING_LEN_MIN"]),
        row("longest ring", longest),
        row("lines of one WRITE, at most", longest / line - 1),
        row(
            "BEATs between two of the receiver's times",
            of("crates/driver-tokio/src/link/window.rs", "BEAT_COUNT_MAX"),
        ),
        row("registration", limits["REGISTRATION_LEN_MAX"]),
    ];
    hold("limits of spec/device.md", rows.into_iter().flatten().collect());
}
