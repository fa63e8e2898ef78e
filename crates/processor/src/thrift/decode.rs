//! Hot module: Thrift bytes to a linear object, driven by the table; one function for both protocols.
//!
//! Structs nest by recursion, at most as deep as the limit (a thousand levels at most). The cursor is handed down
//! and back by value, so that it stays in registers between fields. Room is the protobuf engine's: see
//! [`Cursor`]. A container states its count, so its block is taken once, after the count was held against the
//! bytes that are left.
//!
//! On failure the levels leave their steps on the way up, so that the path costs nothing otherwise.

use super::plan::{NO_MASK, ThriftField, code};
use super::skip::{holds, skip};
use super::wire::{Wire, take};
use crate::arena::{Arena, SLOP};
use crate::decode::staged_root;
use crate::fault::{Step, Why};
use crate::limits::Limits;
use crate::list::{Cursor, first_block};
use crate::plan::{NONE, Plan};
use crate::{finish, tail};
use tollfree_layout::linear::{HEADER_LEN, LIST_HEADER_LEN};

const LIST_HEADER: usize = LIST_HEADER_LEN as usize;

/// The input (a staged one lies in the arena and has no `start`), and where in it the struct begins.
pub(super) struct Input {
    pub start: *const u8,
    pub len: usize,
    pub from: usize,
}

/// Where the object and the struct on the wire end.
pub(super) struct Done {
    pub object_len: usize,
    pub root_off: usize,
    pub consumed: usize,
}

/// Why decoding stopped, at which byte, and the steps from the root to there.
pub(super) struct Failed {
    pub why: Why,
    pub offset: usize,
    pub steps: Vec<Step>,
}

/// Decoding stopped; the context knows why.
struct Stop;

struct Context<'c, 'm> {
    plan: &'c Plan,
    arena: &'c mut Arena<'m>,
    fields_left: u32,
    require_all: bool,
    why: Why,
    offset: usize,
    /// Innermost first.
    steps: Vec<Step>,
    /// The element that the next step leads to.
    element_idx: Option<u32>,
}

impl Context<'_, '_> {
    #[cold]
    #[inline(never)]
    fn fail(&mut self, why: Why, offset: usize) -> Stop {
        (self.why, self.offset) = (why, offset);
        Stop
    }

    #[cold]
    #[inline(never)]
    fn step(&mut self, type_idx: u32, field_idx: u32) -> Stop {
        let element_idx = self.element_idx.take();
        self.steps.push(Step { type_idx, field_idx, element_idx });
        Stop
    }
}

/// Unwraps, or stops with the reason.
macro_rules! check {
    ($cx:expr, $s:expr, $result:expr) => {
        match $result {
            Ok(value) => value,
            Err(why) => return Err($cx.fail(why, $s.pos)),
        }
    };
}

/// Decodes the struct; see [`super::Processor::decode_thrift`].
///
/// # Safety
/// `input` is readable, or (`ALIAS`) was staged in `arena`; `from <= len`; `type_idx` is a supported type.
pub(super) unsafe fn run<W: Wire, const ALIAS: bool>(
    plan: &Plan,
    type_idx: u32,
    input: Input,
    arena: &mut Arena<'_>,
    limits: &Limits,
) -> Result<Done, Failed> {
    let root_off = if ALIAS { staged_root(input.len) } else { HEADER_LEN as usize };
    let root_len = plan.types[type_idx as usize].record_len as usize;
    let first = root_off + root_len + input.len + SLOP;
    let Some((base, cap)) = arena.reserve(first) else {
        return Err(Failed { why: Why::Room(first), offset: input.from, steps: Vec::new() });
    };
    let mut cx = Context {
        plan,
        arena,
        fields_left: limits.fields,
        require_all: limits.require_all,
        why: Why::Truncated,
        offset: 0,
        steps: Vec::new(),
        element_idx: None,
    };
    // SAFETY: the arena has room for root and input; a staged input lies behind the header. Types and offsets are
    // those of a table that its loader has checked. Noticed by the prefix, mutation and round-trip tests.
    let outcome = unsafe {
        let mut s = Cursor {
            base,
            cap,
            cur: root_off,
            buf: if ALIAS { base.add(HEADER_LEN as usize) } else { input.start },
            pos: input.from,
            len: input.len,
            readable: if ALIAS { cap - HEADER_LEN as usize } else { input.len },
            rec: 0,
        };
        if ALIAS {
            // The gap between input and root.
            base.add(HEADER_LEN as usize + input.len).cast::<u64>().write_unaligned(0);
            base.add(root_off - 8).cast::<u64>().write_unaligned(0);
        }
        let root = s.take_zeroed(root_len);
        let outcome = record::<W, ALIAS>(&mut cx, s, type_idx, root, limits.depth);
        if let Ok(s) = &outcome {
            s.base.add(s.cur).cast::<u64>().write_unaligned(0);
        }
        outcome
    };
    match outcome {
        Ok(s) => Ok(Done { object_len: s.cur.next_multiple_of(8), root_off, consumed: s.pos }),
        Err(Stop) => {
            cx.steps.reverse();
            Err(Failed { why: cx.why, offset: cx.offset.min(input.len), steps: cx.steps })
        }
    }
}

