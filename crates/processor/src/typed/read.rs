//! Hot module: records of compiled types, read by places that are constants.
//!
//! # Soundness
//!
//! What is read is not checked. A [`Typed`] is made only of the root of an object of its table's processor and type, and of
//! records that such a one leads to ([`super::Owned`], [`super::kind`]); which place is whose is in the types of
//! [`One`], [`Many`] and [`Pairs`]. Noticed by `tollfree-view-stubs`' tests, where a debug build asserts each load.

use super::kind::{Key, Kind, Plain};
use super::place::{Many, One, Pairs, record_len};
use super::prost::{InProst, ProstError};
use super::{Compiled, Message, processor};
use crate::encode::{EncodeBuffer, EncodeError};
use crate::object::Object;
use crate::view::{Place, Record, word};
use std::iter::FusedIterator;
use std::marker::PhantomData;
use tollfree_layout::flat::{LIST_HEADER_LEN, PRESENCE_OFF};
use tollfree_layout::table::MAX_RECORD_LEN;

/// A record in which nothing is present, of any type.
static EMPTY: [u64; MAX_RECORD_LEN as usize / 8] = [0; MAX_RECORD_LEN as usize / 8];

/// A record of type `M`.
pub struct Typed<'a, M> {
    bytes: &'a [u8],
    off: u32,
    of: PhantomData<fn() -> M>,
}

impl<M> Clone for Typed<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Typed<'_, M> {}

impl<M: Message> std::fmt::Debug for Typed<'_, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.record().fmt(f)
    }
}

impl<M: Message> PartialEq for Typed<'_, M> {
    fn eq(&self, other: &Self) -> bool {
        super::same::records(self.record(), other.record())
    }
}

impl<'a, M> Typed<'a, M> {
    /// What calls this answers for it: that the record at `off` is of type `M` and sound.
    #[inline(always)]
    pub(super) fn at(bytes: &'a [u8], off: u32) -> Self {
        Typed { bytes, off, of: PhantomData }
    }

    #[inline(always)]
    fn place(self, off: u32) -> Place {
        Place { rec: self.off, off }
    }

    #[inline(always)]
    fn is_set(self, presence_off: u32, presence_bit: u32) -> bool {
        word(self.bytes, self.place(presence_off)) & presence_bit != 0
    }

    /// Where the block lies that this slot leads to; nowhere (in [`EMPTY`]) if there is none.
    #[inline(always)]
    fn block(self, slot_off: u32, presence_off: u32, presence_bit: u32) -> (&'a [u8], u32) {
        if self.is_set(presence_off, presence_bit) {
            (self.bytes, word(self.bytes, self.place(slot_off)))
        } else {
            (zerocopy::IntoBytes::as_bytes(&EMPTY[..1]), 0)
        }
    }
}

impl<'a, M: Message> Typed<'a, M> {
    pub(super) fn empty() -> Self {
        let bytes = zerocopy::IntoBytes::as_bytes(&EMPTY);
        Typed::at(&bytes[..record_len(<M::Compiled as Compiled>::BLOB, M::TYPE_IDX) as usize], 0)
    }

    /// The same record, to be read by fields that the program does not know.
    #[must_use]
    pub fn record(self) -> Record<'a> {
        let plan = &processor::<M::Compiled>().plan;
        Record { plan, bytes: self.bytes, off: self.off, type_idx: M::TYPE_IDX }
    }

    /// Whether the field is there: for an implicit one, whether it is other than zero.
    #[must_use]
    #[inline(always)]
    pub fn has<K>(self, field: One<M, K>) -> bool {
        self.is_set(field.spot.presence_off, field.spot.presence_bit)
    }

    /// The field's value, if it is there.
    #[must_use]
    #[inline(always)]
    pub fn find<K: Kind>(self, field: One<M, K>) -> Option<K::Value<'a>> {
        self.has(field).then(|| K::load(self.bytes, self.place(field.spot.slot_off)))
    }

    /// The field's value, or its default.
    #[must_use]
    #[inline(always)]
    pub fn get<K: Plain>(self, field: One<M, K>) -> K::Value<'a> {
        if self.has(field) {
            K::load(self.bytes, self.place(field.spot.slot_off))
        } else {
            K::shorter(K::absent(<M::Compiled as Compiled>::BLOB, field.default))
        }
    }

    /// The number of the member that is set, of the oneof that this field belongs to; 0 if none is.
    #[must_use]
    #[inline(always)]
    pub fn case<K>(self, member: One<M, K>) -> u32 {
        if member.spot.oneof_off == 0 {
            return 0;
        }
        word(self.bytes, self.place(member.spot.oneof_off))
    }

    /// The field's elements.
    #[must_use]
    #[inline(always)]
    pub fn list<K: Kind>(self, field: Many<M, K>) -> ListView<'a, K> {
        let (bytes, block) = self.block(field.slot_off, field.presence_off, field.presence_bit);
        ListView { bytes, block, of: PhantomData }
    }

    /// The field's entries.
    #[must_use]
    #[inline(always)]
    pub fn map<K: Key, V: Kind>(self, field: Pairs<M, K, V>) -> MapView<'a, K, V> {
        let (bytes, block) = self.block(field.slot_off, field.presence_off, field.presence_bit);
        let (key_off, value_off) = (field.key.slot_off, field.value.slot_off);
        MapView { bytes, block, entry_len: field.entry_len, key_off, value_off, of: PhantomData }
    }
}

