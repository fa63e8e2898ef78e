//! Channels to `http://host:port` that move over to shared memory by themselves, and back.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, SocketAddrUnix};
use rustix::process::{PidfdFlags, PidfdGetfdFlags};
use tokio::net::{TcpListener, TcpStream};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollfree::{
    Channel, ChannelBuilder, ChannelError, EndpointState, Server, Transport, Upgrade, WaitForReady,
};
use tollfree_stubs::greeter::HelloRequest;
use tollfree_stubs::greeter::greeter_client::GreeterClient;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_stubs::probe::probe_server::{Probe, ProbeServer};
use tollfree_stubs::probe::{Answer, Ask};
use tollfree_testkit::{Process, Role};
use tonic::{Code, Request, Response, Status, Streaming};

use super::place::{Host, Place, Street, call, hello, in_time, until};

/// A server on TCP that also has a local socket.
pub(crate) struct Both {
    pub(crate) street: Street,
    pub(crate) http: String,
    pub(crate) host: Host,
    _place: Place,
}

impl Both {
    pub(crate) async fn open() -> Both {
        Both::with(Server::builder()).await
    }

    async fn with(server: Server) -> Both {
        let (street, host) = (Street::new(), Host::new("both"));
        let http = street.http();
        let server = server.add_service(host.service());
        let place = Place::with_many(&[&http, &street.shm("s.sock")], server).await;
        Both { street, http, host, _place: place }
    }

    fn channel(&self) -> ChannelBuilder {
        Channel::builder(&*self.http).upgrade_directory(self.street.path(""))
    }

    /// How the last call came.
    fn last_by_session(&self) -> bool {
        self.host.seen().last().expect("a call").by_session
    }
}

fn is_over(channel: &Channel) -> bool {
    let path = channel.path();
    path.endpoints[0].transport == Transport::SharedMemory && path.ready().is_some()
}

pub(crate) async fn until_over(channel: &Channel) {
    until("calls go over shared memory", || is_over(channel)).await;
}

/// Waits until a channel says, of its only endpoint, that it stays on TCP for a reason with these words.
pub(crate) async fn until_stays(channel: &Channel, words: &str) {
    let stays = || {
        let endpoint = &channel.path().endpoints[0];
        endpoint.transport == Transport::Http2 && endpoint.reason.contains(words)
    };
    let began = Instant::now();
    while !stays() {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "\"{words}\" is not what it says: {}",
            channel.path()
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Hangs up the sessions at a socket, of which this process holds the client's end.
fn hang_up(socket: &Path) {
    let this = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).unwrap();
    let mut count = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let number = entry.file_name().to_str().unwrap().parse().unwrap();
        let Ok(fd) = rustix::process::pidfd_getfd(&this, number, PidfdGetfdFlags::empty()) else { continue };
        let Ok(peer) = rustix::net::getpeername(&fd) else { continue };
        let peer = peer.and_then(|peer| SocketAddrUnix::try_from(peer).ok());
        if peer.is_some_and(|peer| peer.path_bytes() == Some(socket.as_os_str().as_encoded_bytes())) {
            rustix::net::shutdown(&fd, Shutdown::Both).unwrap();
            count += 1;
        }
    }
    assert!(count > 0, "there was a session");
}

#[tokio::test]
async fn calls_move_over_by_themselves_and_the_channel_says_so() {
    let both = Both::open().await;
    let channel = both.channel().connect().await.unwrap();
    assert_eq!(hello(&channel, "at once").await.unwrap(), "both");
    until_over(&channel).await;
    assert_eq!(hello(&channel, "later").await.unwrap(), "both");
    assert!(both.last_by_session());
    let path = channel.path();
    let endpoint = path.ready().unwrap();
    assert_eq!(endpoint.peer.unwrap().pid, std::process::id() as i32);
    assert!(endpoint.reason.contains("s.sock") && endpoint.address == both.http, "{path}");
    assert!(path.to_string().starts_with("shared memory with process"), "{path}");
}

#[tokio::test]
async fn nothing_moves_unless_a_directory_is_known() {
    let both = Both::open().await;
    let off = both.channel().upgrade(Upgrade::Off).connect().await.unwrap();
    let ignorant = Channel::connect(&*both.http).await.unwrap();
    for (channel, words) in [(off, "told to stay on TCP"), (ignorant, "knows no directory")] {
        for _ in 0..20 {
            hello(&channel, "x").await.unwrap();
            assert!(!both.last_by_session());
        }
        assert!(channel.path().to_string().contains(words), "{}", channel.path());
        assert_eq!(channel.path().ready().unwrap().transport, Transport::Http2);
    }
}

