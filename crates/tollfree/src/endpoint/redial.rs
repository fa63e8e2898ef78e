//! Which calls share an attempt to connect. When the next is due: `tollfree_balancer::Pace`.
//!
//! A call that finds no connection begins an attempt, or shares one that began after it came: it never fails for an attempt that was over
//! before. An attempt goes on when the call that began it ends. On this host an attempt costs microseconds, so the pauses between attempts are short and calls wait for the next one. Elsewhere
//! calls fail during a pause, as gRPC's do.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
pub(crate) use tollfree_balancer::{Failure, Pace};
use tollfree_balancer::{LOCAL_MAX, PROVEN, REMOTE_FIRST};
use tollfree_driver_tokio::{ConnectError, ConnectErrorKind};
use tonic::Status;

use crate::endpoint::Connection;
use crate::endpoint::attempt::Attempt;
use crate::endpoint::chance;

/// What became of an attempt that failed so.
pub(crate) fn failure(error: &ConnectError) -> Failure {
    match &error.kind {
        ConnectErrorKind::Handshake(_) => Failure::Refused,
        _ => Failure::Absent,
    }
}

/// The attempts to connect to one endpoint.
pub(crate) struct Redial {
    pace: Pace,
    state: Mutex<State>,
    /// Held while an attempt is waited for, or its time. The attempt is there while it is under way, whether anybody waits for it or not.
    turn: tokio::sync::Mutex<Option<Attempt>>,
    connected: Notify,
}

#[derive(Default)]
struct State {
    /// Attempts that have begun.
    begun: u64,
    /// Attempts that failed one after the other, and connections that ended at once.
    failures: u32,
    /// The latest of them, where servers answered.
    refusals: u32,
    /// Before this, no attempt is made.
    until: Option<Instant>,
    /// Why the latest attempt failed.
    last: Option<Status>,
    /// When the present connection was made.
    since: Option<Instant>,
}

/// How many attempts had begun at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttemptCount(u64);

/// The right to make an attempt, or to wait for one whose call has ended.
pub(crate) struct RedialTurn<'a> {
    attempt: tokio::sync::MutexGuard<'a, Option<Attempt>>,
}

impl RedialTurn<'_> {
    /// Whether no attempt is under way.
    pub(crate) fn is_free(&self) -> bool {
        self.attempt.is_none()
    }

    /// What the attempt brings that is under way, or else the one that this begins. `None`: it has ended with its runtime. Dropped, it
    /// leaves the attempt to the next turn.
    pub(crate) async fn outcome(
        &mut self,
        begin: impl FnOnce() -> Attempt,
    ) -> Option<Result<Connection, Status>> {
        let outcome = self.attempt.get_or_insert_with(begin).outcome().await;
        *self.attempt = None;
        outcome
    }
}

impl Redial {
    pub(crate) fn new(pace: Pace) -> Redial {
        Redial {
            pace,
            state: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            connected: Notify::new(),
        }
    }

    pub(crate) fn pace(&self) -> Pace {
        self.pace
    }

    /// How many attempts have begun so far.
    pub(crate) fn begun(&self) -> AttemptCount {
        AttemptCount(self.state.lock().begun)
    }

    /// Why the latest attempt failed, unless there has been a connection since.
    pub(crate) fn failing(&self) -> Option<Status> {
        self.state.lock().last.clone()
    }

    /// Waits while somebody else waits for an attempt.
    pub(crate) async fn turn(&self) -> RedialTurn<'_> {
        RedialTurn { attempt: self.turn.lock().await }
    }

    /// Waits until the next attempt may be made, for a call that came when so many had `begun`.
    ///
    /// # Errors
    /// Why an attempt failed that began after the call came. Why the latest failed, where the next is far.
    pub(crate) async fn due(&self, _: &RedialTurn<'_>, came: AttemptCount) -> Result<(), Status> {
        let until = {
            let state = self.state.lock();
            if let Some(last) = state.last.as_ref().filter(|_| state.begun > came.0) {
                return Err(last.clone());
            }
            let left = state.until.map_or(Duration::ZERO, |at| at.saturating_duration_since(Instant::now()));
            match (self.pace, &state.last) {
                (Pace::Remote, Some(last)) if !left.is_zero() => return Err(last.clone()),
                (Pace::Local, Some(last)) if left > LOCAL_MAX => return Err(last.clone()),
                (Pace::Remote, _) => None,
                (Pace::Local, _) => state.until,
            }
        };
        if let Some(until) = until {
            tokio::time::sleep_until(until.into()).await;
        }
        Ok(())
    }

    /// An attempt begins.
    pub(crate) fn begin(&self) {
        self.state.lock().begun += 1;
    }

    /// An attempt has failed. Whether that is news.
    pub(crate) fn failed(&self, status: Status, failure: Failure) -> bool {
        let mut state = self.state.lock();
        let is_news = state.last.replace(status).is_none();
        state.fail(Instant::now(), self.pace, failure);
        is_news
    }

    /// An attempt has brought a connection.
    pub(crate) fn succeeded(&self) {
        {
            let mut state = self.state.lock();
            (state.last, state.until, state.since) = (None, None, Some(Instant::now()));
        }
        self.connected.notify_waiters();
    }

    /// The connection is over. One that ended at once counts as a failed attempt, any other makes the next failure the first.
    pub(crate) fn lost(&self) {
        let mut state = self.state.lock();
        match state.since.take() {
            Some(since) if since.elapsed() < PROVEN => {
                state.fail(since, self.pace, Failure::Absent);
            }
            Some(_) => (state.failures, state.refusals) = (0, 0),
            None => {}
        }
    }

    /// How long to wait before the next attempt.
    pub(crate) fn pause(&self) -> Duration {
        let until = self.state.lock().until;
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Waits before an attempt that no call asks for, or until a call's has brought a connection.
    pub(crate) async fn rest(&self) {
        let connected = self.connected.notified();
        tokio::pin!(connected);
        connected.as_mut().enable();
        let pause = {
            let state = self.state.lock();
            match self.pace {
                _ if state.since.is_some() => return,
                Pace::Remote => {
                    state.until.map_or(REMOTE_FIRST, |until| until.saturating_duration_since(Instant::now()))
                }
                Pace::Local => match state.refusals.checked_sub(1) {
                    Some(before) => self.pace.delay_of_refused(before, chance()),
                    None => self.pace.delay_unasked(state.failures, chance()),
                },
            }
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = connected => {}
        }
    }
}

