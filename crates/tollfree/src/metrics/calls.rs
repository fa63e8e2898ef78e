//! Single calls, from their beginning until they are counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use tonic::Code;
use tonic::body::Body;

use crate::message::framing::tell_lengths;
use crate::message::out_of_band::OutOfBand;
use crate::metrics::latency::Latency;
use crate::metrics::sides::{Labels, Methods, Side};

/// What all calls that are served count into.
#[derive(Debug)]
pub(super) struct ServerSide {
    pub(super) side: Side,
    pub(super) methods: Methods,
}

/// Message bytes of a call, without any framing.
#[derive(Debug, Default)]
struct Bytes {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Bytes {
    fn take(&self) -> (u64, u64) {
        (self.sent.swap(0, Ordering::Relaxed), self.received.swap(0, Ordering::Relaxed))
    }

    fn sent(&self, len: usize) {
        self.sent.fetch_add(len as u64, Ordering::Relaxed);
    }

    fn received(&self, len: usize) {
        self.received.fetch_add(len as u64, Ordering::Relaxed);
    }
}

/// A call that is being served: counted with its status when that is [said](ServedCall::end), and as CANCELLED when this is dropped
/// before.
#[derive(Debug)]
pub struct ServedCall {
    all: Arc<ServerSide>,
    path: Box<str>,
    labels: Labels,
    began: Instant,
    bytes: Arc<Bytes>,
    is_served: AtomicBool,
    is_over: AtomicBool,
}

impl ServedCall {
    pub(super) fn begin(all: &Arc<ServerSide>, path: &str) -> ServedCall {
        let labels = Labels { method: all.methods.label(path), target: None, status: None };
        all.side.started(&labels);
        ServedCall {
            all: all.clone(),
            path: path.into(),
            labels,
            began: Instant::now(),
            bytes: Arc::default(),
            is_served: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        }
    }

    /// Somebody serves it: its method is not one that a client has made up, unless it turns out to be unimplemented.
    pub fn is_served(&self) {
        self.is_served.store(true, Ordering::Relaxed);
    }

    /// A message was sent, or part of one: so many bytes, without gRPC's prefix.
    pub fn sent(&self, len: usize) {
        self.bytes.sent(len);
    }

    /// The same for what was received.
    pub fn received(&self, len: usize) {
        self.bytes.received(len);
    }

    /// How it has ended. What is said later does not count.
    pub fn end(&self, code: Code) {
        if self.is_over.swap(true, Ordering::Relaxed) {
            return;
        }
        if self.is_served.load(Ordering::Relaxed) && code != Code::Unimplemented {
            self.all.methods.learn(&self.path);
        }
        let (sent, received) = self.bytes.take();
        self.all.side.ended(&self.labels.ended(code), self.began.elapsed(), sent, received);
    }

    /// A request's body whose messages count, with those for which empty ones stand in.
    pub(crate) fn tell_received(&self, body: Body, out_of_band: Option<OutOfBand>) -> Body {
        let bytes = self.bytes.clone();
        let past = move |number| out_of_band.as_ref()?.back_len_of(number);
        tell_lengths(body, move |number, len| bytes.received(past(number).unwrap_or(len)))
    }

    /// An answer's body whose messages count.
    pub(crate) fn tell_sent(&self, body: Body) -> Body {
        let bytes = self.bytes.clone();
        tell_lengths(body, move |_, len| bytes.sent(len))
    }
}

impl Drop for ServedCall {
    fn drop(&mut self) {
        self.end(Code::Cancelled);
    }
}

/// What all calls that are made count into.
#[derive(Debug)]
pub(super) struct ClientSide {
    pub(super) attempts: Side,
    pub(super) duration: Family<Labels, Latency>,
    pub(super) methods: Methods,
}

/// A call that is being made, attempt by attempt. Clones are the same call.
#[derive(Clone, Debug)]
pub(crate) struct MadeCall(Arc<Made>);

#[derive(Debug)]
struct Made {
    all: Arc<ClientSide>,
    labels: Labels,
    began: Instant,
    /// When the attempt under way has begun.
    attempt: Mutex<Option<Instant>>,
    bytes: Bytes,
    is_over: AtomicBool,
}

impl MadeCall {
    pub(super) fn begin(all: &Arc<ClientSide>, path: &str, target: &Arc<str>) -> MadeCall {
        let method = all.methods.learn(path.strip_prefix('/').unwrap_or(path));
        let labels = Labels { method, target: Some(target.clone()), status: None };
        let (began, attempt) = (Instant::now(), Mutex::new(None));
        let is_over = AtomicBool::new(false);
        MadeCall(Arc::new(Made {
            all: all.clone(),
            labels,
            began,
            attempt,
            bytes: Bytes::default(),
            is_over,
        }))
    }

    /// An attempt begins, unless one is under way.
    pub(crate) fn attempt(&self) {
        let mut attempt = self.0.attempt.lock();
        if attempt.is_none() {
            *attempt = Some(Instant::now());
            self.0.bytes.take();
            self.0.all.attempts.started(&self.0.labels);
        }
    }

    /// The attempt under way has ended.
    pub(crate) fn attempt_ended(&self, code: Code) {
        let Some(began) = self.0.attempt.lock().take() else { return };
        let (sent, received) = self.0.bytes.take();
        self.0.all.attempts.ended(&self.0.labels.ended(code), began.elapsed(), sent, received);
    }

    fn end(&self, code: Code) {
        if !self.0.is_over.swap(true, Ordering::Relaxed) {
            self.attempt_ended(code);
            self.0.all.duration.get_or_create(&self.0.labels.ended(code)).observe(self.0.began.elapsed());
        }
    }

    pub(crate) fn sent(&self, len: usize) {
        self.0.bytes.sent(len);
    }

    pub(crate) fn received(&self, len: usize) {
        self.0.bytes.received(len);
    }

    /// A request's body whose messages count, with those for which empty ones stand in.
    pub(crate) fn tell_sent(&self, body: Body, out_of_band: Option<OutOfBand>) -> Body {
        let call = self.clone();
        let past = move |number| out_of_band.as_ref()?.out_len_of(number);
        tell_lengths(body, move |number, len| call.sent(past(number).unwrap_or(len)))
    }
}

/// The end of a call that is being made: CANCELLED, unless it is said before this is dropped.
#[derive(Debug)]
pub(crate) struct Outcome(pub(crate) MadeCall);

impl Outcome {
    /// How it has ended. What is said later does not count.
    pub(crate) fn is(&self, code: Code) {
        self.0.end(code);
    }
}

impl Drop for Outcome {
    fn drop(&mut self) {
        self.is(Code::Cancelled);
    }
}
