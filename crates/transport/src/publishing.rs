//! When frames that are staged become visible to the peer, and when it is rung.
//!
//! Frames that are published together cost one store, one look at the peer's word, and one doorbell. They wait for each other where
//! somebody is about to look at the ring anyway, or the accepting task has further calls at hand; and in a shepherd, where a
//! connection's requests become tasks of one round of the runtime, until all of these had their turn: then the driver publishes.
//! A `LowLatency` session doesn't gather.

use tollfree_kill_points::{Point, here};
use tollfree_ring::RecordSender;

use crate::core::Core;
use crate::shared::Socket;

/// Emissions held back at most before they are published together.
const HELD_COUNT_MAX: u32 = 8;
/// The same for those that are gathered from the tasks of one round.
const GATHERED_COUNT_MAX: u32 = 64;

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
        let most = if self.gathering { GATHERED_COUNT_MAX } else { HELD_COUNT_MAX };
        if self.held_count >= most {
            self.flush(socket);
        } else if !self.holds_back() {
            if !self.gathers || self.waiters.list.is_empty() {
                self.flush(socket);
            } else {
                self.gathering = true;
                self.nudge = true;
            }
        }
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
        self.held_count = 0;
        self.gathering = false;
        let is_loud = std::mem::take(&mut self.sending.is_loud);
        if !self.sending.ring.publish() || !is_loud {
            return;
        }
        let rings = self.ringer.should_ring();
        self.patience.said(rings);
        if rings {
            here(Point::DoorbellDue);
            self.ring(socket);
            here(Point::DoorbellRung);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::time::Duration;

    use tollfree_session::{Emission, Ending};

    use crate::{Address, Attachment, Config, Introduction, Listener, Opening, WaitPolicy};

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
