//! The codec of generated stubs where tonic's own layers carry their calls, for messages of any [`Form`], with a way beside
//! tonic for large ones and objects ([`super::out_of_band`]).

use std::marker::PhantomData;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use tollfree_driver_tokio::Encoded;
use tollfree_layout::limits::OBJECT_LEN_MAX;
use tonic::Status;
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::message::as_bytes::AsBytes;
use crate::message::compression::ACCEPT_ENCODING;
use crate::message::deferred::{Deferred, Short};
use crate::message::encoding::RECEIVED_LEN_MAX;
use crate::message::form::{Form, Ready as _, types_of};
use crate::message::framing::PREFIX_LEN;
use crate::message::out_of_band::{OfServer, OutOfBand, Past};
use crate::message::stream_body::{Speaker, stream_body};
use crate::message::streaming::{Decode, Streaming};

/// tonic's own defaults.
const BUFFER_LEN: usize = 8 * 1024;
/// A buffer of this length is failed over: each message by itself, so that no more than one large one waits beside.
const EACH: usize = 1;

/// How a generated client's messages are coded.
pub trait Coding<M1, M2> {
    /// What tonic is given.
    type Codec: Codec<Encode = M1, Decode = M2>;
    /// The codec for one call.
    fn codec(self, call: OneCall) -> Self::Codec;
    /// The fingerprint of both messages' types, where they are objects.
    fn types() -> Option<u64> {
        None
    }
    /// Whether there are bodies of such messages that are not tonic's.
    const HAS_BODIES: bool = false;
    /// The body that a stream of requests goes out as.
    ///
    /// # Errors
    /// The stream itself, where tonic has to encode it.
    fn encoded<S: Stream<Item = M1> + Send + 'static>(_: &OneCall, source: S) -> Result<Body, S> {
        Err(source)
    }
    /// The answers in a body.
    fn decoded(_: &OneCall, _: Body) -> Option<Streaming<M2>> {
        None
    }
}

/// What a codec is to know of its call.
#[derive(Clone, Debug, Default)]
pub struct OneCall {
    pub(crate) out_of_band: Option<OutOfBand>,
    pub(crate) encoding_len_max: Option<usize>,
    pub(crate) decoding_len_max: Option<usize>,
    /// Messages are compressed on their way out, which only tonic can do.
    pub(crate) compresses: bool,
}

/// Messages of prost's, coded as tonic does by default.
#[derive(Debug)]
pub struct Prost;

/// Any other codec: all messages pass through tonic.
#[derive(Debug)]
pub struct Other<C>(pub C);

/// Messages that are read and built in place: flat messages.
#[derive(Debug)]
pub struct Objects;

/// A marker is a coding wherever it is a form of both messages.
macro_rules! coding_of_form {
    ($form:ty) => {
        impl<M1, M2> Coding<M1, M2> for $form
        where
            $form: Form<M1> + Form<M2>,
            M1: Send + Sync + 'static,
            M2: Send + Sync + 'static,
        {
            type Codec = FormCodec<$form, M1, M2>;

            fn codec(self, call: OneCall) -> Self::Codec {
                FormCodec { call, messages: PhantomData }
            }

            fn types() -> Option<u64> {
                types_of::<$form, M1, M2>()
            }

            const HAS_BODIES: bool = true;

            fn encoded<S: Stream<Item = M1> + Send + 'static>(call: &OneCall, source: S) -> Result<Body, S> {
                let encoder = FormCodec::<$form, M1, M2>::of(call).encoder();
                Ok(stream_body(source.map(Ok), encoder, Speaker::Client))
            }

            fn decoded(call: &OneCall, body: Body) -> Option<Streaming<M2>> {
                Some(FormCodec::<$form, M1, M2>::of(call).messages(body))
            }
        }
    };
}

coding_of_form!(Prost);
coding_of_form!(Objects);
coding_of_form!(AsBytes);

impl<C: Codec> Coding<C::Encode, C::Decode> for Other<C> {
    type Codec = C;

    fn codec(self, _: OneCall) -> C {
        self.0
    }
}

/// For generated servers: the codec for a call of messages in form `F`, which may have come with an out-of-band queue.
pub fn codec<F, M1, M2, B>(
    _: F,
    request: &mut http::Request<B>,
    encoding_len_max: Option<usize>,
    decoding_len_max: Option<usize>,
    compresses: bool,
) -> FormCodec<F, M1, M2>
where
    F: Form<M1> + Form<M2>,
    M1: Send + Sync + 'static,
    M2: Send + Sync + 'static,
{
    // Not to be found by anybody whom the application gives the extensions to.
    let out_of_band = request.extensions_mut().remove().map(|OfServer(out_of_band)| out_of_band);
    // tonic compresses for those alone who say that they accept it.
    let compresses = compresses && request.headers().contains_key(ACCEPT_ENCODING);
    let call = OneCall { out_of_band, encoding_len_max, decoding_len_max, compresses };
    FormCodec { call, messages: PhantomData }
}

/// The codec of one call.
#[derive(Debug)]
pub struct FormCodec<F, M1, M2> {
    call: OneCall,
    messages: PhantomData<fn(F, M1) -> M2>,
}

