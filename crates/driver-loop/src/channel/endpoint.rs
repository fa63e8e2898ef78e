//! One server of a channel: whether it is connected, and when it is tried again.

use std::sync::Arc;
use std::time::Duration;

use tollfree_balancer::{Failure, LOCAL_MAX, Look, PROVEN, Pace, Record};
use tollfree_os::clock::now_ns;
use tollfree_rendezvous::Address;

use crate::channel::Health;
use crate::{ChannelState, SessionId};

/// See the module.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: Address,
    record: Option<Arc<Record>>,
    link: Link,
    /// Attempts that failed one after the other, and connections that ended at once.
    failures: u32,
    /// The latest of them, where the server refused.
    refusals: u32,
    /// When the latest attempt that failed had begun, and why it failed. Nothing since there has been a connection.
    failed: Option<(u64, String)>,
    /// What is known of the connected server's health.
    health: Health,
    call_count: u32,
}

#[derive(Clone, Copy, Debug)]
enum Link {
    Idle,
    Connecting {
        session: SessionId,
        began_ns: u64,
    },
    Ready {
        session: SessionId,
        since_ns: u64,
    },
    /// A call may have it tried again from `until_ns` on; where none needs it, that is at `rest_ns`.
    Pausing {
        until_ns: u64,
        rest_ns: u64,
    },
}

/// What follows when a pause may be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Connect,
    /// It is looked at again then.
    At(u64),
    Nothing,
}

impl Endpoint {
    pub(crate) fn new(address: Address, record: Option<Arc<Record>>) -> Endpoint {
        Endpoint {
            address,
            record,
            link: Link::Idle,
            failures: 0,
            refusals: 0,
            failed: None,
            health: Health::Serving,
            call_count: 0,
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Calls under way there.
    pub(crate) fn call_count(&self) -> u32 {
        self.call_count
    }

    /// Whether an attempt may begin for a call.
    pub(crate) fn may_connect(&self, now_ns: u64) -> bool {
        match self.link {
            Link::Idle => true,
            Link::Pausing { until_ns, .. } => until_ns <= now_ns,
            Link::Connecting { .. } | Link::Ready { .. } => false,
        }
    }

    /// Why the latest attempt failed, unless there has been a connection since; or why the connected server may get no calls.
    pub(crate) fn failing_words(&self) -> Option<&str> {
        match (&self.failed, &self.health) {
            (Some((_, words)), _) | (None, Health::Failing(words)) => Some(words),
            (None, Health::Serving | Health::Unknown) => None,
        }
    }

    /// The session that calls are made in, or that is being begun.
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self.link {
            Link::Connecting { session, .. } | Link::Ready { session, .. } => Some(session),
            Link::Idle | Link::Pausing { .. } => None,
        }
    }

    pub(crate) fn state(&self) -> ChannelState {
        match self.link {
            Link::Idle => ChannelState::Idle,
            Link::Connecting { .. } if self.failed.is_some() => ChannelState::TransientFailure,
            Link::Connecting { .. } => ChannelState::Connecting,
            Link::Ready { .. } => match self.health {
                Health::Serving => ChannelState::Ready,
                Health::Unknown => ChannelState::Connecting,
                Health::Failing(_) => ChannelState::TransientFailure,
            },
            Link::Pausing { .. } => ChannelState::TransientFailure,
        }
    }

    /// How it fares for a call that came at a time: it never fails for an attempt that had begun before. An attempt on this host costs
    /// microseconds, so that the call waits for the next, unless that is far.
    pub(crate) fn look(&self, came_ns: u64, now_ns: u64) -> Look<SessionId, String> {
        match (self.link, &self.failed) {
            (Link::Ready { session, .. }, _) => match &self.health {
                Health::Serving => Look::Ready(session),
                Health::Unknown => Look::Waits,
                Health::Failing(words) => Look::Fails(words.clone()),
            },
            (Link::Pausing { until_ns, .. }, Some((began_ns, words)))
                if *began_ns >= came_ns || until_ns.saturating_sub(now_ns) > nanos(LOCAL_MAX) =>
            {
                Look::Fails(words.clone())
            }
            _ => Look::Waits,
        }
    }

    /// An attempt begins.
    pub(crate) fn connecting(&mut self, session: SessionId, now_ns: u64) {
        self.link = Link::Connecting { session, began_ns: now_ns };
    }

    /// The attempt has brought a connection, to a server of this health.
    pub(crate) fn connected(&mut self, health: Health, now_ns: u64) {
        if let Link::Connecting { session, .. } = self.link {
            self.link = Link::Ready { session, since_ns: now_ns };
            self.failed = None;
            self.health = health;
        }
    }

    /// The connected server's health.
    pub(crate) fn settle(&mut self, health: Health) {
        self.health = health;
    }

    /// The attempt has failed, or could not begin. When the next may be made, in nanoseconds.
    pub(crate) fn not_connected(&mut self, failure: Failure, words: String, now_ns: u64) -> u64 {
        let began_ns = match self.link {
            Link::Connecting { began_ns, .. } => began_ns,
            _ => now_ns,
        };
        self.failed = Some((began_ns, words));
        let (pause, rest) = match failure {
            Failure::Absent => {
                self.refusals = 0;
                (
                    Pace::Local.delay(self.failures, chance()),
                    Pace::Local.delay_unasked(self.failures, chance()),
                )
            }
            Failure::Refused => {
                self.refusals = self.refusals.saturating_add(1);
                let pause = Pace::Local.delay_of_refused(self.refusals - 1, chance());
                (pause, pause)
            }
        };
        self.failures = self.failures.saturating_add(1);
        let until_ns = now_ns + nanos(pause);
        self.link = Link::Pausing { until_ns, rest_ns: until_ns.max(now_ns + nanos(rest)) };
        until_ns
    }

    /// The connection is over, or takes no more calls. `Some`: it ended at once, and the next may be made then.
    pub(crate) fn lost(&mut self, now_ns: u64) -> Option<u64> {
        self.health = Health::Serving;
        let is_proven = match self.link {
            Link::Ready { since_ns, .. } => now_ns.saturating_sub(since_ns) >= nanos(PROVEN),
            _ => true,
        };
        if is_proven {
            (self.failures, self.refusals, self.link) = (0, 0, Link::Idle);
            return None;
        }
        let pause = Pace::Local.delay(self.failures, chance());
        self.failures = self.failures.saturating_add(1);
        let until_ns = now_ns + nanos(pause);
        self.link = Link::Pausing { until_ns, rest_ns: until_ns };
        Some(until_ns)
    }

    /// A pause may be over. `is_needed`: calls wait for it; `stays`: it is to be connected where none does, too.
    pub(crate) fn due(&mut self, now_ns: u64, is_needed: bool, stays: bool) -> Next {
        let Link::Pausing { until_ns, rest_ns } = self.link else { return Next::Nothing };
        let due_ns = if is_needed { until_ns } else { rest_ns };
        match (due_ns <= now_ns, is_needed || stays) {
            (_, false) => {
                self.link = Link::Idle;
                Next::Nothing
            }
            (true, true) => Next::Connect,
            (false, true) => Next::At(due_ns),
        }
    }

    /// A call was placed there.
    pub(crate) fn call_begins(&mut self) {
        self.call_count += 1;
    }

    /// A call that was placed there has ended, or left.
    pub(crate) fn call_ended(&mut self, code: Option<u16>) {
        self.call_count = self.call_count.saturating_sub(1);
        match (&self.record, code) {
            (Some(record), Some(0)) => record.succeeded(),
            (Some(record), Some(_)) => record.failed(),
            _ => {}
        }
    }
}

/// Up to 584 years.
fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().min(u64::MAX.into()) as u64
}

