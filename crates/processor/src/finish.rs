//! Hot module: what is seen to when a record is complete, and when a oneof changes its member.
//!
//! All unsafe code here relies on what the engine that calls it keeps up (`decode`, `thrift::decode`): the record and all
//! below it lie under `cur` in the arena; slots, presence words and tag words lie in their record (the table's loader
//! has checked the rows); a slot holds 0, or the offset of what its row says. Only types that protobuf has a form for come
//! here (`Plan::new` marks the others): an entry's key is a scalar or a string, not a container. Wrong offsets would be
//! noticed by the tests of maps, oneofs and required fields in `tests/suite/protobuf.rs`, which verify every object, and by
//! the fuzz targets `protobuf` and `table`.

use crate::arena::Arena;
use crate::decode::{Frame, SINGULAR};
use crate::fault::{self, Step, Why};
use crate::list::Cursor;
use crate::plan::{FieldPlan, Plan, TypePlan, finish, ones, op};
use crate::{tail, utf8, varint};
use std::collections::HashSet;
use tollfree_layout::flat::{LIST_HEADER_LEN, PRESENCE_BITS, PRESENCE_OFF, slot_len};
use tollfree_layout::steps;
use tollfree_layout::table::Kind;

const LIST_HEADER: usize = LIST_HEADER_LEN as usize;

/// Makes `field` the member of its oneof that is set: clears another one, and its slot.
///
/// # Safety
/// The record at `s.rec` is of type `type_idx`, and `field` is a oneof's member in it.
#[inline(never)]
pub(crate) unsafe fn choose(plan: &Plan, s: &Cursor, type_idx: u32, field: &FieldPlan) {
    let tag = s.rec + field.oneof_off as usize;
    // SAFETY: tag word, presence words and slots lie in the record (checked by the table's loader).
    unsafe {
        let old = s.word(tag);
        if old == field.number {
            return;
        }
        if let Some(idx) = plan.field_idx(type_idx, old).filter(|_| old != 0) {
            let row = plan.table.fields_of(type_idx)[idx as usize];
            let other = &plan.fields_of(type_idx)[idx as usize];
            let len = slot_len(row.kind, row.label.is_list()) as usize;
            s.base.add(s.rec + row.slot_off as usize).write_bytes(0, len);
            let word = s.rec + other.presence_off as usize;
            s.set_word(word, s.word(word) & !other.presence_bit);
        }
        s.set_word(tag, field.number);
    }
}

/// Whether a closed enum has the value of this entry of a map. An entry that is malformed, or whose key is not UTF-8, counts as
/// known: decoding it reports the error.
pub(crate) fn entry_is_known(plan: &Plan, map: &FieldPlan, entry: &[u8]) -> bool {
    let [key_field, value_field, ..] = plan.fields_of(map.aux_idx) else { return true };
    let is_text = key_field.ops[2] == op::STRING;
    let (mut at, mut known) = (0, true);
    while at < entry.len() {
        let (tag, len) = varint::from_slice(&entry[at..]);
        let (number, wire_type) = ((tag >> 3) as u32, (tag & 7) as u32);
        if len == 0 || tag > u64::from(u32::MAX) {
            return true;
        }
        at += len;
        if number == 2 && wire_type == 0 {
            let (value, len) = varint::from_slice(&entry[at..]);
            known = len == 0 || plan.has_value(value_field.aux_idx, value as i32);
        }
        if number == 1 && wire_type == 2 && is_text {
            let (len, len_len) = varint::from_slice(&entry[at..]);
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            if !utf8::is_text(entry, at + len_len, len) {
                return true;
            }
        }
        let Ok(next) = tail::skip(entry, at, entry.len(), number, wire_type, 100) else { return true };
        at = next;
    }
    known
}

