//! Fault 24: a forked child is no member of its parent's pool, and what it drops stays its parent's.

use tollfree_pool::{AllocError, OverlayError, Payload, Pool, RefError};
use tollfree_testkit::alone;

use crate::place::{self, Place};

/// What the child finds; it can't assert, as a panic would run the parent's test harness.
fn child(
    pool: Pool,
    shared: tollfree_pool::Ref,
    overlay: tollfree_pool::Overlay,
    wire: &[u8],
    place: &Place,
) -> i32 {
    if !matches!(pool.try_buffer(1), Err(AllocError::Forked)) {
        return 1;
    }
    if !matches!(pool.try_map_ref(wire), Err(RefError::Forked))
        || !matches!(shared.to_bytes(), Err(RefError::Forked))
    {
        return 2;
    }
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| shared[0]));
    if read.is_ok() {
        return 3;
    }
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| overlay[0]));
    if read.is_ok()
        || !matches!(overlay.share(), Err(AllocError::Forked))
        || !matches!(Payload::from(shared.clone()).overlay(), Err(OverlayError::Forked))
    {
        return 6;
    }
    drop((pool, shared, overlay));
    // A member of its own is another matter.
    let Ok(own) = Pool::join(&place.address, place::config()) else { return 4 };
    match own.map_ref(wire) {
        Ok(seen) if seen[..] == [7; 5_000] => 0,
        _ => 5,
    }
}

#[test]
fn a_forked_child_is_no_member_and_gives_nothing_back() {
    alone!();
    let place = Place::new();
    let pool = place.create();
    let shared = pool.copy_from_slice(&[7; 5_000]).unwrap();
    let wire = shared.to_bytes().unwrap();
    let mut overlay = Payload::from(shared.clone()).overlay().unwrap();
    overlay[0] = 9;
    // SAFETY: the child uses this test's own objects and nothing that another thread may have locked: the harness waits
    // for this one test, the agent and the coordinator sleep. It ends without running the harness.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        std::panic::set_hook(Box::new(|_| {}));
        let found = child(pool.clone(), shared.clone(), overlay, &wire, &place);
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(found) };
    }
    let mut status = 0;
    // SAFETY: `status` is an int to write to.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert!(libc::WIFEXITED(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "what the child found is numbered in `child`");
    assert_eq!(
        &pool.map_ref(&wire).unwrap()[..],
        &[7; 5_000],
        "the parent's hold was not dropped by the child"
    );
    assert_eq!((overlay[0], overlay[1]), (9, 7));
    drop((shared, overlay));
    place::until_all_is_free(&pool);
}
