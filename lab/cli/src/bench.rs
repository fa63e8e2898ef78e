//! `tollfree-lab bench`: what this machine gives.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use tollfree_bench::cores::Cores;
use tollfree_bench::echo::{self, Step};
use tollfree_bench::idle::{self, IdlePlan};
use tollfree_bench::interrupt::until_interrupted;
use tollfree_bench::plan::{Malloc, Message, Placement, Plan, RuntimeKind, Side};
use tollfree_bench::report::Report;

use crate::bench_codec::CodecArgs;
use crate::bench_device::DeviceArgs;
use crate::bench_fault::FaultArgs;
use crate::bench_hostile::HostileArgs;
use crate::bench_paced::{CrowdArgs, PacedArgs};
use crate::bench_pool::PoolArgs;
use crate::bench_split::SplitArgs;
use crate::failure::Failure;

/// What `tollfree-lab bench` can measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Time echo calls between two processes: Tollfree, stock tonic and the floor
    Echo(EchoArgs),
    /// Time calls that come at a rate, and count what they cost both ends
    Paced(PacedArgs),
    /// Time many client processes that call one server: rate, fairness, worst call
    Crowd(CrowdArgs),
    /// Repeat Split gRPC's figure 2: what RPC work costs a business core, inside of it and in a shepherd
    Split(SplitArgs),
    /// Repeat Dagger's figures 5 and 6: an echo over the interface to business processes, in each mode and batch
    Device(DeviceArgs),
    /// Time decoding, encoding, verifying and reading messages, beside other protobuf libraries
    Codec(CodecArgs),
    /// Time single operations of a memory pool, and one hop through it
    Pool(PoolArgs),
    /// Time a good client of a shepherd beside clients and processes that mean it no good
    Hostile(HostileArgs),
    /// Count what many idle sessions cost in processor time and memory
    IdleSessions(IdleArgs),
    /// Restart the server of a client that calls all the time, and time how long calls go on failing
    Fault(FaultArgs),
}

impl Bench {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Echo(arguments) => arguments.run(),
            Self::Paced(arguments) => arguments.run(),
            Self::Crowd(arguments) => arguments.run(),
            Self::Split(arguments) => arguments.run(),
            Self::Device(arguments) => arguments.run(),
            Self::Codec(arguments) => arguments.run(),
            Self::Pool(arguments) => arguments.run(),
            Self::Hostile(arguments) => arguments.run(),
            Self::IdleSessions(arguments) => arguments.run(),
            Self::Fault(arguments) => arguments.run(),
        }
    }
}

/// Options of `tollfree-lab bench echo`. Lists are separated by commas; every combination is a row.
#[derive(Debug, Args)]
pub(crate) struct EchoArgs {
    /// What a call carries: probe (bytes in one field), M3, order, fds (every field is read at both ends, and a reply with the same fields
    /// is built), fds-copy (the reply is a copy)
    #[arg(long, value_name = "MESSAGE,...", value_delimiter = ',', default_value = "probe")]
    message: Vec<Message>,

    /// Directory of a corpus, HyperProtoBench-like or of orders, or of several; else messages are kept or generated ones
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,

    /// Bytes in the request's and the reply's body of a probe
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "64,4096,65536,1048576")]
    size: Vec<usize>,

    /// Metadata pairs in the request, and as many in the reply; sides without metadata have rows for 0 only
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "0")]
    metadata: Vec<usize>,

    /// Calls outstanding at any time
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,64")]
    inflight: Vec<usize>,

    /// Where the two processes run: split (a core each), same-core, unpinned
    #[arg(long, value_name = "PLACE,...", value_delimiter = ',', default_value = "split")]
    placement: Vec<Placement>,

    /// What carries the calls: floor, iceoryx2, session, tollfree-direct, tollfree-view, tollfree-view-pool,
    /// tollfree-ref, tollfree-blocking, tollfree, tollfree-park, tollfree-upgrade, tollfree-shortcut,
    /// tonic-unix, tonic-tcp [default: all]
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    side: Vec<Side>,

    /// The tokio runtime in both processes: current (one thread), multi (two workers)
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', default_value = "current")]
    runtime: Vec<RuntimeKind>,

    /// Measured time for each row and round, without the warm-up before it
    #[arg(long, value_name = "S", default_value_t = 0.25)]
    seconds: f64,

    /// Rounds; all rows run once in each
    #[arg(long, value_name = "R", default_value_t = 3)]
    rounds: usize,

    /// What malloc does with free memory, on all sides: keep (up to 64 MiB stay with the process), system (as it is)
    #[arg(long, value_name = "SETTING", default_value = "keep")]
    malloc: Malloc,

    /// Directory for the raw data, the table and the plot [default: bench-out/echo-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

