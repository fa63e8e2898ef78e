//! Registers of a session that runs: what they do to publications and doorbells, and that a change loses nothing.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tollfree_driver_tokio::*;
use tollfree_testkit::TimeLimit;

use crate::echo::{read_message, serve, soon};

/// A gateway's end of a session, and the process that has attached.
struct Ends {
    gateway: Arc<Attachment>,
    _listener: Listener,
    _directory: tempfile::TempDir,
}

/// The process is a thread that echoes, in a runtime of its own.
async fn attached(wait: WaitPolicy) -> Ends {
    let directory = tempfile::tempdir().unwrap();
    let address = Address::Path(directory.path().join("gateway.sock"));
    let config = Config { accepts: Accepts::Backends, ..Config::default() };
    let mut listener = Listener::bind(&address, config).unwrap();
    std::thread::spawn(move || {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let registration = Registration::new("group", vec!["test.Echo".to_owned()]).unwrap();
            let config = Config { wait, ..Config::default() };
            let attachment = Attachment::attach(&address, &config, registration).await.unwrap();
            serve(&attachment).await
        })
    });
    let gateway = Arc::new(soon("a process that attaches", listener.accept()).await.unwrap());
    Ends { gateway, _listener: listener, _directory: directory }
}

fn registers(doorbell: &str, batch: &str) -> Registers {
    let mut registers = Registers::default();
    registers.doorbell = doorbell.parse().unwrap();
    registers.batch = batch.parse().unwrap();
    registers
}

/// Begins a call, without giving anybody else a turn.
async fn begin(gateway: &Attachment, message: Bytes) -> Stream {
    let opening = Opening { path: "/test.Echo/Call", deadline_ns: 0 };
    let mut outgoing = Outgoing {
        message: Some(OutgoingMessage::new(message, false)),
        ending: Some(Ending::HalfClose),
        ..Outgoing::default()
    };
    let mut opener = gateway.open();
    poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing)).await.unwrap()
}

async fn call(gateway: &Attachment, message: Bytes) {
    let stream = begin(gateway, message.clone()).await;
    assert_eq!(soon("an answer", read_message(&stream)).await, Some(message));
}

/// Publications and rings since the last time.
struct Since(Announced);

impl Since {
    fn last(&mut self, gateway: &Attachment) -> (u64, u64, u64) {
        let now = gateway.announced();
        let was = std::mem::replace(&mut self.0, now);
        (now.publications - was.publications, now.sends - was.sends, now.rings - was.rings)
    }
}

#[tokio::test]
async fn by_default_calls_that_come_alone_are_published_at_once_and_those_of_a_round_together() {
    let _limit = TimeLimit::seconds(60);
    let Ends { gateway, .. } = &attached(WaitPolicy::Park).await;
    for _ in 0..20 {
        call(gateway, Bytes::from_static(b"alone")).await;
    }
    let mut since = Since(gateway.announced());
    let mut streams = vec![begin(gateway, Bytes::from_static(b"first")).await];
    assert_eq!(since.last(gateway).0, 1);
    for _ in 0..10 {
        streams.push(begin(gateway, Bytes::from_static(b"another")).await);
    }
    assert_eq!(since.last(gateway).0, 0, "the round goes on");
    for stream in &streams {
        assert!(soon("an answer", read_message(stream)).await.is_some());
    }
    let (publications, sends, _) = since.last(gateway);
    assert!((1..=2).contains(&publications) && sends >= 10, "{publications} of {sends}");
    let again = begin(gateway, Bytes::from_static(b"first of the next round")).await;
    assert_eq!(since.last(gateway).0, 0, "it has company lately");
    assert!(soon("an answer", read_message(&again)).await.is_some());
}

