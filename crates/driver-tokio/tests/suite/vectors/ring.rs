//! What lies in a ring and in the control page after given operations.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tollfree_layout::control::{CONSUMED_OFF, RING_OFF, WAITING_OFF, load_of_word, load_word};
use tollfree_layout::limits::{LINE_LEN, RING_LEN_MIN};
use tollfree_layout::record::{HEAD_EMPTY, HEAD_LEN, record_len_max};
use tollfree_region::{HeapMemory, ReadMemory, WriteMemory};
use tollfree_ring::{
    Geometry, RecordRead, RecordReceiver, RecordSender, RingReceiver, RingSender, RingViolation, Waiter,
};

use super::{hex, hold};

/// The payload of the record that is sent as the `number`th.
fn payload(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at) as u8).collect()
}

struct Pair {
    memory: Arc<HeapMemory>,
    cursor: Arc<HeapMemory>,
    sender: RingSender<HeapMemory, HeapMemory>,
    receiver: RingReceiver<HeapMemory, HeapMemory>,
    sent: usize,
    received: usize,
}

impl Pair {
    fn new() -> Pair {
        let ring = Geometry::new(RING_OFF, RING_LEN_MIN).unwrap();
        let memory = Arc::new(HeapMemory::new(ring.end()));
        let cursor = Arc::new(HeapMemory::new(ring.end()));
        Pair {
            sender: RingSender::new(memory.clone(), cursor.clone(), ring),
            receiver: RingReceiver::new(cursor.clone(), memory.clone(), ring),
            memory,
            cursor,
            sent: 0,
            received: 0,
        }
    }

    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.copy_out(at, &mut bytes);
        bytes
    }

    /// Publishes one batch, and says where its records lie: one part of the region each, or two over the ring's end.
    fn publish(&mut self, lens: &[usize]) -> Value {
        let mut records = Vec::new();
        for len in lens {
            let pos = self.sender.staged_end().0;
            self.sender.stage(&[&payload(self.sent, *len)]).unwrap();
            self.sent += 1;
            records.push((pos, HEAD_LEN + len));
        }
        assert!(self.sender.publish());
        let line_off = |pos: u64| pos as usize * LINE_LEN % RING_LEN_MIN;
        let records: Vec<Value> = records
            .into_iter()
            .map(|(pos, len)| {
                let before_end = len.min(RING_LEN_MIN - line_off(pos));
                let at = RING_OFF + line_off(pos);
                let mut parts = vec![json!({ "offset": at, "hex": hex(&self.bytes(at, before_end)) })];
                if before_end < len {
                    let rest = hex(&self.bytes(RING_OFF, len - before_end));
                    parts.push(json!({ "offset": RING_OFF, "hex": rest }));
                }
                json!({ "position": pos, "parts": parts })
            })
            .collect();
        let empty = RING_OFF + line_off(self.sender.staged_end().0);
        assert_eq!(self.memory.load_u64(empty, Ordering::Acquire), HEAD_EMPTY);
        json!({ "publish": lens, "records": records, "empty_head_offset": empty })
    }

    /// Publishes so many lines, of which the peer says twice how many it has consumed. Says how many lines more find room.
    fn sees(&mut self, published: u64, seen: u64, consumed: u64) -> Result<u64, RingViolation> {
        for line in 0..published {
            self.cursor.store_u64(CONSUMED_OFF, seen.min(line), Ordering::Relaxed);
            self.sender.stage(&[&[]]).expect("the peer makes room");
            self.sender.publish();
        }
        for cursor in [seen, consumed] {
            self.cursor.store_u64(CONSUMED_OFF, cursor, Ordering::Relaxed);
            self.sender.consumed()?;
        }
        let mut room = 0;
        while self.sender.stage(&[&[]]).is_ok() {
            room += 1;
        }
        Ok(room)
    }

    /// Receives records and releases them.
    fn receive(&mut self, count: usize) -> Value {
        for _ in 0..count {
            let record = self.receiver.peek().unwrap().expect("so many were published");
            let mut bytes = vec![0; record.len()];
            record.read(0, &mut bytes);
            assert_eq!(bytes, payload(self.received, bytes.len()));
            self.receiver.advance();
            self.received += 1;
        }
        assert!(self.receiver.release());
        let mut consumed = [0; 8];
        self.cursor.copy_out(CONSUMED_OFF, &mut consumed);
        json!({ "receive": count, "consumed": hex(&consumed) })
    }
}

