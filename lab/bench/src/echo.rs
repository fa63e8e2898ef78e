//! Runs a plan: each case in two processes of its own, made anew for each round.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::cores::Cores;
use crate::order::{Load, Measured, Order, Serve, Serving};
use crate::peer::Peer;
use crate::plan::{Case, Plan, Side};
use crate::report::{Report, Round, Row};
use crate::workdir::Workdir;
use crate::{BenchError, Machine, rounds, side};

/// Time that a server may take to start.
const START: Duration = Duration::from_secs(15);

/// Time that a client may take beyond the time it measures: large bodies, many in flight, slow machines.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time that a call may take where calls are counted and not time.
const CALL: Duration = Duration::from_millis(2);

/// One measurement that just ended.
pub type Step<'a> = rounds::Step<'a, Case, Round>;

/// Measures everything the plan asks for; `progress` hears of each measurement.
///
/// A case that fails is a row that says so, and the others go on.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that cannot be carried out here, [`BenchError::System`].
pub async fn run(plan: &Plan, progress: impl FnMut(&Step<'_>)) -> Result<Report, BenchError> {
    plan.check()?;
    let cores = Cores::choose()?;
    for placement in &plan.placements {
        cores.seats(*placement)?;
    }
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
    let tried = rounds::interleave(cases, plan.rounds, take, progress).await;
    Ok(Report::new(machine, plan, tried.into_iter().map(Row::of).collect()))
}

async fn measure(plan: &Plan, case: Case, samples: &[Vec<u8>], cores: &Cores) -> Result<Round, BenchError> {
    let seats = cores.seats(case.placement)?;
    let dir = Workdir::create()?;
    let sweeper = Sweeper { side: case.side, dir: &dir };
    let malloc = plan.malloc.settings();
    let serve = Serve { case, core: seats.server, dir: dir.path().to_owned() };
    let mut server = Peer::start("server", &["bench-peer"], &malloc, &Order::Serve(serve)).await?;
    let Serving { address } = server.hear(START).await?;
    let (warm_up, measure) = (plan.warm_up(), plan.measure());
    let samples = (!samples.is_empty()).then(|| kept(&dir, samples)).transpose()?;
    let (core, calls) = (seats.client, plan.calls);
    let load =
        Load { case, core, address, warm_up, measure, calls, every: None, samples, server: server.pid() };
    let slowest = plan.calls.map_or(measure, |calls| CALL * calls.try_into().unwrap_or(u32::MAX));
    let within = warm_up + slowest + PATIENCE;
    let mut client = Peer::start("client", &["bench-peer"], &malloc, &Order::Load(load)).await?;
    let measured: Measured = client.hear(within).await?;
    client.stop().await;
    server.stop().await;
    drop(sweeper);
    Ok(Round::new(measured))
}

/// Writes messages into a file from which the client takes them.
fn kept(dir: &Workdir, samples: &[Vec<u8>]) -> Result<PathBuf, BenchError> {
    let mut bytes = Vec::new();
    for sample in samples {
        prost::encoding::encode_varint(sample.len() as u64, &mut bytes);
        bytes.extend_from_slice(sample);
    }
    let path = dir.join("messages");
    std::fs::write(&path, bytes).map_err(BenchError::system("cannot write the messages"))?;
    Ok(path)
}

/// Sweeps up behind the processes of a measurement, however it ends.
struct Sweeper<'d> {
    side: Side,
    dir: &'d Workdir,
}

impl Drop for Sweeper<'_> {
    fn drop(&mut self) {
        if let Err(error) = side::sweep(self.side, self.dir.path()) {
            tracing::warn!(%error, "something may be left behind in /dev/shm");
        }
    }
}
