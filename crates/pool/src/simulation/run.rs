//! The scheduler: what happens next, and what has to be true in the end.

use std::time::Duration;

use super::member::{Life, Line, Member};
use super::world::World;

/// What the coordinator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// As in production.
    AsIs,
    /// It takes a lost connection for its member's death.
    LossIsDeath,
    /// It says of live owners that they have left.
    OwnersAreSaidToHaveLeft,
}

/// What must not be.
#[derive(Debug, thiserror::Error)]
pub(super) enum Wrong {
    #[error("a byte of a held block has changed: {0}")]
    Changed(String),
    #[error("a good ref is called forged: {0}")]
    Refused(String),
    #[error("somebody waits without end: {0}")]
    Waits(String),
    #[error("the book is wrong: {0}")]
    Book(String),
    #[error("not all is free: {0}")]
    Leak(String),
    #[error("it panicked; the message is above")]
    Panicked,
}

pub(super) type Step = Result<(), Wrong>;

/// What the seeds have to come through.
pub(super) const MUST_SEE: [&str; 15] = [
    "a coordinator's end",
    "a cut-off member",
    "a death",
    "a farewell",
    "a fetch failed",
    "a greeting given up",
    "a ref come home",
    "a ref taken",
    "an orderly leave",
    "come back",
    "lost",
    "more than the total",
    "no descriptors left",
    "somebody stays away",
    "two connections of one member",
];

/// A ref that couldn't be had so often, long after the last trouble, is given up.
const FAILED_COUNT_MAX: u32 = 40;

/// Runs one seed to its end.
pub(super) fn run(seed: u64, rule: Rule) -> (Step, World) {
    let mut world = World::new(seed, rule);
    let story = std::panic::AssertUnwindSafe(|| story(&mut world, rule));
    let result = std::panic::catch_unwind(story).unwrap_or(Err(Wrong::Panicked));
    (result, world)
}

fn story(world: &mut World, rule: Rule) -> Step {
    for _ in 0..3 {
        world.join();
    }
    // Some seeds have quiet networks, so that much is held when something happens.
    let trouble = 1 + world.rng.below(6);
    world.is_short = world.rng.one_in(2);
    for _ in 0..400 + world.rng.below(2000) {
        one(world, rule, trouble)?;
        if rule != Rule::LossIsDeath {
            audit(world)?;
        }
    }
    if rule == Rule::LossIsDeath {
        return Ok(());
    }
    world.is_short = false;
    one_is_cut_off(world);
    settle(world)?;
    check_nobody_waits(world)?;
    for member in &mut world.members {
        member.held.clear();
    }
    world.letters.clear();
    settle(world)?;
    check_all_is_free(world)?;
    for idx in 0..world.members.len() {
        if world.rng.one_in(2) {
            world.leave(idx);
        } else {
            world.kill(idx);
        }
    }
    settle(world)?;
    // Who said that it leaves while nobody heard it is gone when its process is.
    for idx in 0..world.members.len() {
        world.kill(idx);
    }
    settle(world)?;
    check_book_is_empty(world)
}

fn one(world: &mut World, rule: Rule, trouble: usize) -> Step {
    let idx = world.rng.below(world.members.len());
    if rule == Rule::OwnersAreSaidToHaveLeft && world.rng.one_in(60) {
        world.tell_a_lie(idx);
    }
    let count = if world.rng.one_in(2) { 1 } else { 64 };
    match world.rng.below(1000) {
        0..=149 => {
            let page_count = if world.rng.one_in(12) { 20 } else { 1 + world.rng.below(6) };
            world.produce(idx, page_count)?;
        }
        150..=269 => {
            let to = world.rng.below(world.members.len());
            world.share(idx, to);
        }
        270..=399 if !world.letters.is_empty() => {
            let at = world.rng.below(world.letters.len());
            let gives_up = world.rng.one_in(3);
            if !world.take(at)? && gives_up {
                world.letters.swap_remove(at);
            }
        }
        400..=489 => world.drop_one(idx),
        490..=699 => world.agent(idx, count),
        700..=889 => {
            let desks = world.desks();
            if !desks.is_empty() {
                let desk = desks[world.rng.below(desks.len())];
                world.serve(desk, count);
            }
        }
        890..=919 => world.greet(idx),
        920..=939 => world.notice(Some(idx)),
        940..=949 => world.notice(None),
        950..=956 => world.pass(Duration::from_millis(600)),
        957..=966 => world.start_coordinator(),
        967..=976 => world.join(),
        977 => world.tire(idx),
        980..=999 if world.rng.below(6) < trouble => trouble_of_some_kind(world, idx),
        _ => {}
    }
    Ok(())
}

