//! The ring against a queue, on heap memory and on real regions, with rings so short that every edge is met, and with
//! payloads made of head words of all the places they may come to lie in later.

use std::sync::Arc;

use proptest::prelude::*;
use tollfree_layout::RingPos;
use tollfree_layout::limits::{LINE_LEN, PAGE_LEN, RING_LEN_DEFAULT};
use tollfree_layout::record::{HEAD_LEN, head_word};
use tollfree_region::{HeapMemory, PeerRegion, ReadMemory, Region, WriteMemory};
use tollfree_ring::conformance::{self, Operation};
use tollfree_ring::*;

type Ends<W, R> = (RingSender<W, R>, RingReceiver<W, R>);

fn heap(ring_len: usize) -> Ends<HeapMemory, HeapMemory> {
    let ring = Geometry::new(PAGE_LEN, ring_len).unwrap();
    let (a, b) = (Arc::new(HeapMemory::new(ring.end())), Arc::new(HeapMemory::new(PAGE_LEN)));
    (RingSender::new(a.clone(), b.clone(), ring), RingReceiver::new(b, a, ring))
}

fn regions(ring_len: usize) -> Ends<Region, PeerRegion> {
    let ring = Geometry::new(PAGE_LEN, ring_len).unwrap();
    let make = |len| {
        let own = Region::create("tollfree-oracle", len).unwrap();
        let peer = PeerRegion::map(own.fd().try_clone_to_owned().unwrap(), len).unwrap();
        (Arc::new(own), Arc::new(peer))
    };
    let (a, a_seen) = make(ring.end());
    let (b, b_seen) = make(PAGE_LEN);
    (RingSender::new(a, b_seen, ring), RingReceiver::new(b, a_seen, ring))
}

fn operations(ring_len: usize) -> impl Strategy<Value = Vec<Operation>> {
    let max = Geometry::new(PAGE_LEN, ring_len).unwrap().record_len_max();
    let len = prop_oneof![
        4 => 0..=max,
        2 => (0..=max / LINE_LEN).prop_map(|lines| lines * LINE_LEN + LINE_LEN - HEAD_LEN).prop_map(move |len| len.min(max)),
        1 => Just(max),
        1 => max + 1..max + 100,
    ];
    let operation = prop_oneof![
        6 => (len.clone(), 1..5usize).prop_map(|(len, part_count)| Operation::Stage { len, part_count }),
        4 => Just(Operation::Publish),
        1 => Just(Operation::Peek),
        6 => Just(Operation::Take),
        3 => Just(Operation::Release),
        1 => Just(Operation::Consumed),
        1 => len.prop_map(|len| Operation::HasRoom { len }),
    ];
    proptest::collection::vec(operation, 1..200)
}

/// A body whose words, where they come to lie at the start of a line, look like the head of a record that will be
/// expected there in this lap or the next.
fn lookalike(ring_len: usize) -> impl FnMut(u64, usize, u64) -> Vec<u8> {
    move |number, len, pos| {
        let lines = (ring_len / LINE_LEN) as u64;
        let word = |idx: u64| {
            let line = (idx + 1) * HEAD_LEN as u64 / LINE_LEN as u64;
            let lap = if (number + line).is_multiple_of(4) { 0 } else { lines };
            head_word(RingPos(pos + line + lap), (number % 40) as u32)
        };
        (0..).flat_map(|idx| word(idx).to_le_bytes()).take(len).collect()
    }
}

fn small_ring() -> impl Strategy<Value = (usize, Vec<Operation>)> {
    prop_oneof![Just(256usize), Just(512), Just(1024)].prop_flat_map(|len| (Just(len), operations(len)))
}

proptest! {
    // Miri takes seconds for each.
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 400 }, ..ProptestConfig::default() })]

    #[test]
    fn heap_rings_are_queues((ring_len, operations) in small_ring()) {
        conformance::against_oracle(heap(ring_len), &operations, |number, len, _| conformance::numbered(number, len));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no memfd")]
    fn real_rings_are_queues((ring_len, operations) in small_ring()) {
        conformance::against_oracle(regions(ring_len), &operations, |number, len, _| conformance::numbered(number, len));
    }

    #[test]
    fn bytes_of_an_earlier_lap_are_never_a_record((ring_len, operations) in small_ring()) {
        conformance::against_oracle(heap(ring_len), &operations, lookalike(ring_len));
        // Miri has no memfd.
        if !cfg!(miri) {
            conformance::against_oracle(regions(ring_len), &operations, lookalike(ring_len));
        }
    }
}

#[test]
fn rings_conform() {
    // Miri takes minutes for a longer one.
    let ring_lens = if cfg!(miri) { &[256][..] } else { &[256, 512, 4096][..] };
    for &ring_len in ring_lens {
        conformance::all(|| heap(ring_len));
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no memfd")]
fn rings_of_regions_conform() {
    for ring_len in [256, 512, 4096, RING_LEN_DEFAULT] {
        conformance::all(|| regions(ring_len));
    }
}

#[test]
fn threads_pass_records_on_heap_memory() {
    // Miri takes its time, and lets threads go by turns at any step.
    conformance::two_threads(heap(512), if cfg!(miri) { 100 } else { 20_000 });
}

/// Room is what the layout says: all lines but one.
#[test]
fn room_is_exact() {
    for (count, len) in [(15, 0), (15, 56), (7, 57), (5, 184)] {
        let (mut sender, _receiver) = heap(1024);
        for _ in 0..count {
            sender.stage(&[&vec![0; len]]).unwrap();
        }
        assert_eq!(sender.stage(&[&vec![0; len]]), Err(StageError::Full), "{len} bytes");
    }
}

/// The bytes are those of the layout, whichever memory they lie in.
#[test]
#[cfg_attr(miri, ignore = "Miri has no memfd")]
fn memory_kinds_agree_on_what_lies_in_the_ring() {
    let ring = Geometry::new(PAGE_LEN, 256).unwrap();
    let heap = Arc::new(HeapMemory::new(ring.end()));
    let real = Arc::new(Region::create("tollfree-oracle", ring.end()).unwrap());
    fn fill<W: WriteMemory>(own: &Arc<W>, ring: Geometry) -> Vec<u8> {
        let mut sender = RingSender::new(own.clone(), Arc::new(HeapMemory::new(PAGE_LEN)), ring);
        sender.stage(&[b"first", b"", b" record of several parts"]).unwrap();
        sender.stage(&[&[0xff; 50]]).unwrap();
        sender.publish();
        let mut bytes = vec![0; ring.ring_len];
        own.copy_out(ring.ring_off, &mut bytes);
        bytes
    }
    let bytes = fill(&heap, ring);
    assert_eq!(bytes, fill(&real, ring));
    assert_eq!(bytes[..8], (29u64 << 32 | 1 << 31).to_le_bytes());
    assert_eq!(&bytes[8..37], b"first record of several parts");
    assert_eq!(bytes[64..72], (50u64 << 32 | 1 << 31 | 1).to_le_bytes());
    assert!(bytes[72..122].iter().all(|byte| *byte == 0xff) && bytes[122..].iter().all(|byte| *byte == 0));
}
