//! Whether two messages say the same.

use crate::view::{List, Record, Value};

/// Whether two records of one type hold the same: entries of maps in any order, floating point numbers as they compare,
/// unknown fields byte for byte.
pub(super) fn records(one: Record<'_>, other: Record<'_>) -> bool {
    let (mut ours, mut theirs) = (one.fields(), other.fields());
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) => break,
            (Some((row, value)), Some((other_row, other_value))) => {
                if row.number != other_row.number || !values(value, other_value) {
                    return false;
                }
            }
            _ => return false,
        }
    }
    one.unknown().flatten().eq(other.unknown().flatten())
}

pub(super) fn values(one: Value<'_>, other: Value<'_>) -> bool {
    match (one, other) {
        (Value::Bool(one), Value::Bool(other)) => one == other,
        (Value::I8(one), Value::I8(other)) => one == other,
        (Value::I16(one), Value::I16(other)) => one == other,
        (Value::I32(one), Value::I32(other)) | (Value::Enum(one), Value::Enum(other)) => one == other,
        (Value::I64(one), Value::I64(other)) => one == other,
        (Value::U32(one), Value::U32(other)) => one == other,
        (Value::U64(one), Value::U64(other)) => one == other,
        (Value::F32(one), Value::F32(other)) => one == other,
        (Value::F64(one), Value::F64(other)) => one == other,
        (Value::String(one), Value::String(other)) => one == other,
        (Value::Bytes(one), Value::Bytes(other)) => one == other,
        (Value::Message(one), Value::Message(other)) => records(one, other),
        (Value::List(one), Value::List(other)) => {
            one.len() == other.len() && one.iter().zip(other.iter()).all(|(one, other)| values(one, other))
        }
        (Value::Map(one), Value::Map(other)) => maps(one, other),
        _ => false,
    }
}

/// Each entry of either map is in the other, where an entry comes behind those of its key that do not count.
fn maps(one: List<'_>, other: List<'_>) -> bool {
    let is_in = |list: List<'_>, entry: Record<'_>| {
        let same_key = |found: &Record<'_>| match (found.get(0), entry.get(0)) {
            (Some(found), Some(key)) => values(found, key),
            (found, key) => found.is_none() && key.is_none(),
        };
        last(list, &same_key).is_some_and(|found| records(found, entry))
    };
    let counted = |list: List<'_>, within: List<'_>| {
        list.iter().all(|value| matches!(value, Value::Message(entry) if is_in(within, entry)))
    };
    one.len() == other.len() && counted(one, other) && counted(other, one)
}

fn last<'a>(list: List<'a>, is_it: &dyn Fn(&Record<'_>) -> bool) -> Option<Record<'a>> {
    (0..list.len()).rev().find_map(|idx| match list.get(idx) {
        Some(Value::Message(entry)) if is_it(&entry) => Some(entry),
        _ => None,
    })
}
