//! A list or map of a builder.

use super::BuildError;
use super::edit::{Edit, Spot, is_unconvertible, path, scalar, string, wrong, wrong_kind};
use crate::plan::FieldPlan;
use crate::view::{List, Record, Value};
use tollfree_layout::flat::{LIST_HEADER_LEN, slot_len};
use tollfree_layout::table::{Kind, Label};

/// A list, set or map that is being filled.
pub struct EditList<'d> {
    pub(super) spot: Spot,
    pub(super) field: &'d FieldPlan,
    pub(super) record: Edit<'d>,
    /// Where the elements are; 0 if there is no room for any. The slot leads there as long as there are some.
    pub(super) block: u32,
}

impl std::fmt::Debug for EditList<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.view() {
            Some(list) => list.fmt(f),
            None => f.write_str("[]"),
        }
    }
}

impl EditList<'_> {
    /// What is there by now; none before the first element.
    #[must_use]
    pub fn view(&self) -> Option<List<'_>> {
        match self.record.view().get(self.spot.field_idx)? {
            Value::List(list) | Value::Map(list) => Some(list),
            _ => None,
        }
    }

    /// How many elements there are.
    #[must_use]
    #[inline]
    pub fn len(&self) -> u32 {
        match self.block {
            0 => 0,
            block => self.record.build.word(block),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes room for `more` elements, so that adding them takes no more memory for the list itself.
    ///
    /// # Errors
    /// [`BuildError::Exhausted`]; the list is as it was.
    #[inline]
    pub fn reserve(&mut self, more: u32) -> Result<(), BuildError> {
        let (count, capacity) = self.room();
        let wanted = u64::from(count) + u64::from(more);
        if wanted > u64::from(capacity) { self.grow(count, wanted) } else { Ok(()) }
    }

    /// How many elements there are, and how many have room.
    #[inline(always)]
    fn room(&self) -> (u32, u32) {
        match self.block {
            0 => (0, 0),
            block => self.record.build.span(block),
        }
    }

    /// A block with room for `capacity` elements takes the place of this one.
    #[inline(never)]
    fn grow(&mut self, count: u32, capacity: u64) -> Result<(), BuildError> {
        let elem_len = self.field.elem_len;
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
        let old = self.block;
        let build = &mut *self.record.build;
        let new = build.take_block(capacity, elem_len)?;
        self.block = new;
        if count == 0 {
            return Ok(());
        }
        let used = count as usize * elem_len as usize;
        let from = (old + LIST_HEADER_LEN) as usize;
        build.slot.bytes_mut().copy_within(from..from + used, (new + LIST_HEADER_LEN) as usize);
        build.part(old, LIST_HEADER_LEN as usize + used).fill(0);
        build.set_word(new, count);
        build.set_word(self.record.rec + self.field.slot_off, new);
        Ok(())
    }

    /// The place of one more element, which is not counted yet; and its number.
    #[inline(always)]
    fn next(&mut self) -> Result<(u32, u32), BuildError> {
        let (count, capacity) = self.room();
        if count == capacity {
            self.grow(count, (2 * u64::from(count)).max(4))?;
        }
        Ok((self.block + LIST_HEADER_LEN + count * self.field.elem_len, count))
    }

    /// The element of this number, whose place was the next, is there: it counts, and with the first one the list is there.
    #[inline(always)]
    fn count_one(&mut self, idx: u32) {
        self.record.build.set_word(self.block, idx + 1);
        if idx == 0 {
            self.record.link(self.spot, self.block);
        }
    }

    /// Adds a scalar, which has as many bytes.
    #[inline(always)]
    pub(crate) fn push_scalar<const N: usize>(&mut self, bytes: [u8; N]) -> Result<(), BuildError> {
        let (at, idx) = self.next()?;
        self.record.build.set(at, bytes);
        self.count_one(idx);
        Ok(())
    }

    /// Adds a string or bytes: they are UTF-8 where the schema asks for that.
    #[inline(always)]
    pub(crate) fn push_string(&mut self, bytes: &[u8]) -> Result<(), BuildError> {
        let span = self.record.build.take_bytes(bytes)?;
        let (at, idx) = self.next()?;
        self.record.build.set_span(at, span);
        self.count_one(idx);
        Ok(())
    }

    /// Adds a scalar, string or bytes, or a copy of a message, all below included.
    ///
    /// # Errors
    /// [`BuildError`]; the list is as it was.
    pub fn push(&mut self, value: Value<'_>) -> Result<(), BuildError> {
        let field = self.field;
        match field.kind {
            Kind::Message => {
                let Value::Message(record) = value else {
                    return Err(wrong_kind(self.record.plan, self.record.type_idx, field, value));
                };
                let mut element = self.element()?;
                if let Err(error) = element.copy_from(record) {
                    self.pop();
                    return Err(error);
                }
                Ok(())
            }
            kind @ (Kind::String | Kind::Bytes) => {
                let Some(bytes) = string(kind, value) else {
                    return Err(wrong_kind(self.record.plan, self.record.type_idx, field, value));
                };
                if is_unconvertible(field, bytes) {
                    let path = path(self.record.plan, self.record.type_idx, field);
                    return Err(BuildError::Utf8 { path });
                }
                self.push_string(bytes)
            }
            kind => {
                let Some(bits) = scalar(kind, value) else {
                    return Err(wrong_kind(self.record.plan, self.record.type_idx, field, value));
                };
                let bytes = bits.to_le_bytes();
                match (slot_len(kind, false), bytes) {
                    (1, [one, ..]) => self.push_scalar([one]),
                    (2, [one, two, ..]) => self.push_scalar([one, two]),
                    (4, [one, two, three, four, ..]) => self.push_scalar([one, two, three, four]),
                    _ => self.push_scalar(bytes),
                }
            }
        }
    }

    /// Adds an empty message and gives it to be filled. (To a map [`EditList::entry`] adds.)
    ///
    /// # Errors
    /// [`BuildError`]; the list is as it was.
    pub fn push_message(&mut self) -> Result<Edit<'_>, BuildError> {
        if self.field.kind != Kind::Message || self.field.label == Label::Map {
            return Err(wrong(self.record.plan, self.record.type_idx, self.field, "a message"));
        }
        self.element()
    }

    /// One more record.
    #[inline]
    pub(crate) fn element(&mut self) -> Result<Edit<'_>, BuildError> {
        let (field, depth) = (self.field, self.depth()?);
        let (rec, idx) = self.next()?;
        self.count_one(idx);
        let Edit { plan, build, .. } = &mut self.record;
        build.maps_grew |= field.label == Label::Map;
        Ok(Edit { plan, build, rec, type_idx: field.aux_idx, depth })
    }

    #[inline(always)]
    fn depth(&self) -> Result<u32, BuildError> {
        if self.record.depth >= crate::processor::DEEPEST {
            return Err(self.record.too_deep(self.spot.field_idx));
        }
        Ok(self.record.depth + 1)
    }

    /// The message at `idx`, to be changed.
    ///
    /// # Errors
    /// [`BuildError::Kind`] if it is no list of messages.
    ///
    /// # Panics
    /// If there is no such element, as a slice does.
    pub fn message(&mut self, idx: u32) -> Result<Edit<'_>, BuildError> {
        let (field, depth) = (self.field, self.depth()?);
        if field.kind != Kind::Message {
            return Err(wrong(self.record.plan, self.record.type_idx, field, "a message"));
        }
        assert!(idx < self.len(), "the list has {} elements, not one at {idx}", self.len());
        let rec = self.block + LIST_HEADER_LEN + idx * field.elem_len;
        let Edit { plan, build, .. } = &mut self.record;
        Ok(Edit { plan, build, rec, type_idx: field.aux_idx, depth })
    }

    /// A map's entry of this key, whose value is zero or empty and to be set: [`Edit::set`], [`Edit::message`] or [`Edit::list`] with 1.
    /// It takes the place of what the map has for the key by the time it is frozen.
    ///
    /// # Errors
    /// [`BuildError`]; the map is as it was.
    pub fn entry(&mut self, key: Value<'_>) -> Result<Edit<'_>, BuildError> {
        if self.field.label != Label::Map {
            return Err(wrong(self.record.plan, self.record.type_idx, self.field, "a map's entry"));
        }
        let mut entry = self.element()?;
        if let Err(error) = entry.set(0, key).and_then(|()| entry.set_empty(1)) {
            self.pop();
            return Err(error);
        }
        self.message(self.len() - 1)
    }

    /// Gives a map a value for a key, in place of the one that it has by the time it is frozen.
    ///
    /// # Errors
    /// [`BuildError`]; the map is as it was.
    pub fn insert(&mut self, key: Value<'_>, value: Value<'_>) -> Result<(), BuildError> {
        self.insert_by(|entry| {
            entry.set(0, key)?;
            entry.set(1, value)
        })
    }

    /// Adds an entry, whose key and value `put` sets.
    #[inline(always)]
    pub(crate) fn insert_by(
        &mut self,
        put: impl FnOnce(&mut Edit<'_>) -> Result<(), BuildError>,
    ) -> Result<(), BuildError> {
        if self.field.label != Label::Map {
            return Err(wrong(self.record.plan, self.record.type_idx, self.field, "a map's entry"));
        }
        let mut entry = self.element()?;
        // A value that is nothing is there all the same.
        if let Err(error) = put(&mut entry).and_then(|()| entry.set_empty(1)) {
            self.pop();
            return Err(error);
        }
        Ok(())
    }

    /// Removes the last element, if there is one.
    pub fn pop(&mut self) {
        let Some(last) = self.len().checked_sub(1) else { return };
        let (block, field) = (self.block, self.field);
        let at = block + LIST_HEADER_LEN + last * field.elem_len;
        let Edit { plan, build, .. } = &mut self.record;
        match field.kind {
            Kind::Message => build.erase_record(plan, at, field.aux_idx),
            Kind::String | Kind::Bytes => build.erase_span(at),
            _ => {}
        }
        build.part(at, field.elem_len as usize).fill(0);
        build.set_word(block, last);
        if last == 0 {
            self.record.unlink(field);
        }
    }

    /// Adds copies of all elements of another list of the same field or type.
    ///
    /// # Errors
    /// [`BuildError`]; of the elements, those before the one that failed were added.
    pub fn extend(&mut self, list: List<'_>) -> Result<(), BuildError> {
        self.reserve(list.len())?;
        list.iter().try_for_each(|value| self.push(value))
    }

    /// What the record around it holds by now.
    #[must_use]
    pub fn record(&self) -> Record<'_> {
        self.record.view()
    }
}
