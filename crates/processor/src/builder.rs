//! Builders: objects that are built from the top down, in an arena that grows.
//!
//! A builder is a sound object at any time: a piece is complete before a slot leads to it, so what fails on the way (no room,
//! a value of another kind) leaves the builder as it was, but for room that nothing leads to. What is replaced or cleared is
//! overwritten with zeroes, for nobody shall find it in the finished object's gaps. There is no unsafe code here: a mistake
//! would be a panic, and the objects that the tests build are verified.

mod copy;
mod edit;
mod list;

pub use edit::Edit;
pub(crate) use edit::Spot;
pub use list::EditList;

use crate::arenas::Slot;
use crate::owned::OwnedObject;
use crate::plan::{FieldPlan, Plan, ones};
use crate::processor::Processor;
use std::collections::HashSet;
use thiserror::Error;
use tollfree_layout::flat::{
    ALIGN, HEADER_LEN, Header, LIST_HEADER_LEN, MAX_OBJECT_LEN, MAX_STRING_LEN, PRESENCE_BITS, PRESENCE_OFF,
    SPAN_LEN, slot_len,
};
use tollfree_layout::table::{Kind, Label};

/// Entries of a map whose keys are compared without help.
const FEW: usize = 8;

/// Why something was not put into a builder. The builder is as it was, and can be gone on with.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The table has no such type.
    #[error("the table has no type {type_idx}")]
    UnknownType {
        /// Index that was asked for.
        type_idx: u32,
    },
    /// The type has no such field.
    #[error("{type_name} has no field at place {field_idx}")]
    UnknownField {
        /// Full name of the type.
        type_name: String,
        /// Place that was asked for.
        field_idx: u32,
    },
    /// The field holds something else.
    #[error("{path} is {label:?} {kind:?} and does not take {value}")]
    Kind {
        /// Type and field.
        path: String,
        /// What the table says that it holds.
        kind: Kind,
        /// Whether it is a list or map.
        label: Label,
        /// What was to be put there.
        value: &'static str,
    },
    /// A string that the schema wants to be UTF-8 is not.
    #[error("{path} takes UTF-8, and the string is not")]
    Utf8 {
        /// Type and field.
        path: String,
    },
    /// A record of another type, or of another processor's table, was to be copied here.
    #[error("{path}: only a record of the same processor and type can be copied, this one is a {found}")]
    Foreign {
        /// Type, and field if it is one's.
        path: String,
        /// Full name of the record's type.
        found: String,
    },
    /// Messages are nested deeper than any reader goes.
    #[error("{path}: messages nest deeper than {limit} levels")]
    Depth {
        /// Type and field.
        path: String,
        /// The most levels.
        limit: u32,
    },
    /// The arena has no room left: raise its limit, or give up.
    #[error("the builder's arena is exhausted: {need} bytes are needed, its limit is {limit}")]
    Exhausted {
        /// Bytes that it would have to have.
        need: usize,
        /// Its limit, or the length of the memory that was lent.
        limit: usize,
    },
}

/// Copies a string to where there is room for just that. Most are short: for those a call of `memcpy` would take longer than
/// the copying.
#[inline(always)]
fn copy_string(to: &mut [u8], from: &[u8]) {
    #[inline(always)]
    fn ends<const N: usize>(to: &mut [u8], from: &[u8]) -> Option<()> {
        *to.first_chunk_mut::<N>()? = *from.first_chunk()?;
        *to.last_chunk_mut::<N>()? = *from.last_chunk()?;
        Some(())
    }
    let copied = match from.len() {
        4..8 => ends::<4>(to, from),
        8..16 => ends::<8>(to, from),
        16..=32 => ends::<16>(to, from),
        _ => None,
    };
    if copied.is_none() {
        to.copy_from_slice(from);
    }
}

/// The memory of a builder: what lies below `cur` is in use.
struct Build {
    slot: Slot,
    cur: usize,
    /// How far the memory goes.
    room: u64,
    /// A map was added to without looking which keys it has.
    maps_grew: bool,
}

impl Build {
    fn bytes(&self) -> &[u8] {
        &self.slot.bytes()[..self.cur]
    }

    /// The `len` bytes at `at`.
    #[inline(always)]
    fn part(&mut self, at: u32, len: usize) -> &mut [u8] {
        &mut self.slot.bytes_mut()[at as usize..][..len]
    }

