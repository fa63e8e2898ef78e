//! Hot module: a flat message back to protobuf bytes, written from the last byte to the first.
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
//! of the decoder, by `tests/suite/hostile`, whose forged objects are encoded, and by the fuzz targets.

mod program;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use program::Steps;

use crate::copy;
#[cfg(target_arch = "x86_64")]
use crate::copy::QUICK_BITS;
use crate::object::Object;
use crate::plan::{Plan, op};
use program::{Memo, ProgramStep, Word, learn};
use std::mem::MaybeUninit;
use thiserror::Error;
use tollfree_layout::flat::LIST_HEADER_LEN;
use tollfree_layout::steps;
use write::{put, put_end, put_tag, scalar, tagged_varint, u32_at, u64_at, zigzag32, zigzag64};

/// Bytes that stay free below the write position.
const SLOP: usize = 640;
const LIST_HEADER: usize = LIST_HEADER_LEN as usize;
/// Short strings are copied in one or two pieces of so many bytes, whatever their length.
const PIECE: usize = 32;
/// Records inside records for which there is room on the encoder's stack; few in this crate's own tests, so that they
/// reach beyond.
const LEVELS: usize = if cfg!(test) { 3 } else { 24 };
/// protobuf's longest message; a short one in this crate's own tests, so that they reach it.
const LONGEST: usize = match (cfg!(test), cfg!(miri)) {
    (false, _) => i32::MAX as usize,
    (true, false) => 1 << 20,
    // Miri takes minutes for a megabyte.
    (true, true) => 1 << 16,
};

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
///
/// It also remembers which fields the last record of each type had, and how such a record is written: some 32 bytes for each
/// field of a schema that it was used with. It does so for the eight schemas that it was last used with.
pub struct EncodeBuffer {
    writer: Writer,
}

impl std::fmt::Debug for EncodeBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EncodeBuffer({} bytes)", self.writer.bytes.len())
    }
}

impl Default for EncodeBuffer {
    fn default() -> Self {
        EncodeBuffer::new()
    }
}

impl EncodeBuffer {
    /// An empty buffer.
    #[must_use]
    pub fn new() -> EncodeBuffer {
        let mut writer = Writer {
            plan: std::ptr::null(),
            base: std::ptr::null(),
            low: 0,
            end: std::ptr::null_mut(),
            words: std::ptr::null_mut(),
            learnt: false,
            #[cfg(target_arch = "x86_64")]
            quick_bits: false,
            number: program::NO_PLAN,
            bytes: Vec::new(),
            memos: Vec::new(),
        };
        writer.look();
        EncodeBuffer { writer }
    }
}

impl Object<'_> {
    /// Encodes the object as a protobuf message; the bytes stay in `buffer` until it is used again.
    ///
    /// # Errors
    /// [`EncodeError`].
    #[inline]
    pub fn encode<'b>(&self, buffer: &'b mut EncodeBuffer) -> Result<&'b [u8], EncodeError> {
        let out = &mut buffer.writer;
        // SAFETY: an object is of a type of its plan's, and sound: its records and blocks are what the plan says (made by the
        // decoder or accepted by the verifier); the wide form only where the processor has it. What is between `start` and
        // the end was written, in the buffer, which stays as it is while it is borrowed. Noticed by the round-trip and
        // hostile-object tests.
        unsafe {
            let t = self.plan.types.get_unchecked(self.type_idx as usize);
            if t.unsupported {
                return Err(EncodeError::UnsupportedLayout { type_idx: self.type_idx });
            }
            if out.number != self.plan.steps.number() {
                out.remember(self.plan);
            }
            (out.plan, out.base, out.learnt) = (self.plan, self.bytes.as_ptr(), false);
            let (root, word_off) = (self.root_off as usize, t.last_word * size_of::<Word>() as u32);
            #[cfg(target_arch = "x86_64")]
            let start = if out.quick_bits {
                out.record_bits(out.end, root, word_off)
            } else {
                out.record_plain(out.end, root, word_off)
            };
            #[cfg(not(target_arch = "x86_64"))]
            let start = out.record_plain(out.end, root, word_off);
            let Some(start) = start else { return Err(EncodeError::TooLong) };
            let len = out.end.addr() - start.addr();
            // The buffer grows by doubling, so that it may have had room for more.
            if len > LONGEST {
                return Err(EncodeError::TooLong);
            }
            Ok(std::slice::from_raw_parts(start, len))
        }
    }
}

