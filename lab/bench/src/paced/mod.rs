//! Calls that come at a rate, one at a time: what they cost both ends, and how long each takes.
//!
//! A closed loop keeps both ends awake. Here the client sleeps until a call is due, so what is measured is mostly how the two
//! ends wait. A call that is due while the one before goes on is missed: it is counted and not made up for.

mod call;
mod quota;
mod report;
mod wake;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cores::{CoreIdx, Cores};
use crate::latency::Latencies;
use crate::order::{Order, Serving};
use crate::peer::Peer;
use crate::plan::{Malloc, PacedSide, Placement, RuntimeKind, Wait};
use crate::workdir::Workdir;
use crate::{BenchError, Machine, rounds};

pub(crate) use self::call::act;
use self::quota::Group;
pub use self::quota::Quota;
pub use self::report::PacedReport;

/// Body of each call.
pub(crate) const SIZE: usize = 64;
/// The highest rate that may be asked for.
const RATE_MAX: u32 = 100_000;
/// Time that a process may take to start, or to end its measurement beyond the measured time.
const PATIENCE: Duration = Duration::from_secs(30);

/// What to measure: every combination is a row.
#[derive(Debug, Clone)]
pub struct PacedPlan {
    /// Calls a second.
    pub rates: Vec<u32>,
    /// What carries the calls.
    pub sides: Vec<PacedSide>,
    /// Where the two processes run.
    pub placements: Vec<Placement>,
    /// The runtime in both.
    pub runtimes: Vec<RuntimeKind>,
    /// How both ends wait, for sides of Tollfree.
    pub waits: Vec<Wait>,
    /// What the server may use.
    pub quotas: Vec<Quota>,
    /// Measured time for each row and round.
    pub seconds: f64,
    /// Rounds.
    pub rounds: usize,
}

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacedCase {
    /// What carries the calls.
    pub side: PacedSide,
    /// Calls a second.
    pub rate: u32,
    /// Where the two processes run.
    pub placement: Placement,
    /// The runtime in both.
    pub runtime: RuntimeKind,
    /// How both ends wait.
    pub wait: Wait,
    /// What the server may use.
    pub quota: Quota,
}

impl PacedPlan {
    /// Checks what the command line's own types cannot.
    ///
    /// # Errors
    /// [`BenchError::Refused`], naming the value and what is allowed.
    pub fn check(&self) -> Result<(), BenchError> {
        let refuse = |what: String| Err(BenchError::Refused(what));
        if let Some(rate) = self.rates.iter().find(|rate| !(1..=RATE_MAX).contains(*rate)) {
            return refuse(format!("{rate} calls a second: must be 1 to {RATE_MAX}"));
        }
        if !(self.seconds >= 0.01 && self.seconds <= 3600.0) {
            return refuse(format!("{} seconds per row and round: must be 0.01 to 3600", self.seconds));
        }
        if !(1..=1000).contains(&self.rounds) {
            return refuse(format!("{} rounds: must be 1 to 1000", self.rounds));
        }
        if self.cases().is_empty() {
            return refuse("nothing to measure: an axis has no value".to_owned());
        }
        Ok(())
    }

    /// Every case once, those that are compared with each other next to each other. A side that has no runtime, or no way to wait, has
    /// one row for all of them.
    #[must_use]
    pub fn cases(&self) -> Vec<PacedCase> {
        let mut cases = Vec::new();
        for &quota in &self.quotas {
            for &runtime in &self.runtimes {
                for &placement in &self.placements {
                    for &rate in &self.rates {
                        for &wait in &self.waits {
                            for &side in &self.sides {
                                let threads = matches!(side, PacedSide::Wake | PacedSide::TollfreeBlocking);
                                let waits = !matches!(side, PacedSide::Wake | PacedSide::TonicUnix);
                                let runtime = if threads { RuntimeKind::Current } else { runtime };
                                let wait = if waits { wait } else { Wait::Default };
                                let case = PacedCase { side, rate, placement, runtime, wait, quota };
                                if !cases.contains(&case) {
                                    cases.push(case);
                                }
                            }
                        }
                    }
                }
            }
        }
        cases
    }
}

/// What a process does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) case: PacedCase,
    pub(crate) core: Option<CoreIdx>,
    pub(crate) role: Role,
}

/// Which end a process is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    /// Serves, with sockets in `dir`.
    Serve { dir: PathBuf },
    /// Calls at the rate, and counts what both ends use meanwhile.
    Call { address: String, server: u32, warm_up: Duration, measure: Duration, account: Option<PathBuf> },
}

