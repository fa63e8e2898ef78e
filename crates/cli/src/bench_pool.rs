//! `tollfree bench pool`: passing by reference.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tollfree_bench::interrupt::until_interrupted;
use tollfree_bench::pool::{self, Figure, PoolPlan};

use crate::bench::print;
use crate::failure::Failure;

/// Options of `tollfree bench pool`.
#[derive(Debug, Args)]
pub(crate) struct PoolArgs {
    /// What to measure
    figure: FigureArg,

    /// Rounds; all rows run once in each
    #[arg(long, value_name = "R", default_value_t = 15)]
    rounds: usize,

    /// Operations of a row in a round, at most
    #[arg(long, value_name = "N", default_value_t = 64)]
    count: usize,

    /// Directory for the raw data, the table and the plot [default: bench-out/pool-FIGURE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FigureArg {
    /// DmRPC's figure 7: create_ref of 4 to 512 KiB, copy-on-write against copy
    Fig7,
    /// DmRPC's figure 8: a block of 32 KiB, of which the receiver writes a part
    Fig8,
    /// Single operations, and three ways to write a hold
    Micro,
}

impl PoolArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if cfg!(debug_assertions) {
            eprintln!("tollfree: this is a debug build; its figures mean nothing");
        }
        let (figure, name) = match self.figure {
            FigureArg::Fig7 => (Figure::Fig7, "fig7"),
            FigureArg::Fig8 => (Figure::Fig8, "fig8"),
            FigureArg::Micro => (Figure::Micro, "micro"),
        };
        let plan = PoolPlan { figure, rounds: self.rounds, count: self.count };
        let progress = |done, total| eprintln!("round {done} of {total}");
        let report = until_interrupted(pool::run(&plan, progress))???;
        let began = report.machine.started_at.replace(['-', ':'], "");
        let dir = self.out.unwrap_or_else(|| PathBuf::from(format!("bench-out/pool-{name}-{began}")));
        report.save(&dir)?;
        print(&if self.json { report.json() + "\n" } else { report.table() })?;
        eprintln!("raw data, table and plot are in {}", dir.display());
        Ok(())
    }
}
