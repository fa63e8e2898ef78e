//! The one seam between Tollfree and the operating system: whatever differs between systems is chosen here.
//!
//! Shared memory needs sealed memory without a name, descriptors sent over Unix sockets, and handles to processes. Only Linux has
//! all of them. A program for another system still builds, and has HTTP/2 alone: [`shared_memory`] then returns [`NeedsLinux`],
//! with which addresses of shared memory are refused where they are parsed or bound.
//!
//! | modules | Linux | macOS and other Unix | Windows |
//! |---|---|---|---|
//! | [`rustix`], [`nix`], [`linux`] | the real ones | stand-ins | stand-ins |
//! | [`fd`], [`unix`], `tokio_net`, `tonic_uds` | the real ones | the real ones | stand-ins |
//!
//! A stand-in has the names that the parts above use, so that they compile without a `#[cfg]` of their own. Functions that would
//! make a descriptor, map memory or ask the kernel return an error. Clocks, yielding and process numbers work. Types of handles
//! have no values where the system has none.
//!
//! `RUSTFLAGS="--cfg tollfree_http2_only"` builds on Linux what other Unix systems get: `make platforms` tests it so.

use std::fmt;

#[cfg(all(target_os = "linux", not(tollfree_http2_only)))]
pub mod clock;
mod linux_only;
#[cfg(all(target_os = "linux", not(tollfree_http2_only)))]
use linux_only as system;
mod names;
mod rights;

// The names are those of the crates that they stand for, and are documented there.
#[cfg(not(all(target_os = "linux", not(tollfree_http2_only))))]
#[allow(missing_docs)]
mod elsewhere;
#[cfg(not(all(target_os = "linux", not(tollfree_http2_only))))]
use elsewhere as system;

#[cfg(unix)]
mod unix_sockets;
#[cfg(unix)]
use unix_sockets as sockets;

#[cfg(not(unix))]
#[allow(missing_docs)]
mod without_unix;
#[cfg(not(unix))]
use without_unix as sockets;

pub use names::{group_number, user_number};
pub use rights::has_more_rights;
#[cfg(feature = "tokio")]
pub use sockets::tokio_net;
#[cfg(feature = "tonic")]
pub use sockets::tonic_uds;
pub use sockets::{fd, tcp_fd, unix};
pub use system::{linux, nix, rustix};

/// This build has no sessions: neither over shared memory, nor with a gateway of another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsLinux;

impl fmt::Display for NeedsLinux {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instead = if cfg!(unix) { "unix:/path or http://host:port" } else { "http://host:port" };
        write!(
            f,
            "Tollfree's sessions need Linux, and this program was built for {} with HTTP/2 alone: use {instead} here",
            std::env::consts::OS
        )
    }
}

impl std::error::Error for NeedsLinux {}

/// This system has no Unix sockets that Tollfree can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsUnix;

impl fmt::Display for NeedsUnix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Unix sockets need Linux or macOS, and this program was built for {}: use http://host:port here",
            std::env::consts::OS
        )
    }
}

impl std::error::Error for NeedsUnix {}

/// Whether this build has shared memory. Known when the program is compiled.
///
/// # Errors
/// [`NeedsLinux`] on other systems than Linux.
pub const fn shared_memory() -> Result<(), NeedsLinux> {
    if cfg!(all(target_os = "linux", not(tollfree_http2_only))) { Ok(()) } else { Err(NeedsLinux) }
}
