//! What a ring is to those who send and receive records: one concept, several kinds of ring.

use bytes::BytesMut;
use tollfree_layout::RingPos;

/// What a peer did to its ring or cursor that no correct peer does. The session ends; the violation stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingViolation {
    /// The line where the next record starts holds something that is neither empty nor the head of this record.
    #[error("the peer's ring holds {word:#018x} at position {pos}, which is not the head of a record there")]
    ForgedSequence {
        /// Where the next record was to start.
        pos: RingPos,
        /// What was found.
        word: u64,
    },
    /// A record claims to be longer than records of this ring can be.
    #[error("the peer's record at position {pos} claims {len} bytes where at most {max} are possible")]
    ForgedLength {
        /// Where the record starts.
        pos: RingPos,
        /// Length it claims, in bytes.
        len: u32,
        /// Longest record of the ring, in bytes.
        max: usize,
    },
    /// The peer says it has read less than before, or more than was written.
    #[error("the peer's cursor says {found} where {least} to {most} are possible")]
    ForgedCursor {
        /// What the cursor says.
        found: RingPos,
        /// What it said before.
        least: RingPos,
        /// The end of what was published.
        most: RingPos,
    },
}

/// Why a record was not staged. Nothing was written, and what was staged before still is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// No room until the peer has read more. Not a failure: wait and try again.
    #[error("the ring is full until the peer has read more of it")]
    Full,
    /// Longer than this ring can carry at all.
    #[error("a record of {len} bytes is longer than the {max} that the ring can carry")]
    TooLong {
        /// Length asked for, in bytes.
        len: usize,
        /// Longest record, in bytes.
        max: usize,
    },
    /// The peer's cursor is forged.
    #[error(transparent)]
    Peer(#[from] RingViolation),
}

/// The sending end. One owner at a time; no call blocks.
pub trait RecordSender {
    /// Longest record, in bytes.
    fn record_len_max(&self) -> usize;

    /// Writes a record made of `parts`, one after the other, behind what is staged already. The reader does not see
    /// it yet.
    ///
    /// # Errors
    /// [`StageError::Full`] until the peer has released more, which takes a [`publish`](Self::publish) where the ring
    /// is full of staged records; [`StageError::TooLong`]; or what the peer did wrong.
    fn stage(&mut self, parts: &[&[u8]]) -> Result<(), StageError>;

    /// Makes all staged records visible at once. Returns whether there were any.
    fn publish(&mut self) -> bool;

    /// The position after all staged records.
    fn staged_end(&self) -> RingPos;

    /// How far the peer has released the ring, read again and checked.
    ///
    /// # Errors
    /// When the peer's cursor is forged, now or before.
    fn consumed(&mut self) -> Result<RingPos, RingViolation>;

    /// Whether a record of `len` bytes could be staged now; never true for one that is too long.
    ///
    /// # Errors
    /// When the peer's cursor is forged, now or before.
    fn has_room(&mut self, len: usize) -> Result<bool, RingViolation>;
}

/// The receiving end. One owner at a time; no call blocks.
pub trait RecordReceiver {
    /// A record in place.
    type Record<'a>: RecordRead
    where
        Self: 'a;

    /// The next record, if there is one. Its head is fetched once, however often this is called.
    ///
    /// # Errors
    /// When what the peer wrote is no record; the same again ever after.
    fn peek(&mut self) -> Result<Option<Self::Record<'_>>, RingViolation>;

    /// Goes past the record that was peeked. The peer gets its lines back at [`release`](Self::release).
    ///
    /// # Panics
    /// When none was peeked.
    fn advance(&mut self);

    /// Whether [`peek`](Self::peek) would give `None`: one load, for spinning. Anything but an empty head counts as
    /// something.
    fn is_empty(&self) -> bool;

    /// Looks up to `count` times, after a pause each, until there is something. Returns how many looks are left; 0 also where
    /// the last one has found it.
    fn glance(&self, count: usize) -> usize;

    /// Gives the lines of all records passed back to the peer. Returns whether there were any.
    fn release(&mut self) -> bool;

    /// Lines that were passed and not yet given back.
    fn unreleased_lines(&self) -> usize;

    /// The position of the next record.
    fn pos(&self) -> RingPos;
}

/// A record as it lies in the ring: the peer can still change its bytes, so each is read once, into private memory.
pub trait RecordRead {
    /// Length in bytes.
    fn len(&self) -> usize;

    /// Whether the record has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `dst.len()` bytes from offset `at` of the record.
    ///
    /// # Panics
    /// When they are not all within the record.
    fn read(&self, at: usize, dst: &mut [u8]);

    /// Appends `len` bytes from offset `at` of the record to `dst`.
    ///
    /// # Panics
    /// When they are not all within the record.
    fn append_to(&self, at: usize, len: usize, dst: &mut BytesMut);
}
