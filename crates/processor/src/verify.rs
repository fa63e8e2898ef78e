//! Hot module: the verifier, which decides whether bytes from elsewhere are a sound object.
//!
//! # Trust
//!
//! The bytes must be private or stand still: copy first, then verify. Every slot that a presence bit or a oneof
//! tag declares is followed, every offset and length is held against the object's end. Each record, block and
//! string takes its length from a budget of the object's own length, so that what is accepted has no cycles and
//! no piece that is shared many times: a walk through the tree touches no more bytes than it has.
//!
//! # Soundness
//!
//! Unsafe code reads the plan by indices of its own, and a record's slots once the whole record is known to lie in the
//! object ([`Own`]): the table's loader has checked that slots, tag words and presence words lie in their records. What the
//! object says is followed by checked reads only.

use crate::fault::{self, Step};
use crate::object::Object;
use crate::plan::{FieldPlan, Plan, TypePlan};
use crate::processor::{DEEPEST, Processor};
use crate::utf8;
use thiserror::Error;
use tollfree_layout::flat::{
    ALIGN, HEADER_LEN, Header, HeaderError, LIST_HEADER_LEN, MAX_STRING_LEN, PRESENCE_BITS, PRESENCE_OFF,
    SPAN_LEN, UNKNOWN_OFF,
};
use tollfree_layout::steps;
use tollfree_layout::table::Kind;

/// Why bytes are not a sound object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The header is not that of an object.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The table has no such type.
    #[error("the table has no type {type_idx}")]
    UnknownType {
        /// Index that was asked for.
        type_idx: u32,
    },
    /// The object is of another type, or of this type as another schema has it: have the message sent encoded.
    #[error(
        "the object's type has the fingerprint {found:#018x}, {type_name} has {expected:#018x} here: another type, or another \
         version of its schema; have the message sent encoded"
    )]
    Type {
        /// Full name of the type that was expected.
        type_name: String,
        /// The object's.
        found: u64,
        /// This processor's.
        expected: u64,
    },
    /// A record breaks a rule of `spec/flat.md`.
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
        self.verify_noting(type_idx, bytes, depth).map(|(object, _)| object)
    }

    /// As [`Processor::verify`]; and whether a record lacks a required field.
    #[inline]
    pub(crate) fn verify_noting<'a>(
        &'a self,
        type_idx: u32,
        bytes: &'a [u8],
        depth: u32,
    ) -> Result<(Object<'a>, bool), VerifyError> {
        let header = self.head(type_idx, bytes)?;
        let bytes = &bytes[..header.object_len as usize];
        let mut check = Check { plan: &self.plan, bytes, left: header.object_len - HEADER_LEN, lacks: 0 };
        check
            .place(header.root_off, self.plan.types[type_idx as usize].record_len)
            .map_err(|rule| Broken::at(header.root_off, rule))
            .and_then(|()| check.record(header.root_off, type_idx, depth.min(DEEPEST)))
            .map_err(|broken| self.broken(type_idx, *broken))?;
        let lacks_required = check.lacks != 0;
        Ok((Object::made(&self.plan, bytes, header.root_off, type_idx), lacks_required))
    }

    /// The header of an object that is said to be of this type.
    #[inline]
    fn head(&self, type_idx: u32, bytes: &[u8]) -> Result<Header, VerifyError> {
        let header = Header::parse(bytes)?;
        if self.plan.types.len() <= type_idx as usize {
            return Err(VerifyError::UnknownType { type_idx });
        }
        let expected = self.plan.fingerprint(type_idx);
        if header.fingerprint != expected {
            let type_name = fault::path(&self.plan, type_idx, &[]);
            return Err(VerifyError::Type { type_name, found: header.fingerprint, expected });
        }
        Ok(header)
    }

    /// The header of an object whose maker is trusted: of this type, and with a root that lies in it. Nothing else is looked at.
    #[inline]
    pub(crate) fn trusted_head(&self, type_idx: u32, bytes: &[u8]) -> Result<Header, VerifyError> {
        let header = self.head(type_idx, bytes)?;
        let room = header.object_len - header.root_off;
        if room < self.plan.types[type_idx as usize].record_len {
            return Err(self.broken(type_idx, *Broken::at(header.root_off, OUTSIDE)));
        }
        Ok(header)
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
    /// Not zero once a record lacked a required field.
    lacks: u32,
}

/// The bytes at `at` of the object.
#[inline(always)]
fn part<const N: usize>(bytes: &[u8], at: u32) -> Rule<[u8; N]> {
    let at = at as usize;
    match bytes.get(at..at + N).and_then(|bytes| bytes.first_chunk()) {
        Some(part) => Ok(*part),
        None => Err(OUTSIDE),
    }
}