#[tokio::test]
async fn a_fixed_batch_is_published_when_it_is_full_and_a_smaller_one_when_its_time_is_over() {
    let _limit = TimeLimit::seconds(60);
    let Ends { gateway, .. } = &attached(WaitPolicy::Park).await;
    call(gateway, Bytes::from_static(b"first")).await;
    let mut since = Since(gateway.announced());
    gateway.set_registers(&registers("auto", "4").with_hold_us(10_000).unwrap());
    let mut streams = Vec::new();
    for nth in 1..=4_u8 {
        streams.push(begin(gateway, Bytes::from(vec![nth])).await);
        let expected = if nth < 4 { (0, 0) } else { (1, 4) };
        let (publications, sends, _) = since.last(gateway);
        assert_eq!((publications, sends), expected, "after {nth}");
    }
    // Half of a batch.
    streams.push(begin(gateway, Bytes::from_static(&[5])).await);
    streams.push(begin(gateway, Bytes::from_static(&[6])).await);
    assert_eq!(since.last(gateway).0, 0);
    for (stream, nth) in streams.iter().zip(1..) {
        assert_eq!(soon("an answer", read_message(stream)).await, Some(Bytes::from(vec![nth])));
    }
    // Others of a session publish what is held as well; what they say comes with it.
    assert!((1..=2).contains(&since.last(gateway).0));

    // Changed over while a batch is held: it goes at once.
    let held = begin(gateway, Bytes::from_static(b"held")).await;
    assert_eq!(since.last(gateway).0, 0);
    gateway.set_registers(&registers("auto", "1"));
    assert_eq!(since.last(gateway).0, 1);
    assert!(soon("an answer", read_message(&held)).await.is_some());
    since.last(gateway);
    let one = begin(gateway, Bytes::from_static(b"one")).await;
    assert_eq!(since.last(gateway).0, 1, "one by one");
    assert!(soon("an answer", read_message(&one)).await.is_some());
}

#[tokio::test]
async fn one_ring_is_for_as_many_requests_as_the_register_says_or_for_those_that_there_are_in_time() {
    let _limit = TimeLimit::seconds(60);
    let Ends { gateway, .. } = &attached(WaitPolicy::Park).await;
    let mut since = Since(gateway.announced());
    for (mode, expected) in [("doorbell", [1, 0, 0]), ("doorbell-batch:3", [0, 0, 1])] {
        gateway.set_registers(&registers(mode, "1").with_hold_us(10_000).unwrap());
        let began = Instant::now();
        // Until the process sleeps before the first and through all three, which a busy machine may spoil.
        loop {
            call(gateway, Bytes::from_static(b"awake")).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            since.last(gateway);
            let (mut streams, mut rings) = (Vec::new(), Vec::new());
            for nth in 0..3_u8 {
                streams.push(begin(gateway, Bytes::from(vec![nth])).await);
                rings.push(since.last(gateway).2);
            }
            for stream in &streams {
                assert!(soon("an answer", read_message(stream)).await.is_some(), "{mode}");
            }
            if rings == expected {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "{mode}: {rings:?}");
        }
        // Fewer than it takes are rung for all the same.
        for _ in 0..20 {
            call(gateway, Bytes::from_static(b"alone")).await;
        }
    }
    // Changed over while a ring is owed: it is given at once, or the process is awake.
    gateway.set_registers(&registers("doorbell-batch:64", "1").with_hold_us(10_000).unwrap());
    for _ in 0..20 {
        let owed = begin(gateway, Bytes::from_static(b"owed")).await;
        gateway.set_registers(&registers("doorbell", "1"));
        assert!(soon("an answer", read_message(&owed)).await.is_some());
        gateway.set_registers(&registers("doorbell-batch:64", "1"));
    }
}

/// Rings for calls that come one by one with a pause between.
async fn rings_for(gateway: &Attachment, count: u64, pause: Duration) -> u64 {
    let before = gateway.announced().rings;
    for _ in 0..count {
        call(gateway, Bytes::from_static(b"x")).await;
        tokio::time::sleep(pause).await;
    }
    gateway.announced().rings - before
}

#[tokio::test]
async fn a_process_that_is_asked_to_look_is_not_rung_and_sleeps_when_nobody_has_called_for_long() {
    let _limit = TimeLimit::seconds(120);
    for wait in [WaitPolicy::Adaptive, WaitPolicy::LowLatency] {
        let Ends { gateway, .. } = &attached(wait).await;
        let few = Duration::from_micros(300);
        let began = Instant::now();
        loop {
            gateway.set_registers(&registers("doorbell", "auto"));
            rings_for(gateway, 5, few).await;
            let asleep = rings_for(gateway, 50, few).await;
            let mut rings = Vec::new();
            for mode in ["coherent:4", "inline"] {
                gateway.set_registers(&registers(mode, "auto"));
                rings_for(gateway, 5, few).await;
                rings.push(rings_for(gateway, 50, few).await);
            }
            // A machine that keeps the process from its processor has it sleep: its own promise is what counts.
            if asleep > 40 && rings.iter().all(|looking| *looking < 10) {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(40), "{wait:?}: {asleep} rings, looking {rings:?}");
        }
        // Idle for longer than it looks: it has gone to sleep, and each call is rung for once.
        let mut short = registers("coherent:4", "auto");
        short.spin = "100".parse().unwrap();
        gateway.set_registers(&short);
        rings_for(gateway, 1, few).await;
        assert!(rings_for(gateway, 10, Duration::from_millis(30)).await >= 5);
    }
}