impl State {
    fn fail(&mut self, at: Instant, pace: Pace, failure: Failure) {
        let pause = match failure {
            Failure::Absent => {
                self.refusals = 0;
                pace.delay(self.failures, chance())
            }
            Failure::Refused => {
                self.refusals = self.refusals.saturating_add(1);
                pace.delay_of_refused(self.refusals - 1, chance())
            }
        };
        self.until = Some(at + pause);
        self.failures = self.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A herd: clients that lost the same server at the same time must not come back at the same time.
    #[test]
    fn delays_of_a_herd_are_spread() {
        let mut slots = [0usize; 8];
        for _ in 0..800 {
            let ms = Pace::Local.delay(0, chance()).as_secs_f64() * 1000.0;
            slots[(((ms - 1.0) * 8.0) as usize).min(7)] += 1;
        }
        assert!(slots.iter().all(|count| *count > 20), "{slots:?} of 800 in eighths of the spread");
    }

    #[tokio::test]
    async fn a_call_shares_attempts_that_began_after_it_came_and_no_others() {
        let redial = Redial::new(Pace::Local);
        let first = redial.begun();
        let turn = redial.turn().await;
        redial.due(&turn, first).await.unwrap();
        redial.begin();
        // It came while the first attempt was under way: what that one found may be over.
        let second = redial.begun();
        assert!(redial.failed(Status::unavailable("first"), Failure::Absent));
        assert_eq!(redial.due(&turn, first).await.unwrap_err().message(), "first");
        let began = Instant::now();
        let until = redial.state.lock().until.unwrap();
        redial.due(&turn, second).await.unwrap();
        assert!(Instant::now() >= until && until > began, "the next attempt has its time");
        redial.begin();
        assert!(!redial.failed(Status::unavailable("second"), Failure::Absent));
        assert_eq!(redial.due(&turn, second).await.unwrap_err().message(), "second", "the latest reason");
    }

    #[tokio::test]
    async fn elsewhere_calls_fail_while_a_pause_lasts() {
        let redial = Redial::new(Pace::Remote);
        let turn = redial.turn().await;
        redial.begin();
        redial.failed(Status::unavailable("first"), Failure::Absent);
        assert_eq!(redial.due(&turn, redial.begun()).await.unwrap_err().message(), "first");
    }

    #[tokio::test]
    async fn connections_that_end_at_once_are_made_again_at_a_slower_and_slower_pace() {
        let redial = Redial::new(Pace::Local);
        for count in 1..4 {
            redial.begin();
            redial.succeeded();
            redial.lost();
            assert!(redial.pause() <= Duration::from_millis(2));
            assert_eq!(redial.state.lock().failures, count);
        }
        redial.succeeded();
        redial.state.lock().since = Instant::now().checked_sub(PROVEN);
        redial.lost();
        assert_eq!(redial.pause(), Duration::ZERO);
        assert_eq!(redial.state.lock().failures, 0, "one that lasted has not failed");
    }

    #[tokio::test]
    async fn a_server_that_says_no_is_asked_more_and_more_rarely_and_calls_dont_wait_for_that() {
        let redial = Redial::new(Pace::Local);
        let turn = redial.turn().await;
        for _ in 0..8 {
            redial.begin();
            redial.failed(Status::unavailable("full"), Failure::Refused);
        }
        assert!(redial.pause() > Duration::from_millis(100), "{:?}", redial.pause());
        assert_eq!(redial.due(&turn, redial.begun()).await.unwrap_err().message(), "full");
        redial.begin();
        redial.failed(Status::unavailable("gone"), Failure::Absent);
        assert!(redial.pause() <= LOCAL_MAX, "it is not the same server that comes back");
    }
}
