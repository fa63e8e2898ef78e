//! Waiting in an async runtime: the task that polls may leave, stop, block or die, and each other task still wakes.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::{Builder, Runtime};
use tollfree_driver_tokio::*;
use tollfree_testkit::{Chance, HostilePeer, TimeLimit, opening_of};

use crate::echo::{
    self, Apart, POLICIES, SOON, begin, call, check_calls, config, connect, quiet_call, read_message,
    runtimes, soon,
};

#[test]
fn a_poller_that_stops_polling_and_keeps_its_stream_holds_up_nobody() {
    let _limit = TimeLimit::seconds(60);
    for policy in POLICIES {
        let server = Apart::start(config(policy));
        for runtime in runtimes() {
            runtime.block_on(async {
                let client = connect(server.echo(), policy).await;
                check_calls(&client, 20).await;
                let quiet = quiet_call(&client).await;
                for _ in 0..20 {
                    // It polls, and is not polled again: a select! whose other branch won.
                    tokio::select! {
                        biased;
                        _ = read_message(&quiet) => panic!("nothing was to come"),
                        () = tokio::task::yield_now() => {}
                    }
                    let other = client.clone();
                    let answered = tokio::spawn(async move { call(&other, Bytes::from_static(b"x")).await });
                    let answered = soon("a call beside a poller that stopped", answered).await.unwrap();
                    assert_eq!(answered.as_deref(), Some(&b"x"[..]), "{policy:?}");
                }
            });
        }
    }
}

#[test]
fn who_only_probes_has_armed_the_doorbell_before() {
    let _limit = TimeLimit::seconds(60);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s.sock");
        let address = format!("shm://{}", socket.display()).parse().unwrap();
        let mut listener = Listener::bind(&address, Config::default()).unwrap();
        let entering = tokio::task::spawn_blocking(move || HostilePeer::client(&socket).unwrap());
        let server = soon("a session", listener.accept()).await.unwrap();
        let mut peer = entering.await.unwrap();
        let calls = 300;
        for stream in 1..=calls {
            // Looks once, and goes on when the peer has seen what the server said meanwhile.
            let is_pending = poll_fn(|cx| Poll::Ready(server.poll_accept(cx, &mut None).is_pending())).await;
            assert!(is_pending, "nothing was sent yet");
            // The first waits are spun through. Later ones have been too long, and one in a few is probed.
            if stream > calls / 2 {
                assert!(peer.sees_sleeper(), "wait {stream}");
            }
            let calling = tokio::task::spawn_blocking(move || {
                std::thread::sleep(Duration::from_millis(1));
                let path = format!("/test.Echo/Call{stream}");
                peer.send(&opening_of(stream, stream as u16 - 1, &path, b"x")).unwrap();
                while peer.try_read().is_some() {}
                peer
            });
            let call = soon("a call", echo::accept(&server)).await;
            drop(call.expect("the session goes on"));
            peer = calling.await.unwrap();
        }
    });
}

#[test]
fn a_poller_that_is_dropped_or_panics_hands_over() {
    let _limit = TimeLimit::seconds(60);
    for policy in POLICIES {
        let server = Apart::start(config(policy));
        for runtime in runtimes() {
            runtime.block_on(async {
                let client = connect(server.echo(), policy).await;
                for round in 0..50 {
                    let quiet = quiet_call(&client).await;
                    let polling = tokio::spawn(async move {
                        tokio::select! {
                            biased;
                            _ = read_message(&quiet) => {}
                            () = tokio::time::sleep(Duration::from_micros(300)) => {
                                if round % 2 == 0 {
                                    std::panic::resume_unwind(Box::new("on purpose"));
                                }
                            }
                        }
                    });
                    tokio::task::yield_now().await;
                    let calls: Vec<_> = (0..4)
                        .map(|_| {
                            let client = client.clone();
                            tokio::spawn(async move { check_calls(&client, 5).await })
                        })
                        .collect();
                    if round % 3 == 0 {
                        polling.abort();
                    }
                    for task in calls {
                        soon("a call beside a poller that went", task).await.unwrap();
                    }
                    let _ = polling.await;
                }
            });
        }
    }
}

