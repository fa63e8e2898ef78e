//! One side of a session with its memory: what everybody who holds the lock can do.
//!
//! All of it runs under one lock, in tasks of any runtime; nothing here waits. Wakers are gathered and called only after
//! the lock is released ([`crate::shared`]).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use smallvec::SmallVec;
use tokio::runtime;
use tollfree_connection::{PublishPlanner, WaitPlanner, WaitPolicy};
use tollfree_kill_points::{Point, here};
use tollfree_layout::control::CPU_UNKNOWN;
use tollfree_layout::{AreaIdx, RopeIdx, StreamId};
use tollfree_os::rustix;
use tollfree_region::{GivenFd, PeerRegion, Region};
use tollfree_rendezvous::{Seldom, socket};
use tollfree_ring::{RecordReceiver, RecordSender, RingReceiver, RingSender, RingViolation, Ringer, Waiter};
use tollfree_session::{AreaEvent, Closed, Outbound, Received, Role, Session, Violation, Whole};

use crate::admission::Seat;
use crate::area::{AreaSender, AreasMapped, area_len};
use crate::asked::Heeded;
use crate::clock::now_ns;
use crate::config::Config;
use crate::counts;
use crate::handshake::{Attached, PeerPool};
use crate::introduction::Purpose;
use crate::link::Link;
use crate::load::Load;
use crate::opening::Turn;
use crate::records::{Arrived, Sending};
use crate::room::RoomQueue;
use crate::runtime_waiters::{Slot, StreamSlots, WaitKey, Waiters, slot_of};
use crate::shared::Socket;
use crate::socket_events::PeerWake;
use crate::surroundings::Here;
use crate::turns::Turns;

/// Records handled in one go before others get their turn.
const PUMP_COUNT: usize = 64;

/// What a peer does that is logged.
static VIOLATED: Seldom = Seldom::new();
static NO_AREA: Seldom = Seldom::new();
static NOT_MADE: Seldom = Seldom::new();

/// Everything under the lock.
pub(crate) struct Core {
    pub(crate) session: Session<StreamSlots>,
    pub(crate) sending: Sending,
    pub(crate) receiving: RingReceiver<Region, PeerRegion>,
    pub(crate) waiter: Waiter<Region>,
    pub(crate) ringer: Ringer<PeerRegion>,
    mapped: AreasMapped,
    /// How the peer is woken.
    pub(crate) bell: PeerWake,
    /// Descriptors that arrived, in order; `None` for one that this process had no number free for.
    pub(crate) fds: VecDeque<Option<GivenFd>>,
    pub(crate) waiters: Waiters,
    pub(crate) wait: WaitPlanner,
    pub(crate) turns: Turns,
    pub(crate) accept: Slot,
    /// Tasks that wait to open a call, by their numbers: in the order in which they came.
    pub(crate) opens: BTreeMap<u64, Turn>,
    /// The number of the task that queues up next, to open a call or for room.
    pub(crate) next_number: u64,
    /// How many of them were told to try, and have not yet.
    pub(crate) told_count: usize,
    /// Tasks that wait for the bytes of ropes, by these.
    pub(crate) rope_waits: HashMap<RopeIdx, Waker>,
    /// Senders that wait for room in the ring.
    pub(crate) room: RoomQueue,
    pub(crate) publishing: PublishPlanner,
    /// Where this side says what it asks for.
    pub(crate) asking: Option<Arc<Region>>,
    /// A process that has attached: what its shepherd asks for.
    pub(crate) heeded: Heeded,
    /// To be called once the lock is released.
    pub(crate) wakes: SmallVec<[Waker; 8]>,
    /// Counts what could end somebody's wait: a task that is looking itself sees here that it has to try again.
    pub(crate) news: u64,
    /// The drivers are to look after the session once the lock is released.
    pub(crate) nudge: bool,
    /// An area was just accepted: a driver has to see to its end.
    pub(crate) area_made: bool,
    /// A driver looks now and then whether the peer has taken ropes.
    pub(crate) ropes_watched: bool,
    /// A driver beats for the session, if it has a stream.
    pub(crate) beats_watched: bool,
    area_len: usize,
    /// A server's: what it has made for the client counts there.
    seat: Option<Seat>,
    release_lines: usize,
}