/// A number from 0 to 1, different for each call and process. Good enough to spread things in time, for nothing else.
pub(crate) fn chance() -> f64 {
    let noise = now_ns() ^ u64::from(std::process::id()) << 32;
    (noise.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1_u64 << 24) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn endpoint() -> Endpoint {
        Endpoint::new("shm:///tmp/x.sock".parse().unwrap(), None)
    }

    fn session(idx: u32) -> SessionId {
        SessionId { idx, generation: 1 }
    }

    #[test]
    fn a_call_fails_only_for_an_attempt_that_began_after_it_came() {
        let mut endpoint = endpoint();
        assert!(matches!(endpoint.look(10, 10), Look::Waits) && endpoint.may_connect(10));
        endpoint.connecting(session(1), 20);
        let until_ns = endpoint.not_connected(Failure::Absent, "nobody".into(), 30);
        assert!((30 + MS..=30 + 2 * MS).contains(&until_ns));
        assert!(matches!(endpoint.look(20, 31), Look::Fails(words) if words == "nobody"));
        assert!(matches!(endpoint.look(21, 31), Look::Waits), "the next is near");
        assert_eq!(endpoint.due(until_ns - 1, true, false), Next::At(until_ns));
        assert_eq!(endpoint.state(), ChannelState::TransientFailure);
        assert_eq!(endpoint.due(until_ns, true, false), Next::Connect);
        assert!(endpoint.may_connect(until_ns) && !endpoint.may_connect(until_ns - 1));
        endpoint.connecting(session(2), until_ns);
        assert_eq!(endpoint.state(), ChannelState::TransientFailure, "until it is connected");
        endpoint.connected(Health::Serving, until_ns + 1);
        assert!(matches!(endpoint.look(0, 0), Look::Ready(at) if at == session(2)));
    }

    #[test]
    fn calls_dont_wait_for_a_server_that_refuses_again_and_again() {
        let mut endpoint = endpoint();
        let mut until_ns = 0;
        for count in 0..12 {
            endpoint.connecting(session(count), until_ns);
            until_ns = endpoint.not_connected(Failure::Refused, "full".into(), until_ns);
        }
        let now_ns = until_ns - 400 * MS;
        assert!(matches!(endpoint.look(u64::MAX, now_ns), Look::Fails(words) if words == "full"));
    }

    #[test]
    fn a_connection_that_ends_at_once_counts_as_a_failure_and_one_that_lasted_as_none() {
        let mut endpoint = endpoint();
        endpoint.connecting(session(1), 0);
        endpoint.connected(Health::Serving, 0);
        assert!(endpoint.lost(MS).is_some());
        endpoint.connecting(session(2), 2 * MS);
        endpoint.connected(Health::Serving, 2 * MS);
        assert_eq!(endpoint.lost(100 * MS), None);
        assert!(endpoint.may_connect(0));
    }

    #[test]
    fn without_calls_attempts_get_rarer_or_end() {
        let mut endpoint = endpoint();
        let mut now_ns = 0;
        for count in 0..400 {
            endpoint.connecting(session(count), now_ns);
            now_ns = endpoint.not_connected(Failure::Absent, "nobody".into(), now_ns);
        }
        let Next::At(rest_ns) = endpoint.due(now_ns, false, true) else { panic!("it rests") };
        assert!(rest_ns > now_ns + 100 * MS, "{}", rest_ns - now_ns);
        assert!(endpoint.may_connect(now_ns), "for a call that comes meanwhile");
        assert_eq!(endpoint.due(rest_ns, false, true), Next::Connect);
        assert_eq!(endpoint.due(now_ns, false, false), Next::Nothing);
        assert_eq!(endpoint.state(), ChannelState::Idle);
    }
}
