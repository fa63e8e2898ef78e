//! Ends in the middle of a batch of objects: deaths, stops, drops and deadlines.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tollfree::{Channel, Server};
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient;
use tollfree_direct_stubs::objects::probe::probe_server::{Probe, ProbeServer};
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::{Answer, Ask};
use tollfree_driver_tokio::OBJECT_PREFIX;
use tollfree_layout::frame::{events, flags};
use tollfree_layout::metadata;
use tollfree_processor::typed::Owned;
use tollfree_testkit::{Door, Frame, HostilePeer};
use tonic::{Code, Request, Response, Status, Streaming};

use super::batches::{COUNT, UP, answer, numbered, object};
use super::hostile::builder;
use super::levels::ask;
use super::place::{Answers, InPlace, Place, in_time};

/// So many of a batch are read before something happens.
const READ: usize = 3;

/// What a service has seen.
#[derive(Clone, Default)]
struct Witness {
    read: Arc<AtomicUsize>,
    live: Arc<AtomicUsize>,
    /// How requests ended.
    ends: Arc<Mutex<Vec<Option<Code>>>>,
}

struct Presence(Arc<AtomicUsize>);

impl Witness {
    fn enter(&self) -> Presence {
        self.live.fetch_add(1, Ordering::SeqCst);
        Presence(self.live.clone())
    }

    fn read(&self) -> usize {
        self.read.load(Ordering::SeqCst)
    }

