//! When frames that are staged become visible to the peer, and when it is rung.
//!
//! Frames that are published together cost one store, one look at the peer's word, and one doorbell. They wait for each other where
//! somebody is about to look at the ring anyway, or the accepting task has further calls at hand; and in a shepherd, where a
//! connection's requests become tasks of one round of the runtime, until all of these had their turn: then the driver publishes.
//! A `LowLatency` session doesn't gather. Replies of handlers that take long wait for nobody.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollfree_kill_points::{Point, here};
use tollfree_layout::control::ASKED_OFF;
use tollfree_region::{Region, WriteMemory};
use tollfree_ring::RecordSender;

use crate::clock::now_ns;
use crate::core::Core;
use crate::registers::{Announced, Registers};
use crate::shared::Socket;

/// Emissions held back at most before they are published together, unless the peer asks for another number.
pub(crate) const HELD_COUNT_MAX: u32 = 8;
/// The same for those that are gathered from the tasks of one round.
const GATHERED_COUNT_MAX: u32 = 64;
/// Replies of handlers that take longer than this are published at once: some times what a doorbell costs, in nanoseconds.
const LONG_NS: u64 = 20_000;
/// Batches of replies for each of which the clock is read, while handlers are quick.
const BATCHES_TIMED: u8 = 16;

/// How long handlers take whose replies could wait for each other.
#[derive(Debug, Default)]
pub(crate) struct ReplyTimes {
    is_long: bool,
    /// When the last reply was staged; 0: it is not known, or calls have not followed each other since.
    replied_ns: u64,
    untimed_count: u8,
}

impl ReplyTimes {
    /// A reply was staged, and further calls are at hand. Whether handlers take long, so that it should not wait for their replies.
    fn replied(&mut self, now_ns: impl FnOnce() -> u64) -> bool {
        if !self.is_long && self.untimed_count > 0 {
            return false;
        }
        let now_ns = now_ns();
        let before_ns = std::mem::replace(&mut self.replied_ns, now_ns);
        if before_ns != 0 {
            self.is_long = now_ns.saturating_sub(before_ns) >= LONG_NS;
        }
        self.is_long
    }

    /// What waited was published.
    fn published(&mut self) {
        if !self.is_long {
            self.untimed_count = self.untimed_count.checked_sub(1).unwrap_or(BATCHES_TIMED - 1);
            self.replied_ns = 0;
        }
    }

    /// No further call is at hand: what comes next says nothing about how long a handler takes.
    pub(crate) fn pause(&mut self) {
        self.replied_ns = 0;
    }
}

/// After so many rounds in a row that gathered one emission, a call that is under way alone is published at once.
const LONE_ROUNDS: u32 = 8;

/// How emissions are gathered, and rings put off, as the registers say.
#[derive(Debug)]
pub(crate) struct Gathering {
    /// Whether they are gathered where nothing else is said.
    by_itself: bool,
    /// Where this side says what it asks for.
    asking: Option<Arc<Region>>,
    /// So many are published together; `None`: those of a round.
    fixed: Option<u32>,
    /// So many share a doorbell.
    ring_batch: u32,
    hold_ns: u64,
    /// When the first of those that wait for a fixed number came; 0: none waits.
    held_since_ns: u64,
    /// Published to a peer that sleeps, and not rung for.
    unrung_count: u32,
    /// Since when; 0: all is rung for.
    unrung_since_ns: u64,
    /// Rounds in a row that gathered one emission.
    lone_rounds: u32,
    announced: Announced,
}

impl Gathering {
    pub(crate) fn new(by_itself: bool, asking: Option<Arc<Region>>) -> Gathering {
        Gathering {
            by_itself,
            asking,
            fixed: None,
            ring_batch: 1,
            hold_ns: 0,
            held_since_ns: 0,
            unrung_count: 0,
            unrung_since_ns: 0,
            lone_rounds: 0,
            announced: Announced::default(),
        }
    }
}

impl Core {
    /// Makes everything staged visible, together with small frames that wait, and rings when the peer sleeps.
    #[inline]
    pub(crate) fn flush(&mut self, socket: &Socket) {
        let wanted =
            self.sending.area.is_wanted() || self.session.has_pending() || self.session.has_bytes_to_give();
        if wanted { self.flush_all(socket) } else { self.publish(socket) }
    }

