//! Payload areas: where chunks lie that are too long for the ring.
//!
//! # Layout
//! An area is one sealed region of its creator. Chunks lie in it one after the other like records in a ring, each
//! contiguous and starting on a cache line; what does not fit before the end starts over at the front.
//!
//! # States
//! ```text
//! sender    None ──long message──► Offered ──?ACCEPT──► Live ──idle──► None (!DROP)
//!            │                        └──?REFUSE──► Refused (inline from then on)
//!            └──none to be had now──► None (inline for a while)
//! receiver  None ──?OFFER, fd──► Mapped (!ACCEPT) ──?DROP──► None
//! ```
//!
//! # Who writes what
//! Only the creator writes. A chunk's room is free again when the peer has consumed the record that refers to it: the
//! ring's cursor is the area's too.
//!
//! # Trust
//! The receiver copies a chunk out once, within bounds it has checked itself. A sender learns nothing from the peer but
//! the cursor, which the ring checks.

use std::collections::VecDeque;

use bytes::BytesMut;
use tollfree_layout::limits::{AREA_CHUNK_SHARE, AREA_LEN_MAX, AREA_LEN_MIN, LINE_LEN, PAGE_LEN};
use tollfree_layout::{AreaIdx, ByteOff, RingPos};
use tollfree_region::{PeerRegion, ReadMemory, Region};
use tollfree_session::AreaFault;

/// Areas of the peer mapped at once: the one in use, and one that takes its place.
const MAPPED_COUNT_MAX: usize = 2;
/// Chunks that would have gone into an area, before one is asked for again that was not to be had.
const PUT_OFF_COUNT: u32 = 1024;
/// Each area that a session makes is kept idle four times as long as the one before, up to 64 times as long as the first: making one
/// costs more than keeping it where messages come now and then.
const PATIENCE_STEPS_MAX: u32 = 3;

/// The length of the areas that this side makes: whole pages within what it and the peer take, 0 for none.
pub(crate) fn area_len(wanted: usize, peer_max: usize) -> usize {
    let len = wanted.clamp(AREA_LEN_MIN, AREA_LEN_MAX).min(peer_max) / PAGE_LEN * PAGE_LEN;
    if len < AREA_LEN_MIN { 0 } else { len }
}

/// A chunk in the area: until which record it is needed, and where the room behind it begins.
#[derive(Clone, Copy, Debug)]
struct Placed {
    until: RingPos,
    end: u64,
}

#[derive(Debug)]
enum State {
    None,
    Offered(AreaIdx, Region),
    Live(AreaIdx, Region),
    Refused,
}

/// The sending side.
#[derive(Debug)]
pub(crate) struct AreaSender {
    state: State,
    next_idx: u32,
    /// A message was long enough to want an area.
    wanted: bool,
    /// So many chunks more go inline before one is wanted.
    put_off: u32,
    /// Something was placed since this was last asked.
    used: bool,
    /// Bytes ever placed (with what was skipped at the end), and of these, given back.
    tail: u64,
    head: u64,
    placed: VecDeque<Placed>,
    /// Placed, and its record not staged yet.
    unbound: Option<u64>,
}

impl AreaSender {
    pub(crate) fn new() -> AreaSender {
        AreaSender {
            state: State::None,
            next_idx: 0,
            wanted: false,
            put_off: 0,
            used: false,
            tail: 0,
            head: 0,
            placed: VecDeque::new(),
            unbound: None,
        }
    }

