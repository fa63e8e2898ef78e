//! Pools: memory that processes of one trust domain share, and what a loop sends and receives by ref in it.

use std::ffi::c_int;
use std::time::Duration;

use tollfree_driver_loop::{AllocError, Capacity, JoinError, Pool as Member, PoolConfig, PoolRef, WhenShort};
use tollfree_layout::errors;

use crate::buffer::Payload;
use crate::error::{Failure, run};
use crate::handles::Handles;
use crate::loops::Loop;
use crate::pointers::{self, Bytes, Growing};
use crate::session;

/// A membership of this process in a pool. `{0}` is none. Any thread; released once. The process leaves the pool when its last handle was
/// released, its loops have ended, and no buffer is left that lies in the pool.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    id: u64,
}

/// Settings of a pool and of a member. A member that is 0 has the value of a pool without settings.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PoolSettings {
    /// `sizeof(tollfree_pool_config)`.
    size: usize,
    /// Of a pool that is created: bytes of all members together; 1 GiB.
    total: u64,
    /// Of a pool that is created: bytes of one member; 256 MiB.
    member_quota: u64,
    /// Of a pool that is created: bytes that a member gets at once, a multiple of 4,096; 8 MiB.
    batch: u64,
    /// Longest to wait for an answer of the pool's coordinator, or of a member, in nanoseconds; 5 s.
    patience_ns: u64,
    /// Longest that `tollfree_pool_buffer` waits for memory, in nanoseconds; 1 s.
    wait_ns: u64,
    /// Most bytes of this member that another process may hold; what is sent to one that holds more goes without a ref. Half of the quota.
    reader_limit: u64,
}

// SAFETY: numbers. `size` is the first.
unsafe impl Growing for PoolSettings {
    const LEN_MIN: usize = size_of::<PoolSettings>();
}

/// What became of the long messages of a loop with a pool.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PayloadCounts {
    /// `sizeof(tollfree_payload_counts)`, set by the program.
    size: usize,
    /// Messages sent with one ref or more.
    sent_by_ref: u64,
    /// Long messages sent without.
    sent_inline: u64,
    /// Messages for whose bytes the pool had no room, so that they went without a ref.
    pool_full: u64,
    /// Messages received with one ref or more.
    received_by_ref: u64,
    /// Messages with refs that could not be had, so that their sender was asked for the bytes.
    asked_for: u64,
    /// Messages refused because a ref in them was forged, stale, of another pool, or not to be had.
    refused_refs: u64,
    /// Bytes of messages with refs that were copied: into the pool, or beside the refs.
    copied_bytes: u64,
}

// SAFETY: numbers. `size` is the first.
unsafe impl Growing for PayloadCounts {
    const LEN_MIN: usize = size_of::<PayloadCounts>();
}

static POOLS: Handles<Member> =
    Handles::new(errors::POOL_HANDLE, "this pool was released, or never was: release each once");

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Failure {
        Failure::new(errors::POOL_JOIN, error.to_string())
    }
}

impl From<AllocError> for Failure {
    fn from(error: AllocError) -> Failure {
        let number = match error {
            AllocError::Empty | AllocError::TooLong { .. } => errors::USE_LENGTH,
            _ => errors::POOL_FULL,
        };
        Failure::new(number, error.to_string())
    }
}

impl Pool {
    pub(crate) const NONE: Pool = Pool { id: 0 };

    /// The member of that handle. A child of `fork` is none.
    pub(crate) fn member(self) -> Result<Member, Failure> {
        let member = POOLS.get(self.id)?;
        match member.is_inherited() {
            false => Ok(member),
            true => Err(Failure::new(
                errors::USE_FORKED,
                "this process was forked, and the pool's member is its parent: join the pool in the child",
            )),
        }
    }
}

impl PoolSettings {
    fn read(from: *const PoolSettings) -> Result<(Capacity, PoolConfig), Failure> {
        let (mut capacity, mut config) = (Capacity::default(), PoolConfig::default());
        if from.is_null() {
            return Ok((capacity, config));
        }
        // SAFETY: the header asks for a structure of its size; others are refused (`pointers::tests`). ASan watches in the C tests.
        let settings = unsafe { pointers::read(from) }?;
        let or = |value: u64, default: u64| if value == 0 { default } else { value };
        capacity.total = or(settings.total, capacity.total);
        capacity.member_quota = or(settings.member_quota, capacity.member_quota);
        capacity.batch = or(settings.batch, capacity.batch);
        if settings.patience_ns != 0 {
            config.patience = Duration::from_nanos(settings.patience_ns);
        }
        if settings.wait_ns != 0 {
            config.when_short = WhenShort::Wait(Duration::from_nanos(settings.wait_ns));
        }
        config.reader_limit = (settings.reader_limit != 0).then_some(settings.reader_limit);
        Ok((capacity, config))
    }
}

