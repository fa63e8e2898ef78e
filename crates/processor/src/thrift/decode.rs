//! Hot module: Thrift bytes to a flat message, driven by the table; one function for both protocols.
//!
//! Structs nest by recursion, at most as deep as the limit (250 levels at most). What changes with every
//! field, the positions in input and arena, is handed down and back by value ([`At`]), so that it stays in registers.
//! A container states its count, so its block is taken once, after the count was held against the bytes that are left.
//!
//! # Room
//!
//! As in the protobuf engine: `cap - cur >= (len - pos) + SLOP` holds at any time. So strings, which take no more bytes
//! than they have on the wire, are copied without a check; records and blocks restore it ([`room`]).
//!
//! On failure the levels leave their steps on the way up, so that the path costs nothing otherwise.

use super::plan::{NO_MASK, ThriftField, code};
use super::skip::{holds, skip};
use super::wire::{FieldStart, Source, Wire, take};
use crate::arena::{Arena, SLOP};
use crate::decode::staged_root;
use crate::fault::{Step, Why};
use crate::limits::Limits;
use crate::list::{Cursor, block_len, zero};
use crate::plan::{NONE, Plan};
use crate::{copy, finish, utf8};
use tollfree_layout::flat::{HEADER_LEN, LIST_HEADER_LEN, PRESENCE_OFF};
use tollfree_layout::steps;

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

/// Where reading and writing go on. `pos` is [`STOP`] if decoding has stopped; the context knows why.
#[derive(Clone, Copy)]
struct At {
    /// In the input.
    pos: usize,
    /// In the arena: the bytes below are in use.
    cur: usize,
}

const STOP: usize = usize::MAX;

struct Context<'c, 'm> {
    plan: &'c Plan,
    arena: &'c mut Arena<'m>,
    /// The arena's memory of `cap` bytes, and the input: `len` bytes at `buf`, where `readable` are initialised.
    base: *mut u8,
    cap: usize,
    buf: *const u8,
    len: usize,
    readable: usize,
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
    fn fail(&mut self, why: Why, offset: usize) -> At {
        (self.why, self.offset) = (why, offset);
        At { pos: STOP, cur: 0 }
    }

    /// Notes that the way to the failure led through this field.
    #[cold]
    #[inline(never)]
    fn step(&mut self, type_idx: u32, field_idx: u32) -> At {
        let element_idx = self.element_idx.take();
        self.steps.push(Step { type_idx, field_idx, element_idx });
        At { pos: STOP, cur: 0 }
    }

    /// Notes that the way led through this element of the next step's field.
    #[cold]
    #[inline(never)]
    fn element(&mut self, element_idx: u32) -> At {
        self.element_idx = Some(element_idx);
        At { pos: STOP, cur: 0 }
    }

    #[inline(always)]
    fn source(&self, pos: usize) -> Source {
        Source { buf: self.buf, len: self.len, pos }
    }

    /// A 32-bit word of the object.
    ///
    /// # Safety
    /// `at + 4 <= cap`.
    #[inline(always)]
    unsafe fn set_word(&self, at: usize, value: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.base.add(at).cast::<u32>().write_unaligned(value) }
    }

    /// Marks `f` present in the record at `rec`.
    ///
    /// # Safety
    /// `f` is a field of the record's type.
    #[inline(always)]
    unsafe fn set_present(&self, rec: usize, f: &ThriftField) {
        // SAFETY: presence words lie in the record.
        unsafe {
            let word = self.base.add(rec + f.presence_off as usize).cast::<u32>();
            word.write_unaligned(word.read_unaligned() | f.presence_bit);
        }
    }
}

/// `need` bytes behind `at.cur`, aligned, zeroed if they are to be records (of others only the last eight, which may
/// have padding): where they begin. `at.cur` is then behind them.
///
/// # Safety
/// The invariant of "Room"; it holds afterwards. `need` is a multiple of eight and not 0.
#[inline(always)]
unsafe fn room<const ALIAS: bool>(
    cx: &mut Context<'_, '_>,
    at: &mut At,
    need: usize,
    records: bool,
) -> Result<usize, Why> {
    // SAFETY: SLOP bytes lie behind `cur`, and behind the `need` bytes. The gap is cleared so that no byte of an
    // earlier message stays visible. Noticed by the tests of recycled arenas.
    unsafe {
        cx.base.add(at.cur).cast::<u64>().write_unaligned(0);
        let start = at.cur.next_multiple_of(8);
        let left = cx.len - at.pos;
        if cx.cap - start < need + left + SLOP {
            grow::<ALIAS>(cx, start + need + left + SLOP)?;
        }
        if records {
            zero(cx.base.add(start), need);
        } else {
            cx.base.add(start + need - 8).cast::<u64>().write_unaligned(0);
        }
        at.cur = start + need;
        Ok(start)
    }
}

