//! `tollfree-lab bench fault`: how long calls go on failing when a fault is over.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tollfree_bench::fault::{self, FaultKind, FaultPlan};
use tollfree_bench::interrupt::until_interrupted;
use tollfree_bench::plan::Side;

use crate::bench::print;
use crate::failure::Failure;

/// Options of `tollfree-lab bench fault`. Lists are separated by commas; every combination is a row.
#[derive(Debug, Args)]
pub(crate) struct FaultArgs {
    /// What goes wrong: restart (the server's process is killed and started anew)
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', default_value = "restart")]
    kind: Vec<FaultKind>,

    /// What carries the calls: tollfree, tollfree-park, tollfree-direct, tonic-unix [default: all]
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    side: Vec<Side>,

    /// How often it goes wrong
    #[arg(long, value_name = "N", default_value_t = 20)]
    faults: usize,

    /// How long nobody is there, in milliseconds, beside the time that a process takes to start
    #[arg(long, value_name = "MS", default_value_t = 50)]
    down: u64,

    /// Directory for the raw data and the table [default: bench-out/fault-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

impl FaultArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let plan = FaultPlan {
            kinds: self.kind,
            sides: if self.side.is_empty() { FaultPlan::SIDES.to_vec() } else { self.side },
            count: self.faults,
            down: Duration::from_millis(self.down),
        };
        plan.check()?;
        let report = until_interrupted(fault::run(&plan, |row| eprintln!("{row}")))???;
        let began = report.machine.started_at.replace(['-', ':'], "");
        let dir = self.out.unwrap_or_else(|| PathBuf::from(format!("bench-out/fault-{began}")));
        report.save(&dir)?;
        eprintln!("raw data and table are in {}", dir.display());
        print(&if self.json { report.json() + "\n" } else { report.table() })?;
        match report.failures().count() {
            0 => Ok(()),
            count => Err(Failure::Failed(format!("{count} rows failed; the result says why"))),
        }
    }
}
