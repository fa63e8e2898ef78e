//! What has happened, as C reads it.

use std::borrow::Cow;

use tollfree_driver_loop as driver;
use tollfree_driver_loop::CallId;
use tollfree_layout::{errors, metadata};

use crate::buffer::Payload;
use crate::call::Call;
use crate::channel::{self, Channel};
use crate::error::Failure;
use crate::loops::Kept;
use crate::pointers::{self, Bytes, Growing};
use crate::session::{Listener, Session};

/// Nothing has happened.
pub const TOLLFREE_EVENT_NONE: u32 = 0;
/// `session` has begun, which `tollfree_connect` or `tollfree_attach` asked for.
pub const TOLLFREE_EVENT_CONNECTED: u32 = 1;
/// It has not, and never will: `code` is the error's number, `text` says why.
pub const TOLLFREE_EVENT_NOT_CONNECTED: u32 = 2;
/// A client has come to `listener`: `session` has begun.
pub const TOLLFREE_EVENT_ACCEPTED: u32 = 3;
/// A client of `listener` was refused: `code` is the error's number, `text` says why.
pub const TOLLFREE_EVENT_REFUSED: u32 = 4;
/// No client can be accepted at `listener`, for want of descriptors or memory most likely: told once, until a client was accepted again.
pub const TOLLFREE_EVENT_NOT_ACCEPTED: u32 = 5;
/// No call begins in `session` any more. Calls under way go on.
pub const TOLLFREE_EVENT_DRAINING: u32 = 6;
/// `session` is over, and its calls before: `code` is the error's number, `text` says why.
pub const TOLLFREE_EVENT_CLOSED: u32 = 7;
/// A client has begun `call`: `text` is its path, `payload` its metadata, `deadline_ns` its deadline.
pub const TOLLFREE_EVENT_CALL: u32 = 8;
/// The answer's headers have come on `call`: `payload` has them.
pub const TOLLFREE_EVENT_HEADERS: u32 = 9;
/// A message has come on `call`: `payload`; in a loop with a pool, its other pieces are `more`.
pub const TOLLFREE_EVENT_MESSAGE: u32 = 10;
/// The client of `call` sends nothing more.
pub const TOLLFREE_EVENT_HALF_CLOSED: u32 = 11;
/// All messages that were given to `call` are on their way: the next takes no memory here.
pub const TOLLFREE_EVENT_SENT: u32 = 12;
/// `call` is over: `code` is gRPC's status, `text` its message, `payload` the trailing metadata. On a server's side: it was cancelled.
pub const TOLLFREE_EVENT_ENDED: u32 = 13;
/// `channel` fares otherwise than before: `code` is `TOLLFREE_CHANNEL_…`.
pub const TOLLFREE_EVENT_CHANNEL: u32 = 14;

/// `flags` of a message: it is compressed as the call's `grpc-encoding` says. The library does neither.
pub const TOLLFREE_FLAG_COMPRESSED: u32 = 1;
/// `flags` of an end: the server has not looked at the call, which may be made again anywhere.
pub const TOLLFREE_FLAG_UNPROCESSED: u32 = 2;
/// `flags` of all events of a call that this end answers.
pub const TOLLFREE_FLAG_SERVED: u32 = 4;

/// What has happened. What a kind does not name is 0. `text` lies in the loop, until the next event is taken from it; `payload` is the
/// program's: its buffer is to be released.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// `sizeof(tollfree_event)`, set by the program.
    size: usize,
    /// `TOLLFREE_EVENT_…`.
    kind: u32,
    /// An error's number, or gRPC's status.
    code: u32,
    /// Bits: `TOLLFREE_FLAG_COMPRESSED`, `TOLLFREE_FLAG_UNPROCESSED`, `TOLLFREE_FLAG_SERVED`.
    flags: u32,
    /// 0.
    reserved: u32,
    /// Which listener.
    listener: Listener,
    /// Which session; a call's, too.
    session: Session,
    /// Which call.
    call: Call,
    /// When the call has to be over, on the clock of `tollfree_now_ns`; 0: no matter when.
    deadline_ns: u64,
    /// A path, a status message, or an error's words: any bytes a peer may have sent.
    text: Bytes<'static>,
    /// A message, or a block of metadata.
    payload: Payload<'static>,
    /// Which channel.
    channel: Channel,
    /// The pieces of a message behind `payload`, in order: their buffers are the program's to release, each once, in any thread. The list lies in the
    /// loop as `text` does. Only loops with a pool receive messages in pieces.
    more: *const Payload<'static>,
    /// How many there are.
    more_count: usize,
}

