//! Compressed messages, inflated and deflated for handlers that take objects, in place of their process.

use std::io::Read;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body as _, Frame};
use tollfree::gateway::{Deframer, Lengths, about_content};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::conversion::counts::{Conversion, Conversions};
use crate::conversion::encoding::{ACCEPT_ENCODING, Deflater, ENCODING, Encoding, Encodings, PLAIN};
use crate::conversion::{PREFIX_LEN, content};

/// Bytes that are made before it is asked whether there is room for more.
const PIECE_LEN: usize = 16 * 1024;
/// Bytes that are inflated before other calls have a turn.
const INFLATED_AT_ONCE: usize = 256 * 1024;
/// Bytes that are deflated before other calls have a turn.
const DEFLATED_AT_ONCE: usize = 64 * 1024;

/// Whether there is room for messages that are inflated, and for messages to be deflated.
pub(crate) trait Room: Send + Sync {
    /// A message of the request has `len` bytes by now. 0: it has gone on. Asked before those bytes are kept.
    ///
    /// # Errors
    /// What the call ends with: there is no room for so many.
    fn inflated(&self, len: usize) -> Result<(), Status>;

    /// A message of the answer will have `len` bytes before it is deflated. 0: it has gone on.
    ///
    /// # Errors
    /// As [`Room::inflated`].
    fn to_deflate(&self, len: usize) -> Result<(), Status>;
}

/// What is to be done to the messages of one call.
#[derive(Clone)]
pub(super) struct Repacking {
    request: Option<Encoding>,
    answer: Option<Encoding>,
    room: Arc<dyn Room>,
    conversions: Conversions,
}

impl Repacking {
    /// For a call with these headers. `None`: how its messages are compressed is left to the handler's side.
    pub(super) fn of(
        headers: &HeaderMap,
        encodings: Encodings,
        room: &Arc<dyn Room>,
        conversions: &Conversions,
    ) -> Option<Repacking> {
        let request = match headers.get(ENCODING).map(|name| name.to_str().unwrap_or_default()) {
            None | Some("identity") => None,
            // What the server does not take, its own side refuses.
            Some(name) => {
                Some(Encoding::of(name).filter(|encoding| encodings.accepts & *encoding as u8 != 0)?)
            }
        };
        let accepted = headers.get(ACCEPT_ENCODING).and_then(|names| names.to_str().ok()).unwrap_or_default();
        let mut accepted = accepted.split(',').filter_map(|name| Encoding::of(name.trim()));
        let answer = accepted.find(|encoding| encodings.sends & *encoding as u8 != 0);
        Some(Repacking { request, answer, room: room.clone(), conversions: conversions.clone() })
    }

    /// The same for a call whose answers are not deflated.
    pub(super) fn of_request(self) -> Repacking {
        Repacking { answer: None, ..self }
    }

    /// A request for the handler's side, which is to know nothing of compression.
    pub(super) fn request(&self, headers: &mut HeaderMap, body: Body) -> Body {
        headers.remove(ENCODING);
        headers.remove(ACCEPT_ENCODING);
        match self.request {
            Some(encoding) => Body::new(Repacked::new(body, encoding, true, self)),
            None => body,
        }
    }

    /// The answer for the client.
    pub(super) fn answer(&self, answer: http::Response<Body>) -> http::Response<Body> {
        let (mut parts, body) = answer.into_parts();
        let is_plain = parts.headers.contains_key(PLAIN) || parts.headers.contains_key("grpc-status");
        // An answer that is compressed already was not made by a handler that takes objects.
        let is_done = is_plain || parts.headers.contains_key(ENCODING);
        let Some(encoding) = self.answer.filter(|_| !is_done) else {
            return http::Response::from_parts(parts, body);
        };
        parts.headers.insert(ENCODING, encoding.name());
        let body = Body::new(Repacked::new(body, encoding, false, self));
        http::Response::from_parts(parts, body)
    }
}

/// A message on its way to its new form, which has room for its prefix before it.
enum Work {
    Inflating(Box<dyn Read + Send>, BytesMut),
    /// And what is not deflated yet.
    Deflating(Box<Deflater>, Bytes),
}

/// A body whose messages are inflated, or deflated, one by one. Those that are so already go on as they are.
struct Repacked {
    body: Body,
    deframer: Deframer,
    lengths: Lengths,
    encoding: Encoding,
    inflates: bool,
    work: Option<Work>,
    room: Arc<dyn Room>,
    conversions: Conversions,
}

impl Repacked {
    fn new(body: Body, encoding: Encoding, inflates: bool, repacking: &Repacking) -> Repacked {
        let Repacking { room, conversions, .. } = repacking.clone();
        let (deframer, lengths) = (Deframer::default(), Lengths::default());
        Repacked { body, deframer, lengths, encoding, inflates, work: None, room, conversions }
    }