struct Writer {
    /// The object's plan, and the object: while one is encoded.
    plan: *const Plan,
    base: *const u8,
    /// Address above which there are [`SLOP`] bytes and more.
    low: usize,
    /// Behind the buffer's last byte.
    end: *mut u8,
    /// What is remembered of this plan's records; see `program`.
    words: *mut Word,
    /// Steps were replaced since the object was begun: perhaps those of a record that is not complete.
    learnt: bool,
    /// [`QUICK_BITS`].
    #[cfg(target_arch = "x86_64")]
    quick_bits: bool,
    /// The number of the plan that `words` are of.
    number: u64,
    bytes: Vec<u8>,
    memos: Vec<Memo>,
}

// SAFETY: the pointers lead into `bytes` and `memos`, which belong to the writer and stay where they are (`look`, `remember`),
// and, while an object is encoded, to the object, which is borrowed meanwhile. Nothing is read or written through them but by
// who has the writer mutably. A race would be noticed by the thread sanitizer wherever a buffer goes to another thread, as in
// `a_buffer_goes_to_another_thread`.
unsafe impl Send for Writer {}
// SAFETY: as above: behind a shared reference there is nothing to be had.
unsafe impl Sync for Writer {}

/// A record whose fields are not all written, while one inside it is.
struct Frame {
    rec: *const u8,
    /// The step behind that of the field which is being written.
    next: *const ProgramStep,
    /// Bytes behind the record that is being written, unless it is a group.
    behind: usize,
    /// Zero for a message that is no list's. One more than there are left before it, for a list's or a group. [`NOTHING`].
    more: u32,
    /// The element that is being written.
    child: *const u8,
}

/// In place of a frame's count: there is no record around this one.
const NOTHING: u32 = u32::MAX;

/// Where writing goes on; none: the message has become too long.
type Position = Option<*mut u8>;

impl Writer {
    /// Takes note of where the buffer lies.
    fn look(&mut self) {
        let bytes = self.bytes.as_mut_ptr_range();
        (self.low, self.end) = (bytes.start.addr() + SLOP, bytes.end);
    }

