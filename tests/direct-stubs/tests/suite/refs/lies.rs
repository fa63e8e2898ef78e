//! Peers that lie about refs: the call ends with an error that says so, and nothing else happens.

use std::future::poll_fn;

use bytes::Bytes;
use tollfree::pool::{Pool, REF_LEN};
use tollfree_direct_stubs::freight::Cargo;
use tollfree_driver_tokio::{
    Address, Attachment, Call, Claim, Closed, Config, End, Ending, Keep, Listener, Opening, Outgoing,
    OutgoingMessage, SendError,
};
use tonic::{Code, Status};

use super::freight::{direct, pattern, tonic_made};
use super::lab::{Lab, in_time, server, until};

pub(crate) const UNARY: &str = "/tollfree.freight.v1.Freight/Unary";

/// Field 1 of Cargo, whose bytes are the ref's.
fn cargo_with(len: u64, bytes: &[u8; REF_LEN]) -> Vec<u8> {
    let mut field = vec![0x0a];
    prost::encoding::encode_varint(len, &mut field);
    segmented(field.len() as u64 + len, 1, &field, &[(field.len() as u32, *bytes)])
}

/// A segmented message, be it as false as it likes.
pub(crate) fn segmented(len: u64, count: u32, inline: &[u8], refs: &[(u32, [u8; REF_LEN])]) -> Vec<u8> {
    let mut bytes = (len as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&count.to_le_bytes());
    bytes.extend_from_slice(inline);
    for (before, part) in refs {
        bytes.extend_from_slice(&before.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(part);
    }
    bytes
}

/// Each lie, and what it is answered with.
pub(crate) async fn lies_about_refs(lab: &Lab, liar: &Pool) -> Vec<(&'static str, Code, Vec<u8>)> {
    let held = liar.copy_from_slice(&pattern(1, 50_000)).unwrap();
    let genuine = held.to_bytes().unwrap();
    // It is not to be freed before the test is over.
    tokio::afterwards(async move { drop(held) });
    let with = |at: usize, byte: u8| {
        let mut bytes = genuine;
        bytes[at] ^= byte;
        bytes
    };
    let stale = {
        let held = liar.copy_from_slice(&pattern(2, 50_000)).unwrap();
        let bytes = held.to_bytes().unwrap();
        drop(held);
        liar.sweep();
        bytes
    };
    let dead = {
        let member = lab.join();
        let held = member.copy_from_slice(&pattern(3, 50_000)).unwrap();
        held.to_bytes().unwrap()
    };
    let elsewhere = Lab::new();
    let foreign = elsewhere.pool.copy_from_slice(&pattern(4, 50_000)).unwrap().to_bytes().unwrap();
    let len = 50_000;
    let one = |bytes: &[u8; REF_LEN]| cargo_with(len, bytes);
    vec![
        ("another tag", Code::PermissionDenied, one(&with(32, 1))),
        ("another offset", Code::PermissionDenied, one(&with(40, 1))),
        ("a page beyond the extent", Code::PermissionDenied, one(&with(31, 0x7f))),
        ("longer", Code::PermissionDenied, cargo_with(len ^ 1 << 16, &with(50, 1))),
        ("of another pool", Code::PermissionDenied, one(&foreign)),
        (
            "made up",
            Code::PermissionDenied,
            one(&{
                let mut bytes = [0xab; REF_LEN];
                bytes[..16].copy_from_slice(&genuine[..16]);
                bytes[16..20].copy_from_slice(&genuine[16..20]);
                bytes[20..24].copy_from_slice(&genuine[20..24]);
                bytes[24..28].copy_from_slice(&genuine[24..28]);
                bytes[28..32].copy_from_slice(&genuine[28..32]);
                bytes[48..56].copy_from_slice(&len.to_le_bytes());
                bytes
            }),
        ),
        ("an earlier generation", Code::FailedPrecondition, one(&stale)),
        ("a later generation", Code::FailedPrecondition, one(&with(28, 1))),
        ("a member that is gone", Code::Unavailable, one(&dead)),
        ("an extent that never was", Code::Unavailable, one(&with(22, 1))),
        ("no bytes at all", Code::Internal, Vec::new()),
        ("no refs", Code::Internal, segmented(3, 0, b"abc", &[])),
        ("fewer refs than stated", Code::Internal, segmented(50_000, 2, b"", &[(0, genuine)])),
        ("more refs than can be", Code::Internal, segmented(50_000, 1_000_000, b"", &[(0, genuine)])),
        ("shorter than stated", Code::Internal, segmented(50_001, 1, b"", &[(0, genuine)])),
        ("longer than stated", Code::Internal, segmented(49_999, 1, b"", &[(0, genuine)])),
        ("places beyond the end", Code::Internal, segmented(50_000, 1, b"", &[(1, genuine)])),
        (
            "a ref to nothing",
            Code::Internal,
            segmented(
                0,
                1,
                b"",
                &[(0, {
                    let mut bytes = genuine;
                    bytes[48..56].fill(0);
                    bytes
                })],
            ),
        ),
    ]
}

fn transport_config(pool: &Pool) -> Config {
    Config { pool: Some(pool.id()), ..Config::default() }
}

/// A call of the transport with one message; the status that it ended with.
pub(crate) async fn call(
    attachment: &Attachment,
    path: &str,
    message: OutgoingMessage,
) -> Result<Code, SendError> {
    let mut opener = attachment.open();
    let mut outgoing =
        Outgoing { headers: Some(Bytes::new()), message: Some(message), ending: Some(Ending::HalfClose) };
    let opening = Opening { path, deadline_ns: 0 };
    let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing)).await?;
    loop {
        match poll_fn(|cx| stream.poll_incoming(cx)).await.unwrap().into_part().end {
            Some(End::Trailers { code, .. }) => return Ok(Code::from_i32(code.into())),
            Some(end) => panic!("{end:?}"),
            None => {}
        }
    }
}

