//! One unary call of a client, from packed request to packed reply, without an `http::Request`.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tollfree_driver_tokio::{
    Attachment, End, Ending, Incoming, Opening, Outgoing, SendError, SingleFrame, Started, Stream,
};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use crate::call::attempts::Failed;
use crate::call::deadline::Deadline;
use crate::http::response_body::end_status;
use crate::message::deferred::{self, Deferred};
use crate::message::encoding::{Gather, Gathered, Received, What, says_encoding};
use crate::message::form::Form;
use crate::message::payloads::Sharing;
use crate::message::received::Fetching;
use crate::metadata::template;
use crate::metrics::MadeCall;
use crate::status;

/// What is called, and until when.
pub(crate) struct Request<'a> {
    pub(crate) sharing: &'a Sharing,
    pub(crate) path: &'a str,
    /// Packed metadata.
    pub(crate) block: Bytes,
    /// On the monotonic clock.
    pub(crate) deadline_ns: Option<u64>,
    /// Limit for the reply in bytes.
    pub(crate) len_max: Option<usize>,
    /// The fingerprint of the method's types, where messages may travel as objects.
    pub(crate) types: Option<u64>,
    /// Where the channel has metrics.
    pub(crate) made: Option<MadeCall>,
}

impl Request<'_> {
    fn opening(&self) -> Opening<'_> {
        Opening { path: self.path, deadline_ns: self.deadline_ns.unwrap_or(0) }
    }
}

/// What a server said.
#[derive(Default)]
pub(crate) struct Reply {
    /// Packed; `None` for a reply of nothing but trailers.
    pub(crate) headers: Option<Bytes>,
    pub(crate) message: Option<Received>,
    pub(crate) code: u16,
    /// Packed.
    pub(crate) trailers: Bytes,
}

/// The first steps of a call, which most calls don't go beyond: its request goes out, and all of the answer comes.
pub(crate) struct UnaryAttempt {
    attachment: Arc<Attachment>,
    /// What is not sent of the request.
    outgoing: Outgoing,
    deadline: Deadline,
    /// The call, while it is open and this looks after it.
    open: Option<Stream>,
}

/// Where those steps have led to.
pub(crate) enum ExchangeStep {
    /// All has come, with status OK.
    Answered(SingleFrame),
    /// The call goes on.
    On(Box<AttemptState>),
}

impl ExchangeStep {
    #[cold]
    fn failed(failed: Failed) -> ExchangeStep {
        ExchangeStep::On(Box::new(AttemptState::Failed(failed)))
    }
}

/// An answer that came in one go, with status OK.
pub(crate) struct OkAnswer {
    /// Packed.
    pub(crate) headers: Bytes,
    /// Parts of it may lie in the pool.
    pub(crate) message: Gathered,
    /// Packed.
    pub(crate) trailers: Bytes,
}

/// How a call was begun.
pub(crate) enum AttemptState {
    /// It was not: it has to wait for that.
    Not,
    /// It has failed.
    Failed(Failed),
    /// It is open, and this has come.
    Open(Stream, Option<Incoming>),
}

impl AttemptState {
    /// Takes all of the answer, if it has come in one go.
    ///
    /// # Errors
    /// The status for a message that can't be had.
    pub(crate) fn take_answer(&mut self, request: &Request<'_>) -> Result<Option<OkAnswer>, Status> {
        let AttemptState::Open(_, Some(Incoming::Part(incoming))) = self else { return Ok(None) };
        let Some((headers, chunk, trailers)) = incoming.take_answer() else { return Ok(None) };
        let mut gather = Gather::new(request.len_max, request.types.is_some());
        gather.add(chunk)?;
        let message = gather.take(request.sharing)?;
        Ok(message.map(|message| OkAnswer { headers, message, trailers }))
    }
}

impl UnaryAttempt {
    /// A call by this session, whose message is yet to be set.
    #[inline]
    pub(crate) fn new(attachment: Arc<Attachment>, request: &Request<'_>) -> UnaryAttempt {
        UnaryAttempt {
            attachment,
            outgoing: Outgoing::default(),
            deadline: Deadline::new(request.deadline_ns),
            open: None,
        }
    }

