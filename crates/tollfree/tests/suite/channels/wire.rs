//! What clients and servers of others send by hand: timeouts that have passed or are none, and details that can't be read.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tollfree::{Channel, Server};
use tollfree_driver_tokio::{Attachment, Config, End, Ending, Opening, Outgoing, now_ns};
use tonic::Code;

use super::place::{Host, Place, Street, hello, in_time};

const HELLO: &str = "/tollfree.greeter.v1.Greeter/Hello";

/// What a server says to a call by HTTP/2 with this timeout.
async fn by_http2(socket: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, timeout: &str) -> HeaderMap {
    let (client, connection) = h2::client::handshake(socket).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut client = client.ready().await.unwrap();
    let request = http::Request::post(format!("http://localhost{HELLO}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", timeout)
        .body(())
        .unwrap();
    let (answer, mut body) = client.send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
    let answer = in_time("an answer", answer).await.unwrap();
    connection.abort();
    answer.into_parts().0.headers
}

#[tokio::test]
async fn a_server_holds_calls_by_http2_to_their_timeouts_before_a_handler_begins() {
    let street = Street::new();
    let (http, unix) = (street.http(), street.unix("s"));
    let host = Host::new("s");
    let server = Server::builder().add_service(host.service());
    let _places = (Place::with(&http, server.clone()).await, Place::with(&unix, server).await);
    for (timeout, code) in [
        ("0n", Code::DeadlineExceeded),
        ("0H", Code::DeadlineExceeded),
        ("123456789m", Code::InvalidArgument),
        ("-5S", Code::InvalidArgument),
        ("5x", Code::InvalidArgument),
        ("S", Code::InvalidArgument),
        ("", Code::InvalidArgument),
    ] {
        let tcp = TcpStream::connect(http.trim_start_matches("http://")).await.unwrap();
        let local = UnixStream::connect(street.path("s")).await.unwrap();
        for headers in [by_http2(tcp, timeout).await, by_http2(local, timeout).await] {
            let said = headers.get("grpc-status").expect("it has failed").to_str().unwrap();
            assert_eq!(said, (code as i32).to_string(), "{timeout}: {headers:?}");
        }
    }
    assert_eq!(host.seen().len(), 0, "no handler began");
}

/// Of a client that looks at no clock, over a session.
#[tokio::test]
async fn a_server_begins_no_call_by_a_session_whose_deadline_has_passed() {
    let street = Street::new();
    let (uri, host) = (street.shm("s"), Host::new("s"));
    let _place = Place::open(&uri, &host).await;
    let session = Attachment::connect(&uri.parse().unwrap(), &Config::default()).await.unwrap();
    let later = now_ns() + 60_000_000_000;
    // From the first calls of a method on, and on the shorter way of a method that is known for being quick.
    for turn in 0..60 {
        for (deadline_ns, code) in [(later, Code::Ok), (1, Code::DeadlineExceeded)] {
            let message = tollfree_driver_tokio::OutgoingMessage::new(Bytes::new(), false);
            let mut outgoing = Outgoing {
                headers: Some(Bytes::new()),
                message: Some(message),
                ending: Some(Ending::HalfClose),
            };
            let mut opener = session.open();
            let opening = Opening { path: HELLO, deadline_ns };
            let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing)).await.unwrap();
            let ended = async {
                loop {
                    if let Some(end) = poll_fn(|cx| stream.poll_incoming(cx)).await.unwrap().into_part().end {
                        return end;
                    }
                }
            };
            let End::Trailers { code: ended, .. } = in_time("an answer", ended).await else {
                panic!("it ends in order")
            };
            assert_eq!(Code::from_i32(ended.into()), code, "turn {turn}");
        }
    }
    assert_eq!(host.seen().len(), 60, "those that are late never began");
}

/// A server by HTTP/2 that fails each call with details that are no base64: at once, or behind a message.
async fn with_bad_details(listener: TcpListener) {
    while let Ok((socket, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(socket).await.unwrap();
            let mut count = 0;
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let mut bad = HeaderMap::new();
                bad.insert("grpc-status", "9".parse().unwrap());
                bad.insert("grpc-message", "as%20it%20is".parse().unwrap());
                bad.insert("grpc-status-details-bin", "!not base64!".parse().unwrap());
                let mut head = http::Response::new(());
                head.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
                count += 1;
                if count % 2 == 1 {
                    head.headers_mut().extend(bad);
                    respond.send_response(head, true).unwrap();
                } else {
                    let mut body = respond.send_response(head, false).unwrap();
                    body.send_data(Bytes::from_static(&[0; 5]), false).unwrap();
                    body.send_trailers(bad).unwrap();
                }
            }
        });
    }
}

#[tokio::test]
async fn details_that_cant_be_read_cost_a_status_its_details_and_nobody_a_task() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(with_bad_details(listener));
    let channels = [
        Channel::connect(&*uri).await.unwrap(),
        Channel::builder(&*uri).timeout(Duration::from_secs(20)).connect().await.unwrap(),
    ];
    for channel in &channels {
        for _ in 0..4 {
            let status = in_time("a status", hello(channel, "x")).await.unwrap_err();
            assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "as it is"));
            assert!(status.details().is_empty());
        }
    }
    server.abort();
}
