//! What every engine has to do.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tollfree_driver_tokio::*;

use super::lab::{Lab, PATIENCE, Pair, in_time};

use crate::echo::{accept, begin, call, check_calls, read_message, read_request, reply, serve};

fn echo(pair: &Pair) -> tokio::task::JoinHandle<Closed> {
    let backends = pair.backends.clone();
    tokio::spawn(async move { serve(&backends).await })
}

async fn say(stream: &Stream, message: Option<Vec<u8>>, ending: Option<Ending>) {
    let message = message.map(|bytes| OutgoingMessage::new(bytes.into(), false));
    let mut outgoing = Outgoing { message, ending, ..Outgoing::default() };
    in_time(poll_fn(|cx| stream.poll_send(cx, &mut outgoing))).await.unwrap();
}

/// What has come of a stream, and was not read yet.
#[derive(Default)]
struct Reader {
    bytes: Vec<u8>,
    is_over: bool,
}

/// The next message of a stream, without gRPC's prefix; `None` at its end.
async fn next(stream: &Stream, reader: &mut Reader) -> Option<Vec<u8>> {
    loop {
        let bytes = &mut reader.bytes;
        if let Some(len) = bytes.get(1..5).map(|len| u32::from_be_bytes(len.try_into().unwrap()) as usize)
            && bytes.len() >= 5 + len
        {
            let rest = bytes.split_off(5 + len);
            return Some(std::mem::replace(bytes, rest).split_off(5));
        }
        if reader.is_over {
            return None;
        }
        reader.add(in_time(poll_fn(|cx| stream.poll_incoming(cx))).await.ok()?);
    }
}

impl Reader {
    fn add(&mut self, incoming: Incoming) {
        let part = incoming.into_part();
        if let Some(chunk) = part.chunk {
            self.bytes.extend_from_slice(&chunk.bytes);
        }
        self.is_over = part.end.is_some();
    }
}

fn numbered(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at * 7) as u8).collect()
}

/// Opens a call and leaves it open for more.
async fn open(attachment: &Attachment) -> Stream {
    let opening = Opening { path: "/test.Echo/Call", deadline_ns: 0 };
    let mut outgoing = Outgoing { headers: Some(Bytes::new()), ..Outgoing::default() };
    let mut opener = attachment.open();
    in_time(poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing))).await.unwrap()
}

async fn headers(call: &Call) {
    let mut outgoing = Outgoing { headers: Some(Bytes::new()), ..Outgoing::default() };
    in_time(poll_fn(|cx| call.stream.poll_send(cx, &mut outgoing))).await.unwrap();
}

pub(crate) async fn calls_of_all_four_kinds_are_answered(lab: &mut Lab) {
    let pair = lab.pair().await;
    for (sent, answered) in [(1, 1), (1, 40), (40, 1), (40, 40)] {
        let backends = pair.backends.clone();
        let serving = tokio::spawn(async move {
            let mut call = accept(&backends).await.unwrap();
            let mut kept = Reader::default();
            // What has come with the call lies before what comes.
            if let Some(first) = call.first.take() {
                kept.add(first);
            }
            headers(&call).await;
            let mut count = 0;
            while count < sent {
                let message = next(&call.stream, &mut kept).await.unwrap();
                assert_eq!(message, numbered(count, 100 + count));
                count += 1;
            }
            for number in 0..answered {
                say(&call.stream, Some(numbered(number, 200 + number)), None).await;
            }
            let end = Ending::Trailers { code: 0, block: Bytes::new() };
            say(&call.stream, None, Some(end)).await;
        });
        let stream = open(&pair.gateway).await;
        for number in 0..sent {
            say(&stream, Some(numbered(number, 100 + number)), None).await;
        }
        say(&stream, None, Some(Ending::HalfClose)).await;
        let mut kept = Reader::default();
        for number in 0..answered {
            assert_eq!(next(&stream, &mut kept).await, Some(numbered(number, 200 + number)));
        }
        assert_eq!(next(&stream, &mut kept).await, None);
        in_time(serving).await.unwrap();
    }
}

