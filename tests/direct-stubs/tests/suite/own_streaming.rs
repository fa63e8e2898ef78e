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
