//! Frames that the session owes the peer and that found no room yet: credit, cancellations, bare statuses, area answers.

use std::collections::VecDeque;

use tollfree_kill_points::{Point, here};
use tollfree_layout::StreamId;
use tollfree_layout::frame::{FRAME_HEAD_LEN, FrameHead, events};
use zerocopy::IntoBytes;

use crate::frame::head;
use crate::recording::Log;
use crate::{Full, Outbound};

/// Small frames waiting for room, oldest first. Their number is bounded by what causes them: at most one grant and one
/// end a stream, and one answer a record of the peer (the transport stops reading while any wait).
#[derive(Debug, Default)]
pub(crate) struct Pending {
    frames: VecDeque<FrameHead>,
}

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(crate) fn push(&mut self, frame: FrameHead) {
        self.frames.push_back(frame);
    }

    /// Grants credit, in frames of at most 4 GiB; joins a grant to the same stream that still waits.
    pub(crate) fn grant(&mut self, id: StreamId, mut amount: u64) {
        for frame in &mut self.frames {
            if frame.events == events::CREDIT && frame.stream.get() == id.0 {
                let add = amount.min(u64::from(u32::MAX - frame.chunk_len.get()));
                frame.chunk_len = (frame.chunk_len.get() + add as u32).into();
                amount -= add;
            }
        }
        while amount > 0 {
            let part = amount.min(u64::from(u32::MAX));
            amount -= part;
            let mut frame = head(id.0);
            frame.events = events::CREDIT;
            frame.chunk_len = (part as u32).into();
            self.frames.push_back(frame);
        }
    }

    /// What waiting frames grant to a stream.
    pub(crate) fn granted(&self, id: StreamId) -> u64 {
        let grants =
            self.frames.iter().filter(|frame| frame.events == events::CREDIT && frame.stream.get() == id.0);
        grants.map(|frame| u64::from(frame.chunk_len.get())).sum()
    }

    /// A stream is gone: grants to it need not be sent.
    pub(crate) fn forget(&mut self, id: StreamId) {
        if !self.frames.is_empty() {
            self.frames.retain(|frame| frame.events != events::CREDIT || frame.stream.get() != id.0);
        }
    }

    /// Stages as many as there is room for.
    pub(crate) fn stage(&mut self, out: &mut impl Outbound, log: Log<'_>) -> Result<(), Full> {
        while let Some(frame) = self.frames.front() {
            let bytes: &[u8] = frame.as_bytes();
            debug_assert_eq!(bytes.len(), FRAME_HEAD_LEN);
            out.stage(&[bytes])?;
            log.sent(frame);
            here(if frame.events == events::CREDIT { Point::CreditStaged } else { Point::NoticeStaged });
            self.frames.pop_front();
        }
        Ok(())
    }
}
