//! One side of a conversation: a session of the product's that hears the frames of the other side, and says what this one has said as far
//! as that decides what it hears.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};
use tollfree_layout::frame::{FrameHead, control, events, flags};
use tollfree_layout::{AreaIdx, SegmentedIdx, StreamId, metadata};
use tollfree_session::{
    AreaEvent, Closed, End, Ending, Incoming, Keep, Opening, Outgoing, OutgoingMessage, Part, Received, Role,
    Session,
};
use tollfree_vectors::{from_hex, to_hex};
use zerocopy::FromBytes;

use crate::sessions::{Out, Record, limits};
use crate::{Answer, Question};

/// A call, as far as its application was told.
#[derive(Default)]
struct Call {
    told: Value,
    /// The chunks of a message of which not all has come, the first behind gRPC's prefix.
    begun: Vec<u8>,
    is_segmented: bool,
    /// The session has nothing more to tell of it, or this side has ended it.
    is_over: bool,
}

struct Side {
    session: Session<()>,
    out: Out,
    /// Methods that this side has named, where it is the client.
    paths: Vec<String>,
    calls: BTreeMap<u64, Call>,
    /// SegmentedMessages that came and were not taken.
    segmented_messages: Vec<SegmentedIdx>,
}

fn pairs(block: &[u8]) -> Result<Vec<String>, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let line = |pair: Result<(metadata::Name<'_>, _), metadata::BlockError>| match pair {
        Ok((name, value)) => Ok(format!("{}: {}", text(name.as_bytes()), text(value))),
        Err(error) => Err(error.to_string()),
    };
    metadata::pairs(block).map(line).collect()
}

pub(crate) fn to_server(question: &Question) -> Answer {
    play(Role::Server, question)
}

pub(crate) fn to_client(question: &Question) -> Answer {
    play(Role::Client, question)
}

fn play(role: Role, question: &Question) -> Answer {
    let limits = limits(question)?;
    let session = Session::new(role, limits, limits).with_segmented(question.flag("pool"));
    let out = Out(question.number("record_len_max")? as usize);
    let mut side =
        Side { session, out, paths: Vec::new(), calls: BTreeMap::new(), segmented_messages: Vec::new() };
    for frame in question.values("frames")? {
        let bytes = |what: &str| frame[what].as_str().and_then(from_hex);
        match (bytes("said"), bytes("heard")) {
            (Some(said), None) => side.says(&said)?,
            (None, Some(heard)) => side.hears(&heard)?,
            _ => return Err("a frame that is none".to_owned()),
        }
    }
    let closed = match side.session.closed() {
        Some(Closed::ByPeer(words)) => Some(words.clone()),
        _ => None,
    };
    let calls: Vec<Value> = side.calls.into_values().map(|call| call.told).collect();
    Ok(json!({ "calls": calls, "closed": closed }))
}

impl Side {
    /// Says of a frame what decides about later ones: which calls there are, which have ended, and what the peer may speak of.
    fn says(&mut self, frame: &[u8]) -> Result<(), String> {
        let (head, body) = FrameHead::ref_from_prefix(frame).map_err(|_| "a frame without a head")?;
        let (id, code) = (StreamId(head.stream.get()), head.code.get());
        if head.events != events::CONTROL && head.events & (events::CANCEL | events::TRAILERS) != 0 {
            self.calls.get_mut(&id.0).into_iter().for_each(|call| call.is_over = true);
        }
        let Side { session, out, .. } = self;
        let segmented =
            (head.flags & flags::SEGMENTED != 0 && head.events & events::MESSAGE != 0).then(|| {
                let bytes = Bytes::copy_from_slice(&body[body.len() - head.chunk_len.get() as usize..]);
                OutgoingMessage::segmented(bytes, false, Keep::new(()))
            });
        match head.events {
            events::CANCEL => session.cancel(id, code),
            events::DRAIN => session.drain(),
            events::CREDIT => {}
            events::CONTROL => return self.controls(head),
            with if with & events::HEADERS != 0 && session.role() == Role::Client => {
                let block = &body[if head.flags & flags::HAS_DEADLINE != 0 { 8 } else { 0 }..];
                if head.flags & flags::NAMES_METHOD != 0 {
                    let len = usize::from(u16::from_le_bytes([block[0], block[1]]));
                    self.paths.push(String::from_utf8_lossy(&block[2..2 + len]).into_owned());
                }
                let path = self.paths.get(usize::from(code)).ok_or("a method that was not named")?;
                let mut outgoing = Outgoing { message: segmented, ..Outgoing::default() };
                let opened = session.open(out, Opening { path, deadline_ns: 0 }, &mut outgoing);
                if !matches!(opened, Ok(Ok(opened)) if opened == id) {
                    return Err(format!("the call was not opened: {opened:?}"));
                }
                let told = json!({
                    "stream": id.0, "headers": null, "messages": [], "end": "none", "trailers": [],
                });
                self.calls.insert(id.0, Call { told, ..Call::default() });
            }
            with if with & events::TRAILERS != 0 || segmented.is_some() => {
                let ends = with & events::TRAILERS != 0;
                let headers = (with & events::HEADERS != 0).then(Bytes::new);
                let ending = ends.then(|| Ending::Trailers { code, block: Bytes::new() });
                let mut outgoing = Outgoing { headers, message: segmented, ending };
                session.send(out, id, &mut outgoing).map_err(|error| error.to_string())?;
                session.settle(id);
            }
            _ => {}
        }
        self.session.stage_pending(&mut self.out).map_err(|_| "no room".to_owned())
    }

