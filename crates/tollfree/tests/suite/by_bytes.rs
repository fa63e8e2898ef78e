//! Calls by bytes, against typed ends and against each other, by sessions and by HTTP/2.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::BodyExt as _;
use prost::Message as _;
use tollfree::by_bytes::{AnyMethod, BlockingClient, Client, Method, Trailers};
use tollfree::{Channel, Generated as _, Server, Streaming, Way};
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status};

use crate::conformance::probe::{Probe, Witness};
use crate::stubs::probe::probe_client::ProbeClient;
use crate::stubs::probe::probe_server::ProbeServer;
use crate::stubs::probe::{Answer, Ask, Fault};
use tokio::task::JoinHandle;

/// A server at an address of its own.
struct Lab {
    uri: String,
    task: JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Lab {
    /// By a session, or by HTTP/2.
    async fn start(server: Server, is_http2: bool) -> (Lab, Channel) {
        let directory = tempfile::tempdir().unwrap();
        let kind = if is_http2 { "unix:" } else { "shm://" };
        let uri = format!("{kind}{}", directory.path().join("s.sock").display());
        let serving = server.serve(uri.clone());
        let task = tokio::spawn(async move { panic!("it serves: {:?}", serving.await) });
        let connecting = async {
            loop {
                match Channel::connect(&uri).await {
                    Ok(channel) => break channel,
                    Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
                }
            }
        };
        let channel = tokio::time::timeout(Duration::from_secs(30), connecting).await.expect("it listens");
        (Lab { uri, task, _directory: directory }, channel)
    }

    async fn end(self) {
        self.task.abort();
        drop(self.task.await);
    }
}

fn method(name: &str) -> Method {
    Method::new(format!("/tollfree.probe.v1.Probe/{name}")).unwrap()
}

fn ask(len: usize) -> Ask {
    Ask { body: vec![7; len], ..Ask::default() }
}

fn bytes(ask: &Ask) -> Bytes {
    ask.encode_to_vec().into()
}

fn answer(bytes: Bytes) -> Answer {
    Answer::decode(bytes).unwrap()
}

/// Answers with what it is asked, and remembers how many calls were dropped before they ended.
fn echo() -> AnyMethod<impl Fn(Method, Request<Streaming<Bytes>>) -> Echoed + Send + Sync> {
    AnyMethod::new(|_: Method, request: Request<Streaming<Bytes>>| {
        std::future::ready(Ok(Response::new(request.into_inner())))
    })
}

type Echoed = std::future::Ready<Result<Response<Streaming<Bytes>>, Status>>;

#[tokio::test]
async fn a_typed_server_is_called_by_bytes_in_all_four_kinds() {
    for is_http2 in [false, true] {
        let (lab, channel) = Lab::start(
            Server::builder().add_service(ProbeServer::new(Probe::new(Witness::default()))),
            is_http2,
        )
        .await;
        let mut client = Client::new(channel);
        assert_eq!(client.way() == Way::Direct, !is_http2, "{:?}", client.way());
        // In the ring's record, in several, and beyond the ring.
        for len in [0, 100, 10_000, 300_000] {
            let came = client.unary(&method("Unary"), bytes(&ask(len))).await.unwrap();
            assert_eq!(answer(came.into_inner()).body, vec![7; len]);
            let asks = || tokio_stream::iter(vec![bytes(&ask(len)); 3]);
            let came = client.client_streaming(&method("Up"), asks()).await.unwrap();
            assert_eq!(answer(came.into_inner()).seen_count, 3);
            let down = bytes(&Ask { lens: vec![len as u32; 3], ..Ask::default() });
            let mut came = client.server_streaming(&method("Down"), down).await.unwrap().into_inner();
            for _ in 0..3 {
                assert_eq!(answer(came.message().await.unwrap().unwrap()).body.len(), len);
            }
            assert!(came.message().await.unwrap().is_none());
            let mut came = client.streaming(&method("Both"), asks()).await.unwrap().into_inner();
            for _ in 0..3 {
                assert_eq!(answer(came.message().await.unwrap().unwrap()).body.len(), len);
            }
            assert!(came.message().await.unwrap().is_none());
        }
        lab.end().await;
    }
}

#[tokio::test]
async fn a_server_of_any_method_is_called_by_typed_clients_in_all_four_kinds() {
    for is_http2 in [false, true] {
        let (lab, channel) = Lab::start(Server::builder().fallback(echo()), is_http2).await;
        let mut client = ProbeClient::new(channel);
        for len in [0, 100, 10_000, 300_000] {
            // The same bytes, read as another message: only the first field is there.
            assert_eq!(client.unary(ask(len)).await.unwrap().into_inner().body, vec![7; len]);
            let asks = tokio_stream::iter(vec![ask(len); 3]);
            let mut came = client.both(asks).await.unwrap().into_inner();
            let mut count = 0;
            while let Some(answer) = came.message().await.unwrap() {
                assert_eq!(answer.body.len(), len);
                count += 1;
            }
            assert_eq!(count, 3);
            assert_eq!(client.up(tokio_stream::iter([ask(len)])).await.unwrap().into_inner().body.len(), len);
            let mut came = client.down(ask(len)).await.unwrap().into_inner();
            assert_eq!(came.message().await.unwrap().unwrap().body.len(), len);
        }
        lab.end().await;
    }
}

#[tokio::test]
async fn statuses_metadata_and_deadlines_are_those_of_typed_calls() {
    for is_http2 in [false, true] {
        let server = Server::builder().add_service(ProbeServer::new(Probe::new(Witness::default())));
        let (lab, channel) = Lab::start(server, is_http2).await;
        let mut client = Client::new(channel);
        let fault = Fault {
            code: Code::Aborted.into(),
            message: "as was asked".into(),
            details: vec![1, 2],
            panic: false,
        };
        let failing = bytes(&Ask { fault: Some(fault), ..Ask::default() });
        let status = client.unary(&method("Unary"), failing.clone()).await.unwrap_err();
        assert_eq!(
            (status.code(), status.message(), status.details()),
            (Code::Aborted, "as was asked", &[1, 2][..])
        );
        let mut request = Request::new(bytes(&ask(1)));
        request.metadata_mut().insert("who", "me".parse().unwrap());
        let headers = answer(client.unary(&method("Unary"), request).await.unwrap().into_inner()).headers;
        assert!(headers.contains(&"who: me".to_owned()), "{headers:?}");
        let mut request = Request::new(bytes(&Ask { wait_ms: 60_000, ..Ask::default() }));
        request.set_timeout(Duration::from_millis(50));
        let status = client.unary(&method("Unary"), request).await.unwrap_err();
        assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");
        let status = client.unary(&Method::new("/nobody.Knows/This").unwrap(), failing).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        lab.end().await;
    }
}

/// What a server of any method is told of a call, and what it may say.
#[tokio::test]
async fn a_handler_sees_method_and_metadata_and_says_trailers_and_statuses() {
    for is_http2 in [false, true] {
        let any = AnyMethod::new(|method: Method, request: Request<Streaming<Bytes>>| async move {
            assert_eq!(request.extensions().get(), Some(&method), "interceptors and layers find it there");
            let who = request.metadata().get("who").cloned();
            if method.name() == "Fail" {
                return Err(Status::data_loss("all is gone"));
            }
            let trailers = Trailers::default();
            let (ends, said) = (method.name() == "FailLater", Bytes::from(method.to_string()));
            let last = trailers.clone();
            let messages = tokio_stream::iter([Ok(said)]).chain(futures_util::stream::poll_fn(move |_| {
                let mut all = MetadataMap::new();
                all.insert("count", 1.into());
                last.set(all);
                std::task::Poll::Ready(ends.then(|| Err(Status::data_loss("too late"))))
            }));
            let mut response = Response::new(messages.take(2));
            response.extensions_mut().insert(trailers);
            who.into_iter().for_each(|who| drop(response.metadata_mut().insert("you", who)));
            Ok(response)
        });
        let (lab, channel) = Lab::start(Server::builder().fallback(any), is_http2).await;
        let mut client = Client::new(channel);
        let mut request = Request::new(Bytes::new());
        request.metadata_mut().insert("who", "me".parse().unwrap());
        let mut came = client.server_streaming(&Method::new("/x.Y/Z").unwrap(), request).await.unwrap();
        assert_eq!(came.metadata().get("you").unwrap(), "me");
        assert_eq!(came.get_mut().message().await.unwrap().unwrap(), "/x.Y/Z");
        assert!(came.get_mut().message().await.unwrap().is_none());
        let trailers = came.get_mut().trailers().await.unwrap().expect("there are some");
        assert_eq!(trailers.get("count").unwrap(), "1");
        let mut later =
            client.server_streaming(&Method::new("/x.Y/FailLater").unwrap(), Bytes::new()).await.unwrap();
        assert!(later.get_mut().message().await.unwrap().is_some());
        let status = later.get_mut().message().await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::DataLoss, "too late"));
        let status = client.unary(&Method::new("/x.Y/Fail").unwrap(), Bytes::new()).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::DataLoss, "all is gone"));
        lab.end().await;
    }
}

