//! Messages as flat messages: taken over as they are where they came so, else decoded from protobuf's bytes straight into an
//! object, and encoded from it, by the table.

use std::cell::Cell;
use std::sync::LazyLock;

use bytes::{Buf, BufMut, Bytes};
use tollfree_driver_tokio::Encoded;
use tollfree_pool::SegmentedMessage;
use tollfree_processor::typed::{Compiled, Message, Owned};
use tollfree_processor::{Arenas, DecodeError, EncodeBuffer, EncodeError, Limits, OwnError, Slot, Trust};
use tonic::{Code, Status};

use crate::message::codec::Objects;
use crate::message::encoding::too_long;
use crate::message::form::{Form, Ready, Root};
use crate::status::of_content;

/// Longest object that a message is decoded into, in bytes. prost's structs have no limit but memory.
const OBJECT_LEN_MAX: usize = 1 << 30;
/// Arenas of received messages that wait to be used again.
const WAITING_COUNT_MAX: usize = 32;
/// A longer object is sent from where it lies: it would be copied into memory of its own first.
const COPIED_LEN_MAX: usize = 1024;
/// A buffer that a longer message was encoded into is not kept, in bytes.
const KEPT_LEN_MAX: usize = 1 << 20;

/// Where messages are decoded that are received.
static ARENAS: LazyLock<Arenas> = LazyLock::new(|| Arenas::new(OBJECT_LEN_MAX, WAITING_COUNT_MAX));

thread_local! {
    /// Where messages are encoded on this thread.
    static BUFFER: Cell<Option<Box<EncodeBuffer>>> = const { Cell::new(None) };
}

/// An object that is encoded.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a>(&'a [u8]);

impl Ready for Written<'_> {
    #[inline]
    fn encoded_len(self) -> usize {
        self.0.len()
    }

    #[inline]
    fn write(self, to: &mut impl BufMut) {
        to.put_slice(self.0);
    }
}

impl<M: Message> Form<Owned<M>> for Objects {
    type Ready<'a> = Written<'a>;

    const OBJECTS: bool = true;

    #[inline]
    fn fingerprint() -> Option<u64> {
        Some(Owned::<M>::fingerprint())
    }

    fn root() -> Option<Root> {
        Some(Root::new(M::Compiled::BLOB, M::TYPE_IDX))
    }

    #[inline]
    fn object(message: &mut Owned<M>) -> Option<Encoded> {
        let bytes = message.object().bytes();
        Some(match bytes.len() {
            len if len <= COPIED_LEN_MAX => Encoded::write(len, |buffer| buffer.put_slice(bytes)),
            _ => message.share().into(),
        })
    }

    #[inline]
    fn object_bytes(message: &Owned<M>) -> Option<&[u8]> {
        Some(message.object().bytes())
    }

    fn read_object(object: &[u8], len_max: usize, trust: Option<Trust>) -> Result<Owned<M>, Status> {
        let slot = ARENAS.take_for_good();
        let message = match trust {
            None => Owned::verify(object, slot, Limits::default().depth),
            Some(trust) => Owned::trust(object, slot, trust),
        };
        taken(message.map_err(unsound)?, object.len(), len_max)
    }

    fn keep_object(object: Bytes, len_max: usize, trust: Option<Trust>) -> Result<Owned<M>, Status> {
        let len = object.len();
        let message = match trust {
            None => Owned::verify_held(object, Limits::default().depth),
            Some(trust) => Owned::trust_held(object, trust),
        };
        taken(message.map_err(unsound)?, len, len_max)
    }

    fn ready<R>(
        message: &Owned<M>,
        write: impl FnOnce(Written<'_>) -> Result<R, Status>,
    ) -> Result<R, Status> {
        // Taken out meanwhile, so that nothing that `write` does finds it in use.
        let mut buffer = BUFFER.try_with(Cell::take).ok().flatten().unwrap_or_default();
        let bytes = message.object().encode(&mut buffer).map_err(unencodable)?;
        let is_kept = bytes.len() <= KEPT_LEN_MAX;
        let written = write(Written(bytes));
        if is_kept {
            // A thread that ends has no place for it.
            let _ = BUFFER.try_with(|place| place.set(Some(buffer)));
        }
        written
    }

    fn read(mut from: impl Buf) -> Result<Owned<M>, Status> {
        let len = from.remaining();
        let in_one = from.chunk();
        if in_one.len() == len {
            let message =
                Owned::decode(in_one, ARENAS.take_for_good(), &Limits::default()).map_err(undecodable)?;
            from.advance(len);
            return Ok(message);
        }
        staged(from)
    }

    #[cold]
    fn read_segmented(segmented: SegmentedMessage) -> Result<Owned<M>, Status> {
        // Other members can write to the pool, and an object's strings are checked once: they are to stay what they are.
        staged(segmented)
    }
}

/// An object that was taken over: nothing is to stand behind it in the `whole` bytes that came.
#[inline]
fn taken<M: Message>(message: Owned<M>, whole: usize, len_max: usize) -> Result<Owned<M>, Status> {
    let len = message.object().bytes().len();
    if len != whole {
        return Err(behind(len, whole));
    }
    if len > len_max {
        Objects::ready(&message, |written: Written<'_>| match written.encoded_len() {
            len if len > len_max => Err(too_long(len, len_max)),
            _ => Ok(()),
        })?;
    }
    Ok(message)
}

/// Reads a message that lies in several pieces, or where others write: it is copied first.
#[cold]
fn staged<M: Message>(mut from: impl Buf) -> Result<Owned<M>, Status> {
    let len = from.remaining();
    let mut slot: Slot = ARENAS.take_for_good();
    let room = slot.stage(len).ok_or_else(|| {
        of_content(
            Code::ResourceExhausted,
            format!("a message of {len} bytes does not fit into an object of at most {OBJECT_LEN_MAX} bytes"),
        )
    })?;
    from.copy_to_slice(room);
    Owned::decode_staged(slot, &Limits::default()).map_err(undecodable)
}

#[cold]
fn undecodable(error: DecodeError) -> Status {
    match error {
        DecodeError::ArenaExhausted { path, .. } => of_content(
            Code::ResourceExhausted,
            format!(
                "{path}: the message's object would be longer than {OBJECT_LEN_MAX} bytes; send less in one message"
            ),
        ),
        error => of_content(Code::Internal, error.to_string()),
    }
}

#[cold]
fn unsound(error: OwnError) -> Status {
    match error {
        OwnError::Exhausted { .. } => of_content(Code::ResourceExhausted, error.to_string()),
        error => {
            of_content(Code::Internal, format!("the message came as a flat message that is refused: {error}"))
        }
    }
}

#[cold]
fn behind(len: usize, whole: usize) -> Status {
    of_content(
        Code::Internal,
        format!(
            "the message came as a flat message of {len} bytes, with {} bytes behind it",
            whole.saturating_sub(len)
        ),
    )
}

#[cold]
fn unencodable(error: EncodeError) -> Status {
    match error {
        EncodeError::TooLong => of_content(Code::ResourceExhausted, error.to_string()),
        error => of_content(Code::Internal, error.to_string()),
    }
}
