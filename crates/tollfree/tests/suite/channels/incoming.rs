//! Servers at sockets that somebody else has bound.

use std::future::poll_fn;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::task::Poll;
use std::time::Duration;
use tollfree_testkit::path_of;

use tokio::sync::oneshot;
use tollfree::{Channel, ServeError, Server, WaitForReady};
use tollfree_stubs::greeter::greeter_client::GreeterClient;
use tollfree_stubs::greeter::{HelloReply, HelloRequest};
use tonic::transport::server::{TcpIncoming, UdsConnectInfo};
use tonic::{Code, Request, Response, Status};

use super::place::{Host, Street, call, hello, in_time, until};

const CHILD: &str = "TOLLFREE_TEST_INCOMING_CHILD";

type Serving = tokio::task::JoinHandle<Result<(), ServeError>>;

/// A server at a socket that listens, and what stops it.
fn adopt(listener: &UnixListener, host: &Host) -> (oneshot::Sender<()>, Serving) {
    let (stop, stopped) = oneshot::channel::<()>();
    let (listener, server) = (listener.try_clone().unwrap(), Server::builder().add_service(host.service()));
    let signal = async { drop(stopped.await) };
    (stop, tokio::spawn(server.serve_listener_with_shutdown(listener, signal)))
}

#[tokio::test]
async fn a_socket_that_listens_is_served_and_left_for_the_next_server() {
    let street = Street::new();
    let listener = UnixListener::bind(street.path("s")).unwrap();
    let channel = Channel::builder(street.shm("s")).wait_for_ready(true).connect_lazy().unwrap();
    // Nobody serves yet: the client is connected, and waits.
    let mut waiting = call(&channel, "early");
    for name in ["first", "second"] {
        let (stop, serving) = adopt(&listener, &Host::new(name));
        assert_eq!(in_time("the call that waited", waiting).await.unwrap().unwrap(), name);
        drop(stop);
        in_time("the server ends", serving).await.unwrap().unwrap();
        assert!(street.path("s").exists(), "the socket is another's, and stays");
        waiting = call(&channel, "between");
    }
    waiting.abort();
}

#[tokio::test]
async fn what_no_client_can_meet_is_refused() {
    let (connected, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let listener = UnixListener::from(OwnedFd::from(connected));
    let error = Server::builder().serve_listener(listener).await.unwrap_err();
    assert!(matches!(error, ServeError::Bind(_)) && error.to_string().contains("no name"), "{error}");
    let street = Street::new();
    let listener = UnixListener::bind(street.path("s")).unwrap();
    let error = Server::builder().concurrency_limit(0).serve_listener(listener).await.unwrap_err();
    assert!(matches!(error, ServeError::Setting { .. }), "{error}");
}

/// Says who calls it, and how it was started.
struct Activated;

#[tonic::async_trait]
impl tollfree_stubs::greeter::greeter_server::Greeter for Activated {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        if request.get_ref().name == "stay" {
            std::future::pending::<()>().await;
        }
        let caller = request.extensions().get::<UdsConnectInfo>().and_then(|caller| caller.peer_cred);
        let caller = caller.and_then(|caller| caller.pid()).unwrap_or(0);
        Ok(Response::new(HelloReply { text: format!("{} for {caller}", std::process::id()) }))
    }
}

