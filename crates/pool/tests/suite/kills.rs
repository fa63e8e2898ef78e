//! Members that are killed at every named step of their life, in processes of their own. Nothing leaks, nothing that is
//! still held is used again, and the members that are left go on.
//!
//! The process to be killed is this test binary again, told by its environment which part to play and where to die. A
//! step that was never reached fails its test.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tollfree_pool::{
    AllocError, Config, Coordinator, JoinError, Overlay, Payload, Pool, Ref, RefError, STEPS, Shortage,
    WhenShort,
};
use tollfree_testkit::{Census, TimeLimit, alone, stop_child};

use crate::place::{BATCH, Place, capacity, config, until, until_all_is_free};

/// How long an impatient reader gives an owner to answer.
const IMPATIENCE: Duration = Duration::from_secs(2);
const ROLE: &str = "TOLLFREE_POOL_TEST_ROLE";
const ADDRESS: &str = "TOLLFREE_POOL_TEST_ADDRESS";
const DIE_AT: &str = "TOLLFREE_POOL_DIE_AT";

/// A process that plays a part and is told, line by line, what to do.
struct Actor {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Actor {
    fn start(place: &Place, role: &str, die_at: &str) -> Actor {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kills::plays_its_part", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(ADDRESS, place.address.to_string())
            .env(DIE_AT, die_at)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Actor { child, input, output }
    }

    fn say(&mut self, line: &str) {
        // It may be dead by now, as it should.
        let _ = writeln!(self.input, "{line}");
    }

    /// The next answer; none once it is dead.
    fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            // The test harness says things of its own, on the same line too.
            if let Some((_, said)) = line.split_once("> ") {
                return Some(said.trim_end().to_owned());
            }
        }
    }

    /// What killed it.
    fn signal(mut self) -> Option<i32> {
        drop(self.input);
        self.child.wait().unwrap().signal()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).unwrap()).collect()
}

fn answer(text: &str) {
    println!("> {text}");
    std::io::stdout().flush().unwrap();
}

/// Not a test: what an [`Actor`] does. A real run finds no role and has nothing to do.
#[test]
fn plays_its_part() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let _limit = TimeLimit::seconds(300);
    let address = std::env::var(ADDRESS).unwrap().parse().unwrap();
    if role == "coordinator" {
        let _coordinator = Coordinator::start(&address, capacity()).unwrap();
        answer("up");
        std::io::stdin().lock().lines().for_each(drop);
        return;
    }
    let patience = if role == "impatient" { IMPATIENCE } else { config().patience };
    let pool = Pool::join(&address, Config { patience, ..config() }).unwrap();
    answer("joined");
    let mut kept = Vec::new();
    let mut overlays = Vec::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match verb {
            // Fills some memory and tells of it; the ref is kept.
            "share" => {
                let shared = pool.copy_from_slice(&[7; 10_000]).unwrap();
                answer(&to_hex(&shared.to_bytes().unwrap()));
                kept.push(shared);
            }
            "map" => match pool.map_ref(&from_hex(rest)) {
                Ok(seen) => {
                    assert!(seen.iter().all(|byte| *byte == 7));
                    answer("mapped");
                    kept.push(seen);
                }
                Err(error) => answer(&format!("{error:?}")),
            },
            "check" => answer(if kept.iter().all(|seen| seen.iter().all(|byte| *byte == 7)) {
                "same"
            } else {
                "changed"
            }),
            // Writes a page of what was kept last, in an overlay, and tells of the result, in two refs.
            "overlay" => {
                let mut overlay = Payload::from(kept[kept.len() - 1].clone()).overlay().unwrap();
                overlay[0] = 8;
                let written = overlay.share().unwrap();
                let refs = written.refs().iter().map(|bytes| to_hex(&bytes.to_bytes().unwrap()));
                answer(&refs.collect::<Vec<_>>().join(" "));
                overlays.push((overlay, written));
            }
            "overlaid" => {
                let is_so = |overlay: &Overlay| overlay[0] == 8 && overlay[1..].iter().all(|byte| *byte == 7);
                answer(if overlays.iter().all(|(overlay, _)| is_so(overlay)) { "same" } else { "changed" });
            }
            "drop" => {
                overlays.clear();
                kept.clear();
                answer("dropped");
            }
            // A child that has all descriptors of this process, and ends when the test does.
            "fork" => {
                // SAFETY: the child only reads, and ends at once; it takes no lock.
                if unsafe { libc::fork() } == 0 {
                    let mut byte = [0_u8; 1];
                    // SAFETY: `byte` has room for one.
                    while unsafe { libc::read(0, byte.as_mut_ptr().cast(), 1) } > 0 {}
                    // SAFETY: ends the process at once.
                    unsafe { libc::_exit(0) };
                }
                answer("forked");
            }
            "attached" => {
                until("a coordinator is there", || pool.is_attached());
                answer("attached");
            }
            _ => panic!("no such verb: {line}"),
        }
    }
}

