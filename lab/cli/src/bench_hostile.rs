//! `tollfree-lab bench hostile`: a good client beside those who mean a gateway no good.

use clap::Args;
use tollfree_bench::harness::Lasting;
use tollfree_bench::hostile::{self, Attack, HostilePlan};

use crate::failure::Failure;
use crate::measuring::{Output, measure, or};

/// Options of `tollfree-lab bench hostile`.
#[derive(Debug, Args)]
pub(crate) struct HostileArgs {
    /// The attacks [default: all]: unfinished-requests, missing-byte, idle-readers, connections, absent-group, newcomers, via
    #[arg(long, value_name = "ATTACK,...", value_delimiter = ',')]
    attack: Vec<Attack>,

    /// Measured time for each row and round, once with the attack and once without, beside the warm-up
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    seconds: f64,

    /// Rounds; all rows run once in each
    #[arg(long, value_name = "R", default_value_t = 5)]
    rounds: usize,

    /// Fail where the good client keeps less than 0.9 of its rate, or its p99 more than doubles
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    output: Output,
}

impl HostileArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let lasting = Lasting { seconds: self.seconds, rounds: self.rounds };
        let plan = HostilePlan { attacks: or(self.attack, Attack::ALL), lasting };
        let report = measure(async |tell| hostile::run(&plan, tell).await)?;
        self.output.give("hostile", &report)?;
        let starved: Vec<_> = report.starved().map(|row| row.attack.name()).collect();
        match starved.is_empty() || !self.check {
            true => Ok(()),
            false => {
                Err(Failure::Failed(format!("the good client got too little beside {}", starved.join(", "))))
            }
        }
    }
}
