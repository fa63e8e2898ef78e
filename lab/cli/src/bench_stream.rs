//! `tollfree-lab bench stream`: messages that stream.

use clap::Args;
use tollfree_bench::harness::Lasting;
use tollfree_bench::plan::Placement;
use tollfree_bench::stream::{self, StreamKind, StreamPlan, StreamSide};

use crate::failure::Failure;
use crate::measuring::{Output, measure, or};

/// Options of `tollfree-lab bench stream`. Lists are separated by commas; every combination is a row.
#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    /// Which way messages stream: server (as quickly as the client takes them), client (the server counts them), ping-pong (there and back
    /// on one stream, one at a time), burst (calls with 100 messages each way) [default: all]
    #[arg(long, value_name = "KIND,...", value_delimiter = ',')]
    kind: Vec<StreamKind>,

    /// Bytes in a message
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "64")]
    size: Vec<usize>,

    /// Streams at the same time, over one channel
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,8")]
    streams: Vec<usize>,

    /// What carries the streams: tonic-unix, tonic-tcp, tonic-pipe (both ends in one process), tollfree, tollfree-direct, tollfree-view,
    /// tollfree-blocking (a thread and a channel for each stream), gateway (a tonic client at its Unix socket), go, grpc-go, python,
    /// grpcio
    /// [default: all]
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    side: Vec<StreamSide>,

    /// Where the two processes run: split (a core each), same-core, unpinned. A gateway sits with the client; a pipe's one process has
    /// all cores with split
    #[arg(long, value_name = "PLACE,...", value_delimiter = ',', default_value = "unpinned")]
    placement: Vec<Placement>,

    /// Measured time for each row and round, without the warm-up before it
    #[arg(long, value_name = "S", default_value_t = 0.2)]
    seconds: f64,

    /// Rounds; all rows run once in each
    #[arg(long, value_name = "R", default_value_t = 3)]
    rounds: usize,

    #[command(flatten)]
    output: Output,
}

impl StreamArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let plan = StreamPlan {
            kinds: or(self.kind, StreamKind::ALL),
            sizes: self.size,
            streams: self.streams,
            sides: or(self.side, StreamSide::ALL),
            placements: self.placement,
            lasting: Lasting { seconds: self.seconds, rounds: self.rounds },
        };
        let report = measure(async |tell| stream::run(&plan, tell).await)?;
        self.output.give("stream", &report)
    }
}
