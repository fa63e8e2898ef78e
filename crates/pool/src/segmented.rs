//! SegmentedMessages: bytes of which parts lie in a pool, put together again without a copy.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};
use tollfree_layout::limits::SEGMENTED_REF_COUNT_MAX;
use tollfree_layout::pool::{REF_LEN, RefHead};
use tollfree_layout::segmented::{SEGMENT_ENTRY_LEN, SEGMENTED_HEAD_LEN, SegmentEntry, SegmentedHead};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::RefError;
use crate::pool::Pool;

/// Why bytes are not a segmented message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what came is not a message with refs in it: {0}")]
pub struct SegmentedError(&'static str);

/// A segmented message as it came, checked, with no hold taken yet.
#[derive(Clone, Debug)]
pub struct Plan {
    inline: Bytes,
    entries: Bytes,
    len: usize,
    ref_bytes: usize,
}

impl Plan {
    /// Takes a segmented message apart ([`tollfree_layout::segmented`] draws it).
    ///
    /// # Errors
    /// [`SegmentedError`] where it doesn't add up.
    pub fn parse(mut bytes: Bytes) -> Result<Plan, SegmentedError> {
        let head = Plan::head(&bytes).ok_or(SegmentedError("it is too short"))?;
        let (len, count) = (head.len.get() as usize, head.ref_count.get() as usize);
        bytes.advance(SEGMENTED_HEAD_LEN);
        if count == 0 || count > SEGMENTED_REF_COUNT_MAX {
            return Err(SegmentedError("its number of refs"));
        }
        let entries_at =
            bytes.len().checked_sub(count * SEGMENT_ENTRY_LEN).ok_or(SegmentedError("it is cut off"))?;
        let entries = bytes.split_off(entries_at);
        let mut plan = Plan { inline: bytes, entries, len, ref_bytes: 0 };
        let (mut before, mut ref_bytes) = (0u64, 0u64);
        for (gap, head) in plan.entries() {
            let head = RefHead::read_from_bytes(&head).expect("the length is the type's own");
            if head.len.get() == 0 {
                return Err(SegmentedError("a ref to no bytes"));
            }
            before += u64::from(gap);
            ref_bytes = ref_bytes.checked_add(head.len.get()).ok_or(SegmentedError("its length"))?;
        }
        if before > plan.inline.len() as u64 {
            return Err(SegmentedError("the places of its refs"));
        }
        if ref_bytes.checked_add(plan.inline.len() as u64) != Some(len as u64) {
            return Err(SegmentedError("its length"));
        }
        plan.ref_bytes = ref_bytes as usize;
        Ok(plan)
    }

    /// The longest segmented message, as it travels, of a message of `len` bytes.
    pub fn travelling_len_max(len: usize) -> usize {
        len.saturating_add(SEGMENTED_HEAD_LEN + SEGMENTED_REF_COUNT_MAX * SEGMENT_ENTRY_LEN)
    }

    /// How many bytes the message has, by the word of its first [`SEGMENTED_HEAD_LEN`] bytes.
    pub fn stated_len(bytes: &[u8]) -> Option<usize> {
        Some(Plan::head(bytes)?.len.get() as usize)
    }

    fn head(bytes: &[u8]) -> Option<SegmentedHead> {
        SegmentedHead::read_from_prefix(bytes).ok().map(|(head, _)| head)
    }

    /// Bytes that it comes to, if its refs are good.
    #[expect(clippy::len_without_is_empty, reason = "a ref has bytes")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Of these, bytes in refs.
    pub fn ref_bytes(&self) -> usize {
        self.ref_bytes
    }

    /// Inline bytes before each ref, and the ref.
    fn entries(&self) -> impl Iterator<Item = (u32, [u8; REF_LEN])> {
        self.entries.chunks_exact(SEGMENT_ENTRY_LEN).map(|entry| {
            let entry = SegmentEntry::ref_from_bytes(entry).expect("the length is the type's own");
            (entry.before.get(), entry.bytes)
        })
    }

    /// Takes hold of all refs. Never waits.
    ///
    /// # Errors
    /// [`RefError`] of the first that can't be had; [`RefError::NotHere`]: [`fetch`](Self::fetch) them.
    pub fn try_map(&self, pool: &Pool) -> Result<SegmentedMessage, RefError> {
        let mut inline = self.inline.clone();
        let segments = VecDeque::with_capacity(2 * self.entries().count() + 1);
        let mut segmented = SegmentedMessage { segments, len: self.len };
        for (before, bytes) in self.entries() {
            segmented.push(inline.split_to(before as usize));
            segmented.push(pool.try_map_ref(&bytes)?.into());
        }
        segmented.push(inline);
        Ok(segmented)
    }

    /// As [`try_map`](Self::try_map), and fetches extents that are not mapped here yet, for as long as it takes.
    ///
    /// # Errors
    /// [`RefError`] of the first that can't be had.
    pub async fn fetch(&self, pool: &Pool) -> Result<SegmentedMessage, RefError> {
        for (_, bytes) in self.entries() {
            pool.fetch(&bytes).await?;
        }
        self.try_map(pool)
    }

    /// Whether to fetch it is likely in vain, as [`Pool::is_waited_for`] says.
    pub fn is_waited_for(&self, pool: &Pool) -> bool {
        self.entries().any(|(_, bytes)| pool.is_waited_for(&bytes))
    }

    /// The segmented message with the bytes of its refs, one after the other, as they came instead of these. `None`: they are not as many.
    pub fn fill(&self, mut bytes: Bytes) -> Option<SegmentedMessage> {
        if bytes.len() != self.ref_bytes {
            return None;
        }
        let mut inline = self.inline.clone();
        let mut segmented = SegmentedMessage { segments: VecDeque::new(), len: self.len };
        for (before, head) in self.entries() {
            let head = RefHead::read_from_bytes(&head).expect("the length is the type's own");
            segmented.push(inline.split_to(before as usize));
            segmented.push(bytes.split_to(head.len.get() as usize));
        }
        segmented.push(inline);
        Some(segmented)
    }
}

/// Bytes in several pieces, read in order. [`copy_to_bytes`](Buf::copy_to_bytes) of what lies in one piece is not a
/// copy.
#[derive(Clone, Debug, Default)]
pub struct SegmentedMessage {
    /// None is empty.
    segments: VecDeque<Bytes>,
    len: usize,
}

impl SegmentedMessage {
    fn push(&mut self, segment: Bytes) {
        if !segment.is_empty() {
            self.segments.push_back(segment);
        }
    }

    /// All that was not read, where it lies in one piece.
    ///
    /// # Errors
    /// The segmented message itself, where it lies in several.
    pub fn into_only(mut self) -> Result<Bytes, SegmentedMessage> {
        match (self.segments.pop_front(), self.segments.is_empty()) {
            (None, _) => Ok(Bytes::new()),
            (Some(only), true) => Ok(only),
            (Some(first), false) => {
                self.segments.push_front(first);
                Err(self)
            }
        }
    }

    /// The pieces in order, as far as they were not read.
    pub fn into_segments(self) -> impl Iterator<Item = Bytes> {
        self.segments.into_iter()
    }
}

impl From<Bytes> for SegmentedMessage {
    fn from(bytes: Bytes) -> SegmentedMessage {
        let mut segmented = SegmentedMessage { len: bytes.len(), ..SegmentedMessage::default() };
        segmented.push(bytes);
        segmented
    }
}

impl Buf for SegmentedMessage {
    #[inline]
    fn remaining(&self) -> usize {
        self.len
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        self.segments.front().map_or(&[], |first| first)
    }

    fn chunks_vectored<'a>(&'a self, dst: &mut [IoSlice<'a>]) -> usize {
        let pairs = dst.iter_mut().zip(&self.segments);
        pairs.map(|(slice, segment)| *slice = IoSlice::new(segment)).count()
    }

    #[inline]
    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.len, "{count} bytes of {}", self.len);
        self.len -= count;
        while let Some(first) = self.segments.front_mut() {
            if count < first.len() {
                first.advance(count);
                return;
            }
            count -= first.len();
            self.segments.pop_front();
        }
    }

    fn copy_to_bytes(&mut self, len: usize) -> Bytes {
        assert!(len <= self.len, "{len} bytes of {}", self.len);
        match self.segments.front_mut() {
            Some(first) if len < first.len() => {
                self.len -= len;
                first.split_to(len)
            }
            Some(first) if len == first.len() => {
                self.len -= len;
                self.segments.pop_front().unwrap_or_default()
            }
            _ => {
                let mut copy = Vec::with_capacity(len);
                bytes::BufMut::put(&mut copy, self.take(len));
                copy.into()
            }
        }
    }
}

