//! Streams that nothing holds up: the peer reads faster than messages are made, and what shares a thread with them has its turn all the
//! same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tollfree::{Channel, Server};
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient;
use tollfree_direct_stubs::objects::probe::probe_server::{Probe, ProbeServer};
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::{Answer, Ask};
use tollfree_processor::typed::Owned;
use tonic::{Request, Response, Status, Streaming};

use super::hostile::builder;
use super::levels::ask;
use super::place::{Answers, InPlace};

/// Nobody has a turn for so long, if ever.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a message takes to make.
const WORK: Duration = Duration::from_micros(20);

/// Set by a timer of the thread that sends.
type Flag = Arc<AtomicBool>;

/// Messages without a pause, until the flag is set or patience ends.
fn without_pause<M>(flag: Flag, make: impl Fn() -> M) -> impl Iterator<Item = M> {
    let began = Instant::now();
    std::iter::from_fn(move || {
        let made_at = Instant::now() + WORK;
        while Instant::now() < made_at {
            std::hint::spin_loop();
        }
        (!flag.load(Ordering::SeqCst) && began.elapsed() < PATIENCE).then(&make)
    })
}

async fn set_soon(flag: Flag) {
    tokio::time::sleep(Duration::from_millis(50)).await;
    flag.store(true, Ordering::SeqCst);
}

/// Answers without a pause, and has a timer beside that.
struct Busy(Flag);

#[tonic::async_trait]
impl Probe for Busy {
    async fn unary(&self, request: Request<Owned<Ask>>) -> Result<Response<Owned<Answer>>, Status> {
        InPlace::new().unary(request).await
    }

    type DownStream = Answers;

    async fn down(&self, request: Request<Owned<Ask>>) -> Result<Response<Answers>, Status> {
        if request.get_ref().view().body().is_empty() {
            return Ok(Response::new(Box::pin(tokio_stream::empty())));
        }
        tokio::spawn(set_soon(self.0.clone()));
        let answers = without_pause(self.0.clone(), || Ok(builder::<Answer>().freeze().unwrap()));
        Ok(Response::new(Box::pin(futures_util::stream::iter(answers))))
    }

    async fn up(&self, request: Request<Streaming<Owned<Ask>>>) -> Result<Response<Owned<Answer>>, Status> {
        InPlace::new().up(request).await
    }

    type BothStream = Answers;

    async fn both(&self, request: Request<Streaming<Owned<Ask>>>) -> Result<Response<Answers>, Status> {
        InPlace::new().both(request).await
    }
}

fn on_one_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A client and a server, each with a thread of its own; the methods carry objects. What the client does.
fn with_a_server(flag: &Flag, client: impl AsyncFnOnce(ProbeClient<Channel>)) {
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", directory.path().join("s").display());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = {
        let server = Server::builder().add_service(ProbeServer::new(Busy(flag.clone())));
        let uri = uri.clone();
        std::thread::spawn(move || {
            on_one_thread().block_on(server.serve_with_shutdown(uri, async { drop(stopped.await) })).unwrap();
        })
    };
    on_one_thread().block_on(async {
        let channel = loop {
            match Channel::connect(&*uri).await {
                Ok(channel) => break channel,
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        let mut first = ProbeClient::new(channel.clone());
        first.down(ask(b"", &[])).await.unwrap().into_inner().message().await.unwrap();
        first.up(tokio_stream::empty()).await.unwrap();
        client(first).await;
    });
    drop(stop);
    serving.join().unwrap();
}

#[test]
fn a_client_s_stream_that_is_never_held_up_lets_others_run() {
    let flag = Flag::default();
    with_a_server(&flag, async |mut client| {
        tokio::spawn(set_soon(flag.clone()));
        let began = Instant::now();
        let asks = without_pause(flag.clone(), || ask(b"one of many", &[]));
        let seen = client.up(futures_util::stream::iter(asks)).await.unwrap().into_inner();
        assert!(seen.view().seen_count() > 0);
        assert!(began.elapsed() < PATIENCE, "a timer of the same thread has ended it");
    });
}

#[test]
fn a_server_s_stream_that_is_never_held_up_lets_others_run() {
    let flag = Flag::default();
    with_a_server(&flag, async |mut client| {
        let began = Instant::now();
        let mut answers = client.down(ask(b"many", &[])).await.unwrap().into_inner();
        let mut count = 0;
        while answers.message().await.unwrap().is_some() {
            count += 1;
        }
        assert!(count > 0);
        assert!(began.elapsed() < PATIENCE, "a timer of the same thread has ended it");
    });
}
