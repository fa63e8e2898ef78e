//! `tollfree-lab figure notnets-table1` and `notnets-fig1`: that paper's measurements of what an RPC stack costs.

use std::path::PathBuf;

use clap::Args;
use tollfree_bench::harness::Lasting;
use tollfree_bench::layers::{self, LayersPlan};
use tollfree_bench::plan::Placement;
use tollfree_bench::{echo, notnets};

use crate::failure::Failure;
use crate::measuring::{Output, measure};

/// Options of `tollfree-lab figure notnets-table1`.
#[derive(Debug, Args)]
pub(crate) struct Table1Args {
    /// Calls of each side, one after the other
    #[arg(long, value_name = "N", default_value_t = notnets::CALL_COUNT)]
    calls: u64,

    /// Where the two processes run: split (a core each), same-core, unpinned
    #[arg(long, value_name = "PLACE", default_value = "split")]
    placement: Placement,

    #[command(flatten)]
    output: Output,
}

impl Table1Args {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let plan = notnets::table1_plan(self.calls, self.placement);
        let report = measure(async |tell| echo::run(&plan, tell).await)?;
        let table = notnets::table1(&report);
        self.output.give_with("notnets-table1", &report, table)
    }
}

/// Options of `tollfree-lab figure notnets-fig1`.
#[derive(Debug, Args)]
pub(crate) struct Fig1Args {
    /// Directory of a HyperProtoBench corpus, for its message M54 [default: a look-alike is generated]
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,

    /// Measured time for each message, carrier and round, without the warm-up before it
    #[arg(long, value_name = "S", default_value_t = 0.6)]
    seconds: f64,

    /// Rounds; everything runs once in each
    #[arg(long, value_name = "R", default_value_t = 5)]
    rounds: usize,

    #[command(flatten)]
    output: Output,
}

impl Fig1Args {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let lasting = Lasting { seconds: self.seconds, rounds: self.rounds };
        let plan = LayersPlan { corpus: self.corpus, lasting };
        let report = measure(async |tell| layers::run(&plan, tell).await)?;
        self.output.give("notnets-fig1", &report)
    }
}
