//! What members of a pool share: extents, rows of holds, refs, and messages to and from the coordinator.
//!
//! # Layout
//! An *extent* is a region that its owner writes and every other member maps read-only:
//!
//! ```text
//! offset 0                 8                                 24           28           32
//!    0 | magic             | pool (16)                       | member     | extent     |
//!   32 | page_count | reserved                                           ... zero     | 4096
//! 4096 | directory: page_count entries of 16 bytes, up to a multiple of 4096           | data_off
//!      | data: page_count pages of 4096 bytes                                          | file_len
//!
//! directory entry      63                45 44                 0
//!   +0  state        | page_count of block | generation          |   page_count 0: no block begins here
//!   +8  key          | 64 random bits, 0: no ref was passed on   |
//! ```
//!
//! A *row* is a region that one reader of one extent writes and the extent's owner maps read-only:
//!
//! ```text
//! word of page n, at 8 * n   63                32 31                 0
//!                          | taken: counts takes  | held: holds now     |
//! ```
//!
//! A *ref* as it travels:
//!
//! ```text
//! offset 0                                 16           20           24
//!    0 | pool (16)                         | member     | extent     |
//!   24 | block                   | tag                  | 40
//!   40 | offset                  | len                  | 56
//!
//! block                63                45 44                 0
//!                    | first page          | generation          |
//! ```
//!
//! A *message* between a member and the coordinator:
//!
//! ```text
//! offset 0                 8            12           16           20           24
//!    0 | magic             | kind       | member     | extent     | reason     |
//!   24 | amount                         | len                     | 40
//!   40 | pool (16)                      | version    | reserved   | 64
//!   64 | secret (16)                    | 80
//! ```

use core::hash::Hasher;
#[expect(deprecated, reason = "see `keyed_hash`")]
use core::hash::SipHasher;

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::limits::PAGE_LEN;
use crate::{ExtentIdx, Generation, MemberIdx, PageIdx};

pub use crate::constants::pool::*;

/// The first eight bytes of an extent.
pub const EXTENT_MAGIC: [u8; 8] = *b"TFEXTENT";
/// The first eight bytes of a message.
pub const POOL_MAGIC: [u8; 8] = *b"TOLLPOOL";

/// Values of `kind` in a message of a pool.
pub mod pool_kind {
    pub use crate::constants::pool_kind::*;

    /// How many descriptors a message of a member has.
    pub const fn fd_count(kind: u32) -> usize {
        match kind {
            ROW | GIVE => 1,
            _ => 0,
        }
    }
}

pub use crate::constants::standing;

pub use crate::constants::pool_reason;

/// The header of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ExtentHead {
    /// [`EXTENT_MAGIC`].
    pub magic: [u8; 8],
    /// The pool it belongs to.
    pub pool: [u8; POOL_ID_LEN],
    /// Its owner.
    pub member: U32,
    /// Its number.
    pub extent: U32,
    /// Data pages.
    pub page_count: U32,
    /// Zero; ignored.
    pub reserved: U32,
}

/// A ref as it travels from one member to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RefHead {
    /// The pool.
    pub pool: [u8; POOL_ID_LEN],
    /// Whose extent.
    pub member: U32,
    /// Which of its extents.
    pub extent: U32,
    /// The block's first page and its generation, as [`block_word`] puts them together.
    pub block: U64,
    /// What nobody can guess: SipHash-2-4 of `offset` and `len`, with the block's key as `k0`, and `block` as `k1`.
    pub tag: U64,
    /// First byte, from the start of the block.
    pub offset: U64,
    /// Bytes.
    pub len: U64,
}

/// A message between a member and the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PoolMessage {
    /// [`POOL_MAGIC`].
    pub magic: [u8; 8],
    /// One of [`pool_kind`].
    pub kind: U32,
    /// A member.
    pub member: U32,
    /// An extent.
    pub extent: U32,
    /// One of [`pool_reason`].
    pub reason: U32,
    /// Bytes of capacity.
    pub amount: U64,
    /// A length in bytes.
    pub len: U64,
    /// The pool.
    pub pool: [u8; POOL_ID_LEN],
    /// [`POOL_VERSION`].
    pub version: U32,
    /// Zero; ignored.
    pub reserved: U32,
    /// What proves that a member that comes back is who it says.
    pub secret: [u8; SECRET_LEN],
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<ExtentHead>() == 40 && offset_of!(ExtentHead, pool) == 8);
    assert!(offset_of!(ExtentHead, member) == 24 && offset_of!(ExtentHead, extent) == 28);
    assert!(offset_of!(ExtentHead, page_count) == 32);
    assert!(size_of::<RefHead>() == REF_LEN && offset_of!(RefHead, member) == 16);
    assert!(offset_of!(RefHead, extent) == 20 && offset_of!(RefHead, block) == 24);
    assert!(offset_of!(RefHead, tag) == 32);
    assert!(EXTENT_PAGE_COUNT_MAX < 1 << (64 - GENERATION_BITS), "a page count has its bits");
    assert!(offset_of!(RefHead, offset) == 40 && offset_of!(RefHead, len) == 48);
    assert!(size_of::<PoolMessage>() == POOL_MESSAGE_LEN && offset_of!(PoolMessage, kind) == 8);
    assert!(offset_of!(PoolMessage, member) == 12 && offset_of!(PoolMessage, extent) == 16);
    assert!(offset_of!(PoolMessage, reason) == 20 && offset_of!(PoolMessage, amount) == 24);
    assert!(offset_of!(PoolMessage, len) == 32 && offset_of!(PoolMessage, pool) == 40);
    assert!(offset_of!(PoolMessage, version) == 56 && offset_of!(PoolMessage, secret) == 64);
};