impl Core {
    pub(crate) fn new(mut attached: Attached, config: &Config) -> (Core, Load) {
        // The peer has mapped it by now; the mapping stays without a descriptor.
        attached.own.region.take_fd();
        let (own, peer) = (Arc::new(attached.own.region), Arc::new(attached.peer));
        let load = Load::new(attached.shares_load, own.clone(), peer.clone());
        let own_ring = attached.own.ring;
        let link = attached.link.take().map(|seed| Box::new(Link::new(*seed, own.clone(), own_ring)));
        let asks = matches!(attached.purpose, Purpose::Attach(_));
        // The shepherd asks, for it is the client; the process that has attached heeds. On a stream nobody looks in any case.
        let asker = (asks && link.is_none() && attached.role == Role::Server).then(|| peer.clone());
        let asking = (asks && attached.role == Role::Client).then(|| own.clone());
        let gathers = config.is_shepherd && config.wait != WaitPolicy::LowLatency;
        let core = Core {
            session: Session::new(attached.role, config.limits, attached.peer_limits)
                .with_ropes(attached.lends || attached.peer_pool == PeerPool::Same),
            sending: Sending {
                ring: RingSender::new(own.clone(), peer.clone(), attached.own.ring),
                area: AreaSender::new(),
                violation: None,
                is_loud: false,
            },
            receiving: RingReceiver::new(own.clone(), peer.clone(), attached.peer_ring),
            waiter: Waiter::new(own),
            ringer: Ringer::new(peer),
            mapped: AreasMapped::default(),
            bell: match link {
                Some(link) => PeerWake::Link(link),
                None if attached.gives_doorbells => PeerWake::Awaited,
                None => PeerWake::Socket,
            },
            fds: VecDeque::new(),
            waiters: Waiters::default(),
            wait: WaitPlanner::new(config.wait, attached.role),
            turns: Turns::default(),
            accept: Slot::default(),
            opens: BTreeMap::new(),
            next_number: 0,
            told_count: 0,
            rope_waits: HashMap::new(),
            room: RoomQueue::default(),
            wakes: SmallVec::new(),
            publishing: PublishPlanner::new(gathers),
            asking,
            heeded: Heeded::new(asker),
            news: 0,
            nudge: false,
            area_made: false,
            ropes_watched: false,
            beats_watched: false,
            area_len: area_len(config.area_len, attached.peer_area_len_max),
            seat: attached.seat.take(),
            release_lines: attached.peer_ring.line_count() as usize / 4,
        };
        (core, load)
    }

    /// The slot of a key, while what it waits for exists.
    pub(crate) fn slot(&mut self, key: WaitKey) -> Option<&mut Slot> {
        slot_of(&mut self.session, &mut self.opens, &mut self.accept, key)
    }

    pub(crate) fn wake(&mut self, key: WaitKey) {
        self.news += 1;
        let Core { session, opens, accept, turns, wakes, .. } = self;
        if let Some(slot) = slot_of(session, opens, accept, key)
            && let Some(waker) = slot.take()
        {
            slot.woken(turns.wakes());
            wakes.push(waker);
        }
    }

    /// The task of a key runs, where others may count as waiting since longer than the next caller.
    #[inline]
    pub(crate) fn runs(&mut self, key: WaitKey) {
        if self.turns.is_owed()
            && let Some(slot) = self.slot(key)
        {
            let stamp = slot.runs();
            self.turns.runs(stamp);
        }
    }

    /// Handles what the peer has sent, up to a bound. Returns how many records that were.
    #[inline]
    pub(crate) fn poll(&mut self, socket: &Socket) -> usize {
        // What most looks find.
        let is_quiet = (!self.publishing.holds() || self.publishing.is_gathering())
            && self.receiving.is_empty()
            && self.sending.violation.is_none()
            && !self.session.has_pending()
            && !self.may_wake();
        if is_quiet { 0 } else { self.pump(socket) }
    }

