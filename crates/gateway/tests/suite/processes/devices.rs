//! Backends that are stopped, throttled and killed in each mode of announcing calls to them.

use std::time::Duration;

use rustix::process::Signal;
use tollfree_control::{Register, State};
use tonic::Code;

use super::load::Load;
use super::places::{PATIENCE, Place};

const CLIENTS: usize = 6;
const MODES: [&str; 6] = ["inline", "doorbell", "doorbell-batch:11", "coherent:1", "coherent:4", "auto"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_each_mode_stopped_throttled_and_killed_processes_hold_up_or_fail_their_own_calls_only() {
    let place = Place::new("");
    let _gateway = place.start_gateway();
    let _steady = place.start_backend("default");
    let slow = place.start_backend("default");
    let socket = format!("shm://{}", place.backends().display());
    let load = Load::start(place.address(), CLIENTS);
    load.until_answered(10).await;
    for (mode, batch) in MODES.into_iter().zip(["auto", "4"].into_iter().cycle()) {
        Register::set(&socket, "device.doorbell", mode).await.unwrap();
        Register::set(&socket, "device.batch", batch).await.unwrap();
        // Stopped: its calls are answered when it goes on.
        slow.signal(Signal::STOP);
        load.until_answered(50).await;
        slow.signal(Signal::CONT);
        // Throttled, as by a quota of half a core.
        for _ in 0..10 {
            slow.signal(Signal::STOP);
            tokio::time::sleep(Duration::from_millis(5)).await;
            slow.signal(Signal::CONT);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        load.until_answered(50).await;
        // Killed, by what asks for no cleaning up.
        let mut killed = place.start_backend("default");
        load.until_answered(20).await;
        killed.signal(Signal::KILL);
        assert!(killed.wait_end(PATIENCE).is_some());
        load.until_answered(50).await;
    }
    let devices = State::read(&socket).await.unwrap().devices;
    assert!(devices["default"].publications > 0, "{devices:?}");
    let failures = load.stop().await;
    assert!(failures.len() <= MODES.len() * CLIENTS, "{failures:?}");
    for status in failures {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    }
}
