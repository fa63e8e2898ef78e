//! One call of a session: what it has yet to say, and what of a message has come.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use tollfree_layout::{SegmentedIdx, StreamId};
use tollfree_pool::Plan;
use tollfree_session::{Chunk, Ending, GRPC_PREFIX_LEN, Outgoing, OutgoingMessage};

use crate::refs::Gathered;
use crate::{CallError, Message};

/// Why a message that comes can't be taken; the call ends with this gRPC status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused(pub(crate) u16);

/// gRPC's RESOURCE_EXHAUSTED and INTERNAL.
const TOO_LONG: Refused = Refused(8);
const NONSENSE: Refused = Refused(13);

/// How a client's call is to be opened.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) path: String,
    pub(crate) deadline_ns: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Call {
    /// A client's has one once it is open.
    id: Option<StreamId>,
    opening: Option<Opening>,
    deadline_ns: u64,
    /// It stands in the list of calls that have something to say.
    is_listed: bool,
    outbox: Outbox,
    inbox: Inbox,
}

impl Call {
    pub(crate) fn outgoing(opening: Opening, metadata: Bytes, message_len_max: usize) -> Call {
        Call {
            id: None,
            deadline_ns: opening.deadline_ns,
            opening: Some(opening),
            is_listed: false,
            outbox: Outbox { headers: Some(metadata), has_headers: true, ..Outbox::default() },
            inbox: Inbox { message_len_max, ..Inbox::default() },
        }
    }

    pub(crate) fn incoming(id: StreamId, message_len_max: usize) -> Call {
        Call {
            id: Some(id),
            opening: None,
            deadline_ns: 0,
            is_listed: false,
            outbox: Outbox::default(),
            inbox: Inbox { message_len_max, ..Inbox::default() },
        }
    }

    pub(crate) fn id(&self) -> Option<StreamId> {
        self.id
    }

    /// When it has to be over; 0: nobody said so here.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    /// How to open it, while that is to be done.
    pub(crate) fn opening(&self) -> Option<&Opening> {
        self.opening.as_ref()
    }

    /// The same, with what is said first.
    pub(crate) fn beginning(&mut self) -> Option<(&Opening, &mut Outgoing)> {
        self.opening.as_ref().map(|opening| (opening, self.outbox.outgoing()))
    }

    pub(crate) fn opened(&mut self, id: StreamId) {
        (self.id, self.opening) = (Some(id), None);
    }

    /// It is listed. `false`: it was.
    pub(crate) fn lists(&mut self) -> bool {
        !std::mem::replace(&mut self.is_listed, true)
    }

    /// It is listed no more.
    pub(crate) fn unlists(&mut self) {
        self.is_listed = false;
    }

    pub(crate) fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// A server's headers.
    pub(crate) fn say_headers(&mut self, metadata: Bytes) -> Result<(), CallError> {
        self.outbox.say_headers(metadata)
    }

    pub(crate) fn say(&mut self, message: OutgoingMessage) -> Result<(), CallError> {
        self.outbox.say(message)
    }

    pub(crate) fn end(&mut self, ending: Ending) -> Result<(), CallError> {
        self.outbox.end(ending)
    }

    /// What is to be said next; empty when there is nothing. What was not said of it stays.
    pub(crate) fn next_outgoing(&mut self) -> &mut Outgoing {
        self.outbox.outgoing()
    }

    /// All is said: whether the application waits for that.
    pub(crate) fn has_said_all(&mut self) -> bool {
        self.outbox.has_said_all()
    }

    /// The client has said everything. `false`: that was known.
    pub(crate) fn heard_all(&mut self) -> bool {
        !std::mem::replace(&mut self.inbox.heard, true)
    }

    /// The application takes no messages for now.
    pub(crate) fn pause(&mut self) {
        self.inbox.is_paused = true;
    }

    /// The application takes messages again. Whether some may be there.
    pub(crate) fn resume(&mut self) -> bool {
        self.inbox.is_paused = false;
        std::mem::take(&mut self.inbox.has_unread)
    }

    /// Something has come that is not to be read yet. `false`: it may be read.
    pub(crate) fn leaves_unread(&mut self) -> bool {
        self.inbox.has_unread |= self.inbox.is_paused;
        self.inbox.is_paused
    }

    /// Takes part of a message, or several whole ones. Gives a message with refs of which all has come.
    pub(crate) fn take(
        &mut self,
        chunk: Chunk,
        came: impl FnMut(Message),
    ) -> Result<Option<Gathered>, Refused> {
        self.inbox.take(chunk, came)
    }