fn keep(made: &mut Pool, member: Member) -> Result<(), Failure> {
    made.id = POOLS.insert(member)?;
    Ok(())
}

/// Makes a pool that other processes of this user join at an address, `shm:///path` or `shm-abstract:name`, and joins it. The pool has a thread of
/// its own for those who join. `config` may be null, for defaults. Waits for some milliseconds. Any thread.
///
/// @return 0, or an error's number: `TOLLFREE_ERROR_POOL_JOIN` where the address is in use or can't be bound, or settings make no sense.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_pool_create(
    at: Bytes<'_>,
    config: *const PoolSettings,
    made: Option<&mut Pool>,
) -> c_int {
    run(|| {
        let made = made.ok_or_else(|| Failure::null("the pool"))?;
        let (capacity, config) = PoolSettings::read(config)?;
        keep(made, Member::create(&session::address(at)?, capacity, config)?)
    })
}

/// Joins the pool at an address. `config` may be null, for defaults. Waits for its coordinator's answer, as long as its patience says. Any thread.
///
/// @return 0, or an error's number: `TOLLFREE_ERROR_POOL_JOIN` where nobody answers, or the coordinator refuses.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_pool_join(
    at: Bytes<'_>,
    config: *const PoolSettings,
    made: Option<&mut Pool>,
) -> c_int {
    run(|| {
        let made = made.ok_or_else(|| Failure::null("the pool"))?;
        let (_, config) = PoolSettings::read(config)?;
        keep(made, Member::join(&session::address(at)?, config)?)
    })
}

/// Ends the use of a handle. Loops and buffers that have the pool keep it. Any thread.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_pool_release(of: Pool) -> c_int {
    run(|| POOLS.remove(of.id).map(drop))
}

/// Memory of the pool for `len` bytes, all 0, in one piece. Write to `*data` before the payload is sent, and never after. Sent to a member of the same
/// pool, as a message or as a piece of it, it is not copied. The payload's buffer is to be released. Any thread; waits if the pool is full, as
/// long as its settings say.
///
/// @return 0, or an error's number: `TOLLFREE_ERROR_POOL_FULL` where the memory can't be had now.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_pool_buffer(
    of: Pool,
    len: usize,
    data: Option<&mut *mut u8>,
    payload: Option<&mut Payload<'static>>,
) -> c_int {
    run(|| {
        let (Some(data), Some(payload)) = (data, payload) else {
            return Err(Failure::null("the data or the payload"));
        };
        let mut buffer = of.member()?.buffer(len)?;
        buffer.resize_zeroed(len);
        let no_ref = |error: &dyn std::fmt::Display| Failure::new(errors::POOL_FULL, error.to_string());
        let mut bytes: PoolRef = buffer.freeze().map_err(|error| no_ref(&error))?;
        let memory = bytes.get_mut().ok_or_else(|| no_ref(&"the memory is not this member's own"))?;
        let start = memory.as_mut_ptr();
        *payload = Payload::keep(bytes.into())?;
        *data = start;
        Ok(())
    })
}

/// Whether the process at the other end of a session is a member of the loop's pool: `*shares` is 1 if so, and 0 if not.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_session_shares_pool(
    of: Loop,
    session: session::Session,
    shares: Option<&mut c_int>,
) -> c_int {
    run(|| {
        let shares = shares.ok_or_else(|| Failure::null("shares"))?;
        of.with(|kept| {
            kept.events.peer(session.id()).ok_or_else(|| session::unknown("session"))?;
            *shares = kept.events.shares_pool(session.id()).into();
            Ok(())
        })
    })
}

/// What became of the long messages of a loop with a pool, in all of its sessions.
///
/// @return 0, or an error's number.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_loop_payloads(of: Loop, counts: *mut PayloadCounts) -> c_int {
    run(|| {
        let found = of.with(|kept| Ok(kept.events.payloads()))?;
        let value = PayloadCounts {
            size: 0,
            sent_by_ref: found.sent_by_ref,
            sent_inline: found.sent_inline,
            pool_full: found.pool_full,
            received_by_ref: found.received_by_ref,
            asked_for: found.asked_for,
            refused_refs: found.refused_refs,
            copied_bytes: found.copied_bytes,
        };
        // SAFETY: the header asks for a structure of its size; others are refused (`pointers::tests`). ASan watches in the C tests.
        unsafe { pointers::write(counts, &value) }
    })
}