/// What a round measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Paced {
    pub(crate) latencies: Latencies,
    pub(crate) missed: u64,
    pub(crate) client_cpu_ns: u64,
    pub(crate) server_cpu_ns: u64,
    /// How long the server was kept from running by its quota.
    pub(crate) throttled_ns: Option<u64>,
}

/// One measurement that just ended.
pub type PacedStep<'a> = rounds::Step<'a, PacedCase, u64>;

/// Measures everything that the plan asks for; `progress` hears of each measurement, with its median in nanoseconds. A case
/// that fails is a row that says so.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that cannot be carried out here, [`BenchError::System`].
pub async fn run(
    plan: &PacedPlan,
    mut progress: impl FnMut(&PacedStep<'_>),
) -> Result<PacedReport, BenchError> {
    plan.check()?;
    let cores = Cores::choose()?;
    for placement in &plan.placements {
        cores.seats(*placement)?;
    }
    let machine = Machine::look(&cores, &Malloc::Keep.settings());
    let take = async |case: PacedCase| measure(plan, case, &cores).await.map_err(|error| error.to_string());
    let tried = rounds::interleave(plan.cases(), plan.rounds, take, |step| {
        let median = step.outcome.map(|round| round.latencies.quantile_ns(0.5));
        let outcome = median.as_ref().map_err(|why| *why);
        let (done, total, round, case) = (step.done, step.total, step.round, step.case);
        progress(&rounds::Step { done, total, round, case, outcome });
    })
    .await;
    Ok(PacedReport::new(machine, plan, tried))
}

async fn measure(plan: &PacedPlan, case: PacedCase, cores: &Cores) -> Result<Paced, BenchError> {
    let seats = cores.seats(case.placement)?;
    let dir = Workdir::create()?;
    let group = case.quota.cores().map(Group::create).transpose().map_err(BenchError::Refused)?;
    let malloc = Malloc::Keep.settings();
    let role = Role::Serve { dir: dir.path().to_owned() };
    let order = Order::Paced(Part { case, core: seats.server, role });
    let mut server = Peer::start("server", &["bench-peer"], &malloc, &order).await?;
    let Serving { address } = server.hear(PATIENCE).await?;
    let gone = || BenchError::Refused("the server process has ended already".to_owned());
    let pid = server.pid().ok_or_else(gone)?;
    group.as_ref().map_or(Ok(()), |group| group.take_in(pid)).map_err(BenchError::Refused)?;
    let measure = Duration::from_secs_f64(plan.seconds);
    let warm_up = (measure / 4).clamp(Duration::from_millis(20), Duration::from_millis(500));
    let account = group.as_ref().map(Group::account);
    let role = Role::Call { address, server: pid, warm_up, measure, account };
    let order = Order::Paced(Part { case, core: seats.client, role });
    let mut client = Peer::start("client", &["bench-peer"], &malloc, &order).await?;
    let measured: Paced = client.hear(warm_up + measure + PATIENCE).await?;
    client.stop().await;
    server.stop().await;
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> PacedPlan {
        PacedPlan {
            rates: vec![100, 5000],
            sides: PacedSide::ALL.to_vec(),
            placements: vec![Placement::Unpinned],
            runtimes: vec![RuntimeKind::Current, RuntimeKind::Multi],
            waits: vec![Wait::Default, Wait::Park],
            quotas: vec![Quota::default()],
            seconds: 1.0,
            rounds: 1,
        }
    }

    #[test]
    fn sides_without_a_choice_have_one_row_for_all_of_it() {
        let cases = plan().cases();
        let count = |side| cases.iter().filter(|case| case.side == side && case.rate == 100).count();
        assert_eq!(
            PacedSide::ALL.iter().map(|side| count(*side)).collect::<Vec<_>>(),
            [1, 2, 4, 4, 2],
            "wake, tonic-unix, tollfree, tollfree-direct, tollfree-blocking"
        );
    }

    #[test]
    fn impossible_plans_are_refused_in_words() {
        plan().check().unwrap();
        type Spoil = fn(&mut PacedPlan);
        let spoil: [(&str, Spoil); 5] = [
            ("0 calls a second", |p| p.rates.push(0)),
            ("200000 calls a second", |p| p.rates.push(200_000)),
            ("seconds", |p| p.seconds = f64::NAN),
            ("rounds", |p| p.rounds = 0),
            ("no value", |p| p.sides.clear()),
        ];
        for (words, spoil) in spoil {
            let mut plan = plan();
            spoil(&mut plan);
            let error = plan.check().unwrap_err().to_string();
            assert!(error.contains(words), "{error:?} lacks {words:?}");
        }
    }
}
