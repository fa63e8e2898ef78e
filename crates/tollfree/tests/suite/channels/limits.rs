//! Servers that turn calls away, send clients to a new session, and let layers see all of it; and what handlers know of
//! their callers and their time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tollfree::{Channel, Server};
use tollfree_stubs::greeter::greeter_client::GreeterClient;
use tollfree_stubs::greeter::greeter_server::{Greeter, GreeterServer};
use tollfree_stubs::greeter::{HelloReply, HelloRequest};
use tonic::transport::server::UdsConnectInfo;
use tonic::{Code, Request, Response, Status};

use super::place::{Host, Place, Street, call, hello, in_time, until};

#[tokio::test]
async fn calls_beyond_the_limit_are_told_so_and_counted_and_others_go_on() {
    let street = Street::new();
    for uri in [street.shm("s"), street.http()] {
        let host = Host::new("s");
        let server = Server::builder().add_service(host.service()).concurrency_limit(4);
        let load = server.load();
        let _place = Place::with(&uri, server).await;
        // Two sessions: the limit is the server's.
        let (one, two) = (Channel::connect(&*uri).await.unwrap(), Channel::connect(&*uri).await.unwrap());
        let held: Vec<_> = (0..4).map(|n| call(if n % 2 == 0 { &one } else { &two }, "hold")).collect();
        until("as many as may", || host.seen_count("hold") == 4).await;
        assert_eq!(load.under_way(), 4);
        for channel in [&one, &two] {
            let status = hello(channel, "shed").await.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
            assert!(status.message().contains("limit of 4 calls"), "{status}");
        }
        assert_eq!((host.seen_count("shed"), load.shed_count()), (0, 2));
        host.let_go(4);
        for call in held {
            assert_eq!(call.await.unwrap().unwrap(), "s");
        }
        until("their places are free", || load.under_way() == 0).await;
        assert_eq!(hello(&one, "later").await.unwrap(), "s");
        assert_eq!(load.shed_count(), 2);
    }
}

#[tokio::test]
async fn a_call_that_is_dropped_gives_its_place_back() {
    let street = Street::new();
    for uri in [street.shm("s"), street.http()] {
        let host = Host::new("s");
        let server = Server::builder().add_service(host.service()).concurrency_limit(1);
        let load = server.load();
        let _place = Place::with(&uri, server).await;
        let channel = Channel::connect(&*uri).await.unwrap();
        let held = call(&channel, "hold");
        until("it is there", || host.seen_count("hold") == 1).await;
        held.abort();
        until("its place is free", || load.under_way() == 0).await;
        assert_eq!(hello(&channel, "next").await.unwrap(), "s");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_grow_old_and_no_call_fails_for_it() {
    let street = Street::new();
    let uris = [street.shm("a"), street.http()];
    let hosts = ["a", "b"].map(Host::new);
    let mut places = Vec::new();
    for (uri, host) in uris.iter().zip(&hosts) {
        let server = Server::builder().add_service(host.service());
        places.push(Place::with(uri, server.max_connection_age(Duration::from_millis(60))).await);
    }
    let plain = Channel::connect(&*uris[0]).await.unwrap();
    let several = Channel::builder(&*uris[0]).endpoint(&*uris[1]).balance(tollfree::Balance::RoundRobin);
    let several = several.connect().await.unwrap();
    let until_when = Instant::now() + Duration::from_millis(900);
    let http2 = Channel::connect(&*uris[1]).await.unwrap();
    let tasks: Vec<_> = [plain.clone(), plain, several.clone(), several, http2]
        .into_iter()
        .map(|channel| {
            tokio::spawn(async move {
                let mut count = 0;
                while Instant::now() < until_when {
                    hello(&channel, "x").await.expect("moved over");
                    count += 1;
                }
                count
            })
        })
        .collect();
    let mut count = 0;
    for task in tasks {
        count += in_time("the calls", task).await.unwrap();
    }
    assert_eq!(hosts[0].seen_count("x") + hosts[1].seen_count("x"), count, "and none was made twice");
}

#[tokio::test]
async fn an_old_session_lets_its_calls_end_within_the_grace_and_no_longer() {
    let street = Street::new();
    for uri in [street.shm("s"), street.http()] {
        let host = Host::new("s");
        let server = Server::builder()
            .add_service(host.service())
            .max_connection_age(Duration::from_millis(50))
            .max_connection_age_grace(Duration::from_millis(400));
        let _place = Place::with(&uri, server).await;
        let channel = Channel::connect(&*uri).await.unwrap();
        let began = Instant::now();
        let kept = call(&channel, "hold");
        until("it is there", || host.seen_count("hold") == 1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        host.let_go(1);
        assert_eq!(in_time("a call within the grace", kept).await.unwrap().unwrap(), "s");
        let lost = call(&channel, "hold");
        let status = in_time("a call beyond the grace", lost).await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(began.elapsed() >= Duration::from_millis(400));
        assert_eq!(hello(&channel, "x").await.unwrap(), "s", "by a new one");
        host.let_go(9);
    }
}

/// A layer that counts calls, and turns away those with a header.
#[derive(Clone, Default)]
struct Doorman {
    count: Arc<AtomicUsize>,
}

impl<S> tower::Layer<S> for Doorman {
    type Service = Guarded<S>;
    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded { inner, doorman: self.clone() }
    }
}

#[derive(Clone)]
struct Guarded<S> {
    inner: S,
    doorman: Doorman,
}

impl<S, B> tower::Service<http::Request<B>> for Guarded<S>
where
    S: tower::Service<http::Request<B>>,
    S::Error: Into<tower::BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = tower::BoxError;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<S::Response, tower::BoxError>> + Send>>;

    fn poll_ready(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), tower::BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        self.doorman.count.fetch_add(1, Ordering::SeqCst);
        if request.headers().contains_key("x-unwelcome") {
            return Box::pin(async { Err(Status::permission_denied("the doorman says no").into()) });
        }
        let answered = self.inner.call(request);
        Box::pin(async { answered.await.map_err(Into::into) })
    }
}

