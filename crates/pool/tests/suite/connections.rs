//! Faults 39 to 41: connections between live processes are lost, and coordinators restart. Nothing that is held changes, and
//! all members find each other again.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::net::{Shutdown, shutdown, sockopt};
use tollfree_pool::{Address, AllocError, Coordinator, Pool, RefError, Refusal};
use tollfree_testkit::{TimeLimit, alone};

use crate::place::{BATCH, Place, capacity, config, until, until_all_is_free};

/// Cuts connections to coordinators of this process: all, or every second. How many there were.
fn cut(only_even: bool) -> usize {
    let mut count = 0;
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let numbers: Vec<RawFd> = fds.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| !only_even || number % 2 == 0) {
        // SAFETY: used at once; were it closed by now, or another file, the calls would fail: only Unix sockets that a
        // coordinator of a test has accepted have such a name.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let is_listener = sockopt::socket_acceptconn(fd).unwrap_or(true);
        let name = rustix::net::getsockname(fd).ok();
        let unix = name.and_then(|name| rustix::net::SocketAddrUnix::try_from(name).ok());
        let is_named = unix.is_some_and(|unix| unix.path().is_some() || unix.abstract_name().is_some());
        if !is_listener && is_named && shutdown(fd, Shutdown::Both).is_ok() {
            count += 1;
        }
    }
    count
}

fn may_come_later(error: &RefError) -> bool {
    matches!(error, RefError::Coordinator | RefError::Refused(Refusal::Busy))
}

fn map(pool: &Pool, wire: &[u8]) -> tollfree_pool::Ref {
    let mut found = None;
    until("it is mapped", || match pool.map_ref(wire) {
        Ok(seen) => {
            found = Some(seen);
            true
        }
        Err(error) => {
            assert!(may_come_later(&error), "{error:?}");
            false
        }
    });
    found.unwrap()
}

/// P1, by content: a member that is hung up on keeps its extents, and its readers' holds are its own to keep.
#[test]
fn a_live_owner_that_is_hung_up_on_uses_nothing_again_that_is_held() {
    alone!();
    let _limit = TimeLimit::seconds(240);
    let place = Place::new();
    let _coordinator = Coordinator::start(&place.address, capacity()).unwrap();
    let (owner, reader) = (place.join(), place.join());
    for round in 0..5 {
        let held: Vec<_> = (0..8)
            .map(|_| {
                let shared = owner.copy_from_slice(&[7; 4096]).unwrap();
                map(&reader, &shared.to_bytes().unwrap())
            })
            .collect();
        let next = owner.copy_from_slice(&[7; 4096]).unwrap();
        let imports = reader.usage().import_count;
        assert!(cut(false) >= 2, "round {round}: both were connected");
        until("both are back", || {
            // A new member maps what the owner has: the owner is back, and so is all that it has.
            owner.is_attached() && reader.is_attached()
        });
        let third = place.join();
        let _also = map(&third, &next.to_bytes().unwrap());
        held.iter().for_each(|seen| assert!(map_again(&reader, seen)));
        let more = map(&reader, &next.to_bytes().unwrap());
        drop(next);
        // All that the owner can get, it writes to.
        let mine: Vec<_> = std::iter::from_fn(|| owner.try_buffer(4096).ok())
            .map(|mut buffer| {
                buffer.resize(4096);
                buffer.fill(9);
                buffer
            })
            .collect();
        owner.sweep();
        assert!(!mine.is_empty(), "round {round}");
        for seen in held.iter().chain([&more]) {
            assert!(seen.iter().all(|byte| *byte == 7), "round {round}: a held block has changed");
        }
        assert!(reader.usage().import_count >= imports, "round {round}: nobody was taken for dead");
    }
    until_all_is_free(&owner);
}

/// Another hold of what is held already, by its ref.
fn map_again(pool: &Pool, seen: &tollfree_pool::Ref) -> bool {
    map(pool, &seen.to_bytes().unwrap()).iter().all(|byte| *byte == 7)
}

