//! Backend connections that hang: which take no calls, though there are some for them, and when they return.
//!
//! # The sign
//! A backend connection hangs when there is something for it to take, and nothing of what its gateway sees of it has changed for
//! `load_balancing.hang_ms` ([`PeerActivity`]): it was rung and sleeps on, or is awake and neither reads nor answers. A long handler is no such
//! sign: its process takes other calls meanwhile, or sleeps with nothing to take. A process of one thread whose handler blocks it does hang:
//! others take what it would not.
//!
//! # What follows
//! One that has stood still from one look to the next gets calls only where no other takes them, without a word: such pauses are short mostly.
//! One that hangs gets no new calls, and those of which nothing was sent go to others. It is looked at until it moves again, and then gets calls
//! slowly: one at once, twice as many with each look.
//!
//! # When it is looked
//! While there are calls under way, and only then: a call that begins wakes the watch. Where nothing is to be taken, as while streams are
//! silent, looks are rare.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tollfree::gateway::{PeerActivity, RateLimitedLog};
use tollfree_balancer::Event;

use crate::backend_connections::BackendConnections;
use crate::metrics::Metrics;

/// From one look to the next while something is to be taken.
const TICK: Duration = Duration::from_millis(20);
/// The same while calls are under way of which nothing is to be taken.
const REST: Duration = Duration::from_secs(1);

static HANGS: RateLimitedLog = RateLimitedLog::new();
static EJECTED: RateLimitedLog = RateLimitedLog::new();
static RETURNED: RateLimitedLog = RateLimitedLog::new();

/// A change that a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HangTurn {
    /// It takes no calls any more.
    Hangs,
    /// It takes calls again.
    Returned,
}

/// How soon the next look is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LookPace {
    /// With the next call that begins.
    WithACall,
    /// Now and then.
    Rarely,
    /// At once.
    Soon,
}

/// What is known of one backend connection.
#[derive(Debug, Default)]
pub(crate) struct Hang {
    seen: Mutex<Seen>,
    is_hung: AtomicBool,
    /// It stood still when it was looked at last.
    stands: AtomicBool,
    told: Notify,
}

#[derive(Debug, Default)]
struct Seen {
    last: Option<PeerActivity>,
    /// For how long it has stood still with something to take.
    stood: Duration,
}

impl Hang {
    pub(crate) fn is_hung(&self) -> bool {
        self.is_hung.load(Ordering::Relaxed)
    }

    /// Whether others should rather have calls: it stood still when it was looked at last.
    pub(crate) fn stands_still(&self) -> bool {
        self.stands.load(Ordering::Relaxed)
    }

    /// Resolves when it hangs.
    pub(crate) async fn hung(&self) {
        loop {
            let told = self.told.notified();
            tokio::pin!(told);
            // From here on no change is missed.
            told.as_mut().enable();
            if self.is_hung() {
                return;
            }
            told.await;
        }
    }

    /// Looks, `since` so long after the last look. What stands still for `limit` hangs; a limit of zero is none.
    pub(crate) fn look(
        &self,
        activity: Option<PeerActivity>,
        since: Duration,
        limit: Duration,
    ) -> (Option<HangTurn>, LookPace) {
        let mut seen = self.seen.lock();
        let before = seen.last;
        seen.last = activity;
        let Some(activity) = activity.filter(|_| !limit.is_zero()) else {
            seen.stood = Duration::ZERO;
            self.stands.store(false, Ordering::Relaxed);
            return (
                self.is_hung.swap(false, Ordering::Relaxed).then_some(HangTurn::Returned),
                LookPace::Rarely,
            );
        };
        // What was published just now has had no time yet: it counts from the look that sees it first.
        let stands = activity.is_due
            && before.is_some_and(|before| before.is_due && activity.stands_still_since(&before));
        self.stands.store(stands, Ordering::Relaxed);
        if !stands {
            seen.stood = Duration::ZERO;
            let returned = self.is_hung.swap(false, Ordering::Relaxed).then_some(HangTurn::Returned);
            return (returned, if activity.is_due { LookPace::Soon } else { LookPace::Rarely });
        }
        // A look that comes late has stood still itself: only as much counts as it should have been.
        seen.stood += since.min(2 * TICK);
        if seen.stood < limit || self.is_hung.swap(true, Ordering::Relaxed) {
            return (None, LookPace::Soon);
        }
        self.told.notify_waiters();
        (Some(HangTurn::Hangs), LookPace::Soon)
    }
}