#[cold]
#[inline(never)]
fn grow<const ALIAS: bool>(cx: &mut Context<'_, '_>, total: usize) -> Result<(), Why> {
    (cx.base, cx.cap) = cx.arena.reserve(total).ok_or(Why::Room(total))?;
    if ALIAS {
        cx.buf = cx.base.wrapping_add(HEADER_LEN as usize);
        cx.readable = cx.cap - HEADER_LEN as usize;
    }
    Ok(())
}

/// Unwraps, or stops with the reason.
macro_rules! check {
    ($cx:expr, $pos:expr, $result:expr) => {
        match $result {
            Ok(value) => value,
            Err(why) => return $cx.fail(why, $pos),
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
        base,
        cap,
        buf: if ALIAS { base.wrapping_add(HEADER_LEN as usize) } else { input.start },
        len: input.len,
        readable: if ALIAS { cap - HEADER_LEN as usize } else { input.len },
        fields_left: limits.fields,
        require_all: limits.require_all,
        why: Why::Truncated,
        offset: 0,
        steps: Vec::new(),
        element_idx: None,
    };
    // SAFETY: the arena has room for root and input; a staged input lies behind the header. Types and offsets are
    // those of a table that its loader has checked. Noticed by the prefix, mutation and round-trip tests.
    let end = unsafe {
        if ALIAS {
            // The gap between input and root.
            base.add(HEADER_LEN as usize + input.len).cast::<u64>().write_unaligned(0);
            base.add(root_off - 8).cast::<u64>().write_unaligned(0);
        }
        zero(base.add(root_off), root_len);
        let at = At { pos: input.from, cur: root_off + root_len };
        let end = record::<W, ALIAS>(&mut cx, at, type_idx, root_off, limits.depth);
        if end.pos != STOP {
            cx.base.add(end.cur).cast::<u64>().write_unaligned(0);
        }
        end
    };
    if end.pos == STOP {
        cx.steps.reverse();
        return Err(Failed { why: cx.why, offset: cx.offset.min(input.len), steps: cx.steps });
    }
    Ok(Done { object_len: end.cur.next_multiple_of(8), root_off, consumed: end.pos })
}

/// Reads fields into the zeroed record at `rec`, up to the stop.
unsafe fn record<W: Wire, const ALIAS: bool>(
    cx: &mut Context<'_, '_>,
    mut at: At,
    type_idx: u32,
    rec: usize,
    depth: u32,
) -> At {
    let plan = cx.plan;
    // SAFETY: the type is one of the plan's, so its fields and direct numbers lie where it says; slots and
    // presence words lie in the record, which is `record_len` bytes below `cur`.
    unsafe {
        let t = plan.types.get_unchecked(type_idx as usize);
        let fields = plan.thrift.fields.as_ptr().add(t.first_field as usize);
        let dense = plan.dense.as_ptr().add(t.first_dense as usize);
        let (mut last, mut known_count) = (0, 0);
        loop {
            steps::take(1);
            let mut s = cx.source(at.pos);
            let mut field = FieldStart::default();
            check!(cx, s.pos, W::field(&mut s, last, &mut field));
            at.pos = s.pos;
            if field.code == code::STOP {
                break;
            }
            last = field.id;
            if cx.fields_left == 0 {
                return cx.fail(Why::Fields, s.pos);
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
                    let (pos, outcome) = skip::<W>(s, field.code, depth);
                    check!(cx, pos, outcome);
                    at.pos = pos;
                }
                continue;
            }
            let f = &*fields.add(idx as usize);
            if W::BOOL_IN_HEADER && field.code == code::BOOL {
                cx.base.add(rec + f.slot_off as usize).write(u8::from(field.flag));
            } else {
                at = value::<W, ALIAS>(cx, at, f, rec, depth);
                if at.pos == STOP {
                    return cx.step(type_idx, idx);
                }
            }
            cx.set_present(rec, f);
            known_count += 1;
        }
        let in_thrift = plan.thrift.types.get_unchecked(type_idx as usize);
        if in_thrift.union || in_thrift.first_required != NO_MASK {
            return complete(cx, at, type_idx, rec, known_count);
        }
        at
    }
}

/// Looks up an id beyond the type's direct range; negative ones come as large numbers.
#[cold]
#[inline(never)]
fn beyond(plan: &Plan, type_idx: u32, number: u32) -> u32 {
    plan.field_idx(type_idx, number).unwrap_or(u32::from(NONE))
}

