//! Metadata of backend connections that are too long for HTTP/2's other end: that call ends, and the others of the connection go on.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use tollfree_driver_tokio::{Ending, Outgoing, OutgoingMessage};
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::transport::Endpoint;
use tonic::{Code, Status};

use super::egress::{serve, via};
use super::lab::{Lab, PATIENCE};
use super::raw::{self, Deed, backend_connection, headers, message, pairs, trailers};

/// Two groups that one connection calls.
const ROUTES: &str = "[groups.calm]\n[groups.loud]\n[routes]\n\"tollfree.probe.v1.Probe/Unary\" = \"calm\"\n\
                      \"tollfree.probe.v1.Probe/Down\" = \"loud\"\n";
/// As many as fit into a session's block, where each takes 3 bytes: by HTTP/2's count 170,000 bytes.
const COUNT: usize = 5_000;

fn many() -> Bytes {
    pairs(COUNT, "b3", b"")
}

fn plain(bytes: &'static [u8]) -> Outgoing {
    message(OutgoingMessage::new(Bytes::from_static(bytes), false))
}

/// What each call to the loud group, by its number, is answered with.
fn deeds(block: &Bytes) -> Vec<Deed> {
    let fail = |block: Bytes| Ending::Trailers { code: Code::NotFound as u16, block };
    let failed = |headers| Outgoing { headers, message: None, ending: Some(fail(block.clone())) };
    vec![
        Deed::Say(vec![headers(block.clone())]),
        Deed::Say(vec![headers(Bytes::new()), plain(b""), trailers(0, block.clone())]),
        // In one frame, and in trailers alone.
        Deed::Say(vec![failed(Some(Bytes::new()))]),
        Deed::Say(vec![failed(None)]),
    ]
}

/// What a call to the loud group ends with.
async fn down(client: &ProbeClient<tonic::transport::Channel>) -> Status {
    let ended = async {
        let mut answers = client.clone().down(Ask::default()).await?.into_inner();
        while answers.message().await?.is_some() {}
        Ok::<_, Status>(())
    };
    let ended = tokio::time::timeout(PATIENCE, ended).await.expect("the call ends");
    ended.expect_err("its metadata are too long")
}

/// Has a client be answered so while it has a call of another group under way; `max` is what it says that it takes.
async fn answer(block: Bytes, max: Option<u32>) {
    let lab = Lab::start(ROUTES).await;
    let calm = lab.attach("calm").await;
    let all = deeds(&block);
    let (count, next) = (all.len(), AtomicUsize::new(0));
    let next = move || next.fetch_add(1, Ordering::SeqCst);
    let _loud = backend_connection(&lab, "loud", move |_| all[next() % all.len()].clone()).await;
    let mut endpoint = Endpoint::try_from(lab.uri.clone()).unwrap();
    if let Some(max) = max {
        endpoint = endpoint.http2_max_header_list_size(max);
    }
    let client = ProbeClient::new(endpoint.connect().await.unwrap());
    let under_way = tokio::spawn({
        let mut client = client.clone();
        async move { client.unary(Ask { wait_ms: 1, ..Ask::default() }).await }
    });
    let mut codes = Vec::new();
    for _ in 0..count {
        let status = down(&client).await;
        assert!(status.message().contains("bytes of headers by HTTP/2's count"), "{status}");
        codes.push(status.code());
    }
    let exhausted = Code::ResourceExhausted;
    assert_eq!(codes, [exhausted, exhausted, Code::NotFound, Code::NotFound]);
    assert_eq!(lab.refused("answer_headers").await, 4.0);
    assert!(!under_way.is_finished());
    calm.probe.gate.notify_one();
    under_way.await.unwrap().expect("another group's call on the same connection goes on");
}

#[tokio::test]
async fn an_answer_with_many_short_pairs_ends_its_call_and_not_the_connection() {
    answer(many(), None).await;
}

/// It says so as HTTP/2 begins, and takes less than the gateway allows.
#[tokio::test]
async fn an_answer_is_held_to_what_its_client_takes() {
    answer(pairs(1, "x-long", &[b'v'; 4_000]), Some(2_048)).await;
}

/// What is within both limits passes.
#[tokio::test]
async fn an_answer_that_its_client_takes_passes_whole() {
    let lab = Lab::start(ROUTES).await;
    let block = pairs(100, "x-some", &[b'v'; 60]);
    let said = [headers(block.clone()), plain(b""), trailers(0, block)];
    let _loud = backend_connection(&lab, "loud", move |_| Deed::Say(said.to_vec())).await;
    let mut client = lab.client().await;
    let mut answers = client.down(Ask::default()).await.unwrap();
    assert_eq!(answers.metadata().get_all("x-some").iter().count(), 100);
    assert!(answers.get_mut().message().await.unwrap().is_some());
    assert!(answers.get_mut().message().await.unwrap().is_none());
    let trailers = answers.get_mut().trailers().await.unwrap().unwrap();
    assert_eq!(trailers.get_all("x-some").iter().count(), 100);
    assert_eq!(lab.refused("answer_headers").await, 0.0);
}

/// Nobody can read such details: the status goes on without them, and the connection with all others.
#[tokio::test]
async fn details_of_a_status_that_are_no_base64_are_left_out() {
    let lab = Lab::start("").await;
    let bad = || pairs(1, "grpc-status-details-bin", b"!not base64!");
    let failed = Code::FailedPrecondition as u16;
    let deeds = [
        vec![trailers(failed, bad())],
        vec![headers(Bytes::new()), plain(b""), trailers(failed, bad())],
        // By HTTP/2's count its metadata are too long, so the status is said again.
        vec![trailers(failed, [bad(), many()].concat().into())],
    ];
    let next = AtomicUsize::new(0);
    let said = move |_: &_| Deed::Say(deeds[next.fetch_add(1, Ordering::SeqCst) % deeds.len()].clone());
    let _backend_connection = backend_connection(&lab, "default", said).await;
    let mut client = lab.client().await;
    for turn in 0..6 {
        let status = client.unary(Ask::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{turn}: {status}");
        assert!(status.details().is_empty(), "{status:?}");
    }
}

/// A group's calls to a target have its connections in common.
#[tokio::test]
async fn a_request_to_elsewhere_with_many_short_pairs_ends_its_call_and_not_the_connection() {
    let (address, elsewhere) = serve(tollfree::Server::builder()).await;
    let target = format!("http://{address}");
    let lab = Lab::start(&format!("[groups.default]\nvia = [\"{target}\"]\n")).await;
    let mut client = via(&lab, &target).await;
    let under_way = tokio::spawn(async move { client.unary(Ask { wait_ms: 1, ..Ask::default() }).await });
    let begun = tokio::time::Instant::now();
    while elsewhere.live.load(Ordering::SeqCst) == 0 {
        assert!(begun.elapsed() < PATIENCE, "the call does not come");
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let session = raw::via(&lab, &target).await;
    for _ in 0..3 {
        let (code, words) = raw::call(&session, "Unary", many(), Vec::new(), 0).await;
        assert_eq!(code, Code::ResourceExhausted, "{words}");
        assert!(words.contains("limits.header"), "{words}");
    }
    assert_eq!(lab.refused("headers").await, 3.0);
    assert_eq!(elsewhere.begun.load(Ordering::SeqCst), 1);
    elsewhere.gate.notify_one();
    under_way.await.unwrap().expect("another call to the same server goes on");
}
