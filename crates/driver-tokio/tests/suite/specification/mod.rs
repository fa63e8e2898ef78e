//! The test vectors against the words of `spec/wire.md`, read as a stranger would: nothing here is shared with the code of
//! this project. What a side may say and must accept comes from the document's tables where it has them, and is written
//! down here once more where it has not.

mod document;
mod frame;
mod reading;
mod rendezvous;
mod side;

use std::path::Path;

use document::Document;
use frame::Frame;
use serde_json::Value;
use side::{Limits, Role, Side};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn vectors() -> Value {
    serde_json::from_str(&read("vectors/frames.json")).expect("the vectors are JSON")
}

fn bytes_of(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().expect("bytes are a text");
    assert!(hex.len().is_multiple_of(2), "bytes have two digits each");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect()
}

/// What the applications of both sides of a conversation are told.
pub(crate) fn told(conversation: &Value) -> [Value; 2] {
    let document = Document::read(&read("wire.md"));
    [Role::Client, Role::Server].map(|role| reading::told(&document, conversation, role))
}

/// Plays a conversation: each side hears as much as the file says before it speaks, and the rest at the end.
fn play(document: &Document, conversation: &Value, limits: &Limits) -> Result<(), String> {
    let pool = conversation["pool"].as_bool().expect("pool is true or false");
    let mut sides = [Role::Client, Role::Server].map(|role| Side::new(document, role, limits.clone(), pool));
    // What each side has said, and how much of it the other has heard.
    let mut said: [Vec<Vec<u8>>; 2] = Default::default();
    let mut heard = [0; 2];
    for (at, entry) in conversation["frames"].as_array().expect("frames").iter().enumerate() {
        let speaker = usize::from(entry["from"] == "server");
        let (record, count) = (bytes_of(&entry["hex"]), entry["heard"].as_u64().expect("a number") as usize);
        while heard[speaker] < count {
            let next = said[1 - speaker].get(heard[speaker]).ok_or("it has heard what nobody said")?;
            sides[speaker].receive(next).map_err(|wrong| format!("before frame {at}: {wrong}"))?;
            heard[speaker] += 1;
        }
        sides[speaker].send(&record).map_err(|wrong| format!("frame {at}: {wrong}"))?;
        said[speaker].push(record);
    }
    for listener in 0..2 {
        for next in &said[1 - listener][heard[listener]..] {
            sides[listener].receive(next).map_err(|wrong| format!("at the end: {wrong}"))?;
        }
    }
    Ok(())
}

fn conversation<'v>(vectors: &'v Value, name: &str) -> &'v Value {
    let mut all = vectors["conversations"].as_array().expect("conversations").iter();
    all.find(|it| it["name"].as_str().is_some_and(|it| it.contains(name))).expect("the conversation is there")
}

#[test]
fn conversations_keep_the_rules_of_the_document() {
    let (document, vectors) = (Document::read(&read("wire.md")), vectors());
    let conversations = vectors["conversations"].as_array().expect("conversations");
    assert!(conversations.len() >= 8, "there are {} conversations", conversations.len());
    for conversation in conversations {
        let limits = Limits::of(&conversation["limits_of_both_sides"]);
        if let Err(wrong) = play(&document, conversation, &limits) {
            panic!("{}: {wrong}", conversation["name"]);
        }
        for entry in conversation["frames"].as_array().expect("frames") {
            let sender = if entry["from"] == "server" { Role::Server } else { Role::Client };
            let frame = Frame::parse(&bytes_of(&entry["hex"]), sender, conversation["pool"] == true);
            assert_eq!(frame.expect("it was played").told(), entry["head"], "{}", conversation["name"]);
        }
    }
}

