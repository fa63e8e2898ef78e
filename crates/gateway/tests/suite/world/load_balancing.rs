//! Which backend connection gets a call, and who waits while none has room.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinHandle;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_stubs::probe::{Answer, Ask};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::lab::{Attached, Lab, PATIENCE, PROBE, backend_connections_of};
use super::probe::Probe;
use super::reload::reload;

fn waiting(policy: &str) -> String {
    format!("tollfree_gateway_waiting{{group=\"default\",policy=\"{policy}\"}}")
}

type Call = JoinHandle<Result<Answer, Status>>;

/// A call that ends when the gate of the probe is opened for it.
fn held(client: &ProbeClient<Channel>, timeout: Option<Duration>) -> Call {
    let mut client = client.clone();
    tokio::spawn_for_test(async move {
        let mut request = Request::new(Ask { wait_ms: 1, ..Ask::default() });
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        client.unary(request).await.map(|answer| answer.into_inner())
    })
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = tokio::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn begun(attached: &Attached) -> usize {
    attached.probe.begun.load(Ordering::SeqCst)
}

fn live(attached: &Attached) -> usize {
    attached.probe.live.load(Ordering::SeqCst)
}

async fn ended(call: Call) -> Result<Answer, Status> {
    tokio::time::timeout(PATIENCE, call).await.expect("the call ends").unwrap()
}

#[tokio::test]
async fn waiting_calls_begin_in_order_of_arrival_and_one_too_many_is_refused() {
    let lab = Lab::start("load_balancing.depth = 1\nload_balancing.waiting = 3\n").await;
    let attached = lab.attach("default").await;
    let client = lab.client().await;
    let first = held(&client, None);
    until("the first begins", || live(&attached) == 1).await;
    let mut calls = Vec::new();
    for count in 1..=3 {
        calls.push(held(&client, None));
        lab.until_figure(&waiting("least_outstanding"), |figure| figure == f64::from(count)).await;
    }
    let status = ended(held(&client, None)).await.unwrap_err();
    assert!(
        status.code() == Code::ResourceExhausted && status.message().contains("load_balancing.waiting"),
        "{status}"
    );
    assert_eq!(lab.refused("waiting").await, 1.0);

    attached.probe.gate.notify_one();
    ended(first).await.unwrap();
    while !calls.is_empty() {
        let left = calls.len();
        until("the next begins", || begun(&attached) == 5 - left).await;
        assert_eq!(live(&attached), 1, "never more than the depth");
        // Only the oldest of those that are left can end: the others have not begun.
        attached.probe.gate.notify_one();
        ended(calls.remove(0)).await.unwrap();
        assert!(calls.iter().all(|call| !call.is_finished()));
    }
    lab.until_figure(&waiting("least_outstanding"), |figure| figure == 0.0).await;
}

#[tokio::test]
async fn who_waits_is_ended_by_its_deadline_or_its_client_and_leaves_no_entry() {
    let lab = Lab::start("load_balancing.depth = 1\n").await;
    let attached = lab.attach("default").await;
    let client = lab.client().await;
    let first = held(&client, None);
    until("the first begins", || live(&attached) == 1).await;
    let status = ended(held(&client, Some(Duration::from_millis(100)))).await.unwrap_err();
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");
    let gone = held(&client, None);
    lab.until_figure(&waiting("least_outstanding"), |figure| figure == 1.0).await;
    gone.abort();
    lab.until_figure(&waiting("least_outstanding"), |figure| figure == 0.0).await;
    attached.probe.gate.notify_one();
    ended(first).await.unwrap();
    let next = held(&client, None);
    until("another begins", || begun(&attached) == 2).await;
    attached.probe.gate.notify_one();
    ended(next).await.unwrap();
}

fn http_request(timeout: &str) -> http::Request<()> {
    let request = http::Request::post("http://localhost/tollfree.probe.v1.Probe/Unary");
    request.header("content-type", "application/grpc").header("grpc-timeout", timeout).body(()).unwrap()
}

/// A deadline that passes in the queue is the gateway's own refusal, seen by a client that has no clock of its own.
#[tokio::test]
async fn a_deadline_that_passes_in_the_queue_is_counted() {
    let lab = Lab::start("load_balancing.depth = 1\n").await;
    let attached = lab.attach("default").await;
    let client = lab.client().await;
    let first = held(&client, None);
    until("the first begins", || live(&attached) == 1).await;
    let stream = tokio::net::TcpStream::connect(lab.socket_address()).await.unwrap();
    let (without_clock, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = http_request("50m");
    let (answer, mut body) = without_clock.ready().await.unwrap().send_request(request, false).unwrap();
    body.send_data(vec![0; 5].into(), true).unwrap();
    let answer = tokio::time::timeout(PATIENCE, answer).await.expect("an answer").unwrap();
    assert_eq!(answer.headers()["grpc-status"], "4", "{answer:?}");
    assert_eq!((lab.refused("late").await, begun(&attached)), (1.0, 1));
    attached.probe.gate.notify_one();
    ended(first).await.unwrap();
}

/// The backend connection that never answers its call keeps that one alone; when it dies, who waits for nobody else goes on elsewhere.
#[tokio::test]
async fn a_backend_connection_that_stands_still_keeps_its_own_call_only() {
    let lab = Lab::start("load_balancing.depth = 1\nlimits.attach_wait_ms = 60000\n").await;
    let stuck = lab.attach("default").await;
    let client = lab.client().await;
    let held_up = held(&client, None);
    until("it begins", || live(&stuck) == 1).await;
    let waits = held(&client, None);
    lab.until_figure(&waiting("least_outstanding"), |figure| figure == 1.0).await;
    // A backend connection that comes gets what waits.
    let steady = lab.attach_backend_connections("default", 1, Probe::default()).await;
    until("what waited begins elsewhere", || live(&steady) == 1).await;
    steady.probe.gate.notify_one();
    ended(waits).await.unwrap();
    for _ in 0..20 {
        client.clone().unary(Ask::default()).await.unwrap();
    }
    assert_eq!((live(&stuck), begun(&stuck)), (1, 1));
    let waits = held(&client, None);
    until("the steady one is busy", || live(&steady) == 1).await;
    let last = held(&client, None);
    lab.until_figure(&waiting("least_outstanding"), |figure| figure == 1.0).await;
    stuck.abort();
    assert_eq!(ended(held_up).await.unwrap_err().code(), Code::Unavailable);
    lab.until_figure(&backend_connections_of("default"), |count| count == 1.0).await;
    assert!(!waits.is_finished() && !last.is_finished());
    for call in [waits, last] {
        until("the next begins", || live(&steady) == 1).await;
        steady.probe.gate.notify_one();
        ended(call).await.unwrap();
    }
}

/// Nobody is left at all: who waits is patient for as long as any call is.
#[tokio::test]
async fn who_waits_for_nobody_waits_as_long_as_others() {
    let lab = Lab::start("load_balancing.depth = 1\nlimits.attach_wait_ms = 100\n").await;
    let attached = lab.attach("default").await;
    let client = lab.client().await;
    let first = held(&client, None);
    until("it begins", || live(&attached) == 1).await;
    let waits = held(&client, None);
    lab.until_figure(&waiting("least_outstanding"), |figure| figure == 1.0).await;
    attached.abort();
    assert_eq!(ended(first).await.unwrap_err().code(), Code::Unavailable);
    let status = ended(waits).await.unwrap_err();
    assert!(status.code() == Code::Unavailable && status.message().contains(PROBE), "{status}");
    assert_eq!(lab.refused("absent").await, 1.0);
}

#[tokio::test]
async fn policies_change_with_the_config_and_figures_follow() {
    let lab = Lab::start("").await;
    let (one, other) =
        (lab.attach("default").await, lab.attach_backend_connections("default", 1, Probe::default()).await);
    let mut client = lab.client().await;
    let mut call = async |count| {
        for _ in 0..count {
            client.unary(Ask::default()).await.unwrap();
        }
    };
    let hits = "tollfree_gateway_affinity_hits_total{group=\"default\",policy=\"affinity\"}";
    let misses = "tollfree_gateway_affinity_misses_total{group=\"default\",policy=\"affinity\"}";
    call(4).await;
    assert_eq!((begun(&one), begun(&other), lab.figure(hits).await), (2, 2, 0.0));

    reload(&lab, "load_balancing.policy = \"affinity\"\nload_balancing.imbalance = 4\n").await.unwrap();
    call(6).await;
    assert_eq!(begun(&one).max(begun(&other)), 8, "all at one backend connection");
    assert_eq!((lab.figure(hits).await, lab.figure(misses).await), (5.0, 1.0));

    reload(&lab, "[groups.default.load_balancing]\npolicy = \"static\"\n").await.unwrap();
    let before = (begun(&one), begun(&other));
    call(5).await;
    let now = (begun(&one), begun(&other));
    assert!(now == (before.0 + 5, before.1) || now == (before.0, before.1 + 5), "{before:?} {now:?}");
    let page = lab.page().await;
    assert!(page.contains("tollfree_gateway_imbalance{group=\"default\",policy=\"static\"}"), "{page}");
    assert!(!page.contains(&waiting("affinity")), "nothing of the policy before");
    assert_eq!(lab.figure(hits).await, 5.0);
}

/// A lower bound holds for the next calls; without one, those that wait begin.
#[tokio::test]
async fn the_depth_changes_while_calls_wait() {
    let lab = Lab::start("").await;
    let attached = lab.attach("default").await;
    let client = lab.client().await;
    let mut calls: Vec<_> = (0..3).map(|_| held(&client, None)).collect();
    until("all begin", || live(&attached) == 3).await;
    reload(&lab, "load_balancing.depth = 1\n").await.unwrap();
    calls.extend((0..2).map(|_| held(&client, None)));
    lab.until_figure(&waiting("least_outstanding"), |figure| figure == 2.0).await;
    assert_eq!(live(&attached), 3);
    reload(&lab, "").await.unwrap();
    until("who waited begins", || live(&attached) == 5).await;
    attached.probe.gate.notify_waiters();
    for call in calls {
        ended(call).await.unwrap();
    }
}
