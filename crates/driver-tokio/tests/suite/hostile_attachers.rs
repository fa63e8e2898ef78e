//! Processes that attach to a gateway and break the rules: each is refused in words, costs nothing, and harms nobody else.

use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tollfree_driver_tokio::*;
use tollfree_layout::handshake::{AttachHead, Hello, PROCESS_ID_LEN, feature, kind, reason};
use tollfree_layout::limits;
use tollfree_testkit::{Census, Chance, Door};
use zerocopy::IntoBytes;

use crate::echo::{Echo, alone_for, check_calls, serve};

const RING_LEN: usize = limits::RING_LEN_DEFAULT;
/// Within this time what has to happen has happened, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// A gateway's socket, and what came in by it.
struct Gateway {
    address: Address,
    listener: Listener,
    directory: tempfile::TempDir,
}

impl Gateway {
    fn start(handshake_timeout: Duration) -> Gateway {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("gateway.sock"));
        let config =
            Config { accepts: Accepts::Backends, lending: true, handshake_timeout, ..Config::default() };
        let listener = Listener::bind(&address, config).unwrap();
        Gateway { address, listener, directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("gateway.sock")
    }

    async fn accept(&mut self) -> Attachment {
        let accepted = tokio::time::timeout(PATIENCE, self.listener.accept()).await;
        accepted.expect("somebody comes in time").expect("the listener listens")
    }

    /// An honest process, and the gateway's end of its session.
    async fn attach(&mut self) -> (tokio::task::JoinHandle<Closed>, Attachment) {
        let registration = Registration::new("honest", vec!["test.Echo".to_owned()]).unwrap();
        let began = Instant::now();
        let attached = loop {
            // On a busy machine even an honest process may be too slow for a gateway without patience.
            match Attachment::attach(&self.address, &Config::default(), registration.clone()).await {
                Ok(attached) => break attached,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
            }
        };
        (tokio::spawn(async move { serve(&attached).await }), self.accept().await)
    }
}

/// A first message with something behind it, as an honest process sends it.
fn request(of_kind: u32, body: &[u8]) -> Vec<u8> {
    let mut hello = Door::hello(of_kind, RING_LEN);
    hello.stream_count = if of_kind == kind::ATTACH { 64 } else { 0 }.into();
    hello.body_len = (body.len() as u32).into();
    [hello.as_bytes(), body].concat()
}

fn registration(group: &[u8], services: &[&[u8]]) -> Vec<u8> {
    let head = AttachHead {
        process: [5; PROCESS_ID_LEN],
        backend_connection: 0.into(),
        group_len: (group.len() as u16).into(),
        service_count: (services.len() as u16).into(),
    };
    let services = services.iter().flat_map(|name| [&[name.len() as u8], *name].concat());
    head.as_bytes().iter().copied().chain(group.iter().copied()).chain(services).collect()
}

fn refusal_to(path: &Path, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Hello {
    let door = Door::knock(path).unwrap();
    door.send(bytes, fds).unwrap();
    let (answer, fds) = door.recv_hello().unwrap().expect("every message gets an answer");
    assert!(fds.is_empty(), "a refusal carries no descriptor");
    door.wait_for_hang_up().unwrap();
    answer
}

#[test]
fn every_lie_of_an_attacher_is_refused_in_words() {
    alone_for(120, async {
        let mut gateway = Gateway::start(Duration::from_secs(60));
        let (_, honest) = gateway.attach().await;
        check_calls(&honest, 10).await;
        let region = Door::region(RING_LEN);
        let before = Census::take();
        let fd = region.fd();
        let attach = |body: &[u8]| request(kind::ATTACH, body);
        let with = |edit: fn(&mut Hello)| {
            let body = registration(b"g", &[]);
            let mut hello = Door::hello(kind::ATTACH, RING_LEN);
            (hello.stream_count, hello.body_len) = (64.into(), (body.len() as u32).into());
            edit(&mut hello);
            [hello.as_bytes(), &body].concat()
        };
        let whole = registration(b"g", &[b"shop.Orders"]);
        let endless = with(|hello| hello.body_len = u32::MAX.into());
        type Case<'a> = (&'a str, Vec<u8>, Vec<BorrowedFd<'a>>, u32, &'a str);
        let cases: Vec<Case<'_>> = vec![
            ("HELLO", request(kind::HELLO, b""), vec![fd], reason::MALFORMED, "a gateway listens"),
            ("kind 6", with(|h| h.kind = 6.into()), vec![fd], reason::MALFORMED, "another kind"),
            (
                "no end",
                endless[..limits::HELLO_LEN].to_vec(),
                vec![fd],
                reason::MALFORMED,
                "longer than 8 KiB",
            ),
            ("nothing", attach(b""), vec![fd], reason::MALFORMED, "middle of a name"),
            ("cut", attach(&whole[..whole.len() - 1]), vec![fd], reason::MALFORMED, "middle of a name"),
            ("more", attach(&[&whole[..], &whole].concat()), vec![fd], reason::MALFORMED, "goes on"),
            ("no group", attach(&registration(b"", &[])), vec![fd], reason::MALFORMED, "of a group"),
            ("long", attach(&registration(&[b'g'; 65], &[])), vec![fd], reason::MALFORMED, "of a group"),
            ("UTF-8", attach(&registration(b"g\xff", &[])), vec![fd], reason::MALFORMED, "of a group"),
            ("slash", attach(&registration(b"g", &[b"a/b"])), vec![fd], reason::MALFORMED, "of a service"),
            (
                "many",
                attach(&registration(b"g", &[&b"s"[..]; 257])),
                vec![fd],
                reason::MALFORMED,
                "256 services",
            ),
            ("target", request(kind::VIA, b"\x1b[31m"), vec![fd], reason::MALFORMED, "a target has"),
            ("no calls", with(|h| h.stream_count = 0.into()), vec![fd], reason::REGION, "0 calls"),
            ("no region", attach(&whole), vec![], reason::MALFORMED, "without the descriptor"),
            ("two regions", attach(&whole), vec![fd, fd], reason::MALFORMED, "more than one"),
            ("version", with(|h| h.version_min = 9.into()), vec![fd], reason::VERSION, "9 to 1"),
        ];
        for (what, bytes, fds, expected, words) in cases {
            let answer = tokio::task::block_in_place(|| refusal_to(&gateway.path(), &bytes, &fds));
            let text = answer.text();
            assert_eq!((answer.kind.get(), answer.reason.get()), (kind::REFUSAL, expected), "{what}: {text}");
            assert!(text.contains(words), "{what}: {text}");
        }
        check_calls(&honest, 10).await;
        before.assert_back();
    });
}