#[tokio::test]
async fn layers_see_calls_whichever_way_they_come() {
    let street = Street::new();
    let (shm, http) = (street.shm("s"), street.http());
    let (host, doorman) = (Host::new("s"), Doorman::default());
    let server = Server::builder()
        .layer(doorman.clone())
        .layer(tower::timeout::TimeoutLayer::new(Duration::from_millis(40)))
        .add_service(host.service());
    let (shm_place, http_place) = (Place::with(&shm, server.clone()).await, Place::with(&http, server).await);
    for (uri, _place) in [(shm, shm_place), (http, http_place)] {
        let channel = Channel::connect(&*uri).await.unwrap();
        let before = doorman.count.load(Ordering::SeqCst);
        assert_eq!(hello(&channel, "x").await.unwrap(), "s");
        assert_eq!(doorman.count.load(Ordering::SeqCst), before + 1);
        let mut request = Request::new(HelloRequest::default());
        request.metadata_mut().insert("x-unwelcome", "1".parse().unwrap());
        let seen = host.seen().len();
        let status = GreeterClient::new(channel.clone()).hello(request).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "the doorman says no"));
        assert_eq!(host.seen().len(), seen);
        // The inner layer's doing: tower's timeout.
        let status = in_time("the timeout", hello(&channel, "hold")).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert!(status.message().contains("timed out"), "{status}");
        assert_eq!(doorman.count.load(Ordering::SeqCst), before + 3);
        let mut health = tonic_health::pb::health_client::HealthClient::new(channel);
        let status = health.check(tonic_health::pb::HealthCheckRequest::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{status}");
        assert_eq!(doorman.count.load(Ordering::SeqCst), before + 4, "layers see unknown methods too");
    }
}

#[tokio::test]
async fn routes_made_for_tonic_are_served_beside_services() {
    let street = Street::new();
    let (_, health) = tonic_health::server::health_reporter();
    for layered in [false, true] {
        for uri in [street.shm("s"), street.http()] {
            let routes = tonic::service::Routes::new(health.clone());
            let mut server = Server::builder().add_service(Host::new("s").service()).add_routes(routes);
            if layered {
                server = server.layer(Doorman::default());
            }
            let place = Place::with(&uri, server).await;
            let channel = Channel::connect(&*uri).await.unwrap();
            assert_eq!(hello(&channel, "x").await.unwrap(), "s");
            let mut client = tonic_health::pb::health_client::HealthClient::new(channel.clone());
            let answer = client.check(tonic_health::pb::HealthCheckRequest::default()).await.unwrap();
            assert_eq!(answer.into_inner().status, 1);
            let unknown = tollfree_stubs::probe::probe_client::ProbeClient::new(channel)
                .unary(tollfree_stubs::probe::Ask::default())
                .await;
            assert_eq!(unknown.unwrap_err().code(), Code::Unimplemented);
            place.stop().await;
        }
    }
}

