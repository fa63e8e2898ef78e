//! An authorization service elsewhere, by Envoy's protocol, that may refuse, edit, hang and lie.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prost::Message;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

use super::edge::{ask, framed};
use super::lab::{Lab, PATIENCE};
use super::reload::reload;

#[derive(Clone, PartialEq, Message)]
struct Question {
    #[prost(message, tag = "1")]
    attributes: Option<Attributes>,
}

#[derive(Clone, PartialEq, Message)]
struct Attributes {
    #[prost(message, tag = "1")]
    source: Option<Source>,
    #[prost(message, tag = "4")]
    request: Option<Asked>,
    #[prost(map = "string, string", tag = "10")]
    more: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct Source {
    #[prost(message, tag = "1")]
    address: Option<Address>,
    #[prost(string, tag = "4")]
    principal: String,
}

#[derive(Clone, PartialEq, Message)]
struct Address {
    #[prost(message, tag = "1")]
    socket: Option<Socket>,
}

#[derive(Clone, PartialEq, Message)]
struct Socket {
    #[prost(string, tag = "2")]
    address: String,
    #[prost(uint32, tag = "3")]
    port: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Asked {
    #[prost(message, tag = "2")]
    http: Option<Http>,
}

#[derive(Clone, PartialEq, Message)]
struct Http {
    #[prost(map = "string, string", tag = "3")]
    headers: HashMap<String, String>,
    #[prost(string, tag = "4")]
    path: String,
}

#[derive(Clone, PartialEq, Message)]
struct Verdict {
    #[prost(message, tag = "1")]
    status: Option<Rpc>,
    #[prost(message, tag = "2")]
    denied: Option<Denied>,
    #[prost(message, tag = "3")]
    allowed: Option<Allowed>,
}

#[derive(Clone, PartialEq, Message)]
struct Rpc {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

#[derive(Clone, PartialEq, Message)]
struct Denied {
    #[prost(message, tag = "1")]
    status: Option<Rpc>,
    #[prost(message, repeated, tag = "2")]
    headers: Vec<Edit>,
    #[prost(string, tag = "3")]
    body: String,
}

#[derive(Clone, PartialEq, Message)]
struct Allowed {
    #[prost(message, repeated, tag = "2")]
    headers: Vec<Edit>,
    #[prost(string, repeated, tag = "5")]
    remove: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    answer: Vec<Edit>,
}

#[derive(Clone, PartialEq, Message)]
struct Edit {
    #[prost(message, tag = "1")]
    header: Option<Pair>,
    #[prost(int32, tag = "3")]
    action: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Pair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

fn edit(name: &str, value: &str, action: i32) -> Edit {
    Edit { header: Some(Pair { name: name.into(), value: value.into() }), action }
}

/// What the service answers.
#[derive(Clone)]
enum Said {
    Verdict(Verdict),
    Failure,
    Nothing,
}

#[derive(Clone)]
struct Service {
    said: Arc<Mutex<Said>>,
    asked: Arc<Mutex<Vec<Question>>>,
}

type Answering<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

impl UnaryService<Question> for Service {
    type Response = Verdict;
    type Future = Answering<Response<Verdict>, Status>;

    fn call(&mut self, request: Request<Question>) -> Self::Future {
        self.asked.lock().push(request.into_inner());
        let said = self.said.lock().clone();
        Box::pin(async move {
            match said {
                Said::Verdict(verdict) => Ok(Response::new(verdict)),
                Said::Failure => Err(Status::internal("it is broken")),
                Said::Nothing => std::future::pending().await,
            }
        })
    }
}

impl NamedService for Service {
    const NAME: &'static str = "envoy.service.auth.v3.Authorization";
}

impl tower::Service<http::Request<Body>> for Service {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering<http::Response<Body>, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let own = self.clone();
        Box::pin(async move {
            assert_eq!(request.uri().path(), "/envoy.service.auth.v3.Authorization/Check");
            Ok(Grpc::new(ProstCodec::<Verdict, Question>::default()).unary(own, request).await)
        })
    }
}

/// The server, until this is dropped.
struct ServerTask(tokio::task::AbortHandle);

impl Drop for ServerTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Service {
    /// Serves at an address, which is given.
    async fn start() -> (Service, String, ServerTask) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        let said = Said::Verdict(Verdict::default());
        let service = Service { said: Arc::new(Mutex::new(said)), asked: Arc::default() };
        let server = tonic::transport::Server::builder().add_service(service.clone());
        let task = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        (service, uri, ServerTask(task.abort_handle()))
    }

