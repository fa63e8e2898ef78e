//! Metadata there and back: order, duplicates, binary values, and what every call brings.

use crate::stubs::probe::{Ask, Fault};
use tonic::metadata::{BinaryMetadataValue, MetadataMap};
use tonic::{Code, Request};

use super::lab::{Lab, Way};
use super::probe::lines;

fn fill(metadata: &mut MetadataMap, prefix: &str) -> Vec<String> {
    for (name, value) in [("a", "1"), ("b", ""), ("a", "2"), ("c", "with spaces, commas"), ("a", "3")] {
        let name: tonic::metadata::MetadataKey<_> = format!("{prefix}-{name}").parse().unwrap();
        metadata.append(name, value.parse().unwrap());
    }
    for bytes in [&b"\x00\xff\x80"[..], b"", b"four"] {
        let name =
            tonic::metadata::MetadataKey::from_bytes(format!("{prefix}-bytes-bin").as_bytes()).unwrap();
        metadata.append_bin(name, BinaryMetadataValue::from_bytes(bytes));
    }
    lines(metadata).into_iter().filter(|line| line.starts_with(prefix)).collect()
}

fn only(prefix: &str, all: &[String]) -> Vec<String> {
    all.iter().filter(|line| line.starts_with(prefix)).cloned().collect()
}

async fn requests_and_answers_keep_order_and_duplicates(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let mut request = Request::new(Ask::default());
    let sent = fill(request.metadata_mut(), "x-head");
    assert_eq!(sent.len(), 8);
    let response = client.unary(request).await.unwrap();
    assert_eq!(only("x-head", &lines(response.metadata())), sent, "initial metadata");
    assert_eq!(only("x-head", &response.get_ref().headers), sent, "request metadata");
}

async fn streams_have_initial_and_trailing_metadata(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let fault = Fault { code: 9, message: "after two".into(), ..Fault::default() };
    let mut request = Request::new(Ask { lens: vec![1, 2], fault: Some(fault), ..Ask::default() });
    let head = fill(request.metadata_mut(), "x-head");
    let trail = fill(request.metadata_mut(), "x-trail");
    let response = client.down(request).await.unwrap();
    assert_eq!(only("x-head", &lines(response.metadata())), head);
    let mut stream = response.into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().body.len(), 1);
    assert_eq!(stream.message().await.unwrap().unwrap().body.len(), 2);
    let status = stream.message().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::FailedPrecondition, "after two"));
    assert_eq!(only("x-trail", &lines(status.metadata())), trail);
}

async fn trailers_only_answers_have_metadata_too(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let fault = Fault { code: 5, message: "nothing".into(), ..Fault::default() };
    let mut request = Request::new(Ask { fault: Some(fault), ..Ask::default() });
    let trail = fill(request.metadata_mut(), "x-trail");
    let status = client.unary(request).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "nothing"));
    assert_eq!(only("x-trail", &lines(status.metadata())), trail);
    // What a status holds beside this are headers of the transport.
    let rest: Vec<_> = lines(status.metadata())
        .into_iter()
        .filter(|line| !line.starts_with("x-trail") && !line.starts_with("date:"))
        .filter(|line| !line.starts_with("content-length:"))
        .collect();
    assert_eq!(rest, ["content-type: application/grpc"]);
}

async fn every_call_brings_what_grpc_asks_for(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let mut request = Request::new(Ask::default());
    // Names that belong to gRPC: an application can't set them.
    for name in ["te", "content-type", "grpc-status", "grpc-message"] {
        request.metadata_mut().insert(name, "mine".parse().unwrap());
    }
    let seen = client.unary(request).await.unwrap().into_inner().headers;
    if !super::carrier::AS_HTTP {
        // No header map is made where an application has nothing to say, and gRPC's own names are not sent.
        // A gateway hands on what its own caller is called.
        let is_agent =
            |line: &String| way == Way::BehindGateway && line.starts_with("user-agent: tollfree-rust/");
        assert!(seen.iter().all(is_agent), "{seen:?}");
        return;
    }
    let of = |name: &str| seen.iter().filter(|line| line.starts_with(name)).cloned().collect::<Vec<_>>();
    assert_eq!(of("te:"), ["te: trailers"]);
    assert_eq!(of("content-type:"), ["content-type: application/grpc"]);
    assert_eq!(of("grpc-"), Vec::<String>::new());
    assert_eq!(of("user-agent:").len(), 1, "{seen:?}");
    let agent = if way.is_ours() { "user-agent: tollfree-rust/" } else { "user-agent: tonic/" };
    assert!(of("user-agent:")[0].starts_with(agent), "{seen:?}");
}