/// What a server answers to a peer that takes it for a gateway, and a gateway to a peer that takes it for a server.
#[test]
fn who_takes_one_for_the_other_is_told() {
    alone_for(120, async {
        let (server, gateway) = (Echo::start(Config::default()), Gateway::start(PATIENCE));
        let registration = Registration::new("g", Vec::new()).unwrap();
        let via = Config { via: Some("https://host:443".into()), ..Config::default() };
        let attached = Attachment::attach(&server.address, &Config::default(), registration).await;
        let called = Attachment::connect(&server.address, &via).await;
        for refused in [attached, called] {
            let error = refused.unwrap_err();
            assert!(!error.kind.is_transient(), "{error}");
            assert!(error.to_string().contains("no gateway listens at this socket"), "{error}");
        }
        let error = Attachment::connect(&gateway.address, &Config::default()).await.unwrap_err();
        assert!(!error.kind.is_transient(), "{error}");
        assert!(error.to_string().contains("reach it by Server::attach"), "{error}");
    });
}

/// LENDING counts for nothing from any other peer: no session but that of a process that attaches has segmented messages without a pool of both.
#[test]
fn nobody_lends_but_a_gateway_to_those_that_attach() {
    alone_for(120, async {
        let mut gateway = Gateway::start(PATIENCE);
        let server = Echo::start(Config { lending: true, ..Config::default() });
        let attaching = registration(b"orders", &[b"shop.Orders"]);
        let cases: [(u32, &[u8], u64, bool); 4] = [
            (kind::HELLO, b"", feature::LENDING, false),
            (kind::VIA, b"group:orders", feature::LENDING, false),
            (kind::ATTACH, &attaching, 0, false),
            (kind::ATTACH, &attaching, feature::LENDING, true),
        ];
        for (of_kind, body, features, lends) in cases {
            let mut hello = Door::hello(of_kind, RING_LEN);
            hello.stream_count = if of_kind == kind::ATTACH { 64 } else { 0 }.into();
            hello.body_len = (body.len() as u32).into();
            hello.features = features.into();
            let region = Door::region(RING_LEN);
            let path = match of_kind {
                kind::HELLO => server.address.socket_path(),
                _ => gateway.path(),
            };
            let (answer, door) = tokio::task::block_in_place(|| {
                let door = Door::knock(&path).unwrap();
                door.send(&[hello.as_bytes(), body].concat(), &[region.fd()]).unwrap();
                (door.recv_hello().unwrap().expect("it is let in").0, door)
            });
            assert_eq!(answer.kind.get(), kind::WELCOME, "{}", answer.text());
            if of_kind != kind::HELLO {
                assert_eq!(gateway.accept().await.lends(), lends, "kind {of_kind}, features {features:#x}");
            }
            let says_so = answer.features.get() & feature::LENDING != 0;
            assert_eq!(says_so, of_kind == kind::ATTACH, "kind {of_kind}");
            drop(door);
        }
    });
}

