//! One side of a session as sections 9 to 16 describe it: what it may say now, and what it must not accept.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::document::Document;
use super::frame::{Frame, check_block};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

#[derive(Clone)]
pub(crate) struct Limits {
    stream_window: u64,
    session_window: u64,
    stream_count: usize,
    metadata_len_max: usize,
    record_len_max: usize,
}

impl Limits {
    pub(crate) fn of(limits: &Value) -> Limits {
        let number = |name: &str| limits[name].as_u64().unwrap_or_else(|| panic!("no {name} in {limits}"));
        Limits {
            stream_window: number("stream_window"),
            session_window: number("session_window"),
            stream_count: number("stream_count") as usize,
            metadata_len_max: number("metadata_len_max") as usize,
            record_len_max: number("record_len_max") as usize,
        }
    }
}

/// What one direction carries: credit, messages, areas and segmented messages.
#[derive(Default)]
struct Direction {
    session_credit: u64,
    stream_credit: BTreeMap<u64, u64>,
    /// What is left of a message that has begun, by stream.
    unfinished: BTreeMap<u64, u64>,
    areas: Vec<Area>,
    /// Chunks in areas: area, from, to. No conversation is long enough for their room to be used again.
    placed: Vec<(u32, u64, u64)>,
    segmented_count: u64,
    taken: BTreeSet<u64>,
    /// SegmentedMessages whose bytes were asked for: how many were, and how many came; none any more once that is over.
    wanted: BTreeMap<u64, Option<(u64, u64)>>,
}

struct Area {
    len: u64,
    accepted: bool,
    answered: bool,
    dropped: bool,
}

pub(crate) struct Side<'d> {
    document: &'d Document,
    role: Role,
    limits: Limits,
    pool: bool,
    states: BTreeMap<u64, String>,
    method_count: u16,
    /// Methods of which the server has said their types.
    typed: BTreeSet<u64>,
    drain: Option<u64>,
    out: Direction,
    into: Direction,
    closed: bool,
}

type Checked = Result<(), String>;

fn ensure(holds: bool, wrong: impl Fn() -> String) -> Checked {
    if holds { Ok(()) } else { Err(wrong()) }
}

