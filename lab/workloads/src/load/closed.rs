//! A number of calls in flight, each followed by the next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollfree_bench::latency::Latencies;

use super::{Caller, Measured, Numbered};

/// Makes calls for some time. All of them count: those that are outstanding at its end are waited for.
pub(super) async fn run<C: Caller>(
    caller: &Arc<Numbered<C>>,
    inflight: usize,
    time: Duration,
) -> Result<Measured, String> {
    let began = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..inflight {
        let caller = caller.clone();
        tasks.spawn(async move {
            let mut latencies = Latencies::default();
            let mut now = Instant::now();
            loop {
                caller.call().await?;
                let ended = Instant::now();
                latencies.record(ended - now);
                now = ended;
                if ended - began >= time {
                    return Ok::<_, String>(latencies);
                }
            }
        });
    }
    let mut all = Latencies::default();
    while let Some(ended) = tasks.join_next().await {
        all.merge(&ended.map_err(|error| format!("a calling task came to grief: {error}"))??);
    }
    Ok(Measured { latencies: all, elapsed_ns: began.elapsed().as_nanos() as u64, shed: 0 })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct Naps {
        made: AtomicU64,
        most: AtomicU64,
        now: AtomicU64,
        fails_at: u64,
    }

    impl Caller for Naps {
        async fn call(&self, nth: u64) -> Result<(), String> {
            if nth == self.fails_at {
                return Err("no more".to_owned());
            }
            self.most.fetch_max(self.now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(5)).await;
            self.now.fetch_sub(1, Ordering::Relaxed);
            self.made.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    fn naps(fails_at: u64) -> Arc<Numbered<Naps>> {
        let [made, most, now] = [0, 0, 0].map(AtomicU64::new);
        Arc::new(Numbered { caller: Naps { made, most, now, fails_at }, next: AtomicU64::new(0) })
    }

    #[tokio::test]
    async fn every_call_counts_and_no_more_than_asked_are_in_flight() {
        let caller = naps(u64::MAX);
        let measured = run(&caller, 3, Duration::from_millis(40)).await.unwrap();
        assert_eq!(measured.latencies.count(), caller.caller.made.load(Ordering::Relaxed));
        assert_eq!(caller.caller.most.load(Ordering::Relaxed), 3);
        assert!(measured.elapsed_ns >= 40_000_000);
        assert_eq!(caller.next.load(Ordering::Relaxed), measured.latencies.count());
    }

    #[tokio::test]
    async fn a_call_that_fails_ends_the_measurement() {
        let error = run(&naps(2), 2, Duration::from_secs(60)).await.unwrap_err();
        assert_eq!(error, "no more");
    }
}