impl PoolMessage {
    /// A message of `kind` with everything else zero.
    pub fn new(kind: u32) -> PoolMessage {
        PoolMessage {
            magic: POOL_MAGIC,
            kind: kind.into(),
            member: 0.into(),
            extent: 0.into(),
            reason: 0.into(),
            amount: 0.into(),
            len: 0.into(),
            pool: [0; POOL_ID_LEN],
            version: POOL_VERSION.into(),
            reserved: 0.into(),
            secret: [0; SECRET_LEN],
        }
    }

    /// The same about an extent of a member.
    #[must_use]
    pub fn about(mut self, member: MemberIdx, extent: ExtentIdx) -> PoolMessage {
        self.member = member.0.into();
        self.extent = extent.0.into();
        self
    }

    /// The same with an amount.
    #[must_use]
    pub fn of(mut self, amount: u64) -> PoolMessage {
        self.amount = amount.into();
        self
    }

    /// The same with a row's number.
    #[must_use]
    pub fn row(mut self, number: u64) -> PoolMessage {
        self.len = number.into();
        self
    }

    /// The same with a reason.
    #[must_use]
    pub fn because(mut self, reason: u32) -> PoolMessage {
        self.reason = reason.into();
        self
    }

    /// Who or whose.
    pub fn member(&self) -> MemberIdx {
        MemberIdx(self.member.get())
    }

    /// Which extent.
    pub fn extent(&self) -> ExtentIdx {
        ExtentIdx(self.extent.get())
    }
}

/// Where things lie in an extent of so many pages, and how long its rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentShape {
    page_count: u32,
}

impl ExtentShape {
    /// The shape of an extent of `page_count` data pages, or none beyond the limits.
    pub fn of_pages(page_count: usize) -> Option<ExtentShape> {
        let fits = (EXTENT_PAGE_COUNT_MIN..=EXTENT_PAGE_COUNT_MAX).contains(&page_count);
        fits.then_some(ExtentShape { page_count: page_count as u32 })
    }

    /// The shape of an extent of as many data bytes.
    pub fn of_data(data_len: u64) -> Option<ExtentShape> {
        let page_len = PAGE_LEN as u64;
        if !data_len.is_multiple_of(page_len) {
            return None;
        }
        ExtentShape::of_pages(usize::try_from(data_len / page_len).ok()?)
    }

    /// Data pages.
    pub const fn page_count(self) -> usize {
        self.page_count as usize
    }

    /// Bytes of data.
    pub const fn data_len(self) -> usize {
        self.page_count() * PAGE_LEN
    }

    /// Where the data begin.
    pub const fn data_off(self) -> usize {
        DIRECTORY_OFF + (self.page_count() * ENTRY_LEN).next_multiple_of(PAGE_LEN)
    }

    /// Bytes of the extent's file.
    pub const fn file_len(self) -> usize {
        self.data_off() + self.data_len()
    }

    /// Bytes of the file of a row for it.
    pub const fn row_len(self) -> usize {
        (self.page_count() * HOLD_LEN).next_multiple_of(PAGE_LEN)
    }

    /// Bytes of a block that begins at `page`, if it lies within the extent.
    #[inline]
    pub const fn block_len(self, page: PageIdx, state: BlockState) -> Option<usize> {
        let pages = state.page_count as usize;
        match page.as_usize().checked_add(pages) {
            Some(end) if pages > 0 && end <= self.page_count() => Some(pages * PAGE_LEN),
            _ => None,
        }
    }
}

/// Where the directory's state word of a page lies; the key is 8 bytes on.
pub const fn state_off(page: PageIdx) -> usize {
    DIRECTORY_OFF + page.as_usize() * ENTRY_LEN
}

