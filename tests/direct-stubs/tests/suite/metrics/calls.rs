//! Calls at each level, over shared memory and HTTP/2: how many, of which method, with which status, of which size.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tollfree::Server;
use tonic::{Code, Request, Status};

use super::place::Place;

/// Fails so many calls with UNAVAILABLE before one succeeds.
static FAILURES_LEFT: AtomicU32 = AtomicU32::new(0);

/// What a handler does that is told so by the first byte of an ask.
async fn heed(first: Option<&u8>) -> Result<(), Status> {
    match first {
        Some(b'n') => Err(Status::not_found("as asked for")),
        Some(b'h') => std::future::pending().await,
        Some(b'u') if FAILURES_LEFT.load(Ordering::SeqCst) > 0 => {
            FAILURES_LEFT.fetch_sub(1, Ordering::SeqCst);
            Err(Status::unavailable("as asked for"))
        }
        _ => Ok(()),
    }
}

/// The service and its calls, for the stubs of one level.
macro_rules! level {
    ($level:ident, $stubs:path, $messages:path) => {
        mod $level {
            use std::pin::Pin;

            use futures_util::StreamExt as _;
            use tokio_stream::Stream;
            use tollfree::Channel;
            use tonic::{Request, Response, Status, Streaming};
            use $stubs as stubs;

            use self::stubs::probe::probe_client::ProbeClient;
            use self::stubs::probe::probe_server::{Probe, ProbeServer};
            use $messages::{Answer, Ask, answer, ask, body, len};

            pub(super) struct Parrot;

            type Answers = Pin<Box<dyn Stream<Item = Result<Answer, Status>> + Send>>;

            #[tonic::async_trait]
            impl Probe for Parrot {
                async fn unary(&self, request: Request<Ask>) -> Result<Response<Answer>, Status> {
                    let ask = request.into_inner();
                    let body = body(&ask);
                    super::heed(body.first()).await?;
                    Ok(Response::new(answer(body)))
                }

                type DownStream = Answers;

                async fn down(&self, request: Request<Ask>) -> Result<Response<Answers>, Status> {
                    let body = body(&request.into_inner());
                    let answers = [Ok(answer(body.clone())), Ok(answer(body))];
                    Ok(Response::new(Box::pin(tokio_stream::iter(answers))))
                }

                async fn up(&self, request: Request<Streaming<Ask>>) -> Result<Response<Answer>, Status> {
                    let mut asks = request.into_inner();
                    let mut all = Vec::new();
                    while let Some(ask) = asks.message().await? {
                        all.extend(body(&ask));
                    }
                    Ok(Response::new(answer(all)))
                }

                type BothStream = Answers;

                async fn both(&self, request: Request<Streaming<Ask>>) -> Result<Response<Answers>, Status> {
                    let asks = request.into_inner();
                    Ok(Response::new(Box::pin(asks.map(|ask| Ok(answer(body(&ask?)))))))
                }
            }

            pub(super) fn service() -> ProbeServer<Parrot> {
                ProbeServer::new(Parrot)
            }

            pub(super) async fn unary(channel: &Channel, request: Request<Vec<u8>>) -> Result<usize, Status> {
                let answer = ProbeClient::new(channel.clone()).unary(request.map(|body| ask(&body))).await?;
                Ok(len(&answer.into_inner()))
            }

            /// Two calls with so many messages each, all at hand together, whose bodies are of these lengths.
            pub(super) async fn many(channel: &Channel, lens: &[usize]) {
                let mut client = ProbeClient::new(channel.clone());
                let asks = || lens.iter().map(|len| ask(&vec![7; *len])).collect::<Vec<_>>();
                let answer = client.up(tokio_stream::iter(asks())).await.unwrap().into_inner();
                assert_eq!(self::len(&answer), lens.iter().sum::<usize>());
                let answers = client.both(tokio_stream::iter(asks())).await.unwrap().into_inner();
                assert_eq!(answers.map(Result::unwrap).count().await, lens.len());
            }

            /// Calls of the other three kinds, one of each.
            pub(super) async fn stream(channel: &Channel) {
                let mut client = ProbeClient::new(channel.clone());
                let answers = client.down(ask(b"down")).await.unwrap().into_inner();
                assert_eq!(answers.map(Result::unwrap).count().await, 2);
                let asks = || tokio_stream::iter([ask(b"one"), ask(b"two")]);
                assert_eq!(len(&client.up(asks()).await.unwrap().into_inner()), 6);
                let answers = client.both(asks()).await.unwrap().into_inner();
                assert_eq!(answers.map(Result::unwrap).count().await, 2);
            }
        }
    };
}