#[tokio::test]
async fn calls_go_back_when_the_session_dies_and_over_again() {
    let both = Both::open().await;
    let channel = both.channel().connect().await.unwrap();
    let (socket, away) = (both.street.path("s.sock"), both.street.path("away.sock"));
    for _ in 0..3 {
        until_over(&channel).await;
        hello(&channel, "over").await.unwrap();
        assert!(both.last_by_session());
        let held = call(&channel, "hold");
        until("the handler has it", || both.host.seen_count("hold") > 0).await;
        // Where it is offered there is nothing now, so that calls stay back for a while.
        std::fs::rename(&socket, &away).unwrap();
        hang_up(&socket);
        let status = in_time("the end of a call whose session died", held).await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        until_stays(&channel, "can't be looked up").await;
        hello(&channel, "back").await.unwrap();
        assert!(!both.last_by_session());
        std::fs::rename(&away, &socket).unwrap();
        both.host.let_go(1);
    }
    until_over(&channel).await;
}

#[tokio::test]
async fn calls_that_a_draining_session_refuses_go_on_elsewhere() {
    // Sessions end all the time, connections too.
    let both = Both::with(Server::builder().max_connection_age(Duration::from_millis(60))).await;
    let channel = both.channel().connect().await.unwrap();
    let (mut over, mut back) = (0, 0);
    in_time("both ways, several times", async {
        let mut last = None;
        while over < 5 || back < 5 {
            hello(&channel, "x").await.expect("no call is lost");
            let by_session = both.last_by_session();
            if last.replace(by_session) != Some(by_session) {
                if by_session {
                    over += 1
                } else {
                    back += 1
                };
            }
        }
    })
    .await;
}

/// A service that answers what it hears, as long as it hears something.
struct Echo;

#[tonic::async_trait]
impl Probe for Echo {
    type DownStream = ReceiverStream<Result<Answer, Status>>;
    type BothStream = ReceiverStream<Result<Answer, Status>>;

    async fn unary(&self, request: Request<Ask>) -> Result<Response<Answer>, Status> {
        Ok(Response::new(Answer { body: request.into_inner().body, ..Answer::default() }))
    }

    async fn down(&self, _: Request<Ask>) -> Result<Response<Self::DownStream>, Status> {
        Err(Status::unimplemented("no test needs it"))
    }

    async fn up(&self, _: Request<Streaming<Ask>>) -> Result<Response<Answer>, Status> {
        Err(Status::unimplemented("no test needs it"))
    }

