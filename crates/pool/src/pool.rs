//! The handle of a member.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tollfree_rendezvous::Address;

use crate::buffer::Buffer;
use crate::config::{Capacity, Config};
use crate::coordinator::{Coordinator, Door};
use crate::counts::{Counts, Room, Usage};
use crate::error::{AllocError, JoinError, RefError};
use crate::inner::{Fetch, Inner};
use crate::invitation::{Invitation, Inviter};
use crate::refs::Ref;

/// This process's membership of a pool. Cloning is cheap; all clones, and all refs and buffers that came of them, are one
/// member, which leaves when the last of them is dropped.
///
/// All methods may be called from any thread and, unless they say that they wait, under a lock or within a task.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

impl Pool {
    pub(crate) fn of(inner: Arc<Inner>) -> Pool {
        Pool { inner }
    }

    /// Makes a pool, with its coordinator in this process, and joins it. Waits for the join, milliseconds.
    ///
    /// The coordinator is a thread. It ends with this member; other members keep what they have.
    ///
    /// # Errors
    /// [`JoinError::Bind`] where the address is in use; others as for [`join`](Self::join).
    pub fn create(address: &Address, capacity: Capacity, config: Config) -> Result<Pool, JoinError> {
        let coordinator = Coordinator::start(address, capacity)?;
        crate::agent::join(address, config, Some(coordinator), None).map(Pool::of)
    }

