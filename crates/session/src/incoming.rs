//! What a reader of a call is given.
//!
//! `R` is what stands for a segmented message: the session's [`SegmentedIdx`], or what the transport makes of it.

use bytes::{Bytes, BytesMut};
use tollfree_layout::SegmentedIdx;

use crate::OBJECT_PREFIX;
use crate::single_frame::SingleFrame;

/// Part of a received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk<R = SegmentedIdx> {
    /// The bytes, mostly right behind those of the chunk before ([`join`](crate::join)). On the first chunk of a message the [`GRPC_PREFIX_LEN`](crate::GRPC_PREFIX_LEN) bytes of gRPC's
    /// prefix stand before them.
    pub bytes: BytesMut,
    /// Begins a message.
    pub first: bool,
    /// Ends it.
    pub last: bool,
    /// More than 0: it is so many whole messages, each with its prefix before it. If one is a flat message, all are.
    pub batch_count: u32,
    /// On the first chunk of a segmented message ([`tollfree_layout::segmented`]): which one. To be
    /// [taken](crate::Session::take_segmented) once.
    pub segmented: Option<R>,
}

impl<R> Chunk<R> {
    /// A message by itself, with gRPC's prefix before it.
    pub fn whole(bytes: Bytes) -> Chunk<R> {
        Chunk { bytes: bytes.into(), first: true, last: true, batch_count: 0, segmented: None }
    }

    /// Whether it is a message by itself, and no segmented message.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.first && self.last && self.batch_count == 0 && self.segmented.is_none()
    }

    /// The same with something else for a segmented message.
    pub(crate) fn with_segmented<S>(self, make: impl FnOnce(R) -> S) -> Chunk<S> {
        let Chunk { bytes, first, last, batch_count, segmented } = self;
        Chunk { bytes, first, last, batch_count, segmented: segmented.map(make) }
    }

    /// Whether it is a message by itself, as protobuf's bytes, and not compressed.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.is_whole() && self.bytes.first() == Some(&0)
    }
}

/// How a call ended, as far as this side knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The client sends no more (server side). Until the call is answered, `Cancelled` or `SessionClosed` may follow.
    HalfClosed,
    /// The server's last word (client side).
    Trailers {
        /// The gRPC status as sent; values above 16 mean UNKNOWN.
        code: u16,
        /// Packed metadata, `grpc-message` among them.
        block: Bytes,
    },
    /// Cancelled by the peer, or by the session's end on its behalf.
    Cancelled {
        /// The gRPC status that says why.
        code: u16,
        /// Nothing of the call was looked at: it may safely be sent again.
        refused: bool,
    },
    /// The session is over; [`Session::closed`](crate::Session::closed) says why.
    SessionClosed,
}

/// What has come on a call since its reader looked last.
#[derive(Debug)]
pub enum Incoming<R = SegmentedIdx> {
    /// All that the client says (server side). The call goes on.
    Request(SingleFrame),
    /// All that the server says, with status OK (client side). The call is over, and the session has forgotten it.
    Answer(SingleFrame),
    /// What has come otherwise. In a place of its own, since an incoming goes from hand to hand.
    Part(Box<Part<R>>),
}

impl<R> Incoming<R> {
    /// The same for a reader who takes everything part by part, and at once: a part is large, so that what is kept for later is
    /// the incoming.
    #[inline]
    pub fn into_part(self) -> Part<R> {
        let (headers, end, forgotten, whole) = match self {
            Incoming::Part(part) => return *part,
            Incoming::Request(whole) => (None, End::HalfClosed, false, whole),
            Incoming::Answer(whole) => {
                let headers = Bytes::copy_from_slice(whole.headers());
                let block = Bytes::copy_from_slice(whole.trailers());
                (Some(headers), End::Trailers { code: 0, block }, true, whole)
            }
        };
        let chunk = Some(Chunk::whole(whole.into_prefixed()));
        Part { headers, chunk, end: Some(end), forgotten }
    }

    /// The message of a request of which all has come, with gRPC's prefix before it: its client will say nothing more.
    ///
    /// # Errors
    /// Any other incoming, as it was.
    #[inline]
    pub fn into_request(self) -> Result<Bytes, Incoming<R>> {
        match self {
            Incoming::Request(whole) => Ok(whole.into_prefixed()),
            Incoming::Answer(_) => Err(self),
            Incoming::Part(mut part) => match part.take_request() {
                Some(message) => Ok(message),
                None => Err(Incoming::Part(part)),
            },
        }
    }

    /// Whether a flat message is in it, or begins there.
    #[inline]
    pub fn has_object(&self) -> bool {
        match self {
            Incoming::Request(whole) | Incoming::Answer(whole) => whole.is_object(),
            Incoming::Part(part) => part.has_object(),
        }
    }