    #[inline(never)]
    fn pump(&mut self, socket: &Socket) -> usize {
        let mut count = 0;
        if (self.publishing.holds() && !self.publishing.is_gathering()) || self.session.has_pending() {
            self.flush(socket);
        }
        while count < PUMP_COUNT && self.may_receive() && self.take_record(socket) {
            count += 1;
        }
        if let Some(violation) = self.sending.violation.take() {
            self.close(Closed::Violation(ring_violation(violation)), socket);
        }
        if count > 0 {
            // Also where nobody is woken: who is looking itself has to try again.
            self.news += 1;
            self.ended_wait();
        }
        self.wake_ready();
        count
    }

    /// Whether the next record would be taken.
    #[inline]
    fn may_receive(&self) -> bool {
        self.session.closed().is_none() && !self.session.is_congested()
    }

    /// Handles the next record; `false` where there is none.
    #[inline]
    fn take_record(&mut self, socket: &Socket) -> bool {
        // Most looks are in vain.
        !self.receiving.is_empty() && self.take_arrived(socket)
    }

    #[inline(never)]
    fn take_arrived(&mut self, socket: &Socket) -> bool {
        if matches!(self.bell, PeerWake::Awaited) {
            self.hear_of_doorbell(socket);
        }
        let received = match self.receiving.peek() {
            Ok(None) => return false,
            Ok(Some(record)) => {
                let arrived = Arrived { record, mapped: &self.mapped, in_area: false.into() };
                let received = self.session.receive(&arrived);
                here(Point::RecordHandled);
                let in_area = arrived.in_area.get();
                self.receiving.advance();
                if in_area || self.receiving.unreleased_lines() >= self.release_lines {
                    self.release(socket);
                }
                received
            }
            Err(violation) => Err(ring_violation(violation)),
        };
        match received {
            Ok(Received::Frame | Received::Closed) => {}
            Ok(Received::Area(event)) => self.area_event(event, socket),
            Err(violation) => self.close(Closed::Violation(violation), socket),
        }
        true
    }

    /// Handles the next record, if there is one, for a task that looks out for a call.
    #[inline]
    pub(crate) fn take_next(&mut self, socket: &Socket) {
        if self.may_receive() && self.take_record(socket) {
            self.ended_wait();
            // A call that came is for this task, and no news to any other.
            if !self.session.has_accepted() {
                self.news += 1;
                self.wake_ready();
            }
        }
    }

    /// Handles the next record, if there is one, for a task that looks out for what comes on a call. Whether that has come.
    #[inline]
    pub(crate) fn take_next_of(&mut self, id: StreamId, socket: &Socket) -> bool {
        let came = self.may_receive() && self.take_record(socket);
        let arrived = self.session.has_arrival(id);
        if came && !arrived {
            self.news += 1;
            self.wake_ready();
        }
        arrived
    }

    /// The answer to a call, if all of it has come in one frame. The call is over then.
    #[inline]
    pub(crate) fn take_answer(&mut self, id: StreamId) -> Option<Whole> {
        let answer = self.session.take_answer(id)?;
        if !self.opens.is_empty() {
            self.wake_ready();
        }
        Some(answer)
    }

    /// Gives consumed room back to the peer, and rings when it waits for that.
    fn release(&mut self, socket: &Socket) {
        if self.receiving.release() && self.ringer.should_ring_for_space() {
            self.ring(socket);
        }
    }

    fn ended_wait(&mut self) {
        for runtime_waiters in &mut self.waiters.list {
            if let Some((began_ns, looked_at_ns)) = runtime_waiters.wait_ends() {
                self.wait.wait_ended(began_ns, looked_at_ns, now_ns);
                if looked_at_ns != 0 {
                    counts::looked(looked_at_ns.saturating_sub(began_ns));
                }
            }
        }
    }

