//! Tollfree's sessions in one thread, with one descriptor to poll: calls by bytes, for hosts that have a loop of their own.
//!
//! An [`EventLoop`] has any number of sessions and listeners. [`poll`](EventLoop::poll) never waits; [`wait`](EventLoop::wait) looks at the rings as long as that is
//! worth it, and sleeps. A host that sleeps in a loop of its own calls [`arm`](EventLoop::arm) before, and polls [`fd`](EventLoop::fd) together with its own descriptors. Nothing is
//! called from other threads, and nothing but a [`Waker`] may be used in them.
//!
//! Messages are bytes as gRPC has them between its prefixes; metadata are blocks ([`tollfree_layout::metadata`]).
//!
//! # Example
//! ```
//! use std::time::Duration;
//! use tollfree_driver_loop::{CallStart, Event, EventLoop, LoopConfig, Message};
//!
//! # let directory = tempfile::tempdir()?;
//! # let address = format!("shm://{}/s.sock", directory.path().display()).parse()?;
//! // Both ends in one loop: a server that answers with what it gets, and a client.
//! let mut events = EventLoop::new(LoopConfig::default())?;
//! events.listen(&address)?;
//! let session = events.connect(&address)?;
//! let answer = loop {
//!     match events.wait(Some(Duration::from_secs(10)))?.expect("soon") {
//!         Event::Connected { .. } => {
//!             let request = Message::from(&b"hello"[..]);
//!             let start = CallStart { message: Some(request), is_last: true, ..CallStart::new("/test.Echo/Call") };
//!             events.call(session, start)?;
//!         }
//!         // The server.
//!         Event::Message { call, message } if events.serves(call) => {
//!             events.answer_headers(call, Default::default())?;
//!             events.send(call, message)?;
//!             events.answer_end(call, 0, Default::default())?;
//!         }
//!         // The client.
//!         Event::Message { message, .. } => break message.bytes,
//!         _ => {}
//!     }
//! };
//! assert_eq!(&answer[..], b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod call;
mod calls;
mod channel;
mod config;
mod descriptors;
mod event_loop;
mod listeners;
mod meeting;
mod message;
mod poller;
mod refs;
mod session;
mod sharing;
mod slots;
mod timers;

use std::io;

use bytes::Bytes;
use tollfree_layout::{errors, metadata};

pub use channel::{CallTerms, ChannelConfig, ChannelId, ChannelState};
pub use config::LoopConfig;
pub use event_loop::{CallStart, EventLoop};
pub use message::Message;
pub use poller::Waker;
pub use sharing::PayloadCounts;
pub use tollfree_balancer::{
    OutlierDetection, Policy, RetryPolicy, ServiceConfig, ServiceConfigError, Target, Throttling,
};
pub use tollfree_connection::WaitPolicy;
pub use tollfree_host::{ConnectError, ConnectErrorKind, HandshakeError, Quotas, Registration};
pub use tollfree_pool::{
    AllocError, Capacity, Config as PoolConfig, JoinError, Pool, Ref as PoolRef, WhenShort,
};
pub use tollfree_rendezvous::{Address, AddressError, BindError, PeerIdentity, PeerPolicy};
pub use tollfree_session::{Closed, Limits, STREAM_WINDOW_MIN};

/// gRPC's status codes that a loop gives by itself.
const DEADLINE_EXCEEDED: u16 = 4;
const INTERNAL: u16 = 13;
const UNAVAILABLE: u16 = 14;

/// A session of a loop, from [`connect`](EventLoop::connect) on or when a client has come. Never given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId {
    idx: u32,
    generation: u32,
}

impl SessionId {
    /// As a number, for programs in other languages. Never 0.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.idx)
    }

    /// The id of that number. Of a number that no session has, [`EventLoop`] knows nothing.
    pub fn from_bits(bits: u64) -> SessionId {
        SessionId { idx: bits as u32, generation: (bits >> 32) as u32 }
    }
}

/// A listener of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(u32);

impl ListenerId {
    /// As a number, for programs in other languages: listeners are counted from 0.
    pub fn to_bits(self) -> u32 {
        self.0
    }

    /// The id of that number. Of a number that no listener has, [`EventLoop`] knows nothing.
    pub fn from_bits(bits: u32) -> ListenerId {
        ListenerId(bits)
    }
}

/// A call of a loop. Never given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId {
    session: SessionId,
    number: u64,
}

impl CallId {
    fn new(session: SessionId, number: u64) -> CallId {
        CallId { session, number }
    }

    /// Its session. Calls of channels have none of their own: see [`EventLoop::session_of`].
    pub fn session(self) -> SessionId {
        self.session
    }

    /// Whether it is a channel's.
    pub fn is_of_channel(self) -> bool {
        self.session == channel::NO_SESSION
    }

