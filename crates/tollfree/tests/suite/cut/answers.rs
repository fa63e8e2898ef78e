//! Answers over HTTP/2 that are cut, or end without a status: by a server that speaks HTTP/2 and knows nothing of gRPC.

use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::{BodyExt, Full};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tonic::body::Body;
use tonic::{Code, Request, Status};
use tower::Service;

use super::connect;
use crate::stubs::probe::probe_client::ProbeClient;
use crate::stubs::probe::{Answer, Ask};

/// A message in gRPC's framing.
fn framed() -> Vec<u8> {
    let message = Answer { body: b"answer".to_vec(), ..Answer::default() }.encode_to_vec();
    let mut bytes = vec![0];
    bytes.extend((message.len() as u32).to_be_bytes());
    bytes.extend(message);
    bytes
}

fn trailers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
}

/// Resets an answer whose message has gone out.
fn reset(mut body: SendStream<Bytes>, reason: Reason) {
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        body.send_reset(reason);
    });
}

/// Answers as the request asks for. `false`: the connection is to be lost.
fn answer(ends: &str, mut respond: SendResponse<Bytes>) -> bool {
    let head = || Response::builder().header("content-type", "application/grpc");
    let alone = |status: &'static str| head().header("grpc-status", status).body(()).unwrap();
    match ends {
        "with a status alone that is none" => {
            respond.send_response(alone("none"), true).unwrap();
            return true;
        }
        "before its head" => {
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                respond.send_reset(Reason::CANCEL);
            });
            return true;
        }
        _ => {}
    }
    let mut body = respond.send_response(head().body(()).unwrap(), false).unwrap();
    let message = framed();
    let len = if ends.starts_with("in a message") { message.len() - 3 } else { message.len() };
    body.send_data(Bytes::copy_from_slice(&message[..len]), ends == "without trailers").unwrap();
    match ends {
        "without trailers" => {}
        "with CANCEL" => reset(body, Reason::CANCEL),
        "with NO_ERROR" => reset(body, Reason::NO_ERROR),
        "with REFUSED_STREAM" => reset(body, Reason::REFUSED_STREAM),
        "without a status" => body.send_trailers(trailers(&[("x-other", "1")])).unwrap(),
        "with a status that is none" => body.send_trailers(trailers(&[("grpc-status", "ok")])).unwrap(),
        "with status 17" => body.send_trailers(trailers(&[("grpc-status", "17")])).unwrap(),
        "with status 00" => body.send_trailers(trailers(&[("grpc-status", "00")])).unwrap(),
        "in a message, without trailers" => body.send_data(Bytes::new(), true).unwrap(),
        "lost" => {
            // Dropping it would reset the stream.
            tokio::spawn_for_test(async move {
                std::future::pending::<()>().await;
                drop(body);
            });
            return false;
        }
        _ => body.send_trailers(trailers(&[("grpc-status", "0")])).unwrap(),
    }
    true
}

async fn serve_one(socket: TcpStream) {
    let mut connection = h2::server::handshake(socket).await.unwrap();
    while let Some(Ok((request, respond))) = connection.accept().await {
        let ends = request.headers()["x-ends"].to_str().unwrap().to_owned();
        let is_lost = !answer(&ends, respond);
        // Reads the rest of the request, so that nothing is reset for it.
        let mut body = request.into_body();
        tokio::spawn(async move { while body.data().await.is_some() {} });
        if is_lost {
            // What was said is to go out first.
            let linger = tokio::time::sleep(Duration::from_millis(50));
            tokio::select! {
                _ = connection.accept() => {}
                () = linger => {}
            }
            return;
        }
    }
}

/// The status in the trailers of an answer, as somebody reads it who hands them on.
async fn status_of(channel: &tollfree::Channel, ends: &str) -> HeaderValue {
    let request = http::Request::builder()
        .method("POST")
        .uri("/tollfree.probe.v1.Probe/Down")
        .header("content-type", "application/grpc")
        .header("x-ends", ends)
        .body(Body::new(Full::new(Bytes::from_static(&[0; 5]))))
        .unwrap();
    let answer = channel.clone().call(request).await.unwrap();
    let whole = answer.into_body().collect().await.unwrap();
    whole.trailers().unwrap()["grpc-status"].clone()
}

fn asking(ends: &'static str) -> Request<Ask> {
    let mut request = Request::new(Ask::default());
    request.metadata_mut().insert("x-ends", ends.parse().unwrap());
    request
}

#[tokio::test]
async fn an_answer_that_is_not_complete_is_an_error_of_its_cause() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn_for_test(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve_one(socket));
        }
    });
    let channel = connect(&uri).await;
    let mut client = ProbeClient::new(channel.clone());
    for (ends, expected) in [
        ("well", Code::Ok),
        ("without trailers", Code::Unknown),
        ("without a status", Code::Unknown),
        ("with a status that is none", Code::Unknown),
        ("with a status alone that is none", Code::Unknown),
        ("with status 17", Code::Unknown),
        ("with status 00", Code::Unknown),
        ("with CANCEL", Code::Cancelled),
        ("with NO_ERROR", Code::Internal),
        ("with REFUSED_STREAM", Code::Unavailable),
        ("before its head", Code::Cancelled),
        ("in a message, and says that it is well", Code::Internal),
        ("in a message, without trailers", Code::Internal),
        ("lost", Code::Unavailable),
        ("well", Code::Ok),
    ] {
        let streamed = async {
            let mut answers = client.down(asking(ends)).await?.into_inner();
            while answers.message().await?.is_some() {}
            Ok::<_, Status>(())
        };
        assert_eq!(Status::code_of(&streamed.await), expected, "a stream that ends {ends}");
        if ends.starts_with("with a status that") || ends == "without a status" {
            assert_eq!(
                status_of(&channel, ends).await,
                "2",
                "what others are told of an answer that ends {ends}"
            );
        }
        let unary = client.unary(asking(ends)).await.map(drop);
        assert_eq!(Status::code_of(&unary), expected, "an answer that ends {ends}");
    }
}

/// The code of an outcome.
trait CodeOf {
    fn code_of(outcome: &Result<(), Status>) -> Code {
        outcome.as_ref().map_or_else(Status::code, |()| Code::Ok)
    }
}

impl CodeOf for Status {}
