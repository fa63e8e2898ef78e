//! Hot module: protobuf bytes to a linear object, driven by the table.
//!
//! # Reading ahead
//!
//! A tag and the varint behind it take at most 15 bytes and are read with 8-byte loads that may reach further,
//! so the loop reads from the input only while 16 bytes are left in it. The last bytes are then read from a
//! *patched tail*: a copy of the input's last 64 bytes with zeroes behind them. `buf` is set so that `buf + pos`
//! is right for both. A staged input lies in the arena, with room behind it, and needs no patch.
//!
//! # Room
//!
//! See [`Cursor`]: strings need no check, records and list blocks restore the invariant. A list's first block
//! is as long as the run of equal tags ahead, so it seldom grows.
//!
//! # Trust
//!
//! The input is hostile; the plan is not (the loader checked its table). Every length is held against the end of
//! the message it is in before it is used. Messages nest on a stack of frames of bounded height.

use crate::arena::{Arena, SLOP};
use crate::fault::{Fault, Why};
use crate::hot::{self, Place};
use crate::limits::Limits;
use crate::list::{Cursor, first_block, grow_block, keep_unknown, run_ahead};
use crate::plan::finish::MAPS;
use crate::plan::{FieldPlan, NONE, Plan, op};
use crate::varint::{load64, unzigzag, varint, varint32};
use crate::{finish, packed, tail, utf8};
use tollfree_layout::linear::{HEADER_LEN, LIST_HEADER_LEN};

/// Where to go on when a message inside another ends, and how its own path step reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    /// Offset of the outer record.
    pub rec: u32,
    /// End of the outer message in the input.
    pub end: u32,
    pub type_idx: u32,
    /// The outer type's field that holds the inner message.
    pub field_idx: u32,
    /// Which element of it; [`SINGULAR`] or [`MERGED`] if it is not a list.
    pub element_idx: u32,
    /// Number of the group that the outer message is, or 0.
    pub group: u32,
}

/// In place of an element's index: a message field's first occurrence, or a later one that is merged into it.
pub(crate) const SINGULAR: u32 = u32::MAX;
pub(crate) const MERGED: u32 = u32::MAX - 1;

const LIST_HEADER: usize = LIST_HEADER_LEN as usize;

