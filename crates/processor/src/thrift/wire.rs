//! Hot module: how the two protocols spell fields, numbers and lengths.
//!
//! Everything is read at the source's position and moves it. Nothing beyond its length is looked at: where a load could
//! reach further, the slow path reads byte by byte. Whatever is not expanded in line takes the source by value, so
//! that a caller's own stays in registers.

use super::plan::code;
use crate::fault::Why;
#[cfg(target_arch = "x86_64")]
use crate::pairs;
use crate::varint::{MORE, compress, load64, unzigzag};

/// The input, and where in it reading goes on.
#[derive(Clone, Copy)]
pub(super) struct Source {
    /// `len` bytes are readable here; `pos <= len`.
    pub buf: *const u8,
    pub len: usize,
    pub pos: usize,
}

impl Source {
    /// Bytes that are not read yet.
    #[inline(always)]
    pub(super) fn left(&self) -> usize {
        self.len - self.pos
    }
}

/// A field's header.
#[derive(Default)]
pub(super) struct FieldStart {
    /// Its type; [`code::STOP`] behind the last field.
    pub code: u8,
    pub id: i32,
    /// The value of a bool, where the header says it.
    pub flag: bool,
}

/// One protocol. All functions rely on what [`Source`] says of its parts.
pub(super) trait Wire {
    /// A bool field has no byte of its own.
    const BOOL_IN_HEADER: bool;
    /// Fewest bytes of a value of this type.
    fn least(code: u8) -> usize;
    /// (To a place of the caller's: as part of a result it would be packed and unpacked again.)
    unsafe fn field(s: &mut Source, last: i32, to: &mut FieldStart) -> Result<(), Why>;
    /// A bool with a byte of its own.
    unsafe fn bool(s: &mut Source) -> Result<bool, Why>;
    unsafe fn i16(s: &mut Source) -> Result<u16, Why>;
    unsafe fn i32(s: &mut Source) -> Result<u32, Why>;
    unsafe fn i64(s: &mut Source) -> Result<u64, Why>;
    /// Writes so many of them, all at once: the bytes that they take, unless they are better read one by one.
    unsafe fn i64s(_s: &Source, _count: usize, _to: *mut u64) -> Option<usize> {
        None
    }
    /// The bits of a double.
    unsafe fn double(s: &mut Source) -> Result<u64, Why>;
    /// Bytes of a string, held against the input's end.
    unsafe fn length(s: &mut Source) -> Result<usize, Why>;
    /// Type and count of a list's or set's elements.
    unsafe fn list(s: &mut Source) -> Result<(u8, u32), Why>;
    /// Types of a map's keys and values, and their count. A map without entries may have `STOP` for both.
    unsafe fn map(s: &mut Source) -> Result<(u8, u8, u32), Why>;
}

/// `N` bytes.
#[inline(always)]
pub(super) unsafe fn take<const N: usize>(s: &mut Source) -> Result<[u8; N], Why> {
    if s.left() < N {
        return Err(Why::Truncated);
    }
    // SAFETY: `N` bytes are left. Noticed by the prefix test.
    let bytes = unsafe { s.buf.wrapping_add(s.pos).cast::<[u8; N]>().read() };
    s.pos += N;
    Ok(bytes)
}

#[inline(always)]
fn count(value: u32) -> Result<u32, Why> {
    if value > i32::MAX as u32 { Err(Why::Length) } else { Ok(value) }
}

#[inline(always)]
fn fits(s: &Source, len: u32) -> Result<usize, Why> {
    let len = count(len)? as usize;
    if len > s.left() { Err(Why::Truncated) } else { Ok(len) }
}

pub(super) struct Compact;

/// A varint of at most 32 bits in at most five bytes; what is beyond 32 bits is dropped.
#[inline(always)]
unsafe fn varint32(s: &mut Source) -> Result<u32, Why> {
    if s.left() < 8 {
        let (value, pos) = varint_slow(*s, 5)?;
        s.pos = pos;
        return Ok(value as u32);
    }
    // SAFETY: eight bytes are left.
    let w = unsafe { load64(s.buf.wrapping_add(s.pos)) };
    if w & 0x80 == 0 {
        s.pos += 1;
        return Ok(w as u32 & 0x7f);
    }
    if w & 0x8000 == 0 {
        s.pos += 2;
        return Ok((w & 0x7f | w >> 1 & 0x3f80) as u32);
    }
    let stop = !w & MORE & 0xff_ffff_ffff;
    if stop == 0 {
        return Err(Why::Varint);
    }
    s.pos += (stop.trailing_zeros() as usize + 1) / 8;
    Ok(compress(w & (stop ^ stop.wrapping_sub(1)) & 0xff_ffff_ffff) as u32)
}

