//! Messages that are bytes already.

use bytes::{Buf, BufMut, Bytes};
use tollfree_pool::SegmentedMessage;
use tonic::Status;

use crate::message::form::{Form, Ready};

/// Bytes, as gRPC carries them.
#[derive(Debug)]
pub(crate) struct AsBytes;

/// See [`AsBytes`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct GivenBytes<'a>(&'a Bytes);

impl Ready for GivenBytes<'_> {
    #[inline]
    fn encoded_len(self) -> usize {
        self.0.len()
    }

    #[inline]
    fn write(self, to: &mut impl BufMut) {
        to.put_slice(self.0);
    }
}

impl Form<Bytes> for AsBytes {
    type Ready<'a> = GivenBytes<'a>;

    const TAKE: Option<fn(&mut Bytes) -> Bytes> = Some(std::mem::take);

    #[inline]
    fn ready<R>(
        message: &Bytes,
        write: impl FnOnce(GivenBytes<'_>) -> Result<R, Status>,
    ) -> Result<R, Status> {
        write(GivenBytes(message))
    }

    #[inline]
    fn read(mut from: impl Buf) -> Result<Bytes, Status> {
        Ok(from.copy_to_bytes(from.remaining()))
    }

    #[cold]
    fn read_segmented(segmented: SegmentedMessage) -> Result<Bytes, Status> {
        Ok(segmented
            .into_only()
            .unwrap_or_else(|mut segmented| segmented.copy_to_bytes(segmented.remaining())))
    }
}
