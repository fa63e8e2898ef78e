//! Request streams that are cut: a handler never takes half a request for a whole one.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status};

use super::carrier::IS_HTTP2;
use super::lab::{Lab, Way, until};
use crate::stubs::probe::Ask;

/// A kind of call whose request is a stream.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Up,
    Both,
}

const KINDS: [Kind; 2] = [Kind::Up, Kind::Both];

/// Those whose client ends them when it drops the call, or its deadline has passed. hyper's client does neither behind an answer's
/// head, while the request goes on.
fn given_up(way: Way) -> &'static [Kind] {
    if is_http2(way) { &KINDS[..1] } else { &KINDS }
}

/// As often as the handler and the end of its call race each other.
const ROUNDS: usize = 10;

/// Whether its client is HTTP/2's.
fn is_http2(way: Way) -> bool {
    IS_HTTP2 || !way.is_ours()
}

/// A call, to be polled until its outcome is there.
fn call(
    lab: &Lab,
    kind: Kind,
    request: Request<ReceiverStream<Ask>>,
) -> BoxFuture<'static, Result<(), Status>> {
    let mut client = lab.client();
    match kind {
        Kind::Up => async move { client.up(request).await.map(drop) }.boxed(),
        Kind::Both => async move {
            let mut answers = client.both(request).await?.into_inner();
            while answers.message().await?.is_some() {}
            Ok(())
        }
        .boxed(),
    }
}

/// A request that goes on for as long as something is sent to it, with three asks in it; `aside` has a task of its own read it.
async fn request(aside: bool) -> (mpsc::Sender<Ask>, Request<ReceiverStream<Ask>>) {
    let (sender, receiver) = mpsc::channel(4);
    for _ in 0..3 {
        sender.send(Ask { body: vec![1; 100], ..Ask::default() }).await.unwrap();
    }
    let mut request = Request::new(ReceiverStream::new(receiver));
    if aside {
        request.metadata_mut().insert("x-aside", "1".parse().unwrap());
    }
    (sender, request)
}

/// The end that a task has read which reads a request aside.
async fn end(lab: &Lab, count: usize) -> Option<Code> {
    until("the end is read", || lab.witness.ends().len() > count).await;
    until("no handler is left", || lab.witness.live() == 0).await;
    let ends = lab.witness.ends();
    assert_eq!(ends.len(), count + 1, "an end comes once");
    ends[count]
}

async fn a_request_that_its_client_ends_is_complete(way: Way) {
    let lab = Lab::start(way).await;
    let mut count = 0;
    for kind in KINDS {
        for aside in [false, true] {
            let (sender, request) = request(aside).await;
            drop(sender);
            call(&lab, kind, request).await.unwrap();
            assert_eq!(end(&lab, count).await, None, "{kind:?}");
            count += 1;
        }
    }
    assert_eq!(lab.witness.read(), 3 * count);
}

async fn a_request_whose_call_is_dropped_is_an_error(way: Way) {
    let lab = Lab::start(way).await;
    for (count, &kind) in given_up(way).iter().enumerate() {
        let (sender, request) = request(true).await;
        let read = lab.witness.read();
        tokio::select! {
            _ = call(&lab, kind, request) => panic!("its request has not ended"),
            () = until("the handler reads", || lab.witness.read() >= read + 3) => {}
        }
        // tonic takes CANCELLED for an end, so handlers read ABORTED.
        assert_eq!(end(&lab, count).await, Some(Code::Aborted), "{kind:?}");
        drop(sender);
    }
}

async fn a_request_that_fails_at_its_client_is_an_error(way: Way) {
    let lab = Lab::start(way).await;
    for (count, kind) in KINDS.into_iter().enumerate() {
        let (sender, mut request) = request(true).await;
        let cancel = request.cancellation_handle();
        let calling = tokio::spawn(call(&lab, kind, request));
        until("the handler reads", || lab.witness.read() == (count + 1) * 3).await;
        cancel.cancel();
        assert_eq!(calling.await.unwrap().unwrap_err().code(), Code::Cancelled);
        let end = end(&lab, count).await.expect("not complete");
        // hyper's client resets such a request with INTERNAL_ERROR.
        let is_known = end == Code::Aborted || end == Code::Internal && is_http2(way);
        assert!(is_known, "{kind:?}: {end:?}");
        drop(sender);
    }
}

async fn a_request_that_is_cut_by_its_deadline_is_an_error(way: Way) {
    let lab = Lab::start(way).await;
    for (count, &kind) in given_up(way).iter().enumerate() {
        let (sender, mut request) = request(true).await;
        // A busy machine takes its time to begin a handler, too.
        request.set_timeout(Duration::from_secs(1));
        // Over HTTP/2 a handler that has read of it may get an answer out before its client's clock rings.
        let called = call(&lab, kind, request).await;
        assert!(called.is_err() || is_http2(way), "{kind:?}");
        let end = end(&lab, count).await.expect("not complete");
        // Each hop counts the time anew, so the client's clock may ring first: then it cancels.
        let is_direct = !is_http2(way) && way != Way::BehindGateway;
        let is_known = end == Code::DeadlineExceeded || end == Code::Aborted && !is_direct;
        assert!(is_known, "{kind:?}: {end:?}");
        drop(sender);
    }
}

/// A handler that reads by itself is dropped, or reads an error first; it is never given an end.
async fn a_handler_is_given_no_end_that_its_client_did_not_send(way: Way) {
    let lab = Lab::start(way).await;
    for &kind in given_up(way) {
        for round in 0..ROUNDS {
            let (sender, mut request) = request(false).await;
            let read = lab.witness.read();
            if round % 2 == 0 {
                request.set_timeout(Duration::from_millis(20));
                call(&lab, kind, request).await.unwrap_err();
            } else {
                tokio::select! {
                    _ = call(&lab, kind, request) => panic!("its request has not ended"),
                    () = until("the handler reads", || lab.witness.read() >= read + 3) => {}
                }
            }
            until("the handler is dropped", || lab.witness.live() == 0).await;
            drop(sender);
        }
    }
    let ends = lab.witness.ends();
    assert!(ends.iter().all(Option::is_some), "{ends:?}");
    assert!(lab.client().unary(Ask::default()).await.is_ok(), "others go on");
}

/// A handler that answers before it has read everything, and reads on aside.
async fn what_is_left_of_a_request_that_was_answered_is_no_end(way: Way) {
    let lab = Lab::start(way).await;
    let (sender, mut request) = request(false).await;
    request.metadata_mut().insert("x-early", "1".parse().unwrap());
    call(&lab, Kind::Up, request).await.unwrap();
    drop(sender);
    until("the end is read", || lab.witness.ends().len() == 1).await;
    // Over HTTP/2 the client may still end its request, and does.
    let end = lab.witness.ends()[0];
    assert!(end.is_some() || is_http2(way), "{end:?}");
}

crate::rows!(
    a_request_that_its_client_ends_is_complete,
    a_request_whose_call_is_dropped_is_an_error,
    a_request_that_fails_at_its_client_is_an_error,
    a_request_that_is_cut_by_its_deadline_is_an_error,
    a_handler_is_given_no_end_that_its_client_did_not_send,
    what_is_left_of_a_request_that_was_answered_is_no_end,
);
