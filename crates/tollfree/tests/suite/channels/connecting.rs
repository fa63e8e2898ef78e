//! How servers are started and channels made, where tonic's users expect their own ways.

use std::convert::Infallible;
use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tollfree_testkit::path_of;

use futures_util::StreamExt;
use http::uri::PathAndQuery;
use tokio::sync::mpsc;
use tollfree::{Channel, ServeError, Server};
use tollfree_stubs::greeter::greeter_client::GreeterClient;
use tollfree_stubs::greeter::{HelloReply, HelloRequest};
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_stubs::probe::probe_server::{Probe, ProbeServer};
use tollfree_stubs::probe::{Answer, Ask};
use tonic::body::Body;
use tonic::{Code, Request, Response, Status, Streaming};
use tower::{Layer, Service};

use super::place::{Host, Place, Street, hello, in_time, until};

const CHILD_URI: &str = "TOLLFREE_TEST_CONNECTING_CHILD_URI";

/// An address that is made at run time, and a server that outlives the function that made both.
fn start(directory: &std::path::Path, host: &Host) -> tokio::task::JoinHandle<Result<(), ServeError>> {
    let uri = format!("shm://{}", directory.join("owned").display());
    tokio::spawn(Server::builder().add_service(host.service()).serve(uri))
}

#[tokio::test]
async fn a_server_with_an_address_of_its_own_can_be_spawned() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path(), &Host::new("owned"));
    let uri = format!("shm://{}", directory.path().join("owned").display());
    let connected = async {
        loop {
            match Channel::connect(&uri).await {
                Ok(channel) => return channel,
                Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    };
    let channel = in_time("somebody listens", connected).await;
    assert_eq!(hello(&channel, "x").await.unwrap(), "owned");
    server.abort();
}

/// A process of the same user can keep a socket's lock; the runtime has other things to do meanwhile.
#[tokio::test]
async fn a_lock_that_is_held_keeps_a_server_waiting_and_no_other_task() {
    let street = Street::new();
    let uri = street.shm("s");
    let socket = std::path::Path::new(uri.trim_start_matches("shm://"));
    let lock = socket.with_file_name(format!(".{}.lock", socket.file_name().unwrap().display()));
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CREATE;
    let held = rustix::fs::open(&lock, flags, mode).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mut turns = 0;
    let others = async {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            turns += 1;
        }
    };
    let refused = tokio::select! {
        served = Server::builder().serve(&*uri) => served.unwrap_err().to_string(),
        () = others => unreachable!("it never ends"),
    };
    assert!(refused.contains("holds the lock"), "{refused}");
    assert!(turns > 10, "the other task had {turns} turns in the time of a wait of two seconds");
}

#[tokio::test]
async fn limits_of_nothing_are_refused() {
    let street = Street::new();
    for (server, setting) in [
        (Server::builder().concurrency_limit(0), "Server::concurrency_limit:"),
        (Server::builder().concurrency_limit_per_session(0), "Server::concurrency_limit_per_session:"),
    ] {
        let error = server.serve(street.shm("s")).await.unwrap_err();
        assert!(matches!(error, ServeError::Setting { .. }), "{error:?}");
        assert!(error.to_string().starts_with(setting), "{error}");
    }
}

/// A layer that lives no longer than the one who counts, around a service that can't be shared between threads.
struct Counting<'a>(&'a AtomicUsize);

#[derive(Clone)]
struct Alone<S>(S, std::cell::Cell<usize>);

impl<S> Layer<S> for Counting<'_> {
    type Service = Alone<S>;

    fn layer(&self, inner: S) -> Alone<S> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Alone(inner, std::cell::Cell::new(0))
    }
}

impl<S: Service<http::Request<Body>>> Service<http::Request<Body>> for Alone<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> S::Future {
        self.1.set(self.1.get() + 1);
        self.0.call(request)
    }
}

#[tokio::test]
async fn a_layer_need_be_no_more_than_for_tonic() {
    let street = Street::new();
    let uri = street.shm("s");
    let count = AtomicUsize::new(0);
    let server = Server::builder().layer(Counting(&count)).add_service(Host::new("layered").service());
    let other = server.clone().add_service(tonic_health::server::health_reporter().1);
    let _place = Place::with(&uri, server).await;
    assert_eq!(hello(&Channel::connect(&*uri).await.unwrap(), "x").await.unwrap(), "layered");
    assert_eq!(count.load(Ordering::SeqCst), 1);
    let error = other.serve(street.shm("other")).await.unwrap_err();
    assert!(error.to_string().contains("Server::layer") && error.to_string().contains("clone"), "{error}");
}

