//! A good client of a gateway beside clients and processes that mean it no good: its rate and its slow calls, compared with the same
//! when nobody attacks.
//!
//! A gateway, a worker and the good client, each a process; and one that attacks, in half of the measurements. The attacker comes from another
//! address of this host, as another client does.

mod attack;
mod calls;
mod report;

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tollfree::Server;
use tollfree_gateway::{Config, Gateway};

use crate::harness::{self, Lasting, Machine, Rows, Told, rounds, some};
use crate::latency::Latencies;
use crate::order::{self, Load, Measured, Order};
use crate::peer::Starter;
use crate::plan::{Case, Malloc, RuntimeKind, Side};
use crate::{BenchError, side};

pub use attack::Attack;
pub use report::HostileRow;

/// Body of each call.
const SIZE: usize = 64;
/// Calls that the good client has in flight.
const INFLIGHT: usize = 4;
/// The least time before the measured time.
const WARM_UP: Duration = Duration::from_millis(200);

/// What to measure: every attack is a row.
#[derive(Debug, Clone)]
pub struct HostilePlan {
    /// The attacks.
    pub attacks: Vec<Attack>,
    /// How long and how often, once with the attack and once without.
    pub lasting: Lasting,
}

/// One measurement of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostileCase {
    /// Against what.
    pub attack: Attack,
    /// Whether nobody attacks, for comparison.
    pub is_quiet: bool,
}

impl fmt::Display for HostileCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.is_quiet { "without" } else { "with" }, self.attack)
    }
}

/// What a measurement came to.
#[derive(Debug)]
pub struct Round {
    /// Calls a second of the good client.
    pub rate_per_s: f64,
    /// 99 of 100 of its calls took no longer.
    pub p99_ns: u64,
    /// What the attacker held as the measurement began.
    pub held: usize,
}

/// Where a gateway can be reached.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Doors {
    /// `host:port` of the world's listener, and of the page of figures.
    world: String,
    metrics: String,
    /// The processes' address, and the control socket.
    backends: String,
    control: PathBuf,
}

/// What an attacker holds when all that it can have is there.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Standing {
    held: usize,
}

/// The worker is about to attach.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Attaching {}

/// A process of a measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Part {
    /// Has its sockets in this directory; answers [`Doors`].
    Gateway(PathBuf),
    /// Serves echo calls behind the gateway at this address.
    Worker(String),
    /// Answers [`Standing`].
    Attacker(Attack, Doors),
    /// Reads the page of figures again and again; answers [`Measured`].
    Reader { metrics: String, warm_up: Duration, measure: Duration },
}

impl HostilePlan {
    /// Checks what the command line's own types cannot.
    ///
    /// # Errors
    /// [`BenchError::Refused`], naming the value and what is allowed.
    pub fn check(&self) -> Result<(), BenchError> {
        self.lasting.check()?;
        some(&self.attacks)
    }

    fn cases(&self) -> Vec<HostileCase> {
        let both = |&attack| [true, false].map(|is_quiet| HostileCase { attack, is_quiet });
        self.attacks.iter().flat_map(both).collect()
    }
}

/// Measures everything that the plan asks for; `progress` hears of each measurement. A row that fails says so.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that cannot be carried out here, [`BenchError::System`].
pub async fn run(plan: &HostilePlan, progress: impl FnMut(&Told)) -> Result<Rows<HostileRow>, BenchError> {
    plan.check()?;
    let machine = Machine::look(&harness::seats([])?, &Malloc::Keep.settings());
    let take = async |case| take(case, plan.lasting).await;
    let outcome =
        |round: &Round| format!("{:.0} calls/s, p99 {:.1} us", round.rate_per_s, round.p99_ns as f64 / 1e3);
    let tried = rounds::interleave(plan.cases(), plan.lasting.rounds, take, outcome, progress).await;
    Ok(report::report(machine, plan.lasting, tried))
}

async fn take(case: HostileCase, lasting: Lasting) -> Result<Round, BenchError> {
    let crew = order::crew(Malloc::Keep)?;
    let part = Part::Gateway(crew.dir().to_owned());
    let (gateway, doors): (_, Doors) = crew.ready("gateway", None, Order::Hostile(part)).await?;
    let part = Part::Worker(doors.backends.clone());
    let (worker, Attaching {}) = crew.ready("worker", None, Order::Hostile(part)).await?;
    let mut attacker = None;
    let mut held = 0;
    if !case.is_quiet {
        let part = Order::Hostile(Part::Attacker(case.attack, doors.clone()));
        let (process, standing): (_, Standing) = crew.ready("attacker", None, part).await?;
        held = standing.held;
        attacker = Some(process);
    }
    let (warm_up, measure) = (lasting.warm_up().max(WARM_UP), lasting.measure());
    let part = if case.attack.is_on_the_page() {
        Order::Hostile(Part::Reader { metrics: doors.metrics, warm_up, measure })
    } else {
        Order::Load(Load::new(echo(), format!("http://{}", doors.world), warm_up, measure))
    };
    let measured: Measured = crew.measure("client", None, part, warm_up + measure).await?;
    for process in [attacker, Some(worker), Some(gateway)].into_iter().flatten() {
        process.stop().await;
    }
    Ok(Round { rate_per_s: measured.rate(), p99_ns: measured.latencies.quantile_ns(0.99), held })
}

