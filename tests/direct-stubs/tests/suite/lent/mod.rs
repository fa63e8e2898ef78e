//! Large messages that are encoded while they are sent: what comes of them, whatever becomes of their calls.

mod liars;

use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio_stream::{Stream, StreamExt as _};
use tollfree::{Balance, Channel, Generated as _, Server, Way};
use tollfree_direct_stubs::freight::freight_client::FreightClient;
use tollfree_direct_stubs::freight::freight_server::{Freight, FreightServer};
use tollfree_direct_stubs::freight::{Act, Cargo};
use tonic::codec::CompressionEncoding;
use tonic::{Code, Request, Response, Status, Streaming};

/// Longer than a stream's window and a session's area.
const LONG: usize = 1_500_000;
const RETRIES: &str = r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.001s",
    "maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}"#;

type Cargos = std::pin::Pin<Box<dyn Stream<Item = Result<Cargo, Status>> + Send>>;

/// Sends back what comes. Asked to fail, fails a call's first two attempts.
struct Echo;

#[tonic::async_trait]
impl Freight for Echo {
    async fn unary(&self, request: Request<Cargo>) -> Result<Response<Cargo>, Status> {
        let attempts =
            request.metadata().get("grpc-previous-rpc-attempts").map(|value| value.as_bytes().to_vec());
        if request.get_ref().act() == Act::Fail && attempts.as_deref() != Some(b"2") {
            return Err(Status::unavailable("another time"));
        }
        Ok(Response::new(request.into_inner()))
    }

    type DownStream = Cargos;

    async fn down(&self, request: Request<Cargo>) -> Result<Response<Cargos>, Status> {
        let cargo = request.into_inner();
        let count = cargo.number as usize;
        Ok(Response::new(Box::pin(tokio_stream::iter(std::iter::repeat_n(cargo, count).map(Ok)))))
    }

    async fn up(&self, request: Request<Streaming<Cargo>>) -> Result<Response<Cargo>, Status> {
        let mut parts = Vec::new();
        let mut cargos = request.into_inner();
        while let Some(cargo) = cargos.message().await? {
            parts.push(cargo.raw.into());
        }
        Ok(Response::new(Cargo { parts, ..Cargo::default() }))
    }

    type BothStream = Cargos;

    async fn both(&self, request: Request<Streaming<Cargo>>) -> Result<Response<Cargos>, Status> {
        Ok(Response::new(Box::pin(request.into_inner().map(|cargo| cargo))))
    }
}

/// A server in this process, until it is dropped.
struct Served {
    uri: String,
    task: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(server: Server) -> Served {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let uri = format!("shm://{}", path.display());
    let address = uri.clone();
    let task = tokio::spawn(async move { server.serve(&address).await.unwrap() });
    while !path.exists() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Served { uri, task, _directory: directory }
}

async fn echo() -> Served {
    let service = FreightServer::new(Echo).max_decoding_message_size(usize::MAX);
    let service =
        service.accept_compressed(CompressionEncoding::Gzip).send_compressed(CompressionEncoding::Gzip);
    serve(Server::builder().add_service(service)).await
}

fn client(channel: Channel) -> FreightClient<Channel> {
    FreightClient::new(channel).max_decoding_message_size(usize::MAX)
}

fn pattern(salt: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ salt) as u8).collect()
}

/// Messages of `len` bytes and more: of one long field, of long ones after short ones and before them, and of short ones only.
fn cargos(len: usize) -> Vec<Cargo> {
    let long = Cargo { raw: pattern(1, len), ..Cargo::default() };
    let numbers: Vec<u64> = (0..len as u64 / 4).map(|nth| nth << (nth % 50)).collect();
    let inner = Cargo { numbers: numbers.clone(), text: "é".repeat(100), ..long.clone() };
    vec![
        long,
        Cargo {
            body: pattern(2, len).into(),
            parts: vec![Bytes::new(), pattern(3, len).into()],
            ..Cargo::default()
        },
        Cargo { body: pattern(4, len).into(), inner: Some(Box::new(inner)), number: 7, ..Cargo::default() },
        Cargo { numbers, ..Cargo::default() },
        Cargo { parts: (0..len / 50).map(|nth| pattern(nth, 50).into()).collect(), ..Cargo::default() },
    ]
}

async fn check(client: &FreightClient<Channel>, cargo: Cargo, what: &str) {
    let came = client.clone().unary(cargo.clone()).await.unwrap().into_inner();
    assert!(came == cargo, "{what}");
}

async fn in_time(test: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_secs(120), test).await.expect("in two minutes");
}

