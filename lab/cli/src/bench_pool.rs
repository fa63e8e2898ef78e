//! `tollfree-lab bench pool`: a memory pool's single operations, and one hop through it.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tollfree_bench::interrupt::until_interrupted;
use tollfree_bench::pool::{self, Figure, PoolPlan};

use crate::bench::print;
use crate::bench_paced::{out, warn_of_debug_build};
use crate::failure::Failure;

/// Options of `tollfree-lab bench pool`.
#[derive(Debug, Args)]
pub(crate) struct PoolArgs {
    /// What to measure
    what: What,

    #[command(flatten)]
    run: PoolRun,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    /// One hop, one way, of 64 KiB to 1 MiB, beside iceoryx2's publish-subscribe (`make bench-peers`)
    Hop,
    /// Single operations, and three ways to write a hold
    Micro,
}

/// How long to measure operations of a pool, and where the result goes.
#[derive(Debug, Args)]
pub(crate) struct PoolRun {
    /// Rounds; all rows run once in each
    #[arg(long, value_name = "R", default_value_t = 15)]
    rounds: usize,

    /// Operations of a row in a round, at most
    #[arg(long, value_name = "N", default_value_t = 64)]
    count: usize,

    /// Directory for the raw data, the table and the plot [default: bench-out/NAME-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

impl PoolArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.what {
            What::Hop => self.run.measure(Figure::Hop, "pool-hop", None),
            What::Micro => self.run.measure(Figure::Micro, "pool-micro", None),
        }
    }
}

impl PoolRun {
    /// Measures, with the object store of a Python's Ray beside where there is one to name.
    pub(crate) fn measure(self, figure: Figure, name: &str, python: Option<String>) -> Result<(), Failure> {
        warn_of_debug_build();
        let plan = PoolPlan {
            figure,
            rounds: self.rounds,
            count: self.count,
            python: python.unwrap_or_else(|| "python3".to_owned()),
        };
        let progress = |done, total| eprintln!("round {done} of {total}");
        let report = until_interrupted(pool::run(&plan, progress))???;
        let dir = out(self.out, name, &report.machine.started_at);
        report.save(&dir)?;
        print(&if self.json { report.json() + "\n" } else { report.table() })?;
        eprintln!("raw data, table and plot are in {}", dir.display());
        Ok(())
    }
}
