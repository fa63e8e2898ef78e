//! One call as the applications at both ends mean it, and what they have seen of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tollfree_layout::{StreamId, metadata};
use tollfree_session::{
    Chunk, DeferredEncoding, End, Ending, GRPC_PREFIX_LEN, Keep, OBJECT_PREFIX, Outgoing, OutgoingMessage,
    Parts, Written,
};

use super::rng::Rng;

/// Bytes that all content is cut from: two cuts at different places differ.
fn noise() -> &'static Bytes {
    static NOISE: OnceLock<Bytes> = OnceLock::new();
    NOISE.get_or_init(|| {
        let mut rng = Rng::new(0xb0d1e5);
        (0..65_536).flat_map(|_| rng.next().to_le_bytes()).collect::<Vec<u8>>().into()
    })
}

fn content(id: u64, salt: usize, len: usize) -> Bytes {
    let start = (id as usize * 7919 + salt * 104_729) % 131_072;
    noise().slice(start..start + len)
}

/// A message that is encoded while it is sent.
struct Late {
    message: Bytes,
    is_crumbly: bool,
}

impl DeferredEncoding for Late {
    fn write_range(&self, len: usize, from: usize, range: &mut [u8]) -> Written {
        range.copy_from_slice(&self.message[from..from + range.len()]);
        Written { len, is_crumbly: self.is_crumbly, whole: None }
    }

    fn encode(&self, _: usize) -> Bytes {
        self.message.clone()
    }
}

/// A packed block of exactly `len` bytes, or none where a pair doesn't fit.
pub(crate) fn block(id: u64, salt: usize, len: usize) -> Bytes {
    let mut block = Vec::new();
    if len >= 7 {
        metadata::pack(&mut block, "x-a", &content(id, salt, len - 7)).unwrap();
    }
    block.into()
}

/// Counts what is kept for segmented messages.
#[derive(Clone, Default)]
pub(crate) struct Keeping(Arc<AtomicUsize>);

struct Kept(Keeping);

impl Parts for Kept {
    fn part(&self, _: usize) -> Option<&[u8]> {
        None
    }
}

impl Keeping {
    fn keep(&self) -> Keep {
        self.0.fetch_add(1, Ordering::Relaxed);
        Keep::new(Kept(self.clone()))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a sender doesn't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    /// Until the session says that the stream is ready for writing.
    Credit,
    /// Until the peer has read, or the session says the same.
    Room,
}

/// What one end says on a call.
pub(crate) struct Talk {
    salt: usize,
    /// Lengths of its messages.
    pub(crate) plan: Vec<usize>,
    pub(crate) headers: Option<Bytes>,
    pub(crate) ending: Ending,
    /// Set where messages may be segmented messages.
    pub(crate) keeping: Option<Keeping>,
    /// Messages handed over, and those of them that are wholly staged.
    next: usize,
    pub(crate) said_count: usize,
    ending_given: bool,
    pub(crate) outgoing: Outgoing,
    pub(crate) wait: Wait,
    pub(crate) done: bool,
    pub(crate) aborted: bool,
    /// The session refused to take more.
    pub(crate) cut_off: bool,
}

impl Talk {
    pub(crate) fn new(salt: usize, plan: Vec<usize>, headers: Option<Bytes>, ending: Ending) -> Talk {
        Talk {
            salt,
            plan,
            headers,
            ending,
            keeping: None,
            next: 0,
            said_count: 0,
            ending_given: false,
            outgoing: Outgoing::default(),
            wait: Wait::No,
            done: false,
            aborted: false,
            cut_off: false,
        }
    }

    pub(crate) fn message(&self, id: u64, idx: usize) -> Bytes {
        content(id, self.salt + 10 * idx, self.plan[idx])
    }

    fn is_compressed(id: u64, idx: usize) -> bool {
        idx % 3 == 2 && !Talk::is_object(id, idx)
    }

    /// Some calls have both sorts in turns.
    fn is_object(id: u64, idx: usize) -> bool {
        id % 3 == 1 && (idx / 5).is_multiple_of(2)
    }

