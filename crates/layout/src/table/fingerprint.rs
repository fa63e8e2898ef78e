//! What names a type in objects: a fingerprint of what it reaches (`spec/table.md`, "The fingerprint of a type").
//!
//! Two ends may read one another's objects of a type if both compile it to the same records, however different the rest of
//! their schemas is. So rows are taken in as they are reached from the root, not as they stand in the table; names, and
//! rows that nothing leads to, are left out.

use super::rows::{EnumRow, FieldRow, Fingerprint};
use super::{Kind, NO_AUX, Table};
use crate::flat::VERSION;
use crate::steps;
use std::collections::HashMap;

/// Indices in the order in which they are met, each once.
#[derive(Default)]
struct Met {
    order: Vec<u32>,
    places: HashMap<u32, u32>,
}

impl Met {
    /// The place of this one among those met so far, itself included.
    fn place(&mut self, idx: u32) -> u32 {
        let next = self.order.len() as u32;
        let place = *self.places.entry(idx).or_insert(next);
        if place == next {
            self.order.push(idx);
        }
        place
    }
}

pub(super) fn of_type(table: &Table, root: u32) -> u64 {
    let mut print = Fingerprint::default();
    let mut add = |words: &[u32]| {
        steps::take(words.len());
        for word in words {
            print = print.take_in(&word.to_le_bytes());
        }
    };
    let (mut types, mut enums) = (Met::default(), Met::default());
    types.place(root);
    add(&[u32::from(VERSION)]);
    let mut next = 0;
    while let Some(type_idx) = types.order.get(next).copied() {
        next += 1;
        let row = &table.types()[type_idx as usize];
        add(&[row.record_len, row.flags, row.field_count]);
        for field in table.fields_of(type_idx) {
            let aux = match field.kind {
                Kind::Message => types.place(field.aux_idx),
                Kind::Enum if is_closed(table, field) => enums.place(field.aux_idx),
                _ => NO_AUX,
            };
            let shape = field.kind as u32 | (field.label as u32) << 8 | u32::from(field.flags) << 16;
            add(&[field.number, shape, field.slot_off, field.oneof_off, aux]);
            if matches!(field.kind, Kind::String | Kind::Bytes) {
                let text = table.text_bytes(field.default_text());
                add(&[text.len() as u32]);
                for byte in text {
                    add(&[u32::from(*byte)]);
                }
            } else {
                add(&[field.default_bits as u32, (field.default_bits >> 32) as u32]);
            }
        }
    }
    for enum_idx in enums.order {
        let values = table.values_of(enum_idx);
        add(&[values.len() as u32]);
        for value in values {
            add(&[value.number as u32]);
        }
    }
    print.value()
}

/// Whether it matters which values the enum lists.
fn is_closed(table: &Table, field: &FieldRow) -> bool {
    let row = table.enums().get(field.aux_idx as usize);
    field.has(FieldRow::CLOSED) || row.is_some_and(|row| row.flags & EnumRow::CLOSED != 0)
}
