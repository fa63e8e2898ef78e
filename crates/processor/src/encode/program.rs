//! Hot module: the encoder's steps for the fields that a record has, kept for the next record that has the same.
//!
//! Which fields are present is known when the presence word has been loaded; its highest bit tells the field, that one its
//! slot, the slot the record to go on with: four loads one behind the other, twenty cycles for each record inside another.
//! But records of a type mostly have the fields that the last one had. So an encoder's buffer keeps, for each presence word of
//! each type, the word that it saw last and the steps for it, one behind the other. Whether the word is the same is a
//! branch, and nothing waits for a branch that is foreseen. If it is another one, its steps are put together from the plan's.
//!
//! # Soundness
//!
//! Unsafe code here and above relies on this: the words and steps of a [`Memo`] are of the plan whose number it has
//! (`Memo::of` sees to it; no two plans have the same). Each word's part of `kept` has room for a step for each of its
//! fields and an end; where `held` says so, there are the steps for these bits and an end. All steps that were ever there have
//! the same `own`. A sound record has no bits beyond its type's fields. Noticed by `one_buffer_serves_several_plans` and
//! `records_inside_records_of_their_own_type` in `tests`, and by the round trips of the fuzz target `protobuf`.

use crate::plan::{FieldPlan, TypePlan, op};
use tollfree_layout::flat::{PRESENCE_BITS, PRESENCE_OFF};

/// What is done for one field, or at the end of a word's fields.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ProgramStep {
    /// The tag as it is written, in the high bytes.
    pub tag_high: u64,
    pub slot_off: u32,
    /// Bytes of an element of the list.
    pub elem_len: u32,
    /// Of a message the last presence word of its type; in bytes from the memo's first word.
    pub child: u32,
    /// The word that this belongs to, likewise.
    pub own: u32,
    /// Where the tag begins, seen from where it ends.
    pub tag: i8,
    /// What the encoder branches on.
    pub op: u8,
    /// As in [`FieldPlan`]: a list's shape, too.
    pub encode: u8,
}

/// One presence word of one type. All zeroes: nothing was learnt yet.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Word {
    /// How a record begins that has no unknown fields, and for whose presence word the steps are there: the complement of its
    /// first eight bytes. Zero before anything was learnt, and in types of several words: no record begins like that, for its
    /// unknown fields would lie behind the longest object.
    pub key: u64,
    /// The steps for it.
    pub first: *mut ProgramStep,
    /// The word that the steps are for, and one more: zero if there are none.
    pub held: u64,
    /// Where it lies in the record, once something was learnt.
    pub off: u32,
}

/// No plan's number.
pub(super) const NO_PLAN: u64 = 0;

/// All steps of a plan: those of each type's fields by ascending number.
#[derive(Debug)]
pub(crate) struct Steps {
    number: u64,
    /// The presence words, as [`TypePlan::last_word`] counts them.
    words: Box<[WordPlan]>,
    steps: Box<[ProgramStep]>,
}

#[derive(Debug)]
struct WordPlan {
    off: u32,
    steps_from: u32,
    /// Its type has no other.
    only: bool,
}

impl Steps {
    pub(crate) fn new(types: &[TypePlan], fields: &[FieldPlan]) -> Steps {
        static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let (mut words, mut steps) = (Vec::new(), Vec::with_capacity(fields.len()));
        for t in types {
            let own = t.first_field as usize..(t.first_field + t.field_count) as usize;
            assert_eq!(own.start, steps.len(), "the encoder relies on it");
            let first_word = words.len() as u32;
            for idx in 0..t.presence_words {
                words.push(WordPlan {
                    off: PRESENCE_OFF + 4 * idx,
                    steps_from: t.first_field + idx * PRESENCE_BITS,
                    only: t.presence_words == 1,
                });
            }
            assert_eq!(words.len(), t.last_word as usize + 1, "the encoder relies on it");
            for (idx, field) in fields[own].iter().enumerate() {
                steps.push(step(types, field, first_word + idx as u32 / PRESENCE_BITS));
            }
        }
        // One for each type, of which the first is the plan's: see `Plan::type_number`.
        let number = NUMBER.fetch_add(types.len() as u64 + 1, std::sync::atomic::Ordering::Relaxed);
        Steps { number, words: words.into(), steps: steps.into() }
    }

