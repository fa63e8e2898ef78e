//! Hot module: room in the arena, list blocks, and what a list on the wire looks like ahead.
//!
//! What the unsafe code here relies on is [`Cursor`]'s invariant, which the engine keeps up. Noticed by the tests of lists,
//! of unknown fields and of arenas that grow or are exhausted, and by the fuzz target `protobuf`.

use crate::arena::{Arena, SLOP};
use crate::fault::Why;
use crate::plan::FieldPlan;
use crate::varint;
use tollfree_layout::flat::{HEADER_LEN, LIST_HEADER_LEN, SPAN_LEN};
use tollfree_layout::steps;

/// Where the engine reads and writes. Always handed on by reference: a copy in wide pieces waits for the narrow stores
/// that it was written with.
///
/// # Invariant
/// `base` is the arena's memory of `cap` bytes; `cur` bytes are in use. Room for what is still to be copied
/// is always there: `cap - cur >= (len - pos) + SLOP`. So strings, which take no more bytes than they have on
/// the wire, are copied without a check; a step that takes more room restores it with [`Cursor::room`].
pub(crate) struct Cursor {
    pub base: *mut u8,
    pub cap: usize,
    pub cur: usize,
    /// The input, or its patched tail: byte `pos` of the input is `buf + pos`.
    pub buf: *const u8,
    pub pos: usize,
    /// Bytes of the input.
    pub len: usize,
    /// Bytes that can be read at `buf`.
    pub readable: usize,
    /// Offset of the record that is being filled.
    pub rec: usize,
}

/// Largest request the arena is asked for; sums of it and any position fit 64 bits.
const IMPOSSIBLE: usize = 1 << 40;

impl Cursor {
    /// Aligns `cur` and makes sure of `need` bytes there, beside the invariant.
    ///
    /// # Safety
    /// The invariant holds, and `arena` is the one that `base` points into.
    #[inline(always)]
    pub(crate) unsafe fn room<const ALIAS: bool>(
        &mut self,
        arena: &mut Arena<'_>,
        need: usize,
    ) -> Result<(), Why> {
        // SAFETY: SLOP bytes lie behind `cur`. The gap is cleared so that no byte of an earlier message stays
        // visible. Noticed by `recycled_memory_does_not_show`.
        unsafe { self.base.add(self.cur).cast::<u64>().write_unaligned(0) };
        debug_assert!(self.pos <= self.len);
        self.cur = self.cur.next_multiple_of(8);
        if self.cap - self.cur < need + (self.len - self.pos) + SLOP {
            self.grow::<ALIAS>(arena, need)?;
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn grow<const ALIAS: bool>(&mut self, arena: &mut Arena<'_>, need: usize) -> Result<(), Why> {
        let total = self.cur + need.min(IMPOSSIBLE) + (self.len - self.pos) + SLOP;
        (self.base, self.cap) = arena.reserve(total).ok_or(Why::Room(total))?;
        if ALIAS {
            self.buf = self.base.wrapping_add(HEADER_LEN as usize);
            self.readable = self.cap - HEADER_LEN as usize;
        }
        Ok(())
    }

    /// Takes `len` zeroed bytes at `cur`, which is aligned; gives their offset.
    ///
    /// # Safety
    /// [`Cursor::room`] has just been asked for at least `len` bytes; `len` is a multiple of eight.
    #[inline(always)]
    pub(crate) unsafe fn take_zeroed(&mut self, len: usize) -> usize {
        let at = self.cur;
        // SAFETY: `len` bytes and SLOP behind them are there, so the last step may overshoot by 63.
        unsafe { zero(self.base.add(at), len) };
        self.cur += len;
        at
    }

    /// A 32-bit word of the object.
    ///
    /// # Safety
    /// `at + 4 <= cap`.
    #[inline(always)]
    pub(crate) unsafe fn word(&self, at: usize) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.base.add(at).cast::<u32>().read_unaligned() }
    }

    /// Writes a 32-bit word of the object.
    ///
    /// # Safety
    /// `at + 4 <= cap`.
    #[inline(always)]
    pub(crate) unsafe fn set_word(&self, at: usize, value: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.base.add(at).cast::<u32>().write_unaligned(value) }
    }
}

/// Clears `len` bytes, and up to 63 behind them. (Straight stores: a loop would become a call of memset.)
///
/// # Safety
/// `len` + [`SLOP`] bytes are there.
#[inline(always)]
pub(crate) unsafe fn zero(at: *mut u8, len: usize) {
    steps::take_bytes(len);
    // SAFETY: the caller's.
    unsafe {
        at.cast::<[u64; 8]>().write_unaligned([0; 8]);
        if len > 64 {
            at.add(64).cast::<[u64; 8]>().write_unaligned([0; 8]);
            if len > 128 {
                at.add(128).write_bytes(0, len - 128);
            }
        }
    }
}

/// Bytes of a block of `capacity` elements.
#[inline(always)]
pub(crate) fn block_len(capacity: u64, elem_len: u32) -> usize {
    (u64::from(LIST_HEADER_LEN) + capacity * u64::from(elem_len)).next_multiple_of(8) as usize
}

/// A first block, with room for `run` elements: its offset.
///
/// # Safety
/// The cursor's invariant.
#[inline(always)]
pub(crate) unsafe fn first_block<const ALIAS: bool>(
    s: &mut Cursor,
    arena: &mut Arena<'_>,
    elem_len: u32,
    run: u32,
) -> Result<usize, Why> {
    let need = block_len(u64::from(run), elem_len);
    // SAFETY: `room` has made `need` bytes available.
    unsafe {
        s.room::<ALIAS>(arena, need)?;
        let block = s.take_zeroed(need);
        s.set_word(block + 4, run);
        Ok(block)
    }
}

