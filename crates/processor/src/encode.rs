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
//! whenever a presence word, a string, a list or a message begins, and when one has ended: 32 scalars of at most 15 bytes
//! fit. A string that ends in the object's first 64 bytes is not read in pieces that end there.
//!
//! # Records in records
//!
//! They are written by one loop with a stack of its own, which holds where it left each record that is not complete;
//! below [`LEVELS`], by recursion. The loop exists twice: for processors with instructions for bits, and for others.
//!
//! # Soundness
//!
//! All unsafe code here relies on that, and on the object: an [`Object`] exists only if the decoder has made it or the
//! verifier accepted it, so records, blocks and spans lie in it and nest finitely. Noticed by the round trips of every test
//! of the decoder, by `tests/hostile.rs`, whose forged objects are encoded, and by the fuzz targets.

use crate::copy;
#[cfg(target_arch = "x86_64")]
use crate::copy::QUICK_BITS;
use crate::object::Object;
use crate::plan::{FieldPlan, Plan, op};
use std::mem::MaybeUninit;
use thiserror::Error;
use tollfree_layout::linear::{LIST_HEADER_LEN, PRESENCE_BITS, PRESENCE_OFF};

/// Bytes that stay free below the write position.
const SLOP: usize = 640;
const LIST_HEADER: usize = LIST_HEADER_LEN as usize;
/// Short strings are copied in one or two pieces of so many bytes, whatever their length.
const PIECE: usize = 32;
/// Records inside records for which there is room on the encoder's stack; few in this crate's own tests, so that they
/// reach beyond.
const LEVELS: usize = if cfg!(test) { 3 } else { 24 };
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
        let mut out = Writer {
            plan: self.plan,
            base: self.bytes.as_ptr(),
            low: 0,
            end: std::ptr::null_mut(),
            buffer: &mut buffer.bytes,
        };
        let end = out.look();
        let (root, type_idx) = (self.root_off as usize, self.type_idx);
        // SAFETY: the object is sound: its records and blocks are what the plan says (made by the decoder or
        // accepted by the verifier); the wide form only where the processor has it. Noticed by the round-trip and
        // hostile-object tests.
        let start = unsafe {
            #[cfg(target_arch = "x86_64")]
            if *QUICK_BITS {
                out.record_bits(end, root, type_idx)
            } else {
                out.record_plain(end, root, type_idx)
            }
            #[cfg(not(target_arch = "x86_64"))]
            out.record_plain(end, root, type_idx)
        };
        let Some(start) = start else { return Err(EncodeError::TooLong) };
        let len = out.end.addr() - start.addr();
        let from = buffer.bytes.len() - len;
        // The buffer grows by doubling, so that it may have had room for more.
        if len > LONGEST { Err(EncodeError::TooLong) } else { Ok(&buffer.bytes[from..]) }
    }
}

struct Writer<'w> {
    plan: &'w Plan,
    /// The object.
    base: *const u8,
    /// Address above which there are [`SLOP`] bytes and more.
    low: usize,
    /// Behind the buffer's last byte.
    end: *mut u8,
    buffer: &'w mut Vec<u8>,
}

/// Highest bit of each byte.
const MORE: u64 = 0x8080_8080_8080_8080;

/// Spreads the low 56 bits over eight bytes, seven bits each. `BITS`: the processor has instructions for bits, and this is
/// inlined where they may be used.
#[inline(always)]
unsafe fn spread<const BITS: bool>(value: u64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if BITS {
        // SAFETY: the caller's promise.
        return unsafe { std::arch::x86_64::_pdep_u64(value, !MORE) };
    }
    let v = (value & 0x0fff_ffff) | (value & 0x00ff_ffff_f000_0000) << 4;
    let v = (v & 0x0000_3fff_0000_3fff) | (v & 0x0fff_c000_0fff_c000) << 2;
    (v & 0x007f_007f_007f_007f) | (v & 0x3f80_3f80_3f80_3f80) << 1
}

#[inline(always)]
fn zigzag32(value: u32) -> u64 {
    u64::from((value << 1) ^ ((value as i32 >> 31) as u32))
}

#[inline(always)]
fn zigzag64(value: u64) -> u64 {
    (value << 1) ^ ((value as i64 >> 63) as u64)
}

