//! Hot module: protobuf bytes to a flat message, driven by the table.
//!
//! # Reading ahead
//!
//! A tag and the varint behind it take at most 15 bytes and are read with 8-byte loads that may reach further,
//! so the engine reads from the input only while 16 bytes are left in it. The last bytes are then read from a
//! *patched tail*: a copy of the input's last 64 bytes with zeroes behind them. `buf` is set so that `buf + pos`
//! is right for both. A staged input lies in the arena, with room behind it, and needs no patch.
//!
//! # Room
//!
//! See [`Cursor`]: strings need no check, records and list blocks restore the invariant. A list's first block
//! is as long as the run of equal tags ahead, so it seldom grows.
//!
//! # Two loops
//!
//! `fast_decode` reads what most messages are made of with its state in registers, and leaves the rest to the engine here, which
//! keeps its state in memory, handles everything, and alone says what is wrong (docs/internals/codec.md).
//!
//! # Trust
//!
//! The input is hostile; the plan is not (the loader checked its table). Every length is held against the end of
//! the message it is in before it is used. Messages nest on a stack of frames of bounded height.

mod field;

use crate::arena::{Arena, SLOP};
use crate::fast_decode::{self, DecodePlace};
use crate::fault::{Fault, Why};
use crate::finish;
use crate::limits::Limits;
use crate::list::Cursor;
use crate::plan::finish::MAPS;
use crate::plan::{NONE, Plan};
use crate::tail::{self, Tail};
use tollfree_layout::flat::HEADER_LEN;

/// Where to go on when a message inside another ends, and how its own path step reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    /// Offset of the outer record.
    pub rec: u32,
    /// End of the outer message in the input.
    pub end: u32,
    pub type_idx: u32,
    /// The outer type's field that holds the inner message.
    pub field_idx: u32,
    /// Which element of it; [`SINGULAR`] or [`MERGED`] if it is not a list.
    pub element_idx: u32,
    /// Number of the group that the outer message is, or 0.
    pub group: u32,
}

/// In place of an element's index: a message field's first occurrence, or a later one that is merged into it.
pub(crate) const SINGULAR: u32 = u32::MAX;
pub(crate) const MERGED: u32 = u32::MAX - 1;

/// In place of a field's index: none.
const NO_FIELD: u32 = NONE as u32;

/// What the message is decoded into and from, and where the engine is in both.
struct Engine<'e, 'm, const ALIAS: bool> {
    plan: &'e Plan,
    arena: &'e mut Arena<'m>,
    limits: &'e Limits,
    patch: &'e mut Tail,
    /// The input, unless it is staged: then it lies in the arena and may move with it.
    input: *const u8,
    s: Cursor,
    place: DecodePlace,
    /// Before here the input is read where it lies, from here on in its patched tail.
    switch: usize,
    /// The field that was begun last, for errors; once there is one, also the element of it.
    field_idx: u32,
    element_idx: Option<u32>,
    /// A required field was missing at the end of some record.
    missing: bool,
    /// Maps were left with keys that occur more than once.
    merged_maps: bool,
}

/// Decodes the input of `len` bytes at `input` (`ALIAS`: staged in the arena) as type `type_idx`. Gives the
/// offset of the first byte behind the object.
///
/// # Safety
/// `len` bytes are readable at `input`, `type_idx` is a type of the plan; `ALIAS`: they were staged in `arena`.
pub(crate) unsafe fn run<const ALIAS: bool>(
    plan: &Plan,
    type_idx: u32,
    input: *const u8,
    len: usize,
    arena: &mut Arena<'_>,
    limits: &Limits,
) -> Result<usize, Fault> {
    let mut patch = Tail::new();
    let mut engine = Engine::<ALIAS> {
        plan,
        arena,
        limits,
        patch: &mut patch,
        input,
        s: Cursor {
            base: std::ptr::null_mut(),
            cap: 0,
            cur: if ALIAS { staged_root(len) } else { HEADER_LEN as usize },
            buf: input,
            pos: 0,
            len,
            readable: len,
            rec: 0,
        },
        place: DecodePlace { type_idx, end: len, group: 0, fields_left: limits.fields },
        switch: if ALIAS { usize::MAX } else { len.saturating_sub(15) },
        field_idx: NO_FIELD,
        element_idx: None,
        missing: false,
        merged_maps: false,
    };
    // SAFETY: the caller's promises.
    match unsafe { engine.whole(type_idx) } {
        Ok(object_len) => Ok(object_len),
        Err(why) => Err(Fault {
            why,
            offset: engine.s.pos.min(len),
            type_idx: engine.place.type_idx,
            field_idx: (engine.field_idx != NO_FIELD).then_some(engine.field_idx),
            element_idx: engine.element_idx,
        }),
    }
}

