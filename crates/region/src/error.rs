//! Why a region was not created or not mapped.

use std::io;

use tollfree_os::fd::RawFd;
use tollfree_os::rustix::fs::SealFlags;
use tollfree_os::rustix::io::Errno;

/// Why a region was not created or a peer's region not mapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// What the peer passed cannot be used safely. The peer's fault: the session ends.
    #[error("the peer's region (fd {fd}) is refused: {fault}")]
    Peer {
        /// The number that the descriptor had in this process. It is closed, or about to be.
        fd: RawFd,
        /// What is wrong with it.
        fault: PeerFault,
    },
    /// Out of memory, descriptors or another limited resource. Nothing is kept; trying later may work.
    #[error("no room for a region of {len} bytes: {step} failed ({source}); {advice}")]
    Exhausted {
        /// The operation that failed.
        step: &'static str,
        /// Length of the region in bytes.
        len: usize,
        /// What the user can do.
        advice: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The system's policy does not let this process share memory. Trying again will not help.
    #[error(
        "this process may not share memory: {step} is forbidden ({source}); \
         let its seccomp profile or security module allow memfd_create, fcntl, ftruncate, fstatfs, fallocate, mmap and madvise"
    )]
    Forbidden {
        /// The operation that was refused.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// Anything else the kernel said; not expected of a Linux of 5.1 or later.
    #[error("a region of {len} bytes cannot be set up: {step} failed ({source})")]
    System {
        /// The operation that failed.
        step: &'static str,
        /// Length of the region in bytes.
        len: usize,
        /// What the kernel said.
        source: io::Error,
    },
}

/// What is wrong with the descriptor that a peer passed as its region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerFault {
    /// Not shared memory at all.
    #[error("it is {0}, not shared memory made by memfd_create")]
    Kind(&'static str),
    /// Shared memory that the peer could still change the size of or make writable for others.
    #[error("it lacks the seals {missing}; its creator has to add them before it sends the fd")]
    Unsealed {
        /// The missing seals in words.
        missing: Seals,
    },
    /// Not as long as was said in the handshake.
    #[error("it is {found} bytes long where {expected} were announced")]
    Length {
        /// Length according to the kernel, in bytes.
        found: u64,
        /// Length announced, in bytes.
        expected: usize,
    },
    /// It has more memory than it is long: some lies behind its end, where nobody reads, in place of pages that would be
    /// made by their reader.
    #[error(
        "{reserved} bytes of memory are reserved for its {len} bytes; its creator must reserve none behind its end"
    )]
    Excess {
        /// Bytes that have memory behind them.
        reserved: u64,
        /// Length in bytes.
        len: usize,
    },
    /// Sparse: reading it could fail with SIGBUS, or would make its pages at the reader's expense.
    #[error("only {reserved} of its {len} bytes are reserved; its creator has to fallocate all of it first")]
    Sparse {
        /// Bytes that have memory behind them.
        reserved: u64,
        /// Length in bytes.
        len: usize,
    },
    /// Passed without the right to read it.
    #[error("it is not open for reading")]
    Unreadable,
    /// Passed without the right to write it, so that nothing can be cut off behind its end.
    #[error("it is not open for writing; its creator has to pass the descriptor that memfd_create gave it")]
    Unwritable,
}

/// A set of seals that prints as their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seals(pub(crate) SealFlags);

impl std::fmt::Display for Seals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (idx, (name, _)) in self.0.iter_names().enumerate() {
            write!(f, "{}F_SEAL_{name}", if idx > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

impl RegionError {
    /// Whether the peer is to blame, rather than this process or its machine.
    pub fn is_peer_fault(&self) -> bool {
        matches!(self, RegionError::Peer { .. })
    }

    /// Whether trying again later may work.
    pub fn is_exhausted(&self) -> bool {
        matches!(self, RegionError::Exhausted { .. })
    }

    /// Sorts what the kernel said about `step`.
    pub(crate) fn from_errno(step: &'static str, len: usize, errno: Errno) -> RegionError {
        let source = io::Error::from(errno);
        let advice = match errno {
            Errno::MFILE => "this process has too many files open: raise its limit (ulimit -n)",
            Errno::NFILE => "the system has too many files open: raise fs.file-max",
            Errno::NOSPC | Errno::NOMEM | Errno::AGAIN => "free memory or raise this process's memory limits",
            Errno::FBIG | Errno::OVERFLOW => "ask for less, or raise the file size limit (ulimit -f)",
            Errno::PERM | Errno::ACCESS | Errno::NOSYS => return RegionError::Forbidden { step, source },
            _ => return RegionError::System { step, len, source },
        };
        RegionError::Exhausted { step, len, advice, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sorted_by_what_can_be_done() {
        let of = |errno| RegionError::from_errno("mmap", 4096, errno);
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOSPC, Errno::NOMEM, Errno::FBIG] {
            assert!(of(errno).is_exhausted(), "{errno}");
        }
        for errno in [Errno::PERM, Errno::ACCESS, Errno::NOSYS] {
            assert!(matches!(of(errno), RegionError::Forbidden { .. }), "{errno}");
        }
        let other = of(Errno::INVAL);
        assert!(
            matches!(other, RegionError::System { .. }) && !other.is_exhausted() && !other.is_peer_fault()
        );
        assert!(other.to_string().contains("mmap") && other.to_string().contains("4096"));
    }
}