/// Writes the low `len <= 8` bytes of `value` below `at`.
#[inline(always)]
unsafe fn put(at: *mut u8, value: u64, len: usize) -> *mut u8 {
    // SAFETY: at least eight bytes are free below `at` ("Writing beyond"); a shift by 64 cannot occur, as
    // `len >= 1`.
    unsafe {
        at.sub(8).cast::<u64>().write_unaligned(value << (64 - 8 * len as u32));
        at.sub(len)
    }
}

#[inline(always)]
unsafe fn varint<const BITS: bool>(at: *mut u8, value: u64) -> *mut u8 {
    // SAFETY: room for ten bytes ("Writing beyond").
    unsafe {
        if value >> 56 == 0 {
            let bytes = spread::<BITS>(value);
            // Bits of the zero bytes above; all bytes but the last go on.
            let above = (bytes | 1).leading_zeros() & !7;
            at.sub(8).cast::<u64>().write_unaligned((bytes | MORE >> 8 >> above) << above);
            return at.sub(8).add(above as usize / 8);
        }
        let high = value >> 56;
        let at = match high {
            ..0x80 => put(at, high, 1),
            _ => put(at, 0x0100 | high & 0x7f | 0x80, 2),
        };
        put(at, spread::<BITS>(value) | MORE, 8)
    }
}

#[inline(always)]
unsafe fn put_tag(at: *mut u8, field: &FieldPlan) -> *mut u8 {
    // SAFETY: as `put`.
    unsafe {
        at.sub(8).cast::<u64>().write_unaligned(field.tag_high);
        at.sub(field.tag_len as usize)
    }
}

/// A varint and the tag before it.
#[inline(always)]
unsafe fn tagged_varint<const BITS: bool>(at: *mut u8, field: &FieldPlan, value: u64) -> *mut u8 {
    // SAFETY: as `put`; a tag of five bytes and two more are less than eight.
    unsafe {
        if value < 0x80 {
            at.sub(8).cast::<u64>().write_unaligned(value << 56 | field.tag_high >> 8);
            return at.sub(1).sub(field.tag_len as usize);
        }
        if value < 0x4000 {
            let bytes = (value & 0x7f) | 0x80 | (value & 0x3f80) << 1;
            at.sub(8).cast::<u64>().write_unaligned(bytes << 48 | field.tag_high >> 16);
            return at.sub(2).sub(field.tag_len as usize);
        }
        put_tag(varint::<BITS>(at, value), field)
    }
}

#[inline(always)]
unsafe fn u32_at(slot: *const u8) -> u32 {
    // SAFETY: the slot lies in the object (the callers').
    unsafe { slot.cast::<u32>().read_unaligned() }
}

#[inline(always)]
unsafe fn u64_at(slot: *const u8) -> u64 {
    // SAFETY: as `u32_at`.
    unsafe { slot.cast::<u64>().read_unaligned() }
}

/// One scalar of this shape, without its tag.
#[inline(always)]
unsafe fn scalar<const BITS: bool>(at: *mut u8, shape: u8, slot: *const u8) -> *mut u8 {
    // SAFETY: the slot lies in the object; room for ten bytes is there.
    unsafe {
        let value = match shape {
            op::VARINT64 => u64_at(slot),
            op::VARINT32 => u64::from(u32_at(slot)),
            op::SINT64 => zigzag64(u64_at(slot)),
            op::SINT32 => zigzag32(u32_at(slot)),
            op::BOOL => u64::from(*slot != 0),
            op::FIXED64 => return put(at, u64_at(slot), 8),
            op::FIXED32 => return put(at, u64::from(u32_at(slot)), 4),
            _ => u32_at(slot) as i32 as u64,
        };
        varint::<BITS>(at, value)
    }
}

/// In place of a message's length: it is a group, which ends with a tag.
const GROUP: usize = usize::MAX;

/// A record whose fields are not all written, while one inside it is.
struct Frame {
    rec: *const u8,
    /// The fields of its current presence word, where that lies, and which bits are left.
    fields: *const FieldPlan,
    word_off: u32,
    bits: u32,
    /// The field that is being written, and the record of it; of a list there are so many left before that one.
    left: u32,
    field: *const FieldPlan,
    child: *const u8,
    /// Bytes behind the record, or [`GROUP`].
    behind: usize,
}

/// Where writing goes on; none: the message has become too long.
type Position = Option<*mut u8>;

