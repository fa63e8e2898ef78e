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

use prost::Message as _;
use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::cores::CoreIdx;
use crate::harness::{self, Lasting, Machine, Told, pid_of, refuse, rounds};
use crate::hyperprotobench::M54;
use crate::lookalike;
use crate::order::{self, Order, Serving};
use crate::plan::Malloc;
use crate::proto::HelloWorld;
use crate::schemas;

use self::part::{Coded, Spent};
pub(crate) use self::part::{Part, act};
pub use self::report::LayersReport;

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
    /// How long and how often.
    pub lasting: Lasting,
}

/// What is measured at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    kind: Kind,
    /// What carries it; none where it is encoded and decoded.
    carrier: Option<Carrier>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.carrier {
            Some(carrier) => write!(f, "{} · {carrier}", self.kind),
            None => write!(f, "{} · prost alone", self.kind),
        }
    }
}

/// What a measurement came to.
#[derive(Debug, Clone, Copy)]
enum Took {
    Coded(Coded),
    Spent(Spent),
}

impl LayersPlan {
    /// The encoded message of a kind.
    fn message(&self, kind: Kind) -> Result<Vec<u8>, BenchError> {
        match (kind, &self.corpus) {
            (Kind::HelloWorld, _) => Ok(HelloWorld { name: "world".to_owned() }.encode_to_vec()),
            (Kind::M54, None) => Ok(large()),
            (Kind::M54, Some(dir)) => {
                let path = dir.join("bench5/M54.binpb");
                let read = || Ok(M54::decode(&std::fs::read(&path)?[..])?.encode_to_vec());
                read().or_else(|error: std::io::Error| {
                    refuse(format!("cannot read {}: {error}", path.display()))
                })
            }
        }
    }
}

/// A message of M54's shape with seeded contents, mostly short strings: look-alikes merged until it is long enough.
fn large() -> Vec<u8> {
    let schema = schemas::kept("bench5").expect("the schema is kept");
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

/// Measures everything; `progress` hears of each measurement.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that can't be carried out here, [`BenchError::System`]. A carrier that fails is a row
/// that says so.
pub async fn run(plan: &LayersPlan, progress: impl FnMut(&Told)) -> Result<LayersReport, BenchError> {
    plan.lasting.check()?;
    let cores = harness::seats([])?;
    let machine = Machine::look(&cores, &Malloc::Keep.settings());
    let messages = Kind::ALL.map(|kind| plan.message(kind));
    let [hello, large] = messages;
    let messages = [hello?, large?];
    let of =
        |kind| messages[Kind::ALL.iter().position(|known| *known == kind).expect("it is one")].as_slice();
    let carriers = || [None].into_iter().chain(CARRIERS.map(Some));
    let cases = Kind::ALL.into_iter().flat_map(|kind| carriers().map(move |carrier| Case { kind, carrier }));
    let take = async |case: Case| measure(plan.lasting, case, of(case.kind), cores.server()).await;
    let outcome = |took: &Took| match took {
        Took::Coded(coded) => format!("{:.0} ns", coded.encode_ns + coded.decode_ns),
        Took::Spent(spent) => format!("{} calls", spent.calls),
    };
    let tried = rounds::interleave(cases, plan.lasting.rounds, take, outcome, progress).await;
    let lengths = Kind::ALL.map(|kind| (kind, of(kind).len()));
    Ok(LayersReport::new(machine, plan.lasting, &lengths, &tried))
}

/// Calls in two processes, or encodes and decodes in one.
async fn measure(
    lasting: Lasting,
    Case { kind, carrier }: Case,
    message: &[u8],
    core: CoreIdx,
) -> Result<Took, BenchError> {
    let crew = order::crew(Malloc::Keep)?;
    let message = crew.write("message", message)?;
    let (warm_up, measure) = (lasting.warm_up(), lasting.measure());
    let Some(carrier) = carrier else {
        let part = Order::Layers(Part::Code { kind, message, measure });
        return Ok(Took::Coded(crew.measure("codec", Some(core), part, measure).await?));
    };
    let part = Order::Layers(Part::Serve { carrier, dir: crew.dir().to_owned() });
    let (server, Serving { address }) = crew.ready("server", Some(core), part).await?;
    let server_pid = pid_of(&server)?;
    let call = Part::Call { carrier, kind, message, address, server_pid, warm_up, measure };
    let spent = crew.measure("client", Some(core), Order::Layers(call), warm_up + measure).await?;
    server.stop().await;
    Ok(Took::Spent(spent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> LayersPlan {
        LayersPlan { corpus: None, lasting: Lasting { seconds: 0.1, rounds: 1 } }
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
        let dir = crate::workdir::Workdir::create().unwrap();
        let plan = LayersPlan { corpus: Some(dir.path().to_owned()), ..plan() };
        let error = plan.message(Kind::M54).unwrap_err().to_string();
        assert!(error.contains("bench5/M54.binpb"), "{error}");
        std::fs::create_dir(dir.join("bench5")).unwrap();
        let kept = M54 { f1: vec!["kept".to_owned()], ..M54::default() }.encode_to_vec();
        std::fs::write(dir.join("bench5/M54.binpb"), &kept).unwrap();
        assert_eq!(plan.message(Kind::M54).unwrap(), kept);
    }
}