/// A service of the server goes before, whatever was added when, and so do its methods.
#[tokio::test]
async fn services_of_the_server_go_before_the_fallback() {
    let probe = || ProbeServer::new(Probe::new(Witness::default()));
    let others = || tonic::service::Routes::new(tonic_health::server::health_reporter().1);
    let servers = [
        Server::builder().add_service(probe()).fallback(echo()).add_routes(others()),
        Server::builder().add_routes(others()).fallback(echo()).add_service(probe()),
        Server::builder()
            .fallback(echo())
            .add_service(probe())
            .add_routes(others())
            .layer(tower::layer::util::Identity::new()),
    ];
    for (number, server) in servers.into_iter().enumerate() {
        for is_http2 in [false, true] {
            let (lab, channel) = Lab::start(server.clone(), is_http2).await;
            let mut client = Client::new(channel);
            let asked = bytes(&ask(3));
            let known = answer(client.unary(&method("Unary"), asked.clone()).await.unwrap().into_inner());
            assert_eq!(known.seen_count, 1, "{number}: the service counts");
            let health = Method::new("/grpc.health.v1.Health/Check").unwrap();
            assert_eq!(
                &client.unary(&health, Bytes::new()).await.unwrap().into_inner()[..],
                [8, 1],
                "{number}"
            );
            let lacking = client.unary(&method("Lacking"), asked.clone()).await.unwrap_err();
            assert_eq!(lacking.code(), Code::Unimplemented, "{number}");
            let other = Method::new("/other.Service/Unary").unwrap();
            assert_eq!(client.unary(&other, asked.clone()).await.unwrap().into_inner(), asked, "{number}");
            lab.end().await;
        }
    }
}

