//! `tollfree-lab bench`: what this machine gives.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use tollfree_bench::echo::{self, EchoPlan};
use tollfree_bench::harness::{Lasting, Report};
use tollfree_bench::idle::{self, IdlePlan};
use tollfree_bench::plan::{Malloc, Message, Placement, RuntimeKind, Side};

#[cfg(feature = "slow-to-build")]
use crate::bench_codec::CodecArgs;
use crate::bench_device::DeviceArgs;
use crate::bench_fault::FaultArgs;
use crate::bench_hostile::HostileArgs;
use crate::bench_paced::{CrowdArgs, PacedArgs};
use crate::bench_pool::PoolArgs;
use crate::bench_split::SplitArgs;
use crate::bench_stream::StreamArgs;
use crate::failure::Failure;
#[cfg(not(feature = "slow-to-build"))]
use crate::left_out::CodecArgs;
use crate::measuring::{Output, measure, or, show};

/// What `tollfree-lab bench` can measure.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Time echo calls between two processes: Tollfree, stock tonic and the floor
    Echo(EchoArgs),
    /// Time calls that come at a rate, and count what they cost both ends
    Paced(PacedArgs),
    /// Time messages that stream, from the server, from the client and both ways, and count what they cost both ends
    Stream(StreamArgs),
    /// Time many client processes that call one server: rate, fairness, worst call
    Crowd(CrowdArgs),
    /// Repeat Split gRPC's figure 2: what RPC work costs a backend's core, inside of it and in a gateway
    Split(SplitArgs),
    /// Repeat Dagger's figures 5 and 6: an echo over the interface to backends, in each mode and batch
    Device(DeviceArgs),
    /// Time decoding, encoding, verifying and reading messages, beside other protobuf libraries
    Codec(CodecArgs),
    /// Time single operations of a memory pool, and one hop through it
    Pool(PoolArgs),
    /// Time a good client of a gateway beside clients and processes that mean it no good
    Hostile(HostileArgs),
    /// Count what many idle sessions cost in processor time and memory
    IdleSessions(IdleArgs),
    /// Restart the server of a client that calls all the time, and time how long calls go on failing
    Fault(FaultArgs),
}

impl Bench {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Echo(arguments) => arguments.run(),
            Self::Paced(arguments) => arguments.run(),
            Self::Stream(arguments) => arguments.run(),
            Self::Crowd(arguments) => arguments.run(),
            Self::Split(arguments) => arguments.run(),
            Self::Device(arguments) => arguments.run(),
            Self::Codec(arguments) => arguments.run(),
            Self::Pool(arguments) => arguments.run(),
            Self::Hostile(arguments) => arguments.run(),
            Self::IdleSessions(arguments) => arguments.run(),
            Self::Fault(arguments) => arguments.run(),
        }
    }
}

/// Options of `tollfree-lab bench echo`. Lists are separated by commas; every combination is a row.
#[derive(Debug, Args)]
pub(crate) struct EchoArgs {
    /// What a call carries: probe (bytes in one field), M3, order, fds (every field is read at both ends, and a reply with the same fields
    /// is built), fds-copy (the reply is a copy)
    #[arg(long, value_name = "MESSAGE,...", value_delimiter = ',', default_value = "probe")]
    message: Vec<Message>,

    /// Directory of a corpus, HyperProtoBench-like or of orders, or of several; else messages are kept or generated ones
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,

    /// Bytes in the request's and the reply's body of a probe
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "64,4096,65536,1048576")]
    size: Vec<usize>,

    /// Metadata pairs in the request, and as many in the reply; sides without metadata have rows for 0 only
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "0")]
    metadata: Vec<usize>,

    /// Calls outstanding at any time
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,64")]
    inflight: Vec<usize>,

    /// Where the two processes run: split (a core each), same-core, unpinned
    #[arg(long, value_name = "PLACE,...", value_delimiter = ',', default_value = "split")]
    placement: Vec<Placement>,

    /// What carries the calls: floor, iceoryx2, session, loop, threads, tollfree-direct, tollfree-view,
    /// tollfree-view-pool, tollfree-ref, tollfree-blocking, tollfree-threads, tollfree, tollfree-park, tollfree-upgrade,
    /// tollfree-direct-connection, tonic-unix, tonic-blocking, tonic-tcp, c, go, go-inline, go-direct, go-to-rust,
    /// rust-to-go, grpc-go, cpp, cpp-stock, grpc-cpp, python, python-inline, python-to-rust,
    /// python-aio-to-rust, python-aio, python-ref, python-ref-to-rust, grpcio, grpcio-aio [default: all]
    #[arg(long, value_name = "SIDE,...", value_delimiter = ',')]
    side: Vec<Side>,

    /// The tokio runtime in both processes: current (one thread), multi (two workers)
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', default_value = "current")]
    runtime: Vec<RuntimeKind>,

    /// Measured time for each row and round, without the warm-up before it
    #[arg(long, value_name = "S", default_value_t = 0.25)]
    seconds: f64,

    /// Rounds; all rows run once in each
    #[arg(long, value_name = "R", default_value_t = 3)]
    rounds: usize,

    /// What malloc does with free memory, on all sides: keep (up to 64 MiB stay with the process), system (as it is)
    #[arg(long, value_name = "SETTING", default_value = "keep")]
    malloc: Malloc,

    #[command(flatten)]
    output: Output,
}

impl EchoArgs {
    fn run(self) -> Result<(), Failure> {
        let plan = EchoPlan {
            messages: self.message,
            corpus: self.corpus,
            sizes: self.size,
            metadata: self.metadata,
            inflights: self.inflight,
            placements: self.placement,
            sides: or(self.side, Side::ALL),
            runtimes: self.runtime,
            lasting: Lasting { seconds: self.seconds, rounds: self.rounds },
            calls: None,
            malloc: self.malloc,
        };
        let report = measure(async |tell| echo::run(&plan, tell).await)?;
        self.output.give("echo", &report)
    }
}

/// Options of `tollfree-lab bench idle-sessions`.
#[derive(Debug, Args)]
pub(crate) struct IdleArgs {
    /// What the sessions are of: tollfree, tonic-unix, tonic-tcp
    #[arg(long, default_value = "tollfree")]
    side: Side,

    /// Sessions between one server and one client process
    #[arg(long, value_name = "N", default_value_t = 1000)]
    sessions: usize,

    /// Body of the one call that each session carries, in bytes
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    size: usize,

    /// Measured time in seconds
    #[arg(long, value_name = "S", default_value_t = 5)]
    seconds: u32,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

impl IdleArgs {
    fn run(self) -> Result<(), Failure> {
        let plan = IdlePlan {
            side: self.side,
            sessions: self.sessions,
            size: self.size,
            settle: Duration::from_secs(3),
            measure: Duration::from_secs(self.seconds.max(1).into()),
        };
        let report = measure(async |tell| idle::run(&plan, tell).await)?;
        let table = report.table();
        show(&report, self.json, table)
    }
}