    /// The record at `rec`, and what lies behind it.
    #[inline(always)]
    fn record(&mut self, rec: u32) -> &mut [u8] {
        &mut self.slot.bytes_mut()[rec as usize..]
    }

    #[inline(always)]
    fn word(&self, at: u32) -> u32 {
        let bytes = self.slot.bytes()[at as usize..].first_chunk().copied();
        u32::from_le_bytes(bytes.unwrap_or_default())
    }

    #[inline(always)]
    fn set<const N: usize>(&mut self, at: u32, bytes: [u8; N]) {
        self.part(at, N).copy_from_slice(&bytes);
    }

    #[inline(always)]
    fn set_word(&mut self, at: u32, value: u32) {
        self.set(at, value.to_le_bytes());
    }

    #[inline(always)]
    fn span(&self, at: u32) -> (u32, u32) {
        let bytes = self.slot.bytes()[at as usize..].first_chunk().copied();
        let span = u64::from_le_bytes(bytes.unwrap_or_default());
        (span as u32, (span >> 32) as u32)
    }

    #[inline(always)]
    fn set_span(&mut self, at: u32, (off, len): (u32, u32)) {
        self.set(at, (u64::from(off) | u64::from(len) << 32).to_le_bytes());
    }

    /// The string whose span lies at `at`.
    fn string(&self, at: u32) -> &[u8] {
        let (off, len) = self.span(at);
        &self.slot.bytes()[off as usize..][..len as usize]
    }

    /// All memory, of which there are at least `end` bytes.
    #[inline(always)]
    fn memory(&mut self, end: u64) -> Result<&mut [u8], BuildError> {
        if end > self.room {
            self.reserve(end)?;
        }
        Ok(self.slot.bytes_mut())
    }

    #[cold]
    #[inline(never)]
    fn reserve(&mut self, end: u64) -> Result<(), BuildError> {
        let limit = self.slot.limit();
        let need = usize::try_from(end).unwrap_or(usize::MAX);
        if end > u64::from(MAX_OBJECT_LEN) || self.slot.reserve(need).is_none() {
            return Err(BuildError::Exhausted { need, limit });
        }
        self.room = self.room_now();
        Ok(())
    }

    /// How far the memory goes that there is.
    fn room_now(&self) -> u64 {
        (self.slot.bytes().len() as u64).min(MAX_OBJECT_LEN.into())
    }

    /// Zeroed bytes for a record or block.
    #[inline]
    fn take(&mut self, len: u64) -> Result<u32, BuildError> {
        let cur = self.cur;
        let at = cur.next_multiple_of(ALIGN as usize);
        let end = (at as u64 + len).next_multiple_of(u64::from(ALIGN));
        self.memory(end)?[cur..end as usize].fill(0);
        self.cur = end as usize;
        Ok(at as u32)
    }

    /// A string's bytes in a place of their own.
    #[inline(always)]
    fn take_bytes(&mut self, bytes: &[u8]) -> Result<(u32, u32), BuildError> {
        let (at, end) = (self.cur, self.cur as u64 + bytes.len() as u64);
        if bytes.len() > MAX_STRING_LEN as usize {
            return Err(BuildError::Exhausted { need: bytes.len(), limit: MAX_STRING_LEN as usize });
        }
        copy_string(&mut self.memory(end)?[at..end as usize], bytes);
        self.cur = end as usize;
        Ok((at as u32, bytes.len() as u32))
    }

    /// A block for `capacity` elements.
    fn take_block(&mut self, capacity: u32, elem_len: u32) -> Result<u32, BuildError> {
        let len = u64::from(LIST_HEADER_LEN) + u64::from(capacity) * u64::from(elem_len);
        let block = self.take(len)?;
        self.set_word(block + 4, capacity);
        Ok(block)
    }

