//! A peer that writes whatever it likes: it ends its session with a reason, and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use tollfree_layout::RingPos;
use tollfree_layout::control::{CONSUMED_OFF, CPU_OFF, WAITING_OFF};
use tollfree_layout::limits::{LINE_LEN, PAGE_LEN};
use tollfree_layout::record::head_word;
use tollfree_region::{HeapMemory, PeerRegion, Region, WriteMemory};
use tollfree_ring::*;

const RING_LEN: usize = 1024;

fn geometry() -> Geometry {
    Geometry::new(PAGE_LEN, RING_LEN).unwrap()
}

fn memory() -> Arc<HeapMemory> {
    Arc::new(HeapMemory::new(geometry().end()))
}

/// A receiver that finds `word` where its first record is due; the peer can go on writing.
fn receiver_of(word: u64) -> (Arc<HeapMemory>, RingReceiver<HeapMemory, HeapMemory>) {
    let peer = memory();
    peer.store_u64(PAGE_LEN, word, Ordering::Relaxed);
    (peer.clone(), RingReceiver::new(memory(), peer, geometry()))
}

#[test]
fn a_head_of_another_place_is_refused() {
    for word in
        [1, u64::MAX, 1 << 31 | 1, head_word(RingPos(16), 8), head_word(RingPos(1), 8), 8 << 32, 1 << 63]
    {
        let (peer, mut receiver) = receiver_of(word);
        let violation = RingViolation::ForgedSequence { pos: RingPos(0), word };
        assert!(!receiver.is_empty(), "a spinning reader notices");
        assert_eq!(receiver.peek().err(), Some(violation));
        peer.store_u64(PAGE_LEN, head_word(RingPos(0), 8), Ordering::Relaxed);
        assert_eq!(receiver.peek().err(), Some(violation), "latched");
        peer.store_u64(PAGE_LEN, 0, Ordering::Relaxed);
        assert!(!receiver.is_empty() && receiver.peek().is_err());
        assert_eq!(receiver.glance(3), 3, "nobody looks for what can't come");
        assert!(!receiver.release());
        assert!(violation.to_string().contains(&format!("{word:#018x}")), "{violation}");
    }
}

#[test]
fn a_length_beyond_the_longest_record_is_refused() {
    let max = geometry().record_len_max();
    for len in [max as u32 + 1, RING_LEN as u32, 1 << 31, u32::MAX] {
        let (_, mut receiver) = receiver_of(head_word(RingPos(0), len));
        let violation = RingViolation::ForgedLength { pos: RingPos(0), len, max };
        assert_eq!(receiver.peek().err(), Some(violation));
        assert_eq!(receiver.peek().err(), Some(violation), "latched");
    }
    let (_, mut receiver) = receiver_of(head_word(RingPos(0), max as u32));
    assert_eq!(receiver.peek().unwrap().unwrap().len(), max);
}

/// The length is fetched once: changing it after the check changes nothing.
#[test]
fn a_head_changed_after_its_check_is_not_seen() {
    let (peer, mut receiver) = receiver_of(head_word(RingPos(0), 100));
    assert_eq!(receiver.peek().unwrap().unwrap().len(), 100);
    for word in [head_word(RingPos(0), u32::MAX), head_word(RingPos(9), 1), 0] {
        peer.store_u64(PAGE_LEN, word, Ordering::Relaxed);
        assert_eq!(receiver.peek().unwrap().unwrap().len(), 100);
    }
    receiver.advance();
    assert_eq!(receiver.pos(), RingPos(2), "the lines of the record that was checked");
}

fn sender_with_two_lines_out() -> (Arc<HeapMemory>, RingSender<HeapMemory, HeapMemory>) {
    let peer = memory();
    let mut sender = RingSender::new(memory(), peer.clone(), geometry());
    sender.stage(&[b"a"]).unwrap();
    sender.stage(&[b"b"]).unwrap();
    sender.publish();
    peer.store_u64(CONSUMED_OFF, 1, Ordering::Relaxed);
    assert_eq!(sender.consumed(), Ok(RingPos(1)));
    sender.stage(&[b"staged, not published"]).unwrap();
    (peer, sender)
}

