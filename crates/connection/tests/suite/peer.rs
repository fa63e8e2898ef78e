//! What a peer writes by hand into its ring and its control page, and leaves on its socket: a connection takes what the protocol has, and
//! ends the session for the rest.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tollfree_connection::{AreaAllowance, AreaFd, Connection, PeerIo, Report, Setup, WaitHints, WaitPolicy};
use tollfree_layout::control::{ASKED_OFF, CONSUMED_OFF};
use tollfree_layout::frame::{AreaRange, FrameHead, control, events, flags};
use tollfree_layout::limits::{AREA_LEN_MAX, AREA_LEN_MIN, PAGE_LEN};
use tollfree_layout::{RingPos, StreamId};
use tollfree_region::{PeerRegion, Region, WriteMemory};
use tollfree_ring::{Geometry, RecordReceiver, RecordSender, RingReceiver, RingSender};
use tollfree_session::{Closed, Limits, Outgoing, OutgoingMessage, Progress, Recording, Role, Violation};
use zerocopy::IntoBytes;

const RING_LEN: usize = 4 * PAGE_LEN;

/// A client that writes what it likes.
struct Peer {
    own: Arc<Region>,
    sender: RingSender<Region, PeerRegion>,
    receiver: RingReceiver<Region, PeerRegion>,
}

/// What lies on the socket of the connection, and what it has done there.
#[derive(Default)]
struct Socket {
    areas: VecDeque<AreaFd>,
    /// The peer has done on the socket what no peer does.
    violation: Option<Violation>,
    hangs_up: bool,
    rings: u32,
    reports: Vec<&'static str>,
}

impl PeerIo for Socket {
    fn now_ns(&self) -> u64 {
        1
    }

    fn ring(&mut self, _: RingPos) {
        self.rings += 1;
    }

    fn record_came(&mut self) -> Result<(), Violation> {
        self.violation.map_or(Ok(()), Err)
    }

    fn send_area(&mut self, _: BorrowedFd<'_>) -> Result<(), String> {
        Ok(())
    }

    fn take_area(&mut self) -> AreaFd {
        self.areas.pop_front().unwrap_or(AreaFd::Missing)
    }

    fn hang_up(&mut self, _: RingPos, _: bool) {
        self.hangs_up = true;
    }

    fn report(&mut self, report: Report<'_>) {
        self.reports.push(match report {
            Report::Closing(_) => "closing",
            Report::AreaWithheld => "area withheld",
            Report::AreaNotMade(_) => "area not made",
            Report::AreaRefused => "area refused",
            Report::AreaForged(_) => "area forged",
            Report::AreaNotMapped(_) => "area not mapped",
        });
    }
}

/// A server, its peer, and its socket.
struct World {
    server: Connection<()>,
    peer: Peer,
    socket: Socket,
}

impl World {
    fn new() -> World {
        World::with(None, WaitHints::None)
    }

    fn with(allowance: Option<Box<dyn AreaAllowance>>, hints: WaitHints) -> World {
        let ring = Geometry::new(PAGE_LEN, RING_LEN).unwrap();
        let regions = [0, 1].map(|_| Region::create("peer", ring.end()).unwrap());
        let [server_seen, peer_seen] = [0, 1].map(|idx| {
            let fd = regions[idx].fd().try_clone_to_owned().unwrap();
            Arc::new(PeerRegion::map(fd, ring.end()).unwrap())
        });
        let [server, own] = regions.map(Arc::new);
        let connection = Connection::new(Setup {
            role: Role::Server,
            policy: WaitPolicy::Adaptive,
            gathers: false,
            limits: Limits::default(),
            peer_limits: Limits::default(),
            segmented_messages: false,
            own: server,
            own_ring: ring,
            peer: peer_seen,
            peer_ring: ring,
            area_len: AREA_LEN_MIN,
            peer_area_len_max: AREA_LEN_MAX,
            area_idle_ns: 100,
            allowance,
            hints,
            recording: Recording::off(),
        });
        let peer = Peer {
            sender: RingSender::new(own.clone(), server_seen.clone(), ring),
            receiver: RingReceiver::new(own.clone(), server_seen, ring),
            own,
        };
        World { server: connection, peer, socket: Socket::default() }
    }

