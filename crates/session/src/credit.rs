//! Flow control: what a reader gives back, and when the peer is told.
//!
//! A chunk costs `len + CHUNK_CHARGE` of its stream's credit and of the session's. What the application has read is
//! owed to the peer and granted again once half a window has gathered, so that credit costs one frame for many chunks.
//! A stream whose reader keeps up (it empties the inbox) earns a larger window, out of a reserve of the session. The
//! session's credit covers every stream's first window and the reserve: a stream that nobody reads can't block another.

use tollfree_layout::StreamId;
use tollfree_layout::limits::{CHUNK_CHARGE, STREAM_WINDOW_MAX};

use crate::Session;
use crate::stream::{Chunk, RecvHalf};

/// What a chunk of `len` bytes costs.
pub(crate) fn charge(len: usize) -> u64 {
    len as u64 + CHUNK_CHARGE
}

/// What a received chunk cost, its prefix not counted.
pub(crate) fn charge_of(chunk: &Chunk) -> u64 {
    let prefix = if chunk.first { crate::GRPC_PREFIX_LEN } else { 0 };
    charge(chunk.bytes.len() - prefix)
}

impl<T: Default> Session<T> {
    /// The application has read (or the session has dropped) bytes that cost `charge`.
    pub(crate) fn owe_session(&mut self, charge: u64) {
        self.owed += charge;
        if self.owed >= self.local.session_window / 2 {
            let owed = std::mem::take(&mut self.owed);
            self.recv_credit += owed;
            self.pending.grant(StreamId::SESSION, owed);
        }
    }

    /// A chunk of stream `id` was read.
    pub(crate) fn owe(&mut self, id: StreamId, charge: u64) {
        self.owe_session(charge);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.recv == RecvHalf::Ended {
            return;
        }
        stream.owed += charge;
        if stream.owed < stream.window / 2 {
            return;
        }
        let mut grant = std::mem::take(&mut stream.owed);
        if stream.inbox.is_empty() && stream.window < STREAM_WINDOW_MAX {
            let raise = stream.window.min(STREAM_WINDOW_MAX - stream.window).min(self.reserve);
            self.reserve -= raise;
            stream.window += raise;
            grant += raise;
        }
        stream.recv_credit += grant;
        self.pending.grant(id, grant);
    }

    /// Puts what a stream that goes away had borrowed of the reserve back.
    pub(crate) fn return_reserve(&mut self, window: u64) {
        self.reserve += window.saturating_sub(self.local.stream_window);
    }
}
