//! `tollfree-lab bench codec`: messages decoded, encoded, verified and read.

use std::path::PathBuf;

use clap::Args;
use tollfree_bench::codec::{self, CodecPlan, CodecStep};

use crate::bench::print;
use crate::failure::Failure;

/// Options of `tollfree-lab bench codec`.
#[derive(Debug, Args)]
pub(crate) struct CodecArgs {
    /// Corpora: SCHEMA.fds.binpb and SCHEMA/TYPE.binpb, or Thrift messages in compact/ and binary/, in the directory or in
    /// those in it [default: generated messages]
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,

    /// Only payloads whose name begins so, as bench2/, bench3/M3 or thrift-compact/
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,

    /// Time of a row in a round, in seconds
    #[arg(long, value_name = "S", default_value_t = 0.002)]
    seconds: f64,

    /// Rounds; all rows of a payload run once in each
    #[arg(long, value_name = "R", default_value_t = 15)]
    rounds: usize,

    /// Seed of the generated messages
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Where `make bench-peers` has put the C++ programs
    #[arg(long, value_name = "DIR", default_value = "target/bench-peers")]
    cpp: PathBuf,

    /// Directory for the raw data, the table and the plot [default: bench-out/codec-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

impl CodecArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if cfg!(debug_assertions) {
            eprintln!("tollfree-lab: this is a debug build; its figures mean nothing");
        }
        let plan = CodecPlan {
            corpus: self.corpus,
            only: self.only,
            rounds: self.rounds,
            seconds: self.seconds,
            cpp_dir: self.cpp,
            seed: self.seed,
        };
        let report = codec::run(&plan, |CodecStep { done, total, payload }| {
            eprintln!("{done:>3} of {total} · {payload}");
        })?;
        let began =
            report.machine.as_ref().map_or("now", |machine| &machine.started_at).replace(['-', ':'], "");
        let dir = self.out.unwrap_or_else(|| PathBuf::from(format!("bench-out/codec-{began}")));
        report.save(&dir)?;
        print(&if self.json { report.json() + "\n" } else { report.table() })?;
        eprintln!("raw data, table and plot are in {}", dir.display());
        Ok(())
    }
}