#[test]
fn a_task_that_computes_holds_up_no_call_of_other_backend_connections() {
    let _limit = TimeLimit::seconds(60);
    let server = Apart::start(Config::default());
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = connect(server.echo(), WaitPolicy::Adaptive).await;
        for _ in 0..5 {
            let other = client.clone();
            // It makes a call, and computes right after it with the next poller in its backend connection's hands.
            let computing = tokio::spawn(async move {
                check_calls(&other, 10).await;
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(300) {
                    std::hint::spin_loop();
                }
            });
            let calls: Vec<_> = (0..4)
                .map(|_| {
                    let client = client.clone();
                    tokio::spawn(async move { check_calls(&client, 50).await })
                })
                .collect();
            for task in calls {
                soon("a call beside a computing task", task).await.unwrap();
            }
            computing.await.unwrap();
        }
    });
}

#[test]
fn a_runtime_that_is_blocked_or_not_driven_holds_up_no_other() {
    let _limit = TimeLimit::seconds(60);
    for policy in POLICIES {
        let server = Apart::start(config(policy));
        // The runtime that connected is the one that stands still: its driver too.
        let still = Builder::new_current_thread().enable_all().build().unwrap();
        let client = still.block_on(connect(server.echo(), policy));
        let quiet = still.block_on(quiet_call(&client));
        let polling = still.spawn(async move { drop(read_message(&quiet).await) });
        still.block_on(async {
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        });
        for runtime in runtimes() {
            runtime.block_on(async {
                soon("calls beside a runtime that stands still", check_calls(&client, 50)).await;
                // Long enough for both sides to park.
                for _ in 0..5 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    soon("a late call", check_calls(&client, 1)).await;
                }
                let calls: Vec<_> = (0..4)
                    .map(|_| {
                        let client = client.clone();
                        tokio::spawn(async move { check_calls(&client, 50).await })
                    })
                    .collect();
                for task in calls {
                    soon("calls side by side", task).await.unwrap();
                }
            });
        }
        // It goes on as if nothing had been.
        still.block_on(async {
            soon("calls in the runtime that stood still", check_calls(&client, 20)).await
        });
        polling.abort();
    }
}

