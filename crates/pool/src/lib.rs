//! Memory of a trust domain: large values travel as refs to pages that nobody changes, and a writer gets copies of
//! the pages that it touches.
//!
//! A [`Pool`] is this process's membership. A [`Buffer`] is memory to produce into; frozen, it is a [`Ref`], which can be
//! read in place, cloned, sliced, turned back into `Bytes`, and sent to other members as 56 bytes. A [`Payload`] is bytes
//! that know where they live, and can be written: only touched pages are copied. An [`Overlay`] is the same for code that
//! wants plain memory: the kernel copies the pages that it stores to.
//!
//! Every member makes its own *extents*, sealed memory files that the others map read-only, within what the
//! [`Coordinator`] grants it. Who holds which block is written by each reader in a row of its own, which the owner looks
//! at before it uses the block again ([`holds`] has the protocol). Allocating, freeing, passing on, taking hold and letting
//! go make no system call.
//!
//! # Trust
//! Every process of the coordinator's user may join, unless the pool was made by [`Pool::create_by_invitation`]. Members of a pool trust each other with each other's bytes: every member can read all of every extent that it maps. None
//! can write another's. An owner that breaks the protocol can change bytes under its own readers.
//!
//! # Example
//! ```
//! use tollfree_pool::{Address, Capacity, Config, Payload, Pool};
//!
//! # let directory = tempfile::tempdir()?;
//! # let address: Address = format!("shm://{}/pool.sock", directory.path().display()).parse()?;
//! let writer = Pool::create(&address, Capacity::default(), Config::default())?;
//! let reader = Pool::join(&address, Config::default())?; // usually in another process
//!
//! let mut buffer = writer.buffer(100_000)?;
//! buffer.resize(100_000);
//! buffer[70_000..70_005].copy_from_slice(b"hello");
//! let bytes = buffer.freeze()?;
//! let travelling = bytes.slice(70_000..)?.to_bytes()?;
//!
//! let seen = reader.map_ref(&travelling)?;
//! assert_eq!(&seen[..5], b"hello"); // the writer's memory, not a copy
//!
//! let mut mine = Payload::from(seen);
//! mine.make_mut(0..5)?.copy_from_slice(b"adieu"); // a copy of one page
//! assert_eq!((&bytes[70_000..70_005], mine.to_vec()[..5].as_ref()), (&b"hello"[..], &b"adieu"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod agent;
mod buffer;
mod capacity_shares;
mod composer;
mod config;
mod coordinator;
mod counts;
mod error;
mod extent;
mod fetching;
mod handshake;
mod heap;
mod held;
pub mod holds;
mod inner;
mod invitation;
mod link;
mod member_protocol;
mod membership;
mod overlay;
mod patience;
mod payload;
mod pool;
mod refs;
mod roomy;
mod runs;
mod segmented;
mod sending;
mod show;
#[cfg(test)]
mod simulation;
mod steps;

pub use buffer::Buffer;
pub use composer::{Composed, Composer};
pub use config::{Capacity, Config, WhenShort};
pub use coordinator::Coordinator;
pub use counts::{Counts, Holder, Room, Usage};
pub use error::{AllocError, JoinError, RefError, Refusal, Shortage};
pub use fetching::Fetching;
pub use invitation::{Invitation, Inviter, NoInvitation};
pub use overlay::{Overlay, OverlayError};
pub use payload::{Payload, WriteError};
pub use pool::Pool;
pub use refs::Ref;
pub use segmented::{Plan, SegmentedError, SegmentedMessage};
pub use sending::{REF_THRESHOLD_DEFAULT, REF_THRESHOLD_ENCODED_DEFAULT};
pub use show::{PoolMember, PoolShown, Standing, show};
#[cfg(feature = "steps")]
pub use steps::STEPS;
pub use tollfree_layout::pool::REF_LEN;
pub use tollfree_rendezvous::{Address, AddressError, BindError};
