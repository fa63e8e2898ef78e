//! What is known of a backend connection: its requests outstanding, and the functions that it ran lately.

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Functions that can be remembered of one backend connection.
pub const FUNCTIONS_MAX: usize = 16;
/// One that may have so many requests while it begins slowly may have any number next.
const ALLOWANCE_MAX: u32 = 512;

/// A method, by a hash of its path. Two methods of one hash are taken for the same: a request then goes to a backend connection that is no better
/// than another, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(u32);

impl Function {
    /// Of a path, as `acme.v1.Orders/Get`.
    pub fn of(path: &str) -> Function {
        let mut hasher = DefaultHasher::new();
        hasher.write(path.as_bytes());
        // 0 is the function of no path: an entry that was never written.
        Function((hasher.finish() as u32).max(1))
    }

    pub(super) fn number(self) -> u32 {
        self.0
    }
}

/// What is known of a backend connection.
#[derive(Debug)]
pub struct Load {
    /// For [`Policy::Static`](crate::Policy::Static): different for each backend connection.
    pub(super) id: u64,
    outstanding: AtomicU32,
    /// Requests that it may have outstanding while it returns from a hang; all bits set: any number.
    allowance: AtomicU32,
    /// A function in the upper half, and when it was used last in the lower.
    recent: [AtomicU64; FUNCTIONS_MAX],
}

impl Load {
    /// Its number.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Of a new backend connection; no two backend connections of a group have the same `id`.
    pub fn new(id: u64) -> Load {
        Load {
            id,
            outstanding: AtomicU32::new(0),
            allowance: AtomicU32::new(u32::MAX),
            recent: [const { AtomicU64::new(0) }; FUNCTIONS_MAX],
        }
    }

    /// It may have one request from now on, and more with each [growth](Load::grow).
    pub fn begin_slowly(&self) {
        self.allowance.store(1, Ordering::Relaxed);
    }

    /// It may have twice as many requests as before, where it has begun slowly. Whether it has, and may have more now.
    pub fn grow(&self) -> bool {
        let allowance = self.allowance.load(Ordering::Relaxed);
        if allowance == u32::MAX {
            return false;
        }
        let grown = if allowance >= ALLOWANCE_MAX { u32::MAX } else { 2 * allowance };
        self.allowance.store(grown, Ordering::Relaxed);
        true
    }

    /// Requests that it may have outstanding for its own part.
    pub(super) fn allowance(&self) -> u32 {
        self.allowance.load(Ordering::Relaxed)
    }

    /// Requests that it has and hasn't answered.
    pub fn outstanding(&self) -> u32 {
        self.outstanding.load(Ordering::SeqCst)
    }

    /// One more.
    pub fn begin(&self) {
        self.outstanding.fetch_add(1, Ordering::SeqCst);
    }

    /// One less.
    pub fn end(&self) {
        self.outstanding.fetch_sub(1, Ordering::SeqCst);
    }

    /// Its share in a connection: the backend connection with the largest has it.
    pub(super) fn share_of(&self, connection: u64) -> u64 {
        let mut word = connection.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.id.rotate_left(32);
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn recent(&self, count: u32) -> &[AtomicU64] {
        &self.recent[..(count as usize).clamp(1, FUNCTIONS_MAX)]
    }

    /// Whether a function is among the last `count`.
    pub fn has(&self, function: Function, count: u32) -> bool {
        self.recent(count).iter().any(|entry| function_of(entry.load(Ordering::Relaxed)) == function)
    }

    /// Which of the last `count` functions another one would replace. None where there are fewer.
    pub(super) fn oldest(&self, count: u32, now: u32) -> Option<Function> {
        let entries = self.recent(count).iter().map(|entry| entry.load(Ordering::Relaxed));
        entries.max_by_key(|entry| age(*entry, now)).filter(|entry| *entry != 0).map(function_of)
    }

    /// Makes a function the last one of `count`, in place of the oldest if it is not among them. Of two threads that do so at once
    /// one may be forgotten.
    ///
    /// `now` is the group's clock, which ticks with each request.
    pub fn remember(&self, function: Function, count: u32, now: u32) {
        let entry = u64::from(function.0) << 32 | u64::from(now);
        let recent = self.recent(count);
        let mut oldest = (&recent[0], 0, 0);
        for (at, slot) in recent.iter().enumerate() {
            let word = slot.load(Ordering::Relaxed);
            if function_of(word) == function {
                oldest = (slot, word, 0);
                break;
            }
            let age = age(word, now);
            if at == 0 || age > oldest.2 {
                oldest = (slot, word, age);
            }
        }
        _ = oldest.0.compare_exchange(oldest.1, entry, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// An entry that was never written is the oldest.
fn age(entry: u64, now: u32) -> u32 {
    if entry == 0 { u32::MAX } else { now.wrapping_sub(entry as u32) }
}

fn function_of(entry: u64) -> Function {
    Function((entry >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_functions_are_remembered_and_the_oldest_is_forgotten() {
        let load = Load::new(1);
        let [a, b, c] = ["x.A/A", "x.A/B", "x.A/C"].map(Function::of);
        load.remember(a, 2, 0);
        assert_eq!(load.oldest(2, 1), None, "there is room for another");
        load.remember(b, 2, 1);
        load.remember(a, 2, 2);
        assert_eq!(load.oldest(2, 9), Some(b));
        assert!(load.has(a, 2) && load.has(b, 2));
        load.remember(c, 2, 3);
        assert!(load.has(a, 2) && load.has(c, 2) && !load.has(b, 2));
        // Fewer are looked at, and nothing is out of bounds.
        load.remember(b, 1, 4);
        assert!(
            load.has(b, 1) && !load.has(a, 1) && load.has(b, 100) && !load.has(Function::of("x.A/D"), 100)
        );
    }

    #[test]
    fn a_clock_that_begins_anew_forgets_the_oldest_still() {
        let load = Load::new(1);
        let [a, b, c] = ["x.A/A", "x.A/B", "x.A/C"].map(Function::of);
        for (function, now) in [(a, u32::MAX), (b, 0), (c, 1)] {
            load.remember(function, 2, now);
        }
        assert!(!load.has(a, 2) && load.has(b, 2) && load.has(c, 2));
    }
}