#[test]
fn a_cursor_that_goes_back_or_beyond_is_refused_for_good() {
    for found in [0, 3, 4, u64::MAX, 1 << 63, 1 << 32 | 1] {
        let (peer, mut sender) = sender_with_two_lines_out();
        peer.store_u64(CONSUMED_OFF, found, Ordering::Relaxed);
        let violation =
            RingViolation::ForgedCursor { found: RingPos(found), least: RingPos(1), most: RingPos(2) };
        assert_eq!(sender.consumed(), Err(violation));
        peer.store_u64(CONSUMED_OFF, 2, Ordering::Relaxed);
        assert_eq!(sender.consumed(), Err(violation), "latched");
        assert_eq!(sender.has_room(1), Err(violation));
        assert_eq!(sender.stage(&[b"x"]), Err(StageError::Peer(violation)));
    }
}

/// The cursor is looked at when room runs short; a forged one gives none.
#[test]
fn a_forged_cursor_makes_no_room() {
    let (peer, mut sender) = sender_with_two_lines_out();
    peer.store_u64(CONSUMED_OFF, u64::MAX, Ordering::Relaxed);
    let refused = (0..RING_LEN).find_map(|_| sender.stage(&[b"x"]).err());
    assert!(matches!(refused, Some(StageError::Peer(RingViolation::ForgedCursor { .. }))), "{refused:?}");
    assert!(sender.staged_end().0 < 1 + geometry().line_count());
}

#[test]
fn a_forged_waiting_word_costs_at_most_a_bell_a_call() {
    let peer = memory();
    let mut ringer = Ringer::new(peer.clone());
    assert!(!ringer.should_ring() && !ringer.should_ring_for_space());
    for word in [u32::MAX, 1, 5, 5 | 2, 1] {
        peer.store_u32(WAITING_OFF, word, Ordering::Relaxed);
        ringer.should_ring_for_space();
        ringer.should_ring();
        assert!(!ringer.should_ring() && !ringer.should_ring_for_space(), "once an epoch, {word:#x}");
    }
    peer.store_u32(WAITING_OFF, 9, Ordering::Relaxed);
    assert!(!ringer.should_ring_for_space() && ringer.should_ring(), "no space wanted");
    peer.store_u32(CPU_OFF, 0x8000_0000, Ordering::Relaxed);
    assert_eq!(ringer.peer_cpu(), 0x8000_0000);
}

/// One thread writes rubbish over a real region, part of it plausible, while the other reads as if it were a ring.
#[test]
fn a_peer_that_scribbles_while_it_is_read_is_survived() {
    let own = Region::create("tollfree-hostile", geometry().end()).unwrap();
    let peer = PeerRegion::map(own.fd().try_clone_to_owned().unwrap(), geometry().end()).unwrap();
    let (own, peer, stop) = (Arc::new(own), Arc::new(peer), Arc::new(AtomicBool::new(false)));
    let scribbler = std::thread::spawn({
        let stop = stop.clone();
        move || {
            let mut state = 0x9e37_79b9_7f4a_7c15u64;
            while !stop.load(Ordering::Relaxed) {
                state = state.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
                let line = (state >> 40) as usize % (RING_LEN / LINE_LEN);
                let word = match (state >> 60) % 4 {
                    0 => state,
                    1 => 0,
                    _ => head_word(RingPos(line as u64), (state >> 32) as u32 % 600),
                };
                own.store_u64(PAGE_LEN + line * LINE_LEN, word, Ordering::Relaxed);
                own.store_u64(CONSUMED_OFF, (state >> 50) % 4, Ordering::Relaxed);
            }
        }
    });
    let (mut records, mut violations, mut room) = (0u32, 0u32, 0u32);
    let mut turns = 0;
    while records < 2000 || violations < 2000 || room < 100 {
        turns += 1;
        assert!(turns < 20_000_000, "{records} records, {violations} violations, {room} good cursors");
        let mut receiver = RingReceiver::new(memory(), peer.clone(), geometry());
        let mut body = BytesMut::new();
        for _ in 0..RING_LEN / LINE_LEN {
            match receiver.peek() {
                Ok(Some(record)) => {
                    assert!(record.len() <= geometry().record_len_max());
                    record.append_to(0, record.len(), &mut body);
                    receiver.advance();
                    records += 1;
                }
                Ok(None) => break,
                Err(_) => {
                    violations += 1;
                    break;
                }
            }
        }
        receiver.release();
        let mut sender = RingSender::new(memory(), peer.clone(), geometry());
        sender.stage(&[b"a"]).unwrap();
        sender.stage(&[b"b"]).unwrap();
        sender.publish();
        room += u32::from(sender.consumed().is_ok_and(|pos| pos <= RingPos(2)));
    }
    stop.store(true, Ordering::Relaxed);
    scribbler.join().unwrap();
}