    /// The same for a pool that nobody else joins but those who are [invited](Inviter::invite), be they of the same user or not invited any more:
    /// [`join_by_invitation`](Self::join_by_invitation). A coordinator that takes this one's place later on would be another pool's.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn create_by_invitation(
        address: &Address,
        capacity: Capacity,
        config: Config,
    ) -> Result<(Pool, Inviter), JoinError> {
        let inviter = Inviter::default();
        let coordinator = Coordinator::start_for(address, capacity, Door::Invited(inviter.clone()))?;
        let own = inviter.invite()?;
        let joined = crate::agent::join(address, config, Some(coordinator), Some(&own))?;
        Ok((Pool::of(joined), inviter))
    }

    /// Joins the pool that is coordinated at `address`. Waits for the coordinator's answer, at most
    /// [`Config::patience`]. A thread of this process keeps in touch with the coordinator from then on; it sleeps unless
    /// something happens.
    ///
    /// # Errors
    /// [`JoinError`], which names the address.
    pub fn join(address: &Address, config: Config) -> Result<Pool, JoinError> {
        crate::agent::join(address, config, None, None).map(Pool::of)
    }

    /// Joins a pool that only those join who were invited. Waits as [`join`](Self::join) does.
    ///
    /// # Errors
    /// [`JoinError::Refused`] with [`Refusal::Invitation`](crate::Refusal::Invitation) where the invitation is not good, or not any more. Others as for
    /// [`join`](Self::join).
    pub fn join_by_invitation(
        address: &Address,
        invitation: &Invitation,
        config: Config,
    ) -> Result<Pool, JoinError> {
        crate::agent::join(address, config, None, Some(invitation)).map(Pool::of)
    }

    /// Memory to produce `len` bytes into. If there is none, *the thread* waits, as long as [`Config::when_short`] says: a
    /// second by default. In a task use [`buffer_async`](Self::buffer_async) or [`try_buffer`](Self::try_buffer).
    ///
    /// # Errors
    /// [`AllocError::Exhausted`], counted, which says what is short and who has it; [`AllocError::TooLong`],
    /// [`AllocError::Empty`].
    pub fn buffer(&self, len: usize) -> Result<Buffer, AllocError> {
        let patience = self.inner.patience_when_short();
        Ok(Buffer::new(self.inner.allocate(len, patience)?, len))
    }

    /// As [`buffer`](Self::buffer), but the task waits and no thread does. Needs no particular runtime; dropped, it asks no
    /// further.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    pub async fn buffer_async(&self, len: usize) -> Result<Buffer, AllocError> {
        let patience = self.inner.patience_when_short();
        Ok(Buffer::new(self.inner.allocate_async(len, patience).await?, len))
    }

    /// As [`buffer`](Self::buffer), but never waits: if more has to be asked for, it is, and may be there the next time.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    #[inline]
    pub fn try_buffer(&self, len: usize) -> Result<Buffer, AllocError> {
        Ok(Buffer::new(self.inner.allocate(len, Duration::ZERO)?, len))
    }

    /// A ref to a copy of these bytes. Waits as [`buffer`](Self::buffer) does.
    ///
    /// # Errors
    /// As [`buffer`](Self::buffer).
    pub fn copy_from_slice(&self, bytes: &[u8]) -> Result<Ref, AllocError> {
        let mut buffer = self.buffer(bytes.len())?;
        buffer.extend_from_slice(bytes);
        Ok(buffer.freeze().expect("an empty buffer was refused"))
    }

    /// Takes hold of what [`Ref::to_bytes`] of another member (or of this one) gave. Waits, at most [`Config::patience`],
    /// the first time that an extent is read from.
    ///
    /// # Errors
    /// [`RefError`]; refs that are forged or stale are counted.
    pub fn map_ref(&self, bytes: &[u8]) -> Result<Ref, RefError> {
        self.inner.map(bytes)
    }

    /// As [`map_ref`](Self::map_ref), but never waits.
    ///
    /// # Errors
    /// [`RefError::NotHere`] where the extent isn't mapped yet: [`fetch`](Self::fetch) it. Others as
    /// [`map_ref`](Self::map_ref).
    #[inline]
    pub fn try_map_ref(&self, bytes: &[u8]) -> Result<Ref, RefError> {
        self.inner.try_map(bytes)
    }

    /// As [`map_ref`](Self::map_ref), asynchronously, and for as long as it takes. Needs no particular runtime.
    ///
    /// # Errors
    /// As [`map_ref`](Self::map_ref).
    pub async fn fetch(&self, bytes: &[u8]) -> Result<Ref, RefError> {
        loop {
            match self.inner.try_map(bytes) {
                Err(RefError::NotHere) => {}
                result => return result,
            }
            let waiting = Waiting(self.inner.fetch(bytes)?);
            let fetched = poll_fn(|cx| waiting.0.poll(cx)).await;
            fetched.map_err(|fault| self.inner.count(fault.into()))?;
        }
    }

    /// Whether to wait for a ref's extent is likely in vain: somebody has given up waiting for its owner, which hasn't answered since.
    pub fn is_waited_for(&self, bytes: &[u8]) -> bool {
        self.inner.owes_for_long(bytes)
    }

    /// A ref to bytes that already lie in the pool and that somebody in this process holds: no copy is made. `None` for any
    /// other bytes.
    #[inline]
    pub fn ref_of(&self, bytes: &Bytes) -> Option<Ref> {
        self.inner.ref_of(bytes)
    }

    #[inline]
    pub(crate) fn ref_of_slice(&self, bytes: &[u8]) -> Option<Ref> {
        self.inner.ref_of(bytes)
    }

    /// Whether this process was forked from the member: it has none of the memory, and should join by itself.
    pub fn is_inherited(&self) -> bool {
        self.inner.is_elsewhere()
    }

    /// Longest to wait for a coordinator's answer, or an owner's ([`Config::patience`]).
    pub fn patience(&self) -> Duration {
        self.inner.config.patience
    }

    /// Whether this handle and a ref belong to the same member.
    pub fn has(&self, bytes: &Ref) -> bool {
        Arc::ptr_eq(&self.inner, &bytes.held.inner)
    }

    /// Whether the coordinator is there. Without one, refs go on working, and so does memory that the member has; there is
    /// no more, and extents that were never mapped here can't be.
    pub fn is_attached(&self) -> bool {
        self.inner.link.is_attached()
    }

    /// What this member has counted.
    pub fn counts(&self) -> Counts {
        self.inner.counters.read()
    }

    pub(crate) fn count_copied(&self, byte_count: usize) {
        self.inner.counters.copied(byte_count);
    }

    /// What this member has now.
    pub fn usage(&self) -> Usage {
        self.inner.usage()
    }

    /// What of this member's own memory is in use, and by whom. Looks at every block.
    pub fn room(&self) -> Room {
        self.inner.room()
    }

    /// Whether more of this member's memory may be passed on to a process, which holds some already. One that never lets go
    /// gets no more than [`Config::reader_limit`] of it so, where all who pass on ask.
    ///
    /// # Errors
    /// [`AllocError::ReaderLimit`].
    pub fn may_share_with(&self, process: u32) -> Result<(), AllocError> {
        self.inner.may_share_with(process)
    }

    /// Looks through all blocks that others may still hold, rather than a few at a time, and frees what they don't.
    pub fn sweep(&self) {
        if !self.inner.is_elsewhere() {
            let mut heap = self.inner.heap.lock();
            let count = heap.limbo_count();
            heap.sweep(count);
        }
    }

    /// The pool's name: the same for all members, and no other pool's.
    pub fn id(&self) -> [u8; 16] {
        self.inner.id
    }
}

/// A task waits for an extent. Dropped before that has come, it has given up.
struct Waiting(Arc<Fetch>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("member", &self.inner.member).finish_non_exhaustive()
    }
}
