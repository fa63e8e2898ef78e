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

fn forged() -> Vec<Value> {
    let max = record_len_max(RING_LEN_MIN) as u64;
    let words = [
        ("the sequence of another position", 0x0000_0000_8000_0001),
        ("no mark in the sequence", 0x0000_0001_0000_0000),
        ("longer than any record", (max + 1) << 32 | 0x8000_0000),
        ("as long as can be said", 0xffff_ffff_8000_0000),
    ];
    let forge = |(name, word): (&str, u64)| {
        let mut pair = Pair::new();
        pair.memory.store_u64(RING_OFF, word, Ordering::Release);
        let violation = match pair.receiver.peek() {
            Err(RingViolation::ForgedSequence { .. }) => "sequence",
            Err(RingViolation::ForgedLength { .. }) => "length",
            other => panic!("{name}: {:?}", other.map(|record| record.map(|record| record.len()))),
        };
        json!({ "name": name, "head_word": hex(&word.to_le_bytes()), "position": 0, "violation": violation })
    };
    words.into_iter().map(forge).collect()
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
        "forged_heads": forged(),
        "waiting": waiting(),
        "load": loads(),
    });
    hold("ring.json", &made);
}
