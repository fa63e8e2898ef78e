//! Clients and servers that break the handshake: each is refused in words, costs nothing, and harms nobody else.

use std::fs::File;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tollfree_driver_tokio::*;
use tollfree_layout::handshake::{Hello, feature, kind, reason};
use tollfree_layout::limits;
use tollfree_testkit::{Census, Chance, Door, hollow};
use zerocopy::IntoBytes;

use crate::echo::{Echo, alone_for, check_calls};

const RING_LEN: usize = limits::RING_LEN_DEFAULT;

fn quick() -> Config {
    Config { handshake_timeout: Duration::from_millis(300), ..Config::default() }
}

fn hello() -> Hello {
    Door::hello(kind::HELLO, RING_LEN)
}

/// Sends a first message as a client and gives the server's answer.
fn answer_to(path: &std::path::Path, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Option<Hello> {
    let door = Door::knock(path).unwrap();
    door.send(bytes, fds).unwrap();
    let answer = door.recv_hello().unwrap();
    if answer.is_some() {
        door.wait_for_hang_up().unwrap();
    }
    answer.map(|(hello, fds)| {
        assert!(fds.is_empty(), "a refusal carries no descriptor");
        hello
    })
}

#[test]
fn every_lie_of_a_client_is_refused_in_words() {
    alone_for(60, async {
        let server = Echo::start(quick());
        let honest = server.connect().await;
        check_calls(&honest, 10).await;
        let before = Census::take();
        let region = Door::region(RING_LEN);
        let other = Door::region(limits::RING_LEN_MIN);
        let (null, directory) = (File::open("/dev/null").unwrap(), File::open("/").unwrap());
        let file = File::open("/proc/self/exe").unwrap();
        let (pipe, _pipe_end) = std::io::pipe().unwrap();
        let (pair, _pair_end) = std::os::unix::net::UnixStream::pair().unwrap();
        let (unsealed, hollow) = (unsealed(RING_LEN + 4096), hollow(&[], RING_LEN + 4096));
        let fd = region.fd();
        let with = |edit: &dyn Fn(&mut Hello)| {
            let mut hello = hello();
            edit(&mut hello);
            hello.as_bytes().to_vec()
        };
        let plain = with(&|_| {});
        let zero = &[0u8; limits::HELLO_LEN];
        /// What, bytes, descriptors; the reason and words of the refusal.
        type Case<'a> = (&'a str, Vec<u8>, Vec<BorrowedFd<'a>>, u32, &'a str);
        let cases: Vec<Case<'_>> = vec![
            ("wrong magic", zero.to_vec(), vec![fd], reason::MALFORMED, "does not speak Tollfree"),
            ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), vec![], reason::MALFORMED, "HTTP/2"),
            (
                "a token that nobody gave",
                with(&|h| (h.features, h.token) = (feature::UPGRADE.into(), [7; 16])),
                vec![fd],
                reason::TOKEN,
                "has given out no tokens",
            ),
            (
                "version N-1",
                with(&|h| (h.version_min, h.version_max) = (0.into(), 0.into())),
                vec![fd],
                reason::VERSION,
                "0 to 0",
            ),
            (
                "version N+1",
                with(&|h| (h.version_min, h.version_max) = (2.into(), 9.into())),
                vec![fd],
                reason::VERSION,
                "2 to 9",
            ),
            (
                "versions turned round",
                with(&|h| (h.version_min, h.version_max) = (2.into(), 1.into())),
                vec![fd],
                reason::VERSION,
                "2 to 1",
            ),
            (
                "feature",
                with(&|h| h.required = (1 << 63).into()),
                vec![fd],
                reason::FEATURE,
                "0x8000000000000000",
            ),
            ("kind 0", with(&|h| h.kind = 0.into()), vec![fd], reason::MALFORMED, "another kind"),
            (
                "kind WELCOME",
                with(&|h| h.kind = kind::WELCOME.into()),
                vec![fd],
                reason::MALFORMED,
                "another kind",
            ),
            (
                "kind REFUSAL",
                with(&|h| h.kind = kind::REFUSAL.into()),
                vec![fd],
                reason::MALFORMED,
                "another kind",
            ),
            ("ring 0", with(&|h| h.ring_len = 0.into()), vec![fd], reason::REGION, "a ring of 0"),
            ("ring short", with(&|h| h.ring_len = 2048.into()), vec![fd], reason::REGION, "a ring of 2048"),
            ("ring odd", with(&|h| h.ring_len = 12288.into()), vec![fd], reason::REGION, "a ring of 12288"),
            ("ring long", with(&|h| h.ring_len = 65536.into()), vec![fd], reason::REGION, "a ring of 65536"),
            (
                "ring huge",
                with(&|h| h.ring_len = u32::MAX.into()),
                vec![fd],
                reason::REGION,
                "a ring of 4294967295",
            ),
            ("region 0", with(&|h| h.region_len = 0.into()), vec![fd], reason::REGION, "a region of 0"),
            (
                "region shorter than its ring",
                with(&|h| h.region_len = 32768.into()),
                vec![fd],
                reason::REGION,
                "a region of 32768",
            ),
            (
                "region long",
                with(&|h| h.region_len = 65537.into()),
                vec![fd],
                reason::REGION,
                "a region of 65537",
            ),
            (
                "region longer than its fd",
                with(&|h| h.region_len = 40960.into()),
                vec![fd],
                reason::REGION,
                "36864 bytes long where 40960",
            ),
            (
                "metadata",
                with(&|h| h.metadata_len_max = 255.into()),
                vec![fd],
                reason::REGION,
                "metadata block of 255",
            ),
            (
                "stream window",
                with(&|h| h.stream_window = 0.into()),
                vec![fd],
                reason::REGION,
                "a stream window of 0",
            ),
            (
                "session window",
                with(&|h| h.session_window = 1.into()),
                vec![fd],
                reason::REGION,
                "a session window of 1",
            ),
            ("no fd", plain.clone(), vec![], reason::MALFORMED, "without the descriptor"),
            ("two fds", plain.clone(), vec![fd, other.fd()], reason::MALFORMED, "more than one descriptor"),
            ("five fds", plain.clone(), vec![fd; 5], reason::MALFORMED, "more than one descriptor"),
            ("253 fds", plain.clone(), vec![fd; 253], reason::MALFORMED, "more than one descriptor"),
            ("shorter fd", plain.clone(), vec![other.fd()], reason::REGION, "8192 bytes long where 36864"),
            ("device", plain.clone(), vec![null.as_fd()], reason::REGION, "directory or device"),
            ("directory", plain.clone(), vec![directory.as_fd()], reason::REGION, "directory or device"),
            ("pipe", plain.clone(), vec![pipe.as_fd()], reason::REGION, "a pipe"),
            ("socket", plain.clone(), vec![pair.as_fd()], reason::REGION, "a socket"),
            ("file", plain.clone(), vec![file.as_fd()], reason::REGION, "fd "),
            ("unsealed", plain.clone(), vec![unsealed.as_fd()], reason::REGION, "lacks the seals"),
            ("hollow", plain.clone(), vec![hollow.as_fd()], reason::REGION, "only 0 of its 36864 bytes"),
        ];
        for (what, bytes, fds, reason, words) in &cases {
            let path = server.path();
            let answer = tokio::task::block_in_place(|| answer_to(&path, bytes, fds));
            let answer = answer.unwrap_or_else(|| panic!("{what}: no answer"));
            assert_eq!(answer.kind.get(), kind::REFUSAL, "{what}");
            assert_eq!(answer.reason.get(), *reason, "{what}: {}", answer.text());
            assert!(answer.text().contains(words), "{what}: \"{}\" lacks \"{words}\"", answer.text());
        }
        check_calls(&honest, 10).await;
        drop((region, other, null, directory, file, pipe, _pipe_end, pair, _pair_end, unsealed, hollow));
        before.assert_back();
        assert_eq!(server.sessions.lock().unwrap().len(), 1, "no lie became a session");
    });
}

