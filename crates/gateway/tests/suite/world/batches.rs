//! Objects of streams, in batches: a gateway hands them on in as few records as they came in, makes batches of what comes from the world,
//! and looks at each object by itself.

use std::future::poll_fn;
use std::sync::mpsc;

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tollfree::Server;
use tollfree_direct_stubs::later::probe::probe_server::{Probe as LaterProbe, ProbeServer as LaterServer};
use tollfree_direct_stubs::later::views::tollfree::probe::v1 as later;
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient;
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer;
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::{Answer, Ask};
use tollfree_direct_stubs::probe as structs;
use tollfree_driver_tokio::{Attachment, Ending, OutgoingMessage};
use tollfree_processor::typed::Owned;
use tollfree_stubs::probe as level1;
use tonic::{Code, Request, Response, Status, Streaming};

use super::lab::{Lab, PATIENCE, PROBE, backend_connections_of};
use super::nested::{Back, Plain, attach, builder, until_all_are_objects, via};
use super::nested_lies::{description, lies, session};
use super::object_ends::{Heard, batch, open, send};
use super::raw::{headers, message, say_all, trailers, try_attach, whole};

/// Messages at hand.
pub(crate) const COUNT: usize = 100;
/// The records that they may take: some before they run full.
const RECORD_COUNT_MAX: usize = 10;
/// Sound objects before the broken one.
const SOUND: usize = 5;

pub(crate) fn ask(number: usize) -> Owned<Ask> {
    let mut ask = builder::<Ask>();
    ask.edit().lens_mut().unwrap().extend([number as u32]).unwrap();
    ask.edit().set_body(&[number as u8 + 1; 20]).unwrap();
    ask.freeze().unwrap()
}

pub(crate) fn asked(number: usize) -> Vec<u8> {
    ask(number).object().bytes().to_vec()
}

pub(crate) fn answer(number: usize) -> Vec<u8> {
    let mut answer = builder::<Answer>();
    answer.edit().set_seen_len(number as u64).unwrap();
    answer.edit().set_body(b"an answer").unwrap();
    answer.freeze().unwrap().object().bytes().to_vec()
}

/// Whether these objects have come, as they were and in few records.
fn is(heard: &Heard, objects: &[Vec<u8>], what: &str) {
    let came = heard.messages.iter().map(|(_, message)| message);
    assert!(heard.has_objects_only() && came.eq(objects), "{what}: {} messages", heard.messages.len());
    assert!(heard.record_count <= RECORD_COUNT_MAX, "{what}: {} records", heard.record_count);
}

/// A call with all of that at hand.
async fn call(session: &Attachment, method: &str, objects: &[Vec<u8>]) -> Heard {
    let path = format!("/{PROBE}/{method}");
    let stream = open(session, &path, 0).await;
    send(&stream, Some(batch(objects)), Some(Ending::HalfClose)).await;
    tokio::time::timeout(PATIENCE, Heard::all(None, &stream)).await.expect("the call ends")
}

/// A backend connection, until this is dropped.
pub(crate) struct BackendConnection(pub(crate) JoinHandle<()>);

impl Drop for BackendConnection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A backend connection that takes objects, and answers objects with these. Tells what it hears.
async fn backend_connection(
    lab: &Lab,
    answers: Vec<Vec<u8>>,
    telling: mpsc::Sender<Heard>,
) -> BackendConnection {
    let session = try_attach(lab, "default").await.unwrap();
    let types = Owned::<Ask>::fingerprint().rotate_left(32) ^ Owned::<Answer>::fingerprint();
    let task = tokio::spawn(async move {
        let mut said = Vec::new();
        loop {
            let mut place = None;
            if poll_fn(|cx| session.poll_accept(cx, &mut place)).await.is_err() {
                return;
            }
            let mut call = place.expect("a call is there").into_call(true);
            if call.path.starts_with(b"/tollfree.Objects/") {
                say_all(&call.stream, vec![whole(OutgoingMessage::new(description().into(), false))]).await;
                continue;
            }
            if let Some(method) = call.method.filter(|method| !said.contains(method)) {
                session.take_objects(method, types);
                said.push(method);
            }
            let heard = Heard::all(call.first.take(), &call.stream).await;
            let is_one = call.path.ends_with(b"Unary") || call.path.ends_with(b"Up");
            let said = match heard.has_objects_only() {
                true if is_one => batch(&answers[..1]),
                true => batch(&answers),
                false => OutgoingMessage::new(Bytes::new(), false),
            };
            let said = vec![headers(Bytes::new()), message(said), trailers(0, Bytes::new())];
            say_all(&call.stream, said).await;
            let _ = telling.send(heard);
        }
    });
    lab.until_figure(&backend_connections_of("default"), |count| count == 1.0).await;
    BackendConnection(task)
}