fn trouble_of_some_kind(world: &mut World, idx: usize) {
    match world.rng.below(20) {
        0..=10 => {
            let desks = world.desks();
            if !desks.is_empty() {
                let desk = desks[world.rng.below(desks.len())];
                world.cut(desk);
            }
        }
        11..=13 => world.end_coordinator(),
        14 => world.leave(idx),
        15..=16 => world.kill(idx),
        _ => world.tire(idx),
    }
}

/// One member, at times, connects no more, and goes on with what it has.
fn one_is_cut_off(world: &mut World) {
    let idx = world.rng.below(world.members.len());
    if world.rng.one_in(2) && world.members[idx].life == Life::Here {
        world.say(format!("{idx} is cut off"));
        world.lose(idx);
        world.members[idx].life = Life::CutOff;
        world.see("a cut-off member");
    }
}

/// All that can go on does, until nothing moves. Nothing more goes wrong.
fn settle(world: &mut World) -> Step {
    world.start_coordinator();
    let mut quiet_count = 0;
    for _ in 0..2000 {
        let before = world.moves;
        for idx in 0..world.members.len() {
            world.greet(idx);
            world.agent(idx, 64);
            world.notice(Some(idx));
            world.give_up_fetches(idx);
        }
        world.notice(None);
        for desk in world.desks() {
            world.serve(desk, 64);
        }
        for at in (0..world.letters.len()).rev() {
            if !world.take(at)? && world.letters[at].failed_count > FAILED_COUNT_MAX {
                give_up(world, at)?;
            }
        }
        quiet_count = if world.moves == before { quiet_count + 1 } else { 0 };
        if quiet_count > 8 {
            return audit(world);
        }
        world.pass(Duration::from_millis(200));
    }
    Err(Wrong::Waits("it does not come to rest".to_owned()))
}

/// A ref that is refused again and again is one that nobody can have.
fn give_up(world: &mut World, at: usize) -> Step {
    let letter = world.letters.swap_remove(at);
    let has_owner = |member: &&Member| member.number() == letter.owner() && member.life == Life::Here;
    match world.members.iter().find(has_owner) {
        Some(_) if world.members[letter.to].life == Life::Here => {
            Err(Wrong::Waits(format!("{} can't have what {} has", letter.to, letter.owner().0)))
        }
        _ => Ok(()),
    }
}

/// What the book says is right at any time.
fn audit(world: &mut World) -> Step {
    let Some(membership) = &world.coordinator else { return Ok(()) };
    let (used, total) = membership.capacity_shares().audit().map_err(Wrong::Book)?;
    if used > total {
        if !world.was_followed {
            return Err(Wrong::Book(format!("{used} bytes of {total} are used")));
        }
        world.see("more than the total");
    }
    Ok(())
}

fn check_nobody_waits(world: &World) -> Step {
    for (idx, member) in world.members.iter().enumerate().filter(|(_, member)| member.life == Life::Here) {
        if !matches!(member.line, Line::Up(_)) {
            return Err(Wrong::Waits(format!("{idx} has not come back: {:?}", member.line)));
        }
        let inner = member.inner();
        if inner.heap.lock().asking.need.is_some() {
            return Err(Wrong::Waits(format!("{idx} waits for an extent")));
        }
    }
    match world.letters.first() {
        Some(letter) => Err(Wrong::Waits(format!("{} waits for {}", letter.to, letter.owner().0))),
        None => Ok(()),
    }
}

fn check_all_is_free(world: &World) -> Step {
    for (idx, member) in world.members.iter().enumerate().filter(|(_, member)| member.is_in()) {
        let inner = member.inner();
        let mut heap = inner.heap.lock();
        let count = heap.limbo_count();
        heap.sweep(count);
        let (free, total, limbo) = (heap.free_bytes(), heap.total_bytes(), heap.limbo_count());
        if free != total || limbo > 0 {
            return Err(Wrong::Leak(format!(
                "{idx}: {free} of {total} bytes are free, {limbo} blocks in limbo"
            )));
        }
        let Some(membership) = world.coordinator.as_ref().filter(|_| member.life == Life::Here) else {
            continue;
        };
        let granted = membership.capacity_shares().standings().find(|standing| standing.0 == member.number());
        let granted = granted.map_or(0, |standing| standing.1);
        if granted != total {
            return Err(Wrong::Book(format!("{idx} has {total} bytes, and the book says {granted}")));
        }
    }
    Ok(())
}

fn check_book_is_empty(world: &World) -> Step {
    let membership = world.coordinator.as_ref().expect("it was started");
    let (used, _) = membership.capacity_shares().audit().map_err(Wrong::Book)?;
    if used > 0 || membership.capacity_shares().standings().next().is_some() {
        return Err(Wrong::Leak(format!(
            "{used} bytes are used by nobody: {:?}",
            membership.capacity_shares()
        )));
    }
    Ok(())
}
