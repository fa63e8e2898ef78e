//! Refs that can't be mapped: their bytes are asked for, in calls of all kinds and at both levels.

use std::future::poll_fn;

use bytes::Bytes;
use tollfree::pool::{Address, Capacity, Coordinator, Pool};
use tollfree_driver_tokio::{
    Attachment, Config, End, Ending, Keep, Listener, Opening, Outgoing, OutgoingMessage,
};

use super::freight::{direct, tonic_made};
use super::lab::{Lab, config, in_time, server, until};

const PATH: &str = "/tollfree.freight.v1.Freight/Unary";

#[tokio::test]
async fn calls_of_all_kinds_get_the_bytes_of_refs_that_cant_be_mapped() {
    in_time(async {
        let directory = tempfile::tempdir().unwrap();
        let address: Address = format!("shm://{}/pool.sock", directory.path().display()).parse().unwrap();
        let capacity = Capacity { total: 128 << 20, member_quota: 16 << 20, batch: 4 << 20 };
        let coordinator = Coordinator::start(&address, capacity).unwrap();
        let join = || Pool::join(&address, config()).unwrap();
        let (here, there) = (join(), join());
        for pool in [&here, &there] {
            drop(pool.buffer(4 << 20).unwrap());
        }
        drop(coordinator);
        until("the loss is noticed", || !here.is_attached() && !there.is_attached()).await;
        let lab = Lab::new();
        for is_direct in [true, false] {
            let server = server(Some(&there));
            let served = lab
                .serve(if is_direct {
                    server.add_service(direct::FreightServer::new(direct::Carrier::default()))
                } else {
                    server.add_service(tonic_made::FreightServer::new(tonic_made::Carrier::default()))
                })
                .await;
            let channel = served.connect(Some(&here)).await;
            let lens = [100, 20_000, 60_000];
            if is_direct {
                direct::exercise(channel.clone(), &lens).await;
            } else {
                tonic_made::exercise(channel.clone(), &lens).await;
            }
            for counts in [channel.payloads().counts(), served.payloads.counts()] {
                assert!(counts.sent_by_ref > 0 && counts.received_inline > 0, "{counts:?}");
                assert_eq!((counts.received_by_ref, counts.refused_refs), (0, 0), "{counts:?}");
            }
            drop(channel);
            served.stop().await;
        }
    })
    .await;
}

/// Two ends of a session, of which the client has opened a call with a segmented message that stands for these parts.
async fn with_segmented(
    lab: &Lab,
    keep: Keep,
) -> (Attachment, Attachment, tollfree_driver_tokio::Stream, tollfree_driver_tokio::Call) {
    let config = Config { pool: Some(lab.pool.id()), ..Config::default() };
    let address = lab.uri().parse().unwrap();
    let mut listener = Listener::bind(&address, config.clone()).unwrap();
    let connect = Attachment::connect(&address, &config);
    let (client, server) = tokio::join!(connect, listener.accept());
    let (client, server) = (client.unwrap(), server.unwrap());
    let mut outgoing = Outgoing {
        headers: Some(Bytes::new()),
        message: Some(OutgoingMessage::segmented(Bytes::from_static(b"parts"), false, keep)),
        ending: Some(Ending::HalfClose),
    };
    let mut opener = client.open();
    let opening = Opening { path: PATH, deadline_ns: 0 };
    let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing)).await.unwrap();
    drop(opener);
    let mut place = None;
    poll_fn(|cx| server.poll_accept(cx, &mut place)).await.unwrap();
    let call = place.unwrap().into_call(false);
    (client, server, stream, call)
}

fn claim(call: &mut tollfree_driver_tokio::Call) -> tollfree_driver_tokio::Claim {
    let chunk =
        call.first.take().and_then(|incoming| incoming.into_part().chunk).expect("the request has come");
    chunk.segmented.expect("it is one")
}

#[tokio::test]
async fn bytes_are_given_once_whole_and_to_nobody_who_asks_for_others() {
    in_time(async {
        let lab = Lab::new();
        let bytes = Bytes::from(vec![3; 300_000]);
        // As many as there are.
        let (client, _server, stream, mut call) = with_segmented(&lab, Keep::new(bytes.clone())).await;
        let wanted = claim(&mut call);
        wanted.want_bytes(300_000);
        let got = poll_fn(|cx| wanted.poll_bytes(cx)).await.unwrap();
        assert!(got.as_ref() == Some(&bytes));
        assert_eq!(
            (client.segmented_messages_in_flight(), client.gives_inline()),
            (1, true),
            "it is kept until it is taken"
        );
        drop(wanted);
        until("it is let go of", || client.look_for_taken() || client.segmented_messages_in_flight() == 0)
            .await;
        drop((stream, call));
        // Others than there are, or of a giver that has none.
        for (len, parts) in [(299_999, bytes.clone()), (300_001, bytes.clone()), (1, Bytes::new())] {
            let (client, _server, _stream, mut call) = with_segmented(&lab, Keep::new(parts)).await;
            let wanted = claim(&mut call);
            wanted.want_bytes(len);
            assert_eq!(poll_fn(|cx| wanted.poll_bytes(cx)).await.unwrap(), None, "{len} bytes");
            assert!(client.is_open());
        }
        // Twice.
        let (client, _server, _stream, mut call) = with_segmented(&lab, Keep::new(bytes.clone())).await;
        let wanted = claim(&mut call);
        wanted.want_bytes(300_000);
        wanted.want_bytes(300_000);
        until("who asks twice is hung up on", || !client.is_open()).await;
        // Of a giver that goes in the middle.
        let (client, _server, stream, mut call) = with_segmented(&lab, Keep::new(bytes.clone())).await;
        let wanted = claim(&mut call);
        wanted.want_bytes(300_000);
        drop((client, stream));
        if let Ok(got) = poll_fn(|cx| wanted.poll_bytes(cx)).await {
            assert!(got == Some(bytes), "all or an error");
        }
    })
    .await;
}

#[tokio::test]
async fn who_loses_interest_in_the_middle_leaves_a_session_that_works() {
    in_time(async {
        let lab = Lab::new();
        let bytes = Bytes::from(vec![3; 4_000_000]);
        let (client, server, stream, mut call) = with_segmented(&lab, Keep::new(bytes)).await;
        let wanted = claim(&mut call);
        wanted.want_bytes(4_000_000);
        drop(wanted);
        until("it is let go of", || client.look_for_taken() || client.segmented_messages_in_flight() == 0)
            .await;
        let mut outgoing = Outgoing {
            headers: Some(Bytes::new()),
            message: None,
            ending: Some(Ending::Trailers { code: 0, block: Bytes::new() }),
        };
        poll_fn(|cx| call.stream.poll_send(cx, &mut outgoing)).await.unwrap();
        loop {
            if let Some(end) = poll_fn(|cx| stream.poll_incoming(cx)).await.unwrap().into_part().end {
                assert!(matches!(end, End::Trailers { code: 0, .. }), "{end:?}");
                break;
            }
        }
        assert!(client.is_open() && server.is_open());
    })
    .await;
}
