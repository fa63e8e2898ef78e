//! Metadata that are too long for the other end of HTTP/2: that call ends, and the others of the connection go on.

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tollfree::{Channel, Server};
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::transport::Endpoint;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Status, Streaming};

use super::probe::{Probe, Witness};
use super::{PATIENCE, connect};
use crate::stubs::probe::probe_client::ProbeClient;
use crate::stubs::probe::probe_server::ProbeServer;
use crate::stubs::probe::{Answer, Ask, Fault};

/// Pairs whose list is twelve times as long as tonic takes, which ends a connection; and a list that is a little longer, which doesn't.
const MANY: usize = 5_000;
const SOME: usize = 500;
/// What takes all of them.
const LARGE: u32 = 1 << 20;

/// A request with so many pairs that are sent back where their name says so.
fn request<T>(message: T, name: &'static str, count: usize) -> Request<T> {
    let mut request = Request::new(message);
    for _ in 0..count {
        request.metadata_mut().append(name, "1".parse().unwrap());
    }
    request
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("the call ends")
}

/// A call that shares a connection with those that fail.
struct OutOfBandMessages {
    asks: mpsc::Sender<Ask>,
    answers: Streaming<Answer>,
}

impl OutOfBandMessages {
    async fn begin<T>(client: &ProbeClient<T>) -> OutOfBandMessages
    where
        T: GrpcService<Body> + Clone,
        T::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        T::ResponseBody: http_body::Body<Data = bytes::Bytes> + Send + 'static,
        <T::ResponseBody as http_body::Body>::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    {
        let (asks, receiver) = mpsc::channel(4);
        asks.send(Ask::default()).await.unwrap();
        let answers = in_time(client.clone().both(ReceiverStream::new(receiver))).await.unwrap();
        let mut beside = OutOfBandMessages { asks, answers: answers.into_inner() };
        beside.next().await;
        beside
    }

    async fn next(&mut self) {
        in_time(self.answers.message()).await.expect("it goes on").expect("an answer");
    }

    /// One more message each way.
    async fn goes_on(&mut self) {
        self.asks.send(Ask::default()).await.unwrap();
        self.next().await;
    }
}

fn probe() -> ProbeServer<Probe> {
    ProbeServer::new(Probe::new(Witness::default()))
}

fn port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Addresses of both kinds of HTTP/2's.
fn addresses(directory: &tempfile::TempDir) -> [String; 2] {
    [format!("unix:{}", directory.path().join("u.sock").display()), format!("http://127.0.0.1:{}", port())]
}

#[tokio::test]
async fn an_answer_with_long_metadata_ends_its_call_and_not_the_connection() {
    let directory = tempfile::tempdir().unwrap();
    for uri in addresses(&directory) {
        let server = Server::builder().http2_max_header_list_size(LARGE).add_service(probe());
        let serving = tokio::spawn(server.serve(uri.clone()));
        connect(&uri).await;
        let stock = Endpoint::try_from(uri.clone()).unwrap();
        let channel = stock.connect().await.unwrap();
        let mut client = ProbeClient::new(channel);
        let mut beside = OutOfBandMessages::begin(&client).await;
        for count in [SOME, MANY] {
            let long = |status: Status, code| {
                assert_eq!(status.code(), code, "{status}");
                assert!(status.message().contains("the client takes 16384 bytes of headers"), "{status}");
            };
            let head = in_time(client.unary(request(Ask::default(), "x-head", count))).await;
            long(head.unwrap_err(), Code::ResourceExhausted);
            let fault = Fault { code: Code::NotFound as i32, message: "no".into(), ..Fault::default() };
            for early in [true, false] {
                let ask = Ask { lens: vec![1], fault: Some(fault.clone()), early, ..Ask::default() };
                let down = async {
                    let mut answers = client.down(request(ask, "x-trail", count)).await?.into_inner();
                    while answers.message().await?.is_some() {}
                    Ok::<_, Status>(())
                };
                let status = in_time(down).await.unwrap_err();
                assert!(status.message().starts_with("no ["), "{status}");
                long(status, Code::NotFound);
            }
            beside.goes_on().await;
        }
        // Who says that it takes them gets them.
        let roomy = stock.http2_max_header_list_size(LARGE).connect().await.unwrap();
        let answer = in_time(ProbeClient::new(roomy).unary(request(Ask::default(), "x-head", MANY))).await;
        assert_eq!(answer.unwrap().metadata().get_all("x-head").iter().count(), MANY);
        serving.abort();
    }
}

/// A server that is tonic's alone.
async fn serve_stock(uri: &str, max: Option<u32>) -> JoinHandle<Result<(), tonic::transport::Error>> {
    let mut builder = tonic::transport::Server::builder();
    if let Some(max) = max {
        builder = builder.http2_max_header_list_size(max);
    }
    let router = builder.add_service(probe());
    match uri.strip_prefix("unix:") {
        Some(path) => {
            _ = std::fs::remove_file(path);
            let listener = tokio::net::UnixListener::bind(path).unwrap();
            tokio::spawn(router.serve_with_incoming(UnixListenerStream::new(listener)))
        }
        None => {
            let address = uri.strip_prefix("http://").unwrap();
            let incoming = TcpIncoming::from(tokio::net::TcpListener::bind(address).await.unwrap());
            tokio::spawn(router.serve_with_incoming(incoming))
        }
    }
}

#[tokio::test]
async fn a_request_with_long_metadata_ends_its_call_and_not_the_connection() {
    let directory = tempfile::tempdir().unwrap();
    for uri in addresses(&directory) {
        let serving = serve_stock(&uri, None).await;
        let mut client = ProbeClient::new(Channel::connect(&*uri).await.unwrap());
        // The first call of a connection knows it, too.
        for count in [MANY, SOME, MANY] {
            let status = in_time(client.unary(request(Ask::default(), "x-ask", count))).await.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
            assert!(status.message().contains("the server takes 16384 bytes of headers"), "{status}");
        }
        let mut beside = OutOfBandMessages::begin(&client).await;
        for count in [SOME, MANY] {
            let asks = tokio_stream::once(Ask::default());
            let status = in_time(client.up(request(asks, "x-ask", count))).await.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
            beside.goes_on().await;
        }
        in_time(client.unary(request(Ask::default(), "x-ask", 10))).await.unwrap();
        serving.abort();
    }
}

#[tokio::test]
async fn a_request_that_its_server_takes_passes_whole() {
    let directory = tempfile::tempdir().unwrap();
    for uri in addresses(&directory) {
        let serving = serve_stock(&uri, Some(LARGE)).await;
        let mut client = ProbeClient::new(Channel::connect(&*uri).await.unwrap());
        for _ in 0..2 {
            let answer = in_time(client.unary(request(Ask::default(), "x-ask", MANY))).await.unwrap();
            let headers = answer.into_inner().headers;
            assert_eq!(headers.iter().filter(|line| line.starts_with("x-ask")).count(), MANY);
        }
        serving.abort();
    }
}
