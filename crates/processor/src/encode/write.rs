//! Hot module: values, written so that they end where the position is.
//!
//! What they leave below the new position is overwritten later; how much room that takes is in the module above, "Writing
//! beyond". Its tests notice, beside the one here.

use super::program::ProgramStep;
use crate::plan::op;

/// Highest bit of each byte.
const MORE: u64 = 0x8080_8080_8080_8080;

/// Spreads the low 56 bits over eight bytes, seven bits each. `BITS`: the processor has instructions for bits, and this is
/// inlined where they may be used.
#[inline(always)]
unsafe fn spread<const BITS: bool>(value: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if BITS {
        // SAFETY: the caller's promise.
        return unsafe { std::arch::x86_64::_pdep_u64(value, !MORE) };
    }
    let v = (value & 0x0fff_ffff) | (value & 0x00ff_ffff_f000_0000) << 4;
    let v = (v & 0x0000_3fff_0000_3fff) | (v & 0x0fff_c000_0fff_c000) << 2;
    (v & 0x007f_007f_007f_007f) | (v & 0x3f80_3f80_3f80_3f80) << 1
}

#[inline(always)]
pub(super) fn zigzag32(value: u32) -> u64 {
    u64::from((value << 1) ^ ((value as i32 >> 31) as u32))
}

#[inline(always)]
pub(super) fn zigzag64(value: u64) -> u64 {
    (value << 1) ^ ((value as i64 >> 63) as u64)
}

/// Writes the low `len <= 8` bytes of `value` below `at`.
#[inline(always)]
pub(super) unsafe fn put(at: *mut u8, value: u64, len: usize) -> *mut u8 {
    // SAFETY: at least eight bytes are free below `at` ("Writing beyond"); a shift by 64 cannot occur, as
    // `len >= 1`.
    unsafe {
        at.sub(8).cast::<u64>().write_unaligned(value << (64 - 8 * len as u32));
        at.sub(len)
    }
}

#[inline(always)]
pub(super) unsafe fn varint<const BITS: bool>(at: *mut u8, value: u64) -> *mut u8 {
    // SAFETY: room for ten bytes ("Writing beyond").
    unsafe {
        if value >> 56 == 0 {
            let bytes = spread::<BITS>(value);
            // Bits of the zero bytes above; all bytes but the last go on.
            let above = (bytes | 1).leading_zeros() & !7;
            at.sub(8).cast::<u64>().write_unaligned((bytes | MORE >> 8 >> above) << above);
            return at.sub(8).add(above as usize / 8);
        }
        let high = value >> 56;
        let at = match high {
            ..0x80 => put(at, high, 1),
            _ => put(at, 0x0100 | high & 0x7f | 0x80, 2),
        };
        put(at, spread::<BITS>(value) | MORE, 8)
    }
}

#[inline(always)]
pub(super) unsafe fn put_tag(at: *mut u8, step: &ProgramStep) -> *mut u8 {
    // SAFETY: as `put`.
    unsafe {
        at.sub(8).cast::<u64>().write_unaligned(step.tag_high);
        at.offset(step.tag as isize)
    }
}

/// The tag that ends a group: one more than the one that begins it.
#[inline(always)]
pub(super) unsafe fn put_end(at: *mut u8, step: &ProgramStep) -> *mut u8 {
    // SAFETY: as `put`.
    unsafe {
        at.sub(8).cast::<u64>().write_unaligned(step.tag_high + (1 << (64 + 8 * i32::from(step.tag))));
        at.offset(step.tag as isize)
    }
}

/// A varint and the tag before it.
#[inline(always)]
pub(super) unsafe fn tagged_varint<const BITS: bool>(at: *mut u8, step: &ProgramStep, value: u64) -> *mut u8 {
    // SAFETY: as `put`; ten bytes are free, too.
    unsafe {
        if value < 0x80 {
            at.sub(8).cast::<u64>().write_unaligned(value << 56 | step.tag_high >> 8);
            return at.offset(step.tag as isize - 1);
        }
        if value < 0x4000 {
            // The upper seven bits, moved by one, and the bit that says that they follow.
            let bytes = (value + (value & 0x3f80) + 0x80) as u16;
            at.sub(2).cast::<u16>().write_unaligned(bytes);
            at.sub(10).cast::<u64>().write_unaligned(step.tag_high);
            return at.offset(step.tag as isize - 2);
        }
        put_tag(varint::<BITS>(at, value), step)
    }
}

#[inline(always)]
pub(super) unsafe fn u32_at(slot: *const u8) -> u32 {
    // SAFETY: the slot lies in the object (the callers').
    unsafe { slot.cast::<u32>().read_unaligned() }
}

#[inline(always)]
pub(super) unsafe fn u64_at(slot: *const u8) -> u64 {
    // SAFETY: as `u32_at`.
    unsafe { slot.cast::<u64>().read_unaligned() }
}

/// One scalar of this shape, without its tag.
#[inline(always)]
pub(super) unsafe fn scalar<const BITS: bool>(at: *mut u8, shape: u8, slot: *const u8) -> *mut u8 {
    // SAFETY: the slot lies in the object; room for ten bytes is there.
    unsafe {
        let value = match shape {
            op::VARINT64 => u64_at(slot),
            op::VARINT32 => u64::from(u32_at(slot)),
            op::SINT64 => zigzag64(u64_at(slot)),
            op::SINT32 => zigzag32(u32_at(slot)),
            op::BOOL => u64::from(*slot != 0),
            op::FIXED64 => return put(at, u64_at(slot), 8),
            op::FIXED32 => return put(at, u64::from(u32_at(slot)), 4),
            _ => u32_at(slot) as i32 as u64,
        };
        varint::<BITS>(at, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "x86_64")]
    use crate::copy::QUICK_BITS;
    use crate::varint::from_slice;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_read_back(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            let shortest = (64 - (value | 1).leading_zeros() as usize).div_ceil(7);
            let check = |write: unsafe fn(*mut u8, u64) -> *mut u8| {
                let mut buffer = [0xee; 64];
                let end = buffer.as_mut_ptr_range().end;
                // SAFETY: 64 bytes are free, and the processor has what the form needs.
                let len = end.addr() - unsafe { write(end, value) }.addr();
                assert_eq!(from_slice(&buffer[64 - len..]), (value, len));
                assert_eq!(len, shortest);
            };
            check(varint::<false>);
            #[cfg(target_arch = "x86_64")]
            if *QUICK_BITS {
                check(varint::<true>);
            }
        }
    }
}
