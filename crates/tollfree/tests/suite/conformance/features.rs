//! What stands around calls in tonic: interceptors, compression, limits, layers, ready-made services.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::stubs::probe::Ask;
use crate::stubs::probe::probe_client::ProbeClient;
use crate::stubs::probe::probe_server::ProbeServer;
use tokio_stream::StreamExt;
use tonic::codec::CompressionEncoding::Gzip;
use tonic::service::LayerExt as _;
use tonic::{Code, Request, Status};
use tonic_reflection::pb::v1 as reflection;

use super::lab::{Lab, Way};
use super::probe::{Probe, Witness};

async fn interceptors_on_both_sides(way: Way) {
    let witness = Witness::default();
    let guarded =
        ProbeServer::with_interceptor(Probe::new(witness.clone()), |mut request: Request<()>| match request
            .metadata()
            .get("authorization")
            .map(|value| value == "Bearer good")
        {
            Some(true) => {
                request.metadata_mut().insert("x-head-user", "ada".parse().expect("ascii"));
                Ok(request)
            }
            Some(false) => Err(Status::permission_denied("bad token")),
            None => Err(Status::unauthenticated("no token")),
        });
    let lab = Lab::serve(way, tollfree::Server::builder().add_service(guarded), witness).await;
    let with = |token: &'static str| {
        ProbeClient::with_interceptor(lab.channel.clone(), move |mut request: Request<()>| {
            request.metadata_mut().insert("authorization", token.parse().expect("ascii"));
            Ok(request)
        })
    };
    let answer = with("Bearer good").unary(Ask::default()).await.unwrap();
    assert_eq!(answer.metadata().get("x-head-user").unwrap(), "ada");
    let status = with("Bearer bad").unary(Ask::default()).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "bad token"));
    let status = lab.client().unary(Ask::default()).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unauthenticated, "no token"));
    let mut refusing = ProbeClient::with_interceptor(lab.channel.clone(), |_: Request<()>| {
        Err(Status::aborted("the client's own interceptor"))
    });
    let status = refusing.unary(Ask::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
}

/// An interceptor sees a call once, however many messages that has and whatever the number of records in which they travel.
async fn interceptors_on_both_sides_of_streams(way: Way) {
    const COUNT: usize = 300;
    let witness = Witness::default();
    let (guards, marks) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let counted = guards.clone();
    let guarded =
        ProbeServer::with_interceptor(Probe::new(witness.clone()), move |mut request: Request<()>| {
            counted.fetch_add(1, Ordering::Relaxed);
            match request.metadata().get("authorization").map(|value| value == "Bearer good") {
                Some(true) => {
                    request.metadata_mut().insert("x-head-user", "ada".parse().expect("ascii"));
                    Ok(request)
                }
                Some(false) => Err(Status::permission_denied("bad token")),
                None => Err(Status::unauthenticated("no token")),
            }
        });
    let lab = Lab::serve(way, tollfree::Server::builder().add_service(guarded), witness).await;
    let with = |token: &'static str| {
        let marks = marks.clone();
        ProbeClient::with_interceptor(lab.channel.clone(), move |mut request: Request<()>| {
            marks.fetch_add(1, Ordering::Relaxed);
            request.metadata_mut().insert("authorization", token.parse().expect("ascii"));
            Ok(request)
        })
    };
    let asks = || tokio_stream::iter(vec![Ask { body: vec![7; 10], ..Ask::default() }; COUNT]);
    let many = || Ask { lens: vec![10; COUNT], ..Ask::default() };
    let mut good = with("Bearer good");
    let down = good.down(many()).await.unwrap();
    assert_eq!(down.metadata().get("x-head-user").unwrap(), "ada");
    assert_eq!(down.into_inner().map(Result::unwrap).collect::<Vec<_>>().await.len(), COUNT);
    let up = good.up(asks()).await.unwrap();
    assert_eq!(up.metadata().get("x-head-user").unwrap(), "ada");
    assert_eq!(up.into_inner().seen_count as usize, COUNT);
    let both = good.both(asks()).await.unwrap();
    assert_eq!(both.metadata().get("x-head-user").unwrap(), "ada");
    assert_eq!(both.into_inner().map(Result::unwrap).collect::<Vec<_>>().await.len(), COUNT);
    let seen = || [&guards, &marks].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(seen(), [3, 3]);
    let mut bad = with("Bearer bad");
    for status in [
        bad.down(many()).await.map(drop).unwrap_err(),
        bad.up(asks()).await.map(drop).unwrap_err(),
        bad.both(asks()).await.map(drop).unwrap_err(),
    ] {
        assert_eq!((status.code(), status.message()), (Code::PermissionDenied, "bad token"));
    }
    assert_eq!(seen(), [6, 6]);
    let mut refusing = ProbeClient::with_interceptor(lab.channel.clone(), |_: Request<()>| {
        Err(Status::aborted("the client's own interceptor"))
    });
    for status in [
        refusing.down(many()).await.map(drop).unwrap_err(),
        refusing.up(asks()).await.map(drop).unwrap_err(),
        refusing.both(asks()).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(status.code(), Code::Aborted, "{status}");
    }
    assert_eq!(seen(), [6, 6], "nothing of these calls has come");
    assert_eq!(lab.witness.begun(), 3, "no handler has begun for a call that was refused");
}

