//! Memory that two processes share, written by the one that created it and read-only to the other; nothing else in
//! Tollfree maps memory.
//!
//! # Layout
//! A region is one memfd, mapped whole: bytes from 0 to its length. What lies where is for those above to say
//! (`tollfree_layout::control` for the regions of a session). Pages are reserved before anybody sees them, and zero.
//!
//! # States
//! ```text
//! creator:  memfd ──ftruncate──► sized ──mmap──► mapped ──fallocate──► reserved ──F_ADD_SEALS──► sealed ──drop──► unmapped
//!                                                                                                │ fd()
//! peer:                              received ──seals, length, blocks──► checked ──mmap──► mapped ──drop──► unmapped
//! ```
//! An error on any step goes back to nothing. The order matters: the creator's mapping has to exist before the seal
//! that forbids writable ones, and a length means nothing before the seal that fixes it.
//!
//! # Who writes what
//! | what | creator ([`Region`]) | peer ([`PeerRegion`]) | pairs with |
//! |---|---|---|---|
//! | words | `store_*`, `Relaxed` or `Release` | `load_*`, `Relaxed` or `Acquire` | a `Release` store with the `Acquire` load that sees it |
//! | bytes | `copy_in`, `fill` | `copy_out`, `append_to` | ordered by the words above only |
//! | size, seals | nobody once it is sealed | nobody | |
//!
//! Both kinds, and [`HeapMemory`] for tests, are used through [`ReadMemory`] and [`WriteMemory`], from any thread.
//!
//! # Trust
//! A peer can store any byte of its own region at any time, and nothing else: it cannot write this side's, shrink or
//! punch holes in its own (so reading never raises SIGBUS), nor give it to others to write. What it passes instead of
//! a region is refused ([`PeerFault`]), without a question to anybody but the kernel, and closed without waiting
//! ([`GivenFd`]). No reference to bytes that a peer writes is ever made, beyond atomics for the length of one access: values are
//! loaded once into private memory and checked there, by the caller. To bytes of its own region a creator makes one while it fills
//! them ([`Region::fill`]).
//!
//! A [`PrivateView`] shows pages of regions to a process that wants to write them: what it stores it alone sees.
//!
//! # Crash
//! A memfd has no name. When a process dies, at whatever step, its mapping and descriptor go with it; the other side's
//! mapping stays valid, with the last bytes, until it is dropped, and then the memory is free. Memory is charged to
//! the process that created it. A forked child has no mapping of its parent's regions ([`Origin`] tells); nothing survives exec.
//!
//! # Example
//! ```
//! use std::sync::atomic::Ordering;
//! use tollfree_region::{PeerRegion, ReadMemory, Region, WriteMemory};
//!
//! let own = Region::create("example", 4096)?;
//! own.copy_in(8, b"hello");
//! own.store_u64(0, 5, Ordering::Release);
//!
//! // In the peer, with the fd that came over a socket:
//! let fd = own.fd().try_clone_to_owned()?;
//! let peer = PeerRegion::map(fd, 4096)?;
//! let len = peer.load_u64(0, Ordering::Acquire).min(5) as usize;
//! let mut copy = vec![0; len];
//! peer.copy_out(8, &mut copy);
//! assert_eq!(copy, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod copy;
mod error;
mod fork;
mod given;
pub mod heap;
#[cfg(loom)]
mod loom_memory;
mod mapping;
mod memory;
mod own;
mod peer;
mod private;
mod range;

pub use error::{PeerFault, RegionError, Seals};
pub use fork::Origin;
pub use given::{CLOSING_COUNT_MAX, GivenFd, GivenKind, closing_count};
pub use heap::HeapMemory;
#[cfg(loom)]
pub use loom_memory::LoomMemory;
pub use memory::{ReadMemory, WriteMemory};
pub use own::Region;
pub use peer::PeerRegion;
pub use private::{Patch, PrivateView};
pub use range::RangeWriter;
