//! Rings, the words of a control page, and the stream that carries both between hosts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tollfree_driver_tokio::Feed;
use tollfree_layout::control::{CONSUMED_OFF, RING_OFF, WAITING_OFF, load_word};
use tollfree_layout::limits::LINE_LEN;
use tollfree_layout::record::{HEAD_EMPTY, HEAD_LEN};
use tollfree_region::{HeapMemory, ReadMemory, WriteMemory};
use tollfree_ring::{Geometry, RecordRead, RecordReceiver, RecordSender, RingReceiver, RingSender, Waiter};
use tollfree_vectors::{from_hex, to_hex};

use crate::{Answer, Question};

/// A ring, and both ends of it.
struct Pair {
    ring: Geometry,
    memory: Arc<HeapMemory>,
    cursor: Arc<HeapMemory>,
    sender: RingSender<HeapMemory, HeapMemory>,
    receiver: RingReceiver<HeapMemory, HeapMemory>,
}

impl Pair {
    fn new(question: &Question) -> Result<Pair, String> {
        let len = question.number("ring_len")? as usize;
        let ring = Geometry::new(RING_OFF, len).map_err(|error| error.to_string())?;
        let [memory, cursor] = [(); 2].map(|()| Arc::new(HeapMemory::new(ring.end())));
        let sender = RingSender::new(memory.clone(), cursor.clone(), ring);
        let receiver = RingReceiver::new(cursor.clone(), memory.clone(), ring);
        Ok(Pair { ring, memory, cursor, sender, receiver })
    }

    fn bytes(&self, offset: usize, len: usize) -> Value {
        let mut bytes = vec![0; len];
        self.memory.copy_out(offset, &mut bytes);
        json!({ "offset": offset, "hex": to_hex(&bytes) })
    }

    fn publish(&mut self, payloads: &[Value]) -> Answer {
        let mut records = Vec::new();
        for payload in payloads {
            let bytes = payload.as_str().and_then(from_hex).ok_or("a payload is bytes")?;
            records.push((self.sender.staged_end().0, HEAD_LEN + bytes.len()));
            self.sender.stage(&[&bytes]).map_err(|error| error.to_string())?;
        }
        self.sender.publish();
        let ring_len = self.ring.end() - RING_OFF;
        let offset = |position: u64| RING_OFF + position as usize * LINE_LEN % ring_len;
        let record = |(position, len): (u64, usize)| {
            let before_end = len.min(RING_OFF + ring_len - offset(position));
            let mut parts = vec![self.bytes(offset(position), before_end)];
            if before_end < len {
                parts.push(self.bytes(RING_OFF, len - before_end));
            }
            json!({ "position": position, "parts": parts })
        };
        let records: Vec<Value> = records.into_iter().map(record).collect();
        let empty = offset(self.sender.staged_end().0);
        if self.memory.load_u64(empty, Ordering::Acquire) != HEAD_EMPTY {
            return Err("no empty head is behind the last record".to_owned());
        }
        Ok(json!({ "records": records, "empty_head_offset": empty }))
    }

    fn receive(&mut self, count: u64) -> Answer {
        for _ in 0..count {
            self.receiver.peek().map_err(|error| error.to_string())?.ok_or("there is no record")?;
            self.receiver.advance();
        }
        self.receiver.release();
        let mut consumed = [0; 8];
        self.cursor.copy_out(CONSUMED_OFF, &mut consumed);
        Ok(json!({ "consumed": to_hex(&consumed) }))
    }
}

pub(crate) fn ring(question: &Question) -> Answer {
    let mut pair = Pair::new(question)?;
    let mut last = Err("there are no steps".to_owned());
    for step in question.values("steps")? {
        last = match (step["publish"].as_array(), step["receive"].as_u64()) {
            (Some(payloads), _) => pair.publish(payloads),
            (None, Some(count)) => pair.receive(count),
            (None, None) => Err("a step that is none".to_owned()),
        };
    }
    last
}

/// A reader that finds a word where the next head belongs.
pub(crate) fn head(question: &Question) -> Answer {
    let mut pair = Pair::new(question)?;
    let word = question.bytes("head_word")?;
    for _ in 0..question.number("position")? {
        pair.publish(&[json!("")])?;
        pair.receive(1)?;
    }
    let offset = RING_OFF + question.number("position")? as usize * LINE_LEN % (pair.ring.end() - RING_OFF);
    pair.memory.copy_in(offset, &word);
    Ok(match pair.receiver.peek() {
        Ok(None) => json!({ "found": "empty", "len": null }),
        Ok(Some(record)) => json!({ "found": "record", "len": record.len() }),
        Err(_) => json!({ "found": "violation", "len": null }),
    })
}

/// A sender that is told how far its peer has come.
pub(crate) fn cursor(question: &Question) -> Answer {
    let mut pair = Pair::new(question)?;
    let (published, seen) = (question.number("published")?, question.number("seen")?);
    let consumed = question.bytes("consumed")?;
    for line in 0..published {
        pair.cursor.store_u64(CONSUMED_OFF, seen.min(line), Ordering::Relaxed);
        pair.publish(&[json!("")])?;
    }
    pair.cursor.store_u64(CONSUMED_OFF, seen, Ordering::Relaxed);
    pair.sender.consumed().map_err(|error| error.to_string())?;
    pair.cursor.copy_in(CONSUMED_OFF, &consumed);
    if pair.sender.consumed().is_err() {
        return Ok(json!({ "found": "violation", "room": null }));
    }
    let mut room = 0;
    while pair.sender.stage(&[&[]]).is_ok() {
        room += 1;
    }
    Ok(json!({ "found": "taken", "room": room }))
}

pub(crate) fn load(question: &Question) -> Answer {
    let word = question.number("calls").map_or(0, |calls| load_word(calls as u32));
    Ok(json!({ "load": to_hex(&word.to_le_bytes()) }))
}

pub(crate) fn waiting(question: &Question) -> Answer {
    let memory = Arc::new(HeapMemory::new(RING_OFF));
    let mut waiter = Waiter::new(memory.clone());
    for step in question.values("steps")? {
        match step.as_str() {
            Some("park") => waiter.park(false),
            Some("park for space") => waiter.park(true),
            Some("unpark") => waiter.unpark(),
            _ => return Err("a step that is none".to_owned()),
        }
    }
    Ok(json!({ "waiting": to_hex(&memory.load_u32(WAITING_OFF, Ordering::Relaxed).to_le_bytes()) }))
}

/// One end of a stream between hosts, to which bytes come.
pub(crate) fn device(question: &Question) -> Answer {
    let (sent, told) = (question.number("sent")?, question.number("told")?);
    if question.number("ring_len")? != Feed::LINE_COUNT * LINE_LEN as u64 {
        return Err("a ring of another length".to_owned());
    }
    let mut feed = Feed::new(sent, told);
    let violation = question.list("pieces")?.iter().any(|piece| feed.take(piece).is_err());
    let state = feed.state();
    let lines = feed.ring();
    let (lines, _) = lines.as_chunks::<LINE_LEN>();
    let line = |(number, line): (usize, &[u8; LINE_LEN])| json!({ "line": number, "hex": to_hex(line) });
    let written = lines.iter().enumerate().filter(|(_, line)| line.iter().any(|byte| *byte != 0)).map(line);
    Ok(json!({
        "violation": violation,
        "consumed": state.consumed,
        "load": state.load,
        "written": told + Feed::LINE_COUNT - 1 - state.granted,
        "lines": written.collect::<Vec<_>>(),
    }))
}