/// Sees whether required fields have come, and of a union exactly one.
#[inline(never)]
unsafe fn complete(cx: &mut Context<'_, '_>, at: At, type_idx: u32, rec: usize, known_count: u32) -> At {
    let in_thrift = cx.plan.thrift.types[type_idx as usize];
    if in_thrift.union && known_count != 1 {
        return cx.fail(Why::Union, at.pos);
    }
    if in_thrift.first_required == NO_MASK || !cx.require_all {
        return at;
    }
    for word_idx in 0..cx.plan.types[type_idx as usize].presence_words {
        steps::take(1);
        let word = rec + PRESENCE_OFF as usize + 4 * word_idx as usize;
        // SAFETY: the record has this many presence words.
        let present = unsafe { cx.base.add(word).cast::<u32>().read_unaligned() };
        let missing = cx.plan.thrift.required[(in_thrift.first_required + word_idx) as usize] & !present;
        if missing != 0 {
            cx.fail(Why::Required, at.pos);
            return cx.step(type_idx, 32 * word_idx + missing.trailing_zeros());
        }
    }
    at
}

/// Reads the value of `f`, with a byte of its own if it is a bool, into its slot in the record at `rec`.
#[inline(always)]
unsafe fn value<W: Wire, const ALIAS: bool>(
    cx: &mut Context<'_, '_>,
    mut at: At,
    f: &ThriftField,
    rec: usize,
    depth: u32,
) -> At {
    // SAFETY: the slot lies in the record.
    unsafe {
        let slot = rec + f.slot_off as usize;
        let mut s = cx.source(at.pos);
        macro_rules! put {
            ($type:ty, $value:expr) => {{
                let value: $type = check!(cx, s.pos, $value);
                cx.base.add(slot).cast::<$type>().write_unaligned(value);
                at.pos = s.pos;
            }};
        }
        match f.code {
            code::BOOL => put!(u8, W::bool(&mut s).map(u8::from)),
            code::I8 => put!([u8; 1], take::<1>(&mut s)),
            code::I16 => put!(u16, W::i16(&mut s)),
            code::I32 => put!(u32, W::i32(&mut s)),
            code::I64 => put!(u64, W::i64(&mut s)),
            code::DOUBLE => put!(u64, W::double(&mut s)),
            code::STRING => {
                put!(u64, text::<W, ALIAS>((cx.base, cx.readable), &mut s, &mut at.cur, f.utf8))
            }
            code::STRUCT => {
                let Some(depth) = depth.checked_sub(1) else { return cx.fail(Why::Depth, at.pos) };
                let child = check!(cx, at.pos, room::<ALIAS>(cx, &mut at, f.elem_len as usize, true));
                cx.set_word(slot, child as u32);
                at = record::<W, ALIAS>(cx, at, f.aux_idx, child, depth);
            }
            code::MAP => at = map::<W, ALIAS>(cx, at, f, slot, depth),
            _ => at = list::<W, ALIAS>(cx, at, f, slot, depth),
        }
        at
    }
}

/// A string, copied or left where it is: its span. (`base` and `readable` are the context's.)
#[inline(always)]
unsafe fn text<W: Wire, const ALIAS: bool>(
    (base, readable): (*mut u8, usize),
    s: &mut Source,
    cur: &mut usize,
    utf8: bool,
) -> Result<u64, Why> {
    // SAFETY: the length is within the input; for a copy the invariant has room for what is left of the input, and
    // 64 bytes. Pieces of 32 bytes are read only where `readable` says so.
    unsafe {
        let len = W::length(s)?;
        let from = s.buf.wrapping_add(s.pos);
        let readable = readable - s.pos;
        let at = if ALIAS {
            if utf8 && !utf8::check(from, len, readable) {
                return Err(Why::Utf8);
            }
            HEADER_LEN as usize + s.pos
        } else {
            let to = base.add(*cur);
            if utf8 {
                if !utf8::copy_checked::<true>(from, to, len, readable) {
                    return Err(Why::Utf8);
                }
            } else if len <= 32 && readable >= 32 {
                to.cast::<[u64; 4]>().write_unaligned(from.cast::<[u64; 4]>().read_unaligned());
            } else {
                copy::long(from, to, len);
            }
            *cur += len;
            *cur - len
        };
        s.pos += len;
        Ok(at as u64 | (len as u64) << 32)
    }
}

