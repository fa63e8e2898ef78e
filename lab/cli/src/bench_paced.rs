//! `tollfree-lab bench paced` and `tollfree-lab bench crowd`: how the two ends wait, and what that costs.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use tollfree_bench::crowd::{self, CrowdPlan};
use tollfree_bench::interrupt::until_interrupted;
use tollfree_bench::paced::{self, PacedPlan, Quota};
use tollfree_bench::plan::{PacedSide, Placement, RuntimeKind, Side, Wait};

use crate::bench::print;
use crate::failure::Failure;

/// Options of `tollfree-lab bench paced`. Lists are separated by commas; every combination is a row.
#[derive(Debug, Args)]
pub(crate) struct PacedArgs {
    /// Calls a second, one at a time
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "100,1000,5000,10000,20000")]
    rate: Vec<u32>,

    /// What carries the calls: wake (two bare rings), tonic-unix, tollfree, tollfree-direct, tollfree-blocking [default: all]
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    side: Vec<PacedSide>,

    /// Where the two processes run: split (a core each), same-core, unpinned
    #[arg(long, value_name = "PLACE,...", value_delimiter = ',', default_value = "unpinned")]
    placement: Vec<Placement>,

    /// The tokio runtime in both processes: current (one thread), multi (two workers)
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', default_value = "multi")]
    runtime: Vec<RuntimeKind>,

    /// How both ends of a session wait: default, low-latency, park
    #[arg(long, value_name = "WAIT,...", value_delimiter = ',', default_value = "default")]
    wait: Vec<Wait>,

    /// What the server may use: none, or a number of cores such as 0.5, by a control group
    #[arg(long, value_name = "CORES,...", value_delimiter = ',', default_value = "none")]
    quota: Vec<Quota>,

    /// Measured time for each row and round, without the warm-up before it
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,

    /// Rounds; all rows run once in each
    #[arg(long, value_name = "R", default_value_t = 3)]
    rounds: usize,

    /// Directory for the raw data, the table and the plot [default: bench-out/paced-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

impl PacedArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let plan = PacedPlan {
            rates: self.rate,
            sides: if self.side.is_empty() { PacedSide::ALL.to_vec() } else { self.side },
            placements: self.placement,
            runtimes: self.runtime,
            waits: self.wait,
            quotas: self.quota,
            seconds: self.seconds,
            rounds: self.rounds,
        };
        plan.check()?;
        warn_of_debug_build();
        let terminal = std::io::stderr().is_terminal();
        let measured = paced::run(&plan, |step| {
            let case = &step.case;
            let outcome = step.outcome.map_or_else(
                |why| format!("failed: {why}"),
                |ns| format!("p50 {:.2} us", *ns as f64 / 1000.0),
            );
            tell(
                terminal,
                step.outcome.is_err(),
                &format!(
                    "{:>3} of {} · round {} · {} · {}/s, {}, {}, {}, quota {} · {outcome}",
                    step.done,
                    step.total,
                    step.round,
                    case.side,
                    case.rate,
                    case.placement,
                    case.runtime,
                    case.wait,
                    case.quota
                ),
            );
        });
        let report = until_interrupted(measured)???;
        clear(terminal);
        let dir = out(self.out, "paced", &report.machine.started_at);
        report.save(&dir)?;
        eprintln!("raw data, table and plot are in {}", dir.display());
        print(&if self.json { report.json() + "\n" } else { report.table() })?;
        // A quota that this machine does not grant is no failure.
        let is_failure = |why: &str| !why.starts_with("not run");
        failures(report.failures().filter(|row| row.not_run.as_deref().is_some_and(is_failure)).count())
    }
}

/// Options of `tollfree-lab bench crowd`. Lists are separated by commas; every combination is a row.
#[derive(Debug, Args)]
pub(crate) struct CrowdArgs {
    /// Client processes that call one server
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "8")]
    clients: Vec<usize>,

    /// Calls that each client has outstanding at any time
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,8")]
    inflight: Vec<usize>,

    /// Calls a second that each of these is called at [default: none, a closed loop]
    #[arg(long, value_name = "N")]
    rate: Option<u32>,

    /// What carries the calls: tonic-unix, tonic-tcp, tollfree, tollfree-direct, tollfree-blocking, tollfree-park
    #[arg(
        long,
        value_name = "SIDE,...",
        value_delimiter = ',',
        default_value = "tonic-unix,tollfree,tollfree-direct"
    )]
    side: Vec<Side>,

    /// The tokio runtime in all processes: current (one thread), multi (two workers)
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', default_value = "multi")]
    runtime: Vec<RuntimeKind>,

    /// Measured time for each row and round, without the warm-up before it
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,

    /// Rounds; all rows run once in each
    #[arg(long, value_name = "R", default_value_t = 3)]
    rounds: usize,

    /// Directory for the raw data and the table [default: bench-out/crowd-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

impl CrowdArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let plan = CrowdPlan {
            sides: self.side,
            clients: self.clients,
            inflights: self.inflight,
            rate: self.rate,
            runtimes: self.runtime,
            seconds: self.seconds,
            rounds: self.rounds,
        };
        plan.check()?;
        warn_of_debug_build();
        let terminal = std::io::stderr().is_terminal();
        let measured = crowd::run(&plan, |step| {
            let case = &step.case;
            let outcome = step.outcome.map_or_else(
                |why| format!("failed: {why}"),
                |round| format!("{:.0} calls/s, fairness {:.2}", round.rate(), round.fairness()),
            );
            tell(
                terminal,
                step.outcome.is_err(),
                &format!(
                    "{:>3} of {} · round {} · {} · {} clients, {} in flight, {} · {outcome}",
                    step.done, step.total, step.round, case.side, case.clients, case.inflight, case.runtime
                ),
            );
        });
        let report = until_interrupted(measured)???;
        clear(terminal);
        let dir = out(self.out, "crowd", &report.machine.started_at);
        report.save(&dir)?;
        eprintln!("raw data and table are in {}", dir.display());
        print(&if self.json { report.json() + "\n" } else { report.table() })?;
        failures(report.failures().count())
    }
}

pub(crate) fn warn_of_debug_build() {
    if cfg!(debug_assertions) {
        eprintln!("tollfree-lab: this is a debug build; its figures mean nothing");
    }
}

/// Tells how far a run is: one line that changes on a terminal, where a failure stays to be read.
pub(crate) fn tell(terminal: bool, failed: bool, line: &str) {
    match (terminal, failed) {
        (true, false) => eprint!("\r\x1b[K{line}"),
        (true, true) => eprintln!("\r\x1b[K{line}"),
        (false, _) => eprintln!("{line}"),
    }
}

pub(crate) fn clear(terminal: bool) {
    if terminal {
        eprint!("\r\x1b[K");
    }
}

pub(crate) fn out(dir: Option<PathBuf>, name: &str, started_at: &str) -> PathBuf {
    dir.unwrap_or_else(|| PathBuf::from(format!("bench-out/{name}-{}", started_at.replace(['-', ':'], ""))))
}

pub(crate) fn failures(count: usize) -> Result<(), Failure> {
    match count {
        0 => Ok(()),
        count => Err(Failure::Failed(format!("{count} rows failed; the result says why"))),
    }
}
