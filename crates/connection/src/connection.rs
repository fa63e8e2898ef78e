//! One end of a session with its memory: rings and payload areas, what is said on them, and when the peer is woken.
//!
//! # Who calls what
//! A driver holds whatever lock its connections need, and calls. [`receive`](Connection::receive) takes one record that has come,
//! [`flush`](Connection::flush) makes visible what was said, [`arm`](Connection::arm) says that this end sleeps. The calls themselves are the
//! [`session`](Connection::session_mut)'s. A driver's socket and clock come along with each step, as a [`PeerIo`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollfree_events::{Decision, Doorbell, SessionEvent};
use tollfree_kill_points::{Point, here};
use tollfree_layout::control::{ASKED_OFF, CPU_UNKNOWN};
use tollfree_layout::{AreaIdx, RingPos, StreamId};
use tollfree_os::fd::AsFd;
use tollfree_region::{GivenFd, PeerRegion, Region, WriteMemory};
use tollfree_ring::{Geometry, RecordReceiver, RingReceiver, RingSender, RingViolation, Ringer, Waiter};
use tollfree_session::{
    AreaEvent, Closed, Limits, Opening, Outgoing, Progress, Received, Recording, Role, SendError, Session,
    Violation, Watched,
};

use crate::activity::PeerActivity;
use crate::area::area_len;
use crate::areas::{AreaAllowance, Areas};
use crate::constants::{LONG_LOOK_NS, RECORDS_AT_ONCE};
use crate::io::{AreaFd, PeerIo, Report};
use crate::publishing::{Announced, Others, PublishPlanner, Ring, RoundEnd, Staged};
use crate::records::{Arrived, Sender};
use crate::timers::Timers;
use crate::wait_hint::WaitHint;
use crate::{Surroundings, ThreadTime, Wait, WaitPlanner, WaitPolicy};

/// Which end of a gateway's session this is, where the gateway says how it wants to be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitHints {
    /// It is no such session.
    None,
    /// The end that says it.
    Given,
    /// The end that goes by it.
    Taken,
}

/// What a handshake came to, and what the application wants.
#[derive(Debug)]
pub struct Setup {
    /// Which end this is.
    pub role: Role,
    /// How this end waits.
    pub policy: WaitPolicy,
    /// This end holds what it says until the tasks of a round of its driver had their turn.
    pub gathers: bool,
    /// What this end takes.
    pub limits: Limits,
    /// What the peer takes.
    pub peer_limits: Limits,
    /// Messages may be segmented messages.
    pub segmented_messages: bool,
    /// This end's region, without its descriptor.
    pub own: Arc<Region>,
    /// The ring in it.
    pub own_ring: Geometry,
    /// The peer's region.
    pub peer: Arc<PeerRegion>,
    /// The ring in it.
    pub peer_ring: Geometry,
    /// How long payload areas of this end are to be, in bytes.
    pub area_len: usize,
    /// The longest that the peer takes; 0: none.
    pub peer_area_len_max: usize,
    /// After how long without use an area is given up, in nanoseconds.
    pub area_idle_ns: u64,
    /// What payload areas are charged to.
    pub allowance: Option<Box<dyn AreaAllowance>>,
    /// Who says how to wait.
    pub hints: WaitHints,
    /// Where this end reports what it does.
    pub recording: Recording,
}

/// What publishing has left to the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// The peer sleeps, and is to be rung for more than this: [`round_ended`](Connection::round_ended) sees to it.
    pub rings_later: bool,
    /// Frames of the session's own found no room: somebody has to look when there is some.
    pub lacks_room: bool,
}

/// How the two ends say how to wait.
#[derive(Debug)]
enum Hints {
    None,
    /// This end does, there.
    Given(Arc<Region>),
    /// The peer does.
    Taken(Box<WaitHint>),
}

