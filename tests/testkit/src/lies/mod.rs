//! What hostile peers do, by name: each implementation's tests are given the same lists.

mod clients;
mod floods;
mod greetings;
mod servers;
mod welcomes;

use std::fs::File;
use std::net::Shutdown;
use std::os::fd::AsFd;

use tollfree_layout::frame::{control, events, flags};
use tollfree_layout::limits;

pub use clients::lies_of_clients;
pub use floods::{FLOODS, Flood, restless, rewrite};
pub use greetings::{Greeting, Props, greetings, random_greeting};
pub use servers::lies_of_servers;
pub use welcomes::{Welcome, welcomes};

use crate::chance::Chance;
use crate::frames::{Frame, opening_of};
use crate::peer::HostilePeer;

/// The method that lies of clients call. Its server answers a message with itself.
pub const ECHO: &str = "/test.Echo/Call";

/// What a peer does after a good handshake, which ends its session.
#[derive(Debug)]
pub struct Lie {
    /// What it is.
    pub name: &'static str,
    /// The places in section 17 of spec/wire.md that the victim may name, with `|` between them. Empty: the peer just goes.
    pub place: &'static str,
    /// What the reference's reason contains.
    pub words: &'static str,
    /// The act itself.
    pub act: fn(&mut HostilePeer),
}

fn lie(name: &'static str, place: &'static str, words: &'static str, act: fn(&mut HostilePeer)) -> Lie {
    Lie { name, place, words, act }
}

/// What either side can do.
fn lies_of_both() -> Vec<Lie> {
    vec![
        lie("sequence", "ring", "wrong sequence", |peer| peer.forge_head(0x1234_5678_9abc_def0)),
        lie("sequence of an earlier lap", "ring", "wrong sequence", |peer| {
            peer.forge_head(peer.next_head(24) ^ 1);
        }),
        lie("all ones", "ring", "wrong sequence", |peer| peer.forge_head(u64::MAX)),
        lie("length 0", "frame", "frame of 0 bytes", |peer| peer.forge_head(peer.next_head(0))),
        lie("length too long", "ring", "impossible length", |peer| peer.forge_head(peer.next_head(16313))),
        lie("length huge", "ring", "impossible length", |peer| peer.forge_head(peer.next_head(u32::MAX))),
        lie("no event", "frame", "events 0x00", |peer| say(peer, &Frame::new(0, 0, 1))),
        lie("all events", "frame", "events 0xff", |peer| say(peer, &Frame::new(0xff, 0, 1))),
        lie("credit of nothing", "frame|credit", "events 0x20", |peer| {
            say(peer, &Frame::new(events::CREDIT, 0, 0).chunk_len(0));
        }),
        lie("control unknown", "frame", "control code 99", |peer| {
            say(peer, &Frame::new(events::CONTROL, 0, 0).code(99));
        }),
        lie("area accepted unasked", "area", "control code 2", |peer| {
            say(peer, &Frame::new(events::CONTROL, 0, 0).code(control::AREA_ACCEPT));
        }),
        lie("area dropped unasked", "area", "control code 4", |peer| {
            say(peer, &Frame::new(events::CONTROL, 0, 0).code(control::AREA_DROP));
        }),
        lie("area without its fd", "area", "did not come", |peer| offer(peer, limits::AREA_LEN_MIN as u32)),
        lie("area of a length that is not its fd's", "area", "not what was announced", |peer| {
            let fd = peer.region_fd().try_clone_to_owned().expect("a descriptor is free");
            let _ = peer.send_fds(&[fd.as_fd()]);
            offer(peer, limits::AREA_LEN_MIN as u32);
        }),
        lie("area that is a device", "area", "not what was announced", |peer| {
            let _ = peer.send_fds(&[File::open("/dev/zero").expect("there is one").as_fd()]);
            offer(peer, limits::AREA_LEN_MIN as u32);
        }),
        lie("area of no length", "area", "control code 1", |peer| offer(peer, 0)),
        lie("area of 4 GiB", "area", "control code 1", |peer| offer(peer, u32::MAX)),
        lie("stray fds", "area|socket", "socket: more", |peer| stray_fds(peer, 1, 20)),
        lie("hundreds of fds at once", "area|socket", "socket: more", |peer| stray_fds(peer, 250, 1)),
        lie("noise on the socket", "socket", "socket: more", |peer| {
            let _ = peer.door().write(&vec![7; 100_000]);
        }),
        lie("hang-up", "", "hung up", |peer| peer.shutdown(Shutdown::Both)),
        lie("half a hang-up", "", "hung up", |peer| peer.shutdown(Shutdown::Write)),
    ]
}

/// Publishes what ends the session: the victim may have hung up by then.
fn say(peer: &mut HostilePeer, frame: &Frame) {
    let _ = peer.send(frame);
}

fn offer(peer: &mut HostilePeer, len: u32) {
    say(peer, &Frame::new(events::CONTROL, 0, 0).code(control::AREA_OFFER).chunk_len(len));
}

fn stray_fds(peer: &mut HostilePeer, at_once: usize, times: usize) {
    let file = File::open("/dev/null").expect("there is one");
    for _ in 0..times {
        let _ = peer.send_fds(&vec![file.as_fd(); at_once]);
    }
}

/// Mostly what a client may say, with something wrong in one of many. `stream` is the last one opened.
pub fn random_record(chance: &mut Chance, stream: &mut u64) -> Vec<u8> {
    let mut frame = match chance.below(8) {
        0..=2 => {
            *stream += 1;
            let named = format!("{ECHO}{stream}");
            opening_of(*stream, *stream as u16 - 1, &named, &vec![1; chance.below(300) as usize])
        }
        3 => Frame::new(events::CREDIT, 0, chance.below(*stream + 1))
            .chunk_len(chance.below(1 << 20) as u32 + 1),
        4 if *stream > 0 => Frame::new(events::CANCEL, 0, 1 + chance.below(*stream)).code(1),
        5 if *stream > 0 => {
            let whole = flags::FIRST | flags::LAST;
            Frame::new(events::MESSAGE, whole, 1 + chance.below(*stream))
        }
        _ => Frame::new(events::CREDIT, 0, 0).chunk_len(1),
    };
    let mut record = std::mem::take(&mut frame).record();
    if chance.below(60) == 0 {
        for _ in 0..1 + chance.below(4) {
            let at = chance.below(record.len() as u64) as usize;
            record[at] = chance.word() as u8;
        }
    }
    if chance.below(200) == 0 {
        let len = chance.below(400) as usize;
        record = chance.bytes(len);
    }
    record
}
