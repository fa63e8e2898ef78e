//! Backends and gateways that are killed at named steps, and stopped, while clients call.

use std::time::Duration;

use rustix::process::Signal;
use tollfree_kill_points::Point;
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::{Code, Request};

use super::load::Load;
use super::places::{PATIENCE, Place};

const CLIENTS: usize = 6;

/// Steps on the way into a session, and of calls in one: the n-th time that a process gets there is its last.
const STEPS: [(Point, u32); 11] = [
    (Point::RegionMade, 1),
    (Point::HandshakeHeard, 1),
    (Point::PeerMapped, 1),
    (Point::SessionBegun, 1),
    (Point::RoomReserved, 20),
    (Point::MidRecord, 20),
    (Point::Publishing, 20),
    (Point::Published, 20),
    (Point::RecordSeen, 20),
    (Point::RecordHandled, 20),
    (Point::RecordConsumed, 20),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_is_killed_anywhere_fails_its_own_calls_only() {
    let place = Place::new("");
    let _gateway = place.start_gateway();
    let _steady = place.start_backend("default");
    let load = Load::start(place.address(), CLIENTS);
    load.until_answered(10).await;
    for (point, nth) in STEPS {
        let mut killed = place.start_armed_backend(point, nth);
        assert!(killed.wait_end(PATIENCE).is_some(), "never got to {point:?}");
        load.until_answered(10).await;
    }
    let failures = load.stop().await;
    assert!(failures.len() <= STEPS.len() * CLIENTS, "{failures:?}");
    // The gateway lives, and says so in words of its own.
    for status in failures {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("has ended") && !status.message().contains("sock"), "{status}");
    }
}

/// The steps of object mode: a call as bytes, the word that objects are taken, the tables that are asked for and told, objects that come, answers
/// that are objects. Each is a record or two, either way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_is_killed_at_any_step_of_object_mode_fails_its_own_calls_only() {
    let place = Place::new("");
    let _gateway = place.start_gateway();
    let _steady = place.start_backend("default");
    let load = Load::start(place.address(), CLIENTS);
    load.until_answered(10).await;
    let points = [Point::RecordSeen, Point::MidRecord, Point::Publishing, Point::Published];
    let steps: Vec<_> = (1..=12).flat_map(|nth| points.map(|point| (point, nth))).collect();
    for step in &steps {
        let mut killed = place.start_taker(Some(*step));
        assert!(killed.wait_end(PATIENCE).is_some(), "never got to {step:?}");
        load.until_answered(10).await;
    }
    let _taker = place.start_taker(None);
    let socket = format!("shm://{}", place.backends().display());
    let began = tokio::time::Instant::now();
    loop {
        let state = tollfree_control::State::read(&socket).await.unwrap();
        let of = &state.objects["default"];
        if of.requests["object"] > 100 && of.answers["object"] > 100 {
            assert_eq!(of.answers["unsound"], 0, "{of:?}");
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{of:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let failures = load.stop().await;
    assert!(failures.len() <= steps.len() * CLIENTS, "{failures:?}");
    for status in failures {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_is_killed_anywhere_is_replaced_and_nothing_is_left() {
    let place = Place::new("");
    let mut backends = place.start_backend("default");
    let load = Load::start(place.address(), CLIENTS);
    // Every other: backends come back more slowly from kill to kill.
    for (point, nth) in STEPS.into_iter().step_by(2) {
        let mut killed = place.start_armed_gateway(point, nth);
        assert!(killed.wait_end(PATIENCE).is_some(), "never got to {point:?}");
    }
    let _gateway = place.start_gateway();
    load.until_answered(50).await;
    let failures = load.stop().await;
    assert!(failures.len() <= STEPS.len() * CLIENTS, "{failures:?}");
    assert!(backends.ended().is_none(), "a backend outlives its gateways");
}

/// One of two stands still: others' calls go on, and its own are answered when it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_is_stopped_holds_up_its_own_calls_only() {
    let place = Place::new("");
    let _gateway = place.start_gateway();
    let _steady = place.start_backend("default");
    let stopped = place.start_backend("default");
    let load = Load::start(place.address(), CLIENTS);
    for _ in 0..3 {
        load.until_answered(20).await;
        stopped.signal(Signal::STOP);
        load.until_answered(100).await;
        stopped.signal(Signal::CONT);
    }
    load.until_answered(20).await;
    let failures = load.stop().await;
    assert!(failures.is_empty(), "{failures:?}");
}

/// The only one of its service stands still: deadlines end calls, and the next one is answered when it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlines_hold_before_a_stopped_process() {
    let place = Place::new("");
    let gateway = place.start_gateway();
    let backends = place.start_backend("default");
    let endpoint = tonic::transport::Endpoint::try_from(format!("http://{}", place.address())).unwrap();
    let mut client = ProbeClient::new(endpoint.connect().await.unwrap());
    client.unary(Ask::default()).await.unwrap();
    for stopped in [&backends, &gateway] {
        stopped.signal(Signal::STOP);
        let mut request = Request::new(Ask::default());
        request.set_timeout(Duration::from_millis(300));
        let status = client.unary(request).await.unwrap_err();
        stopped.signal(Signal::CONT);
        assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");
        client.unary(Ask::default()).await.unwrap();
    }
}
