//! `tollfree-lab figure`: what papers measured, measured again.

use clap::{Args, Subcommand};
use tollfree_bench::harness::Lasting;
use tollfree_workloads::Figure as WorkloadFigure;

use crate::failure::Failure;
use crate::figure_dagger::{LengthsArgs, SharesArgs};
use crate::figure_dmrpc::{RefsArgs, ServicesArgs, WritesArgs};
use crate::figure_notnets::{Fig1Args, Table1Args};

/// How long a measurement that has a length of its own lasts, where it is told to.
#[derive(Debug, Args)]
pub(crate) struct Instead {
    /// Rounds; all rows run once in each [default: the figure's]
    #[arg(long, value_name = "R")]
    rounds: Option<usize>,

    /// Measured time for each row and round [default: the figure's]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
}

impl Instead {
    pub(crate) fn of(&self, own: Lasting) -> Lasting {
        Lasting { seconds: self.seconds.unwrap_or(own.seconds), rounds: self.rounds.unwrap_or(own.rounds) }
    }
}

/// What `tollfree-lab figure` can repeat. Four more have a command of their own: Split gRPC's figure 2 is `bench split`, Dagger's
/// figures 5 and 6 are `bench device` and, modelled, `model bus`, Cerebros' figure 6 is `model offload`.
#[derive(Debug, Subcommand)]
pub(crate) enum Figure {
    /// An array of 4 KiB through chains of 1 to 7 calls
    #[command(name = "dmrpc-fig5")]
    DmrpcFig5(ServicesArgs),
    /// A balancer that forwards 4 to 32 KiB
    #[command(name = "dmrpc-fig6")]
    DmrpcFig6(ServicesArgs),
    /// create_ref of 4 to 512 KiB, copy-on-write against copy
    #[command(name = "dmrpc-fig7")]
    DmrpcFig7(RefsArgs),
    /// A block of 32 KiB, of which the receiver writes a part
    #[command(name = "dmrpc-fig8")]
    DmrpcFig8(WritesArgs),
    /// Image processing in seven tiers, transfer-bound, 4 to 512 KiB
    #[command(name = "dmrpc-fig10")]
    DmrpcFig10(ServicesArgs),
    /// A social network, latency over load
    #[command(name = "dmrpc-fig11")]
    DmrpcFig11(ServicesArgs),
    /// Hello calls over HTTP/2 and at the levels of Tollfree
    #[command(name = "notnets-table1")]
    NotNetsTable1(Table1Args),
    /// Figure 1a: where the time of an echo call goes, over HTTP/2 and at the levels of Tollfree
    #[command(name = "notnets-fig1")]
    NotNetsFig1(Fig1Args),
    /// The share of networking in a hotel's and a social network's time, against load
    #[command(name = "dagger-fig1")]
    DaggerFig1(SharesArgs),
    /// How long requests and replies of both are
    #[command(name = "dagger-fig2")]
    DaggerFig2(LengthsArgs),
}

impl Figure {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Self::DmrpcFig5(arguments) => arguments.run(WorkloadFigure::Fig5, "dmrpc-fig5"),
            Self::DmrpcFig6(arguments) => arguments.run(WorkloadFigure::Fig6, "dmrpc-fig6"),
            Self::DmrpcFig7(arguments) => arguments.run(),
            Self::DmrpcFig8(arguments) => arguments.run(),
            Self::DmrpcFig10(arguments) => arguments.run(WorkloadFigure::Fig10, "dmrpc-fig10"),
            Self::DmrpcFig11(arguments) => arguments.run(WorkloadFigure::Fig11, "dmrpc-fig11"),
            Self::NotNetsTable1(arguments) => arguments.run(),
            Self::NotNetsFig1(arguments) => arguments.run(),
            Self::DaggerFig1(arguments) => arguments.run(),
            Self::DaggerFig2(arguments) => arguments.run(),
        }
    }
}