pub(crate) async fn messages_of_one_call_come_in_their_order_and_whole(lab: &mut Lab) {
    let pair = lab.pair().await;
    let stream = open(&pair.gateway).await;
    let reading = async {
        let call = accept(&pair.backends).await.unwrap();
        let mut kept = Reader::default();
        for number in 0..500 {
            let message = next(&call.stream, &mut kept).await.unwrap();
            assert_eq!(message, numbered(number, number * 97 % 9000), "message {number}");
        }
    };
    let writing = async {
        for number in 0..500 {
            say(&stream, Some(numbered(number, number * 97 % 9000)), None).await;
        }
    };
    tokio::join!(reading, writing);
}

pub(crate) async fn large_messages_go_both_ways(lab: &mut Lab) {
    let pair = lab.pair().await;
    let _echo = echo(&pair);
    for len in [31 << 10, 32 << 10, 33 << 10, 1 << 20, 3 << 20] {
        let message = Bytes::from(numbered(len, len));
        assert_eq!(in_time(call(&pair.gateway, message.clone())).await, Some(message), "{len} bytes");
    }
}

pub(crate) async fn calls_beyond_the_limit_wait_and_none_is_lost(lab: &mut Lab) {
    lab.config.limits.stream_count = 8;
    let pair = lab.pair().await;
    let _echo = echo(&pair);
    let calls: Vec<_> = (0..200)
        .map(|number| {
            let gateway = pair.gateway.clone();
            tokio::spawn(async move {
                let message = Bytes::from(numbered(number, 1 + number * 11));
                assert_eq!(call(&gateway, message.clone()).await, Some(message), "call {number}");
            })
        })
        .collect();
    for call in calls {
        in_time(call).await.unwrap();
    }
    assert_eq!(pair.gateway.live_count(), 0);
}

pub(crate) async fn a_reader_that_does_not_read_holds_its_writer_up_and_nobody_else(lab: &mut Lab) {
    let pair = lab.pair().await;
    let stream = open(&pair.gateway).await;
    let stuck = accept(&pair.backends).await.unwrap();
    let mut outgoing = Outgoing {
        message: Some(OutgoingMessage::new(numbered(0, 2 << 20).into(), false)),
        ..Outgoing::default()
    };
    let mut writing = Box::pin(poll_fn(|cx| stream.poll_send(cx, &mut outgoing)));
    // It has credit for 64 KiB, and none comes.
    let written = tokio::time::timeout(Duration::from_millis(200), &mut writing).await;
    written.expect_err("nobody reads");
    let _echo = echo(&pair);
    in_time(check_calls(&pair.gateway, 50)).await;
    let mut kept = Reader::default();
    let (read, written) = tokio::join!(next(&stuck.stream, &mut kept), in_time(writing));
    written.unwrap();
    assert!(read == Some(numbered(0, 2 << 20)));
}

pub(crate) async fn a_side_that_sleeps_is_woken_each_time(lab: &mut Lab) {
    let pair = lab.pair().await;
    let _echo = echo(&pair);
    for number in 0..300usize {
        // Long enough at times for either side to have gone to sleep, and short enough for neither.
        if number.is_multiple_of(3) {
            tokio::time::sleep(Duration::from_micros(700)).await;
        }
        let message = Bytes::from(numbered(number, 64));
        assert_eq!(in_time(call(&pair.gateway, message.clone())).await, Some(message), "call {number}");
    }
}

