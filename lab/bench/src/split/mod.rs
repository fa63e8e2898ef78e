//! Split gRPC's figure 2: what a backend has left for application code, with its RPC work inside of it and outside.
//!
//! Three processes. The backend has a core of its own; the client, and what stands between the two if anything does, share
//! the other. The client sends a message and gets the same back, in a closed loop, and the handler is busy for a while
//! in each call. Without anything between, the backend is a plain tonic server that does its RPC work itself.

mod accelerated;
mod act;
mod beyond;
mod client;
mod objects;
mod proxy;
mod report;
mod service;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollfree_measure::axis;

use crate::BenchError;
use crate::cores::Cores;
use crate::harness::{self, Lasting, Machine, Told, each_once, pid_of, rounds, some, within};
use crate::latency::Latencies;
use crate::load::body_of;
use crate::lookalike;
use crate::message::Message;
use crate::order::{self, Order, Serving};
use crate::plan::{INFLIGHT_MAX, Malloc, Placement};
use crate::schemas;

pub(crate) use self::act::act;
use self::beyond::Asking;
pub use self::beyond::{BeyondCase, BeyondPlan, BeyondReport, BeyondState, Question, run as run_beyond};
pub use self::report::SplitReport;

/// The longest that a handler may be busy.
const BUSY_NS_MAX: u64 = 1_000_000_000;

axis! {
    /// What stands between the client and the backend.
    SplitSide, "side", {
        /// Nothing: a plain tonic server.
        Tonic = "tonic",
        /// Nothing: a plain tonic server on TCP with TLS.
        TonicTls = "tonic-tls",
        /// A gateway as on another host, which hands on bytes over TCP with TLS.
        GatewayStream = "gateway-stream",
        /// A gateway, which hands on bytes.
        GatewayBytes = "gateway-bytes",
        /// The same, where both it and the backend have processors to spare and look for what comes.
        GatewayLowLatency = "gateway-low-latency",
        /// A gateway, which decodes and encodes, and hands on objects. The backend trusts nobody's
        /// (`Server::trusted_gateways`), and so verifies each.
        GatewayObjects = "gateway-objects",
        /// The same to a backend that trusts its own user's gateway, as it does unless told otherwise, and verifies none.
        GatewayTrusted = "gateway-trusted",
        /// Envoy, in front of the plain tonic server.
        Envoy = "envoy",
        /// nginx, in front of the plain tonic server.
        Nginx = "nginx",
    }
}

axis! {
    /// What travels, there and back.
    SplitMessage, "message", {
        /// 64 bytes in one field.
        Echo64 = "echo64",
        /// bench3's M3 of HyperProtoBench, 845 bytes in the corpus.
        M3 = "M3",
        /// bench4's M43, 36 KB in the corpus.
        M43 = "M43",
        /// bench5's M34, 476 KB in the corpus.
        M34 = "M34",
        /// An order of a shop, 1.1 KB.
        Order = "order",
        /// A descriptor set of 80 KB and 14,621 fields: bench2's of HyperProtoBench.
        Fds = "fds",
    }
}

impl SplitSide {
    /// Whether the backend gets objects.
    pub(crate) fn has_objects(self) -> bool {
        matches!(self, SplitSide::GatewayObjects | SplitSide::GatewayTrusted)
    }

    /// Whether a gateway stands in between.
    pub(crate) fn is_gateway(self) -> bool {
        let has_bytes =
            [SplitSide::GatewayBytes, SplitSide::GatewayLowLatency, SplitSide::GatewayStream].contains(&self);
        has_bytes || self.has_objects()
    }

    /// Whether the backend does its RPC work itself, and nothing stands in between.
    fn is_direct(self) -> bool {
        matches!(self, SplitSide::Tonic | SplitSide::TonicTls)
    }

    /// Whether the backend is reached over TLS.
    fn is_tls(self) -> bool {
        matches!(self, SplitSide::TonicTls | SplitSide::GatewayStream)
    }
}

impl SplitMessage {
    /// Where a corpus and the kept schemas have it, and how long it is there.
    const fn place(self) -> Option<(&'static str, usize)> {
        match self {
            SplitMessage::Echo64 | SplitMessage::Order | SplitMessage::Fds => None,
            SplitMessage::M3 => Some(("bench3", 845)),
            SplitMessage::M43 => Some(("bench4", 36_078)),
            SplitMessage::M34 => Some(("bench5", 476_000)),
        }
    }