pub(crate) fn numbers<T>(make: impl Fn(usize) -> T) -> Vec<T> {
    (0..COUNT).map(make).collect()
}

#[tokio::test]
async fn a_batch_of_objects_goes_on_as_one_both_ways() {
    let lab = Lab::start("").await;
    let (telling, told) = mpsc::channel();
    let _backend_connection = backend_connection(&lab, numbers(answer), telling).await;
    // It says what it takes once the gateway has the backend connection's tables.
    let channel = via(&lab, "default").await;
    let (began, mut client) = (Instant::now(), ProbeClient::new(channel.clone()));
    while channel.payloads().counts().sent_objects < 2 {
        client.up(futures_util::stream::iter([ask(0), ask(1)])).await.unwrap();
        client.both(futures_util::stream::iter([ask(0), ask(1)])).await.unwrap();
        assert!(began.elapsed() < PATIENCE, "{:?}", channel.payloads());
    }
    let session = session(&lab).await;
    for _ in 0..3 {
        while told.try_recv().is_ok() {}
        let up = call(&session, "Up", &numbers(asked)).await;
        is(&up, &[answer(0)], "the answer");
        is(&told.recv().unwrap(), &numbers(asked), "to the backend connection");
        let both = call(&session, "Both", &numbers(asked)).await;
        is(&both, &numbers(answer), "to the caller");
        is(&told.recv().unwrap(), &numbers(asked), "to the backend connection");
    }
}

/// A client of the world sends bytes and reads bytes.
#[tokio::test]
async fn messages_of_the_world_are_made_batches_of_objects_and_the_answers_bytes() {
    let lab = Lab::start("").await;
    let (telling, told) = mpsc::channel();
    let _backend_connection = backend_connection(&lab, numbers(answer), telling).await;
    let mut client = lab.client().await;
    let message = |number: usize| level1::Ask {
        lens: vec![number as u32],
        body: vec![number as u8 + 1; 20],
        ..level1::Ask::default()
    };
    let began = Instant::now();
    loop {
        client.up(tokio_stream::iter(numbers(message))).await.unwrap();
        let up = told.recv().unwrap();
        let both = client.both(tokio_stream::iter(numbers(message))).await.unwrap().into_inner();
        let answers: Vec<_> = both.map(Result::unwrap).collect().await;
        let both = told.recv().unwrap();
        if up.has_objects_only() && both.has_objects_only() {
            for heard in [up, both] {
                assert!(heard.record_count <= RECORD_COUNT_MAX, "{} records", heard.record_count);
                let bodies = heard.messages.iter().map(|(_, object)| {
                    let slot = tollfree_processor::Arenas::new(1 << 20, 0).take();
                    Owned::<Ask>::verify(object, slot, 100).unwrap().view().body().to_vec()
                });
                assert!(bodies.eq(numbers(|number| vec![number as u8 + 1; 20])), "in order");
            }
            assert!(answers.iter().map(|answer| answer.seen_len as usize).eq(0..COUNT), "in order");
            return;
        }
        assert!(began.elapsed() < PATIENCE, "no stream of the world carries objects");
    }
}

/// Counts what it reads, by another version of the schema.
struct Later;

#[tonic::async_trait]
impl LaterProbe for Later {
    async fn unary(&self, _: Request<Owned<later::Ask>>) -> Result<Response<Owned<later::Answer>>, Status> {
        Err(Status::unimplemented("it reads streams"))
    }

    async fn up(
        &self,
        request: Request<Streaming<Owned<later::Ask>>>,
    ) -> Result<Response<Owned<later::Answer>>, Status> {
        let (mut asks, mut bodies) = (request.into_inner(), Vec::new());
        while let Some(ask) = asks.message().await? {
            bodies.extend_from_slice(ask.view().body());
        }
        let mut answer = builder::<later::Answer>();
        answer.edit().set_body(&bodies).unwrap();
        Ok(Response::new(answer.freeze().unwrap()))
    }
}

