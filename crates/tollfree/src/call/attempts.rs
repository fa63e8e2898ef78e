//! The attempts of one call: on which connection each is made, and whether another follows.
//!
//! All calls of a channel come here but those that the first session answers. What an attempt does is the [`Call`]'s matter:
//! an HTTP request ([`crate::http`]), or a typed message ([`crate::typed`]).

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use http::{Extensions, HeaderMap};
use tollfree_driver_tokio::{SendError, now_ns};
use tonic::{Code, Status};

use crate::call::afterwards::Afterwards;
use crate::call::deadline::Deadline;
use crate::call::retry::{Pushback, Retries, pushback};
use crate::call::routing::{Routing, WaitForReady};
use crate::endpoint::balance::Picked;
use crate::endpoint::{CallGuard, Connection, Subchannel, chance};
use crate::metadata::timeout;
use crate::metrics::MadeCall;
use crate::status;
use tollfree_balancer::MethodConfig;

/// An attempt that brought no response.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) status: Status,
    /// No server has looked at the call: it may be made elsewhere.
    pub(crate) unseen: bool,
}

impl Failed {
    /// A session has not taken what was to be sent first.
    #[cold]
    pub(crate) fn to_send(error: SendError, peer: &str) -> Failed {
        let unseen = matches!(error, SendError::Closed(_) | SendError::Draining);
        Failed { status: status::unsent(error, peer), unseen }
    }
}

impl From<Status> for Failed {
    fn from(status: Status) -> Failed {
        Failed { status, unseen: false }
    }
}

/// What can be attempted on any connection of a channel.
pub(crate) trait Call {
    type Reply;

    /// One attempt, on one connection. `failed`: how many have failed before.
    fn attempt(
        &mut self,
        picked: &Picked,
        failed: u32,
    ) -> impl Future<Output = Result<Self::Reply, Failed>> + Send;

    /// Whether all of the request can be sent again.
    fn is_whole(&self) -> bool;

    /// Whether it can't, since more of it was sent than is kept.
    fn is_too_long(&self) -> bool;

    /// The status of a reply that is nothing else.
    fn status_alone(reply: &Self::Reply) -> Option<(Code, Pushback)>;

    /// Has such a reply say that the call is not made again for its length.
    fn say_too_long(reply: &mut Self::Reply);

    /// The call is not made again. `afterwards` is due when the reply has ended.
    fn settle(&mut self, reply: &mut Self::Reply, afterwards: Afterwards);
}

/// What holds for one call, whichever way it is made.
pub(crate) struct Terms<'a> {
    path: &'a str,
    method: &'a MethodConfig,
    pub(crate) deadline_ns: Option<u64>,
    /// It waits for a server instead of failing.
    waits: bool,
    /// Where the channel has metrics.
    made: Option<MadeCall>,
}

impl<'a> Terms<'a> {
    /// The same for a call that is counted.
    #[inline]
    pub(crate) fn counted(self, made: Option<MadeCall>) -> Terms<'a> {
        Terms { made, ..self }
    }

    fn attempt_ended(&self, code: Code) {
        if let Some(made) = &self.made {
            made.attempt_ended(code);
        }
    }

    /// The terms of a call that asks for a timeout in its `headers`: the shortest one holds.
    ///
    /// # Errors
    /// The status of a call that asks for no time at all, or for one that is none.
    #[inline]
    pub(crate) fn new(
        channel: &'a Routing,
        path: &'a str,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Terms<'a>, Status> {
        let asked = if headers.is_empty() { None } else { timeout(headers)? };
        let method = &**channel.config.method(path);
        let wanted = [asked, channel.timeout, method.timeout].into_iter().flatten().min();
        if wanted == Some(Duration::ZERO) {
            return Err(status::deadline());
        }
        Ok(Terms::until(channel, path, wanted.map(deadline_ns), extensions))
    }

    /// The same, where the deadline is settled.
    #[inline]
    pub(crate) fn until(
        channel: &'a Routing,
        path: &'a str,
        deadline_ns: Option<u64>,
        extensions: &Extensions,
    ) -> Terms<'a> {
        let method = &**channel.config.method(path);
        let asked = extensions.get::<WaitForReady>().map(|wait| wait.0);
        let waits = asked.or(method.waits).unwrap_or(channel.waits);
        Terms { path, method, deadline_ns, waits, made: None }
    }
}

/// How often a call without a deadline moves, beside once for each endpoint.
const MOVES_MAX: usize = 16;

/// A timeout as a time on the monotonic clock; never 0, which means none.
pub(crate) fn deadline_ns(timeout: Duration) -> u64 {
    let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
    now_ns().saturating_add(timeout).max(1)
}

/// Where the first attempt is made, or was begun.
pub(crate) struct First {
    pub(crate) picked: Picked,
    pub(crate) guard: Option<CallGuard>,
}

/// What comes after an attempt that failed.
enum Next {
    /// Another attempt.
    Again,
    /// None.
    Over,
    /// None, though the policy says so: the request is not kept any more.
    TooLong,
}

/// What a call's status says that is not made again for its length.
pub(crate) const TOO_LONG: &str = " [not made again, as the retry policy says: more than 256 KiB of the request were sent, which is what a channel keeps]";

impl Next {
    /// # Errors
    /// The status that the call ends with, unless it is made again.
    fn or_fail(self, status: Status) -> Result<(), Status> {
        match self {
            Next::Again => Ok(()),
            Next::Over => Err(status),
            Next::TooLong => {
                let (code, words) = (status.code(), format!("{}{TOO_LONG}", status.message()));
                let details = status.details().to_vec().into();
                let mut told =
                    Status::with_details_and_metadata(code, words, details, status.metadata().clone());
                told.set_source(Arc::new(status));
                Err(told)
            }
        }
    }
}

