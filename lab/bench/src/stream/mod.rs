//! Messages that stream between two processes: how many a second, and what each costs both ends.
//!
//! Streams go on for as long as is measured, or carry a hundred messages each way and end. Handlers and callers are written as users
//! write them, against an iterator, a channel or a mapped stream: who puts many messages into one piece does it beneath them. Each
//! message is looked at where it is received: its length, and its number, which is its first byte.

mod blocking;
mod client;
mod objects;
mod report;
mod service;
mod sides;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollfree_measure::axis;
use tollfree_measure::cores::Seats;

use crate::BenchError;
use crate::cores::Cores;
use crate::harness::words::bytes_in_words;
use crate::harness::{self, Lasting, Machine, Rows, Told, each_once, pid_of, rounds, some, within};
use crate::latency::Latencies;
use crate::order::{self, Order, Serving};
use crate::plan::{Malloc, Placement};
use crate::side::program::Program;

pub use self::report::{Against, StreamRow};
pub(crate) use self::sides::act;

/// Messages each way in a burst.
pub(crate) const BURST: u64 = 100;
/// The largest message that may be asked for, in bytes; tonic receives four times as much unless told otherwise.
const SIZE_MAX: usize = 1 << 20;
/// Most streams at a time that may be asked for: HTTP/2 peers open no more unless told otherwise.
const STREAMS_MAX: usize = 100;

axis! {
    /// Which way messages stream.
    StreamKind, "kind of stream", {
        /// From the server, as quickly as the client takes them.
        Server = "server",
        /// From the client; the server counts them, and answers at the end.
        Client = "client",
        /// There and back on a stream, one at a time.
        PingPong = "ping-pong",
        /// A call with [`BURST`] messages each way, one call after the other.
        Burst = "burst",
    }
}

axis! {
    /// What carries the streams of `tollfree-lab bench stream`.
    StreamSide, "side", {
        /// Stock tonic over a Unix socket.
        TonicUnix = "tonic-unix",
        /// Stock tonic over TCP on the loopback interface.
        TonicTcp = "tonic-tcp",
        /// Stock tonic over a pipe inside of one process: what its own layers take without any transport.
        TonicPipe = "tonic-pipe",
        /// Unmodified tonic stubs over Tollfree.
        Tollfree = "tollfree",
        /// Tollfree's own stubs.
        TollfreeDirect = "tollfree-direct",
        /// The same, stubs that take objects.
        TollfreeView = "tollfree-view",
        /// Tollfree's own stubs, blocking.
        TollfreeBlocking = "tollfree-blocking",
        /// A stock tonic client at a gateway's Unix socket, unmodified tonic stubs in a backend behind it.
        Gateway = "gateway",
        /// Tollfree in Go, the stubs of protoc-gen-go-grpc.
        Go = "go",
        /// grpc-go over a Unix socket: what the side before is compared with.
        GrpcGo = "grpc-go",
        /// Tollfree in Python, the stubs of grpcio's generator.
        Python = "python",
        /// grpcio over a Unix socket: what the side before is compared with.
        Grpcio = "grpcio",
    }
}

impl StreamSide {
    /// The program in another language whose processes both ends are, if they are.
    const fn program(self) -> Option<Program> {
        match self {
            StreamSide::Go | StreamSide::GrpcGo => Some(Program::Go),
            StreamSide::Python | StreamSide::Grpcio => Some(Program::Python),
            _ => None,
        }
    }
}

/// What to measure: every combination is a row.
#[derive(Debug, Clone)]
pub struct StreamPlan {
    /// Which way messages stream.
    pub kinds: Vec<StreamKind>,
    /// Bytes in a message.
    pub sizes: Vec<usize>,
    /// Streams at the same time.
    pub streams: Vec<usize>,
    /// What carries them.
    pub sides: Vec<StreamSide>,
    /// Where the two processes run.
    pub placements: Vec<Placement>,
    /// How long and how often.
    pub lasting: Lasting,
}

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamCase {
    /// What carries the streams.
    pub side: StreamSide,
    /// Which way messages stream.
    pub kind: StreamKind,
    /// Bytes in a message.
    pub size: usize,
    /// Streams at the same time.
    pub streams: usize,
    /// Where the two processes run.
    pub placement: Placement,
}

impl fmt::Display for StreamCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} · {}, {}", self.side, self.setting(), self.placement)
    }
}

impl StreamCase {
    /// What streams, in words.
    #[must_use]
    pub fn setting(&self) -> String {
        let StreamCase { kind, size, streams, .. } = self;
        format!("{kind}, {}, {streams} at a time", bytes_in_words(*size))
    }

    /// The same case on another side.
    #[must_use]
    pub fn on(self, side: StreamSide) -> Self {
        Self { side, ..self }
    }

    /// Where its processes run. That of a pipe is both ends, which may use all cores unless they share one.
    fn seats(&self, cores: &Cores) -> Result<Seats, BenchError> {
        match (self.side, self.placement) {
            (StreamSide::TonicPipe, Placement::Split) => cores.seats(Placement::Unpinned),
            (_, placement) => cores.seats(placement),
        }
    }
}

impl StreamPlan {
    /// Checks what the command line's own types cannot.
    ///
    /// # Errors
    /// [`BenchError::Refused`], naming the value and what is allowed.
    pub fn check(&self) -> Result<(), BenchError> {
        within(&self.sizes, 1..=SIZE_MAX, "bytes in a message")?;
        within(&self.streams, 1..=STREAMS_MAX, "streams")?;
        self.lasting.check()?;
        some(&self.cases())
    }

