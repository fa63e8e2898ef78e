//! Runs a plan: each case once a round, the rounds of all cases interleaved.

use std::time::Duration;

use crate::cores::{Cores, Seats};
use crate::order::{Load, Measured, Order, Serve, Serving};
use crate::peer::Peer;
use crate::plan::{Case, Plan, Side};
use crate::report::{Report, Round, Row};
use crate::workdir::Workdir;
use crate::{BenchError, Machine, side};

/// Time that a server may take to start.
const START: Duration = Duration::from_secs(15);

/// Time that a client may take beyond the time it measures: large bodies, many in flight, slow machines.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time that a call may take where calls are counted and not time.
const CALL: Duration = Duration::from_millis(2);

/// One measurement that just ended.
#[derive(Debug)]
pub struct Step<'a> {
    /// Measurements done, this one included.
    pub done: usize,
    /// Measurements in all.
    pub total: usize,
    /// The round, from 1.
    pub round: usize,
    /// What was measured.
    pub case: Case,
    /// What came out, or why nothing did.
    pub outcome: Result<&'a Round, &'a str>,
}

/// Measures everything the plan asks for; `progress` hears of each measurement.
///
/// A case that fails is a row that says so, and the others go on.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that cannot be carried out here, [`BenchError::System`].
pub async fn run(plan: &Plan, mut progress: impl FnMut(&Step<'_>)) -> Result<Report, BenchError> {
    plan.check()?;
    let cores = Cores::choose()?;
    for placement in &plan.placements {
        cores.seats(*placement)?;
    }
    let machine = Machine::look(&cores, &plan.malloc.settings());
    let mut rows: Vec<Row> = plan.cases().into_iter().map(Row::new).collect();
    let total = plan.rounds * rows.len();
    let mut done = 0;
    for round in 1..=plan.rounds {
        // There and back again, so that no side always follows the same neighbour.
        let order: Vec<usize> =
            if round % 2 == 1 { (0..rows.len()).collect() } else { (0..rows.len()).rev().collect() };
        for row_idx in order {
            let row = &mut rows[row_idx];
            done += 1;
            if let Some(why) = row.case.side.missing() {
                row.fail(why.to_owned());
            }
            if row.not_run.is_some() {
                continue;
            }
            let seats = cores.seats(row.case.placement)?;
            match measure(plan, row.case, seats).await {
                Ok(measured) => row.rounds.push(Round::new(measured)),
                Err(error) => row.fail(error.to_string()),
            }
            let outcome = match (&row.not_run, row.rounds.last()) {
                (None, Some(round)) => Ok(round),
                (why, _) => Err(why.as_deref().unwrap_or("nothing was measured")),
            };
            progress(&Step { done, total, round, case: row.case, outcome });
        }
    }
    Ok(Report::new(machine, plan, rows))
}

async fn measure(plan: &Plan, case: Case, seats: Seats) -> Result<Measured, BenchError> {
    let dir = Workdir::create()?;
    let sweeper = Sweeper { side: case.side, dir: &dir };
    let malloc = plan.malloc.settings();
    let serve = Serve { case, core: seats.server, dir: dir.path().to_owned() };
    let mut server = Peer::start("server", &["bench-peer"], &malloc, &Order::Serve(serve)).await?;
    let Serving { address } = server.hear(START).await?;
    let (warm_up, measure) = (plan.warm_up(), plan.measure());
    let load = Load { case, core: seats.client, address, warm_up, measure, calls: plan.calls };
    let slowest = plan.calls.map_or(measure, |calls| CALL * calls.try_into().unwrap_or(u32::MAX));
    let within = warm_up + slowest + PATIENCE;
    let mut client = Peer::start("client", &["bench-peer"], &malloc, &Order::Load(load)).await?;
    let measured = client.hear(within).await?;
    client.stop().await;
    server.stop().await;
    drop(sweeper);
    Ok(measured)
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