#[test]
fn violations_are_those_of_the_document() {
    let (document, vectors) = (Document::read(&read("wire.md")), vectors());
    for (role, whose) in [(Role::Server, "server"), (Role::Client, "client")] {
        let limits = Limits::of(&vectors[format!("limits_of_that_{whose}")]);
        for vector in vectors[format!("violations_to_a_{whose}")].as_array().expect("violations") {
            let pool = vector["pool"].as_bool().expect("pool is true or false");
            let mut side = Side::new(&document, role, limits.clone(), pool);
            let said = vectors[format!("that_{whose}_has_said")].as_array();
            for record in said.into_iter().flatten() {
                side.send(&bytes_of(record)).expect("it may say that");
            }
            for record in vector["before"].as_array().expect("frames") {
                let received = side.receive(&bytes_of(record));
                received.unwrap_or_else(|wrong| panic!("{}: {wrong} too early", vector["name"]));
            }
            let wrong = side.receive(&bytes_of(&vector["hex"]));
            let place = wrong.expect_err(&vector["name"].to_string()).split(':').next().unwrap().to_owned();
            let name = vector["violation"].as_str().expect("a name");
            let places = document.places(name);
            let found = format!("found at {place}, and {name} is at {places:?}");
            assert!(places.contains(&place), "{whose}, {}: {found}", vector["name"]);
        }
    }
}

/// What an earlier version of the vectors had: chunks of an area under windows that they don't fit.
#[test]
fn a_chunk_beyond_the_window_is_found() {
    let (document, vectors) = (Document::read(&read("wire.md")), vectors());
    let narrow = Limits::of(&vectors["limits_of_that_server"]);
    let wrong = play(&document, conversation(&vectors, "a payload area"), &narrow).unwrap_err();
    assert!(wrong.contains("credit:"), "{wrong}");
}

/// Every rule that has a field in the vectors is noticed when that field is bent.
#[test]
fn bent_vectors_are_noticed() {
    let (document, vectors) = (Document::read(&read("wire.md")), vectors());
    let check = |name: &str, at: usize, bend: &dyn Fn(&mut Vec<u8>), place: &str| {
        let mut bent = conversation(&vectors, name).clone();
        let limits = Limits::of(&bent["limits_of_both_sides"]);
        let mut record = bytes_of(&bent["frames"][at]["hex"]);
        bend(&mut record);
        let hex: String = record.iter().map(|byte| format!("{byte:02x}")).collect();
        bent["frames"][at]["hex"] = hex.into();
        let wrong = play(&document, &bent, &limits).unwrap_err();
        assert!(wrong.contains(&format!(" {place}:")), "{name}, frame {at}: {wrong} instead of {place}");
    };
    check("three unary", 0, &|record| record[8] = 2, "stream");
    check("three unary", 2, &|record| record[2] = 7, "method");
    check("three unary", 1, &|record| record[0] |= 4, "frame");
    check("trailers only", 1, &|record| record[25] = 255, "metadata");
    check("9000 bytes", 1, &|record| record[20] = 0, "message");
    check("a payload area", 0, &|record| record[8] = 1, "area");
    check("a payload area", 1, &|record| record[8] = 1, "area");
    // The range follows the head and 31 bytes of headers.
    check("a payload area", 2, &|record| record[24 + 31] = 1, "area");
    check("crosses the answer", 2, &|record| record[8] = 9, "stream");
    check("crosses DRAIN", 2, &|record| record[8] = 2, "drain");
    check("a pool in common", 1, &|record| record[8] = 3, "segmented message");
    // An ended call is not cancelled: the CANCEL that crosses the answer would come after it.
    let mut late = conversation(&vectors, "crosses the answer").clone();
    late["frames"][2]["heard"] = 1.into();
    let limits = Limits::of(&late["limits_of_both_sides"]);
    let wrong = play(&document, &late, &limits).unwrap_err();
    assert!(wrong.contains("stream: Over must not send CANCEL"), "{wrong}");
}

/// An area that is dropped before its answer counts until the answer has come: otherwise a descriptor too many may be on the
/// socket before the first offer is read.
#[test]
fn a_dropped_area_counts_until_it_is_answered() {
    let (document, vectors) = (Document::read(&read("wire.md")), vectors());
    let limits = Limits::of(&vectors["limits_of_that_server"]);
    let mut client = Side::new(&document, Role::Client, limits, false);
    let control = |code: u8, idx: u8, len: u32| {
        let mut record = [0; 24];
        (record[0], record[2], record[8]) = (0x80, code, idx);
        record[16..20].copy_from_slice(&len.to_le_bytes());
        record
    };
    for idx in 0..2 {
        client.send(&control(1, idx, 65_536)).unwrap();
        client.send(&control(4, idx, 0)).unwrap();
    }
    assert_eq!(client.send(&control(1, 2, 65_536)).unwrap_err(), "area: a third at once");
    client.receive(&control(2, 0, 0)).unwrap();
    client.send(&control(1, 2, 65_536)).unwrap();
}
