//! Streams of short messages, which travel together where they are at hand together.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tokio_stream::{Stream, StreamExt as _};
use tollfree::{Channel, Server};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::stubs::freight::Cargo;
use crate::stubs::freight::freight_client::FreightClient;
use crate::stubs::freight::freight_server::{Freight, FreightServer};

const LONG: Duration = Duration::from_secs(60);

/// Gives back what comes, or what it is told to.
struct Carrier;

type Cargos = Pin<Box<dyn Stream<Item = Result<Cargo, Status>> + Send>>;

fn of_len(len: usize) -> Cargo {
    Cargo { body: Bytes::from(vec![7; len]), ..Cargo::default() }
}

#[tonic::async_trait]
impl Freight for Carrier {
    async fn unary(&self, request: Request<Cargo>) -> Result<Response<Cargo>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    type DownStream = Cargos;

    /// Bodies of the lengths that `numbers` says, all at hand.
    async fn down(&self, request: Request<Cargo>) -> Result<Response<Cargos>, Status> {
        let lens = request.into_inner().numbers;
        let cargos = tokio_stream::iter(lens).map(|len| Ok(of_len(len as usize)));
        Ok(Response::new(Box::pin(cargos)))
    }

    /// The lengths of all bodies that came, and the status of the first that did not.
    async fn up(&self, request: Request<Streaming<Cargo>>) -> Result<Response<Cargo>, Status> {
        let (mut cargos, mut lens) = (request.into_inner(), Vec::new());
        while let Some(cargo) = cargos.next().await {
            match cargo {
                Ok(cargo) => lens.push(cargo.body.len() as u64),
                Err(status) => return Err(Status::new(status.code(), format!("after {lens:?}"))),
            }
        }
        Ok(Response::new(Cargo { numbers: lens, ..Cargo::default() }))
    }

    type BothStream = Cargos;

    async fn both(&self, request: Request<Streaming<Cargo>>) -> Result<Response<Cargos>, Status> {
        Ok(Response::new(Box::pin(request.into_inner())))
    }
}

/// A server in a thread and a runtime of its own, while its directory lives.
fn serve(limit: usize) -> (tempfile::TempDir, String, tokio::sync::oneshot::Sender<()>) {
    let dir = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", dir.path().join("freight.sock").display());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let service = FreightServer::new(Carrier).max_decoding_message_size(limit);
    let address = uri.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let server = Server::builder().add_service(service);
        runtime.block_on(server.serve_with_shutdown(&address, async { drop(stopped.await) })).unwrap();
    });
    (dir, uri, stop)
}

async fn connect(uri: &str) -> FreightClient<Channel> {
    loop {
        // The server's thread may not have bound its socket yet.
        match Channel::connect(uri).await {
            Ok(channel) => return FreightClient::new(channel),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

#[tokio::test]
async fn all_that_is_at_hand_comes_in_order_whatever_its_lengths() {
    let (_dir, uri, _stop) = serve(usize::MAX);
    let mut client = connect(&uri).await;
    // Batches, messages that go alone among them, one that needs several chunks, and one that needs a payload area.
    let lens: Vec<u64> = (0..3000).map(|nth| [0, 64, 1, 300, 9000, 7, 100_000][nth % 7]).collect();
    let cargo = Cargo { numbers: lens.clone(), ..Cargo::default() };
    let mut down = client.down(cargo).await.unwrap().into_inner();
    let mut came = Vec::new();
    while let Some(cargo) = down.message().await.unwrap() {
        came.push(cargo.body.len() as u64);
    }
    assert!(came == lens, "from the server");
    let cargos: Vec<Cargo> = lens.iter().map(|len| of_len(*len as usize)).collect();
    let up = client.up(tokio_stream::iter(cargos)).await.unwrap().into_inner();
    assert!(up.numbers == lens, "from the client");
}

#[tokio::test]
async fn a_message_that_is_too_long_ends_its_call_behind_those_that_were_at_hand_with_it() {
    let (_dir, uri, _stop) = serve(1000);
    let mut client = connect(&uri).await.max_decoding_message_size(1000);
    let lens = [10, 20, 2000, 30];
    let cargo = Cargo { numbers: lens.to_vec(), ..Cargo::default() };
    let mut down = client.down(cargo).await.unwrap().into_inner();
    for len in [10, 20] {
        assert_eq!(down.message().await.unwrap().unwrap().body.len(), len);
    }
    assert_eq!(down.message().await.unwrap_err().code(), Code::OutOfRange);
    let cargos: Vec<Cargo> = lens.iter().map(|len| of_len(*len as usize)).collect();
    let refused = client.up(tokio_stream::iter(cargos)).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::OutOfRange, "after [10, 20]"));
    // Nothing of it is left for the next call.
    assert_eq!(client.unary(of_len(5)).await.unwrap().into_inner().body.len(), 5);
}

#[tokio::test]
async fn who_waits_for_an_answer_sends_what_has_come_to_hand() {
    let (_dir, uri, _stop) = serve(usize::MAX);
    let mut client = connect(&uri).await;
    let (cargos, rest) = tokio::sync::mpsc::unbounded_channel();
    cargos.send(of_len(0)).unwrap();
    let mut echoes = client.both(UnboundedReceiverStream::new(rest)).await.unwrap().into_inner();
    assert_eq!(echoes.message().await.unwrap().unwrap().body.len(), 0);
    // No other task of the runtime has its turn from now on.
    let mut cx = Context::from_waker(Waker::noop());
    for len in 1..100 {
        cargos.send(of_len(len)).unwrap();
        let (mut echo, began) = (pin!(tokio::task::unconstrained(echoes.message())), Instant::now());
        let echo = loop {
            match echo.as_mut().poll(&mut cx) {
                Poll::Ready(echo) => break echo.unwrap().unwrap(),
                Poll::Pending => assert!(began.elapsed() < LONG, "message {len} does not come back"),
            }
        };
        assert_eq!(echo.body.len(), len);
    }
}

#[tokio::test]
async fn streams_that_nobody_reads_take_nothing_from_one_that_goes_on() {
    let (_dir, uri, _stop) = serve(usize::MAX);
    let mut client = connect(&uri).await;
    let mut slow = Vec::new();
    for _ in 0..50 {
        // Nobody reads these.
        let cargo = Cargo { numbers: vec![64; 3000], ..Cargo::default() };
        slow.push(client.down(cargo).await.unwrap().into_inner());
    }
    let (cargos, rest) = tokio::sync::mpsc::channel(128);
    let mut echoes = client.both(ReceiverStream::new(rest)).await.unwrap().into_inner();
    for _ in 0..20 {
        for len in 0..100 {
            cargos.send(of_len(len)).await.unwrap();
        }
        for len in 0..100 {
            let echo = tokio::time::timeout(LONG, echoes.message()).await.expect("it goes on");
            assert_eq!(echo.unwrap().unwrap().body.len(), len);
        }
    }
    for mut slow in slow {
        let mut count = 0;
        while slow.message().await.unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 3000);
    }
}
