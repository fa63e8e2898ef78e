//! A stream through a gateway that ends in the middle of batches, by a table: what was said before is read, in order and once, and behind it the
//! end that it came to, never a good one instead of a bad one. Messages are counted, not batches.

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient;
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::{Answer, Ask};
use tollfree_driver_tokio::{Attachment, End, Ending, OutgoingMessage, now_ns};
use tollfree_processor::typed::Owned;
use tollfree_stubs::probe as level1;
use tonic::transport::Channel;
use tonic::{Code, Request};

use super::batches::{BackendConnection, COUNT, answer, ask, asked, numbers};
use super::lab::{Lab, PATIENCE, PROBE, backend_connections_of};
use super::nested::via;
use super::nested_lies::{description, session};
use super::object_ends::{Heard, batch, framed, open, send};
use super::objects;
use super::raw::{headers, message, say_all, trailers, try_attach, whole};

/// In what form a backend connection takes messages, and answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sort {
    Encoded,
    Objects,
}

/// How a call comes to the gateway.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    World,
    Session,
}

/// What a backend connection does when it has answered with a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    /// Ends the call well.
    Ends,
    /// Takes no more calls, answers with another batch, and ends the call well.
    Drains,
    Cancels,
    Dies,
    /// Says nothing more.
    Stands,
}

/// What a caller does when a batch of its own has been read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Leaves {
    Cancels,
    Dies,
    /// Waits until its deadline passes.
    Waits,
}

const ALL: [(Sort, By); 4] = [
    (Sort::Encoded, By::World),
    (Sort::Encoded, By::Session),
    (Sort::Objects, By::World),
    (Sort::Objects, By::Session),
];

fn level1_ask(number: usize) -> level1::Ask {
    level1::Ask { lens: vec![number as u32], body: vec![number as u8 + 1; 20], ..level1::Ask::default() }
}

/// A batch of asks, as a caller in that form says them.
fn asks(sort: Sort) -> OutgoingMessage {
    match sort {
        Sort::Objects => batch(&numbers(asked)),
        Sort::Encoded => encoded(&numbers(|number| level1_ask(number).encode_to_vec())),
    }
}

fn answers(sort: Sort) -> OutgoingMessage {
    let encode =
        |number| level1::Answer { seen_len: number as u64, ..level1::Answer::default() }.encode_to_vec();
    match sort {
        Sort::Objects => batch(&numbers(answer)),
        Sort::Encoded => encoded(&numbers(encode)),
    }
}

fn encoded(messages: &[Vec<u8>]) -> OutgoingMessage {
    OutgoingMessage::batch_off(&mut framed(0, messages), 1000, usize::MAX).expect("they are whole")
}

/// The numbers that asks tell, in whatever form they came.
fn asked_numbers(heard: &Heard) -> Vec<usize> {
    let number = |(flag, message): &(u8, Vec<u8>)| match flag {
        0 => level1::Ask::decode(&message[..]).unwrap().body[0] as usize - 1,
        _ => {
            let slot = tollfree_processor::Arenas::new(1 << 20, 0).take();
            let ask = Owned::<Ask>::verify(message, slot, 100).unwrap();
            ask.view().body()[0] as usize - 1
        }
    };
    heard.messages.iter().map(number).collect()
}

fn answered_numbers(heard: &Heard) -> Vec<usize> {
    let number = |(flag, message): &(u8, Vec<u8>)| match flag {
        0 => level1::Answer::decode(&message[..]).unwrap().seen_len as usize,
        _ => {
            let slot = tollfree_processor::Arenas::new(1 << 20, 0).take();
            Owned::<Answer>::verify(message, slot, 100).unwrap().view().seen_len() as usize
        }
    };
    heard.messages.iter().map(number).collect()
}

/// What its test knows of a backend connection, and tells it.
struct Known {
    then: Mutex<Then>,
    /// Messages of the last call that were read.
    read: AtomicUsize,
}