    /// Whether the session has forgotten the call: nothing follows.
    #[inline]
    pub fn is_last(&self) -> bool {
        match self {
            Incoming::Request(_) => false,
            Incoming::Answer(_) => true,
            Incoming::Part(part) => part.forgotten,
        }
    }
}

/// Part of what a peer says on a call, in the order of the fields: as much of it as comes without a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<R = SegmentedIdx> {
    /// Response headers (client side), packed.
    pub headers: Option<Bytes>,
    /// Part of a message.
    pub chunk: Option<Chunk<R>>,
    /// The end, where nothing else is left to read before it. Given again to a reader who asks again.
    pub end: Option<End>,
    /// The session does not know the call any more.
    pub forgotten: bool,
}

impl<R> Default for Part<R> {
    fn default() -> Part<R> {
        Part { headers: None, chunk: None, end: None, forgotten: false }
    }
}

/// One thing of a [`Part`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IncomingPiece<R = SegmentedIdx> {
    /// Response headers (client side), packed.
    Headers(Bytes),
    /// Part of a message. The last message stays incomplete where a status other than OK follows.
    Chunk(Chunk<R>),
    /// Nothing follows.
    End(End),
}

impl<R> Part<R> {
    /// Nothing is left of it.
    pub fn is_empty(&self) -> bool {
        self.headers.is_none() && self.chunk.is_none() && self.end.is_none()
    }

    /// Whether a flat message is in it, or begins there. Of a batch, all are.
    fn has_object(&self) -> bool {
        let begins = |chunk: &Chunk<R>| chunk.first && chunk.bytes.first() == Some(&OBJECT_PREFIX);
        self.chunk.as_ref().is_some_and(begins)
    }

    /// Takes the message of a request of which all has come, with gRPC's prefix before it: its client will say nothing
    /// more. `None`, and nothing taken, of any other.
    fn take_request(&mut self) -> Option<Bytes> {
        let is_whole = self.chunk.as_ref().is_some_and(Chunk::is_whole);
        if !is_whole || self.end != Some(End::HalfClosed) {
            return None;
        }
        self.end = None;
        self.chunk.take().map(|chunk| chunk.bytes.freeze())
    }

    /// Takes an answer of which all has come, with status OK: headers, message and trailers. `None`, and nothing taken, of any
    /// other.
    pub fn take_answer(&mut self) -> Option<(Bytes, Chunk<R>, Bytes)> {
        let is_all =
            self.chunk.as_ref().is_some_and(|chunk| chunk.first && chunk.last && chunk.batch_count == 0);
        let (Some(headers), true, Some(End::Trailers { code: 0, block })) =
            (&mut self.headers, is_all, &mut self.end)
        else {
            return None;
        };
        let (headers, trailers) = (std::mem::take(headers), std::mem::take(block));
        (self.headers, self.end) = (None, None);
        Some((headers, self.chunk.take()?, trailers))
    }

