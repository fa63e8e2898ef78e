//! The bytes of segmented messages whose parts their receiver can't take hold of: it asks for them, and they come inline.
//!
//! ```text
//! receiver of segmented message n                        sender of segmented message n
//!   can't map a part of it
//!   SEGMENTED_WANTED n, bytes ─────────────────►  looks whether it has so many, and keeps the parts
//!   gathers them ◄───────────────────────── SEGMENTED_BYTES n, a piece; and so on
//!   has all ◄────────────────────────────── SEGMENTED_BYTES n, the last piece
//!   SEGMENTED_TAKEN n ────────────────────────►  lets go of the parts
//! ```
//! Asking is the grant of credit: pieces cost neither the stream's nor the session's. There is one piece to a frame, and between
//! two pieces other frames have their turn. A receiver may lose interest at any time: it says SEGMENTED_TAKEN then, and either all
//! pieces have been sent before that is read, or an empty piece says that no more come. An empty piece also answers who asks
//! for another number of bytes than there are. So each asking comes to an end, unless the session ends.
//!
//! # Trust
//! An asker gets each segmented message once, and only what it was sent. A giver is held to what it was asked for: the room that this takes
//! is what the asker has agreed to.

use bytes::{Bytes, BytesMut};
use tollfree_layout::SegmentedIdx;
use tollfree_layout::frame::{FRAME_HEAD_LEN, FrameHead, control, events};
use zerocopy::IntoBytes;

use crate::frame::{Frame, head};
use crate::frame_builder::INLINE_LEN_MAX;
use crate::recording::Log;
use crate::segmented::SegmentedMessages;
use crate::stream::Watched;
use crate::{Inbound, Outbound, Session, Violation};

/// A segmented message whose bytes the peer wants, and how far it has got them.
#[derive(Debug)]
pub(crate) struct Giving {
    segmented: u64,
    part: usize,
    /// Within the part.
    at: usize,
    left: u32,
}

/// A segmented message whose bytes were asked for.
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

/// What has become of asking for a segmented message's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// They are on their way.
    Coming,
    /// The bytes of all its refs, one after the other.
    Here(Bytes),
    /// The peer doesn't have as many as were asked for.
    Refused,
}

impl SegmentedMessages {
    pub(crate) fn has_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// A received segmented message is not wanted any more, if its bytes were asked for.
    pub(crate) fn abandon(&mut self, segmented: SegmentedIdx) {
        let is_over = |coming: &Coming| coming.left == 0 || coming.state == ComingState::Refused;
        match self.coming.get_mut(&segmented.0) {
            Some(coming) if is_over(coming) => drop(self.coming.remove(&segmented.0)),
            Some(coming) => {
                coming.state = ComingState::Abandoned;
                coming.bytes = BytesMut::new();
            }
            None => {}
        }
    }

