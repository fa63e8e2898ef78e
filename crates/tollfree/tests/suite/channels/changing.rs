//! Channels whose endpoints come and go while they are used.

use crate::stubs::probe::probe_client::ProbeClient;
use crate::stubs::probe::{Ask, Fault};
use tollfree::{Balance, Change, Channel, ChannelError, Endpoint, Server};
use tonic::Code;

use super::place::{Counting, Host, Place, Street, call, hello, in_time, until, until_ready};

/// More answers than a session's window has room for.
const ANSWER_COUNT: usize = 50_000;

fn at(uri: &str) -> Endpoint {
    Endpoint::from_shared(uri).unwrap()
}

#[tokio::test]
async fn calls_go_to_the_endpoints_that_there_are() {
    let street = Street::new();
    let uris = [street.shm("a"), street.http(), street.unix("c")];
    let hosts = ["a", "b", "c"].map(Host::new);
    let mut places = Vec::new();
    for (uri, host) in uris.iter().zip(&hosts) {
        places.push(Place::open(uri, host).await);
    }
    let (channel, endpoints) = Channel::balance_channel(4);
    for (uri, name) in uris.iter().zip(["a", "b", "c"]) {
        // There is none, so this one waits.
        let waiting = call(&channel, "early");
        endpoints.send(Change::Insert(1, at(uri))).await.unwrap();
        assert_eq!(in_time("a call that waited", waiting).await.unwrap().unwrap(), name);
        assert_eq!(hello(&channel, "late").await.unwrap(), name);
        endpoints.send(Change::Remove(1)).await.unwrap();
        until("the endpoint is removed", || channel.path().endpoints.is_empty()).await;
    }
    let mut waiting = tonic::Request::new(crate::stubs::greeter::HelloRequest::default());
    waiting.set_timeout(std::time::Duration::from_millis(20));
    let mut client = crate::stubs::greeter::greeter_client::GreeterClient::new(channel);
    let status = in_time("its deadline", client.hello(waiting)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
}

#[tokio::test]
async fn a_key_has_one_endpoint_and_those_of_the_builder_stay() {
    let street = Street::new();
    let uris = [street.shm("a"), street.shm("b"), street.shm("c")];
    let hosts = ["a", "b", "c"].map(Host::new);
    let mut places = Vec::new();
    for (uri, host) in uris.iter().zip(&hosts) {
        places.push(Place::open(uri, host).await);
    }
    let builder = Channel::builder(&*uris[0]).balance(Balance::RoundRobin);
    let (channel, endpoints) = builder.balance_channel(1).unwrap();
    for uri in &uris[1..] {
        endpoints.send(Change::Insert("key", at(uri))).await.unwrap();
        let is_listed = || channel.path().endpoints.last().is_some_and(|last| last.address == *uri);
        until("the endpoint is listed", is_listed).await;
        hello(&channel, "first").await.unwrap();
        until_ready(&channel, 2).await;
    }
    for _ in 0..10 {
        hello(&channel, "more").await.unwrap();
    }
    let counts = hosts.each_ref().map(|host| host.seen_count("more"));
    assert_eq!(counts, [5, 0, 5]);
    endpoints.send(Change::Remove("another")).await.unwrap();
    endpoints.send(Change::Remove("key")).await.unwrap();
    drop(endpoints);
    until("the endpoint is removed", || channel.path().endpoints.len() == 1).await;
    assert_eq!(hello(&channel, "last").await.unwrap(), "a");
}

#[tokio::test]
async fn calls_under_way_at_an_endpoint_that_is_removed_go_on() {
    let street = Street::new();
    for uri in [street.shm("s"), street.http()] {
        let host = Host::new("old");
        let server = Server::builder().add_service(host.service()).add_service(Counting::default().service());
        let _place = Place::with(&uri, server).await;
        let (channel, endpoints) = Channel::balance_channel(1);
        endpoints.send(Change::Insert(0, at(&uri))).await.unwrap();
        let held = call(&channel, "hold");
        until("a call is under way", || host.seen_count("hold") == 1).await;
        let fault = Some(Fault { code: Code::Aborted as i32, ..Fault::default() });
        let ask = Ask { lens: vec![0; ANSWER_COUNT], fault, ..Ask::default() };
        let mut stream = ProbeClient::new(channel.clone()).down(ask).await.unwrap().into_inner();
        endpoints.send(Change::Remove(0)).await.unwrap();
        until("the endpoint is removed", || channel.path().endpoints.is_empty()).await;
        host.let_go(1);
        assert_eq!(in_time("the call's end", held).await.unwrap().unwrap(), "old");
        let mut count = 0;
        let status = loop {
            match in_time("an answer", stream.message()).await {
                Ok(answer) => count += usize::from(answer.is_some()),
                Err(status) => break status,
            }
        };
        assert_eq!((count, status.code()), (ANSWER_COUNT, Code::Aborted), "{status}");
    }
}

#[tokio::test]
async fn what_can_not_be_meant_is_not_inserted_and_the_sender_hears_of_the_channels_end() {
    for bad in ["", "ftp://localhost:1", "shm://relative", "http://"] {
        let error = Endpoint::from_shared(bad).unwrap_err().to_string();
        assert!(error.contains(&format!("\"{bad}\"")), "{error}");
    }
    let bad = Channel::builder("shm:///run/app/a.sock").user_agent("a\nb").balance_channel::<u8>(1);
    assert!(matches!(bad, Err(ChannelError::UserAgent(_))));
    let street = Street::new();
    let host = Host::new("good");
    let _place = Place::open(&street.shm("s"), &host).await;
    let (channel, endpoints) = Channel::balance_channel(1);
    // Nobody was told whose certificates to trust.
    endpoints.send(Change::Insert("bad", at("https://localhost:1"))).await.unwrap();
    endpoints.send(Change::Insert("good", at(&street.shm("s")))).await.unwrap();
    assert_eq!(in_time("an answer", hello(&channel, "x")).await.unwrap(), "good");
    assert_eq!(channel.path().endpoints.len(), 1);
    drop(channel);
    in_time("the sender hears of it", endpoints.closed()).await;
}