/// A block with room for `run` more elements, at least twice as long as the full one at `block`, whose
/// elements it takes over: its offset.
///
/// # Safety
/// The cursor's invariant; `block` is the offset of a block of `count` elements of `elem_len` bytes.
#[cold]
#[inline(never)]
pub(crate) unsafe fn grow_block<const ALIAS: bool>(
    s: &mut Cursor,
    arena: &mut Arena<'_>,
    elem_len: u32,
    block: usize,
    count: u32,
    run: u32,
) -> Result<usize, Why> {
    let capacity = (u64::from(count) + u64::from(run)).max(2 * u64::from(count));
    let need = block_len(capacity, elem_len);
    steps::take_bytes(count as usize * elem_len as usize);
    // SAFETY: the caller's invariant; the old block lies below `cur` and the new one above it; it holds
    // `capacity` elements, `count` of which are copied. Noticed by the interleaved-lists test.
    unsafe {
        s.room::<ALIAS>(arena, need)?;
        let new = s.take_zeroed(need);
        s.set_word(new, count);
        s.set_word(new + 4, capacity as u32);
        let header = LIST_HEADER_LEN as usize;
        let from = s.base.add(block + header);
        from.copy_to_nonoverlapping(s.base.add(new + header), count as usize * elem_len as usize);
        Ok(new)
    }
}

/// How many fields with the same tag follow one another from `from`, at least one. Nothing is checked: what is
/// malformed ends the run.
#[inline(never)]
pub(crate) fn run_ahead(input: &[u8], field: &FieldPlan, tag: u64, from: usize, end: usize) -> u32 {
    let wire_type = tag & 7;
    let (mask, tag_len) = (field.tag_mask(), field.tag_len as usize);
    let input = &input[..end.min(input.len())];
    let mut at = from;
    let mut count = 0u32;
    loop {
        steps::take(1);
        let word = match input.get(at..at + 8) {
            Some(bytes) => u64::from_le_bytes([
                bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7],
            ]),
            None => {
                let mut last = [0; 8];
                let tail = input.get(at..).unwrap_or(&[]);
                if tail.len() < tag_len {
                    break;
                }
                last[..tail.len()].copy_from_slice(tail);
                u64::from_le_bytes(last)
            }
        };
        if (word ^ tag) & mask != 0 {
            break;
        }
        at += tag_len;
        let rest = word >> (8 * tag_len as u32);
        let skip = match wire_type {
            0 if rest & 0x80 == 0 && at < input.len() => 1,
            0 if rest & 0x8000 == 0 && tag_len < 5 && at + 1 < input.len() => 2,
            0 => varint::from_slice(input.get(at..).unwrap_or(&[])).1,
            1 => 8,
            5 => 4,
            2 => {
                let byte = rest as u8;
                if byte < 0x80 && at < input.len() {
                    1 + byte as usize
                } else {
                    match varint::from_slice(input.get(at..).unwrap_or(&[])) {
                        (_, 0) => 0,
                        (value, len) => len.saturating_add(value as usize),
                    }
                }
            }
            _ => 0,
        };
        if skip == 0 || skip > input.len() - at.min(input.len()) {
            break;
        }
        at += skip;
        count += 1;
    }
    count.max(1)
}

/// Adds the bytes `from..to` of the input to the record's unknown fields.
///
/// # Safety
/// The cursor's invariant before these bytes were read; `input` points to the whole input as it lies now.
#[cold]
#[inline(never)]
pub(crate) unsafe fn keep_unknown<const ALIAS: bool>(
    s: &mut Cursor,
    arena: &mut Arena<'_>,
    input: *const u8,
    from: usize,
    to: usize,
) -> Result<(), Why> {
    steps::take_bytes(to - from);
    // SAFETY: `from..to` lies in the input; it was consumed, so the invariant gives room for its copy.
    unsafe {
        if ALIAS {
            return keep_unknown_at::<true>(s, arena, HEADER_LEN as usize + from, to - from);
        }
        let at = s.cur;
        input.add(from).copy_to_nonoverlapping(s.base.add(at), to - from);
        s.cur += to - from;
        keep_unknown_at::<false>(s, arena, at, to - from)
    }
}

/// Adds bytes that already lie in the object to the record's unknown fields; joins them to the last ones if
/// they follow them.
///
/// # Safety
/// The cursor's invariant; `at..at + len` lies in the object.
pub(crate) unsafe fn keep_unknown_at<const ALIAS: bool>(
    s: &mut Cursor,
    arena: &mut Arena<'_>,
    at: usize,
    len: usize,
) -> Result<(), Why> {
    let header = LIST_HEADER_LEN as usize;
    // SAFETY: the record's first word is 0 or the offset of a block of spans, kept so by this function alone.
    unsafe {
        let mut block = s.word(s.rec) as usize;
        let (count, capacity) = if block == 0 { (0, 0) } else { (s.word(block), s.word(block + 4)) };
        if count > 0 {
            let last = block + header + (count as usize - 1) * SPAN_LEN as usize;
            let (last_off, last_len) = (s.word(last) as usize, s.word(last + 4) as usize);
            if last_off + last_len == at {
                s.set_word(last + 4, (last_len + len) as u32);
                return Ok(());
            }
        }
        if count == capacity {
            if block == 0 {
                block = first_block::<ALIAS>(s, arena, SPAN_LEN, 1)?;
            } else {
                block = grow_block::<ALIAS>(s, arena, SPAN_LEN, block, count, 1)?;
            }
            s.set_word(s.rec, block as u32);
        }
        let span = block + header + count as usize * SPAN_LEN as usize;
        s.set_word(span, at as u32);
        s.set_word(span + 4, len as u32);
        s.set_word(block, count + 1);
        Ok(())
    }
}
