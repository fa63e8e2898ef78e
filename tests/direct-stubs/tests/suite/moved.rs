//! Generated clients on a channel that leaves TCP for shared memory: their calls are direct while there is a session, and go
//! as HTTP requests while there is none; which, is decided for each call anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tollfree::pool::{Address, Capacity, Config, Pool};
use tollfree::{Channel, ChannelBuilder, Generated, PayloadPath, Server, Way};
use tollfree_direct_stubs::greeter::greeter_client::GreeterClient;
use tollfree_direct_stubs::greeter::greeter_server::{Greeter, GreeterServer};
use tollfree_direct_stubs::greeter::{HelloReply, HelloRequest};
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Response, Status};

/// Answers with how a call came, and what an interceptor has put into it.
struct Host;

#[tonic::async_trait]
impl Greeter for Host {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let way = if request.extensions().get::<UdsConnectInfo>().is_some() { "session" } else { "tcp" };
        let seen = request.metadata().get_all("seen").iter().count();
        Ok(Response::new(HelloReply { text: format!("{way} {seen}") }))
    }
}

/// A server at both addresses, whose sessions and connections reach this age, and a channel to it.
async fn place(age: Option<Duration>) -> (tempfile::TempDir, tokio::task::JoinHandle<()>, Channel) {
    let (directory, server) = (tempfile::tempdir().unwrap(), Server::builder());
    let server = if let Some(age) = age { server.max_connection_age(age) } else { server };
    let (serving, channel) = place_with(&directory, server, |builder| builder).await;
    (directory, serving, channel)
}

/// The same in a directory and with settings of both ends.
async fn place_with(
    directory: &tempfile::TempDir,
    server: Server,
    settle: impl Fn(ChannelBuilder) -> ChannelBuilder,
) -> (tokio::task::JoinHandle<()>, Channel) {
    let free = tollfree_testkit::free_address();
    let (http, shm) =
        (format!("http://{free}"), format!("shm://{}", directory.path().join("s.sock").display()));
    let server = server.add_service(GreeterServer::new(Host));
    let uris = [http.clone(), shm];
    let serving =
        tokio::spawn_for_test(
            async move { server.serve_many(uris.iter().map(String::as_str)).await.unwrap() },
        );
    let builder = settle(Channel::builder(http).upgrade_directory(directory.path()));
    let channel = loop {
        match builder.clone().connect().await {
            Ok(channel) => break channel,
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    (serving, channel)
}

#[tokio::test]
async fn calls_become_direct_when_the_channel_has_moved_over() {
    let (_directory, _serving, channel) = place(None).await;
    let began = Instant::now();
    let mut plain = GreeterClient::new(channel.clone());
    let count = Arc::new(AtomicU32::new(0));
    let counting = count.clone();
    let mut intercepted = GreeterClient::with_interceptor(channel.clone(), move |mut request: Request<()>| {
        counting.fetch_add(1, Ordering::SeqCst);
        request.metadata_mut().append("seen", "once".parse().unwrap());
        Ok(request)
    });
    let hello = || HelloRequest { name: "x".into() };
    // The first may come either way.
    plain.hello(hello()).await.unwrap();
    while plain.way() != Way::Direct {
        assert!(plain.way().to_string().contains("go over HTTP/2 now"), "{}", plain.way());
        assert!(began.elapsed() < Duration::from_secs(20), "{}", channel.path());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(plain.hello(hello()).await.unwrap().into_inner().text, "session 0");
    assert_eq!(intercepted.way(), Way::Direct);
    assert_eq!(intercepted.hello(hello()).await.unwrap().into_inner().text, "session 1");
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

/// Sessions drain all the time under calls that are made one after the other: those refused unseen go on over TCP, where
/// interceptors don't see them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_lose_their_session_unseen_go_on_over_tcp() {
    let (_directory, _serving, channel) = place(Some(Duration::from_millis(60))).await;
    let count = Arc::new(AtomicU32::new(0));
    let counting = count.clone();
    let mut client = GreeterClient::with_interceptor(channel, move |mut request: Request<()>| {
        counting.fetch_add(1, Ordering::SeqCst);
        request.metadata_mut().append("seen", "once".parse().unwrap());
        Ok(request)
    });
    let (mut by_session, mut by_tcp, mut made) = (0, 0, 0);
    let began = Instant::now();
    let mut last = String::new();
    while by_session < 10 || by_tcp < 10 {
        assert!(began.elapsed() < Duration::from_secs(60), "{by_session} times over, {by_tcp} times back");
        let text = client.hello(HelloRequest::default()).await.expect("no call is lost").into_inner().text;
        made += 1;
        if text != last {
            match text.as_str() {
                "session 1" => by_session += 1,
                "tcp 1" => by_tcp += 1,
                other => panic!("{other}"),
            }
        }
        last = text;
        assert_eq!(count.load(Ordering::SeqCst), made, "once a call");
    }
}

#[tokio::test]
async fn members_of_a_pool_have_it_in_common_when_they_have_moved_over() {
    let directory = tempfile::tempdir().unwrap();
    let address: Address = format!("shm://{}/pool.sock", directory.path().display()).parse().unwrap();
    let pool = Pool::create(&address, Capacity::default(), Config::default()).unwrap();
    let server = Server::builder().pool(Pool::join(&address, Config::default()).unwrap());
    let (_serving, channel) = place_with(&directory, server, |builder| builder.pool(pool.clone())).await;
    let began = Instant::now();
    while channel.path().endpoints[0].payloads != PayloadPath::ByRef {
        assert!(began.elapsed() < Duration::from_secs(20), "{}", channel.path());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let reply = GreeterClient::new(channel).hello(HelloRequest { name: "x".repeat(100_000) }).await.unwrap();
    assert_eq!(reply.into_inner().text, "session 0");
}