/// A writer dies at every step that it comes to: its readers keep what they have, its capacity comes back.
#[test]
fn an_owner_killed_at_any_step_leaves_nothing_behind() {
    alone!();
    let _limit = TimeLimit::seconds(60);
    for step in ["joined", "granted", "extent-made", "extent-known", "allocated", "exported"] {
        assert!(STEPS.contains(&step));
        let place = Place::new();
        let before = Census::take();
        let reader = place.create();
        let mut owner = Actor::start(&place, "member", step);
        owner.hear();
        owner.say("share");
        assert_eq!(owner.hear(), None, "{step}: nothing was told");
        assert_eq!(owner.signal(), Some(9), "{step}: it was reached");
        // All of the pool can be had, four batches by each of four members.
        let members: Vec<_> = (0..3).map(|_| place.join()).chain([reader]).collect();
        let all: Vec<_> = members
            .iter()
            .flat_map(|member| (0..4).map(|_| member.buffer(BATCH as usize).unwrap()))
            .collect();
        drop((all, members));
        before.assert_back();
    }
}

/// A reader dies at every step that it comes to: what it held, or was about to, is its owner's again.
#[test]
fn a_reader_killed_at_any_step_holds_nothing() {
    alone!();
    let _limit = TimeLimit::seconds(120);
    let place = Place::new();
    let owner = place.create();
    drop(owner.buffer(1).unwrap());
    let before = Census::take();
    for step in ["joined", "map-asked", "mapped", "row-made", "watched", "counted-in", "held", "released"] {
        assert!(STEPS.contains(&step));
        let shared = owner.copy_from_slice(&[7; 10_000]).unwrap();
        let wire = shared.to_bytes().unwrap();
        let mut reader = Actor::start(&place, "member", step);
        reader.hear();
        reader.say(&format!("map {}", to_hex(&wire)));
        reader.say("drop");
        while reader.hear().is_some() {}
        assert_eq!(reader.signal(), Some(9), "{step}: it was reached");
        drop(shared);
        until_all_is_free(&owner);
        until("its row is gone", || owner.usage().row_count == 0);
    }
    before.assert_back();
}

/// A reader dies while it has an overlay: what it stored goes with it, and what it held is its owner's again.
#[test]
fn a_process_killed_with_an_overlay_leaves_nothing_behind() {
    alone!();
    let _limit = TimeLimit::seconds(60);
    let place = Place::new();
    let owner = place.create();
    drop(owner.buffer(1).unwrap());
    let before = Census::take();
    for step in ["overlaid", "overlay-copied"] {
        assert!(STEPS.contains(&step));
        let shared = owner.copy_from_slice(&[7; 10_000]).unwrap();
        let mut reader = Actor::start(&place, "member", step);
        reader.hear();
        reader.say(&format!("map {}", to_hex(&shared.to_bytes().unwrap())));
        assert_eq!(reader.hear().as_deref(), Some("mapped"));
        reader.say("overlay");
        assert_eq!(reader.hear(), None, "{step}: nothing was told");
        assert_eq!(reader.signal(), Some(9), "{step}: it was reached");
        assert_eq!(&shared[..], &[7; 10_000], "nobody else sees what it stored");
        drop(shared);
        until_all_is_free(&owner);
    }
    before.assert_back();
}

