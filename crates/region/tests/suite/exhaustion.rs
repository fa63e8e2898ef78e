//! Running out of something is an error that says so, and of the kind that may pass. Limits are of the whole
//! process, so the test is alone in it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tollfree_region::{Region, RegionError};

use crate::alone;

fn exhausted(len: usize, step: &str, advice: &str) {
    let error = Region::create("exhausted", len).unwrap_err();
    assert!(error.is_exhausted() && !error.is_peer_fault(), "{error}");
    let words = error.to_string();
    assert!(words.contains(step) && words.contains(advice) && words.contains(&len.to_string()), "{words}");
    assert!(matches!(error, RegionError::Exhausted { len: said, .. } if said == len));
}

fn with_limit(resource: Resource, current: u64, then: impl FnOnce()) {
    let before = getrlimit(resource);
    setrlimit(resource, Rlimit { current: Some(current), maximum: before.maximum }).unwrap();
    then();
    setrlimit(resource, before).unwrap();
}

#[test]
fn running_out_is_said_in_words() {
    alone!();
    drop(Region::create("exhausted", 4096).unwrap());
    for len in [1 << 63, usize::MAX] {
        exhausted(len, "ftruncate", "ask for less");
    }
    // More than the address space has: noticed before anything is reserved.
    exhausted(1 << 60, "mmap", "free memory");
    // Without the check this would be a signal that kills the process.
    with_limit(Resource::Fsize, 1 << 20, || {
        exhausted((1 << 20) + 1, "ftruncate", "ulimit -f");
        Region::create("exhausted", 1 << 20).unwrap();
    });
    with_limit(Resource::Nofile, 0, || exhausted(4096, "memfd_create", "ulimit -n"));
    with_limit(Resource::As, 1 << 20, || exhausted(64 << 20, "mmap", "memory limits"));
    drop(Region::create("exhausted", 4096).unwrap());
}
