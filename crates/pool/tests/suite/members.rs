//! Members of one pool, all in this process: what operations mean, and what is refused.

use std::io::Write;
use std::time::Duration;

use bytes::{BufMut, Bytes};
use tollfree_pool::{
    AllocError, Capacity, Config, JoinError, Payload, Pool, REF_LEN, RefError, Shortage, WhenShort,
};
use tollfree_testkit::TimeLimit;

use crate::place::{BATCH, Place, block_on, capacity, config, until, until_all_is_free};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at * 31) >> 4) as u8).collect()
}

#[test]
fn a_ref_is_read_where_it_lies_sliced_cloned_stored_and_mapped_many_times() {
    let _limit = TimeLimit::seconds(60);
    let place = Place::new();
    let (writer, reader, third) = (place.create(), place.join(), place.join());
    let bytes = pattern(20_000);
    let shared = writer.copy_from_slice(&bytes).unwrap();
    let wire = shared.to_bytes().unwrap();
    let first = reader.map_ref(&wire).unwrap();
    let again = reader.map_ref(&wire).unwrap();
    let part = first.slice(5_000..=5_009).unwrap();
    let forwarded = third.map_ref(&part.to_bytes().unwrap()).unwrap();
    let home = writer.map_ref(&part.to_bytes().unwrap()).unwrap();
    assert_eq!(&first[..], bytes);
    assert_eq!(&again[..], bytes);
    assert_eq!(
        (&part[..], &forwarded[..], &home[..]),
        (&bytes[5_000..5_010], &bytes[5_000..5_010], &bytes[5_000..5_010])
    );
    assert!(home.is_own() && !forwarded.is_own());
    assert_eq!(writer.counts().copied_bytes, 20_000, "into the pool, and never again");
    assert_eq!((reader.counts().copied_bytes, third.counts().copied_bytes), (0, 0));
    drop((shared, first, again, part, home));
    writer.sweep();
    assert_eq!(writer.usage().limbo_count, 1, "the third member holds it");
    assert_eq!(&forwarded[..], &bytes[5_000..5_010]);
    drop(forwarded);
    until_all_is_free(&writer);
}

#[test]
fn what_is_held_is_not_used_again_and_what_is_dropped_is() {
    let place = Place::new();
    let (writer, reader) = (place.create(), place.join());
    let mut held = Vec::new();
    for round in 0..64_u8 {
        // Four extents of 16 pages: the last of these would not fit if anything held were lost or given twice.
        let shared = writer.copy_from_slice(&[round; 4096]).unwrap();
        held.push(reader.map_ref(&shared.to_bytes().unwrap()).unwrap());
    }
    for (round, bytes) in held.iter().enumerate() {
        assert!(bytes.iter().all(|byte| usize::from(*byte) == round));
    }
    let full = writer.try_buffer(1).unwrap_err();
    assert!(matches!(full, AllocError::Exhausted { len: 1, .. }), "{full}");
    held.truncate(32);
    let more: Vec<_> = (0..32).map(|_| writer.copy_from_slice(&[99; 4096]).unwrap()).collect();
    for (round, bytes) in held.iter().enumerate() {
        assert!(bytes.iter().all(|byte| usize::from(*byte) == round), "under a reader");
    }
    drop((held, more));
    assert_eq!(until_all_is_free(&writer).total_bytes, 4 * BATCH);
}

#[test]
fn writing_after_sharing_leaves_readers_their_snapshot() {
    let place = Place::new();
    let (writer, reader) = (place.create(), place.join());
    let bytes = pattern(40_000);
    let mut mine = Payload::from(writer.copy_from_slice(&bytes).unwrap());
    let wire = mine.refs()[0].to_bytes().unwrap();
    let theirs = reader.map_ref(&wire).unwrap();
    let copied = writer.counts().copied_bytes;
    mine.make_mut(9_000..9_002).unwrap().copy_from_slice(b"ab");
    assert_eq!(writer.counts().copied_bytes - copied, 4096, "the one page that was touched");
    assert_eq!(mine.segments().count(), 3);
    mine.make_mut(9_001..9_003).unwrap().copy_from_slice(b"cd");
    assert_eq!(writer.counts().copied_bytes - copied, 4096, "it is this payload's own by now");
    mine.make_mut(4_095..4_097).unwrap().copy_from_slice(b"ef");
    assert_eq!(&theirs[..], bytes, "the reader's snapshot");
    let mut expected = bytes;
    expected[9_000..9_003].copy_from_slice(b"acd");
    expected[4_095..4_097].copy_from_slice(b"ef");
    assert_eq!(mine, expected[..]);
    // And the reader writes, into memory of its own.
    let mut copy = Payload::from(theirs.clone());
    copy.make_mut(..).unwrap().fill(7);
    assert!(copy.as_slice().unwrap().iter().all(|byte| *byte == 7));
    assert_eq!(mine, expected[..]);
    assert!(theirs.iter().any(|byte| *byte != 7));
}

