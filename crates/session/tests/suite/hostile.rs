//! A peer that sends anything: frames of an honest one with every field bent, out of order, cut, or plain noise. The
//! victim never panics, latches the first violation, ends every stream, and keeps no more than its limits allow.

use std::collections::BTreeSet;

use crate::simulation::rng::Rng;
use crate::simulation::wire::Wire;
use bytes::Bytes;
use tollfree_layout::frame::{FRAME_HEAD_LEN, FrameHead, events, flags};
use tollfree_layout::{AreaIdx, StreamId, metadata};
use tollfree_session::{
    AreaEvent, Closed, End, Ending, Incoming, Keep, Limits, OBJECT_PREFIX, Opening, Outgoing,
    OutgoingMessage, Progress, Received, Role, Session, Violation,
};
use zerocopy::{FromBytes, IntoBytes};

const LIMITS: Limits =
    Limits { stream_window: 4096, session_window: 20_000, stream_count: 4, metadata_len_max: 200 };

struct Pair {
    rng: Rng,
    victim: Session<()>,
    to_victim: Wire,
    peer: Session<()>,
    to_peer: Wire,
    role: Role,
    /// Messages may be segmented messages.
    segmented_messages: bool,
    /// Records that the peer sent before, for saying them again.
    old: Vec<Vec<u8>>,
    opened: Vec<StreamId>,
}

impl Pair {
    fn new(seed: u64) -> Pair {
        let mut rng = Rng::new(seed);
        let role = if rng.one_in(2) { Role::Client } else { Role::Server };
        let segmented_messages = rng.one_in(2);
        let mut pair = Pair {
            rng,
            victim: Session::new(role, LIMITS, LIMITS).with_segmented(segmented_messages),
            to_victim: Wire::new(4024),
            peer: Session::new(role.peer(), LIMITS, LIMITS).with_segmented(segmented_messages),
            segmented_messages,
            to_peer: Wire::new(4024),
            role,
            old: Vec::new(),
            opened: Vec::new(),
        };
        // Both sides have an area, so that bent ranges meet a real one.
        pair.to_victim.add_area(AreaIdx(0), 16_384);
        pair.peer.offer_area(AreaIdx(0), 16_384);
        pair
    }

    fn outgoing(&mut self, headers: bool, ending: Ending) -> Outgoing {
        let mut block = Vec::new();
        metadata::pack(&mut block, "authorization", b"value").unwrap();
        let len = self.rng.pick(&[0, 10, 3000, 9000]);
        Outgoing {
            headers: headers.then(|| block.into()),
            message: self.rng.one_in(2).then(|| {
                let bytes = Bytes::from(vec![7; len]);
                if self.rng.one_in(3) {
                    self.batch()
                } else if self.segmented_messages && self.rng.one_in(3) {
                    OutgoingMessage::segmented(bytes, false, Keep::new(()))
                } else {
                    OutgoingMessage::new(bytes, false)
                }
            }),
            ending: self.rng.one_in(2).then_some(ending),
        }
    }

    /// Several messages or objects, some of which fit into no frame with others.
    fn batch(&mut self) -> OutgoingMessage {
        let of_objects = self.rng.one_in(2);
        let mut framed = Vec::new();
        for _ in 0..2 + self.rng.below(5) {
            let len = self.rng.pick(&[0, 1, 70, 1500, 3000]);
            framed.push(if of_objects { OBJECT_PREFIX } else { self.rng.below(2) as u8 });
            framed.extend((len as u32).to_be_bytes());
            framed.resize(framed.len() + len, 7);
        }
        let mut framed = Bytes::from(framed);
        let batch = match of_objects {
            true => OutgoingMessage::objects(framed),
            false => OutgoingMessage::batch_off(&mut framed, usize::MAX / 2, usize::MAX),
        };
        batch.expect("several messages")
    }

