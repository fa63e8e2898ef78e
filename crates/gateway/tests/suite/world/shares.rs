//! What one client can hold at most, and that others are served beside it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use h2::client::ResponseFuture;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::egress::via;
use super::lab::{Lab, PATIENCE};

/// Longer than a call takes on a busy machine, and shorter than any limit that would let a call through by ending others.
const PROMPT: Duration = Duration::from_secs(10);

const UNARY: &str = "/tollfree.probe.v1.Probe/Unary";
const UP: &str = "/tollfree.probe.v1.Probe/Up";
const MEMORY: &str = "tollfree_gateway_memory_bytes{group=\"default\"}";
const OUTSTANDING: &str = "tollfree_gateway_outstanding{group=\"default\"}";

/// A connection from another address of this host.
async fn connect(lab: &Lab, host: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, host], 0).into()).unwrap();
    socket.connect(lab.socket_address().parse().unwrap()).await.unwrap()
}

/// A request that never ends.
type Endless = (ResponseFuture, SendStream<Bytes>);

/// One connection with requests that bring `body` and never end.
async fn endless(lab: &Lab, host: u8, count: usize, path: &str, body: &[u8]) -> Vec<Endless> {
    let mut builder = h2::client::Builder::new();
    builder.initial_max_send_streams(count);
    let (mut client, connection) = builder.handshake(connect(lab, host).await).await.unwrap();
    tokio::spawn(connection);
    let mut calls = Vec::new();
    for _ in 0..count {
        client = client.ready().await.unwrap();
        let request = http::Request::post(format!("http://localhost{path}"));
        let request = request.header("content-type", "application/grpc").body(()).unwrap();
        let (answer, mut stream) = client.send_request(request, false).unwrap();
        if !body.is_empty() {
            stream.send_data(Bytes::copy_from_slice(body), false).unwrap();
        }
        calls.push((answer, stream));
    }
    calls
}

/// What a request that is not answered well says.
async fn refused(answer: ResponseFuture) -> (Code, String) {
    let answer = tokio::time::timeout(PATIENCE, answer).await.expect("a refusal").unwrap();
    let status = Status::from_header_map(answer.headers()).expect("a status");
    (status.code(), status.message().to_owned())
}

/// A client that calls all the time, from its own address, and how its calls fare.
struct Good {
    is_over: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    calling: JoinHandle<()>,
}

impl Good {
    async fn start(lab: &Lab, ask: Ask) -> Good {
        let stream = Endpoint::try_from(lab.uri.clone()).unwrap();
        let channel = stream.local_address(Some([127, 0, 0, 99].into())).connect().await.unwrap();
        Good::calling(ProbeClient::new(channel), ask)
    }

    fn calling(mut client: ProbeClient<Channel>, ask: Ask) -> Good {
        let (is_over, calls) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (over, count) = (is_over.clone(), calls.clone());
        let calling = tokio::spawn(async move {
            while !over.load(Ordering::SeqCst) {
                let call = tokio::time::timeout(PROMPT, client.unary(ask.clone())).await;
                call.expect("a prompt answer").expect("an answer");
                count.fetch_add(1, Ordering::SeqCst);
            }
        });
        Good { is_over, calls, calling }
    }