    /// Bytes of memory that they take.
    pub(crate) fn memory_len(&self) -> usize {
        size_of_val(&*self.words) + size_of_val(&*self.steps)
    }

    /// The number, which no other plan has.
    #[inline(always)]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

/// Where a word lies behind the memo's first one.
pub(super) fn word_off(word_idx: u32) -> u32 {
    const { assert!(size_of::<Word>() == 32) };
    word_idx
        .checked_mul(32)
        .expect("a table has at most 2^32 bytes, and a presence word a type of twelve and more")
}

fn step(types: &[TypePlan], field: &FieldPlan, word_idx: u32) -> ProgramStep {
    let op = match field.encode {
        op::LIST_MESSAGE => op::STEP_MESSAGES,
        op::LIST_GROUP => op::STEP_GROUPS,
        one if one <= op::INT32 => one,
        _ => op::STEP_LIST,
    };
    let is_message = matches!(op, op::MESSAGE | op::GROUP | op::STEP_MESSAGES | op::STEP_GROUPS);
    ProgramStep {
        tag_high: field.tag << (64 - 8 * field.tag_len),
        slot_off: field.slot_off,
        elem_len: field.elem_len,
        child: if is_message { word_off(types[field.aux_idx as usize].last_word) } else { 0 },
        own: word_off(word_idx),
        tag: -(field.tag_len as i8),
        op,
        encode: field.encode,
    }
}

const _: () = assert!(
    size_of::<ProgramStep>() == size_of::<[u64; 4]>() && align_of::<ProgramStep>() == align_of::<u64>()
);
// A record begins with its unknown fields and its first presence word.
const _: () = assert!(PRESENCE_OFF == 4);

/// Plans that a buffer remembers at most.
const MEMOS: usize = 8;

/// What an encoder's buffer keeps for one plan.
#[derive(Debug)]
pub(crate) struct Memo {
    number: u64,
    /// The words, and behind them where their steps lie. Zeroes of this form cost nothing until they are touched: to turn to another
    /// plan costs the same, however large its table is.
    room: Vec<[u64; 4]>,
}

const _: () = assert!(size_of::<Word>() == size_of::<[u64; 4]>() && align_of::<Word>() == align_of::<u64>());

impl Memo {
    /// The one for these steps.
    pub(crate) fn of<'m>(memos: &'m mut Vec<Memo>, steps: &Steps) -> &'m mut Memo {
        if let Some(at) = memos.iter().position(|memo| memo.number == steps.number) {
            memos[..=at].rotate_right(1);
            return &mut memos[0];
        }
        memos.truncate(MEMOS - 1);
        // Behind the steps of each word there is room for an end.
        let room = vec![[0; 4]; steps.words.len() + steps.steps.len() + steps.words.len()];
        memos.insert(0, Memo { number: steps.number, room });
        &mut memos[0]
    }

    /// The first of its words.
    pub(crate) fn words(&mut self) -> *mut Word {
        self.room.as_mut_ptr().cast()
    }
}

/// Puts the steps for this record together.
///
/// # Safety
/// `word` is the one at `own` in a [`Memo`] of these steps; `rec` is a sound record of its type.
#[inline(never)]
pub(super) unsafe fn learn(steps: &Steps, word: *mut Word, own: u32, rec: *const u8) {
    let word_idx = own as usize / size_of::<Word>();
    let plan = &steps.words[word_idx];
    // SAFETY: the caller's promise; see "Soundness".
    unsafe {
        let bits = rec.add(plan.off as usize).cast::<u32>().read_unaligned();
        let kept = word.sub(word_idx).add(steps.words.len()).cast::<ProgramStep>();
        let mut to = kept.add(plan.steps_from as usize + word_idx);
        word.write(Word {
            key: if plan.only { !(u64::from(bits) << 32) } else { 0 },
            first: to,
            held: u64::from(bits) + 1,
            off: plan.off,
        });
        let from = steps.steps.as_ptr().add(plan.steps_from as usize);
        let mut rest = bits;
        while rest != 0 {
            let bit = 31 - rest.leading_zeros();
            rest &= !(1 << bit);
            debug_assert!(plan.steps_from + bit < steps.steps.len() as u32);
            to.write(from.add(bit as usize).read());
            to = to.add(1);
        }
        let op = if plan.off == PRESENCE_OFF { op::STEP_END } else { op::STEP_WORD };
        to.write(ProgramStep { op, own, ..ProgramStep::default() });
    }
}
