//! What waiting has cost this process, and how many peers it has lost, for monitoring: all its sessions together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static LOOKED_NS: AtomicU64 = AtomicU64::new(0);
static PARKED: AtomicU64 = AtomicU64::new(0);
static WOKEN: AtomicU64 = AtomicU64::new(0);
static RUNG: AtomicU64 = AtomicU64::new(0);
static PEER_DEATHS: AtomicU64 = AtomicU64::new(0);

/// What waiting for peers has cost this process so far, in all its sessions. Each figure only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waits {
    /// Time in which tasks looked for what would come, beyond a glance of a microsecond.
    pub looked: Duration,
    /// Times that a task which had looked went to sleep.
    pub parked: u64,
    /// Times that this process was woken by a peer.
    pub woken: u64,
    /// Times that it woke a peer.
    pub rung: u64,
}

/// What waiting has cost this process so far.
pub fn waits() -> Waits {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Waits {
        looked: Duration::from_nanos(count(&LOOKED_NS)),
        parked: count(&PARKED),
        woken: count(&WOKEN),
        rung: count(&RUNG),
    }
}

/// Sessions of this process so far whose peer has gone without a word: its process has ended, or let go of the session.
pub fn peer_deaths() -> u64 {
    PEER_DEATHS.load(Ordering::Relaxed)
}

/// How long this process has looked so far, in nanoseconds.
pub(crate) fn looked_ns() -> u64 {
    LOOKED_NS.load(Ordering::Relaxed)
}

/// A task has looked for so many nanoseconds.
pub fn looked(ns: u64) {
    LOOKED_NS.fetch_add(ns, Ordering::Relaxed);
}

/// A task that looked goes to sleep.
pub fn parked() {
    PARKED.fetch_add(1, Ordering::Relaxed);
}

/// A peer has woken this process.
pub fn woken() {
    WOKEN.fetch_add(1, Ordering::Relaxed);
}

/// This process wakes a peer.
pub fn rung() {
    RUNG.fetch_add(1, Ordering::Relaxed);
}

/// A peer has gone without a word.
pub fn peer_died() {
    PEER_DEATHS.fetch_add(1, Ordering::Relaxed);
}
