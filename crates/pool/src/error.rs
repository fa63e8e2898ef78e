//! Why something was not done with a pool.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tollfree_layout::pool::pool_reason;
use tollfree_region::RegionError;
use tollfree_rendezvous::{Address, BindError};

use crate::counts::{Amount, Room};
use crate::holds::TakeError;

/// Why a process is not a member of a pool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The coordinator's address can't be bound.
    #[error("no pool can be made: {0}")]
    Bind(#[from] BindError),
    /// Settings that make no sense.
    #[error("no pool can be made: {0}")]
    Settings(&'static str),
    /// Nobody coordinates a pool there.
    #[error("no pool at {address}: {source}; is its coordinator (`tollfree pool serve`) running?")]
    Connect {
        /// Where.
        address: Address,
        /// What the kernel said.
        source: io::Error,
    },
    /// The coordinator belongs to another user.
    #[error("the pool at {address} is coordinated by user {uid}, and this process trusts {policy}")]
    User {
        /// Where.
        address: Address,
        /// Who.
        uid: u32,
        /// Whom it trusts.
        policy: &'static str,
    },
    /// The coordinator says no.
    #[error("the pool at {address} refuses this process: {reason}")]
    Refused {
        /// Where.
        address: Address,
        /// Why.
        reason: Refusal,
    },
    /// Something else answers there, or hangs up.
    #[error("what answers at {0} has hung up, or is not a pool's coordinator")]
    NotACoordinator(Address),
    /// No answer in time.
    #[error("the pool's coordinator at {address} did not answer within {limit:?}: is it stopped?")]
    Timeout {
        /// Where.
        address: Address,
        /// How long was waited.
        limit: Duration,
    },
    /// A pipe, an event counter, a thread or the fork mark could not be had.
    #[error("a member needs {what}: {source}")]
    System {
        /// What.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Why a coordinator refuses something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The member or extent is dead, given up, or was never there.
    Gone,
    /// The member has its quota.
    Quota,
    /// The pool has no more capacity.
    Capacity,
    /// The coordinator keeps another pool.
    OtherPool,
    /// It speaks another version.
    Version,
    /// The other side reads too slowly.
    Busy,
    /// Another user.
    User,
    /// The request makes no sense; a bug on either side.
    Malformed,
    /// The kernel doesn't let the coordinator watch the member's process.
    Life,
    /// The pool is for those who were invited.
    Invitation,
}

impl Refusal {
    pub(crate) fn from_wire(reason: u32) -> Refusal {
        match reason {
            pool_reason::GONE => Refusal::Gone,
            pool_reason::QUOTA => Refusal::Quota,
            pool_reason::CAPACITY => Refusal::Capacity,
            pool_reason::POOL => Refusal::OtherPool,
            pool_reason::VERSION => Refusal::Version,
            pool_reason::BUSY => Refusal::Busy,
            pool_reason::USER => Refusal::User,
            pool_reason::LIFE => Refusal::Life,
            pool_reason::INVITATION => Refusal::Invitation,
            _ => Refusal::Malformed,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Refusal::Gone => "that member or extent is no longer there",
            Refusal::Quota => "the member's quota is used up",
            Refusal::Capacity => "the pool's capacity is used up",
            Refusal::OtherPool => "it coordinates another pool",
            Refusal::Version => "it speaks another version of the pool's protocol",
            Refusal::Busy => {
                "it is short of descriptors or memory, or somebody does not read its messages; try later"
            }
            Refusal::User => "only its own user is allowed",
            Refusal::Malformed => "the request was malformed",
            Refusal::Invitation => {
                "it lets in only processes that were invited, each invitation once and within 30 s"
            }
            Refusal::Life => "the kernel does not let it watch this process (is pidfd_open forbidden there?)",
        })
    }
}

/// Why no memory of the pool was given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// No bytes were asked for.
    #[error("a buffer of no bytes needs no pool")]
    Empty,
    /// More than the pool ever gives at once.
    #[error("{len} bytes are more than a member of this pool can have at once ({max})")]
    TooLong {
        /// Bytes asked for.
        len: usize,
        /// Most bytes.
        max: usize,
    },
    /// There is none now; it may come back as others let go.
    #[error("the pool has no {len} bytes for this member: {by}; {room}")]
    Exhausted {
        /// Bytes asked for.
        len: usize,
        /// What is short.
        by: Shortage,
        /// Who has what this member has.
        room: Arc<Room>,
    },
    /// The process that it was for holds as much of this member's as one may.
    #[error(
        "process {process} holds {} of this member's memory, and may hold {} (the setting `Config::reader_limit`)",
        Amount(*held),
        Amount(*limit)
    )]
    ReaderLimit {
        /// Which.
        process: u32,
        /// Bytes that it held when that was last looked at.
        held: u64,
        /// Bytes that it may hold.
        limit: u64,
    },
    /// This process was forked from the member, and isn't one.
    #[error("a forked child is no member of its parent's pool; join it anew")]
    Forked,
}