    /// Either application does something.
    fn act(&mut self) {
        let by_victim = self.rng.one_in(2);
        let role = if by_victim { self.role } else { self.role.peer() };
        let opens = role == Role::Client && self.rng.one_in(3);
        let some = StreamId(1 + self.rng.below(self.opened.len() + 1) as u64);
        let ending = match role {
            Role::Client => Ending::HalfClose,
            Role::Server => Ending::Trailers { code: self.rng.below(2) as u16, block: Bytes::new() },
        };
        let headers = role == Role::Server && self.rng.one_in(2);
        let mut outgoing = self.outgoing(headers || opens, ending);
        let forgets = self.rng.one_in(6);
        let path = self.rng.pick(&["/a.B/C", "/d.E/F", "/g/H"]);
        let (session, out) = match by_victim {
            true => (&mut self.victim, &mut self.to_peer),
            false => (&mut self.peer, &mut self.to_victim),
        };
        let _ = session.stage_pending(out);
        let opening = Opening { path, deadline_ns: 5 };
        if opens {
            if let Ok(Ok(id)) = session.open(out, opening, &mut outgoing) {
                self.opened.push(id);
            }
        } else {
            session.accept();
            while session.next_ready().is_some() {}
            let staged = session.send(out, some, &mut outgoing);
            out.publish();
            if staged == Ok(Progress::Done) && session.settle(some) {
                session.forget(some, 1);
            }
            read_all(session, some);
            if forgets {
                session.forget(some, 1);
            }
        }
        self.to_victim.publish();
        self.to_peer.publish();
    }

    fn bend(&mut self, record: &mut Vec<u8>) {
        let mut head = *FrameHead::ref_from_bytes(&record[..FRAME_HEAD_LEN]).unwrap();
        let odd = self.rng.pick(&[0, 1, 2, 3, 7, 24, 200, 5000, 65_535, u64::from(u32::MAX), u64::MAX]);
        let way = self.rng.below(20);
        match way {
            0 => head.events = 1 << self.rng.below(8),
            1 => head.events |= 1 << self.rng.below(8),
            2 => head.flags ^= 1 << self.rng.below(8),
            3 => head.code = (odd as u16).into(),
            4 => head.headers_len = (odd as u16).into(),
            5 => head.trailers_len = (odd as u16).into(),
            6 => head.stream = odd.into(),
            7 => head.stream = (head.stream.get() + 1).into(),
            8 => head.chunk_len = (odd as u32).into(),
            9 => head.message_len = (odd as u32).into(),
            10 => record.truncate(self.rng.below(record.len() + 1)),
            11 => record.extend_from_slice(&[0; 9]),
            12 | 13 if record.len() > FRAME_HEAD_LEN => {
                let at = FRAME_HEAD_LEN + self.rng.below(record.len() - FRAME_HEAD_LEN);
                record[at] = odd as u8;
            }
            14 => *record = (0..self.rng.below(80)).map(|_| odd as u8).collect(),
            15 if !self.old.is_empty() => {
                let again = self.rng.below(self.old.len());
                *record = self.old[again].clone();
            }
            16 => *record = self.overdraft(),
            17 => *record = self.wide_opening(),
            18 => {
                // A range in the area, with its reserved bits or its offset bent.
                head = FrameHead { events: events::MESSAGE, stream: head.stream, ..FrameHead::default() };
                head.flags = flags::FIRST | flags::LAST | flags::IN_AREA;
                (head.chunk_len, head.message_len) = (100.into(), 100.into());
                record.truncate(FRAME_HEAD_LEN);
                let (area, reserved) = (self.rng.below(2) as u32, self.rng.below(2) as u32);
                record.extend([area, reserved].map(u32::to_le_bytes).concat());
                record.extend(odd.to_le_bytes());
            }
            _ => {
                head =
                    FrameHead { events: events::CONTROL, code: (odd as u16).into(), ..FrameHead::default() };
                record.truncate(FRAME_HEAD_LEN);
            }
        }
        let is_head_bent = matches!(way, 0..=9 | 18 | 19);
        if is_head_bent {
            record[..FRAME_HEAD_LEN].copy_from_slice(head.as_bytes());
        }
    }

    /// A chunk that no credit covers.
    fn overdraft(&mut self) -> Vec<u8> {
        let mut head = FrameHead { events: events::MESSAGE, flags: flags::FIRST, ..FrameHead::default() };
        head.stream = (1 + self.rng.below(self.opened.len().max(1)) as u64).into();
        (head.chunk_len, head.message_len) = (4090.into(), 9000.into());
        [head.as_bytes(), &[1; 4090]].concat()
    }

    /// A call whose metadata are too long, cut, or whose path is no path.
    fn wide_opening(&mut self) -> Vec<u8> {
        let mut head = FrameHead { events: events::HEADERS, ..FrameHead::default() };
        head.stream = (self.opened.len() as u64 + 1).into();
        head.flags = flags::NAMES_METHOD;
        head.code = (self.rng.below(3) as u16).into();
        let block = match self.rng.below(3) {
            0 => [&[2, 0, b'/', b'a'], &[1; 300][..]].concat(),
            1 => vec![2, 0, b'/', b'a', 0, 9],
            _ => vec![0, 0, 1],
        };
        head.headers_len = (block.len() as u16).into();
        [head.as_bytes(), &block].concat()
    }