    /// The peer writes a frame; the server has taken it.
    fn frame(&mut self, head: FrameHead, rest: &[u8]) {
        self.peer.sender.stage(&[head.as_bytes(), rest]).unwrap();
        self.peer.sender.publish();
        self.server.receive_all(&mut self.socket);
    }

    fn control(&mut self, code: u16, area: u64, len: usize) {
        let head = FrameHead {
            events: events::CONTROL,
            code: code.into(),
            stream: area.into(),
            chunk_len: (len as u32).into(),
            ..FrameHead::default()
        };
        self.frame(head, &[]);
    }

    /// The peer offers an area, whose descriptor has come.
    fn offer(&mut self, area: u64, len: usize) {
        self.socket.areas.push_back(AreaFd::Came(descriptor(AREA_LEN_MIN).into()));
        self.control(control::AREA_OFFER, area, len);
    }

    /// Why the session is over, if the socket was hung up for it.
    fn closed(&self) -> Option<&Closed> {
        let closed = self.server.session().closed();
        assert_eq!(closed.is_some(), self.socket.hangs_up);
        closed
    }

    /// Codes of the control frames that the server has answered with.
    fn answers(&mut self) -> Vec<u16> {
        self.server.flush(&mut self.socket, false);
        let mut codes = Vec::new();
        while let Some(record) = self.peer.receiver.peek().unwrap() {
            let mut head = FrameHead::default();
            tollfree_ring::RecordRead::read(&record, 0, head.as_mut_bytes());
            if head.events == events::CONTROL {
                codes.push(head.code.get());
            }
            self.peer.receiver.advance();
        }
        self.peer.receiver.release();
        codes
    }
}

fn descriptor(len: usize) -> std::os::fd::OwnedFd {
    Region::create("area", len).unwrap().fd().try_clone_to_owned().unwrap()
}

fn violated(violation: Violation) -> Closed {
    Closed::Violation(violation)
}

/// A call whose method has the name "/a" if it is the first.
fn opening(stream: u64) -> (FrameHead, &'static [u8]) {
    let mut head = FrameHead { events: events::HEADERS, stream: stream.into(), ..FrameHead::default() };
    if stream > 1 {
        return (head, &[]);
    }
    head.flags = flags::NAMES_METHOD;
    head.headers_len = 4.into();
    (head, &[2, 0, b'/', b'a'])
}

#[test]
fn two_areas_may_be_mapped_and_a_third_once_one_is_dropped() {
    let mut world = World::new();
    world.offer(0, AREA_LEN_MIN);
    world.offer(1, AREA_LEN_MIN);
    assert_eq!(world.answers(), [control::AREA_ACCEPT, control::AREA_ACCEPT]);
    world.control(control::AREA_DROP, 0, 0);
    world.offer(2, AREA_LEN_MIN);
    assert_eq!((world.answers(), world.closed()), (vec![control::AREA_ACCEPT], None));
    world.offer(3, AREA_LEN_MIN);
    assert_eq!(world.closed(), Some(&violated(Violation::Control { code: control::AREA_OFFER })));
}

#[test]
fn an_area_that_is_not_what_was_announced_ends_the_session() {
    let forged = Violation::Socket("a payload area that is not what was announced, or not sealed");
    let missing = Violation::Socket("a payload area was offered and its descriptor did not come");
    let odd = Violation::Socket("odd");
    let unasked = Violation::Control { code: control::AREA_OFFER };
    let came = |len| AreaFd::Came(descriptor(len).into());
    for (fd, len, violation, reports) in [
        (came(AREA_LEN_MIN), AREA_LEN_MIN + PAGE_LEN, forged, vec!["area forged", "closing"]),
        (came(2 * AREA_LEN_MIN), AREA_LEN_MIN, forged, vec!["area forged", "closing"]),
        (AreaFd::Missing, AREA_LEN_MIN, missing, vec!["closing"]),
        (AreaFd::Violation(odd), AREA_LEN_MIN, odd, vec!["closing"]),
        (came(AREA_LEN_MIN), AREA_LEN_MIN - PAGE_LEN, unasked, vec!["closing"]),
        (came(AREA_LEN_MIN), AREA_LEN_MAX + PAGE_LEN, unasked, vec!["closing"]),
        (came(AREA_LEN_MIN), AREA_LEN_MIN + 1, unasked, vec!["closing"]),
    ] {
        let mut world = World::new();
        world.socket.areas.push_back(fd);
        world.control(control::AREA_OFFER, 0, len);
        assert_eq!(world.closed(), Some(&violated(violation)), "{len}");
        assert_eq!(world.socket.reports, reports, "{len}");
    }
}

