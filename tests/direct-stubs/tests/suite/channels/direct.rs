//! Which way calls take on channels that choose.

use tollfree::{Balance, Channel, ChannelBuilder, Generated as _, Way};
use tonic::{Code, Request};

use super::place::{Host, Place, Street, hello, in_time, until_ready};
use crate::stubs::greeter::HelloRequest;
use crate::stubs::greeter::greeter_client::GreeterClient;

/// Makes a call again once.
const CONFIG: &str = r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2, "initialBackoff": "0.001s",
    "maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}"#;

fn way(channel: &Channel) -> Way {
    GreeterClient::new(channel.clone()).way()
}

#[tokio::test]
async fn clients_of_channels_that_choose_are_direct() {
    let street = Street::new();
    let (shm, other, http) = (street.shm("a"), street.shm("b"), street.http());
    let lazy = |builder: ChannelBuilder| builder.connect_lazy().unwrap();
    for builder in [
        Channel::builder(&*shm).endpoint(&*other),
        Channel::builder(&*shm).endpoint(&*http).balance(Balance::RoundRobin),
        Channel::builder(&*shm).service_config(CONFIG),
    ] {
        assert_eq!(way(&lazy(builder)), Way::Direct);
    }
    for builder in [Channel::builder(&*http), Channel::builder(&*http).endpoint(street.unix("c"))] {
        let way = way(&lazy(builder));
        assert!(matches!(way, Way::Http(reason) if reason.contains("HTTP/2 only")), "{way}");
    }
}

/// The same client calls servers of both kinds by turns, and each sees what a plain channel's would.
#[tokio::test]
async fn the_endpoint_that_is_chosen_decides_how_a_call_goes() {
    let street = Street::new();
    let (shm, http) = (street.shm("a"), street.http());
    let (a, b) = (Host::new("a"), Host::new("b"));
    let (_a, _b) = (Place::open(&shm, &a).await, Place::open(&http, &b).await);
    let builder = Channel::builder(&*shm).endpoint(&*http).balance(Balance::RoundRobin);
    let channel = builder.connect_lazy().unwrap();
    hello(&channel, "first").await.unwrap();
    until_ready(&channel, 2).await;
    for _ in 0..10 {
        hello(&channel, "more").await.unwrap();
    }
    assert_eq!((a.seen_count("more"), b.seen_count("more")), (5, 5));
    assert!(a.seen().iter().all(|seen| seen.by_session) && b.seen().iter().all(|seen| !seen.by_session));
    assert_eq!(way(&channel), Way::Direct);
}

/// An attempt at one endpoint fails, and the next is made at the other: by a session and by HTTP/2, in both orders.
#[tokio::test]
async fn a_call_is_made_again_on_a_connection_of_the_other_kind() {
    let street = Street::new();
    for (failing, other) in [(street.shm("a"), street.http()), (street.http(), street.shm("b"))] {
        let (a, b) = (Host::new("a"), Host::new("b"));
        let (_a, _b) = (Place::open(&failing, &a).await, Place::open(&other, &b).await);
        let builder = Channel::builder(&*failing).endpoint(&*other).balance(Balance::RoundRobin);
        let channel = builder.service_config(CONFIG).connect_lazy().unwrap();
        hello(&channel, "first").await.unwrap();
        until_ready(&channel, 2).await;
        let mut client = GreeterClient::new(channel);
        let moved = async {
            loop {
                a.fail_no_more();
                a.fail(Code::Unavailable, None, 1);
                let mut request = Request::new(HelloRequest { name: "again".into() });
                request.metadata_mut().insert("x-kept", "1".parse().unwrap());
                let reply = client.hello(request).await.expect("made again");
                let seen = b.seen();
                let last = seen.last().filter(|seen| seen.previous_attempts.is_some());
                if let Some(seen) = last {
                    assert_eq!((&*reply.get_ref().text, seen.previous_attempts.as_deref()), ("b", Some("1")));
                    break;
                }
            }
        };
        in_time("a call that goes on elsewhere", moved).await;
    }
}

/// What ends a server's session ends no call of a channel that has another one.
#[tokio::test]
async fn calls_go_elsewhere_when_the_session_is_gone() {
    let street = Street::new();
    let (shm, other) = (street.shm("a"), street.shm("b"));
    let (a, b) = (Host::new("a"), Host::new("b"));
    let place = Place::open(&shm, &a).await;
    let _b = Place::open(&other, &b).await;
    let channel = Channel::builder(&*shm).endpoint(&*other).connect().await.unwrap();
    assert_eq!(hello(&channel, "x").await.unwrap(), "a");
    place.stop().await;
    assert_eq!(hello(&channel, "x").await.unwrap(), "b");
    assert_eq!(
        channel.path().ready().map(|endpoint| &*endpoint.address),
        Some(&*other),
        "{}",
        channel.path()
    );
    assert_eq!(way(&channel), Way::Direct);
}