// SAFETY: numbers and pointers; zeros are null and 0. `size` is the first.
unsafe impl Growing for Event {
    const LEN_MIN: usize = size_of::<Event>();
}

/// What `text` and `more` of the last event lie in.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    text: Option<Text>,
    pieces: Vec<Payload<'static>>,
}

#[derive(Debug)]
enum Text {
    Came(bytes::Bytes),
    Words(String),
}

// SAFETY: the pieces name buffers by numbers, and their bytes lie where the buffers are kept, which any thread may read and release.
unsafe impl Send for Texts {}

impl Texts {
    fn pieces(&mut self, more: Vec<Payload<'static>>) -> (*const Payload<'static>, usize) {
        self.pieces = more;
        match &*self.pieces {
            [] => (std::ptr::null(), 0),
            pieces => (pieces.as_ptr(), pieces.len()),
        }
    }

    fn came(&mut self, bytes: bytes::Bytes) -> Bytes<'static> {
        match self.text.insert(Text::Came(bytes)) {
            Text::Came(bytes) => Bytes::for_c(bytes),
            Text::Words(words) => Bytes::for_c(words.as_bytes()),
        }
    }

    fn words(&mut self, words: String) -> Bytes<'static> {
        match self.text.insert(Text::Words(words)) {
            Text::Came(bytes) => Bytes::for_c(bytes),
            Text::Words(words) => Bytes::for_c(words.as_bytes()),
        }
    }
}

impl Event {
    const NONE: Event = Event {
        size: 0,
        kind: TOLLFREE_EVENT_NONE,
        code: 0,
        flags: 0,
        reserved: 0,
        listener: Listener::NONE,
        session: Session::NONE,
        call: Call::NONE,
        deadline_ns: 0,
        text: Bytes::EMPTY,
        payload: Payload::EMPTY,
        channel: Channel::NONE,
        more: std::ptr::null(),
        more_count: 0,
    };

    /// Whether the program has room for an event: before one is taken, which would be lost.
    pub(crate) fn check(to: *const Event) -> Result<(), Failure> {
        // SAFETY: the header asks for a structure of its size; others are refused (`pointers::tests`). Nothing is written here.
        unsafe { pointers::check_writable(to.cast_mut()) }
    }

    pub(crate) fn write(&self, to: *mut Event) -> Result<(), Failure> {
        // SAFETY: the header asks for a structure of its size; others are refused (`pointers::tests`). ASan watches in the C tests.
        unsafe { pointers::write(to, self) }
    }

    fn session(kind: u32, session: driver::SessionId) -> Event {
        Event { kind, session: Session::of(session), ..Event::NONE }
    }
}