/// Faults 4 and 20: an overlay outlives the owner of what it shows, and what was shared out of it the member that wrote it.
#[test]
fn an_overlay_stays_when_the_owner_of_what_it_shows_dies() {
    alone!();
    let _limit = TimeLimit::seconds(60);
    let place = Place::new();
    let reader = place.create();
    let mut owner = Actor::start(&place, "member", "");
    owner.hear();
    owner.say("share");
    let wire = from_hex(&owner.hear().unwrap());
    let mut writer = Actor::start(&place, "member", "");
    writer.hear();
    writer.say(&format!("map {}", to_hex(&wire)));
    writer.hear();
    writer.say("overlay");
    let refs: Vec<_> = writer.hear().unwrap().split(' ').map(from_hex).collect();
    let seen: Vec<_> = refs.iter().map(|wire| reader.map_ref(wire).unwrap()).collect();
    assert_eq!(seen.iter().map(|bytes| bytes.len()).collect::<Vec<_>>(), [4_096, 5_904]);
    owner.child.kill().unwrap();
    assert_eq!(owner.signal(), Some(9));
    until("its death is known", || reader.usage().import_count == 1);
    writer.say("overlaid");
    assert_eq!(writer.hear().as_deref(), Some("same"));
    writer.child.kill().unwrap();
    assert_eq!(writer.signal(), Some(9));
    until("its death is known too", || reader.usage().import_count == 0);
    assert_eq!((seen[0][0], &seen[0][1..], &seen[1][..]), (8, &[7; 4_095][..], &[7; 5_904][..]));
}

#[test]
fn a_block_given_up_by_a_process_that_dies_then_is_nobodys() {
    alone!();
    let _limit = TimeLimit::seconds(60);
    let place = Place::new();
    let survivor = place.create();
    let mut owner = Actor::start(&place, "member", "given-up");
    assert_eq!(owner.hear().as_deref(), Some("joined"));
    owner.say("share");
    let wire = from_hex(&owner.hear().unwrap());
    let seen = survivor.map_ref(&wire).unwrap();
    owner.say("drop");
    assert_eq!(owner.hear().as_deref(), Some("dropped"), "it is held here, so that it waits");
    drop(seen);
    owner.say("share");
    owner.say("drop");
    while owner.hear().is_some() {}
    assert_eq!(owner.signal(), Some(9), "it was reached");
    until("its extents are gone", || survivor.usage().import_count == 0);
    assert!(matches!(survivor.map_ref(&wire), Err(RefError::Gone)), "a ref of a dead member");
}

/// Fault 4: bytes outlive their owner for as long as they are read, and count for as long.
#[test]
fn what_is_read_stays_when_its_owner_dies() {
    alone!();
    let _limit = TimeLimit::seconds(60);
    let place = Place::new();
    let reader = place.create();
    let mut owner = Actor::start(&place, "member", "");
    owner.hear();
    owner.say("share");
    let wire = from_hex(&owner.hear().unwrap());
    let seen = reader.map_ref(&wire).unwrap();
    owner.child.kill().unwrap();
    assert_eq!(owner.signal(), Some(9));
    until("its death is known", || reader.usage().import_count == 0);
    assert_eq!(&seen[..], &[7; 10_000]);
    assert!(matches!(reader.map_ref(&wire), Err(RefError::Gone)));
    // Fifteen batches are left, while one lingers.
    let impatient = Config { when_short: WhenShort::Wait(Duration::from_millis(20)), ..config() };
    let members: Vec<_> = (0..4).map(|_| Pool::join(&place.address, impatient).unwrap()).collect();
    let take_all = || {
        let tries = members.iter().flat_map(|member| (0..4).map(|_| member.buffer(BATCH as usize)));
        tries.collect::<Vec<_>>()
    };
    assert_eq!(take_all().iter().filter(|taken| taken.is_ok()).count(), 15);
    drop(seen);
    until("the sixteenth is free", || take_all().iter().all(Result::is_ok));
}

/// A member that holds this.
fn reader_of(place: &Place, shared: &Ref) -> Actor {
    let mut reader = Actor::start(place, "member", "");
    reader.hear();
    reader.say(&format!("map {}", to_hex(&shared.to_bytes().unwrap())));
    assert_eq!(reader.hear().as_deref(), Some("mapped"));
    reader
}

