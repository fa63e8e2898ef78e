//! One thread that polls both ends of a session: what a unary call costs without any waiting. Meant to be counted
//! (`valgrind --tool=callgrind`), since instructions are the same on a busy machine.
//!
//! `cargo run --release -p tollfree-driver-tokio --example unary [CALLS]`

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use tollfree_driver_tokio::{
    Address, Attachment, Call, Config, End, Ending, Listener, Opening, Outgoing, OutgoingMessage,
};

async fn call(client: &Attachment, body: Bytes) {
    let opening = Opening { path: "/tollfree.bench.v1.Echo/Call", deadline_ns: 0 };
    let mut outgoing = Outgoing {
        headers: None,
        message: Some(OutgoingMessage::new(body, false)),
        ending: Some(Ending::HalfClose),
    };
    let mut opener = client.open();
    let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing)).await.expect("it is open");
    loop {
        let incoming = poll_fn(|cx| stream.poll_incoming(cx)).await.expect("the server is there");
        match incoming.into_part().end {
            None => {}
            Some(End::Trailers { code: 0, .. }) => return,
            Some(end) => panic!("{end:?}"),
        }
    }
}

async fn serve(server: &Attachment) {
    loop {
        let mut accepted = None;
        poll_fn(|cx| server.poll_accept(cx, &mut accepted)).await.expect("the client is there");
        let Call { stream, first, .. } = accepted.expect("a call is there").into_call(true);
        let request = first.expect("a small request comes as a whole").into_part();
        assert_eq!(request.end, Some(End::HalfClosed));
        let body = request.chunk.expect("it has a message").bytes.freeze().slice(5..);
        let mut outgoing = Outgoing {
            headers: Some(Bytes::new()),
            message: Some(OutgoingMessage::new(body, false)),
            ending: Some(Ending::Trailers { code: 0, block: Bytes::new() }),
        };
        poll_fn(|cx| stream.poll_send(cx, &mut outgoing)).await.expect("the client reads");
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let count: u32 = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(100_000);
    let address: Address =
        format!("shm-abstract:tollfree-unary-{}", std::process::id()).parse().expect("an address");
    let mut listener = Listener::bind(&address, Config::default()).expect("the name is free");
    let client = Attachment::connect(&address, &Config::default()).await.expect("it listens");
    let server = listener.accept().await.expect("a client connects");
    let body = Bytes::from(vec![7; 64]);
    let mut serving = pin!(serve(&server));
    let began = Instant::now();
    for _ in 0..count {
        let mut calling = pin!(call(&client, body.clone()));
        poll_fn(|cx| {
            // The request goes out, the server answers, the answer comes in: no turn of the runtime is needed.
            for _ in 0..3 {
                if calling.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                assert!(serving.as_mut().poll(cx).is_pending());
            }
            Poll::Pending
        })
        .await;
    }
    println!("{} ns a call", began.elapsed().as_nanos() / u128::from(count));
}
