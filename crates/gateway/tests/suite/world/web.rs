//! Browsers: gRPC-Web over HTTP/1.1 and HTTP/2, and which pages may call.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tollfree_stubs::probe::{Answer, Ask};

use super::lab::{Lab, PATIENCE};

const PAGE: &str = "https://app.acme.example";
const UNARY: &str = "/tollfree.probe.v1.Probe/Unary";
const DOWN: &str = "/tollfree.probe.v1.Probe/Down";

async fn start(more: &str) -> Lab {
    Lab::start(&format!("listeners.world.web.origins = [\"{PAGE}\"]\n{more}")).await
}

/// A message in a frame of gRPC's.
fn framed(ask: &Ask) -> Bytes {
    let mut bytes = BytesMut::from(&[0; 5][..]);
    ask.encode(&mut bytes).unwrap();
    let len = (bytes.len() - 5) as u32;
    bytes[1..5].copy_from_slice(&len.to_be_bytes());
    bytes.freeze()
}

fn request(path: &str, kind: &str, body: Bytes) -> Request<Full<Bytes>> {
    Request::post(format!("http://localhost{path}"))
        .header("content-type", kind)
        .header("origin", PAGE)
        .header("x-grpc-web", "1")
        .header("x-user-agent", "grpc-web-javascript/0.1")
        .body(Full::new(body))
        .unwrap()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Version {
    Http1,
    Http2,
}

/// Makes one request in a connection of its own; its answer, and the body.
async fn ask(lab: &Lab, version: Version, request: Request<Full<Bytes>>) -> (Response<()>, Bytes) {
    let socket = TokioIo::new(TcpStream::connect(lab.socket_address()).await.unwrap());
    let response = match version {
        Version::Http1 => {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(socket).await.unwrap();
            tokio::spawn(connection);
            let (mut parts, body) = request.into_parts();
            parts.headers.insert("host", "gateway".parse().unwrap());
            parts.uri = parts.uri.path().parse().unwrap();
            sender.send_request(Request::from_parts(parts, body)).await.unwrap()
        }
        Version::Http2 => {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), socket).await.unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        }
    };
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap();
    assert!(body.trailers().is_none(), "a page can't read trailers");
    (Response::from_parts(parts, ()), body.to_bytes())
}

/// The messages of a body, and the trailers behind them.
fn parts(mut body: &[u8]) -> (Vec<Answer>, HeaderMap) {
    let (mut messages, mut trailers) = (Vec::new(), HeaderMap::new());
    while !body.is_empty() {
        let (flag, len) = (body.get_u8(), body.get_u32() as usize);
        let (frame, rest) = body.split_at(len);
        body = rest;
        assert!(trailers.is_empty(), "trailers come last");
        match flag {
            0 => messages.push(Answer::decode(frame).unwrap()),
            0x80 => {
                for line in std::str::from_utf8(frame).unwrap().split_terminator("\r\n") {
                    let (name, value) = line.split_once(": ").unwrap();
                    trailers.append(http::HeaderName::try_from(name).unwrap(), value.parse().unwrap());
                }
            }
            flag => panic!("flag {flag}"),
        }
    }
    (messages, trailers)
}

#[tokio::test]
async fn pages_call_by_either_version_of_http_in_either_form() {
    let lab = start("").await;
    let _attached = lab.attach("default").await;
    for version in [Version::Http1, Version::Http2] {
        for len in [0, 7, 100_000] {
            let body = framed(&Ask { body: vec![7; len], ..Ask::default() });
            let (response, answer) =
                ask(&lab, version, request(UNARY, "application/grpc-web+proto", body.clone())).await;
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(response.headers()["content-type"], "application/grpc-web+proto");
            let (messages, trailers) = parts(&answer);
            assert_eq!((messages.len(), messages[0].body.len()), (1, len), "{version:?}");
            assert_eq!(trailers["grpc-status"], "0");

            let text = BASE64_STANDARD.encode(&body).into();
            let (response, answer) =
                ask(&lab, version, request(UNARY, "application/grpc-web-text", text)).await;
            assert_eq!(response.headers()["content-type"], "application/grpc-web-text");
            // Parts of their own, each with its padding.
            let mut decoded = Vec::new();
            for part in answer.split_inclusive(|byte| *byte == b'=').collect::<Vec<_>>() {
                match part {
                    b"=" => {}
                    part => decoded.extend(decode_part(part)),
                }
            }
            let (messages, trailers) = parts(&decoded);
            assert_eq!((messages.len(), messages[0].body.len()), (1, len), "{version:?}");
            assert_eq!(trailers["grpc-status"], "0");
        }
    }
}