/// Shared memory without seals. Made by the C library's means, as the region crate makes none.
fn unsealed(len: usize) -> OwnedFd {
    use rustix::fs::{FallocateFlags, MemfdFlags};
    let fd = rustix::fs::memfd_create("unsealed", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len as u64).unwrap();
    fd
}

#[test]
fn silence_and_cuts_end_after_the_time_allowed() {
    alone_for(60, async {
        let server = Echo::start(quick());
        let honest = server.connect().await;
        check_calls(&honest, 3).await;
        let before = Census::take();
        let path = server.path();
        tokio::task::block_in_place(|| {
            let bytes = hello();
            let region = Door::region(RING_LEN);
            for len in [0, 1, 8, 128, 255] {
                let door = Door::knock(&path).unwrap();
                if len > 0 {
                    door.send(&bytes.as_bytes()[..len], &[region.fd()]).unwrap();
                }
                let began = Instant::now();
                let (refusal, _) = door.recv_hello().unwrap().unwrap_or_else(|| panic!("{len} bytes: told"));
                assert!(refusal.text().contains("within 300ms"), "{}", refusal.text());
                assert!(began.elapsed() < Duration::from_secs(3));
                // Cut off at the same place.
                let door = Door::knock(&path).unwrap();
                if len > 0 {
                    door.send(&bytes.as_bytes()[..len], &[region.fd()]).unwrap();
                }
                door.shutdown(Shutdown::Write);
                assert!(door.recv_hello().unwrap().is_some(), "{len} bytes: told that it hung up");
            }
        });
        check_calls(&honest, 3).await;
        before.assert_back();
    });
}

/// A server played by a thread for one client.
fn lying_server(path: PathBuf, act: impl FnOnce(Door) + Send + 'static) -> std::thread::JoinHandle<()> {
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || act(Door::over(listener.accept().unwrap().0).unwrap()))
}

async fn refused_by_client(act: impl FnOnce(Door) + Send + 'static) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("liar.sock");
    let thread = lying_server(path.clone(), act);
    let address = Address::Path(path.clone());
    let error = Attachment::connect(&address, &quick()).await.unwrap_err().to_string();
    thread.join().unwrap();
    assert!(error.contains(path.to_str().unwrap()), "the error names the socket: {error}");
    error
}

