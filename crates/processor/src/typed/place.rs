//! Where the fields of a compiled type lie: read out of the table while the program is compiled.
//!
//! A mistake (no such type or field, a field of another kind) is an error of the compiler's, at the constant that it
//! evaluates. The table's own rules are checked when it is loaded, before there is any record to read.

use super::kind::{Key, Kind};
use super::{Compiled, Message};
use crate::builder::Spot;
use std::marker::PhantomData;
use tollfree_layout::flat::{PRESENCE_BITS, PRESENCE_OFF};
use tollfree_layout::table::{EnumRow, FieldRow, HEADER_LEN, Label, TypeRow, ValueRow};

/// Says what types a place is for.
type Of<T> = PhantomData<fn() -> T>;

const fn u32_at(blob: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([blob[at], blob[at + 1], blob[at + 2], blob[at + 3]])
}

const fn type_at(blob: &[u8], type_idx: u32) -> usize {
    assert!(type_idx < u32_at(blob, 12), "the table has no such type");
    HEADER_LEN + type_idx as usize * TypeRow::LEN
}

/// Bytes of the records of a type.
pub(super) const fn record_len(blob: &[u8], type_idx: u32) -> u32 {
    u32_at(blob, type_at(blob, type_idx) + 16)
}

/// A field's row.
#[derive(Clone, Copy)]
struct Row {
    at: usize,
    number: u32,
    kind: u8,
    label: u8,
    flags: u16,
    slot_off: u32,
    aux_idx: u32,
    oneof_off: u32,
}

const fn row(blob: &[u8], type_idx: u32, field_idx: u32) -> Row {
    let type_at = type_at(blob, type_idx);
    assert!(field_idx < u32_at(blob, type_at + 12), "the type has no such field");
    let place = u32_at(blob, type_at + 8) + field_idx;
    let at = HEADER_LEN + u32_at(blob, 12) as usize * TypeRow::LEN + place as usize * FieldRow::LEN;
    Row {
        at,
        number: u32_at(blob, at),
        kind: blob[at + 4],
        label: blob[at + 5],
        flags: u16::from_le_bytes([blob[at + 6], blob[at + 7]]),
        slot_off: u32_at(blob, at + 8),
        aux_idx: u32_at(blob, at + 12),
        oneof_off: u32_at(blob, at + 16),
    }
}

const fn fits<K: Kind>(row: Row) -> bool {
    K::KINDS & 1 << row.kind != 0
        // Both ways: what reads as any bytes is set to any.
        && K::IS_TEXT == (row.flags & FieldRow::UTF8 != 0)
        && (K::TYPE_IDX == u32::MAX || K::TYPE_IDX == row.aux_idx)
}

/// Where a field lies that holds at most one value.
const fn spot(row: Row, field_idx: u32) -> Spot {
    Spot {
        slot_off: row.slot_off,
        presence_off: PRESENCE_OFF + 4 * (field_idx / PRESENCE_BITS),
        presence_bit: 1 << (field_idx % PRESENCE_BITS),
        oneof_off: row.oneof_off,
        number: row.number,
        field_idx,
        implicit: row.label == Label::Implicit as u8,
    }
}

/// A field that holds at most one value.
#[derive(Debug)]
pub struct One<M, K> {
    pub(super) spot: Spot,
    /// The default's bits, or its place in the table and its length.
    pub(super) default: u64,
    of: Of<(M, K)>,
}

impl<M, K> Clone for One<M, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M, K> Copy for One<M, K> {}

impl<M: Message, K: Kind> One<M, K>
where
    K::Of: SameTable<M::Compiled>,
{
    /// The field at this place among its type's.
    ///
    /// # Panics
    /// If there is none, or it does not read as a `K`: in a constant, so that the program does not compile.
    #[must_use]
    pub const fn new(field_idx: u32) -> Self {
        let blob = <M::Compiled as Compiled>::BLOB;
        let row = row(blob, M::TYPE_IDX, field_idx);
        assert!(row.label < Label::List as u8, "the field is a list or map");
        assert!(fits::<K>(row), "the field holds something else");
        let (low, high) = (u32_at(blob, row.at + 24), u32_at(blob, row.at + 28));
        let low = if K::IS_SPAN { text_at(blob) + low } else { low };
        One { spot: spot(row, field_idx), default: low as u64 | (high as u64) << 32, of: PhantomData }
    }
}