/// The bytes of one record, whole: slots of its type's fields lie in them.
#[derive(Clone, Copy)]
struct Own<'c>(&'c [u8]);

impl<'c> Own<'c> {
    /// The record of this type at `rec`, if it lies in the object.
    #[inline(always)]
    fn new(bytes: &'c [u8], rec: u32, t: &TypePlan) -> Rule<Own<'c>> {
        let rec = rec as usize;
        bytes.get(rec..rec + t.record_len as usize).map(Own).ok_or(OUTSIDE)
    }

    /// What lies in a slot, a tag word or a presence word.
    ///
    /// # Safety
    /// `at` is what the plan says of a type of this record's length, and `N` bytes are what is there.
    #[inline(always)]
    unsafe fn load<const N: usize>(self, at: u32) -> [u8; N] {
        debug_assert!(at as usize + N <= self.0.len());
        // SAFETY: the caller's promise; the assertion notices in the tests of forged objects.
        unsafe { self.0.as_ptr().add(at as usize).cast::<[u8; N]>().read() }
    }

    /// # Safety
    /// As for [`Own::load`].
    #[inline(always)]
    unsafe fn word(self, at: u32) -> u32 {
        // SAFETY: the caller's promise.
        u32::from_le_bytes(unsafe { self.load(at) })
    }
}

/// A 32-bit word of the object.
#[inline(always)]
fn word(bytes: &[u8], at: u32) -> Rule<u32> {
    part(bytes, at).map(u32::from_le_bytes)
}

const OUTSIDE: &str = "an offset leads out of the object";

impl<'c> Check<'c> {
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
            return Err(OUTSIDE);
        }
        self.claim(u64::from(len))
    }

    /// The string of a span. (Claimed before it is looked through: that bounds the work, too.)
    #[inline(always)]
    fn span(&mut self, span: [u8; SPAN_LEN as usize], utf8: bool) -> Rule<()> {
        let span = u64::from_le_bytes(span);
        let (off, len) = (span & 0xffff_ffff, span >> 32);
        if off + len > self.bytes.len() as u64 || len > u64::from(MAX_STRING_LEN) {
            return Err("a string leads out of the object");
        }
        self.claim(len)?;
        steps::take_bytes(len as usize);
        if utf8 && !utf8::is_text(self.bytes, off as usize, len as usize) {
            return Err("a string is not UTF-8");
        }
        Ok(())
    }

    /// The block at `off` of elements of `elem_len` bytes: its count.
    #[inline(always)]
    fn block(&mut self, off: u32, elem_len: u32) -> Rule<u32> {
        self.place(off, LIST_HEADER_LEN)?;
        let (count, capacity) = (word(self.bytes, off)?, word(self.bytes, off + 4)?);
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
        let here = |rule| Broken::at(rec, rule);
        // SAFETY: the type is the one asked for, which `verify` has looked up, or a field's in the plan. Its presence words and
        // their fields are as many as the plan says, and the slots of its fields lie in its record (`Plan::new`, the table's
        // loader). Noticed by the assertions in the tests of forged objects.
        unsafe {
            debug_assert!((type_idx as usize) < plan.types.len());
            let t = plan.types.get_unchecked(type_idx as usize);
            let own = Own::new(self.bytes, rec, t).map_err(here)?;
            let unknown = own.word(UNKNOWN_OFF);
            if unknown != 0 {
                self.spans(unknown, false).map_err(|(rule, _)| here(rule))?;
            }
            let first = t.last_word + 1 - t.presence_words;
            steps::take(1);
            for word_idx in 0..t.presence_words {
                steps::take(1);
                debug_assert!(((first + word_idx) as usize) < plan.checks.len());
                let check = plan.checks.get_unchecked((first + word_idx) as usize);
                let present = own.word(PRESENCE_OFF + 4 * word_idx);
                if present & !check.fields != 0 {
                    return Err(here("a presence bit belongs to no field"));
                }
                self.lacks |= check.required & !present;
                let first_field = t.first_field + PRESENCE_BITS * word_idx;
                macro_rules! each {
                    ($bits:expr, |$idx:ident, $field:ident| $check:expr) => {
                        let mut bits = $bits;
                        while bits != 0 {
                            steps::take(1);
                            let $idx = first_field + bits.trailing_zeros();
                            bits &= bits - 1;
                            debug_assert!($idx < t.first_field + t.field_count);
                            let $field = plan.fields.get_unchecked($idx as usize);
                            $check
                        }
                    };
                }
                let through = |rule, idx| here(rule).through(type_idx, idx - t.first_field, None);
                // What most fields are that lead elsewhere comes first; each kind has a loop of its own, without questions.
                each!(present & check.texts, |idx, field| {
                    self.span(own.load(field.slot_off), true).map_err(|rule| through(rule, idx))?;
                });
                each!(present & check.spans, |idx, field| {
                    self.span(own.load(field.slot_off), false).map_err(|rule| through(rule, idx))?;
                });
                each!(present & check.pieces, |idx, field| {
                    let at = own.word(field.slot_off);
                    self.piece(at, field, depth)
                        .map_err(|found| found.of(rec, type_idx, idx - t.first_field))?;
                });
            }
            if t.oneof_count != 0 {
                self.oneof_tags(own, type_idx, t).map_err(here)?;
            }
        }
        Ok(())
    }

    /// A list of strings; which of them breaks the rule, if one does.
    fn spans(&mut self, block: u32, utf8: bool) -> Result<(), (&'static str, Option<u32>)> {
        let count = self.block(block, SPAN_LEN).map_err(|rule| (rule, None))?;
        for idx in 0..count {
            let span = part(self.bytes, block + LIST_HEADER_LEN + SPAN_LEN * idx);
            span.and_then(|span| self.span(span, utf8)).map_err(|rule| (rule, Some(idx)))?;
        }
        Ok(())
    }

    /// Whether the members that are present are just those that the tags name. The work is one step for each oneof and for each presence
    /// word: a oneof may have more members than the record has bytes.
    ///
    /// # Safety
    /// The record is of this type, which the plan has.
    unsafe fn oneof_tags(&self, own: Own<'_>, type_idx: u32, t: &TypePlan) -> Rule<()> {
        const DIFFER: &str = "a oneof's tag and the presence of its members differ";
        let fields = self.plan.fields_of(type_idx);
        let mut chosen_count = 0;
        let first = t.first_oneof as usize;
        for tag_off in &self.plan.oneofs[first..first + t.oneof_count as usize] {
            steps::take(1);
            // SAFETY: the tag word of a oneof of this type.
            let tag = unsafe { own.word(*tag_off) };
            if tag == 0 {
                continue;
            }
            let chosen = self.plan.field_idx(type_idx, tag).map(|idx| &fields[idx as usize]);
            let chosen = chosen.filter(|chosen| chosen.oneof_off == *tag_off);
            let chosen = chosen.ok_or("a oneof's tag names none of its members")?;
            // SAFETY: the presence word of a field of this type.
            if unsafe { own.word(chosen.presence_off) } & chosen.presence_bit == 0 {
                return Err(DIFFER);
            }
            chosen_count += 1;
        }
        let mut present_count = 0;
        for (word_idx, check) in (0u32..).zip(self.plan.checks_of(type_idx)) {
            // SAFETY: a presence word of this type.
            let present = unsafe { own.word(PRESENCE_OFF + 4 * word_idx) };
            present_count += (present & check.members).count_ones();
        }
        // Each tag's member is present; so another one is, if there are more.
        if present_count == chosen_count { Ok(()) } else { Err(DIFFER) }
    }

    /// The record, list or map at `at` that a slot of this field leads to.
    #[inline(always)]
    fn piece(&mut self, at: u32, field: &FieldPlan, depth: u32) -> Result<(), Found> {
        match (field.kind, field.label.is_list()) {
            (Kind::Message, list) => {
                let depth = depth.checked_sub(1).ok_or("records nest too deep")?;
                if !list {
                    self.place(at, field.elem_len)?;
                    return self
                        .record(at, field.aux_idx, depth)
                        .map_err(|broken| Found::Below(broken, None));
                }
                let count = self.block(at, field.elem_len)?;
                let first = at + LIST_HEADER_LEN;
                for idx in 0..count {
                    self.record(first + idx * field.elem_len, field.aux_idx, depth)
                        .map_err(|broken| Found::Below(broken, Some(idx)))?;
                }
                Ok(())
            }
            (Kind::String | Kind::Bytes, _) => {
                self.spans(at, field.is_text()).map_err(|(rule, element_idx)| Found::Here(rule, element_idx))
            }
            _ => Ok(self.block(at, field.elem_len).map(|_| ())?),
        }
    }
}

/// What is wrong with a field, or with what lies below it.
enum Found {
    Here(&'static str, Option<u32>),
    Below(Box<Broken>, Option<u32>),
}

impl From<&'static str> for Found {
    fn from(rule: &'static str) -> Found {
        Found::Here(rule, None)
    }
}

impl Found {
    /// As what is wrong with this field of the record at `rec`.
    #[cold]
    fn of(self, rec: u32, type_idx: u32, field_idx: u32) -> Box<Broken> {
        match self {
            Found::Here(rule, element_idx) => Broken::at(rec, rule).through(type_idx, field_idx, element_idx),
            Found::Below(broken, element_idx) => broken.through(type_idx, field_idx, element_idx),
        }
    }
}
