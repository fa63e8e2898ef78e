//! Memory that two processes share; nothing else in Tollfree maps memory.

mod copy;
mod error;
mod fork;
pub mod heap;
#[cfg(loom)]
mod loom_memory;
mod mapping;
mod memory;
mod own;
mod peer;

pub use error::{PeerFault, RegionError, Seals};
pub use fork::forked;
pub use heap::HeapMemory;
#[cfg(loom)]
pub use loom_memory::LoomMemory;
pub use memory::{ReadMemory, WriteMemory};
pub use own::Region;
pub use peer::PeerRegion;
