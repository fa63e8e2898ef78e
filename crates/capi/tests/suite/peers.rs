//! Servers in C among others: hostile peers, and a gateway that they attach to.

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use tollfree::gateway::{Accepted, BackendListener, Limits};
use tollfree_layout::frame::{events, flags};
use tollfree_stubs::probe::Ask;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_testkit::{Chance, Frame, HostilePeer, opening_of};

use crate::support::{Place, SANITIZERS, Serving, run};

type Act = fn(&mut HostilePeer);

/// Something of each part that checks what peers write.
const FORGERIES: [Act; 7] = [
    |peer| peer.forge_head(0x1234_5678_9abc_def0),
    |peer| peer.forge_head(peer.next_head(u32::MAX)),
    |peer| peer.forge_cursor(u64::MAX),
    |peer| peer.send(&Frame::new(events::TRAILERS, 0, 1)).unwrap(),
    |peer| peer.send(&opening_of(3, 0, "/test.Echo/Call", b"hi")).unwrap(),
    |peer| peer.send(&Frame::new(events::HEADERS, 0, 1).code(9)).unwrap(),
    |peer| {
        peer.send(&opening_of(1, 0, "/test.Echo/Call", b"hi")).unwrap();
        let area = flags::FIRST | flags::LAST | flags::IN_AREA;
        let chunk = Frame::new(events::HEADERS | events::MESSAGE, area, 2);
        peer.send(&chunk.message_len(9_000).chunk_len(9_000).bytes(&[0; 16])).unwrap();
    },
];

#[test]
fn hostile_peers_harm_nobody_but_themselves() {
    let place = Place::new();
    let address = place.address();
    let server = Serving::start(&place.compile("examples/c/echo_server.c", &SANITIZERS), &address);
    let client = place.compile("examples/c/echo_client.c", &[]);
    let socket = place.path().join("s.sock");
    let is_served = || assert!(run(&client, &[&address, "/test.Echo/Call", "on"]).contains("message: on\n"));
    for act in FORGERIES {
        let mut peer = HostilePeer::client(&socket).unwrap();
        act(&mut peer);
        peer.ring();
        is_served();
    }
    for seed in 0..60 {
        let mut chance = Chance::new(seed);
        let mut peer = HostilePeer::client(&socket).unwrap();
        for _ in 0..1 + chance.below(6) {
            let len = chance.below(200) as usize;
            let record = chance.bytes(len);
            // The server has hung up by now, perhaps.
            if peer.publish(&record).is_err() {
                break;
            }
        }
        peer.ring();
        let mut stranger = UnixStream::connect(&socket).unwrap();
        let bytes = chance.bytes(400);
        let _ = stranger.write_all(&bytes);
        if seed % 20 == 0 {
            is_served();
        }
    }
    is_served();
    server.end();
}

/// A backend that drains answers what it has begun. A new call goes nowhere else here, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_drains_ends_the_calls_that_a_gateway_sent_it_and_takes_no_others() {
    let place = Place::new();
    let address = place.address();
    let program = place.compile("crates/capi/tests/c/attach.c", &SANITIZERS);
    let mut listener = BackendListener::bind(&address, Limits::default()).await.unwrap();
    let starting = tokio::task::spawn_blocking(move || Serving::start(&program, &address));
    let Some(Accepted::Attached(attached)) = listener.accept().await else { panic!("nobody attached") };
    let mut server = starting.await.unwrap();
    let mut client = ProbeClient::new(attached.channel());
    let (asks, asked) = tokio::sync::mpsc::channel(4);
    let ask = |text: &str| Ask { body: text.as_bytes().to_vec(), ..Ask::default() };
    asks.send(ask("before")).await.unwrap();
    let mut answers =
        client.both(tokio_stream::wrappers::ReceiverStream::new(asked)).await.unwrap().into_inner();
    assert_eq!(answers.message().await.unwrap().unwrap().body, b"before");
    server.input().write_all(b"drain\n").unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let refused = loop {
        match client.unary(ask("new")).await {
            Err(refused) => break refused,
            Ok(_) => assert!(std::time::Instant::now() < until, "it takes calls still"),
        }
    };
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused:?}");
    asks.send(ask("behind")).await.unwrap();
    assert_eq!(answers.message().await.unwrap().unwrap().body, b"behind");
    drop(asks);
    assert!(answers.message().await.unwrap().is_none(), "its end is status 0");
    tokio::task::spawn_blocking(move || server.end()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateways_clients_are_served_by_a_program_that_attaches() {
    let place = Place::new();
    let address = place.address();
    let program = place.compile("crates/capi/tests/c/attach.c", &SANITIZERS);
    let mut listener = BackendListener::bind(&address, Limits::default()).await.unwrap();
    let starting = tokio::task::spawn_blocking(move || Serving::start(&program, &address));
    let Some(Accepted::Attached(attached)) = listener.accept().await else { panic!("nobody attached") };
    let server = starting.await.unwrap();
    let mut client = ProbeClient::new(attached.channel());
    for len in [0, 5, 5_000, 1 << 20] {
        let ask = Ask { body: vec![7; len], ..Ask::default() };
        let mut request = tonic::Request::new(ask.clone());
        request.metadata_mut().insert("x-name", "value".parse().unwrap());
        let answer = client.unary(request).await.unwrap();
        assert_eq!(answer.metadata().get("x-name").unwrap(), "value", "{len}");
        assert_eq!(answer.into_inner().body, ask.body, "{len}");
    }
    tokio::task::spawn_blocking(move || server.end()).await.unwrap();
}
