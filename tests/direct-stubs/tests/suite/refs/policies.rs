//! What happens where something is not to be had, or is not allowed.

use bytes::Bytes;
use tollfree::pool::{Address, Buffer, Capacity, Config, Coordinator, Pool};
use tollfree::{Channel, PayloadPath, REF_THRESHOLD_DEFAULT, REF_THRESHOLD_ENCODED_DEFAULT, WhenPoolFull};
use tonic::{Code, Status};

use super::freight::{direct, pattern, tonic_made};
use super::lab::{Lab, config, in_time, server, until, until_all_is_free};

const LEN: usize = 100_000;

/// A pool whose members have 1 MiB each.
fn small() -> Lab {
    Lab::with(Capacity { total: 16 << 20, member_quota: 1 << 20, batch: 1 << 20 })
}

/// All of a member's memory.
fn fill(pool: &Pool) -> Buffer {
    pool.buffer(1 << 20).unwrap()
}

/// A call whose message is large both ways, with nothing of it in the pool beforehand on either side.
async fn direct_call(channel: &Channel, len: usize) -> Result<(), Status> {
    let cargo = direct::Cargo { raw: pattern(1, len), ..Default::default() };
    let echo = direct::FreightClient::new(channel.clone()).unary(cargo.clone()).await?.into_inner();
    assert!(echo == cargo);
    Ok(())
}

async fn tonic_call(channel: &Channel, len: usize) -> Result<(), Status> {
    let cargo = tonic_made::Cargo { raw: pattern(1, len), ..Default::default() };
    let echo = tonic_made::FreightClient::new(channel.clone()).unary(cargo.clone()).await?.into_inner();
    assert!(echo == cargo);
    Ok(())
}

async fn call_with(channel: &Channel, is_direct: bool, len: usize) -> Result<(), Status> {
    if is_direct { direct_call(channel, len).await } else { tonic_call(channel, len).await }
}

async fn call(channel: &Channel, is_direct: bool) -> Result<(), Status> {
    call_with(channel, is_direct, LEN).await
}

/// Calls until the pool has said that it has no more, rather than that it has to ask.
async fn refused(channel: &Channel, is_direct: bool) -> Status {
    loop {
        match call(channel, is_direct).await {
            Ok(()) => tokio::time::sleep(std::time::Duration::from_millis(2)).await,
            Err(status) => return status,
        }
    }
}

async fn full_pool(is_direct: bool) {
    let lab = small();
    let (here, there) = (lab.join(), lab.join());
    for at_client in [true, false] {
        let full = if at_client { &here } else { &there };
        for policy in [WhenPoolFull::Inline, WhenPoolFull::Refuse] {
            let server = server(Some(&there)).when_pool_full(policy);
            let served = if is_direct {
                lab.serve(server.add_service(direct::FreightServer::new(direct::Carrier::default()))).await
            } else {
                lab.serve(server.add_service(tonic_made::FreightServer::new(tonic_made::Carrier::default())))
                    .await
            };
            let channel = served.builder(Some(&here)).when_pool_full(policy).connect().await.unwrap();
            call(&channel, is_direct).await.unwrap();
            let payloads = if at_client { channel.payloads() } else { served.payloads.clone() };
            assert_eq!((payloads.counts().sent_by_ref, payloads.counts().pool_full), (1, 0), "there is room");

            until_all_is_free(full).await;
            let all = fill(full);
            let before = payloads.counts();
            if policy == WhenPoolFull::Inline {
                call(&channel, is_direct).await.unwrap();
                let counts = payloads.counts();
                assert_eq!((counts.sent_by_ref, counts.pool_full), (before.sent_by_ref, 1));
                assert_eq!(counts.sent_inline, before.sent_inline + 1);
            } else {
                let status = refused(&channel, is_direct).await;
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                assert!(status.message().contains("the pool has no"), "{status}");
                assert!(payloads.counts().pool_full >= 1);
            }
            assert!(full.counts().exhausted >= 1);
            drop(all);
            call(&channel, is_direct).await.unwrap();
            assert_eq!(payloads.counts().sent_by_ref, before.sent_by_ref + 1, "room has come back");
            drop(channel);
            served.stop().await;
            until_all_is_free(&here).await;
            until_all_is_free(&there).await;
        }
    }
}

#[tokio::test]
async fn a_full_pool_under_both_policies_with_direct_stubs() {
    in_time(full_pool(true)).await;
}

#[tokio::test]
async fn a_full_pool_under_both_policies_with_tonics_stubs() {
    in_time(full_pool(false)).await;
}