    /// The message with refs of which part has come: that never becomes whole.
    pub(crate) fn take_partial(&mut self) -> Option<SegmentedIdx> {
        self.inbox.arriving.take().and_then(|arriving| arriving.segmented)
    }
}

/// What a call has yet to say.
#[derive(Debug, Default)]
struct Outbox {
    headers: Option<Bytes>,
    /// Headers have been said, or are to be.
    has_headers: bool,
    messages: VecDeque<OutgoingMessage>,
    ending: Option<Ending>,
    /// What is being said.
    outgoing: Outgoing,
    /// Nothing more may be said.
    has_ended: bool,
    /// The application is to be told when all is said.
    owes_word: bool,
}

impl Outbox {
    fn may_say(&self) -> Result<(), CallError> {
        if self.has_ended { Err(CallError::Ended) } else { Ok(()) }
    }

    fn say_headers(&mut self, metadata: Bytes) -> Result<(), CallError> {
        self.may_say()?;
        if std::mem::replace(&mut self.has_headers, true) {
            return Err(CallError::HeadersSaid);
        }
        self.headers = Some(metadata);
        Ok(())
    }

    fn say(&mut self, message: OutgoingMessage) -> Result<(), CallError> {
        self.may_say()?;
        if !self.has_headers {
            // Messages follow headers, be they empty.
            self.say_headers(Bytes::new())?;
        }
        self.messages.push_back(message);
        self.owes_word = true;
        Ok(())
    }

    fn end(&mut self, ending: Ending) -> Result<(), CallError> {
        self.may_say()?;
        (self.ending, self.has_ended) = (Some(ending), true);
        Ok(())
    }

    fn outgoing(&mut self) -> &mut Outgoing {
        if self.outgoing.is_empty() {
            self.outgoing.headers = self.headers.take();
            self.outgoing.message = self.messages.pop_front();
            if self.messages.is_empty() {
                self.outgoing.ending = self.ending.take();
            }
        }
        &mut self.outgoing
    }

    fn has_said_all(&mut self) -> bool {
        std::mem::take(&mut self.owes_word) && !self.has_ended
    }
}

/// What of a message has come to a call.
#[derive(Debug, Default)]
struct Inbox {
    arriving: Option<Arriving>,
    /// A server's: the client has said everything.
    heard: bool,
    message_len_max: usize,
    /// The application takes no messages for now.
    is_paused: bool,
    /// Something has come since.
    has_unread: bool,
}

/// A message of which part has come.
#[derive(Debug)]
struct Arriving {
    compressed: bool,
    bytes: BytesMut,
    segmented: Option<SegmentedIdx>,
}

impl Inbox {
    fn take(&mut self, chunk: Chunk, mut came: impl FnMut(Message)) -> Result<Option<Gathered>, Refused> {
        let Chunk { mut bytes, first, last, batch_count, segmented } = chunk;
        if batch_count > 0 {
            for _ in 0..batch_count {
                let (compressed, len) = Inbox::prefix(&mut bytes, self.message_len_max)?;
                if bytes.len() < len {
                    return Err(NONSENSE);
                }
                came(Message { compressed, ..Message::from(bytes.split_to(len).freeze()) });
            }
            return Ok(None);
        }
        if first {
            let len_max = match segmented {
                None => self.message_len_max,
                Some(_) => Plan::travelling_len_max(self.message_len_max),
            };
            let (compressed, len) = Inbox::prefix(&mut bytes, len_max)?;
            if !last {
                bytes.reserve(len - bytes.len().min(len));
            }
            self.arriving = Some(Arriving { compressed, bytes, segmented });
        } else {
            self.arriving.as_mut().ok_or(NONSENSE)?.bytes.extend_from_slice(&bytes);
        }
        if !last {
            return Ok(None);
        }
        let Arriving { compressed, bytes, segmented } = self.arriving.take().ok_or(NONSENSE)?;
        let bytes = bytes.freeze();
        Ok(match segmented {
            Some(segmented) => Some(Gathered { bytes, compressed, segmented }),
            None => {
                came(Message { compressed, ..Message::from(bytes) });
                None
            }
        })
    }