/// Makes a call: chooses a connection, and another, or the same again, where that is allowed.
///
/// # Errors
/// The status of the last attempt, or the deadline's.
pub(crate) async fn make<C: Call>(
    channel: &Routing,
    terms: &Terms<'_>,
    call: &mut C,
    first: Option<First>,
) -> Result<C::Reply, Status> {
    let mut deadline = Deadline::new(terms.deadline_ns);
    let mut made = pin!(Attempts::new(channel, terms, call).make(first));
    poll_fn(|cx| match made.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(result),
        Poll::Pending => {
            ready!(deadline.poll(cx));
            Poll::Ready(Err(status::deadline()))
        }
    })
    .await
}

/// The attempts of one call.
struct Attempts<'a, C> {
    channel: &'a Routing,
    terms: &'a Terms<'a>,
    call: &'a mut C,
    retries: Retries,
    /// How often the call still moves if no server looks at it and no deadline ends that.
    moves_left: usize,
    /// Where it was tried last.
    avoid: Option<Arc<Subchannel>>,
}

impl<'a, C: Call> Attempts<'a, C> {
    fn new(channel: &'a Routing, terms: &'a Terms<'a>, call: &'a mut C) -> Attempts<'a, C> {
        // Each endpoint that is chosen from may turn a call away once, and more often while it comes back.
        let endpoint_count = if channel.plain.is_some() { 1 } else { channel.balancer.endpoints().len() };
        let moves_left = endpoint_count + MOVES_MAX;
        Attempts { channel, terms, call, retries: Retries::default(), moves_left, avoid: None }
    }

    async fn make(mut self, mut first: Option<First>) -> Result<C::Reply, Status> {
        loop {
            let First { picked, mut guard } = match first.take() {
                Some(first) => first,
                None => match self.channel.pick(self.terms.waits, self.avoid.as_ref()).await {
                    Ok(picked) => {
                        First { guard: Some(picked.endpoint.begin_call(self.terms.deadline_ns)), picked }
                    }
                    Err(failed) => {
                        self.again(failed.code(), Pushback::None).await.or_fail(failed)?;
                        continue;
                    }
                },
            };
            if let Some(made) = &self.terms.made {
                made.attempt();
            }
            match self.call.attempt(&picked, self.retries.failed()).await {
                Ok(mut reply) => {
                    let alone = C::status_alone(&reply);
                    if let Some((code, pushback)) = alone.filter(|(code, _)| *code != Code::Ok) {
                        self.attempt_ended(&mut guard, code);
                        match self.again(code, pushback).await {
                            Next::Again => continue,
                            Next::TooLong => C::say_too_long(&mut reply),
                            Next::Over => {}
                        }
                    }
                    let ended = alone.map(|(code, _)| code);
                    let afterwards = Afterwards::new(self.channel, self.terms.method, guard, ended);
                    self.call.settle(&mut reply, afterwards);
                    return Ok(reply);
                }
                Err(failed) if failed.unseen && self.call.is_whole() && self.moves(&picked) => {
                    self.terms.attempt_ended(failed.status.code());
                    picked.endpoint.retire_connection(&picked.connection);
                    self.avoid = Some(picked.endpoint);
                }
                Err(failed) => {
                    let code = failed.status.code();
                    self.attempt_ended(&mut guard, code);
                    let pushback = pushback(failed.status.metadata().as_ref());
                    self.again(code, pushback).await.or_fail(failed.status)?;
                    self.avoid = Some(picked.endpoint);
                }
            }
        }
    }

    /// An attempt has failed, by the server's word or for want of it.
    fn attempt_ended(&self, guard: &mut Option<CallGuard>, code: Code) {
        self.terms.attempt_ended(code);
        if let Some(guard) = guard {
            guard.tell(code);
        }
    }

    /// Whether a call that no server has looked at goes elsewhere, or to the next connection: as long as its deadline allows. Without one, a
    /// call is not made again without end at a server that takes its leave of each connection at once. Connections that end at once are made
    /// again at a slower pace, so this is no busy loop.
    fn moves(&mut self, picked: &Picked) -> bool {
        if let (Some(_), Connection::Session(attachment)) = (&self.channel.plain, &picked.connection) {
            // A session that is open refuses for another reason, and would again.
            if attachment.is_open() {
                return false;
            }
        }
        if self.terms.waits || self.terms.deadline_ns.is_some() {
            return true;
        }
        let moves = self.moves_left > 0;
        self.moves_left = self.moves_left.saturating_sub(1);
        moves
    }

    /// Notes that an attempt failed, and waits until it is time for another, where one is to be made.
    async fn again(&mut self, code: Code, pushback: Pushback) -> Next {
        let policy = self.terms.method.retry.as_deref();
        let throttle = self.channel.throttle.as_deref();
        let Some(pause) = self.retries.fail(policy, throttle, code as u16, pushback, chance()) else {
            return Next::Over;
        };
        if self.call.is_too_long() {
            return Next::TooLong;
        }
        if !self.call.is_whole() || self.is_beyond_deadline(pause) {
            return Next::Over;
        }
        tracing::debug!(
            path = self.terms.path,
            ?code,
            attempt = self.retries.failed(),
            ?pause,
            "making a call again"
        );
        tokio::time::sleep(pause).await;
        Next::Again
    }

    /// Whether the deadline passes while a pause lasts.
    fn is_beyond_deadline(&self, pause: Duration) -> bool {
        let pause_ns = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        self.terms.deadline_ns.is_some_and(|deadline_ns| now_ns().saturating_add(pause_ns) >= deadline_ns)
    }
}
