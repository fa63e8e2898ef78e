//! The body of a request that came over HTTP/2, whose end is the client's own.
//!
//! hyper gives a request that its client has reset with NO_ERROR the same end as one that is complete. Only the state of the HTTP/2
//! stream tells them apart.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;
use tonic::{Code, Status};

use crate::status;

/// The body of a request that came over HTTP/2. A request that its client has not finished ends with an error: DEADLINE_EXCEEDED
/// at its deadline, UNAVAILABLE where the connection is lost, and otherwise what gRPC says of the code of the reset: CANCELLED of CANCEL.
#[derive(Debug)]
pub struct Http2RequestBody<B> {
    inner: B,
    deadline: Option<Instant>,
    /// Rings at the deadline; made when a reader first waits. A server whose clock is ahead of the client's answers first, and the client may
    /// then leave its request open.
    alarm: Option<Pin<Box<Sleep>>>,
    ended: bool,
}

impl<B> Http2RequestBody<B> {
    /// `inner` is what hyper received, or a body around it that passes its [`is_end_stream`](Body::is_end_stream) on.
    pub fn new(inner: B, deadline: Option<Instant>) -> Http2RequestBody<B> {
        Http2RequestBody { inner, deadline, alarm: None, ended: false }
    }

    /// Ready when the deadline has passed.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.deadline else { return Poll::Pending };
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline.into())));
        alarm.as_mut().poll(cx)
    }

    fn cut(&self, status: Status) -> Status {
        let is_late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if is_late { status::deadline() } else { status }
    }
}

impl<B> Body for Http2RequestBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) else {
            ready!(this.poll_deadline(cx));
            this.ended = true;
            return Poll::Ready(Some(Err(status::deadline())));
        };
        this.ended = !matches!(&frame, Some(Ok(frame)) if frame.is_data());
        Poll::Ready(match frame {
            Some(Ok(frame)) if frame.is_data() => Some(Ok(frame)),
            // gRPC knows no trailers of a request. tonic would take them for an end even in the middle of a message.
            Some(Ok(_)) => None,
            None if this.inner.is_end_stream() => None,
            // Reset with NO_ERROR.
            None => Some(Err(this.cut(status::unfinished(Code::Internal)))),
            Some(Err(error)) => Some(Err(this.cut(status::broken_request(error.into())))),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use super::*;

    /// A body that says nothing more, and whether its stream has ended in an orderly way.
    struct Ends(bool, Option<Frame<Bytes>>);

    impl Body for Ends {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(self.1.take().map(Ok))
        }

        fn is_end_stream(&self) -> bool {
            self.0 && self.1.is_none()
        }
    }

    fn end_of(inner: Ends, deadline: Option<Instant>) -> Option<Code> {
        let mut body = Http2RequestBody::new(inner, deadline);
        let mut poll = || Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(end) = poll() else { panic!("it waits for nothing") };
        assert!(matches!(poll(), Poll::Ready(None)), "an error comes once");
        end.map(|end| end.unwrap_err().code())
    }

    #[test]
    fn an_end_that_is_not_the_clients_is_an_error() {
        let (past, future) = (Some(Instant::now()), Some(Instant::now() + Duration::from_secs(3600)));
        assert_eq!(end_of(Ends(true, None), past), None);
        assert_eq!(end_of(Ends(false, None), None), Some(Code::Internal));
        assert_eq!(end_of(Ends(false, None), future), Some(Code::Internal));
        assert_eq!(end_of(Ends(false, None), past), Some(Code::DeadlineExceeded));
        let trailers = || Some(Frame::trailers(http::HeaderMap::new()));
        assert_eq!(end_of(Ends(true, trailers()), None), None, "trailers are an end");
    }
}
