//! Addresses for servers of tests.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below what Linux gives to connections and to sockets bound to port 0 (from 32768 on, unless it is told otherwise).
const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

/// An address of this machine that nobody listens on. The system does not give its port to connections: one of the test's own
/// might get it before the server does. Tests that run at once get different ones, mostly.
///
/// # Panics
/// When all are taken.
pub fn free_address() -> SocketAddr {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let begin = std::process::id().wrapping_mul(97);
    let port = || FIRST + begin.wrapping_add(TURN.fetch_add(1, Ordering::Relaxed)) % COUNT;
    (0..COUNT)
        .map(|_| SocketAddr::from((Ipv4Addr::LOCALHOST, port() as u16)))
        .find(|address| TcpListener::bind(address).is_ok())
        .expect("a port that nobody listens on")
}
