//! First answers of servers.

use std::os::fd::AsFd;
use std::time::Duration;

use tollfree_layout::handshake::{Hello, kind, reason};
use tollfree_layout::limits;
use zerocopy::IntoBytes;

use crate::door::Door;
use crate::hollow::hollow;

const RING_LEN: usize = limits::RING_LEN_DEFAULT;

/// How a server answers a client's first message so that the client gives up.
#[derive(Debug)]
pub struct Welcome {
    /// What it is.
    pub name: &'static str,
    /// What the reference's error contains, and any other's says in its own words.
    pub words: &'static str,
    /// The act itself.
    pub act: fn(Door),
}

macro_rules! edited {
    ($name:literal, $words:literal, $edit:expr) => {
        Welcome {
            name: $name,
            words: $words,
            act: |door| {
                let peer = door.welcome($edit);
                std::thread::sleep(Duration::from_millis(50));
                drop(peer);
            },
        }
    };
}

/// Answers after which a client gives up.
pub fn welcomes() -> Vec<Welcome> {
    let mut all = vec![
        edited!("wrong magic", "does not speak Tollfree", |h| h.magic = *b"TOLLFRE3"),
        edited!("version N-1", "speaks 0 to 0", |h| (h.version_min, h.version_max) = (0.into(), 0.into())),
        edited!("version N+1", "speaks 2 to 3", |h| (h.version_min, h.version_max) = (2.into(), 3.into())),
        edited!("feature", "features 0x20", |h| h.required = 32.into()),
        edited!("kind HELLO", "another kind", |h| h.kind = kind::HELLO.into()),
        edited!("ring odd", "a ring of 33", |h| h.ring_len = 33.into()),
        edited!("region huge", "a region of 4294967295", |h| h.region_len = u32::MAX.into()),
        edited!("stream window", "a stream window of 3", |h| h.stream_window = 3.into()),
        edited!("no calls at once", "0 calls at once", |h| h.stream_count = 0.into()),
    ];
    type Act = fn(Door);
    let others: [(&str, &str, Act); 7] = [
        ("refusal at first sight", "come back later", |door| {
            let mut refusal = Hello::new(kind::REFUSAL);
            refusal.reason = reason::BUSY.into();
            refusal.set_text("come back later");
            // Before the client's message was read, as a server does that sees a user it does not like.
            let _ = door.send(refusal.as_bytes(), &[]);
        }),
        ("HTTP/2", "HTTP/2", |mut door| drop(door.write(b"PRI * HTTP/2.0\r\n"))),
        ("gone", "hung up", |door| drop(door.recv_hello())),
        ("silence", "within 300ms", |door| drop(door.wait_for_hang_up())),
        ("half an answer", "within 300ms", |door| {
            let _ = door.send(&Hello::new(kind::WELCOME).as_bytes()[..100], &[]);
            let _ = door.wait_for_hang_up();
        }),
        ("no fd", "without the descriptor", |door| {
            let _ = door.send(Door::hello(kind::WELCOME, RING_LEN).as_bytes(), &[]);
            let _ = door.wait_for_hang_up();
        }),
        ("hollow", "only 0 of its 36864 bytes", |door| {
            let region = hollow(&[], RING_LEN + 4096);
            let _ = door.send(Door::hello(kind::WELCOME, RING_LEN).as_bytes(), &[region.as_fd()]);
            let _ = door.wait_for_hang_up();
        }),
    ];
    all.extend(others.map(|(name, words, act)| Welcome { name, words, act }));
    all
}
