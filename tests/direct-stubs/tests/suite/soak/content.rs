//! What payloads hold: bytes that follow from the seed, from the process that made them, and from their number.

/// Words at the beginning of a payload that say which it is: seed, owner, number, length.
const HEAD_LEN: usize = 32;
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Which payload this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) seed: u64,
    /// The process that made it.
    pub(crate) owner: u64,
    /// Counted by its owner.
    pub(crate) number: u64,
}

impl Stamp {
    fn first(self) -> u64 {
        (self.seed ^ self.owner.rotate_left(24) ^ self.number.rotate_left(48)).wrapping_mul(STEP)
    }

    /// Fills memory with this payload.
    pub(crate) fn write(self, bytes: &mut [u8]) {
        let len = bytes.len() as u64;
        let (head, rest) = bytes.split_at_mut(HEAD_LEN);
        for (part, word) in
            head.as_chunks_mut::<8>().0.iter_mut().zip([self.seed, self.owner, self.number, len])
        {
            *part = word.to_le_bytes();
        }
        let mut word = self.first();
        for part in rest.as_chunks_mut::<8>().0 {
            *part = word.to_le_bytes();
            word = word.wrapping_add(STEP);
        }
    }

    /// Reads which payload this is, and checks all bytes of it.
    ///
    /// # Panics
    /// When it isn't whole.
    pub(crate) fn read(bytes: &[u8], seed: u64) -> Stamp {
        assert!(bytes.len() > HEAD_LEN, "a payload of {} bytes", bytes.len());
        let (head, rest) = bytes.split_at(HEAD_LEN);
        let mut words = head.as_chunks::<8>().0.iter().map(|part| u64::from_le_bytes(*part));
        let mut next = || words.next().unwrap_or_default();
        let stamp = Stamp { seed: next(), owner: next(), number: next() };
        assert_eq!((stamp.seed, next()), (seed, bytes.len() as u64), "the head of {stamp:?} has other bytes");
        let mut word = stamp.first();
        for (idx, part) in rest.as_chunks::<8>().0.iter().enumerate() {
            assert!(
                *part == word.to_le_bytes(),
                "other bytes at {} of {} in {stamp:?}: {part:x?}, not {:x?}",
                HEAD_LEN + 8 * idx,
                bytes.len(),
                word.to_le_bytes()
            );
            word = word.wrapping_add(STEP);
        }
        stamp
    }
}