/// In the middle of the message, of the registration, and between the two.
#[test]
fn an_attacher_that_falls_silent_is_given_up() {
    alone_for(120, async {
        let mut gateway = Gateway::start(Duration::from_millis(300));
        let (_, honest) = gateway.attach().await;
        check_calls(&honest, 3).await;
        let before = Census::take();
        let bytes = request(kind::ATTACH, &registration(b"orders", &[b"shop.Orders"]));
        let path = gateway.path();
        tokio::task::block_in_place(|| {
            let whole = limits::HELLO_LEN;
            for len in [100, whole, whole + 1, whole + 24, bytes.len() - 1] {
                let region = Door::region(RING_LEN);
                let door = Door::knock(&path).unwrap();
                door.send(&bytes[..len], &[region.fd()]).unwrap();
                let (answer, _) = door.recv_hello().unwrap().expect("silence gets an answer");
                assert_eq!(answer.reason.get(), reason::MALFORMED, "{len}: {}", answer.text());
                assert!(answer.text().contains("within 300ms"), "{len}: {}", answer.text());
                door.wait_for_hang_up().unwrap();
                // And one that goes away instead.
                let door = Door::knock(&path).unwrap();
                door.send(&bytes[..len], &[region.fd()]).unwrap();
            }
        });
        check_calls(&honest, 10).await;
        before.assert_back();
    });
}

/// The message may come in pieces of any size, the registration too.
#[test]
fn an_attacher_that_dribbles_is_let_in() {
    alone_for(120, async {
        let mut gateway = Gateway::start(PATIENCE);
        let bytes = request(kind::ATTACH, &registration(b"orders", &[b"shop.Orders"]));
        let path = gateway.path();
        let door = tokio::task::block_in_place(|| {
            let region = Door::region(RING_LEN);
            let mut door = Door::knock(&path).unwrap();
            door.send(&bytes[..1], &[region.fd()]).unwrap();
            for byte in &bytes[1..] {
                door.write(&[*byte]).unwrap();
            }
            door
        });
        let attached = gateway.accept().await;
        let Purpose::Attach(said) = attached.purpose() else { panic!("{:?}", attached.purpose()) };
        assert_eq!((&*said.group, &*said.services), ("orders", &["shop.Orders".to_owned()][..]));
        assert_eq!(attached.peer().pid, std::process::id() as i32);
        drop(door);
    });
}

/// After the handshake a message is nothing but doorbells, and its descriptor nothing that was asked for.
#[test]
fn who_attaches_twice_harms_no_session_but_his_own() {
    alone_for(120, async {
        let mut gateway = Gateway::start(PATIENCE);
        let (_, honest) = gateway.attach().await;
        let path = gateway.path();
        for of_kind in [kind::ATTACH, kind::VIA, kind::HELLO] {
            let again = request(of_kind, &registration(b"twice", &[]));
            let region = Door::region(RING_LEN);
            let door = tokio::task::block_in_place(|| {
                let door = Door::knock(&path).unwrap();
                door.send(&request(kind::ATTACH, &registration(b"once", &[])), &[region.fd()]).unwrap();
                let (answer, _) = door.recv_hello().unwrap().expect("it is let in");
                assert_eq!(answer.kind.get(), kind::WELCOME, "{}", answer.text());
                assert_eq!(answer.stream_count.get(), 0, "the gateway takes no calls in this session");
                door
            });
            let liar = gateway.accept().await;
            // Regions that nobody has asked for, until the session ends for it.
            let began = Instant::now();
            while liar.closed().is_none() {
                assert!(began.elapsed() < PATIENCE, "a session that is given regions without end goes on");
                let _ = door.send(&again, &[region.fd()]);
                liar.attend();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            check_calls(&honest, 10).await;
        }
    });
}

#[test]
fn random_registrations_never_panic_nor_leak() {
    alone_for(120, async {
        let mut gateway = Gateway::start(PATIENCE);
        let (_, honest) = gateway.attach().await;
        check_calls(&honest, 3).await;
        let path = gateway.path();
        let before = Census::take();
        // Those that are let in by chance leave at once.
        let mut listener = gateway.listener;
        let taking = tokio::spawn(async move { while listener.accept().await.is_some() {} });
        let seed = 0xa77ac4;
        println!("seed {seed:#x}");
        tokio::task::block_in_place(|| {
            let mut chance = Chance::new(seed);
            let region = Door::region(RING_LEN);
            let whole = registration(b"orders", &[b"shop.Orders", b"grpc.health.v1.Health"]);
            for _ in 0..2000 {
                let mut body = whole.clone();
                for _ in 0..chance.below(4) {
                    let (at, any) = (chance.below(body.len() as u64) as usize, chance.word() as u8);
                    body[at] = chance.pick(&[0, 1, 2, b'/', 0x7f, 0xff, any]);
                }
                body.truncate(chance.pick(&[body.len(), body.len(), body.len(), 24, 7]));
                let door = Door::knock(&path).unwrap();
                let of_kind = chance.pick(&[kind::ATTACH, kind::ATTACH, kind::VIA]);
                door.send(&request(of_kind, &body), &[region.fd()]).unwrap();
                let (answer, _) = door.recv_hello().unwrap().expect("every message gets an answer");
                assert!([kind::WELCOME, kind::REFUSAL].contains(&answer.kind.get()));
            }
        });
        check_calls(&honest, 3).await;
        taking.abort();
        drop(taking.await);
        before.assert_back();
    });
}
