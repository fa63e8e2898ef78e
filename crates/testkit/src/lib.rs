//! The hostile peer, and what tests of several parts measure themselves by. For tests only.
//!
//! [`Door`] speaks the rendezvous socket by hand and can break every step of the handshake; [`HostilePeer`] is what a
//! door becomes after a good handshake, and can break everything that follows. [`Census`] counts what a process holds,
//! [`TimeLimit`] ends a test that hangs, even one that never yields.
#![forbid(unsafe_code)]

mod census;
mod chance;
mod door;
mod frames;
mod limit;
mod peer;

pub use census::{Census, cpu_time};
pub use chance::Chance;
pub use door::Door;
pub use frames::{Frame, opening_of};
pub use limit::{Alone, TimeLimit, alone};
pub use peer::{Flipper, HostilePeer};