    #[inline(never)]
    fn flush_all(&mut self, socket: &Socket) {
        if self.sending.area.is_wanted() {
            self.make_area(socket);
        }
        if self.session.has_pending() {
            let _ = self.session.stage_pending(&mut self.sending);
        }
        // One piece at a time, and where the longest record finds room: others have their turn between.
        if self.session.has_bytes_to_give() && self.room_came() {
            self.session.give_bytes(&mut self.sending);
        }
        self.publish(socket);
        if self.session.has_pending() && !self.waiters.is_polled() && !self.arm() {
            // Room or records came while the doorbell was being armed: others may count on it, so the driver looks.
            self.nudge = true;
        }
    }

    /// Like [`flush`](Core::flush), but leaves the publishing to others where some will do it soon.
    /// [`Entered`](crate::shared::Entered) publishes what nobody would.
    pub(crate) fn flush_soon(&mut self, socket: &Socket) {
        self.held_count += 1;
        if let Some(fixed) = self.batching.fixed {
            return self.hold(fixed, socket);
        }
        let most = if self.gathering { GATHERED_COUNT_MAX } else { self.held_max };
        if self.held_count >= most || (self.corked && self.reply_times.replied(now_ns)) {
            self.flush(socket);
        } else if !self.holds_back() {
            if !self.gathers || self.waiters.list.is_empty() || self.is_lone() {
                self.flush(socket);
            } else {
                self.gathering = true;
                self.nudge = true;
            }
        }
    }

    /// Holds emissions until there is a fixed number of them, or until the first has waited for as long as it may.
    fn hold(&mut self, fixed: u32, socket: &Socket) {
        if self.held_count >= fixed || self.waiters.list.is_empty() {
            self.flush(socket);
        } else if !self.gathering {
            self.gathering = true;
            self.batching.held_since_ns = now_ns();
            self.nudge = true;
        }
    }

    /// Whether the only call under way is one for which gathering has brought nothing lately.
    #[inline]
    pub(crate) fn is_lone(&self) -> bool {
        self.batching.lone_rounds >= LONE_ROUNDS && self.session.live_count() <= 1
    }

    /// A round is over: what was gathered may go, and what is published may be rung for, unless that is to wait for more.
    /// Whether it is: the driver looks again when others have had their turn.
    pub(crate) fn round_ended(&mut self, socket: &Socket) -> bool {
        let batching = &mut self.batching;
        if self.gathering && batching.fixed.is_none() {
            batching.lone_rounds =
                if self.held_count <= 1 { batching.lone_rounds.saturating_add(1) } else { 0 };
        }
        if batching.held_since_ns == 0 && batching.unrung_since_ns == 0 {
            return false;
        }
        let now_ns = now_ns();
        let is_due = |since_ns: u64| now_ns.saturating_sub(since_ns) >= batching.hold_ns;
        let (publishes, rings) = (is_due(batching.held_since_ns), is_due(batching.unrung_since_ns));
        if publishes && self.gathering {
            self.flush(socket);
        }
        if rings && self.batching.unrung_since_ns != 0 {
            self.ring_for_all(socket);
        }
        self.is_holding()
    }

    /// Whether something waits for more, which the driver sees to.
    fn is_holding(&self) -> bool {
        self.batching.held_since_ns != 0 || self.batching.unrung_since_ns != 0
    }

    /// Publishes, and rings for, all that was to wait for more: nobody would see to it any more.
    pub(crate) fn hold_nothing(&mut self, socket: &Socket) {
        if self.gathering || self.batching.held_since_ns != 0 {
            self.gathering = false;
            self.flush(socket);
        }
        if self.batching.unrung_since_ns != 0 {
            self.ring_for_all(socket);
        }
    }

    /// Announces requests in another way from now on, and asks the peer to wait for them so.
    pub(crate) fn set_registers(&mut self, registers: &Registers, socket: &Socket) {
        self.hold_nothing(socket);
        let batching = &mut self.batching;
        batching.fixed = registers.fixed_batch().map(u32::from);
        batching.ring_batch = registers.ring_batch();
        batching.hold_ns = registers.hold.as_nanos().min(u128::from(u64::MAX)) as u64;
        batching.lone_rounds = 0;
        self.gathers = batching.by_itself && batching.fixed.is_none_or(|fixed| fixed > 1);
        if let Some(own) = &batching.asking {
            own.store_u64(ASKED_OFF, registers.asked().word(), Ordering::Relaxed);
        }
    }

