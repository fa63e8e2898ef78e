//! The two bodies of a call on their way through: counted, held to the limit of messages, and otherwise untouched.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tollfree::metrics::ServedCall;
use tollfree::shepherd::{Beside, Handing};
use tonic::{Code, Status};

use crate::config::{Config, Limits};
use crate::connection::Meter;
use crate::header_list;
use crate::inside::Inside;
use crate::memory::Charge;
use crate::metrics::Metrics;
use crate::monitor::{Stage, Timeline};
use crate::refusal::{Refusal, Refused};
use crate::traces::CallSpan;
use crate::workers::Place;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What both directions of a call know of it.
#[derive(Debug, Default)]
pub(crate) struct Passage {
    received_bytes: AtomicU64,
    /// Those of them that are messages.
    message_bytes: AtomicU64,
    is_too_long: AtomicBool,
    /// Its group would hold too much memory.
    is_too_much: AtomicBool,
    /// An answer has begun: nothing of the request is kept for another worker.
    is_answered: AtomicBool,
}

impl Passage {
    /// Why a call ends that brought more than it may, whatever else became of it.
    pub(crate) fn refused(&self, limits: &Limits) -> Option<Refused> {
        if self.is_too_long.load(Ordering::Relaxed) {
            let status = too_long("request", limits.message_bytes);
            return Some(Refused { why: Refusal::Message, status });
        }
        self.is_too_much.load(Ordering::Relaxed).then(too_much)
    }

    pub(crate) fn answered(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
    }

    /// A message of the request would have more bytes than it may.
    pub(crate) fn is_too_long(&self) {
        self.is_too_long.store(true, Ordering::Relaxed);
    }

