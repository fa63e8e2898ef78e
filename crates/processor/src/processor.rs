//! Hot module: the processor, a table made ready and what it does with messages.

use crate::arena::Arena;
use crate::decode;
use crate::fault::{self, explain};
use crate::limits::{DecodeError, Limits};
use crate::object::Object;
use crate::plan::Plan;
use std::ops::Deref;
use std::sync::Arc;
use tollfree_layout::flat::{HEADER_LEN, Header};
use tollfree_layout::table::Table;

/// Levels of messages beyond which no limit may go: later walks over the object recurse.
pub(crate) const DEEPEST: u32 = 1000;

/// A table made ready for decoding, encoding, verifying and reading. Cloning shares it; it may be used by many
/// threads at once, each with its own [`Arena`].
#[derive(Debug, Clone)]
pub struct Processor {
    pub(crate) plan: PlanRef,
}

/// A plan that several processors share, or one that stays for good and need not be counted.
#[derive(Debug, Clone)]
pub(crate) enum PlanRef {
    Counted(Arc<Plan>),
    ForGood(&'static Plan),
}

impl Deref for PlanRef {
    type Target = Plan;

    #[inline]
    fn deref(&self) -> &Plan {
        match self {
            PlanRef::Counted(plan) => plan,
            PlanRef::ForGood(plan) => plan,
        }
    }
}

impl Processor {
    /// Makes a table ready. The cost is linear in the table's size; do it once.
    #[must_use]
    pub fn new(table: Table) -> Processor {
        Processor { plan: PlanRef::Counted(Arc::new(Plan::new(table))) }
    }

    /// One whose table stays for good: cloning it costs nothing.
    pub(crate) fn for_good(table: Table) -> Processor {
        Processor { plan: PlanRef::ForGood(Box::leak(Box::new(Plan::new(table)))) }
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.plan.table
    }

    /// Bytes of memory that the table and all that is derived from it take: up to some 10 times the table's own.
    #[must_use]
    pub fn memory_len(&self) -> usize {
        self.plan.memory_len()
    }

    /// What objects with a root of this type carry ([`Table::type_fingerprint`]). It is computed when it is first asked for.
    ///
    /// # Panics
    /// If there is no such type.
    #[must_use]
    pub fn fingerprint(&self, type_idx: u32) -> u64 {
        self.plan.fingerprint(type_idx)
    }

    /// Index of the type with this full name.
    #[must_use]
    pub fn type_by_name(&self, name: &str) -> Option<u32> {
        self.plan.table.type_by_name(name)
    }

    /// Decodes a protobuf message of type `type_idx` into the arena, replacing what was there. Strings and
    /// bytes are copied.
    ///
    /// # Errors
    /// [`DecodeError`]; nothing of the message is visible then, and the arena can be used again.
    #[inline]
    pub fn decode<'a>(
        &'a self,
        type_idx: u32,
        input: &[u8],
        arena: &'a mut Arena<'_>,
        limits: &Limits,
    ) -> Result<Object<'a>, DecodeError> {
        // SAFETY: the slice is readable; `start` has checked the type. Noticed by `limits_hold`.
        self.start(type_idx, input.len(), false, arena, limits, |arena, limits| unsafe {
            decode::run::<false>(&self.plan, type_idx, input.as_ptr(), input.len(), arena, limits)
        })
    }

    /// Decodes the message that was written to [`Arena::stage`]. Strings and bytes of the object are those of
    /// the input, where it lies.
    ///
    /// # Errors
    /// As [`Processor::decode`].
    #[inline]
    pub fn decode_staged<'a>(
        &'a self,
        type_idx: u32,
        arena: &'a mut Arena<'_>,
        limits: &Limits,
    ) -> Result<Object<'a>, DecodeError> {
        let len = arena.staged_len as usize;
        // SAFETY: `len` bytes were staged (`Arena::stage`, once); `start` has checked the type. Noticed by all tests that use
        // `again`, which decodes both ways.
        self.start(type_idx, len, true, arena, limits, |arena, limits| unsafe {
            decode::run::<true>(&self.plan, type_idx, std::ptr::null(), len, arena, limits)
        })
    }

    #[inline(always)]
    fn start<'a>(
        &'a self,
        type_idx: u32,
        len: usize,
        staged: bool,
        arena: &'a mut Arena<'_>,
        limits: &Limits,
        run: impl FnOnce(&mut Arena<'_>, &Limits) -> Result<usize, crate::fault::Fault>,
    ) -> Result<Object<'a>, DecodeError> {
        let Some(plan_type) = self.plan.types.get(type_idx as usize) else {
            return Err(DecodeError::UnknownType { type_idx });
        };
        if plan_type.unsupported {
            return Err(DecodeError::UnsupportedLayout { type_idx });
        }
        let limits = Limits { depth: limits.depth.min(DEEPEST), ..*limits };
        let longest = limits.input_len.min(i32::MAX as u32);
        if len > longest as usize {
            let path = fault::path(&self.plan, type_idx, &[]);
            return Err(DecodeError::Limit { path, offset: 0, what: "bytes of input", limit: longest });
        }
        // The object takes the arena; what was staged there serves once.
        arena.staged_len = 0;
        if !staged {
            arena.begin();
        }
        let object_len = match run(arena, &limits) {
            Ok(object_len) => object_len as u32,
            Err(fault) => return Err(explain(&self.plan, type_idx, &arena.frames, &fault, &limits)),
        };
        let root_off = if staged { decode::staged_root(len) as u32 } else { HEADER_LEN };
        seal(&self.plan, type_idx, root_off, object_len, arena, len)
    }
}

/// Writes the header of the finished object in the arena, and has it where it is to lie. The input was read up to `offset`.
///
/// What calls this answers for the object: that the `object_len` bytes from the arena's first on are sound behind the header.
#[inline(always)]
pub(crate) fn seal<'a>(
    plan: &'a Plan,
    type_idx: u32,
    root_off: u32,
    object_len: u32,
    arena: &'a mut Arena<'_>,
    offset: usize,
) -> Result<Object<'a>, DecodeError> {
    if !arena.settle(object_len as usize) {
        let path = fault::path(plan, type_idx, &[]);
        return Err(DecodeError::ArenaExhausted { path, offset, need: object_len as usize });
    }
    let header = Header { object_len, root_off, fingerprint: plan.fingerprint(type_idx) };
    let bytes = &mut arena.bytes_mut()[..object_len as usize];
    bytes[..HEADER_LEN as usize].copy_from_slice(&header.to_bytes());
    Ok(Object::made(plan, bytes, root_off, type_idx))
}
