//! `tollfree-lab bench echo`: each case in two processes of its own, made anew for each round.

mod plan;
mod plot;
mod report;

use std::collections::HashMap;
use std::time::Duration;

use crate::cores::Cores;
use crate::harness::{self, Crew, Machine, Rows, Told, rounds};
use crate::order::{self, Load, Order, Serve, Serving};
use crate::plan::{Case, Side};
use crate::{BenchError, side};

use self::report::Round;

pub use self::plan::{EchoPlan, METADATA_MAX};
pub use self::report::{Comparison, Row, YARDSTICK};

/// Time that a call may take where calls are counted and not time.
const CALL: Duration = Duration::from_millis(2);

/// Measures everything the plan asks for; `progress` hears of each measurement.
///
/// A case that fails is a row that says so, and the others go on.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that cannot be carried out here, [`BenchError::System`].
pub async fn run(plan: &EchoPlan, progress: impl FnMut(&Told)) -> Result<Rows<Row>, BenchError> {
    plan.check()?;
    let cores = harness::seats(plan.placements.iter().copied())?;
    let machine = Machine::look(&cores, &plan.malloc.settings());
    let mut samples = HashMap::new();
    for &message in &plan.messages {
        samples.insert(message, message.samples(plan.corpus.as_deref())?);
    }
    let sized = |case: Case| match &samples[&case.message] {
        none if none.is_empty() => case,
        all => Case { size: all.iter().map(Vec::len).sum::<usize>() / all.len(), ..case },
    };
    let cases = plan.cases().into_iter().map(sized);
    let take = async |case: Case| match case.missing() {
        Some(why) => Err(why.to_owned()),
        None => measure(plan, case, &samples[&case.message], &cores).await.map_err(|error| error.to_string()),
    };
    let median = |round: &Round| format!("p50 {:.2} us", round.p50_ns as f64 / 1000.0);
    let tried = rounds::interleave(cases, plan.lasting.rounds, take, median, progress).await;
    Ok(report::report(machine, plan, tried))
}

async fn measure(
    plan: &EchoPlan,
    case: Case,
    samples: &[Vec<u8>],
    cores: &Cores,
) -> Result<Round, BenchError> {
    let seats = cores.seats(case.placement)?;
    let crew = order::crew(plan.malloc)?;
    let sweeper = Sweeper { side: case.side, crew: &crew };
    let serve = Order::Serve(Serve { case, dir: crew.dir().to_owned() });
    let (server, Serving { address }) = crew.ready("server", seats.server, serve).await?;
    let samples = (!samples.is_empty()).then(|| crew.write("messages", &delimited(samples))).transpose()?;
    let (warm_up, measure) = (plan.lasting.warm_up(), plan.lasting.measure());
    let load = Load {
        calls: plan.calls,
        samples,
        server: server.pid(),
        ..Load::new(case, address, warm_up, measure)
    };
    let slowest = plan.calls.map_or(measure, |calls| CALL * calls.try_into().unwrap_or(u32::MAX));
    let measured = crew.measure("client", seats.client, Order::Load(load), warm_up + slowest).await?;
    server.stop().await;
    drop(sweeper);
    Ok(Round::new(measured))
}

/// Messages in a file from which the client takes them, each behind its length.
fn delimited(samples: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for sample in samples {
        prost::encoding::encode_varint(sample.len() as u64, &mut bytes);
        bytes.extend_from_slice(sample);
    }
    bytes
}

/// Sweeps up behind the processes of a measurement, however it ends.
struct Sweeper<'c> {
    side: Side,
    crew: &'c Crew,
}

impl Drop for Sweeper<'_> {
    fn drop(&mut self) {
        if let Err(error) = side::sweep(self.side, self.crew.dir()) {
            tracing::warn!(%error, "something may be left behind in /dev/shm");
        }
    }
}