/// Base64 whose padding may have been cut off.
fn decode_part(part: &[u8]) -> Vec<u8> {
    let bare: Vec<u8> = part.iter().copied().filter(|byte| *byte != b'=').collect();
    base64::prelude::BASE64_STANDARD_NO_PAD.decode(bare).unwrap()
}

#[tokio::test]
async fn an_answer_streams_to_a_page() {
    let lab = start("").await;
    let _attached = lab.attach("default").await;
    let body = framed(&Ask { lens: vec![1, 50_000, 0], ..Ask::default() });
    for version in [Version::Http1, Version::Http2] {
        let (_, answer) = ask(&lab, version, request(DOWN, "application/grpc-web", body.clone())).await;
        let (messages, trailers) = parts(&answer);
        let lens: Vec<usize> = messages.iter().map(|message| message.body.len()).collect();
        assert_eq!((lens, trailers["grpc-status"].as_bytes()), (vec![1, 50_000, 0], &b"0"[..]));
    }
}

#[tokio::test]
async fn a_page_reads_the_status_of_a_call_that_fails() {
    let lab = start("").await;
    let _attached = lab.attach("default").await;
    for version in [Version::Http1, Version::Http2] {
        let nowhere = request("/acme.v1.Nobody/Call", "application/grpc-web", framed(&Ask::default()));
        let (response, body) = ask(&lab, version, nowhere).await;
        assert_eq!(response.headers()["grpc-status"], "12", "{response:?}");
        assert!(body.is_empty());
        let shown = response.headers()["access-control-expose-headers"].to_str().unwrap();
        for name in ["grpc-status", "grpc-message"] {
            assert!(shown.split(", ").any(|shown| shown == name), "{shown}");
        }
    }
}

#[tokio::test]
async fn what_is_said_to_be_base64_and_is_not_ends_the_call_alone() {
    let lab = start("").await;
    let attached = lab.attach("default").await;
    for version in [Version::Http1, Version::Http2] {
        for wrong in [&b"AAAA*AAA"[..], b"AAAAAAA", b"AA==AAAAA"] {
            let wrong = request(UNARY, "application/grpc-web-text", Bytes::copy_from_slice(wrong));
            let (response, _) = ask(&lab, version, wrong).await;
            assert_ne!(response.headers()["grpc-status"], "0");
        }
        let body = framed(&Ask { body: vec![7; 10], ..Ask::default() });
        let (_, answer) = ask(&lab, version, request(UNARY, "application/grpc-web", body)).await;
        assert_eq!(parts(&answer).1["grpc-status"], "0", "{version:?}");
    }
    drop(attached);
}

#[tokio::test]
async fn a_browser_is_told_which_pages_may_call() {
    let lab = start("listeners.world.web.credentials = true\nlisteners.world.web.max_age_ms = 60000\n").await;
    let question = |origin: &str| {
        Request::builder()
            .method(Method::OPTIONS)
            .uri(format!("http://localhost{UNARY}"))
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "content-type,x-grpc-web,x-token")
            .body(Full::default())
            .unwrap()
    };
    for version in [Version::Http1, Version::Http2] {
        let (told, _) = ask(&lab, version, question(PAGE)).await;
        assert_eq!(told.status(), StatusCode::NO_CONTENT);
        let header = |name: &str| told.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("access-control-allow-origin"), PAGE);
        assert_eq!(header("access-control-allow-methods"), "POST");
        assert_eq!(header("access-control-allow-headers"), "content-type,x-grpc-web,x-token");
        assert_eq!(header("access-control-allow-credentials"), "true");
        assert_eq!(header("access-control-max-age"), "60");
        assert!(header("vary").contains("origin"));
        let (told, _) = ask(&lab, version, question("https://evil.example")).await;
        assert_eq!(told.status(), StatusCode::FORBIDDEN);
        assert!(!told.headers().contains_key("access-control-allow-origin"));
    }
}

