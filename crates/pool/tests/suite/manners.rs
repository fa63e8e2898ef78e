//! A pool's manners: memory costs what is used of it, who waits blocks no thread, and nobody takes it all unseen.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollfree_pool::{AllocError, Capacity, Config, Payload, Pool, Ref, Shortage, WhenShort};

use crate::place::{BATCH, Place, block_on, config, until, until_all_is_free};

const MIB: u64 = 1 << 20;

/// What is waited for comes in time on any machine.
const LONG: Duration = Duration::from_secs(60);

fn patient() -> Config {
    Config { when_short: WhenShort::Wait(LONG), patience: LONG, ..config() }
}

/// Fault 44: what is held of the dead costs what the extent has that it lies in, and extents that were just begun are short.
#[test]
fn a_little_held_of_many_dead_owners_costs_a_little() {
    let place = Place::new();
    let capacity = Capacity { total: 64 * MIB, member_quota: 32 * MIB, batch: 8 * MIB };
    let reader = Pool::create(&place.address, capacity, patient()).unwrap();
    // Each may look ahead, as members do by default, and has something of its own that is longer.
    let held: Vec<Ref> = (0..8)
        .map(|_| {
            let ahead = Config { low_watermark: Config::default().low_watermark, ..patient() };
            let owner = Pool::join(&place.address, ahead).unwrap();
            let little = owner.copy_from_slice(&[7; 200]).unwrap();
            let _much = owner.buffer(3 << 20).unwrap();
            reader.map_ref(&little.to_bytes().unwrap()).unwrap()
        })
        .collect();
    // With extents of a batch, the dead would have all of the pool.
    let heir = Pool::join(&place.address, patient()).unwrap();
    let blocks: Result<Vec<_>, _> =
        (0..2).flat_map(|_| [heir.buffer(15 << 20), reader.buffer(15 << 20)]).collect();
    blocks.expect("all but a little is there again: 60 of 64 MiB");
    assert!(held.iter().all(|bytes| bytes[..] == [7; 200]));
}

/// Fault 44: extents begin with 64 KiB, and each is as long as all before it, up to a batch.
#[test]
fn extents_grow_with_what_is_used_of_them() {
    let place = Place::new();
    let capacity = Capacity { total: 64 * MIB, member_quota: 8 * MIB, batch: 2 * MIB };
    let owner = Pool::create(&place.address, capacity, patient()).unwrap();
    let mut totals = Vec::new();
    let mut blocks = Vec::new();
    while owner.usage().total_bytes < capacity.member_quota {
        blocks.push(owner.buffer(4096).unwrap());
        if totals.last() != Some(&owner.usage().total_bytes) {
            totals.push(owner.usage().total_bytes);
        }
    }
    let grown: Vec<_> = [1, 2, 4, 8, 16, 32, 64, 96, 128].map(|count| count * BATCH).into();
    assert_eq!(totals, grown);
}

/// Fault 45: a block takes as many pages as it needs, and what it leaves of an extent is there for others.
#[test]
fn a_block_takes_the_pages_that_it_needs() {
    let place = Place::new();
    let capacity = Capacity { total: 64 * MIB, member_quota: 32 * MIB, batch: 8 * MIB };
    let owner = Pool::create(&place.address, capacity, patient()).unwrap();
    let mut long = owner.buffer(20 << 20).unwrap();
    assert_eq!(owner.usage().total_bytes, 20 * MIB);
    long.resize(20 << 20);
    // Whatever is asked for at any place of it is found to be of this block.
    let whole = bytes::Bytes::from(long.freeze().unwrap());
    let reader = Pool::join(&place.address, patient()).unwrap();
    let seen = owner.ref_of(&whole).unwrap().to_bytes().map(|bytes| reader.map_ref(&bytes).unwrap()).unwrap();
    let theirs = bytes::Bytes::from(seen);
    for at in [0, 4095, 5 << 20, (20 << 20) - 1] {
        for (member, bytes) in [(&owner, &whole), (&reader, &theirs)] {
            let found = member.ref_of(&bytes.slice(at..)).expect("it lies there");
            assert_eq!((found.len(), found.as_ptr()), ((20 << 20) - at, bytes[at..].as_ptr()));
        }
    }
    let rest = owner.buffer(12 << 20).unwrap();
    assert_eq!(owner.usage().total_bytes, 32 * MIB);
    let refused = owner.try_buffer(1).unwrap_err();
    assert!(matches!(refused, AllocError::Exhausted { .. }), "{refused}");
    // All of a quota can be one block, whatever it was divided into before.
    drop((rest, whole, theirs));
    until_all_is_free(&owner);
    let small: Vec<_> = (0..4).map(|_| owner.buffer(3_000_000).unwrap()).collect();
    drop(small);
    assert_eq!(owner.buffer(32 << 20).unwrap().capacity(), 32 << 20);
    let longer = owner.buffer((32 << 20) + 1).unwrap_err();
    assert!(matches!(longer, AllocError::TooLong { max, .. } if max == 32 << 20), "{longer}");
}

