//! What the two clients do: one calls at a rate whatever comes of it, the other asks for one thing after the other.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, MissedTickBehavior};
use tonic::Code;

use super::super::client::{Caller, check, failed, used};
use super::super::{Calls, Split, SplitMessage};
use super::{Asking, Flooded, Question, Told, other_message};
use crate::latency::Latencies;

/// Calls under way at once, at most: further ones that are due are left out. An open loop beyond the knee would have more
/// and more of them.
const UNDER_WAY_MAX: usize = 1024;
/// From one question to the next.
const PAUSE: Duration = Duration::from_millis(1);
/// A health service's answer: SERVING.
const SERVING: &[u8] = &[8, 1];

/// Calls at a rate. `begun` is called when what comes is measured.
pub(in super::super) async fn flood(
    message: SplitMessage,
    bytes: Vec<u8>,
    calls: &Calls,
    rate: f64,
    begun: impl FnOnce(),
) -> Result<Flooded, String> {
    let mut caller = Caller::connect(&calls.address, message, bytes.into()).await?;
    let reply = caller.first().await?;
    check(message, caller.message(), &reply)?;
    let (counts, under_way) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let common = Arc::new(Mutex::new(Ok(Latencies::default())));
    let every = Duration::from_secs_f64(1.0 / rate.max(1.0));
    let (start, mut due) = (Instant::now(), Instant::now());
    let end = start + calls.warm_up + calls.measure;
    let (mut due_count, mut left_out) = (0, 0);
    let mut before = None;
    let mut begun = Some(begun);
    while due < end {
        tokio::time::sleep_until(due).await;
        if before.is_none() && Instant::now() >= start + calls.warm_up {
            before = Some((used(calls)?, Instant::now()));
            counts.store(true, Ordering::Relaxed);
            begun.take().into_iter().for_each(|begun| begun());
        }
        // Timers are coarse: all that is due by now.
        while due <= Instant::now() && due < end {
            let (this, is_counted) = (due, before.is_some());
            due += every;
            due_count += u64::from(is_counted);
            if under_way.load(Ordering::Relaxed) >= UNDER_WAY_MAX {
                left_out += u64::from(is_counted);
                continue;
            }
            under_way.fetch_add(1, Ordering::Relaxed);
            let (mut caller, counts, common, under_way) =
                (caller.clone(), counts.clone(), common.clone(), under_way.clone());
            tokio::spawn(async move {
                let outcome = caller.call().await;
                under_way.fetch_sub(1, Ordering::Relaxed);
                let mut common = common.lock().unwrap_or_else(PoisonError::into_inner);
                match (outcome, &mut *common) {
                    (Ok(_), Ok(latencies)) if counts.load(Ordering::Relaxed) => {
                        latencies.record(this.elapsed());
                    }
                    (Err(status), Ok(_)) => *common = Err(failed(&status)),
                    _ => {}
                }
            });
        }
    }
    counts.store(false, Ordering::Relaxed);
    let (before, began) = before.ok_or("nothing was measured: give more --seconds")?;
    let (after, elapsed) = (used(calls)?, began.elapsed());
    let common = std::mem::replace(
        &mut *common.lock().unwrap_or_else(PoisonError::into_inner),
        Ok(Latencies::default()),
    );
    let [host_cpu_ns, infra_cpu_ns, client_cpu_ns] =
        std::array::from_fn(|at| after[at].saturating_sub(before[at]));
    let elapsed_ns = elapsed.as_nanos() as u64;
    let split = Split { latencies: common?, elapsed_ns, host_cpu_ns, infra_cpu_ns, client_cpu_ns };
    Ok(Flooded { split, due: due_count, left_out })
}

/// Asks for each thing in its turn.
pub(in super::super) async fn ask(message: SplitMessage, asking: &Asking) -> Result<Told, String> {
    // Without any field: what it takes to call the other group, not what a message takes.
    let other = Caller::connect(&asking.address, other_message(message), Bytes::new()).await?;
    let mut callers = [
        other.at("/grpc.health.v1.Health/Check")?,
        other.at("/tollfree.bench.v1.Nothing/Get")?,
        other.clone(),
    ];
    callers[Question::OtherGroup as usize].first().await?;
    let mut latencies: [Latencies; Question::ALL.len()] = Default::default();
    let counted_from = Instant::now() + asking.warm_up;
    let end = counted_from + asking.measure;
    let mut ticks = tokio::time::interval(PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for question in Question::ALL.iter().copied().cycle() {
        ticks.tick().await;
        let began = Instant::now();
        if began >= end {
            break;
        }
        let outcome = callers[question as usize].call().await;
        let took = began.elapsed();
        match (question, outcome) {
            (Question::Health, Ok(reply)) if *reply == *SERVING => {}
            (Question::Refusal, Err(status)) if status.code() == Code::Unimplemented => {}
            (Question::OtherGroup, Ok(reply)) if reply.is_empty() => {}
            (_, Ok(reply)) => return Err(format!("{question}: an answer that was not expected: {reply:?}")),
            (_, Err(status)) => return Err(format!("{question}: {}", failed(&status))),
        }
        if began >= counted_from {
            latencies[question as usize].record(took);
        }
    }
    match latencies.iter().all(|latencies| latencies.count() > 0) {
        true => Ok(Told { latencies }),
        false => Err("nothing was asked in the measured time: give more --seconds".to_owned()),
    }
}
