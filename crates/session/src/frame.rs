//! Frames between bytes and checked values.

use tollfree_layout::frame::{
    AREA_RANGE_LEN, AreaRange, DEADLINE_LEN, FRAME_HEAD_LEN, FrameHead, control, events, flags,
};
use tollfree_layout::{AreaIdx, ByteOff};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::Violation;
use crate::{Inbound, OBJECT_PREFIX, Role};

/// The flags of a message that is in one frame, not compressed, and no segmented message. It may be an object.
const WHOLE: u8 = flags::FIRST | flags::LAST;

/// A received head, copied and checked: the lengths add up, events and flags go together. Where the parts lie in the
/// record follows from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) events: u8,
    pub(crate) flags: u8,
    pub(crate) code: u16,
    pub(crate) stream: u64,
    pub(crate) headers_len: usize,
    pub(crate) trailers_len: usize,
    pub(crate) chunk_len: u32,
    pub(crate) message_len: u32,
}

impl Frame {
    /// Fetches and checks the head of a record that a peer of role `sender` wrote; `segmented_messages` says whether both sides have a
    /// pool in common.
    pub(crate) fn fetch(
        record: &impl Inbound,
        sender: Role,
        segmented_messages: bool,
    ) -> Result<Frame, Violation> {
        let record_len = record.record_len();
        if record_len < FRAME_HEAD_LEN {
            return Err(Violation::FrameLen { record_len, announced: FRAME_HEAD_LEN });
        }
        let mut bytes = [0; FRAME_HEAD_LEN];
        record.read(0, &mut bytes);
        let head = FrameHead::ref_from_bytes(&bytes).expect("the length is the type's own");
        let frame = Frame {
            events: head.events,
            flags: head.flags,
            code: head.code.get(),
            stream: head.stream.get(),
            headers_len: head.headers_len.get().into(),
            trailers_len: head.trailers_len.get().into(),
            chunk_len: head.chunk_len.get(),
            message_len: head.message_len.get(),
        };
        let known = flags::KNOWN_FLAGS | if segmented_messages { flags::SEGMENTED } else { 0 };
        if frame.flags & !known != 0 || !frame.makes_sense(sender) {
            return Err(Violation::FrameKind { events: frame.events, flags: frame.flags });
        }
        let announced = frame.chunk_at().saturating_add(frame.inline_len());
        if announced != record_len {
            return Err(Violation::FrameLen { record_len, announced });
        }
        Ok(frame)
    }

    pub(crate) fn has(&self, event: u8) -> bool {
        self.events & event != 0
    }