/// Takes a block of `count` elements of `f`, zeroed if they are records, whose offset goes to `slot`: the first
/// element's offset.
#[inline(always)]
unsafe fn block<const ALIAS: bool>(
    cx: &mut Context<'_, '_>,
    at: &mut At,
    f: &ThriftField,
    slot: usize,
    count: u32,
) -> Result<usize, Why> {
    // SAFETY: `room` has made `need` bytes available.
    unsafe {
        let block = room::<ALIAS>(cx, at, block_len(u64::from(count), f.elem_len), f.records)?;
        cx.set_word(slot, block as u32);
        cx.set_word(block, count);
        cx.set_word(block + 4, count);
        Ok(block + LIST_HEADER)
    }
}

/// Reads a list or set into a block whose offset goes to `slot`.
#[inline(never)]
unsafe fn list<W: Wire, const ALIAS: bool>(
    cx: &mut Context<'_, '_>,
    mut at: At,
    f: &ThriftField,
    slot: usize,
    depth: u32,
) -> At {
    // SAFETY: the block has room for `count` elements of `elem_len` bytes; those that are records are zeroed.
    unsafe {
        let mut s = cx.source(at.pos);
        let (elem, count) = check!(cx, s.pos, W::list(&mut s));
        if elem != f.elem && count != 0 {
            return cx.fail(Why::Element, s.pos);
        }
        check!(cx, s.pos, holds(&s, W::least(elem), count));
        steps::take(count as usize);
        at.pos = s.pos;
        let first = check!(cx, at.pos, block::<ALIAS>(cx, &mut at, f, slot, count));
        // The arena may have moved, and a staged input with it.
        let mut s = cx.source(at.pos);
        macro_rules! each {
            ($type:ty, $value:expr) => {{
                let mut to = cx.base.add(first).cast::<$type>();
                for idx in 0..count {
                    let value: $type = match $value {
                        Ok(value) => value,
                        Err(why) => {
                            cx.fail(why, s.pos);
                            return cx.element(idx);
                        }
                    };
                    to.write_unaligned(value);
                    to = to.add(1);
                }
                at.pos = s.pos;
            }};
        }
        match f.elem {
            code::BOOL => each!(u8, W::bool(&mut s).map(u8::from)),
            code::I8 => each!([u8; 1], take::<1>(&mut s)),
            code::I16 => each!(u16, W::i16(&mut s)),
            code::I32 => each!(u32, W::i32(&mut s)),
            code::I64 => {
                let to = cx.base.add(first).cast::<u64>();
                match W::i64s(&s, count as usize, to) {
                    Some(len) => at.pos = s.pos + len,
                    None => each!(u64, W::i64(&mut s)),
                }
            }
            code::DOUBLE => each!(u64, W::double(&mut s)),
            code::STRING => {
                each!(u64, text::<W, ALIAS>((cx.base, cx.readable), &mut s, &mut at.cur, f.utf8))
            }
            _ => {
                let Some(depth) = depth.checked_sub(1) else { return cx.fail(Why::Depth, at.pos) };
                for idx in 0..count {
                    let elem = first + idx as usize * f.elem_len as usize;
                    at = if f.boxed {
                        parts::<W, ALIAS>(cx, at, f.aux_idx, elem, depth)
                    } else {
                        record::<W, ALIAS>(cx, at, f.aux_idx, elem, depth)
                    };
                    if at.pos == STOP {
                        return cx.element(idx);
                    }
                }
            }
        }
        at
    }
}

/// Reads the parts of an entry or box, which have no headers on the wire, into the zeroed record at `rec`.
#[inline(always)]
unsafe fn parts<W: Wire, const ALIAS: bool>(
    cx: &mut Context<'_, '_>,
    mut at: At,
    type_idx: u32,
    rec: usize,
    depth: u32,
) -> At {
    let plan = cx.plan;
    let t = &plan.types[type_idx as usize];
    let first = t.first_field as usize;
    for (idx, f) in plan.thrift.fields[first..first + t.field_count as usize].iter().enumerate() {
        // SAFETY: `f` is a field of the record's type.
        unsafe {
            at = value::<W, ALIAS>(cx, at, f, rec, depth);
            if at.pos == STOP {
                return cx.step(type_idx, idx as u32);
            }
            cx.set_present(rec, f);
        }
    }
    at
}

