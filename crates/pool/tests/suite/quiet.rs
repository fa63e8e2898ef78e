//! What a pool costs while nothing happens, and what it leaves: tests that must be alone in their process.

use std::time::Duration;

use tollfree_pool::{AllocError, Capacity, Config, Pool, Shortage, WhenShort};
use tollfree_testkit::{Census, alone};

use crate::place::{BATCH, Place, capacity, config, until};

#[test]
fn nothing_is_left_when_members_leave() {
    alone!();
    let place = Place::new();
    let before = Census::take();
    {
        let (writer, reader) = (place.create(), place.join());
        let shared = writer.copy_from_slice(&vec![5; 50_000]).unwrap();
        let seen = reader.map_ref(&shared.to_bytes().unwrap()).unwrap();
        // The owner leaves first: what is read stays.
        drop((shared, writer));
        assert_eq!(&seen[..], vec![5; 50_000]);
        assert!(!before.eq(&Census::take()));
    }
    before.assert_back();
}

#[test]
fn exhausted_is_an_error_that_is_counted_and_waited_for_without_spinning() {
    alone!();
    let place = Place::new();
    let all = Capacity { total: BATCH, member_quota: BATCH, batch: BATCH };
    let patient = Config { when_short: WhenShort::Wait(Duration::from_millis(400)), ..config() };
    let holder = Pool::create(&place.address, all, patient).unwrap();
    let other = Pool::join(&place.address, patient).unwrap();
    let held = holder.buffer(BATCH as usize).unwrap();
    let mut exhausted_count = 0;
    until("a wait that hardly takes processor time", || {
        let before = tollfree_testkit::cpu_time();
        let began = std::time::Instant::now();
        let refused = other.buffer(1).unwrap_err();
        assert!(began.elapsed() >= Duration::from_millis(400));
        let used = tollfree_testkit::cpu_time() - before;
        assert!(matches!(refused, AllocError::Exhausted { by: Shortage::Capacity, .. }), "{refused}");
        exhausted_count += 1;
        used < Duration::from_millis(200)
    });
    assert_eq!(other.counts().exhausted, exhausted_count);
    let strict = Pool::join(&place.address, Config { when_short: WhenShort::Fail, ..config() }).unwrap();
    assert!(matches!(strict.buffer(1), Err(AllocError::Exhausted { .. })), "by policy, at once");
    // A member that waits gets what is let go meanwhile.
    let waiter = Pool::join(&place.address, config()).unwrap();
    let thread = std::thread::spawn(move || waiter.buffer(1).map(|buffer| buffer.capacity()));
    std::thread::sleep(Duration::from_millis(30));
    drop(held);
    assert_eq!(thread.join().unwrap().unwrap(), 1);
}

#[test]
fn an_idle_member_uses_no_processor() {
    alone!();
    let place = Place::new();
    let (writer, reader) =
        (Pool::create(&place.address, capacity(), Config::default()).unwrap(), place.join());
    let shared = writer.copy_from_slice(&[1; 5_000]).unwrap();
    let _seen = reader.map_ref(&shared.to_bytes().unwrap()).unwrap();
    // A busy machine charges a process with what it does to others: one quiet half of a second is enough.
    until("half a second with hardly any processor time", || {
        let before = tollfree_testkit::cpu_time();
        std::thread::sleep(Duration::from_millis(500));
        tollfree_testkit::cpu_time() - before < Duration::from_millis(25)
    });
}
