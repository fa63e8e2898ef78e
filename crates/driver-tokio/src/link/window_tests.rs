//! Messages of the stream, byte for byte (`spec/vectors/device.json`), in pieces, and out of nowhere.

use serde_json::{Value, json};
use tollfree_layout::control::RING_OFF;
use tollfree_layout::record::head_word;
use tollfree_region::HeapMemory;
use tollfree_ring::{RecordRead, RecordReceiver, RecordSender, RingReceiver, RingSender};

use super::*;

const RING_LEN: usize = 4096;

fn ring() -> Geometry {
    Geometry::new(RING_OFF, RING_LEN).unwrap()
}

fn memory() -> HeapMemory {
    HeapMemory::new(ring().end())
}

/// A window whose side has sent and passed so much.
fn window(sent: u64, told: u64) -> Window<HeapMemory> {
    Window::new(Arc::new(memory()), ring(), memory(), ring()).after(RingPos(sent), RingPos(told))
}

fn message(of_kind: u8, at: u64, consumed: u64, load: u32, lines: &[u8]) -> Vec<u8> {
    let line_count = (lines.len() / LINE_LEN) as u16;
    let (line_count, load) = (line_count.into(), load.into());
    let head = Head { kind: of_kind, zero: 0, line_count, load, consumed: consumed.into(), at: at.into() };
    [head.as_bytes(), lines].concat()
}

fn record(at: u64, text: &[u8]) -> Vec<u8> {
    let mut lines = head_word(RingPos(at), text.len() as u32).to_le_bytes().to_vec();
    lines.extend_from_slice(text);
    lines.resize(lines.len().next_multiple_of(LINE_LEN), 0);
    lines
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a window makes of messages, whole ones or byte by byte.
fn taken(sent: u64, told: u64, messages: &[Vec<u8>], piece: usize) -> (Vec<String>, Value) {
    let mut window = window(sent, told);
    let mut outcomes = Vec::new();
    for message in messages {
        let outcome = message.chunks(piece).try_for_each(|piece| window.take(piece));
        let is_over = outcome.is_err();
        outcomes.push(outcome.map_or_else(|violation| violation.to_string(), |()| "taken".to_owned()));
        if is_over {
            break;
        }
    }
    let mut lines = [0; RING_LEN];
    window.mirror.copy_out(RING_OFF, &mut lines);
    let (lines, _) = lines.as_chunks::<LINE_LEN>();
    let lines: Vec<Value> = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.iter().any(|byte| *byte != 0))
        .map(|(number, line)| json!({ "line": number, "hex": hex(line) }))
        .collect();
    let mirror = json!({
        "lines": lines,
        "consumed": window.mirror.load_u64(CONSUMED_OFF, Ordering::Relaxed),
        "load": window.mirror.load_u32(LOAD_OFF, Ordering::Relaxed),
        "written": window.written.0,
    });
    (outcomes, mirror)
}

fn case(name: &str, sent: u64, told: u64, messages: &[Vec<u8>]) -> Value {
    let whole = taken(sent, told, messages, usize::MAX);
    assert_eq!(taken(sent, told, messages, 1), whole, "{name}: byte by byte");
    assert_eq!(taken(sent, told, messages, 25), whole, "{name}: in pieces");
    let pairs = messages.iter().zip(&whole.0);
    let messages: Vec<_> =
        pairs.map(|(bytes, outcome)| json!({ "bytes": hex(bytes), "outcome": outcome })).collect();
    json!({
        "name": name, "ring_len": RING_LEN, "sent": sent, "told": told, "messages": messages, "mirror": whole.1,
    })
}

