//! `tollfree-lab bench device`: Dagger's figures 5 and 6 for the interface to business processes.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use tollfree_bench::device::{self, Batch, DevicePlan, DoorbellMode};
use tollfree_bench::interrupt::until_interrupted;
use tollfree_bench::plan::Placement;

use crate::bench::print;
use crate::bench_paced::{clear, failures, out, tell, warn_of_debug_build};
use crate::failure::Failure;

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

    /// Directory for the raw data, the table and the plot [default: bench-out/device-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
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
            seconds: self.seconds,
            rounds: self.rounds,
        };
        plan.check()?;
        warn_of_debug_build();
        let terminal = std::io::stderr().is_terminal();
        let measured = device::run(&plan, |step| {
            let case = &step.case;
            let outcome = step
                .outcome
                .map_or_else(|why| format!("failed: {why}"), |rate| format!("{rate:.0} calls a second"));
            let mode = case.name();
            let pace = case
                .rate
                .map_or_else(|| format!("{} in flight", case.inflight), |rate| format!("{rate} a second"));
            tell(
                terminal,
                step.outcome.is_err(),
                &format!(
                    "{:>3} of {} · round {} · {mode}, batch {}, {pace}, {} threads, {} · {outcome}",
                    step.done, step.total, step.round, case.batch.0, case.threads, case.placement
                ),
            );
        });
        let report = until_interrupted(measured)???;
        clear(terminal);
        let dir = out(self.out, "device", &report.machine.started_at);
        report.save(&dir)?;
        eprintln!("raw data, table and plot are in {}", dir.display());
        print(&if self.json { report.json() + "\n" } else { report.table() })?;
        failures(report.failures().count())
    }
}