    async fn nobody_is_left(&self) {
        until("no handler is left", || self.live.load(Ordering::SeqCst) == 0).await;
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Reads what comes, and stands still where it is told to wait.
#[derive(Clone)]
struct Slow(Witness);

#[tonic::async_trait]
impl Probe for Slow {
    async fn unary(&self, request: Request<Owned<Ask>>) -> Result<Response<Owned<Answer>>, Status> {
        InPlace::new().unary(request).await
    }

    type DownStream = Answers;

    async fn down(&self, request: Request<Owned<Ask>>) -> Result<Response<Answers>, Status> {
        let presence = self.0.enter();
        let answers = InPlace::new().down(request).await?.into_inner();
        let answers = answers.map(move |answer| {
            let _held = &presence;
            answer
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn up(&self, request: Request<Streaming<Owned<Ask>>>) -> Result<Response<Owned<Answer>>, Status> {
        let is_aside = request.metadata().contains_key("x-aside");
        let (witness, mut asks, presence) = (self.0.clone(), request.into_inner(), self.0.enter());
        let reading = async move {
            let _presence = presence;
            let end = loop {
                match asks.message().await {
                    Ok(Some(ask)) => {
                        witness.read.fetch_add(1, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_millis(ask.view().wait_ms().into())).await;
                    }
                    Ok(None) => break Ok(()),
                    Err(status) => break Err(status),
                }
            };
            witness.ends.lock().push(end.as_ref().err().map(Status::code));
            end
        };
        // A task of its own goes on where the handler does not.
        if is_aside { tokio::spawn(reading).await.unwrap() } else { reading.await }?;
        Ok(Response::new(builder::<Answer>().freeze().unwrap()))
    }

    type BothStream = Answers;

    async fn both(&self, request: Request<Streaming<Owned<Ask>>>) -> Result<Response<Answers>, Status> {
        let presence = self.0.enter();
        let answers = InPlace::new().both(request).await?.into_inner();
        let answers = answers.map(move |answer| {
            let _held = &presence;
            answer
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

/// All at hand; the third has its handler wait.
fn asks(wait_ms: u32) -> impl Iterator<Item = Owned<Ask>> + Send + 'static {
    (0..COUNT).map(move |number| {
        let mut builder = builder::<Ask>();
        builder.edit().set_body(&numbered(number)).unwrap();
        builder.edit().set_wait_ms(if number == READ - 1 { wait_ms } else { 0 }).unwrap();
        builder.freeze().unwrap()
    })
}

async fn read(answers: &mut Streaming<Owned<Answer>>, from: usize, count: usize) -> Result<(), Status> {
    for number in from..from + count {
        let answer = answers.message().await?.expect("there are more");
        assert_eq!(answer.view().body(), numbered(number), "in its turn");
    }
    Ok(())
}

async fn place() -> (Place, Witness) {
    let witness = Witness::default();
    let place = Place::new(Server::builder().add_service(ProbeServer::new(Slow(witness.clone())))).await;
    // From here on, all methods carry objects.
    let mut client = ProbeClient::new(place.shm.clone());
    client.down(ask(b"", &[])).await.unwrap();
    client.up(tokio_stream::empty()).await.unwrap();
    client.both(tokio_stream::empty()).await.unwrap();
    witness.nobody_is_left().await;
    witness.ends.lock().clear();
    (place, witness)
}

/// A record of so many objects.
const RECORD_COUNT: usize = 100;

fn batch_frame(make: fn(usize) -> Vec<u8>) -> Frame {
    let framed = |number| {
        let object = make(number);
        [&[OBJECT_PREFIX][..], &(object.len() as u32).to_be_bytes(), &object].concat()
    };
    let bytes: Vec<u8> = (0..RECORD_COUNT).flat_map(framed).collect();
    Frame::new(events::MESSAGE, flags::FIRST | flags::LAST | flags::BATCH | flags::OBJECT, 1)
        .message_len(RECORD_COUNT as u32)
        .chunk(&bytes)
}

fn is_opening(record: &[u8]) -> bool {
    record.first().is_some_and(|events| events & events::HEADERS != 0 && *events != events::CONTROL)
}

#[tokio::test]
async fn objects_of_a_client_that_died_come_and_then_an_error() {
    in_time(async {
        let (place, witness) = place().await;
        let path = PathBuf::from(place.address.strip_prefix("shm://").unwrap());
        let mut peer =
            tokio::task::spawn_blocking(move || HostilePeer::client(&path)).await.unwrap().unwrap();
        let mut block = (UP.len() as u16).to_le_bytes().to_vec();
        block.extend_from_slice(UP.as_bytes());
        metadata::pack(&mut block, "x-aside", b"1").unwrap();
        peer.send(&Frame::new(events::HEADERS, flags::NAMES_METHOD, 1).headers(&block)).unwrap();
        // A call of a peer that is gone need not begin.
        until("the handler reads", || witness.live.load(Ordering::SeqCst) == 1).await;
        peer.send(&batch_frame(object)).unwrap();
        // Before anybody has looked.
        drop(peer);
        until("the request has ended", || !witness.ends.lock().is_empty()).await;
        let end = witness.ends.lock()[0].expect("cut off, not ended");
        assert_eq!(end, Code::Unavailable);
        assert_eq!(witness.read(), RECORD_COUNT, "all that was published came");
        witness.nobody_is_left().await;
    })
    .await;
}

#[tokio::test]
async fn objects_of_a_server_that_died_come_and_then_an_error() {
    in_time(async {
        let directory = tempfile::tempdir().unwrap();
        let uri = format!("shm://{}", directory.path().join("s").display());
        let listener = UnixListener::bind(directory.path().join("s")).unwrap();
        let task = tokio::task::spawn_blocking(move || {
            let mut peer = Door::over(listener.accept().unwrap().0).unwrap().welcome(|_| {}).unwrap();
            while !is_opening(&peer.read().unwrap()) {}
            peer.send(&Frame::new(events::HEADERS, 0, 1)).unwrap();
            peer.send(&batch_frame(answer)).unwrap();
        });
        let channel = Channel::connect(&*uri).await.unwrap();
        let mut client = ProbeClient::new(channel.clone());
        let mut answers = client.down(ask(b"", &[])).await.unwrap().into_inner();
        read(&mut answers, 0, READ).await.unwrap();
        task.await.unwrap();
        until("the session has ended", || channel.path().ready().is_none()).await;
        read(&mut answers, READ, RECORD_COUNT - READ).await.unwrap();
        assert_eq!(answers.message().await.unwrap_err().code(), Code::Unavailable);
    })
    .await;
}

#[tokio::test]
async fn a_stream_of_objects_that_is_dropped_in_a_batch_leaves_nothing() {
    in_time(async {
        let (place, witness) = place().await;
        let mut client = ProbeClient::new(place.shm.clone());
        for round in 0..10 {
            let lens = vec![4; 200 * COUNT];
            let mut down = client.down(ask(b"", &lens)).await.unwrap().into_inner();
            for _ in 0..READ {
                down.message().await.unwrap().unwrap();
            }
            assert_eq!(witness.live.load(Ordering::SeqCst), 1, "there is more to say");
            drop(down);
            witness.nobody_is_left().await;
            let (more, rest) = tokio::sync::mpsc::channel(COUNT);
            for ask in asks(0) {
                more.send(ask).await.unwrap();
            }
            let mut both = client.both(ReceiverStream::new(rest)).await.unwrap().into_inner();
            read(&mut both, 0, READ).await.unwrap();
            drop(both);
            until("the request's source is dropped", || more.is_closed()).await;
            witness.nobody_is_left().await;
            let before = witness.read();
            tokio::select! {
                _ = client.up(tokio_stream::iter(asks(60_000))) => panic!("the handler waits"),
                () = until("the handler has read some", || witness.read() == before + READ) => {}
            }
            witness.nobody_is_left().await;
            assert_eq!(witness.read(), before + READ, "nobody reads on, round {round}");
        }
        assert!(client.unary(ask(b"x", &[])).await.is_ok());
    })
    .await;
}

#[tokio::test]
async fn a_deadline_in_a_batch_of_objects_comes_behind_what_came_in_time() {
    fn within<T>(message: T, limit: Duration) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(limit);
        request
    }
    in_time(async {
        let (place, witness) = place().await;
        let mut client = ProbeClient::new(place.shm.clone());
        // A busy machine may not get so far within the first.
        for millis in [300, 3_000, 20_000] {
            let limit = Duration::from_millis(millis);
            let before = witness.read();
            let slow = tokio_stream::iter(asks(60_000));
            let status = client.up(within(slow, limit)).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
            witness.nobody_is_left().await;
            let was_read = witness.read() - before;
            let (more, rest) = tokio::sync::mpsc::channel(COUNT);
            for ask in asks(0) {
                more.send(ask).await.unwrap();
            }
            let Ok(both) = client.both(within(ReceiverStream::new(rest), limit)).await else { continue };
            let mut both = both.into_inner();
            if was_read != READ || read(&mut both, 0, READ).await.is_err() {
                continue;
            }
            // What came is at hand when the deadline passes.
            witness.nobody_is_left().await;
            read(&mut both, READ, COUNT - READ).await.unwrap();
            assert_eq!(both.message().await.unwrap_err().code(), Code::DeadlineExceeded);
            return;
        }
        panic!("nothing comes in time, however much there is");
    })
    .await;
}

/// DRAIN lets streams that are under way come to their end.
#[tokio::test]
async fn a_stream_of_objects_goes_on_when_its_server_stops_in_a_batch() {
    in_time(async {
        let directory = tempfile::tempdir().unwrap();
        let uri = format!("shm://{}", directory.path().join("s").display());
        let witness = Witness::default();
        let server = Server::builder().add_service(ProbeServer::new(Slow(witness.clone())));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn({
            let uri = uri.clone();
            async move { server.serve_with_shutdown(uri, async { drop(stopped.await) }).await }
        });
        let channel = loop {
            match Channel::connect(&*uri).await {
                Ok(channel) => break channel,
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        let mut client = ProbeClient::new(channel.clone());
        client.down(ask(b"", &[])).await.unwrap();
        client.both(tokio_stream::empty()).await.unwrap();
        client.up(tokio_stream::empty()).await.unwrap();
        // More than anybody has credit for at once.
        let mut down = client.down(ask(b"", &vec![4; 50 * COUNT])).await.unwrap().into_inner();
        let (more, rest) = tokio::sync::mpsc::channel(COUNT);
        for ask in asks(0) {
            more.send(ask).await.unwrap();
        }
        let mut both = client.both(ReceiverStream::new(rest)).await.unwrap().into_inner();
        read(&mut both, 0, READ).await.unwrap();
        for _ in 0..READ {
            down.message().await.unwrap().unwrap();
        }
        let before = channel.payloads().counts();
        stop.send(()).unwrap();
        until("no call is taken any more", || channel.path().ready().is_none()).await;
        for _ in READ..50 * COUNT {
            assert_eq!(down.message().await.unwrap().unwrap().view().body().len(), 4);
        }
        assert!(down.message().await.unwrap().is_none(), "it ends well");
        read(&mut both, READ, COUNT - READ).await.unwrap();
        for ask in asks(0) {
            more.send(ask).await.unwrap();
        }
        drop(more);
        read(&mut both, 0, COUNT).await.unwrap();
        assert!(both.message().await.unwrap().is_none(), "it ends well");
        let after = channel.payloads().counts();
        assert_eq!(after.sent_objects - before.sent_objects, COUNT as u64);
        serving.await.unwrap().unwrap();
    })
    .await;
}