fn lie(data: Vec<u8>) -> OutgoingMessage {
    OutgoingMessage::segmented(data.into(), false, Keep::new(()))
}

#[tokio::test]
async fn a_client_that_lies_about_refs_ends_its_own_calls() {
    in_time(async {
        let lab = Lab::new();
        let (liar, there) = (lab.join(), lab.join());
        let direct = direct::FreightServer::new(direct::Carrier::default());
        let tonic = tonic_made::FreightServer::new(tonic_made::Carrier::default());
        for is_direct in [true, false] {
            let server = server(Some(&there));
            let served = lab
                .serve(if is_direct {
                    server.add_service(direct.clone())
                } else {
                    server.add_service(tonic.clone())
                })
                .await;
            let address: Address = served.uri.parse().unwrap();
            let attachment = Attachment::connect(&address, &transport_config(&liar)).await.unwrap();
            let honest = served.connect(Some(&liar)).await;
            let mut honest_client = direct::FreightClient::new(honest.clone());
            let cargo = Cargo { body: pattern(1, 100_000).into(), ..Cargo::default() };
            // Whatever it lies in has been mapped by now, so that refs are looked at rather than fetched.
            honest_client.unary(cargo.clone()).await.unwrap();
            let (before, counted) = (served.payloads.counts(), there.counts());
            let all = lies_about_refs(&lab, &liar).await;
            let (mut refused, mut count) = (0, 0);
            for (what, expected, data) in all {
                let code = call(&attachment, UNARY, lie(data)).await.unwrap();
                assert_eq!(code, expected, "{what}, to direct stubs: {is_direct}");
                refused += u64::from(expected != Code::Internal);
                count += 1;
            }
            assert_eq!(count, 18);
            assert_eq!(served.payloads.counts().refused_refs - before.refused_refs, refused);
            assert!(there.counts().forbidden_refs >= counted.forbidden_refs + 6);
            assert!(there.counts().stale_refs >= counted.stale_refs + 2);
            // Its session lives, and others' too; what it should be told, it was.
            assert!(attachment.is_open() && attachment.segmented_messages_in_flight() == 0);
            let echo = honest_client.unary(cargo.clone()).await.unwrap().into_inner();
            assert!(echo.body == cargo.body);
        }
    })
    .await;
}

async fn accept(attachment: &Attachment) -> Result<Call, Closed> {
    let mut place = None;
    poll_fn(|cx| attachment.poll_accept(cx, &mut place)).await?;
    Ok(place.expect("a call is there").into_call(false))
}

/// Reads all of a request, and gives the segmented messages that came.
async fn read(call: &mut Call) -> Vec<Claim> {
    let mut claims = Vec::new();
    loop {
        let part = match call.first.take() {
            Some(incoming) => incoming.into_part(),
            None => match poll_fn(|cx| call.stream.poll_incoming(cx)).await {
                Ok(incoming) => incoming.into_part(),
                Err(_) => return claims,
            },
        };
        claims.extend(part.chunk.and_then(|chunk| chunk.segmented));
        if part.end.is_some() {
            return claims;
        }
    }
}