/// prost's messages.
macro_rules! structs {
    ($name:ident, $stubs:path) => {
        mod $name {
            pub(super) use $stubs::{Answer, Ask};

            pub(super) fn ask(body: &[u8]) -> Ask {
                Ask { body: body.to_vec(), ..Ask::default() }
            }

            pub(super) fn answer(body: Vec<u8>) -> Answer {
                Answer { body, ..Answer::default() }
            }

            pub(super) fn body(ask: &Ask) -> Vec<u8> {
                ask.body.clone()
            }

            pub(super) fn len(answer: &Answer) -> usize {
                answer.body.len()
            }
        }
    };
}

/// Objects.
mod objects {
    use tollfree_direct_stubs::objects::views::tollfree::probe::v1 as views;
    use tollfree_processor::Arenas;
    use tollfree_processor::typed::{Builder, Owned};

    pub(super) type Ask = Owned<views::Ask>;
    pub(super) type Answer = Owned<views::Answer>;

    pub(super) fn ask(body: &[u8]) -> Ask {
        let mut builder: Builder<views::Ask> = Builder::new(Arenas::new(1 << 16, 1).take()).unwrap();
        builder.edit().set_body(body).unwrap();
        builder.freeze().unwrap()
    }

    pub(super) fn answer(body: Vec<u8>) -> Answer {
        let mut builder: Builder<views::Answer> = Builder::new(Arenas::new(1 << 16, 1).take()).unwrap();
        builder.edit().set_body(&body).unwrap();
        builder.freeze().unwrap()
    }

    pub(super) fn body(ask: &Ask) -> Vec<u8> {
        ask.view().body().to_vec()
    }

    pub(super) fn len(answer: &Answer) -> usize {
        answer.view().body().len()
    }
}

structs!(tonics, tollfree_stubs::probe);
structs!(ours, tollfree_direct_stubs::probe);
level!(first, tollfree_stubs, super::tonics);
level!(second, tollfree_direct_stubs, super::ours);
level!(third, tollfree_direct_stubs::objects, super::objects);

const METHOD: &str = "grpc_method=\"tollfree.probe.v1.Probe/Unary\"";
const STARTED: &str = "grpc_client_attempt_started_total";
const ATTEMPTS: &str = "grpc_client_attempt_duration_seconds_count";
const CALLS: &str = "grpc_client_call_duration_seconds_count";
const SERVED: &str = "grpc_server_call_duration_seconds_count";

