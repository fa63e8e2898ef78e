//! Many clients, payload areas that come and go: everybody is served and nothing stays behind.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tollfree_driver_tokio::*;
use tollfree_layout::frame::{control, events};
use tollfree_layout::handshake::{Hello, reason};
use tollfree_layout::limits;
use tollfree_region::Region;
use tollfree_testkit::{Census, Door, Frame, HostilePeer, hollow};

use crate::echo::{Echo, alone_for, call, check_calls, soon};

#[test]
fn an_unused_payload_area_goes_and_comes_back() {
    alone_for(60, async {
        let idle = Config { area_idle: Duration::from_millis(50), ..Config::default() };
        let server = Echo::start(idle.clone());
        let client = Attachment::connect(&server.address, &idle).await.unwrap();
        check_calls(&client, 3).await;
        let small = Census::take();
        let large = Bytes::from(vec![3; 1 << 20]);
        for _ in 0..3 {
            assert_eq!(soon("a large call", call(&client, large.clone())).await, Some(large.clone()));
            assert!(Census::take().map_count > small.map_count, "no payload area was used");
            let began = Instant::now();
            while Census::take() != small {
                // Small calls go on meanwhile: they are no reason to keep the area.
                check_calls(&client, 1).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
                assert!(
                    began.elapsed() < Duration::from_secs(5),
                    "{small:?} before, {:?} now",
                    Census::take()
                );
            }
        }
    });
}

#[test]
fn a_peer_that_takes_no_area_or_never_answers_gets_its_messages_all_the_same() {
    alone_for(60, async {
        let server = Echo::start(Config::default());
        for area_len_max in [0u32, 1, 4096, 100_000] {
            let path = server.path();
            let mut peer = tokio::task::block_in_place(|| {
                Door::knock(&path)?.enter(|hello: &mut Hello| hello.area_len_max = area_len_max.into())
            })
            .unwrap();
            let got = tokio::task::block_in_place(|| echo_by_hand(&mut peer, 60_000)).unwrap();
            assert_eq!(got, 60_000, "area of at most {area_len_max}");
            drop(peer);
            assert_eq!(server.next_end().await, Closed::HungUp);
        }
    });
}

/// Sends a message in chunks, and counts the bytes of the answer; never answers an offer.
fn echo_by_hand(peer: &mut HostilePeer, len: usize) -> io::Result<usize> {
    use tollfree_layout::frame::flags;
    let path = "/test.Echo/Call";
    let opening = Frame::new(events::HEADERS, flags::NAMES_METHOD, 1);
    peer.send(&opening.headers(&(path.len() as u16).to_le_bytes()).headers(path.as_bytes()))?;
    let mut sent = 0;
    while sent < len {
        let chunk = 10_000.min(len - sent);
        let mut flag = 0;
        let mut frame = Frame::new(events::MESSAGE, 0, 1);
        if sent == 0 {
            flag |= flags::FIRST;
            frame = frame.message_len(len as u32);
        }
        sent += chunk;
        if sent == len {
            flag |= flags::LAST;
        }
        frame.head.flags = flag;
        peer.send(&frame.chunk(&vec![1; chunk]))?;
    }
    peer.send(&Frame::new(events::HALF_CLOSE, 0, 1))?;
    let mut got = 0;
    loop {
        let record = peer.read()?;
        let (event, flag) = (record[0], record[1]);
        if event & events::MESSAGE != 0 {
            assert_eq!(flag & flags::IN_AREA, 0, "no area was accepted");
            got += u32::from_le_bytes(record[16..20].try_into().unwrap()) as usize;
        }
        if event & events::CONTROL != 0 {
            assert_eq!(u16::from_le_bytes([record[2], record[3]]), control::AREA_OFFER);
        }
        if event & events::TRAILERS != 0 {
            return Ok(got);
        }
        if got > 0 && got < len {
            peer.send(&Frame::new(events::CREDIT, 0, 1).chunk_len(20_000))?;
        }
    }
}