#[tokio::test]
async fn what_is_longer_than_a_member_can_have_goes_inline_or_is_refused() {
    in_time(async {
        let lab = small();
        let (here, there) = (lab.join(), lab.join());
        let carrier = direct::FreightServer::new(direct::Carrier::default());
        let served = lab.serve(server(Some(&there)).add_service(carrier)).await;
        for policy in [WhenPoolFull::Inline, WhenPoolFull::Refuse] {
            let channel = served.builder(Some(&here)).when_pool_full(policy).connect().await.unwrap();
            let body = Bytes::from(pattern(1, 2 << 20));
            let keep = direct::Cargo { body, act: direct::Act::Keep.into(), ..Default::default() };
            let kept = direct::FreightClient::new(channel.clone()).unary(keep).await;
            match policy {
                WhenPoolFull::Inline => drop(kept.unwrap()),
                WhenPoolFull::Refuse => assert_eq!(kept.unwrap_err().code(), Code::ResourceExhausted),
            }
            assert_eq!(channel.payloads().counts().pool_full, 1);
        }
    })
    .await;
}

#[tokio::test]
async fn limits_on_messages_are_those_of_all_their_bytes() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let carrier = direct::FreightServer::new(direct::Carrier::new(Some(there.clone())));
        let served = lab.serve(server(Some(&there)).add_service(carrier)).await;
        let channel = served.connect(Some(&here)).await;
        let long = vec![1u8; 5 << 20];
        let make = |number| direct::Cargo { number, act: direct::Act::Make.into(), ..Default::default() };
        let mut client = direct::FreightClient::new(channel.clone());
        let cargo = direct::Cargo { body: long.clone().into(), ..Default::default() };
        let status = client.unary(cargo.clone()).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "the server takes 4 MiB: {status}");
        let status = client.unary(make(5 << 20)).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "the client too: {status}");
        let mut wide = client.clone().max_decoding_message_size(6 << 20);
        assert_eq!(wide.unary(make(5 << 20)).await.unwrap().into_inner().body.len(), 5 << 20);
        let mut narrow = client.clone().max_encoding_message_size(1 << 20);
        assert_eq!(narrow.unary(cargo).await.unwrap_err().code(), Code::OutOfRange);

        let mut client = tonic_made::FreightClient::new(channel.clone());
        let cargo = tonic_made::Cargo { body: long.into(), ..Default::default() };
        assert_eq!(client.unary(cargo).await.unwrap_err().code(), Code::OutOfRange);
        let make =
            tonic_made::Cargo { number: 5 << 20, act: tonic_made::Act::Make.into(), ..Default::default() };
        assert_eq!(client.unary(make).await.unwrap_err().code(), Code::OutOfRange);
        until_all_is_free(&here).await;
        until_all_is_free(&there).await;
    })
    .await;
}

#[tokio::test]
async fn short_messages_are_as_without_a_pool() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let carrier = direct::FreightServer::new(direct::Carrier::default());
        let served = lab.serve(server(Some(&there)).add_service(carrier)).await;
        let channel = served.connect(Some(&here)).await;
        let mut client = direct::FreightClient::new(channel.clone());
        let body = Bytes::from(here.copy_from_slice(&[1; 1000]).unwrap());
        let echo = client.unary(direct::Cargo { body: body.clone(), ..Default::default() }).await.unwrap();
        assert_ne!(echo.into_inner().body.as_ptr(), body.as_ptr());
        assert_eq!(channel.payloads().counts(), Default::default(), "nothing was counted");
        // A threshold of its own.
        let channel = served.builder(Some(&here)).ref_threshold(1000).connect().await.unwrap();
        let mut client = direct::FreightClient::new(channel.clone());
        let keep = direct::Cargo { body, act: direct::Act::Keep.into(), ..Default::default() };
        client.unary(keep).await.unwrap();
        assert_eq!(channel.payloads().counts().sent_by_ref_bytes, 1000);
    })
    .await;
}

