//! Whether a message goes by ref to a process, whatever drives its session.

use tollfree_layout::limits::SEGMENTED_COUNT_MAX;

use crate::composer::Composed;
use crate::error::{AllocError, Shortage};
use crate::pool::Pool;

/// From this length on, bytes go by ref where both ends are members of one pool, unless told otherwise. Measured by
/// `tests/direct-stubs/examples/threshold.rs`. Of what is encoded before, it is [`REF_THRESHOLD_ENCODED_DEFAULT`].
pub const REF_THRESHOLD_DEFAULT: usize = 32 * 1024;

/// From this length on, messages that a codec has encoded, such as tonic's (level 1), go by ref, unless told otherwise. The codec copies
/// each message at either end whichever way it goes, so a ref saves less than at level 2, and pays later.
pub const REF_THRESHOLD_ENCODED_DEFAULT: usize = 64 * 1024;

impl Pool {
    /// Whether a message to a process may have refs now, of which that has not taken hold of `in_flight` messages with refs. `look_for_taken`
    /// looks whether it has taken some meanwhile. A peer that never takes what it gets must not make this side keep ever more, and one
    /// that never releases what it has taken must leave some for others.
    pub fn may_send(&self, process: u32, in_flight: usize, look_for_taken: impl FnOnce() -> bool) -> bool {
        let may = in_flight < SEGMENTED_COUNT_MAX || look_for_taken();
        may && self.may_share_with(process).is_ok()
    }
}

impl Composed {
    /// Composes a message, and once more where the pool had no room and the peer has taken something meanwhile, which may make the room.
    ///
    /// # Errors
    /// Those of `compose`.
    pub fn with_room<E>(
        compose: impl Fn() -> Result<Composed, E>,
        is_short: impl FnOnce(&Result<Composed, E>) -> bool,
        look_for_taken: impl FnOnce() -> bool,
    ) -> Result<Composed, E> {
        let composed = compose();
        match is_short(&composed) && look_for_taken() {
            true => compose(),
            false => composed,
        }
    }
}

impl AllocError {
    /// Whether there is no room, rather than none yet.
    pub fn is_full(&self) -> bool {
        match self {
            AllocError::Exhausted { by, .. } => !matches!(by, Shortage::Time),
            AllocError::TooLong { .. } => true,
            _ => false,
        }
    }
}
