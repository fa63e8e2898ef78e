//! A gateway with few descriptors, and clients that take all that they get: its processes have theirs nevertheless.

use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, prlimit};
use tokio::net::TcpStream;

use super::idle::attached;
use super::load::Load;
use super::places::Place;

/// Descriptors that the gateway may have, and those of them that connections of one address take at most: three quarters of half.
const DESCRIPTORS: u64 = 80;
const CONNECTIONS: usize = 30;
/// Connections that say nothing.
const SILENT: usize = 160;
const CLIENTS: usize = 4;
const REFUSED_WITHIN: Duration = Duration::from_secs(20);

/// Whether the gateway hasn't closed it, whatever it has said.
fn is_open(connection: &TcpStream) -> bool {
    loop {
        match connection.try_read(&mut [0; 256]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_take_no_descriptor_from_processes_that_attach() {
    let place = Place::new("limits.handshake_ms = 600000\n");
    let gateway = place.start_gateway();
    let limit = Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
    prlimit(Some(gateway.pid()), Resource::Nofile, limit).unwrap();
    let _first = place.start_backend("default");
    let load = Load::start(place.address(), CLIENTS);
    load.until_answered(20).await;
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(TcpStream::connect(place.address()).await.unwrap());
    }
    let began = Instant::now();
    loop {
        silent.retain(is_open);
        if silent.len() + CLIENTS <= CONNECTIONS {
            break;
        }
        assert!(began.elapsed() < REFUSED_WITHIN, "{} silent connections are open", silent.len());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let _second = place.start_backend("default");
    attached(&place, 2).await;
    load.until_answered(100).await;
    let failures = load.stop().await;
    assert!(failures.is_empty(), "{failures:?}");
    silent.retain(is_open);
    assert!(silent.len() >= CONNECTIONS / 2, "{} silent connections are open", silent.len());
}
