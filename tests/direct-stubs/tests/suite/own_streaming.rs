//! Streams as `tollfree::Streaming`: callers and handlers of generated stubs that were told so, over sessions and HTTP/2.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_stream::{Stream, StreamExt as _};
use tollfree::{Channel, Server, Streaming};
use tollfree_direct_stubs::own::freight::Cargo;
use tollfree_direct_stubs::own::freight::freight_blocking_client::FreightBlockingClient;
use tollfree_direct_stubs::own::freight::freight_client::FreightClient;
use tollfree_direct_stubs::own::freight::freight_server::{Freight, FreightServer};
use tollfree_direct_stubs::own::sensors::sensors_client::SensorsClient;
use tollfree_direct_stubs::own::sensors::sensors_server::{Sensors, SensorsServer};
use tollfree_direct_stubs::own::views::tollfree::sensors::v1::{Sample, Sensor, Summary};
use tollfree_processor::typed::Owned;
use tonic::codec::CompressionEncoding;
use tonic::{Code, Request, Response, Status};

use super::metrics::place::Place;

const LONG: Duration = Duration::from_secs(60);
/// Batches, messages that go alone among them, one that needs several chunks, and one that needs a payload area.
const LENS: [u64; 7] = [0, 64, 1, 300, 9000, 7, 100_000];

type Messages<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

/// Gives back what comes, or what it is told to. Counts requests that were cut.
#[derive(Clone, Default)]
struct Carrier {
    /// Messages that requests have brought.
    came: Arc<AtomicUsize>,
    cut: Arc<AtomicUsize>,
}

fn of_len(len: u64) -> Cargo {
    Cargo { body: Bytes::from(vec![7; len as usize]), ..Cargo::default() }
}

fn lens(count: usize) -> Vec<u64> {
    (0..count).map(|nth| LENS[nth % LENS.len()]).collect()
}

#[tonic::async_trait]
impl Freight for Carrier {
    async fn unary(&self, request: Request<Cargo>) -> Result<Response<Cargo>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    type DownStream = Messages<Cargo>;

    /// Bodies of the lengths that `numbers` says, all at hand, and then a status if the body says which.
    async fn down(&self, request: Request<Cargo>) -> Result<Response<Messages<Cargo>>, Status> {
        let Cargo { numbers, body, .. } = request.into_inner();
        let last =
            body.first().map(|code| Err(Status::new(Code::from_i32((*code).into()), "as it was asked")));
        let cargos = tokio_stream::iter(numbers).map(|len| Ok(of_len(len))).chain(tokio_stream::iter(last));
        Ok(Response::new(Box::pin(cargos)))
    }

    /// The lengths of all bodies that came.
    async fn up(&self, request: Request<Streaming<Cargo>>) -> Result<Response<Cargo>, Status> {
        let (mut cargos, mut lens) = (request.into_inner(), Vec::new());
        while let Some(cargo) = cargos.next().await {
            match cargo {
                Ok(cargo) => {
                    self.came.fetch_add(1, Ordering::Relaxed);
                    lens.push(cargo.body.len() as u64);
                }
                Err(status) => {
                    self.cut.fetch_add(1, Ordering::Relaxed);
                    return Err(Status::new(status.code(), format!("after {} messages", lens.len())));
                }
            }
        }
        assert!(cargos.message().await?.is_none(), "an end is the end");
        Ok(Response::new(Cargo { numbers: lens, ..Cargo::default() }))
    }

    type BothStream = Messages<Cargo>;

    async fn both(&self, request: Request<Streaming<Cargo>>) -> Result<Response<Messages<Cargo>>, Status> {
        Ok(Response::new(Box::pin(request.into_inner())))
    }
}

#[tonic::async_trait]
impl Sensors for Carrier {
    async fn read(&self, _: Request<Owned<Sensor>>) -> Result<Response<Owned<Sample>>, Status> {
        sample(1.0).map(Response::new)
    }

    type WatchStream = Messages<Owned<Sample>>;

    async fn watch(&self, request: Request<Owned<Sensor>>) -> Result<Response<Self::WatchStream>, Status> {
        let count =
            request.get_ref().view().name().parse().map_err(|_| Status::invalid_argument("no number"))?;
        let samples = (0..count).map(|nth: u32| sample(nth.into()));
        Ok(Response::new(Box::pin(tokio_stream::iter(samples))))
    }