/// One end of a session; `T` is what the driver keeps with each stream.
#[derive(Debug)]
pub struct Connection<T> {
    session: Session<T>,
    sender: Sender,
    receiver: RingReceiver<Region, PeerRegion>,
    /// Consumed lines of the peer's ring are given back once there are so many.
    release_lines: usize,
    areas: Areas,
    waiter: Waiter<Region>,
    ringer: Ringer<PeerRegion>,
    wait: WaitPlanner,
    publishing: PublishPlanner,
    hints: Hints,
    timers: Timers,
}

impl<T: Watched> Connection<T> {
    /// Of a session in which nothing was said.
    pub fn new(setup: Setup) -> Connection<T> {
        let Setup { own, peer, .. } = setup;
        Connection {
            session: Session::new(setup.role, setup.limits, setup.peer_limits)
                .with_segmented(setup.segmented_messages)
                .recorded(setup.recording),
            sender: Sender::new(RingSender::new(own.clone(), peer.clone(), setup.own_ring)),
            receiver: RingReceiver::new(own.clone(), peer.clone(), setup.peer_ring),
            release_lines: setup.peer_ring.line_count() as usize / 4,
            areas: Areas::new(
                area_len(setup.area_len, setup.peer_area_len_max),
                setup.area_idle_ns,
                setup.allowance,
            ),
            waiter: Waiter::new(own.clone()),
            ringer: Ringer::new(peer.clone()),
            wait: WaitPlanner::new(setup.policy, setup.role),
            publishing: PublishPlanner::new(setup.gathers),
            hints: match setup.hints {
                WaitHints::None => Hints::None,
                WaitHints::Given => Hints::Given(own),
                WaitHints::Taken => Hints::Taken(Box::new(WaitHint::new(peer))),
            },
            timers: Timers::default(),
        }
    }

    /// The calls.
    #[inline]
    pub fn session(&self) -> &Session<T> {
        &self.session
    }

    /// The calls. What they say is sent by the next [`flush`](Connection::flush).
    #[inline]
    pub fn session_mut(&mut self) -> &mut Session<T> {
        &mut self.session
    }

    /// How long to look before sleeping.
    #[inline]
    pub fn wait(&self) -> &WaitPlanner {
        &self.wait
    }

    /// The same, to tell it what has happened.
    #[inline]
    pub fn wait_mut(&mut self) -> &mut WaitPlanner {
        &mut self.wait
    }
}

/// What comes.
impl<T: Watched> Connection<T> {
    /// Whether a record has come. Most looks are in vain.
    #[inline]
    pub fn has_record(&self) -> bool {
        !self.receiver.is_empty()
    }

    /// Looks at the empty ring so many times, with a pause after each. How many were left over when something came.
    #[inline]
    pub fn glance(&self, count: usize) -> usize {
        self.receiver.glance(count)
    }

