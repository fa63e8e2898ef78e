//! `tollfree-lab codec` from the outside.

use prost::Message;
use std::io::Write;
use std::process::{Output, Stdio};

use crate::run::{Scratch, lab};

const SCHEMA: &str = r#"
syntax = "proto3";
package shop;
enum Size { UNKNOWN = 0; SMALL = 1; }
message Order { string customer = 1; repeated Line lines = 2; map<string, int64> notes = 3; bytes token = 4; }
message OrderList { repeated Order orders = 1; }
message Line { string item = 1; int32 count = 2; Size size = 3; double price = 4; }
"#;

const ORDER: &str = r#"{"customer":"Ada","lines":[{"item":"tea","count":2,"size":"SMALL"},{"price":0.5}],"notes":{"x":"7"},"token":"/w=="}"#;

/// A scratch directory with the schema's descriptor set in `set.binpb`.
fn scratch() -> Scratch {
    let scratch = Scratch::new();
    std::fs::write(scratch.path().join("shop.proto"), SCHEMA).unwrap();
    let set = protox::compile(["shop.proto"], [scratch.path()]).unwrap();
    std::fs::write(scratch.path().join("set.binpb"), set.encode_to_vec()).unwrap();
    scratch
}

/// Runs `tollfree-lab codec`, with this input.
fn codec(scratch: &Scratch, what: &str, type_name: &str, rest: &[&str], input: &[u8]) -> Output {
    let mut child = lab(scratch)
        .args(["codec", what, "--descriptor-set", "set.binpb", "--type", type_name])
        .args(rest)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its arguments does not read.
    child.stdin.take().unwrap().write_all(input).ok();
    child.wait_with_output().unwrap()
}

#[track_caller]
fn out(done: Output) -> Vec<u8> {
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

#[track_caller]
fn fails(done: &Output, code: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(code), "{said}");
    assert!(done.stdout.is_empty(), "{}", String::from_utf8_lossy(&done.stdout));
    for words in words {
        assert!(said.contains(words), "{said:?} lacks {words:?}");
    }
}

#[test]
fn json_to_message_and_back() {
    let scratch = scratch();
    let message = out(codec(&scratch, "encode", "shop.Order", &[], ORDER.as_bytes()));
    assert!(message.starts_with(b"\x0a\x03Ada\x12"), "{message:x?}");
    let json = out(codec(&scratch, "decode", "shop.Order", &["--json"], &message));
    assert_eq!(String::from_utf8(json).unwrap(), format!("{ORDER}\n"));
    // From and to files, and what `encode --json` tells.
    std::fs::write(scratch.path().join("order.json"), ORDER).unwrap();
    let rest = ["order.json", "--json", "--out", "order.bin"];
    let told = out(codec(&scratch, "encode", "shop.Order", &rest, b""));
    let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
    assert_eq!(std::fs::read(scratch.path().join("order.bin")).unwrap(), message);
    let hex: String = message.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((&told["hex"], &told["bytes"]), (&hex.into(), &message.len().into()));
    let again = out(codec(&scratch, "decode", ".shop.Order", &["order.bin", "--json"], b""));
    assert_eq!(String::from_utf8(again).unwrap(), format!("{ORDER}\n"));
}

#[test]
fn text_shows_each_field_with_its_number() {
    let scratch = scratch();
    let mut message = out(codec(&scratch, "encode", "shop.Order", &[], ORDER.as_bytes()));
    message.extend([0xc0, 0x3e, 5]);
    let text = String::from_utf8(out(codec(&scratch, "decode", "shop.Order", &[], &message))).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("shop.Order, an object of "), "{text}");
    let expected = [
        "  customer (1): \"Ada\"",
        "  lines[0] (2): shop.Line",
        "    item (1): \"tea\"",
        "    count (2): 2",
        "    size (3): SMALL (1)",
        "  lines[1] (2): shop.Line",
        "    price (4): 0.5",
        "  notes[0] (3): shop.Order.NotesEntry",
        "    key (1): \"x\"",
        "    value (2): 7",
        "  token (4): ff (1 bytes)",
        "  unknown fields: c03e05 (3 bytes)",
    ];
    assert_eq!(lines[1..], expected, "{text}");
}

