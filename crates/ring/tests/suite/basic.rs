//! The ring between two real regions, at its simplest.

use std::sync::Arc;

use tollfree_layout::limits::PAGE_LEN;
use tollfree_region::{PeerRegion, Region};
use tollfree_ring::*;

fn region(len: usize) -> (Arc<Region>, Arc<PeerRegion>) {
    let region = Region::create("tollfree-test", len).unwrap();
    let peer = PeerRegion::map(region.fd().try_clone_to_owned().unwrap(), len).unwrap();
    (Arc::new(region), Arc::new(peer))
}

#[test]
fn records_pass_in_order_and_in_batches() {
    let ring = Geometry::new(PAGE_LEN, 4096).unwrap();
    let (a, a_seen) = region(ring.end());
    let (b, b_seen) = region(PAGE_LEN);
    let mut sender = RingSender::new(a, b_seen, ring);
    let mut receiver = RingReceiver::new(b, a_seen, ring);
    for round in 0..1000usize {
        let sizes = [round % 57, round % 300, round * 7 % 1900];
        for size in sizes {
            let body = vec![round as u8; size];
            let (head, tail) = body.split_at(size / 3);
            sender.stage(&[head, tail]).unwrap();
        }
        assert!(receiver.is_empty() && receiver.peek().unwrap().is_none());
        assert!(sender.publish() && !sender.publish());
        for size in sizes {
            assert!(!receiver.is_empty());
            let record = receiver.peek().unwrap().unwrap();
            assert_eq!(record.len(), size);
            let mut got = bytes::BytesMut::new();
            record.append_to(0, size, &mut got);
            assert!(got.iter().all(|byte| *byte == round as u8));
            let mut tail = vec![0; size / 2];
            record.read(size - size / 2, &mut tail);
            assert!(tail.iter().all(|byte| *byte == round as u8));
            receiver.advance();
        }
        assert!(receiver.release() && !receiver.release());
        assert_eq!(sender.consumed(), Ok(receiver.pos()));
        assert_eq!(sender.staged_end(), receiver.pos());
    }
}

#[test]
fn a_full_ring_says_so_and_recovers() {
    let ring = Geometry::new(PAGE_LEN, 256).unwrap();
    let (a, a_seen) = region(ring.end());
    let (b, b_seen) = region(PAGE_LEN);
    let mut sender = RingSender::new(a, b_seen, ring);
    let mut receiver = RingReceiver::new(b, a_seen, ring);
    assert_eq!(sender.stage(&[&[0; 57]]), Err(StageError::TooLong { len: 57, max: 56 }));
    for lap in 0..50u8 {
        for _ in 0..3 {
            sender.stage(&[&[lap; 56]]).unwrap();
        }
        assert_eq!(sender.stage(&[]), Err(StageError::Full));
        assert_eq!(sender.has_room(0), Ok(false));
        sender.publish();
        for _ in 0..3 {
            assert_eq!(receiver.peek().unwrap().unwrap().len(), 56);
            receiver.advance();
        }
        assert!(receiver.peek().unwrap().is_none());
        assert_eq!(receiver.unreleased_lines(), 3);
        assert_eq!(sender.has_room(0), Ok(false));
        receiver.release();
        assert_eq!(sender.has_room(56), Ok(true));
    }
}

#[test]
fn a_backlog_is_what_the_peer_has_not_given_back() {
    let ring = Geometry::new(PAGE_LEN, 4096).unwrap();
    let (a, a_seen) = region(ring.end());
    let (b, b_seen) = region(PAGE_LEN);
    let mut sender = RingSender::new(a, b_seen, ring);
    let mut receiver = RingReceiver::new(b, a_seen, ring);
    assert_eq!(sender.backlog(), (0, 4096));
    sender.stage(&[&[7; 100]]).unwrap();
    sender.publish();
    assert_eq!(sender.backlog(), (128, 4096));
    receiver.peek().unwrap().unwrap();
    receiver.advance();
    receiver.release();
    assert_eq!(sender.backlog(), (0, 4096));
}
