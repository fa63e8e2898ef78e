//! Calls of stock clients to the processes that are attached.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use tollfree_control::State;
use tollfree_stubs::probe::{Ask, Fault};
use tonic::codec::CompressionEncoding::Gzip;
use tonic::{Code, Request};

use super::lab::{Lab, PATIENCE, PROBE, backend_connections_of};
use super::probe::Probe;

const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;

fn ask(len: usize) -> Ask {
    Ask { body: vec![7; len], ..Ask::default() }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = tokio::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "it did not happen that {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn all_four_kinds_go_through() {
    let lab = Lab::start("").await;
    let _attached = lab.attach("default").await;
    let mut client = lab.client().await;
    for len in [0, 1, 16 << 10, 3 << 20] {
        let answer = client.unary(ask(len)).await.unwrap().into_inner();
        assert_eq!(answer.body.len(), len);
    }
    let down = Ask { lens: vec![1, 100_000, 0], ..Ask::default() };
    let answers: Vec<_> = client.down(down).await.unwrap().into_inner().collect().await;
    let lens: Vec<_> = answers.iter().map(|answer| answer.as_ref().unwrap().body.len()).collect();
    assert_eq!(lens, [1, 100_000, 0]);
    let up = client.up(futures_util::stream::iter((0..50).map(|_| ask(1000)))).await.unwrap().into_inner();
    assert_eq!((up.seen_count, up.seen_len), (50, 50_000));
    let both = client.both(futures_util::stream::iter((0..50).map(ask))).await.unwrap().into_inner();
    assert_eq!(both.collect::<Vec<_>>().await.len(), 50);
    lab.until_figure(&format!("tollfree_gateway_outstanding{{group=\"{}\"}}", "default"), |left| left == 0.0)
        .await;
}

#[tokio::test]
async fn compressed_messages_stay_as_they_are() {
    let lab = Lab::start("").await;
    let _attached = lab.attach("default").await;
    let mut client = lab.client().await.send_compressed(Gzip).accept_compressed(Gzip);
    let response = client.unary(ask(500_000)).await.unwrap();
    assert_eq!(response.metadata().get("grpc-encoding").unwrap(), "gzip");
    assert_eq!(response.into_inner().body.len(), 500_000);
}

#[tokio::test]
async fn statuses_pass_with_details_and_trailers() {
    let lab = Lab::start("").await;
    let _attached = lab.attach("default").await;
    let mut client = lab.client().await;
    let fault = Fault { code: 9, message: "no: 100 %\n".into(), details: vec![0, 255], panic: false };
    let early = client.unary(Ask { fault: Some(fault.clone()), ..Ask::default() }).await.unwrap_err();
    let late = Ask { fault: Some(fault), lens: vec![5], ..Ask::default() };
    let mut late = client.down(late).await.unwrap().into_inner();
    assert_eq!(late.message().await.unwrap().unwrap().body.len(), 5);
    for status in [early, late.message().await.unwrap_err()] {
        assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "no: 100 %\n"));
        assert_eq!(
            (status.details(), status.metadata().get("x-trailer")),
            (&[0, 255][..], Some(&"kept".parse().unwrap()))
        );
    }
}

#[tokio::test]
async fn what_nobody_serves_is_said_in_words() {
    let lab =
        Lab::start("limits.attach_wait_ms = 0\n[groups.g]\nservices = [\"a.Known\"]\n[groups.default]\n")
            .await;
    let channel = lab.channel().await;
    let of = async |path: &'static str| {
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        grpc.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<Ask, Ask>::default();
        grpc.unary(Request::new(ask(3)), path.parse().unwrap(), codec).await.unwrap_err()
    };
    let unknown = of("/a.Unknown/Get").await;
    assert_eq!(
        (unknown.code(), unknown.message()),
        (Code::Unimplemented, "there is no service a.Unknown here")
    );
    let known = of("/a.Known/Get").await;
    assert_eq!(known.code(), Code::Unavailable);
    assert!(known.message().contains("a.Known is attached"), "{known}");
    let _attached = lab.attach("default").await;
    let method = of("/tollfree.probe.v1.Probe/None").await;
    assert_eq!(method.code(), Code::Unimplemented, "{method}");
    assert_eq!(lab.refused("unimplemented").await, 1.0);
    assert_eq!(lab.refused("absent").await, 1.0);
}

#[tokio::test]
async fn what_is_not_grpc_is_refused_by_http() {
    let lab = Lab::start("").await;
    let stream = tokio::net::TcpStream::connect(lab.socket_address()).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    for (method, kind, status) in
        [("GET", "application/grpc", 405), ("POST", "text/html", 415), ("POST", "application/grpc-web", 415)]
    {
        let request = http::Request::builder().method(method).uri("http://localhost/a.B/C");
        let request = request.header("content-type", kind).body(()).unwrap();
        let (answer, _) = client.send_request(request, true).unwrap();
        assert_eq!(answer.await.unwrap().status(), status);
    }
    assert_eq!(lab.refused("not_grpc").await, 3.0);
}