fn steps() -> Vec<Value> {
    let mut pair = Pair::new();
    let max = record_len_max(RING_LEN_MIN);
    let mut steps = vec![
        pair.publish(&[0]),
        pair.publish(&[56, 57, 5]),
        pair.receive(4),
        pair.publish(&[max]),
        pair.receive(1),
        // The next two run over the end of the ring, and into lines of the first lap.
        pair.publish(&[max, 3]),
        pair.receive(2),
        pair.publish(&[1]),
    ];
    steps.push(pair.receive(1));
    steps
}

/// Words at the place of a head, and what a reader takes them for.
fn heads() -> Vec<Value> {
    let max = record_len_max(RING_LEN_MIN) as u64;
    let words = [
        ("no record yet", 0),
        ("a record of no bytes", 0x0000_0000_8000_0000),
        ("a record of one byte", 0x0000_0001_8000_0000),
        ("the longest record", max << 32 | 0x8000_0000),
        ("the sequence of another position", 0x0000_0000_8000_0001),
        ("the sequence of the lap before", 0x0000_0000_ffff_ffc0),
        ("no mark in the sequence", 0x0000_0001_0000_0000),
        ("a length and no sequence", 0x0000_0001_0000_0001),
        ("longer than any record", (max + 1) << 32 | 0x8000_0000),
        ("as long as can be said", 0xffff_ffff_8000_0000),
    ];
    let head = |(name, word): (&str, u64)| {
        let mut pair = Pair::new();
        pair.memory.store_u64(RING_OFF, word, Ordering::Release);
        let (found, len) = match pair.receiver.peek() {
            Ok(None) => ("empty", None),
            Ok(Some(record)) => ("record", Some(record.len())),
            Err(RingViolation::ForgedSequence { .. } | RingViolation::ForgedLength { .. }) => {
                ("violation", None)
            }
            Err(other) => panic!("{name}: {other}"),
        };
        json!({ "name": name, "position": 0, "head_word": hex(&word.to_le_bytes()), "found": found, "len": len })
    };
    words.into_iter().map(head).collect()
}

/// What a sender makes of its peer's cursor: how many lines it may stage then.
fn cursors() -> Vec<Value> {
    let cursors = [
        ("nothing more is consumed", 40, 0, 0),
        ("some is consumed", 40, 0, 10),
        ("all is consumed", 40, 5, 40),
        ("some is consumed in a later lap", 100, 60, 90),
        ("more is consumed than was published", 40, 0, 41),
        ("far more is consumed than was published", 100, 60, u64::MAX),
        ("less is consumed than before", 40, 5, 4),
        ("nothing is consumed any more", 100, 60, 0),
    ];
    let cursor = |(name, published, seen, consumed): (&str, u64, u64, u64)| {
        let mut pair = Pair::new();
        let outcome = pair.sees(published, seen, consumed);
        let (found, room) = match outcome {
            Ok(room) => ("taken", Some(room)),
            Err(RingViolation::ForgedCursor { .. }) => ("violation", None),
            Err(other) => panic!("{name}: {other}"),
        };
        json!({
            "name": name, "published": published, "seen": seen, "consumed": hex(&consumed.to_le_bytes()),
            "found": found, "room": room,
        })
    };
    cursors.into_iter().map(cursor).collect()
}

fn waiting() -> Vec<Value> {
    let memory = Arc::new(HeapMemory::new(4096));
    let mut waiter = Waiter::new(memory.clone());
    let mut words = Vec::new();
    for (step, space) in
        [("start", false), ("park", false), ("unpark", false), ("park", true), ("park", false)]
    {
        match step {
            "park" => waiter.park(space),
            _ => waiter.unpark(),
        }
        let word = memory.load_u32(WAITING_OFF, Ordering::Relaxed);
        words.push(json!({ "step": step, "for_space": space, "waiting": hex(&word.to_le_bytes()) }));
    }
    words
}

fn loads() -> Vec<Value> {
    let word = |count: u32| json!({ "calls": count, "load": hex(&load_word(count).to_le_bytes()) });
    let unsaid = json!({ "calls": null, "load": hex(&0u32.to_le_bytes()) });
    assert_eq!(load_of_word(0), None);
    [vec![unsaid], [0, 1, 1000, u32::MAX].map(word).to_vec()].concat()
}

#[test]
fn rings_are_as_written_down() {
    let made = json!({
        "ring_len": RING_LEN_MIN,
        "payload": "byte at of record number n is (31 * n + at) mod 256; records are numbered from 0",
        "steps": steps(),
        "heads": heads(),
        "cursors": cursors(),
        "waiting": waiting(),
        "load": loads(),
    });
    hold("ring.json", &made);
}
