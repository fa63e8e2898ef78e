//! gRPC's retry policy, from outside: how often a call is made, when, and when not.

use std::time::{Duration, Instant};

use crate::stubs::greeter::HelloRequest;
use crate::stubs::greeter::greeter_client::GreeterClient;
use tokio_stream::StreamExt;
use tollfree::{Channel, ChannelError, Server, Transport};
use tonic::{Code, Request};

use super::place::{Host, Place, Street, hello, in_time};

/// A service config with a policy for all methods, and perhaps throttling.
fn config(attempts: u32, initial: &str, rest: &str) -> String {
    format!(
        r#"{{"methodConfig": [{{"name": [{{}}], "retryPolicy": {{"maxAttempts": {attempts}, "initialBackoff": "{initial}",
        "maxBackoff": "1s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE", "ABORTED"]}}}}]{rest}}}"#
    )
}

/// A server of each kind and a channel to it, with a service config.
async fn lab(street: &Street, config: &str) -> Vec<(Host, Place, Channel)> {
    let mut labs = Vec::new();
    for uri in [street.shm("s"), street.http()] {
        let host = Host::new("s");
        let place = Place::open(&uri, &host).await;
        let channel = Channel::builder(&*uri).service_config(config).connect().await.unwrap();
        labs.push((host, place, channel));
    }
    labs
}

/// Whether all of a request is kept while it may be sent again.
fn keeps_all(channel: &Channel) -> bool {
    super::KEEPS_ALL && channel.path().endpoints[0].transport == Transport::SharedMemory
}

#[tokio::test]
async fn a_call_is_made_again_up_to_its_number_and_says_which_time_it_is() {
    for (host, _place, channel) in lab(&Street::new(), &config(4, "0.001s", "")).await {
        host.fail(Code::Unavailable, None, 2);
        host.fail(Code::Aborted, None, 1);
        assert_eq!(hello(&channel, "lucky").await.unwrap(), "s");
        let times: Vec<_> = host.seen().into_iter().map(|seen| seen.previous_attempts).collect();
        assert_eq!(times, [None, Some("1".to_string()), Some("2".to_string()), Some("3".to_string())]);
        host.fail(Code::Unavailable, None, 9);
        let status = hello(&channel, "unlucky").await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "as the script says"));
        assert_eq!(host.seen_count("unlucky"), 4, "the first time counts");
    }
}

/// What a channel keeps of a request is limited, and a longer one's status says why it is not made again.
#[tokio::test]
async fn a_call_that_is_too_long_to_be_made_again_says_so() {
    for (host, _place, channel) in lab(&Street::new(), &config(4, "0.001s", "")).await {
        for (len, times) in [(200 << 10, 4), (300 << 10, if keeps_all(&channel) { 4 } else { 1 })] {
            host.fail(Code::Unavailable, None, times);
            let name = "x".repeat(len);
            let status = hello(&channel, &name).await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{status}");
            assert!(status.message().starts_with("as the script says"), "{status}");
            assert_eq!(status.message().contains("256 KiB"), times == 1, "{status}");
            assert_eq!(host.seen().iter().filter(|seen| seen.name.len() == len).count(), times);
        }
    }
}

#[tokio::test]
async fn other_statuses_and_other_methods_are_not_retried() {
    for (host, _place, channel) in lab(&Street::new(), &config(4, "0.001s", "")).await {
        host.fail(Code::Internal, None, 1);
        assert_eq!(hello(&channel, "once").await.unwrap_err().code(), Code::Internal);
        assert_eq!(host.seen().len(), 1);
    }
    let elsewhere = config(4, "0.001s", "").replace("[{}]", r#"[{"service": "some.Other"}]"#);
    for (host, _place, channel) in lab(&Street::new(), &elsewhere).await {
        host.fail(Code::Unavailable, None, 1);
        assert_eq!(hello(&channel, "once").await.unwrap_err().code(), Code::Unavailable);
        assert_eq!(host.seen().len(), 1);
    }
}

#[tokio::test]
async fn the_server_says_when_to_come_back_or_not_at_all() {
    // By itself a call would wait for a minute: that it comes earlier is the server's doing.
    let config = config(3, "60s", "").replace("\"1s\"", "\"60s\"");
    for (host, _place, channel) in lab(&Street::new(), &config).await {
        host.fail(Code::Unavailable, Some("30"), 1);
        host.fail(Code::Unavailable, Some("0"), 1);
        let began = Instant::now();
        assert_eq!(hello(&channel, "pushed").await.unwrap(), "s");
        assert!(began.elapsed() >= Duration::from_millis(30));
        for never in ["-1", "soon"] {
            host.fail(Code::Unavailable, Some(never), 1);
            let status = hello(&channel, never).await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable);
            assert_eq!(host.seen_count(never), 1);
        }
    }
}

