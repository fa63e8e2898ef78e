//! A machine that gives no memory: found out when memory is reserved, and never a signal later.

mod place;

use std::time::Duration;

use place::{BATCH, Place, capacity, config};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tollfree_pool::{AllocError, Capacity, Config, Pool, Shortage, WhenShort};

/// Fault 22. The only test here, as it lowers a limit of the whole process.
#[test]
fn no_space_is_a_clean_error_and_over_when_there_is_some() {
    let place = Place::new();
    let large = Capacity { total: 16 << 20, member_quota: 8 << 20, batch: 4 << 20 };
    let impatient = Config { when_short: WhenShort::Wait(Duration::from_millis(100)), ..config() };
    let pool = Pool::create(&place.address, large, impatient).unwrap();
    let before = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(1 << 20), ..before }).unwrap();
    let refused = pool.buffer(BATCH as usize).unwrap_err();
    assert!(matches!(refused, AllocError::Exhausted { by: Shortage::Machine, .. }), "{refused}");
    assert_eq!((pool.usage().total_bytes, pool.counts().exhausted), (0, 1));
    setrlimit(Resource::Fsize, before).unwrap();
    // What was granted and not made has gone back: the whole quota is there.
    let halves: Vec<_> = (0..2).map(|_| pool.buffer(4 << 20).unwrap()).collect();
    assert_eq!((halves.len(), pool.usage().total_bytes), (2, 8 << 20));
    assert!(capacity().total < large.total, "small pools of other tests would not reach the limit");
}
