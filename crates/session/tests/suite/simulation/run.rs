//! The scheduler: what happens next, until nothing is left to do.

use std::collections::BTreeSet;

use tollfree_layout::StreamId;
use tollfree_session::{Closed, Outgoing, Role};

use super::world::{Step, World};

const ROLES: [Role; 2] = [Role::Client, Role::Server];

/// Runs one seed to its end. `Err` says what was wrong; the trace is there if asked for.
pub(crate) fn run(seed: u64, traced: bool) -> (Step, World) {
    let mut world = World::new(seed, traced);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| story(&mut world)));
    let result = result.unwrap_or_else(|_| Err("panicked".to_owned()));
    (result, world)
}

fn story(world: &mut World) -> Step {
    let step_count = 100 + world.rng.below(1500);
    for step in 0..step_count {
        one(world)?;
        if step % 16 == 0 {
            world.audit()?;
        }
    }
    world.still = None;
    world.say(|| "no more calls".to_owned());
    world.to_open = 0;
    settle(world, false)?;
    check_done(world, false)?;
    world.say(|| "readers that stood still are let go".to_owned());
    for idx in 0..world.calls.len() {
        for role in ROLES {
            let call = &world.calls[idx];
            let (stopped, forgot) = match role {
                Role::Client => (call.client_hears.stopped, call.client_forgot),
                Role::Server => (call.server_hears.stopped, call.server_forgot),
            };
            if stopped && !forgot {
                world.forget(role, idx);
            }
        }
    }
    settle(world, true)?;
    check_done(world, true)?;
    for idx in 0..world.calls.len() {
        world.forget(Role::Client, idx);
        world.forget(Role::Server, idx);
    }
    settle(world, true)?;
    for call in &mut world.calls {
        call.client.outgoing = Outgoing::default();
        call.server.outgoing = Outgoing::default();
    }
    check_senders(world)?;
    check_empty(world)
}

fn one(world: &mut World) -> Step {
    let mut role = if world.rng.one_in(2) { Role::Client } else { Role::Server };
    let some = world.rng.below(world.calls.len());
    let any = !world.calls.is_empty();
    if let Some((still, left)) = &mut world.still {
        let still = *still;
        *left -= 1;
        if *left == 0 {
            world.still = None;
            world.say(|| format!("{still:?} goes on"));
        }
        role = still.peer();
        if any && world.rng.one_in(12) {
            world.forget(role, some);
        }
    }
    let is_still = |role| world.still.is_some_and(|(still, _)| still == role);
    let (client_goes, server_goes) = (!is_still(Role::Client), !is_still(Role::Server));
    match world.rng.below(400) {
        0..=39 if world.to_open > 0 && client_goes => world.open()?,
        40..=129 if any => world.send(role, some)?,
        130..=219 if any => {
            let call = &world.calls[some];
            let stopped = match role {
                Role::Client => call.client_hears.stopped,
                Role::Server => call.server_hears.stopped,
            };
            let count = 1 + world.rng.below(6);
            if !stopped {
                world.read(role, some, count)?;
            }
        }
        220..=299 => {
            for _ in 0..1 + world.rng.below(8) {
                if !world.deliver(role)? {
                    break;
                }
            }
        }
        300..=329 => world.wake(role),
        330..=349 => world.stage_pending(role),
        350..=373 if server_goes => world.accept()?,
        374..=389 => world.offer_or_drop_area(role),
        390..=393 if any => world.cancel(role, some),
        394..=396 if any => world.forget(role, some),
        397 if server_goes && world.rng.one_in(3) => {
            world.server.session.drain();
            world.say(|| "drain".to_owned());
        }
        398 if world.rng.one_in(4) => world.end(role),
        399 if world.still.is_none() && world.rng.one_in(2) => {
            let count = 20 + world.rng.below(300);
            world.still = Some((role, count));
            world.say(|| format!("{role:?} stands still for {count} steps"));
        }
        _ => {}
    }
    Ok(())
}