#[tokio::test]
async fn failures_throttle_retries_and_successes_allow_them_again() {
    let throttling = r#", "retryThrottling": {"maxTokens": 4, "tokenRatio": 1}"#;
    for (host, _place, channel) in lab(&Street::new(), &config(5, "0.001s", throttling)).await {
        host.fail(Code::Unavailable, None, 20);
        // 4 tokens: one failure leaves 3, more than half; the second leaves 2, and that is not.
        hello(&channel, "first").await.unwrap_err();
        assert_eq!(host.seen_count("first"), 2);
        hello(&channel, "second").await.unwrap_err();
        assert_eq!(host.seen_count("second"), 1, "throttled");
        host.fail_no_more();
        for _ in 0..4 {
            hello(&channel, "fine").await.unwrap();
        }
        host.fail(Code::Unavailable, None, 1);
        assert_eq!(hello(&channel, "third").await.unwrap(), "s");
        assert_eq!(host.seen_count("third"), 2, "allowed again");
    }
}

#[tokio::test]
async fn a_deadline_is_for_all_attempts_together() {
    let config = config(5, "60s", "").replace("\"1s\"", "\"60s\"");
    for (host, _place, channel) in lab(&Street::new(), &config).await {
        host.fail(Code::Unavailable, None, 100);
        let mut request = Request::new(HelloRequest { name: "x".into() });
        request.set_timeout(Duration::from_secs(30));
        let status = GreeterClient::new(channel.clone()).hello(request).await.unwrap_err();
        // There is no time for a pause of 48 s: the first failure is the last.
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert_eq!(host.seen().len(), 1);
        let timeout = host.seen()[0].timeout.clone().expect("the handler sees what is left");
        assert!(["n", "u", "m"].iter().any(|unit| timeout.ends_with(unit)), "{timeout}");
    }
}

#[tokio::test]
async fn a_method_may_have_a_timeout_of_its_own() {
    let config = r#"{"methodConfig": [{"name": [{"service": "tollfree.greeter.v1.Greeter", "method": "Hello"}],
        "timeout": "0.03s"}]}"#;
    for (host, _place, channel) in lab(&Street::new(), config).await {
        // Time may be over before the handler is called: then another call has its turn.
        let seen = in_time("a call that comes to its handler", async {
            loop {
                let status = hello(&channel, "hold").await.unwrap_err();
                assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
                if let Some(seen) = host.seen().first() {
                    break seen.clone();
                }
            }
        });
        assert!(seen.await.timeout.is_some());
    }
}

#[tokio::test]
async fn a_response_that_has_begun_is_not_made_again_and_a_long_request_is_sent_once() {
    use crate::stubs::probe::probe_client::ProbeClient;
    use crate::stubs::probe::{Ask, Fault};
    let street = Street::new();
    for uri in [street.shm("p"), street.http()] {
        let probe = super::place::Counting::default();
        let server = Server::builder().add_service(probe.service());
        let _place = Place::with(&uri, server).await;
        let channel =
            Channel::builder(&*uri).service_config(config(3, "0.001s", "")).connect().await.unwrap();
        let mut client = ProbeClient::new(channel.clone());
        let fault = Some(Fault { code: Code::Unavailable as i32, ..Fault::default() });
        let begun = Ask { lens: vec![3], fault: fault.clone(), ..Ask::default() };
        let mut answers = client.down(begun).await.unwrap().into_inner();
        assert!(answers.next().await.unwrap().is_ok());
        assert_eq!(answers.next().await.unwrap().unwrap_err().code(), Code::Unavailable);
        assert_eq!(probe.count(), 1, "its answer had begun");
        let short = Ask { body: vec![1; 1000], fault: fault.clone(), ..Ask::default() };
        client.unary(short).await.unwrap_err();
        assert_eq!(probe.count(), 4, "three times");
        let long = Ask { body: vec![1; 300_000], fault, ..Ask::default() };
        client.unary(long).await.unwrap_err();
        let times = if keeps_all(&channel) { 3 } else { 1 };
        assert_eq!(probe.count(), 4 + times, "longer than what is kept");
    }
}

#[tokio::test]
async fn a_service_config_that_makes_no_sense_is_refused_by_name() {
    let hedging = r#"{"methodConfig": [{"name": [{}], "hedgingPolicy": {"maxAttempts": 2}}]}"#;
    for (config, hint) in
        [(hedging, "hedging"), ("{", "can't be read"), (&config(1, "1s", ""), "maxAttempts")]
    {
        let error = Channel::builder("shm:///x").service_config(config).connect_lazy().unwrap_err();
        assert!(
            matches!(error, ChannelError::ServiceConfig(_)) && error.to_string().contains(hint),
            "{error}"
        );
    }
}