/// All that is checked of one level over one kind of address.
macro_rules! check {
    ($level:ident, $is_shm:expr, $sizes:expr) => {{
        let server = Server::builder().add_service($level::service()).concurrency_limit(2);
        let place = Place::start($is_shm, server);
        let channel = place.channel(|builder| builder).await;
        let (client, server) = (&place.client, &place.server);
        for _ in 0..3 {
            assert_eq!($level::unary(&channel, Request::new(vec![7; 100])).await.unwrap(), 100);
        }
        let status = $level::unary(&channel, Request::new(b"not".to_vec())).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound);
        let target = format!("grpc_target=\"{}\"", place.uri);
        let with = |status| [METHOD, &target, status].map(str::to_owned);
        for (status, count) in [("\"OK\"", 3.0), ("\"NOT_FOUND\"", 1.0)] {
            let words = with(status);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            assert_eq!(
                (client.sum(ATTEMPTS, &words), client.sum(CALLS, &words)),
                (count, count),
                "{words:?}"
            );
        }
        assert_eq!(client.sum(STARTED, &[METHOD, &target]), 4.0);
        // The first call of a method is counted before it is known that somebody serves it.
        server.until(SERVED, &["\"OK\""], 3.0).await;
        server.until(SERVED, &[METHOD, "\"OK\""], 2.0).await;
        server.until(SERVED, &[METHOD, "\"NOT_FOUND\""], 1.0).await;
        server.until("grpc_server_call_started_total", &[METHOD], 3.0).await;
        if let Some((asked, answered)) = $sizes {
            for (end, way, len) in [
                ("client_attempt", "sent", asked),
                ("server_call", "rcvd", asked),
                ("client_attempt", "rcvd", answered),
                ("server_call", "sent", answered),
            ] {
                let name = format!("grpc_{end}_{way}_total_compressed_message_size_bytes_sum");
                let figures = if end == "server_call" { server } else { client };
                assert_eq!(figures.sum(&name, &["\"OK\""]), 3.0 * len, "{name}");
            }
        }
        // Two calls that are held, one beyond the limit, and both are given up.
        let held = [0, 1].map(|_| {
            let channel = channel.clone();
            tokio::spawn(async move { $level::unary(&channel, Request::new(b"hold".to_vec())).await })
        });
        server.until("grpc_server_call_started_total", &[METHOD], 5.0).await;
        let status = $level::unary(&channel, Request::new(vec![7])).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        held.iter().for_each(|held| held.abort());
        client.until(CALLS, &[METHOD, "\"CANCELLED\""], 2.0).await;
        server.until(SERVED, &[METHOD], 6.0).await;
        server.until(SERVED, &[METHOD, "\"RESOURCE_EXHAUSTED\""], 1.0).await;
        assert_eq!(server.sum("tollfree_refusals_total", &["\"call\""]), 1.0);
        $level::stream(&channel).await;
        for kind in ["Down", "Up", "Both"] {
            client.until(CALLS, &[&format!("Probe/{kind}\""), "\"OK\""], 1.0).await;
        }
        server.until(SERVED, &["\"OK\""], 6.0).await;
        // The server may not have seen this one at all.
        let mut late = Request::new(b"hold".to_vec());
        late.set_timeout(Duration::from_millis(50));
        let status = $level::unary(&channel, late).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert_eq!(client.sum(CALLS, &[METHOD, "\"DEADLINE_EXCEEDED\""]), 1.0);
        assert_eq!(client.sum(STARTED, &[]), client.sum(ATTEMPTS, &[]), "{:#?}", client.page());
    }};
}

/// An `Ask` of 100 bytes has two bytes before them, and so has its `Answer`.
const SIZES: Option<(f64, f64)> = Some((102.0, 102.0));

#[tokio::test]
async fn calls_of_level_1_are_counted() {
    check!(first, true, SIZES);
    check!(first, false, SIZES);
}

#[tokio::test]
async fn calls_of_level_2_are_counted() {
    check!(second, true, SIZES);
    check!(second, false, SIZES);
}

#[tokio::test]
async fn calls_of_level_3_are_counted() {
    // Objects are of another length than what they stand for.
    check!(third, true, None::<(f64, f64)>);
    check!(third, false, SIZES);
}

#[tokio::test]
async fn both_ends_count_the_same_bytes_of_objects_in_streams() {
    let place = Place::start(true, Server::builder().add_service(third::service()));
    let channel = place.channel(|builder| builder).await;
    for _ in 0..3 {
        third::stream(&channel).await;
    }
    let counts = channel.payloads().counts();
    // After the first round at least, 5 messages are sent in each, and 5 received.
    assert!(counts.sent_objects >= 10 && counts.received_objects >= 10, "{counts:?}");
    let (client, server) = (&place.client, &place.server);
    client.until(CALLS, &["\"OK\""], 9.0).await;
    server.until(SERVED, &["\"OK\""], 9.0).await;
    for (there, here) in [("rcvd", "sent"), ("sent", "rcvd")] {
        let sum = |end: &str, way: &str| format!("grpc_{end}_{way}_total_compressed_message_size_bytes_sum");
        let len = client.sum(&sum("client_attempt", here), &["\"OK\""]);
        assert_eq!(server.sum(&sum("server_call", there), &["\"OK\""]), len, "{here}");
        assert!(len > 10.0 * 32.0, "an object has a header of 32 bytes: {len}");
    }
}

