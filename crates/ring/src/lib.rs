//! Records between two processes: a single-producer single-consumer ring and its doorbell.
//!
//! # Layout
//! ```text
//! region of side A (A writes, B reads)            region of side B (B writes, A reads)
//! |    0  control page                   |        |    0  control page                   |
//! |       consumed: how far A read B's   |        |       consumed: how far B read A's   |
//! |       waiting, cpu: whether A sleeps |        |       waiting, cpu: whether B sleeps |
//! | 4096  ring from A to B               |        | 4096  ring from B to A               |
//!
//! ring:    | line | line | line | line | ...    64 bytes each, a power of two of them
//! record:  | head word 8 | payload ...                 | as many whole lines as it needs, over the end of the ring
//! ```
//! The head word and the control page are `tollfree_layout::record` and `tollfree_layout::control`, which check their
//! offsets. A position ([`RingPos`](tollfree_layout::RingPos)) counts lines since the session began.
//!
//! # States
//! Of a line, in the order it goes through them:
//!
//! ```text
//!        clean_to            stage               publish              peek, advance          release
//! free ───────────► clean ───────────► staged ───────────► published ───────────────► passed ─────────► free
//! sender            sender             sender              receiver                   receiver          sender
//! ```
//! The name below is whose it is: nobody else reads or writes the line, but for the receiver's look at the head word of
//! the first line that isn't published. That head is empty until a whole batch is written: its line is the last that
//! is, so the receiver, which may be spinning on it, is disturbed once a batch. At least one line is always free or
//! clean, for the empty head behind the last record; the sender empties a few more while the receiver is busy.
//!
//! # Who writes what
//! | field | owner | ordering | pairs with |
//! |---|---|---|---|
//! | head word at the published end | sender | `Release` store in [`publish`](RecordSender::publish) | `Acquire` load in [`peek`](RecordReceiver::peek) |
//! | other head words, payload | sender | `Relaxed`, before that store | reads after that load |
//! | `consumed` | receiver | `Release` store in [`release`](RecordReceiver::release) | `Acquire` load where the sender runs short of room |
//! | `waiting` | [`Waiter`] | store, then `SeqCst` fence | `SeqCst` fence, then load in [`Ringer`] |
//! | `cpu` | [`Waiter`] | `Relaxed` | nothing: a hint |
//!
//! # Trust
//! The peer can put anything into its region at any time. A head word is fetched once; a wrong sequence, a length
//! beyond the longest record, a cursor that goes back or beyond what was published is a [`RingViolation`], which stays:
//! every later call says the same. Payload bytes may change while they are read; they are copied out once and
//! parsed in the copy. A forged `waiting` word costs at most one doorbell a call. Nothing here loops over
//! what a peer says, but for copying one record.
//!
//! # Crash
//! A sender that dies before the `Release` store has sent nothing: the receiver sees an empty head. After it, the whole
//! batch is there and can be read to its end from memory that stays mapped. A receiver that dies has released what it
//! has released; nothing waits for a lock, for there is none. Either death is learnt from the socket, not from here.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//! use tollfree_region::HeapMemory;
//! use tollfree_ring::{Geometry, RecordRead, RecordReceiver, RecordSender, RingReceiver, RingSender};
//!
//! let ring = Geometry::new(4096, 4096)?;
//! let a = Arc::new(HeapMemory::new(ring.end()));
//! let b = Arc::new(HeapMemory::new(4096));
//! let mut sender = RingSender::new(a.clone(), b.clone(), ring);
//! let mut receiver = RingReceiver::new(b, a, ring);
//!
//! sender.stage(&[b"hello, ", b"world"])?;
//! assert!(receiver.peek()?.is_none(), "staged is not yet published");
//! sender.publish();
//!
//! let record = receiver.peek()?.expect("published");
//! let mut text = vec![0; record.len()];
//! record.read(0, &mut text);
//! assert_eq!(text, b"hello, world");
//! receiver.advance();
//! receiver.release();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod doorbell;
mod geometry;
#[cfg(test)]
mod late;
mod receiver;
mod record;
mod sender;

pub use doorbell::{Ringer, Waiter};
pub use geometry::{Geometry, GeometryError};
pub use receiver::{RingReceiver, RingRecord};
pub use record::{RecordRead, RecordReceiver, RecordSender, RingViolation, StageError};
pub use sender::RingSender;