fn vectors() -> Value {
    let lines = record(0, b"hello, world");
    let two = [record(0, b"one"), record(1, &[7; 100])].concat();
    let with_bits = {
        let mut bytes = message(kind::BEAT, 0, 0, 0, &[]);
        bytes[1] = 1;
        bytes
    };
    let most = record(0, &[0; 63 * LINE_LEN - 8]);
    json!([
        case("a record", 0, 0, &[message(kind::WRITE, 0, 0, 0, &lines)]),
        case("two records at once, and words", 5, 0, &[message(kind::WRITE, 0, 4, 8, &two)]),
        case(
            "a completion",
            9,
            0,
            &[message(kind::COMPLETE, 0, 3, 0, &[]), message(kind::COMPLETE, 0, 9, 2, &[])]
        ),
        case("a beat", 0, 0, &[message(kind::BEAT, 0, 0, 1, &[])]),
        case("over the end of the ring", 0, 63, &[message(kind::WRITE, 63, 0, 0, &record(63, &[9; 100]))]),
        case("all lines but one", 0, 0, &[message(kind::WRITE, 0, 0, 0, &most)]),
        case(
            "one line too many",
            0,
            0,
            &[message(kind::WRITE, 0, 0, 0, &most), message(kind::WRITE, 63, 0, 0, &record(63, b"")),]
        ),
        case("lines out of turn", 0, 0, &[message(kind::WRITE, 1, 0, 0, &record(1, b""))]),
        case("a completion of what was not sent", 2, 0, &[message(kind::COMPLETE, 0, 3, 0, &[])]),
        case(
            "a completion that goes back",
            9,
            0,
            &[message(kind::COMPLETE, 0, 5, 0, &[]), message(kind::COMPLETE, 0, 4, 0, &[]),]
        ),
        case(
            "a completion twice",
            9,
            0,
            &[message(kind::COMPLETE, 0, 5, 0, &[]), message(kind::COMPLETE, 0, 5, 0, &[]),]
        ),
        case("a beat that completes", 9, 0, &[message(kind::BEAT, 0, 5, 0, &[])]),
        case("no lines in a write", 0, 0, &[message(kind::WRITE, 0, 0, 0, &[])]),
        case("lines behind a completion", 9, 0, &[message(kind::COMPLETE, 0, 1, 0, &lines)]),
        case("an unknown kind", 0, 0, &[message(4, 0, 0, 0, &[])]),
        case("bits that mean nothing", 0, 0, &[with_bits]),
        case("a beat with lines", 0, 0, &[message(kind::BEAT, 0, 0, 0, &lines)]),
        case("a completion out of turn", 9, 0, &[message(kind::COMPLETE, 1, 1, 0, &[])]),
        case(
            "a beat of another cursor",
            9,
            0,
            &[message(kind::COMPLETE, 0, 5, 0, &[]), message(kind::BEAT, 0, 4, 0, &[])]
        ),
        case("a write that completes what was not sent", 2, 0, &[message(kind::WRITE, 0, 3, 0, &lines)]),
        case("a write that completes nothing", 9, 0, &[message(kind::WRITE, 0, 0, 7, &lines)]),
        case("a message of the length of a head, all zeros", 0, 0, &[vec![0; 24]]),
        case(
            "a message of which not all has come",
            0,
            0,
            &[message(kind::WRITE, 0, 0, 9, &lines)[..60].to_vec()]
        ),
        case("as many beats as may be", 0, 0, &[message(kind::BEAT, 0, 0, 3, &[]).repeat(64)]),
        case("more beats than may be", 0, 0, &[message(kind::BEAT, 0, 0, 3, &[]).repeat(65)]),
    ])
}

#[test]
fn messages_are_those_of_the_vectors() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/vectors/device.json");
    let made = vectors();
    if std::env::var_os("TOLLFREE_WRITE_VECTORS").is_some() {
        std::fs::write(path, serde_json::to_string_pretty(&made).unwrap() + "\n").unwrap();
    }
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for (made, kept) in made.as_array().unwrap().iter().zip(kept.as_array().unwrap()) {
        assert_eq!(made, kept, "TOLLFREE_WRITE_VECTORS=1 writes them anew");
    }
    assert_eq!(made.as_array().unwrap().len(), kept.as_array().unwrap().len());
}

