//! The Unix socket at which processes meet: its address, binding it, and bytes with file descriptors over it.
//!
//! Sessions and pools meet in the same way: a server binds
//! an [`Address`] with a [`Rendezvous`], the others connect, and each side asks the kernel who is there. What they say to
//! each other is for those above.
//!
//! # Example
//! ```
//! use std::os::unix::net::UnixStream;
//! use tollfree_rendezvous::{Address, Rendezvous};
//!
//! let directory = tempfile::tempdir()?;
//! let address: Address = format!("shm://{}/s.sock", directory.path().display()).parse()?;
//! let bound = Rendezvous::bind(&address)?;
//! let _client = UnixStream::connect(directory.path().join("s.sock"))?;
//! let (_server, _) = bound.listener().accept()?;
//! assert!(Rendezvous::bind(&address).is_err(), "a live server has it");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod address;
mod bind;
mod descriptors;
mod doorbell;
mod listener_lock;
mod liveness;
mod offered_socket;
mod portable;
mod rate_limited_log;
pub mod socket;
mod socket_file;
mod users;

pub use address::{Address, AddressError};
pub use bind::{BindError, Rendezvous};
pub use descriptors::{descriptor_limit, descriptors_abound, descriptors_are_short};
pub use doorbell::{Doorbell, PeerDoorbell};
pub use liveness::{Liveness, process_at};
pub use offered_socket::{BeneathError, FileId, OfferedSocket};
pub use rate_limited_log::RateLimitedLog;
pub use socket::PeerIdentity;
pub use socket_file::{SocketFile, SocketMode};
pub use users::{PeerPolicy, is_listed, is_master_of, is_same_user, own_user};
