//! Calls of all four kinds, by bytes.

use std::ffi::c_int;

use tollfree_driver_loop::{CallId, CallStart, Message};
use tollfree_layout::errors;

use crate::buffer::Payload;
use crate::error::{Failure, run};
use crate::event::TOLLFREE_FLAG_COMPRESSED;
use crate::loops::{Kept, Loop};
use crate::pointers::{self, Bytes, Growing};
use crate::session::Session;

/// `flags` of a call's start: there is a message.
pub const TOLLFREE_FLAG_HAS_MESSAGE: u32 = 8;
/// `flags` of a call's start: no other message follows.
pub const TOLLFREE_FLAG_LAST: u32 = 16;
/// `flags` of the start of a channel's call: it waits for a connection however often connecting fails, until its deadline.
pub const TOLLFREE_FLAG_WAITS: u32 = 32;
/// `flags` of the start of a channel's call: it does not, whatever the service config says.
pub const TOLLFREE_FLAG_WAITS_NOT: u32 = 64;

/// gRPC's codes: 0 to 16.
const CODE_MAX: u32 = 16;

/// A call. `{{0}, 0}` is none. No two calls of a loop have the same.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    session: Session,
    number: u64,
}

/// How a call begins.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// `sizeof(tollfree_start)`.
    size: usize,
    /// `/package.Service/Method`.
    path: Bytes<'a>,
    /// A block of metadata, or none.
    metadata: Bytes<'a>,
    /// The call ends with DEADLINE_EXCEEDED then, on the clock of `tollfree_now_ns`; 0: no matter when.
    deadline_ns: u64,
    /// The first message, with `TOLLFREE_FLAG_HAS_MESSAGE`.
    message: Payload<'a>,
    /// Bits: `TOLLFREE_FLAG_HAS_MESSAGE`, `TOLLFREE_FLAG_LAST`, `TOLLFREE_FLAG_COMPRESSED`; in a channel, `TOLLFREE_FLAG_WAITS` or
    /// `TOLLFREE_FLAG_WAITS_NOT`.
    flags: u32,
    /// 0.
    reserved: u32,
    /// The first message in pieces, in order, instead of `message`.
    pieces: *const Payload<'a>,
    /// How many there are; 0: the message is `message`.
    piece_count: usize,
}

// SAFETY: numbers and pointers; zeros are null and 0. `size` is the first.
unsafe impl Growing for Start<'_> {
    const LEN_MIN: usize = size_of::<Start<'static>>();
}

impl Start<'_> {
    /// The same for a loop. `more`: flags that are possible beside those of all starts.
    pub(crate) fn begins(&self, more: u32) -> Result<CallStart<'_>, Failure> {
        let known = TOLLFREE_FLAG_HAS_MESSAGE | TOLLFREE_FLAG_LAST | TOLLFREE_FLAG_COMPRESSED | more;
        check_flags(self.flags, known)?;
        let message = match self.flags & TOLLFREE_FLAG_HAS_MESSAGE != 0 {
            true => Some(self.first_message(self.flags & TOLLFREE_FLAG_COMPRESSED != 0)?),
            false => None,
        };
        Ok(CallStart {
            path: self.path.text("the path")?,
            metadata: bytes::Bytes::copy_from_slice(self.metadata.get()?),
            deadline_ns: (self.deadline_ns != 0).then_some(self.deadline_ns),
            message,
            is_last: self.flags & TOLLFREE_FLAG_LAST != 0,
        })
    }

    fn first_message(&self, compressed: bool) -> Result<Message, Failure> {
        if self.piece_count == 0 {
            return self.message.message(compressed);
        }
        // SAFETY: the header asks for `piece_count` payloads there; null and impossible lengths are refused (`pointers::tests`).
        Payload::message_of(unsafe { pointers::list(self.pieces, self.piece_count) }?, compressed)
    }

    /// The same for a channel.
    pub(crate) fn begins_in_channel(&self) -> Result<CallStart<'_>, Failure> {
        if self.flags & TOLLFREE_FLAG_WAITS != 0 && self.flags & TOLLFREE_FLAG_WAITS_NOT != 0 {
            let words =
                "flags has TOLLFREE_FLAG_WAITS and TOLLFREE_FLAG_WAITS_NOT: pass one of them, or none";
            return Err(Failure::new(errors::USE_VALUE, words));
        }
        self.begins(TOLLFREE_FLAG_WAITS | TOLLFREE_FLAG_WAITS_NOT)
    }

    /// Whether it waits for a connection however often connecting fails. `None`: nothing is said of that.
    pub(crate) fn waits(&self) -> Option<bool> {
        match self.flags {
            flags if flags & TOLLFREE_FLAG_WAITS != 0 => Some(true),
            flags if flags & TOLLFREE_FLAG_WAITS_NOT != 0 => Some(false),
            _ => None,
        }
    }
}

impl Call {
    pub(crate) const NONE: Call = Call { session: Session::NONE, number: 0 };

    pub(crate) fn of(call: CallId) -> Call {
        Call { session: Session::of(call.session()), number: call.number() }
    }

    fn id(self) -> CallId {
        CallId::from_number(self.session.id(), self.number)
    }