/// Completes the record at `s.rec`: a map entry has both its fields, a map each key once; notes whether a required field is
/// missing. What a `merged` record has is looked at once, when all is read: merging costs two bytes, a look as many steps as the
/// type has words or the maps have entries.
///
/// # Safety
/// The cursor's invariant; the record is of type `type_idx`.
#[inline(never)]
pub(crate) unsafe fn record<const ALIAS: bool>(
    plan: &Plan,
    s: &mut Cursor,
    arena: &mut Arena<'_>,
    type_idx: u32,
    merged: bool,
    missing: &mut bool,
) -> Result<(), Why> {
    let plan_type = &plan.types[type_idx as usize];
    // SAFETY: the caller's promises; offsets come from the plan.
    unsafe {
        if plan_type.finish & finish::MAP_ENTRY != 0 {
            for field in plan.fields_of(type_idx) {
                let slot = s.rec + field.slot_off as usize;
                if matches!(field.encode, op::MESSAGE | op::GROUP) && s.word(slot) == 0 {
                    s.room::<ALIAS>(arena, field.elem_len as usize)?;
                    let empty = s.take_zeroed(field.elem_len as usize);
                    s.set_word(slot, empty as u32);
                    // An empty value that lacks required fields.
                    *missing |= plan.types[field.aux_idx as usize].reaches_required;
                }
                if field.encode < op::LIST {
                    let word = s.rec + field.presence_off as usize;
                    s.set_word(word, s.word(word) | field.presence_bit);
                }
            }
        }
        if plan_type.finish & finish::MAPS != 0 && !merged {
            maps(plan, s, type_idx, s.rec);
        }
        if plan_type.finish & finish::REQUIRED != 0 {
            *missing |= merged || first_missing(plan, s.base, type_idx, s.rec).is_some();
        }
    }
    Ok(())
}

/// Leaves the last entry of each key in the maps of one record.
unsafe fn maps(plan: &Plan, s: &Cursor, type_idx: u32, rec: usize) {
    for field in plan.maps_of(type_idx) {
        steps::take(1);
        // SAFETY: the slot of a map holds 0 or the offset of a block of entries.
        unsafe {
            let block = s.word(rec + field.slot_off as usize) as usize;
            if block != 0 {
                last_of_each_key(plan, s, field, block);
            }
        }
    }
}

/// Leaves the last entry of each key in every map of the object below `rec`.
///
/// # Safety
/// `rec` is a complete record of type `type_idx`; records nest at most as deep as frames ever did.
pub(crate) unsafe fn all_maps(plan: &Plan, s: &Cursor, type_idx: u32, rec: usize) {
    // SAFETY: presence bits are set only for slots that hold a record's or a block's offset.
    unsafe {
        maps(plan, s, type_idx, rec);
        each_child(
            plan,
            s.base,
            type_idx,
            rec,
            |plan| plan.reaches_maps,
            |child| {
                all_maps(plan, s, child.type_idx, child.rec);
                None::<()>
            },
        );
    }
}

/// A record inside another.
struct Child {
    rec: usize,
    type_idx: u32,
    /// The outer type's field, and which element of it if it is a list.
    field_idx: u32,
    element_idx: Option<u32>,
}

/// Shows `each` the records inside a record whose types are `wanted`, by ascending number, until it gives something. It looks at no more than
/// the record's presence words and what they have: a type may have many more fields than that.
///
/// # Safety
/// `rec` is a complete record of type `type_idx` of the object at `base`.
unsafe fn each_child<T>(
    plan: &Plan,
    base: *const u8,
    type_idx: u32,
    rec: usize,
    wanted: fn(&TypePlan) -> bool,
    mut each: impl FnMut(Child) -> Option<T>,
) -> Option<T> {
    // SAFETY: presence bits are set only for slots that hold a record's or a block's offset.
    let word = |at: usize| unsafe { base.add(at).cast::<u32>().read_unaligned() };
    for (word_idx, check) in (0u32..).zip(plan.checks_of(type_idx)) {
        let present = word(rec + (PRESENCE_OFF + 4 * word_idx) as usize);
        for bit in ones(present & check.pieces) {
            let field_idx = PRESENCE_BITS * word_idx + bit;
            let field = &plan.fields_of(type_idx)[field_idx as usize];
            if field.kind != Kind::Message || !wanted(&plan.types[field.aux_idx as usize]) {
                continue;
            }
            let slot = word(rec + field.slot_off as usize) as usize;
            let list = field.label.is_list();
            let (first, count) = if list { (slot + LIST_HEADER, word(slot)) } else { (slot, 1) };
            for idx in 0..count {
                let rec = first + idx as usize * field.elem_len as usize;
                let child =
                    Child { rec, type_idx: field.aux_idx, field_idx, element_idx: list.then_some(idx) };
                let found = each(child);
                if found.is_some() {
                    return found;
                }
            }
        }
    }
    None
}

