//! Copying a record and all below it from another object, block by block.
//!
//! Within one table nothing is decoded: a record is copied as a whole, then what its slots lead to, and the slots are set
//! to where that lies now. What is copied is not linked to the builder until all of it is there.

use super::edit::path;
use super::{Build, BuildError};
use crate::plan::{FieldPlan, Plan};
use crate::processor::DEEPEST;
use crate::view::{List, Record};
use tollfree_layout::flat::{LIST_HEADER_LEN, PRESENCE_OFF, SPAN_LEN};
use tollfree_layout::table::Kind;

/// The object that is copied from.
#[derive(Clone, Copy)]
struct From<'s> {
    plan: &'s Plan,
    bytes: &'s [u8],
}

impl From<'_> {
    #[inline(always)]
    fn word(self, at: u32) -> u32 {
        let bytes = self.bytes[at as usize..].first_chunk().copied();
        u32::from_le_bytes(bytes.unwrap_or_default())
    }

    #[inline(always)]
    fn part(&self, at: u32, len: u32) -> &[u8] {
        &self.bytes[at as usize..][..len as usize]
    }
}

impl Build {
    /// A copy of the record, which is of this plan, as it is `depth` levels below the root.
    pub(super) fn copied(&mut self, plan: &Plan, record: Record<'_>, depth: u32) -> Result<u32, BuildError> {
        let to = self.take(plan.types[record.type_idx as usize].record_len.into())?;
        let from = From { plan, bytes: record.bytes };
        self.fill(from, record.off, to, record.type_idx, depth)?;
        Ok(to)
    }

    /// A copy of the list, whose elements are `depth` levels below the root; none of an empty one. It must be of a field
    /// like this one.
    pub(super) fn copied_list(
        &mut self,
        plan: &Plan,
        type_idx: u32,
        field: &FieldPlan,
        list: List<'_>,
        depth: u32,
    ) -> Result<Option<u32>, BuildError> {
        let source = list.field;
        let is_like = std::ptr::eq(list.plan, plan)
            && (source.kind, source.label, source.elem_len, source.is_text())
                == (field.kind, field.label, field.elem_len, field.is_text())
            && (field.kind != Kind::Message || source.aux_idx == field.aux_idx);
        if !is_like {
            let found = format!("list of {:?}", source.kind);
            return Err(BuildError::Foreign { path: path(plan, type_idx, field), found });
        }
        if list.is_empty() {
            return Ok(None);
        }
        self.block(From { plan, bytes: list.bytes }, field, list.block, depth).map(Some)
    }

    /// Copies the record at `rec` to `to`, and what it leads to. Until this is done, nothing may lead to `to`.
    fn fill(
        &mut self,
        from: From<'_>,
        rec: u32,
        to: u32,
        type_idx: u32,
        depth: u32,
    ) -> Result<(), BuildError> {
        let plan = from.plan;
        if depth > DEEPEST {
            let path = crate::fault::path(plan, type_idx, &[]);
            return Err(BuildError::Depth { path, limit: DEEPEST });
        }
        let t = &plan.types[type_idx as usize];
        self.part(to, t.record_len as usize).copy_from_slice(from.part(rec, t.record_len));
        let unknown = from.word(rec);
        if unknown != 0 {
            let copy = self.spans(from, unknown)?;
            self.set_word(to, copy);
        }
        let fields = plan.fields_of(type_idx);
        let first = (t.last_word + 1 - t.presence_words) as usize;
        for word_idx in 0..t.presence_words {
            let check = plan.checks[first + word_idx as usize];
            let present = from.word(rec + PRESENCE_OFF + 4 * word_idx);
            let own = &fields[32 * word_idx as usize..];
            let mut bits = present & (check.texts | check.spans);
            while bits != 0 {
                let slot = own[bits.trailing_zeros() as usize].slot_off;
                bits &= bits - 1;
                let span = self.take_bytes(from.part(from.word(rec + slot), from.word(rec + slot + 4)))?;
                self.set_span(to + slot, span);
            }
            let mut bits = present & check.pieces;
            while bits != 0 {
                let field = &own[bits.trailing_zeros() as usize];
                bits &= bits - 1;
                let at = from.word(rec + field.slot_off);
                let copy = if field.label.is_list() {
                    self.block(from, field, at, depth + u32::from(field.kind == Kind::Message))?
                } else {
                    let copy = self.take(field.elem_len.into())?;
                    self.fill(from, at, copy, field.aux_idx, depth + 1)?;
                    copy
                };
                self.set_word(to + field.slot_off, copy);
            }
        }
        Ok(())
    }

    /// A copy of the block at `block`, as long as it has elements.
    fn block(
        &mut self,
        from: From<'_>,
        field: &FieldPlan,
        block: u32,
        depth: u32,
    ) -> Result<u32, BuildError> {
        if matches!(field.kind, Kind::String | Kind::Bytes) {
            return self.spans(from, block);
        }
        let count = from.word(block);
        let copy = self.take_block(count, field.elem_len)?;
        self.set_word(copy, count);
        let (source, target) = (block + LIST_HEADER_LEN, copy + LIST_HEADER_LEN);
        if field.kind != Kind::Message {
            let len = count * field.elem_len;
            self.part(target, len as usize).copy_from_slice(from.part(source, len));
            return Ok(copy);
        }
        for idx in 0..count {
            let off = idx * field.elem_len;
            self.fill(from, source + off, target + off, field.aux_idx, depth)?;
        }
        Ok(copy)
    }

    /// A copy of a block of strings.
    fn spans(&mut self, from: From<'_>, block: u32) -> Result<u32, BuildError> {
        let count = from.word(block);
        let copy = self.take_block(count, SPAN_LEN)?;
        for idx in 0..count {
            let at = block + LIST_HEADER_LEN + idx * SPAN_LEN;
            let span = self.take_bytes(from.part(from.word(at), from.word(at + 4)))?;
            self.set_span(copy + LIST_HEADER_LEN + idx * SPAN_LEN, span);
        }
        self.set_word(copy, count);
        Ok(copy)
    }
}