#[test]
fn every_lie_of_a_server_is_an_error_that_names_the_socket() {
    alone_for(60, async {
        let before = Census::take();
        type Edit = fn(&mut Hello);
        let edits: [(Edit, &str); 9] = [
            (|h| h.magic = *b"TOLLFRE3", "does not speak Tollfree"),
            (|h| (h.version_min, h.version_max) = (0.into(), 0.into()), "speaks 0 to 0"),
            (|h| (h.version_min, h.version_max) = (2.into(), 3.into()), "speaks 2 to 3"),
            (|h| h.required = 32.into(), "features 0x20"),
            (|h| h.kind = kind::HELLO.into(), "another kind"),
            (|h| h.ring_len = 33.into(), "a ring of 33"),
            (|h| h.region_len = u32::MAX.into(), "a region of 4294967295"),
            (|h| h.stream_window = 3.into(), "a stream window of 3"),
            (|h| h.stream_count = 0.into(), "0 calls at once"),
        ];
        for (edit, words) in edits {
            let error = refused_by_client(move |door| {
                let peer = door.welcome(edit);
                std::thread::sleep(Duration::from_millis(50));
                drop(peer);
            })
            .await;
            assert!(error.contains(words), "\"{error}\" lacks \"{words}\"");
        }
        let refusal = |text: &'static str| {
            move |door: Door| {
                let mut refusal = Hello::new(kind::REFUSAL);
                refusal.reason = reason::BUSY.into();
                refusal.set_text(text);
                // Before the client's message was read, as a server does that sees a user it does not like.
                door.send(refusal.as_bytes(), &[]).unwrap();
            }
        };
        for _ in 0..20 {
            let error = refused_by_client(refusal("come back later")).await;
            assert!(error.contains("come back later"), "{error}");
        }
        let http2 = refused_by_client(|mut door| door.write(b"PRI * HTTP/2.0\r\n").unwrap()).await;
        assert!(http2.contains("HTTP/2"), "{http2}");
        let gone = refused_by_client(|door| drop(door.recv_hello())).await;
        assert!(gone.contains("hung up"), "{gone}");
        let silent = refused_by_client(|door| door.wait_for_hang_up().unwrap()).await;
        assert!(silent.contains("within 300ms"), "{silent}");
        let half = refused_by_client(|door| {
            door.send(&Hello::new(kind::WELCOME).as_bytes()[..100], &[]).unwrap();
            door.wait_for_hang_up().unwrap();
        })
        .await;
        assert!(half.contains("within 300ms"), "{half}");
        let bare = refused_by_client(|door| {
            door.send(Door::hello(kind::WELCOME, RING_LEN).as_bytes(), &[]).unwrap();
            door.wait_for_hang_up().unwrap();
        })
        .await;
        assert!(bare.contains("without the descriptor"), "{bare}");
        let empty = refused_by_client(|door| {
            let region = hollow(&[], RING_LEN + 4096);
            door.send(Door::hello(kind::WELCOME, RING_LEN).as_bytes(), &[region.as_fd()]).unwrap();
            door.wait_for_hang_up().unwrap();
        })
        .await;
        assert!(empty.contains("only 0 of its 36864 bytes"), "{empty}");
        before.assert_back();
    });
}

#[test]
fn random_first_messages_never_panic_nor_leak() {
    alone_for(60, async {
        let server = Echo::start(quick());
        let honest = server.connect().await;
        check_calls(&honest, 3).await;
        let before = Census::take();
        let seed = 0x70_11f3ee;
        println!("seed {seed:#x}");
        let path = server.path();
        tokio::task::block_in_place(|| {
            let mut chance = Chance::new(seed);
            let region = Door::region(RING_LEN);
            for _ in 0..10_000 {
                // The usual message with a few bytes changed gets further than noise; the magic is left alone mostly.
                let mut bytes = hello().as_bytes().to_vec();
                for _ in 0..chance.below(6) {
                    let least = if chance.below(16) == 0 { 0 } else { 8 };
                    let at = (least + chance.below(80 - least)) as usize;
                    let any = chance.word() as u8;
                    bytes[at] = chance.pick(&[0, 1, 2, 0x10, 0x7f, 0x80, 0xff, any]);
                }
                if chance.below(8) == 0 {
                    let len = 8 + chance.below(limits::HELLO_LEN as u64 - 8) as usize;
                    bytes = [&bytes[..8], &chance.bytes(len)].concat();
                    bytes.truncate(limits::HELLO_LEN);
                    bytes.resize(limits::HELLO_LEN, 0);
                }
                let door = Door::knock(&path).unwrap();
                let fds = [region.fd(), region.fd()];
                door.send(&bytes, &fds[..chance.pick(&[0, 1, 1, 1, 1, 1, 2])]).unwrap();
                let (answer, _) = door.recv_hello().unwrap().expect("every message gets an answer");
                assert!([kind::WELCOME, kind::REFUSAL].contains(&answer.kind.get()));
            }
        });
        check_calls(&honest, 3).await;
        before.assert_back();
    });
}
