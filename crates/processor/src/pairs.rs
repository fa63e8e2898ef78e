//! Hot module: many varints in a row, two at a time.
//!
//! Where a varint begins is known when the one before it has been looked at, and that takes longer than to put its bits
//! together. So a run is read at two places at once: from its start, and from its middle, which counting the bytes that
//! end a varint finds. It needs instructions for bits and AVX2; without them, or where anything is wrong with the run,
//! nothing is said of it, and the caller reads it one by one.

use crate::copy::QUICK_BITS;
use crate::varint::{MORE, load64};
use std::arch::x86_64::*;
use std::sync::LazyLock;

/// Fewer values are read one by one.
const FEW: usize = 8;
/// Bytes of a varint at most.
const LONGEST: usize = 10;
const BLOCK: usize = 32;

static AVAILABLE: LazyLock<bool> =
    LazyLock::new(|| *QUICK_BITS && is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt"));

/// Reads `count` varints from the first of `len` bytes on and hands each to `put`, with its place among them: the bytes that
/// they take, unless that is for others to find out. Then any of them may have been handed on, or none. `STRICT`: what does not fit 64 bits is wrong, else it
/// is dropped.
///
/// # Safety
/// `len` bytes are readable at `from`.
#[inline(always)]
pub(crate) unsafe fn read<const STRICT: bool>(
    from: *const u8,
    len: usize,
    count: usize,
    put: impl FnMut(usize, u64),
) -> Option<usize> {
    if count < FEW || !*AVAILABLE {
        return None;
    }
    // SAFETY: the caller's promise; the processor has what is needed.
    unsafe { both_halves::<STRICT>(from, len, count, put) }
}

/// # Safety
/// As [`read`]; the processor is [`AVAILABLE`].
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn both_halves<const STRICT: bool>(
    from: *const u8,
    len: usize,
    count: usize,
    mut put: impl FnMut(usize, u64),
) -> Option<usize> {
    // SAFETY: `first` stays below the start of the second half, which is below `len`; both are read where ten bytes are
    // left behind the second. Noticed by `reads_what_one_by_one_reads`, where nothing is readable behind the run.
    unsafe {
        let half = count / 2;
        let middle = end_of(from, len, half)?;
        let (mut first, mut second) = (0, middle);
        let mut idx = 0;
        while idx < half && len - second >= LONGEST {
            let (low, low_len) = one::<STRICT>(from.add(first))?;
            let (high, high_len) = one::<STRICT>(from.add(second))?;
            put(idx, low);
            put(half + idx, high);
            first += low_len;
            second += high_len;
            idx += 1;
        }
        // The rest of both: there are few, if the values are about equally long.
        let rest = [(idx, half, first), (half + idx, count, second)];
        for (start, end, mut at) in rest {
            for idx in start..end {
                let mut last = [0; LONGEST + 6];
                let left = (len - at).min(LONGEST);
                last.as_mut_ptr().copy_from_nonoverlapping(from.add(at), left);
                let (value, value_len) = one::<STRICT>(last.as_ptr())?;
                if value_len > left {
                    return None;
                }
                put(idx, value);
                at += value_len;
            }
            second = at;
        }
        Some(second)
    }
}

/// Where the `count`-th varint ends, if it does.
///
/// # Safety
/// `len` bytes are readable at `from`; the processor is [`AVAILABLE`].
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn end_of(from: *const u8, len: usize, count: usize) -> Option<usize> {
    let mut left = count as u32;
    let mut at = 0;
    // SAFETY: blocks lie below `len`.
    unsafe {
        while len - at >= BLOCK {
            let more = _mm256_movemask_epi8(_mm256_loadu_si256(from.add(at).cast())) as u32;
            let ends = (!more).count_ones();
            if ends >= left {
                // A bit at the place of the last one that is left.
                let last = _pdep_u64(1 << (left - 1), u64::from(!more));
                return Some(at + last.trailing_zeros() as usize + 1);
            }
            left -= ends;
            at += BLOCK;
        }
        while at < len {
            left -= u32::from(*from.add(at) < 0x80);
            at += 1;
            if left == 0 {
                return Some(at);
            }
        }
    }
    None
}

/// The varint at `at`, and its length.
///
/// # Safety
/// Ten bytes are readable; the processor is [`AVAILABLE`].
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn one<const STRICT: bool>(at: *const u8) -> Option<(u64, usize)> {
    // SAFETY: the caller's promise.
    unsafe {
        let w = load64(at);
        if w & 0x80 == 0 {
            return Some((w & 0x7f, 1));
        }
        if w & 0x8000 == 0 {
            return Some((_pext_u64(w, 0x7f7f), 2));
        }
        let stop = !w & MORE;
        if stop != 0 {
            return Some((_pext_u64(w & _blsmsk_u64(stop), !MORE), (stop.trailing_zeros() as usize + 1) / 8));
        }
        // Without a branch: of random 63-bit numbers half have nine bytes and half ten.
        let ends = u64::from(at.add(8).cast::<u16>().read_unaligned());
        let longer = ends >> 7 & 1;
        if ends & 0x8080 == 0x8080 || STRICT && longer & (ends >> 9 != 0) as u64 != 0 {
            return None;
        }
        let high = _pext_u64(ends, 0x7f | longer << 8);
        Some((_pext_u64(w, !MORE) | high << 56, 9 + longer as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(values: &[(u64, usize)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (value, extra) in values {
            let (mut rest, start) = (*value, out.len());
            while rest >= 0x80 {
                out.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            out.push(rest as u8);
            for _ in 0..*extra.min(&(LONGEST - (out.len() - start))) {
                *out.last_mut().unwrap() |= 0x80;
                out.push(0);
            }
        }
        out
    }

    fn all<const STRICT: bool>(bytes: &[u8], count: usize) -> Option<(Vec<u64>, usize)> {
        let mut values = vec![0; count];
        // A copy of its own, so that nothing lies behind it.
        let bytes = bytes.to_vec().into_boxed_slice();
        // SAFETY: the bytes are there.
        let end =
            unsafe { read::<STRICT>(bytes.as_ptr(), bytes.len(), count, |idx, value| values[idx] = value) };
        end.map(|end| (values, end))
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "Miri has no AVX2: proptest would draw until it gives up")]
        fn reads_what_one_by_one_reads(
            values in prop::collection::vec((any::<u64>(), 0u32..64, 0usize..3), 8..80),
            noise: Vec<u8>,
        ) {
            prop_assume!(*AVAILABLE);
            let values: Vec<_> = values.into_iter().map(|(value, shift, extra)| (value >> shift, extra)).collect();
            let bytes = encoded(&values);
            let expected: Vec<_> = values.iter().map(|(value, _)| *value).collect();
            for bytes in [bytes.clone(), [&bytes[..], &noise].concat()] {
                prop_assert_eq!(all::<true>(&bytes, values.len()), Some((expected.clone(), encoded(&values).len())));
                prop_assert!(all::<false>(&bytes, values.len()).is_some());
            }
            for cut in 0..bytes.len() {
                prop_assert_eq!(all::<false>(&bytes[..cut], values.len()), None);
            }
        }

        #[test]
        #[cfg_attr(miri, ignore = "Miri has no AVX2: proptest would draw until it gives up")]
        fn says_nothing_of_what_is_wrong(before in 0usize..30, behind in 0usize..30, tenth in 2u8..=0xff) {
            prop_assume!(*AVAILABLE && before + behind >= 8);
            let wrong = [&[0xff; 9][..], &[tenth]].concat();
            let bytes = [&vec![3; before][..], &wrong, &vec![4; behind]].concat();
            let count = before + 1 + behind - usize::from(tenth >= 0x80 && behind > 0);
            prop_assert_eq!(all::<true>(&bytes, count), None);
            // Too many bits are dropped where that is the rule; too many bytes never are.
            prop_assert_eq!(all::<false>(&bytes, count).is_some(), tenth < 0x80);
        }
    }
}