    /// Has a loop do something for the call.
    pub(crate) fn with(self, of: Loop, what: impl FnOnce(&mut Kept, CallId) -> Result<(), Failure>) -> c_int {
        run(|| of.with(|kept| what(kept, self.id())))
    }
}

fn check_flags(flags: u32, known: u32) -> Result<(), Failure> {
    match flags & !known {
        0 => Ok(()),
        unknown => Err(Failure::new(
            errors::USE_VALUE,
            format!("flags has the bits {unknown:#x}, which the header does not list here"),
        )),
    }
}

fn check_code(code: u32) -> Result<u16, Failure> {
    match code {
        0..=CODE_MAX => Ok(code as u16),
        other => Err(Failure::new(errors::USE_VALUE, format!("{other} is no status of gRPC: 0 to 16 are"))),
    }
}

/// Begins a call. Where it can't be opened now, it waits for its turn.
///
/// @return 0, or an error's number.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_call_start(
    of: Loop,
    session: Session,
    start: *const Start<'_>,
    call: Option<&mut Call>,
) -> c_int {
    run(|| {
        let call = call.ok_or_else(|| Failure::null("the call"))?;
        // SAFETY: the header asks for a structure of its size; others are refused (`pointers::tests`). ASan watches in the C tests.
        let start = unsafe { pointers::read(start) }?;
        let begins = start.begins(0)?;
        of.with(|kept| {
            *call = Call::of(kept.events.call(session.id(), begins)?);
            Ok(())
        })
    })
}

/// Sends a message; `flags` is 0 or `TOLLFREE_FLAG_COMPRESSED`. It is kept until there is room and credit for it: `TOLLFREE_EVENT_SENT` tells when. A
/// server's first message sends empty headers where no others were sent.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_call_send(of: Loop, call: Call, message: Payload<'_>, flags: u32) -> c_int {
    call.with(of, |kept, call| {
        check_flags(flags, TOLLFREE_FLAG_COMPRESSED)?;
        Ok(kept.events.send(call, message.message(flags != 0)?)?)
    })
}

/// Sends one message that is in several pieces, in order. Pieces that lie in a pool (`tollfree_pool_buffer`, and pieces that were received) go
/// by ref to another member of it. Else as `tollfree_call_send`.
///
/// @return 0, or an error's number.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_call_send_pieces(
    of: Loop,
    call: Call,
    pieces: *const Payload<'_>,
    piece_count: usize,
    flags: u32,
) -> c_int {
    call.with(of, |kept, call| {
        check_flags(flags, TOLLFREE_FLAG_COMPRESSED)?;
        // SAFETY: the header asks for `piece_count` payloads there; null and impossible lengths are refused (`pointers::tests`).
        let pieces = unsafe { pointers::list(pieces, piece_count) }?;
        Ok(kept.events.send(call, Payload::message_of(pieces, flags != 0)?)?)
    })
}

/// Says that no message follows (client).
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_call_finish(of: Loop, call: Call) -> c_int {
    call.with(of, |kept, call| Ok(kept.events.finish(call)?))
}

/// Sends the headers of an answer, once, before its messages (server): a block of metadata, or none.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_call_answer_headers(of: Loop, call: Call, metadata: Bytes<'_>) -> c_int {
    call.with(of, |kept, call| {
        Ok(kept.events.answer_headers(call, bytes::Bytes::copy_from_slice(metadata.get()?))?)
    })
}

/// Ends a call with one of gRPC's statuses and a block of trailing metadata, or none, behind what was sent before (server).
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_call_answer_end(of: Loop, call: Call, code: u32, metadata: Bytes<'_>) -> c_int {
    call.with(of, |kept, call| {
        let block = bytes::Bytes::copy_from_slice(metadata.get()?);
        Ok(kept.events.answer_end(call, check_code(code)?, block)?)
    })
}

/// Answers a unary call: a message and status 0, without metadata (server). `flags` as of `tollfree_call_send`.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_call_answer(of: Loop, call: Call, message: Payload<'_>, flags: u32) -> c_int {
    call.with(of, |kept, call| {
        check_flags(flags, TOLLFREE_FLAG_COMPRESSED)?;
        let message = message.message(flags != 0)?;
        // A client's call takes no answer, which is to be known before anything is sent.
        if !kept.events.serves(call) {
            return Ok(kept.events.answer_headers(call, bytes::Bytes::new())?);
        }
        kept.events.send(call, message)?;
        Ok(kept.events.answer_end(call, 0, bytes::Bytes::new())?)
    })
}

/// Ends a call at once, in both directions; the peer sees one of gRPC's statuses. No event follows. A call that has ended before is left alone.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_call_cancel(of: Loop, call: Call, code: u32) -> c_int {
    call.with(of, |kept, call| {
        kept.events.cancel(call, check_code(code)?);
        Ok(())
    })
}

/// Takes no more messages of a call for now: a few that have come may still be told. The peer sends as far as its credit goes, then waits. The
/// call's end is told all the same, with what came before it. A call that has ended is left alone.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_call_pause(of: Loop, call: Call) -> c_int {
    call.with(of, |kept, call| {
        kept.events.pause(call);
        Ok(())
    })
}

/// Takes the messages of a paused call again.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_call_resume(of: Loop, call: Call) -> c_int {
    call.with(of, |kept, call| {
        kept.events.resume(call);
        Ok(())
    })
}
