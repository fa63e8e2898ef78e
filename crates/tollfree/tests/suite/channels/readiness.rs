//! Calls that wait for a server, and servers that say whether they are ready.

use std::time::Duration;

use crate::stubs::greeter::HelloRequest;
use crate::stubs::greeter::greeter_client::GreeterClient;
use tollfree::{Balance, Channel, EndpointState, Server, WaitForReady};
use tonic::{Code, Request, Status};
use tonic_health::ServingStatus;

use super::place::{Host, Place, Street, hello, in_time, until};

/// A call that says itself whether it waits.
async fn hello_that_waits(
    channel: &Channel,
    waits: bool,
    timeout: Option<Duration>,
) -> Result<String, Status> {
    let mut request = Request::new(HelloRequest { name: "x".into() });
    request.extensions_mut().insert(WaitForReady(waits));
    timeout.into_iter().for_each(|timeout| request.set_timeout(timeout));
    let reply = GreeterClient::new(channel.clone()).hello(request).await;
    reply.map(|reply| reply.into_inner().text)
}

/// Channels of every kind to a server that is not there yet.
fn channels(street: &Street, uri: &str) -> Vec<(&'static str, Channel)> {
    let nobody = street.shm("nobody");
    let several = |balance| Channel::builder(&*nobody).endpoint(uri).balance(balance).connect_lazy().unwrap();
    vec![
        ("one", Channel::builder(uri).connect_lazy().unwrap()),
        ("pick_first", several(Balance::PickFirst)),
        ("round_robin", several(Balance::RoundRobin)),
        ("least_outstanding", several(Balance::LeastOutstanding)),
    ]
}

#[tokio::test]
async fn calls_that_wait_survive_until_the_server_comes() {
    let street = Street::new();
    for uri in [street.shm("late"), street.unix("later")] {
        let mut waiting = Vec::new();
        for (what, channel) in channels(&street, &uri) {
            let status = hello_that_waits(&channel, false, None).await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{what}: {status}");
            let call = {
                let channel = channel.clone();
                tokio::spawn(async move { hello_that_waits(&channel, true, None).await })
            };
            waiting.push((what, channel, call));
        }
        // One whose time runs out meanwhile is told so.
        let status =
            hello_that_waits(&waiting[0].1, true, Some(Duration::from_millis(30))).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        for (what, _, call) in &waiting {
            assert!(!call.is_finished(), "{what}: it waits");
        }
        let _place = Place::open(&uri, &Host::new("late")).await;
        for (what, _, call) in waiting {
            assert_eq!(in_time(what, call).await.unwrap().unwrap(), "late", "{what}");
        }
    }
}

#[tokio::test]
async fn a_channel_or_a_service_config_may_say_that_calls_wait() {
    let street = Street::new();
    let uri = street.shm("late");
    let config =
        r#"{"methodConfig": [{"name": [{"service": "tollfree.greeter.v1.Greeter"}], "waitForReady": true}]}"#;
    let channels = [
        Channel::builder(&*uri).wait_for_ready(true).connect_lazy().unwrap(),
        Channel::builder(&*uri).service_config(config).connect_lazy().unwrap(),
    ];
    let waiting = channels.each_ref().map(|channel| super::place::call(channel, "x"));
    for channel in &channels {
        let status = hello_that_waits(channel, false, None).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "the call's own word counts: {status}");
    }
    let _place = Place::open(&uri, &Host::new("late")).await;
    for call in waiting {
        assert_eq!(in_time("the call", call).await.unwrap().unwrap(), "late");
    }
}

#[tokio::test]
async fn a_server_that_says_it_does_not_serve_gets_no_calls() {
    let street = Street::new();
    let uris = [street.shm("a"), street.http(), street.shm("c")];
    let hosts = ["a", "b", "c"].map(Host::new);
    let mut reporters = Vec::new();
    let mut places = Vec::new();
    for (uri, host) in uris.iter().zip(&hosts) {
        let (reporter, health) = tonic_health::server::health_reporter();
        reporter.set_service_status("greeting", ServingStatus::Serving).await;
        reporters.push(reporter);
        let mut server = Server::builder().add_service(host.service());
        if host.seen().is_empty() && uri != &uris[2] {
            server = server.add_service(health);
        }
        places.push(Place::with(uri, server).await);
    }
    let config =
        r#"{"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": "greeting"}}"#;
    let channel = Channel::builder(&*uris[0]).endpoint(&*uris[1]).endpoint(&*uris[2]).service_config(config);
    let channel = channel.connect().await.unwrap();
    let ready = |wanted: [bool; 3]| {
        let channel = channel.clone();
        move || {
            let states = channel.path().endpoints.into_iter().map(|e| e.state == EndpointState::Ready);
            states.collect::<Vec<_>>() == wanted
        }
    };
    until("all are healthy, also the one that has no health service", ready([true; 3])).await;
    for (idx, reporter) in reporters.iter().take(2).enumerate() {
        reporter.set_service_status("greeting", ServingStatus::NotServing).await;
        let mut wanted = [true; 3];
        wanted[idx] = false;
        until("its client has heard", ready(wanted)).await;
        let before = hosts[idx].seen().len();
        for _ in 0..9 {
            assert_ne!(hello(&channel, "x").await.unwrap(), ["a", "b"][idx]);
        }
        assert_eq!(hosts[idx].seen().len(), before);
        let path = channel.path().endpoints[idx].to_string();
        assert!(path.contains("health"), "{path}");
        reporter.set_service_status("greeting", ServingStatus::Serving).await;
        until("it serves again", ready([true; 3])).await;
    }
}