/// Fault 42: a child that a member forked has its descriptors, and keeps nothing of it when it is dead.
#[test]
fn a_forked_child_keeps_nothing_of_a_dead_member() {
    alone!();
    let _limit = TimeLimit::seconds(120);
    let place = Place::new();
    let owner = place.create();
    let shared = owner.copy_from_slice(&[7; 10_000]).unwrap();
    let mut reader = reader_of(&place, &shared);
    reader.say("share");
    let wire = from_hex(&reader.hear().unwrap());
    let seen = owner.map_ref(&wire).unwrap();
    reader.say("fork");
    assert_eq!(reader.hear().as_deref(), Some("forked"));
    reader.child.kill().unwrap();
    reader.child.wait().unwrap();
    drop(shared);
    until_all_is_free(&owner);
    until("its extents are gone", || owner.usage().import_count == 0 && owner.usage().row_count == 0);
    assert_eq!(&seen[..], &[7; 10_000]);
    drop(reader.input);
}

/// Fault 2: a reader that is stopped keeps what it holds, for as long as it is stopped.
#[test]
fn nothing_of_a_stopped_reader_is_taken() {
    alone!();
    let _limit = TimeLimit::seconds(60);
    let place = Place::new();
    let owner = place.create();
    let shared = owner.copy_from_slice(&[7; 10_000]).unwrap();
    let mut reader = reader_of(&place, &shared);
    stop_child(reader.pid());
    drop(shared);
    let others: Vec<_> = std::iter::from_fn(|| owner.try_buffer(4096).ok()).collect();
    for mut buffer in others {
        buffer.resize(4096);
        buffer.fill(9);
    }
    owner.sweep();
    assert_eq!(owner.usage().limbo_count, 1);
    kill_process(reader.pid(), Signal::CONT).unwrap();
    reader.say("check");
    assert_eq!(reader.hear().as_deref(), Some("same"));
    reader.say("drop");
    reader.hear();
    until_all_is_free(&owner);
}

/// Fault 36: while a reader is stopped, the time that it gives an owner to answer doesn't pass.
#[test]
fn a_reader_that_was_stopped_while_it_waited_goes_on_waiting() {
    alone!();
    let _limit = TimeLimit::seconds(300);
    let place = Place::new();
    let _pool = place.create();
    let mut owner = Actor::start(&place, "member", "");
    owner.hear();
    owner.say("share");
    let wire = owner.hear().unwrap();
    // A machine that is busy lets more time pass while the reader runs than it gives: then once more.
    let mut is_seen = false;
    for _ in 0..20 {
        let mut reader = Actor::start(&place, "impatient", "");
        reader.hear();
        stop_child(owner.pid());
        let began = Instant::now();
        reader.say(&format!("map {wire}"));
        std::thread::sleep(Duration::from_millis(100));
        stop_child(reader.pid());
        let ran_before = began.elapsed();
        std::thread::sleep(IMPATIENCE + Duration::from_secs(1));
        let went_on = Instant::now();
        kill_process(reader.pid(), Signal::CONT).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        kill_process(owner.pid(), Signal::CONT).unwrap();
        let said = reader.hear();
        is_seen = said.as_deref() == Some("mapped");
        let ran = ran_before + went_on.elapsed();
        assert!(is_seen || ran > IMPATIENCE / 2, "{said:?} after it ran for {ran:?}");
        if is_seen {
            break;
        }
    }
    assert!(is_seen, "the machine never let the reader be stopped in time");
    // An owner that is stopped while the reader runs is another matter.
    owner.say("share");
    let _ = owner.hear();
    let mut second = Actor::start(&place, "impatient", "");
    second.hear();
    stop_child(owner.pid());
    second.say(&format!("map {wire}"));
    assert_eq!(second.hear(), Some(format!("Timeout({IMPATIENCE:?})")));
    kill_process(owner.pid(), Signal::CONT).unwrap();
}