#[test]
fn a_runtime_that_is_shut_down_in_mid_call_takes_only_its_own_calls_along() {
    let _limit = TimeLimit::seconds(60);
    for policy in POLICIES {
        let server = Apart::start(config(policy));
        let first = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let client = first.block_on(connect(server.echo(), policy));
        let mut first = Some(first);
        for round in 0..20 {
            let dying = first.take().unwrap_or_else(|| {
                let [current, multi] = runtimes();
                if round % 2 == 0 { current } else { multi }
            });
            let lasting = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let lasts = client.clone();
            let waiting = lasting.spawn(async move {
                for _ in 0..5 {
                    check_calls(&lasts, 20).await;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
            for _ in 0..4 {
                let client = client.clone();
                dying.spawn(async move {
                    loop {
                        check_calls(&client, 10).await;
                    }
                });
            }
            dying.block_on(async { tokio::time::sleep(Duration::from_millis(2)).await });
            if round % 3 == 0 {
                dying.shutdown_background();
            } else {
                drop(dying);
            }
            lasting.block_on(async { soon("calls beside a runtime that died", waiting).await.unwrap() });
        }
        assert_eq!(client.closed(), None);
    }
}

#[test]
fn a_thread_without_a_runtime_may_wait_too() {
    let _limit = TimeLimit::seconds(30);
    let server = Apart::start(Config::default());
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let client = runtime.block_on(connect(server.echo(), WaitPolicy::Adaptive));
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    for _ in 0..50 {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut cx = Context::from_waker(&waker);
        let mut calling = std::pin::pin!(call(&client, Bytes::from_static(b"bare")));
        let began = Instant::now();
        let answer = loop {
            if let Poll::Ready(answer) = calling.as_mut().poll(&mut cx) {
                break answer;
            }
            assert!(began.elapsed() < SOON, "lost");
            std::thread::park_timeout(SOON);
        };
        assert_eq!(answer.as_deref(), Some(&b"bare"[..]));
        std::thread::sleep(Duration::from_micros(500));
    }
}

#[test]
fn no_wake_up_is_lost_between_two_sides_that_sleep_at_random() {
    let _limit = TimeLimit::seconds(100);
    for policy in POLICIES {
        let server = Apart::start(config(policy));
        for (idx, runtime) in runtimes().into_iter().enumerate() {
            let seed = 11 + idx as u64;
            runtime.block_on(async {
                let client = connect(server.echo(), policy).await;
                let mut chance = Chance::new(seed);
                for round in 0..1500 {
                    let answer = soon("a ping", call(&client, Bytes::from_static(b"ping"))).await;
                    assert!(answer.is_some(), "{policy:?} seed {seed} round {round}");
                    match chance.below(8) {
                        // About as long as a side spins before it parks.
                        0..=3 => pause(Duration::from_nanos(chance.below(150_000))),
                        4 => tokio::time::sleep(Duration::from_millis(1)).await,
                        5 => tokio::task::yield_now().await,
                        _ => {}
                    }
                }
            });
        }
    }
}

fn pause(length: Duration) {
    let began = Instant::now();
    while began.elapsed() < length {
        std::hint::spin_loop();
    }
}

#[test]
fn no_wake_up_is_lost_among_threads_that_share_a_session() {
    let _limit = TimeLimit::seconds(100);
    for policy in POLICIES {
        let server = Apart::start(config(policy));
        let runtimes: Vec<Runtime> = runtimes().into();
        let client = runtimes[1].block_on(connect(server.echo(), policy));
        let done = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (idx, runtime) in runtimes.iter().enumerate() {
                let (client, done, stop) = (&client, &done, &stop);
                scope.spawn(move || {
                    let callers: Vec<_> = (0..3)
                        .map(|caller| {
                            let client = client.clone();
                            runtime.spawn(async move {
                                let mut chance = Chance::new(idx as u64 * 16 + caller);
                                for _ in 0..300 {
                                    let len = chance.below(9000) as usize;
                                    let message = Bytes::from(vec![7; len]);
                                    let answer =
                                        soon("a call among threads", call(&client, message.clone())).await;
                                    assert_eq!(answer, Some(message));
                                    if chance.below(4) == 0 {
                                        tokio::time::sleep(Duration::from_micros(chance.below(400))).await;
                                    }
                                }
                            })
                        })
                        .collect();
                    for caller in callers {
                        runtime.block_on(caller).unwrap();
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                    if done.load(Ordering::Relaxed) == 2 {
                        stop.store(true, Ordering::Relaxed);
                    }
                });
            }
            // Streams that come and go without ever being read through, in a third runtime.
            let (client, stop) = (&client, &stop);
            scope.spawn(move || {
                let third = Builder::new_current_thread().enable_all().build().unwrap();
                third.block_on(async {
                    while !stop.load(Ordering::Relaxed) && done_in_time() {
                        if let Ok(stream) = begin(client, Bytes::from_static(b"dropped")).await {
                            let reading =
                                tokio::time::timeout(Duration::from_micros(50), read_message(&stream));
                            let _ = reading.await;
                        }
                    }
                });
            });
        });
        assert_eq!(done.load(Ordering::Relaxed), 2);
        assert_eq!(client.closed(), None);
    }
}

/// The process's time limit ends a test that hangs; this keeps a panic elsewhere from keeping a thread alive.
fn done_in_time() -> bool {
    !std::thread::panicking()
}

#[test]
fn a_stream_that_nobody_reads_holds_up_no_other() {
    let _limit = TimeLimit::seconds(60);
    for policy in POLICIES {
        let server = Apart::start(config(policy));
        for runtime in runtimes() {
            runtime.block_on(async {
                let client = connect(server.echo(), policy).await;
                let large = Bytes::from(vec![5; 3 << 20]);
                // Their answers wait for credit at the server, in ring, payload area and inbox.
                let mut unread = Vec::new();
                for _ in 0..4 {
                    unread.push(soon("a large request", begin(&client, large.clone())).await.unwrap());
                }
                soon("calls beside unread streams", check_calls(&client, 100)).await;
                for stream in unread {
                    assert_eq!(soon("a late reader", read_message(&stream)).await, Some(large.clone()));
                }
            });
        }
    }
}