pub(crate) async fn a_call_that_is_cancelled_ends_at_the_other_side(lab: &mut Lab) {
    let pair = lab.pair().await;
    let stream = open(&pair.gateway).await;
    let under_way = accept(&pair.backends).await.unwrap();
    drop(stream);
    let end = in_time(poll_fn(|cx| under_way.stream.poll_incoming(cx))).await;
    let end = end.map(|incoming| incoming.into_part().end);
    assert!(matches!(end, Ok(Some(End::Cancelled { .. })) | Err(_)), "{end:?}");
    let _echo = echo(&pair);
    in_time(check_calls(&pair.gateway, 3)).await;
}

pub(crate) async fn deadlines_are_the_same_moment_at_both_sides(lab: &mut Lab) {
    let pair = lab.pair().await;
    let deadline_ns = now_ns() + 3_000_000_000;
    let opening = Opening { path: "/test.Echo/Call", deadline_ns };
    let mut outgoing = Outgoing { headers: Some(Bytes::new()), ..Outgoing::default() };
    let mut opener = pair.gateway.open();
    let _stream = in_time(poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing))).await.unwrap();
    let call = accept(&pair.backends).await.unwrap();
    // Later by what the handshake's message was on its way, at the most.
    let told_ns = call.deadline_ns.expect("it was told");
    assert!(
        told_ns.abs_diff(deadline_ns) < PATIENCE.as_nanos() as u64,
        "off by {}",
        told_ns.abs_diff(deadline_ns)
    );
    assert!(told_ns >= deadline_ns - 1_000_000, "never sooner, but for a millisecond");
}

pub(crate) async fn load_is_told_with_what_is_said_anyway(lab: &mut Lab) {
    let pair = lab.pair().await;
    let _echo = echo(&pair);
    assert!(pair.gateway.shares_load() && pair.backends.shares_load());
    for count in [7, 0, 41] {
        pair.backends.report_load(count);
        in_time(check_calls(&pair.gateway, 1)).await;
        assert_eq!(pair.gateway.peer_load(), Some(count));
    }
}

pub(crate) async fn a_server_that_drains_answers_what_is_under_way(lab: &mut Lab) {
    let pair = lab.pair().await;
    let stream = begin(&pair.gateway, "last".into()).await.unwrap();
    let mut call = accept(&pair.backends).await.unwrap();
    pair.backends.drain();
    in_time(poll_fn(|cx| pair.gateway.poll_over(cx))).await;
    begin(&pair.gateway, "late".into()).await.map(drop).expect_err("it takes no more");
    let message = read_request(&mut call).await.unwrap();
    reply(&call, message).await;
    assert_eq!(in_time(read_message(&stream)).await.as_deref(), Some(&b"last"[..]));
}

