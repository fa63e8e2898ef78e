//! Endings that race: however a cancellation or a deadline meets the reply, a call ends once, on either side.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::stubs::probe::{Ask, Fault};
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Request, Response};
use http_body::{Body as _, Frame};
use prost::Message as _;
use tokio::sync::oneshot;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::Service as _;

use super::lab::{Lab, Way, until};

const ROUND_COUNT: u64 = 150;
/// Every so many rounds the reply has time to win, whatever the machine does.
const PATIENT: u64 = 10;

/// A request's one message, and then its end: never, or broken off when the sender says so.
struct Asking {
    message: Option<Bytes>,
    cancelled: Option<oneshot::Receiver<()>>,
}

impl http_body::Body for Asking {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(message) = self.message.take() {
            return Poll::Ready(Some(Ok(Frame::data(message))));
        }
        match self.cancelled.as_mut().map(|cancelled| Pin::new(cancelled).poll(cx)) {
            Some(Poll::Ready(_)) => {
                self.cancelled = None;
                Poll::Ready(Some(Err(Status::cancelled("by the test"))))
            }
            _ => Poll::Pending,
        }
    }
}

/// A call of `Both`, which reads on after its answers: only its fault or its client ends it.
fn request(ask: &Ask, timeout: Option<Duration>, cancelled: Option<oneshot::Receiver<()>>) -> Request<Body> {
    let mut message = BytesMut::new();
    message.put_u8(0);
    message.put_u32(ask.encoded_len() as u32);
    ask.encode(&mut message).unwrap();
    let mut request = Request::post("http://localhost/tollfree.probe.v1.Probe/Both")
        .version(http::Version::HTTP_2)
        .header("te", "trailers")
        .header("content-type", "application/grpc");
    if let Some(timeout) = timeout {
        request = request.header("grpc-timeout", format!("{}u", timeout.as_micros()));
    }
    request.body(Body::new(Asking { message: Some(message.freeze()), cancelled })).unwrap()
}

/// All endings that a call shows, though the first should be the last.
async fn endings(way: Way, outcome: Result<Response<Body>, Status>) -> Vec<Code> {
    let mut endings = Vec::new();
    let code = |headers: &http::HeaderMap| Status::from_header_map(headers).map(|status| status.code());
    let mut body = match outcome {
        Ok(response) => {
            endings.extend(code(response.headers()));
            response.into_body()
        }
        Err(status) => return vec![status.code()],
    };
    // A body that repeats its end without end is caught, too.
    while endings.len() < 5
        && let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await
    {
        match frame {
            Ok(frame) => endings.extend(frame.trailers_ref().map(|trailers| code(trailers).unwrap())),
            Err(status) => {
                endings.push(status.code());
                // hyper's body says so again and again; nobody should ask.
                if !way.is_ours() {
                    break;
                }
            }
        }
    }
    endings
}

fn to_status(error: Box<dyn std::error::Error + Send + Sync>) -> Status {
    Status::from_error(error)
}

/// Rounds that race by other distances each; how often each ending won.
async fn rounds(way: Way, lab: &Lab, deadline: bool) -> BTreeMap<String, usize> {
    let fault = Some(Fault { code: Code::FailedPrecondition as i32, ..Fault::default() });
    let mut won = BTreeMap::new();
    // What the last reply took that had time enough: a cancellation has to be about as long on its way.
    let mut usual = Duration::ZERO;
    for round in 0..ROUND_COUNT {
        let is_patient = round % PATIENT == 0;
        let distance = match is_patient {
            true => Duration::from_millis(200),
            false if deadline => Duration::from_micros(round * 37 % 1500),
            false => usual * (round % PATIENT - 1) as u32 / (PATIENT / 2) as u32,
        };
        let ask = Ask { lens: vec![10; (round % 3) as usize], fault: fault.clone(), ..Ask::default() };
        let (cancel, cancelled) = oneshot::channel();
        let (timeout, cancelled) = if deadline { (Some(distance), None) } else { (None, Some(cancelled)) };
        let canceller = tokio::spawn(async move {
            // A server's reply wins against one that waits in the kernel: that timer has a millisecond's grain.
            let began = std::time::Instant::now();
            while began.elapsed() < distance && !is_patient {
                tokio::task::yield_now().await;
            }
            if is_patient {
                tokio::time::sleep(distance).await;
            }
            let _ = cancel.send(());
        });
        let mut channel = lab.channel.clone();
        poll_fn(|cx| channel.poll_ready(cx)).await.unwrap();
        let began = std::time::Instant::now();
        let outcome = channel.call(request(&ask, timeout, cancelled)).await.map_err(to_status);
        let endings = endings(way, outcome).await;
        if is_patient {
            usual = began.elapsed();
        }
        canceller.abort();
        let ending = match endings[..] {
            [ending] => format!("{ending:?}"),
            // Over HTTP/2 a reply that broke off was seen to end without a word.
            [] if !way.is_ours() => "none".to_owned(),
            // Or to be followed by what hyper says of a reset that came behind it.
            [ending, Code::Internal | Code::Cancelled] if !way.is_ours() => format!("{ending:?}"),
            _ => panic!("round {round}: one ending, not {endings:?}"),
        };
        *won.entry(ending).or_default() += 1;
    }
    won
}

async fn a_cancellation_that_races_the_reply_ends_the_call_once(way: Way) {
    let lab = Lab::start(way).await;
    let won = rounds(way, &lab, false).await;
    let replies = won.get("FailedPrecondition").copied().unwrap_or(0);
    // Over HTTP/2 a request that breaks off is INTERNAL.
    let cancelled = won.get(if way.is_ours() { "Cancelled" } else { "Internal" }).copied().unwrap_or(0);
    assert!(replies > 0 && cancelled > 0, "both have won: {won:?}");
    if way.is_ours() {
        assert_eq!(replies + cancelled, ROUND_COUNT as usize, "and nobody else: {won:?}");
    }
    until("no handler is left", || lab.witness.live() == 0).await;
    assert!(lab.client().unary(Ask::default()).await.is_ok(), "the session lives");
}

async fn a_deadline_that_races_the_reply_ends_the_call_once(way: Way) {
    let lab = Lab::start(way).await;
    let won = rounds(way, &lab, true).await;
    let replies = won.get("FailedPrecondition").copied().unwrap_or(0);
    assert!(replies > 0, "with time enough: {won:?}");
    if way.is_ours() {
        let late = won.get("DeadlineExceeded").copied().unwrap_or(0);
        assert_eq!(replies + late, ROUND_COUNT as usize, "and nobody else: {won:?}");
        assert!(late > 0, "no time at all is in among them: {won:?}");
    }
    until("no handler is left", || lab.witness.live() == 0).await;
    assert!(lab.client().unary(Ask::default()).await.is_ok(), "the session lives");
}

crate::rows!(
    a_cancellation_that_races_the_reply_ends_the_call_once,
    a_deadline_that_races_the_reply_ends_the_call_once,
);
