//! What the measuring process tells its server and client processes to do.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::BenchError;
use crate::harness::{self, Crew};
use crate::latency::Latencies;
use crate::peer::Starter;
use crate::plan::{Case, Malloc, RuntimeKind};
use crate::{device, fault, hostile, idle, layers, paced, pool, side, split, stream};

/// An order to a process started as `bench-peer`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Serve echo calls until the end; answers [`Serving`] once it does.
    Serve(Serve),
    /// Call and measure; answers [`Measured`].
    Load(Load),
    /// Open many sessions, use each once and keep them; see [`idle`].
    Idle(idle::Hold),
    /// Play a part in a pool's figure; see [`pool`].
    Pool(pool::Part),
    /// Be an end of a hop, one way; see [`pool`].
    Hop(pool::HopPart),
    /// Play a part in the figure of layers; see [`layers`].
    Layers(layers::Part),
    /// Play a part where calls come at a rate; see [`paced`].
    Paced(paced::Part),
    /// Be the gateway of a side, with its socket in this directory; answers [`Serving`].
    Gateway(PathBuf),
    /// Play a part at the interface to backends; see [`device`].
    Device(device::Part),
    /// Play a part where a good client calls beside others; see [`hostile`].
    Hostile(hostile::Part),
    /// Play a part where RPC work is split from backends; see [`split`].
    Split(split::Part),
    /// Play a part where something goes wrong; see [`fault`].
    Fault(fault::Part),
    /// Play a part where messages stream; see [`stream`].
    Stream(stream::Part),
}

/// How to serve.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Serve {
    pub(crate) case: Case,
    /// Where sockets may be made.
    pub(crate) dir: PathBuf,
}

/// A server's first words.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Serving {
    /// What a client of the same side needs to connect.
    pub(crate) address: String,
}

/// How to measure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) case: Case,
    pub(crate) address: String,
    pub(crate) warm_up: Duration,
    pub(crate) measure: Duration,
    /// Calls to count instead, whatever time they take.
    pub(crate) calls: Option<u64>,
    /// Time from one call of a caller to its next, where they don't come in a closed loop.
    pub(crate) every: Option<Duration>,
    /// A file of the messages that calls carry by turns, each behind its length, where they carry no probe.
    pub(crate) samples: Option<PathBuf>,
    /// The server's process, where what it uses is to be counted, too.
    pub(crate) server: Option<u32>,
}

/// What was measured: the calls that ended inside the measured time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) latencies: Latencies,
    /// Measured time in nanoseconds of wall clock.
    pub(crate) elapsed_ns: u64,
    /// Where it was counted.
    pub(crate) used: Option<Used>,
}

impl Measured {
    /// Calls a second.
    pub(crate) fn rate(&self) -> f64 {
        self.latencies.count() as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// Processor time of a call, on average over all calls of a measurement, its warm-up included; in nanoseconds.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Used {
    pub(crate) client_ns: u64,
    /// None where the kernel keeps no account of another process' threads.
    pub(crate) server_ns: Option<u64>,
}

impl Load {
    /// In a closed loop, with probes.
    pub(crate) fn new(case: Case, address: String, warm_up: Duration, measure: Duration) -> Load {
        Load { case, address, warm_up, measure, calls: None, every: None, samples: None, server: None }
    }
}

/// The hidden command that starts a process of a bench.
pub(crate) const PEER: &str = "bench-peer";

/// The processes that answer such orders, in the environment that a setting of malloc asks for.
pub(crate) fn crew(malloc: Malloc) -> Result<Crew, BenchError> {
    Crew::gather(PEER, malloc.settings())
}

pub(crate) fn attend() -> Result<(), BenchError> {
    harness::attend(|order, starter| carry_out(&order, starter))
}

fn carry_out(order: &Order, starter: &Starter) -> Result<(), BenchError> {
    match order {
        Order::Serve(serve) => side::serve(serve, |serving: Serving| starter.say(serving)),
        Order::Load(load) => {
            starter.say(side::measure(load)?);
            Ok(())
        }
        Order::Idle(hold) => idle::hold(hold, starter),
        Order::Pool(part) => pool::act(part, starter),
        Order::Hop(part) => pool::act_hop(part, starter),
        Order::Layers(part) => layers::act(part, starter),
        Order::Paced(part) => paced::act(part, starter),
        Order::Gateway(dir) => side::tollfree_direct_connection::gateway(dir, starter),
        Order::Hostile(part) => hostile::act(part, starter),
        Order::Split(part) => split::act(part, starter),
        Order::Device(part) => device::act(part, starter),
        Order::Fault(part) => fault::act(part, starter),
        Order::Stream(part) => stream::act(part, starter),
    }
}

/// The runtime that both processes of a row use.
pub(crate) fn runtime(kind: RuntimeKind) -> Result<Runtime, BenchError> {
    let mut builder = match kind {
        RuntimeKind::Current => tokio::runtime::Builder::new_current_thread(),
        RuntimeKind::Multi => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(2);
            builder
        }
    };
    builder.enable_all().build().map_err(BenchError::system("cannot start the async runtime"))
}

/// Runs what an end does until that is done. As one type, whichever side it is of: a runtime's loop is compiled anew for each type that
/// it runs. Calls that are measured are tasks of their own, which this is not on the way of.
pub(crate) fn block_on<'f, T>(runtime: &Runtime, end: impl Future<Output = T> + 'f) -> T {
    let end: Pin<Box<dyn Future<Output = T> + 'f>> = Box::pin(end);
    runtime.block_on(end)
}