#[tokio::test]
async fn a_batch_of_objects_is_encoded_for_backend_connections_of_other_tables_and_of_none() {
    let lab = Lab::start("").await;
    let level3 =
        attach(&lab, "default", Server::builder().add_service(ProbeServer::new(Back::default()))).await;
    let channel = via(&lab, "default").await;
    let mut client = ProbeClient::new(channel.clone());
    until_all_are_objects(&mut client, &channel).await;
    drop(level3);
    lab.until_figure(&backend_connections_of("default"), |count| count == 0.0).await;
    for server in [
        Server::builder().add_service(LaterServer::new(Later)),
        Server::builder().add_service(structs::probe_server::ProbeServer::new(Plain)),
    ] {
        let other = attach(&lab, "default", server).await;
        for _ in 0..3 {
            let before = channel.payloads().counts().sent_objects;
            let answer = client.up(futures_util::stream::iter(numbers(ask))).await.unwrap().into_inner();
            let bodies = numbers(|number| vec![number as u8 + 1; 20]).concat();
            assert!(answer.view().body() == bodies, "in order");
            assert_eq!(channel.payloads().counts().sent_objects - before, COUNT as u64);
        }
        drop(other);
        lab.until_figure(&backend_connections_of("default"), |count| count == 0.0).await;
    }
}

#[tokio::test]
async fn a_broken_object_in_a_batch_ends_its_call_behind_those_before_it() {
    let lab = Lab::start("").await;
    let backends =
        attach(&lab, "default", Server::builder().add_service(ProbeServer::new(Back::default()))).await;
    let channel = via(&lab, "default").await;
    let mut honest = ProbeClient::new(channel.clone());
    until_all_are_objects(&mut honest, &channel).await;
    let session = session(&lab).await;
    for (what, broken, word) in lies(&asked(SOUND)) {
        let mut objects: Vec<Vec<u8>> = (0..2 * SOUND).map(asked).collect();
        objects[SOUND] = broken;
        for method in ["Up", "Both"] {
            let before = backends.payloads.counts().received_objects;
            let heard = call(&session, method, &objects).await;
            let (code, words) = heard.code();
            assert_eq!(code, Code::Internal, "{method}, {what}: {words}");
            assert!(words.contains(word) && words.contains("flat message"), "{method}, {what}: {words}");
            let came = backends.payloads.counts().received_objects - before;
            assert!(came <= SOUND as u64, "{method}, {what}: {came}, and none that is broken");
        }
    }
    assert!(session.is_open());
    until_all_are_objects(&mut honest, &channel).await;
}

#[tokio::test]
async fn a_broken_object_in_a_batch_of_a_backend_connection_does_not_reach_the_caller() {
    for (what, broken, word) in lies(&answer(SOUND)) {
        let lab = Lab::start("").await;
        let mut answers: Vec<Vec<u8>> = (0..2 * SOUND).map(answer).collect();
        answers[SOUND] = broken;
        let (telling, _told) = mpsc::channel();
        let _backend_connection = backend_connection(&lab, answers, telling).await;
        let mut world = lab.client().await;
        let began = Instant::now();
        let channel = via(&lab, "default").await;
        let mut inside = ProbeClient::new(channel.clone());
        // Encoded for the one, and as an object to the other.
        loop {
            let asks = tokio_stream::iter([level1::Ask::default(), level1::Ask::default()]);
            let mut both = world.both(asks).await.unwrap().into_inner();
            let mut count = 0;
            let refused = loop {
                match both.message().await {
                    Ok(Some(answer)) => assert!(answer.seen_len as usize == count || answer.body.is_empty()),
                    Ok(None) => break None,
                    Err(status) => break Some(status),
                }
                count += 1;
            };
            let sent = channel.payloads().counts().sent_objects;
            let asks = futures_util::stream::iter([ask(0), ask(1)]);
            let mut both = inside.both(asks).await.unwrap().into_inner();
            let mut inside_count = 0;
            let inside_refused = loop {
                match both.message().await {
                    Ok(Some(_)) => inside_count += 1,
                    Ok(None) => break None,
                    Err(status) => break Some(status),
                }
            };
            if let (Some(refused), Some(inside_refused)) = (refused, inside_refused)
                && channel.payloads().counts().sent_objects - sent == 2
            {
                assert_eq!([count, inside_count], [SOUND; 2], "{what}");
                for status in [refused, inside_refused] {
                    let is_told = status.message().contains(word);
                    assert!(status.code() == Code::Internal && is_told, "{what}: {status}");
                }
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: no objects come");
        }
    }
}