impl<F, M1, M2> FormCodec<F, M1, M2> {
    /// Whether messages are compressed on their way out.
    pub(crate) fn compresses(&self) -> bool {
        self.call.compresses
    }

    /// Another of the same call.
    fn of(call: &OneCall) -> FormCodec<F, M1, M2> {
        FormCodec { call: call.clone(), messages: PhantomData }
    }
}

impl<F, M1, M2> Clone for FormCodec<F, M1, M2> {
    fn clone(&self) -> Self {
        FormCodec::of(&self.call)
    }
}

impl<F, M1, M2> FormCodec<F, M1, M2>
where
    F: Form<M1> + Form<M2>,
    M1: Send + Sync + 'static,
    M2: Send + Sync + 'static,
{
    /// The messages in a body.
    pub(crate) fn messages(&mut self, body: Body) -> Streaming<M2> {
        Streaming::of_body(body, self.decoder(), self.call.decoding_len_max)
    }
}

impl<F, M1, M2> Codec for FormCodec<F, M1, M2>
where
    F: Form<M1> + Form<M2>,
    M1: Send + Sync + 'static,
    M2: Send + Sync + 'static,
{
    type Encode = M1;
    type Decode = M2;
    type Encoder = FormEncoder<F, M1>;
    type Decoder = FormDecoder<F, M2>;

    fn encoder(&mut self) -> FormEncoder<F, M1> {
        let out_of_band = self.call.out_of_band.clone().filter(|_| !self.call.compresses);
        FormEncoder { out_of_band, len_max: self.call.encoding_len_max, count: 0, messages: PhantomData }
    }

    fn decoder(&mut self) -> FormDecoder<F, M2> {
        let out_of_band = self.call.out_of_band.clone();
        if let Some(out_of_band) = &out_of_band {
            out_of_band.take_back_up_to(self.call.decoding_len_max.unwrap_or(RECEIVED_LEN_MAX));
        }
        FormDecoder { out_of_band, count: 0, messages: PhantomData }
    }
}

/// Encodes messages into tonic's buffer, or sends them past it.
#[derive(Debug)]
pub struct FormEncoder<F, M> {
    out_of_band: Option<OutOfBand>,
    len_max: Option<usize>,
    count: u64,
    messages: PhantomData<fn(F, M)>,
}

impl<F: Form<M>, M: Send + Sync + 'static> Encoder for FormEncoder<F, M> {
    type Item = M;
    type Error = Status;

    fn encode(&mut self, message: M, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        self.write(message, |ready| ready.write(to)).map(drop)
    }

    fn buffer_settings(&self) -> BufferSettings {
        match &self.out_of_band {
            Some(out_of_band) if out_of_band.is_open() => BufferSettings::new(BUFFER_LEN, EACH),
            _ => BufferSettings::default(),
        }
    }
}

impl<F: Form<M>, M: Send + Sync + 'static> FormEncoder<F, M> {
    /// Has a message written, or sends it past the body, in which an empty one stands for it then. The length of what went past.
    fn write(&mut self, mut message: M, write: impl FnOnce(F::Ready<'_>)) -> Result<Option<usize>, Status> {
        let number = self.count;
        self.count += 1;
        if let Some(out_of_band) =
            self.out_of_band.as_ref().filter(|out_of_band| F::OBJECTS && out_of_band.takes_objects())
            && let Some(short) = Short::<F, M>::of(&message, self.len_max)
        {
            let len = short.len();
            out_of_band.put_out(number, short, len);
            return Ok(Some(len));
        }
        let object = self.object_past(&mut message);
        let past = match (&self.out_of_band, &object) {
            (Some(out_of_band), Some(object)) => Some((out_of_band, object.len())),
            _ => F::ready(&message, |ready| match &self.out_of_band {
                Some(out_of_band) if out_of_band.takes(ready.encoded_len()) => {
                    Ok(Some((out_of_band, ready.encoded_len())))
                }
                _ => {
                    write(ready);
                    Ok(None)
                }
            })?,
        };
        let Some((out_of_band, len)) = past else { return Ok(None) };
        out_of_band.put_out(number, Deferred::<F, M>::new(message, object, self.len_max), len);
        Ok(Some(len))
    }

    /// Appends a message behind gRPC's prefix. How many bytes of it have gone past, where an empty one was appended for it.
    ///
    /// # Errors
    /// The status for a message that has no encoding or a longer one than may be, as tonic says it. Nothing is appended then.
    pub(crate) fn append(&mut self, message: M, to: &mut BytesMut) -> Result<Option<usize>, Status> {
        let (begin, len_max) = (to.len(), self.len_max.unwrap_or(usize::MAX));
        let mut refused = None;
        let past = self.write(message, |ready| {
            let len = ready.encoded_len();
            if len > len_max.min(u32::MAX as usize) {
                refused = Some(len);
                return;
            }
            // Written by its length, without asking for room at each step.
            to.resize(begin + PREFIX_LEN + len, 0);
            let (prefix, mut place) = to[begin..].split_at_mut(PREFIX_LEN);
            prefix[1..].copy_from_slice(&(len as u32).to_be_bytes());
            ready.write(&mut place);
        });
        let past = past.inspect_err(|_| to.truncate(begin))?;
        if let Some(len) = refused {
            return Err(unsendable(len, len_max));
        }
        if past.is_some() {
            to.resize(begin + PREFIX_LEN, 0);
        }
        Ok(past)
    }

    /// The bytes of a message that goes past tonic as an object.
    fn object_past(&self, message: &mut M) -> Option<Encoded> {
        self.out_of_band.as_ref().filter(|out_of_band| F::OBJECTS && out_of_band.takes_objects())?;
        let len_max = OBJECT_LEN_MAX.min(self.len_max.unwrap_or(usize::MAX));
        F::object(message).filter(|object| object.len() <= len_max)
    }
}

