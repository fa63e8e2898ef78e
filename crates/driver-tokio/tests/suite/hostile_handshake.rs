//! Clients and servers that break the handshake: each is refused in words, costs nothing, and harms nobody else.

use std::net::Shutdown;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tollfree_driver_tokio::*;
use tollfree_layout::handshake::{Hello, kind};
use tollfree_layout::limits;
use tollfree_testkit::{
    Census, Chance, Door, Greeting, Props, Welcome, greetings, random_greeting, welcomes,
};
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
        let props = Props::new();
        for Greeting { name: what, bytes, fds, reason, words } in &greetings(&props) {
            let path = server.path();
            let answer = tokio::task::block_in_place(|| answer_to(&path, bytes, fds));
            let answer = answer.unwrap_or_else(|| panic!("{what}: no answer"));
            assert_eq!(answer.kind.get(), kind::REFUSAL, "{what}");
            assert_eq!(answer.reason.get(), *reason, "{what}: {}", answer.text());
            assert!(answer.text().contains(words), "{what}: \"{}\" lacks \"{words}\"", answer.text());
        }
        check_calls(&honest, 10).await;
        drop(props);
        before.assert_back();
        assert_eq!(server.sessions.lock().unwrap().len(), 1, "no lie became a session");
    });
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
        for Welcome { name, words, act } in welcomes() {
            let error = refused_by_client(act).await;
            assert!(error.contains(words), "{name}: \"{error}\" lacks \"{words}\"");
        }
        // A server that refuses at first sight has often hung up by the time that the client sends.
        for _ in 0..20 {
            let refusal = welcomes().into_iter().find(|welcome| welcome.name == "refusal at first sight");
            let error = refused_by_client(refusal.unwrap().act).await;
            assert!(error.contains("come back later"), "{error}");
        }
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
            let props = Props::new();
            for _ in 0..10_000 {
                let (bytes, fds) = random_greeting(&mut chance, &props);
                let door = Door::knock(&path).unwrap();
                door.send(&bytes, &fds).unwrap();
                let (answer, _) = door.recv_hello().unwrap().expect("every message gets an answer");
                assert!([kind::WELCOME, kind::REFUSAL].contains(&answer.kind.get()));
            }
        });
        check_calls(&honest, 3).await;
        before.assert_back();
    });
}