/// Where the directory's key of a page lies.
pub const fn key_off(page: PageIdx) -> usize {
    state_off(page) + 8
}

/// Where a row's word for a page lies.
pub const fn hold_off(page: PageIdx) -> usize {
    page.as_usize() * HOLD_LEN
}

/// Pages and a generation in one word, as a directory entry and a ref have them.
pub const fn block_word(pages: u32, generation: Generation) -> u64 {
    ((pages as u64) << GENERATION_BITS) | (generation.0 & GENERATION_MAX)
}

const fn split_word(word: u64) -> (u32, Generation) {
    ((word >> GENERATION_BITS) as u32, Generation(word & GENERATION_MAX))
}

/// SipHash-2-4 of `bytes`, keyed: what both sides compute.
#[inline]
#[expect(deprecated, reason = "core's keyed SipHash-2-4 never changes, as what both sides compute must not")]
pub fn keyed_hash(k0: u64, k1: u64, bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher::new_with_keys(k0, k1);
    hasher.write(bytes);
    hasher.finish()
}

/// The number of the member that has this secret: nobody comes back as another without it.
pub fn member_of(secret: &[u8; SECRET_LEN], pool: &[u8; POOL_ID_LEN]) -> MemberIdx {
    let halves = pool.as_chunks::<8>().0;
    MemberIdx(keyed_hash(u64::from_le_bytes(halves[0]), u64::from_le_bytes(halves[1]), secret) as u32)
}

impl RefHead {
    /// What proves that a member made the ref: SipHash-2-4 of the range, keyed by the block's key and by which block it is.
    /// A process that doesn't see the block's key can neither make a ref up nor widen one.
    #[inline]
    pub fn tag_by(&self, key: u64) -> u64 {
        let mut range = [0; 16];
        range[..8].copy_from_slice(self.offset.as_bytes());
        range[8..].copy_from_slice(self.len.as_bytes());
        keyed_hash(key, self.block.get(), &range)
    }

    /// Start and length of its bytes in the block, if they lie in a block of `block_len` bytes.
    #[inline]
    pub fn range_in(&self, block_len: usize) -> Option<(usize, usize)> {
        let (off, len) = (usize::try_from(self.offset.get()).ok()?, usize::try_from(self.len.get()).ok()?);
        off.checked_add(len).is_some_and(|end| end <= block_len).then_some((off, len))
    }

    /// The block's first page, and its generation.
    pub const fn block(&self) -> (PageIdx, Generation) {
        let (page, generation) = split_word(self.block.get());
        (PageIdx(page), generation)
    }
}

/// The state word of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockState {
    /// Pages of the block; 0 where none begins.
    pub page_count: u32,
    /// Its generation.
    pub generation: Generation,
}

impl BlockState {
    /// As the word.
    pub const fn word(self) -> u64 {
        block_word(self.page_count, self.generation)
    }

    /// From the word; any word is one.
    pub const fn from_word(word: u64) -> BlockState {
        let (page_count, generation) = split_word(word);
        BlockState { page_count, generation }
    }
}

/// A word of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldWord {
    /// Counts takes; wraps.
    pub taken: u32,
    /// Holds now; never wraps.
    pub held: u32,
}

impl HoldWord {
    /// As the word.
    pub const fn word(self) -> u64 {
        ((self.taken as u64) << 32) | self.held as u64
    }

