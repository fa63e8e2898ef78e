//! Object mode: handlers that take objects get them from a gateway, whose clients notice nothing.

use std::time::Duration;

use tollfree::{Payloads, Server};
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer;
use tollfree_stubs::probe as structs;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::codec::CompressionEncoding;
use tonic::{Code, Request};

use super::lab::{Lab, backend_connections_of};
use super::taker::Taker;

const PATIENCE: Duration = Duration::from_secs(20);

/// Numbers that stand where an ask has its lengths.
#[derive(Clone, PartialEq, prost::Message)]
struct Broken {
    #[prost(bytes = "vec", tag = "2")]
    lens: Vec<u8>,
}

/// The figure of a group's messages of which this became.
pub(crate) fn objects(group: &str, message: &str, became: &str) -> String {
    format!("tollfree_gateway_objects_total{{group=\"{group}\",message=\"{message}\",became=\"{became}\"}}")
}

/// A gateway, and a process whose handlers take objects, with what its server has counted.
async fn attach(more: &str) -> (Lab, Payloads, tokio::task::JoinHandle<()>) {
    let lab = Lab::start(more).await;
    let service = ProbeServer::new(Taker)
        .max_decoding_message_size(64 << 20)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    let server = Server::builder().add_service(service);
    let payloads = server.payloads();
    let attaching = server.attach(lab.backends()).group("default").backend_connections(1);
    let task = tokio::spawn(async move { drop(attaching.await) });
    lab.until_figure(&backend_connections_of("default"), |count| count == 1.0).await;
    (lab, payloads, task)
}

/// `down` answers `count` times.
fn ask(body: &[u8], count: u32) -> structs::Ask {
    structs::Ask { body: body.to_vec(), burn_us: count, ..structs::Ask::default() }
}

/// Calls until the handler has got an object.
pub(crate) async fn until_objects(client: &mut ProbeClient<tonic::transport::Channel>, payloads: &Payloads) {
    let began = tokio::time::Instant::now();
    while payloads.counts().received_objects == 0 {
        client.unary(ask(b"again", 0)).await.unwrap();
        assert!(began.elapsed() < PATIENCE, "no request came as an object");
    }
}

#[tokio::test]
async fn a_handler_that_takes_objects_gets_them_and_its_answers_are_encoded() {
    let (lab, payloads, attached) = attach("limits.message_bytes = 67108864\n").await;
    let mut client = lab.client().await.max_decoding_message_size(64 << 20);
    until_objects(&mut client, &payloads).await;
    let before = payloads.counts();
    for len in [1, 100, 1000, 5000, 100_000, 3_000_000] {
        let body: Vec<u8> = (0..len).map(|idx| (idx % 251) as u8).collect();
        let answer = client.unary(ask(&body, 0)).await.unwrap().into_inner();
        assert!(answer.body == body, "{len} bytes");
    }
    let status = client.unary(ask(b"", 0)).await.expect_err("it has no body");
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "without a body"));
    let after = payloads.counts();
    assert_eq!(
        (after.received_objects - before.received_objects, after.sent_objects - before.sent_objects),
        (7, 6)
    );
    // Longer than objects travel.
    let body = vec![7; 5 << 20];
    assert!(client.unary(ask(&body, 0)).await.unwrap().into_inner().body == body);
    assert_eq!(payloads.counts().received_objects, after.received_objects, "it went as bytes");
    attached.abort();
}

#[tokio::test]
async fn streams_of_all_kinds_carry_objects() {
    let (lab, payloads, attached) = attach("").await;
    let mut client = lab.client().await;
    // Each method says for itself, with its first call.
    for round in 0..20 {
        let before = payloads.counts().received_objects;
        let bodies: Vec<Vec<u8>> = (1..10).map(|nth| vec![nth as u8; nth * 700]).collect();
        let mut answers = client.down(ask(&bodies[3], 5)).await.unwrap().into_inner();
        for _ in 0..5 {
            assert!(answers.message().await.unwrap().unwrap().body == bodies[3]);
        }
        assert!(answers.message().await.unwrap().is_none());
        let asks: Vec<_> = bodies.iter().map(|body| ask(body, 0)).collect();
        let answer = client.up(tokio_stream::iter(asks.clone())).await.unwrap().into_inner();
        assert!(answer.body == bodies.concat());
        let mut answers = client.both(tokio_stream::iter(asks)).await.unwrap().into_inner();
        for body in &bodies {
            assert!(answers.message().await.unwrap().unwrap().body == *body);
        }
        assert!(answers.message().await.unwrap().is_none());
        if payloads.counts().received_objects - before == 1 + 9 + 9 {
            return attached.abort();
        }
        tokio::time::sleep(Duration::from_millis(10 * round)).await;
    }
    panic!("{payloads:?}");
}

