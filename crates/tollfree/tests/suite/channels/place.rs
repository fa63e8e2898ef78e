//! Servers that do as a test's script says, and remember what they were asked.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::stubs::greeter::greeter_client::GreeterClient;
use crate::stubs::greeter::greeter_server::{Greeter, GreeterServer};
use crate::stubs::greeter::{HelloReply, HelloRequest};
use crate::stubs::probe::probe_server::{Probe, ProbeServer};
use crate::stubs::probe::{Answer, Ask};
use tokio::sync::{Semaphore, oneshot};
use tollfree::{Channel, EndpointState, ServeError, Server};
use tollfree_testkit::free_address;
use tonic::metadata::MetadataMap;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Code, Request, Response, Status, Streaming};

/// What a host has seen of a call.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) previous_attempts: Option<String>,
    pub(crate) timeout: Option<String>,
    /// It came by a session.
    pub(crate) by_session: bool,
}

/// How a host answers one call.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) pushback: Option<&'static str>,
}

/// A service that answers with its own name, unless the script says otherwise. A request whose name begins with "hold"
/// waits until it is let go.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    name: &'static str,
    seen: Arc<Mutex<Vec<Seen>>>,
    script: Arc<Mutex<VecDeque<Failure>>>,
    gate: Arc<Semaphore>,
}

impl Host {
    pub(crate) fn new(name: &'static str) -> Host {
        let gate = Arc::new(Semaphore::new(0));
        Host { name, seen: Arc::default(), script: Arc::default(), gate }
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn seen_count(&self, begin: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|seen| seen.name.starts_with(begin)).count()
    }

    /// The next calls fail so, one after the other.
    pub(crate) fn fail(&self, code: Code, pushback: Option<&'static str>, count: usize) {
        self.script.lock().unwrap().extend(vec![Failure { code, pushback }; count]);
    }

    pub(crate) fn fail_no_more(&self) {
        self.script.lock().unwrap().clear();
    }

    /// Lets calls go that wait, or will wait.
    pub(crate) fn let_go(&self, count: usize) {
        self.gate.add_permits(count);
    }

    pub(crate) fn service(&self) -> GreeterServer<Host> {
        GreeterServer::new(self.clone())
    }
}

#[tonic::async_trait]
impl Greeter for Host {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let header =
            |name: &str| request.metadata().get(name).map(|value| value.to_str().unwrap().to_owned());
        let name = request.get_ref().name.clone();
        self.seen.lock().unwrap().push(Seen {
            name: name.clone(),
            previous_attempts: header("grpc-previous-rpc-attempts"),
            timeout: header("grpc-timeout"),
            by_session: request.extensions().get::<UdsConnectInfo>().is_some(),
        });
        if name.starts_with("hold") {
            self.gate.acquire().await.unwrap().forget();
        }
        if let Some(failure) = self.script.lock().unwrap().pop_front() {
            let mut trailers = MetadataMap::new();
            if let Some(pushback) = failure.pushback {
                trailers.insert("grpc-retry-pushback-ms", pushback.parse().unwrap());
            }
            return Err(Status::with_metadata(failure.code, "as the script says", trailers));
        }
        Ok(Response::new(HelloReply { text: self.name.into() }))
    }
}