/// Decodes the input of `len` bytes at `input` (`ALIAS`: staged in the arena) as type `type_idx`. Gives the
/// offset of the first byte behind the object.
///
/// # Safety
/// `len` bytes are readable at `input`, `type_idx` is a type of the plan; `ALIAS`: they were staged in `arena`.
pub(crate) unsafe fn run<const ALIAS: bool>(
    plan: &Plan,
    root: u32,
    mut input: *const u8,
    len: usize,
    arena: &mut Arena<'_>,
    frames: &mut Vec<Frame>,
    limits: &Limits,
) -> Result<usize, Fault> {
    let mut ty = root;
    let mut idx = u32::from(NONE);
    let mut s = Cursor {
        base: std::ptr::null_mut(),
        cap: 0,
        cur: if ALIAS { staged_root(len) } else { HEADER_LEN as usize },
        buf: input,
        pos: 0,
        len,
        readable: len,
        rec: 0,
    };
    macro_rules! fail {
        ($why:expr) => {
            return Err(Fault {
                why: $why,
                offset: s.pos.min(len),
                type_idx: ty,
                field_idx: (idx != u32::from(NONE)).then_some(idx),
            })
        };
    }
    macro_rules! check {
        ($result:expr) => {
            match $result {
                Ok(value) => value,
                Err(why) => fail!(why),
            }
        };
    }
    // SAFETY: `plan` indices come from the plan itself, whose table the loader
    // checked: fields lie in their type, slots in their record, target types exist. Positions are held below
    // `end <= len` before the bytes there are used; loads ahead are covered by "Reading ahead". Records and
    // blocks lie below `cur <= cap`. Noticed by the round-trip, prefix and mutation tests.
    unsafe {
        frames.reserve(limits.depth as usize);
        let root_len = plan.types.get_unchecked(root as usize).record_len as usize;
        let first = s.cur + root_len + len + SLOP;
        (s.base, s.cap) = match arena.reserve(first) {
            Some(memory) => memory,
            None => fail!(Why::Room(first)),
        };
        if ALIAS {
            input = s.base.add(HEADER_LEN as usize);
            s.buf = input;
            s.readable = s.cap - HEADER_LEN as usize;
            // Zeroes behind the input, as the patched tail has them: a varint that is cut off ends there.
            s.base.add(HEADER_LEN as usize + len).cast::<u64>().write_unaligned(0);
            s.base.add(s.cur - 8).cast::<u64>().write_unaligned(0);
        }
        s.rec = s.take_zeroed(root_len);
        let mut patch = tail::Tail::new();
        let mut switch = if ALIAS { usize::MAX } else { len.saturating_sub(15) };
        if !ALIAS && len <= tail::REPEATED {
            s.buf = patch.fill(input, len);
            s.readable = tail::readable(len);
            switch = usize::MAX;
        }
        let mut end = len;
        let mut stop = end.min(switch);
        let mut group = 0u32;
        let mut fields_left = limits.fields;
        let mut missing = false;
        let mut merged_maps = false;
        let (mut fields, mut dense, mut dense_len): (*const FieldPlan, *const u16, u32);
        macro_rules! enter {
            () => {{
                let t = plan.types.get_unchecked(ty as usize);
                fields = plan.fields.as_ptr().add(t.first_field as usize);
                dense = plan.dense.as_ptr().add(t.first_dense as usize);
                dense_len = t.dense_len;
            }};
        }
        // The arena may have moved, and a staged input with it.
        macro_rules! moved {
            () => {
                if ALIAS {
                    input = s.base.add(HEADER_LEN as usize);
                }
            };
        }
        enter!();
        loop {
            if group == 0 {
                let mut place = Place { type_idx: ty, end, group, fields_left };
                let limit = switch.min(len);
                hot::run::<ALIAS>(plan, &mut s, &mut place, frames, limit, limits.depth);
                Place { type_idx: ty, end, group, fields_left } = place;
                stop = end.min(switch);
                enter!();
            }
            let mut leave = false;
            if s.pos >= stop {
                if s.pos < end {
                    s.buf = patch.fill(input, len);
                    s.readable = tail::readable(len);
                    switch = usize::MAX;
                    stop = end;
                    if group == 0 {
                        continue;
                    }
                } else {
                    // The last field read, if any, has passed the end.
                    if s.pos > end {
                        s.pos = end;
                        fail!(Why::Truncated);
                    }
                    idx = u32::from(NONE);
                    if group != 0 {
                        fail!(Why::Truncated);
                    }
                    leave = true;
                }
            }
            let start = s.pos;
            if !leave {
                if fields_left == 0 {
                    fail!(Why::Fields);
                }
                fields_left -= 1;
                let w = load64(s.buf.add(start));
                let mut tag = w as u32 & 0xff;
                if tag < 0x80 {
                    s.pos += 1;
                } else if w & 0x8000 == 0 {
                    tag = (w as u32 & 0x7f) | (w as u32 >> 1 & 0x3f80);
                    s.pos += 2;
                    if s.pos > end {
                        s.pos = end;
                        idx = u32::from(NONE);
                        fail!(Why::Truncated);
                    }
                } else {
                    let (long, n) = varint32(s.buf.add(start));
                    idx = u32::from(NONE);
                    if n == 0 {
                        fail!(Why::Varint);
                    }
                    tag = long;
                    s.pos += n;
                    if s.pos > end {
                        s.pos = end;
                        fail!(Why::Truncated);
                    }
                }
                let wire_type = tag & 7;
                let number = tag >> 3;
                idx = if number < dense_len {
                    u32::from(*dense.add(number as usize))
                } else {
                    sparse(plan, ty, number)
                };
                let code = if idx == u32::from(NONE) {
                    op::UNKNOWN
                } else {
                    (&(*fields.add(idx as usize)).ops)[wire_type as usize]
                };
                if code == op::UNKNOWN {
                    if wire_type == 4 && number == group && group != 0 {
                        leave = true;
                    } else {
                        moved!();
                        let rest = std::slice::from_raw_parts(input, len);
                        s.pos = check!(tail::skip(
                            rest,
                            s.pos,
                            end,
                            number,
                            wire_type,
                            limits.depth - frames.len() as u32
                        ));
                        s = check!(keep_unknown::<ALIAS>(s, arena, input, start, s.pos));
                        moved!();
                        continue;
                    }
                } else {
                    let e = &*fields.add(idx as usize);
                    let mut code = code;
                    if code & op::ONEOF != 0 {
                        code &= !op::ONEOF;
                        // A value that the closed enum lacks leaves the oneof as it is.
                        if code != op::CLOSED || plan.has_value(e.aux_idx, varint(s.buf.add(s.pos)).0 as i32)
                        {
                            finish::choose(plan, s, ty, e);
                        }
                    }
                    let rec = s.base.add(s.rec);
                    macro_rules! present {
                        ($nonzero:expr) => {{
                            let word = rec.add(e.presence_off as usize).cast::<u32>();
                            if e.implicit && !$nonzero {
                                *word &= !e.presence_bit;
                            } else {
                                *word |= e.presence_bit;
                            }
                        }};
                    }
                    macro_rules! value {
                        () => {{
                            let at = s.buf.add(s.pos);
                            let w = u64::from(at.cast::<u16>().read_unaligned());
                            if w & 0x80 == 0 {
                                s.pos += 1;
                                w & 0x7f
                            } else if w & 0x8000 == 0 {
                                s.pos += 2;
                                w & 0x7f | w >> 1 & 0x3f80
                            } else {
                                let (value, n) = varint(at);
                                if n == 0 {
                                    fail!(Why::Varint);
                                }
                                s.pos += n;
                                value
                            }
                        }};
                    }
                    macro_rules! put {
                        ($type:ty, $value:expr) => {{
                            let value: $type = $value;
                            rec.add(e.slot_off as usize).cast::<$type>().write_unaligned(value);
                            present!(value != 0);
                        }};
                    }
                    // A length, held against the end of the message.
                    macro_rules! length {
                        () => {{
                            let mut n = *s.buf.add(s.pos) as usize;
                            s.pos += 1;
                            if n >= 0x80 {
                                let (long, taken) = varint32(s.buf.add(s.pos - 1));
                                if taken == 0 || long > i32::MAX as u32 {
                                    fail!(Why::Varint);
                                }
                                n = long as usize;
                                s.pos += taken - 1;
                            }
                            if n as isize > end as isize - s.pos as isize {
                                s.pos = s.pos.min(end);
                                fail!(Why::Truncated);
                            }
                            n
                        }};
                    }
                    macro_rules! descend {
                        ($child:expr, $end:expr, $element:expr, $group:expr) => {{
                            let child: usize = $child;
                            if frames.len() as u32 >= limits.depth {
                                fail!(Why::Depth);
                            }
                            // Room for `depth` frames was reserved.
                            frames.as_mut_ptr().add(frames.len()).write(Frame {
                                rec: s.rec as u32,
                                end: end as u32,
                                type_idx: ty,
                                field_idx: idx,
                                element_idx: $element,
                                group,
                            });
                            frames.set_len(frames.len() + 1);
                            group = $group;
                            s.rec = child;
                            ty = e.aux_idx;
                            end = $end;
                            stop = end.min(switch);
                            enter!();
                        }};
                    }
                    // The record of a singular message: the one that is there, or a new one; and which.
                    macro_rules! child {
                        () => {{
                            let slot = rec.add(e.slot_off as usize).cast::<u32>();
                            let mut child = slot.read_unaligned() as usize;
                            let mut element = MERGED;
                            if child == 0 {
                                check!(s.room::<ALIAS>(arena, e.elem_len as usize));
                                child = s.take_zeroed(e.elem_len as usize);
                                s.set_word(s.rec + e.slot_off as usize, child as u32);
                                let word = s.base.add(s.rec + e.presence_off as usize).cast::<u32>();
                                *word |= e.presence_bit;
                                element = SINGULAR;
                            }
                            (child, element)
                        }};
                    }
                    // The field's block with room for one more element, and its count and capacity.
                    macro_rules! block {
                        () => {{
                            let slot = s.rec + e.slot_off as usize;
                            let mut block = s.word(slot) as usize;
                            let (count, mut capacity) =
                                if block == 0 { (0, 0) } else { (s.word(block), s.word(block + 4)) };
                            if count == capacity {
                                moved!();
                                let rest = std::slice::from_raw_parts(input, len);
                                let tag = u64::from(wire_type) | e.tag & !7;
                                let run = run_ahead(rest, e, tag, start, end);
                                if block == 0 {
                                    block = check!(first_block::<ALIAS>(&mut s, arena, e.elem_len, run));
                                    let word = s.base.add(s.rec + e.presence_off as usize).cast::<u32>();
                                    *word |= e.presence_bit;
                                } else {
                                    (s, block) =
                                        check!(grow_block::<ALIAS>(s, arena, e.elem_len, block, count, run));
                                }
                                capacity = s.word(block + 4);
                                s.set_word(slot, block as u32);
                            }
                            (block, count, capacity)
                        }};
                    }
                    macro_rules! element {
                        () => {{
                            let (block, count, _) = block!();
                            s.set_word(block, count + 1);
                            (block + LIST_HEADER + count as usize * e.elem_len as usize, count)
                        }};
                    }
                    // Elements as long as the same tag follows.
                    macro_rules! elements {
                        ($type:ty, $value:expr) => {{
                            let (block, mut count, capacity) = block!();
                            let to = s.base.add(block + LIST_HEADER).cast::<$type>();
                            let tag = u64::from(wire_type) | e.tag & !7;
                            loop {
                                let value: $type = $value;
                                to.add(count as usize).write_unaligned(value);
                                count += 1;
                                if count == capacity || s.pos >= stop {
                                    break;
                                }
                                if (load64(s.buf.add(s.pos)) ^ tag) & e.tag_mask != 0 || fields_left == 0 {
                                    break;
                                }
                                fields_left -= 1;
                                s.pos += e.tag_len as usize;
                            }
                            s.set_word(block, count);
                        }};
                    }
                    // The bytes of a string, copied or left where they are: offset and length.
                    macro_rules! text {
                        ($utf8:expr) => {{
                            let n = length!();
                            let from = s.buf.add(s.pos);
                            let mut sound = true;
                            let at = if ALIAS {
                                if $utf8 {
                                    sound = utf8::check(from, n, s.readable - s.pos);
                                }
                                HEADER_LEN as usize + s.pos
                            } else {
                                let to = s.base.add(s.cur);
                                if $utf8 {
                                    sound = utf8::copy_checked(from, to, n, s.readable - s.pos);
                                } else if n <= 32 && s.pos + 32 <= s.readable {
                                    to.cast::<[u64; 4]>()
                                        .write_unaligned(from.cast::<[u64; 4]>().read_unaligned());
                                } else {
                                    to.copy_from_nonoverlapping(from, n);
                                }
                                s.cur += n;
                                s.cur - n
                            };
                            if !sound {
                                s.pos += n;
                                fail!(Why::Utf8);
                            }
                            s.pos += n;
                            at as u64 | (n as u64) << 32
                        }};
                    }
                    macro_rules! fixed {
                        ($type:ty) => {{
                            let value = s.buf.add(s.pos).cast::<$type>().read_unaligned();
                            s.pos += size_of::<$type>();
                            value
                        }};
                    }
                    match code {
                        op::VARINT64 => put!(u64, value!()),
                        op::VARINT32 => put!(u32, value!() as u32),
                        op::SINT64 => put!(u64, unzigzag(value!())),
                        op::SINT32 => put!(u32, unzigzag(value!() & 0xffff_ffff) as u32),
                        op::BOOL => put!(u8, u8::from(value!() != 0)),
                        op::FIXED64 => put!(u64, fixed!(u64)),
                        op::FIXED32 => put!(u32, fixed!(u32)),
                        op::CLOSED => {
                            let value = value!();
                            if plan.has_value(e.aux_idx, value as i32) {
                                put!(u32, value as u32);
                            } else if s.pos <= end {
                                moved!();
                                s = check!(keep_unknown::<ALIAS>(s, arena, input, start, s.pos));
                            }
                        }
                        op::BYTES => {
                            let span = text!(false);
                            rec.add(e.slot_off as usize).cast::<u64>().write_unaligned(span);
                            present!(span >> 32 != 0);
                        }
                        op::STRING => {
                            let span = text!(true);
                            rec.add(e.slot_off as usize).cast::<u64>().write_unaligned(span);
                            present!(span >> 32 != 0);
                        }
                        op::MESSAGE => {
                            let n = length!();
                            let inner_end = s.pos + n;
                            let (child, element) = child!();
                            descend!(child, inner_end, element, 0);
                        }
                        op::GROUP => {
                            let (child, element) = child!();
                            descend!(child, end, element, e.number);
                        }
                        op::LIST_MESSAGE => {
                            let n = length!();
                            let inner_end = s.pos + n;
                            let (child, element_idx) = element!();
                            descend!(child, inner_end, element_idx, 0);
                        }
                        op::LIST_GROUP => {
                            let (child, element_idx) = element!();
                            descend!(child, end, element_idx, e.number);
                        }
                        op::MAP => {
                            let n = length!();
                            let inner_end = s.pos + n;
                            moved!();
                            let entry = std::slice::from_raw_parts(input.add(s.pos), n);
                            if e.closed_map && !finish::entry_is_known(plan, e, entry) {
                                s.pos = inner_end;
                                s = check!(keep_unknown::<ALIAS>(s, arena, input, start, inner_end));
                            } else {
                                let (child, element_idx) = element!();
                                descend!(child, inner_end, element_idx, 0);
                            }
                        }
                        op::LIST_VARINT64 => elements!(u64, value!()),
                        op::LIST_VARINT32 => elements!(u32, value!() as u32),
                        op::LIST_SINT64 => elements!(u64, unzigzag(value!())),
                        op::LIST_SINT32 => elements!(u32, unzigzag(value!() & 0xffff_ffff) as u32),
                        op::LIST_BOOL => elements!(u8, u8::from(value!() != 0)),
                        op::LIST_FIXED64 => elements!(u64, fixed!(u64)),
                        op::LIST_FIXED32 => elements!(u32, fixed!(u32)),
                        op::LIST_BYTES => elements!(u64, text!(false)),
                        op::LIST_STRING => elements!(u64, text!(true)),
                        op::LIST_CLOSED => {
                            let value = value!();
                            if s.pos > end {
                                continue;
                            }
                            if plan.has_value(e.aux_idx, value as i32) {
                                let (at, _) = element!();
                                s.set_word(at, value as u32);
                            } else {
                                moved!();
                                s = check!(keep_unknown::<ALIAS>(s, arena, input, start, s.pos));
                            }
                        }
                        _ => {
                            let n = length!();
                            moved!();
                            let run = std::slice::from_raw_parts(input.add(s.pos), n);
                            s.pos += n;
                            s = check!(packed::run::<ALIAS>(plan, s, arena, e, code - op::PACKED, run));
                        }
                    }
                }
            }
            if leave {
                let t = plan.types.get_unchecked(ty as usize);
                if t.finish != 0 {
                    // A map that is merged again and again would be looked through each time: once, at the end.
                    let merged = frames.last().is_some_and(|frame| frame.element_idx == MERGED);
                    merged_maps |= merged && t.finish & MAPS != 0;
                    s = check!(finish::record::<ALIAS>(plan, s, arena, ty, merged, &mut missing));
                }
                let Some(frame) = frames.pop() else { break };
                s.rec = frame.rec as usize;
                end = frame.end as usize;
                ty = frame.type_idx;
                group = frame.group;
                stop = end.min(switch);
                enter!();
            }
        }
        if merged_maps {
            finish::all_maps(plan, s, root, s.rec);
        }
        if missing && limits.require_all {
            // Merging may have filled in what was missing when a part of the message ended.
            if let Some((in_type, field_idx)) = finish::find_missing(plan, s.base, root, s.rec, frames) {
                (ty, idx) = (in_type, field_idx);
                fail!(Why::Required);
            }
        }
        s.base.add(s.cur).cast::<u64>().write_unaligned(0);
        Ok(s.cur.next_multiple_of(8))
    }
}

/// Offset of the root record behind a staged input of `len` bytes, at least eight bytes behind it.
pub(crate) fn staged_root(len: usize) -> usize {
    (HEADER_LEN as usize + len).next_multiple_of(8) + 8
}

/// Looks a number up that is beyond the type's direct range.
#[cold]
#[inline(never)]
fn sparse(plan: &Plan, type_idx: u32, number: u32) -> u32 {
    plan.field_idx(type_idx, number).filter(|_| number != 0).unwrap_or(u32::from(NONE))
}