/// Fault 18: a reader that never lets go has its owner's quota, and only until it dies.
#[test]
fn a_reader_that_never_lets_go_costs_the_quota_until_it_dies() {
    alone!();
    let _limit = TimeLimit::seconds(60);
    let place = Place::new();
    let impatient = Config { when_short: WhenShort::Fail, ..config() };
    let owner = Pool::create(&place.address, capacity(), impatient).unwrap();
    let mut hoarder = Actor::start(&place, "member", "");
    hoarder.hear();
    let mut shared_count = 0;
    until("the quota is used up", || match owner.copy_from_slice(&[7; 16_384]) {
        Ok(shared) => {
            hoarder.say(&format!("map {}", to_hex(&shared.to_bytes().unwrap())));
            assert_eq!(hoarder.hear().as_deref(), Some("mapped"));
            shared_count += 1;
            false
        }
        Err(AllocError::Exhausted { by, .. }) => by == Shortage::Quota,
        Err(error) => panic!("{error}"),
    });
    assert_eq!(shared_count, 16, "four batches of four");
    hoarder.child.kill().unwrap();
    assert_eq!(hoarder.signal(), Some(9));
    until_all_is_free(&owner);
    assert!(owner.try_buffer(BATCH as usize).is_ok());
}

/// The coordinator dies and comes back: members keep what they have, new memory is refused or waited for, nothing is lost.
#[test]
fn a_coordinator_that_dies_and_comes_back_takes_nothing() {
    alone!();
    let _limit = TimeLimit::seconds(120);
    let place = Place::new();
    let mut coordinator = Actor::start(&place, "coordinator", "");
    assert_eq!(coordinator.hear().as_deref(), Some("up"));
    let strict = Config { when_short: WhenShort::Fail, ..config() };
    let owner = Pool::join(&place.address, strict).unwrap();
    until("the first batch", || owner.try_buffer(1).is_ok());
    let shared = owner.copy_from_slice(&[7; 10_000]).unwrap();
    let wire = shared.to_bytes().unwrap();
    let mut reader = Actor::start(&place, "member", "");
    reader.hear();
    reader.say(&format!("map {}", to_hex(&wire)));
    assert_eq!(reader.hear().as_deref(), Some("mapped"));
    let stranger = place.join();

    coordinator.child.kill().unwrap();
    assert_eq!(coordinator.signal(), Some(9));
    until("its death is known", || !owner.is_attached() && !stranger.is_attached());
    // What there is goes on: memory, refs, holds, and the death of a reader.
    let more = owner.copy_from_slice(&[7; 10_000]).unwrap();
    reader.say(&format!("map {}", to_hex(&more.to_bytes().unwrap())));
    assert_eq!(reader.hear().as_deref(), Some("mapped"));
    // What there isn't, isn't.
    let refused = owner.buffer(BATCH as usize).unwrap_err();
    assert!(matches!(refused, AllocError::Exhausted { by: Shortage::Coordinator, .. }), "{refused}");
    assert!(matches!(stranger.map_ref(&wire), Err(RefError::Coordinator)));
    let waiting = stranger.clone();
    let waiter = std::thread::spawn(move || waiting.buffer(BATCH as usize).map(|buffer| buffer.capacity()));

    let mut successor = Actor::start(&place, "coordinator", "");
    assert_eq!(successor.hear().as_deref(), Some("up"));
    assert_eq!(waiter.join().unwrap().unwrap(), BATCH as usize, "by policy, it waited");
    until("all are back", || owner.is_attached());
    reader.say("attached");
    assert_eq!(reader.hear().as_deref(), Some("attached"));
    assert_eq!(&stranger.map_ref(&wire).unwrap()[..], &[7; 10_000]);
    until("there is more again", || owner.try_buffer(BATCH as usize).is_ok());
    let newcomer = place.join();
    assert_eq!(newcomer.id(), owner.id(), "the same pool");
    drop((shared, more));
    owner.sweep();
    assert_eq!(owner.usage().limbo_count, 2, "what is held is known to be held");
    reader.child.kill().unwrap();
    assert_eq!(reader.signal(), Some(9));
    until_all_is_free(&owner);
}