/// What every view can. (A trait, so that a message's own fields may have these names.)
pub trait MessageView<'a>: Copy {
    /// The message's type.
    type Message: Message<View<'a> = Self>;

    /// The message as a record, whose fields are found while the program runs, unknown ones among them.
    #[must_use]
    fn record(self) -> Record<'a>
    where
        Self: Into<Typed<'a, Self::Message>>,
    {
        self.into().record()
    }

    /// The message's bytes on the wire, with all below it.
    ///
    /// # Errors
    /// [`EncodeError`].
    fn encode(self, buffer: &mut EncodeBuffer) -> Result<&[u8], EncodeError>
    where
        Self: Into<Typed<'a, Self::Message>>,
    {
        let Record { plan, bytes, off, type_idx } = self.into().record();
        Object::made(plan, bytes, off, type_idx).encode(buffer)
    }

    /// The message as prost's struct. Unknown fields are left out, as prost does; a required field that is missing (no
    /// decoder leaves one out, a builder or a peer's object may) has its default.
    ///
    /// # Errors
    /// [`ProstError`]: of messages whose strings are all checked, none.
    fn to_prost(self) -> Result<<Self::Message as InProst>::Struct, ProstError>
    where
        Self: Into<Typed<'a, Self::Message>>,
        Self::Message: InProst,
    {
        Self::Message::to_struct(self.into())
    }
}

/// The elements of a list.
pub struct ListView<'a, K> {
    bytes: &'a [u8],
    block: u32,
    of: PhantomData<fn() -> K>,
}

impl<K> Clone for ListView<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for ListView<'_, K> {}

impl<'a, K: Kind> std::fmt::Debug for ListView<'a, K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(K::to_value)).finish()
    }
}

impl<K: Kind> PartialEq for ListView<'_, K> {
    fn eq(&self, other: &Self) -> bool {
        let same = |(one, other)| super::same::values(K::to_value(one), K::to_value(other));
        self.len() == other.len() && self.iter().zip(other.iter()).all(same)
    }
}

impl<'a, K: Kind> ListView<'a, K> {
    /// How many elements there are.
    #[must_use]
    #[inline(always)]
    pub fn len(self) -> usize {
        word(self.bytes, Place { rec: self.block, off: 0 }) as usize
    }

    /// Whether there are none.
    #[must_use]
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The element at `idx`.
    #[must_use]
    #[inline(always)]
    pub fn get(self, idx: usize) -> Option<K::Value<'a>> {
        (idx < self.len()).then(|| {
            let off = LIST_HEADER_LEN + idx as u32 * K::STRIDE;
            K::element(self.bytes, Place { rec: self.block, off })
        })
    }

    /// All elements.
    #[must_use]
    #[inline(always)]
    pub fn iter(self) -> Elements<'a, K> {
        let first = self.block + LIST_HEADER_LEN;
        Elements { bytes: self.bytes, at: first, left: self.len() as u32, of: PhantomData }
    }
}

impl<'a, K: Kind> IntoIterator for ListView<'a, K> {
    type Item = K::Value<'a>;
    type IntoIter = Elements<'a, K>;

    #[inline(always)]
    fn into_iter(self) -> Elements<'a, K> {
        self.iter()
    }
}

/// Goes through a list: [`ListView::iter`].
#[derive(Debug, Clone)]
pub struct Elements<'a, K> {
    bytes: &'a [u8],
    at: u32,
    left: u32,
    of: PhantomData<fn() -> K>,
}

impl<'a, K: Kind> Iterator for Elements<'a, K> {
    type Item = K::Value<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<K::Value<'a>> {
        self.left = self.left.checked_sub(1)?;
        let at = Place { rec: self.at, off: 0 };
        self.at += K::STRIDE;
        Some(K::element(self.bytes, at))
    }

    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl<K: Kind> ExactSizeIterator for Elements<'_, K> {}