/// A backend connection that takes messages of that form. Tells what it hears of each call.
async fn backend_connection(
    lab: &Lab,
    sort: Sort,
    telling: mpsc::Sender<Heard>,
) -> (Arc<Known>, BackendConnection) {
    let session = try_attach(lab, "default").await.unwrap();
    let known = Arc::new(Known { then: Mutex::new(Then::Ends), read: AtomicUsize::new(0) });
    let seen = known.clone();
    let task = tokio::spawn(async move { serve(session, sort, &seen, telling).await });
    lab.until_figure(&backend_connections_of("default"), |count| count == 1.0).await;
    (known, BackendConnection(task))
}

async fn serve(session: Attachment, sort: Sort, known: &Known, telling: mpsc::Sender<Heard>) {
    let types = Owned::<Ask>::fingerprint().rotate_left(32) ^ Owned::<Answer>::fingerprint();
    let (mut said, mut kept) = (Vec::new(), Vec::new());
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
        if let Some(method) = call.method.filter(|method| sort == Sort::Objects && !said.contains(method)) {
            session.take_objects(method, types);
            said.push(method);
        }
        let mut heard = Heard::default();
        call.first.take().into_iter().for_each(|first| heard.hear(first));
        loop {
            known.read.store(heard.messages.len(), Ordering::SeqCst);
            if heard.end.is_some() {
                break;
            }
            heard.hear(poll_fn(|cx| call.stream.poll_incoming(cx)).await.unwrap());
        }
        let is_cut = heard.end != Some(End::HalfClosed);
        let sort = if heard.has_objects_only() { Sort::Objects } else { Sort::Encoded };
        let _ = telling.send(heard);
        if is_cut {
            continue;
        }
        say_all(&call.stream, vec![headers(Default::default()), message(answers(sort))]).await;
        let then = *known.then.lock();
        match then {
            Then::Ends => say_all(&call.stream, vec![trailers(0, Default::default())]).await,
            Then::Drains => {
                session.drain();
                let more = vec![message(answers(sort)), trailers(0, Default::default())];
                say_all(&call.stream, more).await;
            }
            Then::Cancels => call.stream.cancel(Code::Aborted as u16),
            Then::Dies => return session.close("the backend connection dies"),
            Then::Stands => {}
        }
        kept.push(call);
    }
}

/// What came of a call's answers: their numbers, and the code.
type Came = (Vec<usize>, Code);

