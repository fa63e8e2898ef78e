//! `tollfree bench pool`: passing by reference.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tollfree_bench::interrupt::until_interrupted;
use tollfree_bench::pool::{self, Figure, PoolPlan};
use tollfree_workloads::{Figure as WorkloadFigure, Side};

use crate::bench::print;
use crate::failure::Failure;
use crate::workload;

/// Options of `tollfree bench pool`.
#[derive(Debug, Args)]
pub(crate) struct PoolArgs {
    /// What to measure
    figure: FigureArg,

    /// Rounds; all rows run once in each [default: 5 for workloads, 15 for the others]
    #[arg(long, value_name = "R")]
    rounds: Option<usize>,

    /// Operations of a row in a round, at most [default: 64; fig7, fig8, hop and micro only]
    #[arg(long, value_name = "N")]
    count: Option<usize>,

    /// A Python that has Ray, whose object store is measured beside [default: python3; fig8 only]
    #[arg(long, value_name = "PATH")]
    python: Option<String>,

    /// Measured time for each row and round [default: the figure's; fig5, fig6, fig10 and fig11 only]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,

    /// How payloads travel: tonic, inline, ref, ref-copy [default: all; fig5, fig6, fig10 and fig11 only]
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    side: Vec<Side>,

    /// Directory for the raw data, the table and the plot [default: bench-out/pool-FIGURE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum FigureArg {
    /// DmRPC's figure 5: an array of 4 KiB through chains of 1 to 7 calls
    Fig5,
    /// DmRPC's figure 6: a balancer that forwards 4 to 32 KiB
    Fig6,
    /// DmRPC's figure 7: create_ref of 4 to 512 KiB, copy-on-write against copy
    Fig7,
    /// DmRPC's figure 8: a block of 32 KiB, of which the receiver writes a part
    Fig8,
    /// DmRPC's figure 10: image processing in seven tiers, transfer-bound, 4 to 512 KiB
    Fig10,
    /// DmRPC's figure 11: a social network, latency over load
    Fig11,
    /// One hop, one way, of 64 KiB to 1 MiB, beside iceoryx2's publish-subscribe (`make bench-peers`)
    Hop,
    /// Single operations, and three ways to write a hold
    Micro,
}

/// What measures a figure.
enum Kind {
    Pool(Figure),
    Workload(WorkloadFigure),
}

impl FigureArg {
    fn kind(self) -> (Kind, &'static str) {
        match self {
            Self::Fig5 => (Kind::Workload(WorkloadFigure::Fig5), "fig5"),
            Self::Fig6 => (Kind::Workload(WorkloadFigure::Fig6), "fig6"),
            Self::Fig7 => (Kind::Pool(Figure::Fig7), "fig7"),
            Self::Fig8 => (Kind::Pool(Figure::Fig8), "fig8"),
            Self::Fig10 => (Kind::Workload(WorkloadFigure::Fig10), "fig10"),
            Self::Fig11 => (Kind::Workload(WorkloadFigure::Fig11), "fig11"),
            Self::Hop => (Kind::Pool(Figure::Hop), "hop"),
            Self::Micro => (Kind::Pool(Figure::Micro), "micro"),
        }
    }
}

impl PoolArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.figure.kind() {
            (Kind::Pool(figure), name) => self.run_pool(figure, name),
            (Kind::Workload(figure), name) => self.run_workload(figure, name),
        }
    }

    fn run_pool(self, figure: Figure, name: &str) -> Result<(), Failure> {
        if self.seconds.is_some() || !self.side.is_empty() {
            return Err(Failure::Refused(format!("{name} has neither --seconds nor --side")));
        }
        if cfg!(debug_assertions) {
            eprintln!("tollfree: this is a debug build; its figures mean nothing");
        }
        if self.python.is_some() && figure != Figure::Fig8 {
            return Err(Failure::Refused(format!("{name} has no --python: Ray is measured in fig8 only")));
        }
        let plan = PoolPlan {
            figure,
            rounds: self.rounds.unwrap_or(15),
            count: self.count.unwrap_or(64),
            python: self.python.unwrap_or_else(|| "python3".to_owned()),
        };
        let progress = |done, total| eprintln!("round {done} of {total}");
        let report = until_interrupted(pool::run(&plan, progress))???;
        let began = report.machine.started_at.replace(['-', ':'], "");
        let dir = self.out.unwrap_or_else(|| PathBuf::from(format!("bench-out/pool-{name}-{began}")));
        report.save(&dir)?;
        print(&if self.json { report.json() + "\n" } else { report.table() })?;
        eprintln!("raw data, table and plot are in {}", dir.display());
        Ok(())
    }

    fn run_workload(self, figure: WorkloadFigure, name: &str) -> Result<(), Failure> {
        if self.count.is_some() {
            return Err(Failure::Refused(format!("{name} has no --count; say how long, with --seconds")));
        }
        if self.python.is_some() {
            return Err(Failure::Refused(format!("{name} has no --python: Ray is measured in fig8 only")));
        }
        let mut plan = figure.plan();
        plan.rounds = self.rounds.unwrap_or(plan.rounds);
        plan.seconds = self.seconds.unwrap_or(plan.seconds);
        if !self.side.is_empty() {
            plan.sides = self.side;
        }
        workload::carry_out(&plan, &format!("pool-{name}"), self.out, self.json)
    }
}
