//! Peers that break the protocol after the handshake: each ends its own session with a reason, and only that.

use std::fs::File;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tollfree_driver_tokio::*;
use tollfree_layout::control::Waiting;
use tollfree_layout::frame::{control, events, flags};
use tollfree_layout::limits;
use tollfree_testkit::{Census, Chance, Frame, HostilePeer, opening_of};

use crate::echo::{Echo, alone_for, call, check_calls, soon};

const PATH: &str = "/test.Echo/Call";

/// Lets a hostile client act on a server that serves an honest one too; gives the reason latched, as the server sees it.
async fn ended_by(server: &Echo, honest: &Attachment, act: impl FnOnce(&mut HostilePeer)) -> Closed {
    let path = server.path();
    let count = server.sessions.lock().unwrap().len();
    let mut peer = tokio::task::block_in_place(|| HostilePeer::client(&path)).unwrap();
    let began = Instant::now();
    let session = loop {
        if let Some((_, session)) = server.sessions.lock().unwrap().get(count) {
            break session.upgrade().unwrap();
        }
        assert!(began.elapsed() < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    tokio::task::block_in_place(|| act(&mut peer));
    let closed = server.next_end().await;
    assert_eq!(session.closed().as_ref(), Some(&closed), "the reason is latched");
    check_calls(honest, 3).await;
    closed
}

fn open(peer: &mut HostilePeer, stream: u64) {
    peer.send(&opening_of(stream, stream as u16 - 1, &format!("{PATH}{stream}"), b"hi")).unwrap();
}

#[test]
fn every_forgery_in_ring_or_frame_is_latched_with_its_reason() {
    alone_for(100, async {
        let server = Echo::start(Config::default());
        let honest = server.connect().await;
        check_calls(&honest, 10).await;
        let before = Census::take();
        type Act = fn(&mut HostilePeer);
        let cases: Vec<(&str, Act, &str)> = vec![
            ("sequence", |peer| peer.forge_head(0x1234_5678_9abc_def0), "wrong sequence"),
            ("sequence of an earlier lap", |peer| peer.forge_head(peer.next_head(24) ^ 1), "wrong sequence"),
            ("all ones", |peer| peer.forge_head(u64::MAX), "wrong sequence"),
            ("length 0", |peer| peer.forge_head(peer.next_head(0)), "frame of 0 bytes"),
            ("length too long", |peer| peer.forge_head(peer.next_head(16313)), "impossible length"),
            ("length huge", |peer| peer.forge_head(peer.next_head(u32::MAX)), "impossible length"),
            (
                "cursor ahead",
                |peer| {
                    peer.forge_cursor(1 << 40);
                    answers(peer, 1..100, false);
                },
                "cursor out of range",
            ),
            (
                "cursor back",
                |peer| {
                    // The server has to look at the cursor, and to see it further on, before it can go back.
                    answers(peer, 1..100, true);
                    peer.forge_cursor(1);
                    answers(peer, 100..200, false);
                },
                "cursor out of range",
            ),
            ("no event", |peer| peer.send(&Frame::new(0, 0, 1)).unwrap(), "events 0x00"),
            ("all events", |peer| peer.send(&Frame::new(0xff, 0, 1)).unwrap(), "events 0xff"),
            ("all flags", |peer| peer.send(&Frame::new(events::HEADERS, 0xff, 1)).unwrap(), "flags 0xff"),
            ("stream 0", |peer| peer.send(&opening_of(0, 0, PATH, b"")).unwrap(), "stream 0"),
            ("stream 2 first", |peer| peer.send(&opening_of(2, 0, PATH, b"")).unwrap(), "stream 2"),
            (
                "stream 2^64-1",
                |peer| peer.send(&opening_of(u64::MAX, 0, PATH, b"")).unwrap(),
                "stream 18446744073709551615",
            ),
            ("stream twice", |peer| (0..2).for_each(|_| open(peer, 1)), "stream 1"),
            (
                "method never named",
                |peer| peer.send(&Frame::new(events::HEADERS, 0, 1).code(7)).unwrap(),
                "method index 7",
            ),
            ("method out of turn", |peer| peer.send(&opening_of(1, 5, PATH, b"")).unwrap(), "method index 5"),
            (
                "path longer than its block",
                |peer| {
                    let frame = Frame::new(events::HEADERS, flags::NAMES_METHOD, 1).headers(&[9, 0, b'/']);
                    peer.send(&frame).unwrap();
                },
                "method path of 9",
            ),
            (
                "frame shorter than it says",
                |peer| peer.send(&opening_of(1, 0, PATH, b"hi").chunk_len(3)).unwrap(),
                "announces",
            ),
            (
                "frame longer than it says",
                |peer| peer.send(&opening_of(1, 0, PATH, b"hi").bytes(b"!")).unwrap(),
                "announces",
            ),
            (
                "chunk longer than its message",
                |peer| peer.send(&opening_of(1, 0, PATH, b"hi").message_len(1)).unwrap(),
                "does not fit",
            ),
            (
                "metadata cut",
                |peer| peer.send(&opening_of(1, 0, PATH, b"").headers(&[1])).unwrap(),
                "metadata",
            ),
            (
                "metadata over the limit",
                |peer| {
                    peer.send(&opening_of(1, 0, PATH, b"").headers(&vec![1; limits::METADATA_LEN_MAX + 1]))
                        .unwrap()
                },
                "were allowed",
            ),
            (
                "control unknown",
                |peer| peer.send(&Frame::new(events::CONTROL, 0, 0).code(99)).unwrap(),
                "control code 99",
            ),
            (
                "area accepted unasked",
                |peer| peer.send(&Frame::new(events::CONTROL, 0, 0).code(control::AREA_ACCEPT)).unwrap(),
                "control code 2",
            ),
            (
                "area dropped unasked",
                |peer| peer.send(&Frame::new(events::CONTROL, 0, 0).code(control::AREA_DROP)).unwrap(),
                "control code 4",
            ),
            ("area without its fd", |peer| offer(peer, limits::AREA_LEN_MIN as u32), "did not come"),
            (
                "area of a length that is not its fd's",
                |peer| {
                    let fd = peer.region_fd().try_clone_to_owned().unwrap();
                    peer.send_fds(&[fd.as_fd()]).unwrap();
                    offer(peer, limits::AREA_LEN_MIN as u32);
                },
                "not what was announced",
            ),
            (
                "area that is a device",
                |peer| {
                    peer.send_fds(&[File::open("/dev/zero").unwrap().as_fd()]).unwrap();
                    offer(peer, limits::AREA_LEN_MIN as u32);
                },
                "not what was announced",
            ),
            ("area of no length", |peer| offer(peer, 0), "control code 1"),
            ("area of 4 GiB", |peer| offer(peer, u32::MAX), "control code 1"),
            (
                "chunk in an area that is not",
                |peer| {
                    let whole = flags::FIRST | flags::LAST | flags::IN_AREA | flags::NAMES_METHOD;
                    let path_len = (PATH.len() as u16).to_le_bytes();
                    let frame = Frame::new(events::HEADERS | events::MESSAGE, whole, 1)
                        .headers(&path_len)
                        .headers(PATH.as_bytes());
                    peer.send(&frame.chunk_len(10_000).message_len(10_000).bytes(&[0; 16])).unwrap();
                },
                "outside the payload area",
            ),
            ("stray fds", |peer| stray_fds(peer, 1, 20), "socket: more"),
            ("hundreds of fds at once", |peer| stray_fds(peer, 250, 1), "socket: more"),
            ("noise on the socket", |peer| drop(peer.door().write(&vec![7; 100_000])), "socket: more"),
            ("hang-up", |peer| peer.shutdown(Shutdown::Both), "hung up"),
            ("half a hang-up", |peer| peer.shutdown(Shutdown::Write), "hung up"),
        ];
        for (what, act, words) in cases {
            let closed = soon(what, ended_by(&server, &honest, act)).await;
            assert!(closed.to_string().contains(words), "{what}: \"{closed}\" lacks \"{words}\"");
        }
        before.assert_back();
    });
}

/// Asks for more than the server's ring holds, so that it looks at the cursor; reads the answers or does not.
fn answers(peer: &mut HostilePeer, streams: std::ops::Range<u64>, read: bool) {
    for stream in streams {
        let events = events::HEADERS | events::MESSAGE | events::HALF_CLOSE;
        let named = if stream == 1 { flags::NAMES_METHOD } else { 0 };
        let mut frame = Frame::new(events, flags::FIRST | flags::LAST | named, stream);
        if stream == 1 {
            frame = frame.headers(&(PATH.len() as u16).to_le_bytes()).headers(PATH.as_bytes());
        }
        let _ = peer.send(&frame.message_len(2000).chunk(&[1; 2000]));
        if read {
            let _ = peer.read();
        }
        if peer.door().is_closed() {
            return;
        }
    }
}

fn offer(peer: &mut HostilePeer, len: u32) {
    peer.send(&Frame::new(events::CONTROL, 0, 0).code(control::AREA_OFFER).chunk_len(len)).unwrap();
}

fn stray_fds(peer: &mut HostilePeer, at_once: usize, times: usize) {
    let file = File::open("/dev/null").unwrap();
    for _ in 0..times {
        let _ = peer.send_fds(&vec![file.as_fd(); at_once]);
    }
}

#[test]
fn bytes_rewritten_while_they_are_read_are_violations_at_worst() {
    alone_for(100, async {
        let server = Echo::start(Config::default());
        let honest = server.connect().await;
        check_calls(&honest, 10).await;
        let before = Census::take();
        let (mut rewritten, mut violations) = (0, 0);
        let mut seed = 0;
        // A word put back in time goes unnoticed; a busy machine needs more tries.
        while seed < 40 || (violations < 5 && seed < 400) {
            seed += 1;
            let path = server.path();
            tokio::task::block_in_place(|| {
                let mut peer = HostilePeer::client(&path).unwrap();
                let flipper = peer.flip(seed);
                let began = Instant::now();
                for stream in 1..2000u64 {
                    let frame = opening_of(
                        stream,
                        stream as u16 - 1,
                        &format!("{PATH}{stream}"),
                        &vec![5; stream as usize % 900],
                    );
                    let left = Duration::from_millis(100).saturating_sub(began.elapsed());
                    if left.is_zero() || peer.send_within(&frame, left).is_err() {
                        break;
                    }
                    while peer.try_read().is_some() {}
                }
                rewritten += flipper.stop();
            });
            let closed = server.next_end().await;
            violations += usize::from(matches!(closed, Closed::Violation(_)));
            check_calls(&honest, 2).await;
        }
        println!("{rewritten} words rewritten, {violations} violations in {seed} sessions");
        assert!(
            violations >= 5,
            "{violations} violations in {seed} sessions: the test misses what it is about"
        );
        before.assert_back();
    });
}

#[test]
fn random_frames_never_panic_nor_leak() {
    alone_for(100, async {
        let server = Echo::start(Config::default());
        let honest = server.connect().await;
        check_calls(&honest, 3).await;
        let before = Census::take();
        let seed = 0x0007_0113;
        println!("seed {seed:#x}");
        let mut chance = Chance::new(seed);
        let (mut frame_count, mut session_count, mut violations) = (0, 0, 0);
        while frame_count < 10_000 {
            session_count += 1;
            let path = server.path();
            tokio::task::block_in_place(|| {
                let mut peer = HostilePeer::client(&path).unwrap();
                let mut stream = 0;
                for _ in 0..200 {
                    frame_count += 1;
                    let record = random_frame(&mut chance, &mut stream);
                    if peer.publish(&record).is_err() {
                        break;
                    }
                    if frame_count % 8 == 0 {
                        // The server keeps up, so that what comes after a violation is not counted.
                        std::thread::sleep(Duration::from_micros(100));
                    }
                    if peer.door().is_closed() {
                        break;
                    }
                    if chance.below(4) == 0 {
                        while peer.try_read().is_some() {}
                    }
                }
            });
            violations += usize::from(matches!(server.next_end().await, Closed::Violation(_)));
        }
        println!("{violations} violations, {frame_count} frames in {session_count} sessions");
        check_calls(&honest, 3).await;
        before.assert_back();
    });
}

/// Mostly what a client may say, with something wrong in one of many.
fn random_frame(chance: &mut Chance, stream: &mut u64) -> Vec<u8> {
    let mut frame = match chance.below(8) {
        0..=2 => {
            *stream += 1;
            let named = format!("{PATH}{stream}");
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

#[test]
fn a_flood_costs_others_no_more_than_their_turn() {
    alone_for(100, async {
        // Both sessions of the server live in one backend connection: what one poll takes too long for, the other waits for.
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.spawn(async { Echo::start(Config::default()) }).await.unwrap();
        let honest = server.connect().await;
        check_calls(&honest, 10).await;
        type Flood = fn(&mut HostilePeer, u64) -> bool;
        let floods: [(&str, Flood); 4] = [
            ("credit", |peer, _| peer.send(&Frame::new(events::CREDIT, 0, 0).chunk_len(1)).is_ok()),
            ("opens and cancels", |peer, idx| {
                let stream = idx + 1;
                let named = if stream == 1 { flags::NAMES_METHOD } else { 0 };
                let mut opening = Frame::new(events::HEADERS, named, stream);
                if stream == 1 {
                    opening = opening.headers(&(PATH.len() as u16).to_le_bytes()).headers(PATH.as_bytes());
                }
                while peer.try_read().is_some() {}
                peer.send(&opening).is_ok()
                    && peer.send(&Frame::new(events::CANCEL, 0, stream).code(1)).is_ok()
            }),
            ("empty messages", |peer, idx| {
                if idx == 0 {
                    let opening = Frame::new(events::HEADERS, flags::NAMES_METHOD, 1);
                    let path_len = (PATH.len() as u16).to_le_bytes();
                    return peer.send(&opening.headers(&path_len).headers(PATH.as_bytes())).is_ok();
                }
                // Within the credit that the server gives, it goes on without end.
                let mut granted = 0;
                while let Some(record) = peer.try_read() {
                    if record.first() == Some(&events::CREDIT) && record[8] == 1 {
                        granted += u64::from(u32::from_le_bytes(record[16..20].try_into().unwrap()));
                    }
                }
                let count = if idx == 1 { 900 } else { granted / 64 };
                (0..count)
                    .all(|_| peer.send(&Frame::new(events::MESSAGE, flags::FIRST | flags::LAST, 1)).is_ok())
            }),
            ("doorbells", |peer, _| {
                peer.ring();
                true
            }),
        ];
        for (what, flood) in floods {
            let path = server.path();
            let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            let seen = stop.clone();
            let flooding = std::thread::spawn(move || {
                let mut peer = HostilePeer::client(&path).unwrap();
                let mut count = 0u64;
                while !seen.load(std::sync::atomic::Ordering::Relaxed) && flood(&mut peer, count) {
                    count += 1;
                }
                count
            });
            let began = Instant::now();
            let mut took = Vec::new();
            while began.elapsed() < Duration::from_millis(400) {
                let at = Instant::now();
                assert!(soon(what, call(&honest, Bytes::from_static(b"x"))).await.is_some(), "{what}");
                took.push(at.elapsed());
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            let count = flooding.join().unwrap();
            took.sort();
            let (usual, worst) = (took[took.len() / 2], took[took.len() - 1]);
            println!("{what}: {count} rounds, honest calls {usual:?} in the median, {worst:?} at worst");
            assert!(count > 20, "{what}: no flood ({count})");
            // The median: a single call may have to wait for a processor that is busy with something else.
            assert!(usual < Duration::from_millis(100), "{what}: honest calls take {usual:?}");
            server.next_end().await;
        }
        drop((server, honest));
        runtime.shutdown_background();
    });
}

#[test]
fn opens_beyond_the_limit_end_the_session() {
    alone_for(60, async {
        let limits = Limits { stream_count: 4, ..Limits::default() };
        let server = Echo::start(Config { limits, ..Config::default() });
        let honest = server.connect().await;
        check_calls(&honest, 3).await;
        let closed = ended_by(&server, &honest, |peer| {
            for stream in 1..=5u64 {
                let path = format!("{PATH}{stream}");
                let opening =
                    Frame::new(events::HEADERS, flags::NAMES_METHOD, stream).code(stream as u16 - 1);
                let path_len = (path.len() as u16).to_le_bytes();
                peer.send(&opening.headers(&path_len).headers(path.as_bytes())).unwrap();
            }
        })
        .await;
        assert!(closed.to_string().contains("more than the 4 concurrent calls"), "{closed}");
    });
}

#[test]
fn more_than_the_credit_ends_the_session() {
    alone_for(60, async {
        let limits = Limits { stream_window: 8192, ..Limits::default() };
        let server = Echo::start(Config { limits, ..Config::default() });
        let honest = server.connect().await;
        check_calls(&honest, 3).await;
        let closed = ended_by(&server, &honest, |peer| {
            peer.send(&opening_of(1, 0, PATH, &[1; 8192])).unwrap();
        })
        .await;
        assert!(closed.to_string().contains("stream 1 sent more than its credit"), "{closed}");
    });
}

#[test]
fn a_forged_waiting_word_or_stray_doorbell_harms_nobody() {
    alone_for(60, async {
        let server = Echo::start(Config::default());
        let path = server.path();
        tokio::task::block_in_place(|| {
            let mut peer = HostilePeer::client(&path).unwrap();
            let mut word = Waiting::default();
            for stream in 1..500u64 {
                word = if stream % 3 == 0 { Waiting(u32::MAX) } else { word.park(stream % 2 == 0) };
                peer.say_waiting(word);
                peer.ring();
                open(&mut peer, stream);
                let answer = peer.read().unwrap();
                assert!(!answer.is_empty());
            }
        });
        let closed = server.next_end().await;
        assert_eq!(closed, Closed::HungUp);
    });
}