    /// Whether there is nothing to do but to look at the ring again.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        (!self.publishing.holds() || self.publishing.is_gathering())
            && self.receiver.is_empty()
            && !self.sender.has_violation()
            && !self.session.has_pending()
    }

    /// Handles the next record; `false` where there is none, or none may be taken now.
    #[inline]
    pub fn receive(&mut self, io: &mut impl PeerIo) -> bool {
        self.may_receive() && !self.receiver.is_empty() && self.receive_record(io)
    }

    /// Handles what has come, up to a bound, and ends the session where the peer has forged its cursor. How many records that were.
    pub fn receive_all(&mut self, io: &mut impl PeerIo) -> usize {
        let mut count = 0;
        while count < RECORDS_AT_ONCE && self.receive(io) {
            count += 1;
        }
        if let Some(violation) = self.sender.take_violation() {
            self.close(Closed::Violation(ring_violation(violation)), io);
        }
        count
    }

    /// Whether the next record would be taken.
    #[inline]
    fn may_receive(&self) -> bool {
        self.session.closed().is_none() && !self.session.is_congested()
    }

    #[inline(never)]
    fn receive_record(&mut self, io: &mut impl PeerIo) -> bool {
        if let Err(violation) = io.record_came() {
            self.close(Closed::Violation(violation), io);
            return true;
        }
        let received = match self.receiver.peek() {
            Ok(None) => return false,
            Ok(Some(record)) => {
                let arrived = Arrived::new(record, self.areas.mapped());
                let received = self.session.receive(&arrived);
                here(Point::RecordHandled);
                let was_in_area = arrived.was_in_area();
                self.receiver.advance();
                if was_in_area || self.receiver.unreleased_lines() >= self.release_lines {
                    self.release(io);
                }
                received
            }
            Err(violation) => Err(ring_violation(violation)),
        };
        match received {
            Ok(Received::Frame | Received::Closed) => {}
            Ok(Received::Area(event)) => self.area_event(event, io),
            Err(violation) => self.close(Closed::Violation(violation), io),
        }
        true
    }

    /// Gives consumed room back to the peer, and rings when it waits for that.
    fn release(&mut self, io: &mut impl PeerIo) {
        self.recording().record(|| SessionEvent::Released { lines: self.receiver.unreleased_lines() as u64 });
        if self.receiver.release() && self.ringer.should_ring_for_space() {
            self.ring(io);
        }
    }

    /// The peer is gone, and what it had published was received: the session ends. `true`: it had not ended before.
    pub fn hung_up(&mut self) -> bool {
        let is_new = self.session.closed().is_none();
        self.session.end_session(Closed::HungUp);
        is_new
    }
}

/// What goes.
impl<T: Watched> Connection<T> {
    /// Opens a call with as much of `outgoing` as fits. Visible with the next [`flush`](Connection::flush).
    ///
    /// # Errors
    /// [`SendError`]; nothing of the call was said then.
    #[inline]
    pub fn open(
        &mut self,
        opening: Opening<'_>,
        outgoing: &mut Outgoing,
    ) -> Result<Result<StreamId, Progress>, SendError> {
        self.session.open(&mut self.sender, opening, outgoing)
    }

    /// Says as much of an outgoing as fits.
    ///
    /// # Errors
    /// [`SendError`].
    #[inline]
    pub fn send(&mut self, id: StreamId, outgoing: &mut Outgoing) -> Result<Progress, SendError> {
        self.session.send(&mut self.sender, id, outgoing)
    }

    /// Makes everything staged visible, together with small frames that wait, and rings when the peer sleeps. `drives`: the driver sees to
    /// what is left for later.
    #[inline]
    pub fn flush(&mut self, io: &mut impl PeerIo, drives: bool) -> Flushed {
        let wanted =
            self.sender.area().is_wanted() || self.session.has_pending() || self.session.has_bytes_to_give();
        if wanted {
            self.flush_all(io, drives)
        } else {
            Flushed { rings_later: self.publish(io, drives), lacks_room: false }
        }
    }

    #[inline(never)]
    fn flush_all(&mut self, io: &mut impl PeerIo, drives: bool) -> Flushed {
        if self.sender.area().is_wanted() {
            self.make_area(io);
        }
        if self.session.has_pending() {
            let _ = self.session.stage_pending(&mut self.sender);
        }
        // One piece at a time, and where the longest record finds room: others have their turn between.
        if self.session.has_bytes_to_give() && self.has_room() {
            self.session.give_bytes(&mut self.sender);
        }
        Flushed { rings_later: self.publish(io, drives), lacks_room: self.session.has_pending() }
    }

    /// Whether the driver is to ring later.
    fn publish(&mut self, io: &mut impl PeerIo, drives: bool) -> bool {
        let count = self.publishing.published();
        let before = self.sender.published();
        let is_loud = self.sender.publish_loud();
        self.record_published(before);
        if !is_loud {
            return false;
        }
        let ringer = &mut self.ringer;
        let ring = self.publishing.rings(count, drives, || ringer.is_peer_parked(), || io.now_ns());
        let sleeps = match ring {
            Ring::IfAsleep => self.ringer.should_ring(),
            Ring::Awake => false,
            Ring::Held | Ring::LeftToDriver => true,
        };
        self.wait.spoke(sleeps);
        if ring == Ring::IfAsleep && sleeps {
            self.ring_for_news(io);
        } else {
            let done = if sleeps { Doorbell::Later } else { Doorbell::NotNeeded };
            self.recording().record(|| SessionEvent::Doorbell { done });
        }
        ring == Ring::LeftToDriver
    }

