//! `tollfree-lab figure dagger-fig1` and `dagger-fig2`: that paper's look at what microservices say to each other.

use clap::Args;
use tollfree_workloads::{DaggerFigure, Plan, Pressure, Side};

use crate::failure::Failure;
use crate::figure::Instead;
use crate::measuring::Output;
use crate::workload;

/// Options of `tollfree-lab figure dagger-fig1`.
#[derive(Debug, Args)]
pub(crate) struct SharesArgs {
    /// Requests a second, whatever becomes of earlier ones
    #[arg(long, value_name = "R,...", value_delimiter = ',', default_value = "100,200,400,800,1600")]
    rate: Vec<f64>,

    /// What carries calls: tonic, inline, ref, ref-copy
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',', default_value = "tonic,inline")]
    side: Vec<Side>,

    #[command(flatten)]
    run: RunArgs,
}

/// Options of `tollfree-lab figure dagger-fig2`.
#[derive(Debug, Args)]
pub(crate) struct LengthsArgs {
    #[command(flatten)]
    run: RunArgs,
}

/// What both have.
#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    lasting: Instead,

    #[command(flatten)]
    output: Output,
}

impl SharesArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let pressures = self.rate.into_iter().map(Pressure::Rate).collect();
        self.run.carry_out(DaggerFigure::Fig1, Some((pressures, self.side)), "dagger-fig1")
    }
}

impl LengthsArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.run.carry_out(DaggerFigure::Fig2, None, "dagger-fig2")
    }
}

impl RunArgs {
    fn carry_out(
        self,
        figure: DaggerFigure,
        load: Option<(Vec<Pressure>, Vec<Side>)>,
        name: &str,
    ) -> Result<(), Failure> {
        let own = figure.plan();
        let (pressures, sides) = load.unwrap_or((own.pressures, own.sides));
        let plan = Plan { lasting: self.lasting.of(own.lasting), pressures, sides, ..own };
        workload::carry_out(&plan, name, self.output)
    }
}