    /// Overwrites what a field that is present has, below its slot.
    fn erase(&mut self, plan: &Plan, rec: u32, type_idx: u32, field_idx: u32) {
        let field = &plan.fields_of(type_idx)[field_idx as usize];
        let slot = rec + field.slot_off;
        match (field.kind, field.label.is_list()) {
            (Kind::String | Kind::Bytes, false) => self.erase_span(slot),
            (Kind::Message, false) => {
                let child = self.word(slot);
                self.erase_record(plan, child, field.aux_idx);
            }
            (kind, true) => {
                let (block, elem_len) = (self.word(slot), field.elem_len);
                for idx in 0..self.word(block) {
                    let at = block + LIST_HEADER_LEN + idx * elem_len;
                    match kind {
                        Kind::String | Kind::Bytes => self.erase_span(at),
                        Kind::Message => self.erase_record(plan, at, field.aux_idx),
                        _ => {}
                    }
                }
                let used = self.word(block) as usize * elem_len as usize;
                self.part(block, LIST_HEADER_LEN as usize + used).fill(0);
            }
            _ => {}
        }
    }

    fn erase_span(&mut self, at: u32) {
        let (off, len) = self.span(at);
        self.part(off, len as usize).fill(0);
    }

    /// Overwrites a record and all below it.
    fn erase_record(&mut self, plan: &Plan, rec: u32, type_idx: u32) {
        for (word_idx, check) in (0..).zip(plan.checks_of(type_idx)) {
            for bit in ones(self.word(rec + PRESENCE_OFF + 4 * word_idx) & check.fields) {
                self.erase(plan, rec, type_idx, PRESENCE_BITS * word_idx + bit);
            }
        }
        let unknown = self.word(rec);
        if unknown != 0 {
            for idx in 0..self.word(unknown) {
                self.erase_span(unknown + LIST_HEADER_LEN + idx * SPAN_LEN);
            }
        }
        self.part(rec, plan.types[type_idx as usize].record_len as usize).fill(0);
    }

    /// Leaves the last entry of each key in all maps at and below the record whose keys can be compared.
    fn settle_maps(&mut self, plan: &Plan, rec: u32, type_idx: u32) {
        if !plan.types[type_idx as usize].reaches_maps {
            return;
        }
        for (word_idx, check) in (0..).zip(plan.checks_of(type_idx)) {
            for bit in ones(self.word(rec + PRESENCE_OFF + 4 * word_idx) & check.pieces) {
                self.settle_below(
                    plan,
                    rec,
                    &plan.fields_of(type_idx)[(PRESENCE_BITS * word_idx + bit) as usize],
                );
            }
        }
    }

    /// The same in what a field leads to that is present.
    fn settle_below(&mut self, plan: &Plan, rec: u32, field: &FieldPlan) {
        if field.kind != Kind::Message
            || !plan.types[field.aux_idx as usize].reaches_maps && field.label != Label::Map
        {
            return;
        }
        let at = self.word(rec + field.slot_off);
        if !field.label.is_list() {
            return self.settle_maps(plan, at, field.aux_idx);
        }
        if field.label == Label::Map {
            self.settle_map(plan, at, field.aux_idx, field.elem_len);
        }
        for idx in 0..self.word(at) {
            self.settle_maps(plan, at + LIST_HEADER_LEN + idx * field.elem_len, field.aux_idx);
        }
    }

    fn settle_map(&mut self, plan: &Plan, block: u32, entry_idx: u32, stride: u32) {
        let [key, ..] = plan.fields_of(entry_idx) else { return };
        if key.kind == Kind::Message || key.label.is_list() {
            return;
        }
        let entry = |idx: u32| block + LIST_HEADER_LEN + idx * stride;
        let count = self.word(block);
        let is_text = !key.kind.is_scalar();
        let value_len = slot_len(key.kind, false) as usize;
        let key_of = |idx: u32| {
            let slot = entry(idx) + key.slot_off;
            // An absent key is the default.
            let is_there = self.word(entry(idx) + key.presence_off) & key.presence_bit != 0;
            match (is_there, is_text) {
                (true, true) => self.string(slot),
                (true, false) => &self.slot.bytes()[slot as usize..][..value_len],
                (false, true) => &[],
                (false, false) => &[0; 8][..value_len],
            }
        };
        // Among a few it is quicker to compare each with each.
        if count as usize <= FEW {
            let mut keys = [&[][..]; FEW];
            (0..count).for_each(|idx| keys[idx as usize] = key_of(idx));
            let keys = &keys[..count as usize];
            if keys.iter().enumerate().all(|(idx, key)| !keys[..idx].contains(key)) {
                return;
            }
        }
        let mut seen = HashSet::with_capacity(count as usize);
        let mut kept: Vec<u32> = Vec::with_capacity(count as usize);
        for idx in (0..count).rev() {
            if seen.insert(key_of(idx)) {
                kept.push(idx);
            }
        }
        drop(seen);
        if kept.len() == count as usize {
            return;
        }
        for idx in (0..count).filter(|idx| kept.binary_search_by(|kept| idx.cmp(kept)).is_err()) {
            self.erase_record(plan, entry(idx), entry_idx);
        }
        for (to, from) in (0..).zip(kept.iter().rev()) {
            let from = entry(*from) as usize;
            self.slot.bytes_mut().copy_within(from..from + stride as usize, entry(to) as usize);
        }
        let left = kept.len() as u32;
        self.part(entry(left), ((count - left) * stride) as usize).fill(0);
        self.set_word(block, left);
    }
}

