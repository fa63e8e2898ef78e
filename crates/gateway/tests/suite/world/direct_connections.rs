//! Direct connections: a backend calls another one directly, where the gateway has led it there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tollfree::{Channel, ResponseBody};
use tollfree_control::State;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_stubs::probe::{Ask, Fault};
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tower_service::Service;

use super::identity::callers;
use super::lab::{Lab, PATIENCE};
use super::reload::reload;

pub(crate) const SHORT: &str = "[groups.default]\ndirect_connections = true\n";
pub(crate) const GROUP: &str = "group:default";
const CALLERS: usize = 4;

async fn via(lab: &Lab) -> (Channel, ProbeClient<Channel>) {
    let channel = Channel::via(lab.backends(), GROUP).await.unwrap();
    (channel.clone(), ProbeClient::new(channel))
}

/// Waits until the way of a channel's calls says something.
pub(crate) async fn until_path(channel: &Channel, words: &str) {
    let begun = Instant::now();
    while !channel.path().to_string().contains(words) {
        assert!(begun.elapsed() < PATIENCE, "{} and not: {words}", channel.path());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Calls that the gateway has handed to backend connections of the group.
pub(crate) async fn handed(lab: &Lab) -> u64 {
    let state = State::read(&lab.backends()).await.unwrap();
    state.groups["default"].iter().map(|backend_connection| backend_connection.calls).sum()
}

/// Asks for a direct connection as a channel does, and does nothing about it. A channel with a service config doesn't ask by itself.
pub(crate) async fn ask(channel: &mut Channel) -> Result<Response<ResponseBody>, Status> {
    say(channel, "Ask").await
}

async fn say(channel: &mut Channel, method: &str) -> Result<Response<ResponseBody>, Status> {
    let request = Request::post(format!("http://localhost/tollfree.DirectConnection/{method}"));
    let request = request.header("tollfree-process", "pid=1,uid=0");
    let request = request.header("content-type", "application/grpc").header("te", "trailers");
    let response = channel.call(request.body(Body::empty()).unwrap()).await?;
    Status::from_header_map(response.headers()).map_or(Ok(response), Err)
}

pub(crate) async fn quiet(lab: &Lab, target: &str) -> Channel {
    Channel::builder(lab.backends()).via(target).service_config("{}").connect().await.unwrap()
}

#[tokio::test]
async fn calls_by_a_direct_connection_pass_the_gateway_by_and_name_their_caller() {
    let lab = Lab::start(SHORT).await;
    let attached = lab.attach("default").await;
    let (channel, mut client) = via(&lab).await;
    until_path(&channel, "by a direct connection").await;
    let before = handed(&lab).await;
    for _ in 0..20 {
        let mut request = tonic::Request::new(Ask { body: vec![1; 100_000], ..Ask::default() });
        for (name, value) in [
            ("tollfree-client-address", "192.0.2.1:1"),
            ("tollfree-client-subject", "CN=forged"),
            ("tollfree-process", "pid=1,uid=0"),
            ("x-kept", "yes"),
        ] {
            request.metadata_mut().insert(name, value.parse().unwrap());
        }
        let answer = client.unary(request).await.unwrap().into_inner();
        assert_eq!(answer.body.len(), 100_000);
        let [caller] = &callers(&answer.headers)[..] else { panic!("{:?}", answer.headers) };
        let backend = format!("Backend {{ pid: {}, uid:", std::process::id());
        assert!(caller.contains(&backend) && caller.contains("subject: None"), "{caller}");
        assert!(answer.headers.contains(&"x-kept: yes".to_owned()), "{:?}", answer.headers);
    }
    assert_eq!((handed(&lab).await, attached.probe.begun.load(Ordering::SeqCst)), (before, 20));
    assert_eq!(lab.figure("tollfree_gateway_direct_connections_total").await, 1.0);
    // A process that is shut down lets its neighbors go as it does the gateway.
    attached.stop().await;
    until_path(&channel, "without a direct connection: nobody of the group is attached").await;
}

/// Callers that go on until they are told not to; none of their calls fails.
#[tokio::test]
async fn a_second_backend_connection_ends_a_direct_connection_and_no_call() {
    let lab = Lab::start(SHORT).await;
    let first = lab.attach("default").await;
    let (channel, client) = via(&lab).await;
    until_path(&channel, "by a direct connection").await;
    let (is_over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (mut client, is_over, answered) = (client.clone(), is_over.clone(), answered.clone());
        callers.spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                client.unary(Ask { body: vec![1; 100], ..Ask::default() }).await.expect("none is lost");
                answered.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_micros(100)).await;
            }
        });
    }
    let mut held = client.clone();
    let held = tokio::spawn(async move { held.unary(Ask { wait_ms: 1, ..Ask::default() }).await });
    for _ in 0..3 {
        until_path(&channel, "by a direct connection").await;
        let second = lab.attach("default").await;
        until_path(&channel, "without a direct connection: the group has several backend connections").await;
        let before = answered.load(Ordering::SeqCst);
        let begun = Instant::now();
        while answered.load(Ordering::SeqCst) < before + 20 {
            assert!(
                begun.elapsed() < PATIENCE && callers.len() == CALLERS,
                "calls go on through the gateway"
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        second.stop().await;
    }
    assert!(!held.is_finished());
    first.probe.gate.notify_one();
    held.await.unwrap().expect("it was under way when the direct connection was given up");
    is_over.store(true, Ordering::SeqCst);
    while let Some(ended) = callers.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test]
async fn without_the_key_calls_go_through_the_gateway_and_say_why() {
    let lab = Lab::start("[groups.default]\n").await;
    let _attached = lab.attach("default").await;
    let (channel, mut client) = via(&lab).await;
    until_path(&channel, "without a direct connection: the gateway's config gives the group none").await;
    client.unary(Ask::default()).await.unwrap();
    assert_eq!(handed(&lab).await, 1);
    // A config that has it, and then not any more, holds at once for what stands.
    reload(&lab, SHORT).await.unwrap();
    until_path(&channel, "by a direct connection").await;
    client.unary(Ask::default()).await.unwrap();
    reload(&lab, "[groups.default]\n").await.unwrap();
    until_path(&channel, "without a direct connection").await;
    client.unary(Ask::default()).await.unwrap();
    assert_eq!(handed(&lab).await, 2);
}

/// What a callee says in headers that only a gateway and Tollfree itself may say reaches nobody, whichever way it takes.
#[tokio::test]
async fn what_a_callee_may_not_say_is_removed_on_both_ways() {
    for (config, way) in
        [("[groups.default]\n", "without a direct connection"), (SHORT, "by a direct connection")]
    {
        let lab = Lab::start(config).await;
        let _attached = lab.attach("default").await;
        let (channel, mut client) = via(&lab).await;
        until_path(&channel, way).await;
        let before = handed(&lab).await;
        let answer = client.unary(Ask::default()).await.unwrap();
        let keys = |metadata: &MetadataMap| metadata.keys().map(|key| format!("{key:?}")).collect::<String>();
        let headers = keys(answer.metadata());
        let fault = Fault { code: Code::DataLoss.into(), message: "as asked".into(), ..Fault::default() };
        let ask = Ask { fault: Some(fault), lens: vec![10], ..Ask::default() };
        let failed = keys(client.unary(ask.clone()).await.unwrap_err().metadata());
        let mut stream = client.down(ask).await.unwrap().into_inner();
        stream.message().await.unwrap().expect("one answer");
        let ended = keys(stream.message().await.unwrap_err().metadata());
        for (said, kept) in [(headers, "x-said"), (failed, "x-trailer"), (ended, "x-trailer")] {
            assert!(said.contains(kept) && !said.contains("tollfree-"), "{way}: {said}");
        }
        assert_eq!(handed(&lab).await - before, if config == SHORT { 0 } else { 3 });
    }
}

#[tokio::test]
async fn nobody_is_led_where_it_may_not_call_nor_twice_at_a_time() {
    let lab =
        Lab::start(&format!("{SHORT}[groups.other]\nusers = [4000000000]\ndirect_connections = true\n"))
            .await;
    let _attached = lab.attach("default").await;
    for target in ["group:other", "http://127.0.0.1:1"] {
        let refused = ask(&mut quiet(&lab, target).await).await.map(drop).unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{target}: {refused}");
    }
    let mut channel = quiet(&lab, GROUP).await;
    let led = ask(&mut channel).await.unwrap();
    assert!(led.headers()["tollfree-offer"].to_str().unwrap().starts_with("shm-abstract:tollfree-direct-"));
    let refused = ask(&mut channel).await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    let refused = say(&mut channel, "Admit").await.map(drop).unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented, "no caller says whom a process lets in: {refused}");
    // What nobody came by is over with the call that asked for it.
    let uri = led.headers()["tollfree-offer"].to_str().unwrap().to_owned();
    drop(led);
    let begun = Instant::now();
    while Channel::connect(&*uri).await.is_ok() {
        assert!(begun.elapsed() < PATIENCE, "the socket outlives what it stood for");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Calls of this session go where they went.
    ProbeClient::new(channel).unary(Ask::default()).await.unwrap();
}