    /// What was announced to the peer so far.
    pub(crate) fn announced(&self) -> Announced {
        self.batching.announced
    }

    /// Whether something is to be done when the lock is released.
    #[inline]
    pub(crate) fn has_duties(&self) -> bool {
        (self.held_count > 0 && !self.holds_back())
            || self.nudge
            || !self.wakes.is_empty()
            || self.session.has_spent()
            || self.wants_rope_watch()
    }

    /// Whether somebody will publish soon.
    pub(crate) fn holds_back(&self) -> bool {
        self.corked || self.gathering || self.waiters.is_polled()
    }

    fn publish(&mut self, socket: &Socket) {
        if self.corked {
            self.reply_times.published();
        }
        // What is published as soon as it is written was not held.
        let count = std::mem::take(&mut self.held_count).max(1);
        self.gathering = false;
        self.batching.held_since_ns = 0;
        let is_loud = std::mem::take(&mut self.sending.is_loud);
        if !self.sending.ring.publish() || !is_loud {
            return;
        }
        self.batching.announced.publications += 1;
        self.batching.announced.emissions += u64::from(count);
        if self.batching.ring_batch > 1 {
            return self.put_ring_off(count, socket);
        }
        let rings = self.ringer.should_ring();
        self.wait.spoke(rings);
        if rings {
            self.ring_now(socket);
        }
    }

    /// Something was published whose ring is to be for more than that.
    #[inline(never)]
    fn put_ring_off(&mut self, count: u32, socket: &Socket) {
        let sleeps = self.ringer.is_peer_parked();
        self.wait.spoke(sleeps);
        if !sleeps {
            // It looks at the ring before it sleeps, and finds this and what was published before.
            (self.batching.unrung_count, self.batching.unrung_since_ns) = (0, 0);
            return;
        }
        self.batching.unrung_count += count.max(1);
        if self.batching.unrung_count >= self.batching.ring_batch || self.waiters.list.is_empty() {
            self.ring_for_all(socket);
        } else if self.batching.unrung_since_ns == 0 {
            self.batching.unrung_since_ns = now_ns();
            self.nudge = true;
        }
    }

    /// Rings for all that was published and not rung for, if the peer still sleeps.
    fn ring_for_all(&mut self, socket: &Socket) {
        (self.batching.unrung_count, self.batching.unrung_since_ns) = (0, 0);
        if self.ringer.should_ring() {
            self.ring_now(socket);
        }
    }

    fn ring_now(&mut self, socket: &Socket) {
        self.batching.announced.rings += 1;
        here(Point::DoorbellDue);
        self.ring(socket);
        here(Point::DoorbellRung);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use tollfree_session::{Emission, Ending};

    use super::{BATCHES_TIMED, HELD_COUNT_MAX, LONG_NS, ReplyTimes};
    use crate::{Address, Attachment, Config, Introduction, Listener, Opening, WaitPolicy};

    /// Replies of handlers that take so long, until eight wait or one is not to: how many went together, and readings of the clock.
    fn batch(times: &mut ReplyTimes, now_ns: &mut u64, handler_ns: u64) -> (u32, u32) {
        let mut readings = 0;
        for count in 1.. {
            *now_ns += handler_ns;
            let is_long = times.replied(|| {
                readings += 1;
                *now_ns
            });
            if is_long || count == HELD_COUNT_MAX {
                times.published();
                return (count, readings);
            }
        }
        unreachable!()
    }

    #[test]
    fn replies_wait_for_those_of_quick_handlers_only() {
        let (mut times, mut now_ns) = (ReplyTimes::default(), 1);
        assert_eq!(batch(&mut times, &mut now_ns, 100), (HELD_COUNT_MAX, HELD_COUNT_MAX));
        let quick: Vec<_> = (0..BATCHES_TIMED).map(|_| batch(&mut times, &mut now_ns, 100)).collect();
        assert!(quick.iter().all(|(count, _)| *count == HELD_COUNT_MAX));
        assert_eq!(quick.iter().filter(|(_, readings)| *readings > 0).count(), 1, "in one batch of many");

        let slow: Vec<_> =
            (0..30).map(|_| batch(&mut times, &mut now_ns, LONG_NS)).map(|(count, _)| count).collect();
        let first = slow.iter().position(|count| *count < HELD_COUNT_MAX).unwrap();
        assert!(first < usize::from(BATCHES_TIMED), "{slow:?}");
        assert_eq!(slow[first], 2, "the first says how long the second took");
        assert!(slow[first + 1..].iter().all(|count| *count == 1), "{slow:?}");

        // A pause is no handler's time, and changes nothing.
        times.pause();
        assert_eq!(batch(&mut times, &mut now_ns, 1_000 * LONG_NS), (1, 1));
        assert_eq!(batch(&mut times, &mut now_ns, 100).0, HELD_COUNT_MAX, "they are quick again");
    }

    /// Frames that wait after each of a server's replies, while further calls are at hand. A handler takes so long.
    async fn held_by_handlers(busy: Duration) -> Vec<u32> {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("server.sock"));
        let mut listener = Listener::bind(&address, Config::default()).unwrap();
        let config = Config::default();
        let (client, server) = tokio::join!(Attachment::connect(&address, &config), listener.accept());
        let (client, server) = (client.unwrap(), server.unwrap());
        let mut calls = Vec::new();
        for _ in 0..20 {
            let opening = Opening { path: "/test.Echo/Call", deadline_ns: 0 };
            let mut emission = Emission { ending: Some(Ending::HalfClose), ..Emission::default() };
            let mut opener = client.open();
            calls.push(poll_fn(|cx| opener.poll_open(cx, opening, &mut emission)).await.unwrap());
        }
        let mut held = Vec::new();
        let mut place = None;
        poll_fn(|cx| server.poll_accept(cx, &mut place)).await.unwrap();
        while let Some(mut accepted) = place.take() {
            std::thread::sleep(busy);
            let ending = Ending::Trailers { code: 0, block: Bytes::new() };
            let mut emission = Emission { ending: Some(ending), ..Emission::default() };
            assert!(accepted.reply(&mut emission).unwrap());
            held.push(server.shared.enter().unwrap().held_count);
            if !server.try_accept(&mut place) {
                break;
            }
        }
        held
    }

