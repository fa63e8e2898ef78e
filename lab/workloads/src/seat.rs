//! What every process of a workload has, whatever its part: its side, its place, its membership of the pool, its counters;
//! and how it makes payloads and passes them on.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use serde::{Deserialize, Serialize};
use tollfree::REF_THRESHOLD_DEFAULT;
use tollfree_pool::{Buffer, Config, Pool};
use tonic::Status;

use crate::pattern;
use crate::side::Side;
use crate::tally::{Counters, Tally};

/// What a process is told of its seat.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SeatOrder {
    pub(crate) side: Side,
    /// Its name, which its socket has too.
    pub(crate) name: String,
    /// Where sockets may be made.
    pub(crate) dir: PathBuf,
    /// Where the pool's members meet.
    pub(crate) pool: Option<String>,
    /// Where the gateway is met.
    pub(crate) gateway: Option<String>,
    /// Payloads of at least so many bytes go by ref; the library's default, if not said.
    pub(crate) ref_threshold: Option<usize>,
    /// Tollfree's processes never spin while they wait.
    pub(crate) park: bool,
    pub(crate) message_len_max: usize,
}

/// A process's place among the others.
#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) side: Side,
    pub(crate) socket: PathBuf,
    pub(crate) pool: Option<Pool>,
    pub(crate) gateway: Option<String>,
    pub(crate) ref_threshold: Option<usize>,
    pub(crate) park: bool,
    pub(crate) message_len_max: usize,
    pub(crate) counters: Arc<Counters>,
}

impl Seat {
    /// Joins the pool, if there is one.
    pub(crate) fn take(order: &SeatOrder) -> Result<Seat, String> {
        let pool = order.pool.as_deref().map(|address| {
            let address = address.parse().map_err(|error| format!("{address} is no address: {error}"))?;
            // What is free stays: the same blocks are used again, as malloc does on the other sides.
            // More processes than cores, and most of them spin: an owner may be long in answering.
            let patience = Duration::from_secs(30);
            let config = Config { high_watermark: u64::MAX, patience, ..Config::default() };
            Pool::join(&address, config).map_err(|error| error.to_string())
        });
        Ok(Seat {
            side: order.side,
            socket: order.dir.join(format!("{}.sock", order.name)),
            pool: pool.transpose()?,
            gateway: order.gateway.clone(),
            ref_threshold: order.ref_threshold,
            park: order.park,
            message_len_max: order.message_len_max,
            counters: Arc::default(),
        })
    }

    /// Where sockets and certificates of all processes are.
    pub(crate) fn dir(&self) -> &Path {
        self.socket.parent().unwrap_or(Path::new("."))
    }

    pub(crate) fn tally(&self) -> Tally {
        self.counters.read()
    }

    /// Something to write a payload of at most `len_max` bytes into.
    pub(crate) fn sink(&self, len_max: usize) -> Result<Sink, String> {
        match &self.pool {
            // What is too short to go by ref needn't lie in the pool.
            Some(pool) if len_max >= self.ref_threshold.unwrap_or(REF_THRESHOLD_DEFAULT) => {
                pool.buffer(len_max.max(1)).map(Sink::Pooled).map_err(|error| error.to_string())
            }
            _ => Ok(Sink::Private(Vec::with_capacity(len_max))),
        }
    }

    /// A payload that a seed stands for; each of its bytes is written now.
    pub(crate) fn write(&self, len: usize, seed: u64) -> Result<Bytes, String> {
        let mut sink = self.sink(len)?;
        match &mut sink {
            Sink::Private(bytes) => pattern::write(bytes, len, seed),
            Sink::Pooled(buffer) => pattern::write(buffer, len, seed),
        }
        Ok(sink.freeze())
    }

    /// A payload with these bytes, which are copied.
    pub(crate) fn copy(&self, bytes: &[u8]) -> Result<Bytes, String> {
        let mut sink = self.sink(bytes.len())?;
        match &mut sink {
            Sink::Private(private) => private.extend_from_slice(bytes),
            Sink::Pooled(buffer) => buffer.put_slice(bytes),
        }
        Ok(sink.freeze())
    }

    /// What to give to the next process for a payload that this one got: itself, or a copy where the side is to copy.
    pub(crate) fn pass_on(&self, bytes: Bytes) -> Result<Bytes, Status> {
        if self.side != Side::RefCopy || bytes.is_empty() {
            return Ok(bytes);
        }
        self.counters.copied(bytes.len());
        self.copy(&bytes).map_err(Status::resource_exhausted)
    }
}

/// Memory to write a payload into.
pub(crate) enum Sink {
    Private(Vec<u8>),
    Pooled(Buffer),
}

impl Sink {
    pub(crate) fn freeze(self) -> Bytes {
        match self {
            Self::Private(bytes) => bytes.into(),
            // An empty buffer is a payload of no bytes.
            Self::Pooled(buffer) => buffer.freeze().map_or_else(|_| Bytes::new(), Bytes::from),
        }
    }
}

impl io::Write for Sink {
    /// Takes what there is room for, in the pool.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Private(private) => private.write(bytes),
            Self::Pooled(buffer) => buffer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