#[tokio::test]
async fn limits_and_compression_are_those_of_generated_stubs() {
    for is_http2 in [false, true] {
        let any = echo()
            .max_decoding_message_size(1000)
            .accept_compressed(CompressionEncoding::Gzip)
            .send_compressed(CompressionEncoding::Gzip);
        let (lab, channel) = Lab::start(Server::builder().fallback(any), is_http2).await;
        let any = Method::new("/x.Y/Z").unwrap();
        let mut plain = Client::new(channel.clone());
        let status = plain.unary(&any, Bytes::from(vec![0; 1001])).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "{status}");
        let mut short = Client::new(channel.clone()).max_decoding_message_size(10);
        let status = short.unary(&any, Bytes::from(vec![0; 11])).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "{status}");
        let mut mute = Client::new(channel.clone()).max_encoding_message_size(10);
        let status = mute.unary(&any, Bytes::from(vec![0; 11])).await.unwrap_err();
        // hyper ends a request whose body fails, and tells nobody why.
        assert_eq!(status.code(), if is_http2 { Code::Internal } else { Code::OutOfRange }, "{status}");
        let mut zipped = Client::new(channel)
            .send_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Gzip);
        let message = Bytes::from(vec![9; 900]);
        let came = zipped.unary(&any, message.clone()).await.unwrap();
        assert_eq!(came.metadata().get("grpc-encoding").unwrap(), "gzip");
        assert_eq!(came.into_inner(), message);
        lab.end().await;
    }
}

