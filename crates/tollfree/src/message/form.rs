//! The forms in which programs have messages: how each is written as protobuf's bytes, and read out of them.
//!
//! A form is chosen for each method when its stubs are generated. Everything else of a call is the same for all forms.

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tollfree_driver_tokio::Encoded;
use tollfree_layout::description::method_fingerprint;
use tollfree_pool::SegmentedMessage;
use tollfree_processor::Trust;
use tonic::{Code, Status};

use crate::message::codec::Prost;
use crate::status::of_content;

/// A form in which messages of type `M` are had.
pub trait Form<M>: Send + Sync + 'static
where
    M: Send + Sync + 'static,
{
    /// A message that can be written.
    type Ready<'a>: Ready;

    /// Whether messages of this form are flat messages, which may travel as they are.
    const OBJECTS: bool = false;

    /// Takes a message out of its place, where messages of this form can be encoded range by range, each by itself.
    const TAKE: Option<fn(&mut M) -> M> = None;

    /// Fingerprint of the messages' type, where they are objects and may travel so.
    #[inline]
    fn fingerprint() -> Option<u64> {
        None
    }

    /// The type itself, where messages are objects.
    fn root() -> Option<Root> {
        None
    }

    /// The bytes of a message that is an object, to be sent as they are. A long one's are not copied.
    #[inline]
    fn object(_message: &mut M) -> Option<Encoded> {
        None
    }

    /// The bytes of a message that is an object, where they lie.
    #[inline]
    fn object_bytes(_message: &M) -> Option<&[u8]> {
        None
    }

    /// Takes over a message that came as an object, and holds the receiver's limit against its encoding where the object is
    /// longer than that. It is copied, and verified unless its sender is trusted.
    ///
    /// # Errors
    /// INTERNAL for one that is not sound, or of another type, and wherever none is taken.
    #[cold]
    fn read_object(_object: &[u8], _len_max: usize, _trust: Option<Trust>) -> Result<M, Status> {
        Err(unasked())
    }

    /// The same of an object that is read where it lies: in private memory, or in the pool of a trust domain.
    ///
    /// # Errors
    /// As [`Form::read_object`].
    #[cold]
    fn keep_object(_object: Bytes, _len_max: usize, _trust: Option<Trust>) -> Result<M, Status> {
        Err(unasked())
    }

    /// Makes a message ready, and has it written.
    ///
    /// # Errors
    /// The status for a message that has no encoding; what `write` gives.
    fn ready<R>(message: &M, write: impl FnOnce(Self::Ready<'_>) -> Result<R, Status>) -> Result<R, Status>;

    /// Reads a message, out of memory that nobody else writes to.
    ///
    /// # Errors
    /// INTERNAL for one that can't be decoded, as tonic says it.
    fn read(from: impl Buf) -> Result<M, Status>;

    /// Reads a message that lies in a pool, whole or in part.
    ///
    /// # Errors
    /// As [`Form::read`].
    fn read_segmented(segmented: SegmentedMessage) -> Result<M, Status>;
}

/// A message whose length is known, as protobuf's bytes. It can be written several times.
pub trait Ready: Copy {
    /// Its length in bytes.
    fn encoded_len(self) -> usize;

    /// Appends its bytes.
    fn write(self, to: &mut impl BufMut);
}

/// One of prost's structs.
#[derive(Debug)]
pub struct Struct<'a, M>(&'a M);

impl<M> Clone for Struct<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Struct<'_, M> {}

impl<M: Message> Ready for Struct<'_, M> {
    #[inline]
    fn encoded_len(self) -> usize {
        self.0.encoded_len()
    }

    #[inline]
    fn write(self, to: &mut impl BufMut) {
        self.0.encode_raw(to);
    }
}

impl<M: Message + Default + 'static> Form<M> for Prost {
    type Ready<'a> = Struct<'a, M>;

    const TAKE: Option<fn(&mut M) -> M> = Some(std::mem::take);

    #[inline]
    fn ready<R>(message: &M, write: impl FnOnce(Struct<'_, M>) -> Result<R, Status>) -> Result<R, Status> {
        write(Struct(message))
    }

    #[inline]
    fn read(from: impl Buf) -> Result<M, Status> {
        M::decode(from).map_err(undecodable)
    }

    #[cold]
    fn read_segmented(segmented: SegmentedMessage) -> Result<M, Status> {
        match segmented.into_only() {
            Ok(only) => M::decode(only),
            Err(segmented) => M::decode(segmented),
        }
        .map_err(undecodable)
    }
}

/// A message's type: its table, and its place in that.
#[derive(Clone, Copy, Debug)]
pub struct Root {
    pub(crate) blob: &'static [u8],
    pub(crate) type_idx: u32,
}

/// A method's types, where messages of both are objects.
#[derive(Clone, Copy, Debug)]
pub struct Types {
    /// The fingerprint of both.
    pub(crate) fingerprint: u64,
    pub(crate) request: Root,
    pub(crate) reply: Root,
}

impl Types {
    /// One fingerprint of both types. It is only compared: of an object that comes, the receiver asks for
    /// the type itself.
    #[inline]
    pub(crate) fn join(request: u64, reply: u64) -> u64 {
        method_fingerprint(request, reply)
    }
}

impl Root {
    /// The type of that index in a table that was compiled with the program.
    pub(crate) const fn new(blob: &'static [u8], type_idx: u32) -> Root {
        Root { blob, type_idx }
    }
}

/// The fingerprint of a method's types, where messages of both are objects.
#[inline]
pub(crate) fn types_of<F, M1, M2>() -> Option<u64>
where
    F: Form<M1> + Form<M2>,
    M1: Send + Sync + 'static,
    M2: Send + Sync + 'static,
{
    let (request, reply) = (<F as Form<M1>>::fingerprint(), <F as Form<M2>>::fingerprint());
    Some(Types::join(request?, reply?))
}

/// The types themselves, for generated servers, which are asked by the method's name.
pub fn types<F, M1, M2>(_: F) -> Option<Types>
where
    F: Form<M1> + Form<M2>,
    M1: Send + Sync + 'static,
    M2: Send + Sync + 'static,
{
    let (request, reply) = (<F as Form<M1>>::root()?, <F as Form<M2>>::root()?);
    Some(Types { fingerprint: types_of::<F, M1, M2>()?, request, reply })
}

/// An object came where none was asked for.
#[cold]
pub(crate) fn unasked() -> Status {
    of_content(
        Code::Internal,
        "the message came as a flat message, and this end has not said that it takes those here: the peer is to send it \
         encoded",
    )
}

#[cold]
fn undecodable(error: prost::DecodeError) -> Status {
    of_content(Code::Internal, error.to_string())
}
