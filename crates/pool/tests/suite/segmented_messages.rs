//! Messages whose large parts go to the pool, from one member to another.

use bytes::{Buf, BufMut, Bytes};
use proptest::prelude::*;
use tollfree_pool::{Capacity, Composed, Plan, Pool, RefError, SegmentedMessage};
use tollfree_testkit::TimeLimit;

use crate::place::{BATCH, Place, config, until_all_is_free};

const THRESHOLD: usize = 3000;
/// Bytes that a composer gathers before they go to the pool in one piece.
const BATCH_LEN: usize = 4096;

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 31 + seed * 7) >> 3) as u8).collect()
}

fn receive(pool: &Pool, composed: &Composed) -> SegmentedMessage {
    if composed.refs.is_empty() {
        return composed.bytes.clone().into();
    }
    let plan = Plan::parse(composed.bytes.clone()).unwrap();
    assert_eq!(plan.ref_bytes(), composed.ref_bytes);
    loop {
        match plan.try_map(pool) {
            Ok(segmented) => return segmented,
            // The first ref of an extent has it mapped.
            Err(RefError::NotHere) => {
                composed.refs.iter().for_each(|part| drop(pool.map_ref(&part.to_bytes().unwrap()).unwrap()));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn flat(mut segmented: SegmentedMessage) -> Bytes {
    segmented.copy_to_bytes(segmented.remaining())
}

/// One way of writing some bytes.
#[derive(Clone, Debug)]
enum Write {
    Slice(usize),
    Bytes(usize),
    Each(usize),
    Chunks(usize),
}

fn writes() -> impl Strategy<Value = Write> {
    let len = prop_oneof![0..20usize, 0..THRESHOLD, THRESHOLD - 2..THRESHOLD + 2, 0..4 * THRESHOLD];
    (0..4, len).prop_map(|(kind, len)| match kind {
        0 => Write::Slice(len),
        1 => Write::Bytes(len),
        2 => Write::Each(len),
        _ => Write::Chunks(len),
    })
}

#[test]
fn any_way_of_writing_gives_the_same_bytes() {
    let _limit = TimeLimit::seconds(120);
    let place = Place::new();
    let capacity = Capacity { total: 64 << 20, member_quota: 16 << 20, batch: 1 << 20 };
    let (writer, reader) = (Pool::create(&place.address, capacity, config()).unwrap(), place.join());
    // Composing never waits for memory: there is some.
    let some: Vec<_> = (0..8).map(|_| writer.buffer(1 << 20).unwrap()).collect();
    drop(some);
    let config = ProptestConfig { cases: 200, ..ProptestConfig::default() };
    proptest!(config, |(writes in proptest::collection::vec(writes(), 0..12), hint in any::<prop::sample::Index>())| {
        let pieces: Vec<_> = writes.iter().enumerate().map(|(seed, write)| match write {
            Write::Slice(len) | Write::Bytes(len) | Write::Each(len) | Write::Chunks(len) => pattern(seed, *len),
        }).collect();
        let whole = pieces.concat();
        // The length expected is a hint, and may be wrong.
        let mut composer = writer.compose(hint.index(whole.len() * 2 + 1), THRESHOLD);
        for (write, piece) in writes.iter().zip(pieces) {
            match write {
                Write::Slice(_) => composer.put_slice(&piece),
                Write::Bytes(_) => composer.put(Bytes::from(piece)),
                Write::Each(_) => piece.iter().for_each(|byte| composer.put_u8(*byte)),
                Write::Chunks(_) => {
                    let mut left = &piece[..];
                    while !left.is_empty() {
                        let room = composer.chunk_mut();
                        let count = room.len().min(left.len()).min(100);
                        room[..count].copy_from_slice(&left[..count]);
                        // SAFETY: as many were just written.
                        unsafe { composer.advance_mut(count) };
                        left = &left[count..];
                    }
                }
            }
        }
        let composed = composer.finish().unwrap();
        prop_assert!(composed.shortage.is_none(), "{:?}", composed.shortage);
        prop_assert_eq!(&flat(receive(&reader, &composed))[..], &whole[..]);
        // What is left inline are runs shorter than the threshold, one beside each ref at most; and where the hint was too
        // small, a batch more behind the last.
        let inline = whole.len() - composed.ref_bytes;
        let inline_max = (composed.refs.len() + 1) * (THRESHOLD + 100) + BATCH_LEN;
        prop_assert!(inline < inline_max, "{inline} of {}", whole.len());
    });
    reader.sweep();
    until_all_is_free(&writer);
}

#[test]
fn what_lies_in_the_pool_is_not_copied_wherever_it_is_written() {
    let _limit = TimeLimit::seconds(60);
    let place = Place::new();
    let (writer, reader, third) = (place.create(), place.join(), place.join());
    let mut buffer = writer.buffer(2 * THRESHOLD).unwrap();
    buffer.resize_zeroed(2 * THRESHOLD).fill(9);
    let own = Bytes::from(buffer.freeze().unwrap());
    let before = writer.counts().copied_bytes;
    let mut composer = writer.compose(own.len() + 2, THRESHOLD);
    composer.put_u8(1);
    composer.put(own.slice(5..));
    composer.put_u8(2);
    let composed = composer.finish().unwrap();
    assert_eq!((composed.refs.len(), composed.ref_bytes, composed.copied), (1, own.len() - 5, 2));
    assert_eq!(composed.refs[0].as_ptr(), own[5..].as_ptr());
    assert_eq!(writer.counts().copied_bytes, before);
    let mut segmented = receive(&reader, &composed);
    assert_eq!(segmented.get_u8(), 1);
    let seen = segmented.copy_to_bytes(own.len() - 5);
    assert_eq!((segmented.get_u8(), segmented.remaining()), (2, 0));
    // And on from there, by any reader.
    let mut composer = reader.compose(seen.len(), THRESHOLD);
    composer.put_slice(&seen);
    let forwarded = composer.finish().unwrap();
    assert_eq!((forwarded.refs[0].as_ptr(), forwarded.copied), (seen.as_ptr(), 0));
    assert_eq!(reader.counts().copied_bytes, 0);
    drop((composed, own));
    assert!(flat(receive(&third, &forwarded)).iter().all(|byte| *byte == 9));
    drop((forwarded, seen));
    until_all_is_free(&writer);
}

#[test]
fn without_room_everything_stays_private_and_the_reason_is_told() {
    let _limit = TimeLimit::seconds(60);
    let place = Place::new();
    let pool = place.create();
    let all: Vec<_> = (0..4).map(|_| pool.buffer(BATCH as usize).unwrap()).collect();
    assert_eq!(pool.usage().free_bytes, 0, "its quota is used up");
    let exhausted = pool.counts().exhausted;
    let bytes = pattern(3, 10 * THRESHOLD);
    let mut composer = pool.compose(bytes.len(), THRESHOLD);
    composer.put_slice(&bytes[..5 * THRESHOLD]);
    bytes[5 * THRESHOLD..].iter().for_each(|byte| composer.put_u8(*byte));
    let composed = composer.finish().unwrap();
    assert_eq!((composed.refs.len(), &composed.bytes[..]), (0, &bytes[..]));
    assert!(composed.shortage.is_some());
    assert_eq!(pool.counts().exhausted, exhausted + 1, "one message asks once");
    drop(all);
}
