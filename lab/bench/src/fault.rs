//! Faults on purpose, beside a client that calls all the time: how long calls go on failing when the fault is over.
//!
//! `restart`: the server's process is killed and started anew at the same address. The outage is the time from the new process's word that it
//! listens to the first call that is answered after that. Calls are fail-fast: they say nothing of waiting for a server, and have no deadline.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollfree_driver_tokio::now_ns;
use tollfree_measure::axis;

use crate::harness::measured::median;
use crate::harness::words::figure;
use crate::harness::{self, Crew, Machine, Report, Table, Told, Tried, pid_of, refuse, rounds, some, within};
use crate::load::EchoCall;
use crate::order::{self, Order, Serve};
use crate::peer::{Peer, Starter};
use crate::plan::{Case, Malloc, RuntimeKind, Side};
use crate::{BenchError, cells, side};

/// Body of each call: its number, and as many bytes more.
const SIZE: usize = 64;
/// Calls that are answered between two faults.
const CALM: Duration = Duration::from_millis(100);

axis! {
    /// What goes wrong.
    FaultKind, "kind of fault", {
        /// The server's process is killed, and started anew.
        Restart = "restart",
    }
}

/// What to measure: every combination is a row.
#[derive(Debug, Clone)]
pub struct FaultPlan {
    /// What goes wrong.
    pub kinds: Vec<FaultKind>,
    /// What carries the calls.
    pub sides: Vec<Side>,
    /// How often it goes wrong.
    pub count: usize,
    /// How long nobody is there, beside the time that a process takes to start.
    pub down: Duration,
}

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FaultCase {
    /// What goes wrong.
    pub kind: FaultKind,
    /// What carries the calls.
    pub side: Side,
}

impl fmt::Display for FaultCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.kind, self.side)
    }
}

impl FaultPlan {
    /// The sides whose clients connect again by themselves.
    pub const SIDES: [Side; 4] = [Side::Tollfree, Side::TollfreePark, Side::TollfreeDirect, Side::TonicUnix];

    /// Checks what the command line's own types cannot.
    ///
    /// # Errors
    /// [`BenchError::Refused`], naming the value and what is allowed.
    pub fn check(&self) -> Result<(), BenchError> {
        if let Some(side) = self.sides.iter().find(|side| !FaultPlan::SIDES.contains(side)) {
            return refuse(format!(
                "{side}: its client does not connect again at the same address by itself"
            ));
        }
        within(&[self.count], 1..=1000, "faults")?;
        within(&[self.down.as_millis()], 0..=60_000, "ms without a server")?;
        some(&self.cases())
    }

    fn cases(&self) -> Vec<FaultCase> {
        let of = |&kind| self.sides.iter().map(move |&side| FaultCase { kind, side });
        self.kinds.iter().flat_map(of).collect()
    }
}

/// A process's part.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    /// Serve, and say when that has begun.
    Serve(Serve),
    /// Call all the time.
    Call {
        /// What carries the calls.
        case: Case,
        /// Where to.
        address: String,
    },
}

/// A server's word that it listens.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Listening {
    address: String,
    at_ns: u64,
}

/// A client's word that a call was answered, the first one or one after others that failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Said {
    Answered { at_ns: u64 },
    Ended(Totals),
}

/// A client is to stop.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Stop {}

/// What became of a client's calls.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Totals {
    calls: u64,
    lost: u64,
    wrong: u64,
}

/// Plays a part.
pub(crate) fn act(part: &Part, starter: &Starter) -> Result<(), BenchError> {
    match part {
        Part::Serve(serve) => side::serve(serve, |serving| {
            starter.say(Listening { address: serving.address, at_ns: now_ns() });
        }),
        Part::Call { case, address } => side::call_on(*case, address, starter),
    }
}

/// Calls until the starter says stop.
pub(crate) async fn call_on<C: EchoCall>(mut caller: C, starter: &Starter) -> Result<(), String> {
    let (mut totals, mut is_down) = (Totals::default(), true);
    while starter.try_hear::<Stop>()?.is_none() {
        totals.calls += 1;
        let mut body = vec![0; SIZE];
        body[..8].copy_from_slice(&totals.calls.to_le_bytes());
        let expected = body.clone();
        match caller.call(body.into()).await {
            Err(_) => {
                totals.lost += 1;
                is_down = true;
                // A client that finds nobody at once leaves others the processor, too.
                tokio::task::yield_now().await;
            }
            Ok(reply) => {
                let at_ns = now_ns();
                totals.wrong += u64::from(reply.as_ref() != expected);
                if std::mem::take(&mut is_down) {
                    starter.say(Said::Answered { at_ns });
                }
            }
        }
    }
    starter.say(Said::Ended(totals));
    Ok(())
}