#[tokio::test]
async fn with_nobody_healthy_calls_fail_or_wait() {
    let street = Street::new();
    let uri = street.shm("a");
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("", ServingStatus::NotServing).await;
    let _place =
        Place::with(&uri, Server::builder().add_service(Host::new("a").service()).add_service(health)).await;
    let config = r#"{"loadBalancingPolicy": "round_robin", "healthCheckConfig": {"serviceName": ""}}"#;
    let channel = Channel::builder(&*uri).service_config(config).connect_lazy().unwrap();
    let status = hello(&channel, "x").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("health"), "{status}");
    let call = {
        let channel = channel.clone();
        tokio::spawn(async move { hello_that_waits(&channel, true, None).await })
    };
    tokio::task::yield_now().await;
    reporter.set_service_status("", ServingStatus::Serving).await;
    assert_eq!(in_time("the call", call).await.unwrap().unwrap(), "a");
}

/// A herd: clients of a server that turns everybody away come back more and more seldom, and all of them in the end.
#[tokio::test]
async fn a_herd_backs_off_and_comes_back() {
    const CLIENT_COUNT: usize = 30;
    let street = Street::new();
    let uri = street.shm("crowded");
    let door = tokio::net::UnixListener::bind(street.path("crowded")).unwrap();
    let calls: Vec<_> = (0..CLIENT_COUNT)
        .map(|_| {
            let channel = Channel::builder(&*uri).wait_for_ready(true).connect_lazy().unwrap();
            super::place::call(&channel, "x")
        })
        .collect();
    // Each of them knocks, is hung up on, and knocks again: 2, 4, 8 ms later and so on up to 512 ms, or after as little as half of that.
    let mut knocks = 0;
    let knocking = async {
        loop {
            drop(door.accept().await.unwrap());
            knocks += 1;
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(1500), knocking).await;
    assert!((2 * CLIENT_COUNT..=12 * CLIENT_COUNT).contains(&knocks), "{knocks} by {CLIENT_COUNT} clients");
    drop(door);
    let _place = Place::open(&uri, &Host::new("open")).await;
    for call in calls {
        assert_eq!(in_time("a client comes back", call).await.unwrap().unwrap(), "open");
    }
}

/// Whatever a call waits for: a handshake that is not answered, a server on HTTP/2 that says nothing, a place in a session. It does not
/// wait for a server that can't be reached at all: that it has to say itself.
#[tokio::test]
async fn a_call_waits_to_connect_and_for_a_place_until_its_deadline() {
    const SHORT: Option<Duration> = Some(Duration::from_millis(100));
    let street = Street::new();
    let (silent, silent_http) = ("silent", "silent_http");
    let _doors = [silent, silent_http].map(|name| tokio::net::UnixListener::bind(street.path(name)).unwrap());
    let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = format!("http://{}", tcp.local_addr().unwrap());
    for uri in [street.shm(silent), street.unix(silent_http), http] {
        for (what, channel) in channels(&street, &uri) {
            for waits in [false, true] {
                let called = in_time(what, hello_that_waits(&channel, waits, SHORT)).await;
                let status = called.unwrap_err();
                assert_eq!(status.code(), Code::DeadlineExceeded, "{uri}, {what}, waits: {waits}: {status}");
            }
        }
    }
    let host = Host::new("full");
    let server = Server::builder().add_service(host.service()).concurrency_limit_per_session(1);
    let _place = Place::with(&street.shm("full"), server).await;
    let channel = Channel::connect(street.shm("full")).await.unwrap();
    let first = super::place::call(&channel, "hold");
    until("the first call begins", || host.seen_count("hold") == 1).await;
    for waits in [false, true] {
        let status = in_time("a place", hello_that_waits(&channel, waits, SHORT)).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    }
    assert_eq!(host.seen().len(), 1, "nobody else was served");
    host.let_go(1);
    assert_eq!(in_time("the first call", first).await.unwrap().unwrap(), "full");
    assert_eq!(hello_that_waits(&channel, false, None).await.unwrap(), "full", "no place is lost");
}