    /// Reports what was published, if something was since the ring ended `before`.
    #[inline(always)]
    fn record_published(&self, before: RingPos) {
        if self.recording().is_on() && self.sender.published() != before {
            let (unread, _) = self.sender.backlog();
            self.recording().record(|| SessionEvent::Published { pos: self.sender.published().0, unread });
        }
    }

    #[inline(always)]
    fn recording(&self) -> &Recording {
        self.session.recording()
    }

    fn ring_for_news(&mut self, io: &mut impl PeerIo) {
        self.publishing.rang();
        here(Point::DoorbellDue);
        self.ring(io);
        here(Point::DoorbellRung);
    }

    /// Wakes the peer, whether or not it has said that it sleeps.
    pub fn ring(&mut self, io: &mut impl PeerIo) {
        self.recording().record(|| SessionEvent::Doorbell { done: Doorbell::Rung });
        let began = self.wait.ring_begins(|| io.now_ns());
        io.ring(self.sender.published());
        if let Some(began) = began {
            self.wait.ring_ended(began, io.now_ns());
        }
    }

    /// Something was staged. What becomes of it, where `look` says that somebody looks at the ring and publishes when nothing was found.
    pub fn staged(&mut self, look: bool, drive: bool, now_ns: impl FnOnce() -> u64) -> Staged {
        self.publishing.staged(Others { look, drive, call_count: self.session.live_count() }, now_ns)
    }

    /// The tasks of a round had their turn: what was gathered may go, and what is published may be rung for, unless that is to wait for
    /// more. Whether it is, so that this is to be said again after the next round.
    pub fn round_ended(&mut self, io: &mut impl PeerIo, drives: bool) -> (bool, Flushed) {
        let RoundEnd { publishes, rings } = self.publishing.round_ended(|| io.now_ns());
        let flushed = if publishes { self.flush(io, drives) } else { Flushed::default() };
        if rings {
            self.ring_for_all(io);
        }
        (self.publishing.waits_for_more(), flushed)
    }

    /// Publishes, and rings for, all that was to wait for more: the driver sees to nothing any more.
    pub fn hold_nothing(&mut self, io: &mut impl PeerIo) -> Flushed {
        let flushed =
            if self.publishing.stops_gathering() { self.flush(io, false) } else { Flushed::default() };
        self.ring_for_all(io);
        flushed
    }

    /// Nobody ends rounds any more: what is held is published by the next who looks or sends.
    pub fn stops_gathering(&mut self) {
        self.publishing.stops_gathering();
    }

    /// Rings for all that was published and not rung for, if the peer still sleeps.
    fn ring_for_all(&mut self, io: &mut impl PeerIo) {
        if self.publishing.takes_unrung() && self.ringer.should_ring() {
            self.ring_for_news(io);
        }
    }

    /// From now on so many sends are published together, where that is fixed, so many share a doorbell, and one waits so long for
    /// others. [`hold_nothing`](Connection::hold_nothing) goes before.
    pub fn set_batches(&mut self, fixed: Option<u32>, ring_batch: u32, hold_ns: u64) {
        self.publishing.set_batches(fixed, ring_batch, hold_ns);
    }

    /// Tells the peer how this end wants to be waited for, where that is [given](WaitHints::Given).
    pub fn give_hint(&self, word: u64) {
        if let Hints::Given(own) = &self.hints {
            own.store_u64(ASKED_OFF, word, Ordering::Relaxed);
        }
    }

