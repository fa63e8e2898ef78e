//! `tollfree-lab bench paced` and `tollfree-lab bench crowd`: how the two ends wait, and what that costs.

use clap::Args;
use tollfree_bench::crowd::{self, CrowdPlan};
use tollfree_bench::harness::Lasting;
use tollfree_bench::paced::{self, PacedPlan, Quota};
use tollfree_bench::plan::{PacedSide, Placement, RuntimeKind, Side, Wait};

use crate::failure::Failure;
use crate::measuring::{Output, measure, or};

/// Options of `tollfree-lab bench paced`. Lists are separated by commas; every combination is a row.
#[derive(Debug, Args)]
pub(crate) struct PacedArgs {
    /// Calls a second, one at a time
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "100,1000,5000,10000,20000")]
    rate: Vec<u32>,

    /// What carries the calls: wake (two bare rings), tonic-unix, tollfree, tollfree-direct, tollfree-blocking, go, grpc-go, python,
    /// python-inline, grpcio
    /// [default: all]
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

    #[command(flatten)]
    output: Output,
}

impl PacedArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let plan = PacedPlan {
            rates: self.rate,
            sides: or(self.side, PacedSide::ALL),
            placements: self.placement,
            runtimes: self.runtime,
            waits: self.wait,
            quotas: self.quota,
            lasting: Lasting { seconds: self.seconds, rounds: self.rounds },
        };
        let report = measure(async |tell| paced::run(&plan, tell).await)?;
        self.output.give("paced", &report)
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

    #[command(flatten)]
    output: Output,
}

impl CrowdArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let plan = CrowdPlan {
            sides: self.side,
            clients: self.clients,
            inflights: self.inflight,
            rate: self.rate,
            runtimes: self.runtime,
            lasting: Lasting { seconds: self.seconds, rounds: self.rounds },
        };
        let report = measure(async |tell| crowd::run(&plan, tell).await)?;
        self.output.give("crowd", &report)
    }
}
