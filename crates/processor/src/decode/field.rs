//! Hot module: one field of a protobuf message, of whatever kind.

use super::{Child, Engine, MERGED, NO_FIELD, SINGULAR};
use crate::fault::Why;
use crate::list::{first_block, grow_block, keep_unknown, run_ahead};
use crate::plan::{FieldPlan, Plan, op};
use crate::varint::{load64, unzigzag, varint, varint32};
use crate::{copy, finish, packed, tail, utf8};
use tollfree_layout::flat::{HEADER_LEN, LIST_HEADER_LEN};
use tollfree_layout::steps;

const LIST_HEADER: usize = LIST_HEADER_LEN as usize;

/// A field whose tag is read.
#[derive(Clone, Copy)]
struct Tagged<'p> {
    plan: &'p FieldPlan,
    /// Where its tag begins.
    start: usize,
    /// The tag as it is written in the fewest bytes.
    tag: u64,
}

/// The methods below rely on what those of the engine rely on, and are noticed by the same tests; see there.
impl<'e, const ALIAS: bool> Engine<'e, '_, ALIAS> {
    /// Reads one field, or the first of several in a row with the same tag. True if it was the group's end.
    #[inline(always)]
    pub(super) unsafe fn field(&mut self) -> Result<bool, Why> {
        steps::take(1);
        let start = self.s.pos;
        self.field_idx = NO_FIELD;
        if self.place.fields_left == 0 {
            return Err(Why::Fields);
        }
        self.place.fields_left -= 1;
        // SAFETY: 16 bytes are readable at `pos`; the type's fields and direct numbers lie where the plan says.
        unsafe {
            let tag = self.tag()?;
            let (wire_type, number) = (tag & 7, tag >> 3);
            let plan = self.plan;
            let t = plan.types.get_unchecked(self.place.type_idx as usize);
            self.field_idx = if number < t.dense_len {
                u32::from(*plan.dense.get_unchecked((t.first_dense + number) as usize))
            } else {
                sparse(plan, self.place.type_idx, number)
            };
            if self.field_idx == NO_FIELD {
                return self.unknown(start, number, wire_type);
            }
            let field = plan.fields.get_unchecked((t.first_field + self.field_idx) as usize);
            let code = *field.ops.get_unchecked(wire_type as usize);
            if code == op::UNKNOWN {
                return self.unknown(start, number, wire_type);
            }
            let tagged = Tagged { plan: field, start, tag: u64::from(wire_type) | field.tag & !7 };
            match self.known(tagged, code) {
                Ok(()) => Ok(false),
                Err(why) => Err(self.note(why, code)),
            }
        }
    }

    /// Notes which element of a list was not read: the one behind those that are there. (A packed run has done so.)
    #[cold]
    #[inline(never)]
    fn note(&mut self, why: Why, code: u8) -> Why {
        if matches!(code, op::LIST..op::PACKED | op::MAP) {
            self.element_idx = self.element_count();
        }
        why
    }

    #[inline(always)]
    unsafe fn tag(&mut self) -> Result<u32, Why> {
        // SAFETY: 16 bytes are readable.
        let (tag, len) = unsafe {
            let w = load64(self.s.buf.wrapping_add(self.s.pos)) as u32;
            if w & 0x80 == 0 {
                self.s.pos += 1;
                return Ok(w & 0x7f);
            }
            if w & 0x8000 == 0 {
                (w & 0x7f | w >> 1 & 0x3f80, 2)
            } else {
                varint32(self.s.buf.wrapping_add(self.s.pos))
            }
        };
        if len == 0 {
            return Err(Why::Varint);
        }
        self.s.pos += len;
        if self.s.pos > self.place.end {
            self.s.pos = self.place.end;
            return Err(Why::Truncated);
        }
        Ok(tag)
    }

    /// A field that the type does not have, or not in this form: kept, unless it ends the group (then true).
    #[inline(never)]
    unsafe fn unknown(&mut self, start: usize, number: u32, wire_type: u32) -> Result<bool, Why> {
        if wire_type == 4 && number == self.place.group && number != 0 {
            return Ok(true);
        }
        // SAFETY: the input's bytes are readable.
        let input = unsafe { std::slice::from_raw_parts(self.input(), self.s.len) };
        let depth = self.limits.depth - self.arena.frames.len() as u32;
        self.s.pos = tail::skip(input, self.s.pos, self.place.end, number, wire_type, depth)?;
        // SAFETY: as above.
        unsafe { self.keep(start) }?;
        Ok(false)
    }

    /// Keeps what was read from `start` on as an unknown field.
    unsafe fn keep(&mut self, start: usize) -> Result<(), Why> {
        let (input, to) = (self.input(), self.s.pos);
        // SAFETY: `start..to` was read, so it lies in the input.
        unsafe { keep_unknown::<ALIAS>(&mut self.s, self.arena, input, start, to) }
    }

    #[inline(always)]
    unsafe fn known(&mut self, field: Tagged<'e>, code: u8) -> Result<(), Why> {
        // SAFETY: `code` is the operation of this field, so each arm reads what the wire type says, and its slot
        // has the kind that the arm writes.
        unsafe {
            match code {
                op::MESSAGE | op::GROUP | op::LIST_MESSAGE | op::LIST_GROUP | op::MAP => {
                    self.message(field, code)
                }
                ..op::LIST => self.single(field, code),
                op::LIST..op::PACKED => self.repeated(field, code),
                op::PACKED..op::MAP => self.packed(field, code - op::PACKED),
                _ => self.chosen(field, code & !op::ONEOF),
            }
        }
    }

    /// The value of a singular field.
    #[inline(always)]
    unsafe fn single(&mut self, field: Tagged<'e>, code: u8) -> Result<(), Why> {
        let plan = field.plan;
        // SAFETY: as in `known`.
        unsafe {
            match code {
                op::VARINT64 => self.varint().map(|value| self.put(plan, value, value != 0)),
                op::VARINT32 => self.varint().map(|value| self.put(plan, value as u32, value as u32 != 0)),
                op::SINT64 => self.varint().map(|value| self.put(plan, unzigzag(value), value != 0)),
                op::SINT32 => {
                    let value = unzigzag(self.varint()? & 0xffff_ffff) as u32;
                    self.put(plan, value, value != 0);
                    Ok(())
                }
                op::BOOL => self.varint().map(|value| self.put(plan, u8::from(value != 0), value != 0)),
                op::FIXED64 => {
                    let value: u64 = self.fixed();
                    self.put(plan, value, value != 0);
                    Ok(())
                }
                op::FIXED32 => {
                    let value: u32 = self.fixed();
                    self.put(plan, value, value != 0);
                    Ok(())
                }
                op::CLOSED => {
                    let value = self.varint()? as i32;
                    if self.plan.has_value(plan.aux_idx, value) {
                        self.put(plan, value, value != 0);
                    } else if self.s.pos <= self.place.end {
                        self.keep(field.start)?;
                    }
                    Ok(())
                }
                op::BYTES => self.text::<false>().map(|span| self.put(plan, span, span >> 32 != 0)),
                _ => self.text::<true>().map(|span| self.put(plan, span, span >> 32 != 0)),
            }
        }
    }

    /// A member of a oneof.
    #[inline(never)]
    unsafe fn chosen(&mut self, field: Tagged<'e>, code: u8) -> Result<(), Why> {
        // SAFETY: as in `known`; ten bytes are readable at `pos`.
        unsafe {
            // A value that the closed enum lacks leaves the oneof as it is.
            let value = || varint(self.s.buf.wrapping_add(self.s.pos)).0 as i32;
            if code != op::CLOSED || self.plan.has_value(field.plan.aux_idx, value()) {
                finish::choose(self.plan, &self.s, self.place.type_idx, field.plan);
            }
            if matches!(code, op::MESSAGE | op::GROUP) {
                self.message(field, code)
            } else {
                self.single(field, code)
            }
        }
    }

    /// A message inside this one, or an entry of a map.
    #[inline(always)]
    unsafe fn message(&mut self, field: Tagged<'e>, code: u8) -> Result<(), Why> {
        let number = field.plan.number;
        // SAFETY: as in `known`.
        unsafe {
            match code {
                op::MESSAGE | op::LIST_MESSAGE | op::MAP => {
                    let end = self.length()? + self.s.pos;
                    if code == op::MAP && field.plan.closed_map && !self.entry_is_known(field.plan, end) {
                        self.s.pos = end;
                        return self.keep(field.start);
                    }
                    self.may_descend()?;
                    let child =
                        if code == op::MESSAGE { self.child(field.plan) } else { self.element(field) }?;
                    self.descend(child, end, 0);
                }
                _ => {
                    self.may_descend()?;
                    let child = if code == op::GROUP { self.child(field.plan) } else { self.element(field) }?;
                    self.descend(child, self.place.end, number);
                }
            }
        }
        Ok(())
    }

    unsafe fn entry_is_known(&self, field: &FieldPlan, end: usize) -> bool {
        let len = end - self.s.pos;
        // SAFETY: the entry lies in the input.
        let entry = unsafe { std::slice::from_raw_parts(self.input().add(self.s.pos), len) };
        finish::entry_is_known(self.plan, field, entry)
    }

    /// Elements of a list of scalars or strings, as long as the same tag follows.
    #[inline(always)]
    unsafe fn repeated(&mut self, field: Tagged<'e>, code: u8) -> Result<(), Why> {
        // SAFETY: as in `known`.
        unsafe {
            match code {
                op::LIST_VARINT64 => self.elements(field, |engine| engine.varint()),
                op::LIST_VARINT32 => self.elements(field, |engine| Ok(engine.varint()? as u32)),
                op::LIST_SINT64 => self.elements(field, |engine| Ok(unzigzag(engine.varint()?))),
                op::LIST_SINT32 => {
                    self.elements(field, |engine| Ok(unzigzag(engine.varint()? & 0xffff_ffff) as u32))
                }
                op::LIST_BOOL => self.elements(field, |engine| Ok(u8::from(engine.varint()? != 0))),
                op::LIST_FIXED64 => self.elements(field, |engine| Ok(engine.fixed::<u64>())),
                op::LIST_FIXED32 => self.elements(field, |engine| Ok(engine.fixed::<u32>())),
                op::LIST_BYTES => self.elements(field, |engine| engine.text::<false>()),
                op::LIST_STRING => self.elements(field, |engine| engine.text::<true>()),
                _ => self.closed_element(field),
            }
        }
    }

    /// One element of a list of a closed enum.
    unsafe fn closed_element(&mut self, field: Tagged<'e>) -> Result<(), Why> {
        // SAFETY: as in `known`.
        unsafe {
            let value = self.varint()? as i32;
            if self.s.pos > self.place.end {
                self.s.pos = self.place.end;
                return Err(Why::Truncated);
            }
            if !self.plan.has_value(field.plan.aux_idx, value) {
                return self.keep(field.start);
            }
            let at = self.element(field)?.rec;
            self.s.set_word(at, value as u32);
        }
        Ok(())
    }

    #[inline(always)]
    unsafe fn packed(&mut self, field: Tagged<'e>, shape: u8) -> Result<(), Why> {
        // SAFETY: the run lies in the input.
        unsafe {
            let len = self.length()?;
            self.s.pos += len;
            let input = self.input();
            let outcome =
                packed::run::<ALIAS>(self.plan, &mut self.s, self.arena, field.plan, shape, input, len);
            outcome.map_err(|broken| {
                self.s.pos = broken.offset;
                self.element_idx = broken.element_idx;
                broken.why
            })
        }
    }

    /// Writes a value into its slot, which has this length; presence follows.
    #[inline(always)]
    unsafe fn put<T>(&mut self, field: &FieldPlan, value: T, nonzero: bool) {
        // SAFETY: slot and presence word lie in the record.
        unsafe {
            let rec = self.s.base.add(self.s.rec);
            rec.add(field.slot_off as usize).cast::<T>().write_unaligned(value);
            let word = rec.add(field.presence_off as usize).cast::<u32>();
            if field.implicit && !nonzero {
                *word &= !field.presence_bit;
            } else {
                *word |= field.presence_bit;
            }
        }
    }

    #[inline(always)]
    unsafe fn set_present(&mut self, field: &FieldPlan) {
        // SAFETY: the presence word lies in the record.
        unsafe {
            *self.s.base.add(self.s.rec + field.presence_off as usize).cast::<u32>() |= field.presence_bit
        }
    }

    #[inline(always)]
    unsafe fn varint(&mut self) -> Result<u64, Why> {
        // SAFETY: ten bytes are readable.
        let (value, len) = unsafe {
            let at = self.s.buf.wrapping_add(self.s.pos);
            match u64::from(at.cast::<u16>().read_unaligned()) {
                w if w & 0x80 == 0 => (w & 0x7f, 1),
                w if w & 0x8000 == 0 => (w & 0x7f | w >> 1 & 0x3f80, 2),
                _ => varint(at),
            }
        };
        if len == 0 {
            return Err(Why::Varint);
        }
        self.s.pos += len;
        Ok(value)
    }

    #[inline(always)]
    unsafe fn fixed<T>(&mut self) -> T {
        // SAFETY: eight bytes are readable; `T` is an integer.
        let value = unsafe { self.s.buf.wrapping_add(self.s.pos).cast::<T>().read_unaligned() };
        self.s.pos += size_of::<T>();
        value
    }

    /// A length, held against the end of the message.
    #[inline(always)]
    unsafe fn length(&mut self) -> Result<usize, Why> {
        // SAFETY: eight bytes are readable.
        let (len, taken) = unsafe {
            let at = self.s.buf.wrapping_add(self.s.pos);
            if *at < 0x80 { (u32::from(*at), 1) } else { varint32(at) }
        };
        if taken == 0 || len > i32::MAX as u32 {
            return Err(Why::Varint);
        }
        self.s.pos += taken;
        if len as isize > self.place.end as isize - self.s.pos as isize {
            self.s.pos = self.s.pos.min(self.place.end);
            return Err(Why::Truncated);
        }
        Ok(len as usize)
    }

    /// The bytes of a string, copied or left where they are: its span.
    #[inline(always)]
    unsafe fn text<const UTF8: bool>(&mut self) -> Result<u64, Why> {
        // SAFETY: the length is held against the end; the cursor's invariant gives room for a copy, and 64 bytes.
        unsafe {
            let len = self.length()?;
            steps::take_bytes(len);
            let from = self.s.buf.wrapping_add(self.s.pos);
            let readable = self.s.readable - self.s.pos;
            self.s.pos += len;
            if ALIAS {
                if UTF8 && !utf8::check(from, len, readable) {
                    return Err(Why::Utf8);
                }
                return Ok((HEADER_LEN as usize + self.s.pos - len) as u64 | (len as u64) << 32);
            }
            let to = self.s.base.add(self.s.cur);
            if UTF8 {
                if !utf8::copy_checked::<false>(from, to, len, readable) {
                    return Err(Why::Utf8);
                }
            } else if len <= 32 && readable >= 32 {
                to.cast::<[u64; 4]>().write_unaligned(from.cast::<[u64; 4]>().read_unaligned());
            } else {
                copy::long(from, to, len);
            }
            self.s.cur += len;
            Ok((self.s.cur - len) as u64 | (len as u64) << 32)
        }
    }

    /// The record of a singular message: the one that is there, or a new one.
    #[inline(always)]
    unsafe fn child(&mut self, field: &FieldPlan) -> Result<Child, Why> {
        // SAFETY: the slot holds 0 or the offset of a record.
        unsafe {
            let slot = self.s.rec + field.slot_off as usize;
            let mut child =
                Child { rec: self.s.word(slot) as usize, type_idx: field.aux_idx, element_idx: MERGED };
            if child.rec == 0 {
                self.s.room::<ALIAS>(self.arena, field.elem_len as usize)?;
                child.rec = self.s.take_zeroed(field.elem_len as usize);
                self.s.set_word(slot, child.rec as u32);
                self.set_present(field);
                child.element_idx = SINGULAR;
            }
            Ok(child)
        }
    }

    /// The list's block with room for one more element, the elements it has, and how many it could have.
    #[inline(always)]
    unsafe fn block(&mut self, field: Tagged<'e>) -> Result<(usize, u32, u32), Why> {
        let plan = field.plan;
        // SAFETY: the slot holds 0 or the offset of a block of this field.
        unsafe {
            let slot = self.s.rec + plan.slot_off as usize;
            let mut block = self.s.word(slot) as usize;
            let (count, capacity) =
                if block == 0 { (0, 0) } else { (self.s.word(block), self.s.word(block + 4)) };
            if count < capacity {
                return Ok((block, count, capacity));
            }
            let input = std::slice::from_raw_parts(self.input(), self.s.len);
            let run = run_ahead(input, plan, field.tag, field.start, self.place.end);
            if block == 0 {
                block = first_block::<ALIAS>(&mut self.s, self.arena, plan.elem_len, run)?;
                self.set_present(plan);
            } else {
                block = grow_block::<ALIAS>(&mut self.s, self.arena, plan.elem_len, block, count, run)?;
            }
            self.s.set_word(slot, block as u32);
            Ok((block, count, self.s.word(block + 4)))
        }
    }

    /// One more element of a list: a record, or room for a value.
    #[inline(always)]
    unsafe fn element(&mut self, field: Tagged<'e>) -> Result<Child, Why> {
        // SAFETY: the block has room for it.
        unsafe {
            let (block, count, _) = self.block(field)?;
            self.s.set_word(block, count + 1);
            let rec = block + LIST_HEADER + count as usize * field.plan.elem_len as usize;
            Ok(Child { rec, type_idx: field.plan.aux_idx, element_idx: count })
        }
    }

    /// Elements as long as the same tag follows and the block has room.
    #[inline(always)]
    unsafe fn elements<T>(
        &mut self,
        field: Tagged<'e>,
        mut read: impl FnMut(&mut Self) -> Result<T, Why>,
    ) -> Result<(), Why> {
        // SAFETY: values are written below the block's capacity; before `stop`, 16 bytes are readable.
        unsafe {
            let stop = self.place.end.min(self.switch);
            let tag_mask = field.plan.tag_mask();
            let (block, mut count, capacity) = self.block(field)?;
            let to = self.s.base.add(block + LIST_HEADER).cast::<T>();
            loop {
                steps::take(1);
                let value = match read(self) {
                    Ok(value) => value,
                    Err(why) => {
                        self.s.set_word(block, count);
                        return Err(why);
                    }
                };
                to.add(count as usize).write_unaligned(value);
                count += 1;
                if count == capacity || self.s.pos >= stop || self.place.fields_left == 0 {
                    break;
                }
                if (load64(self.s.buf.wrapping_add(self.s.pos)) ^ field.tag) & tag_mask != 0 {
                    break;
                }
                self.place.fields_left -= 1;
                self.s.pos += field.plan.tag_len as usize;
            }
            self.s.set_word(block, count);
        }
        Ok(())
    }
}

/// Looks a number up that is beyond the type's direct range.
#[cold]
#[inline(never)]
fn sparse(plan: &Plan, type_idx: u32, number: u32) -> u32 {
    plan.field_idx(type_idx, number).filter(|_| number != 0).unwrap_or(NO_FIELD)
}