/// Calls on with the time that it has left.
#[derive(Clone)]
struct Middle {
    next: Channel,
    /// When the call that it made ended, in microseconds since `began`.
    ended_us: Arc<AtomicU64>,
    began: Instant,
}

#[tonic::async_trait]
impl Greeter for Middle {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        assert!(request.peer_certs().is_none(), "nobody has shown a certificate");
        let caller = request.extensions().get::<UdsConnectInfo>().expect("the kernel vouches for the caller");
        assert_eq!(caller.peer_cred.and_then(|cred| cred.pid()), Some(std::process::id() as i32));
        let left = request.metadata().get("grpc-timeout").expect("a handler sees what is left").clone();
        let mut onward = Request::new(HelloRequest { name: "hold".into() });
        onward.metadata_mut().insert("grpc-timeout", left);
        let answered = GreeterClient::new(self.next.clone()).hello(onward).await;
        self.ended_us.store(self.began.elapsed().as_micros() as u64, Ordering::SeqCst);
        answered
    }
}

#[tokio::test]
async fn a_deadline_holds_for_whoever_is_called_on_the_way() {
    let street = Street::new();
    let far_host = Host::new("far");
    let _far = Place::open(&street.shm("far"), &far_host).await;
    let next = Channel::connect(street.shm("far")).await.unwrap();
    let middle = Middle { next, ended_us: Arc::default(), began: Instant::now() };
    let server = Server::builder().add_service(GreeterServer::new(middle.clone()));
    let _near = Place::with(&street.shm("near"), server).await;
    let channel = Channel::connect(street.shm("near")).await.unwrap();
    let limit = Duration::from_millis(150);
    let mut request = Request::new(HelloRequest::default());
    request.set_timeout(limit);
    let began_us = middle.began.elapsed().as_micros() as u64;
    let status = GreeterClient::new(channel).hello(request).await.unwrap_err();
    let client_us = middle.began.elapsed().as_micros() as u64 - began_us;
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(client_us >= limit.as_micros() as u64, "not before its time: {client_us}");
    // What the far handler was told it had left is never more than the client gave: the deadline crosses as a time, not
    // as a span that begins anew at each stage.
    let told = far_host.seen()[0].timeout.clone().expect("it travels on");
    let (digits, unit) = told.split_at(told.len() - 1);
    let unit_ns = match unit {
        "n" => 1,
        "u" => 1_000,
        "m" => 1_000_000,
        other => panic!("{other} in {told}"),
    };
    let told_ns = digits.parse::<u64>().unwrap() * unit_ns;
    assert!(told_ns < limit.as_nanos() as u64, "{told} of {limit:?}");
    until("the handler in the middle is dropped or done", || Arc::strong_count(&middle.ended_us) <= 2).await;
    far_host.let_go(1);
}

#[tokio::test]
async fn who_the_kernel_vouches_for_has_shown_no_certificate() {
    struct Doubting;
    #[tonic::async_trait]
    impl Greeter for Doubting {
        async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
            let caller = request.extensions().get::<UdsConnectInfo>();
            let pid = caller.and_then(|caller| caller.peer_cred?.pid());
            let text = format!("{} {pid:?}", request.peer_certs().is_some());
            Ok(Response::new(HelloReply { text }))
        }
    }
    let street = Street::new();
    let pid = std::process::id();
    for (uri, told) in [(street.shm("s"), format!("false Some({pid})")), (street.http(), "false None".into())]
    {
        let place = Place::with(&uri, Server::builder().add_service(GreeterServer::new(Doubting))).await;
        let channel = Channel::connect(&*uri).await.unwrap();
        assert_eq!(hello(&channel, "x").await.unwrap(), told);
        drop(place);
    }
}
