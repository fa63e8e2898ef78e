//! Extents that come and go while others ask for them, on a machine with more to do than it has processors.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tollfree_pool::{Capacity, Config, Pool, REF_LEN};
use tollfree_testkit::{Chance, TimeLimit};

use crate::place::{KIB, Place, block_on, config};

const MEMBER_COUNT: usize = 4;
const ROUND_COUNT: usize = 150;
const HOG_COUNT: usize = 6;

/// A ref, and where to say that hold was taken of it.
type Parcel = ([u8; REF_LEN], u8, SyncSender<()>);

/// Shares a value with another member, lets go once that has it, and again. What is free is given back at once, so that most
/// values lie in an extent that nobody has seen before.
fn share(pool: &Pool, to: &[SyncSender<Parcel>], seed: u64) {
    let mut chance = Chance::new(seed);
    for round in 0..ROUND_COUNT {
        let fill = round as u8;
        let shared = pool.copy_from_slice(&vec![fill; 1 + chance.below(64 * KIB) as usize]).unwrap();
        let (taken, until_taken) = sync_channel(0);
        let parcel = (shared.to_bytes().unwrap(), fill, taken);
        to[chance.below(to.len() as u64) as usize].send(parcel).unwrap();
        until_taken.recv().expect("hold was taken");
    }
}

/// Takes hold of what comes, waiting in turn as a thread and as a task.
fn take(pool: &Pool, parcels: &Receiver<Parcel>) -> usize {
    let mut count = 0;
    while let Ok((wire, fill, taken)) = parcels.recv() {
        let bytes = if count % 2 == 0 { pool.map_ref(&wire) } else { block_on(pool.fetch(&wire)) };
        let bytes = bytes.unwrap_or_else(|error| panic!("after {count}: {error}"));
        assert!(bytes.iter().all(|byte| *byte == fill));
        taken.send(()).unwrap();
        count += 1;
    }
    count
}

/// The way of an extent to a reader goes through three threads and back. None of them sleeps through anything.
#[test]
fn no_extent_is_waited_for_in_vain() {
    let _limit = TimeLimit::seconds(240);
    let place = Place::new();
    let batch = 64 * KIB;
    let room = Capacity { total: 64 * batch, member_quota: 16 * batch, batch };
    let restless = Config { high_watermark: 0, ..config() };
    let first = Pool::create(&place.address, room, restless).unwrap();
    let joined = (1..MEMBER_COUNT).map(|_| Pool::join(&place.address, restless).unwrap());
    let members: Vec<Pool> = std::iter::once(first).chain(joined).collect();
    let over = AtomicBool::new(false);
    let taken_count = std::thread::scope(|scope| {
        for _ in 0..HOG_COUNT {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let (senders, receivers): (Vec<_>, Vec<_>) =
            members.iter().map(|_| sync_channel::<Parcel>(8)).unzip();
        let takers: Vec<_> = members
            .iter()
            .zip(receivers)
            .map(|(pool, parcels)| scope.spawn(move || take(pool, &parcels)))
            .collect();
        let givers: Vec<_> = members
            .iter()
            .enumerate()
            .flat_map(|(idx, pool)| {
                let others = senders.iter().enumerate().filter(|(other, _)| *other != idx);
                let others: Vec<_> = others.map(|(_, sender)| sender.clone()).collect();
                (0..2).map(move |thread| (pool, others.clone(), 2 * idx + thread))
            })
            .map(|(pool, others, seed)| scope.spawn(move || share(pool, &others, seed as u64)))
            .collect();
        drop(senders);
        let given = givers.into_iter().all(|giver| giver.join().is_ok());
        let taken_count: usize = takers.into_iter().map(|taker| taker.join().unwrap_or(0)).sum();
        over.store(true, Ordering::Relaxed);
        assert!(given, "a ref was not taken");
        taken_count
    });
    assert_eq!(taken_count, MEMBER_COUNT * 2 * ROUND_COUNT);
    let counts: Vec<_> = members.iter().map(Pool::counts).collect();
    assert!(counts.iter().all(|counts| counts.stale_refs == 0 && counts.forbidden_refs == 0), "{counts:?}");
}
