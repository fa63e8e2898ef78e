//! `tollfree-lab bench codec`: messages decoded, encoded, verified and read.

use std::path::PathBuf;

use clap::Args;
use tollfree_bench::harness::Lasting;
use tollfree_codec_bench::CodecPlan;

use crate::failure::Failure;
use crate::measuring::{Output, telling};

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

    #[command(flatten)]
    output: Output,
}

impl CodecArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let plan = CodecPlan {
            corpus: self.corpus,
            only: self.only,
            lasting: Lasting { seconds: self.seconds, rounds: self.rounds },
            cpp_dir: self.cpp,
            seed: self.seed,
        };
        let report = telling(|tell| Ok(tollfree_codec_bench::run(&plan, tell)?))?;
        self.output.give("codec", &report)
    }
}