    /// Whether an area should be made now.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted && matches!(self.state, State::None)
    }

    pub(crate) fn want(&mut self) {
        match self.put_off {
            0 => self.wanted = true,
            _ => self.put_off -= 1,
        }
    }

    /// None is to be had now: messages go inline for a while.
    pub(crate) fn put_off(&mut self) {
        self.wanted = false;
        self.put_off = PUT_OFF_COUNT;
    }

    /// An area was made and its fd sent. Gives the index to offer it under.
    pub(crate) fn offered(&mut self, region: Region) -> AreaIdx {
        let idx = AreaIdx(self.next_idx);
        self.next_idx = self.next_idx.wrapping_add(1);
        self.wanted = false;
        self.state = State::Offered(idx, region);
        idx
    }

    /// None can be made: messages go inline from now on.
    pub(crate) fn give_up(&mut self) {
        self.state = State::Refused;
        self.wanted = false;
    }

    /// The peer's answer. `false`: it answered what was not asked.
    pub(crate) fn answered(&mut self, idx: AreaIdx, accepted: bool) -> bool {
        match std::mem::replace(&mut self.state, State::None) {
            State::Offered(offered, region) if offered == idx => {
                self.state = if accepted { State::Live(idx, region) } else { State::Refused };
                self.used = true;
                // Chunks that came before the answer wanted this one, and no other.
                self.wanted = false;
                (self.head, self.tail) = (0, 0);
                self.placed.clear();
                true
            }
            other => {
                self.state = other;
                false
            }
        }
    }

    /// Whether there is an area that could be given up one day.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.state, State::Live(..))
    }

    /// After how many idle times of the first area the present one is given up.
    pub(crate) fn patience(&self) -> u32 {
        4_u32.pow(self.next_idx.saturating_sub(1).min(PATIENCE_STEPS_MAX))
    }

    /// Gives the area up if nothing was placed since the last time this was asked.
    pub(crate) fn take_idle(&mut self) -> Option<AreaIdx> {
        if std::mem::take(&mut self.used) {
            return None;
        }
        match std::mem::replace(&mut self.state, State::None) {
            State::Live(idx, _) => Some(idx),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// The longest chunk that could be placed now, given how far the peer has read.
    pub(crate) fn chunk_len_max(&mut self, consumed: RingPos) -> usize {
        let State::Live(_, region) = &self.state else { return 0 };
        let len = region.len() as u64;
        while let Some(first) = self.placed.front().filter(|first| first.until <= consumed) {
            self.head = first.end;
            self.placed.pop_front();
        }
        let free = len - (self.tail - self.head);
        let before_end = len - self.tail % len;
        let room = if free <= before_end { free } else { before_end.max(free - before_end) };
        room.min(len / AREA_CHUNK_SHARE as u64) as usize
    }

    /// Has `write` put a chunk where it is told to, if there is room as [`chunk_len_max`](Self::chunk_len_max) says. A panic of it leaves
    /// all as it was.
    pub(crate) fn place(
        &mut self,
        chunk_len: usize,
        write: impl FnOnce(&mut Region, usize),
    ) -> Option<(AreaIdx, ByteOff)> {
        let State::Live(idx, region) = &mut self.state else { return None };
        let len = region.len() as u64;
        let room = chunk_len as u64;
        let free = len - (self.tail - self.head);
        let before_end = len - self.tail % len;
        let skip = if room <= before_end { 0 } else { before_end };
        if skip + room > free {
            return None;
        }
        let at = (self.tail + skip) % len;
        write(region, at as usize);
        let end = (self.tail + skip + room).next_multiple_of(LINE_LEN as u64).min(self.head + len);
        self.unbound = Some(std::mem::replace(&mut self.tail, end));
        self.used = true;
        Some((*idx, ByteOff(at)))
    }

    /// The record of the chunk placed last was not staged.
    pub(crate) fn take_back(&mut self) {
        if let Some(tail) = self.unbound.take() {
            self.tail = tail;
        }
    }

    /// A record was staged that ends at `end`: the chunk placed before it is needed until then.
    pub(crate) fn bind(&mut self, end: RingPos) {
        if self.unbound.take().is_some() {
            self.placed.push_back(Placed { until: end, end: self.tail });
        }
    }
}

/// The peer's areas that are mapped here.
#[derive(Debug, Default)]
pub(crate) struct AreasMapped {
    areas: Vec<(AreaIdx, PeerRegion)>,
}

impl AreasMapped {
    /// Whether one more of this length may be mapped.
    pub(crate) fn allows(&self, idx: AreaIdx, len: usize) -> bool {
        self.areas.len() < MAPPED_COUNT_MAX
            && (AREA_LEN_MIN..=AREA_LEN_MAX).contains(&len)
            && len.is_multiple_of(PAGE_LEN)
            && self.areas.iter().all(|(known, _)| *known != idx)
    }

    pub(crate) fn insert(&mut self, idx: AreaIdx, region: PeerRegion) {
        self.areas.push((idx, region));
    }

    pub(crate) fn remove(&mut self, idx: AreaIdx) {
        self.areas.retain(|(known, _)| *known != idx);
    }

    pub(crate) fn append(
        &self,
        idx: AreaIdx,
        at: ByteOff,
        len: usize,
        dst: &mut BytesMut,
    ) -> Result<(), AreaFault> {
        let (_, region) = self.areas.iter().find(|(known, _)| *known == idx).ok_or(AreaFault)?;
        let start = usize::try_from(at.0).map_err(|_| AreaFault)?;
        if start.checked_add(len).is_none_or(|end| end > region.len()) {
            return Err(AreaFault);
        }
        region.append_to(start, len, dst);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollfree_os::fd::AsFd;
    use tollfree_region::WriteMemory as _;

    fn live(len: usize) -> AreaSender {
        let mut sender = AreaSender::new();
        sender.want();
        assert!(sender.is_wanted());
        let idx = sender.offered(Region::create("test", len).unwrap());
        assert!(sender.answered(idx, true));
        sender
    }

    #[test]
    fn areas_are_as_long_as_both_sides_take_or_not_made() {
        assert_eq!(area_len(512 * 1024, AREA_LEN_MAX), 512 * 1024);
        assert_eq!(area_len(512 * 1024, 100_000), 98_304);
        assert_eq!(area_len(0, AREA_LEN_MAX), AREA_LEN_MIN);
        assert_eq!(area_len(usize::MAX, usize::MAX), AREA_LEN_MAX);
        assert_eq!(area_len(512 * 1024, AREA_LEN_MIN - 1), 0);
    }

    #[test]
    fn room_comes_back_with_the_cursor_and_chunks_never_overlap() {
        let len = AREA_LEN_MIN;
        let mut sender = live(len);
        let mut peer = AreasMapped::default();
        let State::Live(idx, region) = &sender.state else { panic!() };
        peer.insert(*idx, PeerRegion::map(region.fd().try_clone_to_owned().unwrap(), len).unwrap());
        let mut queue: VecDeque<(Vec<u8>, AreaIdx, ByteOff, u64)> = VecDeque::new();
        let (mut pos, mut consumed, mut placed_count) = (0u64, 0u64, 0);
        let mut state = 7u64;
        let read = |queue: &mut VecDeque<(Vec<u8>, AreaIdx, ByteOff, u64)>, consumed: &mut u64| {
            let (chunk, idx, at, until) = queue.pop_front().expect("a full area holds chunks");
            let mut got = BytesMut::new();
            peer.append(idx, at, chunk.len(), &mut got).unwrap();
            assert_eq!(got, chunk);
            *consumed = until;
        };
        for step in 0..5000u64 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let wanted = (state >> 33) as usize % (len / AREA_CHUNK_SHARE) + 1;
            let max = sender.chunk_len_max(RingPos(consumed));
            // For a while it is nearly empty, then nearly full.
            let waits = step / 500 % 2 == 0 && queue.len() > 2;
            if wanted <= max && !waits {
                let chunk = vec![step as u8; wanted];
                let (idx, at) = sender
                    .place(wanted, |region, at| region.copy_in(at, &chunk))
                    .expect("chunk_len_max promised it");
                if step % 17 == 0 {
                    sender.take_back();
                    assert_eq!(sender.chunk_len_max(RingPos(consumed)), max, "nothing was placed");
                    continue;
                }
                pos += 1;
                sender.bind(RingPos(pos));
                queue.push_back((chunk, idx, at, pos));
                placed_count += 1;
            } else {
                read(&mut queue, &mut consumed);
            }
        }
        while !queue.is_empty() {
            read(&mut queue, &mut consumed);
        }
        assert!(placed_count > 1000);
    }

    #[test]
    fn an_area_is_filled_to_its_last_byte_and_no_further() {
        let mut sender = live(AREA_LEN_MIN);
        let most = AREA_LEN_MIN / AREA_CHUNK_SHARE;
        for nth in 1..=AREA_CHUNK_SHARE as u64 {
            assert_eq!(sender.chunk_len_max(RingPos(0)), most);
            assert!(sender.place(most, |_, _| ()).is_some(), "{nth}");
            sender.bind(RingPos(nth));
        }
        assert_eq!(sender.chunk_len_max(RingPos(0)), 0);
        assert!(sender.place(1, |_, _| ()).is_none());
        assert_eq!(sender.chunk_len_max(RingPos(1)), most, "the first is read");
        assert!(sender.place(most + 1, |_, _| ()).is_none());
        assert_eq!(sender.place(most, |_, _| ()), Some((AreaIdx(0), ByteOff(0))));
    }

    #[test]
    fn a_range_outside_the_area_is_a_fault() {
        let region = Region::create("test", AREA_LEN_MIN).unwrap();
        let mut peer = AreasMapped::default();
        let fd = region.fd().as_fd().try_clone_to_owned().unwrap();
        peer.insert(AreaIdx(3), PeerRegion::map(fd, AREA_LEN_MIN).unwrap());
        let mut dst = BytesMut::new();
        let len = AREA_LEN_MIN as u64;
        for (idx, at, count) in [
            (4, 0, 1),
            (3, len, 1),
            (3, len - 1, 2),
            (3, u64::MAX, 2),
            (3, 1, usize::MAX),
            (3, 0, AREA_LEN_MIN + 1),
        ] {
            assert_eq!(peer.append(AreaIdx(idx), ByteOff(at), count, &mut dst), Err(AreaFault));
        }
        assert!(dst.is_empty());
        peer.append(AreaIdx(3), ByteOff(len - 1), 1, &mut dst).unwrap();
    }

    #[test]
    fn offers_are_bounded_and_answers_must_fit() {
        let peer = AreasMapped::default();
        for len in [0, AREA_LEN_MIN - PAGE_LEN, AREA_LEN_MAX + PAGE_LEN, AREA_LEN_MIN + 1] {
            assert!(!peer.allows(AreaIdx(0), len), "{len}");
        }
        for len in [AREA_LEN_MIN, AREA_LEN_MIN + PAGE_LEN, AREA_LEN_MAX] {
            assert!(peer.allows(AreaIdx(0), len), "{len}");
        }
        let mut mapped = AreasMapped::default();
        let insert = |mapped: &mut AreasMapped, idx| {
            let fd = Region::create("test", AREA_LEN_MIN).unwrap().fd().try_clone_to_owned().unwrap();
            mapped.insert(AreaIdx(idx), PeerRegion::map(fd, AREA_LEN_MIN).unwrap());
        };
        insert(&mut mapped, 0);
        assert!(!mapped.allows(AreaIdx(0), AREA_LEN_MIN) && mapped.allows(AreaIdx(1), AREA_LEN_MIN));
        insert(&mut mapped, 1);
        assert!(!mapped.allows(AreaIdx(2), AREA_LEN_MIN), "two are mapped");
        mapped.remove(AreaIdx(0));
        assert!(mapped.allows(AreaIdx(2), AREA_LEN_MIN) && !mapped.allows(AreaIdx(1), AREA_LEN_MIN));

        let mut sender = AreaSender::new();
        assert!(!sender.answered(AreaIdx(0), true), "nothing was offered");
        sender.want();
        let idx = sender.offered(Region::create("test", AREA_LEN_MIN).unwrap());
        assert!(!sender.answered(AreaIdx(idx.0 + 1), true) && !sender.is_live(), "another was offered");
        assert!(sender.answered(idx, false));
        sender.want();
        assert!(!sender.is_wanted(), "a peer that refused is not asked again");
        let mut sender = AreaSender::new();
        sender.give_up();
        sender.want();
        assert!(!sender.is_wanted(), "nor where none can be made");
    }

    #[test]
    fn an_idle_area_is_given_up_on_the_second_look() {
        let mut sender = live(AREA_LEN_MIN);
        assert_eq!(sender.take_idle(), None, "just made");
        assert_eq!(sender.take_idle(), Some(AreaIdx(0)));
        assert_eq!(sender.take_idle(), None);
        assert!(!sender.is_live());
    }

    #[test]
    fn chunks_that_come_before_the_answer_want_no_second_area() {
        let mut sender = AreaSender::new();
        let idx = sender.offered(Region::create("test", AREA_LEN_MIN).unwrap());
        sender.want();
        assert!(sender.answered(idx, true));
        assert!(sender.take_idle().is_none() && sender.take_idle().is_some());
        assert!(!sender.is_wanted(), "the area was given up because nobody needed it");
    }

    #[test]
    fn areas_that_are_made_again_and_again_are_kept_longer() {
        let mut sender = AreaSender::new();
        let mut next = || {
            let idx = sender.offered(Region::create("test", AREA_LEN_MIN).unwrap());
            assert!(sender.answered(idx, true));
            let patience = sender.patience();
            assert!(sender.take_idle().is_none() && sender.take_idle().is_some());
            patience
        };
        assert_eq!([next(), next(), next(), next(), next()], [1, 4, 16, 64, 64]);
    }

    #[test]
    fn an_area_that_is_not_to_be_had_is_wanted_again_later() {
        let mut sender = AreaSender::new();
        sender.want();
        assert!(sender.is_wanted());
        sender.put_off();
        for _ in 0..PUT_OFF_COUNT {
            sender.want();
            assert!(!sender.is_wanted());
        }
        sender.want();
        assert!(sender.is_wanted());
    }
}