    fn controls(&mut self, head: &FrameHead) -> Result<(), String> {
        let (number, count) = (head.stream.get(), head.chunk_len.get());
        match head.code.get() {
            control::AREA_OFFER => self.session.offer_area(AreaIdx(number as u32), count),
            control::AREA_DROP => self.session.drop_area(AreaIdx(number as u32)),
            control::SEGMENTED_WANTED => self.session.want_segmented(SegmentedIdx(number), count),
            control::SEGMENTED_TAKEN => {
                let range = number..number + u64::from(count);
                let (taken, left) = self
                    .segmented_messages
                    .drain(..)
                    .partition(|segmented: &SegmentedIdx| range.contains(&segmented.0));
                self.segmented_messages = left;
                let taken: Vec<SegmentedIdx> = taken;
                taken.into_iter().for_each(|segmented| self.session.take_segmented(segmented));
            }
            _ => {}
        }
        Ok(())
    }

    fn hears(&mut self, frame: &[u8]) -> Result<(), String> {
        match self.session.receive(&Record(frame)).map_err(|violation| violation.to_string())? {
            Received::Area(AreaEvent::Offered { area, .. }) => self.session.answer_area(area, true),
            Received::Frame | Received::Area(_) | Received::Closed => {}
        }
        while let Some(accepted) = self.session.accept() {
            let path = String::from_utf8_lossy(&self.session.path_of(&accepted)).into_owned();
            let told = json!({
                "stream": accepted.id.0,
                "path": path,
                "deadline_ns": format!("{:016x}", accepted.deadline_ns),
                "headers": pairs(&accepted.headers)?,
                "messages": [],
                "end": "none",
            });
            self.calls.insert(accepted.id.0, Call { told, ..Call::default() });
        }
        // All is read at once, so that there is credit for what comes.
        let open = self.calls.iter().filter(|(_, call)| !call.is_over).map(|(id, _)| *id);
        for id in open.collect::<Vec<u64>>() {
            while let Some(incoming) = self.session.take(StreamId(id)) {
                let is_last = incoming.is_last();
                // Those of a request that came as a whole are there, and others with the call.
                let headers = match &incoming {
                    Incoming::Request(whole) => Some(Bytes::copy_from_slice(whole.headers())),
                    _ => None,
                };
                let mut part = incoming.into_part();
                part.headers = headers.or(part.headers);
                let has_end = part.end.is_some();
                self.tell(id, part, is_last)?;
                if has_end {
                    break;
                }
            }
        }
        self.session.stage_pending(&mut self.out).map_err(|_| "no room".to_owned())
    }

    fn tell(&mut self, id: u64, part: Part, is_last: bool) -> Result<(), String> {
        let call = self.calls.get_mut(&id).ok_or("a call that nobody knows")?;
        call.is_over |= is_last || !matches!(part.end, None | Some(End::HalfClosed));
        if let Some(block) = part.headers {
            call.told["headers"] = json!(pairs(&block)?);
        }
        if let Some(chunk) = part.chunk {
            call.is_segmented |= chunk.segmented.is_some();
            self.segmented_messages.extend(chunk.segmented);
            call.begun.extend_from_slice(&chunk.bytes);
            if chunk.last {
                call.messages()?;
            }
        }
        call.told["end"] = match part.end {
            None | Some(End::SessionClosed) => return Ok(()),
            Some(End::HalfClosed) => json!("half-close"),
            Some(End::Cancelled { refused: true, .. }) => json!("refused"),
            Some(End::Cancelled { code, .. }) => json!(format!("cancelled {code}")),
            Some(End::Trailers { code, block }) => {
                call.told["trailers"] = json!(pairs(&block)?);
                json!(format!("status {code}"))
            }
        };
        Ok(())
    }
}

impl Call {
    /// What has come is whole messages, each behind gRPC's prefix.
    fn messages(&mut self) -> Result<(), String> {
        let begun = std::mem::take(&mut self.begun);
        let mut rest = &begun[..];
        while let Some(([flag, len @ ..], behind)) = rest.split_first_chunk::<5>() {
            let (message, behind) = behind
                .split_at_checked(u32::from_be_bytes(*len) as usize)
                .ok_or("a message ends too early")?;
            let kind = match (std::mem::take(&mut self.is_segmented), flag) {
                (true, 2) => "object segmented",
                (true, _) => "segmented",
                (false, 2) => "object",
                (false, 1) => "compressed",
                (false, _) => "encoded",
            };
            let told = json!({ "kind": kind, "bytes": to_hex(message) });
            self.told["messages"].as_array_mut().ok_or("no list of messages")?.push(told);
            rest = behind;
        }
        Ok(())
    }
}
