//! What a gateway's own answers take while a backend's core has more to do than it can.
//!
//! Four processes. The backend has a core of its own; the gateway, the load generator, the process that asks, and that of
//! another group share the other core. Calls come in an open loop, at a share of what the backend can do (its knee, which is
//! measured first). Meanwhile somebody else asks the gateway for health, for a service that is not there, and for a call of the other group.
//! The same is asked without any load, and with the same rate of calls to a backend that is not busy: what the load generator
//! and the passing calls cost the shared core is in both of the latter.

mod act;
mod report;

use std::fmt;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tollfree_measure::axis;

use super::{BUSY_NS_MAX, Part, Role, Split, SplitCase, SplitMessage, SplitPlan, SplitSide};
use crate::BenchError;
use crate::cores::{Cores, Seats};
use crate::harness::{self, Crew, Machine, pid_of, refuse, rounds, within};
use crate::latency::Latencies;
use crate::order::{self, Order, Serving};
use crate::peer::Peer;
use crate::plan::{Malloc, Placement};

pub(super) use self::act::{ask, flood};
pub use self::report::BeyondReport;

/// Shares of the knee that can be asked for.
const SHARES: std::ops::RangeInclusive<f64> = 0.1..=10.0;
/// How long finding the knee takes at most.
const KNEE_MAX: Duration = Duration::from_secs(2);
/// What the load goes on for beyond the time in which somebody asks, so that he begins and ends within it.
const SLACK: Duration = Duration::from_secs(2);

axis! {
    /// What the backend's core has to do meanwhile.
    BeyondState, "state", {
        /// Nothing: there is no load at all.
        Quiet = "quiet",
        /// Next to nothing: calls come at the same rate, to a handler that is not busy.
        SameRate = "same-rate",
        /// More than it can.
        Beyond = "beyond",
    }
}

axis! {
    /// What the gateway is asked for.
    Question, "question", {
        /// `grpc.health.v1.Health/Check`, which the gateway answers itself.
        Health = "health",
        /// A service that nobody serves, which the gateway refuses itself.
        Refusal = "refusal",
        /// A call of another group, whose process has nothing else to do.
        OtherGroup = "other-group",
    }
}

/// What to measure: every message with every time of application code is a case.
#[derive(Debug, Clone)]
pub struct BeyondPlan {
    /// Messages, time of application code, calls in flight where the knee is looked for, seconds and rounds. The side is the gateway.
    pub split: SplitPlan,
    /// The rate of calls, by that of the knee.
    pub share: f64,
}

/// One case.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BeyondCase {
    /// What the calls carry that the backend's core has to do with.
    pub message: SplitMessage,
    /// How long the handler is busy in each of them.
    pub busy_ns: u64,
}

impl fmt::Display for BeyondCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, busy {} ns", self.message, self.busy_ns)
    }
}

/// What a process that asks, or one that calls, does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Asking {
    pub(crate) address: String,
    pub(crate) warm_up: Duration,
    pub(crate) measure: Duration,
}

/// What somebody was told, by question.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) latencies: [Latencies; Question::ALL.len()],
}

/// What became of the load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Flooded {
    pub(crate) split: Split,
    /// Calls that were due.
    pub(crate) due: u64,
    /// Those of them that were not made, since too many were under way.
    pub(crate) left_out: u64,
}

/// What a round measured in one state.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) told: Told,
    pub(crate) flooded: Option<Flooded>,
}

/// What a round measured: calls a second at the knee, and each state.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    pub(crate) knee_per_s: f64,
    pub(crate) states: [State; BeyondState::ALL.len()],
}

impl BeyondPlan {
    /// Checks what the command line's own types cannot.
    ///
    /// # Errors
    /// [`BenchError::Refused`], naming the value and what is allowed.
    pub fn check(&self) -> Result<(), BenchError> {
        self.split.check()?;
        if !SHARES.contains(&self.share) {
            return refuse(format!("{} of the knee: must be 0.1 to 10", self.share));
        }
        if self.split.sides.iter().any(|side| *side != SplitSide::GatewayBytes) {
            return refuse("beyond the knee, the only side is gateway-bytes: its own answers are measured");
        }
        within(&self.split.busy_ns, 1..=BUSY_NS_MAX, "ns busy, for a knee")
    }

