//! How many descriptors are left, told by the number of one that was just made.
//!
//! The kernel gives the lowest number that is free, so as many descriptors as a new one's number are taken, by any part of this
//! process. Nothing is counted, and no directory is read.

use tollfree_os::fd::{AsFd, AsRawFd};

use tollfree_os::rustix::process::{Resource, getrlimit};

/// Kept for what those who are in still need, where clients come without end: at least so many, at most so many, else a share.
const RESERVE_MIN: u64 = 8;
const RESERVE_MAX: u64 = 64;
const RESERVE_SHARE: u64 = 16;

/// How many descriptors this process may have.
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Whether, when `latest` was made, at least half of all descriptors were free: enough for what a session can do without.
pub fn descriptors_abound(latest: impl AsFd) -> bool {
    taken(latest) < descriptor_limit() / 2
}

/// Whether, when `latest` was made, so few were left that nobody should be let in.
pub fn descriptors_are_short(latest: impl AsFd) -> bool {
    let limit = descriptor_limit();
    let reserve = (limit / RESERVE_SHARE).clamp(RESERVE_MIN, RESERVE_MAX);
    taken(latest) + reserve >= limit
}

fn taken(latest: impl AsFd) -> u64 {
    latest.as_fd().as_raw_fd().try_into().unwrap_or(0)
}