    /// A driver heard the doorbell.
    pub(crate) fn woken(&mut self) {
        counts::woken();
        self.wait.woken(Here::thread_time);
    }

    /// Gathers the wakers of everybody for whom something has changed.
    #[inline]
    pub(crate) fn wake_ready(&mut self) {
        if self.may_wake() {
            self.wake_all_ready();
        }
    }

    /// Whether anybody waits for what may have come.
    #[inline]
    fn may_wake(&self) -> bool {
        let wanted = self.room.has_untold() || !self.opens.is_empty() || !self.rope_waits.is_empty();
        self.session.has_ready() || self.accept.waiting || wanted
    }

    #[inline(never)]
    fn wake_all_ready(&mut self) {
        while let Some(ready) = self.session.next_ready() {
            if ready.read {
                self.wake(WaitKey::Read(ready.id));
            }
            if ready.write {
                self.wake(WaitKey::Write(ready.id));
            }
        }
        while let Some(mut slots) = self.session.next_abandoned() {
            self.news += 1;
            self.wakes.extend([slots.read.take(), slots.write.take()].into_iter().flatten());
        }
        if self.accept.waiting && (self.session.has_accepted() || self.is_over()) {
            self.wake(WaitKey::Accept);
        }
        if self.room.has_untold() {
            self.wake_senders();
        }
        if !self.rope_waits.is_empty() {
            self.wake_asked();
        }
        if !self.opens.is_empty() {
            self.wake_openers();
        }
    }

    /// Wakes those whose ropes' bytes have come, or never will.
    fn wake_asked(&mut self) {
        if self.session.closed().is_some() {
            self.wakes.extend(self.rope_waits.drain().map(|(_, waker)| waker));
        }
        while let Some(rope) = self.session.next_asked() {
            self.wakes.extend(self.rope_waits.remove(&rope));
        }
    }

    /// Whether no call begins in this session any more, as far as this side decides that or knows.
    pub(crate) fn is_over(&self) -> bool {
        self.session.closed().is_some() || (self.session.role() == Role::Client && self.session.is_draining())
    }

    /// Whether those who wait for room should try again.
    pub(crate) fn room_came(&mut self) -> bool {
        if self.session.closed().is_some() {
            return true;
        }
        let most = self.sending.record_len_max();
        self.sending.ring.has_room(most).unwrap_or(true)
    }

    /// Arms the doorbell, for room too where somebody waits for that, and looks once more. `false`: there is something,
    /// so this side stays awake.
    pub(crate) fn arm(&mut self) -> bool {
        let (wants_room, opener_wants_room) = (self.room.has_untold(), self.opener_wants_room());
        let wants_space = wants_room || opener_wants_room || self.session.has_pending();
        self.waiter.park(wants_space);
        here(Point::Parked);
        // What the poll would not take now is no reason to stay awake.
        let readable = !self.receiving.is_empty() && !self.session.is_congested();
        let came = readable
            || (self.session.has_pending() && self.room_came())
            || (wants_room && !self.due_senders().is_empty())
            || (opener_wants_room && !self.due_openers().is_empty());
        if came {
            self.waiter.unpark();
        }
        !came
    }

    pub(crate) fn make_area(&mut self, socket: &Socket) {
        if self.area_len == 0 {
            self.sending.area.give_up();
            return;
        }
        let area_len = self.area_len;
        if self.seat.as_mut().is_some_and(|seat| !seat.reserve_area(area_len)) {
            tracing::debug!("no payload area now: large messages of this session go through the ring");
            self.sending.area.put_off();
            return;
        }
        let made = Region::create("tollfree-area", self.area_len)
            .map_err(|error| error.to_string())
            .and_then(|mut region| {
                here(Point::AreaMade);
                match socket::send(socket, b"a", region.take_fd().as_ref().map(tollfree_os::fd::AsFd::as_fd))
                {
                    Ok(true) => Ok(region),
                    Ok(false) => Err("the socket's buffer is full".to_string()),
                    Err(error) => Err(error.to_string()),
                }
            });
        match made {
            Ok(region) => {
                here(Point::AreaSent);
                let idx = self.sending.area.offered(region);
                self.session.offer_area(idx, self.area_len as u32);
                here(Point::AreaOffered);
            }
            Err(reason) => {
                if let Some(seat) = &mut self.seat {
                    seat.return_area(area_len);
                }
                if let Some(unsaid) = NOT_MADE.turn() {
                    tracing::warn!(
                        %reason,
                        unsaid,
                        "no payload area: large messages of this session go through the ring"
                    );
                }
                self.sending.area.give_up();
            }
        }
    }