    #[tokio::test]
    async fn a_reply_does_not_wait_for_those_of_handlers_that_take_long() {
        let held = held_by_handlers(Duration::ZERO).await;
        assert!(held.iter().any(|count| *count > 1), "{held:?}");
        let held = held_by_handlers(Duration::from_nanos(5 * LONG_NS)).await;
        assert!(held[1..].iter().all(|count| *count == 0), "{held:?}");
    }

    /// Frames that are staged and not published after each of ten calls that ten tasks begin in one round of the runtime; all
    /// arrive.
    async fn held_by_ten(wait: WaitPolicy) -> Vec<u32> {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("shepherd.sock"));
        let config = Config { is_shepherd: true, wait, ..Config::default() };
        let mut listener = Listener::bind(&address, config).unwrap();
        let introduction = Introduction::new("group", vec!["test.Echo".to_owned()]).unwrap();
        let business = Config { wait: WaitPolicy::Park, ..Config::default() };
        let business = Attachment::attach(&address, &business, introduction).await.unwrap();
        let shepherd = Arc::new(listener.accept().await.unwrap());
        let calls: Vec<_> = (0..10)
            .map(|_| {
                let shepherd = shepherd.clone();
                tokio::spawn(async move {
                    let opening = Opening { path: "/test.Echo/Call", deadline_ns: 0 };
                    let mut emission = Emission { ending: Some(Ending::HalfClose), ..Emission::default() };
                    let mut opener = shepherd.open();
                    let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut emission)).await.unwrap();
                    let held_count = shepherd.shared.enter().unwrap().held_count;
                    (stream, held_count)
                })
            })
            .collect();
        let mut held = Vec::new();
        let mut streams = Vec::new();
        for call in calls {
            let (stream, held_count) = call.await.unwrap();
            streams.push(stream);
            held.push(held_count);
        }
        for _ in 0..10 {
            let mut place = None;
            let accepted = poll_fn(|cx| business.poll_accept(cx, &mut place));
            tokio::time::timeout(Duration::from_secs(20), accepted).await.expect("it is published").unwrap();
        }
        assert_eq!(shepherd.shared.enter().unwrap().held_count, 0);
        held
    }

    #[tokio::test]
    async fn calls_of_one_round_are_published_together_by_a_shepherd_that_does_not_ask_for_low_latency() {
        assert_eq!(held_by_ten(WaitPolicy::Park).await, (1..=10).collect::<Vec<_>>());
        assert!(held_by_ten(WaitPolicy::LowLatency).await.into_iter().all(|held_count| held_count <= 1));
    }
}