/// What is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shortage {
    /// This member's quota: let go of refs, or raise it.
    Quota,
    /// The pool's capacity.
    Capacity,
    /// The machine's memory, or descriptors.
    Machine,
    /// The coordinator is gone; what the member has goes on.
    Coordinator,
    /// The answer isn't here yet.
    Time,
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Shortage::Quota => {
                "its quota is used up (let go of refs, or raise the quota: `Capacity::member_quota`, `tollfree pool serve --quota`)"
            },
            Shortage::Capacity => {
                "the pool's capacity is used up (the setting `Capacity::total`, `tollfree pool serve --capacity`)"
            }
            Shortage::Machine => "the machine has no more memory or descriptors",
            Shortage::Coordinator => "the coordinator is gone, and with it the right to more",
            Shortage::Time => "more was asked for and is not here yet",
        })
    }
}

/// Why a ref is not what was hoped for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RefError {
    /// No bytes.
    #[error("a ref to no bytes")]
    Empty,
    /// Outside of what it is a part of.
    #[error("bytes {start} to {end} are outside of the {len} there are")]
    Range {
        /// First byte.
        start: usize,
        /// Behind the last.
        end: usize,
        /// Bytes there are.
        len: usize,
    },
    /// Not the bytes of a ref at all, or fields that can't be.
    #[error("these bytes are not a ref: {0}")]
    Malformed(&'static str),
    /// A ref of another pool.
    #[error("the ref is of another pool than this member's")]
    ForeignPool,
    /// Made up: the key is wrong.
    #[error("the ref is forged: its key is not the block's")]
    Forged,
    /// Nobody held it any more, and the block was given up.
    #[error("the ref is stale: its block was given up, since nobody held it")]
    Stale,
    /// Its owner is dead or gave the extent up.
    #[error("the ref's owner or extent is no longer there")]
    Gone,
    /// As many holds as can be counted.
    #[error("the count of holds of the block is at its limit")]
    Full,
    /// The extent isn't mapped here yet: `fetch` or `map_ref` it.
    #[error("the ref's extent is not mapped here yet")]
    NotHere,
    /// The extent can't be asked for without a coordinator.
    #[error("the ref's extent is not mapped here, and the pool's coordinator is gone")]
    Coordinator,
    /// The coordinator or the owner didn't answer.
    #[error("the ref's extent was not to be had within {0:?}: is its owner stopped?")]
    Timeout(Duration),
    /// The coordinator says no.
    #[error("the ref's extent is refused: {0}")]
    Refused(Refusal),
    /// The extent can't be mapped.
    #[error("the ref's extent can't be mapped: {0}")]
    Region(String),
    /// This process was forked from the member, and isn't one.
    #[error("a forked child is no member of its parent's pool; join it anew")]
    Forked,
}

impl RefError {
    /// Whether the ref is not one that this member may have: what a server answers PERMISSION_DENIED to.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, RefError::ForeignPool | RefError::Forged | RefError::Malformed(_))
    }

    /// Whether the ref was good once.
    pub fn is_stale(&self) -> bool {
        matches!(self, RefError::Stale | RefError::Gone)
    }
}

impl From<TakeError> for RefError {
    fn from(error: TakeError) -> RefError {
        match error {
            TakeError::Full => RefError::Full,
            TakeError::Stale => RefError::Stale,
            TakeError::Forged => RefError::Forged,
        }
    }
}

/// A failed step of fetching an extent, which several waiters are told.
#[derive(Clone, Debug)]
pub(crate) enum FetchFault {
    Refused(Refusal),
    Coordinator,
    Region(String),
}

impl From<FetchFault> for RefError {
    fn from(fault: FetchFault) -> RefError {
        match fault {
            FetchFault::Refused(Refusal::Gone) => RefError::Gone,
            FetchFault::Refused(reason) => RefError::Refused(reason),
            FetchFault::Coordinator => RefError::Coordinator,
            FetchFault::Region(words) => RefError::Region(words),
        }
    }
}

impl From<RegionError> for FetchFault {
    fn from(error: RegionError) -> FetchFault {
        FetchFault::Region(error.to_string())
    }
}
