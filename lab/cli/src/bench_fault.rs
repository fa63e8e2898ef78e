//! `tollfree-lab bench fault`: how long calls go on failing when a fault is over.

use std::time::Duration;

use clap::Args;
use tollfree_bench::fault::{self, FaultKind, FaultPlan};
use tollfree_bench::plan::Side;

use crate::failure::Failure;
use crate::measuring::{Output, measure, or};

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

    #[command(flatten)]
    output: Output,
}

impl FaultArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let plan = FaultPlan {
            kinds: self.kind,
            sides: or(self.side, &FaultPlan::SIDES),
            count: self.faults,
            down: Duration::from_millis(self.down),
        };
        let report = measure(async |tell| fault::run(&plan, tell).await)?;
        self.output.give("fault", &report)
    }
}
