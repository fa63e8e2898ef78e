//! Hot module: the Thrift engines, compact and binary protocol to flat messages and back, and message headers.
//!
//! Behaviour is Apache Thrift's own, with these choices where its libraries differ:
//!
//! - A field that the type does not have, or has with another type, is skipped and not kept; encoding writes
//!   known fields only, in ascending order of their ids.
//! - A field that comes again replaces the one before, as a whole. Of a map's entries with one key the last
//!   counts (keys that are structs or containers are not compared); a set's elements stay as they came.
//! - The elements of a container must have the schema's types: libraries that do not look would read garbage.
//! - Strings are UTF-8. A varint's bits beyond its type's width are ignored. A compact bool in a container is 1
//!   for true, 0 or 2 for false; in the binary protocol everything but 0 is true.
//! - A union has exactly one field that is known, once; unknown ones do not count. Required fields must come (unless [`Limits`] says otherwise).
//! - Levels of structs, map entries, and containers inside containers are counted; 250 is the most, whatever the limits
//!   say.
//! - A container that came without elements is present and empty, and is written again.

use crate::arena::Arena;
use crate::fault;
use crate::limits::{DecodeError, Limits};
use crate::object::Object;
use crate::processor::{Processor, seal};

mod decode;
mod encode;
mod message;
mod plan;
mod skip;
mod wire;

pub use message::{Dispatch, MessageHeader, MessageHeaderError, MessageType};
pub(crate) use plan::ThriftPlan;

/// Levels beyond which no limit may go, in either direction: the engines recurse, and must fit a small thread's stack
/// in a build without optimization, too. Apache's libraries stop at 64 structs.
const DEEPEST: u32 = 250;

/// Which of Thrift's encodings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// The compact protocol, version 1.
    Compact,
    /// The binary protocol; message headers carry the version ("strict").
    Binary,
    /// The binary protocol; message headers are written in the old form, without a version, and both forms
    /// are read.
    BinaryOld,
}

impl Processor {
    /// Decodes a struct of type `type_idx` that begins at byte `from` of the input, behind a message's header or
    /// at 0, into the arena, replacing what was there. Strings and bytes are copied. Gives the object and where
    /// in the input the struct ends; Thrift's structs say themselves where that is.
    ///
    /// # Errors
    /// [`DecodeError`]; offsets count from the start of the input. Nothing of the struct is visible then, and the
    /// arena can be used again.
    #[inline]
    pub fn decode_thrift<'a>(
        &'a self,
        protocol: Protocol,
        type_idx: u32,
        input: &[u8],
        from: usize,
        arena: &'a mut Arena<'_>,
        limits: &Limits,
    ) -> Result<(Object<'a>, usize), DecodeError> {
        self.thrift::<false>(protocol, type_idx, input.as_ptr(), input.len(), from, arena, limits)
    }

    /// Decodes the struct at byte `from` of what was written to [`Arena::stage`]. Strings and bytes of the object
    /// are those of the input, where it lies.
    ///
    /// # Errors
    /// As [`Processor::decode_thrift`].
    #[inline]
    pub fn decode_thrift_staged<'a>(
        &'a self,
        protocol: Protocol,
        type_idx: u32,
        from: usize,
        arena: &'a mut Arena<'_>,
        limits: &Limits,
    ) -> Result<(Object<'a>, usize), DecodeError> {
        let len = arena.staged_len as usize;
        self.thrift::<true>(protocol, type_idx, std::ptr::null(), len, from, arena, limits)
    }

    // (Inlined: where a result is handed on in wide pieces, they wait for the narrow stores it was written with.)
    #[allow(clippy::too_many_arguments, reason = "the two functions above, in one")]
    #[inline(always)]
    fn thrift<'a, const ALIAS: bool>(
        &'a self,
        protocol: Protocol,
        type_idx: u32,
        input: *const u8,
        len: usize,
        from: usize,
        arena: &'a mut Arena<'_>,
        limits: &Limits,
    ) -> Result<(Object<'a>, usize), DecodeError> {
        let plan = &*self.plan;
        let Some(in_thrift) = plan.thrift.types.get(type_idx as usize) else {
            return Err(DecodeError::UnknownType { type_idx });
        };
        if !in_thrift.supported {
            return Err(DecodeError::UnsupportedLayout { type_idx });
        }
        let limits = Limits { depth: limits.depth.min(DEEPEST), ..*limits };
        let longest = limits.input_len.min(i32::MAX as u32);
        let path = |steps: &[_]| fault::path(plan, type_idx, steps);
        if len > longest as usize {
            return Err(DecodeError::Limit {
                path: path(&[]),
                offset: 0,
                what: "bytes of input",
                limit: longest,
            });
        }
        if from > len {
            return Err(DecodeError::Truncated { path: path(&[]), offset: len });
        }
        arena.staged_len = 0;
        if !ALIAS {
            arena.begin();
        }
        let at = decode::Input { start: input, len, from };
        // SAFETY: `len` bytes are readable at `input`, or were staged; type and start were checked above. Noticed by
        // `every_prefix_is_refused` and the tests against the `thrift` crate.
        let outcome = unsafe {
            match protocol {
                Protocol::Compact => decode::run::<wire::Compact, ALIAS>(plan, type_idx, at, arena, &limits),
                _ => decode::run::<wire::Binary, ALIAS>(plan, type_idx, at, arena, &limits),
            }
        };
        let done = outcome
            .map_err(|failed| fault::error(failed.why, path(&failed.steps), failed.offset, &limits))?;
        let (root_off, object_len) = (done.root_off as u32, done.object_len as u32);
        let object = seal(plan, type_idx, root_off, object_len, arena, from + done.consumed)?;
        Ok((object, done.consumed))
    }
}