/// Measures; `progress` hears of each case.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that cannot be carried out here, [`BenchError::System`].
pub async fn run(plan: &FaultPlan, progress: impl FnMut(&Told)) -> Result<FaultReport, BenchError> {
    plan.check()?;
    let machine = Machine::look(&harness::seats([])?, &Malloc::Keep.settings());
    let take = async |FaultCase { kind: FaultKind::Restart, side }| restarts(plan, side).await;
    let outcome = |round: &Round| format!("{} ms", figure(round.median_ms(), 2));
    let tried = rounds::interleave(plan.cases(), 1, take, outcome, progress).await;
    let rows = tried.into_iter().map(FaultRow::of).collect();
    Ok(FaultReport { machine, down_ms: plan.down.as_secs_f64() * 1e3, rows })
}

/// What a side's faults came to.
#[derive(Debug, Default)]
struct Round {
    outages_ns: Vec<u64>,
    totals: Totals,
}

impl Round {
    fn median_ms(&self) -> Option<f64> {
        median(self.outages_ns.iter().map(|ns| *ns as f64 / 1e6))
    }
}

/// The outages of a side, and what became of the client's calls.
async fn restarts(plan: &FaultPlan, side: Side) -> Result<Round, BenchError> {
    let crew = order::crew(Malloc::Keep)?;
    let case = Case::probe(side, SIZE, 1, RuntimeKind::Current);
    let part = Order::Fault(Part::Serve(Serve { case, dir: crew.dir().to_owned() }));
    let serve = async || crew.ready::<Listening>("server", None, &part).await;
    let (mut server, Listening { address, .. }) = serve().await?;
    let call = Order::Fault(Part::Call { case, address });
    let mut client = crew.start("client", None, call).await?;
    answered_after(&mut client, 0).await?;
    let mut outages_ns = Vec::with_capacity(plan.count);
    for _ in 0..plan.count {
        tokio::time::sleep(CALM).await;
        let killed_ns = now_ns();
        kill(server).await?;
        tokio::time::sleep(plan.down).await;
        if side == Side::TonicUnix {
            // Who binds a Unix socket has to see to it that nothing is there.
            remove_sockets(crew.dir())?;
        }
        let (next, listening) = serve().await?;
        server = next;
        let answered_ns = answered_after(&mut client, killed_ns).await?;
        outages_ns.push(answered_ns.saturating_sub(listening.at_ns));
    }
    client.say(&Stop {}).await?;
    let totals = loop {
        if let Said::Ended(totals) = client.hear(Crew::PATIENCE).await? {
            break totals;
        }
    };
    client.stop().await;
    server.stop().await;
    Ok(Round { outages_ns, totals })
}

/// When the client's calls were answered again after a time.
async fn answered_after(client: &mut Peer, after_ns: u64) -> Result<u64, BenchError> {
    loop {
        match client.hear(Crew::PATIENCE).await? {
            Said::Answered { at_ns } if at_ns > after_ns => return Ok(at_ns),
            Said::Answered { .. } => {}
            Said::Ended(_) => return Err(BenchError::Refused("the client has stopped early".to_owned())),
        }
    }
}

/// Ends a process as the kernel does where memory runs out.
async fn kill(server: Peer) -> Result<(), BenchError> {
    let pid = rustix::process::Pid::from_raw(pid_of(&server)?.cast_signed());
    let pid = pid.ok_or_else(|| BenchError::Refused("the server has no number".to_owned()))?;
    rustix::process::kill_process(pid, rustix::process::Signal::KILL)
        .map_err(BenchError::system("cannot kill the server"))?;
    server.stop().await;
    Ok(())
}

fn remove_sockets(dir: &Path) -> Result<(), BenchError> {
    let failed = || BenchError::system("cannot remove the server's socket");
    for entry in std::fs::read_dir(dir).map_err(failed())? {
        let path = entry.map_err(failed())?.path();
        if path.extension().is_some_and(|extension| extension == "sock") {
            std::fs::remove_file(path).map_err(failed())?;
        }
    }
    Ok(())
}