#[test]
fn writing_what_nobody_else_has_copies_nothing() {
    let place = Place::new();
    let writer = place.create();
    let mut mine = Payload::from(writer.copy_from_slice(&pattern(10_000)).unwrap());
    let copied = writer.counts().copied_bytes;
    mine.make_mut(..).unwrap().fill(1);
    assert_eq!((writer.counts().copied_bytes, mine.segments().count()), (copied, 1));
    let clone = mine.clone();
    mine.make_mut(0..1).unwrap()[0] = 2;
    assert_eq!((clone.to_vec()[0], mine.to_vec()[0]), (1, 2), "a clone is somebody else");
    drop(clone);
}

/// Against a plain vector: random writes, slices and clones, with readers that must keep what they saw.
#[test]
fn payloads_behave_like_vectors() {
    let _limit = TimeLimit::seconds(60);
    let place = Place::new();
    let (writer, reader) = (place.create(), place.join());
    let mut seed = 1_u64;
    let mut next = move |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    for round in 0..20 {
        let mut model = pattern(1 + next(30_000));
        let mut payload = Payload::from(writer.copy_from_slice(&model).unwrap());
        let mut snapshots = Vec::new();
        for _ in 0..12 {
            let start = next(model.len());
            let end = start + 1 + next((model.len() - start).min(9_000));
            match next(4) {
                0 => snapshots.push((payload.clone(), model.clone())),
                1 => {
                    let refs = payload.refs().iter().map(|bytes| bytes.to_bytes().unwrap());
                    let mapped: Vec<_> = refs.map(|wire| reader.map_ref(&wire).unwrap()).collect();
                    let seen: Vec<u8> = mapped.iter().flat_map(|bytes| bytes.to_vec()).collect();
                    assert_eq!(seen, model, "round {round}");
                }
                2 if end - start > 1 => {
                    let part = payload.slice(start..end).unwrap();
                    assert_eq!(part, model[start..end]);
                    snapshots.push((part, model[start..end].to_vec()));
                }
                _ => {
                    let fill = next(256) as u8;
                    payload.make_mut(start..end).unwrap().fill(fill);
                    model[start..end].fill(fill);
                }
            }
            assert_eq!(payload, model[..], "round {round}");
        }
        for (payload, model) in snapshots {
            assert_eq!(payload, model[..], "round {round}");
        }
    }
    until_all_is_free(&writer);
}