impl<K: Kind> FusedIterator for Elements<'_, K> {}

/// The entries of a map.
pub struct MapView<'a, K, V> {
    bytes: &'a [u8],
    block: u32,
    entry_len: u32,
    key_off: u32,
    value_off: u32,
    of: PhantomData<fn() -> (K, V)>,
}

impl<K, V> Clone for MapView<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for MapView<'_, K, V> {}

impl<'a, K: Key, V: Kind> std::fmt::Debug for MapView<'a, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter().map(|(key, value)| (K::to_value(key), V::to_value(value)))).finish()
    }
}

/// The same keys with the same values, in any order; of entries with the same key the last one counts.
impl<K: Key, V: Kind> PartialEq for MapView<'_, K, V> {
    fn eq(&self, other: &Self) -> bool {
        let value = |map: &Self, key| map.get(key).map(V::to_value);
        let same = |key| match (value(self, key), value(other, key)) {
            (Some(one), Some(other)) => super::same::values(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.iter().chain(other.iter()).all(|(key, _)| same(key))
    }
}

impl<'a, K: Key, V: Kind> MapView<'a, K, V> {
    /// How many entries there are.
    #[must_use]
    #[inline(always)]
    pub fn len(self) -> usize {
        word(self.bytes, Place { rec: self.block, off: 0 }) as usize
    }

    /// Whether there are none.
    #[must_use]
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The value of this key: entries are looked through, the last one first.
    #[must_use]
    #[inline]
    pub fn get(self, key: K::Value<'_>) -> Option<V::Value<'a>> {
        let mut entries = self.iter();
        loop {
            let entry = entries.back()?;
            if K::same(entries.key(entry), key) {
                return Some(entries.value(entry));
            }
        }
    }

    /// All entries, in the order in which they came.
    #[must_use]
    #[inline(always)]
    pub fn iter(self) -> Entries<'a, K, V> {
        Entries { map: self, next: 0, end: self.len() as u32 }
    }
}

impl<'a, K: Key, V: Kind> IntoIterator for MapView<'a, K, V> {
    type Item = (K::Value<'a>, V::Value<'a>);
    type IntoIter = Entries<'a, K, V>;

    #[inline(always)]
    fn into_iter(self) -> Entries<'a, K, V> {
        self.iter()
    }
}

/// Goes through a map: [`MapView::iter`].
pub struct Entries<'a, K, V> {
    map: MapView<'a, K, V>,
    next: u32,
    end: u32,
}

impl<K, V> Clone for Entries<'_, K, V> {
    fn clone(&self) -> Self {
        Entries { map: self.map, ..*self }
    }
}

impl<K: Key, V: Kind> std::fmt::Debug for Entries<'_, K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map()
            .entries(self.clone().map(|(key, value)| (K::to_value(key), V::to_value(value))))
            .finish()
    }
}

impl<'a, K: Key, V: Kind> Entries<'a, K, V> {
    /// Offset of the last entry that is left, which is taken.
    #[inline(always)]
    fn back(&mut self) -> Option<u32> {
        if self.next == self.end {
            return None;
        }
        self.end -= 1;
        Some(self.map.block + LIST_HEADER_LEN + self.end * self.map.entry_len)
    }

    /// Whether the entry has the field at this place. (A peer's may lack either.)
    #[inline(always)]
    fn has(&self, entry: u32, field_idx: u32) -> bool {
        word(self.map.bytes, Place { rec: entry, off: PRESENCE_OFF }) & 1 << field_idx != 0
    }

    #[inline(always)]
    fn key(&self, entry: u32) -> K::Value<'a> {
        let at = Place { rec: entry, off: self.map.key_off };
        if self.has(entry, 0) { K::load(self.map.bytes, at) } else { K::zero() }
    }

    #[inline(always)]
    fn value(&self, entry: u32) -> V::Value<'a> {
        let at = Place { rec: entry, off: self.map.value_off };
        if self.has(entry, 1) { V::load(self.map.bytes, at) } else { V::zero() }
    }
}

impl<'a, K: Key, V: Kind> Iterator for Entries<'a, K, V> {
    type Item = (K::Value<'a>, V::Value<'a>);

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.end {
            return None;
        }
        let entry = self.map.block + LIST_HEADER_LEN + self.next * self.map.entry_len;
        self.next += 1;
        Some((self.key(entry), self.value(entry)))
    }

    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.end - self.next) as usize;
        (left, Some(left))
    }
}

impl<K: Key, V: Kind> ExactSizeIterator for Entries<'_, K, V> {}
impl<K: Key, V: Kind> FusedIterator for Entries<'_, K, V> {}
