//! Two sessions, bounded wires, and a seeded scheduler: whatever the order, both applications get exactly what the
//! other said, and nothing is left over. `TOLLFREE_SEED=n` runs one seed alone, `TOLLFREE_SEED_COUNT=n` that many.

mod audit;
mod call;
mod replay;
pub(crate) mod rng;
mod run;
pub(crate) mod wire;
mod world;

const SEED_COUNT: u64 = 3000;

fn asked_for(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn every_order_of_events_keeps_the_promises() {
    if let Some(seed) = asked_for("TOLLFREE_SEED") {
        run::run_all(std::iter::once(seed));
        return;
    }
    let seen = run::run_all(0..asked_for("TOLLFREE_SEED_COUNT").unwrap_or(SEED_COUNT));
    let missing: Vec<String> = audit::must_see().into_iter().filter(|name| !seen.contains(name)).collect();
    assert!(missing.is_empty(), "no seed has reached {missing:?}; reached {seen:?}");
}

#[test]
fn a_seed_replays_to_the_same_trace() {
    for seed in [1, 7, 99] {
        let (first, again) = (run::run(seed, true).1.trace, run::run(seed, true).1.trace);
        assert!(first.as_ref().is_some_and(|trace| trace.len() > 50), "seed {seed} does something");
        assert_eq!(first, again, "seed {seed}");
        assert_ne!(first, run::run(seed + 1000, true).1.trace, "seeds differ");
    }
}