/// Answers every call with the next lie.
async fn lying_server(mut listener: Listener, lies: Vec<Vec<u8>>) {
    let attachment = listener.accept().await.unwrap();
    let mut next = lies.into_iter();
    while let Ok(mut call) = accept(&attachment).await {
        read(&mut call).await;
        let Some(data) = next.next() else { return };
        let mut outgoing = Outgoing {
            headers: Some(Bytes::new()),
            message: Some(lie(data)),
            ending: Some(Ending::Trailers { code: 0, block: Bytes::new() }),
        };
        let _ = poll_fn(|cx| call.stream.poll_send(cx, &mut outgoing)).await;
    }
}

#[tokio::test]
async fn a_server_that_lies_about_refs_ends_the_calls_made_to_it() {
    in_time(async {
        let lab = Lab::new();
        let (here, liar) = (lab.join(), lab.join());
        // Mapped before, as above.
        let known = liar.copy_from_slice(&[1]).unwrap();
        here.map_ref(&known.to_bytes().unwrap()).unwrap();
        for is_direct in [true, false] {
            let uri = lab.uri();
            let all = lies_about_refs(&lab, &liar).await;
            let listener = Listener::bind(&uri.parse().unwrap(), transport_config(&liar)).unwrap();
            let data = all.iter().map(|(_, _, data)| data.clone()).collect();
            let task = tokio::spawn(lying_server(listener, data));
            let channel = tollfree::Channel::builder(uri).pool(here.clone()).connect().await.unwrap();
            for (what, expected, _) in &all {
                let result: Result<(), Status> = if is_direct {
                    direct::FreightClient::new(channel.clone())
                        .unary(direct::Cargo::default())
                        .await
                        .map(drop)
                } else {
                    tonic_made::FreightClient::new(channel.clone())
                        .unary(tonic_made::Cargo::default())
                        .await
                        .map(drop)
                };
                let status = result.unwrap_err();
                assert_eq!(status.code(), *expected, "{what}, direct: {is_direct}: {status}");
            }
            assert!(channel.payloads().counts().refused_refs >= 9);
            drop(channel);
            task.await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_segmented_message_is_not_sent_where_no_pool_is_in_common() {
    in_time(async {
        let lab = Lab::new();
        let carrier = direct::FreightServer::new(direct::Carrier::default());
        let served = lab.serve(server(None).add_service(carrier)).await;
        let attachment =
            Attachment::connect(&served.uri.parse().unwrap(), &transport_config(&lab.pool)).await.unwrap();
        let part = lab.pool.copy_from_slice(&[1; 100]).unwrap().to_bytes().unwrap();
        let sent = call(&attachment, "/tollfree.freight.v1.Freight/Unary", lie(cargo_with(100, &part))).await;
        assert!(matches!(sent, Err(SendError::OutOfOrder(_))), "{sent:?}");
        assert!(attachment.is_open());
    })
    .await;
}

/// A peer that never says that it has taken a segmented message makes its sender keep no more than so many.
#[tokio::test]
async fn a_peer_that_never_takes_what_it_gets_is_sent_the_rest_inline() {
    in_time(async {
        let lab = Lab::new();
        let (here, liar) = (lab.join(), lab.join());
        let uri = lab.uri();
        let mut listener = Listener::bind(&uri.parse().unwrap(), transport_config(&liar)).unwrap();
        let hoarder = tokio::spawn(async move {
            let attachment = listener.accept().await.unwrap();
            let mut hoard = Vec::new();
            while let Ok(mut call) = accept(&attachment).await {
                hoard.extend(read(&mut call).await);
                let mut outgoing = Outgoing {
                    headers: Some(Bytes::new()),
                    message: Some(OutgoingMessage::new(Bytes::new(), false)),
                    ending: Some(Ending::Trailers { code: 0, block: Bytes::new() }),
                };
                let _ = poll_fn(|cx| call.stream.poll_send(cx, &mut outgoing)).await;
            }
            hoard.len()
        });
        let channel =
            tollfree::Channel::builder(uri).pool(here.clone()).ref_threshold(1000).connect().await.unwrap();
        let mut client = direct::FreightClient::new(channel.clone());
        let body: Bytes = here.copy_from_slice(&pattern(1, 1000)).unwrap().into();
        let most = tollfree_layout::limits::SEGMENTED_COUNT_MAX;
        for _ in 0..most + 50 {
            client.unary(direct::Cargo { body: body.clone(), ..Default::default() }).await.unwrap();
        }
        let counts = channel.payloads().counts();
        assert_eq!((counts.sent_by_ref, counts.sent_inline), (most as u64, 50));
        drop((channel, client, body));
        assert_eq!(hoarder.await.unwrap(), most);
        until("nothing is kept for a session that is over", || {
            here.sweep();
            here.usage().free_bytes == here.usage().total_bytes
        })
        .await;
    })
    .await;
}
