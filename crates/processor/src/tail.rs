//! Hot module: the end of the input, and fields that are skipped.

use crate::fault::Why;
#[cfg(target_arch = "x86_64")]
use crate::utf8;
use crate::varint;
use std::mem::MaybeUninit;
use tollfree_layout::steps;

/// Bytes of input that the patched tail repeats at most, and bytes it has in all.
pub(crate) const REPEATED: usize = 64;
const LEN: usize = 2 * REPEATED;

/// The last bytes of the input with zeroes behind them; see `decode`, "Reading ahead".
pub(crate) struct Tail(MaybeUninit<[u8; LEN]>);

/// Bytes that can be read at the address that [`Tail::fill`] gives.
#[inline]
pub(crate) fn readable(len: usize) -> usize {
    len - len.min(REPEATED) + LEN
}

impl Tail {
    #[inline(always)]
    pub(crate) fn new() -> Tail {
        Tail(MaybeUninit::uninit())
    }

    /// Fills the tail; gives an address where byte `pos` of the input is at `address + pos`, for the last
    /// [`REPEATED`].
    ///
    /// # Safety
    /// `len` bytes are readable at `input`.
    #[inline]
    pub(crate) unsafe fn fill(&mut self, input: *const u8, len: usize) -> *const u8 {
        let kept = len.min(REPEATED);
        let to = self.0.as_mut_ptr().cast::<u8>();
        // SAFETY: the last `kept <= REPEATED` of `len` bytes, into twice as many; the wide form only where the processor has
        // it. Noticed by `the_tail_continues_the_input`.
        unsafe {
            let from = input.add(len - kept);
            #[cfg(target_arch = "x86_64")]
            if utf8::is_wide() {
                fill_wide(from, kept, to);
            } else {
                fill_in_pieces(from, kept, to);
            }
            #[cfg(not(target_arch = "x86_64"))]
            fill_in_pieces(from, kept, to);
        }
        to.cast_const().wrapping_sub(len - kept)
    }
}

/// # Safety
/// `kept <= REPEATED` bytes are readable at `from`, [`LEN`] can be written at `to`.
#[inline]
unsafe fn fill_in_pieces(from: *const u8, kept: usize, to: *mut u8) {
    // SAFETY: the caller's promise; pieces lie within `kept`. Noticed by `the_tail_continues_the_input`.
    unsafe {
        to.add(REPEATED).cast::<[u64; 8]>().write_unaligned([0; 8]);
        if kept == REPEATED {
            to.cast::<[u64; 8]>().write_unaligned(from.cast::<[u64; 8]>().read_unaligned());
        } else {
            to.cast::<[u64; 8]>().write_unaligned([0; 8]);
            // Two pieces that overlap where `kept` is no power of two.
            macro_rules! piece {
                ($type:ty) => {{
                    let last = kept - size_of::<$type>();
                    let (low, high) = (from.cast::<$type>(), from.add(last).cast::<$type>());
                    let (low, high) = (low.read_unaligned(), high.read_unaligned());
                    to.cast::<$type>().write_unaligned(low);
                    to.add(last).cast::<$type>().write_unaligned(high);
                }};
            }
            match kept {
                32.. => piece!([u128; 2]),
                16.. => piece!(u128),
                8.. => piece!(u64),
                4.. => piece!(u32),
                2.. => piece!(u16),
                1 => piece!(u8),
                0 => {}
            }
        }
    }
}

/// The same in one piece: reading where two meet waits until both have reached the cache.
///
/// # Safety
/// As [`fill_in_pieces`]; the processor has AVX-512 for bytes.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn fill_wide(from: *const u8, kept: usize, to: *mut u8) {
    use std::arch::x86_64::{_mm512_maskz_loadu_epi8, _mm512_setzero_si512, _mm512_storeu_si512};
    const { assert!(REPEATED == 64) };
    let lanes = if kept == 0 { 0 } else { !0 >> (REPEATED - kept) };
    // SAFETY: the caller's promise; lanes that are masked out are not read. Noticed by `the_tail_continues_the_input`.
    unsafe {
        _mm512_storeu_si512(to.cast(), _mm512_maskz_loadu_epi8(lanes, from.cast()));
        _mm512_storeu_si512(to.add(REPEATED).cast(), _mm512_setzero_si512());
    }
}

