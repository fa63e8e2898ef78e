//! Where a ring lies in its region.

use tollfree_layout::RingPos;
use tollfree_layout::limits::{LINE_LEN, PAGE_LEN};
use tollfree_layout::record::record_len_max;

/// Place and length of a ring within the region of the side that sends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Geometry {
    /// Offset of the first line, in bytes; a multiple of [`LINE_LEN`], behind the control page.
    pub ring_off: usize,
    /// Length in bytes: a power of two, at least [`Geometry::RING_LEN_MIN`].
    pub ring_len: usize,
}

/// Why a place or length is none that a ring can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// The ring does not start on a line behind the control page.
    #[error("a ring cannot start at {0}: it has to be a multiple of {LINE_LEN} from {PAGE_LEN} on")]
    Offset(usize),
    /// The length is not a power of two, or too short to hold records.
    #[error("a ring cannot be {0} bytes long: it has to be a power of two of at least {min}", min = Geometry::RING_LEN_MIN)]
    Length(usize),
    /// The ring would end beyond what can be addressed.
    #[error("a ring of {ring_len} bytes at {ring_off} ends beyond any region")]
    End {
        /// Offset asked for.
        ring_off: usize,
        /// Length asked for.
        ring_len: usize,
    },
}

impl Geometry {
    /// The shortest ring that works at all: four lines. What a peer may announce is for the handshake to limit.
    pub const RING_LEN_MIN: usize = 4 * LINE_LEN;

    /// Checks place and length, which may come from a peer.
    ///
    /// # Errors
    /// When no ring can be like this; says nothing about the length of the region, see [`end`](Self::end).
    pub fn new(ring_off: usize, ring_len: usize) -> Result<Geometry, GeometryError> {
        if ring_off < PAGE_LEN || !ring_off.is_multiple_of(LINE_LEN) {
            return Err(GeometryError::Offset(ring_off));
        }
        if !ring_len.is_power_of_two() || ring_len < Self::RING_LEN_MIN {
            return Err(GeometryError::Length(ring_len));
        }
        if ring_off.checked_add(ring_len).is_none_or(|end| end > isize::MAX as usize) {
            return Err(GeometryError::End { ring_off, ring_len });
        }
        Ok(Geometry { ring_off, ring_len })
    }

    /// The length that a region with this ring has at least, in bytes.
    pub fn end(self) -> usize {
        self.ring_off + self.ring_len
    }

    /// Lines in the ring.
    #[inline]
    pub fn line_count(self) -> u64 {
        (self.ring_len / LINE_LEN) as u64
    }

    /// Longest record in bytes.
    #[inline]
    pub fn record_len_max(self) -> usize {
        record_len_max(self.ring_len)
    }

    /// Offset in the ring, not the region, of the line at `pos`.
    #[inline(always)]
    pub(crate) fn line_off(self, pos: RingPos) -> usize {
        (pos.0 as usize).wrapping_mul(LINE_LEN) & (self.ring_len - 1)
    }

    /// Splits `len` bytes, at most the ring's, from `off` bytes after the line at `pos` into the part up to the end
    /// of the ring and the part that goes on at its start: offset in the region and length of the first, length of
    /// the second.
    #[inline(always)]
    pub(crate) fn split(self, pos: RingPos, off: usize, len: usize) -> (usize, usize, usize) {
        let at = (self.line_off(pos) + off) & (self.ring_len - 1);
        let before_end = len.min(self.ring_len - at);
        (self.ring_off + at, before_end, len - before_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rings_that_work_are_accepted() {
        for len in [0, 1, 64, 128, 255, 257, 4095, usize::MAX] {
            assert_eq!(Geometry::new(PAGE_LEN, len), Err(GeometryError::Length(len)));
        }
        for off in [0, 64, PAGE_LEN - 64, PAGE_LEN + 8] {
            assert_eq!(Geometry::new(off, 4096), Err(GeometryError::Offset(off)));
        }
        let ring_len = 1 << (usize::BITS - 1);
        assert_eq!(
            Geometry::new(PAGE_LEN, ring_len),
            Err(GeometryError::End { ring_off: PAGE_LEN, ring_len })
        );
        let least = Geometry::new(PAGE_LEN, Geometry::RING_LEN_MIN).unwrap();
        assert_eq!((least.line_count(), least.record_len_max()), (4, 56));
    }

    #[test]
    fn parts_stay_within_the_ring() {
        let ring = Geometry::new(PAGE_LEN, 256).unwrap();
        for pos in (0..9).chain([u64::MAX - 1, u64::MAX]) {
            for off in 0..=256 {
                for len in 0..=256 {
                    let (at, first, second) = ring.split(RingPos(pos), off, len);
                    assert!(at >= PAGE_LEN && at + first <= ring.end() && second <= 256);
                    assert_eq!(first + second, len);
                    assert!(second == 0 || at + first == ring.end());
                }
            }
        }
    }
}