/// Connections are cut all the time, at whatever step members are: refs go through, and what is held stays as it is.
#[test]
fn connections_cut_at_any_step_take_nothing() {
    const ROUND_COUNT: u32 = 60;
    const CUT_COUNT: usize = 40;
    alone!();
    let _limit = TimeLimit::seconds(300);
    let place = Place::new();
    let _coordinator = Coordinator::start(&place.address, capacity()).unwrap();
    let members: Vec<_> = (0..3).map(|_| place.join()).collect();
    let over = AtomicBool::new(false);
    let cut_count = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut turn = 0_u64;
            while !over.load(Ordering::Relaxed) {
                turn += 1;
                cut_count.fetch_add(cut(turn.is_multiple_of(2)), Ordering::Relaxed);
                // Each time at another step.
                std::thread::sleep(std::time::Duration::from_micros(turn * 7919 % 60_000));
            }
        });
        let mut round = 0_u32;
        while round < ROUND_COUNT || cut_count.load(Ordering::Relaxed) < CUT_COUNT {
            round += 1;
            let fill = (round % 250) as u8 + 1;
            let (owner, reader) = (&members[round as usize % 3], &members[(round as usize + 1) % 3]);
            let mut shared = None;
            until("there is memory", || match owner.copy_from_slice(&[fill; 20_000]) {
                Ok(made) => {
                    shared = Some(made);
                    true
                }
                Err(error) => {
                    assert!(matches!(error, AllocError::Exhausted { .. }), "{error:?}");
                    false
                }
            });
            let shared = shared.unwrap();
            let seen = map(reader, &shared.to_bytes().unwrap());
            drop(shared);
            let more: Vec<_> = std::iter::from_fn(|| owner.try_buffer(20_000).ok())
                .map(|mut buffer| {
                    buffer.resize(20_000);
                    buffer.fill(0);
                    buffer
                })
                .collect();
            owner.sweep();
            assert!(seen.iter().all(|byte| *byte == fill), "round {round}, after {}", more.len());
        }
        over.store(true, Ordering::Relaxed);
    });
    for member in &members {
        until("all are back", || member.is_attached());
        until_all_is_free(member);
    }
    // And the book is right: all of the pool can be had.
    drop(members);
    let members: Vec<_> = (0..4).map(|_| place.join()).collect();
    let all = members.iter().flat_map(|member| (0..4).map(|_| member.buffer(BATCH as usize).unwrap()));
    assert_eq!(all.collect::<Vec<_>>().len(), 16);
}

/// P3: an orderly stop is as good as a kill, whatever the address.
#[test]
fn every_kind_of_restart_finds_all_members_again() {
    alone!();
    let _limit = TimeLimit::seconds(240);
    let place = Place::new();
    let hidden: Address = format!("shm-abstract:tollfree-restarts-{}", std::process::id()).parse().unwrap();
    for address in [&place.address, &hidden] {
        let join = || Pool::join(address, config()).unwrap();
        let start = || {
            let mut started = None;
            until("the address is free", || {
                started = Coordinator::start(address, capacity()).ok();
                started.is_some()
            });
            started.unwrap()
        };
        let mut coordinator = start();
        let (owner, reader) = (join(), join());
        let mut held = Vec::new();
        for round in 0..4 {
            let shared = owner.copy_from_slice(&[7; 4096]).unwrap();
            let wire = shared.to_bytes().unwrap();
            held.push(map(&reader, &wire));
            if round % 2 == 0 {
                coordinator.stop();
            } else {
                drop(coordinator);
            }
            until("it is gone", || !owner.is_attached() && !reader.is_attached());
            coordinator = start();
            // The first to come doesn't make it another pool.
            let newcomer = join();
            assert_eq!(newcomer.id(), owner.id(), "{address}, round {round}");
            until("all are back", || owner.is_attached() && reader.is_attached());
            assert_eq!(map(&newcomer, &wire)[..], [7; 4096]);
            drop(shared);
            owner.sweep();
            assert_eq!(owner.usage().limbo_count, held.len(), "what is held is known to be held");
        }
        assert!(held.iter().all(|seen| seen.iter().all(|byte| *byte == 7)));
        drop(held);
        until_all_is_free(&owner);
        coordinator.stop();
        // A pool whose maker leaves and makes it again.
        let maker = Pool::create(address, capacity(), config()).unwrap();
        until("they are back", || owner.is_attached() && reader.is_attached());
        drop(maker);
        until("it is gone", || !owner.is_attached());
        let mut again = None;
        until("the address is free", || {
            again = Pool::create(address, capacity(), config()).ok();
            again.is_some()
        });
        until("they are back", || owner.is_attached() && reader.is_attached());
        assert_eq!(again.map(|pool| pool.id()), Some(owner.id()));
    }
}
