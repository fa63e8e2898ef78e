//! Hot module: a linear object back to protobuf bytes, written from the last byte to the first.
//!
//! Written backwards, the length of a message is known when its prefix is due, so one pass is enough. Presence
//! bits are taken from the highest field number down, so the bytes come out in ascending order, unknown fields
//! behind the known ones.
//!
//! # Writing beyond
//!
//! Short pieces are written with stores of 8 or 32 bytes that *end* where the piece ends; what they leave below
//! it is overwritten by what is written next. So at least [`SLOP`] bytes are free below the write position
//! whenever a presence word, a string, a list or a message begins: 32 scalars of at most 15 bytes fit.
//! Reading 32 bytes that end at a string's end stays in the object, which begins with 32 bytes of header.
//!
//! # Soundness
//!
//! All unsafe code here relies on that, and on the object: an [`Object`] exists only if the decoder has made it or the
//! verifier accepted it, so records, blocks and spans lie in it and nest finitely. Noticed by the round trips of every test
//! of the decoder, by `tests/hostile.rs`, whose forged objects are encoded, and by the fuzz targets.

use crate::copy;
use crate::object::Object;
use crate::plan::{FieldPlan, Plan, op};
use thiserror::Error;
use tollfree_layout::linear::{LIST_HEADER_LEN, PRESENCE_OFF};

/// Bytes that stay free below the write position.
const SLOP: usize = 640;
const LIST_HEADER: usize = LIST_HEADER_LEN as usize;
/// protobuf's longest message; a short one in this crate's own tests, so that they reach it.
const LONGEST: usize = if cfg!(test) { 1 << 20 } else { i32::MAX as usize };

/// Why an object was not encoded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The message would be longer than 2^31 - 1 bytes, protobuf's limit and Thrift's, or than memory.
    #[error("the encoded message would be longer than {LONGEST} bytes or than memory allows")]
    TooLong,
    /// Records nest deeper than the engine goes (Thrift).
    #[error("the object nests deeper than {limit} levels")]
    TooDeep {
        /// The engine's limit.
        limit: u32,
    },
    /// The type has fields that the protocol has no form for.
    #[error("the engine for this protocol does not support the layout of type {type_idx}")]
    UnsupportedLayout {
        /// Index of the type.
        type_idx: u32,
    },
}

/// Memory that messages are encoded into, used again and again; grows as needed.
#[derive(Debug, Default)]
pub struct EncodeBuffer {
    bytes: Vec<u8>,
}

impl EncodeBuffer {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> EncodeBuffer {
        EncodeBuffer::default()
    }
}

impl Object<'_> {
    /// Encodes the object as a protobuf message; the bytes stay in `buffer` until it is used again.
    ///
    /// # Errors
    /// [`EncodeError`].
    #[inline]
    pub fn encode<'b>(&self, buffer: &'b mut EncodeBuffer) -> Result<&'b [u8], EncodeError> {
        if self.plan.types[self.type_idx as usize].unsupported {
            return Err(EncodeError::UnsupportedLayout { type_idx: self.type_idx });
        }
        let len = buffer.bytes.len();
        let mut out = Writer {
            plan: self.plan,
            base: self.bytes.as_ptr(),
            buffer: &mut buffer.bytes,
            to: std::ptr::null_mut(),
            len,
        };
        out.to = out.buffer.as_mut_ptr();
        // SAFETY: the object is sound: its records and blocks are what the plan says (made by the decoder or
        // accepted by the verifier). Noticed by the round-trip and hostile-object tests.
        let start = unsafe { out.record(len, self.root_off as usize, self.type_idx) };
        match start {
            // The buffer grows by doubling, so that it may have had room for more.
            Ok(start) if buffer.bytes.len() - start <= LONGEST => Ok(&buffer.bytes[start..]),
            _ => Err(EncodeError::TooLong),
        }
    }
}

/// The message has become too long. (Kept without data, so that positions come back in registers.)
struct TooLong;

struct Writer<'w> {
    plan: &'w Plan,
    base: *const u8,
    buffer: &'w mut Vec<u8>,
    /// The buffer's bytes, and how many there are.
    to: *mut u8,
    len: usize,
}

/// Highest bit of each byte.
const MORE: u64 = 0x8080_8080_8080_8080;

/// Spreads the low 56 bits over eight bytes, seven bits each.
#[inline(always)]
fn spread(value: u64) -> u64 {
    let v = (value & 0x0fff_ffff) | (value & 0x00ff_ffff_f000_0000) << 4;
    let v = (v & 0x0000_3fff_0000_3fff) | (v & 0x0fff_c000_0fff_c000) << 2;
    (v & 0x007f_007f_007f_007f) | (v & 0x3f80_3f80_3f80_3f80) << 1
}

