//! Who is in a pool, as its coordinator tells anybody of its user.

use std::time::{Duration, Instant};

use tollfree_layout::pool::{POOL_VERSION, PoolMessage, pool_kind, standing};
use tollfree_rendezvous::Address;

use crate::error::{JoinError, Refusal};
use crate::handshake::{answer, ask};
use crate::link::Inbox;

/// How a member stands with its coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// It is connected.
    Attached,
    /// It has come back after its connection was lost, and has not told of all that it has.
    Returning,
    /// It lives, and its connection is lost: what it has and maps stays until it ends. Nobody waits for it.
    CutOff,
}

/// A member of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolMember {
    /// Its number.
    pub member: u32,
    /// Its process id; none where the coordinator's pid namespace doesn't have it.
    pub process: Option<u32>,
    /// Bytes of capacity that it was granted.
    pub granted_bytes: u64,
    /// Bytes of those that it has made extents of.
    pub extent_bytes: u64,
    /// How it stands.
    pub standing: Standing,
}

/// A pool, as its coordinator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolShown {
    /// Bytes of the pool.
    pub total_bytes: u64,
    /// Bytes that are granted, or still mapped though their owner is gone. May exceed the total where members of a coordinator
    /// before have come back.
    pub used_bytes: u64,
    /// Its members, by number.
    pub members: Vec<PoolMember>,
}

/// Asks the coordinator at an address who is in its pool. Blocks for `limit` at most. The caller needs not be a member.
///
/// # Errors
/// [`JoinError`], as for joining.
pub fn show(address: &Address, limit: Duration) -> Result<PoolShown, JoinError> {
    let until = Instant::now() + limit;
    let socket = ask(address, until, &PoolMessage::new(pool_kind::SHOW))?;
    let mut inbox = Inbox::new();
    let mut next = |kind: u32| {
        let message = answer(address, &socket, &mut inbox, until, limit)?;
        match message.kind.get() {
            _ if message.version.get() != POOL_VERSION => {
                Err(JoinError::Refused { address: address.clone(), reason: Refusal::Version })
            }
            found if found == kind => Ok(message),
            pool_kind::REFUSAL => Err(JoinError::Refused {
                address: address.clone(),
                reason: Refusal::from_wire(message.reason.get()),
            }),
            _ => Err(JoinError::NotACoordinator(address.clone())),
        }
    };
    let pool = next(pool_kind::SHOWN)?;
    let mut members = Vec::new();
    for _ in 0..pool.extent.get() {
        let message = next(pool_kind::SHOWN_MEMBER)?;
        members.push(PoolMember {
            member: message.member.get(),
            process: Some(message.extent.get()).filter(|process| *process > 0),
            granted_bytes: message.amount.get(),
            extent_bytes: message.len.get(),
            standing: match message.reason.get() {
                standing::ATTACHED => Standing::Attached,
                standing::RETURNING => Standing::Returning,
                _ => Standing::CutOff,
            },
        });
    }
    Ok(PoolShown { total_bytes: pool.amount.get(), used_bytes: pool.len.get(), members })
}
