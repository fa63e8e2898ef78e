//! The bytes of ropes whose parts their receiver can't take hold of: it asks for them, and they come inline.
//!
//! ```text
//! receiver of rope n                        sender of rope n
//!   can't map a part of it
//!   ROPE_WANTED n, bytes ─────────────────►  looks whether it has so many, and keeps the parts
//!   gathers them ◄───────────────────────── ROPE_BYTES n, a piece; and so on
//!   has all ◄────────────────────────────── ROPE_BYTES n, the last piece
//!   ROPES_TAKEN n ────────────────────────►  lets go of the parts
//! ```
//! Asking is the grant of credit: pieces cost neither the stream's nor the session's. There is one piece to a frame, and between
//! two pieces other frames have their turn. A receiver may lose interest at any time: it says ROPES_TAKEN then, and either all
//! pieces have been sent before that is read, or an empty piece says that no more come. An empty piece also answers who asks
//! for another number of bytes than there are. So each asking comes to an end, unless the session ends.
//!
//! # Trust
//! An asker gets each rope once, and only what it was sent. A giver is held to what it was asked for: the room that this takes
//! is what the asker has agreed to.

use bytes::{Bytes, BytesMut};
use tollfree_layout::RopeIdx;
use tollfree_layout::frame::{FRAME_HEAD_LEN, FrameHead, control, events};
use zerocopy::IntoBytes;

use crate::frame::{Frame, head};
use crate::frame_builder::INLINE_LEN_MAX;
use crate::rope::Ropes;
use crate::stream::Watched;
use crate::{Inbound, Outbound, Session, Violation};

/// A rope whose bytes the peer wants, and how far it has got them.
#[derive(Debug)]
pub(crate) struct Giving {
    rope: u64,
    part: usize,
    /// Within the part.
    at: usize,
    left: u32,
}

/// A rope whose bytes were asked for.
#[derive(Debug)]
pub(crate) struct Coming {
    bytes: BytesMut,
    left: u32,
    state: ComingState,
}

#[derive(Debug, PartialEq, Eq)]
enum ComingState {
    Wanted,
    /// Nobody wants it any more; the peer may not know yet.
    Abandoned,
    /// The peer doesn't give it.
    Refused,
}

/// What has become of asking for a rope's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// They are on their way.
    Coming,
    /// The bytes of all its refs, one after the other.
    Here(Bytes),
    /// The peer doesn't have as many as were asked for.
    Refused,
}

impl Ropes {
    pub(crate) fn has_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// A received rope is not wanted any more, if its bytes were asked for.
    pub(crate) fn abandon(&mut self, rope: RopeIdx) {
        let is_over = |coming: &Coming| coming.left == 0 || coming.state == ComingState::Refused;
        match self.coming.get_mut(&rope.0) {
            Some(coming) if is_over(coming) => drop(self.coming.remove(&rope.0)),
            Some(coming) => {
                coming.state = ComingState::Abandoned;
                coming.bytes = BytesMut::new();
            }
            None => {}
        }
    }

    /// Stages the next piece of what has its turn. `false`: there is none, or no room.
    fn give(&mut self, out: &mut impl Outbound) -> bool {
        let Some(mut giving) = self.wanted.pop_front() else { return false };
        let Some(sent) = self.kept_mut(giving.rope) else { return false };
        let Some(part) = sent.keep.part(giving.part) else { return false };
        let most = out.record_len_max().saturating_sub(FRAME_HEAD_LEN).min(INLINE_LEN_MAX);
        let len = (part.len() - giving.at).min(giving.left as usize).min(most);
        let head = bytes_head(giving.rope, len as u32);
        if out.stage(&[head.as_bytes(), &part[giving.at..giving.at + len]]).is_err() {
            self.wanted.push_front(giving);
            return false;
        }
        giving.at += len;
        giving.left -= len as u32;
        if giving.at == part.len() {
            (giving.part, giving.at) = (giving.part + 1, 0);
        }
        if giving.left > 0 {
            self.wanted.push_back(giving);
        }
        true
    }
}

fn bytes_head(rope: u64, len: u32) -> FrameHead {
    let mut frame = head(rope);
    frame.events = events::CONTROL;
    frame.code = control::ROPE_BYTES.into();
    frame.chunk_len = len.into();
    frame
}

