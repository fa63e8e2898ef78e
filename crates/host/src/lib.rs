//! What every driver needs of its host, without a runtime: how two processes become a session, the session's socket, who else wants the
//! processors, and what waiting has cost.
//!
//! # Handshake
//! A driver connects or accepts a socket that does not block, and calls [`Connecting::step`] or [`Accepting::step`] until it is done: each says what
//! it waits for. The driver sees to [`Config::handshake_timeout`], and closes the socket where there is an error.
//!
//! # States
//! ```text
//! client   connect ─► check server's user ─► !HELLO + fd ─► ?WELCOME + fd ─► check, map ─► attached
//!                                                       └─► ?REFUSAL ─► error in the server's words
//! server   accept ─► check client's user ─► ?HELLO + fd ─► check, map ─► !WELCOME + fd ─► attached
//!                              └────────────────┴─────────────┴─► !REFUSAL with reason and text
//! ```
//! At a gateway ATTACH or VIA stands for HELLO, with a registration behind it. The process that says ATTACH is the session's
//! server, and the gateway its client; all else is as above.
//!
//! # Trust
//! Every number of a message is checked against limits before it is used; descriptors are checked by the region.
//! Whatever else arrives, too late, too early or in excess, ends the handshake and is closed.

#![forbid(unsafe_code)]

mod accepting;
mod admission;
mod config;
mod connect_error;
mod connecting;
pub mod counts;
mod cpu_quota;
mod ends;
mod error;
mod inbox;
mod mail;
mod messages;
mod pending_handshakes;
#[cfg(all(feature = "events", target_os = "linux"))]
mod recording;
mod registration;
mod session_socket;
mod surroundings;
mod tokens;

pub use accepting::Accepting;
pub use admission::{QuotaUsage, Quotas, Refusals, Seat};
pub use config::{Accepts, Admits, Attacher, Config};
pub use connect_error::{ConnectError, ConnectErrorKind, DIAL_PAUSE, STARTING, patience};
pub use connecting::Connecting;
pub use ends::Ends;
pub use error::HandshakeError;
pub use mail::Step;
pub use messages::{
    Attached, Own, Peer, PeerPool, attach, check_answer, check_memory, check_request, offer, refusal, welcome,
};
pub use pending_handshakes::PendingHandshakes;
pub use registration::{Purpose, Registration, body_len};
pub use session_socket::{OnSocket, SessionSocket, SocketEvent, log_report};
pub use surroundings::Here;
pub use tokens::{Ticket, Token, TokenError, Tokens};
