//! `tollfree-lab bench split`: RPC work beside business, and outside.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use tollfree_bench::interrupt::until_interrupted;
use tollfree_bench::split::{self, BeyondPlan, SplitMessage, SplitPlan, SplitSide};

use crate::bench::print;
use crate::bench_paced::{clear, failures, out, tell, warn_of_debug_build};
use crate::failure::Failure;

/// Options of `tollfree-lab bench split`. Lists are separated by commas; every combination is a row.
#[derive(Debug, Args)]
pub(crate) struct SplitArgs {
    /// What stands between client and business: tonic (nothing), tonic-tls (nothing, over TCP with TLS), shepherd-stream (over TCP with
    /// TLS, as on another host), shepherd-bytes, shepherd-low-latency, shepherd-objects,
    /// shepherd-trusted, envoy, nginx [default: all]
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    side: Vec<SplitSide>,

    /// What travels, there and back: echo64, M3, M43, M34 [default: all]
    #[arg(long, value_name = "MESSAGE,...", value_delimiter = ',')]
    message: Vec<SplitMessage>,

    /// Measure a shepherd's own answers (health, a refusal, a call of another group) while calls come at FACTOR times what the
    /// business core can do, 1.2 unless given; each message with each time of business is a case
    #[arg(long, value_name = "FACTOR", num_args = 0..=1, require_equals = true, default_missing_value = "1.2")]
    beyond: Option<f64>,

    /// Calls outstanding at any time; with --beyond, the most of them find the knee
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,64")]
    inflight: Vec<usize>,

    /// Nanoseconds that the handler is busy in each call [default: 0,5000,20000,100000,500000; with --beyond: 200000,1000000]
    #[arg(long, value_name = "NS,...", value_delimiter = ',')]
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

/// What `--beyond` is measured with, unless told otherwise.
const BEYOND_BUSY_NS: [u64; 2] = [200_000, 1_000_000];
/// The sweep.
const BUSY_NS: [u64; 5] = [0, 5000, 20_000, 100_000, 500_000];

fn or<T: Clone>(given: Vec<T>, else_these: &[T]) -> Vec<T> {
    if given.is_empty() { else_these.to_vec() } else { given }
}

impl SplitArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if let Some(share) = self.beyond {
            return self.run_beyond(share);
        }
        let plan = SplitPlan {
            sides: or(self.side, SplitSide::ALL),
            messages: or(self.message, SplitMessage::ALL),
            inflights: self.inflight,
            busy_ns: or(self.busy_ns, &BUSY_NS),
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

    fn run_beyond(self, share: f64) -> Result<(), Failure> {
        let split = SplitPlan {
            sides: or(self.side, &[SplitSide::ShepherdBytes]),
            messages: or(self.message, &[SplitMessage::Echo64]),
            inflights: self.inflight,
            busy_ns: or(self.busy_ns, &BEYOND_BUSY_NS),
            seconds: self.seconds,
            rounds: self.rounds,
            corpus: self.corpus,
        };
        let plan = BeyondPlan { split, share };
        plan.check()?;
        warn_of_debug_build();
        let terminal = std::io::stderr().is_terminal();
        let measured = split::run_beyond(&plan, |step| {
            let case = &step.case;
            let outcome = step.outcome.map_or_else(
                |why| format!("no figures: {why}"),
                |knee| format!("{knee:.0} calls/s at the knee"),
            );
            tell(
                terminal,
                step.outcome.is_err(),
                &format!(
                    "{:>3} of {} · round {} · {}, busy {} ns · {outcome}",
                    step.done, step.total, step.round, case.message, case.busy_ns
                ),
            );
        });
        let report = until_interrupted(measured)???;
        clear(terminal);
        let dir = out(self.out, "split-beyond", &report.machine.started_at);
        report.save(&dir)?;
        eprintln!("raw data and table are in {}", dir.display());
        print(&if self.json { report.json() + "\n" } else { report.table() })?;
        failures(report.failures().count())
    }
}