/// Middleware as it is written for tonic's channel: it names the type of response.
#[derive(Clone)]
struct Middleware<S>(S, Arc<AtomicUsize>);

impl<S> Service<http::Request<Body>> for Middleware<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<http::Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.1.fetch_add(1, Ordering::SeqCst);
        Box::pin(self.0.call(request))
    }
}

#[tokio::test]
async fn middleware_that_names_tonics_body_goes_around_a_channel() {
    let street = Street::new();
    let uri = street.shm("s");
    let _place = Place::open(&uri, &Host::new("s")).await;
    let count = Arc::new(AtomicUsize::new(0));
    let channel = Channel::connect(&*uri).await.unwrap().into_tonic();
    let mut client = GreeterClient::new(Middleware(channel, count.clone()));
    let HelloReply { text } = client.hello(HelloRequest::default()).await.unwrap().into_inner();
    assert_eq!((&*text, count.load(Ordering::SeqCst)), ("s", 1));
}

#[tokio::test]
async fn a_request_has_a_whole_uri_and_its_path_no_query() {
    let street = Street::new();
    let uri = street.shm("s");
    let seen: Arc<Mutex<Vec<http::Uri>>> = Arc::default();
    let seeing = seen.clone();
    let see = tower::util::MapRequestLayer::new(move |request: http::Request<Body>| {
        seeing.lock().unwrap().push(request.uri().clone());
        request
    });
    let host = Host::new("s");
    let _place = Place::with(&uri, Server::builder().layer(see).add_service(host.service())).await;
    let channel = Channel::connect(&*uri).await.unwrap();
    hello(&channel, "x").await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["http://localhost/tollfree.greeter.v1.Greeter/Hello"]);
    let mut grpc = tonic::client::Grpc::new(channel);
    let codec = tonic_prost::ProstCodec::<HelloRequest, HelloReply>::default();
    let path = PathAndQuery::from_static("/tollfree.greeter.v1.Greeter/Hello?x=1");
    grpc.ready().await.unwrap();
    let status = grpc.unary(Request::new(HelloRequest::default()), path, codec).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status}");
    assert_eq!((host.seen().len(), seen.lock().unwrap().len()), (1, 1));
}

/// The `io::Error` behind a status, which tonic's users look for.
fn io_error(status: &Status) -> &io::Error {
    let mut source = status.source();
    while let Some(error) = source {
        if let Some(found) = error.downcast_ref() {
            return found;
        }
        source = error.source();
    }
    panic!("no io::Error behind {status:?}")
}

/// Passes on what comes of its clients' streams.
struct Ends(mpsc::UnboundedSender<Result<Ask, Status>>);

#[tonic::async_trait]
impl Probe for Ends {
    type DownStream = tokio_stream::Empty<Result<Answer, Status>>;
    type BothStream = tokio_stream::Empty<Result<Answer, Status>>;

    async fn unary(&self, _: Request<Ask>) -> Result<Response<Answer>, Status> {
        std::future::pending().await
    }
    async fn down(&self, _: Request<Ask>) -> Result<Response<Self::DownStream>, Status> {
        Err(Status::unimplemented("no"))
    }
    async fn both(&self, _: Request<Streaming<Ask>>) -> Result<Response<Self::BothStream>, Status> {
        Err(Status::unimplemented("no"))
    }
    async fn up(&self, request: Request<Streaming<Ask>>) -> Result<Response<Answer>, Status> {
        let (mut asks, told) = (request.into_inner(), self.0.clone());
        // It outlives the call, as a task that only reads does.
        tokio::spawn(async move {
            loop {
                match asks.message().await {
                    Ok(Some(ask)) => drop(told.send(Ok(ask))),
                    Ok(None) => return,
                    Err(status) => return drop(told.send(Err(status))),
                }
            }
        });
        std::future::pending().await
    }
}