    fn say(&self, verdict: Verdict) {
        *self.said.lock() = Said::Verdict(verdict);
    }
}

fn config(uri: &str, more: &str) -> String {
    format!("listeners.world.policy = \"p\"\n[policies.p.ext_authz]\ntarget = \"{uri}\"\n{more}")
}

async fn call(client: &ProbeClient<Channel>) -> Result<Response<tollfree_stubs::probe::Answer>, Status> {
    let mut request = Request::new(Ask::default());
    for (name, value) in [("x-user", "forged"), ("x-gone", "gone"), ("x-many", "one"), ("x-many", "two")] {
        request.metadata_mut().append(name, value.parse().unwrap());
    }
    tokio::time::timeout(PATIENCE, client.clone().unary(request)).await.expect("it ends")
}

#[tokio::test]
async fn a_service_allows_with_edits_and_denies_with_words() {
    let (service, uri, _server) = Service::start().await;
    let lab = Lab::start(&config(&uri, "timeout_ms = 30000\n")).await;
    let _attached = lab.attach("default").await;
    let client = lab.client().await;
    service.say(Verdict {
        allowed: Some(Allowed {
            headers: vec![
                edit("x-user", "alice", 0),
                edit("x-many", "three", 1),
                edit("x-new", "four", 1),
                edit("x-none", "five", 3),
                edit("te", "evil", 2),
                edit("grpc-encoding", "evil", 2),
                edit("tollfree-client-subject", "CN=evil", 2),
            ],
            remove: vec!["x-gone".into(), "grpc-timeout".into()],
            answer: vec![edit("x-checked", "yes", 0)],
        }),
        ..Verdict::default()
    });
    let answer = call(&client).await.unwrap();
    let checked: Vec<_> = answer.metadata().get_all("x-checked").iter().collect();
    assert_eq!(checked, ["yes"]);
    let headers = &answer.get_ref().headers;
    let own: Vec<_> = headers.iter().filter(|header| header.starts_with("x-")).map(String::as_str).collect();
    assert_eq!(own.len(), 4, "{own:?}");
    for header in ["x-user: alice", "x-many: one", "x-many: two", "x-new: four"] {
        assert!(own.contains(&header), "{header} in {own:?}");
    }
    assert!(!headers.iter().any(|header| header.contains("evil")), "{headers:?}");
    let asked = service.asked.lock()[0].attributes.clone().unwrap();
    let http = asked.request.unwrap().http.unwrap();
    assert_eq!(http.path, "/tollfree.probe.v1.Probe/Unary");
    assert_eq!(
        (http.headers["x-many"].as_str(), http.headers["content-type"].as_str()),
        ("one,two", "application/grpc")
    );
    let socket = asked.source.unwrap().address.unwrap().socket.unwrap();
    assert!(socket.address == "127.0.0.1" && socket.port > 0, "{socket:?}");
    assert_eq!(asked.more["listener"], "world");

    let denied = |http: i32, code: i32, body: &str| Verdict {
        status: Some(Rpc { code, message: String::new() }),
        denied: (http > 0).then(|| Denied {
            status: Some(Rpc { code: http, message: String::new() }),
            headers: vec![edit("x-why", "because", 0)],
            body: body.into(),
        }),
        allowed: None,
    };
    for (verdict, code, words) in [
        (denied(401, 16, "who are you"), Code::Unauthenticated, "who are you"),
        (denied(403, 7, "not you"), Code::PermissionDenied, "not you"),
        (denied(429, 8, ""), Code::ResourceExhausted, "refuses"),
        (denied(0, 16, ""), Code::Unauthenticated, "refuses"),
        (denied(0, 99, ""), Code::PermissionDenied, "refuses"),
        // It says OK and denies.
        (denied(403, 0, "not you"), Code::PermissionDenied, "not you"),
    ] {
        let has_headers = verdict.denied.is_some();
        service.say(verdict);
        let status = call(&client).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(words), "{status}");
        assert_eq!(status.metadata().contains_key("x-why"), has_headers);
    }
    assert_eq!(lab.refused("denied").await, 6.0);
    // It is asked only about calls that the rules allow.
    let asked = service.asked.lock().len();
    let rules = "[policies.p]\nrules = [{ action = \"allow\", identities = [\"any\"] }]\n";
    reload(&lab, &format!("{}{rules}", config(&uri, ""))).await.unwrap();
    assert_eq!(call(&client).await.unwrap_err().code(), Code::Unauthenticated);
    assert_eq!(service.asked.lock().len(), asked);
}

#[tokio::test]
async fn a_service_that_fails_closes_or_opens_as_configured() {
    let (service, uri, _server) = Service::start().await;
    let lab = Lab::start(&config(&uri, "timeout_ms = 50\n")).await;
    let _attached = lab.attach("default").await;
    let client = lab.client().await;
    // Nobody listens there.
    let nowhere = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let nowhere = format!("http://{nowhere}");
    let mut failures = 0.0;
    for (said, uri) in
        [(Said::Nothing, &uri), (Said::Failure, &uri), (Said::Verdict(Verdict::default()), &nowhere)]
    {
        *service.said.lock() = said;
        for (more, is_open) in [("", false), ("on_failure = \"allow\"\n", true)] {
            reload(&lab, &config(uri, &format!("timeout_ms = 50\n{more}"))).await.unwrap();
            let began = Instant::now();
            let called = call(&client).await;
            assert!(began.elapsed() < Duration::from_secs(20));
            match called {
                Ok(_) => assert!(is_open),
                Err(status) => assert!(!is_open && status.code() == Code::Unavailable, "{status}"),
            }
            failures += 1.0;
        }
    }
    assert_eq!(lab.refused("authorizer").await, 3.0);
    assert_eq!(lab.figure("tollfree_gateway_authorizer_failures_total").await, failures);
    // A call waits no longer than its deadline.
    *service.said.lock() = Said::Nothing;
    reload(&lab, &config(&uri, "timeout_ms = 60000\n")).await.unwrap();
    let headers = [("content-type", "application/grpc"), ("te", "trailers"), ("grpc-timeout", "50m")];
    let path = "tollfree.probe.v1.Probe/Unary";
    let late = ask(&lab, http::Method::POST, path, &headers, vec![framed(&Ask::default())]);
    let came = tokio::time::timeout(PATIENCE / 2, late).await.expect("it ends");
    assert_eq!(came.headers["grpc-status"], "4", "{:?}", came.headers);
}
