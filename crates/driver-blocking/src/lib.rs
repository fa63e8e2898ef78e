//! Tollfree's calls for threads that wait: without a runtime, without tasks, by bytes.
//!
//! A [`Client`] has a loop (`tollfree-driver-loop`) that its threads share. The thread that waits looks at the rings itself, so that a call takes no switch of
//! threads; what comes for others it puts into their mailboxes, and it hands the loop on as soon as it has its own. Threads take turns in the order
//! in which they came, so none waits for hundreds of another's calls. A [`Server`] runs a handler for each call, in the thread that took it.
//!
//! Messages are bytes as gRPC has them between its prefixes; metadata are blocks, as the loop has them.
//!
//! # Example
//! ```
//! use tollfree_driver_blocking::{CallStart, ChannelConfig, Client, LoopConfig, Message, ServedCall, Server};
//!
//! # let directory = tempfile::tempdir()?;
//! # let address = format!("shm://{}/s.sock", directory.path().display()).parse()?;
//! // Answers with what it gets, in 8 threads at most.
//! let server = Server::new(LoopConfig::default(), 8, |call: &ServedCall| {
//!     if let Some(message) = call.receive() {
//!         let _ = call.answer(message);
//!     }
//! })?;
//! server.listen(&address)?;
//!
//! let client = Client::new(LoopConfig::default())?;
//! let channel = client.channel(ChannelConfig::new(&address))?;
//! let start = CallStart {
//!     message: Some(Message::from(&b"hello"[..])),
//!     is_last: true,
//!     ..CallStart::new("/test.Echo/Call")
//! };
//! let answer = channel.unary(start).expect("answered");
//! assert_eq!(&answer.bytes[..], b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Programs with more than threads
//! An interpreter with a lock of its own uses [`SharedLoop`] beneath, and says by [`Host`] what a thread that waits has to give up. Tollfree's Python package
//! does.
#![forbid(unsafe_code)]

mod call;
mod client;
mod crew;
mod host;
mod leader;
mod mailbox;
mod news;
mod notices;
mod server;
mod shared_loop;
mod turns;

pub use call::{Call, Late};
pub use client::{Beginning, Channel, Client, Session};
pub use host::{Host, Threads};
pub use leader::{Kept, Leader, Told, next_number};
pub use mailbox::Mailbox;
pub use news::{CallMailbox, CallNews, SessionNews};
pub use notices::{LoopClosed, Notice, Notices};
pub use server::{Handler, ServedCall, Server};
pub use shared_loop::SharedLoop;
pub use tollfree_driver_loop::{
    Address, AddressError, BindError, CallError, CallId, CallStart, CallTerms, Capacity, ChannelConfig,
    ChannelId, ChannelState, Closed, ConnectError, ConnectErrorKind, Event, EventLoop, HandshakeError,
    Limits, ListenerId, LoopConfig, Message, PayloadCounts, Policy, Pool, Registration, RetryPolicy,
    SessionId, Status, Target, Throttling, WaitPolicy,
};