#[tokio::test]
async fn what_ends_a_session_is_an_io_error_behind_the_status() {
    let street = Street::new();
    let uri = street.shm("s");
    let nobody = Channel::builder(&*uri).connect_lazy().unwrap();
    let status = hello(&nobody, "x").await.unwrap_err();
    assert_eq!((status.code(), io_error(&status).kind()), (Code::Unavailable, io::ErrorKind::NotFound));
    let (tell, mut told) = mpsc::unbounded_channel();
    let place = Place::with(&uri, Server::builder().add_service(ProbeServer::new(Ends(tell)))).await;

    // A client that goes in the middle of its stream.
    let leaving = Channel::connect(&*uri).await.unwrap();
    let (ask, asks) = mpsc::unbounded_channel();
    let mut client = ProbeClient::new(leaving.clone());
    let asks = futures_util::stream::unfold(asks, async |mut asks| Some((asks.recv().await?, asks)));
    let streaming = tokio::spawn(async move { client.up(asks).await });
    ask.send(Ask::default()).unwrap();
    let attachments = Channel::connect(&*uri).await.unwrap();
    let mut waiting = ProbeClient::new(attachments);
    let waiting = tokio::spawn(async move { waiting.unary(Ask::default()).await });
    tokio::task::yield_now().await;
    drop(place);
    let status = in_time("the session ends", waiting).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(io_error(&status).kind(), io::ErrorKind::BrokenPipe, "{status}");
    let status = loop {
        if let Err(status) = in_time("the stream ends", told.recv()).await.unwrap() {
            break status;
        }
    };
    assert_eq!(io_error(&status).kind(), io::ErrorKind::BrokenPipe, "{status}");
    let ended = in_time("the client's call ends", streaming).await.unwrap();
    assert_eq!(io_error(&ended.unwrap_err()).kind(), io::ErrorKind::BrokenPipe);
}

/// Not a test: the client of [`a_client_that_is_killed_is_an_io_error_behind_the_status`].
#[tokio::test]
#[ignore = "run by another test, as a process to be killed"]
async fn child_client() {
    let uri = std::env::var(CHILD_URI).expect("set by the test that starts this");
    let mut client = ProbeClient::new(Channel::connect(uri).await.unwrap());
    let asks = futures_util::stream::once(async { Ask::default() }).chain(futures_util::stream::pending());
    client.up(asks).await.unwrap();
}

#[tokio::test]
async fn a_client_that_is_killed_is_an_io_error_behind_the_status() {
    let street = Street::new();
    let (tell, mut told) = mpsc::unbounded_channel();
    let server = Server::builder().add_service(ProbeServer::new(Ends(tell)));
    let _place = Place::with(&street.shm("s"), server).await;
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &path_of(module_path!(), "child_client"), "--ignored", "--quiet"])
        .env(CHILD_URI, street.shm("s"))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    in_time("the stream begins", told.recv()).await.unwrap().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let status = in_time("the stream ends", told.recv()).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(io_error(&status).kind(), io::ErrorKind::BrokenPipe, "{status}");
}

/// As tonic's clients see it: a stream begins, and ends with the status that the response stands for.
#[tokio::test]
async fn a_response_that_is_not_grpcs_is_there_and_ends_with_a_status() {
    let street = Street::new();
    for uri in [street.shm("s"), street.http()] {
        let gateway = tower::layer::layer_fn(|_| {
            tower::service_fn(async |_: http::Request<Body>| {
                let response = http::Response::builder().status(502).header("x-by", "gateway");
                Ok::<_, Infallible>(response.body(Body::empty()).unwrap())
            })
        });
        let server = Server::builder().layer(gateway).add_service(Host::new("s").service());
        let serving = tokio::spawn(server.serve(uri.clone()));
        let channel = Channel::builder(&*uri).wait_for_ready(true).connect_lazy().unwrap();
        let status = in_time("the answer", hello(&channel, "x")).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        let down = ProbeClient::new(channel).down(Ask::default()).await.unwrap();
        assert_eq!(down.metadata().get("x-by").unwrap(), "gateway");
        let mut stream = down.into_inner();
        assert_eq!(stream.message().await.unwrap_err().code(), Code::Unavailable);
        assert!(stream.message().await.unwrap().is_none());
        serving.abort();
    }
}

#[tokio::test]
async fn a_server_limits_the_time_of_its_handlers() {
    let street = Street::new();
    for uri in [street.shm("s"), street.http()] {
        let host = Host::new("s");
        let server = Server::builder().timeout(Duration::from_millis(30)).add_service(host.service());
        let _place = Place::with(&uri, server).await;
        let channel = Channel::connect(&*uri).await.unwrap();
        let status = in_time("the timeout", hello(&channel, "hold")).await.unwrap_err();
        let is_session = uri.starts_with("shm:");
        // tonic's own server says CANCELLED.
        let code = if is_session { Code::DeadlineExceeded } else { Code::Cancelled };
        assert_eq!(status.code(), code, "{status}");
    }
}

