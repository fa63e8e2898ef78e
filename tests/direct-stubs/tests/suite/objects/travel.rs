//! Which messages travel as objects, and which as protobuf's bytes.

use tollfree::{Channel, Generated as _, PayloadCounts, Server, Way};
use tollfree_direct_stubs::later::probe::probe_server as later_server;
use tollfree_direct_stubs::later::views::tollfree::probe::v1::{Answer as LaterAnswer, Ask as LaterAsk};
use tollfree_direct_stubs::objects::greeter::greeter_client::GreeterClient;
use tollfree_direct_stubs::objects::greeter::greeter_server::{Greeter, GreeterServer};
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient;
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer;
use tollfree_direct_stubs::objects::views::tollfree::greeter::v1::{HelloReply, HelloRequest};
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::Ask;
use tollfree_processor::Arenas;
use tollfree_processor::typed::{Builder, Message, Owned};
use tonic::codec::CompressionEncoding;
use tonic::{Code, Request, Response, Status, Streaming};

use super::levels::{LENS, ask, by_later_schema, by_level1, by_level2, by_level3, by_other_schema};
use super::place::{InPlace, Place, in_time};

fn builder<M: Message>() -> Builder<M> {
    Builder::new(Arenas::new(1 << 24, 0).take()).unwrap()
}

/// Objects sent and received, as counted.
fn travelled(counts: PayloadCounts) -> [u64; 2] {
    [counts.sent_objects, counts.received_objects]
}

/// Whom the first path of a channel names as of another schema.
fn other_schemas(channel: &Channel) -> Vec<String> {
    channel.path().ready().expect("it is connected").other_schemas.clone()
}

#[tokio::test]
async fn objects_travel_from_the_second_call_on_and_others_of_the_session_get_bytes() {
    let service = ProbeServer::new(InPlace::new()).accept_compressed(CompressionEncoding::Gzip);
    let server = Server::builder().add_service(service);
    let there = server.payloads();
    let place = Place::new(server).await;
    in_time(async {
        let (channel, here) = (place.shm.clone(), place.shm.payloads());
        let mut client = ProbeClient::new(channel.clone());
        assert_eq!(client.way(), Way::Direct);
        client.unary(ask(b"first", &[])).await.unwrap();
        assert_eq!([travelled(here.counts()), travelled(there.counts())], [[0; 2]; 2], "nothing was known");
        for (nth, len) in LENS.into_iter().enumerate() {
            let answer = client.unary(ask(&vec![3; len], &[])).await.unwrap().into_inner();
            assert!(answer.view().body() == vec![3; len] && answer.view().seen_len() == len as u64);
            let count = nth as u64 + 1;
            let expected = [[count; 2]; 2];
            assert_eq!([travelled(here.counts()), travelled(there.counts())], expected, "{len} bytes");
        }
        let before = [here.counts(), there.counts()].map(travelled);
        by_level1(channel.clone()).await;
        by_level2(channel.clone()).await;
        by_other_schema(channel.clone()).await;
        by_later_schema(channel.clone()).await;
        let mut zipped = ProbeClient::new(channel.clone())
            .send_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Gzip);
        zipped.unary(ask(&[5; 30_000], &[])).await.unwrap();
        let mut worded = Request::new(ask(b"x", &[]));
        worded.metadata_mut().insert("grpc-accept-encoding", "identity".parse().unwrap());
        client.unary(worded).await.unwrap();
        assert_eq!([here.counts(), there.counts()].map(travelled), before, "all of these need bytes");
        by_level3(place.http2.clone()).await;
        assert_eq!(travelled(place.http2.payloads().counts()), [0; 2], "HTTP/2 carries bytes");
        by_level3(channel).await;
        let after = travelled(here.counts());
        assert!(after.iter().zip(before[0]).all(|(after, before)| *after >= before + LENS.len() as u64));
    })
    .await;
}

