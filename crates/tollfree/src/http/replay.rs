//! A request body that can be sent more than once, as long as it is short.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use parking_lot::Mutex;
use tonic::Status;
use tonic::body::Body;

use crate::message::out_of_band::OutOfBand;

/// What is kept of a request at most, in bytes; one that is longer is sent once.
pub(crate) const KEPT_LEN_MAX: usize = 256 * 1024;

/// A request body, and what it has given so far.
#[derive(Clone)]
pub(crate) struct Replay {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    source: Body,
    /// Where large messages of it are.
    out_of_band: Option<OutOfBand>,
    chunks: Vec<Bytes>,
    len: usize,
    ended: bool,
    failed: Option<Status>,
    /// Nothing more is kept: the call is too long, or a server has answered.
    committed: bool,
    /// Which attempt reads now. Earlier ones get no more.
    attempt: u32,
}

impl Replay {
    pub(crate) fn new(source: Body, out_of_band: Option<OutOfBand>) -> Replay {
        if let Some(out_of_band) = &out_of_band {
            out_of_band.keep(true);
        }
        let shared = Shared {
            source,
            out_of_band,
            chunks: Vec::new(),
            len: 0,
            ended: false,
            failed: None,
            committed: false,
            attempt: 0,
        };
        Replay { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Whether more was sent than is kept.
    pub(crate) fn is_too_long(&self) -> bool {
        let shared = self.shared.lock();
        shared.committed && shared.len > KEPT_LEN_MAX
    }

    /// Whether it can be sent again from its beginning.
    pub(crate) fn is_whole(&self) -> bool {
        let shared = self.shared.lock();
        !shared.committed && shared.failed.is_none()
    }

    /// It will not be sent again: what comes from here on need not be kept.
    pub(crate) fn commit(&self) {
        self.shared.lock().commit();
    }

    /// The body from its beginning. Those given out before end.
    pub(crate) fn again(&self) -> Body {
        let mut shared = self.shared.lock();
        shared.attempt += 1;
        Body::new(ReplayedBody { shared: self.shared.clone(), number: shared.attempt, at: 0 })
    }
}

impl Shared {
    fn commit(&mut self) {
        self.committed = true;
        if let Some(out_of_band) = &self.out_of_band {
            out_of_band.keep(false);
        }
    }

    /// Bytes read so far, those included that went past the body.
    fn whole_len(&self) -> usize {
        self.len + self.out_of_band.as_ref().map_or(0, OutOfBand::out_len)
    }
}

/// The body for one attempt.
struct ReplayedBody {
    shared: Arc<Mutex<Shared>>,
    number: u32,
    /// Chunks given.
    at: usize,
}

impl http_body::Body for ReplayedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let mut shared = this.shared.lock();
        if shared.attempt != this.number {
            return Poll::Ready(Some(Err(Status::cancelled("the call is being made anew"))));
        }
        if let Some(chunk) = shared.chunks.get(this.at) {
            this.at += 1;
            return Poll::Ready(Some(Ok(Frame::data(chunk.clone()))));
        }
        if let Some(failed) = &shared.failed {
            return Poll::Ready(Some(Err(failed.clone())));
        }
        if shared.ended {
            return Poll::Ready(None);
        }
        if shared.committed {
            // Nobody reads them again, and a stream may go on for long.
            shared.chunks.clear();
        }
        loop {
            let frame = match std::task::ready!(Pin::new(&mut shared.source).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(failed)) => {
                    shared.failed = Some(failed.clone());
                    return Poll::Ready(Some(Err(failed)));
                }
                None => {
                    shared.ended = true;
                    return Poll::Ready(None);
                }
            };
            // A client has no trailers.
            let Ok(chunk) = frame.into_data() else { continue };
            shared.len += chunk.len();
            if shared.whole_len() > KEPT_LEN_MAX {
                shared.commit();
            }
            if !shared.committed {
                shared.chunks.push(chunk.clone());
                this.at += 1;
            }
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Body as _;
    use std::future::poll_fn;

    async fn read(body: &mut Body, count: usize) -> Result<Vec<u8>, Status> {
        let mut all = Vec::new();
        for _ in 0..count {
            match poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
                Some(frame) => all.extend_from_slice(&frame?.into_data().unwrap()),
                None => break,
            }
        }
        Ok(all)
    }

    /// A body of `count` chunks of `len` bytes.
    fn source(count: u8, len: usize) -> Body {
        struct Chunks(std::vec::IntoIter<Bytes>);
        impl http_body::Body for Chunks {
            type Data = Bytes;
            type Error = Status;
            fn poll_frame(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
                Poll::Ready(self.0.next().map(|chunk| Ok(Frame::data(chunk))))
            }
        }
        let chunks: Vec<Bytes> = (0..count).map(|number| vec![number; len].into()).collect();
        Body::new(Chunks(chunks.into_iter()))
    }

    #[tokio::test]
    async fn each_attempt_reads_from_the_beginning_and_the_last_goes_on() {
        let replay = Replay::new(source(4, 1), None);
        let mut first = replay.again();
        assert_eq!(read(&mut first, 2).await.unwrap(), [0, 1]);
        let mut second = replay.again();
        assert!(read(&mut first, 1).await.is_err(), "the first is over");
        assert_eq!(read(&mut second, 3).await.unwrap(), [0, 1, 2]);
        replay.commit();
        assert_eq!(read(&mut second, 9).await.unwrap(), [3]);
        assert!(!replay.is_whole());
    }

    #[tokio::test]
    async fn a_long_request_is_sent_once() {
        let replay = Replay::new(source(3, KEPT_LEN_MAX / 2), None);
        let mut body = replay.again();
        assert_eq!(read(&mut body, 2).await.unwrap().len(), KEPT_LEN_MAX / 2 * 2);
        assert!(replay.is_whole());
        assert_eq!(read(&mut body, 2).await.unwrap().len(), KEPT_LEN_MAX / 2);
        assert!(!replay.is_whole());
        assert!(replay.shared.lock().len > KEPT_LEN_MAX);
    }
}