    /// Its number within the session, for programs in other languages.
    pub fn number(self) -> u64 {
        self.number
    }

    /// The call of that number. Of a number that no call has, [`EventLoop`] knows nothing.
    pub fn from_number(session: SessionId, number: u64) -> CallId {
        CallId { session, number }
    }
}

/// How a call has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// gRPC's code.
    pub code: u16,
    /// The server's trailing metadata, or `grpc-message` of this end's.
    pub metadata: Bytes,
    /// The server has not looked at the call: it may be made again anywhere.
    pub unprocessed: bool,
}

impl Status {
    /// A status of this end's, in words: 1 KiB of them at most, and what is not ASCII as spaces.
    pub fn here(code: u16, words: &str) -> Status {
        let mut block = Vec::new();
        // Percent-encoding leaves ASCII text as it is.
        let words: String = words
            .chars()
            .map(|c| if c.is_ascii_graphic() && c != '%' { c } else { ' ' })
            .take(1024)
            .collect();
        let _ = metadata::pack(&mut block, "grpc-message", words.as_bytes());
        Status { code, metadata: block.into(), unprocessed: false }
    }

    /// `grpc-message`, as it came: percent-encoded.
    pub fn words(&self) -> String {
        metadata::pairs(&self.metadata)
            .flatten()
            .find(|(name, _)| name.as_bytes() == b"grpc-message")
            .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
            .unwrap_or_default()
    }
}

/// What has happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A session that was asked for has begun.
    Connected {
        /// Which.
        session: SessionId,
    },
    /// It has not, and never will.
    NotConnected {
        /// Which.
        session: SessionId,
        /// Why.
        error: ConnectError,
    },
    /// A client has connected to a listener.
    Accepted {
        /// The new session.
        session: SessionId,
        /// Where.
        listener: ListenerId,
    },
    /// A client was refused.
    Refused {
        /// Where.
        listener: ListenerId,
        /// Why, as it was told.
        error: HandshakeError,
    },
    /// No client can be accepted, for want of descriptors or memory most likely. Clients wait; sessions go on. Told once, until a client was accepted
    /// again.
    NotAccepted {
        /// Where.
        listener: ListenerId,
        /// The kernel's error.
        error: io::Error,
    },
    /// No call can be begun in a session any more. Those under way go on.
    Draining {
        /// Which.
        session: SessionId,
    },
    /// A session is over. Its calls have ended before.
    Closed {
        /// Which.
        session: SessionId,
        /// Why.
        reason: Closed,
    },
    /// A channel fares otherwise than before.
    ChannelChanged {
        /// Which.
        channel: ChannelId,
        /// How it fares.
        state: ChannelState,
    },
    /// A client has begun a call (server).
    Call {
        /// Which.
        call: CallId,
        /// `/package.Service/Method`, unchecked.
        path: Bytes,
        /// A block of metadata.
        metadata: Bytes,
        /// On this host's monotonic clock, in nanoseconds.
        deadline_ns: Option<u64>,
    },
    /// The answer's headers have come (client).
    Headers {
        /// Of which call.
        call: CallId,
        /// A block of metadata.
        metadata: Bytes,
    },
    /// A message has come.
    Message {
        /// On which call.
        call: CallId,
        /// The message.
        message: Message,
    },
    /// The client says nothing more (server).
    HalfClosed {
        /// On which call.
        call: CallId,
    },
    /// All messages that were given to a call are on their way: the next may be given without waiting for memory.
    Sent {
        /// Which.
        call: CallId,
    },
    /// A call is over: a client's with the server's status or this end's, a server's because it was cancelled.
    Ended {
        /// Which.
        call: CallId,
        /// How.
        status: Status,
    },
}

/// Why something can't be done for a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// It has ended, or this end has said all that it may.
    #[error("the call has ended, or nothing more may be said on it")]
    Ended,
    /// A server has said the headers of its answer, or a message, which headers go before.
    #[error("the answer's headers have been said: they go before its messages, once")]
    HeadersSaid,
    /// The session is over or draining, or was never begun.
    #[error("no call can begin in this session: it is over, draining, or not connected yet")]
    Over,
    /// Servers don't begin calls.
    #[error("a server's session begins no calls")]
    NotAClient,
    /// Clients don't answer calls.
    #[error("a client's session answers no calls: use finish to end what it says")]
    NotAServer,
}

impl CallError {
    /// Its number, as `spec/errors.md` has it.
    pub fn number(&self) -> u16 {
        match self {
            CallError::Ended => errors::CALL_ENDED,
            CallError::HeadersSaid => errors::CALL_HEADERS_SAID,
            CallError::Over => errors::CALL_NO_SESSION,
            CallError::NotAClient => errors::CALL_NOT_A_CLIENT,
            CallError::NotAServer => errors::CALL_NOT_A_SERVER,
        }
    }
}