#[tokio::test]
async fn what_is_no_message_of_its_type_goes_on_as_it_is() {
    let (lab, payloads, attached) = attach("").await;
    let mut client = lab.client().await;
    until_objects(&mut client, &payloads).await;
    let before = payloads.counts().received_objects;
    let mut raw = tonic::client::Grpc::new(lab.channel().await);
    raw.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<Broken, structs::Answer>::default();
    let path = http::uri::PathAndQuery::from_static("/tollfree.probe.v1.Probe/Unary");
    let broken = Request::new(Broken { lens: vec![0xff; 3] });
    let status = raw.unary(broken, path, codec).await.expect_err("a number has no end");
    assert_eq!(status.code(), Code::Internal, "{status}");
    assert!(status.message().contains("lens"), "the handler's side says what is wrong: {status}");
    assert_eq!(payloads.counts().received_objects, before);
    attached.abort();
}

#[tokio::test]
async fn a_gateway_that_is_told_so_hands_over_bytes() {
    let (lab, payloads, attached) = attach("backends.objects = false\n").await;
    let mut client = lab.client().await;
    for _ in 0..100 {
        client.unary(ask(b"bytes", 0)).await.unwrap();
    }
    assert_eq!(payloads.counts().received_objects, 0);
    attached.abort();
}

/// Each message is counted once, by what became of it.
#[tokio::test]
async fn what_became_of_each_message_is_counted() {
    let (lab, payloads, attached) = attach("limits.message_bytes = 67108864\n").await;
    let of = |message, became| objects("default", message, became);
    let mut client = lab.client().await.max_decoding_message_size(64 << 20);
    until_objects(&mut client, &payloads).await;
    assert_eq!(lab.figure(&of("request", "first")).await, 1.0);
    let (requests, answers) = (of("request", "object"), of("answer", "object"));
    let before = (lab.figure(&requests).await, lab.figure(&answers).await);
    for _ in 0..3 {
        client.unary(ask(b"counted", 0)).await.unwrap();
    }
    client.unary(ask(b"", 0)).await.expect_err("it has no body");
    assert_eq!(
        (lab.figure(&requests).await, lab.figure(&answers).await),
        (before.0 + 4.0, before.1 + 3.0),
        "a status alone is no message"
    );
    // An object that is too long comes as bytes, and is answered so.
    client.unary(ask(&vec![7; 5 << 20], 0)).await.unwrap();
    assert_eq!(lab.figure(&of("request", "too_long")).await, 1.0);
    assert_eq!(lab.figure(&of("answer", "bytes")).await, 1.0);
    // One that is compressed is inflated; what the server does not take is its own side's to refuse.
    let (mut gzip, mut deflate) = (lab.client().await, lab.client().await);
    gzip = gzip.send_compressed(CompressionEncoding::Gzip);
    deflate = deflate.send_compressed(CompressionEncoding::Deflate);
    gzip.unary(ask(b"small", 0)).await.unwrap();
    assert_eq!(lab.figure(&of("request", "compressed")).await, 0.0);
    deflate.unary(ask(b"small", 0)).await.expect_err("the server does not take it");
    assert_eq!(lab.figure(&of("request", "compressed")).await, 1.0);
    // So are the messages of a stream, one by one.
    let before = lab.figure(&requests).await;
    let began = tokio::time::Instant::now();
    while lab.figure(&requests).await == before {
        client.up(tokio_stream::iter([ask(b"1", 0), ask(b"2", 0), ask(b"3", 0)])).await.unwrap();
        assert!(began.elapsed() < PATIENCE, "no request came as an object");
    }
    assert_eq!(lab.figure(&requests).await, before + 3.0);
    assert_eq!(lab.figure(&of("request", "first")).await, 2.0, "once for each method");
    let socket = lab.backends();
    let state = tollfree_control::State::read(&socket).await.unwrap();
    assert_eq!(state.objects["default"].requests["too_long"], 1);
    assert_eq!(state.objects["default"].answers["unsound"], 0);
    attached.abort();
}

/// A process that is to decode nothing gets nothing to decode.
#[tokio::test]
async fn what_is_too_long_for_an_object_is_refused_where_the_config_says_so() {
    let (lab, payloads, attached) =
        attach("limits.message_bytes = 67108864\nbackends.on_unconvertible = \"refuse\"\n").await;
    let mut client = lab.client().await;
    until_objects(&mut client, &payloads).await;
    let refused = client.unary(ask(&vec![7; 5 << 20], 0)).await.expect_err("its object is too long");
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("4194304 bytes"), "{refused}");
    assert_eq!(lab.figure(&objects("default", "request", "too_long")).await, 1.0);
    client.unary(ask(b"short", 0)).await.unwrap();
    attached.abort();
}
