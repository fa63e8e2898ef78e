//! Hot module: the common fields, read with all state in registers.
//!
//! The loop in `decode` handles everything and so holds more state than a processor has registers. This one
//! handles what most messages are made of: short tags within the direct range; singular scalars and strings;
//! short lists of scalars; messages, and elements of lists of messages that have room; the plain end of a message.
//! It calls nothing but the copy of a long string, and has no errors: what it does not handle, or does not like, it leaves to the other loop,
//! with the position before the field's tag and nothing written for it.

use crate::decode::{Frame, SINGULAR};
use crate::list::{Cursor, zero};
use crate::plan::{FieldPlan, Plan, op};
use crate::utf8;
use crate::varint::{load64, unzigzag, varint};
use crate::{arena::SLOP, plan::NONE};
use tollfree_layout::flat::{HEADER_LEN, LIST_HEADER_LEN};
use tollfree_layout::steps;

const LIST_HEADER: usize = LIST_HEADER_LEN as usize;

/// Longest string that is copied whole, whatever its length; the arena's slop covers it.
const SHORT: usize = SLOP;
/// Bytes of elements by which a block of scalars grows here.
const GROWTH: usize = 8;
/// Bytes that an element of such a block may need beside the cursor's invariant.
pub(crate) const AHEAD: usize = 3 * GROWTH;
/// From here on the other loop reads a list: it looks how long the run is, and reads it in a loop of its own.
const LONG_LIST: usize = 16;

/// Where the engine is, beside its cursor.
#[derive(Clone, Copy)]
pub(crate) struct DecodePlace {
    pub type_idx: u32,
    /// End of the current message in the input.
    pub end: usize,
    /// Number of the group that the current message is, or 0.
    pub group: u32,
    pub fields_left: u32,
}

