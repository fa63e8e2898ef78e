//! Calls that begin when it is their time, whether earlier ones have been answered or not, as users' do.
//!
//! A latency is counted from the moment at which its call was due, so that a server that holds up the generator doesn't
//! hide it. Times between calls are exponential, and the same in every run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{JoinError, JoinSet};
use tollfree_bench::latency::Latencies;

use super::{Caller, Measured, Numbered};
use crate::dice::Dice;

/// Most calls outstanding; those that would be more are shed, and counted.
const OUTSTANDING_MAX: usize = 4096;

/// Makes `rate` calls a second for some time, and waits for the last answers.
pub(super) async fn run<C: Caller>(
    caller: &Arc<Numbered<C>>,
    rate: f64,
    time: Duration,
) -> Result<Measured, String> {
    let began = Instant::now();
    let mut due_calls = tell_when_due(began, rate, time)?;
    let (mut calls, mut all, mut shed) = (JoinSet::new(), Latencies::default(), 0);
    let mut count = |ended: Result<Result<Duration, String>, JoinError>| {
        all.record(ended.map_err(|error| format!("a calling task came to grief: {error}"))??);
        Ok::<(), String>(())
    };
    loop {
        tokio::select! {
            biased;
            due = due_calls.recv() => match due {
                Some(due) if calls.len() < OUTSTANDING_MAX => {
                    let caller = caller.clone();
                    calls.spawn(async move { caller.call().await.map(|()| due.elapsed()) });
                }
                Some(_) => shed += 1,
                None => break,
            },
            Some(ended) = calls.join_next() => count(ended)?,
        }
    }
    while let Some(ended) = calls.join_next().await {
        count(ended)?;
    }
    Ok(Measured { latencies: all, elapsed_ns: began.elapsed().as_nanos() as u64, shed })
}

/// A thread that tells of each call when it is due: the runtime's own clock goes by milliseconds.
fn tell_when_due(began: Instant, rate: f64, time: Duration) -> Result<UnboundedReceiver<Instant>, String> {
    let (sender, receiver) = unbounded_channel();
    let clock = move || {
        let mut dice = Dice::new(7);
        let mut due = began;
        loop {
            due += Duration::from_secs_f64(-(1.0 - dice.share()).ln() / rate);
            if due - began >= time {
                return;
            }
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if sender.send(due).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("clock".to_owned()).spawn(clock);
    thread.map(|_| receiver).map_err(|error| format!("there is no thread to be had for the clock: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct Slow(Duration);

    impl Caller for Slow {
        async fn call(&self, _nth: u64) -> Result<(), String> {
            tokio::time::sleep(self.0).await;
            Ok(())
        }
    }

    #[tokio::test]
    async fn slow_answers_do_not_hold_up_later_calls() {
        let caller = Arc::new(Numbered { caller: Slow(Duration::from_millis(200)), next: AtomicU64::new(0) });
        let measured = run(&caller, 500.0, Duration::from_millis(200)).await.unwrap();
        let made = caller.next.load(Ordering::Relaxed);
        // Some 100, whatever the machine does meanwhile: calls that are late are made nevertheless.
        assert!((60..=150).contains(&made), "{made}");
        assert_eq!((measured.latencies.count(), measured.shed), (made, 0));
        assert!(measured.latencies.quantile_ns(0.0) >= 199_000_000);
    }

    #[tokio::test]
    async fn more_than_may_be_outstanding_are_shed_and_counted() {
        let caller = Arc::new(Numbered { caller: Slow(Duration::from_millis(900)), next: AtomicU64::new(0) });
        let measured = run(&caller, 20_000.0, Duration::from_millis(400)).await.unwrap();
        assert!(
            measured.shed > 0 && measured.latencies.count() >= OUTSTANDING_MAX as u64,
            "{}",
            measured.shed
        );
    }
}
