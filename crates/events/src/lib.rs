//! What a session, its rings and its driver do, event by event; with the feature `lines`, as lines of a file.
//!
//! A [`SessionEvent`] has no time and no session: its recorder adds both, and makes a `Line` of them. Nothing here reads a clock, a
//! file or memory of another process.
//!
//! # A file of events
//! A file has lines of [`LINE_LEN`] bytes: JSON, filled up with spaces. The first says of which process the file is. The others are a ring: the
//! line of event `n` stands in place `n % line_count`, so that a file keeps the newest events and never grows beyond its bound.
//!
//! # Trust
//! What a peer chose, its name and the reason that it gives, is cut to a length and keeps printable ASCII only, when it is recorded and again
//! when it is read: neither a line nor a terminal is the peer's to write.
//!
//! # Example
//! ```
//! use tollfree_events::{SessionEvent, StreamCause, StreamLook};
//!
//! let before = StreamLook::default();
//! let after = StreamLook { live: false, ..before };
//! let event = SessionEvent::Stream { stream: 1, cause: StreamCause::Over, from: before, to: after };
//! assert_eq!(event.to_string(), "stream 1 is over: head/head, now head/head, over");
//! ```
#![forbid(unsafe_code)]

mod event;
#[cfg(feature = "lines")]
mod line;
mod look;
mod text;
mod words;

pub use event::{Decision, Doorbell, Lack, Place, SessionEvent, Side, StreamCause};
#[cfg(feature = "lines")]
pub use line::{FileHead, LINE_LEN, Line, ReadError, Recorded, VERSION, put_head, put_line};
pub use look::{FrameKinds, RecvHalf, SendHalf, StreamLook};
pub use text::Text;
