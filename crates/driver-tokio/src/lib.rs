//! Sessions between processes of one host: rendezvous, handshake, liveness, waiting, payload areas.
//!
//! A server binds an [`Address`] with a [`Listener`]; a client connects an [`Attachment`]; both then open, accept, send
//! and receive calls as poll functions. The meaning of what is sent is [`tollfree_session`]'s; the memory is
//! [`tollfree_region`]'s and [`tollfree_ring`]'s; this crate owns sockets, clocks, wakers and tasks.
//!
//! # Example
//! ```
//! # use std::{future::poll_fn, time::Duration};
//! # use tollfree_driver_tokio::*;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let address: Address = format!("shm://{}/s.sock", directory.path().display()).parse()?;
//! let mut listener = Listener::bind(&address, Config::default())?;
//! let client = Attachment::connect(&address, &Config::default()).await?;
//! let server = listener.accept().await.expect("it listens");
//!
//! let opening = Opening { path: "/test.Echo/Call", deadline_ns: 0 };
//! let mut request = Outgoing {
//!     message: Some(OutgoingMessage::new("hello".into(), false)),
//!     ending: Some(Ending::HalfClose),
//!     ..Outgoing::default()
//! };
//! let mut opener = client.open();
//! let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut request)).await?;
//! let mut accepted = None;
//! poll_fn(|cx| server.poll_accept(cx, &mut accepted)).await?;
//! let call = accepted.unwrap().into_call(true);
//! assert_eq!(&call.path[..], b"/test.Echo/Call");
//! # drop(stream);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod accepted;
mod attachment;
mod call;
mod claim;
mod cooperative_budget;
mod core;
mod driver;
mod files;
mod inherited;
#[cfg(feature = "tls")]
mod link;
#[cfg(not(feature = "tls"))]
#[path = "link/absent.rs"]
mod link;
mod listener;
mod liveness;
mod load;
mod looking;
mod objects;
mod opening;
mod peer_socket;
mod pending_handshakes;
mod publishing;
mod registers;
mod remote;
mod room;
mod runtime_waiters;
mod shaking;
mod shared;
mod turn;
mod turns;
mod unix_listener;

pub use accepted::{Accepted, Call};
pub use attachment::{Attachment, Backlog};
pub use call::{Chunk, Incoming, IncomingPiece, Part, Stream};
pub use claim::Claim;
pub use files::{FileError, aside, read_file};
#[cfg(feature = "tls")]
pub use link::address::{StreamAddress, StreamAddressError};
#[cfg(feature = "tls")]
pub use link::certificates::{CertificateError, Certificates};
#[cfg(feature = "tls")]
#[doc(hidden)]
pub use link::feed::{Fed, Feed};
#[cfg(feature = "tls")]
pub use link::listener::{StreamListener, StreamPolicy, SubjectOf};
pub use listener::Listener;
pub use opening::{Opener, Started};
pub use registers::{Batch, DoorbellMode, RegisterError, Registers, Spin};
pub use remote::{LocalPeer, RemoteIdentity};
pub use tollfree_connection::{Announced, PeerActivity, WaitPolicy};
pub use tollfree_host::counts::{Waits, peer_deaths, waits};
pub use tollfree_host::{
    Accepts, Admits, Attacher, Config, ConnectError, ConnectErrorKind, Ends, HandshakeError, PeerPool,
    Purpose, Quotas, Refusals, Registration, Ticket, Token, TokenError, Tokens,
};
pub use tollfree_os::clock::{now_ns, tick_ns};
pub use tollfree_region::RangeWriter;
pub use tollfree_rendezvous::{
    Address, AddressError, BeneathError, BindError, FileId, OfferedSocket, PeerIdentity, PeerPolicy,
    RateLimitedLog, SocketFile, SocketMode, is_listed, is_master_of, is_same_user, own_user,
};
pub use tollfree_session::{
    Closed, DeferredEncoding, Encoded, End, Ending, GRPC_PREFIX_LEN, Keep, Limits, OBJECT_PREFIX, Opening,
    Outgoing, OutgoingMessage, Parts, SendError, SingleFrame, Written, join,
};
pub use unix_listener::bind_unix;