#[test]
fn an_area_for_which_this_process_has_no_number_is_refused_and_the_session_goes_on() {
    let mut world = World::new();
    world.socket.areas.push_back(AreaFd::NoNumber);
    world.control(control::AREA_OFFER, 0, AREA_LEN_MIN);
    assert_eq!((world.answers(), world.closed()), (vec![control::AREA_REFUSE], None));
}

#[test]
fn a_chunk_in_an_area_is_read_there_and_its_room_is_given_back_at_once() {
    let mut world = World::new();
    world.offer(0, AREA_LEN_MIN);
    let (head, path) = opening(1);
    world.frame(head, path);
    assert!(world.server.session_mut().accept().is_some());
    let whole = FrameHead {
        events: events::MESSAGE,
        flags: flags::FIRST | flags::LAST | flags::IN_AREA,
        stream: 1.into(),
        chunk_len: 600.into(),
        message_len: 600.into(),
        ..FrameHead::default()
    };
    let range =
        |offset: usize| AreaRange { area: 0.into(), reserved: 0.into(), offset: (offset as u64).into() };
    assert!(world.peer.sender.backlog().0 > 0, "records alone are given back many at once");
    world.frame(whole, range(AREA_LEN_MIN - 600).as_bytes());
    assert_eq!(world.peer.sender.backlog().0, 0);
    let part = world.server.session_mut().take(StreamId(1)).unwrap().into_part();
    assert_eq!(part.chunk.unwrap().bytes.len(), 605);
    world.frame(whole, range(AREA_LEN_MIN - 599).as_bytes());
    assert_eq!(world.closed(), Some(&violated(Violation::AreaRange { stream: 1 })));
}

#[test]
fn a_chunk_in_an_area_for_a_call_that_has_ended_gives_its_room_back_too() {
    let mut world = World::new();
    world.offer(0, AREA_LEN_MIN);
    let (head, path) = opening(1);
    world.frame(head, path);
    world.frame(FrameHead { events: events::CANCEL, stream: 1.into(), ..FrameHead::default() }, &[]);
    assert!(world.peer.sender.backlog().0 > 0);
    let whole = FrameHead {
        events: events::MESSAGE,
        flags: flags::FIRST | flags::LAST | flags::IN_AREA,
        stream: 1.into(),
        chunk_len: 600.into(),
        message_len: 600.into(),
        ..FrameHead::default()
    };
    world.frame(whole, AreaRange::default().as_bytes());
    assert_eq!((world.peer.sender.backlog().0, world.closed()), (0, None));
}

#[test]
fn room_of_records_is_given_back_a_quarter_of_the_ring_at_a_time() {
    let mut world = World::new();
    let lines = RING_LEN as u64 / 64;
    let mut held = Vec::new();
    for stream in 1..=2 * lines / 4 {
        let (head, path) = opening(stream);
        world.frame(head, path);
        // A call that is cancelled is forgotten with the next look.
        let cancel = FrameHead { events: events::CANCEL, stream: stream.into(), ..FrameHead::default() };
        world.frame(cancel, &[]);
        assert!(world.server.session_mut().accept().is_none());
        held.push(world.peer.sender.backlog().0 / 64);
    }
    assert_eq!(held.iter().max(), Some(&(lines / 4 - 2)), "{held:?}");
    assert!(held.iter().filter(|held| **held == 0).count() >= 2);
}

