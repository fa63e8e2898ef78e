//! Writing a range of an encoding: what an encoder writes before the range is passed over, what it writes behind it is counted.
//!
//! An encoder of messages writes from front to back and can't begin in the middle. A message that is longer than the room that
//! there is goes in several ranges: its encoder runs once for each, and stores nothing but that range. To pass over a long
//! field costs no more than over a short one.

use bytes::buf::UninitSlice;
use bytes::{Buf, BufMut};

use crate::copy::into_own;

/// Where the puts into the first range of a message are shorter than this on average, in bytes, the message is kept as a whole:
/// to run through so many of them for every range would cost more than a copy.
const SHORT_PUT_LEN: usize = 256;
/// Room for what asks for memory to write into, rather than put bytes.
const SCRATCH_LEN: usize = 64;

/// Stores one range of what is put into it.
#[derive(Debug)]
pub struct RangeWriter<'a> {
    range: &'a mut [u8],
    /// Bytes expected in all.
    expected: usize,
    /// Where the range begins.
    from: usize,
    /// Bytes that are yet to be passed over before it begins.
    before: usize,
    /// Bytes that are stored in it.
    filled: usize,
    /// Bytes that came behind it.
    behind: usize,
    put_count: usize,
    /// All that was put, where that is kept.
    whole: Option<Vec<u8>>,
    scratch: [u8; SCRATCH_LEN],
}

impl<'a> RangeWriter<'a> {
    /// Of a message of `expected` bytes, for those from `from` on that fit into `range`.
    pub fn new(expected: usize, from: usize, range: &'a mut [u8]) -> RangeWriter<'a> {
        let scratch = [0; SCRATCH_LEN];
        RangeWriter {
            range,
            expected,
            from,
            before: from,
            filled: 0,
            behind: 0,
            put_count: 0,
            whole: None,
            scratch,
        }
    }

    /// Bytes that were put, before the range, into it and behind it.
    pub fn written_len(&self) -> usize {
        self.from - self.before + self.filled + self.behind
    }

    /// The puts were so short on average that the message should be written as a whole, rather than range by range.
    pub fn is_crumbly(&self) -> bool {
        self.put_count.saturating_mul(SHORT_PUT_LEN) > self.written_len()
    }

    /// All that was put, where the puts into a first range were so short.
    pub fn into_whole(self) -> Option<Vec<u8>> {
        self.whole
    }

    /// Takes bytes not all of which lie in the range, or that end it.
    #[inline(never)]
    fn put_across(&mut self, bytes: &[u8]) {
        let before = bytes.len().min(self.before);
        self.before -= before;
        let bytes = &bytes[before..];
        let within = bytes.len().min(self.range.len() - self.filled);
        let (within, behind) = bytes.split_at(within);
        into_own(within, &mut self.range[self.filled..][..within.len()]);
        self.filled += within.len();
        if behind.is_empty() {
            return;
        }
        let is_first = self.from == 0 && self.behind == 0;
        self.behind += behind.len();
        if is_first && self.is_crumbly() {
            let mut whole = Vec::with_capacity(self.expected.max(self.range.len() + behind.len()));
            whole.extend_from_slice(self.range);
            self.whole = Some(whole);
        }
        if let Some(whole) = &mut self.whole {
            whole.extend_from_slice(behind);
        }
    }
}

// SAFETY: what `chunk_mut` gives is memory of this object's own that is initialised, whatever is written there; `advance_mut` takes
// no more out of it than there is, and panics for more. Only safe code touches memory. `every_way_of_putting_gives_the_same_bytes`
// and Miri would notice.
unsafe impl BufMut for RangeWriter<'_> {
    #[inline]
    fn remaining_mut(&self) -> usize {
        // As of a `Vec`: what is put behind the range is counted, not stored.
        isize::MAX as usize - self.filled
    }

    #[inline]
    unsafe fn advance_mut(&mut self, count: usize) {
        let scratch = self.scratch;
        self.put_slice(&scratch[..count]);
    }

    #[inline]
    fn chunk_mut(&mut self) -> &mut UninitSlice {
        UninitSlice::new(&mut self.scratch)
    }

