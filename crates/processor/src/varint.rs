//! Hot module: varints and loads from raw memory.
//!
//! All functions here read a fixed number of bytes behind their pointer, whatever the value's length; callers
//! see to it that these bytes exist (see `decode`, "Reading ahead").

/// Highest bit of each byte.
pub(crate) const MORE: u64 = 0x8080_8080_8080_8080;

/// Eight bytes, little endian, from any address.
///
/// # Safety
/// Eight bytes must be readable at `at`.
#[inline(always)]
pub(crate) unsafe fn load64(at: *const u8) -> u64 {
    // SAFETY: the caller's promise; `u64` takes any bytes. Noticed by the prefix tests under a sanitizer.
    unsafe { at.cast::<u64>().read_unaligned() }
}

/// Puts the seven low bits of each byte together.
#[inline(always)]
pub(crate) fn compress(w: u64) -> u64 {
    let w = w & !MORE;
    let w = (w & 0x007f_007f_007f_007f) | ((w & 0x7f00_7f00_7f00_7f00) >> 1);
    let w = (w & 0x0000_3fff_0000_3fff) | ((w & 0x3fff_0000_3fff_0000) >> 2);
    (w & 0x0fff_ffff) | ((w & 0x0fff_ffff_0000_0000) >> 4)
}

/// The varint at `at` and its length; length 0 if it is malformed: above ten bytes or above 64 bits.
///
/// # Safety
/// Ten bytes must be readable at `at`.
#[inline(always)]
pub(crate) unsafe fn varint(at: *const u8) -> (u64, usize) {
    // SAFETY: the caller's promise of ten bytes covers both functions.
    unsafe {
        let w = load64(at);
        let stop = !w & MORE;
        if stop == 0 {
            return long_varint(at, w);
        }
        let len = (stop.trailing_zeros() as usize + 1) / 8;
        (compress(w & (stop ^ stop.wrapping_sub(1))), len)
    }
}

/// A varint of nine or ten bytes.
///
/// # Safety
/// Ten bytes must be readable at `at`.
#[inline(never)]
unsafe fn long_varint(at: *const u8, w: u64) -> (u64, usize) {
    // SAFETY: bytes 8 and 9 are within the ten that the caller promises.
    let (ninth, tenth) = unsafe { (*at.add(8), *at.add(9)) };
    let low = compress(w) | u64::from(ninth & 0x7f) << 56;
    match (ninth, tenth) {
        (..0x80, _) => (low, 9),
        (_, 0 | 1) => (low | u64::from(tenth) << 63, 10),
        _ => (0, 0),
    }
}

/// A length or tag at `at`, and how many bytes it takes; 0 bytes if it has more than five or passes 32 bits.
///
/// # Safety
/// Eight bytes must be readable at `at`.
#[inline(always)]
pub(crate) unsafe fn varint32(at: *const u8) -> (u32, usize) {
    // SAFETY: the caller's promise.
    let w = unsafe { load64(at) };
    let stop = !w & MORE & 0xff_ffff_ffff;
    let len = (stop.trailing_zeros() as usize + 1) / 8;
    let value = compress(w & (stop ^ stop.wrapping_sub(1)) & 0xff_ffff_ffff);
    if stop == 0 || value > u64::from(u32::MAX) { (0, 0) } else { (value as u32, len) }
}

/// As [`varint`], from a slice: for places that are not hot. Length 0 if malformed or cut off.
pub(crate) fn from_slice(bytes: &[u8]) -> (u64, usize) {
    let mut value = 0;
    for (at, byte) in bytes.iter().take(10).enumerate() {
        if at == 9 && *byte > 1 {
            return (0, 0);
        }
        value |= u64::from(byte & 0x7f) << (7 * at);
        if *byte < 0x80 {
            return (value, at + 1);
        }
    }
    (0, 0)
}

/// Zigzag, undone.
#[inline(always)]
pub(crate) fn unzigzag(value: u64) -> u64 {
    (value >> 1) ^ (value & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn write(mut value: u64, extra: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while value >= 0x80 {
            out.push(value as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
        for _ in 0..extra.min(10 - out.len()) {
            *out.last_mut().unwrap() |= 0x80;
            out.push(0);
        }
        out
    }

    proptest! {
        #[test]
        fn reads_what_was_written(value: u64, shift in 0u32..64, extra in 0usize..9, noise: [u8; 10]) {
            let value = value >> shift;
            let mut bytes = write(value, extra);
            let len = bytes.len();
            bytes.extend(noise);
            // SAFETY: ten bytes of noise follow the varint.
            prop_assert_eq!(unsafe { varint(bytes.as_ptr()) }, (value, len));
            prop_assert_eq!(from_slice(&bytes), (value, len));
            let narrow = if len <= 5 && value <= u64::from(u32::MAX) { (value as u32, len) } else { (0, 0) };
            // SAFETY: as above.
            prop_assert_eq!(unsafe { varint32(bytes.as_ptr()) }, narrow);
        }
    }

    #[test]
    fn refuses_what_is_too_long() {
        for bad in [[0xff; 11], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0]] {
            // SAFETY: eleven bytes.
            assert_eq!(unsafe { varint(bad.as_ptr()) }.1, 0);
            assert_eq!(from_slice(&bad).1, 0);
        }
        assert_eq!(from_slice(&[0x80]).1, 0);
        assert_eq!(unzigzag(u64::MAX), i64::MIN as u64);
    }
}
