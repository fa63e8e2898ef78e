//! Frames put together field by field, right or wrong.

use tollfree_layout::frame::{FrameHead, events, flags};
use zerocopy::IntoBytes;

/// A frame whose every field can be set, consistent or not.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// The head as it is sent. The lengths are set when it is sent.
    pub head: FrameHead,
    /// What follows the head.
    pub body: Vec<u8>,
}

impl Frame {
    /// Events, flags and stream; all else zero.
    pub fn new(events: u8, flags: u8, stream: u64) -> Frame {
        let head = FrameHead { events, flags, stream: stream.into(), ..FrameHead::default() };
        Frame { head, body: Vec::new() }
    }

    /// Sets the code.
    pub fn code(mut self, code: u16) -> Frame {
        self.head.code = code.into();
        self
    }

    /// Sets the chunk's length, whatever follows.
    pub fn chunk_len(mut self, len: u32) -> Frame {
        self.head.chunk_len = len.into();
        self
    }

    /// Sets the message's length, whatever follows.
    pub fn message_len(mut self, len: u32) -> Frame {
        self.head.message_len = len.into();
        self
    }

    /// Adds a headers block, and says its length.
    pub fn headers(mut self, block: &[u8]) -> Frame {
        self.head.headers_len = (self.head.headers_len.get() + block.len() as u16).into();
        self.body.extend_from_slice(block);
        self
    }

    /// Adds a trailers block, and says its length.
    pub fn trailers(mut self, block: &[u8]) -> Frame {
        self.head.trailers_len = (block.len() as u16).into();
        self.body.extend_from_slice(block);
        self
    }

    /// Adds a chunk, and says its length.
    pub fn chunk(mut self, chunk: &[u8]) -> Frame {
        self.head.chunk_len = (chunk.len() as u32).into();
        self.body.extend_from_slice(chunk);
        self
    }

    /// Adds bytes that no field speaks of.
    pub fn bytes(mut self, bytes: &[u8]) -> Frame {
        self.body.extend_from_slice(bytes);
        self
    }

    /// The record.
    pub fn record(&self) -> Vec<u8> {
        [self.head.as_bytes(), &self.body].concat()
    }
}

/// A client's opening frame of a unary call: names the method as index `method`, sends `message`, half-closes.
pub fn opening_of(stream: u64, method: u16, path: &str, message: &[u8]) -> Frame {
    let events = events::HEADERS | events::MESSAGE | events::HALF_CLOSE;
    let named = flags::FIRST | flags::LAST | flags::NAMES_METHOD;
    let path_len = (path.len() as u16).to_le_bytes();
    Frame::new(events, named, stream)
        .code(method)
        .headers(&path_len)
        .headers(path.as_bytes())
        .message_len(message.len() as u32)
        .chunk(message)
}
