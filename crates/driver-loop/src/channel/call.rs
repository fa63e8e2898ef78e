//! A call of a channel: what was said on it, as long as it may have to be said again, and where it is.

use std::collections::VecDeque;

use bytes::Bytes;
use tollfree_balancer::{Pushback, Retries, RetryPolicy, Throttle};

use crate::channel::endpoint::chance;
use crate::{CallTerms, ChannelId, Message, SessionId};

/// What is kept of a call that is under way, in bytes, so that it can be made again: as gRPC does by default.
const KEPT_LEN: usize = 1 << 20;
/// How often a call without a deadline goes on where no server has looked at it.
const MOVES_MAX: u32 = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct ChannelCall {
    channel: ChannelId,
    path: Box<str>,
    metadata: Bytes,
    deadline_ns: u64,
    came_ns: u64,
    terms: CallTerms,
    retries: Retries,
    moves: u32,
    said: Said,
    place: Place,
    /// Where it was last.
    avoid: Option<usize>,
    /// Part of an answer has come, so that it is never made again.
    is_committed: bool,
    is_paused: bool,
}

/// Where a call is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// It waits for a connection.
    Waiting,
    /// It waits until it is time to be made again.
    Resting { until_ns: u64 },
    /// It is over, which the application is about to be told.
    Over,
    /// At an endpoint.
    At { session: SessionId, endpoint: usize },
}

/// What was said on a call.
#[derive(Debug, Default)]
struct Said {
    messages: VecDeque<Message>,
    len: usize,
    is_finished: bool,
    /// Something of it is not kept any more.
    is_partial: bool,
}

/// What becomes of a call whose attempt has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unplaced {
    /// It is made again at once.
    Again,
    /// It is made again then.
    At(u64),
    /// It is over.
    Over,
}

impl ChannelCall {
    pub(crate) fn new(
        channel: ChannelId,
        path: &str,
        metadata: Bytes,
        deadline_ns: u64,
        came_ns: u64,
        terms: CallTerms,
    ) -> ChannelCall {
        ChannelCall {
            channel,
            path: path.into(),
            metadata,
            deadline_ns,
            came_ns,
            terms,
            retries: Retries::default(),
            moves: 0,
            said: Said::default(),
            place: Place::Waiting,
            avoid: None,
            is_committed: false,
            is_paused: false,
        }
    }

    pub(crate) fn channel(&self) -> ChannelId {
        self.channel
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// What the server is to be told before messages.
    pub(crate) fn metadata(&self) -> Bytes {
        super::with_attempts(&self.metadata, self.retries.failed())
    }

    /// 0: none.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.deadline_ns
    }

    pub(crate) fn came_ns(&self) -> u64 {
        self.came_ns
    }

    pub(crate) fn waits_for_ready(&self) -> bool {
        self.terms.waits_for_ready
    }

    pub(crate) fn avoid(&self) -> Option<usize> {
        self.avoid
    }

    /// Its session and endpoint.
    pub(crate) fn placed(&self) -> Option<(SessionId, usize)> {
        match self.place {
            Place::At { session, endpoint } => Some((session, endpoint)),
            Place::Waiting | Place::Resting { .. } | Place::Over => None,
        }
    }

    /// Whether it waits for a connection.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.place, Place::Waiting)
    }

    /// It is over. Gives the session that it is in.
    pub(crate) fn ends(&mut self) -> Option<SessionId> {
        let placed = self.placed();
        self.place = Place::Over;
        placed.map(|(session, _)| session)
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.place, Place::Over)
    }

    /// Its rest is over. `false`: it is in none.
    pub(crate) fn rested(&mut self, now_ns: u64) -> bool {
        let is_over = matches!(self.place, Place::Resting { until_ns } if until_ns <= now_ns);
        if is_over {
            self.place = Place::Waiting;
        }
        is_over
    }

    /// Whether its deadline has passed while it is nowhere: a session sees to the others.
    pub(crate) fn is_late(&self, now_ns: u64) -> bool {
        matches!(self.place, Place::Waiting | Place::Resting { .. })
            && self.deadline_ns != 0
            && self.deadline_ns <= now_ns
    }

    /// It was placed. Gives what is to be said there.
    pub(crate) fn place(&mut self, session: SessionId, endpoint: usize) -> (Vec<Message>, bool, bool) {
        self.place = Place::At { session, endpoint };
        let messages = self.said.messages.iter().cloned().collect();
        self.said.trim();
        (messages, self.said.is_finished, self.is_paused)
    }

    /// It leaves its place, if it has one.
    pub(crate) fn leave(&mut self) -> Option<(SessionId, usize)> {
        let placed = self.placed()?;
        (self.place, self.avoid) = (Place::Waiting, Some(placed.1));
        Some(placed)
    }

    /// The application has said a message, which is kept if it may be needed.
    pub(crate) fn say(&mut self, message: &Message) {
        if !self.is_committed && !self.said.is_partial {
            self.said.len += message.len();
            self.said.messages.push_back(message.clone());
            if self.placed().is_some() {
                self.said.trim();
            }
        }
    }

    /// The application has said that no message follows.
    pub(crate) fn finish(&mut self) {
        self.said.is_finished = true;
    }

    /// Whether the application has said that.
    pub(crate) fn is_finished(&self) -> bool {
        self.said.is_finished
    }

    pub(crate) fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Part of an answer has come.
    pub(crate) fn answered(&mut self) {
        if !std::mem::replace(&mut self.is_committed, true) {
            self.said.forget();
        }
    }

    /// An attempt has failed that no server has looked at: it goes on as long as its deadline allows. Without one, it does not go on without
    /// end at servers that take their leave of each connection at once.
    pub(crate) fn moves(&mut self, endpoint_count: usize, now_ns: u64) -> Unplaced {
        if self.is_committed || self.said.is_partial {
            return Unplaced::Over;
        }
        self.moves += 1;
        let is_bounded = self.terms.waits_for_ready || self.deadline_ns != 0;
        match self.moves <= endpoint_count as u32 {
            true => Unplaced::Again,
            false if is_bounded || self.moves <= MOVES_MAX => self.rest(now_ns, 1_000_000),
            false => Unplaced::Over,
        }
    }

    /// An attempt has failed with a status.
    pub(crate) fn fails(
        &mut self,
        code: u16,
        pushback: Pushback,
        throttle: Option<&Throttle>,
        now_ns: u64,
    ) -> Unplaced {
        let policy: Option<&RetryPolicy> = self.terms.retry.as_deref();
        if self.is_committed {
            // A failure counts all the same.
            if let (Some(policy), Some(throttle)) = (policy, throttle)
                && policy.codes.contains(&code)
            {
                throttle.failed();
            }
            return Unplaced::Over;
        }
        match self.retries.fail(policy, throttle, code, pushback, chance()) {
            Some(pause) if !self.said.is_partial => {
                self.rest(now_ns, pause.as_nanos().min(u64::MAX.into()) as u64)
            }
            _ => Unplaced::Over,
        }
    }

    fn rest(&mut self, now_ns: u64, pause_ns: u64) -> Unplaced {
        let until_ns = now_ns.saturating_add(pause_ns);
        if self.deadline_ns != 0 && until_ns >= self.deadline_ns {
            return Unplaced::Over;
        }
        self.place = Place::Resting { until_ns };
        Unplaced::At(until_ns)
    }
}

impl Said {
    /// It was said somewhere: no more than that much is kept.
    fn trim(&mut self) {
        if self.len > KEPT_LEN {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.is_partial |= !self.messages.is_empty();
        (self.messages, self.len) = (VecDeque::new(), 0);
    }
}
