//! A gateway to which processes are attached that nobody calls: what it takes of processor and memory.

use std::fs;
use std::time::{Duration, Instant};

use tollfree_control::State;

use super::places::{PATIENCE, Place};

/// Processes that are attached; `make nightly` has a hundred.
const COUNT: usize = 8;
/// What one may take of the gateway's memory, in KiB.
const EACH_KIB_MAX: u64 = 200;
/// How long the gateway is looked at, and the share of a core that it may take meanwhile.
const WINDOW: Duration = Duration::from_secs(1);
const SHARE_MAX: f64 = 0.005;

/// Processor time of all threads of a process.
fn taken(pid: i32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let times = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    Duration::from_nanos(times.filter_map(|line| line.split(' ').next()?.parse::<u64>().ok()).sum())
}

/// Memory that a process has of its own, and what it shares through files without a name, in KiB.
fn memory_kib(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let of = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    of("RssAnon:") + of("RssShmem:")
}

pub(crate) async fn attached(place: &Place, count: usize) {
    let begun = Instant::now();
    loop {
        let state = State::read(&format!("shm://{}", place.backends().display())).await;
        let found = state.map_or(0, |state| state.groups.values().map(Vec::len).sum());
        if found == count {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{found} of {count} processes have attached");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn attached_processes_that_nobody_calls_cost_little() {
    let count = std::env::var("IDLE_COUNT").map_or(COUNT, |count| count.parse().unwrap());
    let place = Place::new("");
    let gateway = place.start_gateway();
    let pid = gateway.pid().as_raw_nonzero().get();
    let _first = place.start_backend("default");
    attached(&place, 1).await;
    let before_kib = memory_kib(pid);
    let _others: Vec<_> = (0..count).map(|_| place.start_backend("default")).collect();
    attached(&place, count + 1).await;
    let each_kib = memory_kib(pid).saturating_sub(before_kib) / count as u64;
    // What they have just done is not idle yet: a window follows another until there is a calm one.
    let begun = Instant::now();
    let share = loop {
        let (before, window) = (taken(pid), Instant::now());
        tokio::time::sleep(WINDOW).await;
        let share = (taken(pid) - before).as_secs_f64() / window.elapsed().as_secs_f64();
        if share < SHARE_MAX {
            break share;
        }
        assert!(begun.elapsed() < PATIENCE, "it takes {:.2} % of a core with nothing to do", 100.0 * share);
    };
    assert!(taken(pid) > Duration::ZERO, "the system doesn't say what a process takes");
    println!("{count} idle processes: {:.3} % of a core, {each_kib} KiB each", 100.0 * share);
    assert!(each_kib <= EACH_KIB_MAX, "{each_kib} KiB for each of {count} processes");
}
