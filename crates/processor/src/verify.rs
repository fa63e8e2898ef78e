//! The verifier: decides whether bytes from elsewhere are a sound object.
//!
//! # Trust
//!
//! The bytes must be private or stand still: copy first, then verify. Every slot that a presence bit or a oneof
//! tag declares is followed, every offset and length is held against the object's end. Each record, block and
//! string takes its length from a budget of the object's own length, so that what is accepted has no cycles and
//! no piece that is shared many times: whoever walks it as a tree touches no more bytes than it has. There is no
//! unsafe code here.

use crate::fault::{self, Step};
use crate::object::Object;
use crate::plan::{FieldPlan, Plan};
use crate::processor::{DEEPEST, Processor};
use thiserror::Error;
use tollfree_layout::linear::{
    ALIGN, HEADER_LEN, Header, HeaderError, LIST_HEADER_LEN, PRESENCE_OFF, SPAN_LEN, UNKNOWN_OFF,
};
use tollfree_layout::table::Kind;

/// Why bytes are not a sound object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The header is not that of an object.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The object was made with another table.
    #[error("the object was made with table {found:#018x}, here table {expected:#018x} is used")]
    Table {
        /// The object's.
        found: u64,
        /// This processor's.
        expected: u64,
    },
    /// The object is of another type, or of none that the table has.
    #[error("the object is of type {found}, type {expected} is expected")]
    Type {
        /// The object's.
        found: u32,
        /// The one asked for.
        expected: u32,
    },
    /// A record breaks a rule of `spec/linear.md`.
    #[error("{path}: {rule} (record at {offset})")]
    Record {
        /// Field path: `Type.outer.inner[3].name`; to the record itself, if the rule is none of a field.
        path: String,
        /// Offset of the record in the object.
        offset: u32,
        /// The rule, in words.
        rule: &'static str,
    },
}

/// Which rule was broken, and where. The levels leave their steps on the way up.
struct Broken {
    rule: &'static str,
    offset: u32,
    /// Innermost first.
    steps: Vec<Step>,
}

impl Broken {
    /// In a box: what is returned at every level stays a word.
    #[cold]
    fn at(offset: u32, rule: &'static str) -> Box<Broken> {
        Box::new(Broken { rule, offset, steps: Vec::new() })
    }

    /// The way led through this field, or this element of it.
    #[cold]
    fn through(mut self: Box<Self>, type_idx: u32, field_idx: u32, element_idx: Option<u32>) -> Box<Self> {
        self.steps.push(Step { type_idx, field_idx, element_idx });
        self
    }
}

type Rule<T> = Result<T, &'static str>;

impl Processor {
    /// Verifies that `bytes` begin with a sound object of type `type_idx` whose records nest at most `depth`
    /// deep. `bytes` must not change while the object is in use, which the borrow makes sure of for private
    /// memory; never pass memory that a peer can still write.
    ///
    /// # Errors
    /// [`VerifyError`] names the first rule that is broken, and where.
    pub fn verify<'a>(
        &'a self,
        type_idx: u32,
        bytes: &'a [u8],
        depth: u32,
    ) -> Result<Object<'a>, VerifyError> {
        let header = Header::parse(bytes)?;
        let expected = self.plan.table.fingerprint();
        if header.fingerprint != expected {
            return Err(VerifyError::Table { found: header.fingerprint, expected });
        }
        if header.type_idx != type_idx || self.plan.types.len() <= type_idx as usize {
            return Err(VerifyError::Type { found: header.type_idx, expected: type_idx });
        }
        let bytes = &bytes[..header.object_len as usize];
        let mut check = Check { plan: &self.plan, bytes, left: header.object_len - HEADER_LEN };
        check
            .place(header.root_off, self.plan.types[type_idx as usize].record_len)
            .map_err(|rule| Broken::at(header.root_off, rule))
            .and_then(|()| check.record(header.root_off, type_idx, depth.min(DEEPEST)))
            .map_err(|broken| self.broken(type_idx, *broken))?;
        Ok(Object::made(&self.plan, bytes, &header))
    }

    #[cold]
    fn broken(&self, root: u32, mut broken: Broken) -> VerifyError {
        broken.steps.reverse();
        let path = fault::path(&self.plan, root, &broken.steps);
        VerifyError::Record { path, offset: broken.offset, rule: broken.rule }
    }
}

struct Check<'c> {
    plan: &'c Plan,
    bytes: &'c [u8],
    /// Bytes of the object that nothing has claimed yet.
    left: u32,
}