    /// Waits for so many more of its calls.
    async fn go_on(&self, more: u64) {
        let (begun, goal) = (Instant::now(), self.calls.load(Ordering::SeqCst) + more);
        while self.calls.load(Ordering::SeqCst) < goal {
            assert!(!self.calling.is_finished(), "a call has failed");
            assert!(begun.elapsed() < PATIENCE, "it stands still");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn end(self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.calling.await.expect("all of its calls are answered");
    }
}

/// Nothing of an attack is left.
async fn until_nothing_is_left(lab: &Lab) {
    lab.until_figure(OUTSTANDING, |count| count == 0.0).await;
    lab.until_figure(MEMORY, |bytes| bytes == 0.0).await;
    lab.until_figure("tollfree_gateway_waiting{group=\"default\",policy=\"least_outstanding\"}", |count| {
        count == 0.0
    })
    .await;
}

#[tokio::test]
async fn requests_without_an_end_fill_their_clients_share_and_others_are_served() {
    let lab = Lab::start("limits.place_wait_ms = 200\n").await;
    let _attached = lab.attach("default").await;
    let good = Good::start(&lab, Ask::default()).await;
    let mut calls = Vec::new();
    for connection in 0..4 {
        // Headers alone, and the beginning of a stream.
        let body: &[u8] = if connection % 2 == 0 { &[] } else { &[0; 5] };
        calls.push(endless(&lab, 1, 256, UP, body).await);
        good.go_on(5).await;
    }
    lab.until_figure("tollfree_gateway_refusals_total{reason=\"places\"}", |count| count >= 256.0).await;
    assert!((760.0..=769.0).contains(&lab.figure(OUTSTANDING).await), "three quarters of 1,024");
    let by_class = "tollfree_gateway_client_refusals_total{reason=\"places\",client=\"loopback\"}";
    assert!(lab.figure(by_class).await >= 256.0);
    good.go_on(20).await;
    // Another client holds as much as is left to it.
    calls.push(endless(&lab, 2, 256, UP, &[]).await);
    good.go_on(20).await;
    drop(calls);
    good.end().await;
    until_nothing_is_left(&lab).await;
}

#[tokio::test]
async fn a_call_beyond_the_share_goes_on_when_one_of_its_client_ends() {
    let lab = Lab::start("limits.place_wait_ms = 60000\n").await;
    let attached = lab.attach("default").await;
    let mut calls = tokio::task::JoinSet::new();
    let mut waiting = 0_u32;
    for _ in 0..5 {
        let client = lab.client().await;
        for _ in 0..200 {
            let mut client = client.clone();
            calls.spawn(async move { client.unary(Ask { wait_ms: 1, ..Ask::default() }).await.map(drop) });
        }
    }
    let name = "tollfree_gateway_waiting{group=\"default\",policy=\"least_outstanding\"}";
    // Three quarters of 1,024 places are the client's; how many of them its connections get depends on who comes first.
    lab.until_figure(name, |count| (232.0..300.0).contains(&count)).await;
    while let Ok(next) = tokio::time::timeout(PATIENCE, async {
        loop {
            attached.probe.gate.notify_waiters();
            let turn = tokio::time::timeout(Duration::from_millis(2), calls.join_next()).await;
            if let Ok(ended) = turn {
                return ended;
            }
        }
    })
    .await
    {
        let Some(ended) = next else { break };
        ended.unwrap().expect("it waits, and is answered");
        waiting += 1;
    }
    assert_eq!(waiting, 1000);
    assert_eq!(lab.refused("places").await, 0.0);
    until_nothing_is_left(&lab).await;
}

#[tokio::test]
async fn a_message_takes_a_place_when_it_is_here_and_a_stream_without_one_at_once() {
    let lab = Lab::start("").await;
    let attached = lab.attach("default").await;
    // The last byte of ten is missing.
    let message = [0, 0, 0, 0, 5, 10, 3, 1, 2];
    let mut half = endless(&lab, 1, 1, UNARY, &message).await;
    lab.until_figure(MEMORY, |bytes| bytes >= 18.0).await;
    assert_eq!(lab.figure(OUTSTANDING).await, 0.0, "half a message has no place");
    let mut silent = endless(&lab, 1, 1, "/tollfree.probe.v1.Probe/Both", &[]).await;
    let (answer, spoken_to) = silent.pop().unwrap();
    let spoken = tokio::time::timeout(PATIENCE, answer).await.expect("the server speaks first").unwrap();
    assert_eq!(spoken.status(), 200);
    assert_eq!(lab.figure(OUTSTANDING).await, 1.0);
    let (answer, mut stream) = half.pop().unwrap();
    stream.send_data(Bytes::from_static(&[3]), true).unwrap();
    let answer = tokio::time::timeout(PATIENCE, answer).await.expect("it is whole").unwrap();
    assert!(answer.headers().get("grpc-status").is_none_or(|status| status == "0"));
    drop((answer, stream, spoken, spoken_to));
    assert_eq!(attached.probe.begun.load(Ordering::SeqCst), 2);
    until_nothing_is_left(&lab).await;
}

#[tokio::test]
async fn messages_that_lack_a_byte_hold_their_clients_share_of_memory_and_end_in_time() {
    let lab = Lab::start(
        "limits.memory_bytes = 16777216\nlimits.message_bytes = 1048576\nlimits.arrival_grace_ms = 1500\n",
    )
    .await;
    let _attached = lab.attach("default").await;
    let good = Good::start(&lab, Ask { body: vec![1; 100_000], ..Ask::default() }).await;
    let mut body = vec![0];
    body.extend((1_u32 << 20).to_be_bytes());
    body.resize(5 + (1 << 20) - 1, 7);
    let attack = tokio::spawn({
        let calls = endless(&lab, 1, 63, UNARY, &body).await;
        async move {
            let mut reasons = Vec::new();
            for (answer, _stream) in calls {
                let (code, words) = refused(answer).await;
                assert_eq!(code, Code::ResourceExhausted, "{words}");
                reasons.push(words);
            }
            reasons
        }
    });
    let begun = Instant::now();
    while !attack.is_finished() {
        let most = lab.figure(MEMORY).await;
        assert!(most < 0.8 * 16_777_216.0, "{most} of it is held");
        good.go_on(1).await;
        assert!(begun.elapsed() < PATIENCE);
    }
    let reasons = attack.await.unwrap();
    let count = |key: &str| reasons.iter().filter(|words| words.contains(key)).count() as f64;
    assert!(count("its share of limits.memory_bytes") > 0.0 && count("limits.min_bytes_per_s") > 0.0);
    assert_eq!(count("its share of limits.memory_bytes") + count("limits.min_bytes_per_s"), 63.0);
    assert_eq!(lab.refused("memory_share").await, count("its share of limits.memory_bytes"));
    assert_eq!(lab.refused("slow").await, count("limits.min_bytes_per_s"));
    assert_eq!(lab.refused("memory").await, 0.0);
    good.end().await;
    until_nothing_is_left(&lab).await;
}

#[tokio::test]
async fn a_slow_link_and_a_stream_that_is_idle_between_messages_live() {
    let lab = Lab::start("limits.arrival_grace_ms = 300\nlimits.min_bytes_per_s = 100\n").await;
    let _attached = lab.attach("default").await;
    let mut calls = endless(&lab, 1, 1, UP, &[0, 0, 0, 0, 0]).await;
    let (answer, mut stream) = calls.pop().unwrap();
    // Longer than the grace period without a byte, and no message has begun.
    tokio::time::sleep(Duration::from_millis(700)).await;
    // 1,000 bytes a second or less: 200 bytes in 2 s at the slowest that this machine makes of it.
    let mut body = vec![0, 0, 0, 0, 203, 10, 200, 1];
    body.resize(208, 7);
    for piece in body.chunks(20) {
        stream.send_data(Bytes::copy_from_slice(piece), false).unwrap();
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    stream.send_data(Bytes::new(), true).unwrap();
    let answer = tokio::time::timeout(PATIENCE, answer).await.expect("an answer").unwrap();
    assert!(answer.headers().get("grpc-status").is_none(), "{answer:?}");
    assert_eq!(lab.refused("slow").await, 0.0);
}

/// Behind a balancer all clients have one address: each connection has a share.
#[tokio::test]
async fn connections_share_where_addresses_say_nothing() {
    let lab = Lab::start("listeners.world.shared_addresses = true\nlimits.streams = 1000\nlimits.place_wait_ms = 100\nlimits.connections_per_address = 1\n").await;
    let _attached = lab.attach("default").await;
    let _calls = endless(&lab, 1, 800, UP, &[]).await;
    lab.until_figure("tollfree_gateway_refusals_total{reason=\"places\"}", |count| count >= 32.0).await;
    let stream = Endpoint::try_from(lab.uri.clone()).unwrap().local_address(Some([127, 0, 0, 1].into()));
    let good = Good::calling(ProbeClient::new(stream.connect().await.unwrap()), Ask::default());
    good.go_on(20).await;
    good.end().await;
}

/// A process that calls by way of the gateway is held to its group's share.
#[tokio::test]
async fn calls_of_backends_without_an_end_fill_their_groups_share() {
    let lab = Lab::start("limits.place_wait_ms = 200\n[groups.default]\n[groups.other]\nvia = [\"group:default\"]\nservices = [\"x.Y\"]\n").await;
    let _attached = lab.attach("default").await;
    let good = Good::start(&lab, Ask::default()).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let client = via(&lab, "group:default").await;
        for _ in 0..600 {
            let mut client = client.clone();
            calls.spawn(async move { client.up(futures_util::stream::pending()).await.map(drop) });
        }
    }
    lab.until_figure("tollfree_gateway_refusals_total{reason=\"places\"}", |count| count >= 400.0).await;
    let by_class = "tollfree_gateway_client_refusals_total{reason=\"places\",client=\"backend\"}";
    assert!(lab.figure(by_class).await >= 400.0);
    let held = lab.figure(OUTSTANDING).await;
    assert!((700.0..=769.0).contains(&held), "{held} of three quarters of 1,024");
    good.go_on(20).await;
    calls.shutdown().await;
    good.end().await;
    until_nothing_is_left(&lab).await;
}

/// Where backend connections take few calls at once, clients have their turns one after the other.
#[tokio::test]
async fn who_waits_for_a_backend_connection_waits_for_its_turn_and_not_for_another_clients_calls() {
    let lab = Lab::start("load_balancing.depth = 1\nload_balancing.waiting = 40\n").await;
    let attached = lab.attach("default").await;
    let far = Endpoint::try_from(lab.uri.clone()).unwrap().local_address(Some([127, 0, 0, 7].into()));
    let client = ProbeClient::new(far.connect().await.unwrap());
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..60 {
        let mut client = client.clone();
        calls.spawn(async move { client.unary(Ask { wait_ms: 1, ..Ask::default() }).await.map(drop) });
    }
    // One is at the backend connection, three quarters of those that may wait do, and the rest is refused.
    lab.until_figure("tollfree_gateway_refusals_total{reason=\"waiting\"}", |count| count == 29.0).await;
    let mut other = lab.client().await;
    let one = tokio::spawn(async move { other.unary(Ask::default()).await.map(drop) });
    let name = "tollfree_gateway_waiting{group=\"default\",policy=\"least_outstanding\"}";
    lab.until_figure(name, |count| count == 31.0).await;
    let begun = Instant::now();
    while !one.is_finished() {
        attached.probe.gate.notify_one();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(begun.elapsed() < PATIENCE);
    }
    one.await.unwrap().expect("its turn has come");
    assert!(attached.probe.begun.load(Ordering::SeqCst) < 10, "long before the others are through");
}
