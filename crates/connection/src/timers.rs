//! What a connection looks after when some time has passed: a payload area that nobody uses, and segmented messages that the peer keeps.
//!
//! A connection without either asks for no timer. Times are nanoseconds of the clock that the driver's timer goes by.

use crate::constants::{SEGMENTED_PAUSE_MAX_NS, SEGMENTED_PAUSE_NS};

/// When to look whether the peer has taken segmented messages, which wakes nobody.
#[derive(Clone, Copy, Debug)]
struct SegmentedWatch {
    at_ns: u64,
    pause_ns: u64,
    /// The oldest one kept at the last look.
    oldest: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    area_at_ns: Option<u64>,
    segmented_messages: Option<SegmentedWatch>,
    /// A driver was told that there is something new to look after, and has not asked when yet.
    is_told: bool,
}

impl Timers {
    /// Whether there is something that is not looked after, and no driver was told so.
    #[inline]
    pub(crate) fn lacks(&self, has_area: bool, has_segmented: bool) -> bool {
        !self.is_told
            && ((has_area && self.area_at_ns.is_none())
                || (has_segmented && self.segmented_messages.is_none()))
    }

    /// A driver is told.
    pub(crate) fn told(&mut self) {
        self.is_told = true;
    }

    /// When to look next. `area_idle_ns`: how long the present area may be idle, if there is one; `oldest_segmented` is kept by the peer.
    pub(crate) fn next(
        &mut self,
        now_ns: u64,
        area_idle_ns: Option<u64>,
        oldest_segmented: Option<u64>,
    ) -> Option<u64> {
        self.is_told = false;
        match area_idle_ns {
            Some(idle_ns) => _ = self.area_at_ns.get_or_insert(now_ns.saturating_add(idle_ns)),
            None => self.area_at_ns = None,
        }
        if self.segmented_messages.is_none()
            && let Some(oldest) = oldest_segmented
        {
            self.segmented_messages = Some(SegmentedWatch {
                at_ns: now_ns + SEGMENTED_PAUSE_NS,
                pause_ns: SEGMENTED_PAUSE_NS,
                oldest,
            });
        }
        let segmented_messages_at_ns = self.segmented_messages.map(|watch| watch.at_ns);
        self.area_at_ns.into_iter().chain(segmented_messages_at_ns).min()
    }

    /// Whether it is time to look whether the area is idle. It is looked at again after another idle time.
    pub(crate) fn takes_area(&mut self, now_ns: u64) -> bool {
        self.area_at_ns.take_if(|at_ns| *at_ns <= now_ns).is_some()
    }

    /// Whether it is time to look for the peer's word on segmented messages.
    pub(crate) fn is_segmented_due(&self, now_ns: u64) -> bool {
        self.segmented_messages.is_some_and(|watch| watch.at_ns <= now_ns)
    }

    /// The ring was looked at, and this is the oldest segmented message that the peer still keeps. Where that is the same as before, the next look is later.
    pub(crate) fn saw_segmented(&mut self, now_ns: u64, oldest: Option<u64>) {
        let Some(before) = self.segmented_messages.take() else { return };
        self.segmented_messages = oldest.map(|oldest| {
            let is_stuck = before.oldest == oldest;
            let pause_ns =
                if is_stuck { (2 * before.pause_ns).min(SEGMENTED_PAUSE_MAX_NS) } else { SEGMENTED_PAUSE_NS };
            SegmentedWatch { at_ns: now_ns + pause_ns, pause_ns, oldest }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_with_nothing_to_look_after_asks_for_no_timer() {
        let mut timers = Timers::default();
        assert_eq!(timers.next(5, None, None), None);
        assert_eq!(timers.next(5, Some(10), None), Some(15));
        assert_eq!(timers.next(9, Some(10), None), Some(15), "the time that has begun goes on");
        assert!(!timers.takes_area(14) && timers.takes_area(15) && !timers.takes_area(15));
        assert_eq!(timers.next(20, None, None), None, "the area is gone");
    }

    #[test]
    fn a_driver_is_told_once_of_what_is_new() {
        let mut timers = Timers::default();
        assert!(!timers.lacks(false, false));
        assert!(timers.lacks(true, false) && timers.lacks(false, true));
        timers.told();
        assert!(!timers.lacks(true, true));
        timers.next(1, Some(10), None);
        assert!(!timers.lacks(true, false) && timers.lacks(true, true));
    }

    #[test]
    fn segmented_messages_that_stay_are_looked_for_less_and_less_often() {
        let mut timers = Timers::default();
        let mut at_ns = timers.next(0, None, Some(1)).unwrap();
        let mut pauses = Vec::new();
        for _ in 0..6 {
            assert!(!timers.is_segmented_due(at_ns - 1) && timers.is_segmented_due(at_ns));
            timers.saw_segmented(at_ns, Some(1));
            let next = timers.next(at_ns, None, Some(1)).unwrap();
            pauses.push((next - at_ns) / SEGMENTED_PAUSE_NS);
            at_ns = next;
        }
        assert_eq!(pauses, [2, 4, 8, 10, 10, 10]);
        timers.saw_segmented(at_ns, Some(2));
        assert_eq!(timers.next(at_ns, None, Some(2)), Some(at_ns + SEGMENTED_PAUSE_NS), "some were taken");
        timers.saw_segmented(at_ns, None);
        assert_eq!(timers.next(at_ns, None, None), None);
    }
}
