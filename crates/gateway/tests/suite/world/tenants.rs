//! Two groups behind one gateway, of which one means harm.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::future::join_all;
use tollfree_stubs::probe::probe_server::ProbeServer;
use tollfree_stubs::probe::{Ask, Fault};
use tonic::{Code, Request};

use super::lab::{Lab, PATIENCE, backend_connections_of};
use super::probe::Probe;

/// Both serve the same service here, each its own methods.
const GROUPS: &str = "[groups.hostile]\n[groups.honest]\n[routes]\n\"tollfree.probe.v1.Probe/Unary\" = \"honest\"\n\
                      \"tollfree.probe.v1.Probe/Up\" = \"hostile\"\n\"tollfree.probe.v1.Probe/Down\" = \"hostile\"\n";

const MEMORY: &str = "tollfree_gateway_memory_bytes{group=\"hostile\"}";

/// A request that says it has 200 kB and brings 150 kB.
async fn half_a_request(lab: &Lab) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
    let stream = tokio::net::TcpStream::connect(lab.socket_address()).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = http::Request::post("http://localhost/tollfree.probe.v1.Probe/Up");
    let request = request.header("content-type", "application/grpc").body(()).unwrap();
    let (answer, mut body) = client.send_request(request, false).unwrap();
    let mut bytes = vec![0];
    bytes.extend(200_000_u32.to_be_bytes());
    bytes.resize(150_000, 7);
    body.send_data(bytes.into(), false).unwrap();
    (answer, body)
}

/// What one group's calls hold of memory is limited, and no other group's calls notice.
#[tokio::test]
async fn memory_is_limited_by_group() {
    let lab = Lab::start(&format!("limits.memory_bytes = 900000\n{GROUPS}")).await;
    let _hostile = lab.attach("hostile").await;
    let _honest = lab.attach("honest").await;
    let mut client = lab.client().await;
    // Each holds its bytes twice: as they came, for another backend connection, and as the message that is not complete.
    let held = [half_a_request(&lab).await, half_a_request(&lab).await];
    lab.until_figure(MEMORY, |bytes| bytes == 600_000.0).await;
    let (answer, _body) = half_a_request(&lab).await;
    let answer = tokio::time::timeout(PATIENCE, answer).await.expect("a refusal").unwrap();
    assert_eq!(answer.headers()["grpc-status"], "8");
    let words = answer.headers()["grpc-message"].to_str().unwrap();
    assert!(words.contains("limits.memory_bytes"), "{words}");
    assert_eq!(lab.refused("memory_share").await, 1.0);
    for _ in 0..5 {
        let answer = client.unary(Ask { body: vec![1; 200_000], ..Ask::default() }).await.unwrap();
        assert_eq!(answer.into_inner().body.len(), 200_000);
    }
    drop(held);
    lab.until_figure(MEMORY, |bytes| bytes == 0.0).await;
    let asks = futures_util::stream::iter([Ask { body: vec![1; 150_000], ..Ask::default() }]);
    assert_eq!(client.up(asks).await.unwrap().into_inner().seen_len, 150_000);
    lab.until_figure(MEMORY, |bytes| bytes == 0.0).await;
}

/// A group that never answers, takes all calls that it can get, says nonsense, wants another's services, and dies.
#[tokio::test]
async fn a_hostile_group_harms_no_other() {
    let lab = Lab::start(&format!("{GROUPS}[groups.owner]\nservices = [\"x.Owned\"]\n")).await;
    let hostile = lab.attach("hostile").await;
    let honest = lab.attach("honest").await;
    let client = lab.client().await;

    let waits = Ask { wait_ms: 1, ..Ask::default() };
    let mut stuck = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (mut client, waits) = (client.clone(), waits.clone());
        stuck.spawn(async move { client.down(waits).await.map(drop) });
    }
    let begun = tokio::time::Instant::now();
    while hostile.probe.live.load(Ordering::SeqCst) < 100 {
        assert!(begun.elapsed() < PATIENCE, "the calls don't come");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    // More processes of the group, and one that wants what is another's: it comes again and again, and is never let in.
    let _more = lab.attach_backend_connections("hostile", 3, Probe::default()).await;
    let robber = Probe::default();
    let server = tollfree::Server::builder().add_service(ProbeServer::new(robber.clone()));
    let robbing = tokio::spawn(server.attach(lab.backends()).group("owner").into_future());
    lab.until_figure("tollfree_gateway_refusals_total{reason=\"attach\"}", |count| count >= 1.0).await;
    assert_eq!(lab.figure(&backend_connections_of("owner")).await, 0.0);

    let fault = Fault { code: 9, message: "of the hostile group".into(), details: vec![1], panic: false };
    let nonsense = Ask { fault: Some(fault), lens: vec![1], ..Ask::default() };
    let calls = join_all((0..40_usize).map(|number| {
        let (mut client, mut other, nonsense) = (client.clone(), client.clone(), nonsense.clone());
        async move {
            let body = vec![number as u8; number * 500];
            let mut request = Request::new(Ask { body: body.clone(), ..Ask::default() });
            request.metadata_mut().insert("x-secret", "of the honest group".parse().unwrap());
            let (answer, refused) = tokio::join!(client.unary(request), other.down(nonsense));
            assert_eq!(answer.expect("a call of the honest group").into_inner().body, body);
            let refused = refused.unwrap().into_inner();
            drop(refused);
        }
    }));
    tokio::time::timeout(PATIENCE, calls).await.expect("they end, whatever the hostile group does");

    // Its death is told to its own callers only.
    let mut last = client.clone();
    let under_way = tokio::spawn(async move { last.unary(Ask { wait_ms: 1, ..Ask::default() }).await });
    let begun = tokio::time::Instant::now();
    while honest.probe.live.load(Ordering::SeqCst) < 1 {
        assert!(begun.elapsed() < PATIENCE, "the call does not come");
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    hostile.abort();
    while let Some(ended) = tokio::time::timeout(PATIENCE, stuck.join_next()).await.expect("they end") {
        let status = ended.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        for name in ["hostile", "honest", "sock", "pid"] {
            assert!(!status.message().contains(name), "{status}");
        }
    }
    honest.probe.gate.notify_one();
    under_way.await.unwrap().expect("another group's call goes on");
    assert_eq!(robber.begun.load(Ordering::SeqCst), 0);
    assert_eq!(honest.probe.begun.load(Ordering::SeqCst), 41, "each call once, and none of another group");
    robbing.abort();
}
