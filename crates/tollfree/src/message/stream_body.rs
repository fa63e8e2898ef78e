//! A stream of messages as the HTTP body that goes out: gRPC's framing, with all that is at hand in one piece.
//!
//! Says what tonic's own encoder of bodies says, and in the same words. A message is written where it is to lie, by its length, which is known
//! beforehand.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http::HeaderMap;
use http_body::Frame;
use tonic::Status;
use tonic::body::Body;

use crate::message::codec::FormEncoder;
use crate::message::form::Form;
use crate::message::payloads::BATCHED_LEN_MAX;

/// As tonic's encoder: the first piece of memory, and from which length on it is handed out.
const BUFFER_LEN: usize = 8 * 1024;
const PIECE_LEN: usize = 32 * 1024;

/// Whose messages they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// A client: an error ends the call.
    Client,
    /// A server: the status is in the trailers.
    Server,
}

pin_project_lite::pin_project! {
    /// See the module.
    struct StreamBody<F, M, S> {
        #[pin]
        source: S,
        encoder: FormEncoder<F, M>,
        buffer: BytesMut,
        speaker: Speaker,
        // The source has ended, and so: not asked again.
        end: Option<Result<(), Status>>,
        is_over: bool,
    }
}

/// The body of a stream of messages.
pub(crate) fn stream_body<F, M, S>(source: S, encoder: FormEncoder<F, M>, speaker: Speaker) -> Body
where
    F: Form<M>,
    M: Send + Sync + 'static,
    S: Stream<Item = Result<M, Status>> + Send + 'static,
{
    let buffer = BytesMut::with_capacity(BUFFER_LEN);
    Body::new(StreamBody { source, encoder, buffer, speaker, end: None, is_over: false })
}

impl<F, M, S> http_body::Body for StreamBody<F, M, S>
where
    F: Form<M>,
    M: Send + Sync + 'static,
    S: Stream<Item = Result<M, Status>>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut this = self.project();
        if *this.is_over {
            return Poll::Ready(None);
        }
        // What goes past the body is bounded as what is in it.
        let mut past_len = 0;
        while this.end.is_none() {
            match this.source.as_mut().poll_next(cx) {
                Poll::Ready(Some(Ok(message))) => match this.encoder.append(message, this.buffer) {
                    Ok(past) => {
                        past_len += past.unwrap_or(0);
                        let is_alone = past.is_some_and(|len| len > BATCHED_LEN_MAX);
                        if is_alone || this.buffer.len() + past_len >= PIECE_LEN {
                            break;
                        }
                    }
                    Err(status) => *this.end = Some(Err(status)),
                },
                Poll::Ready(Some(Err(status))) => *this.end = Some(Err(status)),
                Poll::Ready(None) => *this.end = Some(Ok(())),
                Poll::Pending if this.buffer.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        if !this.buffer.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(this.buffer.split().freeze()))));
        }
        *this.is_over = true;
        let end = this.end.take().unwrap_or(Ok(()));
        Poll::Ready(match (end, *this.speaker) {
            (Ok(()), Speaker::Client) => None,
            (Err(status), Speaker::Client) => Some(Err(status)),
            (end, Speaker::Server) => Some(trailers(end).map(Frame::trailers)),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.is_over
    }
}

fn trailers(end: Result<(), Status>) -> Result<HeaderMap, Status> {
    let status = end.err().unwrap_or_else(|| Status::ok(""));
    let mut headers = HeaderMap::with_capacity(3 + status.metadata().len());
    status.add_header(&mut headers)?;
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Waker;

    use http_body::Body as _;
    use tonic::codec::Codec as _;

    use super::*;
    use crate::message::codec::{Coding as _, FormCodec, OneCall, Prost};
    use crate::metadata::status_code;

    fn encoder(len_max: Option<usize>) -> FormEncoder<Prost, String> {
        let call = OneCall { encoding_len_max: len_max, ..OneCall::default() };
        let mut codec: FormCodec<Prost, String, String> = Prost.codec(call);
        codec.encoder()
    }

    /// Lengths of the pieces that come now, and the status code of the trailers; an error of the body as its own code.
    fn all(body: &mut Body) -> (Vec<usize>, Option<u16>) {
        let mut lens = Vec::new();
        loop {
            match Pin::new(&mut *body).poll_frame(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => lens.push(data.len()),
                    Err(frame) => return (lens, status_code(&frame.into_trailers().unwrap())),
                },
                Poll::Ready(Some(Err(status))) => return (lens, Some(status.code() as u16)),
                Poll::Ready(None) | Poll::Pending => return (lens, None),
            }
        }
    }

    fn messages(lens: &[usize]) -> impl Stream<Item = Result<String, Status>> + Send + 'static {
        let messages: Vec<_> = lens.iter().map(|len| Ok("x".repeat(*len))).collect();
        tokio_stream::iter(messages)
    }

    #[test]
    fn all_that_is_at_hand_is_one_piece_of_bounded_length() {
        let mut body = stream_body(messages(&[10, 20, 30]), encoder(None), Speaker::Server);
        assert_eq!(all(&mut body), (vec![3 * 7 + 60], Some(0)));
        assert!(body.is_end_stream());
        let mut body = stream_body(messages(&[1000; 100]), encoder(None), Speaker::Client);
        let (lens, end) = all(&mut body);
        assert_eq!((lens.iter().sum::<usize>(), end), (100 * 1008, None));
        assert!(lens.iter().all(|len| *len < PIECE_LEN + 1008) && lens.len() == 4, "{lens:?}");
    }

    #[test]
    fn an_error_comes_behind_what_was_said_before() {
        for (speaker, code) in [(Speaker::Server, 9), (Speaker::Client, 9)] {
            let source = tokio_stream::iter([
                Ok("x".repeat(10)),
                Err(Status::failed_precondition("no")),
                Ok(String::new()),
            ]);
            let mut body = stream_body(source, encoder(None), speaker);
            assert_eq!(all(&mut body), (vec![17], Some(code)), "{speaker:?}");
            assert_eq!(all(&mut body), (vec![], None), "and nothing after it");
        }
        let mut body = stream_body(messages(&[10, 20, 2000, 30]), encoder(Some(1000)), Speaker::Server);
        assert_eq!(all(&mut body), (vec![17 + 27], Some(11)), "a message that is too long");
    }

    #[test]
    fn a_stream_that_has_ended_is_not_asked_again_and_one_that_waits_gives_what_it_has() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let source = futures_util::stream::poll_fn(move |_| match counted.fetch_add(1, Ordering::Relaxed) {
            0 => Poll::Ready(Some(Ok("x".to_owned()))),
            1 => Poll::Pending,
            2 => Poll::Ready(Some(Ok("y".to_owned()))),
            3 => Poll::Ready(None),
            _ => panic!("it has ended"),
        });
        let mut body = stream_body(source, encoder(None), Speaker::Server);
        let mut poll = || match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().ok().map(|data| data.len()),
            _ => None,
        };
        assert_eq!([poll(), poll(), poll(), poll()], [Some(8), Some(8), None, None]);
        assert_eq!(asked.load(Ordering::Relaxed), 4);
    }
}