    fn area_event(&mut self, event: AreaEvent, socket: &Socket) {
        let unasked = |code| Closed::Violation(Violation::Control { code });
        use tollfree_layout::frame::control::*;
        match event {
            AreaEvent::Offered { area, len } => {
                let fd = self.next_fd(socket);
                here(Point::AreaTaken);
                match fd {
                    _ if !self.mapped.allows(area, len as usize) => self.close(unasked(AREA_OFFER), socket),
                    Some(Some(fd)) => self.map_area(area, len as usize, fd, socket),
                    Some(None) => self.session.answer_area(area, false),
                    None if self.session.closed().is_some() => {}
                    None => {
                        let missing =
                            Violation::Socket("a payload area was offered and its descriptor did not come");
                        self.close(Closed::Violation(missing), socket);
                    }
                }
            }
            AreaEvent::Accepted(area) if self.sending.area.answered(area, true) => {
                here(Point::AreaAccepted);
                self.area_made = true;
                self.nudge = true;
            }
            AreaEvent::Refused(area) if self.sending.area.answered(area, false) => {
                if let Some(seat) = &mut self.seat {
                    seat.gave_up_area(self.area_len);
                }
                if let Some(unsaid) = NO_AREA.turn() {
                    tracing::warn!(
                        unsaid,
                        "the peer could not map a payload area: large messages go through the ring"
                    );
                }
            }
            // One that was refused here is dropped without ever having been mapped.
            AreaEvent::Dropped(area) => {
                self.mapped.remove(area);
                here(Point::AreaUnmapped);
            }
            AreaEvent::Accepted(_) => self.close(unasked(AREA_ACCEPT), socket),
            AreaEvent::Refused(_) => self.close(unasked(AREA_REFUSE), socket),
        }
    }

    fn map_area(&mut self, area: AreaIdx, len: usize, fd: GivenFd, socket: &Socket) {
        match PeerRegion::map(fd, len) {
            Ok(region) => {
                self.mapped.insert(area, region);
                here(Point::AreaMapped);
                self.session.answer_area(area, true);
            }
            Err(error) if error.is_peer_fault() => {
                if let Some(unsaid) = NO_AREA.turn() {
                    tracing::warn!(%error, unsaid, "refusing a payload area");
                }
                let refused =
                    Violation::Socket("a payload area that is not what was announced, or not sealed");
                self.close(Closed::Violation(refused), socket);
            }
            Err(error) => {
                if let Some(unsaid) = NO_AREA.turn() {
                    tracing::warn!(%error, unsaid, "can't map a payload area; the peer goes on without");
                }
                self.session.answer_area(area, false);
            }
        }
    }

    /// The peer is gone: what it had published still counts, then the session ends.
    pub(crate) fn hang_up(&mut self, socket: &Socket) {
        here(Point::HangUpHeard);
        // A dead peer publishes nothing more; one that only closed its socket gets no longer than a full ring.
        for _ in 0..PUMP_COUNT {
            if self.poll(socket) == 0 {
                break;
            }
        }
        if self.session.closed().is_none() {
            counts::peer_died();
        }
        self.session.end_session(Closed::HungUp);
        self.wake_ready();
    }

