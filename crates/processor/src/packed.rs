//! Hot module: packed runs of scalars.

use crate::arena::Arena;
use crate::copy;
use crate::fault::Why;
use crate::list::{Cursor, first_block, grow_block, keep_unknown_at};
#[cfg(target_arch = "x86_64")]
use crate::pairs;
use crate::plan::{FieldPlan, Plan, op, tag_bytes};
use crate::varint::{self, unzigzag, varint};
use tollfree_layout::flat::LIST_HEADER_LEN;
use tollfree_layout::steps;

/// Why a run was not read, at which byte of the input, and which element of the list is to blame.
pub(crate) struct BrokenRun {
    pub why: Why,
    pub offset: usize,
    pub element_idx: Option<u32>,
}

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
) -> Result<(), BrokenRun> {
    steps::take(1 + len);
    let (at, end) = (s.pos - len, s.pos);
    let broken = |why, offset, element_idx| BrokenRun { why, offset, element_idx };
    // SAFETY: the run lies in the input.
    let (more, whole) = value_count(unsafe { std::slice::from_raw_parts(input.add(at), len) }, shape);
    if !whole {
        // SAFETY: the slot holds 0 or a block of this field.
        let before = unsafe { counts(s, s.word(s.rec + field.slot_off as usize) as usize) }.0;
        return Err(broken(Why::Truncated, end, Some(before + more as u32)));
    }
    if more == 0 {
        return Ok(());
    }
    // SAFETY: the invariant; `room_for` gives a block with room for `more` elements behind `count`; the run lies where
    // it did, or at the same position of the staged input that has moved. Values are written only within these
    // elements: a run has as many values as it has final bytes. Noticed by the tests of lists and of arenas that grow.
    unsafe {
        let (block, count) =
            room_for::<ALIAS>(s, arena, field, more as u32).map_err(|why| broken(why, end, None))?;
        let input = if ALIAS { s.buf } else { input };
        let run = std::slice::from_raw_parts(input.add(at), len);
        let to = s.base.add(block + LIST_HEADER_LEN as usize + count as usize * field.elem_len as usize);
        let outcome = match shape {
            op::FIXED32 | op::FIXED64 => {
                copy::long(run.as_ptr(), to, run.len());
                Ok(())
            }
            op::VARINT64 => each(run, more, |idx, value| to.cast::<u64>().add(idx).write_unaligned(value)),
            op::VARINT32 => {
                each(run, more, |idx, value| to.cast::<u32>().add(idx).write_unaligned(value as u32))
            }
            op::SINT64 => {
                each(run, more, |idx, value| to.cast::<u64>().add(idx).write_unaligned(unzigzag(value)))
            }
            op::SINT32 => each(run, more, |idx, value| {
                to.cast::<u32>().add(idx).write_unaligned(unzigzag(value & 0xffff_ffff) as u32);
            }),
            op::BOOL => each(run, more, |idx, value| to.add(idx).write(u8::from(value != 0))),
            _ => return closed::<ALIAS>(plan, s, arena, field, block, run.to_vec(), at),
        };
        outcome.map_err(|bad| broken(Why::Varint, at + bad.at, Some(count + bad.idx as u32)))?;
        s.set_word(block, count + more as u32);
        set_present(s, field);
        Ok(())
    }
}

/// How many whole values the run has, and whether it ends where one of them does.
fn value_count(run: &[u8], shape: u8) -> (usize, bool) {
    match shape {
        op::FIXED64 => (run.len() / 8, run.len().is_multiple_of(8)),
        op::FIXED32 => (run.len() / 4, run.len().is_multiple_of(4)),
        _ => {
            let count = run.iter().filter(|byte| **byte < 0x80).count();
            (count, run.last().is_none_or(|byte| *byte < 0x80))
        }
    }
}

/// Elements that the list has, and has room for, whose block is at this offset; 0: it has none.
///
/// # Safety
/// As said.
unsafe fn counts(s: &Cursor, block: usize) -> (u32, u32) {
    // SAFETY: a block begins with these two words.
    if block == 0 { (0, 0) } else { unsafe { (s.word(block), s.word(block + 4)) } }
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
        let (count, capacity) = counts(s, block);
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

/// A varint in a run that is too long: at which of its bytes it begins, and how many values come before it.
struct Bad {
    at: usize,
    idx: usize,
}

/// Calls `put` with each of the `count` values of a run that ends in a final byte, and its place, in any order. If one is
/// bad, those before it have been put there.
#[inline(always)]
#[cfg_attr(not(target_arch = "x86_64"), expect(unused_variables, unused_mut))]
fn each(run: &[u8], count: usize, mut put: impl FnMut(usize, u64)) -> Result<(), Bad> {
    // SAFETY: the run's bytes are there.
    #[cfg(target_arch = "x86_64")]
    if unsafe { pairs::read::<true>(run.as_ptr(), run.len(), count, &mut put) } == Some(run.len()) {
        return Ok(());
    }
    one_by_one(run, put)
}

/// As [`each`], in their order.
#[inline(always)]
fn one_by_one(run: &[u8], mut put: impl FnMut(usize, u64)) -> Result<(), Bad> {
    let (mut at, mut idx) = (0, 0);
    while at < run.len() {
        let (value, len) = if run.len() - at >= 10 {
            // SAFETY: ten bytes are left.
            unsafe { varint(run.as_ptr().add(at)) }
        } else {
            varint::from_slice(&run[at..])
        };
        if len == 0 {
            return Err(Bad { at, idx });
        }
        put(idx, value);
        at += len;
        idx += 1;
    }
    Ok(())
}

/// Values of a closed enum: those that it lacks become unknown fields, each by itself. The run was read from byte `from`
/// of the input on.
unsafe fn closed<const ALIAS: bool>(
    plan: &Plan,
    s: &mut Cursor,
    arena: &mut Arena<'_>,
    field: &FieldPlan,
    block: usize,
    run: Vec<u8>,
    from: usize,
) -> Result<(), BrokenRun> {
    let mut unknown = Vec::new();
    // SAFETY: as for `run`: the block has room for every value of the run.
    unsafe {
        let mut count = s.word(block);
        let to = s.base.add(block + LIST_HEADER_LEN as usize).cast::<u32>();
        let outcome = one_by_one(&run, |_, value| {
            if plan.has_value(field.aux_idx, value as i32) {
                to.add(count as usize).write_unaligned(value as u32);
                count += 1;
            } else {
                unknown.push(value);
            }
        });
        if let Err(bad) = outcome {
            return Err(BrokenRun { why: Why::Varint, offset: from + bad.at, element_idx: Some(count) });
        }
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
            let full = |why| BrokenRun { why, offset: from + run.len(), element_idx: None };
            s.room::<ALIAS>(arena, bytes.len().next_multiple_of(8)).map_err(full)?;
            let at = s.cur;
            s.base.add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            s.cur += bytes.len();
            keep_unknown_at::<ALIAS>(s, arena, at, bytes.len()).map_err(full)?;
        }
        Ok(())
    }
}