    /// The victim receives one record, bent or not.
    fn receive(&mut self) -> Option<Violation> {
        let mut bytes = None;
        self.to_victim.fetch(|record| bytes = Some(record.bytes.clone()));
        let mut bytes = bytes.unwrap_or_else(|| FrameHead::default().as_bytes().to_vec());
        self.old.push(bytes.clone());
        if self.rng.one_in(12) {
            self.bend(&mut bytes);
        }
        let received = self.victim.receive(&self.to_victim.fetched(bytes));
        if let Ok(Received::Area(AreaEvent::Offered { area, .. })) = received {
            self.to_victim.mapped.insert(area.0);
            self.to_victim.area = Some(AreaIdx(0));
            self.victim.answer_area(area, true);
        }
        received.err()
    }
}

/// Reads all that has come on a stream; its end, if that has come.
fn read_all(session: &mut Session<()>, id: StreamId) -> Option<End> {
    while let Some(incoming) = session.take(id).map(Incoming::into_part) {
        let segmented = incoming.chunk.and_then(|chunk| chunk.segmented);
        segmented.into_iter().for_each(|segmented| session.take_segmented(segmented));
        if incoming.end.is_some() {
            return incoming.end;
        }
    }
    None
}

fn name_of(violation: &Violation) -> String {
    format!("{violation:?}").split([' ', '(', '{']).next().unwrap().to_owned()
}

fn attack(seed: u64, reached: &mut BTreeSet<String>) {
    let mut pair = Pair::new(seed);
    for _ in 0..200 {
        pair.act();
        let congested = pair.victim.is_congested();
        while !congested && pair.to_victim.has_published() {
            if let Some(violation) = pair.receive() {
                reached.insert(name_of(&violation));
                assert_eq!(pair.victim.closed(), Some(&Closed::Violation(violation)), "seed {seed}");
                return after(seed, pair);
            }
            let held = pair.victim.credit(StreamId::SESSION).unwrap();
            assert!(
                held.unread <= LIMITS.session_window && held.unread + held.recv + held.owed == held.window
            );
            assert!(pair.victim.live_count() <= LIMITS.stream_count, "seed {seed}");
            if pair.role == Role::Server {
                assert!(pair.victim.stream_count() <= 2 * LIMITS.stream_count as usize, "seed {seed}");
            }
        }
        let _ = pair.to_peer.fetch(|record| pair.peer.receive(record));
    }
}

/// A session that has ended takes, sends and keeps nothing.
fn after(seed: u64, mut pair: Pair) {
    let old = pair.old[0].clone();
    assert_eq!(pair.victim.receive(&pair.to_victim.fetched(old)), Ok(Received::Closed));
    assert_eq!(pair.victim.live_count(), 0, "seed {seed}");
    assert!(pair.victim.accept().is_none() && !pair.victim.has_pending());
    for id in 1..=pair.opened.len() as u64 + 8 {
        let id = StreamId(id);
        let end = read_all(&mut pair.victim, id);
        assert!(end.is_some() && (end != Some(End::HalfClosed) || pair.role == Role::Server));
        let said = pair.victim.send(&mut pair.to_peer, id, &mut Outgoing::default());
        assert!(said.is_err(), "seed {seed}: a closed session sends");
        pair.victim.forget(id, 1);
    }
    assert_eq!(pair.victim.stream_count(), 0, "seed {seed}");
    assert!(!pair.victim.has_pending());
}

#[test]
fn a_hostile_peer_harms_only_its_session() {
    let mut reached = BTreeSet::new();
    for seed in 0..9000 {
        attack(seed, &mut reached);
    }
    // CreditOverflow takes 2^32 frames, StreamCount a client that miscounts, Ring a ring: they are tested by name.
    let wanted = [
        "FrameLen",
        "FrameKind",
        "StreamId",
        "MethodIdx",
        "MethodPath",
        "Order",
        "Chunk",
        "Overdrawn",
        "MetadataLen",
        "Metadata",
        "AreaRange",
        "Control",
    ];
    let missing: Vec<_> = wanted.iter().filter(|name| !reached.contains(**name)).collect();
    assert!(missing.is_empty(), "never reached {missing:?}");
}