    /// Ends the session from this side: tells the peer as far as there is room, and hangs up.
    pub(crate) fn close(&mut self, reason: Closed, socket: &Socket) {
        match &reason {
            Closed::Here(reason) => tracing::debug!(reason, "closing a session"),
            reason => {
                if let Some(unsaid) = VIOLATED.turn() {
                    tracing::warn!(%reason, unsaid, "closing a session");
                }
            }
        }
        self.session.close(&mut self.sending, reason);
        here(Point::CloseStaged);
        let is_new = self.sending.ring.publish();
        let published = self.sending.ring.published();
        if let Some(link) = self.link() {
            link.close(socket, published);
        } else if is_new {
            here(Point::ClosePublished);
            socket::ring(socket);
        }
        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        here(Point::SocketShutDown);
        self.wake_ready();
    }

    /// Gives the payload area up when nothing went through it for a while. After how many idle times to look again, where there is
    /// still one.
    pub(crate) fn drop_idle_area(&mut self, socket: &Socket) -> Option<u32> {
        if let Some(area) = self.sending.area.take_idle() {
            if let Some(seat) = &mut self.seat {
                seat.gave_up_area(self.area_len);
            }
            self.session.drop_area(area);
            here(Point::AreaDropping);
            self.flush(socket);
            here(Point::AreaDropped);
            // The peer may be idle without having parked; this is worth one wake-up.
            self.ring(socket);
        }
        self.sending.area.is_live().then(|| self.sending.area.patience())
    }

    /// Whether the peer's waiting thread runs on this processor; also says so to the peer.
    pub(crate) fn shares_cpu(&mut self) -> bool {
        shares_cpu(&mut self.waiter, &self.ringer)
    }

    /// A slot's task has gone (done, dropped, panicked): if it polled, another takes over.
    pub(crate) fn leave(&mut self, key: WaitKey) {
        if let Some(slot) = self.slot(key) {
            slot.waiting = false;
        }
        self.stops_polling(key);
    }

    /// If a task polled under this key, another takes over.
    fn stops_polling(&mut self, key: WaitKey) {
        if let Some(runtime_waiters) = self.waiters.polled_by(key) {
            let runtime = runtime_waiters.runtime;
            self.hand_over(runtime);
        }
    }

    /// The poller of a runtime has gone: the next that waits is woken, and polls from now on. Should it go too before
    /// it gets its turn, its own leaving hands over again. Where there is none, tasks of other runtimes may count on a
    /// doorbell that this one has put away, and small frames on somebody who sends them.
    pub(crate) fn hand_over(&mut self, runtime: runtime::Id) {
        let next = self.first_waiting(runtime);
        let Some(runtime_waiters) = self.waiters.find(runtime) else { return };
        runtime_waiters.hand_over(next);
        match next {
            Some(next) => {
                self.nudge |= !runtime_waiters.watched;
                self.wake(next);
            }
            None => self.handed_to_nobody(runtime),
        }
    }

    /// Nobody polls for a runtime any more: a driver looks where others count on it.
    pub(crate) fn handed_to_nobody(&mut self, runtime: runtime::Id) {
        self.nudge |= self.waits_by_itself() || self.waiters.others_sleep(runtime);
    }

    /// The first slot of a runtime that still waits.
    pub(crate) fn first_waiting(&mut self, runtime: runtime::Id) -> Option<WaitKey> {
        loop {
            let key = self.waiters.find(runtime)?.front()?;
            if self.slot(key).is_some_and(|slot| slot.waits_in(runtime)) {
                return Some(key);
            }
            // Borrowed apart: the slot may live in a stream of the session.
            let mut waiters = std::mem::take(&mut self.waiters);
            if let Some(runtime_waiters) = waiters.find(runtime) {
                runtime_waiters.drop_front(self.slot(key));
            }
            self.waiters = waiters;
        }
    }