/// Reads fields into the zeroed record at `rec`, up to the stop.
unsafe fn record<W: Wire, const ALIAS: bool>(
    cx: &mut Context<'_, '_>,
    mut s: Cursor,
    type_idx: u32,
    rec: usize,
    depth: u32,
) -> Result<Cursor, Stop> {
    let plan = cx.plan;
    // SAFETY: the type is one of the plan's, so its fields and direct numbers lie where it says; slots and
    // presence words lie in the record, which is `record_len` bytes below `cur`.
    unsafe {
        let t = plan.types.get_unchecked(type_idx as usize);
        let fields = plan.thrift.fields.as_ptr().add(t.first_field as usize);
        let dense = plan.dense.as_ptr().add(t.first_dense as usize);
        let (mut last, mut known_count) = (0, 0);
        loop {
            let field = check!(cx, s, W::field(&mut s, last));
            if field.code == code::STOP {
                break;
            }
            last = field.id;
            if cx.fields_left == 0 {
                return Err(cx.fail(Why::Fields, s.pos));
            }
            cx.fields_left -= 1;
            let number = field.id as u32;
            let mut idx = u32::from(NONE);
            if number < t.dense_len {
                idx = u32::from(*dense.add(number as usize));
            }
            if idx == u32::from(NONE) {
                idx = beyond(plan, type_idx, number);
            }
            if idx == u32::from(NONE) || (*fields.add(idx as usize)).code != field.code {
                if !(W::BOOL_IN_HEADER && field.code == code::BOOL) {
                    check!(cx, s, skip::<W>(&mut s, field.code, depth));
                }
                continue;
            }
            let f = &*fields.add(idx as usize);
            let done = if W::BOOL_IN_HEADER && field.code == code::BOOL {
                s.base.add(rec + f.slot_off as usize).write(u8::from(field.flag));
                Ok(s)
            } else {
                value::<W, ALIAS>(cx, s, f, rec, depth)
            };
            s = match done {
                Ok(s) => s,
                Err(Stop) => return Err(cx.step(type_idx, idx)),
            };
            let word = s.base.add(rec + f.presence_off as usize).cast::<u32>();
            word.write_unaligned(word.read_unaligned() | f.presence_bit);
            known_count += 1;
        }
        let in_thrift = plan.thrift.types.get_unchecked(type_idx as usize);
        if in_thrift.union || in_thrift.first_required != NO_MASK {
            complete(cx, s, type_idx, rec, known_count)?;
        }
        Ok(s)
    }
}

/// Looks up an id beyond the type's direct range; negative ones come as large numbers.
#[cold]
#[inline(never)]
fn beyond(plan: &Plan, type_idx: u32, number: u32) -> u32 {
    plan.field_idx(type_idx, number).unwrap_or(u32::from(NONE))
}

/// Sees whether required fields have come, and of a union exactly one.
unsafe fn complete(
    cx: &mut Context<'_, '_>,
    s: Cursor,
    type_idx: u32,
    rec: usize,
    known_count: u32,
) -> Result<(), Stop> {
    let in_thrift = cx.plan.thrift.types[type_idx as usize];
    let words = cx.plan.types[type_idx as usize].presence_words;
    for word_idx in 0..words {
        // SAFETY: the record has this many presence words.
        let present = unsafe { s.word(rec + 4 + 4 * word_idx as usize) };
        if in_thrift.first_required == NO_MASK || !cx.require_all {
            continue;
        }
        let missing = cx.plan.thrift.required[(in_thrift.first_required + word_idx) as usize] & !present;
        if missing != 0 {
            let _ = cx.fail(Why::Required, s.pos);
            return Err(cx.step(type_idx, 32 * word_idx + missing.trailing_zeros()));
        }
    }
    if in_thrift.union && known_count != 1 {
        return Err(cx.fail(Why::Union, s.pos));
    }
    Ok(())
}

