//! Servers whose calls fail are ejected, and return.

use std::time::{Duration, Instant};

use crate::stubs::greeter::HelloRequest;
use crate::stubs::greeter::greeter_client::GreeterClient;
use tollfree::{Balance, Channel, ChannelBuilder, EndpointState};
use tonic::Code;

use super::place::{Host, Place, Street, call, hello, in_time, until, until_ready};

/// A channel to some servers with outlier detection, set so.
fn builder(uris: &[String], policy: &str, settings: &str) -> ChannelBuilder {
    let mut builder = ChannelBuilder::default();
    for uri in uris {
        builder = builder.endpoint(uri.clone());
    }
    builder.service_config(format!(
        r#"{{"loadBalancingConfig": [{{"outlier_detection_experimental":
            {{{settings}, "childPolicy": [{{"{policy}": {{}}}}]}}}}]}}"#
    ))
}

fn is_ejected(channel: &Channel, at: usize) -> bool {
    matches!(&channel.path().endpoints[at].state, EndpointState::Failing(why) if why.contains("ejected"))
}

async fn places(uris: &[String], hosts: &[Host]) -> Vec<Place> {
    let mut places = Vec::new();
    for (uri, host) in uris.iter().zip(hosts) {
        places.push(Place::open(uri, host).await);
    }
    places
}

#[tokio::test]
async fn a_server_that_fails_calls_is_ejected_and_returns() {
    let street = Street::new();
    let uris = [street.shm("a"), street.shm("b"), street.unix("c"), street.http()];
    let hosts = ["a", "b", "c", "d"].map(Host::new);
    let _places = places(&uris, &hosts).await;
    let settings = r#""interval": "0.05s", "baseEjectionTime": "0.5s", "maxEjectionPercent": 50,
        "consecutiveFailureEjection": {"threshold": 3}"#;
    for policy in ["round_robin", "least_outstanding"] {
        let channel = builder(&uris, policy, settings).connect_lazy().unwrap();
        hello(&channel, "first").await.unwrap();
        until_ready(&channel, 4).await;
        // One that is met by a session, and one by HTTP/2.
        for failing in [1, 3] {
            hosts[failing].fail(Code::Internal, None, 1000);
            let seen = hosts[failing].seen_count("x");
            let mut failed = 0;
            while failed < 3 {
                failed += usize::from(hello(&channel, "x").await.is_err());
            }
            let since = Instant::now();
            for _ in 0..20 {
                if let Err(status) = hello(&channel, "x").await {
                    // Not before its time, that is.
                    assert!(since.elapsed() > Duration::from_millis(400), "{status}");
                    break;
                }
                assert!(is_ejected(&channel, failing) || since.elapsed() > Duration::from_millis(400));
            }
            assert!(hosts[failing].seen_count("x") <= seen + 4, "three, and one if the test was slow");
            hosts[failing].fail_no_more();
            let back =
                async { while hello(&channel, "back").await.unwrap() != ["a", "b", "c", "d"][failing] {} };
            in_time("it returns", back).await;
            assert!(!is_ejected(&channel, failing));
        }
    }
}

#[tokio::test]
async fn the_share_of_failures_in_an_interval_ejects() {
    let street = Street::new();
    let uris = [street.shm("a"), street.shm("b"), street.shm("c")];
    let hosts = ["a", "b", "c"].map(Host::new);
    let _places = places(&uris, &hosts).await;
    let settings = r#""interval": "0.1s", "baseEjectionTime": "60s", "maxEjectionPercent": 50,
        "failurePercentageEjection": {"threshold": 40, "minimumHosts": 3, "requestVolume": 4}"#;
    let channel = builder(&uris, "round_robin", settings).connect_lazy().unwrap();
    hello(&channel, "first").await.unwrap();
    until_ready(&channel, 3).await;
    let ejected = async {
        let mut number = 0;
        while !is_ejected(&channel, 2) {
            // Every other call there: never two in a row.
            let failing = hosts[2].seen_count("x");
            if failing.is_multiple_of(2) {
                hosts[2].fail(Code::NotFound, None, 1);
            }
            for _ in 0..3 {
                _ = hello(&channel, "x").await;
            }
            hosts[2].fail_no_more();
            number += 1;
            assert!(number < 1_000_000);
        }
    };
    in_time("it is ejected", ejected).await;
    for _ in 0..20 {
        assert_ne!(hello(&channel, "y").await.unwrap(), "c");
    }
    assert!(!is_ejected(&channel, 0) && !is_ejected(&channel, 1));
}

