//! What a group's service config says: timeouts, retries, ejection; and how many calls and backend connections a group may have.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_stubs::probe::{Ask, Fault};
use tonic::{Code, Request};

use super::lab::{Attached, Lab, PATIENCE};
use super::reload::reload;

const RETRIES: &str = "tollfree_gateway_retries_total{group=\"g\"}";
/// A service config in a group of the lab's config.
fn group(json: &str) -> String {
    format!("[groups.g]\nservice_config = '{json}'\n")
}

fn retry(attempts: u32, more: &str) -> String {
    group(
        &format!(
            r#"{{"methodConfig": [{{"name": [{{"service": "tollfree.probe.v1.Probe"}}], "retryPolicy": {{
        "maxAttempts": {attempts}, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1,
        "retryableStatusCodes": ["UNAVAILABLE"]}}}}]{more}}}"#
        )
        .replace('\n', " "),
    )
}

fn begun(attached: &Attached) -> usize {
    attached.probe.begun.load(Ordering::SeqCst)
}

#[tokio::test]
async fn a_timeout_holds_for_calls_that_ask_for_no_shorter_one() {
    let timeout = |unary: &str, others: &str| {
        group(&format!(
            r#"{{"methodConfig": [{{"name": [{{"service": "tollfree.probe.v1.Probe", "method": "Unary"}}], "timeout": "{unary}"}},
            {{"name": [{{}}], "timeout": "{others}"}}]}}"#
        ).replace('\n', " "))
    };
    let lab = Lab::start(&timeout("0.05s", "3600s")).await;
    let attached = lab.attach("g").await;
    let mut client = lab.client().await;
    let held = || Ask { wait_ms: 1, ..Ask::default() };
    // With no deadline, and with a longer one: tonic's own would say CANCELLED.
    for asked in [None, Some(Duration::from_secs(3000))] {
        let mut request = Request::new(held());
        asked.into_iter().for_each(|asked| request.set_timeout(asked));
        let call = tokio::time::timeout(PATIENCE, client.unary(request)).await.expect("it ends");
        assert_eq!(call.unwrap_err().code(), Code::DeadlineExceeded);
    }
    // What is left of the time goes along.
    let answer = client.unary(Ask::default()).await.unwrap().into_inner();
    assert!(answer.headers.iter().any(|header| header.starts_with("grpc-timeout: ")), "{:?}", answer.headers);
    // The other method has more time, and the first one too when the config says so.
    reload(&lab, &timeout("3600s", "0.05s")).await.unwrap();
    let call = tokio::spawn({
        let mut client = client.clone();
        async move { client.unary(held()).await }
    });
    let down = tokio::time::timeout(PATIENCE, client.down(held())).await.expect("it ends");
    assert_eq!(down.unwrap_err().code(), Code::DeadlineExceeded);
    attached.probe.gate.notify_one();
    call.await.unwrap().unwrap();
    // Calls by way of the gateway are calls to the group, too.
    let via = tollfree::Channel::via(lab.backends(), "group:g").await.unwrap();
    let down = tokio::time::timeout(PATIENCE, ProbeClient::new(via).down(held())).await.expect("it ends");
    assert_eq!(down.unwrap_err().code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn failed_calls_are_made_again_as_the_policy_says_and_within_the_budget() {
    let lab = Lab::start(&retry(3, "")).await;
    let attached = lab.attach("g").await;
    let mut client = lab.client().await;
    let fail = |count| attached.probe.failures.store(count, Ordering::SeqCst);
    fail(2);
    let answer = client.unary(Ask { body: vec![5; 1000], ..Ask::default() }).await.unwrap().into_inner();
    assert_eq!((answer.body.len(), begun(&attached)), (1000, 3));
    let attempts = answer.headers.iter().find(|header| header.starts_with("grpc-previous-rpc-attempts"));
    assert_eq!(attempts.unwrap(), "grpc-previous-rpc-attempts: 2");
    assert_eq!(lab.figure(RETRIES).await, 2.0);
    fail(3);
    let status = client.unary(Ask::default()).await.unwrap_err();
    assert_eq!((status.code(), status.message(), begun(&attached)), (Code::Unavailable, "as it was told", 6));
    // Another status is not made again, and neither is an answer that has begun.
    let fault = Some(Fault { code: Code::Aborted as i32, ..Fault::default() });
    client.unary(Ask { fault, ..Ask::default() }).await.unwrap_err();
    let fault = Some(Fault { code: Code::Unavailable as i32, ..Fault::default() });
    let mut down = client.down(Ask { lens: vec![1], fault, ..Ask::default() }).await.unwrap().into_inner();
    down.message().await.unwrap();
    assert_eq!(down.message().await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(begun(&attached), 8);
    // Calls by way of the gateway go by it, too.
    let via = tollfree::Channel::via(lab.backends(), "group:g").await.unwrap();
    fail(2);
    ProbeClient::new(via).unary(Ask::default()).await.unwrap();
    assert_eq!(begun(&attached), 11);

    // Of four tokens, one is given back by ten calls that succeed: half of them may be spent.
    reload(&lab, &retry(5, r#", "retryThrottling": {"maxTokens": 4, "tokenRatio": 0.1}"#)).await.unwrap();
    fail(usize::MAX);
    let before = begun(&attached);
    for _ in 0..5 {
        client.unary(Ask::default()).await.unwrap_err();
    }
    assert_eq!(begun(&attached) - before, 6, "one more attempt than calls: then the budget is spent");
    fail(0);
    for _ in 0..40 {
        client.unary(Ask::default()).await.unwrap();
    }
    fail(1);
    client.unary(Ask::default()).await.expect("the budget is there again");
}

#[tokio::test]
async fn a_backend_whose_calls_fail_is_ejected_and_returns() {
    let json = r#"{"loadBalancingConfig": [{"outlier_detection_experimental": {"interval": "0.05s", "baseEjectionTime": "0.3s",
        "consecutiveFailureEjection": {"threshold": 3}, "childPolicy": [{"round_robin": {}}]}}]}"#;
    let config = group(&json.replace('\n', " "));
    let lab = Lab::start(&format!("load_balancing.policy = \"round_robin\"\n{config}")).await;
    let (good, bad) = (lab.attach("g").await, lab.attach("g").await);
    let mut client = lab.client().await;
    bad.probe.failures.store(usize::MAX, Ordering::SeqCst);
    let ejections = "tollfree_gateway_ejections_total{group=\"g\"}";
    let began = Instant::now();
    while lab.figure(ejections).await == 0.0 {
        _ = client.unary(Ask::default()).await;
        assert!(began.elapsed() < PATIENCE, "it is never ejected");
    }
    let page = lab.page().await;
    let takes = page.lines().filter(|line| line.starts_with("tollfree_gateway_backend_takes_calls{"));
    let takes: Vec<_> = takes.map(|line| line.ends_with(" 1")).collect();
    assert!(takes.len() == 2 && takes.contains(&true), "{takes:?}");
    bad.probe.failures.store(0, Ordering::SeqCst);
    let before = begun(&bad);
    while begun(&bad) == before {
        client.unary(Ask::default()).await.unwrap();
        assert!(began.elapsed() < PATIENCE, "it never returns");
    }
    // One that is alone is called all the same.
    good.stop().await;
    bad.probe.failures.store(10, Ordering::SeqCst);
    for _ in 0..10 {
        let status = client.unary(Ask::default()).await.unwrap_err();
        assert_eq!(status.message(), "as it was told");
    }
    client.unary(Ask::default()).await.unwrap();
}