#[test]
fn records_are_taken_many_at_once_but_not_for_ever() {
    let mut world = World::new();
    let (head, path) = opening(1);
    world.frame(head, path);
    let grant = FrameHead { events: events::CREDIT, chunk_len: 1.into(), ..FrameHead::default() };
    let count = 150;
    for _ in 0..count {
        world.peer.sender.stage(&[grant.as_bytes()]).unwrap();
    }
    world.peer.sender.publish();
    assert!(world.server.has_record() && !world.server.is_quiet());
    let mut taken = Vec::new();
    while world.server.has_record() {
        taken.push(world.server.receive_all(&mut world.socket));
    }
    assert_eq!(taken.iter().sum::<usize>(), count);
    assert!(taken.len() > 1 && taken[0] > 1 && taken[..taken.len() - 1].iter().all(|some| *some == taken[0]));
    assert_eq!(world.server.receive_all(&mut world.socket), 0);
    assert!(!world.server.receive(&mut world.socket) && world.server.is_quiet());
}

#[test]
fn a_peer_that_misuses_its_socket_is_found_with_its_next_record() {
    let mut world = World::new();
    let odd = Violation::Socket("odd");
    world.socket.violation = Some(odd);
    let (head, path) = opening(1);
    world.frame(head, path);
    assert_eq!(world.closed(), Some(&violated(odd)));
    assert!(!world.server.receive(&mut world.socket), "nothing is read any more");
}

#[test]
fn a_cursor_that_is_forged_ends_the_session_with_the_next_look() {
    let mut world = World::new();
    world.peer.own.store_u64(CONSUMED_OFF, 1 << 40, Ordering::Release);
    // The ring has to be full before the cursor is looked at.
    for area in 0..2 * RING_LEN as u32 / 64 {
        world.server.session_mut().answer_area(tollfree_layout::AreaIdx(area), false);
    }
    world.server.flush(&mut world.socket, false);
    assert!(!world.server.is_quiet(), "there is something to see to");
    assert_eq!(world.closed(), None);
    world.server.receive_all(&mut world.socket);
    assert_eq!(world.closed(), Some(&violated(Violation::Ring("a cursor out of range"))));
}

/// What areas are charged to.
#[derive(Clone, Debug, Default)]
struct Ledger(Arc<Mutex<Charges>>);

#[derive(Debug, Default)]
struct Charges {
    is_used_up: bool,
    /// What became of areas, and how long they were.
    noted: Vec<(&'static str, usize)>,
}

impl Ledger {
    fn note(&self, what: &'static str, len: usize) {
        self.0.lock().unwrap().noted.push((what, len));
    }

    fn take(&self) -> Vec<(&'static str, usize)> {
        std::mem::take(&mut self.0.lock().unwrap().noted)
    }
}

impl AreaAllowance for Ledger {
    fn reserve(&mut self, len: usize) -> bool {
        self.note("reserved", len);
        !self.0.lock().unwrap().is_used_up
    }

    fn give_back(&mut self, len: usize) {
        self.note("given back", len);
    }

