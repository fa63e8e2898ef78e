//! The clients that block: all kinds of calls, against a server's own thread.

use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio_stream::{Stream, StreamExt};
use tollfree::blocking::{Channel, Streaming as BlockingStreaming};
use tollfree::{Generated as _, Server, Way};
use tollfree_direct_stubs::probe::probe_blocking_client::ProbeBlockingClient;
use tollfree_direct_stubs::probe::probe_client::ProbeClient;
use tollfree_direct_stubs::probe::probe_server::{Probe, ProbeServer};
use tollfree_direct_stubs::probe::{Answer, Ask};
use tonic::{Code, Request, Response, Status, Streaming};

/// Says back what it is told.
struct Parrot;

type Answers = Pin<Box<dyn Stream<Item = Result<Answer, Status>> + Send>>;

fn answer(ask: Ask) -> Answer {
    Answer { body: ask.body, ..Answer::default() }
}

#[tonic::async_trait]
impl Probe for Parrot {
    async fn unary(&self, request: Request<Ask>) -> Result<Response<Answer>, Status> {
        let marked = request.metadata().contains_key("marked");
        let ask = request.into_inner();
        tokio::time::sleep(Duration::from_millis(ask.wait_ms.into())).await;
        if ask.fault.is_some() {
            return Err(Status::data_loss("as asked for"));
        }
        Ok(Response::new(Answer { seen_count: marked.into(), ..answer(ask) }))
    }

    type DownStream = Answers;

    async fn down(&self, request: Request<Ask>) -> Result<Response<Answers>, Status> {
        let ask = request.into_inner();
        let answers =
            ask.lens.into_iter().map(|len| Ok(Answer { body: vec![7; len as usize], ..Answer::default() }));
        Ok(Response::new(Box::pin(tokio_stream::iter(answers.collect::<Vec<_>>()))))
    }

    async fn up(&self, request: Request<Streaming<Ask>>) -> Result<Response<Answer>, Status> {
        let mut asks = request.into_inner();
        let mut seen = Answer::default();
        while let Some(ask) = asks.message().await? {
            seen.seen_count += 1;
            seen.seen_len += ask.body.len() as u64;
        }
        Ok(Response::new(seen))
    }

    type BothStream = Answers;

    async fn both(&self, request: Request<Streaming<Ask>>) -> Result<Response<Answers>, Status> {
        Ok(Response::new(Box::pin(request.into_inner().map(|ask| ask.map(answer)))))
    }
}

fn with_backend_connection(test: impl FnOnce(Channel)) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("parrot.sock");
    let uri = format!("shm://{}", path.display());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (ready, listening) = mpsc::channel();
    let address = uri.clone();
    let backend_connection = std::thread::spawn(move || {
        let signal = async move {
            while !path.exists() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            ready.send(()).unwrap();
            let _ = stopped.await;
        };
        let server = Server::builder().add_service(ProbeServer::new(Parrot));
        server.serve_blocking_with_shutdown(&address, signal).unwrap();
    });
    listening.recv().unwrap();
    test(Channel::connect(uri).unwrap());
    drop(stop);
    backend_connection.join().unwrap();
}

fn ask(body: &[u8]) -> Ask {
    Ask { body: body.to_vec(), ..Ask::default() }
}

#[test]
fn all_kinds_of_calls() {
    with_backend_connection(|channel| {
        let mut client = ProbeBlockingClient::new(channel);
        assert_eq!(client.way(), Way::Direct);
        for len in [0, 1, 300, 100_000] {
            let body = vec![3; len];
            assert_eq!(client.unary(ask(&body)).unwrap().into_inner().body, body);
        }
        let refused = client.unary(Ask { fault: Some(Default::default()), ..Ask::default() }).unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::DataLoss, "as asked for"));

        let lens = [5, 0, 70_000];
        let answers = client.down(Ask { lens: lens.to_vec(), ..Ask::default() }).unwrap().into_inner();
        let found: Vec<_> = answers.map(|answer| answer.unwrap().body.len() as u32).collect();
        assert_eq!(found, lens);

        let seen = client.up((0..10).map(|_| ask(&[1; 40_000]))).unwrap().into_inner();
        assert_eq!((seen.seen_count, seen.seen_len), (10, 400_000));

        let mut answers = client.both([ask(b"one"), ask(b"two")]).unwrap().into_inner();
        assert_eq!(answers.message().unwrap().unwrap().body, b"one");
        assert_eq!(answers.message().unwrap().unwrap().body, b"two");
        assert!(answers.message().unwrap().is_none());
        assert!(answers.trailers().unwrap().is_some());
    });
}