async fn gzip_in_both_directions(way: Way) {
    let lab = Lab::with(way, tollfree::Server::builder(), |probe| {
        probe.accept_compressed(Gzip).send_compressed(Gzip)
    })
    .await;
    let mut client = lab.client().send_compressed(Gzip).accept_compressed(Gzip);
    let ask = Ask { body: vec![3; 500_000], ..Ask::default() };
    let response = client.unary(ask.clone()).await.unwrap();
    assert_eq!(response.metadata().get("grpc-encoding").unwrap(), "gzip");
    let answer = response.into_inner();
    assert!(answer.headers.contains(&"grpc-encoding: gzip".to_string()), "{:?}", answer.headers);
    assert_eq!(answer.body, ask.body);
    let asks = vec![ask; 5];
    let answers = client.both(tokio_stream::iter(asks)).await.unwrap().into_inner();
    let got: Vec<_> = answers.collect::<Result<Vec<_>, _>>().await.unwrap();
    assert!(got.len() == 5 && got.iter().all(|answer| answer.body == [3; 500_000]));
}

async fn gzip_that_the_server_does_not_take_is_refused(way: Way) {
    let lab = Lab::start(way).await;
    let mut client = lab.client().send_compressed(Gzip);
    let status = client.unary(Ask { body: vec![3; 1000], ..Ask::default() }).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(lab.client().unary(Ask::default()).await.is_ok());
}

async fn messages_over_the_limits_are_refused(way: Way) {
    let lab = Lab::with(way, tollfree::Server::builder(), |probe| {
        probe.max_decoding_message_size(10_000).max_encoding_message_size(20_000)
    })
    .await;
    let sized = |len: usize| Ask { body: vec![1; len], ..Ask::default() };
    let answered = |len: u32| Ask { lens: vec![len], ..Ask::default() };
    let plain = || lab.client();
    assert!(plain().unary(sized(9_000)).await.is_ok());
    let refused = async |what: &str, mut client: ProbeClient<super::carrier::AnyChannel>, ask: Ask| {
        let status = client.unary(ask).await.expect_err(what);
        assert!(status.message().contains("too large"), "{what}: {status}");
        assert_eq!(status.code(), Code::OutOfRange, "{what}");
    };
    refused("too long for the server to read", plain(), sized(10_001)).await;
    refused("too long for the server to write", plain(), answered(20_001)).await;
    let client = || lab.client().max_decoding_message_size(5_000).max_encoding_message_size(6_000);
    refused("too long for the client to read", client(), answered(5_001)).await;
    // Where its own encoder refuses a request, tonic's transport says no more than "http2 error".
    if way.is_ours() {
        refused("too long for the client to write", client(), sized(6_001)).await;
        let status = client().up(tokio_stream::iter([sized(10), sized(7_000)])).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "{status}");
    }
    let ask = Ask { lens: vec![10, 20_001], pause_ms: 5, ..Ask::default() };
    let mut stream = plain().down(ask).await.unwrap().into_inner();
    assert!(stream.message().await.is_ok());
    let status = stream.message().await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status}");
    assert!(plain().unary(sized(1)).await.is_ok(), "the session lives");
}

async fn layers_go_around_a_channel(way: Way) {
    let lab = Lab::start(way).await;
    let layered = tower::ServiceBuilder::new()
        .concurrency_limit(2)
        // Long enough for the first call on a machine that does other things, too.
        .timeout(Duration::from_secs(1))
        .map_request(|mut request: http::Request<tonic::body::Body>| {
            request.headers_mut().insert("x-head-layer", http::HeaderValue::from_static("seen"));
            request
        })
        .service(lab.channel.clone());
    let mut client = ProbeClient::new(layered);
    let answer = client.unary(Ask::default()).await.unwrap();
    assert_eq!(answer.metadata().get("x-head-layer").unwrap(), "seen");
    assert!(client.unary(Ask { wait_ms: 60_000, ..Ask::default() }).await.is_err());
    super::lab::until("the handler is dropped", || lab.witness.live() == 0).await;
}