// All methods rely on this: `plan` indices come from the plan itself, whose table the loader checked: fields lie in
// their type, slots in their record, target types exist. Positions are held below `end <= len` before the bytes there
// are used; loads ahead are covered by "Reading ahead". Records and blocks lie below `cur <= cap`. Noticed by the
// round-trip, prefix and mutation tests.
impl<const ALIAS: bool> Engine<'_, '_, ALIAS> {
    /// # Safety
    /// As for [`run`], which has just made this engine.
    #[inline(always)]
    unsafe fn whole(&mut self, root: u32) -> Result<usize, Why> {
        // SAFETY: the caller's promises.
        unsafe {
            self.start(root)?;
            self.messages()?;
            self.complete(root)?;
            self.s.base.add(self.s.cur).cast::<u64>().write_unaligned(0);
        }
        Ok(self.s.cur.next_multiple_of(8))
    }

    /// Takes the arena and the root record; reads a short input from its patched tail.
    #[inline(always)]
    unsafe fn start(&mut self, root: u32) -> Result<(), Why> {
        let len = self.s.len;
        // SAFETY: see above; the arena has room for root, input and slop.
        unsafe {
            let root_len = self.plan.types.get_unchecked(root as usize).record_len as usize;
            let first = self.s.cur + root_len + len + SLOP;
            (self.s.base, self.s.cap) = self.arena.reserve(first).ok_or(Why::Room(first))?;
            if ALIAS {
                self.s.buf = self.input();
                self.s.readable = self.s.cap - HEADER_LEN as usize;
                // Zeroes behind the input, as the patched tail has them: a varint that is cut off ends there.
                self.s.base.add(HEADER_LEN as usize + len).cast::<u64>().write_unaligned(0);
                self.s.base.add(self.s.cur - 8).cast::<u64>().write_unaligned(0);
            }
            self.s.rec = self.s.take_zeroed(root_len);
            if !ALIAS && len <= tail::REPEATED {
                self.patch();
            }
        }
        Ok(())
    }

    /// The whole input as it lies now.
    #[inline(always)]
    fn input(&self) -> *const u8 {
        if ALIAS { self.s.base.wrapping_add(HEADER_LEN as usize) } else { self.input }
    }

    /// Goes on in the patched tail.
    #[inline(always)]
    unsafe fn patch(&mut self) {
        // SAFETY: the input's `len` bytes are readable.
        self.s.buf = unsafe { self.patch.fill(self.input, self.s.len) };
        self.s.readable = tail::readable(self.s.len);
        self.switch = usize::MAX;
    }

    /// Reads fields until the outermost message ends.
    #[inline(always)]
    unsafe fn messages(&mut self) -> Result<(), Why> {
        // SAFETY: see above.
        unsafe {
            self.arena.frames.clear();
            self.arena.frames.reserve(self.limits.depth as usize);
            // Each field takes a byte and more: where so many are allowed, none has to be counted.
            let counted = (self.limits.fields as usize) < self.s.len;
            loop {
                if self.place.group == 0 {
                    let limit = self.switch.min(self.s.len);
                    let depth = self.limits.depth;
                    let (s, place, frames) = (&mut self.s, &mut self.place, &mut self.arena.frames);
                    if counted {
                        fast_decode::run::<ALIAS, true>(self.plan, s, place, frames, limit, depth);
                    } else {
                        fast_decode::run::<ALIAS, false>(self.plan, s, place, frames, limit, depth);
                    }
                }
                // The other loop leaves lists to this one where room is short, which lays them out otherwise. An object shall
                // not depend on how much memory there was: make room, and let it go on.
                let is_short = self.s.pos < self.place.end
                    && self.s.cap - self.s.cur < fast_decode::AHEAD + (self.s.len - self.s.pos) + SLOP;
                if is_short && self.s.grow::<ALIAS>(self.arena, fast_decode::AHEAD).is_ok() {
                    continue;
                }
                let ended = if self.s.pos < self.place.end.min(self.switch) {
                    self.field()?
                } else if self.s.pos < self.place.end {
                    self.patch();
                    continue;
                } else {
                    self.end()?;
                    true
                };
                if ended && !self.leave()? {
                    return Ok(());
                }
            }
        }
    }