#[tokio::test]
async fn a_call_that_is_given_up_ends_at_the_backend() {
    let lab = Lab::start("").await;
    let attached = lab.attach("default").await;
    let mut client = lab.client().await;
    let waits = Ask { wait_ms: 1, ..Ask::default() };
    let call = tokio::spawn({
        let (mut client, waits) = (client.clone(), waits.clone());
        async move { client.unary(waits).await }
    });
    until("the handler begins", || attached.probe.live.load(Ordering::SeqCst) == 1).await;
    call.abort();
    until("the handler is dropped", || attached.probe.live.load(Ordering::SeqCst) == 0).await;
    // A deadline does the same, at the latest where the backend sees it.
    let mut request = Request::new(waits);
    request.set_timeout(Duration::from_millis(200));
    let status = client.unary(request).await.unwrap_err();
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");
    until("the handler is dropped", || attached.probe.live.load(Ordering::SeqCst) == 0).await;
    lab.until_figure("tollfree_gateway_outstanding{group=\"default\"}", |left| left == 0.0).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_slows_the_backend_down() {
    let lab = Lab::start("").await;
    let attached = lab.attach("default").await;
    let mut client = lab.client().await;
    let many = Ask { lens: vec![100_000; 1000], ..Ask::default() };
    let mut answers = client.down(many).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().is_some());
    // It goes on until all buffers between are full, and then no further.
    let mut before = 0;
    let begun = tokio::time::Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = attached.probe.sent.load(Ordering::SeqCst);
        if now == before {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "it never stands still");
        before = now;
    }
    assert!(before < 1000, "100 MB are in no buffer");
    let mut count = 1;
    while answers.message().await.unwrap().is_some() {
        count += 1;
    }
    assert_eq!(count, 1000);
}

