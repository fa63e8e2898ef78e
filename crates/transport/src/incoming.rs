//! What a reader of a call is given.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tollfree_kill_points::{Point, here};
use tollfree_layout::RopeIdx;
use tollfree_session::{self as session, Asked, Closed, End};

use crate::shared::Shared;

/// What a reader gets from a stream, in order.
#[derive(Debug)]
pub enum Incoming {
    /// Response headers (client side), packed.
    Headers(Bytes),
    /// Part of a message. The last message stays incomplete where a status other than OK follows.
    Chunk(Chunk),
    /// Nothing follows. Given again to whoever asks again.
    End(End),
}

/// Part of a received message.
#[derive(Debug)]
pub struct Chunk {
    /// The bytes. On the first chunk of a message the [`GRPC_PREFIX_LEN`](crate::GRPC_PREFIX_LEN) bytes of gRPC's
    /// prefix stand before them.
    pub bytes: Bytes,
    /// Begins a message.
    pub first: bool,
    /// Ends it.
    pub last: bool,
    /// On the first chunk of a rope ([`tollfree_layout::rope`]): to be kept until hold was taken of its refs.
    pub rope: Option<Claim>,
}

/// What has come on a stream, in the order of the fields: as much of it as comes without a queue.
#[derive(Debug, Default)]
pub struct Arrival {
    /// Response headers (client side), packed.
    pub headers: Option<Bytes>,
    /// Part of a message.
    pub chunk: Option<Chunk>,
    /// The end, where nothing else is left to read before it.
    pub end: Option<End>,
    /// The session does not know the call any more.
    pub(crate) forgotten: bool,
}

/// A claim on the peer to keep the parts of a rope. Dropped, it tells the peer that it need not any longer: when hold was
/// taken of them, or when nobody wants them.
pub struct Claim {
    shared: Arc<Shared>,
    rope: RopeIdx,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(&self.rope).finish()
    }
}

impl Claim {
    /// Why the session is over, and with it what the peer kept, if it is. Looks whether the peer has hung up: one system call.
    pub fn session_closed(&self) -> Option<Closed> {
        self.shared.attend();
        match self.shared.enter() {
            Ok(core) => core.session.closed().cloned(),
            Err(closed) => Some(closed),
        }
    }
}

impl Claim {
    /// Asks the peer for the bytes of the rope's refs, which are `len` and not more than this side is willing to have: for a
    /// receiver that can't take hold of them. To be called once; [`poll_bytes`](Self::poll_bytes) waits.
    pub fn want_bytes(&self, len: u32) {
        if let Ok(mut core) = self.shared.enter() {
            core.session.want_rope(self.rope, len);
            core.flush(&self.shared.socket);
            core.leave_to_driver();
        }
    }

    /// Waits for the bytes that were asked for, one ref's after the other's. `None`: the peer doesn't give them.
    ///
    /// # Errors
    /// Ready with the reason why the session is over.
    pub fn poll_bytes(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Closed>> {
        let mut core = self.shared.enter()?;
        if let Some(closed) = core.session.closed() {
            return Poll::Ready(Err(closed.clone()));
        }
        match core.session.asked_rope(self.rope) {
            Asked::Here(bytes) => Poll::Ready(Ok(Some(bytes))),
            Asked::Refused => Poll::Ready(Ok(None)),
            Asked::Coming => {
                core.rope_waits.insert(self.rope, cx.waker().clone());
                core.leave_to_driver();
                Poll::Pending
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        here(Point::RopeTaken);
        if let Ok(mut core) = self.shared.enter() {
            core.rope_waits.remove(&self.rope);
            core.session.take_rope(self.rope);
            core.flush_soon(&self.shared.socket);
        }
    }
}

impl Chunk {
    pub(crate) fn of(shared: &Arc<Shared>, chunk: session::Chunk) -> Chunk {
        let session::Chunk { bytes, first, last, rope } = chunk;
        let rope = rope.map(|rope| Claim { shared: shared.clone(), rope });
        Chunk { bytes, first, last, rope }
    }

    /// Whether it is a message by itself, and no rope.
    pub fn is_whole(&self) -> bool {
        self.first && self.last && self.rope.is_none()
    }
}

impl Arrival {
    #[inline]
    pub(crate) fn of(shared: &Arc<Shared>, arrival: session::Arrival) -> Arrival {
        let session::Arrival { headers, chunk, end, forgotten } = arrival;
        Arrival { headers, chunk: chunk.map(|chunk| Chunk::of(shared, chunk)), end, forgotten }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.headers.is_none() && self.chunk.is_none() && self.end.is_none()
    }

    /// Takes the message of a request that came as a whole, with gRPC's prefix before it: its client will say nothing more.
    /// `None`, and nothing taken, of any other.
    pub fn take_whole(&mut self) -> Option<Bytes> {
        let is_whole = self.chunk.as_ref().is_some_and(Chunk::is_whole);
        if !is_whole || self.end != Some(End::HalfClosed) {
            return None;
        }
        self.end = None;
        self.chunk.take().map(|chunk| chunk.bytes)
    }

    /// Takes an answer that came in one go, with status OK: headers, message and trailers. `None`, and nothing taken, of any
    /// other.
    pub fn take_answer(&mut self) -> Option<(Bytes, Chunk, Bytes)> {
        let is_all = self.chunk.as_ref().is_some_and(|chunk| chunk.first && chunk.last);
        let (Some(headers), true, Some(End::Trailers { code: 0, block })) =
            (&mut self.headers, is_all, &mut self.end)
        else {
            return None;
        };
        let (headers, trailers) = (std::mem::take(headers), std::mem::take(block));
        (self.headers, self.end) = (None, None);
        Some((headers, self.chunk.take()?, trailers))
    }

    /// Takes out what came first of what is left.
    pub fn take_next(&mut self) -> Option<Incoming> {
        if let Some(headers) = self.headers.take() {
            return Some(Incoming::Headers(headers));
        }
        if let Some(chunk) = self.chunk.take() {
            return Some(Incoming::Chunk(chunk));
        }
        self.end.take().map(Incoming::End)
    }
}
