//! `tollfree bench split`: RPC work beside business, and outside.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use tollfree_bench::interrupt::until_interrupted;
use tollfree_bench::split::{self, SplitMessage, SplitPlan, SplitSide};

use crate::bench::print;
use crate::bench_paced::{clear, failures, out, tell, warn_of_debug_build};
use crate::failure::Failure;

/// Options of `tollfree bench split`. Lists are separated by commas; every combination is a row.
#[derive(Debug, Args)]
pub(crate) struct SplitArgs {
    /// What stands between client and business: tonic (nothing), shepherd-bytes, envoy, nginx [default: all]
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    side: Vec<SplitSide>,

    /// What travels, there and back: echo64, M3, M43, M34 [default: all]
    #[arg(long, value_name = "MESSAGE,...", value_delimiter = ',')]
    message: Vec<SplitMessage>,

    /// Calls outstanding at any time
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,64")]
    inflight: Vec<usize>,

    /// Nanoseconds that the handler is busy in each call
    #[arg(long, value_name = "NS,...", value_delimiter = ',', default_value = "0,5000,20000,100000,500000")]
    busy_ns: Vec<u64>,

    /// Measured time for each row and round, without the warm-up before it
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    seconds: f64,

    /// Rounds; all rows run once in each
    #[arg(long, value_name = "R", default_value_t = 3)]
    rounds: usize,

    /// Directory of a HyperProtoBench corpus, for M3, M43 and M34; without it, generated messages
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,

    /// Directory for the raw data, the table and the plot [default: bench-out/split-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

impl SplitArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let plan = SplitPlan {
            sides: if self.side.is_empty() { SplitSide::ALL.to_vec() } else { self.side },
            messages: if self.message.is_empty() { SplitMessage::ALL.to_vec() } else { self.message },
            inflights: self.inflight,
            busy_ns: self.busy_ns,
            seconds: self.seconds,
            rounds: self.rounds,
            corpus: self.corpus,
        };
        plan.check()?;
        warn_of_debug_build();
        let terminal = std::io::stderr().is_terminal();
        let measured = split::run(&plan, |step| {
            let case = &step.case;
            let outcome = step
                .outcome
                .map_or_else(|why| format!("no figures: {why}"), |rate| format!("{rate:.0} calls/s"));
            tell(
                terminal,
                step.outcome.is_err(),
                &format!(
                    "{:>3} of {} · round {} · {} · {}, {} in flight, busy {} ns · {outcome}",
                    step.done, step.total, step.round, case.side, case.message, case.inflight, case.busy_ns
                ),
            );
        });
        let report = until_interrupted(measured)???;
        clear(terminal);
        let dir = out(self.out, "split", &report.machine.started_at);
        report.save(&dir)?;
        eprintln!("raw data, table and plot are in {}", dir.display());
        print(&if self.json { report.json() + "\n" } else { report.table() })?;
        // A proxy that this machine has not is no failure.
        let is_failure = |why: &str| !why.starts_with("not run");
        failures(report.failures().filter(|row| row.not_run.as_deref().is_some_and(is_failure)).count())
    }
}
