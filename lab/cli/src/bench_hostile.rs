//! `tollfree-lab bench hostile`: a good client beside those who mean a shepherd no good.

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use tollfree_bench::hostile::{self, Attack, HostilePlan};
use tollfree_bench::interrupt::until_interrupted;

use crate::bench::print;
use crate::bench_paced::{clear, failures, out, tell, warn_of_debug_build};
use crate::failure::Failure;

/// Options of `tollfree-lab bench hostile`.
#[derive(Debug, Args)]
pub(crate) struct HostileArgs {
    /// The attacks [default: all]: unfinished-requests, missing-byte, idle-readers, connections, absent-group, newcomers, via
    #[arg(long, value_name = "ATTACK,...", value_delimiter = ',')]
    attack: Vec<Attack>,

    /// Measured time for each row and round, once with the attack and once without, beside the warm-up
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    seconds: f64,

    /// Rounds; all rows run once in each
    #[arg(long, value_name = "R", default_value_t = 5)]
    rounds: usize,

    /// Fail where the good client keeps less than 0.9 of its rate, or its p99 more than doubles
    #[arg(long)]
    check: bool,

    /// Directory for the raw data and the table [default: bench-out/hostile-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

impl HostileArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let attacks = if self.attack.is_empty() { Attack::ALL.to_vec() } else { self.attack };
        let plan = HostilePlan { attacks, seconds: self.seconds, rounds: self.rounds };
        plan.check()?;
        warn_of_debug_build();
        let terminal = std::io::stderr().is_terminal();
        let measured = hostile::run(&plan, |step| {
            let outcome = step.outcome.map_or_else(
                |why| format!("failed: {why}"),
                |round| format!("{:.0} calls/s, p99 {:.1} us", round.rate_per_s, round.p99_ns as f64 / 1e3),
            );
            let what = if step.case.is_quiet { "without" } else { "with" };
            tell(
                terminal,
                step.outcome.is_err(),
                &format!(
                    "{:>3} of {} · round {} · {what} {} · {outcome}",
                    step.done, step.total, step.round, step.case.attack
                ),
            );
        });
        let report = until_interrupted(measured)???;
        clear(terminal);
        let dir = out(self.out, "hostile", &report.machine.started_at);
        report.save(&dir)?;
        eprintln!("raw data and table are in {}", dir.display());
        print(&if self.json { report.json() + "\n" } else { report.table() })?;
        failures(report.failures().count())?;
        let starved: Vec<_> = report.starved().map(|row| row.attack.name()).collect();
        match starved.is_empty() || !self.check {
            true => Ok(()),
            false => {
                Err(Failure::Failed(format!("the good client got too little beside {}", starved.join(", "))))
            }
        }
    }
}