    async fn both(&self, request: Request<Streaming<Ask>>) -> Result<Response<Self::BothStream>, Status> {
        let (sender, answers) = tokio::sync::mpsc::channel(1);
        let mut asks = request.into_inner();
        tokio::spawn(async move {
            while let Some(Ok(ask)) = asks.next().await {
                let answer = Answer { body: ask.body, ..Answer::default() };
                if sender.send(Ok(answer)).await.is_err() {
                    break;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(answers)))
    }
}

#[tokio::test]
async fn streams_under_way_stay_where_they_are() {
    let both = Both::with(Server::builder().add_service(ProbeServer::new(Echo))).await;
    let (socket, away) = (both.street.path("s.sock"), both.street.path("away.sock"));
    std::fs::rename(&socket, &away).unwrap();
    let channel = both.channel().connect().await.unwrap();
    let (sender, asks) = tokio::sync::mpsc::channel(1);
    let mut client = ProbeClient::new(channel.clone());
    let mut answers = client.both(ReceiverStream::new(asks)).await.unwrap().into_inner();
    let mut round = async |byte: u8| {
        sender.send(Ask { body: vec![byte; 3], ..Ask::default() }).await.unwrap();
        assert_eq!(answers.message().await.unwrap().unwrap().body, [byte; 3]);
    };
    round(1).await;
    let held = call(&channel, "hold");
    until("the handler has it", || both.host.seen_count("hold") == 1).await;
    assert!(!both.last_by_session());
    std::fs::rename(&away, &socket).unwrap();
    until_over(&channel).await;
    hello(&channel, "new").await.unwrap();
    assert!(both.last_by_session());
    round(2).await;
    // Not even when there is no session any more.
    hang_up(&socket);
    round(3).await;
    both.host.let_go(1);
    assert_eq!(in_time("the call that stayed", held).await.unwrap().unwrap(), "both");
    drop(sender);
    assert!(in_time("the stream's end", answers.message()).await.unwrap().is_none());
}

#[tokio::test]
async fn where_it_is_required_no_call_goes_over_tcp() {
    let both = Both::open().await;
    let channel = both.channel().upgrade(Upgrade::Required).connect().await.unwrap();
    assert!(is_over(&channel), "{}", channel.path());
    hello(&channel, "over").await.unwrap();
    let (socket, away) = (both.street.path("s.sock"), both.street.path("away.sock"));
    std::fs::rename(&socket, &away).unwrap();
    hang_up(&socket);
    let refused = |status: &Status| {
        status.code() == Code::Unavailable && status.message().contains("shared memory is required")
    };
    in_time("a refusal", async {
        while !hello(&channel, "x").await.is_err_and(|status| refused(&status)) {}
    })
    .await;
    let path = channel.path();
    assert!(
        matches!(&path.endpoints[0].state, EndpointState::Failing(why) if why.contains("s.sock")),
        "{path}"
    );
    // A call that waits gets through when there is a session again.
    let waiting = tokio::spawn({
        let mut client = GreeterClient::new(channel.clone());
        let mut request = Request::new(HelloRequest { name: "waits".into() });
        request.extensions_mut().insert(WaitForReady(true));
        async move { client.hello(request).await }
    });
    std::fs::rename(&away, &socket).unwrap();
    in_time("a session", waiting).await.unwrap().unwrap();
    assert!(both.host.seen().iter().all(|seen| seen.by_session), "{:?}", both.host.seen());
}

#[tokio::test]
async fn where_it_is_required_and_nothing_is_offered_calls_are_unavailable_in_words() {
    let (street, host) = (Street::new(), Host::new("tcp only"));
    let http = street.http();
    let _place = Place::open(&http, &host).await;
    let builder = || Channel::builder(&*http).upgrade_directory(street.path("")).upgrade(Upgrade::Required);
    let error = builder().connect().await.unwrap_err();
    assert!(matches!(&error, ChannelError::Unreachable(_)), "{error:?}");
    let channel = builder().connect_lazy().unwrap();
    let status = hello(&channel, "x").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    for words in [error.to_string().as_str(), status.message()] {
        assert!(
            words.contains("shared memory is required") && words.contains("offers no local socket"),
            "{words}"
        );
        assert!(words.contains(&http), "{words}");
    }
    assert!(host.seen().is_empty());
    // Preferred, the same server is good enough.
    let channel = Channel::builder(&*http).upgrade_directory(street.path("")).connect().await.unwrap();
    until_stays(&channel, "offers no local socket").await;
    hello(&channel, "x").await.unwrap();
    // And what can't come to anything is said before anything is tried.
    for (uri, words) in
        [(http.clone(), "upgrade_directory"), (street.unix("u.sock"), "only http://host:port")]
    {
        let mut builder = Channel::builder(&*uri).upgrade(Upgrade::Required);
        if uri.starts_with("unix:") {
            builder = builder.upgrade_directory(street.path(""));
        }
        let error = builder.connect_lazy().unwrap_err();
        assert!(matches!(&error, ChannelError::Upgrade(reason) if reason.contains(words)), "{error}");
    }
}

/// Passes bytes on between its own port and a server's, as a proxy or a translation of addresses does.
async fn forwarder(to: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, to) = (listener.local_addr().unwrap(), to.strip_prefix("http://").unwrap().to_owned());
    tokio::spawn_for_test(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let to = to.clone();
            tokio::spawn(async move {
                let mut server = TcpStream::connect(to).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    format!("http://{address}")
}

#[tokio::test]
async fn calls_stay_with_a_proxy_unless_they_are_told_to_pass_it_by() {
    let both = Both::open().await;
    let front = forwarder(&both.http).await;
    let builder = || Channel::builder(&*front).upgrade_directory(both.street.path(""));
    let channel = builder().connect().await.unwrap();
    until_stays(&channel, "something stands between").await;
    for _ in 0..20 {
        hello(&channel, "x").await.unwrap();
        assert!(!both.last_by_session());
    }
    let channel = builder().upgrade_through_proxies(true).connect().await.unwrap();
    until_over(&channel).await;
    hello(&channel, "x").await.unwrap();
    assert!(both.last_by_session());
}

#[tokio::test]
async fn other_clients_see_nothing_of_it() {
    let both = Both::open().await;
    let endpoint = tonic::transport::Endpoint::try_from(both.http.clone()).unwrap();
    let channel = endpoint.connect().await.unwrap();
    let mut client = GreeterClient::new(channel.clone());
    let hello = async |client: &mut GreeterClient<_>| {
        let reply = client.hello(HelloRequest { name: "stock".into() }).await.unwrap();
        let names: Vec<_> = reply.metadata().keys().map(|key| format!("{key:?}")).collect();
        assert!(!names.iter().any(|name| name.contains("tollfree")), "{names:?}");
    };
    hello(&mut client).await;
    // One that asks, whatever for, gets headers that it may ignore, and goes on.
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static("/tollfree.Upgrade/Ask");
    let codec = tonic_prost::ProstCodec::<HelloRequest, HelloRequest>::default();
    let asked = grpc.unary(Request::new(HelloRequest::default()), path, codec).await;
    let status = asked.unwrap_err();
    assert_eq!(status.code(), Code::Internal, "there is no message: {status}");
    hello(&mut client).await;
    assert!(both.host.seen().iter().all(|seen| !seen.by_session));
}

#[tokio::test]
async fn calls_of_a_blocking_channel_move_over_too() {
    let both = Both::open().await;
    let builder = both.channel();
    let pid = tokio::task::spawn_blocking(move || {
        let channel = builder.connect_blocking().unwrap();
        for _ in 0..2000 {
            let mut client = GreeterClient::new(channel.get_ref().clone());
            channel.run(client.hello(HelloRequest { name: "x".into() })).unwrap();
            if let Some(peer) = channel.path().endpoints[0].peer {
                channel.run(client.hello(HelloRequest { name: "x".into() })).unwrap();
                return peer.pid;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("it never moved over: {}", channel.path());
    });
    assert_eq!(in_time("moving over", pid).await.unwrap(), std::process::id() as i32);
    assert!(both.last_by_session());
}

/// What children do. Not a test of itself.
#[tokio::test]
#[ignore = "runs in processes that other tests start"]
async fn as_child() {
    let Some(role) = Role::of_this_process() else { return };
    match role.name.as_str() {
        // Serves until it is killed.
        "server" => {
            let (http, host) = (role.detail.clone(), Host::new("child"));
            let shm = format!("shm://{}", role.socket.display());
            let server = Server::builder().peers(tollfree::PeerPolicy::Anyone).add_service(host.service());
            let serving = tokio::spawn(async move { server.serve_many([&*http, &*shm]).await });
            until("the socket is there", || role.socket.exists()).await;
            role.ready();
            serving.await.unwrap().unwrap();
        }
        // Told of the directory by nothing but its surroundings.
        "client" => {
            let channel = Channel::connect(role.detail.clone()).await.unwrap();
            until_over(&channel).await;
            hello(&channel, "child").await.unwrap();
        }
        other => panic!("no role {other}"),
    }
}

/// A process of this program in a role.
pub(crate) fn child(program: &Path, role: &str, socket: &Path, detail: &str) -> Command {
    Process::command(program, &format!("channels::upgrade::{role}"), socket, detail)
}

#[tokio::test]
async fn a_program_that_knows_nothing_of_it_moves_over_where_its_surroundings_say_so() {
    let both = Both::open().await;
    let program = std::env::current_exe().unwrap();
    let mut command = child(&program, "client", &both.street.path("s.sock"), &both.http);
    command.env("TOLLFREE_UPGRADE_DIRECTORY", both.street.path(""));
    let mut client = Process::of(command.spawn().unwrap());
    let ended = tokio::task::spawn_blocking(move || client.wait_end(Duration::from_secs(40)));
    assert!(ended.await.unwrap().expect("it ends").success());
    assert!(both.last_by_session());
}

#[tokio::test]
async fn a_server_that_is_killed_and_started_again_is_moved_over_to_again() {
    let street = Street::new();
    let (http, socket) = (street.http(), street.path("s.sock"));
    let program = std::env::current_exe().unwrap();
    let start = || {
        let mut server = Process::of(child(&program, "server", &socket, &http).spawn().unwrap());
        server.wait_ready();
        server
    };
    let server = start();
    let channel = Channel::builder(&*http).upgrade_directory(street.path("")).connect().await.unwrap();
    until_over(&channel).await;
    let first = channel.path().endpoints[0].peer;
    let held = call(&channel, "hold");
    hello(&channel, "x").await.unwrap();
    drop(server);
    assert_eq!(in_time("the call's end", held).await.unwrap().unwrap_err().code(), Code::Unavailable);
    let status = hello(&channel, "nobody").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let _server = start();
    until_over(&channel).await;
    assert_ne!(channel.path().endpoints[0].peer, first);
    hello(&channel, "x").await.unwrap();
}