/// The good client's calls.
fn echo() -> Case {
    Case::probe(Side::TonicTcp, SIZE, INFLIGHT, RuntimeKind::Current)
}

/// Carries out a process's order.
pub(crate) fn act(part: &Part, starter: &Starter) -> Result<(), BenchError> {
    let runtime = order::runtime(RuntimeKind::Current)?;
    let ended = runtime.block_on(async {
        match part {
            Part::Gateway(dir) => gateway(dir, starter).await.map(drop),
            Part::Worker(address) => {
                starter.say(Attaching {});
                let serving = side::tollfree::with_stub(Server::builder(), echo()).attach(address).await;
                Err(side::tollfree::ending(address, serving))
            }
            Part::Attacker(attack, doors) => {
                let standing = |held| starter.say(Standing { held });
                attack.run(doors, standing).await.map(drop)
            }
            Part::Reader { metrics, warm_up, measure } => {
                read(metrics, *warm_up, *measure).await.map(|measured| starter.say(measured))
            }
        }
    });
    ended.map_err(|what| BenchError::Side { side: "hostile", what })
}

async fn gateway(dir: &Path, starter: &Starter) -> Result<Infallible, String> {
    let backends = format!("shm://{}", dir.join("backends.sock").display());
    let text = format!(
        "listeners.world.address = \"127.0.0.1:0\"\nmetrics.address = \"127.0.0.1:0\"\nbackends.socket = \"{backends}\"\n\
         [groups.default]\n[groups.other]\nvia = [\"group:default\"]\n[groups.absent]\n\
         [groups.forbidden]\nusers = [4294967290]\n[routes]\n\"{}\" = \"absent\"\n",
        calls::ABSENT,
    );
    let config = Config::from_toml(&text).map_err(|error| error.to_string())?;
    tollfree_gateway::raise_descriptor_limit(&config);
    let gateway = Gateway::bind(config).await.map_err(|error| error.to_string())?;
    let addresses = gateway.addresses();
    let host = |name: &str| {
        let address = addresses.get(name).and_then(|address| address.strip_prefix("http://"));
        address.map(|rest| rest.split('/').next().unwrap_or(rest).to_owned())
    };
    let (Some(world), Some(metrics)) = (host("listeners.world"), host("metrics")) else {
        return Err(format!("the gateway says of its addresses {addresses:?}"));
    };
    let control = dir.join("backends.sock.control");
    starter.say(Doors { world, metrics, backends, control });
    gateway.run(std::future::pending()).await;
    Err("the gateway has stopped".to_owned())
}

/// Reads the page of figures, over a connection of its own each time.
async fn read(metrics: &str, warm_up: Duration, measure: Duration) -> Result<Measured, String> {
    let from = Instant::now() + warm_up;
    let until = from + measure;
    let mut latencies = Latencies::default();
    loop {
        let began = Instant::now();
        calls::read_page(metrics).await.map_err(|error| format!("the page can't be read: {error}"))?;
        let ended = Instant::now();
        if ended >= from {
            latencies.record(ended - began);
        }
        if ended >= until {
            let elapsed_ns = (ended - from).as_nanos().try_into().unwrap_or(u64::MAX);
            return Ok(Measured { latencies, elapsed_ns, used: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_plans_are_refused_in_words() {
        let lasting = Lasting { seconds: 1.0, rounds: 1 };
        let plan = || HostilePlan { attacks: Attack::ALL.to_vec(), lasting };
        plan().check().unwrap();
        assert_eq!(plan().cases().len(), 2 * Attack::ALL.len());
        type Spoil = fn(&mut HostilePlan);
        let spoil: [(&str, Spoil); 2] =
            [("rounds", |plan| plan.lasting.rounds = 0), ("nothing to measure", |plan| plan.attacks.clear())];
        for (words, spoil) in spoil {
            let mut plan = plan();
            spoil(&mut plan);
            let error = plan.check().unwrap_err().to_string();
            assert!(error.contains(words), "{error:?} lacks {words:?}");
        }
    }
}