/// Makes a segmented message of inline bytes that stand behind room for a head: fills that in, and adds the refs with what stands before
/// each.
pub(crate) fn complete(
    segmented: &mut Vec<u8>,
    ref_bytes: usize,
    refs: impl ExactSizeIterator<Item = (u32, [u8; REF_LEN])>,
) {
    // Less than 4 GiB, as messages are.
    let len = (segmented.len() - SEGMENTED_HEAD_LEN + ref_bytes) as u32;
    let head = SegmentedHead { len: len.into(), ref_count: (refs.len() as u32).into() };
    segmented[..SEGMENTED_HEAD_LEN].copy_from_slice(head.as_bytes());
    segmented.reserve(refs.len() * SEGMENT_ENTRY_LEN);
    for (before, bytes) in refs {
        let entry = SegmentEntry { before: before.into(), reserved: 0.into(), bytes };
        segmented.extend_from_slice(entry.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head(len: u64) -> [u8; REF_LEN] {
        let mut head = RefHead::read_from_bytes(&[0; REF_LEN]).unwrap();
        head.len = len.into();
        let mut bytes = [0; REF_LEN];
        bytes.copy_from_slice(head.as_bytes());
        bytes
    }

    fn segmented(inline_len: usize, refs: &[(u32, u64)]) -> Vec<u8> {
        let mut bytes = vec![7; SEGMENTED_HEAD_LEN + inline_len];
        let ref_bytes: u64 = refs.iter().map(|(_, len)| len).fold(0, |sum, len| sum.saturating_add(*len));
        let refs = refs.iter().map(|(before, len)| (*before, head(*len)));
        complete(&mut bytes, (ref_bytes as usize).min(usize::MAX / 2), refs);
        bytes
    }

    fn parse(inline_len: usize, refs: &[(u32, u64)]) -> Result<Plan, SegmentedError> {
        Plan::parse(segmented(inline_len, refs).into())
    }

    #[test]
    fn a_segmented_message_says_how_long_it_is() {
        let plan = parse(10, &[(4, 100), (0, 50), (6, 1)]).unwrap();
        assert_eq!((plan.len(), plan.ref_bytes()), (161, 151));
    }

    #[test]
    fn bytes_that_came_instead_of_refs_stand_where_these_would() {
        let plan = parse(6, &[(4, 3), (0, 2)]).unwrap();
        let segmented = plan.fill(Bytes::from_static(b"abcde")).unwrap();
        let flat: Vec<u8> = segmented.into_segments().flatten().collect();
        assert_eq!(flat, [7, 7, 7, 7, b'a', b'b', b'c', b'd', b'e', 7, 7]);
        assert!(plan.fill(Bytes::from_static(b"abcd")).is_none() && plan.fill(Bytes::new()).is_none());
    }

    #[test]
    fn what_does_not_add_up_is_refused() {
        assert!(parse(10, &[]).is_err(), "none");
        assert!(parse(10, &[(4, 1), (7, 1)]).is_err(), "beyond the inline bytes");
        assert!(parse(0, &[(u32::MAX, 1), (u32::MAX, 1)]).is_err());
        assert!(parse(0, &[(0, u64::MAX), (0, 2)]).is_err());
        assert!(parse(1, &[(0, u32::MAX.into())]).is_err(), "longer than a message can be");
        let good = Bytes::from(segmented(5, &[(2, 9)]));
        assert!(Plan::parse(good.clone()).is_ok());
        for len in 0..good.len() {
            assert!(Plan::parse(good.slice(..len)).is_err(), "the first {len}");
        }
        for wrong in [13u32, 15, 0, u32::MAX] {
            let mut bytes = good.to_vec();
            bytes[..4].copy_from_slice(&wrong.to_le_bytes());
            assert!(Plan::parse(bytes.into()).is_err(), "{wrong} bytes stated, 14 there");
        }
        let many = vec![(0, 1); SEGMENTED_REF_COUNT_MAX + 1];
        assert!(parse(0, &many[1..]).is_ok() && parse(0, &many).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), count in 0u32..4) {
            let mut bytes = bytes;
            if bytes.len() >= SEGMENTED_HEAD_LEN {
                bytes[4..8].copy_from_slice(&count.to_le_bytes());
            }
            if let Ok(plan) = Plan::parse(bytes.into()) {
                prop_assert!(plan.ref_bytes() <= plan.len() && plan.len() <= u32::MAX as usize);
            }
        }

        #[test]
        fn a_segmented_message_reads_as_its_pieces_one_after_the_other(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..20), 0..6),
            steps in proptest::collection::vec((any::<bool>(), 0usize..30), 0..20),
        ) {
            let mut flat = Bytes::from(pieces.concat());
            let mut segmented = SegmentedMessage { segments: VecDeque::new(), len: flat.len() };
            pieces.into_iter().for_each(|piece| segmented.push(piece.into()));
            for (copy, count) in steps {
                let count = count.min(flat.len());
                if copy {
                    prop_assert_eq!(segmented.copy_to_bytes(count), flat.copy_to_bytes(count));
                } else {
                    segmented.advance(count);
                    flat.advance(count);
                }
                prop_assert_eq!(segmented.remaining(), flat.len());
                prop_assert!(flat.starts_with(segmented.chunk()) && segmented.chunk().is_empty() == flat.is_empty());
            }
        }
    }
}