    #[inline]
    fn put<T: Buf>(&mut self, mut src: T) {
        while src.has_remaining() {
            let chunk = src.chunk();
            let len = chunk.len();
            self.put_slice(chunk);
            src.advance(len);
        }
    }

    #[inline]
    fn put_slice(&mut self, bytes: &[u8]) {
        self.put_count += 1;
        let end = self.filled + bytes.len();
        match self.range.get_mut(self.filled..end) {
            Some(place) if self.before == 0 => {
                into_own(bytes, place);
                self.filled = end;
            }
            _ => self.put_across(bytes),
        }
    }

    #[inline]
    fn put_u8(&mut self, byte: u8) {
        match self.range.get_mut(self.filled) {
            Some(place) if self.before == 0 => {
                self.put_count += 1;
                *place = byte;
                self.filled += 1;
            }
            _ => self.put_slice(&[byte]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts `text` in pieces of the lengths that `lens` repeats, each by another method.
    fn put(writer: &mut RangeWriter<'_>, mut text: &[u8], lens: &[usize]) {
        for (nth, len) in lens.iter().cycle().enumerate() {
            let (piece, rest) = text.split_at(text.len().min(*len));
            match nth % 4 {
                0 => writer.put_slice(piece),
                1 => writer.put(piece.chain(&b""[..])),
                2 => piece.iter().for_each(|byte| writer.put_u8(*byte)),
                _ => {
                    for part in piece.chunks(SCRATCH_LEN) {
                        writer.chunk_mut()[..part.len()].copy_from_slice(part);
                        // SAFETY: these bytes were just written.
                        unsafe { writer.advance_mut(part.len()) };
                    }
                }
            }
            text = rest;
            if text.is_empty() {
                return;
            }
        }
    }

    #[test]
    fn every_way_of_putting_gives_the_same_bytes() {
        let text: Vec<u8> = (0..300u32).map(|nth| ((nth * 7) >> 2) as u8).collect();
        for lens in [&[1usize][..], &[3, 70, 1, 65], &[90], &[0, 400]] {
            for from in [0, 1, 7, 80, 299, 300, 400] {
                for len in [0, 1, 64, 79, 220, 300, 400] {
                    let mut range = vec![0xaa; len + 1];
                    let mut writer = RangeWriter::new(text.len(), from, &mut range[..len]);
                    put(&mut writer, &text, lens);
                    assert_eq!(writer.written_len(), text.len());
                    if let Some(whole) = writer.into_whole() {
                        assert_eq!(whole, text);
                    }
                    let expected =
                        &text[from.min(text.len())..(from + len).min(text.len()).max(from.min(text.len()))];
                    assert_eq!(range[..expected.len()], *expected, "{len} bytes from {from} on");
                    assert!(range[expected.len()..].iter().all(|byte| *byte == 0xaa));
                }
            }
        }
    }

    #[test]
    fn a_message_of_short_puts_is_kept_with_its_first_range_and_no_other() {
        let text = [7; 4 * SHORT_PUT_LEN];
        let written = |from, len, put_len: usize| {
            let mut range = vec![0; len];
            let mut writer = RangeWriter::new(text.len(), from, &mut range);
            text.chunks(put_len).for_each(|piece| writer.put_slice(piece));
            (writer.is_crumbly(), writer.into_whole().is_some())
        };
        assert_eq!(written(0, 100, SHORT_PUT_LEN / 2), (true, true));
        assert_eq!(written(0, text.len(), SHORT_PUT_LEN / 2), (true, false), "all of it is in the range");
        assert_eq!(written(100, 100, SHORT_PUT_LEN / 2), (true, false));
        assert_eq!(written(0, SHORT_PUT_LEN, SHORT_PUT_LEN), (false, false));
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn no_more_is_taken_out_of_a_chunk_than_it_has() {
        // SAFETY: broken, to see that nothing comes of it but a panic.
        unsafe { RangeWriter::new(0, 0, &mut []).advance_mut(SCRATCH_LEN + 1) };
    }
}
