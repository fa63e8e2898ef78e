//! The two bodies of a call on their way through: counted, held to the limit of messages, and otherwise untouched.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tonic::{Code, Status};

use crate::connection::Meter;
use crate::metrics::{Metrics, Tally};
use crate::refusal::Refusal;
use crate::traces::CallSpan;
use crate::workers::Place;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What both directions of a call know of it.
#[derive(Debug, Default)]
pub(crate) struct Passage {
    received_bytes: AtomicU64,
    is_too_long: AtomicBool,
}

impl Passage {
    /// The status of a call that brought a message too long, whatever else became of it.
    pub(crate) fn refused(&self, limit: u64) -> Option<Status> {
        self.is_too_long.load(Ordering::Relaxed).then(|| too_long("request", limit))
    }
}

fn too_long(what: &str, limit: u64) -> Status {
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
}

impl Lengths {
    /// Whether all messages that begin in `bytes` keep to the limit.
    fn keep_to(&mut self, mut bytes: &[u8], limit: u64) -> bool {
        while !bytes.is_empty() {
            let len = bytes.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            bytes = &bytes[len..];
            self.left -= len as u64;
            let len = bytes.len().min(5 - self.prefix_len);
            self.prefix[self.prefix_len..self.prefix_len + len].copy_from_slice(&bytes[..len]);
            self.prefix_len += len;
            bytes = &bytes[len..];
            if self.prefix_len == 5 {
                let [_, len @ ..] = self.prefix;
                self.left = u32::from_be_bytes(len).into();
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
    limit: u64,
    passage: Arc<Passage>,
}

impl<B> Asked<B> {
    pub(crate) fn new(inner: B, limit: u64, passage: Arc<Passage>) -> Asked<B> {
        Asked { inner, lengths: Lengths::default(), limit, passage }
    }
}

impl<B: Body<Data = Bytes, Error: Into<Error>> + Unpin> Body for Asked<B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(cx));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            this.passage.received_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
            if !this.lengths.keep_to(data, this.limit) {
                this.passage.is_too_long.store(true, Ordering::Relaxed);
                return Poll::Ready(Some(Err(too_long("request", this.limit).into())));
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
    pub(crate) path: String,
    pub(crate) label: Arc<str>,
    pub(crate) passage: Arc<Passage>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) meter: Arc<Meter>,
    pub(crate) span: Option<CallSpan>,
    pub(crate) is_served: bool,
    pub(crate) code: Option<Code>,
    pub(crate) sent_bytes: u64,
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
        if let Some(span) = &mut self.span {
            span.ended(&self.path, self.is_served, code);
        }
        let tally = Tally {
            code,
            is_served: self.is_served,
            duration: self.began.elapsed(),
            sent_bytes: self.sent_bytes,
            received_bytes: self.passage.received_bytes.load(Ordering::Relaxed),
        };
        self.metrics.ended(&self.path, self.label.clone(), &tally);
        self.meter.call_ended();
    }
}

/// An answer's body. A stream that breaks ends with its status in trailers, as gRPC's clients want it.
pub(crate) struct Answer {
    inner: Option<tonic::body::Body>,
    lengths: Lengths,
    limit: u64,
    record: Record,
    /// The call's place at a worker, until the answer is complete.
    place: Option<Place>,
}

impl Answer {
    pub(crate) fn new(
        inner: tonic::body::Body,
        limit: u64,
        mut record: Record,
        headers: &HeaderMap,
    ) -> Answer {
        record.heed(headers);
        Answer { inner: Some(inner), lengths: Lengths::default(), limit, record, place: None }
    }

    /// An answer that a worker gives.
    pub(crate) fn at(mut self, place: Place) -> Answer {
        self.place = Some(place);
        self
    }

    /// Ends here, with a status of the shepherd's own.
    fn end(&mut self, status: &Status) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut trailers = HeaderMap::new();
        // A status that can't be written would leave the trailers empty: the client then sees UNKNOWN.
        _ = status.add_header(&mut trailers);
        self.inner = None;
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
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(inner).poll_frame(cx));
        let ends = frame.as_ref().is_none_or(|frame| frame.as_ref().is_ok_and(Frame::is_trailers));
        if let Some(status) =
            this.record.passage.refused(this.limit).filter(|_| ends || matches!(frame, Some(Err(_))))
        {
            this.record.metrics.refused(Refusal::Message);
            return this.end(&status);
        }
        match frame {
            Some(Ok(mut frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.record.sent_bytes += data.len() as u64;
                    if !this.lengths.keep_to(data, this.limit) {
                        this.record.metrics.refused(Refusal::Message);
                        return this.end(&too_long("answer", this.limit));
                    }
                } else if let Some(trailers) = frame.trailers_mut() {
                    crate::client::remove_ours(trailers);
                    this.record.heed(trailers);
                    this.place = None;
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(status)) => {
                let status = crate::gateway::for_the_world(status);
                this.end(&status)
            }
            None => {
                this.place = None;
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
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