    /// Its bytes: the corpus', or generated ones.
    pub(crate) fn bytes(self, corpus: Option<&Path>) -> Result<Vec<u8>, BenchError> {
        let samples = match self {
            SplitMessage::Order => Some(Message::Order.samples(corpus)?),
            SplitMessage::Fds => Some(Message::Fds.samples(corpus)?),
            _ => None,
        };
        if let Some(sample) = samples.and_then(|samples| samples.into_iter().next()) {
            return Ok(sample);
        }
        let Some((schema, len)) = self.place() else {
            return Ok(prost::Message::encode_to_vec(&crate::proto::Bytes { body: body_of(64) }));
        };
        if let Some(dir) = corpus {
            let path = dir.join(schema).join(format!("{self}.binpb"));
            let words = |error| BenchError::Refused(format!("cannot read {}: {error}", path.display()));
            return std::fs::read(&path).map_err(words);
        }
        let schema = schemas::kept(schema)?;
        let message = |seed| lookalike::message(schema, &format!("hyperprotobench.{self}"), seed);
        let mut bytes = Vec::new();
        // One message behind another is both merged into one: what is repeated adds up.
        for seed in 0..SEEDS {
            bytes = client::canonical(self, &[bytes, message(seed)].concat()).map_err(BenchError::Refused)?;
            if bytes.len() >= len {
                break;
            }
        }
        Ok(bytes)
    }
}

/// Generated messages that are merged into one, at most.
const SEEDS: u64 = 1000;

/// What to measure: every combination is a row.
#[derive(Debug, Clone)]
pub struct SplitPlan {
    /// What stands in between.
    pub sides: Vec<SplitSide>,
    /// What travels.
    pub messages: Vec<SplitMessage>,
    /// Calls in flight.
    pub inflights: Vec<usize>,
    /// How long the handler is busy in each call.
    pub busy_ns: Vec<u64>,
    /// How long and how often.
    pub lasting: Lasting,
    /// Directory of a HyperProtoBench corpus; without it, generated messages of the same types.
    pub corpus: Option<PathBuf>,
}

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitCase {
    /// What stands in between.
    pub side: SplitSide,
    /// What travels.
    pub message: SplitMessage,
    /// Calls in flight.
    pub inflight: usize,
    /// How long the handler is busy in each call.
    pub busy_ns: u64,
}

impl fmt::Display for SplitCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SplitCase { side, message, inflight, busy_ns } = self;
        write!(f, "{side} · {message}, {inflight} in flight, busy {busy_ns} ns")
    }
}

impl SplitPlan {
    /// Checks what the command line's own types cannot.
    ///
    /// # Errors
    /// [`BenchError::Refused`], naming the value and what is allowed.
    pub fn check(&self) -> Result<(), BenchError> {
        within(&self.inflights, 1..=INFLIGHT_MAX, "calls in flight")?;
        within(&self.busy_ns, 0..=BUSY_NS_MAX, "ns busy")?;
        self.lasting.check()?;
        some(&self.cases())
    }

