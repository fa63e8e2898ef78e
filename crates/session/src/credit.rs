//! Flow control: what a reader gives back, and when the peer is told.
//!
//! A chunk costs `len + CHUNK_CHARGE` of its stream's credit and of the session's. What the application has read is
//! owed to the peer and granted again once half a window has gathered, so that credit costs one frame for many chunks.
//! A stream whose reader keeps up (it empties the inbox) earns a larger window, out of a reserve of the session. The
//! session's credit covers every live stream's first window and the reserve: a stream that nobody reads can't block another.
//!
//! A message longer than its stream's credit borrows the rest from the reserve when it begins. Where many begin at once the reserve goes
//! to them in the order in which they began, and comes back when they have been read: else one that found it empty would
//! be overtaken by all that begin later.

use tollfree_events::{SessionEvent, Side};
use tollfree_layout::StreamId;
use tollfree_layout::limits::{CHUNK_CHARGE, MESSAGE_WINDOW_MAX, STREAM_WINDOW_MAX};

use crate::Session;
use crate::incoming::Chunk;
use crate::stream::Watched;

/// What a chunk of `len` bytes costs.
pub(crate) fn charge(len: usize) -> u64 {
    len as u64 + CHUNK_CHARGE
}

/// What a received chunk cost, its prefix not counted.
pub(crate) fn charge_of(chunk: &Chunk) -> u64 {
    let prefix = if chunk.first && chunk.batch_count == 0 { crate::GRPC_PREFIX_LEN } else { 0 };
    charge(chunk.bytes.len() - prefix)
}

/// How credit stands: a stream's, or the session's. In bytes, charges included.
///
/// `recv + unread + owed == window` at all times, for a stream as long as the peer may send on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// What this side may still send.
    pub send: u64,
    /// What the peer may still send.
    pub recv: u64,
    /// Received, and not yet read by the application.
    pub unread: u64,
    /// Read, and not yet granted again.
    pub owed: u64,
    /// Granted (so within `recv`) in a frame that found no room yet.
    pub unsent: u64,
    /// What the peer may send before anything is read.
    pub window: u64,
}

impl<T: Watched> Session<T> {
    /// How the credit of a stream that has not ended stands; that of the session for [`StreamId::SESSION`].
    /// For diagnosis: takes time in proportion to the number of streams.
    pub fn credit(&self, id: StreamId) -> Option<Credit> {
        let unsent = self.pending.granted(id);
        if id == StreamId::SESSION {
            let live = self.streams.iter().map(|(_, stream)| stream).filter(|stream| stream.is_live());
            return Some(Credit {
                send: self.send_credit,
                recv: self.recv_credit,
                unread: live.map(|stream| stream.inbox.unread()).sum(),
                owed: self.owed,
                unsent,
                window: self.local.session_window,
            });
        }
        let stream = self.streams.get(id).filter(|stream| stream.is_live())?;
        Some(Credit {
            send: stream.send_credit,
            recv: stream.recv_credit,
            unread: stream.inbox.unread(),
            owed: stream.owed,
            unsent,
            window: stream.window,
        })
    }

    /// The application has read (or the session has dropped) bytes that cost `charge`.
    pub(crate) fn owe_session(&mut self, charge: u64) {
        self.owed += charge;
        self.grant_session();
    }

    /// Grants what is owed to the session once it is as much as the peer has left, which is half of the window or less: were it kept
    /// back while streams that nobody reads hold the rest, they would block the others.
    pub(crate) fn grant_session(&mut self) {
        if self.owed == 0 || self.owed < self.recv_credit {
            return;
        }
        let owed = std::mem::take(&mut self.owed);
        self.recv_credit += owed;
        if self.closed.is_none() {
            self.recording.record(|| SessionEvent::Credit { by: Side::Here, stream: 0, amount: owed });
            self.pending.grant(StreamId::SESSION, owed);
        }
    }

    /// A chunk of stream `id`, which is live, was read.
    pub(crate) fn owe(&mut self, id: StreamId, charge: u64) {
        self.owe_session(charge);
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.state.has_heard_all() {
            if stream.inbox.is_empty() {
                let lent = stream.window.saturating_sub(self.local.stream_window);
                stream.window -= lent;
                self.give_back(lent);
            }
            return;
        }
        stream.owed += charge;
        if stream.owed < stream.window / 2 {
            return;
        }
        let mut grant = std::mem::take(&mut stream.owed);
        if stream.inbox.is_empty() && self.short.is_empty() {
            let raise = stream.window.min(STREAM_WINDOW_MAX.saturating_sub(stream.window)).min(self.reserve);
            self.reserve -= raise;
            stream.window += raise;
            grant += raise;
        }
        stream.recv_credit += grant;
        self.recording.record(|| SessionEvent::Credit { by: Side::Here, stream: id.0, amount: grant });
        self.pending.grant(id, grant);
    }

    /// What a stream had borrowed of the reserve is there again.
    pub(crate) fn give_back(&mut self, lent: u64) {
        self.reserve += lent;
        if !self.short.is_empty() {
            self.lend();
        }
    }

    /// Lends what is in the reserve to the messages that wait for it, the first that began first.
    pub(crate) fn lend(&mut self) {
        while self.reserve > 0
            && let Some(&id) = self.short.front()
        {
            let Some(stream) = self.streams.get_mut(id) else {
                self.short.pop_front();
                continue;
            };
            // Nothing more comes on one that has ended, or whose message came on ordinary credit meanwhile.
            let left = stream.state.unreceived().map_or(0, |left| charge(left as usize));
            let most = MESSAGE_WINDOW_MAX.saturating_sub(stream.window);
            let wanted = left.saturating_sub(stream.recv_credit).min(most);
            let raise = wanted.min(self.reserve);
            if raise == wanted {
                stream.is_short = false;
                self.short.pop_front();
            }
            if raise > 0 {
                self.reserve -= raise;
                stream.window += raise;
                stream.recv_credit += raise;
                self.recording.record(|| SessionEvent::Credit {
                    by: Side::Here,
                    stream: id.0,
                    amount: raise,
                });
                self.pending.grant(id, raise);
            }
        }
    }
}
