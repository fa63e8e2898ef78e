//! The two bodies of a call on their way through: counted, held to the limit of messages, and otherwise untouched.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Instant, SystemTime};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tollfree::gateway::{Dispatch, Holdings, OutOfBandMessages, header_list};
use tollfree::metrics::ServedCall;
use tonic::{Code, Status};

use crate::access_line::AccessEntry;
use crate::access_log::AccessLog;
use crate::arrival::Pace;
use crate::backend_connection::BackendConnection;
use crate::backend_connections::Place;
use crate::client::Client;
use crate::config::{Config, Limits};
use crate::connection::Meter;
use crate::deadline;
use crate::inside::Inside;
use crate::memory::Charge;
use crate::metrics::Metrics;
use crate::monitor::{Stage, Timeline};
use crate::policy::Admission;
use crate::refusal::{Refusal, Refused};
use crate::shares::Stake;
use crate::traces::CallSpan;
use crate::unread::{PIECE_LEN, UnreadAnswer, asked};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What both directions of a call know of it.
#[derive(Debug)]
pub(crate) struct Passage {
    client: Arc<Client>,
    received_bytes: AtomicU64,
    /// Those of them that are messages.
    message_bytes: AtomicU64,
    /// The limit that ended it.
    ended: OnceLock<Refusal>,
    /// An answer has begun: nothing of the request is kept for another backend connection.
    is_answered: AtomicBool,
    /// What its client holds of the group, and the group's limit.
    stake: OnceLock<(Arc<Stake>, u64)>,
}

