//! NotNets' figure 1a: where the time of an echo call goes, layer by layer.
//!
//! The paper takes samples of call stacks of a gRPC server. Which function a sample falls into says little where compilers
//! put one into the other, and not every machine has counters to sample by. Here layers are told apart by leaving them out:
//!
//! - **kernel** is what the kernel counts as its own time on behalf of the two processes;
//! - **serialization** is the message encoded twice and decoded twice by the same prost code, alone in a process;
//! - **transport** is the user time that two processes take to exchange the same bytes without stubs: `h2` with gRPC's
//!   headers, or a bare session;
//! - **core** is the rest of the user time: stubs, codecs, buffers, routing, tasks.
//!
//! Both processes share one core, one call at a time: while one waits, the other works, so that no time is spent on waiting
//! by spinning, and all that is spent counts. What wakes a process on another core isn't in it.

mod bare;
mod part;
mod plot;
pub mod report;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use prost::Message as _;
use serde::{Deserialize, Serialize};

use crate::codec::lookalike;
use crate::cores::{CoreIdx, Cores};
use crate::hyperprotobench::M54;
use crate::order::{Order, Serving};
use crate::peer::Peer;
use crate::plan::Malloc;
use crate::proto::HelloWorld;
use crate::workdir::Workdir;
use crate::{BenchError, Machine};

use self::part::{Coded, Spent};
pub(crate) use self::part::{Part, act};
pub use self::report::LayersReport;

/// Time that a process may take to start, or longer than it was told to measure.
const PATIENCE: Duration = Duration::from_secs(30);
/// A large message is at least so long, where none comes from a corpus: as long as the corpus' own.
const LARGE_LEN: usize = 128 << 10;
/// Of the look-alikes that a large message is made of.
const SEED: u64 = 54;

/// What is echoed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A name, as in gRPC's tutorial.
    HelloWorld,
    /// Message M54 of HyperProtoBench's bench5.
    M54,
}

impl Kind {
    /// Both, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::HelloWorld, Self::M54];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::HelloWorld => "HelloWorld",
            Kind::M54 => "M54",
        })
    }
}

/// What carries a call, whole or without its stubs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// Stock tonic over TCP.
    TonicTcp,
    /// Stock tonic over a Unix socket.
    TonicUnix,
    /// tonic's stubs over Tollfree.
    Level1,
    /// Tollfree's own stubs.
    Level2,
    /// HTTP/2 alone, over TCP.
    BareTcp,
    /// HTTP/2 alone, over a Unix socket.
    BareUnix,
    /// A session alone.
    Session,
}

/// Whole stacks, each with what is left of it without stubs.
const STACKS: [(Carrier, Carrier); 4] = [
    (Carrier::TonicTcp, Carrier::BareTcp),
    (Carrier::TonicUnix, Carrier::BareUnix),
    (Carrier::Level1, Carrier::Session),
    (Carrier::Level2, Carrier::Session),
];

/// All carriers, each once.
const CARRIERS: [Carrier; 7] = [
    Carrier::TonicTcp,
    Carrier::BareTcp,
    Carrier::TonicUnix,
    Carrier::BareUnix,
    Carrier::Level1,
    Carrier::Level2,
    Carrier::Session,
];

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Carrier::TonicTcp => "HTTP/2 over TCP",
            Carrier::TonicUnix => "HTTP/2 over a Unix socket",
            Carrier::Level1 => "level 1: tonic's stubs",
            Carrier::Level2 => "level 2: own stubs",
            Carrier::BareTcp => "h2 alone over TCP",
            Carrier::BareUnix => "h2 alone over a Unix socket",
            Carrier::Session => "a session alone",
        })
    }
}

/// What to do.
#[derive(Debug, Clone)]
pub struct LayersPlan {
    /// Directory of a HyperProtoBench corpus, for its M54; a look-alike is generated if there is none.
    pub corpus: Option<PathBuf>,
    /// Measured time of a carrier in a round.
    pub seconds: f64,
    /// Rounds; everything runs once in each.
    pub rounds: usize,
}