    /// Stages the next piece of what has its turn. `false`: there is none, or no room.
    fn give(&mut self, out: &mut impl Outbound, log: Log<'_>) -> bool {
        let Some(mut giving) = self.wanted.pop_front() else { return false };
        let Some(sent) = self.kept_mut(giving.segmented) else { return false };
        let Some(part) = sent.keep.part(giving.part) else { return false };
        let most = out.record_len_max().saturating_sub(FRAME_HEAD_LEN).min(INLINE_LEN_MAX);
        let len = (part.len() - giving.at).min(giving.left as usize).min(most);
        let head = bytes_head(giving.segmented, len as u32);
        if out.stage(&[head.as_bytes(), &part[giving.at..giving.at + len]]).is_err() {
            self.wanted.push_front(giving);
            return false;
        }
        log.sent(&head);
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

fn bytes_head(segmented: u64, len: u32) -> FrameHead {
    let mut frame = head(segmented);
    frame.events = events::CONTROL;
    frame.code = control::SEGMENTED_BYTES.into();
    frame.chunk_len = len.into();
    frame
}

impl<T: Watched> Session<T> {
    /// Asks for the bytes of all refs of a segmented message that came and was not taken; `len` is how many they are, and how many this side
    /// is willing to have. To be said once for each.
    pub fn want_segmented(&mut self, segmented: SegmentedIdx, len: u32) {
        if self.closed.is_some() {
            return;
        }
        let mut frame = head(segmented.0);
        frame.events = events::CONTROL;
        frame.code = control::SEGMENTED_WANTED.into();
        frame.chunk_len = len.into();
        self.pending.push(frame);
        let coming = Coming { bytes: BytesMut::new(), left: len, state: ComingState::Wanted };
        self.segmented_messages.coming.insert(segmented.0, coming);
    }

    /// What has become of a segmented message that was asked for. What is here is given once.
    pub fn asked_segmented(&mut self, segmented: SegmentedIdx) -> Asked {
        match self.segmented_messages.coming.get(&segmented.0) {
            Some(Coming { left: 1.., state: ComingState::Wanted, .. }) => Asked::Coming,
            Some(Coming { left: 0, state: ComingState::Wanted, .. }) => {
                let coming = self.segmented_messages.coming.remove(&segmented.0);
                Asked::Here(coming.map(|coming| coming.bytes.freeze()).unwrap_or_default())
            }
            _ => {
                self.segmented_messages.coming.remove(&segmented.0);
                Asked::Refused
            }
        }
    }

    /// A segmented message that was asked for and on which [`asked_segmented`](Self::asked_segmented) has news.
    pub fn next_asked(&mut self) -> Option<SegmentedIdx> {
        self.segmented_messages.came.pop()
    }

    /// Whether bytes of segmented messages were asked for that have not all come.
    pub fn awaits_segmented_bytes(&self) -> bool {
        !self.segmented_messages.coming.is_empty()
    }

    /// Whether the peer wants bytes of segmented messages.
    pub fn has_bytes_to_give(&self) -> bool {
        self.segmented_messages.has_wanted()
    }

    /// Whether the segmented message that the peer took last, or is about to take, had to be sent to it inline after all.
    pub fn gives_inline(&self) -> bool {
        self.segmented_messages.last_was_asked
    }

    /// Stages one piece of the bytes that the peer wants, if there is room. `false`: none was.
    pub fn give_bytes(&mut self, out: &mut impl Outbound) -> bool {
        self.closed.is_none() && self.segmented_messages.give(out, self.recording.log())
    }

    pub(crate) fn receive_wanted(&mut self, frame: &Frame) -> Result<(), Violation> {
        let misplaced = Violation::Control { code: frame.code };
        let segmented = frame.stream;
        let sent =
            self.segmented_messages.kept_mut(segmented).filter(|sent| !sent.is_asked).ok_or(misplaced)?;
        if frame.chunk_len == 0 {
            return Err(misplaced);
        }
        sent.is_asked = true;
        let is_as_long = sent.keep.len() == u64::from(frame.chunk_len);
        self.segmented_messages.last_was_asked = true;
        if is_as_long {
            self.segmented_messages.wanted.push_back(Giving {
                segmented,
                part: 0,
                at: 0,
                left: frame.chunk_len,
            });
        } else {
            self.pending.push(bytes_head(segmented, 0));
        }
        Ok(())
    }

    /// The peer has taken `count` segmented messages from `first` on: of those that it still gets bytes of, it gets no more.
    pub(crate) fn stop_giving(&mut self, first: u64, count: u32) {
        let pending = &mut self.pending;
        self.segmented_messages.wanted.retain(|giving| {
            let goes_on = giving.segmented.checked_sub(first).is_none_or(|idx| idx >= u64::from(count));
            if !goes_on {
                pending.push(bytes_head(giving.segmented, 0));
            }
            goes_on
        });
    }

    pub(crate) fn receive_bytes(&mut self, frame: &Frame, record: &impl Inbound) -> Result<(), Violation> {
        let misplaced = Violation::Control { code: frame.code };
        let coming = self.segmented_messages.coming.get_mut(&frame.stream).ok_or(misplaced)?;
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
            (true, true) => self.segmented_messages.came.push(SegmentedIdx(frame.stream)),
            (true, false) => drop(self.segmented_messages.coming.remove(&frame.stream)),
            (false, _) => {}
        }
        Ok(())
    }
}