#[test]
fn payloads_become_bytes_and_back_without_a_copy() {
    let place = Place::new();
    let (writer, reader) = (place.create(), place.join());
    let vec = pattern(9_000);
    let address = vec.as_ptr();
    let bytes: Bytes = Payload::from(vec).into();
    assert_eq!(bytes.as_ptr(), address, "private, as a vector");
    let mut payload = Payload::from(bytes);
    assert!(!payload.is_pooled() && payload.refs().is_empty());
    payload.make_mut(0..1).unwrap()[0] = 1;

    let shared = writer.copy_from_slice(&pattern(9_000)).unwrap();
    let theirs = reader.map_ref(&shared.to_bytes().unwrap()).unwrap();
    let lies_at = theirs.as_ptr();
    let bytes: Bytes = Payload::from(theirs).into();
    assert_eq!(bytes.as_ptr(), lies_at);
    let part = bytes.slice(100..200);
    drop(bytes);
    // A balancer: what came as `Bytes` goes on as a ref, though nobody says so.
    let known = reader.ref_of(&part).expect("it lies in the pool");
    assert_eq!((known.as_ptr(), known.len()), (part.as_ptr(), 100));
    let mut forwarded = Payload::from(part);
    assert!(!forwarded.is_pooled());
    assert_eq!(forwarded.share(&reader).unwrap()[0].as_ptr(), known.as_ptr());
    let third = place.join();
    assert_eq!(
        &third.map_ref(&forwarded.refs()[0].to_bytes().unwrap()).unwrap()[..],
        &pattern(9_000)[100..200]
    );
    assert_eq!((reader.counts().copied_bytes, third.counts().copied_bytes), (0, 0));
    // One's own memory is recognised as well, and nothing else is.
    let own: Bytes = shared.slice(1..).unwrap().into();
    assert_eq!(writer.ref_of(&own).map(|bytes| bytes.len()), Some(8_999));
    assert!(
        writer.ref_of(&Bytes::from_static(b"elsewhere")).is_none() && writer.ref_of(&Bytes::new()).is_none()
    );
    assert!(third.ref_of(&own).is_none(), "that address is another member's mapping");
    drop((own, shared, known, forwarded));
    until_all_is_free(&writer);
}

#[test]
fn a_payload_of_another_pool_is_shared_by_a_copy() {
    let (here, there) = (Place::new(), Place::new());
    let (a, b) = (here.create(), there.create());
    let mut payload = Payload::from(a.copy_from_slice(&pattern(5_000)).unwrap());
    assert!(
        matches!(payload.share(&b), Err(AllocError::Exhausted { .. })),
        "it has nothing yet, and doesn't wait"
    );
    drop(b.buffer(1).unwrap());
    let refs = payload.share(&b).unwrap();
    assert!(b.has(&refs[0]) && !a.has(&refs[0]));
    assert_eq!(payload, pattern(5_000)[..]);
    assert!(Payload::default().share(&a).is_err(), "no bytes need no ref");
}

#[test]
fn a_buffer_shows_what_was_written_and_nothing_that_was_there_before() {
    let place = Place::new();
    let (writer, reader) = (place.create(), place.join());
    drop(writer.copy_from_slice(&[0xaa; 8192]).unwrap());
    let mut buffer = writer.buffer(8192).unwrap();
    buffer.put_slice(b"put ");
    buffer.put_u32(0x2020_2020);
    buffer.write_all(b"written").unwrap();
    buffer[0] = b'P';
    assert_eq!((buffer.remaining_mut(), buffer.capacity()), (8192 - 15, 8192));
    let shared = buffer.freeze().unwrap();
    assert_eq!(&reader.map_ref(&shared.to_bytes().unwrap()).unwrap()[..], b"Put     written");
    drop(shared);
    let mut zeros = writer.buffer(8192).unwrap();
    zeros.resize(8192);
    assert!(zeros.iter().all(|byte| *byte == 0), "the same memory, used before");
    assert!(zeros.write(b"more").is_ok_and(|count| count == 0), "it is full");
    let empty = writer.buffer(1).unwrap();
    assert!(matches!(empty.freeze(), Err(RefError::Empty)));
    assert!(Payload::from(writer.buffer(1).unwrap()).is_empty());
}

/// Pitfalls 23 and 25: memory that changes hands shows nothing of whose it was.
#[test]
fn memory_that_another_member_gets_is_zeroed() {
    let place = Place::new();
    let all = Capacity { total: BATCH, member_quota: BATCH, batch: BATCH };
    let first = Pool::create(&place.address, all, config()).unwrap();
    drop(first.copy_from_slice(&[0xaa; BATCH as usize]).unwrap());
    let second = place.join();
    // The coordinator has nothing left; it takes the first one's idle batch back.
    let mut buffer = second.buffer(BATCH as usize).unwrap();
    assert_eq!((first.usage().total_bytes, second.usage().total_bytes), (0, BATCH));
    let room = buffer.chunk_mut();
    assert_eq!(room.len(), BATCH as usize);
    let mut seen = vec![1; room.len()];
    // Safe code sees only what was written; so the test looks as a reader with a debugger would.
    buffer.resize(BATCH as usize);
    seen.copy_from_slice(&buffer);
    assert!(seen.iter().all(|byte| *byte == 0));
}