    /// Turns to what is remembered of this plan.
    #[cold]
    #[inline(never)]
    fn remember(&mut self, plan: &Plan) {
        self.words = Memo::of(&mut self.memos, &plan.steps).words();
        self.number = plan.steps.number();
        #[cfg(target_arch = "x86_64")]
        (self.quick_bits = *QUICK_BITS);
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
        let total = total.max(2 * self.bytes.len()).max(1024);
        steps::take_bytes(total);
        let mut larger = Vec::new();
        larger.try_reserve_exact(total).ok()?;
        larger.resize(total, 0);
        larger[total - written..].copy_from_slice(&self.bytes[self.bytes.len() - written..]);
        self.bytes = larger;
        self.look();
        Some(self.end.wrapping_sub(written))
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
    /// `rec` is the offset of a record in a sound object, and `word_off` leads to the last presence word of its type;
    /// `at` is the position.
    unsafe fn record_plain(&mut self, at: *mut u8, rec: usize, word_off: u32) -> Position {
        // SAFETY: the caller's promise.
        unsafe { self.walk::<false>(at, rec, word_off) }
    }

    /// As [`Writer::record_plain`], with the processor's instructions for bits.
    ///
    /// # Safety
    /// As there; and [`QUICK_BITS`].
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "bmi1,bmi2,lzcnt")]
    unsafe fn record_bits(&mut self, at: *mut u8, rec: usize, word_off: u32) -> Position {
        // SAFETY: the caller's promise.
        unsafe { self.walk::<true>(at, rec, word_off) }
    }

    #[inline(always)]
    unsafe fn record<const BITS: bool>(&mut self, at: *mut u8, rec: usize, word_off: u32) -> Position {
        // SAFETY: the caller's promise.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if BITS {
                return self.record_bits(at, rec, word_off);
            }
            self.record_plain(at, rec, word_off)
        }
    }

    /// Writes a record and, on a stack of its own, those inside it, down to [`LEVELS`]; what is below that by recursion.
    #[inline(always)]
    unsafe fn walk<const BITS: bool>(&mut self, mut at: *mut u8, rec: usize, word_off: u32) -> Position {
        // SAFETY: `rec` is a record of this type; steps are those for its bits (`program`, "Soundness"), and set bits mean
        // sound slots; recursion is bounded by the depth that decoder and verifier allow. `top` is the last frame in use, of
        // which the first has nothing around it; at `full`, nothing is pushed. Lengths are measured from the end, which
        // growth keeps.
        unsafe {
            let mut stack = [const { MaybeUninit::<Frame>::uninit() }; LEVELS + 1];
            let mut top = stack.as_mut_ptr().cast::<Frame>();
            let full = top.add(LEVELS);
            (*top).more = NOTHING;
            let base = self.base;
            let mut rec = base.add(rec);
            let mut next: *const ProgramStep;
            // Begins with the last presence word.
            macro_rules! enter {
                ($word_off:expr) => {{
                    let word_off: u32 = $word_off;
                    let word = self.words.byte_add(word_off as usize);
                    steps::take(1);
                    at = self.room(at, 0)?;
                    if !u64_at(rec) != (*word).key {
                        at = self.other(at, rec, word_off)?;
                    }
                    next = (*word).first;
                }};
            }
            // Goes into a record, behind which there are more of the list.
            macro_rules! descend {
                ($step:expr, $child:expr, $more:expr, $group:expr) => {{
                    let (step, child, more): (&ProgramStep, *const u8, u32) = ($step, $child, $more);
                    if top == full {
                        at = self.nested::<BITS>(at, *step, child, more.max(1) - 1)?;
                        if self.learnt {
                            self.again(rec, next);
                        }
                    } else {
                        let behind = self.end.addr() - at.addr();
                        if $group {
                            at = put_end(at, step);
                        }
                        top = top.add(1);
                        (*top).rec = rec;
                        (*top).next = next;
                        (*top).behind = behind;
                        (*top).more = more;
                        if more != 0 {
                            (*top).child = child;
                        }
                        rec = child;
                        enter!(step.child);
                    }
                    continue;
                }};
            }
            macro_rules! last {
                ($block:expr, $step:expr) => {{
                    let block = base.add(u32_at($block) as usize);
                    let more = u32_at(block);
                    if more == 0 {
                        continue;
                    }
                    (block.add(LIST_HEADER + (more - 1) as usize * $step.elem_len as usize), more)
                }};
            }
            enter!(word_off);
            loop {
                steps::take(1);
                let step = &*next;
                next = next.add(1);
                let slot = rec.add(step.slot_off as usize);
                let value = match step.op {
                    op::VARINT64 => u64_at(slot),
                    op::VARINT32 | op::CLOSED => u64::from(u32_at(slot)),
                    op::INT32 => u32_at(slot) as i32 as u64,
                    op::SINT64 => zigzag64(u64_at(slot)),
                    op::SINT32 => zigzag32(u32_at(slot)),
                    op::BOOL => u64::from(*slot != 0),
                    op::FIXED64 => {
                        at = put_tag(put(at, u64_at(slot), 8), step);
                        continue;
                    }
                    op::FIXED32 => {
                        at = put_tag(put(at, u64::from(u32_at(slot)), 4), step);
                        continue;
                    }
                    op::BYTES | op::STRING => {
                        let len;
                        (at, len) = self.bytes(at, slot)?;
                        len as u64
                    }
                    op::MESSAGE => descend!(step, base.add(u32_at(slot) as usize), 0, false),
                    op::GROUP => descend!(step, base.add(u32_at(slot) as usize), 1, true),
                    op::STEP_MESSAGES => {
                        let (child, more) = last!(slot, step);
                        descend!(step, child, more, false)
                    }
                    op::STEP_GROUPS => {
                        let (child, more) = last!(slot, step);
                        descend!(step, child, more, true)
                    }
                    op::STEP_LIST => {
                        at = self.list::<BITS>(at, step, u32_at(slot) as usize)?;
                        continue;
                    }
                    op::STEP_WORD => {
                        at = self.room(at, 0)?;
                        next = self.word_before(rec, step.own);
                        continue;
                    }
                    op::STEP_END => {
                        at = self.room(at, 0)?;
                        let frame = &mut *top;
                        if frame.more == 0 {
                            (rec, next) = (frame.rec, frame.next);
                            let len = self.end.addr() - at.addr() - frame.behind;
                            top = top.sub(1);
                            if self.learnt {
                                self.again(rec, next);
                            }
                            at = tagged_varint::<BITS>(at, &*next.sub(1), len as u64);
                            continue;
                        }
                        if frame.more == NOTHING {
                            return Some(at);
                        }
                        if self.learnt {
                            self.again(frame.rec, frame.next);
                        }
                        let step = &*frame.next.sub(1);
                        let is_group = matches!(step.op, op::GROUP | op::STEP_GROUPS);
                        if is_group {
                            at = put_tag(at, step);
                        } else {
                            let len = self.end.addr() - at.addr() - frame.behind;
                            at = tagged_varint::<BITS>(at, step, len as u64);
                        }
                        if frame.more == 1 {
                            (rec, next) = (frame.rec, frame.next);
                            top = top.sub(1);
                            continue;
                        }
                        frame.more -= 1;
                        frame.child = frame.child.sub(step.elem_len as usize);
                        rec = frame.child;
                        frame.behind = self.end.addr() - at.addr();
                        if is_group {
                            at = put_end(self.room(at, 0)?, step);
                        }
                        enter!(step.child);
                        continue;
                    }
                    // `Steps::new` and `learn` make no others.
                    _ => std::hint::unreachable_unchecked(),
                };
                at = tagged_varint::<BITS>(at, step, value);
            }
        }
    }

    /// A record that does not begin as the last one of its type did: writes its unknown fields, sees to its steps.
    #[inline(never)]
    unsafe fn other(&mut self, mut at: *mut u8, rec: *const u8, word_off: u32) -> Position {
        // SAFETY: as `walk`.
        unsafe {
            let unknown = u32_at(rec) as usize;
            if unknown != 0 {
                at = self.unknown(at, unknown)?;
                at = self.room(at, 0)?;
            }
            self.hold(rec, word_off);
        }
        Some(at)
    }

    /// Sees to it that the word's steps are those for this record.
    #[inline(always)]
    unsafe fn hold(&mut self, rec: *const u8, word_off: u32) {
        // SAFETY: as `walk`.
        unsafe {
            let word = self.words.byte_add(word_off as usize);
            let bits = u32_at(rec.add((*word).off as usize));
            if (*word).held != u64::from(bits) + 1 {
                learn(&(*self.plan).steps, word, word_off, rec);
                self.learnt = true;
            }
        }
    }

    /// The same where a record is gone on with at `next`, whose word all steps before it have named that were ever there.
    #[inline(always)]
    unsafe fn again(&mut self, rec: *const u8, next: *const ProgramStep) {
        // SAFETY: as `walk`.
        unsafe { self.hold(rec, (*next.sub(1)).own) }
    }

    /// The steps of the presence word before the one at `own`.
    #[inline(never)]
    unsafe fn word_before(&mut self, rec: *const u8, own: u32) -> *const ProgramStep {
        let own = own - size_of::<Word>() as u32;
        // SAFETY: as `walk`; only words that are not their type's first end so.
        unsafe {
            self.hold(rec, own);
            (*self.words.byte_add(own as usize)).first
        }
    }

    /// The record `child` of `step` and `left` elements before it, by recursion.
    #[cold]
    #[inline(never)]
    unsafe fn nested<const BITS: bool>(
        &mut self,
        mut at: *mut u8,
        step: ProgramStep,
        mut child: *const u8,
        left: u32,
    ) -> Position {
        // SAFETY: as `walk`.
        unsafe {
            let is_group = matches!(step.op, op::GROUP | op::STEP_GROUPS);
            for idx in (0..=left).rev() {
                at = self.room(at, 0)?;
                if is_group {
                    at = put_end(at, &step);
                }
                let behind = self.end.addr() - at.addr();
                at = self.record::<BITS>(at, child.addr() - self.base.addr(), step.child)?;
                at = self.room(at, 0)?;
                at = if is_group {
                    put_tag(at, &step)
                } else {
                    tagged_varint::<false>(at, &step, (self.end.addr() - at.addr() - behind) as u64)
                };
                if idx != 0 {
                    child = child.sub(step.elem_len as usize);
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
            steps::take(u32_at(block) as usize);
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
        step: &ProgramStep,
        block: usize,
    ) -> Position {
        // SAFETY: as `fields`: the block holds `count` elements of `elem_len` bytes.
        unsafe {
            let count = u32_at(self.base.add(block)) as usize;
            steps::take(count);
            let first = block + LIST_HEADER;
            if step.encode >= op::PACKED {
                return self.packed::<BITS>(at, step, first, count);
            }
            for idx in (0..count).rev() {
                at = self.room(at, 0)?;
                let slot = self.base.add(first + idx * step.elem_len as usize);
                if matches!(step.encode, op::LIST_BYTES | op::LIST_STRING) {
                    let len;
                    (at, len) = self.bytes(at, slot)?;
                    at = tagged_varint::<BITS>(at, step, len as u64);
                } else {
                    at = put_tag(scalar::<BITS>(at, step.encode - op::LIST, slot), step);
                }
            }
            Some(at)
        }
    }

    #[inline(always)]
    unsafe fn packed<const BITS: bool>(
        &mut self,
        mut at: *mut u8,
        step: &ProgramStep,
        first: usize,
        count: usize,
    ) -> Position {
        if count == 0 {
            return Some(at);
        }
        let shape = step.encode - op::PACKED;
        let elem_len = step.elem_len as usize;
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
            Some(tagged_varint::<BITS>(at, step, len as u64))
        }
    }
}