/// Reads the value of `f`, with a byte of its own if it is a bool, into its slot in the record at `rec`.
#[inline(always)]
unsafe fn value<W: Wire, const ALIAS: bool>(
    cx: &mut Context<'_, '_>,
    mut s: Cursor,
    f: &ThriftField,
    rec: usize,
    depth: u32,
) -> Result<Cursor, Stop> {
    // SAFETY: the slot lies in the record.
    unsafe {
        let slot = rec + f.slot_off as usize;
        macro_rules! put {
            ($type:ty, $value:expr) => {{
                let value: $type = check!(cx, s, $value);
                s.base.add(slot).cast::<$type>().write_unaligned(value);
            }};
        }
        match f.code {
            code::BOOL => put!(u8, W::bool(&mut s).map(u8::from)),
            code::I8 => put!([u8; 1], take::<1>(&mut s)),
            code::I16 => put!(u16, W::i16(&mut s)),
            code::I32 => put!(u32, W::i32(&mut s)),
            code::I64 => put!(u64, W::i64(&mut s)),
            code::DOUBLE => put!(u64, W::double(&mut s)),
            code::STRING => put!(u64, text::<W, ALIAS>(&mut s, f.utf8)),
            code::STRUCT => {
                let Some(depth) = depth.checked_sub(1) else { return Err(cx.fail(Why::Depth, s.pos)) };
                check!(cx, s, s.room::<ALIAS>(cx.arena, f.elem_len as usize));
                let child = s.take_zeroed(f.elem_len as usize);
                s.set_word(slot, child as u32);
                s = record::<W, ALIAS>(cx, s, f.aux_idx, child, depth)?;
            }
            code::MAP => s = map::<W, ALIAS>(cx, s, f, slot, depth)?,
            _ => s = list::<W, ALIAS>(cx, s, f, slot, depth)?,
        }
        Ok(s)
    }
}

/// A string, copied or left where it is: its span.
#[inline(always)]
unsafe fn text<W: Wire, const ALIAS: bool>(s: &mut Cursor, utf8: bool) -> Result<u64, Why> {
    // SAFETY: the length is within the input; for a copy the cursor's invariant has room for what is left of the
    // input, and 64 bytes. Pieces of 32 bytes are read only where `readable` says so.
    unsafe {
        let len = W::length(s)?;
        let from = s.buf.add(s.pos);
        if utf8 && !tail::is_utf8(from, len, s.readable - s.pos) {
            return Err(Why::Utf8);
        }
        let at = if ALIAS {
            HEADER_LEN as usize + s.pos
        } else {
            let to = s.base.add(s.cur);
            if len <= 32 && s.pos + 32 <= s.readable {
                to.cast::<[u64; 4]>().write_unaligned(from.cast::<[u64; 4]>().read_unaligned());
            } else {
                to.copy_from_nonoverlapping(from, len);
            }
            s.cur += len;
            s.cur - len
        };
        s.pos += len;
        Ok(at as u64 | (len as u64) << 32)
    }
}