    async fn report(
        &self,
        request: Request<Streaming<Owned<Sample>>>,
    ) -> Result<Response<Owned<Summary>>, Status> {
        let (mut samples, mut count, mut sum) = (request.into_inner(), 0, 0.0);
        while let Some(sample) = samples.message().await? {
            (count, sum) = (count + 1, sum + sample.view().value());
        }
        let summary = Owned::<Summary>::build(|summary| {
            summary.set_count(count)?;
            summary.set_mean(sum / f64::from(count))
        });
        Ok(Response::new(summary?))
    }

    type CorrectStream = Messages<Owned<Sample>>;

    async fn correct(
        &self,
        request: Request<Streaming<Owned<Sample>>>,
    ) -> Result<Response<Self::CorrectStream>, Status> {
        Ok(Response::new(Box::pin(request.into_inner())))
    }
}

fn sample(value: f64) -> Result<Owned<Sample>, Status> {
    Ok(Owned::<Sample>::build(|sample| sample.set_value(value))?)
}

/// Both services over sessions and TCP, in a thread and a runtime of their own while this lives.
struct Served {
    _dir: tempfile::TempDir,
    uris: [String; 2],
    carrier: Carrier,
    _stop: tokio::sync::oneshot::Sender<()>,
}

fn serve(limit: usize) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let uris =
        [format!("shm://{}", dir.path().join("freight.sock").display()), format!("http://127.0.0.1:{port}")];
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let carrier = Carrier::default();
    let freight = FreightServer::new(carrier.clone())
        .max_decoding_message_size(limit)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    let (sensors, addresses) = (SensorsServer::new(carrier.clone()), uris.clone());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let server = Server::builder().add_service(freight).add_service(sensors);
        let serving = server.serve_many_with_shutdown(addresses, async { drop(stopped.await) });
        runtime.block_on(serving).unwrap();
    });
    Served { _dir: dir, uris, carrier, _stop: stop }
}