impl Kept {
    /// An event as C reads it. None: this version has no kind for it.
    pub(crate) fn event(&mut self, event: Option<driver::Event>) -> Result<Option<Event>, Failure> {
        let Some(event) = event else { return Ok(Some(Event::NONE)) };
        let of_call = |events: &driver::EventLoop, kind, call: CallId| {
            let flags = if events.serves(call) { TOLLFREE_FLAG_SERVED } else { 0 };
            match call.is_of_channel() {
                true => Event { kind, call: Call::of(call), flags, ..Event::NONE },
                false => Event { call: Call::of(call), flags, ..Event::session(kind, call.session()) },
            }
        };
        let at = |kind, listener| Event { kind, listener: Listener::of(listener), ..Event::NONE };
        let events = &self.events;
        Ok(Some(match event {
            driver::Event::Connected { session } => Event::session(TOLLFREE_EVENT_CONNECTED, session),
            driver::Event::NotConnected { session, error } => Event {
                code: error.number().into(),
                text: self.texts.words(error.to_string()),
                ..Event::session(TOLLFREE_EVENT_NOT_CONNECTED, session)
            },
            driver::Event::Accepted { session, listener } => {
                Event { session: Session::of(session), ..at(TOLLFREE_EVENT_ACCEPTED, listener) }
            }
            driver::Event::Refused { listener, error } => Event {
                code: error.number().into(),
                text: self.texts.words(error.to_string()),
                ..at(TOLLFREE_EVENT_REFUSED, listener)
            },
            driver::Event::NotAccepted { listener, error } => Event {
                code: errors::SYSTEM_REFUSED.into(),
                text: self.texts.words(error.to_string()),
                ..at(TOLLFREE_EVENT_NOT_ACCEPTED, listener)
            },
            driver::Event::Draining { session } => Event::session(TOLLFREE_EVENT_DRAINING, session),
            driver::Event::Closed { session, reason } => Event {
                code: reason.number().into(),
                text: self.texts.words(reason.to_string()),
                ..Event::session(TOLLFREE_EVENT_CLOSED, session)
            },
            driver::Event::Call { call, path, metadata, deadline_ns } => Event {
                deadline_ns: deadline_ns.unwrap_or(0),
                payload: Payload::keep(metadata)?,
                text: self.texts.came(path),
                ..of_call(events, TOLLFREE_EVENT_CALL, call)
            },
            driver::Event::Headers { call, metadata } => {
                Event { payload: Payload::keep(metadata)?, ..of_call(events, TOLLFREE_EVENT_HEADERS, call) }
            }
            driver::Event::Message { call, message } => {
                let mut event = of_call(events, TOLLFREE_EVENT_MESSAGE, call);
                event.flags |= if message.compressed { TOLLFREE_FLAG_COMPRESSED } else { 0 };
                let (first, more) = Payload::keep_pieces(message)?;
                event.payload = first;
                (event.more, event.more_count) = self.texts.pieces(more);
                event
            }
            driver::Event::HalfClosed { call } => of_call(events, TOLLFREE_EVENT_HALF_CLOSED, call),
            driver::Event::Sent { call } => of_call(events, TOLLFREE_EVENT_SENT, call),
            driver::Event::Ended { call, status } => {
                let mut event = of_call(events, TOLLFREE_EVENT_ENDED, call);
                event.code = status.code.into();
                event.flags |= if status.unprocessed { TOLLFREE_FLAG_UNPROCESSED } else { 0 };
                if let Some(words) = message_of(&status.metadata) {
                    event.text = self.texts.came(words);
                }
                event.payload = Payload::keep(status.metadata)?;
                event
            }
            driver::Event::ChannelChanged { channel, state } => Event {
                kind: TOLLFREE_EVENT_CHANNEL,
                code: channel::number_of(state),
                channel: Channel::of(channel),
                ..Event::NONE
            },
            _ => return Ok(None),
        }))
    }
}

/// `grpc-message`, which travels percent-encoded.
fn message_of(block: &[u8]) -> Option<bytes::Bytes> {
    let mut pairs = metadata::pairs(block).flatten();
    let (_, value) = pairs.find(|(name, _)| name.as_bytes() == b"grpc-message")?;
    Some(match Cow::from(percent_encoding::percent_decode(value)) {
        Cow::Borrowed(bytes) => bytes::Bytes::copy_from_slice(bytes),
        Cow::Owned(bytes) => bytes.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_message_is_decoded() {
        let mut block = Vec::new();
        metadata::pack(&mut block, "x", b"y").unwrap();
        assert_eq!(message_of(&block), None);
        metadata::pack(&mut block, "grpc-message", b"not%20%C3%BC%zz").unwrap();
        assert_eq!(message_of(&block).unwrap(), "not ü%zz".as_bytes());
    }
}