    /// Takes gRPC's prefix off: whether the message is compressed, and its length, `len_max` at most.
    fn prefix(bytes: &mut BytesMut, len_max: usize) -> Result<(bool, usize), Refused> {
        let Some((prefix, _)) = bytes.split_first_chunk::<GRPC_PREFIX_LEN>() else { return Err(NONSENSE) };
        let [flag, len @ ..] = *prefix;
        let len = u32::from_be_bytes(len) as usize;
        if len > len_max {
            return Err(TOO_LONG);
        }
        if flag > 1 {
            return Err(NONSENSE);
        }
        let _ = bytes.split_to(GRPC_PREFIX_LEN);
        Ok((flag == 1, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixed(flag: u8, message: &[u8]) -> Vec<u8> {
        [&[flag], &(message.len() as u32).to_be_bytes()[..], message].concat()
    }

    fn chunk(bytes: &[u8], first: bool, last: bool, batch_count: u32) -> Chunk {
        Chunk { bytes: bytes.into(), first, last, batch_count, segmented: None }
    }

    fn taken(call: &mut Call, chunk: Chunk) -> Result<Vec<(Vec<u8>, bool)>, Refused> {
        let mut messages = Vec::new();
        let gathered =
            call.take(chunk, |message| messages.push((message.bytes.to_vec(), message.compressed)))?;
        assert!(gathered.is_none());
        Ok(messages)
    }

    #[test]
    fn messages_come_whole_in_parts_and_in_batches() {
        let mut call = Call::incoming(StreamId(1), 100);
        let whole = chunk(&prefixed(0, b"one"), true, true, 0);
        assert_eq!(taken(&mut call, whole), Ok(vec![(b"one".to_vec(), false)]));
        let long = prefixed(1, b"in parts");
        assert_eq!(taken(&mut call, chunk(&long[..7], true, false, 0)), Ok(vec![]));
        assert_eq!(taken(&mut call, chunk(&long[7..9], false, false, 0)), Ok(vec![]));
        assert_eq!(
            taken(&mut call, chunk(&long[9..], false, true, 0)),
            Ok(vec![(b"in parts".to_vec(), true)])
        );
        let batch = [prefixed(0, b"a"), prefixed(0, b""), prefixed(1, b"c")].concat();
        let expected = vec![(b"a".to_vec(), false), (vec![], false), (b"c".to_vec(), true)];
        assert_eq!(taken(&mut call, chunk(&batch, true, true, 3)), Ok(expected));
    }

    #[test]
    fn what_is_too_long_or_no_message_is_refused() {
        let mut call = Call::incoming(StreamId(1), 4);
        assert_eq!(taken(&mut call, chunk(&prefixed(0, b"12345"), true, true, 0)), Err(TOO_LONG));
        assert_eq!(taken(&mut call, chunk(&prefixed(2, b"1"), true, true, 0)), Err(NONSENSE), "an object");
        assert_eq!(taken(&mut call, chunk(&[0, 0, 0], true, true, 0)), Err(NONSENSE));
        assert_eq!(taken(&mut call, chunk(b"x", false, true, 0)), Err(NONSENSE), "nothing has begun");
        let batch = [prefixed(0, b"12"), prefixed(0, b"12345")].concat();
        assert_eq!(taken(&mut call, chunk(&batch, true, true, 2)), Err(TOO_LONG), "one of several");
    }

    #[test]
    fn what_is_at_hand_together_is_said_together_and_nothing_after_the_end() {
        let mut call = Call::incoming(StreamId(1), 4);
        call.say_headers(Bytes::new()).unwrap();
        call.say(Message::from(Bytes::from_static(b"m")).into_inline()).unwrap();
        call.end(Ending::Trailers { code: 0, block: Bytes::new() }).unwrap();
        let outgoing = std::mem::take(call.next_outgoing());
        assert!(outgoing.headers.is_some() && outgoing.message.is_some() && outgoing.ending.is_some());
        assert!(call.next_outgoing().is_empty());
        assert_eq!(call.say(Message::default().into_inline()), Err(CallError::Ended));
    }

    #[test]
    fn a_servers_messages_follow_headers_which_are_said_once() {
        let mut call = Call::incoming(StreamId(1), 4);
        call.say(Message::from(Bytes::from_static(b"m")).into_inline()).unwrap();
        assert_eq!(call.say_headers(Bytes::new()), Err(CallError::HeadersSaid));
        let outgoing = std::mem::take(call.next_outgoing());
        assert_eq!(outgoing.headers, Some(Bytes::new()));
        assert!(outgoing.message.is_some());
        let mut alone = Call::incoming(StreamId(1), 4);
        alone.end(Ending::Trailers { code: 5, block: Bytes::new() }).unwrap();
        assert!(alone.next_outgoing().headers.is_none(), "a status alone");
        assert_eq!(alone.say_headers(Bytes::new()), Err(CallError::Ended));
    }
}