    /// The first byte of gRPC's prefix.
    fn flag(id: u64, idx: usize) -> u8 {
        if Talk::is_object(id, idx) { OBJECT_PREFIX } else { Talk::is_compressed(id, idx).into() }
    }

    fn is_encoded_late(id: u64, idx: usize) -> bool {
        (id as usize + idx) % 3 == 1
    }

    fn may_be_segmented(id: u64, idx: usize) -> bool {
        (id as usize + idx).is_multiple_of(3)
    }

    /// Hands the next things over once the last are staged.
    pub(crate) fn fill(&mut self, id: u64, joined: bool) {
        if !self.outgoing.is_empty() || self.ending_given {
            return;
        }
        self.outgoing.headers = self.headers.take();
        let batched = if self.keeping.is_none() { self.batch(id) } else { Vec::new() };
        if batched.len() > 1 {
            let mut messages = Bytes::from(batched.concat());
            self.outgoing.message = if Talk::is_object(id, self.next) {
                OutgoingMessage::objects(messages)
            } else {
                let batch = OutgoingMessage::batch_off(&mut messages, usize::MAX / 2, usize::MAX);
                assert!(messages.is_empty());
                batch
            };
            assert_eq!(self.unsaid(), batched.len());
            self.next += batched.len();
        } else if self.next < self.plan.len() {
            let message = self.message(id, self.next);
            let compressed = Talk::is_compressed(id, self.next);
            let is_object = Talk::is_object(id, self.next);
            self.outgoing.message = Some(match &self.keeping {
                Some(keeping) if Talk::may_be_segmented(id, self.next) && is_object => {
                    OutgoingMessage::object_segmented(message, keeping.keep())
                }
                Some(keeping) if Talk::may_be_segmented(id, self.next) => {
                    OutgoingMessage::segmented(message, compressed, keeping.keep())
                }
                _ if is_object => OutgoingMessage::object(message.into()),
                _ if !compressed && Talk::is_encoded_late(id, self.next) => {
                    let len = message.len();
                    OutgoingMessage::deferred(
                        Arc::new(Late { message, is_crumbly: id.is_multiple_of(5) }),
                        len,
                    )
                }
                _ => OutgoingMessage::new(message, compressed),
            });
            self.next += 1;
        }
        if self.next == self.plan.len() && (joined || self.outgoing.is_empty()) {
            self.outgoing.ending = Some(self.ending.clone());
            self.ending_given = true;
        }
    }

    /// The next messages of one sort with their prefixes, where they are short and to go together.
    fn batch(&self, id: u64) -> Vec<Vec<u8>> {
        let count = match (id as usize + self.next) % 4 {
            at @ (0 | 1) => 2 + 3 * at,
            _ => 0,
        };
        let framed = |idx| {
            let message = self.message(id, idx);
            let mut framed = vec![Talk::flag(id, idx)];
            framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
            framed.extend_from_slice(&message);
            framed
        };
        let sort = Talk::is_object(id, self.next);
        let of_sort = |idx: &usize| Talk::is_object(id, *idx) == sort;
        (self.next..self.plan.len()).take(count).take_while(of_sort).map(framed).collect()
    }

    /// Messages that are at hand and not wholly staged.
    pub(crate) fn unsaid(&self) -> usize {
        self.outgoing.message.as_ref().map_or(0, |message| message.lens().count())
    }

    /// Gives up in the middle of whatever is being said.
    pub(crate) fn abort(&mut self, code: u16) {
        let ending = Ending::Trailers { code, block: Bytes::new() };
        self.ending = ending.clone();
        self.outgoing.message = None;
        self.outgoing.ending = Some(ending);
        self.ending_given = true;
        self.aborted = true;
        self.wait = Wait::No;
    }

