//! A client at a server before its session: it may be refused because others want its place, or the listener closes.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tollfree_host::HandshakeError;

/// A client at a server, before its session.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    heard: AtomicBool,
    closing: AtomicBool,
    ended: Notify,
}

/// Why a client that has said nothing is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Others want its place.
    Crowded,
    /// The listener closes.
    Closing,
}

impl Turn {
    /// Whether the client has not said HELLO yet, all of it.
    pub(crate) fn is_silent(&self) -> bool {
        !self.heard.load(Ordering::Relaxed)
    }

    /// It has said HELLO, all of it.
    pub(crate) fn heard(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// Refuses the client, unless it has said HELLO meanwhile.
    pub(crate) fn end(&self, why: Ended) {
        self.closing.fetch_or(why == Ended::Closing, Ordering::Relaxed);
        self.ended.notify_one();
    }

    /// Resolves when it is to be refused.
    pub(crate) async fn refused(&self) -> HandshakeError {
        self.ended.notified().await;
        if self.closing.load(Ordering::Relaxed) { HandshakeError::Closing } else { HandshakeError::Crowded }
    }
}