/// Tries until it is done; it may fail for want of a coordinator, and in no other way.
fn in_the_end<T, E: std::fmt::Debug>(
    mut attempt: impl FnMut() -> Result<T, E>,
    may_fail: fn(&E) -> bool,
) -> T {
    let mut done = None;
    until("it is done", || match attempt() {
        Ok(value) => {
            done = Some(value);
            true
        }
        Err(error) => {
            assert!(may_fail(&error), "{error:?}");
            false
        }
    });
    done.unwrap()
}

/// Fault 1, for the coordinator: whatever it has just been told, its members get what they wanted from its successor.
#[test]
fn a_coordinator_killed_at_any_step_takes_nothing() {
    alone!();
    let _limit = TimeLimit::seconds(240);
    let may_join_fail = |error: &JoinError| {
        matches!(error, JoinError::Connect { .. } | JoinError::NotACoordinator(_) | JoinError::Timeout { .. })
    };
    let may_alloc_fail = |error: &AllocError| matches!(error, AllocError::Exhausted { .. });
    let may_map_fail = |error: &RefError| matches!(error, RefError::Coordinator);
    let before = Census::take();
    for step in [
        "told-join",
        "told-need",
        "told-extent",
        "told-map",
        "told-give",
        "told-row",
        "told-row-ok",
        "told-returned",
    ] {
        assert!(STEPS.contains(&step));
        let place = Place::new();
        let mut coordinator = Actor::start(&place, "coordinator", step);
        assert_eq!(coordinator.hear().as_deref(), Some("up"));
        let successor = std::thread::scope(|scope| {
            let successor = scope.spawn(|| {
                let Actor { mut child, input: _input, .. } = coordinator;
                assert_eq!(child.wait().unwrap().signal(), Some(9), "{step}: it was reached");
                let mut successor = Actor::start(&place, "coordinator", "");
                assert_eq!(successor.hear().as_deref(), Some("up"));
                successor
            });
            let join = || Pool::join(&place.address, Config { high_watermark: 0, ..config() });
            let owner = in_the_end(join, may_join_fail);
            let shared = in_the_end(|| owner.copy_from_slice(&[7; 10_000]), may_alloc_fail);
            let wire = shared.to_bytes().unwrap();
            let reader = in_the_end(join, may_join_fail);
            let seen = in_the_end(|| reader.map_ref(&wire), may_map_fail);
            assert_eq!((&seen[..], reader.counts().stale_refs), (&[7; 10_000][..], 0), "{step}");
            // Another batch, which is given back as soon as it is free.
            drop(in_the_end(|| owner.copy_from_slice(&[8; BATCH as usize]), may_alloc_fail));
            let successor = successor.join().unwrap();
            assert_eq!(&seen[..], &[7; 10_000], "{step}");
            until("both are back", || owner.is_attached() && reader.is_attached());
            drop((seen, shared));
            // Nothing is held for nobody: all of the pool can be had.
            let members: Vec<_> = (0..4).map(|_| in_the_end(join, may_join_fail)).collect();
            drop((owner, reader));
            let all: Vec<_> = members
                .iter()
                .flat_map(|member| (0..4).map(|_| member.buffer(BATCH as usize).unwrap()))
                .collect();
            drop((all, members));
            successor
        });
        drop(successor.input);
        let mut child = successor.child;
        child.wait().unwrap();
    }
    before.assert_back();
}

/// A member whose coordinator died while another owner did: both are noticed.
#[test]
fn an_owner_that_dies_while_nobody_coordinates_is_noticed() {
    alone!();
    let _limit = TimeLimit::seconds(60);
    let place = Place::new();
    let mut coordinator = Actor::start(&place, "coordinator", "");
    coordinator.hear();
    let reader = place.join();
    let mut owner = Actor::start(&place, "member", "");
    owner.hear();
    owner.say("share");
    let wire = from_hex(&owner.hear().unwrap());
    let seen = reader.map_ref(&wire).unwrap();
    coordinator.child.kill().unwrap();
    assert_eq!(coordinator.signal(), Some(9));
    owner.child.kill().unwrap();
    assert_eq!(owner.signal(), Some(9));
    until("the owner's death is known", || reader.usage().import_count == 0);
    assert!(reader.map_ref(&wire).is_err());
    assert_eq!(&seen[..], &[7; 10_000]);
}
