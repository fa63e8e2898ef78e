//! `tollfree-lab bench pool`: a memory pool's single operations, and one hop through it.

use clap::{Args, ValueEnum};
use tollfree_bench::pool::{self, Figure, PoolPlan};

use crate::failure::Failure;
use crate::measuring::{Output, measure};

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

    #[command(flatten)]
    output: Output,
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
        let plan = PoolPlan {
            figure,
            rounds: self.rounds,
            count: self.count,
            python: python.unwrap_or_else(|| "python3".to_owned()),
        };
        let report = measure(async |tell| pool::run(&plan, tell).await)?;
        self.output.give(name, &report)
    }
}
