//! What a channel knows of a server's health: the messages of `grpc.health.v1.Health/Watch`, and what follows from them (gRFC A17).

use std::time::Duration;

use bytes::Bytes;
use tollfree_rendezvous::Address;

use crate::{ChannelId, Message, SessionId, Status};

/// The method by which a server's health is watched.
pub(crate) const WATCH: &str = "/grpc.health.v1.Health/Watch";
/// Pauses before a watch that has ended is begun again.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// gRPC's UNIMPLEMENTED: the server has no health service.
pub(crate) const UNIMPLEMENTED: u16 = 12;

/// Whether a connected server may get calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Health {
    /// It serves, or its health is not checked.
    #[default]
    Serving,
    /// It has not answered yet, or its watch has broken off.
    Unknown,
    /// It may not, for this reason.
    Failing(String),
}

/// A watch that is under way.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) channel: ChannelId,
    pub(crate) endpoint: usize,
    /// Watches that have ended without an answer before, one after the other.
    failures: u32,
    is_answered: bool,
}

/// A watch that is to be begun again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NextWatch {
    pub(crate) channel: ChannelId,
    pub(crate) endpoint: usize,
    pub(crate) session: SessionId,
    pub(crate) failures: u32,
}

impl Watch {
    pub(crate) fn new(channel: ChannelId, endpoint: usize, failures: u32) -> Watch {
        Watch { channel, endpoint, failures, is_answered: false }
    }

    /// What an answer says of a server.
    pub(crate) fn answered(&mut self, message: &Message, address: &Address, service: &str) -> Health {
        let status = match message.compressed {
            true => None,
            false => status_of(&message.bytes),
        };
        let state = match status {
            Some(1) => {
                self.is_answered = true;
                return Health::Serving;
            }
            Some(0) => "UNKNOWN".to_owned(),
            Some(2) => "NOT_SERVING".to_owned(),
            Some(3) => "SERVICE_UNKNOWN".to_owned(),
            Some(other) => format!("status {other}"),
            None => {
                return Health::Failing(failure(address, service, "is unknown: its answer can't be read"));
            }
        };
        self.is_answered = true;
        Health::Failing(failure(address, service, &format!("is {state}")))
    }

    /// The watch has ended: what is known of the server now, the failures so far, and when to watch again.
    ///
    /// A watch that breaks off once leaves the health unknown, so that calls wait. If the next one brings no answer either, calls fail: nobody is to
    /// wait for a server whose health service is broken.
    pub(crate) fn ended(self, status: &Status, address: &Address, service: &str) -> (Health, u32, Duration) {
        let failures = if self.is_answered { 1 } else { self.failures.saturating_add(1) };
        let health = match failures {
            1 => Health::Unknown,
            _ => {
                let why = format!("is unknown: the watch ends with code {} {}", status.code, status.words());
                Health::Failing(failure(address, service, &why))
            }
        };
        let pause = PAUSE_MIN.saturating_mul(1 << (failures - 1).min(10)).min(PAUSE_MAX);
        (health, failures, pause)
    }
}

fn failure(address: &Address, service: &str, what: &str) -> String {
    format!("no calls go to {address}: by {WATCH}, the health of its service \"{service}\" {what}")
}

/// `HealthCheckRequest` of a service.
pub(crate) fn request(service: &str) -> Message {
    let mut bytes = Vec::with_capacity(service.len() + 6);
    if !service.is_empty() {
        bytes.push(0x0a);
        push_varint(&mut bytes, service.len() as u64);
        bytes.extend_from_slice(service.as_bytes());
    }
    Message::from(Bytes::from(bytes))
}

fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// `status` of a `HealthCheckResponse`: its first field. `None`: the bytes are no such message.
fn status_of(mut bytes: &[u8]) -> Option<u64> {
    let mut status = 0;
    while !bytes.is_empty() {
        let key = take_varint(&mut bytes)?;
        let skipped = match key & 7 {
            0 => {
                let value = take_varint(&mut bytes)?;
                if key >> 3 == 1 {
                    status = value;
                }
                0
            }
            1 => 8,
            2 => usize::try_from(take_varint(&mut bytes)?).ok()?,
            5 => 4,
            _ => return None,
        };
        bytes = bytes.get(skipped..)?;
    }
    Some(status)
}

fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_are_those_of_the_health_service() {
        assert_eq!(&request("").bytes[..], b"");
        assert_eq!(&request("db").bytes[..], b"\x0a\x02db");
        let long = request(&"x".repeat(300));
        assert_eq!((&long.bytes[..3], long.len()), (&b"\x0a\xac\x02"[..], 303));
        for (bytes, status) in [
            (&b""[..], Some(0)),
            (b"\x08\x01", Some(1)),
            (b"\x08\x01\x08\x02", Some(2)),
            (b"\x12\x03abc\x08\x03\x15abcd\x19abcdefgh", Some(3)),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", Some(u64::MAX)),
            (b"\x08", None),
            (b"\x12\x09abc", None),
            (b"\x0b", None),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", None),
        ] {
            assert_eq!(status_of(bytes), status, "{bytes:?}");
        }
    }

    #[test]
    fn calls_wait_for_a_watch_that_breaks_off_once_and_fail_for_one_that_never_answers() {
        let address: Address = "shm:///tmp/x.sock".parse().unwrap();
        let channel = ChannelId::from_bits(1);
        let status = Status::here(14, "gone");
        let mut watch = Watch::new(channel, 0, 5);
        assert_eq!(watch.answered(&Message::from(&b"\x08\x01"[..]), &address, ""), Health::Serving);
        assert_eq!(watch.ended(&status, &address, ""), (Health::Unknown, 1, PAUSE_MIN));
        let (health, failures, pause) = Watch::new(channel, 0, 1).ended(&status, &address, "db");
        let Health::Failing(words) = health else { panic!("it has failed twice") };
        assert!(words.contains("shm:///tmp/x.sock") && words.contains("\"db\"") && words.contains("gone"));
        assert_eq!((failures, pause), (2, 2 * PAUSE_MIN));
        assert_eq!(Watch::new(channel, 0, u32::MAX).ended(&status, &address, "").2, PAUSE_MAX);
    }
}
