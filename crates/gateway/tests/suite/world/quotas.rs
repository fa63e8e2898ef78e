//! Quotas of policies: how many calls callers make in a time, and at once.

use std::time::{Duration, Instant};

use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use super::issuer::{AUDIENCE, ISSUER, TokenSigner, key_set};
use super::lab::{Lab, PATIENCE};
use super::reload::reload;

async fn unary(client: &ProbeClient<Channel>, ask: Ask) -> Result<(), Status> {
    let mut client = client.clone();
    tokio::time::timeout(PATIENCE, client.unary(ask)).await.expect("it ends").map(drop)
}

#[tokio::test]
async fn calls_beyond_a_rate_are_told_when_to_come_again() {
    let lab = Lab::start("").await;
    let _attached = lab.attach("default").await;
    let quota = |more: &str| {
        format!(
            "listeners.world.policy = \"p\"\n[policies.p]\nquotas = [{{ calls = 3, every_ms = 60000, by = [\"identity\"]{more} }}]\n"
        )
    };
    reload(&lab, &quota("")).await.unwrap();
    let client = lab.client().await;
    for _ in 0..3 {
        unary(&client, Ask::default()).await.unwrap();
    }
    let status = unary(&client, Ask::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let pause = status.get_details_retry_info().expect("it says when").retry_delay.unwrap();
    assert!(pause > Duration::from_secs(10) && pause <= Duration::from_secs(20), "{pause:?}");
    assert_eq!(lab.refused("rate").await, 1.0);
    // A reload that leaves the policy as it is leaves what is counted, another connection is the same caller.
    reload(&lab, &quota("")).await.unwrap();
    let other = lab.client().await;
    assert_eq!(unary(&other, Ask::default()).await.unwrap_err().code(), Code::ResourceExhausted);
    // Other methods are not meant.
    reload(&lab, &quota(", methods = [\"tollfree.probe.v1.Probe/Down\"]")).await.unwrap();
    for _ in 0..9 {
        unary(&client, Ask::default()).await.unwrap();
    }
    // A rate fills again.
    let quick = quota("").replace("60000", "300");
    reload(&lab, &quick).await.unwrap();
    let began = Instant::now();
    let (mut served, mut refused) = (0, 0);
    while served < 8 {
        match unary(&client, Ask::default()).await {
            Ok(()) => served += 1,
            Err(status) => {
                let pause = status.get_details_retry_info().unwrap().retry_delay.unwrap();
                assert!(pause <= Duration::from_millis(100), "{pause:?}");
                refused += 1;
                tokio::time::sleep(pause).await;
            }
        }
        assert!(began.elapsed() < PATIENCE);
    }
    // Five more than the burst take 100 ms each.
    assert!(refused >= 1 && began.elapsed() >= Duration::from_millis(490), "{:?}", began.elapsed());
}

#[tokio::test]
async fn calls_at_once_are_counted_until_they_end_whatever_ends_them() {
    let lab =
        Lab::start("listeners.world.policy = \"p\"\n[policies.p]\nquotas = [{ concurrent = 2 }]\n").await;
    let attached = lab.attach("default").await;
    let client = lab.client().await;
    let held = || Ask { wait_ms: 1, ..Ask::default() };
    let under_way: Vec<_> = (0..2)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { unary(&client, held()).await })
        })
        .collect();
    let began = attached.probe.begun.clone();
    let start = Instant::now();
    while began.load(std::sync::atomic::Ordering::SeqCst) < 2 {
        assert!(start.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let status = unary(&client, Ask::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.get_details_retry_info().is_some() && status.message().contains('2'), "{status}");
    assert_eq!(lab.refused("quota").await, 1.0);
    // One is dropped by its client, one is answered.
    let [dropped, answered] = under_way.try_into().unwrap_or_else(|_| panic!("two"));
    dropped.abort();
    let start = Instant::now();
    while unary(&client, Ask::default()).await.is_err() {
        assert!(start.elapsed() < PATIENCE, "a call that was dropped is counted still");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    attached.probe.gate.notify_one();
    attached.probe.gate.notify_one();
    answered.await.unwrap().unwrap();
    let status = client.clone().down(Ask { lens: vec![1, 1], ..Ask::default() }).await.unwrap();
    drop(status);
    let start = Instant::now();
    loop {
        let both = tokio::join!(unary(&client, Ask::default()), unary(&client, Ask::default()));
        if both.0.is_ok() && both.1.is_ok() {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "calls that have ended are counted still");
    }
}

#[tokio::test]
async fn callers_methods_and_groups_are_counted_apart() {
    let signer = TokenSigner::new("a");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("keys.json");
    std::fs::write(&file, key_set(&[&signer])).unwrap();
    let lab = Lab::start_in(directory, "").await;
    let _attached = lab.attach("default").await;
    let client = lab.client().await;
    let call = async |subject: &str| {
        let mut request = Request::new(Ask::default());
        let value = format!("Bearer {}", signer.token(subject));
        request.metadata_mut().insert("authorization", value.parse().unwrap());
        client.clone().unary(request).await.map(drop)
    };
    let config = |by: &str, more: &str| {
        format!(
            "listeners.world.policy = \"p\"\n[jwt.main]\nissuer = \"{ISSUER}\"\naudiences = [\"{AUDIENCE}\"]\njwks = \"{}\"\n[policies.p]\njwt = [\"main\"]\n\
             quotas = [{{ calls = 1, every_ms = 600000, by = [{by}]{more} }}]\n",
            file.display()
        )
    };
    reload(&lab, &config("\"identity\"", "")).await.unwrap();
    call("alice").await.unwrap();
    call("bob").await.unwrap();
    call("alice").await.unwrap_err();
    reload(&lab, &config("\"address\"", "")).await.unwrap();
    call("alice").await.unwrap();
    call("bob").await.unwrap_err();
    reload(&lab, &config("\"identity\", \"method\"", "")).await.unwrap();
    call("alice").await.unwrap();
    call("alice").await.unwrap_err();
    assert_eq!(lab.health("").await, Ok(1), "another method");
    reload(&lab, &config("\"group\"", "")).await.unwrap();
    call("alice").await.unwrap();
    assert_eq!(lab.health("").await, Ok(1), "of no group");
    call("bob").await.unwrap_err();
    reload(&lab, &config("", ", identities = [\"jwt:alice\"]")).await.unwrap();
    call("alice").await.unwrap();
    call("alice").await.unwrap_err();
    call("bob").await.unwrap();
    call("bob").await.unwrap();
}