/// Reads a map into a block of entries whose offset goes to `slot`.
#[inline(never)]
unsafe fn map<W: Wire, const ALIAS: bool>(
    cx: &mut Context<'_, '_>,
    mut at: At,
    f: &ThriftField,
    slot: usize,
    depth: u32,
) -> At {
    let plan = cx.plan;
    let entry = plan.types[f.aux_idx as usize].first_field as usize;
    let (key, value) = (&plan.thrift.fields[entry], &plan.thrift.fields[entry + 1]);
    // SAFETY: as `list`; a map's type is an entry (checked by the table's loader), which has two fields.
    unsafe {
        let mut s = cx.source(at.pos);
        let (key_code, value_code, count) = check!(cx, s.pos, W::map(&mut s));
        if count != 0 && (key_code, value_code) != (key.code, value.code) {
            return cx.fail(Why::Element, s.pos);
        }
        let Some(depth) = depth.checked_sub(1) else { return cx.fail(Why::Depth, s.pos) };
        check!(cx, s.pos, holds(&s, W::least(key_code) + W::least(value_code), count));
        steps::take(count as usize);
        at.pos = s.pos;
        let first = check!(cx, at.pos, block::<ALIAS>(cx, &mut at, f, slot, count));
        if (key_code, value_code) == (code::STRING, code::STRING) {
            at = texts::<W, ALIAS>(cx, at, f, first, count);
            if at.pos == STOP || !may_repeat(cx, f, first, count) {
                return at;
            }
            last_of_each_key(cx, at, f, first - LIST_HEADER);
            return at;
        }
        for idx in 0..count {
            let entry = first + idx as usize * f.elem_len as usize;
            at = parts::<W, ALIAS>(cx, at, f.aux_idx, entry, depth);
            if at.pos == STOP {
                return cx.element(idx);
            }
        }
        if count > 1 && f.plain_keys {
            last_of_each_key(cx, at, f, first - LIST_HEADER);
        }
        at
    }
}

/// Reads the entries of a map of strings to strings into the zeroed records from `first` on.
#[inline(always)]
unsafe fn texts<W: Wire, const ALIAS: bool>(
    cx: &mut Context<'_, '_>,
    mut at: At,
    f: &ThriftField,
    first: usize,
    count: u32,
) -> At {
    let entry = cx.plan.types[f.aux_idx as usize].first_field as usize;
    let fields = [cx.plan.thrift.fields[entry], cx.plan.thrift.fields[entry + 1]];
    // SAFETY: as `map`. Strings take no room that is not there ("Room"), so nothing moves meanwhile. An entry has two fields
    // (checked by the table's loader), whose bits are in its only presence word. Noticed by `maps_of_strings`.
    unsafe {
        let memory = (cx.base, cx.readable);
        let mut s = cx.source(at.pos);
        for idx in 0..count {
            let rec = memory.0.add(first + idx as usize * f.elem_len as usize);
            for (field_idx, part) in fields.iter().enumerate() {
                match text::<W, ALIAS>(memory, &mut s, &mut at.cur, part.utf8) {
                    Ok(span) => rec.add(part.slot_off as usize).cast::<u64>().write_unaligned(span),
                    Err(why) => {
                        cx.fail(why, s.pos);
                        cx.step(f.aux_idx, field_idx as u32);
                        return cx.element(idx);
                    }
                }
            }
            let present = fields[0].presence_bit | fields[1].presence_bit;
            rec.add(PRESENCE_OFF as usize).cast::<u32>().write_unaligned(present);
        }
        at.pos = s.pos;
        at
    }
}

/// Whether two of these entries with strings for keys might have the same: they have not, if there are few and no two are
/// equally long.
#[inline(always)]
unsafe fn may_repeat(cx: &Context<'_, '_>, f: &ThriftField, first: usize, count: u32) -> bool {
    let key = &cx.plan.thrift.fields[cx.plan.types[f.aux_idx as usize].first_field as usize];
    // SAFETY: as `texts`: the spans lie in the entries' records.
    let len = |idx: u32| unsafe {
        let rec = first + idx as usize * f.elem_len as usize;
        cx.base.add(rec + key.slot_off as usize + 4).cast::<u32>().read_unaligned()
    };
    count > 4 || (1..count).any(|a| (0..a).any(|b| len(a) == len(b)))
}

/// Leaves the last entry of each key in the map `f` whose entries lie in `block`.
unsafe fn last_of_each_key(cx: &Context<'_, '_>, at: At, f: &ThriftField, block: usize) {
    let plan = cx.plan;
    let s = Cursor {
        base: cx.base,
        cap: cx.cap,
        cur: at.cur,
        buf: cx.buf,
        pos: at.pos,
        len: cx.len,
        readable: cx.readable,
        rec: 0,
    };
    // SAFETY: a block of the map's entries; its keys can be compared (`plain_keys`). `f` is an element of the plan's
    // fields, which run parallel to the table's.
    unsafe {
        let field_idx = std::ptr::from_ref(f).offset_from(plan.thrift.fields.as_ptr());
        finish::last_of_each_key(plan, &s, &plan.fields[field_idx as usize], block);
    }
}