    /// What was announced to the peer so far.
    pub fn announced(&self) -> Announced {
        self.publishing.announced()
    }

    /// Records that are staged and not published.
    pub fn held_count(&self) -> u32 {
        self.publishing.held_count()
    }

    /// Whether something is staged and not published.
    #[inline]
    pub fn holds(&self) -> bool {
        self.publishing.holds()
    }

    /// Whether [`round_ended`](Connection::round_ended) is to publish it.
    #[inline]
    pub fn is_gathering(&self) -> bool {
        self.publishing.is_gathering()
    }

    /// Whether somebody will publish it soon, if `look` says that somebody looks at the ring.
    #[inline]
    pub fn holds_back(&self, look: bool) -> bool {
        self.publishing.will_be_published(look)
    }

    /// Whether a call that begins now is published at once, by itself.
    #[inline]
    pub fn goes_alone(&self) -> bool {
        self.publishing.goes_alone(self.session.live_count())
    }

    /// A call was accepted. Whether there are more at hand, so that its reply may wait for others'.
    #[inline]
    pub fn accepted(&mut self) -> bool {
        if let Hints::Taken(hint) = &mut self.hints {
            hint.accepted();
        }
        let has_more = self.session.has_accepted() || self.has_record();
        self.publishing.took_call(has_more);
        has_more
    }

    /// No call is at hand.
    #[inline]
    pub fn no_call(&mut self) {
        self.publishing.no_call();
    }

    /// Bytes of the ring that the peer has not given back, and the ring's length.
    pub fn backlog(&self) -> (u64, u64) {
        self.sender.backlog()
    }

    /// How far the peer has come with what this end has published.
    pub fn peer_activity(&self) -> PeerActivity {
        let (consumed, is_unread) = self.sender.unread();
        PeerActivity {
            is_due: self.ringer.is_unheard() || (is_unread && self.ringer.is_peer_awake()),
            consumed,
            received: self.receiver.pos().0,
            word: self.ringer.peer_word(),
        }
    }

    /// Whether the peer has read nearly all of the ring. It may keep a quarter back that it has read.
    pub fn is_nearly_read(&self) -> bool {
        let (unread, len) = self.backlog();
        unread <= len / 4
    }

    /// Whether senders that wait for room should try again: the longest record finds some, or the session is over.
    pub fn has_room(&mut self) -> bool {
        self.session.closed().is_some() || self.sender.has_room_for_longest()
    }

    /// Ends the session from this side: tells the peer as far as there is room, and hangs up.
    pub fn close(&mut self, reason: Closed, io: &mut impl PeerIo) {
        io.report(Report::Closing(&reason));
        self.session.close(&mut self.sender, reason);
        here(Point::CloseStaged);
        let before = self.sender.published();
        let is_new = self.sender.publish();
        self.record_published(before);
        io.hang_up(self.sender.published(), is_new);
    }

    /// What is published, as a driver needs it whose peer is on another host.
    pub fn published(&self) -> RingPos {
        self.sender.published()
    }
}

/// How it waits.
impl<T: Watched> Connection<T> {
    /// Arms the doorbell, for room too if somebody `wants_room`, and looks once more. `false`: there is something, so this end stays awake.
    pub fn arm(&mut self, wants_room: bool) -> bool {
        self.waiter.park(wants_room || self.session.has_pending());
        here(Point::Parked);
        // What would not be taken now is no reason to stay awake.
        let is_readable = self.has_record() && !self.session.is_congested();
        let came = is_readable || (self.session.has_pending() && self.has_room());
        if came {
            self.waiter.unpark();
        }
        self.recording().record(|| SessionEvent::Armed { found: came });
        !came
    }