/// A message that is being built: see [`Processor::builder`].
///
/// ```
/// # use tollfree_processor::{Arenas, Field, Processor};
/// # fn answer(processor: &Processor, arenas: &Arenas) -> Result<(), Box<dyn std::error::Error>> {
/// let reply_idx = processor.type_by_name("helloworld.HelloReply").ok_or("no such type")?;
/// let message: Field<&'static str> = processor.field(reply_idx, "message")?;
/// let mut builder = processor.builder(reply_idx, arenas.take())?;
/// builder.edit().write(&message, "hello")?;
/// let reply = builder.freeze()?;
/// assert_eq!(reply.object().root().read(&message), Some("hello"));
/// # Ok(())
/// # }
/// ```
pub struct ObjectBuilder {
    processor: Processor,
    build: Build,
    root: u32,
    type_idx: u32,
}

impl std::fmt::Debug for ObjectBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.processor.plan.table.types()[self.type_idx as usize].name;
        write!(f, "ObjectBuilder({}, {} bytes)", self.processor.plan.table.text(name), self.build.cur)
    }
}

impl Processor {
    /// An empty message of type `type_idx`, to be filled in the slot's arena.
    ///
    /// # Errors
    /// [`BuildError::UnknownType`], or [`BuildError::Exhausted`] if not even the empty message fits.
    pub fn builder(&self, type_idx: u32, slot: impl Into<Slot>) -> Result<ObjectBuilder, BuildError> {
        let Some(plan_type) = self.plan.types.get(type_idx as usize) else {
            return Err(BuildError::UnknownType { type_idx });
        };
        let mut build = Build { slot: slot.into(), cur: HEADER_LEN as usize, room: 0, maps_grew: false };
        build.slot.begin();
        build.room = build.room_now();
        let root = build.take(plan_type.record_len.into())?;
        Ok(ObjectBuilder { processor: self.clone(), build, root, type_idx })
    }
}

impl ObjectBuilder {
    /// The message itself.
    #[must_use]
    #[inline]
    pub fn edit(&mut self) -> Edit<'_> {
        Edit {
            plan: &self.processor.plan,
            build: &mut self.build,
            rec: self.root,
            type_idx: self.type_idx,
            depth: 0,
        }
    }

    /// Bytes that the object has by now.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there is always a root record")]
    pub fn len(&self) -> usize {
        self.build.cur
    }

    /// The finished object. Of entries of a map that have the same key the last one stays.
    ///
    /// # Errors
    /// [`BuildError::Exhausted`] if it does not fit into the memory that was lent to the arena.
    pub fn freeze(mut self) -> Result<OwnedObject, BuildError> {
        let (plan, build) = (&self.processor.plan, &mut self.build);
        if build.maps_grew {
            build.settle_maps(plan, self.root, self.type_idx);
        }
        let object_len = (build.cur as u32).next_multiple_of(ALIGN);
        if object_len as usize > build.cur {
            build.take(0)?;
        }
        if !build.slot.settle(object_len as usize) {
            return Err(BuildError::Exhausted { need: object_len as usize, limit: build.slot.lent_len() });
        }
        let header = Header { object_len, root_off: self.root, fingerprint: plan.fingerprint(self.type_idx) };
        build.part(0, HEADER_LEN as usize).copy_from_slice(&header.to_bytes());
        Ok(OwnedObject::made(&self.processor, self.build.slot, object_len, self.root, self.type_idx))
    }
}