    /// There is no memory for what the request holds.
    pub(crate) fn is_too_much(&self) {
        self.is_too_much.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn too_much() -> Refused {
    let status = Status::resource_exhausted(
        "the calls of this group hold as much memory as limits.memory_bytes allows; try again later",
    );
    Refused { why: Refusal::Memory, status }
}

pub(crate) fn too_long(what: &str, limit: u64) -> Status {
    Status::resource_exhausted(format!(
        "a message of the {what} is longer than the {limit} bytes that limits.message_bytes allows"
    ))
}

/// Follows gRPC's framing, to see the length that each message says.
#[derive(Debug, Default)]
struct Lengths {
    prefix: [u8; 5],
    prefix_len: usize,
    left: u64,
    /// Messages begun.
    count: u64,
    /// Bytes that were messages, and not what stands before them.
    passed: u64,
}

impl Lengths {
    /// Whether the next byte begins a message.
    fn is_between(&self) -> bool {
        self.left == 0 && self.prefix_len == 0
    }

    /// Bytes of messages since this was asked last.
    fn take_passed(&mut self) -> u64 {
        std::mem::take(&mut self.passed)
    }

    /// Whether all messages that begin in `bytes` keep to the limit.
    fn keep_to(&mut self, mut bytes: &[u8], limit: u64) -> bool {
        while !bytes.is_empty() {
            let len = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            bytes = &bytes[len..];
            self.left -= len as u64;
            self.passed += len as u64;
            let len = bytes.len().min(5 - self.prefix_len);
            self.prefix[self.prefix_len..self.prefix_len + len].copy_from_slice(&bytes[..len]);
            self.prefix_len += len;
            bytes = &bytes[len..];
            if self.prefix_len == 5 {
                let [_, len @ ..] = self.prefix;
                self.left = u32::from_be_bytes(len).into();
                self.count += 1;
                self.prefix_len = 0;
                if self.left > limit {
                    return false;
                }
            }
        }
        true
    }
}

/// A request's body.
pub(crate) struct Asked<B> {
    inner: B,
    lengths: Lengths,
    config: Arc<Config>,
    passage: Arc<Passage>,
    charge: Charge,
    /// What came of the message at hand, which goes on as a whole.
    at_hand: u64,
    beside: Option<Beside>,
}

impl<B> Asked<B> {
    pub(crate) fn new(inner: B, config: Arc<Config>, passage: Arc<Passage>, charge: Charge) -> Asked<B> {
        Asked { inner, lengths: Lengths::default(), config, passage, charge, at_hand: 0, beside: None }
    }

    /// Messages may pass beside it.
    pub(crate) fn beside(mut self, beside: Option<Beside>) -> Asked<B> {
        self.beside = beside;
        self
    }

    /// Charges what is held of the request now.
    fn charge(&mut self) -> bool {
        let received = self.passage.received_bytes.load(Ordering::Relaxed);
        let is_kept =
            received <= Handing::KEPT_LEN_MAX as u64 && !self.passage.is_answered.load(Ordering::Relaxed);
        let held = self.at_hand + if is_kept { received } else { 0 };
        self.charge.set(held, self.config.limits.memory_bytes)
    }
}

impl<B: Body<Data = Bytes, Error: Into<Error>> + Unpin> Body for Asked<B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        if this.lengths.is_between() && this.at_hand > 0 {
            // More is asked for when the message has been sent on.
            this.at_hand = 0;
            this.charge();
        }
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            let limit = this.config.limits.message_bytes;
            let first = this.lengths.count;
            let keeps = this.lengths.keep_to(data, limit);
            let beside: usize = this.beside.as_ref().map_or(0, |beside| {
                (first..this.lengths.count).filter_map(|number| beside.request_len(number)).sum()
            });
            let len = (data.len() + beside) as u64;
            this.passage.received_bytes.fetch_add(len, Ordering::Relaxed);
            let passed = this.lengths.take_passed() + beside as u64;
            this.passage.message_bytes.fetch_add(passed, Ordering::Relaxed);
            if !keeps {
                this.passage.is_too_long.store(true, Ordering::Relaxed);
                return Poll::Ready(Some(Err(too_long("request", limit).into())));
            }
            this.at_hand += len;
            if !this.charge() {
                this.passage.is_too_much.store(true, Ordering::Relaxed);
                return Poll::Ready(Some(Err(too_much().status.into())));
            }
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A call's record, from its beginning until its last byte has been handed to HTTP/2.
pub(crate) struct Record {
    pub(crate) began: Instant,
    pub(crate) timeline: Timeline,
    pub(crate) path: String,
    pub(crate) call: ServedCall,
    pub(crate) passage: Arc<Passage>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) span: Option<CallSpan>,
    pub(crate) is_served: bool,
    pub(crate) code: Option<Code>,
}

impl Record {
    fn heed(&mut self, headers: &HeaderMap) {
        if let Some(status) = headers.get("grpc-status") {
            self.code = Some(Code::from_bytes(status.as_bytes()));
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.code.is_none() {
            self.meter.was_reset();
        }
        let code = self.code.unwrap_or(Code::Cancelled);
        self.timeline.reached(Stage::Written, &self.metrics.monitor);
        if let Some(span) = &mut self.span {
            span.ended(&self.path, self.is_served, code);
        }
        if self.is_served {
            self.call.is_served();
        }
        let received = self.passage.message_bytes.load(Ordering::Relaxed);
        self.call.received(usize::try_from(received).unwrap_or(usize::MAX));
        self.call.end(code);
        self.meter.call_ended();
    }
}

/// An answer's body as it comes, held to the limits. `None` behind its end.
pub(crate) struct Limited {
    inner: Option<tonic::body::Body>,
    lengths: Lengths,
    config: Arc<Config>,
    passage: Arc<Passage>,
    metrics: Arc<Metrics>,
    /// For what was given on last.
    charge: Option<Charge>,
    beside: Option<Beside>,
}

/// What has come of such a body.
pub(crate) enum Came {
    Frame(Frame<Bytes>),
    /// The shepherd ends it, and has counted why.
    Refused(Status),
    Failed(Inside),
    End,
}

impl Limited {
    pub(crate) fn new(
        inner: tonic::body::Body,
        config: Arc<Config>,
        passage: Arc<Passage>,
        metrics: Arc<Metrics>,
    ) -> Limited {
        let lengths = Lengths::default();
        Limited { inner: Some(inner), lengths, config, passage, metrics, charge: None, beside: None }
    }

    /// What is held of it is charged so.
    pub(crate) fn charged(mut self, charge: Charge) -> Limited {
        self.charge = Some(charge);
        self
    }

    /// Messages may pass beside it.
    pub(crate) fn beside(mut self, beside: Option<Beside>) -> Limited {
        self.beside = beside;
        self
    }

    fn end(&mut self) {
        self.inner = None;
        self.charge = None;
    }