/// Skips the value of a field of this wire type that begins at `at`; gives where it ends, at most `end`.
///
/// Groups may nest `depth` deep. Reads nothing beyond `end`, so it needs no patched tail.
pub(crate) fn skip(
    input: &[u8],
    mut at: usize,
    end: usize,
    number: u32,
    wire_type: u32,
    depth: u32,
) -> Result<usize, Why> {
    let input = &input[..end];
    let mut groups = Vec::new();
    let (mut number, mut wire_type) = (number, wire_type);
    loop {
        steps::take(1);
        if at > end {
            return Err(Why::Truncated);
        }
        if number == 0 {
            return Err(Why::Tag);
        }
        match wire_type {
            0 => at += long_varint(&input[at..], 10)?.1,
            1 => at += 8,
            2 => {
                let (len, taken) = long_varint(&input[at..], 5)?;
                if len > i32::MAX as u64 {
                    return Err(Why::Varint);
                }
                at += taken + len as usize;
            }
            3 if groups.len() as u32 >= depth => return Err(Why::Depth),
            3 => groups.push(number),
            4 if groups.pop() == Some(number) => {}
            5 => at += 4,
            _ => return Err(Why::Tag),
        }
        if at > end {
            return Err(Why::Truncated);
        }
        if groups.is_empty() {
            return Ok(at);
        }
        let (tag, taken) = long_varint(&input[at..], 5)?;
        let tag = u32::try_from(tag).map_err(|_| Why::Varint)?;
        at += taken;
        (number, wire_type) = (tag >> 3, tag & 7);
    }
}

fn long_varint(bytes: &[u8], longest: usize) -> Result<(u64, usize), Why> {
    let (value, len) = varint::from_slice(&bytes[..bytes.len().min(longest)]);
    match len {
        0 if bytes.len() < longest => Err(Why::Truncated),
        0 => Err(Why::Varint),
        _ => Ok((value, len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_each_wire_type() {
        let group = [0x13, 0x08, 1, 0x14, 0x0c];
        assert_eq!(skip(&[0x96, 1, 9], 0, 3, 1, 0, 9), Ok(2));
        assert_eq!(skip(&[0; 9], 0, 9, 1, 1, 9), Ok(8));
        assert_eq!(skip(&[2, 7, 7, 7], 0, 4, 1, 2, 9), Ok(3));
        assert_eq!(skip(&group, 0, 5, 1, 3, 9), Ok(5));
        assert_eq!(skip(&[0; 4], 0, 4, 1, 5, 9), Ok(4));
    }

    #[test]
    fn refuses_what_is_malformed() {
        assert_eq!(skip(&[0x80], 0, 1, 1, 0, 9), Err(Why::Truncated));
        assert_eq!(skip(&[0x80; 11], 0, 11, 1, 0, 9), Err(Why::Varint));
        assert_eq!(skip(&[0; 7], 0, 7, 1, 1, 9), Err(Why::Truncated));
        assert_eq!(skip(&[0xff, 0xff, 0xff, 0xff, 0x0f], 0, 5, 1, 2, 9), Err(Why::Varint));
        assert_eq!(skip(&[0x13, 0x13], 0, 2, 1, 3, 2), Err(Why::Depth));
        assert_eq!(skip(&[0x14], 0, 1, 1, 3, 9), Err(Why::Tag));
        assert_eq!(skip(&[0x08, 1], 0, 2, 1, 3, 9), Err(Why::Truncated));
        assert_eq!(skip(&[], 0, 0, 0, 0, 9), Err(Why::Tag));
        assert_eq!(skip(&[], 0, 0, 1, 6, 9), Err(Why::Tag));
        assert_eq!(skip(&[], 1, 0, 1, 0, 9), Err(Why::Truncated));
    }

    #[test]
    fn the_tail_continues_the_input() {
        for len in (0usize..130).chain([500]) {
            let input: Vec<u8> = (0..len).map(|at| at as u8 | 1).collect();
            let mut tail = Tail::new();
            // SAFETY: all bytes that are read lie in the tail.
            unsafe {
                let buf = tail.fill(input.as_ptr(), len);
                let compare = |buf: *const u8| {
                    for at in len.saturating_sub(REPEATED)..readable(len) {
                        assert_eq!(*buf.wrapping_add(at), input.get(at).copied().unwrap_or(0));
                    }
                };
                compare(buf);
                // The form that this processor does not prefer.
                let (kept, to) = (len.min(REPEATED), tail.0.as_mut_ptr().cast::<u8>());
                to.write_bytes(0xee, LEN);
                fill_in_pieces(input.as_ptr().add(len - kept), kept, to);
                compare(to.cast_const().wrapping_sub(len - kept));
            }
        }
    }
}