/// Goes on as far as it can; leaves the state where the other loop takes over. (By reference: a copy of the
/// state in wide pieces would wait for the narrow stores that it was written with.) Before `limit`, 16 bytes can be
/// read at every position. `COUNTED`: fields are counted, since there may be more than are allowed.
///
/// # Safety
/// As for `decode::run`, whose state this is: the cursor's invariant; `place` and `frames` are of the plan and the
/// input, `place.group` is 0; room for `depth` frames is reserved.
#[inline(never)]
pub(crate) unsafe fn run<const ALIAS: bool, const COUNTED: bool>(
    plan: &Plan,
    s: &mut Cursor,
    place: &mut DecodePlace,
    frames: &mut Vec<Frame>,
    limit: usize,
    depth: u32,
) {
    let DecodePlace { type_idx: mut ty, end: end_pos, mut group, mut fields_left } = *place;
    let buf = s.buf;
    // SAFETY: as in `decode::run`: plan indices come from the checked table; every length is held against the end
    // before its bytes are used; records and blocks lie below `cur`, and `cap - cur` exceeds what is left of the input
    // by SLOP. Pointers are `buf` plus a position; they are compared, and used below `end` only. Noticed by the
    // tests that notice for `decode::run`, which run through here.
    unsafe {
        let mut p = buf.wrapping_add(s.pos);
        let mut end = buf.wrapping_add(end_pos);
        let readable = buf.wrapping_add(s.readable);
        let input_end = buf.wrapping_add(s.len);
        let limit = buf.wrapping_add(limit);
        let mut stop = end.min(limit);
        let (base, cap) = (s.base, s.cap);
        let mut cur = s.cur;
        let mut rec = base.add(s.rec);
        let frame_base = frames.as_mut_ptr();
        let mut height = frames.len();
        let (mut fields, mut dense, mut dense_len): (*const FieldPlan, *const u16, u32);
        macro_rules! enter {
            () => {{
                let t = plan.types.get_unchecked(ty as usize);
                fields = plan.fields.as_ptr().add(t.first_field as usize);
                dense = plan.dense.as_ptr().add(t.first_dense as usize);
                dense_len = t.dense_len;
            }};
        }
        enter!();
        loop {
            steps::take(1);
            if p >= stop {
                // The end of a message that needs no completion, inside another that is no group.
                if p != end || height == 0 || plan.types.get_unchecked(ty as usize).finish != 0 {
                    break;
                }
                height -= 1;
                let frame = frame_base.add(height).read();
                rec = base.add(frame.rec as usize);
                end = buf.wrapping_add(frame.end as usize);
                stop = end.min(limit);
                ty = frame.type_idx;
                enter!();
                if frame.group != 0 {
                    group = frame.group;
                    break;
                }
                continue;
            }
            if COUNTED && fields_left == 0 {
                break;
            }
            let w = load64(p);
            let (tag, mut at) = match w as u32 {
                w if w & 0x80 == 0 => (w & 0x7f, p.add(1)),
                w if w & 0x8000 == 0 => (w & 0x7f | w >> 1 & 0x3f80, p.add(2)),
                _ => break,
            };
            let number = tag >> 3;
            if number >= dense_len {
                break;
            }
            let idx = *dense.add(number as usize);
            if idx == NONE {
                break;
            }
            let field = &*fields.add(idx as usize);
            // Oneofs, maps and packed runs have operations above those below.
            let code = *field.ops.get_unchecked((tag & 7) as usize);
            // Looked up where they are used: there are too few registers to keep them meanwhile.
            macro_rules! slot {
                () => {
                    rec.add(field.slot_off as usize)
                };
            }
            macro_rules! present {
                (! $absent:expr) => {{
                    let word = rec.add(field.presence_off as usize).cast::<u32>();
                    if field.implicit && $absent {
                        *word &= !field.presence_bit;
                    } else {
                        *word |= field.presence_bit;
                    }
                }};
                () => {
                    *rec.add(field.presence_off as usize).cast::<u32>() |= field.presence_bit
                };
            }
            macro_rules! value {
                () => {{
                    let w = u64::from(at.cast::<u16>().read_unaligned());
                    if w & 0x80 == 0 {
                        at = at.add(1);
                        w & 0x7f
                    } else if w & 0x8000 == 0 {
                        at = at.add(2);
                        w & 0x7f | w >> 1 & 0x3f80
                    } else {
                        let (value, n) = varint(at);
                        if n == 0 {
                            break;
                        }
                        at = at.add(n);
                        value
                    }
                }};
            }
            // A value that ends behind its message is left to the other loop, which will say so.
            macro_rules! put {
                ($type:ty, $value:expr) => {{
                    let value: $type = $value;
                    if at > end {
                        break;
                    }
                    slot!().cast::<$type>().write_unaligned(value);
                    present!(!value == 0);
                }};
            }
            macro_rules! fixed {
                ($type:ty) => {{
                    let value = at.cast::<$type>().read_unaligned();
                    at = at.add(size_of::<$type>());
                    value
                }};
            }
            // A length of one or two bytes, held against the end.
            macro_rules! length {
                () => {{
                    let w = usize::from(at.cast::<u16>().read_unaligned());
                    let n = if w & 0x80 == 0 {
                        at = at.add(1);
                        w & 0x7f
                    } else if w & 0x8000 == 0 {
                        at = at.add(2);
                        w & 0x7f | w >> 1 & 0x3f80
                    } else {
                        break;
                    };
                    if at > end || n > end as usize - at as usize {
                        break;
                    }
                    n
                }};
            }
            macro_rules! text {
                ($utf8:expr) => {{
                    let n = length!();
                    let off = if ALIAS {
                        if $utf8 && !utf8::check(at, n, readable as usize - at as usize) {
                            break;
                        }
                        HEADER_LEN as usize + (at as usize - buf as usize)
                    } else {
                        let to = base.add(cur);
                        let ahead = readable as usize - at as usize;
                        if n > SHORT || ahead < SHORT || $utf8 && !utf8::is_ascii(at, n) {
                            if !utf8::copy_far::<$utf8>(at, to, n, ahead) {
                                break;
                            }
                        } else {
                            to.cast::<[u64; 4]>().write_unaligned(at.cast::<[u64; 4]>().read_unaligned());
                            if n > 32 {
                                let (to, from) =
                                    (to.add(32).cast::<[u64; 4]>(), at.add(32).cast::<[u64; 4]>());
                                to.write_unaligned(from.read_unaligned());
                            }
                        }
                        cur += n;
                        cur - n
                    };
                    at = at.add(n);
                    slot!().cast::<u64>().write_unaligned(off as u64 | (n as u64) << 32);
                    present!(!n == 0);
                }};
            }
            // One more element of a list of scalars. A block that is the last thing in the arena grows where it is, as
            // elements that follow one another let it; any other is for the other loop.
            macro_rules! element {
                ($type:ty, $value:expr) => {{
                    const SIZE: usize = size_of::<$type>();
                    let value: $type = $value;
                    if at > end {
                        break;
                    }
                    let room = cap - cur >= AHEAD + (input_end as usize - at as usize) + SLOP;
                    let block = slot!().cast::<u32>().read_unaligned() as usize;
                    if block == 0 {
                        if !room {
                            break;
                        }
                        let block = cur.next_multiple_of(8);
                        base.add(cur).cast::<u64>().write_unaligned(0);
                        base.add(block).cast::<[u32; 4]>().write_unaligned([1, (GROWTH / SIZE) as u32, 0, 0]);
                        base.add(block + LIST_HEADER).cast::<$type>().write_unaligned(value);
                        cur = block + LIST_HEADER + GROWTH;
                        slot!().cast::<u32>().write_unaligned(block as u32);
                        present!();
                    } else {
                        let counts = base.add(block).cast::<u32>();
                        let count = counts.read_unaligned() as usize;
                        let capacity = counts.add(1).read_unaligned() as usize;
                        if count == capacity {
                            let block_end = block + (LIST_HEADER + capacity * SIZE).next_multiple_of(8);
                            if block_end != cur || !room || count >= LONG_LIST {
                                break;
                            }
                            base.add(cur).cast::<u64>().write_unaligned(0);
                            cur += GROWTH;
                            counts.add(1).write_unaligned(((cur - block - LIST_HEADER) / SIZE) as u32);
                        }
                        base.add(block + LIST_HEADER + count * SIZE).cast::<$type>().write_unaligned(value);
                        counts.write_unaligned(count as u32 + 1);
                    }
                }};
            }
            macro_rules! descend {
                ($child:expr, $n:expr, $element:expr) => {{
                    let child: *mut u8 = $child;
                    frame_base.add(height).write(Frame {
                        rec: (rec as usize - base as usize) as u32,
                        end: (end as usize - buf as usize) as u32,
                        type_idx: ty,
                        field_idx: idx.into(),
                        element_idx: $element,
                        group: 0,
                    });
                    height += 1;
                    rec = child;
                    end = at.add($n);
                    stop = end.min(limit);
                    ty = field.aux_idx;
                    enter!();
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
                    let value = value!() as i32;
                    if !plan.has_near_value(field.aux_idx, value) {
                        break;
                    }
                    put!(u32, value as u32);
                }
                op::BYTES => text!(false),
                op::STRING => text!(true),
                op::MESSAGE => {
                    let n = length!();
                    let child_len = field.elem_len as usize;
                    // As `Cursor::room` and `Cursor::take_zeroed`, where the room is there.
                    let child = cur.next_multiple_of(8);
                    let input_left = input_end as usize - at as usize;
                    let is_new = slot!().cast::<u32>().read_unaligned() == 0;
                    if !is_new || height as u32 >= depth || cap - child < child_len + input_left + SLOP {
                        break;
                    }
                    base.add(cur).cast::<u64>().write_unaligned(0);
                    zero(base.add(child), child_len);
                    cur = child + child_len;
                    slot!().cast::<u32>().write_unaligned(child as u32);
                    present!();
                    descend!(base.add(child), n, SINGULAR);
                }
                op::LIST_MESSAGE => {
                    let n = length!();
                    let block = slot!().cast::<u32>().read_unaligned() as usize;
                    let counts = base.add(block).cast::<u32>();
                    if block == 0 || counts.read() == counts.add(1).read() || height as u32 >= depth {
                        break;
                    }
                    let count = counts.read();
                    counts.write(count + 1);
                    let child = block + LIST_HEADER + count as usize * field.elem_len as usize;
                    descend!(base.add(child), n, count);
                }
                op::LIST_VARINT64 => element!(u64, value!()),
                op::LIST_VARINT32 => element!(u32, value!() as u32),
                op::LIST_SINT64 => element!(u64, unzigzag(value!())),
                op::LIST_SINT32 => element!(u32, unzigzag(value!() & 0xffff_ffff) as u32),
                op::LIST_BOOL => element!(u8, u8::from(value!() != 0)),
                op::LIST_FIXED64 => element!(u64, fixed!(u64)),
                op::LIST_FIXED32 => element!(u32, fixed!(u32)),
                op::LIST_CLOSED => element!(u32, {
                    let value = value!() as i32;
                    if !plan.has_near_value(field.aux_idx, value) {
                        break;
                    }
                    value as u32
                }),
                _ => break,
            }
            if COUNTED {
                fields_left -= 1;
            }
            p = at;
        }
        frames.set_len(height);
        s.pos = p as usize - buf as usize;
        s.cur = cur;
        s.rec = rec as usize - base as usize;
        *place = DecodePlace { type_idx: ty, end: end as usize - buf as usize, group, fields_left };
    }
}
