//! Compressed messages: a gateway inflates and deflates them for handlers that take objects, and clients notice nothing.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http::HeaderMap;
use http_body_util::{BodyExt, Full};
use prost::Message as _;
use tollfree::Server;
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer;
use tollfree_direct_stubs::probe::probe_server::ProbeServer as Level2Server;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tollfree_stubs::probe::probe_server::ProbeServer as Level1Server;
use tollfree_stubs::probe::{Answer, Ask};
use tonic::body::Body;
use tonic::codec::CompressionEncoding::{self, Deflate, Gzip};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tower::{Service as _, ServiceExt as _};

use super::lab::{Lab, PATIENCE};
use super::levels::Levels;
use super::nested::{self, Backends};
use super::objects::{objects, until_objects};
use super::probe::Probe;
use super::taker::Taker;

pub(crate) const MEMORY: &str = "tollfree_gateway_memory_bytes{group=\"default\"}";

/// The group's calls hold nothing. The tables of its methods' types stay.
pub(crate) fn only_tables(bytes: f64) -> bool {
    bytes < 20_000.0
}

/// A gateway, and a process whose handlers take objects, and messages in these encodings.
pub(crate) async fn attach(more: &str, encodings: &[CompressionEncoding]) -> (Lab, Backends) {
    let lab = Lab::start(more).await;
    let backends = nested::attach(&lab, "default", Server::builder().add_service(taker(encodings))).await;
    (lab, backends)
}

fn taker(encodings: &[CompressionEncoding]) -> ProbeServer<Taker> {
    let service = ProbeServer::new(Taker).max_decoding_message_size(64 << 20);
    encodings
        .iter()
        .fold(service, |service, encoding| service.accept_compressed(*encoding).send_compressed(*encoding))
}

pub(crate) fn ask(len: usize) -> Ask {
    Ask { body: (0..len).map(|idx| (idx / 7 % 251) as u8).collect(), ..Ask::default() }
}

pub(crate) fn compressed(bytes: &[u8], encoding: CompressionEncoding) -> Vec<u8> {
    if encoding == Gzip {
        let mut to = GzEncoder::new(Vec::new(), Compression::default());
        to.write_all(bytes).unwrap();
        return to.finish().unwrap();
    }
    let mut to = ZlibEncoder::new(Vec::new(), Compression::default());
    to.write_all(bytes).unwrap();
    to.finish().unwrap()
}

fn inflated(bytes: &[u8], encoding: &str) -> Vec<u8> {
    let (mut gzip, mut zlib) = (flate2::read::GzDecoder::new(bytes), flate2::read::ZlibDecoder::new(bytes));
    let from: &mut dyn std::io::Read = if encoding == "gzip" { &mut gzip } else { &mut zlib };
    let mut to = Vec::new();
    from.read_to_end(&mut to).unwrap();
    to
}

