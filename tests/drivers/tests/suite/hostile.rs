//! Peers that break the protocol: each ends its own session with a reason, and only that.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use tollfree_layout::errors;
use tollfree_layout::frame::{events, flags};
use tollfree_testkit::{Chance, Frame, HostilePeer, opening_of};

use crate::driver::{PATIENCE, Place, Served, Settings, Start};
use crate::service::{ECHO, SILENT};

/// Opens a call that is not answered: what follows it finds it open, however late that comes.
fn opened(peer: &mut HostilePeer) {
    peer.send(&opening_of(1, 0, SILENT, b"hi")).unwrap();
}

type Act = fn(&mut HostilePeer);

const FORGERIES: [(&str, Act, u16); 10] = [
    ("sequence", |peer| peer.forge_head(0x1234_5678_9abc_def0), errors::VIOLATION_RING),
    ("length", |peer| peer.forge_head(peer.next_head(u32::MAX)), errors::VIOLATION_RING),
    ("no events", |peer| peer.send(&Frame::new(0, 0, 1)).unwrap(), errors::VIOLATION_FRAME_KIND),
    (
        "a server's event",
        |peer| peer.send(&Frame::new(events::TRAILERS, 0, 1)).unwrap(),
        errors::VIOLATION_FRAME_KIND,
    ),
    (
        "a stream that was never opened",
        |peer| peer.send(&Frame::new(events::HALF_CLOSE, 0, 7)).unwrap(),
        errors::VIOLATION_STREAM_ID,
    ),
    (
        "streams out of turn",
        |peer| peer.send(&opening_of(3, 0, ECHO, b"hi")).unwrap(),
        errors::VIOLATION_STREAM_ID,
    ),
    (
        "half-close twice",
        |peer| {
            opened(peer);
            peer.send(&Frame::new(events::HEADERS, 0, 2)).unwrap();
            peer.send(&Frame::new(events::HALF_CLOSE, 0, 2)).unwrap();
            peer.send(&Frame::new(events::HALF_CLOSE, 0, 2)).unwrap();
        },
        errors::VIOLATION_ORDER,
    ),
    (
        "a method that was never named",
        |peer| peer.send(&Frame::new(events::HEADERS, 0, 1).code(9)).unwrap(),
        errors::VIOLATION_METHOD_INDEX,
    ),
    (
        "a chunk outside of all areas",
        |peer| {
            opened(peer);
            let range = [0_u8; 16];
            let flags = flags::FIRST | flags::LAST | flags::IN_AREA;
            let chunk = Frame::new(events::HEADERS | events::MESSAGE, flags, 2);
            peer.send(&chunk.message_len(9_000).chunk_len(9_000).bytes(&range)).unwrap();
        },
        errors::VIOLATION_AREA_RANGE,
    ),
    (
        "credit of nothing",
        |peer| {
            opened(peer);
            peer.send(&Frame::new(events::CREDIT, 0, 1).chunk_len(0)).unwrap();
        },
        errors::VIOLATION_FRAME_KIND,
    ),
];

/// How the session of a server ends that ends as the `nth`.
fn end(server: &Served, nth: usize) -> u16 {
    let began = Instant::now();
    loop {
        if let Some(number) = server.log.ends().get(nth) {
            return *number;
        }
        assert!(began.elapsed() < PATIENCE, "session {nth} does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn forgeries_end_their_session_alone(place: &Place) {
    let (server, mut honest) = place.both(&Settings::default());
    for (nth, (name, act, number)) in FORGERIES.into_iter().enumerate() {
        let mut peer = HostilePeer::client(&place.path()).unwrap();
        act(&mut peer);
        peer.ring();
        assert_eq!(end(&server, nth), number, "{name}");
        assert_eq!(honest.call(Start::unary(ECHO, "goes on")).code, 0, "{name}");
    }
    assert_eq!(server.log.ends().len(), FORGERIES.len());
}

/// Records and head words by chance: whatever they are, they end a session or are passed over.
pub(crate) fn random_bytes_end_their_session_alone(place: &Place) {
    let (server, mut honest) = place.both(&Settings::default());
    for seed in 0..60 {
        let mut chance = Chance::new(seed);
        let mut peer = HostilePeer::client(&place.path()).unwrap();
        for _ in 0..1 + chance.below(6) {
            let written = match chance.below(4) {
                0 => {
                    peer.forge_head(chance.word());
                    Ok(())
                }
                1 => peer.send(&Frame::new(chance.word() as u8, chance.word() as u8, chance.below(4))),
                _ => {
                    let len = chance.below(200) as usize;
                    let record = chance.bytes(len);
                    peer.publish(&record)
                }
            };
            // The other end has hung up by now.
            if written.is_err() {
                break;
            }
            peer.ring();
        }
        drop(peer);
        let number = end(&server, seed as usize);
        assert!(
            number == errors::SESSION_HUNG_UP || number == errors::SESSION_CLOSED_BY_PEER || number >= 311,
            "{number}"
        );
        if seed % 10 == 0 {
            assert_eq!(honest.call(Start::unary(ECHO, "goes on")).code, 0, "seed {seed}");
        }
    }
    assert_eq!(honest.call(Start::unary(ECHO, "goes on")).code, 0);
}

pub(crate) fn a_peer_that_says_nothing_holds_nobody_up(place: &Place) {
    let server = place.serve(&Settings::default());
    let silent: Vec<UnixStream> = (0..10).map(|_| UnixStream::connect(place.path()).unwrap()).collect();
    // A session in which nothing is ever said, and one whose doorbell rings for nothing.
    let idle = HostilePeer::client(&place.path()).unwrap();
    let mut ringing = HostilePeer::client(&place.path()).unwrap();
    let mut honest = place.connect(&Settings::default());
    for _ in 0..20 {
        ringing.ring();
        assert_eq!(honest.call(Start::unary(ECHO, "is answered")).code, 0);
    }
    assert_eq!(server.log.ends(), Vec::<u16>::new());
    drop((silent, idle, ringing));
    for nth in 0..2 {
        assert_eq!(end(&server, nth), errors::SESSION_HUNG_UP);
    }
}

pub(crate) fn handshakes_of_nonsense_are_refused(place: &Place) {
    let (server, mut honest) = place.both(&Settings::default());
    let greetings: [&[u8]; 3] = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[0; 4096], &[0xff; 64]];
    for greeting in greetings {
        let mut socket = UnixStream::connect(place.path()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        // It may hang up before it has read everything.
        let _ = socket.write_all(greeting);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        let _ = socket.take(1 << 20).read_to_end(&mut said);
        assert!(said.len() < 4096, "{} bytes are an answer to nonsense", said.len());
        assert_eq!(honest.call(Start::unary(ECHO, "goes on")).code, 0);
    }
    assert_eq!(server.log.ends(), Vec::<u16>::new(), "none of them became a session");
}
