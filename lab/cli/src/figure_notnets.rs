//! `tollfree-lab figure notnets-table1` and `notnets-fig1`: that paper's measurements of what an RPC stack costs.

use std::path::PathBuf;

use clap::Args;
use tollfree_bench::cores::Cores;
use tollfree_bench::interrupt::until_interrupted;
use tollfree_bench::layers::{self, LayersPlan, LayersStep};
use tollfree_bench::notnets;
use tollfree_bench::plan::Placement;

use crate::bench::{failures, keep, measure, print};
use crate::failure::Failure;

/// Options of `tollfree-lab figure notnets-table1`.
#[derive(Debug, Args)]
pub(crate) struct Table1Args {
    /// Calls of each side, one after the other
    #[arg(long, value_name = "N", default_value_t = notnets::CALL_COUNT)]
    calls: u64,

    /// Where the two processes run: split (a core each), same-core, unpinned
    #[arg(long, value_name = "PLACE", default_value = "split")]
    placement: Placement,

    /// Directory for the raw data, the table and the plot [default: bench-out/notnets-table1-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

impl Table1Args {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let plan = notnets::table1_plan(self.calls, self.placement);
        plan.check()?;
        Cores::choose()?.seats(self.placement)?;
        if cfg!(debug_assertions) {
            eprintln!("tollfree-lab: this is a debug build; its figures mean nothing");
        }
        let report = measure(&plan)?;
        keep(&report, "notnets-table1", self.out)?;
        print(&if self.json { report.json() + "\n" } else { notnets::table1(&report) })?;
        failures(&report)
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

    /// Directory for the result, the table and the plot [default: bench-out/notnets-fig1-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

impl Fig1Args {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if cfg!(debug_assertions) {
            eprintln!("tollfree-lab: this is a debug build; its figures mean nothing");
        }
        let plan = LayersPlan { corpus: self.corpus, seconds: self.seconds, rounds: self.rounds };
        let show = |step: &LayersStep| {
            let what = step.carrier.map_or_else(|| "prost alone".to_owned(), |carrier| carrier.to_string());
            eprintln!("{:>3} of {} · {} · {what}", step.done, step.total, step.kind);
        };
        let report = until_interrupted(layers::run(&plan, show))???;
        let began = report.machine.started_at.replace(['-', ':'], "");
        let dir = self.out.unwrap_or_else(|| PathBuf::from(format!("bench-out/notnets-fig1-{began}")));
        report.save(&dir)?;
        eprintln!("result, table and plot are in {}", dir.display());
        print(&if self.json { report.json() + "\n" } else { report.table() })?;
        match report.failures().count() {
            0 => Ok(()),
            count => Err(Failure::Failed(format!("{count} rows failed; the result says why"))),
        }
    }
}