pub(crate) fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    [&[flag][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

/// An answer as it is on the wire.
pub(crate) struct Came {
    pub(crate) headers: HeaderMap,
    /// Each with its flag.
    messages: Vec<(u8, Vec<u8>)>,
    pub(crate) status: Status,
}

impl Came {
    /// The bodies of its messages.
    fn bodies(&self) -> Vec<Vec<u8>> {
        let encoding = self.headers.get("grpc-encoding").map(|name| name.to_str().unwrap());
        let plain = |(flag, bytes): &(u8, Vec<u8>)| match flag {
            0 => bytes.clone(),
            _ => inflated(bytes, encoding.expect("it says how")),
        };
        self.messages.iter().map(|message| Answer::decode(&plain(message)[..]).unwrap().body).collect()
    }
}

/// Calls a method with these headers and bytes.
pub(crate) async fn raw(lab: &Lab, method: &str, headers: &[(&'static str, &str)], bytes: Vec<u8>) -> Came {
    raw_at(lab.channel().await, method, headers, bytes).await
}

async fn raw_at(
    mut channel: Channel,
    method: &str,
    headers: &[(&'static str, &str)],
    bytes: Vec<u8>,
) -> Came {
    let mut request = http::Request::post(format!("http://localhost/tollfree.probe.v1.Probe/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::new(Full::new(bytes.into()))).unwrap();
    let answer = channel.ready().await.unwrap().call(request).await.unwrap();
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.unwrap();
    let status = body.trailers().and_then(Status::from_header_map);
    let status = status.or_else(|| Status::from_header_map(&parts.headers)).expect("it ends with a status");
    let (bytes, mut messages) = (body.to_bytes(), Vec::new());
    let mut rest = &bytes[..];
    while let [flag, l0, l1, l2, l3, behind @ ..] = rest {
        let (message, behind) = behind.split_at(u32::from_be_bytes([*l0, *l1, *l2, *l3]) as usize);
        messages.push((*flag, message.to_vec()));
        rest = behind;
    }
    Came { headers: parts.headers, messages, status }
}

/// Calls a method until all messages of a call come as objects.
pub(crate) async fn until_taken(lab: &Lab, backends: &Backends, method: &str, count: u64) {
    let began = tokio::time::Instant::now();
    loop {
        let before = backends.payloads.counts().received_objects;
        let asks = (0..count).flat_map(|_| framed(0, &ask(10).encode_to_vec())).collect();
        assert_eq!(raw(lab, method, &[], asks).await.status.code(), Code::Ok);
        if backends.payloads.counts().received_objects == before + count {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{method}: no request comes as an object");
    }
}

#[tokio::test]
async fn compressed_requests_come_as_objects_and_are_answered_compressed() {
    let (lab, backends) = attach("", &[Gzip, Deflate]).await;
    until_objects(&mut lab.client().await, &backends.payloads).await;
    for (encoding, name) in [(Gzip, "gzip"), (Deflate, "deflate")] {
        let mut client = lab.client().await.send_compressed(encoding).accept_compressed(encoding);
        for len in [1, 1000, 10_000, 3_000_000] {
            let before = backends.payloads.counts();
            let answer = client.unary(ask(len)).await.unwrap();
            assert_eq!(answer.metadata().get("grpc-encoding").unwrap(), name);
            assert!(answer.get_ref().body == ask(len).body, "{name}: {len} bytes");
            let after = backends.payloads.counts();
            let more =
                (after.received_objects - before.received_objects, after.sent_objects - before.sent_objects);
            assert_eq!(more, (1, 1), "{name}: {len} bytes");
        }
        let status = client.unary(Ask::default()).await.expect_err("it has no body");
        assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "without a body"));
    }
    assert_eq!(lab.figure(&objects("default", "request", "compressed")).await, 0.0);
    lab.until_figure(MEMORY, only_tables).await;
}

#[tokio::test]
async fn what_is_accepted_alone_or_sent_alone_is_heeded_so() {
    let (lab, backends) = attach("", &[Gzip, Deflate]).await;
    until_objects(&mut lab.client().await, &backends.payloads).await;
    let before = backends.payloads.counts().received_objects;
    let plain = framed(0, &ask(5000).encode_to_vec());
    let packed = framed(1, &compressed(&ask(5000).encode_to_vec(), Gzip));
    let cases = [
        (("grpc-accept-encoding", "identity,deflate,gzip"), &plain, Some("deflate")),
        (("grpc-accept-encoding", "zstd, gzip"), &plain, Some("gzip")),
        (("grpc-accept-encoding", "zstd"), &plain, None),
        (("grpc-encoding", "gzip"), &packed, None),
        (("grpc-encoding", "identity"), &plain, None),
    ];
    for (headers, bytes, expected) in cases {
        let came = raw(&lab, "Unary", &[headers], bytes.clone()).await;
        assert_eq!(came.status.code(), Code::Ok, "{headers:?}: {}", came.status);
        let said = came.headers.get("grpc-encoding").map(|name| name.to_str().unwrap());
        assert_eq!((said, came.messages[0].0), (expected, u8::from(expected.is_some())), "{headers:?}");
        assert!(came.bodies() == [ask(5000).body], "{headers:?}");
    }
    assert_eq!(backends.payloads.counts().received_objects, before + 5);
}

#[tokio::test]
async fn calls_of_all_kinds_carry_messages_of_which_some_are_compressed() {
    let (lab, backends) = attach("", &[Gzip, Deflate]).await;
    for (method, count) in [("Unary", 1), ("Down", 1), ("Up", 9), ("Both", 9)] {
        until_taken(&lab, &backends, method, count).await;
        for (encoding, name) in [(Gzip, "gzip"), (Deflate, "deflate")] {
            let before = backends.payloads.counts().received_objects;
            let asks: Vec<Ask> =
                (1..=count).map(|nth| Ask { burn_us: 5, ..ask(nth as usize * 3000) }).collect();
            let body = asks.iter().enumerate().flat_map(|(idx, ask)| match idx % 2 {
                0 => framed(1, &compressed(&ask.encode_to_vec(), encoding)),
                _ => framed(0, &ask.encode_to_vec()),
            });
            let headers = [("grpc-encoding", name), ("grpc-accept-encoding", name)];
            let came = raw(&lab, method, &headers, body.collect()).await;
            assert_eq!(came.status.code(), Code::Ok, "{method}: {}", came.status);
            let bodies: Vec<_> = asks.into_iter().map(|ask| ask.body).collect();
            let expected = match method {
                "Down" => vec![bodies[0].clone(); 5],
                "Up" => vec![bodies.concat()],
                _ => bodies,
            };
            assert!(came.bodies() == expected, "{method}: {name}");
            assert!(came.messages.iter().all(|(flag, _)| *flag == 1), "{method}: {name}");
            assert_eq!(backends.payloads.counts().received_objects - before, count, "{method}: {name}");
        }
    }
    lab.until_figure(MEMORY, only_tables).await;
}

#[tokio::test]
async fn a_handler_that_disables_compression_is_heeded() {
    let (lab, backends) = attach("", &[Gzip]).await;
    for method in ["Unary", "Down"] {
        until_taken(&lab, &backends, method, 1).await;
        for early in [false, true] {
            let bytes = framed(0, &Ask { early, burn_us: 3, ..ask(5000) }.encode_to_vec());
            let came = raw(&lab, method, &[("grpc-accept-encoding", "gzip")], bytes).await;
            assert_eq!(came.headers.contains_key("grpc-encoding"), !early, "{method}");
            assert!(came.messages.iter().all(|(flag, _)| *flag == u8::from(!early)), "{method}");
            assert!(came.bodies().iter().all(|body| *body == ask(5000).body), "{method}");
            assert!(!came.headers.contains_key("tollfree-plain"), "{method}: it is no client's business");
        }
    }
}

/// What a server says that does not take an encoding is tonic's to say.
#[tokio::test]
async fn an_encoding_that_the_server_does_not_take_is_refused_as_tonic_does() {
    let (lab, backends) = attach("", &[Gzip]).await;
    until_objects(&mut lab.client().await, &backends.payloads).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    let stock = tonic::transport::Server::builder()
        .add_service(Level1Server::new(Probe::default()).accept_compressed(Gzip).send_compressed(Gzip));
    tokio::spawn_for_test(stock.serve_with_incoming(incoming));
    let endpoint = tonic::transport::Endpoint::try_from(format!("http://{address}")).unwrap();
    let stock = endpoint.connect().await.unwrap();
    let before = backends.payloads.counts().received_objects;
    let packed = framed(1, &compressed(&ask(5000).encode_to_vec(), Deflate));
    for name in ["deflate", "zstd", "nonsense"] {
        let headers = [("grpc-encoding", name)];
        let ours = raw(&lab, "Unary", &headers, packed.clone()).await;
        let theirs = raw_at(stock.clone(), "Unary", &headers, packed.clone()).await;
        assert_eq!(ours.status.code(), Code::Unimplemented, "{name}");
        assert_eq!(
            (ours.status.code(), ours.status.message()),
            (theirs.status.code(), theirs.status.message()),
            "{name}"
        );
        let accepts = |came: &Came| came.headers.get("grpc-accept-encoding").cloned();
        assert!(accepts(&ours).is_some(), "{name}");
        assert_eq!(accepts(&ours), accepts(&theirs), "{name}");
    }
    assert_eq!(backends.payloads.counts().received_objects, before);
    // They went as they were.
    assert_eq!(lab.figure(&objects("default", "request", "compressed")).await, 3.0);
}

/// Counts the calls that come compressed to the process, as far as their headers say so.
fn counting(count: Arc<AtomicUsize>) -> impl Fn(Request<()>) -> Result<Request<()>, Status> + Clone {
    move |request| {
        if request.metadata().get("grpc-encoding").is_some_and(|name| name == "gzip") {
            count.fetch_add(1, Ordering::SeqCst);
        }
        Ok(request)
    }
}

#[tokio::test]
async fn handlers_of_levels_1_and_2_get_what_came() {
    let count = Arc::new(AtomicUsize::new(0));
    let level1 = Level1Server::new(Probe::default()).accept_compressed(Gzip).send_compressed(Gzip);
    let level2 = Level2Server::new(Levels).accept_compressed(Gzip).send_compressed(Gzip);
    let servers = [
        Server::builder().add_service(InterceptedService::new(level1, counting(count.clone()))),
        Server::builder().add_service(InterceptedService::new(level2, counting(count.clone()))),
    ];
    for (server, level) in servers.into_iter().zip(1..) {
        let lab = Lab::start("").await;
        let backends = nested::attach(&lab, "default", server).await;
        let mut client: ProbeClient<Channel> =
            lab.client().await.send_compressed(Gzip).accept_compressed(Gzip);
        for _ in 0..5 {
            let answer = client.unary(ask(10_000)).await.unwrap();
            assert_eq!(answer.metadata().get("grpc-encoding").unwrap(), "gzip", "level {level}");
            assert!(answer.get_ref().body == ask(10_000).body, "level {level}");
        }
        assert_eq!(count.swap(0, Ordering::SeqCst), 5, "level {level}");
        assert_eq!(backends.payloads.counts().received_objects, 0, "level {level}");
    }
}