#[tokio::test]
async fn calls_go_to_the_backend_connection_with_the_fewest() {
    let lab = Lab::start("").await;
    let first = lab.attach("default").await;
    let second = lab.attach_backend_connections("default", 2, Probe::default()).await;
    let client = lab.client().await;
    let mut calls = tokio::task::JoinSet::new();
    for number in 1..=9 {
        let mut client = client.clone();
        calls.spawn(async move { client.unary(Ask { wait_ms: 1, ..Ask::default() }).await });
        let all = || first.probe.live.load(Ordering::SeqCst) + second.probe.live.load(Ordering::SeqCst);
        until("the handler begins", || all() == number).await;
    }
    let of = |probe: &Probe| probe.live.load(Ordering::SeqCst);
    assert_eq!((of(&first.probe), of(&second.probe)), (3, 6), "three backend connections, three calls each");
    while !calls.is_empty() {
        // A handler that has begun waits a moment later.
        first.probe.gate.notify_one();
        second.probe.gate.notify_one();
        let done = tokio::time::timeout(Duration::from_millis(5), calls.join_next()).await;
        if let Ok(Some(call)) = done {
            call.unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn routes_and_owners_decide_which_group_serves() {
    let config = "[groups.a]\n[groups.b]\n[routes]\n\"tollfree.probe.v1.Probe/Up\" = \"b\"\n";
    let lab = Lab::start(config).await;
    let a = lab.attach("a").await;
    let b = lab.attach("b").await;
    let mut client = lab.client().await;
    for _ in 0..4 {
        client.unary(ask(1)).await.unwrap();
        client.up(futures_util::stream::iter([ask(1)])).await.unwrap();
    }
    let begun = |probe: &Probe| probe.begun.load(Ordering::SeqCst);
    assert_eq!((begun(&a.probe), begun(&b.probe)), (4, 4), "a came first, and b has a route");
    a.stop().await;
    lab.until_figure(&backend_connections_of("a"), |count| count == 0.0).await;
    client.unary(ask(1)).await.unwrap();
    assert_eq!(begun(&b.probe), 5);
}

#[tokio::test]
async fn health_is_who_is_attached() {
    let lab = Lab::start("[groups.default]\n[groups.g]\nservices = [\"a.Known\"]\n").await;
    assert_eq!(lab.health("").await, Ok(NOT_SERVING), "there is nobody who takes calls");
    assert_eq!(lab.health("a.Known").await, Ok(NOT_SERVING));
    assert_eq!(lab.health(PROBE).await, Err(Code::NotFound));
    let attached = lab.attach("default").await;
    assert_eq!(lab.health("").await, Ok(SERVING));
    assert_eq!(lab.health(PROBE).await, Ok(SERVING));
    let request = tonic_health::pb::HealthCheckRequest { service: PROBE.into() };
    let mut client = tonic_health::pb::health_client::HealthClient::new(lab.channel().await);
    let mut watch = client.watch(request).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, SERVING);
    attached.stop().await;
    assert_eq!(watch.message().await.unwrap().unwrap().status, NOT_SERVING);
    assert_eq!(lab.health(PROBE).await, Ok(NOT_SERVING));
}

#[tokio::test]
async fn a_backend_that_dies_ends_its_calls_and_no_others() {
    let lab = Lab::start("").await;
    let dying = lab.attach("default").await;
    let mut client = lab.client().await;
    let call = tokio::spawn({
        let mut client = client.clone();
        async move { client.unary(Ask { wait_ms: 1, ..Ask::default() }).await }
    });
    until("the handler begins", || dying.probe.live.load(Ordering::SeqCst) == 1).await;
    let living = lab.attach("default").await;
    dying.abort();
    let status = call.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(!status.message().contains("backends.sock"), "nothing of the inside: {status}");
    lab.until_figure(&backend_connections_of("default"), |count| count == 1.0).await;
    client.unary(ask(1)).await.unwrap();
    assert_eq!(living.probe.begun.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_gateway_that_stops_answers_what_is_under_way() {
    let mut lab = Lab::start("").await;
    let attached = lab.attach("default").await;
    let mut client = lab.client().await;
    let call =
        tokio::spawn(async move { client.unary(Ask { wait_ms: 1, body: vec![1], ..Ask::default() }).await });
    until("the handler begins", || attached.probe.live.load(Ordering::SeqCst) == 1).await;
    lab.begin_stop();
    let address = lab.socket_address();
    let begun = tokio::time::Instant::now();
    while tokio::net::TcpStream::connect(&address).await.is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it still lets newcomers in");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    attached.probe.gate.notify_one();
    assert_eq!(call.await.unwrap().unwrap().into_inner().body, [1]);
    lab.stopped().await;
}

#[tokio::test]
async fn figures_have_grpcs_names() {
    let lab = Lab::start("").await;
    let _attached = lab.attach("default").await;
    let mut client = lab.client().await;
    for _ in 0..3 {
        client.unary(ask(1)).await.unwrap();
    }
    let method = "grpc_method=\"tollfree.probe.v1.Probe/Unary\"";
    lab.until_figure(&format!("grpc_server_call_started_total{{{method}}}"), |count| count >= 1.0).await;
    let ended = format!("{{{method},grpc_status=\"OK\"}}");
    lab.until_figure(&format!("grpc_server_call_duration_seconds_count{ended}"), |count| count >= 1.0).await;
    let page = lab.page().await;
    for name in
        ["sent_total_compressed_message_size_bytes_sum", "rcvd_total_compressed_message_size_bytes_sum"]
    {
        assert!(page.contains(&format!("grpc_server_call_{name}{ended}")), "{name} in {page}");
    }
    // What any process with Tollfree shows: here, of the session with the backend.
    assert!(page.contains("tollfree_sessions 1\n"), "{page}");
    for name in
        ["ring_used_bytes", "looked_seconds_total", "woken_total", "peer_deaths_total", "refusals_total"]
    {
        assert!(page.contains(&format!("\ntollfree_{name}")), "{name} in {page}");
    }
}

#[tokio::test]
async fn its_state_names_backend_connections_and_methods() {
    let lab = Lab::start("").await;
    let _attached = lab.attach_backend_connections("orders", 2, Probe::default()).await;
    let mut client = lab.client().await;
    for _ in 0..4 {
        client.unary(ask(1)).await.unwrap();
    }
    let fault = Fault { code: Code::NotFound.into(), ..Fault::default() };
    client.unary(Ask { fault: Some(fault), ..ask(1) }).await.unwrap_err();
    let read = async || State::read(&lab.backends()).await.unwrap();
    let mut state = read().await;
    let begun = tokio::time::Instant::now();
    // A call ends when its answer has been handed to the connection, which the client may see before the gateway.
    while state.methods.iter().flat_map(|method| method.ended.values()).sum::<u64>() < 5 {
        assert!(begun.elapsed() < PATIENCE, "{state:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
        state = read().await;
    }
    let backend_connections = &state.groups["orders"];
    assert_eq!(
        backend_connections
            .iter()
            .map(|backend_connection| backend_connection.backend_connection)
            .collect::<Vec<_>>(),
        [0, 1]
    );
    assert!(
        backend_connections
            .iter()
            .all(|backend_connection| backend_connection.pid == std::process::id() as i32),
        "{backend_connections:?}"
    );
    assert_eq!(backend_connections.iter().map(|backend_connection| backend_connection.calls).sum::<u64>(), 5);
    let probe = state.methods.iter().find(|method| method.method == "tollfree.probe.v1.Probe/Unary").unwrap();
    assert_eq!(probe.ended, BTreeMap::from([("OK".to_owned(), 3), ("NOT_FOUND".to_owned(), 1)]), "{state:?}");
    assert_eq!(probe.latency_counts.iter().sum::<u64>(), 4);
    assert_eq!(probe.latency_counts.len(), state.latency_bounds_s.len() + 1);
    assert_eq!(state.pid, std::process::id());
    let elsewhere = State::read("tcp://x").await.unwrap_err().to_string();
    assert!(elsewhere.contains("write shm:///path"), "{elsewhere}");
}
