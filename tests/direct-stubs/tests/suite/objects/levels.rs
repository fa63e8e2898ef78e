//! One server, and clients of all levels at once.

use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tollfree::{Channel, Generated as _, Server, Way};
use tollfree_direct_stubs::later::views::tollfree::probe::v1::Ask as LaterAsk;
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient as ObjectsClient;
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer as ObjectsServer;
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::{Answer, Ask};
use tollfree_direct_stubs::{greeter, later, probe, sensors};
use tollfree_processor::Arenas;
use tollfree_processor::typed::{Builder, Owned};
use tollfree_stubs::probe as level1;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Response, Status};

use super::place::{InPlace, Place, in_time};

/// Bodies that go in a frame, in several, and in a payload area.
pub(crate) const LENS: [usize; 5] = [0, 1, 300, 9_000, 200_000];

/// An object with this body and these lengths.
pub(crate) fn ask(body: &[u8], lens: &[u32]) -> Owned<Ask> {
    let mut builder = Builder::<Ask>::new(Arenas::new(1 << 24, 0).take()).unwrap();
    builder.edit().set_body(body).unwrap();
    builder.edit().lens_mut().unwrap().extend(lens.iter().copied()).unwrap();
    builder.freeze().unwrap()
}

/// All kinds of calls by a client of prost's structs, from the module of its stubs.
macro_rules! exercise_structs {
    ($name:ident, $stubs:path) => {
        pub(crate) async fn $name(channel: Channel) {
            use $stubs as stubs;
            let ask = |body: Vec<u8>| stubs::Ask { body, ..stubs::Ask::default() };
            let mut client = stubs::probe_client::ProbeClient::new(channel);
            for len in LENS {
                let answer = client.unary(ask(vec![3; len])).await.unwrap().into_inner();
                assert!(answer.body == vec![3; len] && answer.seen_len == len as u64);
            }
            let lens = LENS.map(|len| len as u32).to_vec();
            let mut down = client.down(stubs::Ask { lens, ..ask(vec![]) }).await.unwrap().into_inner();
            for len in LENS {
                assert_eq!(down.message().await.unwrap().unwrap().body, vec![7; len]);
            }
            assert!(down.message().await.unwrap().is_none());
            let asks = || tokio_stream::iter(LENS.map(|len| ask(vec![3; len])));
            let seen = client.up(asks()).await.unwrap().into_inner();
            assert_eq!((seen.seen_count, seen.seen_len), (5, LENS.iter().sum::<usize>() as u64));
            let both = client.both(asks()).await.unwrap().into_inner();
            let found: Vec<usize> = both.map(|answer| answer.unwrap().body.len()).collect().await;
            assert_eq!(found, LENS);
            let fault = stubs::Fault {
                code: Code::DataLoss as i32,
                message: "as asked".into(),
                ..Default::default()
            };
            let refused = client.unary(stubs::Ask { fault: Some(fault), ..ask(vec![]) }).await.unwrap_err();
            assert_eq!((refused.code(), refused.message()), (Code::DataLoss, "as asked"));
        }
    };
}

exercise_structs!(by_level1, level1);
exercise_structs!(by_level2, probe);

/// The same by a client of objects.
pub(crate) async fn by_level3(channel: Channel) {
    let mut client = ObjectsClient::new(channel);
    for len in LENS {
        let answer: Owned<Answer> = client.unary(ask(&vec![3; len], &[])).await.unwrap().into_inner();
        assert!(answer.view().body() == vec![3; len] && answer.view().seen_len() == len as u64);
    }
    let lens = LENS.map(|len| len as u32);
    let mut down = client.down(ask(b"", &lens)).await.unwrap().into_inner();
    for len in LENS {
        assert_eq!(down.message().await.unwrap().unwrap().view().body(), vec![7; len]);
    }
    assert!(down.message().await.unwrap().is_none());
    let asks = || tokio_stream::iter(LENS.map(|len| ask(&vec![3; len], &[])));
    let seen = client.up(asks()).await.unwrap().into_inner();
    assert_eq!((seen.view().seen_count(), seen.view().seen_len()), (5, LENS.iter().sum::<usize>() as u64));
    let both = client.both(asks()).await.unwrap().into_inner();
    let found: Vec<usize> = both.map(|answer| answer.unwrap().view().body().len()).collect().await;
    assert_eq!(found, LENS);
}

/// `Ask` as a later version of the schema has it: a field more.
#[derive(Clone, PartialEq, prost::Message)]
struct NewAsk {
    #[prost(bytes = "vec", tag = "1")]
    body: Vec<u8>,
    #[prost(string, tag = "900")]
    added: String,
}

/// `Answer` as an earlier version has it: without most of its fields.
#[derive(Clone, PartialEq, prost::Message)]
struct OldAnswer {
    #[prost(uint64, tag = "3")]
    seen_len: u64,
}

