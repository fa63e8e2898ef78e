//! Faults that need a process of their own: stopped, killed, out of descriptors, exec.

use std::future::poll_fn;
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tollfree_driver_tokio::*;
use tollfree_testkit::{Census, Process, Role, cpu_time};

use crate::echo::{self, Echo, alone_for, begin, call, check_calls, quiet_call, read_message, soon};

/// What the children do. Not a test of itself.
#[test]
#[ignore = "runs in processes that other tests start"]
fn as_child() {
    let Some(role) = Role::of_this_process() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let address = Address::Path(role.socket.clone());
        match role.name.as_str() {
            "server" => {
                let mut listener = Listener::bind(&address, Config::default()).unwrap();
                role.ready();
                serve_all(&mut listener).await;
            }
            "server short of descriptors" => {
                let mut listener = Listener::bind(&address, Config::default()).unwrap();
                let used = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
                let limit = Rlimit { current: Some(used + 20), ..getrlimit(Resource::Nofile) };
                setrlimit(Resource::Nofile, limit).unwrap();
                role.ready();
                serve_all(&mut listener).await;
            }
            "client that never stops calling" => {
                let client = Attachment::connect(&address, &Config::default()).await.unwrap();
                role.ready();
                loop {
                    check_calls(&client, 10).await;
                }
            }
            other => panic!("no role {other}"),
        }
    });
}

async fn serve_all(listener: &mut Listener) {
    while let Some(attachment) = listener.accept().await {
        tokio::spawn(async move { drop(echo::serve(&attachment).await) });
    }
}

#[test]
fn a_stopped_peer_costs_no_processor_and_goes_on_where_it_was() {
    alone_for(60, async {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s.sock");
        let server = Process::start_ready("children::server", &socket, "");
        let client = Attachment::connect(&Address::Path(socket), &Config::default()).await.unwrap();
        check_calls(&client, 50).await;
        for _ in 0..3 {
            server.signal(Signal::STOP);
            let client = &client;
            // Far more than ring and payload area hold: writers wait for room, readers for replies.
            let calls = (0..8).map(|idx| async move {
                let message = Bytes::from(vec![idx as u8; 300_000]);
                assert_eq!(call(client, message.clone()).await, Some(message));
            });
            let mut calls = Box::pin(join_all(calls.collect()));
            let early = tokio::time::timeout(Duration::from_millis(300), &mut calls).await;
            assert!(early.is_err(), "a stopped server answers nothing");
            let before = cpu_time();
            let early = tokio::time::timeout(Duration::from_millis(700), &mut calls).await;
            assert!(early.is_err() && client.closed().is_none());
            let used = cpu_time() - before;
            assert!(used < Duration::from_millis(100), "{used:?} of processor while the peer stood still");
            server.signal(Signal::CONT);
            soon("calls after the peer went on", calls).await;
        }
    });
}

/// Polls all, until all are done.
async fn join_all<F: Future<Output = ()>>(futures: Vec<F>) {
    let mut futures: Vec<_> = futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    poll_fn(|cx| {
        for slot in &mut futures {
            if slot.as_mut().is_some_and(|future| future.as_mut().poll(cx).is_ready()) {
                *slot = None;
            }
        }
        if futures.iter().all(Option::is_none) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
}

#[test]
fn a_killed_peer_ends_its_calls_and_leaves_nothing() {
    alone_for(100, async {
        let server = Echo::start(Config::default());
        let honest = server.connect().await;
        check_calls(&honest, 10).await;
        let before = Census::take();
        let mut chance = tollfree_testkit::Chance::new(30);
        for _ in 0..30 {
            let path = server.path();
            let client = tokio::task::block_in_place(|| {
                Process::start_ready("children::client that never stops calling", &path, "")
            });
            tokio::time::sleep(Duration::from_micros(chance.below(3000))).await;
            drop(client);
            assert_eq!(server.next_end().await, Closed::HungUp);
            check_calls(&honest, 3).await;
        }
        before.assert_back();
        // The other way round: a client whose server dies.
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s.sock");
        let address = Address::Path(socket.clone());
        for _ in 0..10 {
            let dying = tokio::task::block_in_place(|| Process::start_ready("children::server", &socket, ""));
            let client = Attachment::connect(&address, &Config::default()).await.unwrap();
            check_calls(&client, 5).await;
            let quiet = quiet_call(&client).await;
            drop(dying);
            assert_eq!(soon("a call to a dead server", read_message(&quiet)).await, None);
            assert_eq!(client.closed(), Some(Closed::HungUp));
            assert!(begin(&client, Bytes::new()).await.is_err());
            let error = Attachment::connect(&address, &Config::default()).await.unwrap_err();
            assert!(error.to_string().contains("its server has died"), "{error}");
        }
        before.assert_back();
    });
}

#[test]
fn a_server_out_of_descriptors_sheds_and_lives() {
    alone_for(100, async {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s.sock");
        let address = Address::Path(socket.clone());
        let _server = tokio::task::block_in_place(|| {
            Process::start_ready("children::server short of descriptors", &socket, "")
        });
        let first = Attachment::connect(&address, &Config::default()).await.unwrap();
        check_calls(&first, 10).await;
        let quick = Config { handshake_timeout: Duration::from_millis(200), ..Config::default() };
        let (mut held, mut refused) = (Vec::new(), 0);
        for _ in 0..40 {
            match Attachment::connect(&address, &quick).await {
                Ok(client) => held.push(client),
                Err(error) => {
                    assert!(
                        matches!(&error.kind, ConnectErrorKind::Handshake(kind) if kind.is_transient()),
                        "{error}"
                    );
                    refused += 1;
                }
            }
        }
        assert!(refused > 0 && !held.is_empty(), "{refused} refused, {} held", held.len());
        // Those that are in go on; large messages go without a payload area where its descriptor can't be had.
        check_calls(&first, 20).await;
        let large = Bytes::from(vec![9; 1 << 20]);
        assert_eq!(soon("a large call", call(&first, large.clone())).await, Some(large.clone()));
        for client in held.iter().take(3) {
            assert_eq!(soon("a large call", call(client, large.clone())).await, Some(large.clone()));
        }
        drop(held);
        let began = Instant::now();
        while Attachment::connect(&address, &quick).await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(10), "the listener never came back");
        }
        check_calls(&first, 10).await;
    });
}

#[test]
fn a_program_that_is_executed_inherits_nothing() {
    alone_for(30, async {
        let server = Echo::start(Config::default());
        let client = server.connect().await;
        let large = Bytes::from(vec![1; 1 << 20]);
        assert_eq!(call(&client, large.clone()).await, Some(large));
        let listing = Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
        let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
        assert!(listing.contains("/proc/"), "{listing}");
        assert!(!listing.contains("memfd") && !listing.contains("socket:["), "{listing}");
        check_calls(&client, 3).await;
    });
}
