//! A loop with the tokio driver, both ways.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use tollfree_driver_loop::{Event, EventLoop, LoopConfig};
use tollfree_driver_tokio::{
    Attachment, Config, Ending, Incoming, Listener, Opening, Outgoing, OutgoingMessage,
};

use crate::support::{echoes, next, place, unary};

const LENGTHS: [usize; 6] = [0, 64, 5_000, 40_000, 300_000, 2_000_000];

fn message(len: usize) -> Bytes {
    (0..len).map(|at| at as u8).collect::<Vec<_>>().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_loop_serves_a_client_of_the_tokio_driver() {
    let (_directory, address) = place();
    let mut events = EventLoop::new(LoopConfig::default()).unwrap();
    events.listen(&address).unwrap();
    let server = std::thread::spawn(move || {
        loop {
            let event = next(&mut events);
            if !echoes(&mut events, &event) && matches!(event, Event::Closed { .. }) {
                return;
            }
        }
    });
    let client = Attachment::connect(&address, &Config::default()).await.unwrap();
    for len in LENGTHS {
        let mut request = Outgoing {
            message: Some(OutgoingMessage::new(message(len), false)),
            ending: Some(Ending::HalfClose),
            ..Outgoing::default()
        };
        let opening = Opening { path: "/test.Echo/Call", deadline_ns: 0 };
        let mut opener = client.open();
        let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut request)).await.unwrap();
        if !request.is_empty() {
            poll_fn(|cx| stream.poll_send(cx, &mut request)).await.unwrap();
        }
        let mut answer = Vec::new();
        loop {
            let incoming: Incoming = poll_fn(|cx| stream.poll_incoming(cx)).await.unwrap();
            let part = incoming.into_part();
            answer.extend(part.chunk.map(|chunk| chunk.bytes.to_vec()).unwrap_or_default());
            if part.end.is_some() {
                break;
            }
        }
        assert_eq!(answer[5..], message(len), "{len}");
    }
    drop(client);
    tokio::task::spawn_blocking(move || server.join().unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_loop_calls_a_server_of_the_tokio_driver() {
    let (_directory, address) = place();
    let mut listener = Listener::bind(&address, Config::default()).unwrap();
    let client = tokio::task::spawn_blocking(move || {
        let mut events = EventLoop::new(LoopConfig::default()).unwrap();
        let session = events.connect(&address).unwrap();
        while !matches!(next(&mut events), Event::Connected { .. }) {}
        for len in LENGTHS {
            events.call(session, unary(message(len))).unwrap();
            let mut came = None;
            loop {
                match next(&mut events) {
                    Event::Message { message, .. } => came = Some(message.bytes),
                    Event::Ended { status, .. } => {
                        assert_eq!(status.code, 0, "{len}");
                        break;
                    }
                    _ => {}
                }
            }
            assert_eq!(came, Some(message(len)), "{len}");
        }
    });
    let server = listener.accept().await.unwrap();
    for _ in LENGTHS {
        let mut place = None;
        poll_fn(|cx| server.poll_accept(cx, &mut place)).await.unwrap();
        let call = place.take().unwrap().into_call(true);
        let mut request = Vec::new();
        let mut first = call.first;
        loop {
            let incoming = match first.take() {
                Some(incoming) => incoming,
                None => poll_fn(|cx| call.stream.poll_incoming(cx)).await.unwrap(),
            };
            let part = incoming.into_part();
            request.extend(part.chunk.map(|chunk| chunk.bytes.to_vec()).unwrap_or_default());
            if part.end.is_some() {
                break;
            }
        }
        let mut answer = Outgoing {
            headers: Some(Bytes::new()),
            message: Some(OutgoingMessage::new(Bytes::copy_from_slice(&request[5..]), false)),
            ending: Some(Ending::Trailers { code: 0, block: Bytes::new() }),
        };
        poll_fn(|cx| call.stream.poll_send(cx, &mut answer)).await.unwrap();
    }
    tokio::time::timeout(Duration::from_secs(60), client).await.unwrap().unwrap();
}