impl Writer<'_> {
    /// Takes note of where the buffer lies: gives its end.
    fn look(&mut self) -> *mut u8 {
        let bytes = self.buffer.as_mut_ptr_range();
        self.low = bytes.start.addr() + SLOP;
        self.end = bytes.end;
        bytes.end
    }

    /// Makes `need` more bytes free below; what is written stays at the end. Gives the new position.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, at: *mut u8, need: usize) -> Position {
        let written = self.end.addr() - at.addr();
        let total = written + need + 2 * SLOP;
        if total > LONGEST + 4 * SLOP {
            return None;
        }
        let total = total.max(2 * self.buffer.len()).max(1024);
        let mut larger = Vec::new();
        larger.try_reserve_exact(total).ok()?;
        larger.resize(total, 0);
        larger[total - written..].copy_from_slice(&self.buffer[self.buffer.len() - written..]);
        *self.buffer = larger;
        Some(self.look().wrapping_sub(written))
    }

    /// Position below which `need` bytes and the slop are free.
    #[inline(always)]
    fn room(&mut self, at: *mut u8, need: usize) -> Position {
        if at.addr() < self.low + need { self.grow(at, need) } else { Some(at) }
    }

    /// The bytes of a span, and how many; without tag or length.
    #[inline(always)]
    unsafe fn bytes(&mut self, at: *mut u8, slot: *const u8) -> Option<(*mut u8, usize)> {
        // SAFETY: a sound object's span lies in the object; see "Writing beyond" for the short copies.
        unsafe {
            let span = u64_at(slot);
            let (off, len) = (span as u32 as usize, (span >> 32) as usize);
            let at = self.room(at, len)?;
            let from = self.base.add(off);
            if len <= 2 * PIECE && off + len >= 2 * PIECE {
                let piece = |behind: usize| {
                    let piece = from.add(len).sub(behind).cast::<[u64; PIECE / 8]>().read_unaligned();
                    at.sub(behind).cast::<[u64; PIECE / 8]>().write_unaligned(piece);
                };
                piece(PIECE);
                if len > PIECE {
                    piece(2 * PIECE);
                }
            } else {
                copy::long(from, at.sub(len), len);
            }
            Some((at.sub(len), len))
        }
    }

    /// The record at `rec`, below `at`; gives the new position.
    ///
    /// # Safety
    /// `rec` is the offset of a record of this type in a sound object; `at` is the position.
    unsafe fn record_plain(&mut self, at: *mut u8, rec: usize, type_idx: u32) -> Position {
        // SAFETY: the caller's promise.
        unsafe { self.walk::<false>(at, rec, type_idx) }
    }

    /// As [`Writer::record_plain`], with the processor's instructions for bits.
    ///
    /// # Safety
    /// As there; and [`QUICK_BITS`].
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "bmi1,bmi2,lzcnt")]
    unsafe fn record_bits(&mut self, at: *mut u8, rec: usize, type_idx: u32) -> Position {
        // SAFETY: the caller's promise.
        unsafe { self.walk::<true>(at, rec, type_idx) }
    }

    #[inline(always)]
    unsafe fn record<const BITS: bool>(&mut self, at: *mut u8, rec: usize, type_idx: u32) -> Position {
        // SAFETY: the caller's promise.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if BITS {
                return self.record_bits(at, rec, type_idx);
            }
            self.record_plain(at, rec, type_idx)
        }
    }

    /// Writes a record and, on a stack of its own, those inside it, down to [`LEVELS`]; what is below that by recursion.
    #[inline(always)]
    unsafe fn walk<const BITS: bool>(&mut self, mut at: *mut u8, rec: usize, type_idx: u32) -> Position {
        // SAFETY: `rec` is a record of this type; set bits mean sound slots; recursion is bounded by the depth
        // that decoder and verifier allow. `top` is the last frame in use, or the one before all others,
        // which never is; at `full`, nothing is pushed. Lengths are measured from the end, which growth keeps.
        unsafe {
            let mut stack = [const { MaybeUninit::<Frame>::uninit() }; LEVELS + 1];
            let bottom = stack.as_mut_ptr().cast::<Frame>();
            let full = bottom.add(LEVELS);
            let mut top = bottom;
            let (base, plan) = (self.base, self.plan);
            let mut rec = base.add(rec);
            let (mut fields, mut word_off, mut bits): (*const FieldPlan, u32, u32);
            // Begins with the last presence word.
            macro_rules! enter {
                ($type_idx:expr) => {{
                    let t = plan.types.get_unchecked($type_idx as usize);
                    word_off = t.last_word_off;
                    fields = plan.fields.as_ptr().add(t.last_first as usize);
                    let unknown = u32_at(rec) as usize;
                    if unknown != 0 {
                        at = self.unknown(at, unknown)?;
                    }
                    at = self.room(at, 0)?;
                    bits = u32_at(rec.add(word_off as usize));
                }};
            }
            // Goes into a record, behind which `left` more elements of the list lie.
            macro_rules! descend {
                ($field:expr, $child:expr, $left:expr, $group:expr) => {{
                    let (field, child, left): (&FieldPlan, *const u8, u32) = ($field, $child, $left);
                    if top == full {
                        at = self.nested::<BITS>(at, field, child, left)?;
                    } else {
                        let mut behind = self.end.addr() - at.addr();
                        if $group {
                            at = put(at, field.tag + 1, field.tag_len as usize);
                            behind = GROUP;
                        }
                        top = top.add(1);
                        top.write(Frame { rec, fields, word_off, bits, left, field, child, behind });
                        rec = child;
                        enter!(field.aux_idx);
                    }
                    continue;
                }};
            }
            macro_rules! last {
                ($block:expr, $field:expr) => {{
                    let block = base.add(u32_at($block) as usize);
                    let Some(left) = u32_at(block).checked_sub(1) else { continue };
                    (block.add(LIST_HEADER + left as usize * $field.elem_len as usize), left)
                }};
            }
            enter!(type_idx);
            loop {
                while bits != 0 {
                    let above = bits.leading_zeros();
                    bits &= !(0x8000_0000 >> above);
                    let field = &*fields.add(31 - above as usize);
                    let slot = rec.add(field.slot_off as usize);
                    let value = match field.step {
                        op::VARINT64 => u64_at(slot),
                        op::VARINT32 | op::CLOSED => u64::from(u32_at(slot)),
                        op::INT32 => u32_at(slot) as i32 as u64,
                        op::SINT64 => zigzag64(u64_at(slot)),
                        op::SINT32 => zigzag32(u32_at(slot)),
                        op::BOOL => u64::from(*slot != 0),
                        op::FIXED64 => {
                            at = put_tag(put(at, u64_at(slot), 8), field);
                            continue;
                        }
                        op::FIXED32 => {
                            at = put_tag(put(at, u64::from(u32_at(slot)), 4), field);
                            continue;
                        }
                        op::BYTES | op::STRING => {
                            let len;
                            (at, len) = self.bytes(at, slot)?;
                            len as u64
                        }
                        op::MESSAGE => descend!(field, base.add(u32_at(slot) as usize), 0, false),
                        op::GROUP => descend!(field, base.add(u32_at(slot) as usize), 0, true),
                        op::STEP_MESSAGES => {
                            let (child, left) = last!(slot, field);
                            descend!(field, child, left, false)
                        }
                        op::STEP_GROUPS => {
                            let (child, left) = last!(slot, field);
                            descend!(field, child, left, true)
                        }
                        op::STEP_LIST => {
                            at = self.list::<BITS>(at, field, u32_at(slot) as usize)?;
                            continue;
                        }
                        // There are no others (asserted where plans are made).
                        _ => std::hint::unreachable_unchecked(),
                    };
                    at = tagged_varint::<BITS>(at, field, value);
                }
                if word_off != PRESENCE_OFF {
                    at = self.room(at, 0)?;
                    word_off -= 4;
                    fields = fields.sub(PRESENCE_BITS as usize);
                    bits = u32_at(rec.add(word_off as usize));
                    continue;
                }
                if top == bottom {
                    return Some(at);
                }
                let frame = &mut *top;
                let field = &*frame.field;
                at = self.room(at, 0)?;
                if frame.behind == GROUP {
                    at = put_tag(at, field);
                } else {
                    let len = self.end.addr() - at.addr() - frame.behind;
                    at = tagged_varint::<BITS>(at, field, len as u64);
                }
                if frame.left == 0 {
                    (rec, fields, word_off, bits) = (frame.rec, frame.fields, frame.word_off, frame.bits);
                    top = top.sub(1);
                    continue;
                }
                frame.left -= 1;
                frame.child = frame.child.sub(field.elem_len as usize);
                rec = frame.child;
                if frame.behind == GROUP {
                    at = self.room(at, 0)?;
                    at = put(at, field.tag + 1, field.tag_len as usize);
                } else {
                    frame.behind = self.end.addr() - at.addr();
                }
                enter!(field.aux_idx);
            }
        }
    }

    /// The record `child` of `field` and `left` elements before it, by recursion.
    #[cold]
    #[inline(never)]
    unsafe fn nested<const BITS: bool>(
        &mut self,
        mut at: *mut u8,
        field: &FieldPlan,
        mut child: *const u8,
        left: u32,
    ) -> Position {
        // SAFETY: as `walk`.
        unsafe {
            let is_group = matches!(field.encode, op::GROUP | op::LIST_GROUP);
            for idx in (0..=left).rev() {
                at = self.room(at, 0)?;
                if is_group {
                    at = put(at, field.tag + 1, field.tag_len as usize);
                }
                let behind = self.end.addr() - at.addr();
                at = self.record::<BITS>(at, child.addr() - self.base.addr(), field.aux_idx)?;
                at = self.room(at, 0)?;
                at = if is_group {
                    put_tag(at, field)
                } else {
                    tagged_varint::<false>(at, field, (self.end.addr() - at.addr() - behind) as u64)
                };
                if idx != 0 {
                    child = child.sub(field.elem_len as usize);
                }
            }
            Some(at)
        }
    }

    /// Slices of unknown fields, as they came.
    #[cold]
    #[inline(never)]
    unsafe fn unknown(&mut self, mut at: *mut u8, block: usize) -> Position {
        // SAFETY: a block of spans.
        unsafe {
            let block = self.base.add(block);
            for idx in (0..u32_at(block) as usize).rev() {
                (at, _) = self.bytes(at, block.add(LIST_HEADER + 8 * idx))?;
            }
            Some(at)
        }
    }

    /// A list of scalars or strings.
    #[inline(always)]
    unsafe fn list<const BITS: bool>(
        &mut self,
        mut at: *mut u8,
        field: &FieldPlan,
        block: usize,
    ) -> Position {
        // SAFETY: as `fields`: the block holds `count` elements of `elem_len` bytes.
        unsafe {
            let count = u32_at(self.base.add(block)) as usize;
            let first = block + LIST_HEADER;
            if field.encode >= op::PACKED {
                return self.packed::<BITS>(at, field, first, count);
            }
            for idx in (0..count).rev() {
                at = self.room(at, 0)?;
                let slot = self.base.add(first + idx * field.elem_len as usize);
                if matches!(field.encode, op::LIST_BYTES | op::LIST_STRING) {
                    let len;
                    (at, len) = self.bytes(at, slot)?;
                    at = tagged_varint::<BITS>(at, field, len as u64);
                } else {
                    at = put_tag(scalar::<BITS>(at, field.encode - op::LIST, slot), field);
                }
            }
            Some(at)
        }
    }

    #[inline(always)]
    unsafe fn packed<const BITS: bool>(
        &mut self,
        mut at: *mut u8,
        field: &FieldPlan,
        first: usize,
        count: usize,
    ) -> Position {
        if count == 0 {
            return Some(at);
        }
        let shape = field.encode - op::PACKED;
        let elem_len = field.elem_len as usize;
        let behind = self.end.addr() - at.addr();
        // SAFETY: as `list`.
        unsafe {
            if matches!(shape, op::FIXED32 | op::FIXED64) {
                let len = count * elem_len;
                at = self.room(at, len)?.sub(len);
                copy::long(self.base.add(first), at, len);
            } else {
                for idx in (0..count).rev() {
                    at = self.room(at, 0)?;
                    at = scalar::<BITS>(at, shape, self.base.add(first + idx * elem_len));
                }
            }
            let at = self.room(at, 0)?;
            let len = self.end.addr() - at.addr() - behind;
            Some(tagged_varint::<BITS>(at, field, len as u64))
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
            let shortest = (64 - (value | 1).leading_zeros() as usize).div_ceil(7);
            let check = |write: unsafe fn(*mut u8, u64) -> *mut u8| {
                let mut buffer = [0xee; 64];
                let end = buffer.as_mut_ptr_range().end;
                // SAFETY: 64 bytes are free, and the processor has what the form needs.
                let len = end.addr() - unsafe { write(end, value) }.addr();
                assert_eq!(from_slice(&buffer[64 - len..]), (value, len));
                assert_eq!(len, shortest);
            };
            check(varint::<false>);
            #[cfg(target_arch = "x86_64")]
            if *QUICK_BITS {
                check(varint::<true>);
            }
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
