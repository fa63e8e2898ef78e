//! Hot module: values that the type has no field for are read over.

use super::plan::code;
use super::wire::{FieldStart, Source, Wire, take};
use crate::fault::Why;
use tollfree_layout::steps;

/// Reads over a value of this type; structs and containers nest at most `depth` deep in it. A bool field's value
/// in the header is the caller's. Gives the position behind the value; on an error, the one where it was noticed.
///
/// # Safety
/// What [`Source`] says of its parts.
#[inline(never)]
pub(super) unsafe fn skip<W: Wire>(mut s: Source, of: u8, depth: u32) -> (usize, Result<(), Why>) {
    // SAFETY: the caller's.
    let outcome = unsafe { over::<W>(&mut s, of, depth) };
    (s.pos, outcome)
}

unsafe fn over<W: Wire>(s: &mut Source, of: u8, depth: u32) -> Result<(), Why> {
    steps::take(1);
    // SAFETY: the caller's; each step holds what it reads against the input's end.
    unsafe {
        let inner = || depth.checked_sub(1).ok_or(Why::Depth);
        match of {
            code::BOOL => W::bool(s).map(drop),
            code::I8 => take::<1>(s).map(drop),
            code::I16 => W::i16(s).map(drop),
            code::I32 => W::i32(s).map(drop),
            code::I64 => W::i64(s).map(drop),
            code::DOUBLE => W::double(s).map(drop),
            code::UUID => take::<16>(s).map(drop),
            code::STRING => W::length(s).map(|len| s.pos += len),
            code::STRUCT => {
                let inner = inner()?;
                let mut last = 0;
                loop {
                    let mut field = FieldStart::default();
                    W::field(s, last, &mut field)?;
                    if field.code == code::STOP {
                        return Ok(());
                    }
                    last = field.id;
                    if !(W::BOOL_IN_HEADER && field.code == code::BOOL) {
                        over::<W>(s, field.code, inner)?;
                    }
                }
            }
            code::LIST | code::SET => {
                let inner = inner()?;
                let (elem, count) = W::list(s)?;
                holds(s, W::least(elem), count)?;
                (0..count).try_for_each(|_| over::<W>(s, elem, inner))
            }
            code::MAP => {
                let inner = inner()?;
                let (key, value, count) = W::map(s)?;
                holds(s, W::least(key) + W::least(value), count)?;
                (0..count).try_for_each(|_| {
                    over::<W>(s, key, inner)?;
                    over::<W>(s, value, inner)
                })
            }
            _ => Err(Why::TypeCode),
        }
    }
}

/// Whether `count` elements of at least this many bytes can follow.
#[inline(always)]
pub(super) fn holds(s: &Source, least: usize, count: u32) -> Result<(), Why> {
    if least as u64 * u64::from(count) > s.left() as u64 { Err(Why::Truncated) } else { Ok(()) }
}