    /// The message's last byte is read: whether it may end there.
    #[inline(always)]
    fn end(&mut self) -> Result<(), Why> {
        if self.s.pos > self.place.end {
            // The field that was read last has passed the end; of a list, its last element.
            self.s.pos = self.place.end;
            self.element_idx = self.element_count().map(|count| count.saturating_sub(1));
            return Err(Why::Truncated);
        }
        self.field_idx = NO_FIELD;
        if self.place.group != 0 { Err(Why::Truncated) } else { Ok(()) }
    }

    /// Completes the record and goes back to the message around it; false if there is none.
    #[inline(always)]
    unsafe fn leave(&mut self) -> Result<bool, Why> {
        let type_idx = self.place.type_idx;
        self.field_idx = NO_FIELD;
        // SAFETY: see above; frames hold what they were made from.
        unsafe {
            let finish = self.plan.types.get_unchecked(type_idx as usize).finish;
            if finish != 0 {
                // A map that is merged again and again would be looked through each time: once, at the end.
                let merged = self.arena.frames.last().is_some_and(|frame| frame.element_idx == MERGED);
                self.merged_maps |= merged && finish & MAPS != 0;
                let (s, missing) = (&mut self.s, &mut self.missing);
                finish::record::<ALIAS>(self.plan, s, self.arena, type_idx, merged, missing)?;
            }
        }
        let Some(frame) = self.arena.frames.pop() else { return Ok(false) };
        self.s.rec = frame.rec as usize;
        self.place.end = frame.end as usize;
        self.place.type_idx = frame.type_idx;
        self.place.group = frame.group;
        Ok(true)
    }

    /// Goes into a message inside this one: its record, its end, which element of the field it is, and its group's number
    /// or 0. (After [`Engine::may_descend`].)
    #[inline(always)]
    unsafe fn descend(&mut self, child: Child, end: usize, group: u32) {
        // SAFETY: room for `depth` frames was reserved, and `may_descend` has said that they are not all in use.
        unsafe {
            self.arena.frames.as_mut_ptr().add(self.arena.frames.len()).write(Frame {
                rec: self.s.rec as u32,
                end: self.place.end as u32,
                type_idx: self.place.type_idx,
                field_idx: self.field_idx,
                element_idx: child.element_idx,
                group: self.place.group,
            });
            self.arena.frames.set_len(self.arena.frames.len() + 1);
        }
        self.s.rec = child.rec;
        (self.place.type_idx, self.place.end, self.place.group) = (child.type_idx, end, group);
    }

    /// Whether the limits allow for one more message inside this one.
    #[inline(always)]
    fn may_descend(&self) -> Result<(), Why> {
        if self.arena.frames.len() as u32 >= self.limits.depth { Err(Why::Depth) } else { Ok(()) }
    }

    /// Elements that the list has which the current field is; none if it is no list.
    #[cold]
    #[inline(never)]
    fn element_count(&self) -> Option<u32> {
        let field = self.plan.fields_of(self.place.type_idx).get(self.field_idx as usize)?;
        // SAFETY: see above; the slot of a list holds 0 or the offset of its block.
        field.label.is_list().then(|| unsafe {
            match self.s.word(self.s.rec + field.slot_off as usize) {
                0 => 0,
                block => self.s.word(block as usize),
            }
        })
    }

    /// What can be seen to only when all is read.
    #[inline(always)]
    unsafe fn complete(&mut self, root: u32) -> Result<(), Why> {
        // SAFETY: the root's record and all below it are complete.
        unsafe {
            if self.merged_maps {
                finish::all_maps(self.plan, &self.s, root, self.s.rec);
            }
            if self.missing && self.limits.require_all {
                // Merging may have filled in what was missing when a part of the message ended.
                let found =
                    finish::find_missing(self.plan, self.s.base, root, self.s.rec, &mut self.arena.frames);
                if let Some((type_idx, field_idx)) = found {
                    (self.place.type_idx, self.field_idx) = (type_idx, field_idx);
                    return Err(Why::Required);
                }
            }
        }
        Ok(())
    }
}

/// A record to go into.
struct Child {
    rec: usize,
    type_idx: u32,
    /// As in [`Frame`].
    element_idx: u32,
}

/// Offset of the root record behind a staged input of `len` bytes, at least eight bytes behind it.
pub(crate) fn staged_root(len: usize) -> usize {
    (HEADER_LEN as usize + len).next_multiple_of(8) + 8
}