#[test]
fn areas_that_a_peer_offers_are_bounded() {
    alone_for(60, async {
        let server = Echo::start(Config::default());
        let honest = server.connect().await;
        check_calls(&honest, 3).await;
        let before = Census::take();
        let path = server.path();
        tokio::task::block_in_place(|| {
            let mut peer = HostilePeer::client(&path).unwrap();
            for area in 0..5u64 {
                let region = Region::create("tollfree-hostile-area", limits::AREA_LEN_MIN).unwrap();
                let _ = peer.send_fds(&[region.fd().as_fd()]);
                let offer = Frame::new(events::CONTROL, 0, area).code(control::AREA_OFFER);
                let _ = peer.send(&offer.chunk_len(limits::AREA_LEN_MIN as u32));
            }
            let _ = peer.door().wait_for_hang_up();
        });
        let closed = server.next_end().await;
        assert!(matches!(closed, Closed::Violation(_)), "{closed}");
        check_calls(&honest, 3).await;
        before.assert_back();
    });
}

#[test]
fn an_area_whose_reader_would_pay_for_its_pages_ends_the_session() {
    alone_for(60, async {
        let server = Echo::start(Config::default());
        let honest = server.connect().await;
        check_calls(&honest, 3).await;
        let before = Census::take();
        let path = server.path();
        tokio::task::block_in_place(|| {
            let mut peer = HostilePeer::client(&path).unwrap();
            let area = hollow(&[], limits::AREA_LEN_MIN);
            peer.send_fds(&[area.as_fd()]).unwrap();
            let offer = Frame::new(events::CONTROL, 0, 0).code(control::AREA_OFFER);
            peer.send(&offer.chunk_len(limits::AREA_LEN_MIN as u32)).unwrap();
            peer.door().wait_for_hang_up().unwrap();
        });
        let closed = server.next_end().await;
        assert!(
            matches!(closed, Closed::Violation(_)) && closed.to_string().contains("payload area"),
            "{closed}"
        );
        check_calls(&honest, 3).await;
        before.assert_back();
    });
}