#[test]
fn zero_length_and_ranges_outside_are_refused() {
    let place = Place::new();
    let writer = place.create();
    assert!(matches!(writer.buffer(0), Err(AllocError::Empty)));
    let shared = writer.copy_from_slice(&pattern(100)).unwrap();
    for (start, end) in [(0, 101), (101, 102), (usize::MAX, usize::MAX)] {
        let refused = shared.slice(start..end);
        assert!(matches!(refused, Err(RefError::Range { len: 100, .. })), "{start}..{end}");
    }
    assert!(matches!(shared.slice(50..50), Err(RefError::Empty)));
    #[expect(clippy::reversed_empty_ranges, reason = "what is tested")]
    let reversed = shared.slice(9..3);
    assert!(matches!(reversed, Err(RefError::Range { .. })));
    let mut payload = Payload::from(shared);
    assert!(
        payload.make_mut(90..101).is_err()
            && payload.make_mut(5..5).is_err()
            && payload.slice(100..).is_err()
    );
    let mut far = [0; 4];
    assert!(block_on(payload.read_at(98, &mut far)).is_err());
    assert!(block_on(payload.write_at(usize::MAX, &far)).is_err());
}

#[test]
fn unaligned_and_overlapping_ranges_are_exact() {
    let place = Place::new();
    let (writer, reader) = (place.create(), place.join());
    let bytes = pattern(20_000);
    let shared = writer.copy_from_slice(&bytes).unwrap();
    for (start, end) in [(1, 2), (4_095, 4_097), (4_096, 8_192), (3, 19_999), (0, 20_000)] {
        let wire = shared.slice(start..end).unwrap().to_bytes().unwrap();
        assert_eq!(&reader.map_ref(&wire).unwrap()[..], &bytes[start..end]);
    }
    let (left, right) = (shared.slice(0..12_000).unwrap(), shared.slice(8_000..20_000).unwrap());
    let (mut left, mut right) = (Payload::from(left), Payload::from(right));
    left.make_mut(8_000..12_000).unwrap().fill(1);
    right.make_mut(0..4_000).unwrap().fill(2);
    assert_eq!((&left.to_vec()[8_000..], &right.to_vec()[..4_000]), (&[1; 4_000][..], &[2; 4_000][..]));
    assert_eq!(&shared[..], bytes, "what they both were is untouched");
    let mut out = [0; 5];
    block_on(left.read_at(7_998, &mut out)).unwrap();
    assert_eq!(out, [bytes[7_998], bytes[7_999], 1, 1, 1]);
    block_on(left.write_at(7_999, b"xy")).unwrap();
    assert_eq!(left.to_vec()[7_998..8_002], [bytes[7_998], b'x', b'y', 1]);
}

#[test]
fn longer_than_the_pool_is_refused_at_once() {
    let place = Place::new();
    let writer = place.create();
    let refused = writer.buffer(4 * BATCH as usize + 1).unwrap_err();
    assert!(matches!(refused, AllocError::TooLong { max, .. } if max == 4 * BATCH as usize), "{refused}");
    let largest = writer.buffer(4 * BATCH as usize).unwrap();
    assert_eq!(largest.capacity(), 4 * BATCH as usize);
}

