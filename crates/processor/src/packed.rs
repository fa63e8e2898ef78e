//! Hot module: packed runs of scalars.

use crate::arena::Arena;
use crate::copy;
use crate::fault::Why;
use crate::list::{Cursor, first_block, grow_block, keep_unknown_at};
use crate::plan::{FieldPlan, Plan, op, tag_bytes};
use crate::varint::{self, unzigzag, varint};
use tollfree_layout::linear::LIST_HEADER_LEN;

/// Appends the packed values in the `len` bytes before `s.pos` to the field's list. `input` is the whole input as it
/// lies now; a staged one may move when the arena grows, so no slice of it is handed on.
///
/// # Safety
/// The cursor's invariant; `field` is a list of scalars of the record at `s.rec`, `shape` its values' shape; the run
/// lies in the input.
#[inline(never)]
pub(crate) unsafe fn run<const ALIAS: bool>(
    plan: &Plan,
    s: &mut Cursor,
    arena: &mut Arena<'_>,
    field: &FieldPlan,
    shape: u8,
    input: *const u8,
    len: usize,
) -> Result<(), Why> {
    let at = s.pos - len;
    // SAFETY: the run lies in the input.
    let more = value_count(unsafe { std::slice::from_raw_parts(input.add(at), len) }, shape)?;
    if more == 0 {
        return Ok(());
    }
    // SAFETY: the invariant; `room_for` gives a block with room for `more` elements behind `count`; the run lies where
    // it did, or at the same position of the staged input that has moved. Values are written only within these
    // elements: a run has as many values as it has final bytes. Noticed by the tests of lists and of arenas that grow.
    unsafe {
        let (block, count) = room_for::<ALIAS>(s, arena, field, more as u32)?;
        let input = if ALIAS { s.buf } else { input };
        let run = std::slice::from_raw_parts(input.add(at), len);
        let to = s.base.add(block + LIST_HEADER_LEN as usize + count as usize * field.elem_len as usize);
        match shape {
            op::FIXED32 | op::FIXED64 => copy::long(run.as_ptr(), to, run.len()),
            op::VARINT64 => each(run, |idx, value| to.cast::<u64>().add(idx).write_unaligned(value))?,
            op::VARINT32 => each(run, |idx, value| to.cast::<u32>().add(idx).write_unaligned(value as u32))?,
            op::SINT64 => each(run, |idx, value| to.cast::<u64>().add(idx).write_unaligned(unzigzag(value)))?,
            op::SINT32 => each(run, |idx, value| {
                to.cast::<u32>().add(idx).write_unaligned(unzigzag(value & 0xffff_ffff) as u32);
            })?,
            op::BOOL => each(run, |idx, value| to.add(idx).write(u8::from(value != 0)))?,
            _ => return closed::<ALIAS>(plan, s, arena, field, block, run.to_vec()),
        }
        s.set_word(block, count + more as u32);
        set_present(s, field);
        Ok(())
    }
}

/// How many values the run has, if it ends where one of them does.
fn value_count(run: &[u8], shape: u8) -> Result<usize, Why> {
    match shape {
        op::FIXED64 if run.len().is_multiple_of(8) => Ok(run.len() / 8),
        op::FIXED32 if run.len().is_multiple_of(4) => Ok(run.len() / 4),
        op::FIXED32 | op::FIXED64 => Err(Why::Truncated),
        _ if run.last().is_some_and(|byte| *byte >= 0x80) => Err(Why::Truncated),
        _ => Ok(run.iter().filter(|byte| **byte < 0x80).count()),
    }
}

/// A block with room for `more` elements, and how many it has.
unsafe fn room_for<const ALIAS: bool>(
    s: &mut Cursor,
    arena: &mut Arena<'_>,
    field: &FieldPlan,
    more: u32,
) -> Result<(usize, u32), Why> {
    // SAFETY: the caller's invariant; the slot holds 0 or a block of this field.
    unsafe {
        let slot = s.rec + field.slot_off as usize;
        let mut block = s.word(slot) as usize;
        let (count, capacity) = if block == 0 { (0, 0) } else { (s.word(block), s.word(block + 4)) };
        if capacity - count < more {
            if block == 0 {
                block = first_block::<ALIAS>(s, arena, field.elem_len, more)?;
            } else {
                block = grow_block::<ALIAS>(s, arena, field.elem_len, block, count, more)?;
            }
            s.set_word(slot, block as u32);
        }
        Ok((block, count))
    }
}

unsafe fn set_present(s: &Cursor, field: &FieldPlan) {
    let at = s.rec + field.presence_off as usize;
    // SAFETY: the presence word lies in the record.
    unsafe { s.set_word(at, s.word(at) | field.presence_bit) };
}

/// Calls `put` with each value of a run that ends in a final byte.
#[inline(always)]
fn each(run: &[u8], mut put: impl FnMut(usize, u64)) -> Result<(), Why> {
    let (mut at, mut idx) = (0, 0);
    while at < run.len() {
        let (value, len) = if run.len() - at >= 10 {
            // SAFETY: ten bytes are left.
            unsafe { varint(run.as_ptr().add(at)) }
        } else {
            varint::from_slice(&run[at..])
        };
        if len == 0 {
            return Err(Why::Varint);
        }
        put(idx, value);
        at += len;
        idx += 1;
    }
    Ok(())
}

/// Values of a closed enum: those that it lacks become unknown fields, each by itself.
unsafe fn closed<const ALIAS: bool>(
    plan: &Plan,
    s: &mut Cursor,
    arena: &mut Arena<'_>,
    field: &FieldPlan,
    block: usize,
    run: Vec<u8>,
) -> Result<(), Why> {
    let mut unknown = Vec::new();
    // SAFETY: as for `run`: the block has room for every value of the run.
    unsafe {
        let mut count = s.word(block);
        let to = s.base.add(block + LIST_HEADER_LEN as usize).cast::<u32>();
        each(&run, |_, value| {
            if plan.has_value(field.aux_idx, value as i32) {
                to.add(count as usize).write_unaligned(value as u32);
                count += 1;
            } else {
                unknown.push(value);
            }
        })?;
        s.set_word(block, count);
        if count > 0 {
            set_present(s, field);
        } else {
            s.set_word(s.rec + field.slot_off as usize, 0);
        }
        for value in unknown {
            let (tag, tag_len) = tag_bytes(field.number, 0);
            let mut bytes = tag.to_le_bytes()[..tag_len as usize].to_vec();
            let mut rest = value;
            while rest >= 0x80 {
                bytes.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            bytes.push(rest as u8);
            s.room::<ALIAS>(arena, bytes.len().next_multiple_of(8))?;
            let at = s.cur;
            s.base.add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            s.cur += bytes.len();
            keep_unknown_at::<ALIAS>(s, arena, at, bytes.len())?;
        }
        Ok(())
    }
}