    fn cases(&self) -> Vec<BeyondCase> {
        let of = |&message| self.split.busy_ns.iter().map(move |&busy_ns| BeyondCase { message, busy_ns });
        self.split.messages.iter().flat_map(of).collect()
    }
}

/// What is called of the other group: another method than that of the load, and short.
pub(super) fn other_message(message: SplitMessage) -> SplitMessage {
    if message == SplitMessage::Echo64 { SplitMessage::M3 } else { SplitMessage::Echo64 }
}

/// Measures everything that the plan asks for; `progress` hears of each measurement. A case that fails is one that says so.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that cannot be carried out here, [`BenchError::System`].
pub async fn run(
    plan: &BeyondPlan,
    progress: impl FnMut(&harness::Told),
) -> Result<BeyondReport, BenchError> {
    plan.check()?;
    let cores = harness::seats([Placement::Split])?;
    let machine = Machine::look(&cores, &Malloc::Keep.settings());
    let take = async |case: BeyondCase| {
        let bytes = case.message.bytes(plan.split.corpus.as_deref())?;
        measure(plan, case, &bytes, &cores).await
    };
    let knee = |round: &Round| format!("{:.0} calls/s at the knee", round.knee_per_s);
    let tried = rounds::interleave(plan.cases(), plan.split.lasting.rounds, take, knee, progress).await;
    Ok(BeyondReport::new(machine, plan, tried))
}

/// A round of a case: the quiet state and the one beyond with the same processes, the one between with others.
async fn measure(
    plan: &BeyondPlan,
    case: BeyondCase,
    message: &[u8],
    cores: &Cores,
) -> Result<Round, BenchError> {
    let busy = Lab::start(plan, case, message, cores).await?;
    let quiet = busy.ask().await?;
    let knee_per_s = busy.knee().await?;
    let rate = knee_per_s * plan.share;
    let beyond = busy.ask_under(rate).await?;
    busy.stop().await;
    let idle = Lab::start(plan, BeyondCase { busy_ns: 0, ..case }, message, cores).await?;
    let same_rate = idle.ask_under(rate).await?;
    idle.stop().await;
    Ok(Round { knee_per_s, states: [quiet, same_rate, beyond] })
}

/// A gateway, a backend, and one of another group.
struct Lab {
    case: SplitCase,
    seats: Seats,
    crew: Crew,
    address: String,
    between: Peer,
    backends: Peer,
    other: Peer,
    warm_up: Duration,
    measure: Duration,
}

impl Lab {
    async fn start(
        plan: &BeyondPlan,
        case: BeyondCase,
        message: &[u8],
        cores: &Cores,
    ) -> Result<Lab, BenchError> {
        let seats = cores.seats(Placement::Split)?;
        let inflight = plan.split.inflights.iter().copied().max().unwrap_or(1);
        let BeyondCase { message: kind, busy_ns } = case;
        let case = SplitCase { side: SplitSide::GatewayBytes, message: kind, inflight, busy_ns };
        let crew = order::crew(Malloc::Keep)?;
        crew.write("message", message)?;
        let dir = || crew.dir().to_owned();
        let part = |case, role| Order::Split(Part { case, role });
        let role = Role::Between { dir: dir(), groups: Some(other_message(kind)) };
        let (between, Serving { address }) =
            crew.ready("infrastructure", seats.client, part(case, role)).await?;
        let role = Role::Backends { dir: dir(), group: Some(OWN.to_owned()) };
        let (backends, Serving { .. }) = crew.ready("backends", seats.server, part(case, role)).await?;
        // It is never busy, and on the core of those who ask: the backend's core would make it wait.
        let role = Role::Backends { dir: dir(), group: Some(OTHER.to_owned()) };
        let idle = SplitCase { busy_ns: 0, ..case };
        let (other, Serving { .. }) = crew.ready("another group", seats.client, part(idle, role)).await?;
        let (warm_up, measure) = (plan.split.lasting.warm_up(), plan.split.lasting.measure());
        Ok(Lab { case, seats, crew, address, between, backends, other, warm_up, measure })
    }