#[test]
fn refs_of_other_pools_and_made_up_ones_are_refused_and_counted() {
    let (here, there) = (Place::new(), Place::new());
    let (writer, reader, foreign) = (here.create(), here.join(), there.create());
    let shared = writer.copy_from_slice(&pattern(100)).unwrap();
    let wire = shared.to_bytes().unwrap();
    reader.map_ref(&wire).unwrap();
    assert!(matches!(foreign.map_ref(&wire), Err(RefError::ForeignPool)));
    assert_eq!(foreign.counts().forbidden_refs, 1);
    let forge = |at: usize, value: u8| {
        let mut forged = wire;
        forged[at] ^= value;
        forged
    };
    // Page, key, offset, length: by one bit each, and by much.
    for (at, value) in [(29, 0x20), (31, 0x80), (32, 1), (39, 0x80), (40, 255), (47, 1), (50, 1), (55, 0x80)]
    {
        for pool in [&reader, &writer] {
            let refused = pool.map_ref(&forge(at, value)).unwrap_err();
            assert!(refused.is_forbidden(), "byte {at}: {refused:?}");
        }
    }
    assert!(matches!(reader.map_ref(&forge(28, 1)), Err(RefError::Stale)), "another generation");
    let mut none = wire;
    none[48..].fill(0);
    assert!(matches!(reader.map_ref(&none), Err(RefError::Empty)));
    for len in [0, 1, REF_LEN - 1] {
        assert!(matches!(reader.map_ref(&wire[..len]), Err(RefError::Malformed(_))));
    }
    assert!(matches!(reader.map_ref(&[wire, wire].concat()), Err(RefError::Malformed(_))));
    assert!(matches!(reader.map_ref(&forge(16, 1)), Err(RefError::Gone)), "a member that never was");
    assert!(matches!(reader.map_ref(&forge(20, 8)), Err(RefError::Gone)), "an extent that never was");
    assert_eq!((reader.counts().forbidden_refs, reader.counts().stale_refs), (8 + 4, 3));
    drop(shared);
    until_all_is_free(&writer);
}

#[test]
fn keys_of_refs_tell_nothing_of_each_other() {
    let place = Place::new();
    let writer = place.create();
    let refs: Vec<_> = (0..32).map(|_| writer.copy_from_slice(b"x").unwrap()).collect();
    let keys: Vec<u64> = refs
        .iter()
        .map(|bytes| u64::from_le_bytes(bytes.to_bytes().unwrap()[32..40].try_into().unwrap()))
        .collect();
    for (idx, key) in keys.iter().enumerate() {
        for other in &keys[idx + 1..] {
            let apart = (key ^ other).count_ones();
            assert!((10..=54).contains(&apart), "{key:x} and {other:x} differ in {apart} bits");
        }
    }
}

#[test]
fn a_ref_that_outlived_all_holds_is_stale() {
    let place = Place::new();
    let (writer, reader) = (place.create(), place.join());
    let shared = writer.copy_from_slice(&pattern(100)).unwrap();
    let wire = shared.to_bytes().unwrap();
    drop(reader.map_ref(&wire).unwrap());
    drop(shared);
    until_all_is_free(&writer);
    for pool in [&reader, &writer] {
        assert!(matches!(pool.map_ref(&wire), Err(RefError::Stale)));
        assert_eq!(pool.counts().stale_refs, 1);
    }
    let next = writer.copy_from_slice(b"the same block, another generation").unwrap();
    next.to_bytes().unwrap();
    assert!(matches!(reader.map_ref(&wire), Err(RefError::Stale)));
    assert_eq!(writer.usage().limbo_count, 0, "what was refused left no hold");
}

#[test]
fn a_member_gets_its_quota_and_no_more() {
    let place = Place::new();
    // Room comes from the coordinator, which may take its time to be asked.
    let config = Config { when_short: WhenShort::Wait(Duration::from_secs(2)), ..config() };
    let greedy = Pool::create(&place.address, capacity(), config).unwrap();
    let modest = place.join();
    let all: Vec<_> = (0..4).map(|_| greedy.buffer(BATCH as usize).unwrap()).collect();
    let refused = greedy.buffer(1).unwrap_err();
    assert!(matches!(refused, AllocError::Exhausted { by: Shortage::Quota, .. }), "{refused}");
    assert_eq!(greedy.counts().exhausted, 1);
    assert!(modest.buffer(BATCH as usize).is_ok(), "others have theirs");
    drop(all);
    assert!(greedy.buffer(BATCH as usize).is_ok());
}

#[test]
fn surplus_goes_back_and_batches_come_before_they_are_needed() {
    let place = Place::new();
    let config = Config { low_watermark: BATCH / 2, high_watermark: BATCH, ..config() };
    let pool = Pool::create(&place.address, capacity(), config).unwrap();
    let first = pool.buffer(BATCH as usize / 2 + 1).unwrap();
    until("a second batch came by itself", || pool.usage().total_bytes == 2 * BATCH);
    let more: Vec<_> = (0..3).map(|_| pool.buffer(BATCH as usize).unwrap()).collect();
    assert_eq!(pool.usage().total_bytes, 4 * BATCH);
    drop((first, more));
    until("all but one batch goes back", || pool.usage().total_bytes <= 2 * BATCH);
    assert!(pool.usage().free_bytes >= BATCH / 2, "the low watermark is kept");
}