/// Tracing goes through as it is: the values are opaque, and some have more than one.
async fn tracing_headers_are_untouched(way: Way) {
    let lab = Lab::start(way).await;
    let trace = [
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("tracestate", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        ("tracestate", "last=1"),
        ("baggage", "userId=am%C3%A9lie,serverNode=DF%2028;isProduction=false"),
        ("b3", "80f198ee56343ba864fe8b2a57d3eff7-e457b5a2e4d86bd1-1-05e3ac9a4f6e3b90"),
        ("x-cloud-trace-context", "105445aa7843bc8bf206b12000100000/1;o=1"),
    ];
    let mut request = Request::new(Ask::default());
    for (name, value) in trace {
        request.metadata_mut().append(name, value.parse().unwrap());
    }
    let bytes: Vec<u8> = (0..=255).collect();
    request.metadata_mut().insert_bin("grpc-trace-bin", BinaryMetadataValue::from_bytes(&bytes));
    let sent = lines(request.metadata());
    let seen = lab.client().unary(request).await.unwrap().into_inner().headers;
    let names: Vec<_> = sent.iter().map(|line| line.split_once(':').unwrap().0).collect();
    let of_trace = |line: &&String| names.contains(&line.split_once(':').unwrap().0);
    assert_eq!(seen.iter().filter(of_trace).cloned().collect::<Vec<_>>(), sent);
    assert_eq!(sent.len(), trace.len() + 1);
}

/// What belongs to gRPC or to a connection is not an application's to set, whichever side it is.
async fn reserved_metadata_do_not_travel(way: Way) {
    let lab = Lab::start(way).await;
    let mut request = Request::new(Ask::default());
    for (name, value) in [
        ("te", "mine"),
        ("content-type", "mine"),
        ("grpc-status", "7"),
        ("grpc-message", "mine"),
        ("grpc-message-type", "mine"),
        ("connection", "close"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "close"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("x-after", "still there"),
    ] {
        request.metadata_mut().insert(name, value.parse().unwrap());
    }
    let answer = lab.client().unary(request).await.unwrap().into_inner();
    let names = ["user-agent", "date", "content-length"];
    let of_call = |line: &&String| !names.contains(&line.split_once(':').unwrap().0);
    let mut seen: Vec<_> = answer.headers.iter().filter(of_call).cloned().collect();
    seen.sort();
    let all = ["content-type: application/grpc", "te: trailers", "x-after: still there"];
    // What HTTP/2 would have brought is not there without it.
    assert_eq!(seen, if super::carrier::AS_HTTP { &all[..] } else { &all[2..] });
}

async fn more_metadata_than_fit_are_refused_and_others_go_on(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    let with = |len: usize, name: &'static str| {
        let fault = name.starts_with("x-trail").then(|| Fault { code: 5, ..Fault::default() });
        let mut request = Request::new(Ask { fault, ..Ask::default() });
        request.metadata_mut().insert(name, "v".repeat(len).parse().unwrap());
        request
    };
    assert!(client.unary(with(4000, "x-head")).await.is_ok());
    let mut codes = Vec::new();
    for len in [20_000, 70_000] {
        let status = client.unary(with(len, "x-not-echoed")).await.unwrap_err();
        if way.is_ours() {
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
            assert!(status.message().contains(&len.to_string()[..1]), "{status}");
            assert!(status.message().contains("metadata"), "{status}");
        }
        codes.push(status.code());
    }
    assert_eq!(codes.len(), 2);
    let mut next = client.unary(Ask::default()).await;
    if !way.is_ours() && next.is_err() {
        // tonic's connection is sometimes lost with the call; the next one is made anew.
        next = client.unary(Ask::default()).await;
    }
    assert!(next.is_ok(), "the session lives: {next:?}");
}

crate::rows!(
    requests_and_answers_keep_order_and_duplicates,
    streams_have_initial_and_trailing_metadata,
    trailers_only_answers_have_metadata_too,
    every_call_brings_what_grpc_asks_for,
    tracing_headers_are_untouched,
    reserved_metadata_do_not_travel,
    more_metadata_than_fit_are_refused_and_others_go_on,
);