impl EchoArgs {
    fn plan(&self) -> Plan {
        Plan {
            messages: self.message.clone(),
            corpus: self.corpus.clone(),
            sizes: self.size.clone(),
            metadata: self.metadata.clone(),
            inflights: self.inflight.clone(),
            placements: self.placement.clone(),
            sides: if self.side.is_empty() { Side::ALL.to_vec() } else { self.side.clone() },
            runtimes: self.runtime.clone(),
            seconds: self.seconds,
            calls: None,
            rounds: self.rounds,
            malloc: self.malloc,
        }
    }

    fn run(self) -> Result<(), Failure> {
        let plan = self.plan();
        plan.check()?;
        let cores = Cores::choose()?;
        for placement in &plan.placements {
            cores.seats(*placement)?;
        }
        if cfg!(debug_assertions) {
            eprintln!("tollfree-lab: this is a debug build; its figures mean nothing");
        }
        let report = measure(&plan)?;
        keep(&report, "echo", self.out)?;
        print(&if self.json { report.json() + "\n" } else { report.table() })?;
        failures(&report)
    }
}

/// Measures a plan, and tells how far it is.
pub(crate) fn measure(plan: &Plan) -> Result<Report, Failure> {
    let mut progress = Progress::new();
    let report = until_interrupted(echo::run(plan, |step| progress.show(step)))???;
    progress.end();
    Ok(report)
}

/// Writes raw data, table and plot.
pub(crate) fn keep(report: &Report, name: &str, dir: Option<PathBuf>) -> Result<(), Failure> {
    let began = report.machine.started_at.replace(['-', ':'], "");
    let dir = dir.unwrap_or_else(|| PathBuf::from(format!("bench-out/{name}-{began}")));
    report.save(&dir)?;
    eprintln!("raw data, table and plot are in {}", dir.display());
    Ok(())
}

pub(crate) fn failures(report: &Report) -> Result<(), Failure> {
    match report.failures().count() {
        0 => Ok(()),
        count => Err(Failure::Failed(format!("{count} rows failed; the result says why"))),
    }
}

/// Options of `tollfree-lab bench idle-sessions`.
#[derive(Debug, Args)]
pub(crate) struct IdleArgs {
    /// What the sessions are of: tollfree, tonic-unix, tonic-tcp
    #[arg(long, default_value = "tollfree")]
    side: Side,

    /// Sessions between one server and one client process
    #[arg(long, value_name = "N", default_value_t = 1000)]
    sessions: usize,

    /// Body of the one call that each session carries, in bytes
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    size: usize,

    /// Measured time in seconds
    #[arg(long, value_name = "S", default_value_t = 5)]
    seconds: u32,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

impl IdleArgs {
    fn run(self) -> Result<(), Failure> {
        let plan = IdlePlan {
            side: self.side,
            sessions: self.sessions,
            size: self.size,
            settle: Duration::from_secs(3),
            measure: Duration::from_secs(self.seconds.max(1).into()),
        };
        let report = until_interrupted(idle::run(&plan, |step| eprintln!("{step}")))???;
        print(&if self.json { report.json() + "\n" } else { report.table() })
    }
}

/// Tells how far a run is: one line that changes on a terminal, a line for each measurement elsewhere.
struct Progress {
    terminal: bool,
}

impl Progress {
    fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal() }
    }

    fn show(&mut self, step: &Step<'_>) {
        let case = &step.case;
        let outcome = match step.outcome {
            Ok(round) => format!("p50 {:.2} us", round.p50_ns as f64 / 1000.0),
            Err(why) => format!("failed: {why}"),
        };
        let metadata = if case.metadata == 0 { String::new() } else { format!(" + {} pairs", case.metadata) };
        let line = format!(
            "{:>3} of {} · round {} · {} · {}{metadata}, {} in flight, {}, {} · {outcome}",
            step.done,
            step.total,
            step.round,
            case.side,
            case.payload(),
            case.inflight,
            case.placement,
            case.runtime,
        );
        // A failure must stay to be read.
        match (self.terminal, step.outcome) {
            (true, Ok(_)) => eprint!("\r\x1b[K{line}"),
            (true, Err(_)) => eprintln!("\r\x1b[K{line}"),
            (false, _) => eprintln!("{line}"),
        }
    }

    fn end(&mut self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}

/// Writes a result. A reader that has gone is no reason to fail loudly, but one to fail.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::Failed(format!("cannot write the result: {error}")))
}