    /// What this end does that has looked for `looked_ns` and found nothing. One that looks for long gives back what it has read: a peer
    /// sees by that that it works.
    #[inline]
    pub fn decide(&mut self, looked_ns: u64, now_ns: u64, surroundings: &impl Surroundings) -> Wait {
        if looked_ns > LONG_LOOK_NS && self.receiver.unreleased_lines() > 0 {
            // Rung for by nobody: room that is more than a quarter of the ring was given back when it was read.
            self.recording()
                .record(|| SessionEvent::Released { lines: self.receiver.unreleased_lines() as u64 });
            self.receiver.release();
        }
        let wait = self.wait.decide(looked_ns, now_ns, surroundings);
        self.recording().record(|| SessionEvent::Waits {
            decision: match wait {
                Wait::Spin { .. } => Decision::Spin,
                Wait::Probe { .. } => Decision::Probe,
                Wait::Park => Decision::Park,
            },
            looked_ns,
            budget_ns: self.wait.budget_ns(),
        });
        wait
    }

    /// The doorbell rang, or something else came on the socket, for this end that sleeps.
    pub fn woken(&mut self, time: impl FnOnce() -> ThreadTime) {
        self.recording().record(|| SessionEvent::Woken);
        self.wait.woken(time);
    }

    /// This end is awake: the peer need not ring.
    pub fn unpark(&mut self) {
        self.waiter.unpark();
    }

    /// Goes by what the peer asks for, before a wait, where that is [taken](WaitHints::Taken).
    #[inline]
    pub fn take_hint(&mut self, now_ns: u64) {
        if let Hints::Taken(hint) = &mut self.hints {
            hint.read(now_ns, &mut self.wait, &mut self.publishing);
        }
    }

    /// Whether the peer's waiting thread has this processor, `cpu`; also tells the peer.
    pub fn shares_cpu(&mut self, cpu: u32) -> bool {
        shares_cpu(&mut self.waiter, &self.ringer, cpu)
    }

    /// How often a thread that has nothing else to do may look within one step.
    pub fn dedicated_glances(&mut self, cpu: impl FnOnce() -> u32) -> usize {
        let (waiter, ringer) = (&mut self.waiter, &self.ringer);
        self.wait.dedicated_glances(|| shares_cpu(waiter, ringer, cpu()))
    }

    /// When [`handle_timeout`](Connection::handle_timeout) is to be called next, on the clock that `now_ns` is of; `None`: not at all.
    pub fn timeout(&mut self, now_ns: u64) -> Option<u64> {
        if self.session.closed().is_some() {
            return None;
        }
        let area = self.sender.area();
        let area_idle_ns = area.is_live().then(|| self.areas.idle_ns(area.patience()));
        self.timers.next(now_ns, area_idle_ns, self.session.oldest_segmented())
    }

    /// Whether something new needs a timer that no driver has been told of.
    #[inline]
    pub fn wants_timer(&self) -> bool {
        self.timers.lacks(self.sender.has_area(), self.session.segmented_messages_in_flight() > 0)
    }

    /// A driver is told, and asks for the [`timeout`](Connection::timeout) soon.
    pub fn timer_told(&mut self) {
        self.timers.told();
    }

    /// Whether the ring is to be looked at before [`handle_timeout`](Connection::handle_timeout): for a word that wakes nobody.
    pub fn is_look_due(&self, now_ns: u64) -> bool {
        self.timers.is_segmented_due(now_ns)
    }

    /// Sees to what is due: gives up a payload area that nobody uses, and notes what the peer still keeps.
    pub fn handle_timeout(&mut self, now_ns: u64, io: &mut impl PeerIo) {
        self.recording().record(|| SessionEvent::TimedOut);
        if self.timers.is_segmented_due(now_ns) {
            self.timers.saw_segmented(now_ns, self.session.oldest_segmented());
        }
        if self.timers.takes_area(now_ns) {
            self.drop_idle_area(io);
        }
    }
}

