//! `tollfree-lab figure dmrpc-fig5` to `dmrpc-fig11`: passing by reference, as that paper measures it.

use clap::Args;
use tollfree_bench::pool::Figure;
use tollfree_workloads::{Figure as WorkloadFigure, Plan, Side};

use crate::bench_pool::PoolRun;
use crate::failure::Failure;
use crate::figure::Instead;
use crate::measuring::{Output, or};
use crate::workload;

/// Options of `tollfree-lab figure dmrpc-fig5`, `dmrpc-fig6`, `dmrpc-fig10` and `dmrpc-fig11`.
#[derive(Debug, Args)]
pub(crate) struct ServicesArgs {
    #[command(flatten)]
    lasting: Instead,

    /// How payloads travel: tonic, inline, ref, ref-copy [default: all]
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    side: Vec<Side>,

    #[command(flatten)]
    output: Output,
}

impl ServicesArgs {
    pub(crate) fn run(self, figure: WorkloadFigure, name: &str) -> Result<(), Failure> {
        let own = figure.plan();
        let sides = or(self.side, &own.sides);
        let plan = Plan { lasting: self.lasting.of(own.lasting), sides, ..own };
        workload::carry_out(&plan, name, self.output)
    }
}

/// Options of `tollfree-lab figure dmrpc-fig7`.
#[derive(Debug, Args)]
pub(crate) struct RefsArgs {
    #[command(flatten)]
    run: PoolRun,
}

impl RefsArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.run.measure(Figure::Fig7, "dmrpc-fig7", None)
    }
}

/// Options of `tollfree-lab figure dmrpc-fig8`.
#[derive(Debug, Args)]
pub(crate) struct WritesArgs {
    /// A Python that has Ray, whose object store is measured beside
    #[arg(long, value_name = "PATH", default_value = "python3")]
    python: String,

    #[command(flatten)]
    run: PoolRun,
}

impl WritesArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.run.measure(Figure::Fig8, "dmrpc-fig8", Some(self.python))
    }
}