impl Passage {
    /// Of a client's call.
    pub(crate) fn new(client: &Arc<Client>) -> Passage {
        Passage {
            client: client.clone(),
            received_bytes: AtomicU64::new(0),
            message_bytes: AtomicU64::new(0),
            ended: OnceLock::new(),
            is_answered: AtomicBool::new(false),
            stake: OnceLock::new(),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Why a call ends that brought more than it may, whatever else became of it.
    pub(crate) fn refused(&self, limits: &Limits) -> Option<Refused> {
        Some(match self.ended.get()? {
            Refusal::Message => {
                Refused { why: Refusal::Message, status: too_long("request", limits.message_bytes) }
            }
            Refusal::Slow => too_slow(limits),
            Refusal::Late => deadline::late(),
            Refusal::Unread => unread(limits),
            why => too_much(*why),
        })
    }

    pub(crate) fn answered(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
    }

    /// The call breaks a limit; the first that it breaks counts.
    pub(crate) fn end(&self, why: Refusal) {
        _ = self.ended.set(why);
    }

    /// What is held of objects of its answer is counted so.
    fn count_in(&self, stake: &Arc<Stake>, limits: &Limits) {
        _ = self.stake.set((stake.clone(), limits.memory_bytes));
    }

    /// Why a call ends whose answer nobody has read.
    fn left(&self, limits: &Limits) -> Option<Refused> {
        self.refused(limits).filter(|refused| matches!(refused.why, Refusal::Late | Refusal::Unread))
    }
}

impl Holdings for Passage {
    fn add(&self, bytes: usize) -> Result<(), String> {
        // Without it nobody is asked for an answer.
        let Some((stake, limit)) = self.stake.get() else { return Ok(()) };
        stake.take_bytes(bytes as u64, *limit).map_err(|why| {
            self.end(why);
            too_much(why).status.message().to_owned()
        })
    }

    fn remove(&self, bytes: usize) {
        if let Some((stake, _)) = self.stake.get() {
            stake.give_bytes(bytes as u64);
        }
    }
}

/// There is no memory for what a call holds: in its group, or in its client's share.
pub(crate) fn too_much(why: Refusal) -> Refused {
    let status = Status::resource_exhausted(match why {
        Refusal::MemoryShare => {
            "this client's calls hold as much memory as its share of limits.memory_bytes allows in this group; make fewer calls at once"
        }
        _ => "the calls of this group hold as much memory as limits.memory_bytes allows; try again later",
    });
    Refused { why, status }
}

fn too_slow(limits: &Limits) -> Refused {
    let status = Status::resource_exhausted(format!(
        "a message of the request came more slowly than the {} bytes a second that limits.min_bytes_per_s asks for, over {} ms",
        limits.min_bytes_per_s, limits.arrival_grace_ms
    ));
    Refused { why: Refusal::Slow, status }
}

fn unread(limits: &Limits) -> Refused {
    let status = Status::resource_exhausted(format!(
        "the client has read nothing of the answer for the {} ms that limits.unread_ms allows",
        limits.unread_ms
    ));
    Refused { why: Refusal::Unread, status }
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

    /// Whether a message has come whole.
    fn has_whole(&self) -> bool {
        self.count > u64::from(self.left > 0)
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
    /// What came before it had a place.
    first: Option<Piece>,
    others: VecDeque<Piece>,
    lengths: Lengths,
    pace: Pace,
    config: Arc<Config>,
    passage: Arc<Passage>,
    charge: Charge,
    /// What came of the message at hand, which goes on as a whole.
    at_hand: u64,
    out_of_band: Option<OutOfBandMessages>,
}

type Piece = Result<Frame<Bytes>, Error>;

impl<B> Asked<B> {
    pub(crate) fn new(inner: B, config: Arc<Config>, passage: Arc<Passage>, charge: Charge) -> Asked<B> {
        passage.count_in(charge.stake(), &config.limits);
        Asked {
            inner,
            first: None,
            others: VecDeque::new(),
            lengths: Lengths::default(),
            pace: Pace::default(),
            config,
            passage,
            charge,
            at_hand: 0,
            out_of_band: None,
        }
    }

    /// Messages may pass beside it.
    pub(crate) fn out_of_band(mut self, out_of_band: Option<OutOfBandMessages>) -> Asked<B> {
        self.out_of_band = out_of_band;
        self
    }

    /// Charges what is held of the request now.
    fn charge(&mut self) -> Result<(), Refusal> {
        let received = self.passage.received_bytes.load(Ordering::Relaxed);
        let is_kept =
            received <= Dispatch::KEPT_LEN_MAX as u64 && !self.passage.is_answered.load(Ordering::Relaxed);
        let held = self.at_hand + if is_kept { received } else { 0 };
        self.charge.set(held, self.config.limits.memory_bytes)
    }

    /// What a limit that is broken ends it with.
    fn refuse(&mut self, why: Refusal) -> Poll<Option<Piece>> {
        self.passage.end(why);
        let refused = self.passage.refused(&self.config.limits);
        Poll::Ready(refused.map(|refused| Err(refused.status.into())))
    }
}

impl<B: Body<Data = Bytes, Error: Into<Error>> + Unpin> Asked<B> {
    /// Waits for the rest of the first message where it has begun to come. Whether there is something that a backend connection could begin with, or
    /// the request has ended.
    pub(crate) async fn arrive(&mut self) -> bool {
        poll_fn(|cx| {
            while !self.lengths.has_whole() {
                let piece = match self.poll_inner(cx) {
                    Poll::Ready(Some(piece)) => piece,
                    Poll::Ready(None) => break,
                    // Nothing has come but headers.
                    Poll::Pending if self.first.is_none() => return Poll::Ready(false),
                    Poll::Pending => return Poll::Pending,
                };
                let goes_on = piece.as_ref().is_ok_and(Frame::is_data);
                match self.first {
                    None => self.first = Some(piece),
                    Some(_) => self.others.push_back(piece),
                }
                if !goes_on {
                    break;
                }
            }
            Poll::Ready(true)
        })
        .await
    }

    /// The next that comes in.
    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        if self.lengths.is_between() && self.at_hand > 0 {
            // More is asked for when the message has been sent on.
            self.at_hand = 0;
            // No more than before.
            _ = self.charge();
        }
        let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) else {
            let is_slow =
                !self.lengths.is_between() && self.pace.poll_too_slow(cx, &self.config.limits).is_ready();
            return if is_slow { self.refuse(Refusal::Slow) } else { Poll::Pending };
        };
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
            let first = self.lengths.count;
            let keeps = self.lengths.keep_to(data, self.config.limits.message_bytes);
            let out_of_band: usize = self.out_of_band.as_ref().map_or(0, |out_of_band| {
                (first..self.lengths.count).filter_map(|number| out_of_band.request_len(number)).sum()
            });
            let len = (data.len() + out_of_band) as u64;
            match self.lengths.is_between() {
                true => self.pace.rest(),
                false => self.pace.came(len),
            }
            self.passage.received_bytes.fetch_add(len, Ordering::Relaxed);
            let passed = self.lengths.take_passed() + out_of_band as u64;
            self.passage.message_bytes.fetch_add(passed, Ordering::Relaxed);
            if !keeps {
                return self.refuse(Refusal::Message);
            }
            self.at_hand += len;
            if let Err(why) = self.charge() {
                return self.refuse(why);
            }
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }
}

impl<B: Body<Data = Bytes, Error: Into<Error>> + Unpin> Body for Asked<B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        match this.first.take().or_else(|| this.others.pop_front()) {
            Some(piece) => Poll::Ready(Some(piece)),
            None => this.poll_inner(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.others.is_empty() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let len =
            |piece: &Piece| piece.as_ref().ok().and_then(Frame::data_ref).map_or(0, |data| data.len() as u64);
        let here: u64 = self.first.iter().chain(&self.others).map(len).sum();
        let (inner, mut hint) = (self.inner.size_hint(), SizeHint::new());
        if let Some(most) = inner.upper() {
            hint.set_upper(most.saturating_add(here));
        }
        hint.set_lower(inner.lower().saturating_add(here));
        hint
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
    pub(crate) logged: Option<Logged>,
    pub(crate) admission: Admission,
    /// Whom it was handed to last.
    pub(crate) answered_by: Option<Arc<BackendConnection>>,
    /// Bytes of the answer's messages.
    pub(crate) sent_bytes: u64,
    pub(crate) is_served: bool,
    pub(crate) code: Option<Code>,
}

/// What the access log has of a request, and the log.
pub(crate) struct Logged {
    log: Arc<AccessLog>,
    time: SystemTime,
    user_agent: String,
    trace: String,
}

impl Logged {
    pub(crate) fn new(log: &Arc<AccessLog>, headers: &HeaderMap) -> Logged {
        let text = |name: &str| {
            headers
                .get(name)
                .map_or_else(String::new, |value| String::from_utf8_lossy(value.as_bytes()).into())
        };
        Logged {
            log: log.clone(),
            time: SystemTime::now(),
            user_agent: text("user-agent"),
            trace: text("traceparent"),
        }
    }
}

impl Record {
    /// Its place is, or was, at a backend connection.
    pub(crate) fn answered_by(&mut self, place: &Place) {
        self.answered_by = Some(place.backend_connection().clone());
    }