#[tokio::test]
async fn large_messages_of_any_form_come_as_they_were_sent() {
    in_time(async {
        let served = echo().await;
        let client = client(Channel::connect(&*served.uri).await.unwrap());
        assert_eq!(client.way(), Way::Direct);
        for len in [30_000, 140_000, LONG] {
            for (nth, cargo) in cargos(len).into_iter().enumerate() {
                check(&client, cargo.clone(), &format!("{nth} of {len} bytes")).await;
                let mut down =
                    client.clone().down(Cargo { number: 2, ..cargo.clone() }).await.unwrap().into_inner();
                while let Some(came) = down.message().await.unwrap() {
                    assert!(came == Cargo { number: 2, ..cargo.clone() }, "{nth} of {len} bytes, down");
                }
                let both = tokio_stream::iter(vec![cargo.clone(); 3]);
                let mut both = client.clone().both(both).await.unwrap().into_inner();
                for _ in 0..3 {
                    assert!(
                        both.message().await.unwrap() == Some(cargo.clone()),
                        "{nth} of {len} bytes, both"
                    );
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn many_at_once_share_the_area() {
    in_time(async {
        let served = echo().await;
        let client = client(Channel::connect(&*served.uri).await.unwrap());
        let calls = (0..40)
            .map(|nth| check(&client, cargos(200_000 + 1000 * nth).swap_remove(nth % 5), "one of many"));
        join_all(calls).await;
    })
    .await;
}

#[tokio::test]
async fn attempts_that_are_made_again_send_the_same_message() {
    in_time(async {
        let served = echo().await;
        let channel = Channel::builder(&*served.uri).service_config(RETRIES).connect().await.unwrap();
        for (nth, cargo) in cargos(LONG).into_iter().enumerate() {
            check(&client(channel.clone()), Cargo { act: Act::Fail.into(), ..cargo }, &format!("{nth}"))
                .await;
        }
    })
    .await;
}

#[tokio::test]
async fn calls_whose_session_is_gone_send_the_same_message_elsewhere() {
    in_time(async {
        let [gone, other] = [echo().await, echo().await];
        let channel = Channel::builder(&*gone.uri)
            .endpoint(&*other.uri)
            .balance(Balance::RoundRobin)
            .service_config(RETRIES);
        let client = client(channel.connect().await.unwrap());
        let cargos = cargos(LONG);
        for _ in 0..2 {
            check(&client, cargos[0].clone(), "both are there").await;
        }
        drop(gone);
        for cargo in cargos {
            check(&client, cargo, "one is gone").await;
        }
    })
    .await;
}

#[tokio::test]
async fn calls_that_end_in_the_middle_of_a_message_leave_others_alone() {
    in_time(async {
        let served = echo().await;
        let client = client(Channel::connect(&*served.uri).await.unwrap());
        let cargos = cargos(LONG);
        check(&client, cargos[0].clone(), "first").await;
        let mut in_the_middle = 0;
        for poll_count in 1..30 {
            let mut cancelled = client.clone();
            let call = cancelled.unary(cargos[poll_count % 3].clone());
            let mut call = std::pin::pin!(call);
            for _ in 0..poll_count {
                let polled = std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await;
                in_the_middle += usize::from(polled.is_pending());
                if polled.is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        assert!(in_the_middle > 30, "calls were cancelled while they were under way");
        check(&client, cargos[1].clone(), "after cancellations").await;
        let (longest, mut late) = (Cargo { raw: vec![5; 4 * LONG], ..Cargo::default() }, 0);
        for micros in (0..12).map(|nth| nth * 300) {
            let mut request = Request::new(longest.clone());
            request.set_timeout(Duration::from_micros(micros));
            match client.clone().unary(request).await {
                Ok(reply) => assert_eq!(reply.get_ref().raw.len(), 4 * LONG),
                Err(status) => {
                    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status:?}");
                    late += 1;
                }
            }
        }
        assert!(late > 0, "12 MB were echoed in no time");
        check(&client, cargos[2].clone(), "after deadlines").await;
    })
    .await;
}

#[tokio::test]
async fn compressed_messages_and_such_as_tonic_carries_come_as_ever() {
    in_time(async {
        let served = echo().await;
        let channel = Channel::connect(&*served.uri).await.unwrap();
        let compressing = client(channel)
            .send_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Gzip);
        assert!(matches!(compressing.way(), Way::Http(_)));
        for cargo in cargos(LONG) {
            check(&compressing, cargo, "compressed").await;
        }
    })
    .await;
}