    /// Makes the message ready for a session that is known: as it lies in `message`, or as it is `deferred`.
    ///
    /// # Errors
    /// As [`Sharing::encode`].
    #[inline]
    pub(crate) fn encode<F: Form<M>, M: Send + Sync + 'static>(
        &mut self,
        request: &Request<'_>,
        message: &mut M,
        deferred: &mut Option<Arc<Deferred<F, M>>>,
        len_max: Option<usize>,
    ) -> Result<(), Status> {
        let (sharing, outlet) = (request.sharing, &*self.attachment);
        let object = match request.types {
            // How messages are compressed is left to tonic, at the server too.
            Some(types) if F::OBJECTS && !says_encoding(&request.block) => {
                match outlet.takes_objects(request.path, types) {
                    Some(true) => match F::object(message) {
                        Some(object) => sharing.object(object, len_max, outlet.peer_pool(), outlet)?,
                        None => None,
                    },
                    Some(false) => {
                        sharing.payloads.met_other_schema();
                        None
                    }
                    None => None,
                }
            }
            _ => None,
        };
        let message = match object {
            Some(object) => object,
            None => deferred::send(message, deferred, sharing, len_max, outlet.peer_pool(), outlet)?,
        };
        if let Some(made) = &request.made {
            made.sent(message.len());
        }
        let (headers, ending) = (Some(request.block.clone()), Some(Ending::HalfClose));
        self.outgoing = Outgoing { headers, message: Some(message), ending };
        Ok(())
    }

    /// Waits for the parts of an answer that are on their way here.
    ///
    /// # Errors
    /// The status for a message that can't be had, or not in time.
    pub(crate) async fn fetched(&mut self, fetching: Fetching, what: What) -> Result<Received, Status> {
        fetched(fetching, what, &mut self.deadline).await
    }

    /// Begins the call with a `peer`, and waits for what comes first. `spent` are its metadata, which have been packed: they
    /// are dropped while the request is on its way.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request<'_>,
        peer: &str,
        spent: Option<&mut MetadataMap>,
    ) -> Poll<ExchangeStep> {
        let mut waits = false;
        let stream = match self.open.take() {
            Some(stream) => stream,
            None => {
                // A peer that answers within one look must not keep this task from ever yielding to the others.
                let turn = ready!(tokio::task::coop::poll_proceed(cx));
                let mut spent = spent;
                let mut meanwhile = || {
                    if let Some(spent) = &mut spent {
                        **spent = MetadataMap::new();
                    }
                    // Where a request has metadata, the reply is likely to have some.
                    template::prepare(request.path);
                };
                let meanwhile: Option<&mut dyn FnMut()> =
                    if request.block.is_empty() { None } else { Some(&mut meanwhile) };
                let started = self.attachment.start(cx, request.opening(), &mut self.outgoing, meanwhile);
                turn.made_progress();
                match started {
                    Ok(Started::Answered(answer)) => return Poll::Ready(ExchangeStep::Answered(answer)),
                    Ok(Started::Open(stream)) => stream,
                    Ok(Started::Waits(stream)) => {
                        waits = true;
                        stream
                    }
                    Ok(Started::MustWait) => {
                        return Poll::Ready(ExchangeStep::On(Box::new(AttemptState::Not)));
                    }
                    Err(error) => return Poll::Ready(ExchangeStep::failed(Failed::to_send(error, peer))),
                }
            }
        };
        if !self.outgoing.is_empty() {
            return Poll::Ready(ExchangeStep::On(Box::new(AttemptState::Open(stream, None))));
        }
        let polled = if waits { Poll::Pending } else { stream.poll_incoming(cx) };
        match polled {
            Poll::Ready(Ok(Incoming::Answer(answer))) => Poll::Ready(ExchangeStep::Answered(answer)),
            Poll::Ready(Ok(incoming)) => {
                Poll::Ready(ExchangeStep::On(Box::new(AttemptState::Open(stream, Some(incoming)))))
            }
            Poll::Ready(Err(closed)) => {
                Poll::Ready(ExchangeStep::failed(status::closed(&closed, peer).into()))
            }
            Poll::Pending if self.deadline.poll(cx).is_pending() => {
                self.open = Some(stream);
                Poll::Pending
            }
            Poll::Pending => {
                stream.cancel(Code::DeadlineExceeded as u16);
                Poll::Ready(ExchangeStep::failed(status::deadline().into()))
            }
        }
    }
}