async fn connect(uri: &str) -> Channel {
    let began = Instant::now();
    loop {
        // The server's thread may not have bound its sockets yet.
        match Channel::connect(uri).await {
            Ok(channel) => return channel,
            Err(error) => assert!(began.elapsed() < LONG, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LONG, "it has not come to be so");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn came(mut cargos: Streaming<Cargo>) -> (Vec<u64>, Option<Code>) {
    let mut lens = Vec::new();
    loop {
        match cargos.message().await {
            Ok(Some(cargo)) => lens.push(cargo.body.len() as u64),
            Ok(None) => return (lens, None),
            Err(status) => return (lens, Some(status.code())),
        }
    }
}

#[tokio::test]
async fn all_that_is_at_hand_comes_in_order_on_every_kind_of_call() {
    let served = serve(usize::MAX);
    for uri in &served.uris {
        let channel = connect(uri).await;
        let lens = lens(700);
        for is_compressed in [false, true] {
            let mut client = FreightClient::new(channel.clone());
            if is_compressed {
                let gzip = CompressionEncoding::Gzip;
                client = client.send_compressed(gzip).accept_compressed(gzip);
            }
            let asked = Cargo { numbers: lens.clone(), ..Cargo::default() };
            let down = client.down(asked).await.unwrap().into_inner();
            assert!(came(down).await == (lens.clone(), None), "down, {uri}, compressed: {is_compressed}");
            let cargos = || tokio_stream::iter(lens.iter().map(|len| of_len(*len)).collect::<Vec<_>>());
            let up = client.up(cargos()).await.unwrap().into_inner();
            assert!(up.numbers == lens, "up, {uri}, compressed: {is_compressed}");
            let both = client.both(cargos()).await.unwrap().into_inner();
            assert!(came(both).await == (lens.clone(), None), "both, {uri}, compressed: {is_compressed}");
        }
    }
}

#[tokio::test]
async fn objects_come_in_order_on_every_kind_of_call() {
    let served = serve(usize::MAX);
    for uri in &served.uris {
        let mut client = SensorsClient::new(connect(uri).await);
        // The first call of a method travels as protobuf's bytes, the others as objects where both ends have sessions.
        for round in 0..3 {
            let sensor = Owned::<Sensor>::build(|sensor| sensor.set_name("300")).unwrap();
            let mut samples = client.watch(sensor).await.unwrap().into_inner();
            for nth in 0..300 {
                let sample = samples.message().await.unwrap().expect("300 of them");
                assert_eq!(sample.view().value(), f64::from(nth), "{uri}, round {round}");
            }
            assert!(samples.message().await.unwrap().is_none());
            let samples = (0..300).map(|nth| sample(nth.into()).unwrap()).collect::<Vec<_>>();
            let summary = client.report(tokio_stream::iter(samples)).await.unwrap().into_inner();
            assert_eq!((summary.view().count(), summary.view().mean()), (300, 149.5), "{uri}, round {round}");
            let (sender, receiver) = tokio::sync::mpsc::channel(1);
            let samples = tokio_stream::wrappers::ReceiverStream::new(receiver);
            let mut answers = client.correct(samples).await.unwrap().into_inner();
            for nth in 0..20 {
                sender.send(sample(nth.into()).unwrap()).await.unwrap();
                let answer = answers.message().await.unwrap().expect("an answer to each");
                assert_eq!(answer.view().value(), f64::from(nth), "{uri}, round {round}");
            }
            drop(sender);
            assert!(answers.message().await.unwrap().is_none());
        }
    }
}

#[tokio::test]
async fn errors_come_behind_the_messages_before_them() {
    let served = serve(1000);
    for uri in &served.uris {
        let mut client = FreightClient::new(connect(uri).await).max_decoding_message_size(1000);
        let asked = Cargo { numbers: vec![1, 2, 3], body: Bytes::from_static(&[9]), ..Cargo::default() };
        let down = client.down(asked).await.unwrap().into_inner();
        assert_eq!(came(down).await, (vec![1, 2, 3], Some(Code::FailedPrecondition)), "{uri}");
        let asked = Cargo { numbers: vec![10, 20, 2000, 30], ..Cargo::default() };
        let down = client.down(asked).await.unwrap().into_inner();
        assert_eq!(came(down).await, (vec![10, 20], Some(Code::OutOfRange)), "{uri}");
        let cargos = [10, 20, 2000, 30].map(of_len);
        let refused = client.up(tokio_stream::iter(cargos)).await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::OutOfRange, "after 2 messages"), "{uri}");
        let mut short = client.clone().max_encoding_message_size(1000);
        let refused = short.up(tokio_stream::iter([10, 2000].map(of_len))).await.unwrap_err();
        // Over HTTP/2 the stream is reset, as with tonic's own client.
        let code = if uri.starts_with("shm") { Code::OutOfRange } else { Code::Internal };
        assert_eq!(refused.code(), code, "{uri}");
        let answer = client.unary(of_len(5)).await.unwrap().into_inner();
        assert_eq!(answer.body.len(), 5, "nothing of it is left for the next call, {uri}");
    }
}

#[tokio::test]
async fn a_handler_learns_of_a_caller_that_leaves_in_the_middle() {
    let served = serve(usize::MAX);
    for (nth, uri) in served.uris.iter().enumerate() {
        let client = FreightClient::new(connect(uri).await);
        let (sender, receiver) = tokio::sync::mpsc::channel(100);
        for _ in 0..100 {
            sender.send(of_len(64)).await.unwrap();
        }
        let mut leaving = client.clone();
        let call = tokio::spawn(async move {
            leaving.up(tokio_stream::wrappers::ReceiverStream::new(receiver)).await.map(drop)
        });
        until(|| served.carrier.came.load(Ordering::Relaxed) == 100 * (nth + 1)).await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        until(|| served.carrier.cut.load(Ordering::Relaxed) == nth + 1).await;
        drop(sender);
        // A reader that takes three of a hundred, and leaves.
        let mut client = client;
        let asked = Cargo { numbers: vec![64; 100], ..Cargo::default() };
        let mut down = client.down(asked).await.unwrap().into_inner();
        for _ in 0..3 {
            assert_eq!(down.message().await.unwrap().expect("a hundred of them").body.len(), 64);
        }
        drop(down);
        assert_eq!(client.unary(of_len(5)).await.unwrap().into_inner().body.len(), 5, "{uri}");
    }
}

/// Interceptors see calls, metrics see messages one by one, and streams are batches all the same.
#[tokio::test]
async fn interceptors_and_metrics_are_as_with_streams_of_tonic() {
    const COUNT: usize = 400;
    // A body of ten bytes has two bytes before it.
    const EACH: usize = 12;
    for is_shm in [true, false] {
        let calls = Arc::<AtomicUsize>::default();
        let (carrier, counted) = (Carrier::default(), calls.clone());
        let guarded = FreightServer::with_interceptor(carrier.clone(), move |request: Request<()>| {
            counted.fetch_add(1, Ordering::Relaxed);
            let is_known = request.metadata().get("x-mark").is_some_and(|mark| mark == "known");
            if is_known { Ok(request) } else { Err(Status::unauthenticated("nobody knows the caller")) }
        });
        let place = Place::start(is_shm, Server::builder().add_service(guarded));
        let channel = place.channel(|builder| builder).await;
        let marking = |mark: &'static str| {
            FreightClient::with_interceptor(channel.clone(), move |mut request: Request<()>| {
                if mark.is_empty() {
                    return Err(Status::aborted("the caller's own interceptor"));
                }
                request.metadata_mut().insert("x-mark", mark.parse().expect("ascii"));
                Ok(request)
            })
        };
        let cargos = || tokio_stream::iter((0..COUNT).map(|_| of_len(10)).collect::<Vec<_>>());
        let asked = || Cargo { numbers: vec![10; COUNT], ..Cargo::default() };
        let mut known = marking("known");
        let down = known.down(asked()).await.unwrap().into_inner();
        assert!(came(down).await == (vec![10; COUNT], None), "{}", place.uri);
        let up = known.up(cargos()).await.unwrap().into_inner();
        assert!(up.numbers == vec![10; COUNT], "{}", place.uri);
        let both = known.both(cargos()).await.unwrap().into_inner();
        assert!(came(both).await == (vec![10; COUNT], None), "{}", place.uri);
        assert_eq!(calls.load(Ordering::Relaxed), 3, "one for each call, {}", place.uri);
        let (ok, duration) = (&["\"OK\""], "call_duration_seconds_count");
        place.client.until(&format!("grpc_client_{duration}"), ok, 3.0).await;
        place.server.until(&format!("grpc_server_{duration}"), ok, 3.0).await;
        for (method, asked, answered) in
            [("Down", None, Some(COUNT)), ("Up", Some(COUNT), None), ("Both", Some(COUNT), Some(COUNT))]
        {
            for (count, client, server) in [(asked, "sent", "rcvd"), (answered, "rcvd", "sent")] {
                let Some(count) = count else { continue };
                let name = |end: &str, way: &str| {
                    format!("grpc_{end}_{way}_total_compressed_message_size_bytes_sum")
                };
                let method = format!("Freight/{method}\"");
                let client = place.client.sum(&name("client_attempt", client), &[&method, "\"OK\""]);
                assert_eq!(client, (count * EACH) as f64, "{method}, {}", place.uri);
                // The first call of a method is counted before it is known that somebody serves it.
                let server = place.server.sum(&name("server_call", server), &["\"OK\""]);
                assert!(server >= client, "{method}, {}: {server}", place.uri);
            }
        }
        let refused = "\"UNAUTHENTICATED\"";
        for (mark, code, begun) in [("stranger", Code::Unauthenticated, 3), ("", Code::Aborted, 0)] {
            let (mut client, before) = (marking(mark), calls.load(Ordering::Relaxed));
            for status in [
                client.down(asked()).await.map(drop).unwrap_err(),
                client.up(cargos()).await.map(drop).unwrap_err(),
                client.both(cargos()).await.map(drop).unwrap_err(),
            ] {
                assert_eq!(status.code(), code, "{status}, {}", place.uri);
            }
            assert_eq!(calls.load(Ordering::Relaxed) - before, begun, "{}", place.uri);
        }
        place.client.until(&format!("grpc_client_{duration}"), &[refused], 3.0).await;
        place.server.until(&format!("grpc_server_{duration}"), &[refused], 3.0).await;
        assert_eq!(
            carrier.came.load(Ordering::Relaxed),
            COUNT,
            "no handler has read of a call that was refused"
        );
    }
}