/// Reads a list or set into a block whose offset goes to `slot`.
#[inline(never)]
unsafe fn list<W: Wire, const ALIAS: bool>(
    cx: &mut Context<'_, '_>,
    mut s: Cursor,
    f: &ThriftField,
    slot: usize,
    depth: u32,
) -> Result<Cursor, Stop> {
    // SAFETY: the block has room for `count` zeroed elements of `elem_len` bytes.
    unsafe {
        let (elem, count) = check!(cx, s, W::list(&mut s));
        if elem != f.elem && count != 0 {
            return Err(cx.fail(Why::Element, s.pos));
        }
        check!(cx, s, holds(&s, W::least(elem), count));
        let block = check!(cx, s, first_block::<ALIAS>(&mut s, cx.arena, f.elem_len, count));
        s.set_word(slot, block as u32);
        s.set_word(block, count);
        let first = block + LIST_HEADER;
        macro_rules! each {
            ($type:ty, $value:expr) => {{
                let mut to = s.base.add(first).cast::<$type>();
                for idx in 0..count {
                    let value: $type = match $value {
                        Ok(value) => value,
                        Err(why) => {
                            cx.element_idx = Some(idx);
                            return Err(cx.fail(why, s.pos));
                        }
                    };
                    to.write_unaligned(value);
                    to = to.add(1);
                }
            }};
        }
        match f.elem {
            code::BOOL => each!(u8, W::bool(&mut s).map(u8::from)),
            code::I8 => each!([u8; 1], take::<1>(&mut s)),
            code::I16 => each!(u16, W::i16(&mut s)),
            code::I32 => each!(u32, W::i32(&mut s)),
            code::I64 => each!(u64, W::i64(&mut s)),
            code::DOUBLE => each!(u64, W::double(&mut s)),
            code::STRING => each!(u64, text::<W, ALIAS>(&mut s, f.utf8)),
            _ => {
                let Some(depth) = depth.checked_sub(1) else { return Err(cx.fail(Why::Depth, s.pos)) };
                for idx in 0..count {
                    let at = first + idx as usize * f.elem_len as usize;
                    let done = if f.boxed {
                        parts::<W, ALIAS>(cx, s, f.aux_idx, at, depth)
                    } else {
                        record::<W, ALIAS>(cx, s, f.aux_idx, at, depth)
                    };
                    s = match done {
                        Ok(s) => s,
                        Err(Stop) => {
                            cx.element_idx = Some(idx);
                            return Err(Stop);
                        }
                    };
                }
            }
        }
        Ok(s)
    }
}

/// Reads the parts of an entry or box, which have no headers on the wire, into the zeroed record at `rec`.
#[inline(always)]
unsafe fn parts<W: Wire, const ALIAS: bool>(
    cx: &mut Context<'_, '_>,
    mut s: Cursor,
    type_idx: u32,
    rec: usize,
    depth: u32,
) -> Result<Cursor, Stop> {
    let plan = cx.plan;
    let t = &plan.types[type_idx as usize];
    let first = t.first_field as usize;
    for (idx, f) in plan.thrift.fields[first..first + t.field_count as usize].iter().enumerate() {
        // SAFETY: `f` is a field of the record's type.
        unsafe {
            s = match value::<W, ALIAS>(cx, s, f, rec, depth) {
                Ok(s) => s,
                Err(Stop) => return Err(cx.step(type_idx, idx as u32)),
            };
            let word = s.base.add(rec + f.presence_off as usize).cast::<u32>();
            word.write_unaligned(word.read_unaligned() | f.presence_bit);
        }
    }
    Ok(s)
}

/// Reads a map into a block of entries whose offset goes to `slot`.
#[inline(never)]
unsafe fn map<W: Wire, const ALIAS: bool>(
    cx: &mut Context<'_, '_>,
    mut s: Cursor,
    f: &ThriftField,
    slot: usize,
    depth: u32,
) -> Result<Cursor, Stop> {
    let plan = cx.plan;
    let entry = plan.types[f.aux_idx as usize].first_field as usize;
    let (key, value) = (&plan.thrift.fields[entry], &plan.thrift.fields[entry + 1]);
    // SAFETY: as `list`; a map's type is an entry (checked by the table's loader), which has two fields.
    unsafe {
        let (key_code, value_code, count) = check!(cx, s, W::map(&mut s));
        if count != 0 && (key_code, value_code) != (key.code, value.code) {
            return Err(cx.fail(Why::Element, s.pos));
        }
        let Some(depth) = depth.checked_sub(1) else { return Err(cx.fail(Why::Depth, s.pos)) };
        check!(cx, s, holds(&s, W::least(key_code) + W::least(value_code), count));
        let block = check!(cx, s, first_block::<ALIAS>(&mut s, cx.arena, f.elem_len, count));
        s.set_word(slot, block as u32);
        s.set_word(block, count);
        for idx in 0..count {
            let at = block + LIST_HEADER + idx as usize * f.elem_len as usize;
            s = match parts::<W, ALIAS>(cx, s, f.aux_idx, at, depth) {
                Ok(s) => s,
                Err(Stop) => {
                    cx.element_idx = Some(idx);
                    return Err(Stop);
                }
            };
        }
        if count > 1 && f.plain_keys {
            let field_idx = plan.thrift.fields.as_ptr_range();
            let at = std::ptr::from_ref(f).offset_from_unsigned(field_idx.start);
            finish::last_of_each_key(plan, s, &plan.fields[at], block);
        }
        Ok(s)
    }
}