impl<T: Watched> Session<T> {
    /// Asks for the bytes of all refs of a rope that came and was not taken; `len` is how many they are, and how many this side
    /// is willing to have. To be said once for each.
    pub fn want_rope(&mut self, rope: RopeIdx, len: u32) {
        if self.closed.is_some() {
            return;
        }
        let mut frame = head(rope.0);
        frame.events = events::CONTROL;
        frame.code = control::ROPE_WANTED.into();
        frame.chunk_len = len.into();
        self.pending.push(frame);
        let coming = Coming { bytes: BytesMut::new(), left: len, state: ComingState::Wanted };
        self.ropes.coming.insert(rope.0, coming);
    }

    /// What has become of a rope that was asked for. What is here is given once.
    pub fn asked_rope(&mut self, rope: RopeIdx) -> Asked {
        match self.ropes.coming.get(&rope.0) {
            Some(Coming { left: 1.., state: ComingState::Wanted, .. }) => Asked::Coming,
            Some(Coming { left: 0, state: ComingState::Wanted, .. }) => {
                let coming = self.ropes.coming.remove(&rope.0);
                Asked::Here(coming.map(|coming| coming.bytes.freeze()).unwrap_or_default())
            }
            _ => {
                self.ropes.coming.remove(&rope.0);
                Asked::Refused
            }
        }
    }

    /// A rope that was asked for and on which [`asked_rope`](Self::asked_rope) has news.
    pub fn next_asked(&mut self) -> Option<RopeIdx> {
        self.ropes.came.pop()
    }

    /// Whether bytes of ropes were asked for that have not all come.
    pub fn awaits_rope_bytes(&self) -> bool {
        !self.ropes.coming.is_empty()
    }

    /// Whether the peer wants bytes of ropes.
    pub fn has_bytes_to_give(&self) -> bool {
        self.ropes.has_wanted()
    }

    /// Whether the rope that the peer took last, or is about to take, had to be sent to it inline after all.
    pub fn gives_inline(&self) -> bool {
        self.ropes.last_was_asked
    }

    /// Stages one piece of the bytes that the peer wants, if there is room. `false`: none was.
    pub fn give_bytes(&mut self, out: &mut impl Outbound) -> bool {
        self.closed.is_none() && self.ropes.give(out)
    }

    pub(crate) fn receive_wanted(&mut self, frame: &Frame) -> Result<(), Violation> {
        let misplaced = Violation::Control { code: frame.code };
        let rope = frame.stream;
        let sent = self.ropes.kept_mut(rope).filter(|sent| !sent.is_asked).ok_or(misplaced)?;
        if frame.chunk_len == 0 {
            return Err(misplaced);
        }
        sent.is_asked = true;
        let is_as_long = sent.keep.len() == u64::from(frame.chunk_len);
        self.ropes.last_was_asked = true;
        if is_as_long {
            self.ropes.wanted.push_back(Giving { rope, part: 0, at: 0, left: frame.chunk_len });
        } else {
            self.pending.push(bytes_head(rope, 0));
        }
        Ok(())
    }

    /// The peer has taken `count` ropes from `first` on: of those that it still gets bytes of, it gets no more.
    pub(crate) fn stop_giving(&mut self, first: u64, count: u32) {
        let pending = &mut self.pending;
        self.ropes.wanted.retain(|giving| {
            let goes_on = giving.rope.checked_sub(first).is_none_or(|idx| idx >= u64::from(count));
            if !goes_on {
                pending.push(bytes_head(giving.rope, 0));
            }
            goes_on
        });
    }

    pub(crate) fn receive_bytes(&mut self, frame: &Frame, record: &impl Inbound) -> Result<(), Violation> {
        let misplaced = Violation::Control { code: frame.code };
        let coming = self.ropes.coming.get_mut(&frame.stream).ok_or(misplaced)?;
        let is_wanted = coming.state == ComingState::Wanted;
        let is_last = frame.chunk_len == 0 || frame.chunk_len == coming.left;
        if coming.state == ComingState::Refused || coming.left == 0 {
            return Err(misplaced);
        }
        coming.left = coming.left.checked_sub(frame.chunk_len).ok_or(misplaced)?;
        if frame.chunk_len == 0 {
            coming.state = ComingState::Refused;
            coming.bytes = BytesMut::new();
        } else if is_wanted {
            record.append_to(frame.chunk_at(), frame.chunk_len as usize, &mut coming.bytes);
        }
        match (is_last, is_wanted) {
            (true, true) => self.ropes.came.push(RopeIdx(frame.stream)),
            (true, false) => drop(self.ropes.coming.remove(&frame.stream)),
            (false, _) => {}
        }
        Ok(())
    }
}
