//! Streams whose messages travel as objects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollfree::{Channel, PayloadCounts, Server};
use tollfree_direct_stubs::later::probe::probe_client::ProbeClient as LaterClient;
use tollfree_direct_stubs::later::views::tollfree::probe::v1::Ask as LaterAsk;
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient;
use tollfree_direct_stubs::objects::probe::probe_server::{Probe, ProbeServer};
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::{Answer, Ask};
use tollfree_processor::Arenas;
use tollfree_processor::typed::{Builder, Owned};
use tonic::codec::CompressionEncoding;
use tonic::{Code, Request, Response, Status, Streaming};

use super::levels::{LENS, ask};
use super::place::{Answers, InPlace, Place, in_time};

const COUNT: u64 = LENS.len() as u64;

/// Objects sent and received, as counted.
fn travelled(counts: PayloadCounts) -> [u64; 2] {
    [counts.sent_objects, counts.received_objects]
}

fn asks() -> impl tokio_stream::Stream<Item = Owned<Ask>> + Send + 'static {
    tokio_stream::iter(LENS.map(|len| ask(&vec![3; len], &[])))
}

/// One call of each kind that streams.
async fn down(client: &mut ProbeClient<Channel>) {
    let lens = LENS.map(|len| len as u32);
    let mut down = client.down(ask(b"", &lens)).await.unwrap().into_inner();
    for len in LENS {
        assert_eq!(down.message().await.unwrap().unwrap().view().body(), vec![7; len]);
    }
    assert!(down.message().await.unwrap().is_none());
}

async fn up(client: &mut ProbeClient<Channel>) {
    let seen = client.up(asks()).await.unwrap().into_inner();
    let len = LENS.iter().sum::<usize>() as u64;
    assert_eq!((seen.view().seen_count(), seen.view().seen_len()), (COUNT as u32, len));
}

async fn both(client: &mut ProbeClient<Channel>) {
    let both = client.both(asks()).await.unwrap().into_inner();
    let found: Vec<usize> = both.map(|answer| answer.unwrap().view().body().len()).collect().await;
    assert_eq!(found, LENS);
}

