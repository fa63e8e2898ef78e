//! A machine that gives no memory: found out when memory is reserved, and never a signal later.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tollfree_pool::{AllocError, Capacity, Config, OverlayError, Payload, Pool, Shortage, WhenShort};
use tollfree_testkit::alone;

use crate::place::{Place, capacity, config};

/// Fault 22. Tests here are alone, as they lower limits of the whole process.
#[test]
fn no_space_is_a_clean_error_and_over_when_there_is_some() {
    alone!();
    let place = Place::new();
    let large = Capacity { total: 16 << 20, member_quota: 8 << 20, batch: 4 << 20 };
    let impatient = Config { when_short: WhenShort::Wait(Duration::from_millis(100)), ..config() };
    let pool = Pool::create(&place.address, large, impatient).unwrap();
    let before = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(1 << 20), ..before }).unwrap();
    let refused = pool.buffer(2 << 20).unwrap_err();
    assert!(matches!(refused, AllocError::Exhausted { by: Shortage::Machine, .. }), "{refused}");
    assert_eq!((pool.usage().total_bytes, pool.counts().exhausted), (0, 1));
    setrlimit(Resource::Fsize, before).unwrap();
    // What was granted and not made has gone back: the whole quota is there.
    let halves: Vec<_> = (0..2).map(|_| pool.buffer(4 << 20).unwrap()).collect();
    assert_eq!((halves.len(), pool.usage().total_bytes), (2, 8 << 20));
    assert!(capacity().total < large.total, "small pools of other tests would not reach the limit");
}

/// Fault 22: addresses are found to be short when an overlay is made, and not when it is written.
#[test]
fn no_room_for_an_overlay_is_a_clean_error_and_over_when_there_is_some() {
    alone!();
    let place = Place::new();
    let batch = 64 << 20;
    let large = Capacity { total: batch, member_quota: batch, batch };
    let pool = Pool::create(&place.address, large, config()).unwrap();
    let mut buffer = pool.buffer(batch as usize).unwrap();
    buffer.resize(batch as usize);
    let whole = Payload::from(buffer);
    let before = getrlimit(Resource::As);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let used = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let used_kib: u64 = used.trim().trim_end_matches(" kB").parse().unwrap();
    setrlimit(Resource::As, Rlimit { current: Some((used_kib << 10) + batch / 2), ..before }).unwrap();
    let refused = whole.overlay();
    setrlimit(Resource::As, before).unwrap();
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, OverlayError::Region(_)) && refused.to_string().contains("memory"),
        "{refused}"
    );
    let mut overlay = whole.overlay().unwrap();
    overlay[0] = 1;
    assert_eq!((overlay[0], overlay.len()), (1, batch as usize));
}
