//! Dagger's figures 5 and 6 for the interface between a gateway and the processes behind it: an echo of 64 bytes in each mode of
//! announcing requests, in a closed loop and at rates.
//!
//! Two processes and no HTTP/2: one has the door of a gateway and calls, the other has attached and echoes. The floor's two bare
//! rings run beside them. Whatever is a register is changed in the running session, as a gateway does it.

mod act;
mod report;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollfree_gateway::Word;

use crate::BenchError;
use crate::cores::Cores;
use crate::harness::{self, Crew, Lasting, Machine, Told, rounds, some, within};
use crate::latency::Latencies;
use crate::order::{self, Load, Measured, Order, Serve, Serving};
use crate::plan::{Case, INFLIGHT_MAX, Malloc, Placement, RuntimeKind, Side};

pub(crate) use self::act::act;
pub use self::report::{DeviceReport, DeviceRow};
pub use tollfree::gateway::{Batch, DoorbellMode};

/// Body of each call.
const SIZE: usize = 64;
/// The highest rate that may be asked for.
const RATE_MAX: u32 = 5_000_000;
/// Threads of each process.
const THREADS_MAX: usize = 2;

/// What to measure: every combination is a row, and so is the floor with as many calls in flight.
#[derive(Debug, Clone)]
pub struct DevicePlan {
    /// How the process that echoes learns of requests.
    pub modes: Vec<DoorbellMode>,
    /// Requests that are published together. Without any, what suits a mode: one by one, and for `auto` and `coherent:N`
    /// beyond 1 `auto`.
    pub batches: Vec<Batch>,
    /// Calls in flight, in a closed loop.
    pub inflights: Vec<usize>,
    /// Calls a second; without any, in a closed loop.
    pub rates: Vec<u32>,
    /// Beside them a row whose registers change all the time.
    pub changing: bool,
    /// Threads of each process.
    pub threads: Vec<usize>,
    /// Where processes of one thread run; those of two are not pinned.
    pub placements: Vec<Placement>,
    /// How long and how often.
    pub lasting: Lasting,
}

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCase {
    /// How the other process learns of requests; none: two bare rings.
    pub mode: Option<Word<DoorbellMode>>,
    /// Requests that are published together.
    pub batch: Word<Batch>,
    /// Both, and all other registers, change all the time; they are as said at first.
    pub changing: bool,
    /// Calls in flight in a closed loop; at a rate, those that there may be at most.
    pub inflight: usize,
    /// Calls a second; none: a closed loop.
    pub rate: Option<u32>,
    /// Threads of each process.
    pub threads: usize,
    /// Where the two processes run.
    pub placement: Placement,
}

/// Calls that may be under way at a rate, before the next one is late.
const RATE_INFLIGHT: usize = 512;

impl DevicePlan {
    /// Checks what the command line's own types cannot.
    ///
    /// # Errors
    /// [`BenchError::Refused`], naming the value and what is allowed.
    pub fn check(&self) -> Result<(), BenchError> {
        within(&self.inflights, 1..=INFLIGHT_MAX, "calls in flight")?;
        within(&self.rates, 1..=RATE_MAX, "calls a second")?;
        within(&self.threads, 1..=THREADS_MAX, "threads")?;
        self.lasting.check()?;
        some(&self.cases())
    }

    /// Every case once, those that are compared with each other next to each other.
    #[must_use]
    pub fn cases(&self) -> Vec<DeviceCase> {
        let paces: Vec<(usize, Option<u32>)> = match self.rates.is_empty() {
            true => self.inflights.iter().map(|inflight| (*inflight, None)).collect(),
            false => self.rates.iter().map(|rate| (RATE_INFLIGHT, Some(*rate))).collect(),
        };
        let mut cases = Vec::new();
        for (threads, placement) in self.places() {
            for &(inflight, rate) in &paces {
                let (mode, batch, changing) = (None, Word(Batch::Auto), false);
                let case = DeviceCase { mode, batch, changing, inflight, rate, threads, placement };
                // Two bare rings have one thread at each end, and no rate.
                if rate.is_none() && threads == 1 && !self.modes.is_empty() {
                    cases.push(case);
                }
                for &mode in &self.modes {
                    let own = [suitable(mode)];
                    let batches = if self.batches.is_empty() { &own[..] } else { &self.batches };
                    cases.extend(batches.iter().map(|batch| DeviceCase {
                        mode: Some(Word(mode)),
                        batch: Word(*batch),
                        ..case
                    }));
                }
                if self.changing {
                    cases.push(DeviceCase { mode: Some(Word::default()), changing: true, ..case });
                }
            }
        }
        cases
    }

    /// Threads of each process, and where they run.
    fn places(&self) -> Vec<(usize, Placement)> {
        let of = |threads: &usize| match *threads {
            1 => self.placements.iter().map(|placement| (1, *placement)).collect(),
            more => vec![(more, Placement::Unpinned)],
        };
        self.threads.iter().flat_map(of).collect()
    }
}

/// How many requests a mode publishes together in Dagger's figure.
fn suitable(mode: DoorbellMode) -> Batch {
    match mode {
        DoorbellMode::Auto => Batch::Auto,
        DoorbellMode::Coherent(count) if count > 1 => Batch::Auto,
        _ => Batch::Fixed(1),
    }
}

impl DeviceCase {
    /// How requests are announced, in words.
    #[must_use]
    pub fn name(&self) -> String {
        match self.mode {
            _ if self.changing => "changing".to_owned(),
            Some(mode) => mode.0.to_string(),
            None => "two bare rings".to_owned(),
        }
    }