#[tokio::test]
async fn a_process_that_must_never_spin_is_rung_in_each_mode() {
    let _limit = TimeLimit::seconds(60);
    let Ends { gateway, .. } = &attached(WaitPolicy::Park).await;
    for mode in ["coherent:4", "inline", "auto", "doorbell", "doorbell-batch:2"] {
        gateway.set_registers(&registers(mode, "auto"));
        assert!(rings_for(gateway, 20, Duration::from_millis(1)).await > 10, "{mode}");
    }
}

#[tokio::test]
async fn beyond_a_load_polling_replaces_the_doorbell() {
    let _limit = TimeLimit::seconds(120);
    let Ends { gateway, .. } = &attached(WaitPolicy::Adaptive).await;
    let mut asks = registers("doorbell", "auto");
    asks.poll_load = 300;
    let few = Duration::from_micros(300);
    let began = Instant::now();
    loop {
        gateway.set_registers(&registers("doorbell", "auto"));
        let below = rings_for(gateway, 100, few).await;
        gateway.set_registers(&asks);
        rings_for(gateway, 40, few).await;
        let beyond = rings_for(gateway, 100, few).await;
        // One in 60 ms is too few.
        let seldom = rings_for(gateway, 5, Duration::from_millis(60)).await;
        if below > 80 && beyond < 30 && seldom >= 3 {
            return;
        }
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "{below} rings, {beyond} beyond the load, {seldom}"
        );
    }
}

/// Twelve callers, and all modes in turn: each call has its own answer once, and nobody stands still.
#[test]
fn registers_change_under_load_and_each_call_is_answered_once() {
    let _limit = TimeLimit::seconds(120);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let ends = attached(WaitPolicy::Adaptive).await;
        let (is_over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut callers = JoinSet::new();
        for number in 0..12_u32 {
            let (gateway, is_over, answered) = (ends.gateway.clone(), is_over.clone(), answered.clone());
            callers.spawn(async move {
                let mut count = 0_u32;
                while !is_over.load(Ordering::SeqCst) {
                    let message = [number.to_be_bytes(), count.to_be_bytes()].concat();
                    call(&gateway, message.into()).await;
                    answered.fetch_add(1, Ordering::SeqCst);
                    count += 1;
                }
                count
            });
        }
        let modes = [
            "auto",
            "inline",
            "doorbell",
            "doorbell-batch:3",
            "doorbell-batch:64",
            "coherent:1",
            "coherent:64",
        ];
        for round in 0..6 {
            for mode in modes {
                for batch in ["auto", "1", "5", "64"] {
                    let mut registers = registers(mode, batch);
                    registers.spin = ["auto", "0", "50"][round % 3].parse().unwrap();
                    registers.poll_load = [0, 1, 1_000_000][round % 3];
                    ends.gateway.set_registers(&registers);
                    let (goal, began) = (answered.load(Ordering::SeqCst) + 12, Instant::now());
                    while answered.load(Ordering::SeqCst) < goal {
                        assert!(
                            began.elapsed() < Duration::from_secs(30),
                            "{mode}, {batch}: calls stand still"
                        );
                        tokio::time::sleep(Duration::from_micros(200)).await;
                    }
                }
            }
        }
        is_over.store(true, Ordering::SeqCst);
        let mut calls = 0;
        while let Some(caller) = callers.join_next().await {
            calls += caller.expect("each call has its own answer");
        }
        assert_eq!(calls as usize, answered.load(Ordering::SeqCst));
        assert_eq!(ends.gateway.live_count(), 0, "no call is left over");
    });
}
