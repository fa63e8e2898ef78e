//! Faults as calls see them: over shared memory only. What happens below is tested in the transport.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::stubs::probe::Ask;
use crate::stubs::probe::probe_client::ProbeClient;
use crate::stubs::probe::probe_server::ProbeServer;
use rustix::process::{Pid, Signal, kill_process};
use tollfree::{Channel, Server};
use tollfree_testkit::stop_child;
use tonic::{Code, Request};

use super::carrier::{AnyChannel, connect};
use super::lab::{Lab, Way, until};
use super::peers::start_child;
use super::probe::Probe;

fn within(ask: Ask, limit: Duration) -> Request<Ask> {
    let mut request = Request::new(ask);
    request.set_timeout(limit);
    request
}

/// The server's process, as the channel names it.
fn peer(channel: &AnyChannel) -> Option<i32> {
    let AnyChannel::Ours(channel) = channel else { panic!("over shared memory") };
    channel.path().ready()?.peer.map(|peer| peer.pid)
}

#[tokio::test]
async fn deadlines_are_on_time_while_the_server_is_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", directory.path().join("s.sock").display());
    let mut child = start_child(&uri);
    let channel = connect(Way::Shm, &uri).await;
    let mut client = ProbeClient::new(channel.clone());
    assert!(client.unary(Ask::default()).await.is_ok());
    let (pid, session) = (Pid::from_child(&child), peer(&channel));
    assert!(session.is_some());
    for round in 0..3 {
        stop_child(pid);
        let began = Instant::now();
        let late: Vec<_> = (0..20)
            .map(|idx| {
                let mut client = client.clone();
                let ask = Ask { body: vec![idx; 5_000 * usize::from(idx)], ..Ask::default() };
                tokio::spawn(async move { client.unary(within(ask, Duration::from_millis(300))).await })
            })
            .collect();
        for call in late {
            let status = call.await.unwrap().unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        }
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(5), "{took:?}");
        kill_process(pid, Signal::CONT).unwrap();
        // What it says of those calls now is dropped; the session is the same, and so is everything in it.
        for len in [1, 100, 60_000] {
            let ask = Ask { body: vec![round; len], ..Ask::default() };
            assert_eq!(client.unary(ask).await.unwrap().into_inner().seen_len, len as u64);
        }
        assert_eq!(peer(&channel), session, "nothing of a live peer is given up");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_deadlines_ends_each_call_once() {
    let lab = Lab::start(Way::Shm).await;
    let (mut answered, mut late) = (0, 0);
    for round in 0..4 {
        let calls: Vec<_> = (0..500u64)
            .map(|idx| {
                let mut client = lab.client();
                // Handlers and deadlines that end at about the same time.
                let ask = Ask { wait_ms: (idx * 7 % 40) as u32, ..Ask::default() };
                let limit = Duration::from_micros(idx * 131 % 40_000 + round);
                tokio::spawn(async move { client.unary(within(ask, limit)).await })
            })
            .collect();
        for call in calls {
            let ended = tokio::time::timeout(Duration::from_secs(10), call).await;
            match ended.expect("each call ends").unwrap() {
                Ok(_) => answered += 1,
                Err(status) => {
                    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
                    late += 1;
                }
            }
        }
        until("no handler is left", || lab.witness.live() == 0).await;
    }
    assert_eq!(answered + late, 2000);
    assert!(late > 100, "{answered} answered, {late} late: no storm");
    assert!(lab.client().unary(Ask::default()).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_up_is_not_stormed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let dialled = Arc::new(AtomicUsize::new(0));
    let count = dialled.clone();
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::UnixListener::from_std(listener).unwrap();
    let hanging_up = tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            drop(socket);
        }
    });
    let channel = Channel::builder(format!("shm://{}", path.display())).connect_lazy().unwrap();
    let began = Instant::now();
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let mut client = ProbeClient::new(channel.clone());
            tokio::spawn(async move {
                let mut failed = 0;
                while began.elapsed() < Duration::from_secs(1) {
                    let status = client.unary(Ask::default()).await.unwrap_err();
                    assert_eq!(status.code(), Code::Unavailable, "{status}");
                    failed += 1;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                failed
            })
        })
        .collect();
    let mut failed = 0;
    for caller in callers {
        failed += caller.await.unwrap();
    }
    hanging_up.abort();
    let dialled = dialled.load(Ordering::SeqCst);
    println!("{failed} calls failed, {dialled} times dialled");
    assert!(failed > 500, "{failed} calls: no storm");
    // With pauses of 20 ms, doubled each time, seven or so; and never one a call.
    assert!((2..=20).contains(&dialled), "{failed} calls dialled {dialled} times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_accepted_call_fails_while_servers_replace_each_other() {
    let mut lab = Lab::start(Way::Shm).await;
    let stop = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (mut client, stop) = (lab.client(), stop.clone());
            tokio::spawn(async move {
                let mut answered = 0;
                while stop.load(Ordering::SeqCst) == 0 {
                    match client.unary(Ask { wait_ms: 2, ..Ask::default() }).await {
                        Ok(_) => answered += 1,
                        // Nobody there for a moment, or not taken by a server that is shutting down.
                        Err(status) => {
                            assert_eq!(status.code(), Code::Unavailable, "{status}");
                            tokio::time::sleep(Duration::from_millis(1)).await;
                        }
                    }
                }
                answered
            })
        })
        .collect();
    let (uri, witness) = (lab.uri.clone(), lab.witness.clone());
    let mut servers = Vec::new();
    for generation in 1..4 {
        let begun = witness.begun();
        until("calls flow", || witness.begun() > begun + 100).await;
        let (next_stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (uri, witness) = (uri.clone(), witness.clone());
        let successor = tokio::spawn(async move {
            // The address is free when the one before has begun to shut down.
            let began = Instant::now();
            let mut stopped = stopped;
            loop {
                let server = Server::builder().add_service(ProbeServer::new(Probe::new(witness.clone())));
                let ended = async { drop((&mut stopped).await) };
                match server.serve_with_shutdown(&uri, ended).await {
                    Ok(()) => return,
                    Err(error) => assert!(began.elapsed() < Duration::from_secs(10), "{error}"),
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        if generation == 1 {
            lab.stopped().await;
        } else {
            let (previous_stop, previous): (tokio::sync::oneshot::Sender<()>, tokio::task::JoinHandle<()>) =
                servers.pop().unwrap();
            drop(previous_stop);
            previous.await.unwrap();
        }
        servers.push((next_stop, successor));
    }
    let begun = witness.begun();
    until("calls flow to the last", || witness.begun() > begun + 100).await;
    stop.store(1, Ordering::SeqCst);
    let mut answered = 0;
    for caller in callers {
        answered += caller.await.unwrap();
    }
    assert_eq!(answered, witness.begun(), "every call that a handler has begun was answered");
}
