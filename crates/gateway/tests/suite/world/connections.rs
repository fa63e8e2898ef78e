//! Connections and sessions that are listed and closed, and what the monitor sees of calls.

use std::time::Duration;

use tollfree_control::{ConnectionState, State, StateError};
use tollfree_stubs::probe::Ask;
use tonic::Code;

use super::lab::{Lab, PATIENCE};

async fn list(lab: &Lab, kind: &str) -> Vec<ConnectionState> {
    let all = ConnectionState::read_all(&lab.backends()).await.unwrap();
    all.into_iter().filter(|connection| connection.kind == kind).collect()
}

#[tokio::test]
async fn connections_are_listed_and_closed_without_a_lost_call() {
    let lab = Lab::start("").await;
    let attached = lab.attach("default").await;
    let mut client = lab.client().await;
    for _ in 0..5 {
        client.unary(Ask { body: vec![1; 1000], ..Ask::default() }).await.unwrap();
    }
    let world = list(&lab, "world").await;
    assert_eq!(world.len(), 1, "{world:?}");
    let first = &world[0];
    assert_eq!((first.place.as_str(), first.calls, first.calls_total), ("world", 0, 5));
    assert!(first.peer.starts_with("127.0.0.1:"), "{}", first.peer);
    assert!(first.received_bytes.unwrap() > 5000 && first.sent_bytes.unwrap() > 5000, "{first:?}");
    let backend_connections = list(&lab, "backend_connection").await;
    assert_eq!(
        (
            backend_connections.len(),
            backend_connections[0].place.as_str(),
            backend_connections[0].calls_total
        ),
        (1, "default", 5)
    );
    assert!(backend_connections[0].peer.contains(&std::process::id().to_string()), "{backend_connections:?}");

    // A call is under way while its connection is closed: it is answered, and the next one has a connection of its own.
    let mut slow = client.clone();
    let under_way = tokio::spawn(async move { slow.unary(Ask { wait_ms: 1, ..Ask::default() }).await });
    while list(&lab, "world").await[0].calls == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let closed = ConnectionState::close(&lab.backends(), &first.id).await.unwrap();
    assert!(closed.is_closing && closed.calls == 1, "{closed:?}");
    attached.probe.gate.notify_one();
    tokio::time::timeout(PATIENCE, under_way).await.unwrap().unwrap().expect("it is answered");
    client.unary(Ask::default()).await.unwrap();
    lab.until_figure("tollfree_gateway_connections", |count| count == 1.0).await;
    let world = list(&lab, "world").await;
    assert!(world.iter().all(|connection| connection.id != first.id), "{world:?}");

    let error = ConnectionState::close(&lab.backends(), &first.id).await.unwrap_err();
    assert!(matches!(&error, StateError::Refused(words) if words.contains("ctl connections")), "{error}");
    for nonsense in ["", "c", "w", "c-1", "c99999999999999999999999", "é", "x1"] {
        ConnectionState::close(&lab.backends(), nonsense).await.expect_err(nonsense);
    }
}

#[tokio::test]
async fn a_session_that_is_closed_comes_again() {
    let lab = Lab::start("").await;
    let _attached = lab.attach("default").await;
    let backend_connection = list(&lab, "backend_connection").await.remove(0);
    ConnectionState::close(&lab.backends(), &backend_connection.id).await.unwrap();
    let began = tokio::time::Instant::now();
    loop {
        let backend_connections = list(&lab, "backend_connection").await;
        if backend_connections.first().is_some_and(|other| other.id != backend_connection.id) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{backend_connections:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    lab.client().await.unary(Ask::default()).await.unwrap();
}

#[tokio::test]
async fn the_monitor_times_stages_and_remembers_errors() {
    let lab = Lab::start("limits.message_bytes = 2000\n").await;
    let _attached = lab.attach("default").await;
    let mut client = lab.client().await;
    for _ in 0..64 {
        client.unary(Ask { body: vec![1; 100], ..Ask::default() }).await.unwrap();
    }
    let state = State::read(&lab.backends()).await.unwrap();
    let names: Vec<_> = state.stages.iter().map(|stage| stage.stage.as_str()).collect();
    assert_eq!(names, ["checked", "placed", "handed", "answered", "written"]);
    for stage in &state.stages {
        let timed: u64 = stage.counts.iter().sum();
        assert!((4..=64).contains(&timed), "{}: {timed} of 64", stage.stage);
        assert_eq!(stage.counts.len(), state.stage_bounds_s.len() + 1);
    }
    assert_eq!((state.errors.len(), state.connections_max), (0, 4096));
    let page = lab.page().await;
    assert!(page.contains("tollfree_gateway_stage_seconds_count{stage=\"answered\"}"), "{page}");

    let refused = client.unary(Ask { body: vec![1; 3000], ..Ask::default() }).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let errors = State::read(&lab.backends()).await.unwrap().errors;
    let latest = &errors[0];
    assert_eq!(
        (latest.reason.as_str(), latest.method.as_str()),
        ("message", "tollfree.probe.v1.Probe/Unary")
    );
    assert!(latest.words.contains("limits.message_bytes"), "{latest:?}");
}