/// Calls by another version of the schema.
pub(crate) async fn by_other_schema(channel: Channel) {
    let mut client = tonic::client::Grpc::new(channel);
    for len in LENS {
        client.ready().await.unwrap();
        let ask = Request::new(NewAsk { body: vec![3; len], added: "later".into() });
        let codec = tonic_prost::ProstCodec::<NewAsk, OldAnswer>::default();
        let path = PathAndQuery::from_static("/tollfree.probe.v1.Probe/Unary");
        let answer: Response<OldAnswer> = client.unary(ask, path, codec).await.unwrap();
        assert_eq!(answer.into_inner(), OldAnswer { seen_len: len as u64 });
    }
}

/// Services of the other levels beside it.
struct Polite;

#[tonic::async_trait]
impl tollfree_stubs::greeter::greeter_server::Greeter for Polite {
    async fn hello(
        &self,
        request: Request<tollfree_stubs::greeter::HelloRequest>,
    ) -> Result<Response<tollfree_stubs::greeter::HelloReply>, Status> {
        Ok(Response::new(tollfree_stubs::greeter::HelloReply { text: request.into_inner().name }))
    }
}

/// Calls by stubs that take objects, of a later version of the schema.
pub(crate) async fn by_later_schema(channel: Channel) {
    let mut client = later::probe::probe_client::ProbeClient::new(channel);
    for len in LENS {
        let mut ask = Builder::<LaterAsk>::new(Arenas::new(1 << 24, 0).take()).unwrap();
        ask.edit().set_body(&vec![3; len]).unwrap();
        ask.edit().set_added("later").unwrap();
        let answer = client.unary(ask.freeze().unwrap()).await.unwrap().into_inner();
        assert!(answer.view().body() == vec![3; len] && answer.view().seen_len() == len as u64);
    }
}

async fn by_greeter(channel: Channel) {
    let mut client = greeter::greeter_client::GreeterClient::new(channel);
    let request = greeter::HelloRequest { name: "Ada".into() };
    assert_eq!(client.hello(request).await.unwrap().into_inner().text, "Ada");
}

struct Thermometer;

#[tonic::async_trait]
impl sensors::sensors_server::Sensors for Thermometer {
    async fn read(&self, _: Request<sensors::Sensor>) -> Result<Response<sensors::Sample>, Status> {
        Ok(Response::new(sensors::Sample { value: 21.5 }))
    }

    type WatchStream = tokio_stream::Empty<Result<sensors::Sample, Status>>;

    async fn watch(&self, _: Request<sensors::Sensor>) -> Result<Response<Self::WatchStream>, Status> {
        Ok(Response::new(tokio_stream::empty()))
    }

    async fn report(
        &self,
        _: Request<tonic::Streaming<sensors::Sample>>,
    ) -> Result<Response<sensors::Summary>, Status> {
        Ok(Response::new(sensors::Summary::default()))
    }

    type CorrectStream = tokio_stream::Empty<Result<sensors::Sample, Status>>;

    async fn correct(
        &self,
        _: Request<tonic::Streaming<sensors::Sample>>,
    ) -> Result<Response<Self::CorrectStream>, Status> {
        Ok(Response::new(tokio_stream::empty()))
    }
}

async fn by_sensors(channel: Channel) {
    let mut client = sensors::sensors_client::SensorsClient::new(channel);
    let sample = client.read(sensors::Sensor::default()).await.unwrap().into_inner();
    assert!(sample.value > 21.0);
}

async fn at_once() {
    let server = Server::builder()
        .add_service(ObjectsServer::new(InPlace::new()))
        .add_service(sensors::sensors_server::SensorsServer::new(Thermometer))
        .add_service(tollfree_stubs::greeter::greeter_server::GreeterServer::new(Polite));
    let place = Place::new(server).await;
    assert_eq!(ObjectsClient::new(place.shm.clone()).way(), Way::Direct);
    assert_eq!(ObjectsClient::new(place.http2.clone()).way(), Way::Http("the channel speaks HTTP/2 only"));
    let mut calls = JoinSet::new();
    for channel in place.channels() {
        for kind in 0..7 {
            let channel = channel.clone();
            calls.spawn(async move {
                for _ in 0..3 {
                    let channel = channel.clone();
                    match kind {
                        0 => by_level1(channel).await,
                        1 => by_level2(channel).await,
                        2 => by_level3(channel).await,
                        3 => by_other_schema(channel).await,
                        4 => by_greeter(channel).await,
                        5 => by_later_schema(channel).await,
                        _ => by_sensors(channel).await,
                    }
                }
            });
        }
    }
    while let Some(ended) = calls.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_answers_all_levels_both_transports_and_other_schemas_at_once() {
    in_time(at_once()).await;
}
