//! Object mode: handlers that take objects get them from a shepherd, whose clients notice nothing.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tollfree::{Payloads, Server};
use tollfree_direct_stubs::objects::probe::probe_server::{Probe, ProbeServer};
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::{Answer, Ask};
use tollfree_processor::Arenas;
use tollfree_processor::typed::{Draft, Owned};
use tollfree_stubs::probe as structs;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::codec::CompressionEncoding;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::lab::{Lab, workers_of};

const PATIENCE: Duration = Duration::from_secs(20);
/// The arenas that objects are built in, in bytes.
const ARENA_LEN_MAX: usize = 8 << 20;

/// Numbers that stand where an ask has its lengths.
#[derive(Clone, PartialEq, prost::Message)]
struct Broken {
    #[prost(bytes = "vec", tag = "2")]
    lens: Vec<u8>,
}

/// Gives back what it gets.
struct Echo;

fn answer(ask: &Owned<Ask>) -> Owned<Answer> {
    let mut draft = Draft::<Answer>::new(Arenas::new(ARENA_LEN_MAX, 0).take()).unwrap();
    draft.edit().set_body(ask.view().body()).unwrap();
    draft.freeze().unwrap()
}

#[tonic::async_trait]
impl Probe for Echo {
    async fn unary(&self, request: Request<Owned<Ask>>) -> Result<Response<Owned<Answer>>, Status> {
        if request.get_ref().view().body().is_empty() {
            return Err(Status::invalid_argument("without a body"));
        }
        Ok(Response::new(answer(request.get_ref())))
    }

    type DownStream = BoxStream<'static, Result<Owned<Answer>, Status>>;

    async fn down(&self, request: Request<Owned<Ask>>) -> Result<Response<Self::DownStream>, Status> {
        let ask = request.into_inner();
        let answers = (0..ask.view().burn_us()).map(move |_| Ok(answer(&ask))).collect::<Vec<_>>();
        Ok(Response::new(futures_util::stream::iter(answers).boxed()))
    }

    async fn up(&self, request: Request<Streaming<Owned<Ask>>>) -> Result<Response<Owned<Answer>>, Status> {
        let mut asks = request.into_inner();
        let mut body = Vec::new();
        while let Some(ask) = asks.next().await {
            body.extend_from_slice(ask?.view().body());
        }
        let mut draft = Draft::<Answer>::new(Arenas::new(ARENA_LEN_MAX, 0).take()).unwrap();
        draft.edit().set_body(&body).unwrap();
        Ok(Response::new(draft.freeze().unwrap()))
    }

    type BothStream = BoxStream<'static, Result<Owned<Answer>, Status>>;

    async fn both(
        &self,
        request: Request<Streaming<Owned<Ask>>>,
    ) -> Result<Response<Self::BothStream>, Status> {
        Ok(Response::new(request.into_inner().map(|ask| Ok(answer(&ask?))).boxed()))
    }
}

/// A shepherd, and a process whose handlers take objects, with what its server has counted.
async fn attach(more: &str) -> (Lab, Payloads, tokio::task::JoinHandle<()>) {
    let lab = Lab::start(more).await;
    let service = ProbeServer::new(Echo)
        .max_decoding_message_size(64 << 20)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    let server = Server::builder().add_service(service);
    let payloads = server.payloads();
    let attaching = server.attach(lab.business()).group("default").workers(1);
    let task = tokio::spawn(async move { drop(attaching.await) });
    lab.until_figure(&workers_of("default"), |count| count == 1.0).await;
    (lab, payloads, task)
}

/// `down` answers `count` times.
fn ask(body: &[u8], count: u32) -> structs::Ask {
    structs::Ask { body: body.to_vec(), burn_us: count, ..structs::Ask::default() }
}

/// Calls until the handler has got an object.
async fn until_objects(client: &mut ProbeClient<tonic::transport::Channel>, payloads: &Payloads) {
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
    // Compressed messages are left to the handler's side.
    let mut compressed = lab
        .client()
        .await
        .send_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Gzip);
    let body = vec![1; 10_000];
    assert!(compressed.unary(ask(&body, 0)).await.unwrap().into_inner().body == body);
    assert_eq!(payloads.counts().received_objects, before);
    attached.abort();
}

#[tokio::test]
async fn a_shepherd_that_is_told_so_hands_over_bytes() {
    let (lab, payloads, attached) = attach("business.objects = false\n").await;
    let mut client = lab.client().await;
    for _ in 0..100 {
        client.unary(ask(b"bytes", 0)).await.unwrap();
    }
    assert_eq!(payloads.counts().received_objects, 0);
    attached.abort();
}