impl<'d> Side<'d> {
    pub(crate) fn new(document: &'d Document, role: Role, limits: Limits, pool: bool) -> Side<'d> {
        let direction = || Direction { session_credit: limits.session_window, ..Direction::default() };
        Side {
            document,
            role,
            pool,
            states: BTreeMap::new(),
            method_count: 0,
            typed: BTreeSet::new(),
            drain: None,
            out: direction(),
            into: direction(),
            closed: false,
            limits,
        }
    }

    /// Checks that this side may say a frame now, and notes that it has.
    pub(crate) fn send(&mut self, record: &[u8]) -> Checked {
        self.step(record, true)
    }

    /// Checks that a frame of the peer's is no violation, and notes what it means.
    pub(crate) fn receive(&mut self, record: &[u8]) -> Checked {
        self.step(record, false)
    }

    fn step(&mut self, record: &[u8], sends: bool) -> Checked {
        ensure(!self.closed, || "frame: the session is closed".to_owned())?;
        ensure(record.len() <= self.limits.record_len_max, || "frame: longer than a record".to_owned())?;
        let peer = if self.role == Role::Client { Role::Server } else { Role::Client };
        let sender = if sends { self.role } else { peer };
        let frame = Frame::parse(record, sender, self.pool)?;
        match frame.events[0] {
            "CONTROL" => self.control(&frame, sends),
            "CREDIT" => self.credit(&frame, sends),
            "DRAIN" => self.drain(&frame, sends),
            _ => self.events(&frame, sender, sends),
        }
    }

    fn live_count(&self) -> usize {
        self.states.values().filter(|state| *state != "Over").count()
    }

    fn known(&self, stream: u64) -> Checked {
        ensure(self.states.contains_key(&stream), || format!("stream: {stream} was not opened"))
    }

    /// An opening is of the next id, and names methods in order.
    fn open(&mut self, frame: &Frame, sends: bool) -> Checked {
        let id = self.states.len() as u64 + 1;
        ensure(frame.stream == id, || format!("stream: {} instead of {id}", frame.stream))?;
        let mut block = &frame.headers[..];
        if frame.flag("NAMES_METHOD") {
            let len = block.get(..2).map_or(0, |len| usize::from(len[0]) | usize::from(len[1]) << 8);
            ensure((1..=1024).contains(&len) && block.len() >= 2 + len, || "method: no path".to_owned())?;
            ensure(frame.code == self.method_count, || format!("method: {} named out of turn", frame.code))?;
            self.method_count += 1;
            block = &block[2 + len..];
        }
        ensure(frame.code < self.method_count, || format!("method: {} was not named", frame.code))?;
        check_block(block, self.limits.metadata_len_max)?;
        let refused = self.drain.is_some_and(|last| id > last);
        ensure(!(sends && self.drain.is_some()), || "drain: an opening after it".to_owned())?;
        let live = self.live_count() < self.limits.stream_count;
        ensure(live || refused, || "stream: too many calls".to_owned())?;
        let first = if self.role == Role::Client { "Asking" } else { "Hearing" };
        self.states.insert(id, if refused { "Over" } else { first }.to_owned());
        for direction in [&mut self.out, &mut self.into] {
            direction.stream_credit.insert(id, self.limits.stream_window);
        }
        Ok(())
    }

    fn events(&mut self, frame: &Frame, sender: Role, sends: bool) -> Checked {
        let opens = sender == Role::Client && frame.has("HEADERS");
        if opens {
            self.open(frame, sends)?;
        }
        self.known(frame.stream)?;
        for event in frame.events.iter().filter(|event| !opens || **event != "HEADERS") {
            self.happen(frame, event, sends)?;
        }
        Ok(())
    }

    fn happen(&mut self, frame: &Frame, event: &str, sends: bool) -> Checked {
        let stream = frame.stream;
        let state = self.states[&stream].clone();
        let direction = if sends { &mut self.out } else { &mut self.into };
        let unfinished = direction.unfinished.contains_key(&stream);
        let mark = if sends { "!" } else { "?" };
        let next = self.document.next(self.role == Role::Server, &state, &format!("{mark}{event}"));
        if state == "Over" && !sends {
            // Dropped unread, but for what it costs.
            return if event == "MESSAGE" { self.pay(frame, sends, true) } else { Ok(()) };
        }
        match next {
            "no" => return Err(format!("stream: {state} must not send {event}")),
            "order" | "kind" | "id" => return Err(format!("stream: {event} in {state}")),
            _ => {}
        }
        match event {
            "MESSAGE" => self.message(frame, sends)?,
            "HALF_CLOSE" => ensure(!unfinished, || "message: half-closed within".to_owned())?,
            "HEADERS" => check_block(&frame.headers, self.limits.metadata_len_max)?,
            "TRAILERS" => {
                ensure(!unfinished || frame.code != 0, || "message: status 0 within".to_owned())?;
                check_block(&frame.trailers, self.limits.metadata_len_max)?;
            }
            _ => {}
        }
        self.states.insert(stream, next.to_owned());
        Ok(())
    }

    /// What a chunk costs: of the session's credit, and of its stream's where that has not ended.
    fn pay(&mut self, frame: &Frame, sends: bool, over: bool) -> Checked {
        let direction = if sends { &mut self.out } else { &mut self.into };
        let cost = frame.chunk_len + 64;
        let spend = |credit: &mut u64, whose: &str| match credit.checked_sub(cost) {
            Some(left) => {
                *credit = left;
                Ok(())
            }
            None => Err(format!("credit: {cost} of the {whose}'s {credit}")),
        };
        spend(&mut direction.session_credit, "session")?;
        direction.segmented_count += u64::from(frame.flag("SEGMENTED"));
        match direction.stream_credit.get_mut(&frame.stream) {
            Some(credit) if !over => spend(credit, "stream"),
            _ => Ok(()),
        }
    }

    fn message(&mut self, frame: &Frame, sends: bool) -> Checked {
        self.pay(frame, sends, false)?;
        let direction = if sends { &mut self.out } else { &mut self.into };
        let begun = direction.unfinished.remove(&frame.stream);
        let wrong = || format!("message: a chunk of {} doesn't fit {begun:?}", frame.chunk_len);
        ensure(begun.is_none() == frame.flag("FIRST"), wrong)?;
        if frame.flag("BATCH") {
            return check_batch(&frame.chunk, frame.message_len, frame.flag("OBJECT"));
        }
        let before = begun.unwrap_or(frame.message_len);
        let left = before.checked_sub(frame.chunk_len).ok_or_else(wrong)?;
        ensure(frame.flag("LAST") == (left == 0) && (frame.chunk_len > 0 || before == 0), wrong)?;
        if left > 0 {
            direction.unfinished.insert(frame.stream, left);
        }
        let Some((idx, reserved, from)) = frame.range else { return Ok(()) };
        let to = from.checked_add(frame.chunk_len).ok_or("area: a range beyond all numbers")?;
        let area = direction.areas.get(idx as usize).filter(|area| area.accepted && !area.dropped);
        let within = reserved == 0 && area.is_some_and(|area| to <= area.len);
        ensure(within, || format!("area: {from}..{to} of area {idx}"))?;
        let apart =
            direction.placed.iter().all(|&(other, start, end)| other != idx || to <= start || end <= from);
        ensure(apart, || format!("area: {from}..{to} of area {idx} is in use"))?;
        direction.placed.push((idx, from, to));
        Ok(())
    }

    fn credit(&mut self, frame: &Frame, sends: bool) -> Checked {
        // A grant is about what comes the other way.
        let direction = if sends { &mut self.into } else { &mut self.out };
        if frame.stream == 0 {
            let sum = direction.session_credit.checked_add(frame.chunk_len);
            direction.session_credit = sum.ok_or("credit: beyond all numbers")?;
            // Nothing in the conversations raises the session's window.
            let most = self.limits.session_window;
            return ensure(direction.session_credit <= most, || {
                "credit: granted before it was spent".to_owned()
            });
        }
        let credit = direction.stream_credit.get_mut(&frame.stream);
        let credit = credit.ok_or_else(|| format!("stream: {} was not opened", frame.stream))?;
        *credit = credit.checked_add(frame.chunk_len).ok_or("credit: beyond all numbers")?;
        Ok(())
    }

    fn drain(&mut self, frame: &Frame, sends: bool) -> Checked {
        let last = frame.stream;
        let falls = self.drain.is_none_or(|before| last <= before);
        ensure(last <= self.states.len() as u64 && falls, || format!("drain: {last} was not opened"))?;
        self.drain = Some(last);
        if !sends {
            for (_, state) in self.states.range_mut(last + 1..) {
                *state = "Over".to_owned();
            }
        }
        Ok(())
    }

    fn control(&mut self, frame: &Frame, sends: bool) -> Checked {
        // Offers and drops are of the sender's areas, and bytes of its segmented messages; the rest is about those of the other side.
        let owner = if sends == matches!(frame.code, 1 | 4 | 8) { &mut self.out } else { &mut self.into };
        let idx = frame.stream;
        let wrong = || format!("area: code {} about area {idx}", frame.code);
        match frame.code {
            1 => {
                let counted =
                    owner.areas.iter().filter(|area| !area.answered || area.accepted && !area.dropped);
                ensure(counted.count() < 2, || "area: a third at once".to_owned())?;
                let len = frame.chunk_len;
                let fits = (65_536..=16_777_216).contains(&len) && len.is_multiple_of(4096);
                ensure(idx == owner.areas.len() as u64 && fits, wrong)?;
                owner.areas.push(Area { len, accepted: false, answered: false, dropped: false });
            }
            2 | 3 => {
                let area =
                    owner.areas.get_mut(idx as usize).filter(|area| !area.answered).ok_or_else(wrong)?;
                (area.answered, area.accepted) = (true, frame.code == 2);
            }
            4 => owner.areas.get_mut(idx as usize).ok_or_else(wrong)?.dropped = true,
            5 => self.closed = true,
            9 => {
                let of = frame.chunk_len;
                let is_new = of < u64::from(self.method_count) && self.typed.insert(of);
                ensure(is_new, || format!("object: the types of {of} are not to be said"))?;
            }
            7 => {
                let fresh = idx < owner.segmented_count
                    && !owner.taken.contains(&idx)
                    && !owner.wanted.contains_key(&idx);
                ensure(fresh, || format!("segmented message: {idx} is not to be asked for"))?;
                owner.wanted.insert(idx, Some((frame.chunk_len, 0)));
            }
            8 => {
                let lies =
                    || format!("segmented message: {} bytes of {idx} were not asked for", frame.chunk_len);
                let wanted = owner.wanted.get_mut(&idx).ok_or_else(lies)?;
                let (asked, came) = wanted.ok_or_else(lies)?;
                let came = came + frame.chunk_len;
                ensure(came <= asked, lies)?;
                *wanted = (frame.chunk_len > 0 && came < asked).then_some((asked, came));
            }
            _ => {
                for segmented in idx..idx.saturating_add(frame.chunk_len) {
                    let was_sent = segmented < owner.segmented_count && owner.taken.insert(segmented);
                    ensure(was_sent, || format!("segmented message: {segmented} is not to be taken"))?;
                }
            }
        }
        Ok(())
    }
}

/// Exactly so many messages behind their prefixes.
fn check_batch(mut batch: &[u8], count: u64, of_objects: bool) -> Checked {
    for _ in 0..count {
        let (prefix, rest) = batch.split_first_chunk::<5>().ok_or("message: a batch ends within a prefix")?;
        let is_of_sort = if of_objects { prefix[0] == 2 } else { prefix[0] < 2 };
        ensure(is_of_sort, || format!("message: a batch with {prefix:?}"))?;
        let len = prefix[1..].iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
        batch = rest.get(len..).ok_or("message: a batch ends within a message")?;
    }
    ensure(batch.is_empty(), || "message: a batch with more than it says".to_owned())
}
