//! `tollfree-lab bench split`: RPC work beside application code, and outside.

use std::path::PathBuf;

use clap::Args;
use tollfree_bench::harness::Lasting;
use tollfree_bench::split::{self, BeyondPlan, SplitMessage, SplitPlan, SplitSide};

use crate::failure::Failure;
use crate::measuring::{Output, measure, or};

/// Options of `tollfree-lab bench split`. Lists are separated by commas; every combination is a row.
#[derive(Debug, Args)]
pub(crate) struct SplitArgs {
    /// What stands between client and backend: tonic (nothing), tonic-tls (nothing, over TCP with TLS), gateway-stream (over TCP with
    /// TLS, as on another host), gateway-bytes, gateway-low-latency, gateway-objects,
    /// gateway-trusted, envoy, nginx [default: all]
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    side: Vec<SplitSide>,

    /// What travels, there and back: echo64, M3, M43, M34 [default: all]
    #[arg(long, value_name = "MESSAGE,...", value_delimiter = ',')]
    message: Vec<SplitMessage>,

    /// Measure a gateway's own answers (health, a refusal, a call of another group) while calls come at FACTOR times what the
    /// backend's core can do, 1.2 unless given; each message with each time of application code is a case
    #[arg(long, value_name = "FACTOR", num_args = 0..=1, require_equals = true, default_missing_value = "1.2")]
    beyond: Option<f64>,

    /// Calls outstanding at any time; with --beyond, the most of them find the knee
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,64")]
    inflight: Vec<usize>,

    /// Nanoseconds that the handler is busy in each call [default: 0,5000,20000,100000,500000; with --beyond: 200000,1000000]
    #[arg(long, value_name = "NS,...", value_delimiter = ',')]
    busy_ns: Vec<u64>,

    /// Measured time for each row and round, without the warm-up before it
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    seconds: f64,

    /// Rounds; all rows run once in each
    #[arg(long, value_name = "R", default_value_t = 3)]
    rounds: usize,

    /// Directory of a HyperProtoBench corpus, for M3, M43 and M34; without it, generated messages
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,

    #[command(flatten)]
    output: Output,
}

/// What `--beyond` is measured with, unless told otherwise.
const BEYOND_BUSY_NS: [u64; 2] = [200_000, 1_000_000];
/// The sweep.
const BUSY_NS: [u64; 5] = [0, 5000, 20_000, 100_000, 500_000];

impl SplitArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let (sides, messages, busy_ns) = match self.beyond {
            None => (SplitSide::ALL, SplitMessage::ALL, &BUSY_NS[..]),
            Some(_) => (&[SplitSide::GatewayBytes][..], &[SplitMessage::Echo64][..], &BEYOND_BUSY_NS[..]),
        };
        let plan = SplitPlan {
            sides: or(self.side, sides),
            messages: or(self.message, messages),
            inflights: self.inflight,
            busy_ns: or(self.busy_ns, busy_ns),
            lasting: Lasting { seconds: self.seconds, rounds: self.rounds },
            corpus: self.corpus,
        };
        match self.beyond {
            None => {
                let report = measure(async |tell| split::run(&plan, tell).await)?;
                self.output.give("split", &report)
            }
            Some(share) => {
                let plan = BeyondPlan { split: plan, share };
                let report = measure(async |tell| split::run_beyond(&plan, tell).await)?;
                self.output.give("split-beyond", &report)
            }
        }
    }
}