    /// From the word; any word is one.
    pub const fn from_word(word: u64) -> HoldWord {
        HoldWord { taken: (word >> 32) as u32, held: word as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_whole_pages_within_the_limits() {
        let shape = ExtentShape::of_pages(64).unwrap();
        assert_eq!((shape.data_off(), shape.file_len(), shape.row_len()), (8192, 8192 + 64 * 4096, 4096));
        assert_eq!(ExtentShape::of_data(64 * 4096), Some(shape));
        let largest = ExtentShape::of_pages(EXTENT_PAGE_COUNT_MAX).unwrap();
        assert!(largest.file_len().is_multiple_of(PAGE_LEN) && largest.row_len() == 2 << 20);
        let odd = ExtentShape::of_pages(5000).unwrap();
        assert_eq!((odd.data_len(), odd.file_len() % PAGE_LEN, odd.row_len()), (5000 * 4096, 0, 10 * 4096));
        let data_off = |page_count| ExtentShape::of_pages(page_count).unwrap().data_off();
        assert_eq!((data_off(256), data_off(257)), (8192, 12_288), "entries fill a page");
        for wrong in [0, 8, 15, EXTENT_PAGE_COUNT_MAX + 1] {
            assert_eq!(ExtentShape::of_pages(wrong), None);
        }
        assert_eq!(ExtentShape::of_data(64 * 4096 + 1), None);
        assert_eq!(ExtentShape::of_data(u64::MAX), None);
    }

    #[test]
    fn words_go_there_and_back() {
        for generation in [0, u64::from(u32::MAX) + 1, GENERATION_MAX] {
            let page_count = EXTENT_PAGE_COUNT_MAX as u32;
            let state = BlockState { page_count, generation: Generation(generation) };
            assert_eq!(BlockState::from_word(state.word()), state);
            assert_eq!(split_word(block_word(3, state.generation)), (3, state.generation));
        }
        let hold = HoldWord { taken: u32::MAX, held: 7 };
        assert_eq!(HoldWord::from_word(hold.word()), hold);
    }

    #[test]
    fn words_and_places_are_those_of_the_specification() {
        let generation = Generation(5);
        assert_eq!(block_word(3, generation), 3 << GENERATION_BITS | 5);
        assert_eq!(block_word(0, Generation(GENERATION_MAX + 1)), 0, "what is above its bits is left out");
        let head = RefHead { block: block_word(3, generation).into(), ..no_ref() };
        assert_eq!(head.block(), (PageIdx(3), generation));
        assert_eq!(BlockState { page_count: 3, generation }.word(), block_word(3, generation));
        assert_eq!(HoldWord { taken: 1, held: 2 }.word(), 1 << 32 | 2);
        assert_eq!(HoldWord::from_word(3 << 32 | 4), HoldWord { taken: 3, held: 4 });
        let offs =
            [0, 1, 3].map(|page| (state_off(PageIdx(page)), key_off(PageIdx(page)), hold_off(PageIdx(page))));
        assert_eq!(offs, [(4096, 4104, 0), (4112, 4120, 8), (4144, 4152, 24)]);
        let fds = [pool_kind::ROW, pool_kind::GIVE, pool_kind::ROW + 1000].map(pool_kind::fd_count);
        assert_eq!(fds, [1, 1, 0]);
    }

    #[test]
    fn a_block_lies_in_its_extent_or_is_none() {
        let shape = ExtentShape::of_pages(64).unwrap();
        assert_eq!((shape.page_count(), shape.data_len()), (64, 64 * 4096));
        let len = |page, page_count| {
            shape.block_len(PageIdx(page), BlockState { page_count, generation: Generation(0) })
        };
        assert_eq!((len(0, 64), len(63, 1), len(60, 3)), (Some(64 * 4096), Some(4096), Some(3 * 4096)));
        for (page, page_count) in [(0, 0), (0, 65), (1, 64), (64, 1), (u32::MAX, u32::MAX), (63, 0)] {
            assert_eq!(len(page, page_count), None, "{page_count} from {page} on");
        }
    }

    const COUNTING: [u8; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    /// The vectors of SipHash's authors, of 15 and of 16 bytes.
    #[test]
    fn members_and_tags_are_siphash_of_what_the_specification_says() {
        let (low, high) = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        assert_eq!(keyed_hash(low, high, &COUNTING[..15]), 0xa129_ca61_49be_45e5);
        assert_eq!(member_of(&COUNTING, &COUNTING), MemberIdx(0x57c2_9bdb));
        let head = RefHead { block: high.into(), offset: low.into(), len: high.into(), ..no_ref() };
        assert_eq!(head.tag_by(low), 0x3f2a_cc7f_57c2_9bdb);
    }

    fn no_ref() -> RefHead {
        RefHead {
            pool: [0; POOL_ID_LEN],
            member: 0.into(),
            extent: 0.into(),
            block: 0.into(),
            tag: 0.into(),
            offset: 0.into(),
            len: 0.into(),
        }
    }

    #[test]
    fn a_range_lies_in_its_block_or_is_none() {
        let range = |offset: u64, len: u64| {
            RefHead { offset: offset.into(), len: len.into(), ..no_ref() }.range_in(4096)
        };
        assert_eq!(range(96, 4000), Some((96, 4000)));
        assert_eq!((range(0, 4096), range(4096, 0)), (Some((0, 4096)), Some((4096, 0))));
        for (offset, len) in
            [(97, 4000), (4097, 0), (0, 4097), (u64::MAX, 1), (1, u64::MAX), (1 << 63, 1 << 63)]
        {
            assert_eq!(range(offset, len), None, "{len} from {offset} on");
        }
    }

    #[test]
    fn a_message_is_about_a_member_and_its_extent() {
        let message = PoolMessage::new(pool_kind::ROW).about(MemberIdx(3), ExtentIdx(7));
        assert_eq!((message.member(), message.extent()), (MemberIdx(3), ExtentIdx(7)));
    }
}