pub(crate) async fn a_reset_at_each_step_ends_calls_and_the_next_session_is_whole(lab: &mut Lab) {
    // Before a call, with one that nobody has looked at, with one that is being answered; by either side.
    for step in 0..6 {
        let pair = lab.pair().await;
        let mut streams = Vec::new();
        let mut calls = Vec::new();
        if step / 2 > 0 {
            streams.push(begin(&pair.gateway, numbered(step, 20_000).into()).await.unwrap());
        }
        if step / 2 > 1 {
            calls.push(accept(&pair.backends).await.unwrap());
        }
        let Pair { gateway, backends } = pair;
        let survivor: Arc<Attachment> = if step % 2 == 0 {
            backends.close("reset");
            drop(backends);
            gateway
        } else {
            gateway.close("reset");
            drop(gateway);
            backends
        };
        let ended = async {
            while survivor.closed().is_none() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        in_time(ended).await;
        for stream in streams {
            assert_eq!(in_time(read_message(&stream)).await, None, "step {step}");
        }
        let next = lab.pair().await;
        let _echo = echo(&next);
        in_time(check_calls(&next.gateway, 5)).await;
    }
}

pub(crate) async fn what_is_published_before_an_end_is_there(lab: &mut Lab) {
    let pair = lab.pair().await;
    let stream = begin(&pair.gateway, "ask".into()).await.unwrap();
    let mut call = accept(&pair.backends).await.unwrap();
    let message = read_request(&mut call).await.unwrap();
    reply(&call, message).await;
    drop(call);
    pair.backends.close("all is said");
    assert_eq!(in_time(read_message(&stream)).await.as_deref(), Some(&b"ask"[..]));
    let ended = async {
        while pair.gateway.closed().is_none() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    in_time(ended).await;
    let why = pair.gateway.closed().unwrap().to_string();
    assert!(why.contains("all is said"), "{why}");
}

fn registers(doorbell: &str, batch: &str) -> Registers {
    let mut registers = Registers::default();
    (registers.doorbell, registers.batch) = (doorbell.parse().unwrap(), batch.parse().unwrap());
    registers
}

pub(crate) async fn a_fixed_batch_is_published_as_a_whole_or_when_its_time_is_over(lab: &mut Lab) {
    let (gateway, _) = lab.apart().await;
    in_time(check_calls(&gateway, 1)).await;
    gateway.set_registers(&registers("auto", "4").with_hold_us(10_000).unwrap());
    let published = |before: Announced| gateway.announced().publications - before.publications;
    for count in [4_usize, 3] {
        let before = gateway.announced();
        let mut streams = Vec::new();
        for nth in 1..=count {
            streams.push(begin(&gateway, numbered(nth, 64).into()).await.unwrap());
            assert_eq!(published(before), u64::from(nth == 4), "after {nth} of {count}");
        }
        for (stream, nth) in streams.iter().zip(1..) {
            assert_eq!(in_time(read_message(stream)).await, Some(numbered(nth, 64).into()));
        }
    }
}

pub(crate) async fn a_process_looks_or_sleeps_as_it_is_asked(lab: &mut Lab) {
    let (gateway, backends) = lab.apart().await;
    let began = Instant::now();
    loop {
        let mut slept = Vec::new();
        for mode in ["doorbell", "coherent:4", "doorbell-batch:2", "inline"] {
            gateway.set_registers(&registers(mode, "auto"));
            // It heeds that when it waits the next time.
            in_time(check_calls(&gateway, 3)).await;
            let before = backends.sleeps();
            for _ in 0..50 {
                in_time(check_calls(&gateway, 1)).await;
                tokio::time::sleep(Duration::from_micros(300)).await;
            }
            slept.push(backends.sleeps() - before);
        }
        // A machine that keeps the process from its processor makes it sleep. On a stream nobody looks: what comes wakes it.
        let looks = if lab.is_stream() { slept[1].min(slept[3]) > 40 } else { slept[1].max(slept[3]) < 15 };
        if slept[0].min(slept[2]) > 40 && looks {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "it slept {slept:?} times in 50 calls each");
    }
}

pub(crate) async fn registers_change_under_load_and_no_call_is_lost(lab: &mut Lab) {
    let (gateway, _) = lab.apart().await;
    let is_over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..12)
        .map(|number| {
            let (gateway, is_over) = (gateway.clone(), is_over.clone());
            tokio::spawn(async move {
                for count in 0.. {
                    let message = Bytes::from(numbered(number * 1000 + count, 64));
                    assert_eq!(in_time(call(&gateway, message.clone())).await, Some(message));
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                }
            })
        })
        .collect();
    let modes =
        ["inline", "doorbell-batch:64", "coherent:64", "doorbell", "coherent:1", "doorbell-batch:3", "auto"];
    for (mode, spin) in modes.iter().zip(["auto", "0", "50"].iter().cycle()) {
        for batch in ["5", "1", "64", "auto"] {
            let mut registers = registers(mode, batch);
            registers.spin = spin.parse().unwrap();
            registers.poll_load = 1000 * u32::from(batch == "5");
            gateway.set_registers(&registers);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    is_over.store(true, Ordering::SeqCst);
    for caller in callers {
        in_time(caller).await.expect("each call has its own answer");
    }
    assert_eq!(gateway.live_count(), 0);
}
