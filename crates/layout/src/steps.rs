//! Steps of work, counted where debug assertions are on: tests hold them against the bytes that came.
//!
//! Time says little of whether work is linear: it depends on the machine, and on who else runs there. So the loops of the table's
//! loader and of the processor's engines count their rounds. In builds without debug assertions [`take`] does nothing.

use std::cell::Cell;

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// Counts `count` steps of this thread.
#[inline(always)]
pub fn take(count: usize) {
    if cfg!(debug_assertions) {
        TAKEN.set(TAKEN.get().wrapping_add(count as u64));
    }
}

/// Counts the steps of work on `len` bytes in a row: one for each 64.
#[inline(always)]
pub fn take_bytes(len: usize) {
    take(len / 64 + 1);
}

/// Steps that this thread has taken so far; 0 without debug assertions.
pub fn taken() -> u64 {
    TAKEN.get()
}

/// What `work` gives, and how many steps it took on this thread; 0 without debug assertions.
pub fn of<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = taken();
    let done = work();
    (done, taken().wrapping_sub(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_nested_work_are_counted_once_in_each() {
        let ((inner, done), outer) = of(|| {
            take(2);
            let (done, inner) = of(|| take_bytes(128));
            (inner, done)
        });
        assert_eq!((done, inner, outer), ((), 3, 5));
    }
}