    fn refuse(&mut self, refused: Refused) -> Poll<Came> {
        self.metrics.refused(refused.why);
        self.end();
        Poll::Ready(Came::Refused(refused.status))
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Came> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(Came::End) };
        let limits = &self.config.limits;
        if let Some(charge) = &mut self.charge {
            charge.set(0, limits.memory_bytes);
        }
        let frame = ready!(Pin::new(inner).poll_frame(cx));
        let goes_on = |frame: &Result<Frame<Bytes>, Status>| frame.as_ref().is_ok_and(Frame::is_data);
        if !frame.as_ref().is_some_and(goes_on)
            && let Some(refused) = self.passage.refused(limits)
        {
            return self.refuse(refused);
        }
        match frame {
            Some(Ok(frame)) => {
                let Some(data) = frame.data_ref() else {
                    self.end();
                    return Poll::Ready(Came::Frame(frame));
                };
                let first = self.lengths.count;
                if !self.lengths.keep_to(data, limits.message_bytes) {
                    let status = too_long("answer", limits.message_bytes);
                    return self.refuse(Refused { why: Refusal::Message, status });
                }
                let beside = self.beside.as_ref().map_or(0, |beside| {
                    (first..self.lengths.count).filter_map(|number| beside.answer_len(number)).sum()
                });
                let held = (data.len() + beside) as u64;
                if let Some(charge) = &mut self.charge
                    && !charge.set(held, limits.memory_bytes)
                {
                    return self.refuse(too_much());
                }
                Poll::Ready(Came::Frame(frame))
            }
            Some(Err(status)) => {
                self.end();
                Poll::Ready(Came::Failed(status.into()))
            }
            None => {
                self.end();
                Poll::Ready(Came::End)
            }
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

/// An answer's body for the world. A stream that breaks ends with its status in trailers, as gRPC's clients want it.
pub(crate) struct Answer {
    body: Limited,
    record: Record,
    /// The call's place at a worker, until the answer is complete.
    place: Option<Place>,
}

impl Answer {
    pub(crate) fn new(
        inner: tonic::body::Body,
        config: Arc<Config>,
        mut record: Record,
        headers: &HeaderMap,
    ) -> Answer {
        record.heed(headers);
        let body = Limited::new(inner, config, record.passage.clone(), record.metrics.clone());
        Answer { body, record, place: None }
    }

    /// An answer that a worker gives.
    pub(crate) fn at(mut self, place: Place) -> Answer {
        self.body = self.body.charged(place.charge());
        self.place = Some(place);
        self
    }

    /// Ends here, with a status of the shepherd's own.
    fn end(&mut self, status: &Status) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut trailers = HeaderMap::new();
        // A status that can't be written would leave the trailers empty: the client then sees UNKNOWN.
        _ = status.add_header(&mut trailers);
        self.place = None;
        self.record.code = Some(status.code());
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let came = ready!(this.body.poll(cx));
        this.record.call.sent(this.body.lengths.take_passed() as usize);
        match came {
            Came::Frame(mut frame) => {
                if let Some(trailers) = frame.trailers_mut() {
                    tollfree::shepherd::remove_ours(trailers);
                    let max = this.record.meter.header_list_max(this.body.config.limits.header_bytes);
                    if let Err(status) = header_list::check(trailers, max) {
                        this.record.metrics.refused_call(
                            Refusal::AnswerHeaders,
                            &this.record.path,
                            status.message(),
                        );
                        return this.end(&status);
                    }
                    this.record.heed(trailers);
                    this.place = None;
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Came::Refused(status) => this.end(&status),
            Came::Failed(inside) => {
                let group = this.place.as_ref().map_or("", Place::group);
                let status = inside.told(group, &this.record.path);
                this.end(&status)
            }
            Came::End => {
                this.place = None;
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_seen_however_the_bytes_are_cut() {
        let mut stream = Vec::new();
        for len in [0_u32, 3, 300] {
            stream.push(0);
            stream.extend_from_slice(&len.to_be_bytes());
            stream.extend(std::iter::repeat_n(7, len as usize));
        }
        for step in 1..20 {
            let all = |limit| {
                let mut lengths = Lengths::default();
                stream.chunks(step).all(|piece| lengths.keep_to(piece, limit))
            };
            assert!(all(300) && !all(299), "in pieces of {step}");
        }
    }
}