    /// Whether anybody counts on the doorbell: tasks in a runtime that nobody polls, or frames that nobody would send.
    pub(crate) fn anyone_sleeps(&mut self) -> bool {
        let mut polled = false;
        for idx in 0..self.waiters.list.len() {
            let (runtime, is_polled) = (self.waiters.list[idx].runtime, self.waiters.list[idx].is_polled());
            polled |= is_polled;
            if !is_polled && self.first_waiting(runtime).is_some() {
                return true;
            }
        }
        self.waits_by_itself() && !polled
    }

    /// Whether something is to happen that no task looks for: room for frames, bytes of ropes, or ropes on calls that were
    /// cancelled.
    fn waits_by_itself(&self) -> bool {
        self.session.has_pending() || self.session.expects_strays() || self.session.awaits_rope_bytes()
    }

    /// Whether a driver is to look now and then for the peer's word that it has taken ropes, which wakes nobody.
    pub(crate) fn wants_rope_watch(&self) -> bool {
        self.session.ropes_in_flight() > 0 && !self.ropes_watched
    }

    /// Has a driver see to what happens by itself, if nobody looks at the ring.
    pub(crate) fn leave_to_driver(&mut self) {
        self.nudge |= self.waits_by_itself() && !self.waiters.is_polled();
    }

    /// The poller of a runtime has stopped looking: it counts as asleep, if it waits at all.
    pub(crate) fn demote_poller(&mut self, runtime: runtime::Id) {
        let mut waiters = std::mem::take(&mut self.waiters);
        if let Some(runtime_waiters) = waiters.find(runtime)
            && let Some(key) = runtime_waiters.take_poller()
            && let Some(slot) = self.slot(key).filter(|slot| slot.waiting)
        {
            tracing::debug!(?key, "a task that looks for others has not looked for a while; the driver does");
            runtime_waiters.queue(key, slot);
        }
        self.waiters = waiters;
    }

    /// A runtime goes with its runtime. Its tasks, where they live on, have to wait elsewhere; and the other runtimes must
    /// not count on it.
    pub(crate) fn remove_runtime(&mut self, runtime: runtime::Id) {
        for key in self.waiters.remove(runtime) {
            self.wake(key);
        }
        // Its driver publishes nothing any more.
        self.publishing.stops_gathering();
        self.nudge = true;
    }

    /// Queues keep the places of tasks that have gone until they come to the front; many of those go out together.
    fn sweep_queues(&mut self) {
        let most = 2 * self.session.stream_count() + self.opens.len() + 64;
        if self.waiters.list.iter().all(|runtime_waiters| runtime_waiters.queue_len() <= most) {
            return;
        }
        let mut waiters = std::mem::take(&mut self.waiters);
        for runtime_waiters in &mut waiters.list {
            let runtime = runtime_waiters.runtime;
            runtime_waiters.sweep(|key| match self.slot(*key) {
                Some(slot) if slot.waits_in(runtime) => true,
                Some(slot) => {
                    slot.left_queue(runtime);
                    false
                }
                None => false,
            });
        }
        self.waiters = waiters;
    }

    /// A stream is let go of; tells the peer if it had not ended. Whoever waits on it is woken: another task may be in the middle
    /// of sending on it, read it, or watch for its end.
    pub(crate) fn forget(&mut self, id: StreamId, code: u16, socket: &Socket) {
        if !self.room.is_empty() {
            self.leave_room_queue(id);
        }
        self.session.forget(id, code);
        here(Point::StreamForgotten);
        // Also for a task that looks at this moment, and does not wait.
        self.news += 1;
        let keys = [WaitKey::Read(id), WaitKey::Write(id)];
        // Its slots have gone with it.
        keys.into_iter().for_each(|key| self.stops_polling(key));
        self.sweep_queues();
        self.wake_ready();
        if self.session.has_pending() {
            self.flush(socket);
        }
        self.leave_to_driver();
    }
}

/// See [`Core::shares_cpu`].
pub(crate) fn shares_cpu(waiter: &mut Waiter<Region>, ringer: &Ringer<PeerRegion>) -> bool {
    let cpu = rustix::thread::sched_getcpu() as u32;
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