/// A varint of at most 64 bits in at most ten bytes; what is beyond 64 bits is dropped.
#[inline(always)]
unsafe fn varint64(s: &mut Source) -> Result<u64, Why> {
    if s.left() < 10 {
        let (value, pos) = varint_slow(*s, 10)?;
        s.pos = pos;
        return Ok(value);
    }
    // SAFETY: ten bytes are left.
    unsafe {
        let at = s.buf.wrapping_add(s.pos);
        let w = load64(at);
        if w & 0x80 == 0 {
            s.pos += 1;
            return Ok(w & 0x7f);
        }
        if w & 0x8000 == 0 {
            s.pos += 2;
            return Ok(w & 0x7f | w >> 1 & 0x3f80);
        }
        let stop = !w & MORE;
        if stop != 0 {
            s.pos += (stop.trailing_zeros() as usize + 1) / 8;
            return Ok(compress(w & (stop ^ stop.wrapping_sub(1))));
        }
        // Without a branch: of random 63-bit numbers half have nine bytes and half ten.
        let (ninth, tenth) = (u64::from(*at.add(8)), u64::from(*at.add(9)));
        let longer = ninth >> 7;
        if longer & tenth >> 7 != 0 {
            return Err(Why::Varint);
        }
        s.pos += 9 + longer as usize;
        Ok(compress(w) | (ninth & 0x7f) << 56 | (tenth & longer) << 63)
    }
}

#[cold]
#[inline(never)]
fn varint_slow(mut s: Source, longest: u32) -> Result<(u64, usize), Why> {
    let mut value = 0;
    for idx in 0..longest {
        // SAFETY: `take` holds its read against the input's end.
        let [byte] = unsafe { take::<1>(&mut s)? };
        value |= u64::from(byte & 0x7f) << (7 * idx);
        if byte < 0x80 {
            return Ok((value, s.pos));
        }
    }
    Err(Why::Varint)
}

/// The type behind a compact number in a container's header.
#[inline(always)]
fn compact_code(number: u8) -> Result<u8, Why> {
    match number {
        2 => Ok(code::BOOL),
        code::STOP..=code::UUID => Ok(number),
        _ => Err(Why::TypeCode),
    }
}

impl Wire for Compact {
    const BOOL_IN_HEADER: bool = true;

    #[inline(always)]
    fn least(of: u8) -> usize {
        match of {
            code::DOUBLE => 8,
            code::UUID => 16,
            _ => 1,
        }
    }

    #[inline(always)]
    unsafe fn field(s: &mut Source, last: i32, to: &mut FieldStart) -> Result<(), Why> {
        // SAFETY: the trait's.
        unsafe {
            let [byte] = take::<1>(s)?;
            let number = byte & 15;
            to.code = compact_code(number)?;
            to.flag = number == code::BOOL;
            if number == code::STOP {
                return Ok(());
            }
            to.id = if byte >= 16 {
                let id = last + i32::from(byte >> 4);
                if id > i32::from(i16::MAX) {
                    return Err(Why::FieldId);
                }
                id
            } else {
                i32::from(Self::i16(s)? as i16)
            };
            Ok(())
        }
    }

    #[inline(always)]
    unsafe fn bool(s: &mut Source) -> Result<bool, Why> {
        // SAFETY: the trait's.
        match unsafe { take::<1>(s)? } {
            [1] => Ok(true),
            [0 | 2] => Ok(false),
            _ => Err(Why::Bool),
        }
    }

    #[inline(always)]
    unsafe fn i16(s: &mut Source) -> Result<u16, Why> {
        // SAFETY: the trait's.
        unsafe { Self::i32(s).map(|value| value as u16) }
    }

    #[inline(always)]
    unsafe fn i32(s: &mut Source) -> Result<u32, Why> {
        // SAFETY: the trait's.
        unsafe { varint32(s).map(|value| unzigzag(u64::from(value)) as u32) }
    }