#[tokio::test]
async fn a_page_of_another_origin_reaches_no_backend() {
    let lab = start("").await;
    let attached = lab.attach("default").await;
    for version in [Version::Http1, Version::Http2] {
        let mut forged = request(UNARY, "application/grpc-web", framed(&Ask::default()));
        forged.headers_mut().insert("origin", "https://evil.example".parse().unwrap());
        let (response, _) = ask(&lab, version, forged).await;
        assert_eq!(response.headers()["grpc-status"], "7");
        assert!(!response.headers().contains_key("access-control-allow-origin"));
    }
    assert_eq!(lab.refused("origin").await, 2.0);
    // As for any call that is refused: it is counted by its status.
    let counted =
        "grpc_server_call_duration_seconds_count{grpc_method=\"other\",grpc_status=\"PERMISSION_DENIED\"}";
    assert_eq!(lab.figure(counted).await, 2.0);
    assert_eq!(attached.probe.begun.load(std::sync::atomic::Ordering::SeqCst), 0);
    // A program that is no browser says none.
    let mut program = request(UNARY, "application/grpc-web", framed(&Ask::default()));
    program.headers_mut().remove("origin");
    let (_, answer) = ask(&lab, Version::Http2, program).await;
    assert_eq!(parts(&answer).1["grpc-status"], "0");
}

#[tokio::test]
async fn grpc_itself_goes_on_beside_browsers_and_needs_http_2() {
    let lab = start("").await;
    let _attached = lab.attach("default").await;
    let answer = lab.client().await.unary(Ask { body: vec![1; 9], ..Ask::default() }).await.unwrap();
    assert_eq!(answer.into_inner().body.len(), 9);
    let plain = request(UNARY, "application/grpc", framed(&Ask::default()));
    let (response, _) = ask(&lab, Version::Http1, plain).await;
    assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(lab.refused("not_grpc").await, 1.0);
}

#[tokio::test]
async fn where_no_page_may_call_there_is_no_http_1() {
    let lab = Lab::start("").await;
    let _attached = lab.attach("default").await;
    let mut socket = TcpStream::connect(lab.socket_address()).await.unwrap();
    socket.write_all(format!("POST {UNARY} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer)).await.unwrap();
    assert!(read.is_err() || !answer.starts_with(b"HTTP/1.1 200"));
    let web = request(UNARY, "application/grpc-web", framed(&Ask::default()));
    let (response, _) = ask(&lab, Version::Http2, web).await;
    assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

/// A page that goes in the middle of a request, or while it is answered, leaves nothing behind: the lab counts.
#[tokio::test]
async fn a_browser_that_goes_leaves_nothing() {
    let lab = start("").await;
    let attached = lab.attach("default").await;
    let body = framed(&Ask { lens: vec![60_000; 500], ..Ask::default() });
    for sent in [40, 200, body.len() + 400] {
        let mut socket = TcpStream::connect(lab.socket_address()).await.unwrap();
        let head = format!(
            "POST {DOWN} HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc-web\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let whole = [head.as_bytes(), &body[..]].concat();
        socket.write_all(&whole[..sent.min(whole.len())]).await.unwrap();
        let _ = tokio::time::timeout(std::time::Duration::from_millis(50), socket.read(&mut [0; 1000])).await;
        drop(socket);
    }
    lab.until_figure("tollfree_gateway_connections", |count| count == 0.0).await;
    drop(attached);
}

/// The same limit on answers that nobody reads holds for HTTP/1.1, though its answers have no task of their own.
#[tokio::test]
async fn a_browser_that_does_not_read_is_cut_off() {
    let lab = start("limits.unread_ms = 100\n").await;
    let _attached = lab.attach("default").await;
    let body = framed(&Ask { lens: vec![1 << 20; 64], ..Ask::default() });
    let mut socket = TcpStream::connect(lab.socket_address()).await.unwrap();
    let head = format!(
        "POST {DOWN} HTTP/1.1\r\nhost: x\r\ncontent-type: application/grpc-web\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(&[head.as_bytes(), &body[..]].concat()).await.unwrap();
    lab.until_figure("tollfree_gateway_refusals_total{reason=\"unread\"}", |count| count >= 1.0).await;
    lab.until_figure("tollfree_gateway_connections", |count| count == 0.0).await;
    drop(socket);
}

#[tokio::test]
async fn a_policy_holds_for_pages_too() {
    let policy = "listeners.world.policy = \"p\"\npolicies.p.rules = [{ action = \"allow\", methods = [\"tollfree.probe.v1.Probe/Unary\"] }]\n";
    let lab = start(policy).await;
    let _attached = lab.attach("default").await;
    for version in [Version::Http1, Version::Http2] {
        let body = framed(&Ask::default());
        let (_, answer) = ask(&lab, version, request(UNARY, "application/grpc-web", body.clone())).await;
        assert_eq!(parts(&answer).1["grpc-status"], "0");
        let (response, _) = ask(&lab, version, request(DOWN, "application/grpc-web", body)).await;
        assert_eq!(response.headers()["grpc-status"], "16", "{version:?}");
    }
}
