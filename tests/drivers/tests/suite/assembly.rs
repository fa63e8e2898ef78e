//! Messages out of the chunks that a session gives.

use bytes::{Bytes, BytesMut};
use tollfree_session::{Chunk, GRPC_PREFIX_LEN};

/// What has come of a message.
#[derive(Debug, Default)]
pub(crate) struct Assembly(BytesMut);

impl Assembly {
    /// Takes a chunk; the messages that are whole with it.
    pub(crate) fn take<R>(&mut self, chunk: Chunk<R>) -> Vec<Bytes> {
        assert!(chunk.segmented.is_none(), "no pool is in common");
        self.0.extend_from_slice(&chunk.bytes);
        let mut messages = Vec::new();
        while let Some(prefix) = self.0.first_chunk::<GRPC_PREFIX_LEN>() {
            let [flag, len @ ..] = *prefix;
            assert_eq!(flag, 0, "nothing is compressed, and nothing an object");
            let whole = GRPC_PREFIX_LEN + u32::from_be_bytes(len) as usize;
            if self.0.len() < whole {
                break;
            }
            messages.push(self.0.split_to(whole).freeze().slice(GRPC_PREFIX_LEN..));
        }
        assert_eq!(chunk.last, self.0.is_empty(), "a last chunk ends its message");
        messages
    }
}