/// Where the texts begin.
const fn text_at(blob: &[u8]) -> u32 {
    HEADER_LEN as u32
        + u32_at(blob, 12) * TypeRow::LEN as u32
        + u32_at(blob, 16) * FieldRow::LEN as u32
        + u32_at(blob, 20) * EnumRow::LEN as u32
        + u32_at(blob, 24) * ValueRow::LEN as u32
}

/// A field that is a list.
#[derive(Debug)]
pub struct Many<M, K> {
    pub(super) slot_off: u32,
    pub(super) presence_off: u32,
    pub(super) presence_bit: u32,
    pub(super) field_idx: u32,
    of: Of<(M, K)>,
}

impl<M: Message, K: Kind> Many<M, K>
where
    K::Of: SameTable<M::Compiled>,
{
    /// As [`One::new`].
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub const fn new(field_idx: u32) -> Self {
        let row = row(<M::Compiled as Compiled>::BLOB, M::TYPE_IDX, field_idx);
        assert!(row.label == Label::List as u8, "the field is no list");
        assert!(fits::<K>(row), "the list's elements are something else");
        Many {
            slot_off: row.slot_off,
            presence_off: PRESENCE_OFF + 4 * (field_idx / PRESENCE_BITS),
            presence_bit: 1 << (field_idx % PRESENCE_BITS),
            field_idx,
            of: PhantomData,
        }
    }
}

/// A field that is a map.
#[derive(Debug)]
pub struct Pairs<M, K, V> {
    pub(super) slot_off: u32,
    pub(super) presence_off: u32,
    pub(super) presence_bit: u32,
    pub(super) field_idx: u32,
    /// Bytes of an entry, and where in it key and value lie.
    pub(super) entry_len: u32,
    pub(super) key: Spot,
    pub(super) value: Spot,
    of: Of<(M, K, V)>,
}

impl<M: Message, K: Key, V: Kind> Pairs<M, K, V>
where
    K::Of: SameTable<M::Compiled>,
    V::Of: SameTable<M::Compiled>,
{
    /// As [`One::new`].
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub const fn new(field_idx: u32) -> Self {
        let blob = <M::Compiled as Compiled>::BLOB;
        let map = row(blob, M::TYPE_IDX, field_idx);
        assert!(map.label == Label::Map as u8, "the field is no map");
        let (key, value) = (row(blob, map.aux_idx, 0), row(blob, map.aux_idx, 1));
        assert!(
            key.number == 1 && key.label < Label::List as u8 && fits::<K>(key),
            "keys are something else"
        );
        assert!(
            value.number == 2 && value.label < Label::List as u8 && fits::<V>(value),
            "values are something else"
        );
        Pairs {
            slot_off: map.slot_off,
            presence_off: PRESENCE_OFF + 4 * (field_idx / PRESENCE_BITS),
            presence_bit: 1 << (field_idx % PRESENCE_BITS),
            field_idx,
            entry_len: record_len(blob, map.aux_idx),
            key: spot(key, 0),
            value: spot(value, 1),
            of: PhantomData,
        }
    }
}

macro_rules! copies {
    ($($name:ident<$($of:ident),+>),+) => {$(
        impl<$($of),+> Clone for $name<$($of),+> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($of),+> Copy for $name<$($of),+> {}
    )+};
}

copies!(Many<M, K>, Pairs<M, K, V>);

/// Said of the table itself, and of what is no message and so is in no table. (A message of another table has another
/// number there.)
pub trait SameTable<T> {}

impl<T: Compiled> SameTable<T> for super::kind::InTable<T> {}
impl<T: Compiled> SameTable<T> for super::kind::Anywhere {}