#[tokio::test]
async fn calls_that_wait_are_intercepted_or_fail_have_objects_like_others() {
    let server = ProbeServer::with_interceptor(InPlace::new(), |mut request: Request<()>| {
        request.metadata_mut().insert("marked", "there".parse().unwrap());
        Ok(request)
    });
    let place = Place::new(Server::builder().add_service(server)).await;
    in_time(async {
        let here = place.shm.payloads();
        let mut client = ProbeClient::with_interceptor(place.shm.clone(), |mut request: Request<()>| {
            request.metadata_mut().insert("seen", "here".parse().unwrap());
            Ok(request)
        });
        for nth in 0..3_u64 {
            let mut slow = builder::<Ask>();
            slow.edit().set_wait_ms(5).unwrap();
            slow.edit().set_body(b"slow").unwrap();
            let answer = client.unary(slow.freeze().unwrap()).await.unwrap().into_inner();
            assert_eq!(answer.view().headers().get(0), Some("there"));
            assert_eq!(travelled(here.counts()), [nth; 2]);
        }
        let mut failing = builder::<Ask>();
        failing.edit().fault_mut().unwrap().set_code(Code::DataLoss as i32).unwrap();
        failing.edit().fault_mut().unwrap().set_message("as asked").unwrap();
        let refused = client.unary(failing.freeze().unwrap()).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::DataLoss, "as asked"));
        assert_eq!(travelled(here.counts()), [3, 2]);
        let mut late = builder::<Ask>();
        late.edit().set_wait_ms(60_000).unwrap();
        let mut late = Request::new(late.freeze().unwrap());
        late.set_timeout(std::time::Duration::from_millis(20));
        let late = client.unary(late).await.unwrap_err();
        assert!(matches!(late.code(), Code::DeadlineExceeded | Code::Cancelled), "{late}");
        client.unary(ask(b"x", &[])).await.unwrap();
    })
    .await;
}

/// An `Ask` of so many lengths: a byte each as protobuf has them, four in the object.
fn ask_of_lens(count: usize) -> Owned<Ask> {
    ask(b"", &vec![7; count])
}

#[tokio::test]
async fn limits_are_those_of_the_encoding_where_the_object_is_longer() {
    let limit = 30_000;
    let server = ProbeServer::new(InPlace::new()).max_decoding_message_size(limit);
    let server = Server::builder().add_service(server);
    let there = server.payloads();
    let place = Place::new(server).await;
    in_time(async {
        let mut client = ProbeClient::new(place.shm.clone());
        client.unary(ask(b"first", &[])).await.unwrap();
        for (nth, count) in [100, 2_000, 29_000].into_iter().enumerate() {
            assert!(ask_of_lens(count).object().bytes().len() > 4 * count);
            client.unary(ask_of_lens(count)).await.unwrap();
            assert_eq!(there.counts().received_objects, nth as u64 + 1, "{count} lengths");
        }
        let long = client.unary(ask_of_lens(limit)).await.unwrap_err();
        assert_eq!(long.code(), Code::OutOfRange, "{long}");
        assert!(long.message().contains("the limit is: 30000 bytes"), "{long}");
        assert_eq!(there.counts().received_objects, 4, "it was looked at");
        // A sender's own limit has it encode what is longer, and refuse what is too long then.
        let mut sparing = ProbeClient::new(place.shm.clone()).max_encoding_message_size(1_000);
        sparing.unary(ask_of_lens(900)).await.unwrap();
        assert_eq!(there.counts().received_objects, 4);
        assert_eq!(sparing.unary(ask_of_lens(1_000)).await.unwrap_err().code(), Code::OutOfRange);
        // No object is longer than 4 MiB on its way.
        client.unary(ask_of_lens(1 << 20)).await.unwrap_err();
        assert_eq!(there.counts().received_objects, 4);
        let mut small = ProbeClient::new(place.shm.clone()).max_decoding_message_size(50);
        assert_eq!(small.unary(ask(b"", &[60])).await.unwrap_err().code(), Code::OutOfRange);
        small.unary(ask(b"", &[20])).await.unwrap();
    })
    .await;
}

struct Polite;

