//! Events in words, for a table that people read.

use std::fmt;

use tollfree_layout::frame::{control, events};

use crate::event::{Decision, Doorbell, Lack, Place, SessionEvent, Side, StreamCause};
use crate::look::FrameKinds;

const CONTROLS: [(u16, &str); 9] = [
    (control::AREA_OFFER, "AREA_OFFER"),
    (control::AREA_ACCEPT, "AREA_ACCEPT"),
    (control::AREA_REFUSE, "AREA_REFUSE"),
    (control::AREA_DROP, "AREA_DROP"),
    (control::CLOSE, "CLOSE"),
    (control::SEGMENTED_TAKEN, "SEGMENTED_TAKEN"),
    (control::SEGMENTED_WANTED, "SEGMENTED_WANTED"),
    (control::SEGMENTED_BYTES, "SEGMENTED_BYTES"),
    (control::OBJECTS, "OBJECTS"),
];

/// A frame's parts, in words.
struct Frame {
    stream: u64,
    kinds: FrameKinds,
    code: u16,
    len: u32,
    place: Place,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Frame { stream, kinds, code, len, place } = self;
        if kinds.has(events::CONTROL) {
            let name = CONTROLS.iter().find(|(known, _)| known == code).map_or("unknown", |(_, name)| name);
            return write!(f, "CONTROL {name}, number {stream}, value {len}");
        }
        write!(f, "{kinds} on stream {stream}")?;
        if kinds.has(events::TRAILERS | events::CANCEL) {
            write!(f, ", status {code}")?;
        }
        match place {
            _ if kinds.has(events::CREDIT) => write!(f, ", {len} bytes granted"),
            _ if !kinds.has(events::MESSAGE) => Ok(()),
            Place::Ring => write!(f, ", {len} bytes in the ring"),
            Place::Area => write!(f, ", {len} bytes in a payload area"),
            Place::Pool => write!(f, ", {len} bytes with refs into the pool"),
        }
    }
}

fn end_of(side: Side) -> &'static str {
    match side {
        Side::Here => "this end",
        Side::Peer => "the peer",
    }
}

impl fmt::Display for StreamCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StreamCause::HeadersSent => "sent headers",
            StreamCause::ChunkSent => "sent a chunk",
            StreamCause::EndingSent => "sent its last event",
            StreamCause::HeadersReceived => "got headers",
            StreamCause::ChunkReceived => "got a chunk",
            StreamCause::HalfCloseReceived => "got the client's half-close",
            StreamCause::Over => "is over",
        })
    }
}

impl fmt::Display for SessionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionEvent::Began { client, pid, uid, agent } => {
                let role = if *client { "client of" } else { "server of" };
                write!(f, "session began: {role} process {pid} of user {uid}, {agent}")
            }
            SessionEvent::Limits { of, stream_window, session_window, calls, metadata, ring } => write!(
                f,
                "{} takes {calls} calls at once, {stream_window} bytes a stream, {session_window} bytes a session, \
                 {metadata} bytes of metadata; its ring has {ring} bytes",
                end_of(*of)
            ),
            SessionEvent::Call { stream, path } => write!(f, "stream {stream} calls {path}"),
            SessionEvent::Stream { stream, cause, from, to } => {
                write!(f, "stream {stream} {cause}: {from}, now {to}")
            }
            SessionEvent::Sent { stream, kinds, code, len, place } => {
                let (stream, kinds, code, len, place) = (*stream, *kinds, *code, *len, *place);
                write!(f, "wrote {}", Frame { stream, kinds, code, len, place })
            }
            SessionEvent::Received { stream, kinds, code, len, place } => {
                let (stream, kinds, code, len, place) = (*stream, *kinds, *code, *len, *place);
                write!(f, "got {}", Frame { stream, kinds, code, len, place })
            }
            SessionEvent::Credit { by, stream: 0, amount } => {
                write!(f, "{} grants {amount} bytes to the session", end_of(*by))
            }
            SessionEvent::Credit { by, stream, amount } => {
                write!(f, "{} grants {amount} bytes to stream {stream}", end_of(*by))
            }
            SessionEvent::Blocked { stream, lack } => {
                let lack = match lack {
                    Lack::Credit => "credit",
                    Lack::Ring => "room in the ring",
                    Lack::Calls => "a place among the calls at once",
                };
                match stream {
                    0 => write!(f, "a new call waits for {lack}"),
                    stream => write!(f, "stream {stream} waits for {lack}"),
                }
            }
            SessionEvent::Published { pos, unread } => {
                write!(f, "published up to line {pos}; {unread} bytes are not given back")
            }
            SessionEvent::Released { lines } => write!(f, "gave {lines} lines of the peer's ring back"),
            SessionEvent::Doorbell { done } => f.write_str(match done {
                Doorbell::Rung => "rang the peer",
                Doorbell::NotNeeded => "the peer is awake: no ring",
                Doorbell::Later => "the peer sleeps: rung together with more",
            }),
            SessionEvent::Waits { decision, looked_ns, budget_ns } => {
                let how = match decision {
                    Decision::Spin => "spins",
                    Decision::Probe => "looks with the doorbell armed",
                    Decision::Park => "parks",
                };
                match budget_ns {
                    &u64::MAX => write!(f, "{how}, {looked_ns} ns into the wait, without a budget"),
                    budget_ns => write!(f, "{how}, {looked_ns} ns into the wait, budget {budget_ns} ns"),
                }
            }
            SessionEvent::Armed { found: false } => f.write_str("armed the doorbell: nothing has come"),
            SessionEvent::Armed { found: true } => f.write_str("armed the doorbell: something has come"),
            SessionEvent::Woken => f.write_str("woken"),
            SessionEvent::TimedOut => f.write_str("its timer is due"),
            SessionEvent::Draining { by, last } => {
                write!(f, "{} drains: no stream after {last}", end_of(*by))
            }
            SessionEvent::Violation { number, words } => {
                write!(f, "the peer broke the protocol, number {number}: {words}")
            }
            SessionEvent::Ended { number, by, words } => {
                write!(f, "session ended by {}, number {number}: {words}", end_of(*by))
            }
        }
    }
}