/// Wakes the watch when a call begins.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    rests: AtomicBool,
    call: Notify,
}

impl Watch {
    /// A call has begun, and is counted as under way.
    #[inline]
    pub(crate) fn call_begins(&self) {
        // Sequentially consistent, as is the count of calls under way: either this sees that the watch rests, or the watch sees the call.
        if self.rests.load(Ordering::SeqCst) && self.rests.swap(false, Ordering::SeqCst) {
            self.call.notify_one();
        }
    }

    /// The watch looks now: of a call that begins from here on it is told.
    fn looks(&self) {
        self.rests.store(true, Ordering::SeqCst);
    }
}

/// Looks at all backend connections, until it is dropped.
pub(crate) async fn watch(backend_connections: Arc<BackendConnections>, metrics: Arc<Metrics>) {
    let mut looked = Instant::now();
    loop {
        let watch = backend_connections.watch();
        watch.looks();
        let since = looked.elapsed();
        looked = Instant::now();
        match look(&backend_connections, &metrics, since) {
            LookPace::Soon => {}
            LookPace::Rarely => _ = tokio::time::timeout(REST, watch.call.notified()).await,
            LookPace::WithACall => watch.call.notified().await,
        }
        tokio::time::sleep(TICK).await;
    }
}

/// Looks which backend connections take no calls, `since` so long after the last look, and lets those return that do again.
fn look(backend_connections: &Arc<BackendConnections>, metrics: &Metrics, since: Duration) -> LookPace {
    let mut pace = LookPace::WithACall;
    for backend_connection in backend_connections.all() {
        let (load, dispatcher) = (backend_connection.load(), backend_connection.dispatcher());
        if load.grow() {
            backend_connections.serve_waiting(dispatcher);
            pace = LookPace::Soon;
        }
        let hang = backend_connection.hang();
        // One that stood still is looked at until it moves, though it may have no call any more.
        if load.outstanding() == 0 && !hang.is_hung() && !hang.stands_still() {
            continue;
        }
        let (attached, limit) = (backend_connection.attached(), dispatcher.rules.hang());
        let (turn, next) = hang.look(attached.activity(), since, limit);
        pace = pace.max(next);
        match turn {
            None => continue,
            Some(HangTurn::Hangs) => {
                metrics.hangs(attached.group()).inc();
                if let Some(unsaid) = HANGS.turn() {
                    tracing::warn!(
                        backend_connection = attached.name(),
                        outstanding = load.outstanding(),
                        after_ms = limit.as_millis() as u64,
                        unsaid,
                        "it hangs: it takes no calls from its ring, and gets no more until it does"
                    );
                }
            }
            Some(HangTurn::Returned) => {
                load.begin_slowly();
                pace = LookPace::Soon;
                if let Some(unsaid) = RETURNED.turn() {
                    tracing::info!(backend_connection = attached.name(), unsaid, "it takes calls again");
                }
            }
        }
        backend_connections.turned(dispatcher);
    }
    for dispatcher in backend_connections.dispatchers() {
        let (events, any) = dispatcher.outliers.sweep();
        // An ejected one returns without a call, too.
        pace = pace.max(if any { LookPace::Rarely } else { LookPace::WithACall });
        for event in events {
            tell_ejection(backend_connections, metrics, &dispatcher.group, &event);
        }
    }
    pace
}

fn tell_ejection(backend_connections: &BackendConnections, metrics: &Metrics, group: &str, event: &Event) {
    let name = |number: &str| {
        let all = backend_connections.all();
        let named = all.iter().find(|other| other.load().id().to_string() == number);
        named.map_or_else(String::new, |named| named.attached().name().to_owned())
    };
    match event {
        Event::Ejected { address, cause, for_ns } => {
            metrics.ejections(group).inc();
            if let Some(unsaid) = EJECTED.turn() {
                let (backend_connection, for_ms) = (name(address), for_ns / 1_000_000);
                tracing::warn!(backend_connection, ?cause, for_ms, unsaid, "it is ejected: its calls fail");
            }
        }
        Event::Returned { address } => {
            if let Some(unsaid) = RETURNED.turn() {
                tracing::info!(backend_connection = name(address), unsaid, "it takes calls again");
            }
        }
    }
}