#[tokio::test]
async fn a_client_says_what_it_calls_itself() {
    let street = Street::new();
    for uri in [street.shm("s"), street.http()] {
        let agents: Arc<Mutex<Vec<String>>> = Arc::default();
        let seeing = agents.clone();
        let see = move |request: http::Request<Body>| {
            let agent = request.headers()["user-agent"].to_str().unwrap().to_owned();
            seeing.lock().unwrap().push(agent);
            request
        };
        let server = Server::builder().layer(tower::util::MapRequestLayer::new(see));
        let _place = Place::with(&uri, server.add_service(Host::new("s").service())).await;
        let channel = Channel::builder(&*uri).user_agent("mine/2.1").connect().await.unwrap();
        hello(&channel, "x").await.unwrap();
        let agent = agents.lock().unwrap().last().unwrap().clone();
        assert!(agent.starts_with("mine/2.1 ") && agent.len() > 12, "{agent}");
    }
    for bad in ["a\nb", "ü", &"x".repeat(81)] {
        let error = Channel::builder(street.shm("s")).user_agent(bad).connect_lazy().unwrap_err();
        assert!(error.to_string().contains("user_agent"), "{error}");
    }
}

#[tokio::test]
async fn spans_are_made_of_requests_whichever_way_they_come() {
    let street = Street::new();
    for uri in [street.shm("s"), street.http()] {
        let paths: Arc<Mutex<Vec<String>>> = Arc::default();
        let seeing = paths.clone();
        let server = Server::builder().trace_fn(move |request| {
            seeing.lock().unwrap().push(request.uri().path().to_owned());
            tracing::Span::none()
        });
        let _place = Place::with(&uri, server.add_service(Host::new("s").service())).await;
        hello(&Channel::connect(&*uri).await.unwrap(), "x").await.unwrap();
        assert_eq!(*paths.lock().unwrap(), ["/tollfree.greeter.v1.Greeter/Hello"]);
    }
}

#[tokio::test]
async fn connecting_takes_no_longer_than_it_may() {
    let street = Street::new();
    let _silent = std::os::unix::net::UnixListener::bind(street.path("silent")).unwrap();
    let connecting =
        Channel::builder(street.shm("silent")).connect_timeout(Duration::from_millis(70)).connect();
    let error = in_time("it gives up", connecting).await.unwrap_err();
    assert!(error.to_string().contains("within 70ms"), "{error}");
}

/// What a side says that it takes is what the other one sends.
#[tokio::test]
async fn the_limit_of_metadata_can_be_set() {
    let street = Street::new();
    let uri = street.shm("s");
    let server = Server::builder().http2_max_header_list_size(1000).add_service(Host::new("s").service());
    let _place = Place::with(&uri, server).await;
    let channel = Channel::connect(&*uri).await.unwrap();
    for (len, taken) in [(900, true), (1100, false)] {
        let mut request = Request::new(HelloRequest::default());
        request.metadata_mut().insert("x-long", "m".repeat(len).parse().unwrap());
        let answered = GreeterClient::new(channel.clone()).hello(request).await;
        match answered {
            Ok(_) => assert!(taken, "{len} bytes"),
            Err(status) => assert_eq!((taken, status.code()), (false, Code::ResourceExhausted), "{status}"),
        }
    }
}

#[tokio::test]
async fn tonics_own_settings_are_heeded_for_addresses_of_http2() {
    let street = Street::new();
    let uri = street.http();
    let count = Arc::new(AtomicUsize::new(0));
    let (at_server, at_client) = (count.clone(), count.clone());
    let server = Server::builder().add_service(Host::new("s").service()).http2_settings(move |http2| {
        at_server.fetch_add(1, Ordering::SeqCst);
        http2.max_concurrent_streams(7)
    });
    let _place = Place::with(&uri, server).await;
    let builder = Channel::builder(&*uri).http2_settings(move |endpoint| {
        at_client.fetch_add(10, Ordering::SeqCst);
        endpoint.initial_stream_window_size(1 << 20)
    });
    let channel = builder.origin("http://localhost:1".parse().unwrap()).connect().await.unwrap();
    assert_eq!(hello(&channel, "x").await.unwrap(), "s");
    until("both are settled", || count.load(Ordering::SeqCst) == 11).await;
}

/// A service that fails never: what it is generic over is tonic's.
#[tokio::test]
async fn a_service_by_hand_is_layered_as_any_other() {
    let street = Street::new();
    let uri = street.shm("s");
    let silent = tower::layer::layer_fn(|_| {
        tower::service_fn(async |_: http::Request<Body>| {
            Ok::<_, Infallible>(Status::data_loss("by hand").into_http::<Body>())
        })
    });
    let server = Server::builder().layer(silent).add_service(Host::new("s").service());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve_with_shutdown(uri.clone(), async { drop(stopped.await) }));
    let channel = Channel::builder(&*uri).wait_for_ready(true).connect_lazy().unwrap();
    let status = in_time("the answer", hello(&channel, "x")).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::DataLoss, "by hand"));
    drop(stop);
    in_time("the end", serving).await.unwrap().unwrap();
}
