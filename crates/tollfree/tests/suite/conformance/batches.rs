//! What happens to a stream in the middle of a batch: short messages that were at hand together, of which some are read and the rest
//! is not.

use std::time::Duration;

use crate::stubs::probe::probe_client::ProbeClient;
use crate::stubs::probe::{Answer, Ask, Fault};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tonic::{Code, Request, Status, Streaming};

use super::carrier::{AnyChannel, IS_HTTP2};
use super::lab::{Lab, Way, until};
use super::probe::pattern;

/// Messages of a batch: a few records' worth.
const COUNT: usize = 100;
/// So many of them are read before something happens.
const READ: usize = 3;
const LEN: u32 = 10;
/// As often as an end is provoked: more than there are places at a server.
const ROUNDS: usize = 12;
const PLACES: u32 = 4;

/// Whether a client of HTTP/2 makes the calls. That one has no deadline behind an answer's head where it is tonic's own, and does not
/// end a request whose answer is dropped.
fn is_http2(way: Way) -> bool {
    IS_HTTP2 || !way.is_ours()
}

/// Tasks of this runtime that are not over.
fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// A server with few places for calls, where a call that left its place taken would be noticed.
async fn lab(way: Way) -> Lab {
    let server = tollfree::Server::builder();
    let is_behind_gateway = matches!(way, Way::BehindGateway | Way::Streamed);
    let server = if is_behind_gateway { server } else { server.concurrency_limit(PLACES) };
    let lab = Lab::with(way, server, |probe| probe).await;
    lab.client().unary(Ask::default()).await.unwrap();
    lab
}

/// Asks for so many answers, all at hand.
fn answers(count: usize) -> Ask {
    Ask { lens: vec![LEN; count], ..Ask::default() }
}

/// A request of so many asks, all at hand. The third of them is like `third`.
fn asks(count: usize, third: Ask) -> Vec<Ask> {
    let mut asks = vec![Ask { body: vec![7; LEN as usize], ..Ask::default() }; count];
    asks[READ - 1] = third;
    asks
}

/// Reads so many answers, which must be those from `number` on.
async fn read(answers: &mut Streaming<Answer>, number: usize, count: usize) -> Result<(), Status> {
    for number in number..number + count {
        let answer = answers.message().await?.expect("there are more");
        assert!(answer.body == pattern(LEN as usize, number as u32), "answer {number} comes in its turn");
    }
    Ok(())
}

/// The same up to the end, which is an error. Says how many came, and the error.
async fn read_to_error(answers: &mut Streaming<Answer>, number: usize) -> (usize, Status) {
    for count in 0.. {
        if let Err(status) = read(answers, number + count, 1).await {
            return (count, status);
        }
    }
    unreachable!("a stream ends")
}

