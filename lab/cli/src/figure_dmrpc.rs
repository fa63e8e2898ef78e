//! `tollfree-lab figure dmrpc-fig5` to `dmrpc-fig11`: passing by reference, as that paper measures it.

use std::path::PathBuf;

use clap::Args;
use tollfree_bench::pool::Figure;
use tollfree_workloads::{Figure as WorkloadFigure, Side};

use crate::bench_pool::PoolRun;
use crate::failure::Failure;
use crate::workload;

/// Options of `tollfree-lab figure dmrpc-fig5`, `dmrpc-fig6`, `dmrpc-fig10` and `dmrpc-fig11`.
#[derive(Debug, Args)]
pub(crate) struct ServicesArgs {
    /// Rounds; all rows run once in each [default: the figure's]
    #[arg(long, value_name = "R")]
    rounds: Option<usize>,

    /// Measured time for each row and round [default: the figure's]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,

    /// How payloads travel: tonic, inline, ref, ref-copy [default: all]
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    side: Vec<Side>,

    /// Directory for the raw data, the table and the plot [default: bench-out/NAME-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

impl ServicesArgs {
    pub(crate) fn run(self, figure: WorkloadFigure, name: &str) -> Result<(), Failure> {
        let mut plan = figure.plan();
        plan.rounds = self.rounds.unwrap_or(plan.rounds);
        plan.seconds = self.seconds.unwrap_or(plan.seconds);
        if !self.side.is_empty() {
            plan.sides = self.side;
        }
        workload::carry_out(&plan, name, self.out, self.json)
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