    /// Has the call's line written, if it is to have one.
    fn log(&mut self, code: Code, received: u64) {
        let Some(Logged { log, time, user_agent, trace }) = self.logged.take() else { return };
        if !log.wants(code) {
            return;
        }
        let (client, answered_by) = (self.passage.client(), self.answered_by.as_ref());
        log.write(AccessEntry {
            time,
            duration: self.began.elapsed(),
            method: std::mem::take(&mut self.path),
            code,
            client: client.address().to_owned(),
            subject: client.subject().to_owned(),
            identity: self.admission.identity().to_owned(),
            group: answered_by.map_or_else(String::new, |backend| backend.group().to_owned()),
            backend: answered_by.map_or_else(String::new, |backend| backend.label()),
            request_bytes: received,
            answer_bytes: self.sent_bytes,
            user_agent,
            trace,
        });
    }

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
        if let Some(backend_connection) = &self.answered_by {
            backend_connection.dispatcher().ended.add(code, self.began.elapsed());
        }
        self.log(code, received);
        self.admission.end();
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
    out_of_band: Option<OutOfBandMessages>,
}

/// What has come of such a body.
pub(crate) enum BodyProgress {
    Frame(Frame<Bytes>),
    /// The gateway ends it, and has counted why.
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
        Limited { inner: Some(inner), lengths, config, passage, metrics, charge: None, out_of_band: None }
    }

    /// What is held of it is charged so.
    pub(crate) fn charged(mut self, charge: Charge) -> Limited {
        self.charge = Some(charge);
        self
    }

    /// Messages may pass beside it.
    pub(crate) fn out_of_band(mut self, out_of_band: Option<OutOfBandMessages>) -> Limited {
        self.out_of_band = out_of_band;
        self
    }

    fn end(&mut self) {
        self.inner = None;
        self.charge = None;
    }