    fn gave_up(&mut self, len: usize) {
        self.note("given up", len);
    }
}

/// A server that answers a call with a message that is worth an area.
fn answering(ledger: &Ledger) -> World {
    let mut world = World::with(Some(Box::new(ledger.clone())), WaitHints::None);
    let (head, path) = opening(1);
    world.frame(head, path);
    world.server.session_mut().accept().unwrap();
    let message = Some(OutgoingMessage::new(vec![7; 60_000].into(), false));
    let mut outgoing = Outgoing { headers: Some(Bytes::new()), message, ending: None };
    let progress = world.server.send(StreamId(1), &mut outgoing).unwrap();
    assert!(matches!(progress, Progress::NeedRoom | Progress::RanOut), "{progress:?}");
    world
}

#[test]
fn an_area_is_charged_for_until_it_is_given_up_or_refused() {
    let ledger = Ledger::default();
    let mut world = answering(&ledger);
    assert_eq!(world.answers(), [control::AREA_OFFER]);
    assert_eq!(ledger.take(), [("reserved", AREA_LEN_MIN)]);
    assert!(!world.server.wants_timer());
    world.control(control::AREA_ACCEPT, 0, 0);
    assert!(world.server.wants_timer());
    world.server.timer_told();
    assert!(!world.server.wants_timer());
    // Idle for so long twice: it had just been made at the first look.
    for (now_ns, answers, given_up) in
        [(1, vec![], vec![]), (101, vec![control::AREA_DROP], vec![("given up", AREA_LEN_MIN)])]
    {
        assert_eq!(world.server.timeout(now_ns), Some(now_ns + 100));
        let before = world.socket.rings;
        world.server.handle_timeout(now_ns + 100, &mut world.socket);
        assert_eq!((world.answers(), ledger.take()), (answers, given_up.clone()));
        assert_eq!(world.socket.rings > before, !given_up.is_empty(), "worth one wake-up");
    }
    assert_eq!((world.server.timeout(300), world.server.wants_timer()), (None, false));

    let mut world = answering(&ledger);
    world.answers();
    ledger.take();
    world.control(control::AREA_REFUSE, 0, 0);
    assert_eq!((ledger.take(), world.closed()), (vec![("given up", AREA_LEN_MIN)], None));
    assert_eq!(world.socket.reports, ["area refused"]);
}

#[test]
fn an_area_that_is_not_allowed_is_not_made() {
    let ledger = Ledger::default();
    ledger.0.lock().unwrap().is_used_up = true;
    let mut world = answering(&ledger);
    assert_eq!((world.answers(), world.closed()), (vec![], None));
    assert_eq!(
        (ledger.take(), world.socket.reports),
        (vec![("reserved", AREA_LEN_MIN)], vec!["area withheld"])
    );
}

#[test]
fn what_the_peer_has_not_read_is_known() {
    let mut world = World::new();
    assert_eq!((world.server.backlog(), world.server.is_nearly_read()), ((0, RING_LEN as u64), true));
    let quarter = RING_LEN as u32 / 64 / 4;
    for area in 0..quarter + 1 {
        world.server.session_mut().answer_area(tollfree_layout::AreaIdx(area), false);
        world.server.flush(&mut world.socket, false);
        assert_eq!(world.server.backlog().0, u64::from(area + 1) * 64);
        assert_eq!(world.server.is_nearly_read(), area < quarter, "{area}");
    }
    assert!(world.server.published() > RingPos(0));
}

#[test]
fn answers_about_areas_that_were_not_offered_end_the_session() {
    for code in [control::AREA_ACCEPT, control::AREA_REFUSE] {
        let mut world = World::new();
        world.control(code, 0, 0);
        assert_eq!(world.closed(), Some(&violated(Violation::Control { code })));
    }
}

#[test]
fn the_end_of_the_socket_ends_the_session_once() {
    let mut world = World::new();
    assert!(world.server.hung_up() && !world.server.hung_up());
    assert_eq!(world.server.session().closed(), Some(&Closed::HungUp));
    assert!(world.server.has_room(), "who waits for room is to see it");
    assert_eq!(world.server.timeout(1), None);
}

/// What a gateway asks for by its word decides how long a backend looks: microseconds, as the word says, a second at most.
#[test]
fn a_word_of_the_peers_decides_how_long_to_look_where_it_may() {
    for (hints, looks_ns) in
        [(WaitHints::Taken, Some(7_000)), (WaitHints::None, None), (WaitHints::Given, None)]
    {
        let mut world = World::with(None, hints);
        let usual = world.server.wait().budget_ns();
        // Look for 7 µs: stored with 1 added, from bit 12 on, and mode 2.
        world.peer.own.store_u64(ASKED_OFF, 8 << 12 | 2, Ordering::Relaxed);
        world.server.take_hint(1);
        assert_eq!(world.server.wait().budget_ns(), looks_ns.unwrap_or(usual), "{hints:?}");
        world.peer.own.store_u64(ASKED_OFF, u64::MAX, Ordering::Relaxed);
        world.server.take_hint(2);
        assert!(world.server.wait().budget_ns() <= 1_000_000_000, "{hints:?}");
        world.peer.own.store_u64(ASKED_OFF, 0, Ordering::Relaxed);
        world.server.take_hint(3);
        assert_eq!(world.server.wait().budget_ns(), usual, "{hints:?}");
    }
}