    /// Counts what a call of the session has staged of so many messages.
    pub(crate) fn note(&mut self, unsaid: usize) {
        self.said_count += unsaid - self.unsaid();
        self.done = self.ending_given && self.outgoing.is_empty();
    }
}

/// What one end has heard on a call.
#[derive(Default)]
pub(crate) struct Hearing {
    pub(crate) headers: bool,
    pub(crate) heard_count: usize,
    pub(crate) partial: Option<(usize, usize)>,
    pub(crate) end: Option<End>,
    /// Nothing to read until the session says so.
    pub(crate) waits: bool,
    /// The reader stands still.
    pub(crate) stopped: bool,
}

impl Hearing {
    /// Compares a chunk with what was said.
    pub(crate) fn chunk(&mut self, id: u64, said: &Talk, chunk: &Chunk) -> Result<(), String> {
        if chunk.batch_count > 0 {
            let (mut rest, mut count) = (chunk.bytes.clone(), 0);
            while let Some([_, len @ ..]) = rest.first_chunk::<GRPC_PREFIX_LEN>() {
                let bytes = rest.split_to(GRPC_PREFIX_LEN + u32::from_be_bytes(*len) as usize);
                self.chunk(
                    id,
                    said,
                    &Chunk { bytes, first: true, last: true, batch_count: 0, segmented: None },
                )?;
                count += 1;
            }
            let is_whole = rest.is_empty() && count == chunk.batch_count;
            return if is_whole {
                Ok(())
            } else {
                Err(format!("call {id}: a batch of {count} and {rest:?}"))
            };
        }
        let idx = self.heard_count;
        if idx >= said.plan.len() {
            return Err(format!("call {id}: a message {idx} that nobody sent"));
        }
        let mut bytes = chunk.bytes.clone();
        let (len, at) = match (self.partial, chunk.first) {
            (None, true) => {
                let prefix = bytes.split_to(GRPC_PREFIX_LEN);
                let len = u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize;
                let segmented = said.keeping.is_some() && Talk::may_be_segmented(id, idx);
                let odd = chunk.segmented.is_some() != segmented || prefix[0] != Talk::flag(id, idx);
                if len != said.plan[idx] || odd {
                    return Err(format!("call {id} message {idx}: prefix {prefix:?}"));
                }
                (len, 0)
            }
            (Some(partial), false) => partial,
            odd => return Err(format!("call {id} message {idx}: chunk out of place {odd:?}")),
        };
        let end = at + bytes.len();
        if end > len || said.message(id, idx)[at..end] != bytes || chunk.last != (end == len) {
            return Err(format!("call {id} message {idx}: bytes {at}..{end} of {len} differ"));
        }
        self.partial = (!chunk.last).then_some((len, end));
        self.heard_count += usize::from(chunk.last);
        Ok(())
    }

    /// A regular end: everything that was said must have been heard.
    pub(crate) fn is_complete(&self, said: &Talk) -> bool {
        self.heard_count == said.said_count && (self.partial.is_none() || said.aborted)
    }

    /// Told that there is something to read.
    pub(crate) fn wake(&mut self) {
        self.waits = false;
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(&self.end, Some(end) if *end != End::HalfClosed)
    }
}

/// A call, seen from above.
pub(crate) struct Call {
    pub(crate) id: StreamId,
    pub(crate) path: &'static str,
    pub(crate) deadline_ns: u64,
    pub(crate) headers: Bytes,
    pub(crate) reply_headers: Bytes,
    pub(crate) client: Talk,
    pub(crate) server: Talk,
    pub(crate) client_hears: Hearing,
    pub(crate) server_hears: Hearing,
    /// The server may answer before it has heard everything.
    pub(crate) eager: bool,
    pub(crate) accepted: bool,
    pub(crate) client_forgot: bool,
    pub(crate) server_forgot: bool,
    pub(crate) client_cancelled: bool,
    /// Cancelled by the server, with this code.
    pub(crate) server_cancelled: Option<u16>,
}

impl Call {
    pub(crate) fn may_answer(&self) -> bool {
        self.accepted && (self.eager || self.server_hears.end == Some(End::HalfClosed))
    }
}