#[test]
fn five_hundred_clients_at_once_are_all_served() {
    alone_for(100, async {
        let server = Echo::start(Config::default());
        let clients: Vec<_> = (0..500)
            .map(|_| {
                let address = server.address.clone();
                tokio::spawn(async move {
                    // A full backlog is a matter of waiting.
                    let began = Instant::now();
                    loop {
                        match Attachment::connect(&address, &Config::default()).await {
                            Ok(client) => {
                                check_calls(&client, 2).await;
                                return;
                            }
                            Err(error) => {
                                assert!(error.kind.is_transient(), "{error}");
                                assert!(began.elapsed() < Duration::from_secs(30), "{error}");
                                tokio::time::sleep(Duration::from_millis(20)).await;
                            }
                        }
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
    });
}

#[test]
fn silent_clients_keep_nobody_out() {
    alone_for(60, async {
        let server = Echo::start(Config { handshake_timeout: Duration::from_secs(300), ..Config::default() });
        let path = server.path();
        let region = Door::region(limits::RING_LEN_DEFAULT);
        // Three times as many as there are places; some have begun to speak.
        let silent: Vec<Door> = (0..200).map(|_| Door::knock(&path).unwrap()).collect();
        for door in silent.iter().step_by(2) {
            // One that has been hung up on meanwhile has made place already.
            drop(door.send(b"TOLLFREE", &[region.fd()]));
        }
        let began = Instant::now();
        let client = server.connect().await;
        check_calls(&client, 3).await;
        println!("served after {:?}", began.elapsed());
        assert!(began.elapsed() < Duration::from_secs(10));
        // The oldest was told why, and that it may come back.
        let (refusal, _) = tokio::task::block_in_place(|| silent[0].recv_hello()).unwrap().expect("told");
        assert_eq!(refusal.reason.get(), reason::BUSY);
        assert!(refusal.text().contains("try again"), "{}", refusal.text());
        // Where there is place, nobody is hurried.
        drop(silent);
        let patient = Door::knock(&path).unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!patient.is_closed());
        tokio::task::block_in_place(|| patient.enter(|_| {})).expect("late and welcome");
    });
}

#[test]
fn who_may_not_come_is_told_so_on_either_side() {
    alone_for(60, async {
        let strict = Config { peers: PeerPolicy::Users(vec![u32::MAX - 7]), ..Config::default() };
        let server = Echo::start(strict.clone());
        // The refusal is written before the client has said anything: it must get through, no matter which side is quicker.
        for _ in 0..50 {
            let error =
                Attachment::connect(&server.address, &Config::default()).await.unwrap_err().to_string();
            let refused = "the server refused: the client runs as user ";
            assert!(error.contains(refused) && error.contains("Server::peers"), "{error}");
            assert!(error.contains("echo.sock"), "{error}");
        }
        let open = Echo::start(Config::default());
        let error = Attachment::connect(&open.address, &strict).await.unwrap_err().to_string();
        assert!(
            error.contains("the server runs as user ") && error.contains("ChannelBuilder::peers"),
            "{error}"
        );
        open.connect().await;
    });
}

#[test]
fn a_listener_that_goes_leaves_its_address_at_once() {
    alone_for(60, async {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("s.sock"));
        for _ in 0..20 {
            let listener = Listener::bind(&address, Config::default()).unwrap();
            let door = Door::knock(&directory.path().join("s.sock")).unwrap();
            // In the middle of a handshake.
            drop(listener);
            assert!(!directory.path().join("s.sock").exists());
            drop(door);
        }
        let error = Attachment::connect(&address, &Config::default()).await.unwrap_err().to_string();
        assert!(error.contains("does not exist"), "{error}");
    });
}

/// A client that was let in may have made calls already: it gets a session that can tell it so.
#[test]
fn a_listener_that_closes_gives_those_who_were_let_in_and_nobody_else() {
    alone_for(60, async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let address = Address::Path(path.clone());
        let config = Config { handshake_timeout: Duration::from_secs(600), ..Config::default() };
        let mut listener = Listener::bind(&address, config.clone()).unwrap();
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(soon("a session", Attachment::connect(&address, &config)).await.unwrap());
        }
        let mut silent = std::os::unix::net::UnixStream::connect(&path).unwrap();
        // A client that comes after it is let in after it.
        clients.push(soon("a session", Attachment::connect(&address, &config)).await.unwrap());
        listener.close();
        assert!(!path.exists());
        for _ in &clients {
            soon("who was let in", listener.accept()).await.expect("one session for each client").drain();
        }
        assert!(soon("the end", listener.accept()).await.is_none());
        let mut words = vec![0; limits::HELLO_LEN];
        std::io::Read::read_exact(&mut silent, &mut words).unwrap();
        let refusal: Hello = zerocopy::FromBytes::read_from_bytes(&words).unwrap();
        assert_eq!(
            (refusal.reason.get(), refusal.text()),
            (reason::BUSY, "the server is shutting down".into())
        );
    });
}

#[test]
fn a_start_waits_for_no_lock_and_no_backlog_for_ever() {
    alone_for(60, async {
        use rustix::fs::{FlockOperation, Mode, OFlags};
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("s.sock"));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let lock = directory.path().join(".s.sock.lock");
        let fd = rustix::fs::open(lock, flags, Mode::RUSR | Mode::WUSR).unwrap();
        rustix::fs::flock(&fd, FlockOperation::LockExclusive).unwrap();
        let error = Listener::bind(&address, Config::default()).unwrap_err().to_string();
        assert!(error.contains("holds the lock"), "{error}");
        drop(fd);
        // A server that does not accept, with as many in its backlog as the system allows.
        let stopped = std::os::unix::net::UnixListener::bind(directory.path().join("s.sock")).unwrap();
        rustix::net::listen(&stopped, 0).unwrap();
        let _first = std::os::unix::net::UnixStream::connect(directory.path().join("s.sock")).unwrap();
        let error = Listener::bind(&address, Config::default()).unwrap_err().to_string();
        assert!(error.contains("in use"), "{error}");
    });
}