/// The bytes of the varint of a value of at most 56 bits, and how many there are.
#[inline(always)]
fn expand(value: u64) -> (u64, usize) {
    let len = varint_len(value);
    (spread(value) | MORE & ((1u64 << (8 * (len - 1) as u32)) - 1), len)
}

/// Bytes of a varint of at most 56 bits.
#[inline(always)]
fn varint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

#[inline(always)]
fn zigzag32(value: u32) -> u64 {
    u64::from((value << 1) ^ ((value as i32 >> 31) as u32))
}

#[inline(always)]
fn zigzag64(value: u64) -> u64 {
    (value << 1) ^ ((value as i64 >> 63) as u64)
}

impl Writer<'_> {
    /// Makes `need` more bytes free below; what is written stays at the end. Gives the new position.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, at: usize, need: usize) -> Result<usize, TooLong> {
        let written = self.buffer.len() - at;
        let total = written + need + 2 * SLOP;
        if total > LONGEST + 4 * SLOP {
            return Err(TooLong);
        }
        let total = total.max(2 * self.buffer.len()).max(1024);
        let mut larger = Vec::new();
        larger.try_reserve_exact(total).map_err(|_| TooLong)?;
        larger.resize(total, 0);
        larger[total - written..].copy_from_slice(&self.buffer[at..]);
        *self.buffer = larger;
        self.to = self.buffer.as_mut_ptr();
        self.len = total;
        Ok(total - written)
    }

    /// Position below which `need` bytes and the slop are free.
    #[inline(always)]
    fn room(&mut self, at: usize, need: usize) -> Result<usize, TooLong> {
        if at < need + SLOP { self.grow(at, need) } else { Ok(at) }
    }

    #[inline(always)]
    unsafe fn word(&self, at: usize) -> u32 {
        // SAFETY: `at` lies in the object (the callers').
        unsafe { self.base.add(at).cast::<u32>().read_unaligned() }
    }

    /// Writes the low `len <= 8` bytes of `value` below `at`.
    #[inline(always)]
    unsafe fn put(&self, at: usize, value: u64, len: usize) -> usize {
        // SAFETY: at least eight bytes are free below `at` ("Writing beyond"); a shift by 64 cannot occur, as
        // `len >= 1`.
        unsafe { self.to.add(at - 8).cast::<u64>().write_unaligned(value << (64 - 8 * len as u32)) };
        at - len
    }

    #[inline(always)]
    unsafe fn varint(&self, at: usize, value: u64) -> usize {
        // SAFETY: room for ten bytes ("Writing beyond").
        unsafe {
            if value >> 56 == 0 {
                let (bytes, len) = expand(value);
                return self.put(at, bytes, len);
            }
            let high = value >> 56;
            let at = match high {
                ..0x80 => self.put(at, high, 1),
                _ => self.put(at, 0x0100 | high & 0x7f | 0x80, 2),
            };
            self.put(at, spread(value) | MORE, 8)
        }
    }

    #[inline(always)]
    unsafe fn tag(&self, at: usize, field: &FieldPlan) -> usize {
        // SAFETY: as `put`.
        unsafe { self.put(at, field.tag, field.tag_len as usize) }
    }

    /// A varint and the tag before it, in one store where they fit.
    #[inline(always)]
    unsafe fn tagged_varint(&self, at: usize, field: &FieldPlan, value: u64) -> usize {
        // SAFETY: as `put`.
        unsafe {
            let tag_len = field.tag_len as usize;
            let shift = 8 * tag_len as u32;
            if value < 0x80 {
                return self.put(at, field.tag | value << shift, tag_len + 1);
            }
            if value < 0x4000 {
                let bytes = (value & 0x7f) | 0x80 | (value & 0x3f80) << 1;
                return self.put(at, field.tag | bytes << shift, tag_len + 2);
            }
            // Six bytes behind a tag of two, or three behind one of five, are eight.
            if value < 1 << 21 || value < 1 << 42 && tag_len <= 2 {
                let (bytes, len) = expand(value);
                return self.put(at, field.tag | bytes << shift, tag_len + len);
            }
            let at = self.varint(at, value);
            self.tag(at, field)
        }
    }

    /// The bytes of a span, and how many; without tag or length.
    #[inline(always)]
    unsafe fn bytes(&mut self, at: usize, slot: *const u8) -> Result<(usize, usize), TooLong> {
        // SAFETY: a sound object's span lies in the object; see "Writing beyond" for the short copy.
        unsafe {
            let span = slot.cast::<u64>().read_unaligned();
            let (off, len) = (span as u32 as usize, (span >> 32) as usize);
            let at = self.room(at, len)?;
            let from = self.base.add(off);
            if len <= 32 && off + len >= 32 {
                let from = self.base.add(off + len - 32).cast::<[u64; 4]>();
                self.to.add(at - 32).cast::<[u64; 4]>().write_unaligned(from.read_unaligned());
            } else {
                copy::long(from, self.to.add(at - len), len);
            }
            Ok((at - len, len))
        }
    }

    /// The record at `rec`, below `at`; gives the new position.
    unsafe fn record(&mut self, mut at: usize, rec: usize, type_idx: u32) -> Result<usize, TooLong> {
        // SAFETY: `rec` is a record of this type; set bits mean sound slots; recursion is bounded by the depth
        // that decoder and verifier allow.
        unsafe {
            let plan = self.plan;
            let t = plan.types.get_unchecked(type_idx as usize);
            let fields = plan.fields.as_ptr().add(t.first_field as usize);
            let unknown = self.word(rec) as usize;
            if unknown != 0 {
                at = self.unknown(at, unknown)?;
            }
            for word_idx in (0..t.presence_words as usize).rev() {
                let mut bits = self.word(rec + PRESENCE_OFF as usize + 4 * word_idx);
                at = self.room(at, 0)?;
                while bits != 0 {
                    let bit = 31 - bits.leading_zeros();
                    bits &= !(1 << bit);
                    let field = &*fields.add(32 * word_idx + bit as usize);
                    at = self.field(at, rec, field)?;
                }
            }
            Ok(at)
        }
    }

    #[inline(always)]
    unsafe fn field(&mut self, at: usize, rec: usize, field: &FieldPlan) -> Result<usize, TooLong> {
        // SAFETY: as `record`.
        unsafe {
            let slot = self.base.add(rec + field.slot_off as usize);
            let u32_at = |slot: *const u8| slot.cast::<u32>().read_unaligned();
            let u64_at = |slot: *const u8| slot.cast::<u64>().read_unaligned();
            Ok(match field.encode {
                op::VARINT64 => self.tagged_varint(at, field, u64_at(slot)),
                op::VARINT32 => self.tagged_varint(at, field, u64::from(u32_at(slot))),
                op::INT32 => self.tagged_varint(at, field, u32_at(slot) as i32 as u64),
                op::SINT64 => self.tagged_varint(at, field, zigzag64(u64_at(slot))),
                op::SINT32 => self.tagged_varint(at, field, zigzag32(u32_at(slot))),
                op::BOOL => self.tagged_varint(at, field, u64::from(*slot != 0)),
                op::FIXED64 => {
                    let at = self.put(at, u64_at(slot), 8);
                    self.tag(at, field)
                }
                op::FIXED32 => {
                    let at = self.put(at, u64::from(u32_at(slot)), 4);
                    self.tag(at, field)
                }
                op::BYTES | op::STRING => {
                    let (at, len) = self.bytes(at, slot)?;
                    self.tagged_varint(at, field, len as u64)
                }
                op::MESSAGE => self.message(at, field, u32_at(slot) as usize)?,
                op::GROUP => self.group(at, field, u32_at(slot) as usize)?,
                _ => self.list(at, field, u32_at(slot) as usize)?,
            })
        }
    }

    #[inline(always)]
    unsafe fn message(&mut self, at: usize, field: &FieldPlan, rec: usize) -> Result<usize, TooLong> {
        // SAFETY: as `record`; lengths are measured from the end, which growth keeps.
        unsafe {
            let behind = self.len - at;
            let at = self.record(at, rec, field.aux_idx)?;
            let len = self.len - at - behind;
            let at = self.room(at, 0)?;
            Ok(self.tagged_varint(at, field, len as u64))
        }
    }

    unsafe fn group(&mut self, at: usize, field: &FieldPlan, rec: usize) -> Result<usize, TooLong> {
        // SAFETY: as `record`. The end tag is the start tag plus one: wire types 3 and 4.
        unsafe {
            let at = self.put(at, field.tag + 1, field.tag_len as usize);
            let at = self.record(at, rec, field.aux_idx)?;
            let at = self.room(at, 0)?;
            Ok(self.tag(at, field))
        }
    }

    /// Slices of unknown fields, as they came.
    #[cold]
    #[inline(never)]
    unsafe fn unknown(&mut self, mut at: usize, block: usize) -> Result<usize, TooLong> {
        // SAFETY: a block of spans.
        unsafe {
            for idx in (0..self.word(block) as usize).rev() {
                (at, _) = self.bytes(at, self.base.add(block + LIST_HEADER + 8 * idx))?;
            }
            Ok(at)
        }
    }

    unsafe fn list(&mut self, mut at: usize, field: &FieldPlan, block: usize) -> Result<usize, TooLong> {
        // SAFETY: as `record`: the block holds `count` elements of `elem_len` bytes.
        unsafe {
            let count = self.word(block) as usize;
            let first = block + LIST_HEADER;
            if field.encode >= op::PACKED {
                return self.packed(at, field, first, count);
            }
            let element = |idx: usize| first + idx * field.elem_len as usize;
            for idx in (0..count).rev() {
                at = self.room(at, 0)?;
                at = match field.encode {
                    op::LIST_MESSAGE => self.message(at, field, element(idx))?,
                    op::LIST_GROUP => self.group(at, field, element(idx))?,
                    op::LIST_BYTES | op::LIST_STRING => {
                        let (at, len) = self.bytes(at, self.base.add(element(idx)))?;
                        self.tagged_varint(at, field, len as u64)
                    }
                    shape => {
                        let at = self.scalar(at, shape - op::LIST, element(idx));
                        self.tag(at, field)
                    }
                };
            }
            Ok(at)
        }
    }

    /// One scalar of this shape, without its tag.
    #[inline(always)]
    unsafe fn scalar(&self, at: usize, shape: u8, slot: usize) -> usize {
        // SAFETY: as `record`; room for ten bytes is there.
        unsafe {
            let slot = self.base.add(slot);
            let narrow = || slot.cast::<u32>().read_unaligned();
            let wide = || slot.cast::<u64>().read_unaligned();
            match shape {
                op::VARINT64 => self.varint(at, wide()),
                op::VARINT32 => self.varint(at, u64::from(narrow())),
                op::SINT64 => self.varint(at, zigzag64(wide())),
                op::SINT32 => self.varint(at, zigzag32(narrow())),
                op::BOOL => self.varint(at, u64::from(*slot != 0)),
                op::FIXED64 => self.put(at, wide(), 8),
                op::FIXED32 => self.put(at, u64::from(narrow()), 4),
                _ => self.varint(at, narrow() as i32 as u64),
            }
        }
    }

    unsafe fn packed(
        &mut self,
        at: usize,
        field: &FieldPlan,
        first: usize,
        count: usize,
    ) -> Result<usize, TooLong> {
        if count == 0 {
            return Ok(at);
        }
        let shape = field.encode - op::PACKED;
        let elem_len = field.elem_len as usize;
        let behind = self.len - at;
        // SAFETY: as `list`.
        unsafe {
            let mut at = at;
            if matches!(shape, op::FIXED32 | op::FIXED64) {
                at = self.room(at, count * elem_len)?;
                at -= count * elem_len;
                copy::long(self.base.add(first), self.to.add(at), count * elem_len);
            } else {
                for idx in (0..count).rev() {
                    at = self.room(at, 0)?;
                    at = self.scalar(at, shape, first + idx * elem_len);
                }
            }
            let len = self.len - at - behind;
            let at = self.room(at, 0)?;
            Ok(self.tagged_varint(at, field, len as u64))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::varint::from_slice;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_read_back(value: u64, shift in 0u32..64) {
            let value = value >> shift;
            let table = tollfree_schema::Schema::default().compile().unwrap();
            let plan = Plan::new(table);
            let mut buffer = vec![0xee; 64];
            let to = buffer.as_mut_ptr();
            let writer = Writer { plan: &plan, base: std::ptr::null(), buffer: &mut buffer, to, len: 64 };
            // SAFETY: 64 bytes are free.
            let at = unsafe { writer.varint(64, value) };
            prop_assert_eq!(from_slice(&buffer[at..]), (value, 64 - at));
            let shortest = (64 - (value | 1).leading_zeros() as usize).div_ceil(7);
            prop_assert_eq!(64 - at, shortest);
        }
    }

    /// Also where the buffer, which doubles, has room for more than a message may have.
    #[test]
    fn no_message_is_longer_than_the_longest() {
        use tollfree_schema::{Field, Kind, Label, Message, Schema};
        let fields = vec![Field::new(1, "parts", Kind::Bytes, Label::List)];
        let message = Message { name: "M".into(), fields, ..Message::default() };
        let schema = Schema { messages: vec![message], ..Schema::default() };
        let processor = crate::Processor::new(schema.compile().unwrap());
        let mut buffer = EncodeBuffer::new();
        let mut encode = |parts: &[usize]| {
            let mut input = Vec::new();
            for len in parts {
                input.push(0x0a);
                prost::encoding::encode_varint(*len as u64, &mut input);
                input.resize(input.len() + len, 7);
            }
            let mut arena = crate::Arena::with_limit(1 << 24);
            let object = processor.decode(0, &input, &mut arena, &crate::Limits::default()).unwrap();
            object.encode(&mut buffer).map(|out| assert!(out == input))
        };
        assert_eq!(encode(&[600_000]), Ok(()));
        assert_eq!(encode(&[350_000; 2]), Ok(()));
        assert_eq!(encode(&[LONGEST - 4]), Ok(()));
        assert_eq!(encode(&[LONGEST - 3]), Err(EncodeError::TooLong));
        assert_eq!(encode(&[1_100_000]), Err(EncodeError::TooLong));
        assert_eq!(encode(&[1; 400_000]), Err(EncodeError::TooLong));
    }
}