    /// Takes out what came first of what is left.
    pub fn take_next(&mut self) -> Option<IncomingPiece<R>> {
        if let Some(headers) = self.headers.take() {
            return Some(IncomingPiece::Headers(headers));
        }
        if let Some(chunk) = self.chunk.take() {
            return Some(IncomingPiece::Chunk(chunk));
        }
        self.end.take().map(IncomingPiece::End)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A whole message of one byte behind gRPC's prefix, whose first byte is this.
    fn chunk(flag: u8) -> Chunk {
        Chunk::whole(Bytes::copy_from_slice(&[flag, 0, 0, 0, 1, b'm']))
    }

    /// Chunks that are no message by themselves.
    fn parts() -> [Chunk; 4] {
        [
            Chunk { last: false, ..chunk(0) },
            Chunk { first: false, ..chunk(0) },
            Chunk { batch_count: 1, ..chunk(0) },
            Chunk { segmented: Some(SegmentedIdx(0)), ..chunk(0) },
        ]
    }

    fn single(flag: u8) -> SingleFrame {
        SingleFrame::request(b"headers", chunk(flag).bytes.freeze()).unwrap()
    }

    fn part(chunk: Option<Chunk>, end: Option<End>) -> Incoming {
        Incoming::Part(Box::new(Part { chunk, end, ..Part::default() }))
    }

    fn ok() -> End {
        End::Trailers { code: 0, block: Bytes::from_static(b"trailers") }
    }

    #[test]
    fn a_chunk_is_a_message_by_itself_or_part_of_something() {
        for flag in [0, 1, OBJECT_PREFIX] {
            assert!(chunk(flag).is_whole());
            assert_eq!(chunk(flag).is_plain(), flag == 0);
        }
        assert!(parts().iter().all(|part| !part.is_whole() && !part.is_plain()));
        assert!(!Chunk::<SegmentedIdx>::whole(Bytes::new()).is_plain());
    }

    #[test]
    fn what_has_come_is_a_request_only_if_all_of_it_has() {
        let message = || chunk(0).bytes.freeze();
        assert_eq!(Incoming::<()>::Request(single(0)).into_request().unwrap(), message());
        assert_eq!(part(Some(chunk(0)), Some(End::HalfClosed)).into_request().unwrap(), message());
        let others = parts().map(|chunk| part(Some(chunk), Some(End::HalfClosed)));
        let others = others.into_iter().chain([
            Incoming::Answer(single(0)),
            part(Some(chunk(0)), None),
            part(Some(chunk(0)), Some(ok())),
            part(None, Some(End::HalfClosed)),
        ]);
        for other in others {
            let before = format!("{other:?}");
            let kept = other.into_request().map(drop).unwrap_err();
            assert_eq!(format!("{kept:?}"), before, "nothing was taken");
        }
    }

    #[test]
    fn objects_are_known_wherever_they_begin() {
        for (flag, has_object) in [(0, false), (1, false), (OBJECT_PREFIX, true)] {
            let begun = Chunk { last: false, ..chunk(flag) };
            for incoming in [
                Incoming::Request(single(flag)),
                Incoming::Answer(single(flag)),
                part(Some(chunk(flag)), None),
                part(Some(begun), None),
            ] {
                assert_eq!(incoming.has_object(), has_object, "{incoming:?}");
            }
        }
        let goes_on = Chunk { first: false, ..chunk(OBJECT_PREFIX) };
        assert!(!part(Some(goes_on), None).has_object() && !part(None, Some(ok())).has_object());
    }

    #[test]
    fn the_last_of_a_call_is_an_answer_or_what_says_so() {
        assert!(Incoming::<()>::Answer(single(0)).is_last() && !Incoming::<()>::Request(single(0)).is_last());
        for forgotten in [false, true] {
            let part = Part { forgotten, ..Part::<()>::default() };
            assert_eq!(Incoming::Part(Box::new(part)).is_last(), forgotten);
        }
    }

    #[test]
    fn a_request_and_an_answer_in_one_frame_are_parts_too() {
        let request = Incoming::<SegmentedIdx>::Request(single(0)).into_part();
        let (headers, end) = (None, Some(End::HalfClosed));
        assert_eq!(request, Part { headers, chunk: Some(chunk(0)), end, forgotten: false });
        let answer = Incoming::<SegmentedIdx>::Answer(single(0)).into_part();
        let (headers, end) =
            (Some(Bytes::from_static(b"headers")), Some(End::Trailers { code: 0, block: Bytes::new() }));
        assert_eq!(answer, Part { headers, chunk: Some(chunk(0)), end, forgotten: true });
    }

    #[test]
    fn a_part_gives_an_answer_whole_and_anything_piece_by_piece() {
        let headers = Bytes::from_static(b"headers");
        let answer = || Part {
            headers: Some(headers.clone()),
            chunk: Some(chunk(0)),
            end: Some(ok()),
            forgotten: true,
        };
        let mut taken = answer();
        let trailers = Bytes::from_static(b"trailers");
        assert_eq!(taken.take_answer(), Some((headers.clone(), chunk(0), trailers)));
        assert!(taken.is_empty() && taken.take_answer().is_none() && taken.take_next().is_none());
        let [begun, ends, batch, segmented] = parts();
        let segmented = Part { chunk: Some(segmented), ..answer() };
        assert!(segmented.clone().take_answer().is_some(), "a segmented message is one too");
        let failed = End::Trailers { code: 13, block: Bytes::new() };
        for mut other in [
            Part { headers: None, ..answer() },
            Part { chunk: None, ..answer() },
            Part { end: None, ..answer() },
            Part { end: Some(failed), ..answer() },
            Part { chunk: Some(begun), ..answer() },
            Part { chunk: Some(ends), ..answer() },
            Part { chunk: Some(batch), ..answer() },
        ] {
            let before = other.clone();
            assert_eq!((other.take_answer(), &other), (None, &before));
            assert!(!other.is_empty());
        }
        let mut pieces = answer();
        let mut left = Vec::new();
        while let Some(piece) = pieces.take_next() {
            left.push((piece, pieces.is_empty()));
        }
        let [headers, chunk, end] =
            [IncomingPiece::Headers(headers), IncomingPiece::Chunk(chunk(0)), IncomingPiece::End(ok())];
        assert_eq!(left, [(headers, false), (chunk, false), (end, true)]);
    }
}
