//! `tollfree model`: what is worked out, and not measured.

use clap::{Args, Subcommand};
use tollfree_workloads::SteeringModel;

use crate::bench::print;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Model {
    Steering(SteeringArgs),
}

/// Simulate the shepherd's steering policies on traces, beside the offline optimum
#[derive(Debug, Args)]
#[command(after_help = "\
Every row is simulated. A hit is a request to a worker that has its function among the last that it ran. Times of requests don't
depend on hits. The optimum is exact for small traces; for others it is an upper bound (Belady's rule on one cache as large as all
workers' together, without a bound of imbalance).")]
pub(crate) struct SteeringArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Model {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Model::Steering(SteeringArgs { json }) = self;
        let model = SteeringModel::run();
        match json {
            true => print(&format!("{}\n", serde_json::json!(model))),
            false => print(&model.text()),
        }
    }
}