    fn refuse(&mut self, refused: Refused) -> Poll<BodyProgress> {
        self.metrics.refused(refused.why, self.passage.client(), "", refused.status.message());
        self.end();
        Poll::Ready(BodyProgress::Refused(refused.status))
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BodyProgress> {
        let Some(inner) = &mut self.inner else { return Poll::Ready(BodyProgress::End) };
        let limits = &self.config.limits;
        if let Some(charge) = &mut self.charge {
            // Less never fails.
            _ = charge.set(0, limits.memory_bytes);
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
                    return Poll::Ready(BodyProgress::Frame(frame));
                };
                let first = self.lengths.count;
                if !self.lengths.keep_to(data, limits.message_bytes) {
                    let status = too_long("answer", limits.message_bytes);
                    return self.refuse(Refused { why: Refusal::Message, status });
                }
                let out_of_band = self.out_of_band.as_ref().map_or(0, |out_of_band| {
                    (first..self.lengths.count).filter_map(|number| out_of_band.answer_len(number)).sum()
                });
                let held = (data.len() + out_of_band) as u64;
                if let Some(charge) = &mut self.charge
                    && let Err(why) = charge.set(held, limits.memory_bytes)
                {
                    return self.refuse(too_much(why));
                }
                Poll::Ready(BodyProgress::Frame(frame))
            }
            Some(Err(status)) => {
                self.end();
                Poll::Ready(BodyProgress::Failed(status.into()))
            }
            None => {
                self.end();
                Poll::Ready(BodyProgress::End)
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
    /// The call's place at a backend connection, until the answer is complete.
    place: Option<Place>,
    deadline: Option<Instant>,
    /// What came of it and has not been given to HTTP/2 yet.
    rest: Bytes,
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
        Answer { body, record, place: None, deadline: None, rest: Bytes::new() }
    }

    /// Nobody waits for what is left of it after that.
    pub(crate) fn until(mut self, deadline: Option<Instant>) -> Answer {
        self.deadline = deadline;
        self
    }

    /// An answer that a backend connection gives.
    pub(crate) fn at(mut self, place: Place) -> Answer {
        self.body.charge = Some(place.charge());
        self.record.answered_by(&place);
        self.place = Some(place);
        self
    }

    /// Ends here, with a status of the gateway's own.
    fn end(&mut self, status: &Status) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut trailers = HeaderMap::new();
        // A status that can't be written would leave the trailers empty: the client then sees UNKNOWN.
        _ = status.add_header(&mut trailers);
        self.place = None;
        self.record.code = Some(status.code());
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    /// The next that has come.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self;
        let came = ready!(this.body.poll(cx));
        let sent = this.body.lengths.take_passed();
        this.record.sent_bytes += sent;
        this.record.call.sent(sent as usize);
        match came {
            BodyProgress::Frame(mut frame) => {
                if let Some(trailers) = frame.trailers_mut() {
                    tollfree::gateway::remove_ours(trailers);
                    this.record.admission.edit_trailers(trailers);
                    let max = this.record.meter.header_list_max(this.body.config.limits.header_bytes);
                    if let Err(status) = header_list::check(trailers, max) {
                        this.record.metrics.refused(
                            Refusal::AnswerHeaders,
                            this.record.passage.client(),
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
            BodyProgress::Refused(status) => this.end(&status),
            BodyProgress::Failed(inside) => {
                let group = this.place.as_ref().map_or("", Place::group);
                let status = inside.told(group, &this.record.path);
                this.end(&status)
            }
            BodyProgress::End => {
                this.place = None;
                Poll::Ready(None)
            }
        }
    }

    /// The first part of bytes that have come. The others wait here: what HTTP/2 has been given can't be taken back.
    fn piece_of(&mut self, mut bytes: Bytes) -> Frame<Bytes> {
        self.rest = bytes.split_off(bytes.len().min(PIECE_LEN));
        Frame::data(bytes)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let Some(left) = self.record.passage.left(&self.body.config.limits) else { return };
        let Record { metrics, passage, path, code, .. } = &mut self.record;
        if left.why == Refusal::Unread {
            metrics.refused(left.why, passage.client(), path, left.status.message());
        }
        *code = Some(left.status.code());
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let polled = match std::mem::take(&mut this.rest) {
            rest if rest.is_empty() => match this.poll_next(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => Poll::Ready(Some(Ok(this.piece_of(data)))),
                    Err(frame) => Poll::Ready(Some(Ok(frame))),
                },
                polled => polled,
            },
            rest => Poll::Ready(Some(Ok(this.piece_of(rest)))),
        };
        let gives = matches!(&polled, Poll::Ready(Some(Ok(frame))) if frame.is_data());
        asked(
            gives.then(|| UnreadAnswer::new(&this.record.passage, this.deadline, &this.body.config.limits)),
        );
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (here, mut hint) = (self.rest.len() as u64, self.body.size_hint());
        if let Some(most) = hint.upper() {
            hint.set_upper(most.saturating_add(here));
        }
        hint.set_lower(hint.lower().saturating_add(here));
        hint
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