/// `polled`, or the deadline's status once that has passed.
fn guard<T>(polled: Poll<T>, deadline: &mut Deadline, cx: &mut Context<'_>) -> Poll<Result<T, Status>> {
    match polled {
        Poll::Ready(done) => Poll::Ready(Ok(done)),
        Poll::Pending => {
            ready!(deadline.poll(cx));
            Poll::Ready(Err(status::deadline()))
        }
    }
}

/// Goes on with a call that was begun with a `peer`, to its end, and puts what the server said into `reply`.
///
/// # Errors
/// The status of a call that ended without trailers.
pub(crate) async fn go_on(
    request: &Request<'_>,
    peer: &str,
    attempt: &mut UnaryAttempt,
    begun: AttemptState,
    reply: &mut Reply,
) -> Result<(), Failed> {
    let UnaryAttempt { attachment, outgoing, deadline, .. } = attempt;
    let (opened, mut first) = match begun {
        AttemptState::Open(stream, incoming) => (Ok(stream), incoming),
        AttemptState::Failed(failed) => return Err(failed),
        AttemptState::Not => {
            let (mut opener, opening) = (attachment.open(), request.opening());
            (poll_fn(|cx| guard(opener.poll_open(cx, opening, outgoing), deadline, cx)).await?, None)
        }
    };
    let stream = match opened {
        Ok(stream) => stream,
        Err(error) => return Err(Failed::to_send(error, peer)),
    };
    let mut gather = Gather::new(request.len_max, request.types.is_some());
    loop {
        let arrived = match first.take() {
            Some(incoming) => incoming,
            None => poll_fn(|cx| poll_incoming(cx, &stream, outgoing, peer, deadline)).await?,
        };
        let incoming = arrived.into_part();
        if incoming.headers.is_some() {
            reply.headers = incoming.headers;
        }
        if let Some(chunk) = incoming.chunk {
            gather.add(chunk)?;
        }
        match incoming.end {
            None => {}
            Some(End::Trailers { code, block }) => {
                reply.message = match received(&mut gather, request.sharing, deadline).await {
                    // What came with a failure is of no interest, but that it came is.
                    Err(_) if code != 0 => Some(Received::Whole(Bytes::new())),
                    received => received?,
                };
                reply.code = code;
                reply.trailers = block;
                return Ok(());
            }
            Some(end) => {
                let unseen = matches!(end, End::Cancelled { refused: true, .. });
                return Err(Failed { status: end_status(&stream, end, peer), unseen });
            }
        }
    }
}

/// The message that came, with hold taken of all its parts.
async fn received(
    gather: &mut Gather,
    sharing: &Sharing,
    deadline: &mut Deadline,
) -> Result<Option<Received>, Status> {
    match gather.take(sharing)? {
        None => Ok(None),
        Some(Gathered::Here(message)) => Ok(Some(message)),
        Some(Gathered::Fetching(fetching, what)) => fetched(fetching, what, deadline).await.map(Some),
    }
}

async fn fetched(mut fetching: Fetching, what: What, deadline: &mut Deadline) -> Result<Received, Status> {
    let segmented = poll_fn(|cx| guard(fetching.as_mut().poll(cx), deadline, cx)).await??;
    Ok(what.of(segmented))
}

/// Sends what is left of the request, and waits for the next thing that the server says: it may answer before it has
/// read everything.
fn poll_incoming(
    cx: &mut Context<'_>,
    stream: &Stream,
    outgoing: &mut Outgoing,
    peer: &str,
    deadline: &mut Deadline,
) -> Poll<Result<Incoming, Status>> {
    if !outgoing.is_empty() {
        match stream.poll_send(cx, outgoing) {
            Poll::Ready(Ok(())) | Poll::Pending => {}
            // The reader learns how the call ended.
            Poll::Ready(Err(SendError::Ended | SendError::Closed(_))) => *outgoing = Outgoing::default(),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(status::unsent(error, peer))),
        }
    }
    match guard(stream.poll_incoming(cx), deadline, cx) {
        Poll::Pending => Poll::Pending,
        Poll::Ready(Ok(received)) => Poll::Ready(received.map_err(|closed| status::closed(&closed, peer))),
        Poll::Ready(Err(late)) => {
            stream.cancel(Code::DeadlineExceeded as u16);
            Poll::Ready(Err(late))
        }
    }
}
