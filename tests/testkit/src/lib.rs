//! The hostile peer, and what tests of several parts measure themselves by. For tests only.
//!
//! [`Door`] speaks the rendezvous socket by hand and can break every step of the handshake; [`HostilePeer`] is what a
//! door becomes after a good handshake, and can break everything that follows. What it does, by name, is in [`greetings()`],
//! [`welcomes()`], [`lies_of_clients()`], [`lies_of_servers()`] and [`FLOODS`]: `tollfree-hostile` does the same to implementations in other languages. [`Shim`] stands between two honest peers and
//! changes what they announce. [`Census`] counts what a process holds,
//! [`TimeLimit`] ends a test that hangs, even one that never yields; [`alone!`] gives a test a process of its own; [`Process`] is the test program once more, to be stopped
//! or killed; a [`SilentFile`] and a [`LingeringSocket`] are descriptors whose `close` waits; [`hollow()`] memory has its pages where nobody reads; a [`Log`] gathers what a thread logs; a [`Saboteur`] has system calls of a process fail; [`fork()`], [`forbid()`] and [`free_address()`] are what the names say.
#![forbid(unsafe_code)]

mod alone;
mod census;
mod chance;
mod door;
mod forbid;
mod fork;
mod frames;
mod free;
mod hollow;
mod lies;
mod limit;
mod log;
mod peer;
mod process;
mod saboteur;
mod shim;
mod silent;

pub use alone::is_alone;
pub use census::{Census, cpu_time, resident_kib};
pub use chance::Chance;
pub use door::Door;
pub use forbid::{Call, forbid};
pub use fork::{Forked, fork};
pub use frames::{Frame, opening_of};
pub use free::free_address;
pub use hollow::hollow;
pub use lies::{
    ECHO, FLOODS, Flood, Greeting, Lie, Props, Welcome, greetings, lies_of_clients, lies_of_servers,
    random_greeting, random_record, restless, rewrite, welcomes,
};
pub use limit::TimeLimit;
pub use log::Log;
pub use peer::{Flipper, HostilePeer};
pub use process::{Process, Role, path_of, stop_child};
pub use saboteur::{Sabotage, Saboteur};
pub use shim::Shim;
pub use silent::{LingeringSocket, SilentFile};