#[tokio::test]
async fn messages_of_streams_travel_as_objects_from_the_second_call_on() {
    let server = Server::builder().add_service(ProbeServer::new(InPlace::new()));
    let there = server.payloads();
    let place = Place::new(server).await;
    in_time(async {
        let here = place.shm.payloads();
        let mut client = ProbeClient::new(place.shm.clone());
        down(&mut client).await;
        assert_eq!([travelled(here.counts()), travelled(there.counts())], [[0; 2]; 2], "nothing was known");
        // What the server says of these may reach the client before the last messages of the first call.
        up(&mut client).await;
        both(&mut client).await;
        for round in 0..3 {
            for (kind, sent, received) in [("down", 1, COUNT), ("up", COUNT, 1), ("both", COUNT, COUNT)] {
                let [[from, to], [back_from, back_to]] = [here.counts(), there.counts()].map(travelled);
                match kind {
                    "down" => down(&mut client).await,
                    "up" => up(&mut client).await,
                    _ => both(&mut client).await,
                }
                let expected = [[from + sent, to + received], [back_from + received, back_to + sent]];
                assert_eq!([here.counts(), there.counts()].map(travelled), expected, "{kind}, {round}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_stream_goes_over_to_objects_once_the_server_has_said_that_it_takes_them() {
    let place = Place::new(Server::builder().add_service(ProbeServer::new(InPlace::new()))).await;
    in_time(async {
        let here = place.shm.payloads();
        let mut client = ProbeClient::new(place.shm.clone());
        let (asks, rest) = mpsc::channel(1);
        let one = || ask(b"one of a stream", &[]);
        // The first goes with the call, so it is encoded, and so is its answer.
        asks.send(one()).await.unwrap();
        let mut answers = client.both(ReceiverStream::new(rest)).await.unwrap().into_inner();
        for nth in 0..4 {
            let answer = answers.message().await.unwrap().unwrap();
            assert_eq!(answer.view().body(), b"one of a stream");
            assert_eq!(travelled(here.counts()), [nth; 2]);
            asks.send(one()).await.unwrap();
        }
        drop(asks);
        assert!(answers.message().await.unwrap().is_some() && answers.message().await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn streams_of_another_schema_or_compressed_carry_bytes() {
    let service = ProbeServer::new(InPlace::new()).accept_compressed(CompressionEncoding::Gzip);
    let place = Place::new(Server::builder().add_service(service)).await;
    in_time(async {
        let here = place.shm.payloads();
        let mut zipped = ProbeClient::new(place.shm.clone())
            .send_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Gzip);
        for _ in 0..3 {
            up(&mut zipped).await;
            both(&mut zipped).await;
            down(&mut zipped).await;
        }
        assert_eq!(travelled(here.counts()), [0; 2]);
        let mut later = LaterClient::new(place.shm.clone());
        let mut ask = Builder::<LaterAsk>::new(Arenas::new(1 << 24, 0).take()).unwrap();
        ask.edit().set_added("later").unwrap();
        let ask = ask.freeze().unwrap();
        for _ in 0..2 {
            let asks = tokio_stream::iter([ask.object().bytes(); 3].map(|object| {
                Owned::<LaterAsk>::verify(object, Arenas::new(1 << 24, 0).take(), 100).unwrap()
            }));
            assert_eq!(later.up(asks).await.unwrap().into_inner().view().seen_count(), 3);
        }
        let counts = here.counts();
        assert!(travelled(counts) == [0; 2] && counts.other_schema >= 3, "{counts:?}");
        let paths = place.shm.path().ready().expect("it is connected").other_schemas.clone();
        assert_eq!(paths, ["/tollfree.probe.v1.Probe/Up"]);
        // Another client's of the same method are objects.
        up(&mut ProbeClient::new(place.shm.clone())).await;
        assert_eq!(travelled(here.counts()), [COUNT, 1]);
    })
    .await;
}

#[tokio::test]
async fn limits_hold_for_the_encoding_of_each_message_of_a_stream() {
    let limit = 30_000;
    let server = ProbeServer::new(InPlace::new()).max_decoding_message_size(limit);
    let server = Server::builder().add_service(server);
    let there = server.payloads();
    let place = Place::new(server).await;
    // A byte each as protobuf has them, four in the object.
    let of_lens = |count| ask(b"", &vec![7; count]);
    in_time(async {
        let mut client = ProbeClient::new(place.shm.clone());
        client.up(tokio_stream::empty()).await.unwrap();
        let seen = client.up(tokio_stream::iter([of_lens(100), of_lens(29_000)])).await.unwrap();
        assert_eq!((seen.into_inner().view().seen_count(), there.counts().received_objects), (2, 2));
        let long = client.up(tokio_stream::iter([of_lens(100), of_lens(limit)])).await.unwrap_err();
        assert_eq!(long.code(), Code::OutOfRange, "{long}");
        assert!(long.message().contains("the limit is: 30000 bytes"), "{long}");
        // A sender's own limit has it encode what is longer, and refuse what is too long then.
        let mut sparing = ProbeClient::new(place.shm.clone()).max_encoding_message_size(1_000);
        let before = there.counts().received_objects;
        sparing.up(tokio_stream::iter([of_lens(900)])).await.unwrap();
        assert_eq!(there.counts().received_objects, before);
        assert_eq!(
            sparing.up(tokio_stream::iter([of_lens(1_000)])).await.unwrap_err().code(),
            Code::OutOfRange
        );
        // No object is longer than 4 MiB on its way: the encoding is over the limit.
        client.up(tokio_stream::iter([of_lens(1 << 20)])).await.unwrap_err();
        assert_eq!(there.counts().received_objects, before);
        let mut small = ProbeClient::new(place.shm.clone()).max_decoding_message_size(50);
        for _ in 0..2 {
            let mut answers = small.down(ask(b"", &[20, 60])).await.unwrap().into_inner();
            assert_eq!(answers.message().await.unwrap().unwrap().view().body().len(), 20);
            assert_eq!(answers.message().await.unwrap_err().code(), Code::OutOfRange);
        }
    })
    .await;
}

/// Fails streams of requests once it has read them, so many times.
struct Failing {
    failures: Arc<AtomicU32>,
    inner: InPlace,
}

#[tonic::async_trait]
impl Probe for Failing {
    async fn unary(&self, request: Request<Owned<Ask>>) -> Result<Response<Owned<Answer>>, Status> {
        self.inner.unary(request).await
    }

    type DownStream = Answers;

    async fn down(&self, request: Request<Owned<Ask>>) -> Result<Response<Answers>, Status> {
        self.inner.down(request).await
    }

    async fn up(&self, request: Request<Streaming<Owned<Ask>>>) -> Result<Response<Owned<Answer>>, Status> {
        let answer = self.inner.up(request).await?;
        let left = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if left.is_ok() { Err(Status::unavailable("as asked")) } else { Ok(answer) }
    }

    type BothStream = Answers;

    async fn both(&self, request: Request<Streaming<Owned<Ask>>>) -> Result<Response<Answers>, Status> {
        self.inner.both(request).await
    }
}

#[tokio::test]
async fn a_stream_of_objects_is_sent_again_as_it_was() {
    let retries = r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.001s",
        "maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}"#;
    let failures = Arc::new(AtomicU32::new(0));
    let service = Failing { failures: failures.clone(), inner: InPlace::new() };
    let place = Place::new(Server::builder().add_service(ProbeServer::new(service))).await;
    in_time(async {
        let channel = Channel::builder(&*place.address).service_config(retries).connect().await.unwrap();
        let mut client = ProbeClient::new(channel.clone());
        client.up(tokio_stream::empty()).await.unwrap();
        failures.store(2, Ordering::SeqCst);
        let asks = tokio_stream::iter([10, 300, 2_000].map(|len| ask(&vec![5; len], &[])));
        let seen = client.up(asks).await.unwrap().into_inner();
        assert_eq!((seen.view().seen_count(), seen.view().seen_len()), (3, 2_310));
        assert_eq!(failures.load(Ordering::SeqCst), 0);
        assert_eq!(travelled(channel.payloads().counts()), [3 * 3, 1], "three attempts, and one answer");
    })
    .await;
}