/// Payload areas.
impl<T: Watched> Connection<T> {
    fn make_area(&mut self, io: &mut impl PeerIo) {
        let Some(area_len) = self.areas.len() else {
            self.sender.area().give_up();
            return;
        };
        if !self.areas.reserve() {
            io.report(Report::AreaWithheld);
            self.sender.area().put_off();
            return;
        }
        let made = Region::create("tollfree-area", area_len).map_err(|error| error.to_string()).and_then(
            |mut region| {
                here(Point::AreaMade);
                if let Some(fd) = region.take_fd() {
                    io.send_area(fd.as_fd())?;
                }
                Ok(region)
            },
        );
        match made {
            Ok(region) => {
                here(Point::AreaSent);
                let idx = self.sender.area().offered(region);
                self.session.offer_area(idx, area_len as u32);
                here(Point::AreaOffered);
            }
            Err(reason) => {
                self.areas.give_back();
                io.report(Report::AreaNotMade(&reason));
                self.sender.area().give_up();
            }
        }
    }

    fn area_event(&mut self, event: AreaEvent, io: &mut impl PeerIo) {
        let unasked = |code| Closed::Violation(Violation::Control { code });
        use tollfree_layout::frame::control::*;
        match event {
            AreaEvent::Offered { area, len } => {
                let fd = io.take_area();
                here(Point::AreaTaken);
                match fd {
                    AreaFd::Violation(violation) => self.close(Closed::Violation(violation), io),
                    _ if !self.areas.allows(area, len as usize) => self.close(unasked(AREA_OFFER), io),
                    AreaFd::Came(fd) => self.map_area(area, len as usize, fd, io),
                    AreaFd::NoNumber => self.session.answer_area(area, false),
                    AreaFd::Missing => {
                        let missing =
                            Violation::Socket("a payload area was offered and its descriptor did not come");
                        self.close(Closed::Violation(missing), io);
                    }
                }
            }
            AreaEvent::Accepted(area) if self.sender.area().answered(area, true) => here(Point::AreaAccepted),
            AreaEvent::Refused(area) if self.sender.area().answered(area, false) => {
                self.areas.gave_up();
                io.report(Report::AreaRefused);
            }
            // An area that was refused here is dropped without ever having been mapped.
            AreaEvent::Dropped(area) => {
                self.areas.remove(area);
                here(Point::AreaUnmapped);
            }
            AreaEvent::Accepted(_) => self.close(unasked(AREA_ACCEPT), io),
            AreaEvent::Refused(_) => self.close(unasked(AREA_REFUSE), io),
        }
    }

    fn map_area(&mut self, area: AreaIdx, len: usize, fd: GivenFd, io: &mut impl PeerIo) {
        match PeerRegion::map(fd, len) {
            Ok(region) => {
                self.areas.insert(area, region);
                here(Point::AreaMapped);
                self.session.answer_area(area, true);
            }
            Err(error) if error.is_peer_fault() => {
                io.report(Report::AreaForged(&error));
                let refused =
                    Violation::Socket("a payload area that is not what was announced, or not sealed");
                self.close(Closed::Violation(refused), io);
            }
            Err(error) => {
                io.report(Report::AreaNotMapped(&error));
                self.session.answer_area(area, false);
            }
        }
    }

    fn drop_idle_area(&mut self, io: &mut impl PeerIo) {
        let Some(area) = self.sender.area().take_idle() else { return };
        self.areas.gave_up();
        self.session.drop_area(area);
        here(Point::AreaDropping);
        self.flush(io, false);
        here(Point::AreaDropped);
        // The peer may be idle without having parked; this is worth one wake-up.
        self.ring(io);
    }
}

fn shares_cpu(waiter: &mut Waiter<Region>, ringer: &Ringer<PeerRegion>, cpu: u32) -> bool {
    waiter.set_cpu(cpu);
    let peer = ringer.peer_cpu();
    peer == cpu && peer != CPU_UNKNOWN
}

fn ring_violation(violation: RingViolation) -> Violation {
    Violation::Ring(match violation {
        RingViolation::ForgedSequence { .. } => "a head word with a wrong sequence",
        RingViolation::ForgedLength { .. } => "a head word with an impossible length",
        _ => "a cursor out of range",
    })
}