    pub(crate) fn flag(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether it says all that a client says on a call, and no more than a [`SingleFrame`](crate::SingleFrame) holds: the message is in
    /// the frame itself, and neither compressed nor a segmented message.
    #[inline]
    pub(crate) fn is_whole_request(&self) -> bool {
        const ALL: u8 = events::HEADERS | events::MESSAGE | events::HALF_CLOSE;
        const BESIDE: u8 = flags::HAS_DEADLINE | flags::OBJECT;
        self.events == ALL && self.flags & !BESIDE == WHOLE && self.chunk_len == self.message_len
    }

    /// The same of a server, with status OK.
    #[inline]
    pub(crate) fn is_whole_answer(&self) -> bool {
        const ALL: u8 = events::HEADERS | events::MESSAGE | events::TRAILERS;
        self.events == ALL
            && self.flags & !flags::OBJECT == WHOLE
            && self.code == 0
            && self.chunk_len == self.message_len
    }

    /// The first byte of gRPC's prefix for the message that begins here, with the value beside gRPC's own that an object has.
    #[inline]
    pub(crate) fn prefix(&self) -> u8 {
        const _: () = assert!(OBJECT_PREFIX == 2);
        u8::from(self.flag(flags::COMPRESSED)) | u8::from(self.flag(flags::OBJECT)) << 1
    }

    fn makes_sense(&self, sender: Role) -> bool {
        use events::*;
        let alone = CANCEL | CREDIT | DRAIN | CONTROL;
        if self.events == 0 {
            return false;
        }
        if self.events & alone != 0 {
            return self.trailers_len == 0 && self.message_len == 0 && self.makes_sense_alone(sender);
        }
        let foreign = match sender {
            Role::Client => TRAILERS,
            Role::Server => HALF_CLOSE,
        };
        // An object is not compressed.
        let first_flags = flags::COMPRESSED | flags::SEGMENTED | flags::OBJECT;
        let message_flags = flags::FIRST | flags::LAST | flags::IN_AREA;
        let opens = self.has(HEADERS) && sender == Role::Client;
        let coded = opens || self.has(TRAILERS);
        self.events & foreign == 0
            && !(self.flag(flags::OBJECT) && self.flag(flags::COMPRESSED) && self.has(MESSAGE))
            && (self.has(MESSAGE)
                || (self.flags & message_flags == 0 && self.chunk_len == 0 && self.message_len == 0))
            && (opens || self.flags & (flags::HAS_DEADLINE | flags::BATCH) == 0 || self.is_sound_batch())
            && (coded || self.code == 0)
            && (self.has(HEADERS) || self.headers_len == 0)
            && (self.has(TRAILERS) || self.trailers_len == 0)
            && (self.flag(flags::FIRST) || (self.message_len == 0 && self.flags & first_flags == 0))
    }

    /// Whether several messages are in it. A client's opening has none.
    #[inline]
    pub(crate) fn is_batch(&self, sender: Role) -> bool {
        self.flag(flags::BATCH) && !(sender == Role::Client && self.has(events::HEADERS))
    }

    /// Whether head and flags, no others among them, go with several messages, none of which is cut.
    fn is_sound_batch(&self) -> bool {
        self.has(events::MESSAGE)
            && self.flags & !(flags::IN_AREA | flags::OBJECT) == WHOLE | flags::BATCH
            && self.message_len != 0
            && self.chunk_len != 0
    }

    /// Fields that an event doesn't use are zero.
    fn makes_sense_alone(&self, sender: Role) -> bool {
        use events::*;
        let (code, bare) = (self.code, self.headers_len == 0 && self.chunk_len == 0);
        match self.events {
            CANCEL => bare && (self.flags & !flags::REFUSED) == 0,
            CREDIT => self.flags == 0 && code == 0 && self.headers_len == 0 && self.chunk_len != 0,
            DRAIN => self.flags == 0 && code == 0 && bare && sender == Role::Server,
            // Only a server has methods.
            CONTROL if code == control::OBJECTS => {
                self.flags == 0 && self.headers_len == 0 && sender == Role::Server
            }
            CONTROL if code == control::CLOSE => self.flags == 0 && self.chunk_len == 0,
            CONTROL
                if matches!(
                    code,
                    control::AREA_OFFER
                        | control::SEGMENTED_TAKEN
                        | control::SEGMENTED_WANTED
                        | control::SEGMENTED_BYTES
                ) =>
            {
                self.flags == 0 && self.headers_len == 0
            }
            CONTROL => self.flags == 0 && bare,
            _ => false,
        }
    }

    pub(crate) fn headers_at(&self) -> usize {
        FRAME_HEAD_LEN + if self.flag(flags::HAS_DEADLINE) { DEADLINE_LEN } else { 0 }
    }

    pub(crate) fn trailers_at(&self) -> usize {
        self.headers_at() + self.headers_len
    }

    pub(crate) fn chunk_at(&self) -> usize {
        self.trailers_at() + self.trailers_len
    }

    /// Bytes of the record that belong to the chunk.
    fn inline_len(&self) -> usize {
        if self.flag(flags::IN_AREA) {
            AREA_RANGE_LEN
        } else if self.has(events::MESSAGE)
            || (self.has(events::CONTROL) && self.code == control::SEGMENTED_BYTES)
        {
            self.chunk_len as usize
        } else {
            0
        }
    }

    pub(crate) fn deadline_ns(&self, record: &impl Inbound) -> u64 {
        if !self.flag(flags::HAS_DEADLINE) {
            return 0;
        }
        let mut bytes = [0; DEADLINE_LEN];
        record.read(FRAME_HEAD_LEN, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Where the chunk lies in a payload area; `None` where reserved bits are set.
    pub(crate) fn area_range(&self, record: &impl Inbound) -> Option<(AreaIdx, ByteOff)> {
        let mut bytes = [0; AREA_RANGE_LEN];
        record.read(self.chunk_at(), &mut bytes);
        let range = AreaRange::ref_from_bytes(&bytes).expect("the length is the type's own");
        (range.reserved.get() == 0).then_some((AreaIdx(range.area.get()), ByteOff(range.offset.get())))
    }
}

/// The head of a frame without events: a start to set fields on.
pub(crate) fn head(stream: u64) -> FrameHead {
    FrameHead { stream: stream.into(), ..FrameHead::default() }
}

/// The bytes of an area range.
pub(crate) fn range_bytes(area: AreaIdx, at: ByteOff) -> [u8; AREA_RANGE_LEN] {
    let range = AreaRange { area: area.0.into(), reserved: 0.into(), offset: at.0.into() };
    let mut bytes = [0; AREA_RANGE_LEN];
    bytes.copy_from_slice(range.as_bytes());
    bytes
}