    /// Begins with a message. `Some`: it goes on as it is.
    fn begin(&mut self, bytes: Bytes, is_compressed: bool) -> Option<Bytes> {
        let mut framed = BytesMut::with_capacity(PREFIX_LEN + bytes.len());
        framed.put_u8(is_compressed.into());
        framed.put_u32(bytes.len() as u32);
        self.work = match (self.inflates, is_compressed) {
            (true, true) => Some(Work::Inflating(self.encoding.inflater(bytes), framed)),
            (false, false) => Some(Work::Deflating(Box::new(self.encoding.deflater(framed)), bytes)),
            _ => {
                framed.put_slice(&bytes);
                return Some(framed.freeze());
            }
        };
        None
    }

    /// Goes on with the message at hand for a while. `Some`: this is all of it.
    fn go_on(&mut self) -> Result<Option<Bytes>, Status> {
        let (mut framed, is_compressed) = match &mut self.work {
            None => return Ok(None),
            Some(Work::Inflating(from, framed)) => {
                let mut piece = [0; PIECE_LEN];
                let mut made = 0;
                loop {
                    if made >= INFLATED_AT_ONCE {
                        return Ok(None);
                    }
                    let len = from.read(&mut piece).map_err(|error| {
                        self.conversions.add(Conversion::Garbled);
                        content(Code::Internal, format!("a compressed message can't be inflated: {error}"))
                    })?;
                    if len == 0 {
                        break (std::mem::take(framed), false);
                    }
                    self.room.inflated(framed.len() - PREFIX_LEN + len).map_err(about_content)?;
                    framed.put_slice(&piece[..len]);
                    made += len;
                }
            }
            Some(Work::Deflating(to, rest)) => {
                let refused = |error: std::io::Error| {
                    content(Code::Internal, format!("an answer can't be deflated: {error}"))
                };
                // Its room is known since it began.
                to.write_all(&rest.split_to(rest.len().min(DEFLATED_AT_ONCE))).map_err(refused)?;
                if !rest.is_empty() {
                    return Ok(None);
                }
                (to.finish().map_err(refused)?, true)
            }
        };
        self.work = None;
        let len = u32::try_from(framed.len() - PREFIX_LEN).map_err(|_| {
            content(Code::ResourceExhausted, "a message has more than 4 GB in its other form")
        })?;
        let mut prefix = &mut framed[..PREFIX_LEN];
        prefix.put_u8(is_compressed.into());
        prefix.put_u32(len);
        Ok(Some(framed.freeze()))
    }

    /// Looks whether there is room for the messages that begin in a part of the body.
    fn ask_for_room(&mut self, data: &[u8]) -> Result<(), Status> {
        if self.inflates {
            // What is not inflated yet is the sender's to bound.
            return Ok(());
        }
        let mut longest = 0;
        self.lengths.pass(data, |_, len| longest = longest.max(len));
        if longest == 0 { Ok(()) } else { self.room.to_deflate(longest).map_err(about_content) }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, Status>> {
        loop {
            if self.work.is_some() {
                if let Some(message) = self.go_on()? {
                    return Poll::Ready(Ok(Some(Frame::data(message))));
                }
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if let Some((message, is_compressed)) = self.deframer.next_message() {
                if let Some(same) = self.begin(message, is_compressed) {
                    return Poll::Ready(Ok(Some(Frame::data(same))));
                }
                continue;
            }
            if !self.deframer.is_partial() {
                // What was given before has gone on.
                let emptied = if self.inflates { self.room.inflated(0) } else { self.room.to_deflate(0) };
                emptied.map_err(about_content)?;
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)).transpose()? {
                Some(frame) => match frame.into_data() {
                    Ok(data) => {
                        self.ask_for_room(&data)?;
                        self.deframer.push(data);
                    }
                    Err(trailers) => return Poll::Ready(Ok(Some(trailers))),
                },
                None if self.deframer.is_partial() => {
                    return Poll::Ready(Err(content(
                        Code::Internal,
                        "the body ends in the middle of a message",
                    )));
                }
                None => return Poll::Ready(Ok(None)),
            }
        }
    }
}

impl http_body::Body for Repacked {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.poll_next(cx).map(Result::transpose)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use http_body_util::{BodyExt, Full};

    use super::*;

    /// Room for so many bytes.
    struct Up(usize);

    impl Room for Up {
        fn inflated(&self, len: usize) -> Result<(), Status> {
            self.to_deflate(len)
        }

        fn to_deflate(&self, len: usize) -> Result<(), Status> {
            if len > self.0 { Err(Status::resource_exhausted("no room")) } else { Ok(()) }
        }
    }

    fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
        let mut bytes = vec![flag];
        bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
        bytes.extend_from_slice(message);
        bytes
    }

    async fn repacked(
        bytes: Vec<u8>,
        encoding: Encoding,
        inflates: bool,
        room: usize,
    ) -> Result<Bytes, Status> {
        let room: Arc<dyn Room> = Arc::new(Up(room));
        let body = Body::new(Full::new(Bytes::from(bytes)));
        let repacking = Repacking { request: None, answer: None, room, conversions: Conversions::default() };
        Ok(Repacked::new(body, encoding, inflates, &repacking).collect().await?.to_bytes())
    }

    #[tokio::test]
    async fn messages_of_a_body_come_back_whether_they_were_compressed_or_not() {
        for encoding in [Encoding::Gzip, Encoding::Deflate] {
            let messages: [&[u8]; 3] = [&[7; 100_000], b"", b"short"];
            let plain: Vec<u8> = messages.iter().flat_map(|message| framed(0, message)).collect();
            let deflated = repacked(plain.clone(), encoding, false, 100_000).await.unwrap();
            assert!(deflated.len() < 1000 && deflated[0] == 1, "{} bytes", deflated.len());
            let mixed = [&deflated[..], &plain].concat();
            let inflated = repacked(mixed, encoding, true, 100_000).await.unwrap();
            assert!(inflated == [&plain[..], &plain].concat());
        }
    }

    #[tokio::test]
    async fn a_bomb_and_what_is_no_stream_end_the_call() {
        let bomb = repacked(framed(0, &vec![0; 8 << 20]), Encoding::Gzip, false, 8 << 20).await.unwrap();
        assert!(bomb.len() < 10_000);
        let refused = repacked(bomb.to_vec(), Encoding::Gzip, true, 1 << 20).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        for lie in [&b"no stream"[..], &bomb[5..bomb.len() - 4], b""] {
            let refused = repacked(framed(1, lie), Encoding::Gzip, true, 16 << 20).await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::Internal, "{refused}");
        }
        let refused = repacked(framed(0, &[7; 11]), Encoding::Gzip, false, 10).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "before it is deflated");
        assert!(repacked(framed(0, &[7; 11])[..9].to_vec(), Encoding::Gzip, true, 10).await.is_err());
    }

    #[test]
    fn a_call_is_left_alone_that_a_server_would_refuse() {
        let room: Arc<dyn Room> = Arc::new(Up(0));
        let encodings = Encodings { accepts: Encoding::Gzip as u8, sends: Encoding::Deflate as u8 };
        let of = |name: HeaderName, value: &'static str| {
            let headers = HeaderMap::from_iter([(name, HeaderValue::from_static(value))]);
            Repacking::of(&headers, encodings, &room, &Conversions::default())
                .map(|repacking| (repacking.request, repacking.answer))
        };
        assert_eq!(of(ENCODING, "gzip"), Some((Some(Encoding::Gzip), None)));
        assert_eq!(of(ENCODING, "identity"), Some((None, None)));
        assert_eq!([of(ENCODING, "deflate"), of(ENCODING, "zstd")], [None, None]);
        assert_eq!(of(ACCEPT_ENCODING, "gzip"), Some((None, None)));
        assert_eq!(of(ACCEPT_ENCODING, "zstd, gzip,deflate"), Some((None, Some(Encoding::Deflate))));
    }

    #[test]
    fn a_long_message_gives_others_a_turn() {
        let changed = |inflates, bytes: Vec<u8>| {
            let (room, conversions): (Arc<dyn Room>, _) = (Arc::new(Up(usize::MAX)), Conversions::default());
            let repacking = Repacking { request: None, answer: None, room, conversions };
            let body = Body::new(Full::new(Bytes::from(bytes)));
            let mut repacked = Repacked::new(body, Encoding::Gzip, inflates, &repacking);
            let mut turns = 0;
            loop {
                let mut cx = Context::from_waker(std::task::Waker::noop());
                match http_body::Body::poll_frame(Pin::new(&mut repacked), &mut cx) {
                    Poll::Pending => turns += 1,
                    Poll::Ready(frame) => break (turns, frame.unwrap().unwrap().into_data().unwrap()),
                }
            }
        };
        let len = 8 * INFLATED_AT_ONCE;
        let (turns, deflated) = changed(false, framed(0, &vec![7; len]));
        assert_eq!(turns, len.div_ceil(DEFLATED_AT_ONCE) - 1);
        let (turns, inflated) = changed(true, deflated.to_vec());
        assert!((7..=9).contains(&turns), "{turns} turns");
        assert!(inflated[..] == framed(0, &vec![7; len]));
        assert_eq!(changed(false, framed(0, b"short")).0, 0, "a short one needs none");
    }
}
