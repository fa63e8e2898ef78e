//! Threads that share a channel take turns.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::support::{Both, LONG, echo, unary};

#[test]
fn each_thread_gets_its_own_answers() {
    let both = Both::new(4, echo);
    std::thread::scope(|scope| {
        for thread in 0..8_u32 {
            let channel = both.channel.clone();
            scope.spawn(move || {
                for nth in 0..300_u32 {
                    let message = Bytes::from(format!("{thread}, {nth}"));
                    let answer = channel.unary(unary("/test.Echo/Call", message.clone())).unwrap();
                    assert_eq!(answer.bytes, message);
                }
            });
        }
    });
}

/// A thread that has its answer hands the loop on, also where it calls again at once.
#[test]
fn no_thread_is_left_behind() {
    const THREADS: usize = 8;
    let both = Both::new(4, echo);
    let counts = [const { AtomicU64::new(0) }; THREADS];
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for count in &counts {
            let (channel, is_over) = (both.channel.clone(), &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    channel.unary(unary("/test.Echo/Call", "hello")).unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        is_over.store(true, Ordering::Relaxed);
    });
    let counts: Vec<u64> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least > 0 && *most <= least * 4, "{counts:?}");
}

/// Where nobody waits, a client sees to its calls by itself.
#[test]
fn a_call_that_nobody_waits_for_ends_at_its_deadline() {
    let both = Both::new(1, |call: &tollfree_driver_blocking::ServedCall| {
        let _ = call.wait_cancelled(LONG);
    });
    let deadline_ns = Some(tollfree_os::clock::now_ns() + 20_000_000);
    let start = tollfree_driver_blocking::CallStart { deadline_ns, ..unary("/test.Silent/Call", "hello") };
    let call = both.channel.begin(start);
    crate::support::eventually("the call does not end", || call.is_over());
    assert_eq!(call.status().code, 4);
}

/// One thread reads what another one's call brings.
#[test]
fn one_thread_writes_and_another_reads() {
    let both = Both::new(1, |call: &tollfree_driver_blocking::ServedCall| {
        while let Some(message) = call.receive() {
            let _ = call.send(message);
        }
        let _ = call.answer_end(0, Bytes::new());
    });
    let call = both.channel.begin(tollfree_driver_blocking::CallStart::new("/test.Echo/Stream"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for nth in 0..2_000_u32 {
                call.send(Bytes::from(vec![nth as u8; 500])).unwrap();
            }
            call.finish();
        });
        for nth in 0..2_000_u32 {
            let message = call.receive().expect("a message");
            assert_eq!(message.bytes, vec![nth as u8; 500]);
        }
        assert_eq!(call.receive(), None);
    });
    assert_eq!(call.status().code, 0);
}