    /// Every case once, those that are compared with each other next to each other.
    fn cases(&self) -> Vec<SplitCase> {
        let mut cases = Vec::new();
        for &message in &self.messages {
            for &inflight in &self.inflights {
                for &busy_ns in &self.busy_ns {
                    for &side in &self.sides {
                        cases.push(SplitCase { side, message, inflight, busy_ns });
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
    pub(crate) case: SplitCase,
    pub(crate) role: Role,
}

/// Which of the three a process is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    /// Serves the world in `dir`; answers where.
    Between {
        dir: PathBuf,
        /// Where there are two groups: the message whose calls are the other one's.
        groups: Option<SplitMessage>,
    },
    /// Handles calls; answers where, or where it has attached.
    Backends { dir: PathBuf, group: Option<String> },
    /// Calls in a closed loop, and counts what the others use meanwhile.
    Call(Calls),
    /// The same at a rate, whatever comes of it; says when it begins to measure.
    Flood { calls: Calls, rate: f64 },
    /// Asks a gateway for what it answers itself, and for a call of the other group.
    Ask(Asking),
}

/// Whom to call, whom to watch, and for how long.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Calls {
    pub(crate) address: String,
    pub(crate) message: PathBuf,
    pub(crate) backends: u32,
    pub(crate) between: Option<u32>,
    pub(crate) warm_up: Duration,
    pub(crate) measure: Duration,
}

/// What a round measured.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Split {
    pub(crate) latencies: Latencies,
    pub(crate) elapsed_ns: u64,
    pub(crate) host_cpu_ns: u64,
    pub(crate) infra_cpu_ns: u64,
    pub(crate) client_cpu_ns: u64,
}

impl Split {
    /// Of all rounds together.
    fn sum<'s>(rounds: impl IntoIterator<Item = &'s Split>) -> Split {
        let mut all = Split::default();
        for round in rounds {
            all.latencies.merge(&round.latencies);
            all.elapsed_ns += round.elapsed_ns;
            all.host_cpu_ns += round.host_cpu_ns;
            all.infra_cpu_ns += round.infra_cpu_ns;
            all.client_cpu_ns += round.client_cpu_ns;
        }
        all
    }

    fn rate(&self) -> f64 {
        self.latencies.count() as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// Measures everything that the plan asks for; `progress` hears of each measurement. A case that fails is a row that says so.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that cannot be carried out here, [`BenchError::System`].
pub async fn run(plan: &SplitPlan, progress: impl FnMut(&Told)) -> Result<SplitReport, BenchError> {
    plan.check()?;
    let cores = harness::seats([Placement::Split])?;
    let messages: Vec<(SplitMessage, Vec<u8>)> = plan
        .messages
        .iter()
        .map(|message| Ok((*message, message.bytes(plan.corpus.as_deref())?)))
        .collect::<Result<_, BenchError>>()?;
    let bytes_of =
        |wanted| &messages.iter().find(|(message, _)| *message == wanted).expect("it is planned").1;
    let machine = Machine::look(&cores, &Malloc::Keep.settings());
    let take = async |case: SplitCase| measure(plan.lasting, case, bytes_of(case.message), &cores).await;
    let rate = |split: &Split| format!("{:.0} calls/s", split.rate());
    let tried = rounds::interleave(plan.cases(), plan.lasting.rounds, take, rate, progress).await;
    let mut codecs = Vec::new();
    // Only a side that hands on objects shows them.
    let shown = messages.iter().filter(|_| plan.sides.iter().any(|side| side.has_objects()));
    for (message, bytes) in shown {
        codecs.push((*message, accelerated::codec_ns(*message, bytes)?));
    }
    Ok(SplitReport::new(machine, plan, tried, &codecs, |message| bytes_of(message).len()))
}

async fn measure(
    lasting: Lasting,
    case: SplitCase,
    message: &[u8],
    cores: &Cores,
) -> Result<Split, BenchError> {
    let seats = cores.seats(Placement::Split)?;
    proxy::look_for(case.side).map_err(BenchError::Refused)?;
    let crew = order::crew(Malloc::Keep)?;
    let file = crew.write("message", message)?;
    let part = |role| Order::Split(Part { case, role });
    let place = || crew.dir().to_owned();
    if case.side.is_tls() {
        crate::certificates::write(crew.dir()).map_err(BenchError::Refused)?;
    }
    let (mut front, mut between) = (None, None);
    if !case.side.is_direct() {
        let role = part(Role::Between { dir: place(), groups: None });
        let (peer, Serving { address }) = crew.ready("infrastructure", seats.client, role).await?;
        (front, between) = (Some(address), Some(peer));
    }
    let role = part(Role::Backends { dir: place(), group: None });
    let (backends, Serving { address }) = crew.ready("backends", seats.server, role).await?;
    let (warm_up, measure) = (lasting.warm_up(), lasting.measure());
    let calls = part(Role::Call(Calls {
        address: front.unwrap_or(address),
        message: file,
        backends: pid_of(&backends)?,
        between: between.as_ref().map(pid_of).transpose()?,
        warm_up,
        measure,
    }));
    let measured = crew.measure("client", seats.client, calls, warm_up + measure).await?;
    backends.stop().await;
    if let Some(between) = between {
        between.stop().await;
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> SplitPlan {
        SplitPlan {
            sides: SplitSide::ALL.to_vec(),
            messages: SplitMessage::ALL.to_vec(),
            inflights: vec![1, 64],
            busy_ns: vec![0, 1000],
            lasting: Lasting { seconds: 1.0, rounds: 1 },
            corpus: None,
        }
    }

    #[test]
    fn impossible_plans_are_refused_in_words() {
        plan().check().unwrap();
        assert_eq!(plan().cases().len(), 216);
        type Spoil = fn(&mut SplitPlan);
        let spoil: [(&str, Spoil); 4] = [
            ("0 calls in flight", |p| p.inflights.push(0)),
            ("ns busy", |p| p.busy_ns.push(u64::MAX)),
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

    #[test]
    fn generated_messages_are_of_their_types() {
        for message in SplitMessage::ALL {
            let bytes = message.bytes(None).unwrap();
            client::check(*message, &bytes, &bytes).unwrap();
            assert!(client::check(*message, &bytes, &bytes[..bytes.len() / 2]).is_err(), "{message}");
        }
        let away = SplitMessage::M3.bytes(Some(Path::new("/nowhere"))).unwrap_err().to_string();
        assert!(away.contains("/nowhere/bench3/M3.binpb"), "{away}");
    }
}