    fn calls(&self, warm_up: Duration, measure: Duration) -> Result<super::Calls, BenchError> {
        Ok(super::Calls {
            address: self.address.clone(),
            message: self.crew.dir().join("message"),
            backends: pid_of(&self.backends)?,
            between: Some(pid_of(&self.between)?),
            warm_up,
            measure,
        })
    }

    fn part(&self, role: Role) -> Order {
        Order::Split(Part { case: self.case, role })
    }

    /// How many calls the backend answers in a second when there are always some.
    async fn knee(&self) -> Result<f64, BenchError> {
        let measure = self.measure.min(KNEE_MAX);
        let calls = self.part(Role::Call(self.calls(self.warm_up, measure)?));
        let lasts = self.warm_up + measure;
        let measured: Split = self.crew.measure("client", self.seats.client, calls, lasts).await?;
        Ok(measured.rate())
    }

    async fn ask(&self) -> Result<State, BenchError> {
        let (address, warm_up, measure) = (self.address.clone(), self.warm_up, self.measure);
        let asking = self.part(Role::Ask(Asking { address, warm_up, measure }));
        let lasts = warm_up + measure;
        let told = self.crew.measure("asking client", self.seats.client, asking, lasts).await?;
        Ok(State { told, flooded: None })
    }

    /// Asks while calls come at a rate.
    async fn ask_under(&self, rate: f64) -> Result<State, BenchError> {
        let lasts = self.warm_up + self.measure + SLACK;
        let flood = self.part(Role::Flood { calls: self.calls(self.warm_up, lasts)?, rate });
        // It says when what comes is measured.
        let (mut flooding, ()) = self.crew.ready("client", self.seats.client, flood).await?;
        let began = Instant::now();
        let mut state = self.ask().await?;
        if began.elapsed() > lasts {
            return refuse("the load ended before the asking did: this machine has too much else to do");
        }
        state.flooded = Some(flooding.hear(lasts + Crew::PATIENCE).await?);
        flooding.stop().await;
        Ok(state)
    }

    async fn stop(self) {
        self.backends.stop().await;
        self.other.stop().await;
        self.between.stop().await;
    }
}

/// The groups: that of the load, and that which somebody asks for meanwhile.
pub(super) const OWN: &str = "backends";
pub(super) const OTHER: &str = "other";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_plans_are_refused_in_words() {
        let plan = || BeyondPlan {
            split: SplitPlan {
                sides: vec![SplitSide::GatewayBytes],
                messages: vec![SplitMessage::Echo64],
                inflights: vec![64],
                busy_ns: vec![1000, 2000],
                lasting: harness::Lasting { seconds: 1.0, rounds: 1 },
                corpus: None,
            },
            share: 1.2,
        };
        plan().check().unwrap();
        assert_eq!(plan().cases().len(), 2);
        type Spoil = fn(&mut BeyondPlan);
        let spoil: [(&str, Spoil); 4] = [
            ("of the knee", |p| p.share = 0.0),
            ("gateway-bytes", |p| p.split.sides.push(SplitSide::Tonic)),
            ("0 ns busy", |p| p.split.busy_ns.push(0)),
            ("rounds", |p| p.split.lasting.rounds = 0),
        ];
        for (words, spoil) in spoil {
            let mut plan = plan();
            spoil(&mut plan);
            let error = plan.check().unwrap_err().to_string();
            assert!(error.contains(words), "{error:?} lacks {words:?}");
        }
    }
}