/// A whole run.
#[derive(Debug, Serialize)]
pub struct FaultReport {
    /// Where.
    pub machine: Machine,
    /// How long nobody was there, beside the time that a process takes to start.
    pub down_ms: f64,
    /// The rows.
    pub rows: Vec<FaultRow>,
}

/// What was measured of a kind and a side.
#[derive(Debug, Serialize)]
pub struct FaultRow {
    /// Which.
    #[serde(flatten)]
    pub case: FaultCase,
    /// From the new server's word that it listens to the first call that is answered: the median. Null where nothing was measured.
    pub outage_ms: Option<f64>,
    /// The longest.
    pub worst_ms: Option<f64>,
    /// How often it went wrong.
    pub faults: usize,
    /// Calls that the client has made in all.
    pub calls: u64,
    /// Those that have failed, those included that found nobody.
    pub lost: u64,
    /// Those that were answered with something else than what they asked for.
    pub wrong: u64,
    /// Why there are no figures.
    pub not_run: Option<String>,
}

impl FaultRow {
    fn of(tried: Tried<FaultCase, Round>) -> FaultRow {
        let Tried { case, rounds, not_run } = tried;
        let round = rounds.into_iter().next().unwrap_or_default();
        let Totals { calls, lost, wrong } = round.totals;
        FaultRow {
            case,
            outage_ms: round.median_ms(),
            worst_ms: round.outages_ns.iter().max().map(|ns| *ns as f64 / 1e6),
            faults: round.outages_ns.len(),
            calls,
            lost,
            wrong,
            not_run,
        }
    }
}

impl Report for FaultReport {
    fn table(&self) -> String {
        let mut table = Table::new("kind|side", "median ms|worst ms|faults|calls|lost|wrong");
        for row in &self.rows {
            let mut cells = cells![row.case.kind, row.case.side];
            if let Some(why) = &row.not_run {
                table.noted(cells, why);
                continue;
            }
            cells.extend([figure(row.outage_ms, 2), figure(row.worst_ms, 2)]);
            cells.extend(cells![row.faults, row.calls, row.lost, row.wrong]);
            table.row(cells);
        }
        let machine = self.machine.in_words();
        format!("{machine}{} ms and a process's start without a server\n\n{table}", self.down_ms)
    }

    fn began(&self) -> &str {
        &self.machine.started_at
    }

    /// The rows that were not run, or whose answers were wrong.
    fn failed_count(&self) -> usize {
        self.rows.iter().filter(|row| row.not_run.is_some() || row.wrong > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_plans_are_refused_in_words() {
        let plan = || FaultPlan {
            kinds: vec![FaultKind::Restart],
            sides: FaultPlan::SIDES.to_vec(),
            count: 3,
            down: Duration::ZERO,
        };
        plan().check().unwrap();
        type Spoil = fn(&mut FaultPlan);
        let spoil: [(&str, Spoil); 4] = [
            ("does not connect again", |p| p.sides.push(Side::Session)),
            ("0 faults", |p| p.count = 0),
            ("without a server", |p| p.down = Duration::from_secs(61)),
            ("no value", |p| p.kinds.clear()),
        ];
        for (words, spoil) in spoil {
            let mut plan = plan();
            spoil(&mut plan);
            let error = plan.check().unwrap_err().to_string();
            assert!(error.contains(words), "{error:?} lacks {words:?}");
        }
        assert!("start".parse::<FaultKind>().is_err());
    }

    #[test]
    fn a_row_has_the_median_outage_and_the_worst() {
        let totals = Totals { calls: 9, lost: 2, wrong: 0 };
        let round = Round { outages_ns: vec![3_000_000, 1_000_000, 9_000_000], totals };
        let case = FaultCase { kind: FaultKind::Restart, side: Side::Tollfree };
        let row = FaultRow::of(Tried { case, rounds: vec![round], not_run: None });
        assert_eq!((row.outage_ms, row.worst_ms, row.faults), (Some(3.0), Some(9.0), 3));
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!((json["kind"].as_str(), json["lost"].as_u64()), (Some("restart"), Some(2)));
    }
}