/// Whatever the number of records in which they travel, each message counts by itself: over HTTP/2 the figures are the same.
#[tokio::test]
async fn messages_of_a_batch_count_one_by_one() {
    let lens: Vec<usize> = (0..500).map(|number| number % 50).collect();
    // A field of bytes that is not empty has two bytes before it, or four where it is longer.
    let each: usize = lens.iter().map(|len| if *len > 0 { len + 2 } else { 0 }).sum();
    let (asked, answered) = ((2 * each) as f64, (each + lens.iter().sum::<usize>() + 3) as f64);
    for is_shm in [true, false] {
        // Objects that travel are of another length than what they stand for.
        for level in 1..=if is_shm { 2 } else { 3 } {
            let server = Server::builder();
            let server = match level {
                1 => server.add_service(first::service()),
                2 => server.add_service(second::service()),
                _ => server.add_service(third::service()),
            };
            let place = Place::start(is_shm, server);
            let channel = place.channel(|builder| builder).await;
            match level {
                1 => first::many(&channel, &lens).await,
                2 => second::many(&channel, &lens).await,
                _ => third::many(&channel, &lens).await,
            }
            let (client, server) = (&place.client, &place.server);
            client.until(CALLS, &["\"OK\""], 2.0).await;
            server.until(SERVED, &["\"OK\""], 2.0).await;
            for (end, way, len) in [
                ("client_attempt", "sent", asked),
                ("server_call", "rcvd", asked),
                ("client_attempt", "rcvd", answered),
                ("server_call", "sent", answered),
            ] {
                let name = format!("grpc_{end}_{way}_total_compressed_message_size_bytes_sum");
                let figures = if end == "server_call" { server } else { client };
                assert_eq!(figures.sum(&name, &["\"OK\""]), len, "{name}, level {level}, {is_shm}");
            }
        }
    }
}

/// An attempt is counted by itself, and the call once.
#[tokio::test]
async fn attempts_are_counted_one_by_one() {
    let retries = r#"{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.001s",
        "maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}"#;
    for is_shm in [true, false] {
        let place = Place::start(is_shm, Server::builder().add_service(second::service()));
        let channel = place.channel(|builder| builder.service_config(retries)).await;
        for level in 1..=2 {
            FAILURES_LEFT.store(2, Ordering::SeqCst);
            let request = Request::new(b"unavailable".to_vec());
            let answer = match level {
                1 => first::unary(&channel, request).await,
                _ => second::unary(&channel, request).await,
            };
            assert_eq!(answer.unwrap(), 11);
            let client = &place.client;
            let level = f64::from(level);
            assert_eq!(client.sum(STARTED, &[METHOD]), 3.0 * level, "{:#?}", client.page());
            assert_eq!(client.sum(ATTEMPTS, &[METHOD, "\"UNAVAILABLE\""]), 2.0 * level);
            assert_eq!(client.sum(ATTEMPTS, &[METHOD, "\"OK\""]), level);
            assert_eq!(client.sum(CALLS, &[]), level);
            assert_eq!(client.sum(CALLS, &[METHOD, "\"OK\""]), level);
        }
    }
}

/// A server that can't be reached ends calls, and no attempt was made.
#[tokio::test]
async fn a_call_that_reaches_nobody_has_no_attempt() {
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", directory.path().join("nobody.sock").display());
    let client = super::place::Figures::new();
    let channel = tollfree::Channel::builder(&*uri).metrics(&client.metrics).connect_lazy().unwrap();
    for level in 1..=2 {
        let request = Request::new(vec![7]);
        let answer = match level {
            1 => first::unary(&channel, request).await,
            _ => second::unary(&channel, request).await,
        };
        assert_eq!(answer.unwrap_err().code(), Code::Unavailable);
    }
    assert_eq!(client.sum(CALLS, &[METHOD, "\"UNAVAILABLE\""]), 2.0);
    assert_eq!(client.sum(STARTED, &[]), 0.0);
}
