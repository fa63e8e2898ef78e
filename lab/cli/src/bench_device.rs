//! `tollfree-lab bench device`: Dagger's figures 5 and 6 for the interface to backends.

use clap::Args;
use tollfree_bench::device::{self, Batch, DevicePlan, DoorbellMode};
use tollfree_bench::harness::Lasting;
use tollfree_bench::plan::Placement;

use crate::failure::Failure;
use crate::measuring::{Output, measure};

/// Options of `tollfree-lab bench device`. Lists are separated by commas; every combination is a row.
#[derive(Debug, Args)]
#[command(after_help = "\
Figure 5: `tollfree-lab bench device`. Figure 6: `tollfree-lab bench device --mode coherent:4 --batch auto,1,4,16 --threads 1,2
--rate 20000,50000,100000,200000,400000`. The last lines compare with what is wanted.")]
pub(crate) struct DeviceArgs {
    /// How the process that echoes learns of requests: auto, inline, doorbell, doorbell-batch:N, coherent:N
    #[arg(
        long,
        value_name = "MODE,...",
        value_delimiter = ',',
        default_value = "inline,doorbell,doorbell-batch:3,doorbell-batch:7,doorbell-batch:11,coherent:1,coherent:4,auto"
    )]
    mode: Vec<DoorbellMode>,

    /// Requests that are published together: auto, or 1 to 64 [default: 1, and auto for auto and coherent beyond 1]
    #[arg(long, value_name = "BATCH,...", value_delimiter = ',')]
    batch: Vec<Batch>,

    /// Calls in flight in a closed loop
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,16,64")]
    inflight: Vec<usize>,

    /// Calls a second [default: none, a closed loop]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    rate: Vec<u32>,

    /// Beside them a row in which all registers change, one every 2 ms
    #[arg(long)]
    changing: bool,

    /// Where processes of one thread run: split (a core each), same-core, unpinned
    #[arg(long, value_name = "PLACE,...", value_delimiter = ',', default_value = "split")]
    placement: Vec<Placement>,

    /// Threads of each process: 1 is placed as said, 2 share all cores
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1")]
    threads: Vec<usize>,

    /// Measured time for each row and round, without the warm-up before it
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    seconds: f64,

    /// Rounds; all rows run once in each
    #[arg(long, value_name = "R", default_value_t = 3)]
    rounds: usize,

    #[command(flatten)]
    output: Output,
}

impl DeviceArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let plan = DevicePlan {
            modes: self.mode,
            batches: self.batch,
            inflights: self.inflight,
            rates: self.rate,
            changing: self.changing,
            threads: self.threads,
            placements: self.placement,
            lasting: Lasting { seconds: self.seconds, rounds: self.rounds },
        };
        let report = measure(async |tell| device::run(&plan, tell).await)?;
        self.output.give("device", &report)
    }
}
