//! When frames that are staged become visible to the peer, and when it is rung.
//!
//! Frames that are published together cost one store, one look at the peer's word, and one doorbell. They wait for each other where
//! somebody is about to look at the ring anyway, or the accepting task has further calls at hand; and where an end *gathers*, as one does
//! whose calls become tasks of one round of a runtime, until all of these had their turn: then the driver publishes. Replies of handlers
//! that take long wait for nobody. A number of frames may be fixed, and so may how many share a doorbell: then each waits for
//! others no longer than it was told to.

use crate::constants::{BATCHES_TIMED, GATHERED_COUNT_MAX, HELD_COUNT_MAX, LONE_ROUNDS, LONG_HANDLER_NS};

/// What becomes of something that was staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staged {
    /// Publish it, with all that waits.
    Publish,
    /// Somebody will publish it soon.
    Held,
    /// The same, and the driver has to be told, for it is who will.
    LeftToDriver,
}

/// Whether the peer is rung for what was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    /// Ring if it sleeps.
    IfAsleep,
    /// It looks, and finds it.
    Awake,
    /// It sleeps, and the ring is to be for more than this.
    Held,
    /// The same, and the driver has to be told.
    LeftToDriver,
}

/// What is due when the tasks that were ready have had their turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoundEnd {
    /// Publish what was held.
    pub(crate) publishes: bool,
    /// Ring for what was published.
    pub(crate) rings: bool,
}

/// Who else is there when something is staged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Others {
    /// Somebody looks at the ring, and publishes when it has found nothing.
    pub(crate) look: bool,
    /// There is a driver, which can be told.
    pub(crate) drive: bool,
    /// Calls under way.
    pub(crate) call_count: u32,
}

/// Counts what was announced to the peer, since the session began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Announced {
    /// Times that something was published.
    pub publications: u64,
    /// What was published then: requests, parts of them, and the like.
    pub sends: u64,
    /// Times that the peer was rung for it.
    pub rings: u64,
}

/// How long handlers take whose replies could wait for each other.
#[derive(Debug, Default)]
struct ReplyTimes {
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
            self.is_long = now_ns.saturating_sub(before_ns) >= LONG_HANDLER_NS;
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
    fn pause(&mut self) {
        self.replied_ns = 0;
    }
}

/// What one end has staged and not published, or published and not rung for. Times are nanoseconds of a monotonic clock of the driver's.
#[derive(Debug)]
pub(crate) struct PublishPlanner {
    /// Records whose frames are staged and not published.
    held_count: u32,
    /// So many are published while further calls are at hand.
    held_max: u32,
    /// The accepting task has further calls at hand and holds replies back until it has seen to them.
    is_corked: bool,
    reply_times: ReplyTimes,
    /// Whether frames are gathered where no number is fixed.
    gathers_by_itself: bool,
    /// Some are held until the driver publishes them.
    is_gathering: bool,
    /// Rounds in a row that gathered one outgoing.
    lone_rounds: u32,
    /// So many are published together; `None`: those of a round.
    fixed: Option<u32>,
    /// So many share a doorbell.
    ring_batch: u32,
    /// One waits no longer than this for others, where a number is fixed.
    hold_ns: u64,
    /// When the first outgoing came that waits for a fixed number; 0: none waits.
    held_since_ns: u64,
    /// Published to a peer that sleeps, and not rung for.
    unrung_count: u32,
    /// Since when; 0: all is rung for.
    unrung_since_ns: u64,
    announced: Announced,
}

impl PublishPlanner {
    /// Of a session in which nothing was said; `gathers`: see the module.
    pub(crate) fn new(gathers: bool) -> PublishPlanner {
        PublishPlanner {
            held_count: 0,
            held_max: HELD_COUNT_MAX,
            is_corked: false,
            reply_times: ReplyTimes::default(),
            gathers_by_itself: gathers,
            is_gathering: false,
            lone_rounds: 0,
            fixed: None,
            ring_batch: 1,
            hold_ns: 0,
            held_since_ns: 0,
            unrung_count: 0,
            unrung_since_ns: 0,
            announced: Announced::default(),
        }
    }