#[tokio::test]
async fn objects_behind_interceptors_count_one_by_one() {
    const COUNT: u32 = 300;
    let calls = Arc::<AtomicUsize>::default();
    let counted = calls.clone();
    let guarded = SensorsServer::with_interceptor(Carrier::default(), move |request: Request<()>| {
        counted.fetch_add(1, Ordering::Relaxed);
        let is_known = request.metadata().contains_key("x-mark");
        if is_known { Ok(request) } else { Err(Status::unauthenticated("nobody knows the caller")) }
    });
    let place = Place::start(true, Server::builder().add_service(guarded));
    let channel = place.channel(|builder| builder).await;
    let mut client = SensorsClient::with_interceptor(channel.clone(), |mut request: Request<()>| {
        request.metadata_mut().insert("x-mark", "known".parse().expect("ascii"));
        Ok(request)
    });
    let counts = || {
        let counts = channel.payloads().counts();
        [counts.sent_objects, counts.received_objects]
    };
    let samples = || (0..COUNT).map(|nth| sample(nth.into()).unwrap()).collect::<Vec<_>>();
    // The first call of a method travels as protobuf's bytes.
    for round in 0..3 {
        let before = counts();
        let sensor = Owned::<Sensor>::build(|sensor| sensor.set_name(&COUNT.to_string())).unwrap();
        let came = client
            .watch(sensor)
            .await
            .unwrap()
            .into_inner()
            .map(Result::unwrap)
            .collect::<Vec<_>>()
            .await
            .len();
        assert_eq!(came, COUNT as usize);
        let summary = client.report(tokio_stream::iter(samples())).await.unwrap().into_inner();
        assert_eq!(summary.view().count(), COUNT);
        let back = client.correct(tokio_stream::iter(samples())).await.unwrap().into_inner();
        assert_eq!(back.map(Result::unwrap).collect::<Vec<_>>().await.len(), COUNT as usize);
        assert_eq!(calls.load(Ordering::Relaxed), 3 * (round + 1), "one for each call");
        if round > 0 {
            let gone = [0, 1].map(|way| counts()[way] - before[way]);
            assert_eq!(gone, [2 * u64::from(COUNT) + 1; 2], "round {round}");
        }
    }
    let (ok, duration) = (&["\"OK\""], "call_duration_seconds_count");
    place.client.until(&format!("grpc_client_{duration}"), ok, 9.0).await;
    place.server.until(&format!("grpc_server_{duration}"), ok, 9.0).await;
    for (here, there) in [("sent", "rcvd"), ("rcvd", "sent")] {
        let name = |end: &str, way: &str| format!("grpc_{end}_{way}_total_compressed_message_size_bytes_sum");
        let len = place.client.sum(&name("client_attempt", here), ok);
        assert_eq!(place.server.sum(&name("server_call", there), ok), len, "{here}");
        assert!(len > f64::from(4 * COUNT * 32), "an object has a header of 32 bytes: {len}");
    }
    let mut stranger = SensorsClient::new(channel.clone());
    let refused = stranger.report(tokio_stream::iter(samples())).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    let refused = stranger.correct(tokio_stream::iter(samples())).await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
}

#[test]
fn a_blocking_caller_has_the_same() {
    let served = serve(1 << 20);
    let began = Instant::now();
    let channel = loop {
        match tollfree::blocking::Channel::connect(&*served.uris[0]) {
            Ok(channel) => break channel,
            Err(error) => assert!(began.elapsed() < LONG, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut client = FreightBlockingClient::new(channel);
    let lens: Vec<u64> = (0..2000).map(|nth| nth % 700).collect();
    let asked = Cargo { numbers: lens.clone(), body: Bytes::from_static(&[9]), ..Cargo::default() };
    let mut down = client.down(asked).unwrap().into_inner();
    let mut came = Vec::new();
    let end = loop {
        match down.next() {
            Some(Ok(cargo)) => came.push(cargo.body.len() as u64),
            end => break end,
        }
    };
    assert!(came == lens);
    assert_eq!(end.map(|end| end.unwrap_err().code()), Some(Code::FailedPrecondition));
    assert!(down.next().is_none());
    let both = client.both(lens.clone().into_iter().map(of_len)).unwrap().into_inner();
    let back: Vec<u64> = both.map(|cargo| cargo.unwrap().body.len() as u64).collect();
    assert!(back == lens);
}
