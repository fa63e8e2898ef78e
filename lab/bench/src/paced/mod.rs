//! Calls that come at a rate, one at a time: what they cost both ends, and how long each takes.
//!
//! A closed loop keeps both ends awake. Here the client sleeps until a call is due, so what is measured is mostly how the two
//! ends wait. A call that is due while the one before goes on is missed: it is counted and not made up for.

mod call;
mod quota;
mod report;
mod wake;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::cores::Cores;
use crate::harness::{self, Lasting, Machine, Rows, Told, each_once, pid_of, rounds, some, within};
use crate::latency::Latencies;
use crate::order::{self, Order, Serving};
use crate::plan::{Malloc, PacedSide, Placement, RuntimeKind, Wait};
use crate::side::program::Program;

pub(crate) use self::call::act;
use self::quota::Group;
pub use self::quota::Quota;
pub use self::report::PacedRow;

/// Body of each call.
pub(crate) const SIZE: usize = 64;
/// The highest rate that may be asked for.
const RATE_MAX: u32 = 100_000;

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
    /// How long and how often.
    pub lasting: Lasting,
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

impl fmt::Display for PacedCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PacedCase { side, rate, placement, runtime, wait, quota } = self;
        write!(f, "{side} · {rate}/s, {placement}, {runtime}, {wait}, quota {quota}")
    }
}

impl PacedPlan {
    /// Checks what the command line's own types cannot.
    ///
    /// # Errors
    /// [`BenchError::Refused`], naming the value and what is allowed.
    pub fn check(&self) -> Result<(), BenchError> {
        within(&self.rates, 1..=RATE_MAX, "calls a second")?;
        self.lasting.check()?;
        some(&self.cases())
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
                                let threads = side.program().is_some()
                                    || matches!(side, PacedSide::Wake | PacedSide::TollfreeBlocking);
                                let waits = side.waits();
                                let runtime = if threads { RuntimeKind::Current } else { runtime };
                                let wait = if waits { wait } else { Wait::Default };
                                cases.push(PacedCase { side, rate, placement, runtime, wait, quota });
                            }
                        }
                    }
                }
            }
        }
        each_once(cases)
    }
}

/// What a process does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) case: PacedCase,
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
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Paced {
    pub(crate) latencies: Latencies,
    pub(crate) missed: u64,
    pub(crate) client_cpu_ns: u64,
    pub(crate) server_cpu_ns: u64,
    /// How long the server was kept from running by its quota.
    pub(crate) throttled_ns: Option<u64>,
}

/// Measures everything that the plan asks for; `progress` hears of each measurement. A case that fails is a row that says so.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that cannot be carried out here, [`BenchError::System`].
pub async fn run(plan: &PacedPlan, progress: impl FnMut(&Told)) -> Result<Rows<PacedRow>, BenchError> {
    plan.check()?;
    let cores = harness::seats(plan.placements.iter().copied())?;
    let machine = Machine::look(&cores, &Malloc::Keep.settings());
    let take = async |case: PacedCase| match case.side.program().and_then(Program::absent) {
        Some(why) => Err(format!("not run: {why}")),
        None if case.side.program().is_some() && case.quota.cores().is_some() => {
            Err("not run: sides in other languages have no quota".to_owned())
        }
        None => measure(plan, case, &cores).await.map_err(|error| error.to_string()),
    };
    let median = |round: &Paced| format!("p50 {:.2} us", round.latencies.quantile_ns(0.5) as f64 / 1000.0);
    let tried = rounds::interleave(plan.cases(), plan.lasting.rounds, take, median, progress).await;
    Ok(Rows::of(machine, plan.lasting, tried, PacedRow::of))
}

async fn measure(plan: &PacedPlan, case: PacedCase, cores: &Cores) -> Result<Paced, BenchError> {
    let seats = cores.seats(case.placement)?;
    let crew = order::crew(Malloc::Keep)?;
    let group = case.quota.cores().map(Group::create).transpose().map_err(BenchError::Refused)?;
    let part = |role| Order::Paced(Part { case, role });
    let serve = part(Role::Serve { dir: crew.dir().to_owned() });
    let (peer, Serving { address }) = crew.ready("server", seats.server, serve).await?;
    let server = pid_of(&peer)?;
    group.as_ref().map_or(Ok(()), |group| group.take_in(server)).map_err(BenchError::Refused)?;
    let (warm_up, measure) = (plan.lasting.warm_up(), plan.lasting.measure());
    let account = group.as_ref().map(Group::account);
    let call = part(Role::Call { address, server, warm_up, measure, account });
    let measured = crew.measure("client", seats.client, call, warm_up + measure).await?;
    peer.stop().await;
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
            lasting: Lasting { seconds: 1.0, rounds: 1 },
        }
    }

    #[test]
    fn sides_without_a_choice_have_one_row_for_all_of_it() {
        let cases = plan().cases();
        let count = |side| cases.iter().filter(|case| case.side == side && case.rate == 100).count();
        assert_eq!(
            PacedSide::ALL.iter().map(|side| count(*side)).collect::<Vec<_>>(),
            [1, 2, 4, 4, 2, 1, 1, 1, 1, 1],
            "wake, tonic-unix, tollfree, tollfree-direct, tollfree-blocking, and those in Go and Python"
        );
    }

    #[test]
    fn impossible_plans_are_refused_in_words() {
        plan().check().unwrap();
        type Spoil = fn(&mut PacedPlan);
        let spoil: [(&str, Spoil); 4] = [
            ("0 calls a second", |p| p.rates.push(0)),
            ("200000 calls a second", |p| p.rates.push(200_000)),
            ("rounds", |p| p.lasting.rounds = 0),
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