/// The bytes by which keys of a map are compared.
unsafe fn key<'a>(base: *mut u8, entry: usize, field: &FieldPlan, kind: Kind) -> &'a [u8] {
    // SAFETY: the entry's key slot, or the bytes that its span names; both were written by the decoder.
    unsafe {
        let slot = base.add(entry + field.slot_off as usize);
        if matches!(kind, Kind::String | Kind::Bytes) {
            let (off, len) =
                (slot.cast::<u32>().read_unaligned(), slot.add(4).cast::<u32>().read_unaligned());
            return std::slice::from_raw_parts(base.add(off as usize), len as usize);
        }
        std::slice::from_raw_parts(slot, slot_len(kind, false) as usize)
    }
}

/// Removes entries whose key occurs again later in the map.
///
/// # Safety
/// `block` is the block of the map's entries; their keys are scalars or strings.
pub(crate) unsafe fn last_of_each_key(plan: &Plan, s: &Cursor, map: &FieldPlan, block: usize) {
    let key_field = &plan.fields_of(map.aux_idx)[0];
    let key_row = plan.table.fields_of(map.aux_idx)[0];
    let stride = map.elem_len as usize;
    // SAFETY: the block holds `count` entries.
    unsafe {
        let count = s.word(block) as usize;
        steps::take(count);
        let entry = |idx: usize| block + LIST_HEADER + idx * stride;
        let key = |idx: usize| key(s.base, entry(idx), key_field, key_row.kind);
        if count < 2 || count <= 8 && (1..count).all(|a| (0..a).all(|b| key(a) != key(b))) {
            return;
        }
        let mut seen = HashSet::with_capacity(count);
        let kept: Vec<usize> = (0..count).rev().filter(|idx| seen.insert(key(*idx))).collect();
        drop(seen);
        if kept.len() == count {
            return;
        }
        for (to, from) in kept.iter().rev().enumerate() {
            s.base.add(entry(*from)).copy_to(s.base.add(entry(to)), stride);
        }
        s.base.add(entry(kept.len())).write_bytes(0, (count - kept.len()) * stride);
        s.set_word(block, kept.len() as u32);
    }
}

/// The first required field that the record lacks.
unsafe fn first_missing(plan: &Plan, base: *const u8, type_idx: u32, rec: usize) -> Option<u32> {
    let plan_type = &plan.types[type_idx as usize];
    if plan_type.finish & finish::REQUIRED == 0 {
        return None;
    }
    for word in 0..plan_type.presence_words {
        steps::take(1);
        let required = plan.required[(plan_type.first_required + word) as usize];
        // SAFETY: the record has this many presence words.
        let present = unsafe { base.add(rec + 4 + 4 * word as usize).cast::<u32>().read_unaligned() };
        if required & !present != 0 {
            return Some(32 * word + (required & !present).trailing_zeros());
        }
    }
    None
}

/// The path to a required field that the verified object lacks, if it lacks one.
#[cold]
pub(crate) fn missing_path(plan: &Plan, object: &[u8], type_idx: u32, root_off: u32) -> Option<String> {
    let mut frames = Vec::new();
    // SAFETY: the verifier has found every record, block and list that a presence bit declares inside of the object, and
    // records no deeper than its limit; nothing is written. Noticed by the tests of forged objects, which come through here.
    let found = unsafe { find_missing(plan, object.as_ptr(), type_idx, root_off as usize, &mut frames) };
    found.map(|(type_idx, field_idx)| {
        let mut steps = fault::steps(&frames);
        steps.push(Step { type_idx, field_idx, element_idx: None });
        fault::path(plan, frames.first().map_or(type_idx, |frame| frame.type_idx), &steps)
    })
}

/// Looks through the finished object for a record that lacks a required field: its type and the field. Leaves
/// the path to it in `frames`, which is empty before.
///
/// # Safety
/// `rec` is a complete record of type `type_idx`; records nest at most as deep as frames ever did.
pub(crate) unsafe fn find_missing(
    plan: &Plan,
    base: *const u8,
    type_idx: u32,
    rec: usize,
    frames: &mut Vec<Frame>,
) -> Option<(u32, u32)> {
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(field_idx) = first_missing(plan, base, type_idx, rec) {
            return Some((type_idx, field_idx));
        }
        each_child(
            plan,
            base,
            type_idx,
            rec,
            |plan| plan.reaches_required,
            |child| {
                frames.push(Frame {
                    rec: rec as u32,
                    end: 0,
                    type_idx,
                    field_idx: child.field_idx,
                    element_idx: child.element_idx.unwrap_or(SINGULAR),
                    group: 0,
                });
                let found = find_missing(plan, base, child.type_idx, child.rec, frames);
                if found.is_none() {
                    frames.pop();
                }
                found
            },
        )
    }
}