#[tonic::async_trait]
impl Greeter for Polite {
    async fn hello(
        &self,
        request: Request<Owned<HelloRequest>>,
    ) -> Result<Response<Owned<HelloReply>>, Status> {
        let mut reply = builder::<HelloReply>();
        reply.edit().set_text(request.get_ref().view().name()).unwrap();
        Ok(Response::new(reply.freeze().unwrap()))
    }
}

async fn greet(client: &mut GreeterClient<Channel>) {
    let mut request = builder::<HelloRequest>();
    request.edit().set_name("Ada").unwrap();
    let reply = client.hello(request.freeze().unwrap()).await.unwrap().into_inner();
    assert_eq!(reply.view().text(), "Ada");
}

/// The service of a later schema.
struct Later;

#[tonic::async_trait]
impl later_server::Probe for Later {
    async fn unary(&self, request: Request<Owned<LaterAsk>>) -> Result<Response<Owned<LaterAnswer>>, Status> {
        let mut answer = builder::<LaterAnswer>();
        answer.edit().set_body(request.get_ref().view().body()).unwrap();
        Ok(Response::new(answer.freeze().unwrap()))
    }

    async fn up(
        &self,
        request: Request<Streaming<Owned<LaterAsk>>>,
    ) -> Result<Response<Owned<LaterAnswer>>, Status> {
        let mut asks = request.into_inner();
        let mut count = 0;
        while asks.message().await?.is_some() {
            count += 1;
        }
        let mut answer = builder::<LaterAnswer>();
        answer.edit().set_seen_count(count).unwrap();
        Ok(Response::new(answer.freeze().unwrap()))
    }
}

const UNARY: &str = "/tollfree.probe.v1.Probe/Unary";

#[tokio::test]
async fn a_client_of_a_later_schema_gets_bytes_for_that_method_alone_and_can_see_why() {
    let server = Server::builder()
        .add_service(ProbeServer::new(InPlace::new()))
        .add_service(GreeterServer::new(Polite));
    let place = Place::new(server).await;
    in_time(async {
        let (channel, here) = (place.shm.clone(), place.shm.payloads());
        by_later_schema(channel.clone()).await;
        assert_eq!(travelled(here.counts()), [0; 2]);
        assert_eq!(
            here.counts().other_schema,
            LENS.len() as u64 - 1,
            "all but the first, before which nothing was known"
        );
        assert_eq!(other_schemas(&channel), [UNARY]);
        let path = channel.path().to_string();
        assert!(path.contains("requests of /tollfree.probe.v1.Probe/Unary encoded"), "{path}");
        let mut greeter = GreeterClient::new(channel.clone());
        for _ in 0..3 {
            greet(&mut greeter).await;
        }
        assert_eq!(travelled(here.counts()), [2; 2], "another method's types are the same");
        ProbeClient::new(channel.clone()).unary(ask(b"x", &[])).await.unwrap();
        assert_eq!(travelled(here.counts()), [3; 2], "another client's, too");
        assert_eq!(other_schemas(&place.http2), [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn a_server_of_a_later_schema_gets_bytes_from_older_clients() {
    let server = Server::builder().add_service(later_server::ProbeServer::new(Later));
    let there = server.payloads();
    let place = Place::new(server).await;
    in_time(async {
        let mut older = ProbeClient::new(place.shm.clone());
        for len in LENS {
            let answer = older.unary(ask(&vec![3; len], &[])).await.unwrap().into_inner();
            assert_eq!(answer.view().body(), vec![3; len]);
        }
        assert_eq!(travelled(there.counts()), [0; 2]);
        assert_eq!(other_schemas(&place.shm), [UNARY]);
        let mut client =
            tollfree_direct_stubs::later::probe::probe_client::ProbeClient::new(place.shm.clone());
        let mut ask = builder::<LaterAsk>();
        ask.edit().set_body(b"later").unwrap();
        let answer = client.unary(ask.freeze().unwrap()).await.unwrap().into_inner();
        assert_eq!(answer.view().body(), b"later");
        assert_eq!(travelled(there.counts()), [1; 2]);
    })
    .await;
}