/// Everything that can go on does, until nothing moves.
fn settle(world: &mut World, all: bool) -> Step {
    for round in 0.. {
        if round > 200_000 {
            return Err("does not come to rest".to_owned());
        }
        let before = (world.moves, world.client.out.staged_count, world.server.out.staged_count);
        for role in ROLES {
            while world.side(role).take_one() {
                world.moves += 1;
            }
            world.stage_pending(role);
            while world.deliver(role)? {}
            world.wake(role);
        }
        for _ in 0..world.limits.1.stream_count {
            world.accept()?;
        }
        for idx in 0..world.calls.len() {
            for role in ROLES {
                let call = &world.calls[idx];
                let stopped = match role {
                    Role::Client => call.client_hears.stopped,
                    Role::Server => call.server_hears.stopped,
                };
                if all || !stopped {
                    world.read(role, idx, 64)?;
                }
                world.send(role, idx)?;
            }
        }
        let after = (world.moves, world.client.out.staged_count, world.server.out.staged_count);
        if before == after && !(world.hung_up && hang_up(world)) {
            break;
        }
        if round % 16 == 0 {
            world.audit()?;
        }
    }
    world.audit()?;
    world.check_events_agree()
}

/// What was on its way has arrived: the end that doesn't know yet learns from its socket.
fn hang_up(world: &mut World) -> bool {
    let mut news = false;
    for role in ROLES {
        let session = &mut world.side(role).session;
        news |= session.closed().is_none();
        session.end_session(Closed::HungUp);
    }
    news
}

fn check_done(world: &World, all: bool) -> Step {
    for call in &world.calls {
        if !all && (call.client_hears.stopped || call.server_hears.stopped) {
            continue;
        }
        let client = call.client_forgot || call.client_hears.is_over();
        let server = !call.accepted
            || call.server_forgot
            || call.server.done
            || call.server_hears.is_over()
            || call.server.cut_off;
        if !client || !server {
            let said = (call.client.said_count, call.server.said_count);
            let waits = (call.client.wait, call.server.wait);
            return Err(format!(
                "call {} never ended: client over {client}, server over {server}, said {said:?}, {waits:?}, heard {:?}",
                call.id,
                (call.client_hears.heard_count, call.server_hears.heard_count),
            ));
        }
    }
    Ok(())
}

/// Everybody who sends has said everything, or has learnt that nobody listens any more.
fn check_senders(world: &World) -> Step {
    for call in &world.calls {
        for (role, talk) in [(Role::Client, &call.client), (Role::Server, &call.server)] {
            let has_begun = role == Role::Client || call.accepted;
            if has_begun && !talk.done && !talk.cut_off {
                return Err(format!("the sender of {} at the {role:?} never ends: {:?}", call.id, talk.wait));
            }
        }
    }
    Ok(())
}

fn check_empty(world: &mut World) -> Step {
    for (name, side) in [("client", &mut world.client), ("server", &mut world.server)] {
        drop(side.session.take_spent());
        let (readers, writers) = (&side.readers, &side.writers);
        if !readers.is_empty() || !writers.is_empty() {
            return Err(format!("{name} leaves readers of {readers:?} and writers of {writers:?} waiting"));
        }
        if side.session.next_ready().is_some() || side.session.next_abandoned().is_some() {
            return Err(format!("{name} has news for somebody"));
        }
        if side.session.has_accepted() || !side.untaken.is_empty() {
            return Err(format!(
                "{name} keeps calls that nobody accepts, or segmented messages that nobody takes"
            ));
        }
        let session = &side.session;
        let (in_flight, kept) = (session.segmented_messages_in_flight(), side.keeping.count());
        if in_flight != 0 || kept != 0 {
            return Err(format!("{name} keeps {kept} segmented messages, {in_flight} of them in flight"));
        }
        if session.stream_count() != 0 || session.live_count() != 0 || session.has_pending() {
            return Err(format!("{name} keeps {} streams", session.stream_count()));
        }
        let credit = session.credit(StreamId::SESSION).ok_or("the session has credit")?;
        if credit.recv + credit.owed != credit.window || credit.unread + credit.unsent != 0 {
            return Err(format!("{name} has lost credit: {credit:?}"));
        }
        if !world.hung_up && side.out.in_flight().next().is_some() {
            return Err(format!("{name} has records nobody reads"));
        }
        if !world.hung_up && side.out.placed_count() != 0 {
            return Err(format!("{name} has chunks in an area that no record points to"));
        }
    }
    Ok(())
}

/// Runs seeds; returns what they have seen, or how to see the first failure again.
pub(crate) fn run_all(seeds: impl Iterator<Item = u64>) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    for seed in seeds {
        let (result, world) = run(seed, false);
        seen.extend(world.seen);
        if let Err(wrong) = result {
            let (_, world) = run(seed, true);
            let trace = world.trace.unwrap_or_default();
            let last = trace.len().saturating_sub(120);
            panic!(
                "seed {seed}: {wrong}\n{:#?}\n{}\nreplay with TOLLFREE_SEED={seed}",
                world.limits,
                trace[last..].join("\n")
            );
        }
    }
    seen
}