/// A call that its client leaves is dropped at the server, and its request does not end as if it were complete. Over HTTP/2 hyper keeps a call whose answer
/// nobody reads as long as its request goes on.
#[tokio::test]
async fn a_call_that_is_left_ends_with_an_error_and_is_dropped() {
    let (complete, dropped) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let any = AnyMethod::new({
        let (complete, dropped) = (complete.clone(), dropped.clone());
        move |_: Method, request: Request<Streaming<Bytes>>| {
            struct Counts(Arc<AtomicUsize>);
            impl Drop for Counts {
                fn drop(&mut self) {
                    self.0.fetch_add(1, Ordering::SeqCst);
                }
            }
            let (complete, counts) = (complete.clone(), Counts(dropped.clone()));
            async move {
                let mut messages = request.into_inner();
                let first = messages.message().await?.expect("one");
                let rest = async move {
                    let _counts = counts;
                    if let Ok(None) = messages.message().await {
                        complete.fetch_add(1, Ordering::SeqCst);
                    }
                    std::future::pending::<Result<Bytes, Status>>().await
                };
                let all = tokio_stream::iter([Ok(first)]).chain(futures_util::stream::once(Box::pin(rest)));
                Ok(Response::new(all))
            }
        }
    });
    let (lab, channel) = Lab::start(Server::builder().fallback(any), false).await;
    let mut client = Client::new(channel);
    let asks = tokio_stream::iter([Bytes::from("a")]).chain(futures_util::stream::pending());
    let mut came = client.streaming(&Method::new("/x.Y/Z").unwrap(), asks).await.unwrap().into_inner();
    assert_eq!(came.message().await.unwrap().unwrap(), "a");
    drop((came, client));
    let gone = async {
        while dropped.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("the call is dropped");
    assert_eq!(complete.load(Ordering::SeqCst), 0);
    lab.end().await;
}

#[tokio::test]
async fn an_interceptor_sees_the_method_of_each_kind_of_call() {
    let (lab, channel) = Lab::start(Server::builder().fallback(echo()), false).await;
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let told = seen.clone();
    let mut client = Client::with_interceptor(channel, move |request: Request<()>| {
        told.lock().push(request.extensions().get::<Method>().expect("it is there").to_string());
        Ok(request)
    });
    let (any, one) = (Method::new("/x.Y/Z").unwrap(), Bytes::from("1"));
    client.unary(&any, one.clone()).await.unwrap();
    client.client_streaming(&any, tokio_stream::once(one.clone())).await.unwrap();
    client.server_streaming(&any, one.clone()).await.unwrap().into_inner().message().await.unwrap();
    client.streaming(&any, tokio_stream::once(one)).await.unwrap().into_inner().message().await.unwrap();
    assert_eq!(*seen.lock(), ["/x.Y/Z"; 4]);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_without_a_runtime_make_all_four_kinds() {
    let (lab, channel) = Lab::start(Server::builder().fallback(echo()), false).await;
    drop(channel);
    let uri = lab.uri.clone();
    let thread = std::thread::spawn(move || {
        let channel = tollfree::blocking::Channel::connect(uri).unwrap();
        let mut client = BlockingClient::new(channel).map(|client| client.max_encoding_message_size(1000));
        let (any, one) = (Method::new("/x.Y/Z").unwrap(), Bytes::from("1"));
        assert_eq!(client.unary(&any, one.clone()).unwrap().into_inner(), one);
        assert_eq!(client.client_streaming(&any, Request::new([one.clone()])).unwrap().into_inner(), one);
        let came: Result<Vec<_>, _> =
            client.server_streaming(&any, one.clone()).unwrap().into_inner().collect();
        assert_eq!(came.unwrap(), std::slice::from_ref(&one));
        let asks = vec![one.clone(); 100];
        let came: Result<Vec<_>, _> =
            client.streaming(&any, Request::new(asks.clone())).unwrap().into_inner().collect();
        assert_eq!(came.unwrap(), asks);
        let status = client.unary(&any, Bytes::from(vec![0; 1001])).unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange);
    });
    while !thread.is_finished() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    thread.join().unwrap();
    lab.end().await;
}

/// What isn't a method's path comes to a server of any method by HTTP/2 alone, for no client of ours sends it.
#[tokio::test]
async fn a_path_that_is_no_methods_is_unimplemented() {
    use tower::Service as _;
    let mut any = echo();
    for path in ["/", "/x", "/x/", "//y", "/x/y/z", "/x/y?z"] {
        let mut request = http::Request::new(tonic::body::Body::empty());
        *request.uri_mut() = path.parse().unwrap();
        let response = any.call(request).await.unwrap();
        assert_eq!(response.headers().get("grpc-status").unwrap(), "12", "{path}");
        assert!(response.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
}