async fn layers_go_around_a_service(way: Way) {
    let witness = Witness::default();
    let layers = tower::ServiceBuilder::new()
        .concurrency_limit(1)
        .map_request(|mut request: http::Request<tonic::body::Body>| {
            request.headers_mut().insert("x-head-layer", http::HeaderValue::from_static("of the server"));
            request
        })
        .map_response(|mut response: http::Response<tonic::body::Body>| {
            response.headers_mut().insert("x-layer", http::HeaderValue::from_static("answered"));
            response
        })
        .into_inner();
    let service = layers.named_layer(ProbeServer::new(Probe::new(witness.clone())));
    let lab = Lab::serve(way, tollfree::Server::builder().add_service(service), witness).await;
    let answer = lab.client().unary(Ask::default()).await.unwrap();
    assert_eq!(answer.metadata().get("x-head-layer").unwrap(), "of the server");
    assert_eq!(answer.metadata().get("x-layer").unwrap(), "answered");
    let fault = Some(crate::stubs::probe::Fault { code: 5, ..Default::default() });
    let status = lab.client().unary(Ask { fault, ..Ask::default() }).await.unwrap_err();
    assert_eq!(status.metadata().get("x-layer").unwrap(), "answered", "an error passes the layer, too");
    let mut stream = lab.client().down(Ask { lens: vec![1; 3], ..Ask::default() }).await.unwrap();
    assert_eq!(stream.metadata().get("x-layer").unwrap(), "answered");
    for _ in 0..3 {
        assert!(stream.get_mut().message().await.unwrap().is_some());
    }
    assert!(stream.get_mut().message().await.unwrap().is_none());
}

/// A layer may answer instead of the service, as those that check or shed do.
async fn a_layer_may_answer_itself(way: Way) {
    let witness = Witness::default();
    let guard = tower::util::MapFutureLayer::new(|answer| async move {
        let answered: Result<http::Response<tonic::body::Body>, std::convert::Infallible> = tokio::select! {
            biased;
            answer = answer => answer,
            () = tokio::time::sleep(Duration::from_millis(20)) => {
                Ok(Status::unavailable("shed").into_http())
            }
        };
        answered
    });
    let service = guard.named_layer(ProbeServer::new(Probe::new(witness.clone())));
    let lab = Lab::serve(way, tollfree::Server::builder().add_service(service), witness).await;
    let status = lab.client().unary(Ask { wait_ms: 60_000, ..Ask::default() }).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unavailable, "shed"));
    super::lab::until("the handler is dropped", || lab.witness.live() == 0).await;
    assert!(lab.client().unary(Ask::default()).await.is_ok());
}

async fn reflection_works_unmodified(way: Way) {
    let service = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(crate::stubs::FILE_DESCRIPTOR_SET)
        .build_v1()
        .unwrap();
    let server = tollfree::Server::builder().add_service(service);
    let lab = Lab::with(way, server, |probe| probe).await;
    let mut client = reflection::server_reflection_client::ServerReflectionClient::new(lab.channel.clone());
    use reflection::server_reflection_request::MessageRequest;
    use reflection::server_reflection_response::MessageResponse;
    let asks = [
        MessageRequest::ListServices(String::new()),
        MessageRequest::FileContainingSymbol("tollfree.probe.v1.Probe".into()),
    ]
    .map(|message_request| reflection::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(message_request),
    });
    let answers = client.server_reflection_info(tokio_stream::iter(asks)).await.unwrap().into_inner();
    let got: Vec<_> = answers.collect::<Result<Vec<_>, _>>().await.unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = &got[0].message_response else {
        panic!("{:?}", got[0])
    };
    assert!(list.service.iter().any(|service| service.name == "tollfree.probe.v1.Probe"));
    let Some(MessageResponse::FileDescriptorResponse(files)) = &got[1].message_response else {
        panic!("{:?}", got[1])
    };
    let file: prost_types::FileDescriptorProto =
        prost::Message::decode(&files.file_descriptor_proto[0][..]).unwrap();
    assert_eq!(file.package(), "tollfree.probe.v1");
}

async fn health_works_unmodified(way: Way) {
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
    let (reporter, service) = tonic_health::server::health_reporter();
    let lab = Lab::with(way, tollfree::Server::builder().add_service(service), |probe| probe).await;
    let mut client = HealthClient::new(lab.channel.clone());
    let of = |service: &str| HealthCheckRequest { service: service.into() };
    assert_eq!(client.check(of("")).await.unwrap().into_inner().status, 1);
    assert_eq!(client.check(of("none")).await.unwrap_err().code(), Code::NotFound);
    reporter.set_service_status("db", tonic_health::ServingStatus::NotServing).await;
    let mut watch = client.watch(of("db")).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status, 2);
    reporter.set_service_status("db", tonic_health::ServingStatus::Serving).await;
    assert_eq!(watch.message().await.unwrap().unwrap().status, 1);
    assert!(lab.client().unary(Ask::default()).await.is_ok(), "another service of the same server");
}

crate::rows!(
    interceptors_on_both_sides,
    interceptors_on_both_sides_of_streams,
    gzip_in_both_directions,
    gzip_that_the_server_does_not_take_is_refused,
    messages_over_the_limits_are_refused,
    layers_go_around_a_service,
    a_layer_may_answer_itself,
    reflection_works_unmodified,
    health_works_unmodified;
    // Its timeout is short, and what a layer sees is the channel.
    without_gateway:
    layers_go_around_a_channel,
);
