//! The last word of a server whose deadline has passed: it comes behind what the client has received, whatever keeps it from being said at once.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tokio_stream::Stream;
use tollfree::{Channel, Server};
use tollfree_driver_tokio::now_ns;
use tollfree_layout::frame::{events, flags};
use tollfree_testkit::{Frame, HostilePeer};
use tonic::{Code, Request, Response, Status, Streaming};

use super::lab::{in_time, until};
use crate::stubs::freight::Cargo;
use crate::stubs::freight::freight_client::FreightClient;
use crate::stubs::freight::freight_server::{Freight, FreightServer};

const DOWN: &str = "/tollfree.freight.v1.Freight/Down";

/// Says what it is told to, message by message, and then nothing: only its deadline ends it.
#[derive(Clone, Default)]
struct Endless {
    live: Arc<AtomicUsize>,
    /// Handlers that have said all.
    said: Arc<AtomicUsize>,
}

/// The answers of a handler: each goes by itself, since there is none behind it before the task has had another turn.
struct Answers {
    lens: VecDeque<u64>,
    is_due: bool,
    is_said: bool,
    handlers: Endless,
}

impl Stream for Answers {
    type Item = Result<Cargo, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Cargo, Status>>> {
        self.is_due = !self.is_due;
        if !self.is_due {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(len) = self.lens.pop_front() {
            let body = Bytes::from(vec![7; len as usize]);
            return Poll::Ready(Some(Ok(Cargo { body, ..Cargo::default() })));
        }
        if !std::mem::replace(&mut self.is_said, true) {
            self.handlers.said.fetch_add(1, Ordering::SeqCst);
        }
        Poll::Pending
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.handlers.live.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tonic::async_trait]
impl Freight for Endless {
    async fn unary(&self, request: Request<Cargo>) -> Result<Response<Cargo>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    type DownStream = Answers;

    async fn down(&self, request: Request<Cargo>) -> Result<Response<Answers>, Status> {
        self.live.fetch_add(1, Ordering::SeqCst);
        let lens = request.into_inner().numbers.into();
        Ok(Response::new(Answers { lens, is_due: false, is_said: false, handlers: self.clone() }))
    }

    async fn up(&self, _: Request<Streaming<Cargo>>) -> Result<Response<Cargo>, Status> {
        Err(Status::unimplemented("it streams down"))
    }

    type BothStream = Answers;

    async fn both(&self, _: Request<Streaming<Cargo>>) -> Result<Response<Answers>, Status> {
        Err(Status::unimplemented("it streams down"))
    }
}

/// A server that runs until this is dropped, and its socket.
struct Place {
    handlers: Endless,
    uri: String,
    task: tokio::task::JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Place {
    async fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let (handlers, uri) = (Endless::default(), format!("shm://{}", path.display()));
        let server = Server::builder().add_service(FreightServer::new(handlers.clone()));
        let address = uri.clone();
        let task = tokio::spawn(async move { server.serve(&address).await.unwrap() });
        until("it serves", || path.exists()).await;
        Place { handlers, uri, task, _dir: dir }
    }

    async fn nobody_is_left(&self) {
        until("the deadline ends the handlers", || self.handlers.live.load(Ordering::SeqCst) == 0).await;
    }
}

/// A task that has sent a number of times without a wait gives way, and so its last word may find it in the middle of that.
#[tokio::test]
async fn the_last_word_of_a_task_that_gives_way_comes_behind_what_came_in_time() {
    in_time(async {
        let place = Place::new().await;
        let mut client = FreightClient::new(Channel::connect(&*place.uri).await.unwrap());
        let counts: Vec<usize> = (100..160).collect();
        // A busy machine may not get so far within the first.
        for seconds in [1, 5, 25] {
            let said = place.handlers.said.load(Ordering::SeqCst);
            let mut calls = Vec::new();
            for count in &counts {
                let mut request = Request::new(Cargo { numbers: vec![10; *count], ..Cargo::default() });
                request.set_timeout(Duration::from_secs(seconds));
                let Ok(answers) = client.down(request).await else { break };
                calls.push(answers.into_inner());
            }
            place.nobody_is_left().await;
            let is_in_time = place.handlers.said.load(Ordering::SeqCst) - said == counts.len();
            if calls.len() < counts.len() || !is_in_time {
                continue;
            }
            for (count, mut answers) in counts.iter().zip(calls) {
                for number in 0..*count {
                    let answer = answers.message().await;
                    assert!(matches!(&answer, Ok(Some(_))), "{number} of {count}: {answer:?}");
                }
                let status = answers.message().await.unwrap_err();
                assert_eq!(
                    (status.code(), status.message()),
                    (Code::DeadlineExceeded, "the deadline has passed")
                );
            }
            return;
        }
        panic!("nothing is said in time, however much there is");
    })
    .await;
}

/// A client that does not read for a while finds what was said in time, and then the status.
#[tokio::test]
async fn the_last_word_that_finds_no_room_comes_behind_what_came_in_time() {
    in_time(async {
        let place = Place::new().await;
        let path = std::path::PathBuf::from(place.uri.strip_prefix("shm://").unwrap());
        let entering = tokio::task::spawn_blocking(move || HostilePeer::client(&path).unwrap());
        let mut peer = entering.await.unwrap();
        let message = Cargo { numbers: vec![1; 10_000], ..Cargo::default() }.encode_to_vec();
        let opening = Frame::new(
            events::HEADERS | events::MESSAGE | events::HALF_CLOSE,
            flags::FIRST | flags::LAST | flags::NAMES_METHOD | flags::HAS_DEADLINE,
            1,
        );
        let deadline_ns = now_ns() + 500_000_000;
        let opening = opening
            .bytes(&deadline_ns.to_le_bytes())
            .headers(&(DOWN.len() as u16).to_le_bytes())
            .headers(DOWN.as_bytes())
            .message_len(message.len() as u32)
            .chunk(&message);
        peer.send(&opening).unwrap();
        // More than the ring holds, and in records as short as the last one.
        for stream in [0, 1] {
            peer.send(&Frame::new(events::CREDIT, 0, stream).chunk_len(8 << 20)).unwrap();
        }
        until("the handler has begun", || place.handlers.live.load(Ordering::SeqCst) == 1).await;
        place.nobody_is_left().await;
        assert_eq!(place.handlers.said.load(Ordering::SeqCst), 0, "there was no room for all of it");
        let reading = tokio::task::spawn_blocking(move || {
            let (last, mut message_count) = (Frame::new(events::TRAILERS, 0, 1).code(4).record(), 0);
            loop {
                let record = peer.read().unwrap();
                // It waits for room.
                if peer.sees_sleeper() {
                    peer.ring();
                }
                match record[0] {
                    events::TRAILERS => return (message_count, record == last),
                    events::CANCEL => panic!("a client drops what came before"),
                    said => message_count += usize::from(said & events::MESSAGE != 0),
                }
            }
        });
        let (message_count, is_late) = reading.await.unwrap();
        assert!(message_count > 10, "{message_count} came in time");
        assert!(is_late, "DEADLINE_EXCEEDED");
    })
    .await;
}