    /// As sides know it.
    fn echo(self) -> Case {
        let runtime = if self.threads == 1 { RuntimeKind::Current } else { RuntimeKind::Multi };
        let side = if self.mode.is_none() { Side::Floor } else { Side::TollfreeDirect };
        Case { placement: self.placement, ..Case::probe(side, SIZE, self.inflight, runtime) }
    }

    /// How hard it is called, in words.
    fn pace(&self) -> String {
        match self.rate {
            Some(rate) => format!("{rate} calls a second"),
            None => format!("{} in flight", self.inflight),
        }
    }
}

impl fmt::Display for DeviceCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mode, batch, pace) = (self.name(), self.batch.0, self.pace());
        write!(f, "{mode}, batch {batch}, {pace}, {} threads, {}", self.threads, self.placement)
    }
}

/// What a process does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) case: DeviceCase,
    pub(crate) role: Role,
}

/// Which end a process is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    /// Has the door, in `dir`; says where, and calls each process that attaches.
    Drive { dir: PathBuf, warm_up: Duration, measure: Duration },
    /// Attaches and echoes.
    Work { address: String },
}

/// What a round measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Driven {
    pub(crate) latencies: Latencies,
    pub(crate) elapsed_ns: u64,
    pub(crate) publications: u64,
    pub(crate) sends: u64,
    pub(crate) rings: u64,
}

impl Driven {
    fn rate(&self) -> f64 {
        self.latencies.count() as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// Measures everything that the plan asks for; `progress` hears of each measurement. A case that fails is a row that says so.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that cannot be carried out here, [`BenchError::System`].
pub async fn run(plan: &DevicePlan, progress: impl FnMut(&Told)) -> Result<DeviceReport, BenchError> {
    plan.check()?;
    let cores = harness::seats(plan.cases().iter().map(|case| case.placement))?;
    let machine = Machine::look(&cores, &Malloc::Keep.settings());
    let take = async |case| measure(plan.lasting, case, &cores).await;
    let rate = |driven: &Driven| format!("{:.0} calls a second", driven.rate());
    let tried = rounds::interleave(plan.cases(), plan.lasting.rounds, take, rate, progress).await;
    Ok(DeviceReport::new(machine, plan.lasting, tried))
}

async fn measure(lasting: Lasting, case: DeviceCase, cores: &Cores) -> Result<Driven, BenchError> {
    let seats = cores.seats(case.placement)?;
    let crew = order::crew(Malloc::Keep)?;
    let dir = crew.dir().to_owned();
    let (warm_up, measure) = (lasting.warm_up(), lasting.measure());
    if case.mode.is_none() {
        let serve = Order::Serve(Serve { case: case.echo(), dir });
        let (server, Serving { address }) = crew.ready("server", seats.server, serve).await?;
        let load = Order::Load(Load::new(case.echo(), address, warm_up, measure));
        let Measured { latencies, elapsed_ns, .. } =
            crew.measure("client", seats.client, load, warm_up + measure).await?;
        server.stop().await;
        return Ok(Driven { latencies, elapsed_ns, ..Driven::default() });
    }
    let drive = Order::Device(Part { case, role: Role::Drive { dir, warm_up, measure } });
    let (mut driver, Serving { address }) = crew.ready("driver", seats.client, drive).await?;
    let work = Order::Device(Part { case, role: Role::Work { address } });
    let worker = crew.start("worker", seats.server, work).await?;
    let driven = driver.hear(warm_up + measure + Crew::PATIENCE).await?;
    driver.stop().await;
    worker.stop().await;
    Ok(driven)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> DevicePlan {
        DevicePlan {
            modes: ["doorbell", "coherent:4"].map(|mode| mode.parse().unwrap()).to_vec(),
            batches: Vec::new(),
            inflights: vec![1, 16],
            rates: Vec::new(),
            changing: false,
            threads: vec![1, 2],
            placements: vec![Placement::Split],
            lasting: Lasting { seconds: 1.0, rounds: 1 },
        }
    }

    #[test]
    fn the_floor_stands_beside_closed_loops_of_one_thread() {
        let cases = plan().cases();
        let floors: Vec<_> = cases.iter().filter(|case| case.mode.is_none()).collect();
        assert_eq!((cases.len(), floors.len()), (10, 2));
        assert!(floors.iter().all(|case| case.threads == 1));
        let batch = |mode: &str| suitable(mode.parse().unwrap());
        assert_eq!([batch("doorbell-batch:11"), batch("inline"), batch("coherent:1")], [Batch::Fixed(1); 3]);
        assert_eq!([batch("coherent:4"), batch("auto")], [Batch::Auto; 2]);
        let paced = DevicePlan { rates: vec![1000], batches: vec![Batch::Auto, Batch::Fixed(4)], ..plan() };
        assert_eq!(paced.cases().len(), 8);
        let changing = DevicePlan { changing: true, ..plan() }.cases();
        assert_eq!(changing.iter().filter(|case| case.changing).count(), 4);
        assert!(paced.cases().iter().all(|case| case.mode.is_some() && case.rate == Some(1000)));
    }

    #[test]
    fn impossible_plans_are_refused_in_words() {
        plan().check().unwrap();
        type Spoil = fn(&mut DevicePlan);
        let spoil: [(&str, Spoil); 5] = [
            ("0 calls in flight", |p| p.inflights.push(0)),
            ("calls a second", |p| p.rates.push(0)),
            ("3 threads", |p| p.threads.push(3)),
            ("rounds", |p| p.lasting.rounds = 0),
            ("no value", |p| p.modes.clear()),
        ];
        for (words, spoil) in spoil {
            let mut plan = plan();
            spoil(&mut plan);
            let error = plan.check().unwrap_err().to_string();
            assert!(error.contains(words), "{error:?} lacks {words:?}");
        }
    }
}