#[test]
fn objects_are_verified() {
    let scratch = scratch();
    let message = out(codec(&scratch, "encode", "shop.Order", &[], ORDER.as_bytes()));
    out(codec(&scratch, "decode", "shop.Order", &["--object", "order.obj"], &message));
    let said = out(codec(&scratch, "verify", "shop.Order", &["order.obj"], b""));
    assert!(String::from_utf8(said).unwrap().starts_with("a sound object of shop.Order: "));
    let told = out(codec(&scratch, "verify", "shop.Order", &["order.obj", "--json"], b""));
    let told: serde_json::Value = serde_json::from_slice(&told).unwrap();
    let mut object = std::fs::read(scratch.path().join("order.obj")).unwrap();
    assert_eq!((&told["sound"], &told["fields"]), (&true.into(), &4.into()));
    assert_eq!(told["object_bytes"], object.len());
    // Another type, a table's object that is cut, and one that is forged.
    fails(
        &codec(&scratch, "verify", "shop.Line", &["order.obj"], b""),
        1,
        &["order.obj: not a sound object", "type"],
    );
    fails(
        &codec(&scratch, "verify", "shop.Order", &[], &object[..40]),
        1,
        &["standard input: not a sound object"],
    );
    let presence = 32 + 4;
    object[presence + 3] = 0x80;
    fails(
        &codec(&scratch, "verify", "shop.Order", &[], &object),
        1,
        &["shop.Order: a presence bit belongs to no field"],
    );
}

#[test]
fn unknown_types_list_the_names_near_them() {
    let scratch = scratch();
    let said = |name| codec(&scratch, "decode", name, &[], b"");
    fails(&said("shop.Ordr"), 2, &["set.binpb has no message type shop.Ordr; near it are: shop.Order"]);
    fails(&said("order"), 2, &["near it are: shop.Order"]);
    fails(&said("Nothing.Like.It"), 2, &["it has 3 others, such as shop.Order"]);
}

#[test]
fn broken_messages_name_field_and_offset() {
    let scratch = scratch();
    let decode = |input: &[u8]| codec(&scratch, "decode", "shop.Order", &[], input);
    fails(
        &decode(b"\x0a\x05Ada"),
        1,
        &["standard input: shop.Order.customer: the input breaks off at byte 2"],
    );
    fails(
        &decode(b"\x12\x00\x12\x03\x0a\x01\xff"),
        1,
        &["shop.Order.lines[1].item: the string before byte 7"],
    );
    let encode = |input: &[u8]| codec(&scratch, "encode", "shop.Order", &[], input);
    fails(
        &encode(b"{\"lines\":[{},{\"count\":1.5}]}"),
        1,
        &["shop.Order.lines[1].count: expected a whole number"],
    );
    fails(&encode(b"{\"custmer\":1}"), 1, &["shop.Order: the message has no field \"custmer\""]);
    fails(&encode(b"{\"customer\":\n!}"), 1, &["not JSON", "line 2"]);
    fails(&encode(b"\xff"), 1, &["standard input"]);
}

#[test]
fn files_that_are_not_there_are_refused() {
    let scratch = scratch();
    fails(&codec(&scratch, "decode", "shop.Order", &["none.bin"], b""), 2, &["cannot read none.bin"]);
    std::fs::write(scratch.path().join("set.binpb"), b"\x0a\x09").unwrap();
    fails(&codec(&scratch, "decode", "shop.Order", &[], b""), 2, &["the descriptor set set.binpb"]);
    std::fs::remove_file(scratch.path().join("set.binpb")).unwrap();
    fails(
        &codec(&scratch, "decode", "shop.Order", &[], b""),
        2,
        &["the descriptor set set.binpb can't be read"],
    );
    assert_eq!(scratch.leftovers(), Vec::<String>::new());
}

/// A FIFO in place of a descriptor set, to which nobody ever writes.
#[test]
fn a_descriptor_set_that_is_no_file_is_not_waited_for() {
    let scratch = scratch();
    let made = std::process::Command::new("mkfifo").arg(scratch.path().join("odd")).status().unwrap();
    assert!(made.success());
    let arguments = ["codec", "decode", "--descriptor-set", "odd", "--type", "a.B"];
    let mut child = lab(&scratch).args(arguments).stderr(Stdio::piped()).spawn().unwrap();
    let began = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > std::time::Duration::from_secs(30) {
            child.kill().unwrap();
            panic!("it waits for a file");
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let ended = child.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && words.contains("the descriptor set odd"), "{words}");
    assert!(words.contains("is a FIFO"), "{words}");
}