/// tonic's codec copies a message at either end, by ref or not.
#[tokio::test]
async fn what_is_encoded_already_goes_by_ref_from_a_greater_length_on() {
    in_time(async {
        let lab = Lab::new();
        let (here, there) = (lab.join(), lab.join());
        let served = lab
            .serve(server(Some(&there)).add_service(direct::FreightServer::new(direct::Carrier::default())))
            .await;
        for (is_direct, set, from) in [
            (true, None, REF_THRESHOLD_DEFAULT),
            (false, None, REF_THRESHOLD_ENCODED_DEFAULT),
            (true, Some(1000), 1000),
            (false, Some(1000), 1000),
        ] {
            for (len, is_by_ref) in [(from - 500, false), (from, true)] {
                let builder = Channel::builder(&*served.uri).pool(here.clone());
                let builder = match set {
                    Some(len) => builder.ref_threshold(len),
                    None => builder,
                };
                let channel = builder.connect().await.unwrap();
                call_with(&channel, is_direct, len).await.unwrap();
                let sent = channel.payloads().counts().sent_by_ref;
                assert_eq!(sent, u64::from(is_by_ref), "{len} bytes, direct: {is_direct}, set: {set:?}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_coordinator_that_dies_and_comes_back_costs_what_is_mapped_nothing() {
    in_time(async {
        let directory = tempfile::tempdir().unwrap();
        let address: Address = format!("shm://{}/pool.sock", directory.path().display()).parse().unwrap();
        let capacity = Capacity { total: 64 << 20, member_quota: 8 << 20, batch: 1 << 20 };
        let coordinator = Coordinator::start(&address, capacity).unwrap();
        let join = || Pool::join(&address, super::lab::config()).unwrap();
        let (here, there) = (join(), join());
        let lab = Lab::new();
        let carrier = direct::FreightServer::new(direct::Carrier::default());
        let served = lab.serve(server(Some(&there)).add_service(carrier)).await;
        let channel = served.connect(Some(&here)).await;
        let mut client = direct::FreightClient::new(channel.clone());
        let mut echo = async |body: &Bytes| {
            let cargo = direct::Cargo { body: body.clone(), ..Default::default() };
            client.unary(cargo).await.map(|echo| echo.into_inner().body.as_ptr() == body.as_ptr())
        };
        let known = Bytes::from(here.copy_from_slice(&pattern(1, 600_000)).unwrap());
        assert!(echo(&known).await.unwrap(), "by ref");
        let unknown = Bytes::from(here.copy_from_slice(&pattern(2, 600_000)).unwrap());
        drop(coordinator);
        until("the loss is noticed", || !here.is_attached() && !there.is_attached()).await;
        assert!(echo(&known).await.unwrap(), "what is mapped goes on");
        assert!(!echo(&unknown).await.unwrap(), "the server can't map its extent, and asks for the bytes");
        assert_eq!(channel.path().endpoints[0].payloads, PayloadPath::NoCoordinator);
        // There is no more memory to be had: by value, then.
        let more = Bytes::from(pattern(3, 600_000));
        assert!(!echo(&more).await.unwrap());
        assert_eq!(channel.payloads().counts().pool_full, 1);

        let _coordinator = Coordinator::start(&address, capacity).unwrap();
        until("it is back", || here.is_attached() && there.is_attached()).await;
        assert!(echo(&unknown).await.unwrap() && echo(&known).await.unwrap(), "nothing was lost");
        drop(here.buffer(600_000).unwrap());
        echo(&more).await.unwrap();
        assert_eq!(channel.payloads().counts().pool_full, 1, "and there is more");
        drop((known, unknown, more));
        until_all_is_free(&here).await;
    })
    .await;
}

/// Fault 46: what one client holds of the server's memory is limited, so that there is some for others; it is sent the rest
/// inline, and by ref again once it has let go.
#[tokio::test]
async fn a_client_that_keeps_all_it_gets_is_sent_the_rest_inline() {
    in_time(async {
        let lab = small();
        let here = lab.join();
        let there = lab.join_with(Config { reader_limit: Some(300_000), ..config() });
        let carrier = direct::FreightServer::new(direct::Carrier::new(Some(there.clone())));
        let served = lab.serve(server(Some(&there)).add_service(carrier)).await;
        let mut client = direct::FreightClient::new(served.connect(Some(&here)).await);
        let make = direct::Cargo { act: direct::Act::Make.into(), number: LEN as _, ..Default::default() };
        let mut kept = Vec::new();
        while served.payloads.counts().sent_inline == 0 {
            assert!(kept.len() < 8, "it has got all of the quota by ref");
            let made = client.unary(make.clone()).await.unwrap().into_inner().body;
            assert_eq!(made, vec![5; LEN]);
            kept.push(made);
        }
        assert!(kept.len() > 3, "as much as it may have came by ref");
        drop(kept);
        let before = served.payloads.counts().sent_by_ref;
        until("it is trusted with memory again", || {
            there.sweep();
            there.may_share_with(std::process::id()).is_ok()
        })
        .await;
        client.unary(make).await.unwrap();
        assert_eq!(served.payloads.counts().sent_by_ref, before + 1);
    })
    .await;
}