#[tokio::test]
async fn a_server_that_answers_too_late_fails_and_one_whose_callers_leave_does_not() {
    let street = Street::new();
    let settings = r#""baseEjectionTime": "60s", "maxEjectionPercent": 100,
        "consecutiveFailureEjection": {"threshold": 3}"#;
    for uri in [street.shm("a"), street.http()] {
        let host = Host::new("a");
        let _place = Place::open(&uri, &host).await;
        let channel = builder(std::slice::from_ref(&uri), "round_robin", settings).connect_lazy().unwrap();
        hello(&channel, "first").await.unwrap();
        for number in 1..=6 {
            let left = call(&channel, "hold");
            until("the call is there", || host.seen_count("hold") == number).await;
            left.abort();
            assert!(left.await.is_err());
        }
        assert_eq!(hello(&channel, "x").await.unwrap(), "a");
        for _ in 0..3 {
            let mut request = tonic::Request::new(HelloRequest { name: "hold".into() });
            request.set_timeout(Duration::from_millis(30));
            let status = GreeterClient::new(channel.clone()).hello(request).await.unwrap_err();
            // A server that sees the deadline pass may be the first to say so.
            assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled), "{status}");
        }
        let status = hello(&channel, "x").await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("outlier detection"), "{status}");
        assert!(is_ejected(&channel, 0), "{}", channel.path());
        host.let_go(20);
    }
}

#[tokio::test]
async fn when_all_are_ejected_calls_fail_or_wait_until_one_returns() {
    let street = Street::new();
    let uris = [street.shm("a"), street.shm("b")];
    let hosts = ["a", "b"].map(Host::new);
    let _places = places(&uris, &hosts).await;
    let settings = r#""interval": "0.05s", "baseEjectionTime": "1s", "maxEjectionPercent": 100,
        "consecutiveFailureEjection": {"threshold": 1}"#;
    let channel = builder(&uris, "round_robin", settings).connect_lazy().unwrap();
    hello(&channel, "first").await.unwrap();
    until_ready(&channel, 2).await;
    let since = Instant::now();
    hosts.iter().for_each(|host| host.fail(Code::Aborted, None, 1));
    for _ in 0..2 {
        assert_eq!(hello(&channel, "x").await.unwrap_err().code(), Code::Aborted);
    }
    let mut request = tonic::Request::new(HelloRequest { name: "waits".into() });
    request.extensions_mut().insert(tollfree::WaitForReady(true));
    let status = hello(&channel, "x").await;
    if since.elapsed() < Duration::from_millis(900) {
        assert_eq!(status.unwrap_err().code(), Code::Unavailable);
    }
    let mut client = GreeterClient::new(channel);
    in_time("a call that waits", client.hello(request)).await.unwrap();
    assert!(since.elapsed() >= Duration::from_millis(900), "it has waited");
}

#[tokio::test]
async fn pick_first_goes_on_to_the_next_while_the_first_is_ejected() {
    let street = Street::new();
    let uris = [street.shm("a"), street.http()];
    let hosts = ["a", "b"].map(Host::new);
    let _places = places(&uris, &hosts).await;
    let settings = r#""interval": "0.05s", "baseEjectionTime": "0.3s", "maxEjectionPercent": 50,
        "consecutiveFailureEjection": {"threshold": 2}"#;
    let channel = builder(&uris, "pick_first", settings).connect_lazy().unwrap();
    hosts[0].fail(Code::Internal, None, 2);
    for _ in 0..2 {
        hello(&channel, "x").await.unwrap_err();
    }
    assert_eq!(hello(&channel, "x").await.unwrap(), "b");
    let back = async { while hello(&channel, "x").await.unwrap() != "a" {} };
    in_time("the first is used again", back).await;
}

#[tokio::test]
async fn attempts_that_a_policy_makes_again_count() {
    let street = Street::new();
    let uris = [street.shm("a"), street.shm("b")];
    let hosts = ["a", "b"].map(Host::new);
    let _places = places(&uris, &hosts).await;
    let json = r#"{"loadBalancingConfig": [{"outlier_detection_experimental": {"baseEjectionTime": "60s",
        "maxEjectionPercent": 50, "consecutiveFailureEjection": {"threshold": 3}, "childPolicy": [{"round_robin": {}}]}}],
        "methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.001s",
        "maxBackoff": "0.01s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}}]}"#;
    let channel =
        Channel::builder(&*uris[0]).endpoint(&*uris[1]).service_config(json).connect_lazy().unwrap();
    hello(&channel, "first").await.unwrap();
    until_ready(&channel, 2).await;
    hosts[1].fail(Code::Unavailable, None, 1000);
    for _ in 0..40 {
        assert_eq!(hello(&channel, "x").await.unwrap(), "a", "no call fails for it");
    }
    assert_eq!(hosts[1].seen_count("x"), 3);
    assert!(is_ejected(&channel, 1));
}

/// Without outlier detection nothing is counted, whatever fails.
#[tokio::test]
async fn nobody_is_ejected_unasked() {
    let street = Street::new();
    let uris = [street.shm("a"), street.shm("b")];
    let hosts = ["a", "b"].map(Host::new);
    let _places = places(&uris, &hosts).await;
    let channel = Channel::builder(&*uris[0]).endpoint(&*uris[1]).balance(Balance::RoundRobin);
    let channel = channel.connect_lazy().unwrap();
    hello(&channel, "first").await.unwrap();
    until_ready(&channel, 2).await;
    hosts[0].fail(Code::Internal, None, 1000);
    let mut failed = 0;
    for _ in 0..200 {
        failed += usize::from(hello(&channel, "x").await.is_err());
    }
    assert_eq!(failed, 100);
}
