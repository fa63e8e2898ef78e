//! Faults on purpose, beside a client that calls all the time: how long calls go on failing when the fault is over.
//!
//! `restart`: the server's process is killed and started anew at the same address. The outage is the time from the new process's word that it
//! listens to the first call that is answered after that. Calls are fail-fast: they say nothing of waiting for a server, and have no deadline.

use std::fmt::{self, Write as _};
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollfree_transport::now_ns;

use crate::cores::Cores;
use crate::load::EchoCall;
use crate::order::{Order, Serve};
use crate::peer::{Peer, Starter};
use crate::plan::{Case, Malloc, Message, Placement, RuntimeKind, Side};
use crate::workdir::Workdir;
use crate::{BenchError, Machine, side, write_files};

/// Body of each call: its number, and as many bytes more.
const SIZE: usize = 64;
/// Time that a process may take to start, and a call to be answered after a restart.
const PATIENCE: Duration = Duration::from_secs(15);
/// Calls that are answered between two faults.
const CALM: Duration = Duration::from_millis(100);

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The server's process is killed, and started anew.
    Restart,
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("restart")
    }
}

impl FromStr for FaultKind {
    type Err = String;

    fn from_str(text: &str) -> Result<FaultKind, String> {
        match text {
            "restart" => Ok(FaultKind::Restart),
            _ => Err(format!("{text:?} is no kind of fault: write restart")),
        }
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

impl FaultPlan {
    /// The sides whose clients connect again by themselves.
    pub const SIDES: [Side; 4] = [Side::Tollfree, Side::TollfreePark, Side::TollfreeDirect, Side::TonicUnix];

    /// Checks what the command line's own types cannot.
    ///
    /// # Errors
    /// [`BenchError::Refused`], naming the value and what is allowed.
    pub fn check(&self) -> Result<(), BenchError> {
        let refuse = |what: String| Err(BenchError::Refused(what));
        if let Some(side) = self.sides.iter().find(|side| !FaultPlan::SIDES.contains(side)) {
            return refuse(format!(
                "{side}: its client does not connect again at the same address by itself"
            ));
        }
        if !(1..=1000).contains(&self.count) {
            return refuse(format!("{} faults: must be 1 to 1000", self.count));
        }
        if self.down > Duration::from_secs(60) {
            return refuse(format!("{:?} without a server: must be up to 60 s", self.down));
        }
        if self.kinds.is_empty() || self.sides.is_empty() {
            return refuse("nothing to measure: an axis has no value".to_owned());
        }
        Ok(())
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

/// Measures; `progress` gets a line for each row.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that cannot be carried out here, [`BenchError::System`].
pub async fn run(plan: &FaultPlan, mut progress: impl FnMut(&str)) -> Result<FaultReport, BenchError> {
    plan.check()?;
    let machine = Machine::look(&Cores::choose()?, &Malloc::Keep.settings());
    let mut rows = Vec::new();
    for &kind in &plan.kinds {
        for &side in &plan.sides {
            let row = match restarts(plan, side).await {
                Ok((outages_ns, totals)) => FaultRow::of(kind, side, outages_ns, totals),
                Err(error) => FaultRow {
                    not_run: Some(error.to_string()),
                    ..FaultRow::of(kind, side, Vec::new(), Totals::default())
                },
            };
            progress(&row.in_words());
            rows.push(row);
        }
    }
    Ok(FaultReport { machine, down_ms: plan.down.as_secs_f64() * 1e3, rows })
}

/// The outages of a side, in nanoseconds, and what became of the client's calls.
async fn restarts(plan: &FaultPlan, side: Side) -> Result<(Vec<u64>, Totals), BenchError> {
    let dir = Workdir::create()?;
    let malloc = Malloc::Keep.settings();
    let case = Case {
        side,
        message: Message::Probe,
        size: SIZE,
        metadata: 0,
        inflight: 1,
        placement: Placement::Unpinned,
        runtime: RuntimeKind::Current,
    };
    let order = Order::Fault(Part::Serve(Serve { case, core: None, dir: dir.path().to_owned() }));
    let serve = async || {
        let mut server = Peer::start("server", &["bench-peer"], &malloc, &order).await?;
        let listening: Listening = server.hear(PATIENCE).await?;
        Ok::<_, BenchError>((server, listening))
    };
    let (mut server, Listening { address, .. }) = serve().await?;
    let call = Order::Fault(Part::Call { case, address });
    let mut client = Peer::start("client", &["bench-peer"], &malloc, &call).await?;
    answered_after(&mut client, 0).await?;
    let mut outages_ns = Vec::with_capacity(plan.count);
    for _ in 0..plan.count {
        tokio::time::sleep(CALM).await;
        let killed_ns = now_ns();
        kill(server).await?;
        tokio::time::sleep(plan.down).await;
        if side == Side::TonicUnix {
            // Who binds a Unix socket has to see to it that nothing is there.
            remove_sockets(dir.path())?;
        }
        let (next, listening) = serve().await?;
        server = next;
        let answered_ns = answered_after(&mut client, killed_ns).await?;
        outages_ns.push(answered_ns.saturating_sub(listening.at_ns));
    }
    client.say(&Stop {}).await?;
    let totals = loop {
        if let Said::Ended(totals) = client.hear(PATIENCE).await? {
            break totals;
        }
    };
    client.stop().await;
    server.stop().await;
    Ok((outages_ns, totals))
}

/// When the client's calls were answered again after a time.
async fn answered_after(client: &mut Peer, after_ns: u64) -> Result<u64, BenchError> {
    loop {
        match client.hear(PATIENCE).await? {
            Said::Answered { at_ns } if at_ns > after_ns => return Ok(at_ns),
            Said::Answered { .. } => {}
            Said::Ended(_) => return Err(BenchError::Refused("the client has stopped early".to_owned())),
        }
    }
}

/// Ends a process as the kernel does where memory runs out.
async fn kill(server: Peer) -> Result<(), BenchError> {
    let pid = server.pid().and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()));
    let pid = pid.ok_or_else(|| BenchError::Refused("the server has ended already".to_owned()))?;
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
    /// What went wrong.
    pub kind: FaultKind,
    /// What carried the calls.
    pub side: Side,
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
    fn of(kind: FaultKind, side: Side, mut outages_ns: Vec<u64>, totals: Totals) -> FaultRow {
        outages_ns.sort_unstable();
        let count = outages_ns.len();
        let ms = |idx: usize| outages_ns[idx] as f64 / 1e6;
        let Totals { calls, lost, wrong } = totals;
        FaultRow {
            kind,
            side,
            outage_ms: (count > 0).then(|| f64::midpoint(ms((count - 1) / 2), ms(count / 2))),
            worst_ms: (count > 0).then(|| ms(count - 1)),
            faults: count,
            calls,
            lost,
            wrong,
            not_run: None,
        }
    }

    fn in_words(&self) -> String {
        let begin = format!("{:<8} {:<18}", self.kind, self.side);
        match (&self.not_run, self.outage_ms, self.worst_ms) {
            (None, Some(median), Some(worst)) => format!(
                "{begin} {median:>9.2} {worst:>9.2} {:>7} {:>10} {:>10} {:>6}",
                self.faults, self.calls, self.lost, self.wrong
            ),
            (why, ..) => format!("{begin} {}", why.as_deref().unwrap_or("nothing was measured")),
        }
    }
}

impl FaultReport {
    /// The rows that were not run, or whose answers were wrong.
    pub fn failures(&self) -> impl Iterator<Item = &FaultRow> {
        self.rows.iter().filter(|row| row.not_run.is_some() || row.wrong > 0)
    }

    /// The figures as one JSON object.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// The figures for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = self.machine.in_words();
        let _ = writeln!(text, "{} ms and a process's start without a server\n", self.down_ms);
        let _ = writeln!(
            text,
            "{:<8} {:<18} {:>9} {:>9} {:>7} {:>10} {:>10} {:>6}",
            "kind", "side", "median ms", "worst ms", "faults", "calls", "lost", "wrong"
        );
        for row in &self.rows {
            let _ = writeln!(text, "{}", row.in_words());
        }
        text
    }

    /// Writes raw data and table into a directory.
    ///
    /// # Errors
    /// [`BenchError::Write`].
    pub fn save(&self, dir: &Path) -> Result<(), BenchError> {
        write_files(dir, &[("fault.json", self.json()), ("fault.txt", self.table())])
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
        let row =
            FaultRow::of(FaultKind::Restart, Side::Tollfree, vec![3_000_000, 1_000_000, 9_000_000], totals);
        assert_eq!((row.outage_ms, row.worst_ms, row.faults), (Some(3.0), Some(9.0), 3));
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!((json["kind"].as_str(), json["lost"].as_u64()), (Some("restart"), Some(2)));
    }
}