#[tokio::test]
async fn a_group_has_as_many_calls_and_backend_connections_as_it_may() {
    let lab = Lab::start("[groups.g]\ncalls = 2\nbackend_connections = 1\n").await;
    let attached = lab.attach("g").await;
    let client = lab.client().await;
    let held: Vec<_> = (0..2)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move { client.unary(Ask { wait_ms: 1, ..Ask::default() }).await })
        })
        .collect();
    let began = Instant::now();
    while attached.probe.live.load(Ordering::SeqCst) < 2 {
        assert!(began.elapsed() < PATIENCE, "they are not under way");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let status = client.clone().unary(Ask::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("groups.NAME.calls"), "{status}");
    assert_eq!(lab.refused("calls").await, 1.0);
    attached.probe.gate.notify_waiters();
    for call in held {
        call.await.unwrap().unwrap();
    }
    client.clone().unary(Ask::default()).await.unwrap();

    let server = tollfree::Server::builder()
        .add_service(tollfree_stubs::probe::probe_server::ProbeServer::new(super::probe::Probe::default()));
    let another = tokio::spawn(server.attach(lab.backends()).group("g").into_future());
    let began = Instant::now();
    while lab.refused("attach").await == 0.0 {
        assert!(began.elapsed() < PATIENCE, "it is not refused");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // As soon as there is a place it comes in.
    attached.stop().await;
    client.clone().unary(Ask::default()).await.unwrap();
    another.abort();
}