#[test]
fn beats_are_bounded_between_two_times() {
    let mut window = window(0, 0);
    let beat = message(kind::BEAT, 0, 0, 0, &[]);
    for _ in 0..3 {
        for _ in 0..BEAT_COUNT_MAX {
            window.take(&beat).unwrap();
        }
        window.counted();
    }
    window.take(&beat.repeat(BEAT_COUNT_MAX as usize)).unwrap();
    window.take(&beat).unwrap_err();
}

/// A number of a sequence that looks random.
fn chance(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 33
}

/// Two sides whose messages pass in pieces and are delayed: what comes out of one ring is what went into the other.
#[test]
fn two_windows_are_a_ring_each_way() {
    for seed in 0..6 {
        let mut state = seed;
        let (one, other) = (Arc::new(memory()), Arc::new(memory()));
        let mut near = Window::new(one.clone(), ring(), memory(), ring());
        let mut far = Window::new(other.clone(), ring(), memory(), ring());
        // The session's ends read the mirrors; here they are reached by sharing them.
        let (near_mirror, far_mirror) = (Arc::new(memory()), Arc::new(memory()));
        let mut sender = RingSender::new(one, near_mirror.clone(), ring());
        let mut receiver = RingReceiver::new(other, far_mirror.clone(), ring());
        let (mut there, mut back) = (BytesMut::new(), BytesMut::new());
        let (mut sent, mut got) = (0u64, 0u64);
        for _ in 0..2000 {
            match chance(&mut state) % 6 {
                0 | 1 => {
                    let text = sent.to_le_bytes().repeat(1 + chance(&mut state) as usize % 40);
                    if sender.stage(&[&text]).is_ok() {
                        sent += 1;
                    }
                }
                2 => drop(sender.publish()),
                3 => drop(near.say(sender.published(), &mut there)),
                4 => drop(far.say(RingPos(0), &mut back)),
                _ => {
                    let len = there.len().min(chance(&mut state) as usize % 300);
                    far.take(&there.split_to(len)).unwrap();
                    let len = back.len().min(chance(&mut state) as usize % 30);
                    near.take(&back.split_to(len)).unwrap();
                    copy(&far.mirror, &far_mirror);
                    copy(&near.mirror, &near_mirror);
                    while let Some(record) = receiver.peek().unwrap() {
                        let mut first = [0; 8];
                        record.read(0, &mut first);
                        assert_eq!(u64::from_le_bytes(first), got);
                        got += 1;
                        receiver.advance();
                    }
                    receiver.release();
                }
            }
        }
        assert!(got > 100 && sent - got <= 64, "seed {seed}: {sent} sent, {got} came");
    }
}

fn copy(from: &HeapMemory, to: &HeapMemory) {
    let mut bytes = vec![0; from.len()];
    from.copy_out(0, &mut bytes);
    to.copy_in(0, &bytes);
}

#[test]
fn anything_may_come_and_is_taken_or_refused() {
    let mut state = 3;
    for _ in 0..2000 {
        let mut window = window(chance(&mut state) % 70, chance(&mut state) % 70);
        let mut bytes: Vec<u8> = (0..chance(&mut state) % 200).map(|_| chance(&mut state) as u8).collect();
        if let Some(first) = bytes.first_mut() {
            *first %= 5;
        }
        if bytes.len() > 3 {
            (bytes[1], bytes[3]) = (0, 0);
        }
        for piece in bytes.chunks(1 + chance(&mut state) as usize % 60) {
            if window.take(piece).is_err() {
                break;
            }
            assert!(
                window.written.0 - window.told.0 < ring().line_count() && window.completed <= window.sent
            );
            assert!(window.partial.len() < HEAD_LEN + RING_LEN);
        }
    }
}