/// Decodes messages out of tonic's buffer, or those that came past it.
#[derive(Debug)]
pub struct FormDecoder<F, M> {
    out_of_band: Option<OutOfBand>,
    count: u64,
    messages: PhantomData<fn(F) -> M>,
}

impl<F, M> Default for FormDecoder<F, M> {
    /// For messages all of which pass through tonic.
    fn default() -> FormDecoder<F, M> {
        FormDecoder { out_of_band: None, count: 0, messages: PhantomData }
    }
}

impl<F: Form<M>, M: Send + Sync + 'static> Decoder for FormDecoder<F, M> {
    type Item = M;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<M>, Status> {
        match self.take_past() {
            Some(past) => past.map(Some),
            None => F::read(from).map(Some),
        }
    }
}

impl<F: Form<M>, M: Send + Sync + 'static> Decode<M> for FormDecoder<F, M> {
    fn take(&mut self, len: usize, from: &mut Bytes) -> Result<M, Status> {
        // A field of bytes that shares this memory is not copied twice, as one out of a slice would be.
        let message = from.split_to(len);
        self.take_past().unwrap_or_else(|| F::read(message))
    }
}

impl<F: Form<M>, M: Send + Sync + 'static> FormDecoder<F, M> {
    /// The next message, where it came past the body.
    #[inline]
    fn take_past(&mut self) -> Option<Result<M, Status>> {
        let number = self.count;
        self.count += 1;
        let out_of_band = self.out_of_band.as_ref()?;
        Some(match out_of_band.take_back(number)? {
            Past::SegmentedMessage(segmented) => F::read_segmented(segmented),
            Past::Object(object) => {
                let len_max = out_of_band.back_limit().unwrap_or(RECEIVED_LEN_MAX);
                F::keep_object(object, len_max, out_of_band.trust())
            }
        })
    }
}

/// tonic's words for a message that is too long.
#[cold]
fn unsendable(len: usize, len_max: usize) -> Status {
    if len > len_max {
        let words = format!(
            "Error, encoded message length too large: found {len} bytes, the limit is: {len_max} bytes"
        );
        return Status::out_of_range(words);
    }
    Status::resource_exhausted(format!("Cannot return body with more than 4GB of data but got {len} bytes"))
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use tonic::codec::EncodeBody;

    use super::*;

    fn body(
        out_of_band: &OutOfBand,
        count: usize,
    ) -> impl http_body::Body<Data = bytes::Bytes, Error = Status> + Unpin {
        let call = OneCall { out_of_band: Some(out_of_band.clone()), ..OneCall::default() };
        let mut codec: FormCodec<Prost, String, String> = Prost.codec(call);
        let messages = (0..count).map(|nth| Ok("x".repeat(if nth % 2 == 0 { 1000 } else { 10 })));
        Box::pin(EncodeBody::new_client(codec.encoder(), tokio_stream::iter(messages), None, None))
    }

    fn next(body: &mut (impl http_body::Body<Data = bytes::Bytes, Error = Status> + Unpin)) -> Option<usize> {
        match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(frame)) => Some(frame.unwrap().into_data().unwrap().len()),
            Poll::Ready(None) => None,
            Poll::Pending => panic!("all is there"),
        }
    }

    #[test]
    fn large_messages_are_read_one_by_one_and_leave_an_empty_one_in_their_place() {
        let out_of_band = OutOfBand::default();
        out_of_band.take_from(1000);
        let mut body = body(&out_of_band, 4);
        assert_eq!(next(&mut body), Some(5));
        assert!(out_of_band.take_out(2).is_none() && out_of_band.out_len() == 1003, "and no other was read");
        assert_eq!(
            [next(&mut body), next(&mut body), next(&mut body), next(&mut body)],
            [Some(5 + 12), Some(5), Some(5 + 12), None]
        );
        assert!(out_of_band.take_out(2).is_some());
    }

    #[test]
    fn nothing_goes_past_where_nobody_takes_it() {
        let out_of_band = OutOfBand::default();
        let mut body = body(&out_of_band, 3);
        assert_eq!([next(&mut body), next(&mut body)], [Some(3 * 5 + 2 * 1003 + 12), None]);
        assert_eq!(out_of_band.out_len(), 0);
    }
}
