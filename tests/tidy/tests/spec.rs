//! `spec/wire.md` says what the code does: its constants, its structures, its states.

use std::collections::BTreeMap;

use tollfree_layout::frame::{AreaRange, FrameHead};
use tollfree_layout::handshake::{FEATURES, HTTP2_PREFACE, Hello, MAGIC};
use tollfree_layout::metadata::STATIC_NAMES;

use crate::constants::numbers;
use crate::{hold, read, rows, section};

/// Groups of `spec/constants.toml` that this document has.
const GROUPS: [&str; 13] = [
    "limits",
    "control",
    "record",
    "events",
    "flags",
    "controls",
    "frame",
    "feature",
    "kind",
    "reason",
    "handshake",
    "metadata",
    "segmented",
];

pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Rows that name a constant and its value.
pub(crate) fn stated(text: &str) -> Vec<(String, u64)> {
    let constant = |row: Vec<&str>| {
        let name = row.first()?.strip_prefix('`')?.strip_suffix('`')?;
        let is_constant = name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        if !is_constant { None } else { Some((name.to_owned(), number(row.get(1)?)?)) }
    };
    rows(text).into_iter().filter_map(constant).collect()
}

/// What a document says of constants, against what they are.
pub(crate) fn differences(stated: &[(String, u64)], constants: &BTreeMap<String, u64>) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, value) in stated {
        match constants.get(name) {
            Some(known) if known == value => {}
            Some(known) => complaints.push(format!("{name} is {known} in the code and {value} in the text")),
            None => complaints.push(format!("{name} stands in the text and not in the code")),
        }
    }
    for name in constants.keys() {
        match stated.iter().filter(|(known, _)| known == name).count() {
            1 => {}
            0 => complaints.push(format!("{name} does not stand in the text")),
            count => complaints.push(format!("{name} stands in the text {count} times")),
        }
    }
    complaints
}

#[test]
fn constants_are_those_of_the_code() {
    let mut constants = numbers(&GROUPS);
    // Made of others.
    constants.insert("FEATURES".to_owned(), FEATURES);
    let text = read("spec/wire.md");
    hold("constants of spec/wire.md", differences(&stated(&text), &constants));
    let magic = format!("`{}`", String::from_utf8_lossy(&MAGIC));
    let bytes: Vec<String> = MAGIC.iter().map(|byte| format!("{byte:02x}")).collect();
    for needed in [magic, bytes.join(" "), format!("`{}`", String::from_utf8_lossy(HTTP2_PREFACE))] {
        assert!(text.contains(&needed), "spec/wire.md does not say {needed}");
    }
}

#[test]
fn static_names_are_those_of_the_code() {
    let text = read("spec/wire.md");
    let numbered = |row: Vec<&str>| Some((number(row[0])?, row.get(1)?.trim_matches('`').to_owned()));
    let stated: Vec<(u64, String)> =
        rows(section(&text, "### Static names")).into_iter().filter_map(numbered).collect();
    let known: Vec<(u64, String)> = (1..).zip(STATIC_NAMES.map(str::to_owned)).collect();
    assert_eq!(stated, known);
}

macro_rules! fields {
    ($type:ty, $value:expr, $($field:ident),*) => {{
        let value = $value;
        let fields = vec![$((stringify!($field), std::mem::offset_of!($type, $field), std::mem::size_of_val(&value.$field))),*];
        let end = fields.iter().fold(0, |end, (name, offset, len)| {
            assert_eq!(*offset, end, "a field before {name} is missing here");
            end + len
        });
        assert_eq!(end, std::mem::size_of::<$type>(), "a field is missing here");
        fields
    }};
}

pub(crate) use fields;

#[test]
fn structures_are_those_of_the_code() {
    let text = read("spec/wire.md");
    let hello = fields!(
        Hello,
        Hello::new(0),
        magic,
        kind,
        version_min,
        version_max,
        features,
        required,
        region_len,
        ring_len,
        stream_window,
        session_window,
        clock_ns,
        stream_count,
        area_len_max,
        metadata_len_max,
        reason,
        text_len,
        body_len,
        text,
        pool,
        token,
        tcp_client,
        tcp_server,
        tcp_client_port,
        tcp_server_port,
        tail
    );
    let head = fields!(
        FrameHead,
        FrameHead::default(),
        events,
        flags,
        code,
        headers_len,
        trailers_len,
        stream,
        chunk_len,
        message_len
    );
    let range = fields!(AreaRange, AreaRange::default(), area, reserved, offset);
    for (heading, fields) in
        [("### Handshake message", hello), ("### Frame head", head), ("### Area range", range)]
    {
        let field = |row: Vec<&str>| Some((number(row[0])?, number(row.get(1)?)?, row.get(2)?.to_string()));
        // The first table: another may follow before the next heading.
        let table = section(&text, heading).trim_start().split("\n\n").next().unwrap_or_default();
        let stated: Vec<(u64, u64, String)> = rows(table).into_iter().filter_map(field).collect();
        let known: Vec<(u64, u64, String)> = fields
            .into_iter()
            .map(|(name, offset, len)| (offset as u64, len as u64, format!("`{name}`")))
            .collect();
        assert_eq!(stated, known, "{heading}");
    }
}

/// The table of states in the session's tests: one line a state, `(State, [outcome, …]),`.
fn coded_states(text: &str, table: &str) -> Vec<Vec<String>> {
    let start = text.find(&format!("const {table}: [Row; ")).expect("the session's table of states");
    let body = text[start..].split("];\n").next().expect("it ends");
    let row = |line: &str| {
        let (state, outcomes) = line.trim().strip_prefix('(')?.split_once(',')?;
        let outcomes = outcomes.trim().strip_prefix('[')?.split(']').next()?;
        let outcome = |text: &str| match text.trim() {
            "Order" | "Kind" | "Id" => text.trim().to_lowercase(),
            "Misplaced" | "Ended" => "no".to_owned(),
            next => next.trim_start_matches("To(").trim_end_matches(')').to_owned(),
        };
        Some(std::iter::once(state.to_owned()).chain(outcomes.split(',').map(outcome)).collect())
    };
    body.lines().filter_map(row).collect()
}

#[test]
fn states_are_those_of_the_code() {
    let (text, code) = (read("spec/wire.md"), read("crates/session/src/tests/transitions.rs"));
    for (heading, table) in [("### Client", "CLIENT"), ("### Server", "SERVER")] {
        let stated: Vec<Vec<&str>> = rows(section(&text, heading)).into_iter().skip(2).collect();
        let coded = coded_states(&code, table);
        assert_eq!(coded.len(), 5, "the table was found");
        assert!(coded.iter().all(|row| row.len() == 12), "all of it: {coded:?}");
        assert_eq!(stated, coded, "{heading}");
    }
}

#[test]
fn rules() {
    let constants = BTreeMap::from([("A".to_owned(), 1), ("B".to_owned(), 2)]);
    let good = "| `A` | 1 | a |\n| `B` | 0x02 | b |\n| `other` | 3 |";
    assert!(differences(&stated(good), &constants).is_empty());
    for bad in [
        "| `A` | 1 |",
        "| `A` | 1 |\n| `B` | 3 |",
        "| `A` | 1 |\n| `B` | 2 |\n| `B` | 2 |",
        &format!("{good}\n| `C` | 1 |"),
    ] {
        assert_eq!(differences(&stated(bad), &constants).len(), 1, "{bad}");
    }
}