impl Check<'_> {
    #[inline(always)]
    fn word(&self, at: u32) -> Rule<u32> {
        let at = at as usize;
        match self.bytes.get(at..at.wrapping_add(4)) {
            Some(bytes) => Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
            None => Err("an offset leads out of the object"),
        }
    }

    /// Takes `len` bytes from the budget.
    #[inline(always)]
    fn claim(&mut self, len: u64) -> Rule<()> {
        if len > u64::from(self.left) {
            return Err("its parts are longer than the object: they overlap, or nest in a circle");
        }
        self.left -= len as u32;
        Ok(())
    }

    /// A record or block of `len` bytes at `off`.
    #[inline(always)]
    fn place(&mut self, off: u32, len: u32) -> Rule<()> {
        if off < HEADER_LEN || !off.is_multiple_of(ALIGN) {
            return Err("an offset is not aligned, or leads into the header");
        }
        if u64::from(off) + u64::from(len) > self.bytes.len() as u64 {
            return Err("an offset leads out of the object");
        }
        self.claim(u64::from(len))
    }

    /// The string whose span lies at `at`.
    #[inline(always)]
    fn span(&mut self, at: u32, utf8: bool) -> Rule<()> {
        let (off, len) = (self.word(at)?, self.word(at + 4)?);
        let end = u64::from(off) + u64::from(len);
        let Some(bytes) = self.bytes.get(off as usize..end as usize) else {
            return Err("a string leads out of the object");
        };
        if utf8 && simdutf8::basic::from_utf8(bytes).is_err() {
            return Err("a string is not UTF-8");
        }
        self.claim(u64::from(len))
    }

    /// The block at `off` of elements of `elem_len` bytes: its count.
    fn block(&mut self, off: u32, elem_len: u32) -> Rule<u32> {
        self.place(off, LIST_HEADER_LEN)?;
        let (count, capacity) = (self.word(off)?, self.word(off + 4)?);
        if count > capacity {
            return Err("a list has more elements than room");
        }
        let len = u64::from(capacity) * u64::from(elem_len);
        if u64::from(off) + u64::from(LIST_HEADER_LEN) + len > self.bytes.len() as u64 {
            return Err("a list leads out of the object");
        }
        self.claim(len)?;
        Ok(count)
    }

    /// What the record at `rec` declares; its own bytes are claimed and inside.
    fn record(&mut self, rec: u32, type_idx: u32, depth: u32) -> Result<(), Box<Broken>> {
        let plan = self.plan;
        let t = &plan.types[type_idx as usize];
        let fields = plan.fields_of(type_idx);
        let here = |rule| Broken::at(rec, rule);
        let unknown = self.word(rec + UNKNOWN_OFF).map_err(here)?;
        if unknown != 0 {
            self.spans(unknown, false).map_err(|(rule, _)| here(rule))?;
        }
        let last = t.last_word as usize;
        let checks = &plan.checks[last + 1 - t.presence_words as usize..=last];
        for (word_idx, check) in (0..).zip(checks) {
            let present = self.word(rec + PRESENCE_OFF + 4 * word_idx).map_err(here)?;
            if present & !check.fields != 0 {
                return Err(here("a presence bit belongs to no field"));
            }
            let mut bits = present & check.leading;
            while bits != 0 {
                let field_idx = 32 * word_idx + bits.trailing_zeros();
                bits &= bits - 1;
                self.field(rec, type_idx, field_idx, &fields[field_idx as usize], depth)?;
            }
        }
        if t.has_oneofs {
            self.oneof_tags(rec, type_idx).map_err(here)?;
        }
        Ok(())
    }

    /// A list of strings; which of them breaks the rule, if one does.
    fn spans(&mut self, block: u32, utf8: bool) -> Result<(), (&'static str, Option<u32>)> {
        let count = self.block(block, SPAN_LEN).map_err(|rule| (rule, None))?;
        for idx in 0..count {
            let span = self.span(block + LIST_HEADER_LEN + SPAN_LEN * idx, utf8);
            span.map_err(|rule| (rule, Some(idx)))?;
        }
        Ok(())
    }

    fn oneof_tags(&self, rec: u32, type_idx: u32) -> Rule<()> {
        let fields = self.plan.fields_of(type_idx);
        for field in fields.iter().filter(|field| field.oneof_off != 0) {
            let tag = self.word(rec + field.oneof_off)?;
            let present = self.word(rec + field.presence_off)? & field.presence_bit != 0;
            if (tag == field.number) != present {
                return Err("a oneof's tag and the presence of its members differ");
            }
            if tag != 0 && !present {
                let chosen = self.plan.field_idx(type_idx, tag).map(|idx| &fields[idx as usize]);
                if chosen.is_none_or(|chosen| chosen.oneof_off != field.oneof_off) {
                    return Err("a oneof's tag names none of its members");
                }
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        rec: u32,
        type_idx: u32,
        field_idx: u32,
        field: &FieldPlan,
        depth: u32,
    ) -> Result<(), Box<Broken>> {
        let here = |rule| Broken::at(rec, rule).through(type_idx, field_idx, None);
        let slot = rec + field.slot_off;
        let utf8 = field.is_text();
        match (field.kind, field.label.is_list()) {
            (Kind::Message, list) => {
                let Some(depth) = depth.checked_sub(1) else { return Err(here("records nest too deep")) };
                let at = self.word(slot).map_err(here)?;
                let (first, count) = if list {
                    (at.wrapping_add(LIST_HEADER_LEN), self.block(at, field.elem_len).map_err(here)?)
                } else {
                    self.place(at, field.elem_len).map_err(here)?;
                    (at, 1)
                };
                for idx in 0..count {
                    self.record(first + idx * field.elem_len, field.aux_idx, depth)
                        .map_err(|broken| broken.through(type_idx, field_idx, list.then_some(idx)))?;
                }
                Ok(())
            }
            (Kind::String | Kind::Bytes, false) => self.span(slot, utf8).map_err(here),
            (Kind::String | Kind::Bytes, true) => {
                let block = self.word(slot).map_err(here)?;
                self.spans(block, utf8).map_err(|(rule, element_idx)| {
                    Broken::at(rec, rule).through(type_idx, field_idx, element_idx)
                })
            }
            (_, false) => Ok(()),
            (_, true) => {
                self.word(slot).and_then(|at| self.block(at, field.elem_len)).map_err(here).map(|_| ())
            }
        }
    }
}