/// Fault 45: who is refused is told how much there is, who has it, and what can be done.
#[test]
fn a_quota_that_is_used_up_names_who_holds_it() {
    let place = Place::new();
    let (owner, reader) = (place.create(), place.join());
    let shared = owner.copy_from_slice(&[1; 3 * BATCH as usize]).unwrap();
    let held = reader.map_ref(&shared.to_bytes().unwrap()).unwrap();
    drop(shared);
    let refused = loop {
        // Until the coordinator has said no.
        match owner.try_buffer(2 * BATCH as usize).unwrap_err() {
            AllocError::Exhausted { by: Shortage::Time, .. } => std::thread::yield_now(),
            refused => break refused,
        }
    };
    let said = refused.to_string();
    let me = std::process::id();
    for part in [
        "the pool has no 131072 bytes",
        "192 KiB of 256 KiB are in use",
        &format!("192 KiB held by process {me}"),
        "Capacity::member_quota",
        "tollfree pool serve --quota",
    ] {
        assert!(said.contains(part), "{part:?} in {said:?}");
    }
    let room = owner.room();
    assert_eq!((room.quota, room.used, room.holders.len()), (4 * BATCH, 3 * BATCH, 1));
    assert_eq!((room.holders[0].bytes, room.holders[0].block_count), (3 * BATCH, 1));
    assert_eq!(room.holders[0].process, Some(me));
    drop(held);
    until_all_is_free(&owner);
    assert!(owner.room().holders.is_empty());
}

/// Fault 46: one that holds what it may of an owner gets no more of it, until it lets go.
#[test]
fn a_reader_that_never_lets_go_may_hold_so_much_and_no_more() {
    let place = Place::new();
    let capacity = Capacity { total: 64 * MIB, member_quota: 8 * MIB, batch: MIB };
    let limited = Config { reader_limit: Some(2 * MIB), ..patient() };
    let owner = Pool::create(&place.address, capacity, limited).unwrap();
    let reader = Pool::join(&place.address, patient()).unwrap();
    let me = std::process::id();
    let mut held = Vec::new();
    while owner.may_share_with(me).is_ok() {
        assert!(held.len() < 64, "it has all of the quota");
        let bytes = owner.copy_from_slice(&[3; 128 << 10]).unwrap();
        held.push(reader.map_ref(&bytes.to_bytes().unwrap()).unwrap());
    }
    // More than it may, by what was passed on since it was last looked at.
    assert!((17..=20).contains(&held.len()), "{} blocks", held.len());
    let refused = owner.may_share_with(me).unwrap_err();
    let said = refused.to_string();
    assert!(matches!(refused, AllocError::ReaderLimit { limit, .. } if limit == 2 * MIB), "{said}");
    assert!(said.contains(&format!("process {me} holds 2.")) && said.contains("may hold 2 MiB"), "{said}");
    owner.may_share_with(me + 1).expect("others aren't told to wait for it");
    drop(held);
    until("it may have some again", || owner.may_share_with(me).is_ok());
}

/// Polls once, with a waker that does nothing.
fn poll_once<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Fault 46: a task that waits for memory gives its thread back, and gets what any member lets go of.
#[test]
fn a_task_that_waits_for_memory_blocks_no_thread() {
    let place = Place::new();
    let all = Capacity { total: 16 * BATCH, member_quota: BATCH, batch: BATCH };
    let owner = Pool::create(&place.address, all, patient()).unwrap();
    let reader = Pool::join(&place.address, patient()).unwrap();
    // From nothing: the coordinator's answer wakes it.
    let whole = block_on(owner.buffer_async(BATCH as usize)).unwrap();
    {
        let mut waiting = pin!(owner.buffer_async(1));
        assert!(poll_once(waiting.as_mut()).is_pending(), "there is none, and the thread goes on");
        drop(whole);
        assert_eq!(block_on(waiting).unwrap().capacity(), 1, "one dropped here");
    }
    let shared = owner.copy_from_slice(&[5; BATCH as usize]).unwrap();
    let seen = reader.map_ref(&shared.to_bytes().unwrap()).unwrap();
    drop(shared);
    {
        let mut waiting = pin!(owner.buffer_async(1));
        assert!(poll_once(waiting.as_mut()).is_pending());
        // Nobody tells the owner: it looks by itself.
        let letting_go = std::thread::spawn(move || drop(seen));
        assert_eq!(block_on(waiting).unwrap().capacity(), 1, "one that another member dropped");
        letting_go.join().unwrap();
    }
    until_all_is_free(&owner);
    // Writing is producing.
    let mut mine = Payload::from(owner.copy_from_slice(&[1; 2 * 4096]).unwrap());
    let theirs = mine.clone();
    block_on(mine.write_at(1, &[2; 2])).unwrap();
    assert_eq!((&mine.to_vec()[..4], &theirs.to_vec()[..4]), (&[1, 2, 2, 1][..], &[1; 4][..]));
    // What is impossible is said at once, and what takes too long by and by.
    assert!(matches!(block_on(owner.buffer_async(0)), Err(AllocError::Empty)));
    assert!(matches!(block_on(owner.buffer_async(1 << 30)), Err(AllocError::TooLong { .. })));
    let _all: Vec<_> = std::iter::from_fn(|| owner.try_buffer(4096).ok()).collect();
    let hasty = Config { when_short: WhenShort::Wait(Duration::from_millis(20)), ..config() };
    let other = Pool::join(&place.address, hasty).unwrap();
    let _rest = std::iter::repeat_with(|| other.buffer(BATCH as usize)).find_map(Result::ok);
    let before = other.counts().exhausted;
    let refused = loop {
        match block_on(other.buffer_async(1)).unwrap_err() {
            // The coordinator's answer isn't here yet.
            AllocError::Exhausted { by: Shortage::Time, .. } => {}
            refused => break refused,
        }
    };
    assert!(matches!(refused, AllocError::Exhausted { by: Shortage::Quota, .. }), "{refused}");
    assert!(other.counts().exhausted > before);
}