/// A call of a method that waits for its turn where all places are taken for a moment yet.
async fn another_call(client: &mut ProbeClient<AnyChannel>) {
    for _ in 0..2000 {
        match client.unary(Ask::default()).await {
            Ok(_) => return,
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("a place of an ended call stays taken");
}

async fn nothing_is_left(lab: &Lab, before: usize) {
    until("no handler is left", || lab.witness.live() == 0).await;
    until("no task is left", || alive() <= before).await;
    another_call(&mut lab.client()).await;
}

/// DRAIN lets each stream that is under way come to its end.
async fn a_stream_goes_on_when_its_server_stops_in_a_batch(way: Way) {
    let mut lab = Lab::start(way).await;
    let mut client = lab.client();
    // More answers than anybody has credit for at once.
    let mut down = client.down(answers(50 * COUNT)).await.unwrap().into_inner();
    let (more, rest) = mpsc::channel(COUNT);
    more.send(answers(COUNT)).await.unwrap();
    let mut both = client.both(ReceiverStream::new(rest)).await.unwrap().into_inner();
    for stream in [&mut down, &mut both] {
        read(stream, 0, READ).await.unwrap();
    }
    let slow = asks(COUNT, Ask { wait_ms: 100, ..Ask::default() });
    let up = {
        let mut client = client.clone();
        tokio::spawn(async move { client.up(tokio_stream::iter(slow)).await })
    };
    until("the handler is in the middle of its request", || lab.witness.read() > READ).await;
    lab.begin_stop();
    // Sessions of ours say so at once; HTTP/2 takes what is on its way.
    if !is_http2(way) {
        let began = std::time::Instant::now();
        let refused = loop {
            match client.unary(Ask::default()).await {
                Ok(_) => assert!(began.elapsed() < Duration::from_secs(30), "calls go on"),
                Err(status) => break status,
            }
        };
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    }
    read(&mut both, READ, COUNT - READ).await.unwrap();
    read(&mut down, READ, 50 * COUNT - READ).await.unwrap();
    assert!(down.message().await.unwrap().is_none(), "it ends well");
    // Batches both ways, though no new call is taken.
    for _ in 0..COUNT {
        more.send(Ask { lens: vec![LEN], ..Ask::default() }).await.unwrap();
    }
    drop(more);
    for _ in 0..COUNT {
        read(&mut both, 0, 1).await.unwrap();
    }
    assert!(both.message().await.unwrap().is_none(), "it ends well");
    assert_eq!(up.await.unwrap().unwrap().into_inner().seen_count as usize, COUNT);
    lab.stopped().await;
}

async fn a_stream_that_is_dropped_in_a_batch_leaves_nothing(way: Way) {
    let lab = lab(way).await;
    let before = alive();
    let mut client = lab.client();
    for _ in 0..ROUNDS {
        let mut down = client.down(answers(1000 * COUNT)).await.unwrap().into_inner();
        read(&mut down, 0, READ).await.unwrap();
        assert_eq!(lab.witness.live(), 1, "the handler has more to say");
        drop(down);
        nothing_is_left(&lab, before).await;

        let (more, rest) = mpsc::channel(COUNT);
        more.send(answers(COUNT)).await.unwrap();
        let mut both = client.both(ReceiverStream::new(rest)).await.unwrap().into_inner();
        read(&mut both, 0, READ).await.unwrap();
        assert_eq!(lab.witness.live(), 1, "the handler waits for more");
        drop(both);
        if is_http2(way) {
            drop(more);
        } else {
            until("the request's source is dropped", || more.is_closed()).await;
        }
        nothing_is_left(&lab, before).await;

        let read = lab.witness.read();
        let slow = asks(COUNT, Ask { wait_ms: 60_000, ..Ask::default() });
        tokio::select! {
            _ = client.up(tokio_stream::iter(slow)) => panic!("the handler waits"),
            () = until("the handler has read some", || lab.witness.read() == read + READ) => {}
        }
        nothing_is_left(&lab, before).await;
        assert_eq!(lab.witness.read(), read + READ, "nobody reads on");
    }
}

async fn a_deadline_in_a_batch_comes_behind_what_came_in_time(way: Way) {
    if !way.is_ours() {
        return;
    }
    fn within<T>(message: T, limit: Duration) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(limit);
        request
    }
    let lab = lab(way).await;
    let before = alive();
    let mut client = lab.client();
    // A busy machine may not get so far within the first.
    for millis in [300, 3_000, 30_000] {
        let limit = Duration::from_millis(millis);
        let (more, rest) = mpsc::channel(COUNT);
        more.send(answers(COUNT)).await.unwrap();
        let Ok(both) = client.both(within(ReceiverStream::new(rest), limit)).await else { continue };
        let mut both = both.into_inner();
        // What came is at hand when the deadline passes.
        if read(&mut both, 0, READ).await.is_err() {
            continue;
        }
        until("the deadline ends the handler", || lab.witness.live() == 0).await;
        let (count, status) = read_to_error(&mut both, READ).await;
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert!(is_http2(way) || count == COUNT - READ, "{count} of those that came are given");
        drop(both);
        until("the request's source is dropped", || more.is_closed() || is_http2(way)).await;
        drop(more);
        nothing_is_left(&lab, before).await;

        let Ok(down) = client.down(within(answers(1000 * COUNT), limit)).await else { continue };
        let mut down = down.into_inner();
        if read(&mut down, 0, READ).await.is_err() {
            continue;
        }
        until("the deadline ends the handler", || lab.witness.live() == 0).await;
        let (count, status) = read_to_error(&mut down, READ).await;
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert!(is_http2(way) || count >= COUNT - READ, "{count} of those that came are given");
        nothing_is_left(&lab, before).await;

        let read = lab.witness.read();
        let slow = asks(COUNT, Ask { wait_ms: 60_000, ..Ask::default() });
        let status = client.up(within(tokio_stream::iter(slow), limit)).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        nothing_is_left(&lab, before).await;
        if lab.witness.read() == read + READ {
            return;
        }
    }
    panic!("nothing comes in time, however much there is");
}

/// Nobody reads the rest of a batch: its stream holds no more than its credit, and is in nobody's way.
async fn a_client_that_reads_no_further_in_a_batch_is_in_nobodys_way(way: Way) {
    const LONG: usize = 1000;
    let lab = Lab::start(way).await;
    let mut client = lab.client();
    client.unary(Ask::default()).await.unwrap();
    let before = alive();
    let (more, rest) = mpsc::unbounded_channel();
    let mut request = Request::new(UnboundedReceiverStream::new(rest));
    // The handler reads on while it answers what it has read first.
    request.metadata_mut().insert("x-apart", "1".parse().unwrap());
    more.send(Ask { lens: vec![LONG as u32; 100 * LONG], ..Ask::default() }).unwrap();
    let mut unread = client.both(request).await.unwrap().into_inner();
    for _ in 0..READ {
        assert_eq!(unread.message().await.unwrap().unwrap().body.len(), LONG);
    }
    for round in 1..=20 {
        for _ in 0..COUNT {
            more.send(Ask { body: vec![7; LONG], ..Ask::default() }).unwrap();
        }
        until("its own request goes on", || lab.witness.read() > round * COUNT).await;
        let mut other = client.down(answers(COUNT)).await.unwrap().into_inner();
        read(&mut other, 0, COUNT).await.unwrap();
        assert!(other.message().await.unwrap().is_none());
        assert_eq!(client.unary(Ask::default()).await.unwrap().into_inner().seen_count, 1);
    }
    let sent = (lab.witness.sent() - 20 * COUNT) * LONG;
    // At each hop the most that a stream's window is raised to, and what is in tonic's hands.
    let bound = if is_http2(way) || way == Way::BehindGateway { 8 << 20 } else { 2 << 20 };
    assert!(sent < bound, "{sent} bytes are under way to somebody who does not read");
    drop((unread, more));
    nothing_is_left(&lab, before).await;
}

/// A handler that has heard enough: its word comes, and what is left of the batch is nobody's.
async fn a_handler_that_ends_its_stream_in_a_batch_is_heard(way: Way) {
    let lab = lab(way).await;
    let before = alive();
    let mut client = lab.client();
    for round in 0..ROUNDS {
        let (read, fault) =
            (lab.witness.read(), Fault { code: 3, message: "bad".into(), ..Fault::default() });
        let bad = Ask { fault: Some(fault), ..Ask::default() };
        let ends =
            |status: Status| assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "bad"));
        ends(client.up(tokio_stream::iter(asks(COUNT, bad.clone()))).await.unwrap_err());
        let enough = Ask { early: true, ..Ask::default() };
        let answer = client.up(tokio_stream::iter(asks(COUNT, enough))).await.unwrap().into_inner();
        assert_eq!(answer.seen_count as usize, READ);
        // The request may go on, or have ended with the batch.
        let (more, rest) = mpsc::channel(COUNT);
        for ask in asks(COUNT, bad) {
            more.send(ask).await.unwrap();
        }
        let (kept, rest) = (if round % 2 == 0 { Some(more) } else { None }, ReceiverStream::new(rest));
        let mut both = client.both(rest).await.unwrap().into_inner();
        for number in 1..READ {
            assert_eq!(both.message().await.unwrap().unwrap().seen_count as usize, number);
        }
        ends(both.message().await.unwrap_err());
        drop(both);
        until("the request's source is dropped", || kept.as_ref().is_none_or(mpsc::Sender::is_closed)).await;
        nothing_is_left(&lab, before).await;
        assert_eq!(lab.witness.read(), read + 3 * READ, "nobody reads on");
    }
}

async fn a_request_may_end_with_its_last_batch(way: Way) {
    let lab = lab(way).await;
    let before = alive();
    let mut client = lab.client();
    for count in [READ, COUNT, 10 * COUNT] {
        let asks = || tokio_stream::iter(asks(count, Ask::default()));
        let answer = client.up(asks()).await.unwrap().into_inner();
        assert_eq!(answer.seen_count as usize, count);
        let mut both = client.both(asks()).await.unwrap().into_inner();
        for number in 1..=count {
            assert_eq!(both.message().await.unwrap().unwrap().seen_count as usize, number);
        }
        assert!(both.message().await.unwrap().is_none());
        assert!(lab.witness.ends().iter().all(Option::is_none), "all requests came to their end");
        nothing_is_left(&lab, before).await;
    }
}

crate::rows!(
    a_stream_goes_on_when_its_server_stops_in_a_batch,
    a_stream_that_is_dropped_in_a_batch_leaves_nothing,
    a_deadline_in_a_batch_comes_behind_what_came_in_time,
    a_client_that_reads_no_further_in_a_batch_is_in_nobodys_way,
    a_handler_that_ends_its_stream_in_a_batch_is_heard,
    a_request_may_end_with_its_last_batch,
);