#[test]
fn interceptors_settings_and_deadlines_hold() {
    with_backend_connection(|channel| {
        let mark = |mut request: Request<()>| {
            request.metadata_mut().insert("marked", "yes".parse().unwrap());
            Ok(request)
        };
        let mut marking = ProbeBlockingClient::with_interceptor(channel.clone(), mark);
        assert_eq!(marking.unary(ask(b"")).unwrap().into_inner().seen_count, 1);

        let mut small =
            ProbeBlockingClient::new(channel.clone()).configure(|inner| inner.max_decoding_message_size(10));
        assert_eq!(small.unary(ask(&[0; 100])).unwrap_err().code(), Code::OutOfRange);

        let mut client = ProbeBlockingClient::new(channel);
        let mut slow = Request::new(Ask { wait_ms: 60_000, ..Ask::default() });
        slow.set_timeout(Duration::from_millis(50));
        let began = Instant::now();
        assert_eq!(client.unary(slow).unwrap_err().code(), Code::DeadlineExceeded);
        assert!(began.elapsed() < Duration::from_secs(30));
        assert!(client.unary(ask(b"after it")).is_ok(), "the backend connection lives");
    });
}

/// A request that goes on without an end, and whether anybody still has it.
struct Endless(Arc<()>);

impl Endless {
    /// Some messages first.
    fn messages(&self, first: Vec<Ask>) -> impl Stream<Item = Ask> + Send + use<> {
        let held = self.0.clone();
        let pending = std::future::pending::<Ask>();
        tokio_stream::iter(first).chain(futures_util::stream::once(async move {
            let _held = held;
            pending.await
        }))
    }

    fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// Tasks of the channel's runtime. To look at them does not run them.
fn alive(channel: &Channel) -> usize {
    channel.run(async { Handle::current().metrics().num_alive_tasks() })
}

fn client(channel: &Channel) -> ProbeClient<tollfree::Channel> {
    ProbeClient::new(channel.get_ref().clone())
}

/// How a call ends whose request does not.
const ENDS: [fn(&Channel, &Endless); 6] = [
    // The program has read enough.
    |channel, endless| drop(answers(channel, endless)),
    |channel, endless| {
        let late = channel
            .run(async { tokio::time::timeout(SOON, client(channel).up(endless.messages(vec![]))).await });
        late.unwrap_err();
    },
    |channel, endless| {
        let mut request = Request::new(endless.messages(vec![]));
        request.set_timeout(SOON);
        let late = channel.run(client(channel).up(request)).unwrap_err();
        assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
    },
    |channel, endless| {
        let mut request = Request::new(endless.messages(vec![ask(b"one")]));
        request.set_timeout(SOON);
        let inner = channel.run(client(channel).both(request)).unwrap().into_inner();
        let mut answers = BlockingStreaming::new(channel.clone(), inner);
        assert_eq!(answers.message().unwrap().unwrap().body, b"one");
        let late = answers.message().unwrap_err();
        assert_eq!(late.code(), Code::DeadlineExceeded, "{late}");
    },
    // The server ends it.
    |channel, endless| {
        let request = endless.messages(vec![ask(&vec![1; 5 << 20])]);
        let mut client = client(channel);
        let refused = channel.run(async move { client.both(request).await?.into_inner().message().await });
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    },
    // What is left waits for the server to read on, which waits for the program to.
    |channel, endless| {
        let many = endless.messages((0..200).map(|_| ask(&[1; 50_000])).collect());
        let inner = channel.run(client(channel).both(many)).unwrap().into_inner();
        let mut answers = BlockingStreaming::new(channel.clone(), inner);
        assert_eq!(answers.message().unwrap().unwrap().body.len(), 50_000);
    },
];
const SOON: Duration = Duration::from_millis(30);

fn answers(channel: &Channel, endless: &Endless) -> Streaming<Answer> {
    channel.run(client(channel).both(endless.messages(vec![]))).unwrap().into_inner()
}

#[test]
fn nothing_is_left_of_a_request_whose_call_has_ended_though_nobody_calls_again() {
    with_backend_connection(|channel| {
        ProbeBlockingClient::new(channel.clone()).unary(ask(b"")).unwrap();
        let before = alive(&channel);
        for (number, ends) in ENDS.iter().enumerate() {
            for _ in 0..3 {
                let endless = Endless(Arc::default());
                ends(&channel, &endless);
                assert!(!endless.is_held(), "the request of call {number}");
                assert_eq!(alive(&channel), before, "after call {number}");
            }
        }
        // Many at once, which end while the thread waits for something else.
        let endless = Endless(Arc::default());
        channel.run(async {
            let mut calls = Vec::new();
            for _ in 0..300 {
                calls.push(client(&channel).both(endless.messages(vec![])).await.unwrap());
            }
        });
        assert!(!endless.is_held(), "the requests of many calls");
        assert_eq!(alive(&channel), before, "after many calls");
    });
}

/// A thread that may not wait in another runtime has it turned by one that may.
#[test]
fn a_call_may_end_on_a_thread_of_another_runtime() {
    with_backend_connection(|channel| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        for is_task in [false, true] {
            let endless = Endless(Arc::default());
            let kept = answers(&channel, &endless);
            assert!(endless.is_held());
            let ended = match is_task {
                true => runtime.spawn(async move { drop(kept) }),
                false => runtime.spawn_blocking(move || drop(kept)),
            };
            runtime.block_on(ended).unwrap();
            let began = Instant::now();
            while endless.is_held() {
                assert!(began.elapsed() < Duration::from_secs(30), "the request is still held");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
}
