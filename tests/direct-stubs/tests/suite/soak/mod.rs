//! Servers, clients and bare members of one pool, all processes of their own, while processes are killed, stopped, cut off
//! and started again by seed. Every payload is checked, again and again while it is held; every call comes back with the right
//! bytes, or with a status that something done to either end of it explains; at the end everything works again, all memory is
//! free, and the pool is empty.
//!
//! `SOAK_SEED` and `SOAK_SECONDS` choose another run; a run that fails prints its own, with its events. The same seed does the
//! same things in the same order; when exactly, the machine decides.

mod client;
mod content;
mod coordinator;
mod driver;
mod member;
mod server;
mod station;

use std::time::Duration;

use driver::{Reach, SERVER_COUNT, Soak};
use tollfree_testkit::{Role, TimeLimit, alone};

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, and not a number")))
}

fn soak(reach: Reach, short: u64) {
    let seconds = setting("SOAK_SECONDS").unwrap_or(short);
    let _limit = TimeLimit::seconds(seconds + 1200);
    let mut soak = Soak::start(setting("SOAK_SEED").unwrap_or(14), reach);
    if reach == Reach::Coordinator {
        let stops: &[u64] = if seconds > short { &[1, 5, 30] } else { &[1, 5] };
        stops.iter().for_each(|stop| soak.hold_up(Duration::from_secs(*stop)));
    }
    soak.disturb(Duration::from_secs(seconds));
    soak.settle();
}

#[test]
#[ignore = "not a test: what the processes do that the tests start"]
fn as_child() {
    let Some(role) = Role::of_this_process() else { return };
    match &*role.name {
        "coordinator" => coordinator::run(&role),
        "server" => server::run(&role),
        "client" => client::run(&role, SERVER_COUNT),
        _ => member::run(&role),
    }
}

#[test]
fn kills_stops_and_cut_connections_at_random_change_no_byte_and_hang_no_call() {
    alone!();
    soak(Reach::All, 15);
}

#[test]
#[ignore = "takes a quarter of a minute: `make nightly` runs it"]
fn a_coordinator_that_stands_still_comes_and_goes_fails_no_call() {
    alone!();
    soak(Reach::Coordinator, 4);
}

#[test]
fn processes_with_few_descriptors_change_no_byte_and_hang_no_call() {
    alone!();
    let _limit = TimeLimit::seconds(1800);
    let mut soak = Soak::start(setting("SOAK_SEED").unwrap_or(14), Reach::Descriptors);
    let limits: Vec<u64> =
        if setting("SOAK_SECONDS").is_some() { (16..=64).collect() } else { vec![16, 24, 33, 48] };
    limits.into_iter().for_each(|limit| soak.squeeze(limit));
    soak.settle();
}