    #[inline(always)]
    unsafe fn i64(s: &mut Source) -> Result<u64, Why> {
        // SAFETY: the trait's.
        unsafe { varint64(s).map(unzigzag) }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn i64s(s: &Source, count: usize, to: *mut u64) -> Option<usize> {
        // SAFETY: the trait's; there is room for `count` values.
        unsafe {
            pairs::read::<false>(s.buf.wrapping_add(s.pos), s.left(), count, |idx, value| {
                to.add(idx).write_unaligned(unzigzag(value));
            })
        }
    }

    #[inline(always)]
    unsafe fn double(s: &mut Source) -> Result<u64, Why> {
        // SAFETY: the trait's.
        unsafe { take::<8>(s).map(u64::from_le_bytes) }
    }

    #[inline(always)]
    unsafe fn length(s: &mut Source) -> Result<usize, Why> {
        // SAFETY: the trait's.
        let len = unsafe { varint32(s)? };
        fits(s, len)
    }

    #[inline(always)]
    unsafe fn list(s: &mut Source) -> Result<(u8, u32), Why> {
        // SAFETY: the trait's.
        unsafe {
            let [byte] = take::<1>(s)?;
            let code = compact_code(byte & 15)?;
            let short = byte >> 4;
            Ok((code, if short < 15 { u32::from(short) } else { count(varint32(s)?)? }))
        }
    }

    #[inline(always)]
    unsafe fn map(s: &mut Source) -> Result<(u8, u8, u32), Why> {
        // SAFETY: the trait's.
        unsafe {
            let entries = count(varint32(s)?)?;
            if entries == 0 {
                return Ok((code::STOP, code::STOP, 0));
            }
            let [types] = take::<1>(s)?;
            Ok((compact_code(types >> 4)?, compact_code(types & 15)?, entries))
        }
    }
}

pub(super) struct Binary;

/// Thrift's types by the binary protocol's numbers.
const BINARY: [u8; 17] = {
    let mut types = [code::INVALID; 17];
    types[0] = code::STOP;
    types[1] = code::VOID;
    types[2] = code::BOOL;
    types[3] = code::I8;
    types[4] = code::DOUBLE;
    types[6] = code::I16;
    types[8] = code::I32;
    types[10] = code::I64;
    types[11] = code::STRING;
    types[12] = code::STRUCT;
    types[13] = code::MAP;
    types[14] = code::SET;
    types[15] = code::LIST;
    types[16] = code::UUID;
    types
};

/// The binary protocol's numbers, by type.
const NUMBERS: [u8; 16] = {
    let mut numbers = [0; 16];
    let mut number = 0;
    while number < BINARY.len() {
        numbers[BINARY[number] as usize] = number as u8;
        number += 1;
    }
    numbers
};

/// The binary protocol's number of a type.
#[inline(always)]
pub(super) fn binary_number(of: u8) -> u8 {
    NUMBERS[(of & 15) as usize]
}

#[inline(always)]
fn binary_code(number: u8) -> Result<u8, Why> {
    match BINARY.get(number as usize) {
        Some(code) if *code != code::INVALID => Ok(*code),
        _ => Err(Why::TypeCode),
    }
}

impl Wire for Binary {
    const BOOL_IN_HEADER: bool = false;

    #[inline(always)]
    fn least(of: u8) -> usize {
        match of {
            code::I16 => 2,
            code::I32 | code::STRING => 4,
            code::I64 | code::DOUBLE => 8,
            code::LIST | code::SET => 5,
            code::MAP => 6,
            code::UUID => 16,
            _ => 1,
        }
    }

    #[inline(always)]
    unsafe fn field(s: &mut Source, _last: i32, to: &mut FieldStart) -> Result<(), Why> {
        // SAFETY: the trait's.
        unsafe {
            let [number] = take::<1>(s)?;
            to.code = binary_code(number)?;
            if to.code != code::STOP {
                to.id = i32::from(i16::from_be_bytes(take::<2>(s)?));
            }
            Ok(())
        }
    }

    #[inline(always)]
    unsafe fn bool(s: &mut Source) -> Result<bool, Why> {
        // SAFETY: the trait's.
        unsafe { take::<1>(s).map(|byte| byte != [0]) }
    }

    #[inline(always)]
    unsafe fn i16(s: &mut Source) -> Result<u16, Why> {
        // SAFETY: the trait's.
        unsafe { take::<2>(s).map(u16::from_be_bytes) }
    }

    #[inline(always)]
    unsafe fn i32(s: &mut Source) -> Result<u32, Why> {
        // SAFETY: the trait's.
        unsafe { take::<4>(s).map(u32::from_be_bytes) }
    }

    #[inline(always)]
    unsafe fn i64(s: &mut Source) -> Result<u64, Why> {
        // SAFETY: the trait's.
        unsafe { take::<8>(s).map(u64::from_be_bytes) }
    }

    #[inline(always)]
    unsafe fn double(s: &mut Source) -> Result<u64, Why> {
        // SAFETY: the trait's.
        unsafe { Self::i64(s) }
    }

    #[inline(always)]
    unsafe fn length(s: &mut Source) -> Result<usize, Why> {
        // SAFETY: the trait's.
        let len = unsafe { Self::i32(s)? };
        fits(s, len)
    }

    #[inline(always)]
    unsafe fn list(s: &mut Source) -> Result<(u8, u32), Why> {
        // SAFETY: the trait's.
        unsafe {
            let [number] = take::<1>(s)?;
            Ok((binary_code(number)?, count(Self::i32(s)?)?))
        }
    }

    #[inline(always)]
    unsafe fn map(s: &mut Source) -> Result<(u8, u8, u32), Why> {
        // SAFETY: the trait's.
        unsafe {
            let [key, value] = take::<2>(s)?;
            Ok((binary_code(key)?, binary_code(value)?, count(Self::i32(s)?)?))
        }
    }
}