/// One measurement that just ended.
#[derive(Debug)]
pub struct LayersStep {
    /// Measurements done, this one included.
    pub done: usize,
    /// Measurements in all.
    pub total: usize,
    /// The message.
    pub kind: Kind,
    /// What carried it; none where it was encoded and decoded.
    pub carrier: Option<Carrier>,
}

impl LayersPlan {
    fn check(&self) -> Result<(), BenchError> {
        if !(self.seconds >= 0.01 && self.seconds <= 600.0) {
            let words = format!("{} seconds for each carrier and round: must be 0.01 to 600", self.seconds);
            return Err(BenchError::Refused(words));
        }
        if !(1..=1000).contains(&self.rounds) {
            return Err(BenchError::Refused(format!("{} rounds: must be 1 to 1000", self.rounds)));
        }
        Ok(())
    }

    fn measure(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    fn warm_up(&self) -> Duration {
        (self.measure() / 4).clamp(Duration::from_millis(20), Duration::from_millis(300))
    }

    /// The encoded message of a kind.
    fn message(&self, kind: Kind) -> Result<Vec<u8>, BenchError> {
        match (kind, &self.corpus) {
            (Kind::HelloWorld, _) => Ok(HelloWorld { name: "world".to_owned() }.encode_to_vec()),
            (Kind::M54, None) => Ok(large()),
            (Kind::M54, Some(dir)) => {
                let path = dir.join("bench5/M54.binpb");
                let refused = |error| BenchError::Refused(format!("cannot read {}: {error}", path.display()));
                let bytes = std::fs::read(&path).map_err(|error| refused(error.to_string()))?;
                let message = M54::decode(&bytes[..]).map_err(|error| refused(error.to_string()))?;
                Ok(message.encode_to_vec())
            }
        }
    }
}

/// A message of M54's shape with seeded contents, mostly short strings: look-alikes merged until it is long enough.
fn large() -> Vec<u8> {
    let kept = tollfree_codec_peers::SCHEMAS.iter().find(|schema| schema.name == "bench5");
    let schema = kept.expect("the schema is kept").descriptor_set;
    let mut message = M54::default();
    for seed in SEED.. {
        let more = lookalike::message(schema, "hyperprotobench.M54", seed);
        message.merge(&more[..]).expect("a look-alike has the schema's shape");
        if message.encoded_len() >= LARGE_LEN {
            break;
        }
    }
    message.encode_to_vec()
}

/// What was measured of a message in one round.
#[derive(Debug, Default)]
struct Round {
    coded: Coded,
    spent: Vec<(Carrier, Result<Spent, String>)>,
}

/// Measures everything; `progress` hears of each measurement.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that can't be carried out here, [`BenchError::System`]. A carrier that fails is a row
/// that says so.
pub async fn run(
    plan: &LayersPlan,
    mut progress: impl FnMut(&LayersStep),
) -> Result<LayersReport, BenchError> {
    plan.check()?;
    let cores = Cores::choose()?;
    let machine = Machine::look(&cores, &Malloc::Keep.settings());
    let dir = Workdir::create()?;
    let mut messages = Vec::new();
    for kind in Kind::ALL {
        let (bytes, path) = (plan.message(kind)?, dir.join(&format!("{kind}.binpb")));
        std::fs::write(&path, &bytes).map_err(|source| BenchError::Write { path: path.clone(), source })?;
        messages.push((kind, bytes.len(), path, Vec::new()));
    }
    let total = plan.rounds * Kind::ALL.len() * (CARRIERS.len() + 1);
    let mut done = 0;
    for round_idx in 0..plan.rounds {
        for (kind, _, path, rounds) in &mut messages {
            let mut step = |carrier| {
                done += 1;
                progress(&LayersStep { done, total, kind: *kind, carrier });
            };
            let coded = code(plan, *kind, path.clone(), cores.server()).await?;
            step(None);
            let mut round = Round { coded, spent: Vec::with_capacity(CARRIERS.len()) };
            // There and back again, so that none always follows the same neighbour.
            let mut order = CARRIERS;
            if round_idx % 2 == 1 {
                order.reverse();
            }
            for carrier in order {
                let spent = spend(plan, carrier, *kind, path.clone(), cores.server()).await;
                round.spent.push((carrier, spent.map_err(|error| error.to_string())));
                step(Some(carrier));
            }
            rounds.push(round);
        }
    }
    let measured = messages.into_iter().map(|(kind, len, _, rounds)| (kind, len, rounds));
    Ok(LayersReport::new(machine, plan, measured.collect()))
}

async fn start(role: &'static str, part: Part) -> Result<Peer, BenchError> {
    Ok(Peer::start(role, &["bench-peer"], &Malloc::Keep.settings(), &Order::Layers(part)).await?)
}

/// Encodes and decodes in a process of its own.
async fn code(plan: &LayersPlan, kind: Kind, message: PathBuf, core: CoreIdx) -> Result<Coded, BenchError> {
    let mut coder = start("codec", Part::Code { kind, message, core, measure: plan.measure() }).await?;
    let coded = coder.hear(plan.measure() + PATIENCE).await?;
    coder.stop().await;
    Ok(coded)
}

/// Calls, in two processes.
async fn spend(
    plan: &LayersPlan,
    carrier: Carrier,
    kind: Kind,
    message: PathBuf,
    core: CoreIdx,
) -> Result<Spent, BenchError> {
    let dir = Workdir::create()?;
    let mut server = start("server", Part::Serve { carrier, core, dir: dir.path().to_owned() }).await?;
    let Serving { address } = server.hear(PATIENCE).await?;
    let server_pid =
        server.pid().ok_or_else(|| BenchError::Refused("a measured process has ended already".to_owned()))?;
    let (warm_up, measure) = (plan.warm_up(), plan.measure());
    let call = Part::Call { carrier, kind, message, core, address, server_pid, warm_up, measure };
    let mut client = start("client", call).await?;
    let spent = client.hear(warm_up + measure + PATIENCE).await?;
    client.stop().await;
    server.stop().await;
    Ok(spent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> LayersPlan {
        LayersPlan { corpus: None, seconds: 0.1, rounds: 1 }
    }

    #[test]
    fn messages_are_as_long_as_they_should_be_and_always_the_same() {
        assert_eq!(plan().message(Kind::HelloWorld).unwrap(), b"\x0a\x05world");
        let large = plan().message(Kind::M54).unwrap();
        assert!((LARGE_LEN..2 * LARGE_LEN).contains(&large.len()), "{}", large.len());
        assert_eq!(large, plan().message(Kind::M54).unwrap());
        // Made of many strings, not of one.
        assert!(M54::decode(&large[..]).unwrap().f1.len() > 100);
    }

    #[test]
    fn a_corpus_is_read_or_its_absence_said() {
        let dir = Workdir::create().unwrap();
        let plan = LayersPlan { corpus: Some(dir.path().to_owned()), ..plan() };
        let error = plan.message(Kind::M54).unwrap_err().to_string();
        assert!(error.contains("bench5/M54.binpb"), "{error}");
        std::fs::create_dir(dir.join("bench5")).unwrap();
        let kept = M54 { f1: vec!["kept".to_owned()], ..M54::default() }.encode_to_vec();
        std::fs::write(dir.join("bench5/M54.binpb"), &kept).unwrap();
        assert_eq!(plan.message(Kind::M54).unwrap(), kept);
    }

    #[test]
    fn impossible_plans_are_refused() {
        for bad in [LayersPlan { seconds: f64::NAN, ..plan() }, LayersPlan { rounds: 0, ..plan() }] {
            assert!(matches!(bad.check(), Err(BenchError::Refused(_))));
        }
    }
}