/// A call that says a batch, and ends its request.
async fn call(lab: &Lab, sort: Sort, by: By, limit: Option<Duration>) -> Came {
    let reading = async {
        match by {
            By::World => call_of_world(lab, limit).await,
            By::Session => {
                let session = session(lab).await;
                let deadline_ns = limit.map_or(0, |limit| now_ns() + limit.as_nanos() as u64);
                let stream = open(&session, &format!("/{PROBE}/Both"), deadline_ns).await;
                send(&stream, Some(asks(sort)), Some(Ending::HalfClose)).await;
                let heard = Heard::all(None, &stream).await;
                (answered_numbers(&heard), heard.code().0)
            }
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("the call ends")
}

async fn call_of_world(lab: &Lab, limit: Option<Duration>) -> Came {
    let mut request = Request::new(tokio_stream::iter(numbers(level1_ask)));
    limit.into_iter().for_each(|limit| request.set_timeout(limit));
    let mut numbers = Vec::new();
    let mut both = match lab.client().await.both(request).await {
        Ok(both) => both.into_inner(),
        Err(status) => return (numbers, status.code()),
    };
    loop {
        match both.message().await {
            Ok(Some(answer)) => numbers.push(answer.seen_len as usize),
            Ok(None) => return (numbers, Code::Ok),
            Err(status) => return (numbers, status.code()),
        }
    }
}

/// A gateway and a backend connection, once calls go in that form.
async fn place(sort: Sort, by: By) -> (Lab, Arc<Known>, BackendConnection, mpsc::Receiver<Heard>) {
    let lab = Lab::start("").await;
    let (telling, told) = mpsc::channel();
    let (known, backend_connection) = backend_connection(&lab, sort, telling).await;
    let began = Instant::now();
    if (sort, by) == (Sort::Objects, By::Session) {
        let channel = via(&lab, "default").await;
        let mut client = ProbeClient::new(channel.clone());
        while channel.payloads().counts().sent_objects < 2 {
            let both = client.both(futures_util::stream::iter([ask(0), ask(1)])).await.unwrap();
            assert!(both.into_inner().map(Result::unwrap).count().await > 0);
            assert!(began.elapsed() < PATIENCE, "{:?}", channel.payloads());
        }
        while told.try_recv().is_ok() {}
    }
    loop {
        let came = call(&lab, sort, by, None).await;
        assert_eq!(came, (numbers(|number| number), Code::Ok), "{sort:?} {by:?}");
        if told.recv().unwrap().has_objects_only() == (sort == Sort::Objects) {
            return (lab, known, backend_connection, told);
        }
        assert!(began.elapsed() < PATIENCE, "no stream carries objects");
    }
}

/// Messages that went to the backend connection as objects, and that came from it.
async fn object_counts(lab: &Lab) -> [f64; 2] {
    [
        lab.figure(&objects::objects("default", "request", "object")).await,
        lab.figure(&objects::objects("default", "answer", "object")).await,
    ]
}

#[tokio::test]
async fn what_a_backend_connection_said_before_its_end_is_read_and_counted_by_message() {
    let (once, twice) =
        (numbers(|number| number), [numbers(|number| number), numbers(|number| number)].concat());
    let ends = [
        (Then::Ends, once.clone(), Code::Ok),
        (Then::Drains, twice, Code::Ok),
        (Then::Dies, once.clone(), Code::Unavailable),
        (Then::Stands, once.clone(), Code::DeadlineExceeded),
        (Then::Cancels, once, Code::Aborted),
    ];
    for (sort, by) in ALL {
        for (then, said, code) in &ends {
            let (lab, known, _backend_connection, told) = place(sort, by).await;
            *known.then.lock() = *then;
            // A busy machine may not get so far within the first.
            let limits = match then {
                Then::Stands => [1, 5, 25].map(|seconds| Some(Duration::from_secs(seconds))).to_vec(),
                _ => vec![None],
            };
            let row = format!("{sort:?} {by:?} {then:?}");
            let (before, mut count) = (object_counts(&lab).await, 0);
            let mut came = (Vec::new(), Code::Ok);
            for limit in limits {
                came = call(&lab, sort, by, limit).await;
                count += told.try_iter().map(|heard| heard.messages.len()).sum::<usize>();
                if came.0.len() == said.len() {
                    break;
                }
            }
            assert_eq!(came.1, *code, "{row}");
            match then {
                // CANCEL is for what is not to be read any more (spec/wire.md, section 15).
                Then::Cancels => assert!(said.starts_with(&came.0), "{row}: {} came", came.0.len()),
                _ => assert!(came.0 == *said, "{row}: {} came", came.0.len()),
            }
            let after = object_counts(&lab).await;
            let expected = match sort {
                Sort::Encoded => [0; 2],
                Sort::Objects => [count, came.0.len()],
            };
            if *then != Then::Cancels && came.0.len() == said.len() && count == COUNT {
                let counted = [after[0] - before[0], after[1] - before[1]];
                assert_eq!(counted, expected.map(|count| count as f64), "{row}");
            }
        }
    }
}

/// A program of the world's, whose death looks like a killed one's: its sockets close, and it says nothing more.
struct Program(Cell<Option<Runtime>>);

impl Program {
    fn new() -> Program {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Program(Cell::new(Some(runtime.unwrap())))
    }

    /// A channel of stock tonic that lives in this program.
    async fn channel(&self, lab: &Lab) -> Channel {
        let runtime = self.0.take().unwrap();
        let mut connecting = Box::pin(lab.channel());
        let channel = poll_fn(|cx| {
            let _entered = runtime.enter();
            connecting.as_mut().poll(cx)
        });
        let channel = channel.await;
        self.0.set(Some(runtime));
        channel
    }

    fn die(&self) {
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.die();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_leaves_in_a_batch_is_no_request_that_has_ended() {
    for (sort, by) in ALL {
        for leaves in [Leaves::Cancels, Leaves::Dies, Leaves::Waits] {
            let (lab, known, _backend_connection, told) = place(sort, by).await;
            let row = format!("{sort:?} {by:?} {leaves:?}");
            let until_read = async || {
                let began = Instant::now();
                while known.read.load(Ordering::SeqCst) < COUNT {
                    assert!(began.elapsed() < PATIENCE, "{row}: the backend connection reads");
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            // A busy machine may not get so far within the first.
            for seconds in [1, 5, 25] {
                let limit = (leaves == Leaves::Waits).then(|| Duration::from_secs(seconds));
                known.read.store(0, Ordering::SeqCst);
                // Dropped before the backend connection has heard, it would be the end of a request.
                let (more, rest) = tokio::sync::mpsc::channel(COUNT);
                let program = Program::new();
                match by {
                    By::World => {
                        for ask in numbers(level1_ask) {
                            more.send(ask).await.unwrap();
                        }
                        let stream = tokio_stream::wrappers::ReceiverStream::new(rest);
                        let mut request = Request::new(stream);
                        limit.into_iter().for_each(|limit| request.set_timeout(limit));
                        let mut client = level1::probe_client::ProbeClient::new(program.channel(&lab).await);
                        let mut call = Box::pin(client.both(request));
                        if limit.is_some() {
                            // A client of tonic's has words of its own for that.
                            let code = call.await.unwrap_err().code();
                            assert!(
                                matches!(code, Code::DeadlineExceeded | Code::Cancelled),
                                "{row}: {code:?}"
                            );
                        } else {
                            tokio::select! {
                                answer = &mut call => panic!("{row}: {answer:?}"),
                                () = until_read() => {}
                            }
                            match leaves {
                                Leaves::Dies => program.die(),
                                _ => drop(call),
                            }
                        }
                    }
                    By::Session => {
                        let session = session(&lab).await;
                        let deadline_ns = limit.map_or(0, |limit| now_ns() + limit.as_nanos() as u64);
                        let stream = open(&session, &format!("/{PROBE}/Both"), deadline_ns).await;
                        send(&stream, Some(asks(sort)), None).await;
                        if limit.is_some() {
                            let heard = tokio::time::timeout(PATIENCE, Heard::all(None, &stream)).await;
                            let code = heard.expect("the call ends").code().0;
                            assert_eq!(code, Code::DeadlineExceeded, "{row}");
                        } else {
                            until_read().await;
                            if leaves == Leaves::Dies {
                                session.close("the caller dies");
                            }
                            drop(stream);
                        }
                    }
                }
                let heard = tokio::task::block_in_place(|| told.recv_timeout(PATIENCE))
                    .expect("the backend connection hears of it");
                drop((more, program));
                assert!(
                    matches!(heard.end, Some(End::Cancelled { .. })),
                    "{row}: a request that was cut ended with {:?}",
                    heard.end
                );
                let came = asked_numbers(&heard);
                assert!(numbers(|number| number).starts_with(&came), "{row}: {} came", came.len());
                if came.len() == COUNT {
                    assert!(heard.has_objects_only() == (sort == Sort::Objects), "{row}");
                    break;
                }
                assert!(leaves == Leaves::Waits && seconds < 25, "{row}: {} came", came.len());
            }
        }
    }
}
