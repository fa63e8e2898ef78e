//! What a request's body gives, message by message.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame};
use tokio::sync::oneshot;
use tollfree_driver_tokio::{Outgoing, OutgoingMessage};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::http::keeping::{Keeping, KeptRequest};
use crate::http::request_sender::RequestSender;
use crate::message::aside::Worked;
use crate::message::batching::next_batch;
use crate::message::framing::Deframer;
use crate::message::out_of_band::{Large, OutOfBand, Takes};
use crate::message::payloads::Sharing;
use crate::status;

/// What is on its way before all that a source gives: with what came past tonic in its message's stead.
pub(crate) type FirstMessage = (Outgoing, Option<Arc<dyn Large>>);

/// A request's body, cut into messages.
pub(crate) struct RequestSource {
    body: Body,
    deframer: Deframer,
    /// The body failed behind what is at hand.
    failed: Option<Status>,
    has_ended: bool,
    /// Messages that have been taken out.
    count: u64,
    /// What it has given, while the request may have to go to another session.
    keeping: Option<Box<Keeping>>,
}

impl RequestSource {
    pub(crate) fn new(body: Body) -> RequestSource {
        let (deframer, keeping) = (Deframer::default(), None);
        RequestSource { body, deframer, failed: None, has_ended: false, count: 0, keeping }
    }

    /// One that gives nothing.
    pub(crate) fn ended() -> RequestSource {
        RequestSource { has_ended: true, ..RequestSource::new(Body::empty()) }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Nothing more of it is wanted.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Keeps what it gives from here on, as far as that is short, behind `first`, of which nothing has been sent.
    pub(crate) fn keep(
        &mut self,
        first: (&Outgoing, &Option<Arc<dyn Large>>),
        out_of_band: Option<&OutOfBand>,
    ) -> KeptRequest {
        let first = || (first.0.clone(), first.1.clone());
        if self.has_ended {
            self.keeping = None;
            let (outgoing, past) = first();
            return KeptRequest::Whole(outgoing, past);
        }
        if self.keeping.is_none() {
            let rest = (self.deframer.clone(), self.failed.clone(), self.count);
            self.keeping = Some(Box::new(Keeping::new(first(), rest, out_of_band.cloned())));
        }
        KeptRequest::Sending
    }

    /// The same from its beginning, with what was kept before it. `None`: it is not kept.
    pub(crate) fn again(mut self) -> Option<(RequestSource, FirstMessage)> {
        let mut keeping = self.keeping.take()?;
        if !keeping.rewind() {
            return None;
        }
        let Keeping { outgoing, past, deframer, failed, count, .. } = &*keeping;
        let first = (outgoing.clone(), past.clone());
        let (deframer, failed, count) = (deframer.clone(), failed.clone(), *count);
        let keeping = Some(keeping);
        let source = RequestSource { body: self.body, deframer, failed, has_ended: false, count, keeping };
        Some((source, first))
    }

    /// Where the sender comes back once its task is done. `None`: the request is not kept any more.
    pub(crate) fn wanted_back(&mut self) -> Option<oneshot::Receiver<RequestSender>> {
        self.keeping.as_mut().map(|keeping| keeping.wanted_back())
    }

    /// Who wants the sender back.
    pub(crate) fn take_reader(&mut self) -> Option<oneshot::Sender<RequestSender>> {
        self.keeping.as_mut()?.take_reader()
    }

    /// It is not sent anew any more.
    pub(crate) fn settle(&mut self) {
        if self.keeping.as_mut().is_some_and(|keeping| keeping.settle()) {
            self.keeping = None;
        }
    }

    /// The next messages, where several at hand can go together; says how many.
    pub(crate) fn take_batch(
        &mut self,
        out_of_band: Option<&OutOfBand>,
        takes: Takes<'_>,
        sharing: &Sharing,
        worked: &mut Worked,
    ) -> Option<(OutgoingMessage, usize)> {
        let (batch, count) = next_batch(&mut self.deframer, out_of_band, takes, sharing, self.count, worked)?;
        self.count += count as u64;
        Some((batch, count))
    }

    /// The next message at hand, and what came past tonic in its stead.
    pub(crate) fn take_message(
        &mut self,
        out_of_band: Option<&OutOfBand>,
    ) -> Option<(OutgoingMessage, Option<Arc<dyn Large>>)> {
        let message = self.deframer.next()?;
        let past = out_of_band.and_then(|out_of_band| out_of_band.take_out(self.count));
        self.count += 1;
        Some((message, past))
    }

    /// Has the body give more, where nothing whole is at hand. Ready when it has, or has ended.
    ///
    /// # Errors
    /// The body's own failure, once what came before it is taken, or a message that it has cut.
    pub(crate) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        if let Some(failure) = self.failed.take() {
            return Poll::Ready(Err(failure));
        }
        match ready!(self.poll_body(cx)) {
            Some(Ok(frame)) => self.push(frame),
            Some(Err(error)) => return Poll::Ready(Err(status::as_it_was(error))),
            None if self.deframer.is_partial() => {
                return Poll::Ready(Err(status::of_content(
                    Code::Internal,
                    "the request ends in the middle of a message",
                )));
            }
            None => self.has_ended = true,
        }
        Poll::Ready(Ok(()))
    }

    /// Looks whether the body ends right behind what has been taken.
    pub(crate) fn look_ahead(&mut self, cx: &mut Context<'_>) {
        if self.has_ended || self.deframer.is_partial() {
            return;
        }
        match self.poll_body(cx) {
            Poll::Ready(None) => self.has_ended = true,
            Poll::Ready(Some(Ok(frame))) => self.push(frame),
            Poll::Ready(Some(Err(failure))) => self.failed = Some(status::as_it_was(failure)),
            Poll::Pending => {}
        }
    }

    fn push(&mut self, frame: Frame<Bytes>) {
        if let Ok(data) = frame.into_data() {
            self.deframer.push(data);
        }
    }

    /// The next that the body gives, or has given to an earlier attempt.
    #[inline]
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(keeping) = &mut self.keeping else { return Pin::new(&mut self.body).poll_frame(cx) };
        if let Some(chunk) = keeping.next() {
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let is_kept = match &frame {
            Some(Ok(frame)) => frame.data_ref().is_none_or(|chunk| keeping.add(chunk)),
            Some(Err(_)) => false,
            None => {
                // The next attempt finds its end as well.
                self.body = Body::empty();
                true
            }
        };
        if !is_kept {
            self.keeping = None;
        }
        Poll::Ready(frame)
    }
}
