//! Peers that break the protocol after the handshake: each ends its own session with a reason, and only that.

use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tollfree_driver_tokio::*;
use tollfree_layout::frame::{events, flags};
use tollfree_testkit::{
    Census, Chance, Door, ECHO, FLOODS, Frame, HostilePeer, Lie, lies_of_clients, lies_of_servers,
    opening_of, random_record, restless, rewrite,
};

use crate::echo::{Echo, alone_for, begin, call, check_calls, quiet_call, soon};

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

#[test]
fn every_forgery_in_ring_or_frame_is_latched_with_its_reason() {
    alone_for(100, async {
        let server = Echo::start(Config::default());
        let honest = server.connect().await;
        check_calls(&honest, 10).await;
        let before = Census::take();
        for Lie { name, words, act, .. } in lies_of_clients() {
            let closed = soon(name, ended_by(&server, &honest, act)).await;
            assert!(closed.to_string().contains(words), "{name}: \"{closed}\" lacks \"{words}\"");
        }
        before.assert_back();
    });
}

#[test]
fn every_forgery_of_a_server_is_latched_with_its_reason() {
    alone_for(100, async {
        let before = Census::take();
        for Lie { name, words, act, .. } in lies_of_servers() {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("liar.sock");
            let listener = UnixListener::bind(&path).unwrap();
            let lying = std::thread::spawn(move || {
                let door = Door::over(listener.accept().unwrap().0).unwrap();
                let mut peer = door.welcome(|_| {}).unwrap();
                peer.read().unwrap();
                act(&mut peer);
                peer.ring();
                peer.door().wait_for_hang_up().unwrap();
            });
            let client = Attachment::connect(&Address::Path(path), &Config::default()).await.unwrap();
            let stream = quiet_call(&client).await;
            // A reader that takes nothing is what some of them need, and all of them end.
            let closed = soon(name, async {
                loop {
                    match client.closed() {
                        Some(closed) => return closed,
                        None => tokio::time::sleep(Duration::from_millis(1)).await,
                    }
                }
            })
            .await;
            assert!(closed.to_string().contains(words), "{name}: \"{closed}\" lacks \"{words}\"");
            assert!(begin(&client, Bytes::new()).await.is_err(), "{name}: no call afterwards");
            drop((stream, client));
            lying.join().unwrap();
        }
        before.assert_back();
    });
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
                rewritten += rewrite(&mut peer, seed);
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
                    let record = random_record(&mut chance, &mut stream);
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

#[test]
fn a_flood_costs_others_no_more_than_their_turn() {
    alone_for(100, async {
        // Both sessions of the server live in one backend connection: what one poll takes too long for, the other waits for.
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.spawn(async { Echo::start(Config::default()) }).await.unwrap();
        let honest = server.connect().await;
        check_calls(&honest, 10).await;
        for (what, flood) in FLOODS {
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
                let path = format!("{ECHO}{stream}");
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
            peer.send(&opening_of(1, 0, ECHO, &[1; 8192])).unwrap();
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
            restless(&mut peer).unwrap();
        });
        let closed = server.next_end().await;
        assert_eq!(closed, Closed::HungUp);
    });
}
