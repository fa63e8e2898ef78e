//! A pool as a whole, with a seed: members, their agents and the coordinator decide as in production, and a simulated network
//! carries their messages, late, cut off, or over two connections of one member. Processes end, leave, and are cut off for good;
//! coordinators die and are followed by others. `TOLLFREE_SEED=n` runs one seed alone, `TOLLFREE_SEED_COUNT=n` that many.
//!
//! What is real: `Membership` and `CapacityShares`, `MemberProtocol`, `Heap`, rows, extents and refs, in memory that is shared as between
//! processes. What is not: sockets, threads, time, and what the kernel says about a process.
//!
//! What has to hold: no byte of a held block changes; nobody waits without end; the book is right; in the end all is free.

mod member;
mod rng;
mod run;
mod wire;
mod world;

use run::{Rule, Wrong, run};

const SEED_COUNT: u64 = 60;
/// Steps that a failed seed tells of: the last ones.
const TRACE_LEN_MAX: usize = 400;

fn asked_for(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

fn seeds() -> Vec<u64> {
    match asked_for("TOLLFREE_SEED") {
        Some(seed) => vec![seed],
        None => (0..asked_for("TOLLFREE_SEED_COUNT").unwrap_or(SEED_COUNT)).collect(),
    }
}

/// Runs all seeds, and says what they have come through.
fn all_is_well(rule: Rule) -> std::collections::BTreeSet<&'static str> {
    let mut seen = std::collections::BTreeSet::new();
    for seed in seeds() {
        let (result, world) = run(seed, rule);
        if let Err(wrong) = result {
            let from = world.trace.len().saturating_sub(TRACE_LEN_MAX);
            panic!(
                "seed {seed}: {wrong}\n{}\nreplay with TOLLFREE_SEED={seed}",
                world.trace[from..].join("\n")
            );
        }
        seen.extend(world.seen);
    }
    seen
}

#[test]
fn whatever_is_lost_nothing_that_is_held_changes_and_nobody_waits_without_end() {
    let seen = all_is_well(Rule::AsIs);
    let missing: Vec<_> = run::MUST_SEE.iter().filter(|what| !seen.contains(**what)).collect();
    assert!(asked_for("TOLLFREE_SEED").is_some() || missing.is_empty(), "no seed has seen {missing:?}");
}

/// P1, its second half: whatever a coordinator says of an owner, the rows that a reader holds something in stay.
#[test]
fn a_reader_that_is_told_that_a_live_owner_left_keeps_what_it_holds() {
    let seen = all_is_well(Rule::OwnersAreSaidToHaveLeft);
    assert!(asked_for("TOLLFREE_SEED").is_some() || seen.contains("a false farewell"), "{seen:?}");
}

/// P1, its first half: the model finds out where a lost connection is taken for a death.
#[test]
fn a_lost_connection_that_is_taken_for_a_death_is_found_out() {
    let is_found = |seed| matches!(run(seed, Rule::LossIsDeath).0, Err(Wrong::Changed(_)));
    assert!((0..SEED_COUNT).any(is_found), "no held block has changed in {SEED_COUNT} seeds");
}

#[test]
fn a_seed_replays_to_the_same_trace() {
    for seed in [1, 7, 99] {
        let (first, again) = (run(seed, Rule::AsIs).1.trace, run(seed, Rule::AsIs).1.trace);
        assert!(first.len() > 50, "seed {seed} does something");
        assert_eq!(first, again, "seed {seed}");
        assert_ne!(first, run(seed + 1000, Rule::AsIs).1.trace, "seeds differ");
    }
}
