//! The load generator: the calls that a workload's user makes, and how they are paced.

mod closed;
mod hotel;
mod images;
mod open;
#[cfg(test)]
mod rehearsal;
mod social;
mod values;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollfree_bench::latency::Latencies;
use tollfree_bench::peer::Starter;

use crate::plan::{Pressure, Shape};
use crate::process::{Ask, Ready};
use crate::seat::Seat;
use crate::services::Work;

/// Replies that are looked at in full: the first, and every so many-th from there on. Of the others, what costs little.
const FULL_LOOK_EVERY: u64 = 32;

/// What to call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LoadOrder {
    pub(crate) shape: Shape,
    pub(crate) entry: String,
    /// Image files, for work that needs some.
    pub(crate) images: Vec<PathBuf>,
}

/// How hard, and for how long.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) pressure: Pressure,
    pub(crate) time: Duration,
}

/// What came of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Of calls that were answered.
    pub(crate) latencies: Latencies,
    /// From the first call to the last answer, in nanoseconds.
    pub(crate) elapsed_ns: u64,
    /// Calls of an open load that were not made, because too many were outstanding.
    pub(crate) shed: u64,
}

/// Makes a workload's calls. Errors are in words, and end the measurement.
pub(crate) trait Caller: Send + Sync + 'static {
    /// Whatever has to be there before.
    fn prepare(&self) -> impl Future<Output = Result<(), String>> + Send {
        async { Ok(()) }
    }

    /// The `nth` call, from 0.
    fn call(&self, nth: u64) -> impl Future<Output = Result<(), String>> + Send;
}

impl LoadOrder {
    /// Connects, and answers the starter until it is gone.
    pub(crate) async fn attend(&self, seat: &Seat, starter: &Starter) -> Result<(), String> {
        let entry = &self.entry;
        match self.shape {
            Shape::Chain { size, whole, .. } => {
                attend(values::Arrays::new(seat, entry, size, whole).await?, seat, starter).await
            }
            Shape::Balancer { size, .. } => {
                attend(values::Arrays::new(seat, entry, size, true).await?, seat, starter).await
            }
            Shape::Echo { size } => {
                attend(values::Echoes::new(seat, entry, size).await?, seat, starter).await
            }
            Shape::Images { work: Work::Touch, size } => {
                attend(images::Patterns::new(seat, entry, size).await?, seat, starter).await
            }
            Shape::Images { work: Work::Codec, .. } => {
                attend(images::Files::new(seat, entry, &self.images).await?, seat, starter).await
            }
            Shape::Social { media } => {
                attend(social::Users::new(seat, entry, media).await?, seat, starter).await
            }
            Shape::Hotel { description } => {
                attend(hotel::Guests::new(seat, entry, description).await?, seat, starter).await
            }
        }
    }
}

async fn attend<C: Caller>(caller: C, seat: &Seat, starter: &Starter) -> Result<(), String> {
    let caller = Arc::new(Numbered { caller, next: AtomicU64::new(0) });
    caller.caller.prepare().await?;
    starter.say(Ready {});
    loop {
        // Blocks the runtime: nothing is to happen until the starter says so.
        match starter.hear()? {
            Ask::Tally => starter.say(seat.tally()),
            Ask::Sizes => starter.say(seat.counters.sizes.read()),
            Ask::Run(Run { pressure: Pressure::Inflight(count), time }) => {
                starter.say(closed::run(&caller, count, time).await?);
            }
            Ask::Run(Run { pressure: Pressure::Rate(rate), time }) => {
                starter.say(open::run(&caller, rate, time).await?);
            }
        }
    }
}

/// A caller whose calls are numbered over all runs.
struct Numbered<C> {
    caller: C,
    next: AtomicU64,
}

impl<C: Caller> Numbered<C> {
    async fn call(&self) -> Result<(), String> {
        self.caller.call(self.next.fetch_add(1, Ordering::Relaxed)).await
    }
}

/// Whether a call's reply is to be looked at in full.
fn in_full(nth: u64) -> bool {
    nth.is_multiple_of(FULL_LOOK_EVERY)
}

fn failed(status: tonic::Status) -> String {
    format!("a call failed: {status}")
}