#[test]
fn fetching_is_asynchronous_and_mapping_never_waits_when_told_not_to() {
    let place = Place::new();
    let (writer, reader) = (place.create(), place.join());
    let shared = writer.copy_from_slice(&pattern(5_000)).unwrap();
    let wire = shared.to_bytes().unwrap();
    assert!(matches!(reader.try_map_ref(&wire), Err(RefError::NotHere)));
    let (one, two) = (reader.clone(), reader.clone());
    let other = std::thread::spawn(move || block_on(two.fetch(&wire)).unwrap().len());
    assert_eq!(&block_on(one.fetch(&wire)).unwrap()[..], pattern(5_000));
    assert_eq!(other.join().unwrap(), 5_000);
    assert!(reader.try_map_ref(&wire).is_ok());
    assert_eq!(writer.usage().row_count, 1, "one row, however many asked");
    let mut gone = wire;
    gone[20] ^= 7;
    assert!(matches!(block_on(reader.fetch(&gone)), Err(RefError::Gone)));
}

#[test]
fn many_threads_share_and_read_at_once() {
    let _limit = TimeLimit::seconds(60);
    let place = Place::new();
    let (writer, reader) = (place.create(), place.join());
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (writer, reader) = (writer.clone(), reader.clone());
            scope.spawn(move || {
                for round in 0..300_u32 {
                    let fill = [thread, round as u8].repeat(100 + (round as usize * 37) % 9_000);
                    let shared = writer.copy_from_slice(&fill).unwrap();
                    let seen = reader.map_ref(&shared.to_bytes().unwrap()).unwrap();
                    drop(shared);
                    assert_eq!(&seen[..], fill);
                }
            });
        }
    });
    until_all_is_free(&writer);
    assert_eq!(reader.counts().stale_refs, 0);
}

#[test]
fn settings_and_addresses_that_cannot_be_are_refused() {
    let place = Place::new();
    for wrong in [
        Capacity { batch: BATCH + 1, ..capacity() },
        Capacity { batch: BATCH / 2, ..capacity() },
        Capacity { member_quota: BATCH - 1, ..capacity() },
        Capacity { total: 0, ..capacity() },
    ] {
        assert!(matches!(Pool::create(&place.address, wrong, config()), Err(JoinError::Settings(_))));
    }
    let nobody = Pool::join(&place.address, config()).unwrap_err();
    assert!(
        matches!(nobody, JoinError::Connect { .. }) && nobody.to_string().contains("tollfree pool serve")
    );
    let _pool = place.create();
    assert!(matches!(Pool::create(&place.address, capacity(), config()), Err(JoinError::Bind(_))));
}

#[test]
fn a_coordinator_shows_its_members_to_anybody_of_its_user() {
    let place = Place::new();
    let (first, second) = (place.create(), place.join());
    drop(first.buffer(1).unwrap());
    let limit = std::time::Duration::from_secs(30);
    let shown = tollfree_pool::show(&place.address, limit).unwrap();
    assert_eq!((shown.total_bytes, shown.members.len()), (capacity().total, 2));
    for member in &shown.members {
        assert_eq!(
            (member.process, member.standing),
            (Some(std::process::id()), tollfree_pool::Standing::Attached)
        );
    }
    let extents: u64 = shown.members.iter().map(|member| member.extent_bytes).sum();
    assert!(extents >= first.usage().total_bytes && shown.used_bytes >= extents, "{shown:?}");
    drop(second);
    until("one is left", || tollfree_pool::show(&place.address, limit).unwrap().members.len() == 1);
    let nobody = "shm:///nobody/is/here.sock".parse().unwrap();
    assert!(tollfree_pool::show(&nobody, limit).unwrap_err().to_string().contains("/nobody/is/here.sock"));
}
