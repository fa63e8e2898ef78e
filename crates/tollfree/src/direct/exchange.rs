//! One unary call of a client, from packed request to packed reply, without an `http::Request`.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tollfree_transport::{Arrival, Attachment, Emission, EmitError, End, Ending, Opening, Outgoing, Stream};
use tonic::{Code, Status};

use super::message::{Gather, Gathered, Received};
use crate::body::{Deadline, end_status};
use crate::call::deadline_ns;
use crate::channel::Channel;
use crate::status;

/// What is called, and until when.
pub(super) struct Request<'a> {
    pub(super) channel: &'a Channel,
    pub(super) path: &'static str,
    /// Packed metadata.
    pub(super) block: Bytes,
    /// On the monotonic clock.
    pub(super) deadline_ns: Option<u64>,
    /// Waits for a server instead of failing.
    pub(super) waits: bool,
    /// Limit for the reply in bytes.
    pub(super) len_max: Option<usize>,
}

/// What a server said.
#[derive(Default)]
pub(super) struct Reply {
    /// Packed; `None` for a reply of nothing but trailers.
    pub(super) headers: Option<Bytes>,
    pub(super) message: Option<Received>,
    pub(super) code: u16,
    /// Packed.
    pub(super) trailers: Bytes,
}

/// How a call ended that came to no reply.
pub(super) enum Ended {
    /// With this status.
    Status(Status),
    /// There is no session any more, no server has looked at the call, and the channel has another way.
    Left,
}

impl From<Status> for Ended {
    fn from(status: Status) -> Ended {
        Ended::Status(status)
    }
}

/// How an attempt ended that came to no reply.
struct Failed {
    status: Status,
    /// No server has looked at the call: it may be made in another session.
    unseen: bool,
}

impl From<Status> for Failed {
    fn from(status: Status) -> Failed {
        Failed { status, unseen: false }
    }
}

/// Makes the call, and puts what the server said into `reply`. A call that no server has looked at moves over to a new
/// session once; `message` is asked again then.
///
/// # Errors
/// The status of a call that ended without trailers, or that it has to go another way.
pub(super) async fn exchange(
    request: &Request<'_>,
    message: &(dyn Fn(&Attachment) -> Result<Outgoing, Status> + Sync),
    reply: &mut Reply,
) -> Result<(), Ended> {
    let channel = request.channel;
    let mut deadline = Deadline::new(request.deadline_ns);
    let mut moved = false;
    loop {
        let attachment = match channel.live() {
            Some(attachment) => attachment,
            None if !channel.is_plain() => return Err(Ended::Left),
            None => {
                let mut acquire = channel.acquire(request.waits);
                poll_fn(|cx| guard(acquire.as_mut().poll(cx), &mut deadline, cx)).await??
            }
        };
        let mut emission = Emission {
            headers: Some(request.block.clone()),
            message: Some(message(&attachment)?),
            ending: Some(Ending::HalfClose),
        };
        match attempt(request, &attachment, &mut emission, &mut deadline, reply).await {
            Ok(()) => return Ok(()),
            // One that is open refuses for another reason, and would again.
            Err(failed) if failed.unseen && !moved && !attachment.is_open() => {
                // One that waits anyway does so until a session takes it.
                moved = !request.waits;
                *reply = Reply::default();
                channel.retire(&attachment);
            }
            Err(failed) => return Err(failed.status.into()),
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

async fn attempt(
    request: &Request<'_>,
    attachment: &Arc<Attachment>,
    emission: &mut Emission,
    deadline: &mut Deadline,
    reply: &mut Reply,
) -> Result<(), Failed> {
    let peer = request.channel.peer();
    let opening = Opening { path: request.path, deadline_ns: request.deadline_ns.unwrap_or(0) };
    let opened = match attachment.try_open(opening, emission) {
        Some(opened) => opened,
        None => {
            let mut opener = attachment.open();
            poll_fn(|cx| guard(opener.poll_open(cx, opening, emission), deadline, cx)).await?
        }
    };
    let stream = match opened {
        Ok(stream) => stream,
        Err(error) => {
            let unseen = matches!(error, EmitError::Closed(_) | EmitError::Draining);
            return Err(Failed { status: status::emit(error, peer), unseen });
        }
    };
    let mut gather = Gather::new(request.len_max);
    loop {
        let arrival = poll_fn(|cx| poll_arrival(cx, &stream, emission, peer, deadline)).await?;
        if arrival.headers.is_some() {
            reply.headers = arrival.headers;
        }
        if let Some(chunk) = arrival.chunk {
            gather.add(chunk)?;
        }
        match arrival.end {
            None => {}
            Some(End::Trailers { code, block }) => {
                reply.message = match received(&mut gather, request.channel, deadline).await {
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
    channel: &Channel,
    deadline: &mut Deadline,
) -> Result<Option<Received>, Status> {
    match gather.take(channel.sharing())? {
        None => Ok(None),
        Some(Gathered::Here(message)) => Ok(Some(message)),
        Some(Gathered::Fetching(mut fetching)) => {
            let rope = poll_fn(|cx| guard(fetching.as_mut().poll(cx), deadline, cx)).await??;
            gather.check(Received::Rope(rope)).map(Some)
        }
    }
}

/// Sends what is left of the request, and waits for the next thing that the server says: it may answer before it has
/// read everything.
fn poll_arrival(
    cx: &mut Context<'_>,
    stream: &Stream,
    emission: &mut Emission,
    peer: &str,
    deadline: &mut Deadline,
) -> Poll<Result<Arrival, Status>> {
    if !emission.is_empty() {
        match stream.poll_emit(cx, emission) {
            Poll::Ready(Ok(())) | Poll::Pending => {}
            // The reader learns how the call ended.
            Poll::Ready(Err(EmitError::Ended | EmitError::Closed(_))) => *emission = Emission::default(),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(status::emit(error, peer))),
        }
    }
    match guard(stream.poll_arrival(cx), deadline, cx) {
        Poll::Pending => Poll::Pending,
        Poll::Ready(Ok(received)) => Poll::Ready(received.map_err(|closed| status::closed(&closed, peer))),
        Poll::Ready(Err(late)) => {
            stream.cancel(Code::DeadlineExceeded as u16);
            Poll::Ready(Err(late))
        }
    }
}

/// A deadline on the monotonic clock, of the shorter of two timeouts.
pub(super) fn deadline(
    call: Option<std::time::Duration>,
    channel: Option<std::time::Duration>,
) -> Option<u64> {
    let timeout = match (call, channel) {
        (Some(call), Some(channel)) => call.min(channel),
        (call, channel) => call.or(channel)?,
    };
    Some(deadline_ns(timeout))
}