/// Not a test: the server process of [`a_server_that_is_killed_is_started_anew_at_the_same_socket`]. Its socket is its standard
/// input, as a service manager may pass it.
#[tokio::test]
#[ignore = "run by another test, as a process to be killed"]
async fn child_server() {
    assert!(std::env::var_os(CHILD).is_some(), "set by the test that starts this");
    let passed = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let service = tollfree_stubs::greeter::greeter_server::GreeterServer::new(Activated);
    Server::builder().add_service(service).serve_listener(passed.into()).await.unwrap();
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn activate(listener: &UnixListener) -> Running {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &path_of(module_path!(), "child_server"), "--ignored", "--quiet"])
        .env(CHILD, "1")
        .stdin(OwnedFd::from(listener.try_clone().unwrap()))
        .stdout(Stdio::null())
        .spawn();
    Running(child.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_is_started_anew_at_the_same_socket() {
    let street = Street::new();
    let listener = UnixListener::bind(street.path("s")).unwrap();
    let channel = Channel::builder(street.shm("s")).wait_for_ready(true).connect_lazy().unwrap();
    for _ in 0..2 {
        let server = activate(&listener);
        let answered = async {
            loop {
                match hello(&channel, "x").await {
                    Ok(answered) => return answered,
                    // It went to the last server, of whose death the channel had not heard.
                    Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
                }
            }
        };
        let answered = in_time("an answer", answered).await;
        assert_eq!(answered, format!("{} for {}", server.0.id(), std::process::id()));
        // The kernel shows this process no more, which has bound the socket.
        let fresh = in_time("a session", Channel::connect(street.shm("s"))).await.unwrap();
        let peer = fresh.path().ready().and_then(|ready| ready.peer).expect("there is a session");
        assert_eq!(u32::try_from(peer.pid), Ok(server.0.id()));
        let mut cut_off = pin!(hello(&fresh, "stay"));
        assert!(poll_fn(|cx| Poll::Ready(cut_off.as_mut().poll(cx).is_pending())).await);
        // This one came later, so the other is under way.
        in_time("an answer", hello(&fresh, "x")).await.unwrap();
        drop(server);
        let status = in_time("the end of the call", cut_off).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    }
}

#[tokio::test]
async fn connections_that_somebody_else_accepts_are_served_with_the_servers_settings() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let host = Host::new("tcp");
    let server = Server::builder().timeout(Duration::from_millis(50)).add_service(host.service());
    let (stop, stopped) = oneshot::channel::<()>();
    let signal = async { drop(stopped.await) };
    let load = server.load();
    let incoming = TcpIncoming::from(listener);
    let serving = tokio::spawn(server.serve_with_incoming_shutdown(incoming, signal));
    let channel = in_time("connected", Channel::connect(&uri)).await.unwrap();
    assert_eq!(hello(&channel, "x").await.unwrap(), "tcp");
    let status = in_time("the server's timeout", hello(&channel, "hold")).await.unwrap_err();
    assert_eq!(status.code(), Code::Cancelled, "tonic's word, as docs/tonic.md says: {status}");
    until("all calls have ended", || load.under_way() == 0).await;
    drop(stop);
    in_time("the server ends", serving).await.unwrap().unwrap();
    let mut request = Request::new(HelloRequest::default());
    request.extensions_mut().insert(WaitForReady(false));
    let status = GreeterClient::new(channel).hello(request).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}

#[tokio::test]
async fn a_stream_of_connections_that_ends_ends_the_server() {
    let (near, far) = tokio::net::UnixStream::pair().unwrap();
    let host = Host::new("pair");
    let incoming = tokio_stream::once(Ok::<_, std::io::Error>(far));
    let serving = tokio::spawn(Server::builder().add_service(host.service()).serve_with_incoming(incoming));
    let near = std::sync::Mutex::new(Some(hyper_util::rt::TokioIo::new(near)));
    let connector = tower::service_fn(move |_| {
        let near = near.lock().unwrap().take();
        async move { near.ok_or_else(|| std::io::Error::other("there is one only")) }
    });
    let endpoint = tonic::transport::Endpoint::from_static("http://localhost");
    let channel = in_time("connected", endpoint.connect_with_connector(connector)).await.unwrap();
    let reply = GreeterClient::new(channel.clone()).hello(HelloRequest::default()).await.unwrap();
    assert_eq!(reply.into_inner().text, "pair");
    drop(channel);
    in_time("the server ends", serving).await.unwrap().unwrap();
}
