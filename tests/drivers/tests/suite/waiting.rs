//! Sleep and wake-ups.

use std::time::Duration;

use rustix::process::Signal;
use tollfree_driver_tokio::WaitPolicy;
use tollfree_testkit::{Process, cpu_time};

use bytes::Bytes;

use crate::driver::{Place, Settings, Start, Told};
use crate::service::{ECHO, pattern};

/// Each pause is long enough for both ends to sleep, or just too short, or so that one is about to.
pub(crate) fn calls_after_pauses_are_answered_under_each_policy(place: &Place) {
    for wait in [WaitPolicy::Park, WaitPolicy::Adaptive, WaitPolicy::LowLatency] {
        let settings = Settings { wait, ..Settings::default() };
        let (_server, mut client) = place.both(&settings);
        for nth in 0..120_u32 {
            let pause = [0, 1, 5, 20, 60, 150, 400, 3_000][nth as usize % 8];
            std::thread::sleep(Duration::from_micros(pause));
            let message = pattern(nth, nth as usize % 3 * 500);
            let answer = client.call(Start::unary(ECHO, message.clone()));
            assert!(answer.code == 0 && answer.messages == [message], "{wait:?}, call {nth}");
        }
    }
}

/// A peer that is stopped keeps its clients waiting, and costs them no more than sleep; then all goes on.
pub(crate) fn a_stopped_server_goes_on_where_it_was(place: &Place) {
    let server = Process::start_ready("ends::server", &place.path(), place.server.name);
    let mut client = place.connect(&Settings::default());
    assert_eq!(client.call(Start::unary(ECHO, "hello")).code, 0);
    server.signal(Signal::STOP);
    // More than the ring takes.
    let calls: Vec<u64> =
        (0..50).map(|nth| client.begin(Start::unary(ECHO, pattern(nth, 6_000))).unwrap()).collect();
    assert_eq!(client.next_within(Duration::from_millis(50)), None);
    let before = cpu_time();
    assert_eq!(client.next_within(Duration::from_millis(200)), None);
    let took = cpu_time() - before;
    assert!(took < Duration::from_millis(100), "{took:?} of 200 ms");
    server.signal(Signal::CONT);
    let (mut ended, mut came) = (0, 0);
    while ended < calls.len() {
        match client.next() {
            Told::Message(call, message) => {
                assert!(message == pattern((call - calls[0]) as u32, 6_000));
                came += 1;
            }
            Told::Ended { code, .. } => {
                assert_eq!(code, 0);
                ended += 1;
            }
            _ => {}
        }
    }
    assert_eq!(came, calls.len());
}

/// Nothing happens, and nobody looks whether something does.
pub(crate) fn ends_that_sleep_take_no_processor_time(place: &Place) {
    for wait in [WaitPolicy::Park, WaitPolicy::Adaptive] {
        let settings = Settings { wait, ..Settings::default() };
        let (_server, mut client) = place.both(&settings);
        assert_eq!(client.call(Start::unary(ECHO, "hello")).code, 0);
        let open = client.begin(Start::open(ECHO)).unwrap();
        assert_eq!(client.next(), Told::Headers(open, Bytes::new()));
        // Both ends are about to sleep.
        assert_eq!(client.next_within(Duration::from_millis(20)), None);
        let before = cpu_time();
        assert_eq!(client.next_within(Duration::from_millis(400)), None);
        let took = cpu_time() - before;
        assert!(took < Duration::from_millis(100), "{took:?} of 400 ms, {wait:?}");
        client.finish(open);
        assert_eq!(client.answer(open).code, 0);
    }
}
