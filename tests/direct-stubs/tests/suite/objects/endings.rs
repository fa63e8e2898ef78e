//! Objects where a call ends otherwise: limits, bad bytes, deadlines; and settings: interceptors, compression, blocking.

use std::time::Duration;

use tollfree::{Generated as _, Server, Way, blocking};
use tollfree_direct_stubs::objects::probe::probe_blocking_client::ProbeBlockingClient;
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient;
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer;
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::Ask;
use tollfree_direct_stubs::probe as structs;
use tollfree_processor::Arenas;
use tollfree_processor::typed::Builder;
use tonic::codec::CompressionEncoding;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request};

use super::levels::ask;
use super::place::{ARENA_LEN_MAX, InPlace, Place, in_time};

#[tokio::test]
async fn limits_of_messages_and_of_builders_are_statuses_and_the_next_call_works() {
    let limit = 4096;
    let server = ProbeServer::new(InPlace::new())
        .max_decoding_message_size(limit)
        .max_encoding_message_size(2 * ARENA_LEN_MAX);
    let place = Place::new(Server::builder().add_service(server)).await;
    in_time(async {
        for channel in place.channels() {
            let mut client = ProbeClient::new(channel.clone());
            let long = client.unary(ask(&vec![1; limit], &[])).await.unwrap_err();
            assert_eq!(long.code(), Code::OutOfRange, "{long}");
            let full = client.unary(ask(b"", &[ARENA_LEN_MAX as u32])).await.unwrap_err();
            assert_eq!(full.code(), Code::ResourceExhausted, "{full}");
            let mut small = ProbeClient::new(channel.clone()).max_decoding_message_size(50);
            assert_eq!(small.unary(ask(b"", &[60])).await.unwrap_err().code(), Code::OutOfRange);
            // Over HTTP/2 tonic has its own word for it.
            let mut sparing = ProbeClient::new(channel.clone()).max_encoding_message_size(50);
            let mut of_structs =
                structs::probe_client::ProbeClient::new(channel).max_encoding_message_size(50);
            let refused = sparing.unary(ask(&[1; 60], &[])).await.unwrap_err();
            let expected = of_structs.unary(structs::Ask { body: vec![1; 60], ..Default::default() }).await;
            assert_eq!(refused.code(), expected.unwrap_err().code(), "{refused}");
            if sparing.way() == Way::Direct {
                assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
            }
            assert_eq!(client.unary(ask(b"x", &[])).await.unwrap().into_inner().view().body(), b"x");
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_without_time_or_with_a_timeout_that_is_none_begins_no_handler() {
    let place = Place::new(Server::builder().add_service(ProbeServer::new(InPlace::new()))).await;
    in_time(async {
        for channel in place.channels() {
            let mut client = ProbeClient::new(channel);
            for (timeout, code) in [("0n", Code::DeadlineExceeded), ("-1S", Code::InvalidArgument)] {
                let asking = || {
                    let mut request = Request::new(ask(b"x", &[1]));
                    request.metadata_mut().insert("grpc-timeout", timeout.parse().unwrap());
                    request
                };
                assert_eq!(client.unary(asking()).await.unwrap_err().code(), code, "{timeout}");
                assert_eq!(client.down(asking()).await.unwrap_err().code(), code, "{timeout}");
            }
            assert_eq!(client.unary(ask(b"x", &[])).await.unwrap().into_inner().view().body(), b"x");
        }
    })
    .await;
}

/// A message that is no `Ask`: its field 5 is to hold a message, and ends within one.
#[derive(Clone, PartialEq, prost::Message)]
struct NoAsk {
    #[prost(bytes = "vec", tag = "5")]
    fault: Vec<u8>,
}

#[tokio::test]
async fn bytes_that_are_no_message_are_internal_as_they_are_with_structs() {
    let place = Place::new(Server::builder().add_service(ProbeServer::new(InPlace::new()))).await;
    in_time(async {
        for channel in place.channels() {
            let mut client = tonic::client::Grpc::new(channel.clone());
            for fault in [vec![0x0a], vec![0xff; 40], vec![0x12, 1, 0xff], vec![0x0b; 50_000]] {
                client.ready().await.unwrap();
                let path = PathAndQuery::from_static("/tollfree.probe.v1.Probe/Unary");
                let codec = tonic_prost::ProstCodec::<NoAsk, NoAsk>::default();
                let refused = client.unary(Request::new(NoAsk { fault }), path, codec).await.unwrap_err();
                assert_eq!(refused.code(), Code::Internal, "{refused}");
                assert!(refused.message().contains("fault"), "it names the field: {refused}");
            }
            let mut client = ProbeClient::new(channel);
            assert_eq!(client.unary(ask(b"x", &[])).await.unwrap().into_inner().view().body(), b"x");
        }
    })
    .await;
}

#[tokio::test]
async fn interceptors_deadlines_and_compression_are_as_with_structs() {
    let server = ProbeServer::new(InPlace::new())
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    let place = Place::new(Server::builder().add_service(server)).await;
    in_time(async {
        for channel in place.channels() {
            let mark = |mut request: Request<()>| {
                request.metadata_mut().insert("marked", "yes".parse().unwrap());
                Ok(request)
            };
            let mut marking = ProbeClient::with_interceptor(channel.clone(), mark);
            let answer = marking.unary(ask(b"", &[])).await.unwrap().into_inner();
            assert_eq!(answer.view().headers().iter().collect::<Vec<_>>(), ["yes"]);

            let mut builder = Builder::<Ask>::new(Arenas::new(1 << 16, 0).take()).unwrap();
            builder.edit().set_wait_ms(600_000).unwrap();
            let mut slow = Request::new(builder.freeze().unwrap());
            slow.set_timeout(Duration::from_millis(50));
            let late = ProbeClient::new(channel.clone()).unary(slow).await.unwrap_err();
            assert!(matches!(late.code(), Code::DeadlineExceeded | Code::Cancelled), "{late}");

            let mut zipped = ProbeClient::new(channel)
                .send_compressed(CompressionEncoding::Gzip)
                .accept_compressed(CompressionEncoding::Gzip);
            assert!(matches!(zipped.way(), Way::Http(_)));
            let answer = zipped.unary(ask(&[5; 30_000], &[])).await.unwrap();
            assert_eq!(answer.metadata().get("grpc-encoding").unwrap(), "gzip");
            assert_eq!(answer.into_inner().view().body(), [5; 30_000]);
        }
    })
    .await;
}

#[test]
fn clients_that_block_take_objects() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let uri = format!("shm://{}", path.display());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let address = uri.clone();
    let backend_connection = std::thread::spawn(move || {
        let server = Server::builder().add_service(ProbeServer::new(InPlace::new()));
        server.serve_blocking_with_shutdown(&address, async move { drop(stopped.await) }).unwrap();
    });
    let channel = loop {
        match blocking::Channel::connect(&*uri) {
            Ok(channel) => break channel,
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let payloads = channel.payloads();
    let mut client = ProbeBlockingClient::new(channel);
    assert_eq!(client.way(), Way::Direct);
    for len in [0, 300, 100_000] {
        let answer = client.unary(ask(&vec![3; len], &[])).unwrap().into_inner();
        assert_eq!(answer.view().body(), vec![3; len]);
    }
    // Nothing was known before the first.
    assert_eq!((payloads.counts().sent_objects, payloads.counts().received_objects), (2, 2));
    let down = client.down(ask(b"", &[5, 0, 70_000])).unwrap().into_inner();
    let found: Vec<usize> = down.map(|answer| answer.unwrap().view().body().len()).collect();
    assert_eq!(found, [5, 0, 70_000]);
    let seen = client.up((0..10).map(|_| ask(&[1; 40_000], &[]))).unwrap().into_inner();
    assert_eq!(seen.view().seen_len(), 400_000);
    let both = client.both([ask(b"one", &[]), ask(b"two", &[])]).unwrap().into_inner();
    let found: Vec<Vec<u8>> = both.map(|answer| answer.unwrap().view().body().to_vec()).collect();
    assert_eq!(found, [b"one", b"two"]);
    drop(client);
    drop(stop);
    backend_connection.join().unwrap();
}