/// A server that runs in the test's own runtime.
pub(crate) struct Place {
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<Result<(), ServeError>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Place {
    pub(crate) async fn open(uri: &str, host: &Host) -> Place {
        Place::with(uri, Server::builder().add_service(host.service())).await
    }

    /// Serves at an address; resolves when that can be connected to.
    pub(crate) async fn with(uri: &str, server: Server) -> Place {
        Place::with_many(&[uri], server).await
    }

    /// Serves at several addresses.
    pub(crate) async fn with_many(uris: &[&str], server: Server) -> Place {
        let (stop, stopped) = oneshot::channel::<()>();
        let serving: Vec<String> = uris.iter().map(|uri| (*uri).to_owned()).collect();
        let task = tokio::spawn(async move {
            let uris = serving.iter().map(String::as_str);
            server.serve_many_with_shutdown(uris, async { drop(stopped.await) }).await
        });
        for uri in uris {
            let connected = async {
                while Channel::builder(*uri).upgrade(tollfree::Upgrade::Off).connect().await.is_err() {
                    assert!(!task.is_finished(), "it serves {uri}");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            in_time(&format!("a server at {uri}"), connected).await;
        }
        Place { stop: Some(stop), task }
    }

    /// Ends it as `kill` would: sessions break off.
    pub(crate) async fn kill(self) {
        self.task.abort();
        while !self.task.is_finished() {
            tokio::task::yield_now().await;
        }
    }

    /// Lets it take its leave.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        in_time("a server's end", &mut self.task).await.unwrap().unwrap();
    }
}

/// A directory for sockets, and addresses of every kind.
pub(crate) struct Street {
    directory: tempfile::TempDir,
}

impl Street {
    pub(crate) fn new() -> Street {
        Street { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn shm(&self, name: &str) -> String {
        format!("shm://{}", self.path(name).display())
    }

    pub(crate) fn unix(&self, name: &str) -> String {
        format!("unix:{}", self.path(name).display())
    }

    pub(crate) fn shm_abstract(&self) -> String {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        format!("shm-abstract:tollfree-channels-{}-{number}", std::process::id())
    }

    pub(crate) fn http(&self) -> String {
        format!("http://{}", free_address())
    }
}

pub(crate) async fn hello(channel: &Channel, name: &str) -> Result<String, Status> {
    let request = HelloRequest { name: name.into() };
    let reply = GreeterClient::new(channel.clone()).hello(request).await;
    reply.map(|reply| reply.into_inner().text)
}

/// A call in a task of its own.
pub(crate) fn call(channel: &Channel, name: &str) -> tokio::task::JoinHandle<Result<String, Status>> {
    let (channel, name) = (channel.clone(), name.to_owned());
    tokio::spawn(async move { hello(&channel, &name).await })
}

/// Waits for something that must come.
pub(crate) async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .unwrap_or_else(|_| panic!("{what} within 60 s"))
}

/// Waits until something holds that other tasks bring about.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    in_time(what, waiting).await;
}

/// Waits until so many endpoints of a channel are ready.
pub(crate) async fn until_ready(channel: &Channel, count: usize) {
    let ready = || channel.path().endpoints.iter().filter(|e| e.state == EndpointState::Ready).count();
    let waiting = async {
        while ready() != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    waited.unwrap_or_else(|_| panic!("{count} endpoints are ready within 20 s: {}", channel.path()));
}

/// The probe, as far as these tests need it: it fails as it is asked to, and counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counting {
    count: Arc<AtomicU64>,
}

impl Counting {
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    pub(crate) fn service(&self) -> ProbeServer<Counting> {
        ProbeServer::new(self.clone())
    }
}

fn failure(ask: &Ask) -> Status {
    let fault = ask.fault.clone().unwrap_or_default();
    Status::new(Code::from_i32(fault.code), fault.message)
}

type Answers = tokio_stream::Iter<std::vec::IntoIter<Result<Answer, Status>>>;

#[tonic::async_trait]
impl Probe for Counting {
    type DownStream = Answers;
    type BothStream = Answers;

    async fn unary(&self, request: Request<Ask>) -> Result<Response<Answer>, Status> {
        self.count.fetch_add(1, Ordering::SeqCst);
        Err(failure(request.get_ref()))
    }

    async fn down(&self, request: Request<Ask>) -> Result<Response<Answers>, Status> {
        self.count.fetch_add(1, Ordering::SeqCst);
        let mut answers: Vec<_> = request.get_ref().lens.iter().map(|_| Ok(Answer::default())).collect();
        answers.push(Err(failure(request.get_ref())));
        Ok(Response::new(tokio_stream::iter(answers)))
    }

    async fn up(&self, _: Request<Streaming<Ask>>) -> Result<Response<Answer>, Status> {
        Err(Status::unimplemented("no test needs it"))
    }

    async fn both(&self, _: Request<Streaming<Ask>>) -> Result<Response<Answers>, Status> {
        Err(Status::unimplemented("no test needs it"))
    }
}