    /// Every case once, those that are compared with each other next to each other.
    #[must_use]
    pub fn cases(&self) -> Vec<StreamCase> {
        let mut cases = Vec::new();
        for &placement in &self.placements {
            for &kind in &self.kinds {
                for &size in &self.sizes {
                    for &streams in &self.streams {
                        let sides = self.sides.iter();
                        cases.extend(sides.map(|&side| StreamCase { side, kind, size, streams, placement }));
                    }
                }
            }
        }
        each_once(cases)
    }
}

/// What a process does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Part {
    case: StreamCase,
    role: Role,
}

/// Which end a process is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Role {
    /// Stands between the two others, with sockets in `dir`.
    Between { dir: PathBuf },
    /// Serves, with sockets in `dir`.
    Serve { dir: PathBuf, warm_up: Duration },
    /// Calls, and counts what it and the processes that serve it use meanwhile.
    Call(Calls),
}

/// How to measure.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Calls {
    /// Where to connect; nowhere if both ends are in the client.
    address: String,
    servers: Vec<u32>,
    warm_up: Duration,
    measure: Duration,
}

/// What a round measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Streamed {
    /// Messages that were received, of both directions.
    messages: u64,
    /// Until the last stream had ended.
    elapsed_ns: u64,
    /// Round trips, or gaps between two messages.
    latencies: Latencies,
    /// Processor time of the client in all.
    client_cpu_ns: u64,
    /// The same of what serves it. None where the kernel keeps no account of another process' threads.
    server_cpu_ns: Option<u64>,
}

impl Streamed {
    fn rate(&self) -> f64 {
        self.messages as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// Measures everything that the plan asks for; `progress` hears of each measurement. A case that fails is a row that says so.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that cannot be carried out here, [`BenchError::System`].
pub async fn run(plan: &StreamPlan, progress: impl FnMut(&Told)) -> Result<Rows<StreamRow>, BenchError> {
    plan.check()?;
    let cores = harness::seats(plan.placements.iter().copied())?;
    let machine = Machine::look(&cores, &Malloc::Keep.settings());
    let take = async |case: StreamCase| match case.side.program().and_then(Program::absent) {
        Some(why) => Err(format!("not run: {why}")),
        None => measure(plan.lasting, case, &cores).await.map_err(|error| error.to_string()),
    };
    let rate = |round: &Streamed| format!("{:.0} messages/s", round.rate());
    let tried = rounds::interleave(plan.cases(), plan.lasting.rounds, take, rate, progress).await;
    Ok(report::report(machine, plan.lasting, tried))
}

async fn measure(lasting: Lasting, case: StreamCase, cores: &Cores) -> Result<Streamed, BenchError> {
    let seats = case.seats(cores)?;
    let crew = order::crew(Malloc::Keep)?;
    let part = |role| Order::Stream(Part { case, role });
    let dir = || crew.dir().to_owned();
    let (warm_up, measure) = (lasting.warm_up(), lasting.measure());
    let (mut address, mut serving) = (None, Vec::new());
    if case.side == StreamSide::Gateway {
        let role = part(Role::Between { dir: dir() });
        let (peer, said) = crew.ready::<Serving>("gateway", seats.client, role).await?;
        (address, serving) = (Some(said.address), vec![peer]);
    }
    if case.side != StreamSide::TonicPipe {
        let role = part(Role::Serve { dir: dir(), warm_up });
        let (peer, said) = crew.ready::<Serving>("server", seats.server, role).await?;
        address.get_or_insert(said.address);
        serving.push(peer);
    }
    let servers = serving.iter().map(pid_of).collect::<Result<_, _>>()?;
    let calls = Calls { address: address.unwrap_or_default(), servers, warm_up, measure };
    let measured = crew.measure("client", seats.client, part(Role::Call(calls)), warm_up + measure).await?;
    // Whoever attached goes first, so that it has nobody to look for.
    for peer in serving.into_iter().rev() {
        peer.stop().await;
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> StreamPlan {
        StreamPlan {
            kinds: StreamKind::ALL.to_vec(),
            sizes: vec![64, 4096],
            streams: vec![1, 8],
            sides: StreamSide::ALL.to_vec(),
            placements: vec![Placement::Unpinned],
            lasting: Lasting { seconds: 1.0, rounds: 1 },
        }
    }

    #[test]
    fn sides_that_are_compared_are_next_to_each_other() {
        let cases = plan().cases();
        assert_eq!(cases.len(), 4 * 2 * 2 * 12);
        for group in cases.chunks(12) {
            assert!(group.iter().all(|case| case.on(group[0].side) == group[0]), "{group:?}");
        }
    }

    #[test]
    fn impossible_plans_are_refused_in_words() {
        plan().check().unwrap();
        type Spoil = fn(&mut StreamPlan);
        let spoil: [(&str, Spoil); 5] = [
            ("0 bytes in a message", |p| p.sizes.push(0)),
            ("bytes in a message: must be", |p| p.sizes.push(SIZE_MAX + 1)),
            ("0 streams", |p| p.streams.push(0)),
            ("rounds", |p| p.lasting.rounds = 0),
            ("no value", |p| p.sides.clear()),
        ];
        for (words, spoil) in spoil {
            let mut plan = plan();
            spoil(&mut plan);
            let error = plan.check().unwrap_err().to_string();
            assert!(error.contains(words), "{error:?} lacks {words:?}");
        }
    }
}