    /// Whether something is staged and not published.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        self.held_count > 0
    }

    /// How much.
    pub(crate) fn held_count(&self) -> u32 {
        self.held_count
    }

    /// Whether the driver is to publish what is held.
    #[inline]
    pub(crate) fn is_gathering(&self) -> bool {
        self.is_gathering
    }

    /// Whether somebody will publish soon.
    #[inline]
    pub(crate) fn will_be_published(&self, others_look: bool) -> bool {
        self.is_corked || self.is_gathering || others_look
    }

    /// Whether a call that begins now is published at once, by itself.
    #[inline]
    pub(crate) fn goes_alone(&self, call_count: u32) -> bool {
        !self.gathers() || self.is_lone(call_count)
    }

    #[inline]
    fn gathers(&self) -> bool {
        self.gathers_by_itself && self.fixed.is_none_or(|fixed| fixed > 1)
    }

    /// Whether the only call under way is one for which gathering has brought nothing lately.
    #[inline]
    fn is_lone(&self, call_count: u32) -> bool {
        self.lone_rounds >= LONE_ROUNDS && call_count <= 1
    }

    /// A call was taken; `has_more`: others are at hand.
    #[inline]
    pub(crate) fn took_call(&mut self, has_more: bool) {
        self.is_corked = has_more;
    }

    /// No call is at hand.
    #[inline]
    pub(crate) fn no_call(&mut self) {
        self.is_corked = false;
        self.reply_times.pause();
    }

    /// Something was staged.
    #[inline]
    pub(crate) fn staged(&mut self, others: Others, now_ns: impl FnOnce() -> u64) -> Staged {
        self.held_count += 1;
        if let Some(fixed) = self.fixed {
            return self.held_for(fixed, others, now_ns);
        }
        let most = if self.is_gathering { GATHERED_COUNT_MAX } else { self.held_max };
        if self.held_count >= most || (self.is_corked && self.reply_times.replied(now_ns)) {
            Staged::Publish
        } else if self.will_be_published(others.look) {
            Staged::Held
        } else if !others.drive || self.goes_alone(others.call_count) {
            Staged::Publish
        } else {
            self.is_gathering = true;
            Staged::LeftToDriver
        }
    }

    /// Something waits until there is a fixed number, or until the first has waited for as long as it may.
    fn held_for(&mut self, fixed: u32, others: Others, now_ns: impl FnOnce() -> u64) -> Staged {
        if self.held_count >= fixed || !others.drive {
            Staged::Publish
        } else if self.is_gathering {
            Staged::Held
        } else {
            self.is_gathering = true;
            self.held_since_ns = now_ns();
            Staged::LeftToDriver
        }
    }

    /// All that was staged is published. How many sends that were; one, where what was staged was not held.
    #[inline]
    pub(crate) fn published(&mut self) -> u32 {
        if self.is_corked {
            self.reply_times.published();
        }
        self.is_gathering = false;
        self.held_since_ns = 0;
        std::mem::take(&mut self.held_count).max(1)
    }

    /// So many sends were published that the peer is to hear of. `peer_sleeps` is asked only where one ring is for several.
    #[inline]
    pub(crate) fn rings(
        &mut self,
        count: u32,
        drives: bool,
        peer_sleeps: impl FnOnce() -> bool,
        now_ns: impl FnOnce() -> u64,
    ) -> Ring {
        self.announced.publications += 1;
        self.announced.sends += u64::from(count);
        if self.ring_batch <= 1 {
            return Ring::IfAsleep;
        }
        if !peer_sleeps() {
            // It looks at the ring before it sleeps, and finds this and what was published before.
            self.takes_unrung();
            return Ring::Awake;
        }
        self.unrung_count += count;
        if self.unrung_count >= self.ring_batch || !drives {
            self.takes_unrung();
            Ring::IfAsleep
        } else if self.unrung_since_ns == 0 {
            self.unrung_since_ns = now_ns();
            Ring::LeftToDriver
        } else {
            Ring::Held
        }
    }

    /// The peer was rung.
    #[inline]
    pub(crate) fn rang(&mut self) {
        self.announced.rings += 1;
    }

    /// The tasks that were ready have had their turn: what was gathered may go.
    pub(crate) fn round_ended(&mut self, now_ns: impl FnOnce() -> u64) -> RoundEnd {
        if self.is_gathering && self.fixed.is_none() {
            self.lone_rounds = if self.held_count <= 1 { self.lone_rounds.saturating_add(1) } else { 0 };
        }
        if !self.waits_for_more() {
            return RoundEnd::default();
        }
        let now_ns = now_ns();
        let is_due = |since_ns: u64| now_ns.saturating_sub(since_ns) >= self.hold_ns;
        let publishes = self.is_gathering && is_due(self.held_since_ns);
        let rings = self.unrung_since_ns != 0 && is_due(self.unrung_since_ns);
        RoundEnd { publishes, rings }
    }

    /// Whether something waits for more, which the driver sees to.
    #[inline]
    pub(crate) fn waits_for_more(&self) -> bool {
        self.held_since_ns != 0 || self.unrung_since_ns != 0
    }

    /// The peer is about to be rung for all that was published. Whether something waited for that.
    pub(crate) fn takes_unrung(&mut self) -> bool {
        self.unrung_count = 0;
        std::mem::take(&mut self.unrung_since_ns) != 0
    }

    /// The driver publishes nothing any more. Whether something was left to it, which is for the caller to publish, or for the next who sends.
    pub(crate) fn stops_gathering(&mut self) -> bool {
        let was_gathering = std::mem::take(&mut self.is_gathering);
        was_gathering || self.held_since_ns != 0
    }

    /// From now on so many are published together, where that is fixed, so many share a doorbell, and one waits so long for others. Nothing
    /// may be held.
    pub(crate) fn set_batches(&mut self, fixed: Option<u32>, ring_batch: u32, hold_ns: u64) {
        (self.fixed, self.ring_batch, self.hold_ns) = (fixed, ring_batch, hold_ns);
        self.lone_rounds = 0;
    }

    /// So many replies are published together from now on, while further calls are at hand; `None`: as usual.
    pub(crate) fn set_held_max(&mut self, most: Option<u32>) {
        self.held_max = most.unwrap_or(HELD_COUNT_MAX);
    }

    /// What was announced so far.
    pub(crate) fn announced(&self) -> Announced {
        self.announced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: Others = Others { look: false, drive: true, call_count: 8 };

    /// Replies of handlers that take so long, until eight wait or one is not to: how many went together, and readings of the clock.
    fn batch(planner: &mut PublishPlanner, now_ns: &mut u64, handler_ns: u64) -> (u32, u32) {
        let mut readings = 0;
        for count in 1.. {
            *now_ns += handler_ns;
            planner.took_call(true);
            let staged = planner.staged(OTHERS, || {
                readings += 1;
                *now_ns
            });
            if staged == Staged::Publish {
                assert_eq!(planner.published(), count);
                return (count, readings);
            }
            assert_eq!(staged, Staged::Held);
        }
        unreachable!()
    }

    #[test]
    fn replies_wait_for_those_of_quick_handlers_only() {
        let (mut planner, mut now_ns) = (PublishPlanner::new(false), 1);
        let (count, readings) = batch(&mut planner, &mut now_ns, 100);
        assert_eq!(count, HELD_COUNT_MAX);
        assert!(readings >= HELD_COUNT_MAX - 1);
        let quick: Vec<_> = (0..BATCHES_TIMED).map(|_| batch(&mut planner, &mut now_ns, 100)).collect();
        assert!(quick.iter().all(|(count, _)| *count == HELD_COUNT_MAX));
        assert_eq!(quick.iter().filter(|(_, readings)| *readings > 0).count(), 1, "in one batch of many");

        let slow: Vec<_> = (0..30).map(|_| batch(&mut planner, &mut now_ns, LONG_HANDLER_NS).0).collect();
        let first = slow.iter().position(|count| *count < HELD_COUNT_MAX).unwrap();
        assert!(first < usize::from(BATCHES_TIMED), "{slow:?}");
        assert_eq!(slow[first], 2, "the first says how long the second took");
        assert!(slow[first + 1..].iter().all(|count| *count == 1), "{slow:?}");

        // A pause is no handler's time, and changes nothing.
        planner.no_call();
        assert_eq!(batch(&mut planner, &mut now_ns, 1_000 * LONG_HANDLER_NS), (1, 1));
        assert_eq!(batch(&mut planner, &mut now_ns, 100).0, HELD_COUNT_MAX, "they are quick again");
    }

    #[test]
    fn an_end_that_gathers_leaves_what_is_staged_to_its_driver_but_for_a_lone_call() {
        let mut planner = PublishPlanner::new(true);
        assert_eq!(planner.staged(OTHERS, || 1), Staged::LeftToDriver);
        assert_eq!(planner.staged(OTHERS, || 1), Staged::Held);
        assert_eq!(
            planner.round_ended(|| 1),
            RoundEnd::default(),
            "no number is fixed: the driver just publishes"
        );
        assert_eq!(planner.published(), 2);
        assert_eq!(
            planner.staged(Others { drive: false, ..OTHERS }, || 1),
            Staged::Publish,
            "there is no driver"
        );
        planner.published();
        assert_eq!(
            planner.staged(Others { look: true, ..OTHERS }, || 1),
            Staged::Held,
            "who looks publishes"
        );
        planner.published();
        for round in 0..LONE_ROUNDS {
            assert_eq!(
                planner.staged(Others { call_count: 1, ..OTHERS }, || 1),
                Staged::LeftToDriver,
                "{round}"
            );
            planner.round_ended(|| 1);
            planner.published();
        }
        assert_eq!(planner.staged(Others { call_count: 1, ..OTHERS }, || 1), Staged::Publish);
        assert!(!PublishPlanner::new(true).goes_alone(1) && PublishPlanner::new(false).goes_alone(9));
    }

    #[test]
    fn a_fixed_number_goes_together_or_what_there_is_when_the_first_has_waited() {
        let mut planner = PublishPlanner::new(true);
        planner.set_batches(Some(3), 1, 50);
        let staged: Vec<_> = (0..3).map(|_| planner.staged(OTHERS, || 100)).collect();
        assert_eq!(staged, [Staged::LeftToDriver, Staged::Held, Staged::Publish]);
        assert_eq!(planner.published(), 3);
        assert_eq!(planner.staged(OTHERS, || 100), Staged::LeftToDriver);
        assert_eq!(planner.round_ended(|| 149), RoundEnd::default());
        assert!(planner.waits_for_more());
        assert_eq!(planner.round_ended(|| 150), RoundEnd { publishes: true, rings: false });
        assert_eq!(planner.published(), 1);
        assert!(!planner.waits_for_more() && !planner.holds());
    }

    #[test]
    fn a_ring_is_for_several_or_for_what_there_is_when_the_first_has_waited() {
        let mut planner = PublishPlanner::new(true);
        planner.set_batches(None, 3, 50);
        let mut ring = |count, sleeps, now| planner.rings(count, true, || sleeps, || now);
        assert_eq!(ring(1, true, 100), Ring::LeftToDriver);
        assert_eq!(ring(1, true, 110), Ring::Held);
        assert_eq!(ring(1, true, 120), Ring::IfAsleep, "three");
        assert_eq!(ring(2, true, 130), Ring::LeftToDriver);
        assert_eq!(ring(1, false, 140), Ring::Awake, "it finds all of them");
        assert_eq!(ring(2, true, 150), Ring::LeftToDriver);
        assert_eq!(planner.round_ended(|| 199), RoundEnd::default());
        assert_eq!(planner.round_ended(|| 200), RoundEnd { publishes: false, rings: true });
        assert!(planner.takes_unrung());
        assert_eq!(planner.rings(1, false, || true, || 210), Ring::IfAsleep, "there is nobody to ring later");
        assert_eq!(planner.announced().publications, 7);
        assert_eq!(planner.announced().sends, 9);
    }

    #[test]
    fn who_leaves_holds_nothing_back() {
        let mut planner = PublishPlanner::new(true);
        planner.set_batches(Some(9), 9, 50);
        planner.staged(OTHERS, || 100);
        planner.rings(1, true, || true, || 100);
        assert!(planner.stops_gathering() && planner.takes_unrung());
        planner.published();
        assert!(!planner.stops_gathering() && !planner.takes_unrung());
    }
}
