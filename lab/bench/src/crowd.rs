//! More processes than cores: many clients that call one server, in closed loops or at a rate, nothing pinned.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::cores::Cores;
use crate::latency::Latencies;
use crate::order::{Load, Measured, Order, Serve, Serving};
use crate::peer::Peer;
use crate::plan::{Case, INFLIGHT_MAX, Malloc, Message, Placement, RuntimeKind, Side};
use crate::rounds::{self, Tried};
use crate::workdir::Workdir;
use crate::{BenchError, Machine, process, write_files};

/// Body of each call.
const SIZE: usize = 64;
/// The most clients that may be asked for.
const CLIENTS_MAX: usize = 512;
/// The most calls a second of a client that may be asked for.
const RATE_MAX: u32 = 10_000;
/// Time that a process may take to start, or to end its measurement beyond the measured time.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time that a client process takes to start, about: those that are started first wait for the last one.
const START: Duration = Duration::from_millis(20);

/// What to measure: every combination is a row.
#[derive(Debug, Clone)]
pub struct CrowdPlan {
    /// What carries the calls.
    pub sides: Vec<Side>,
    /// Client processes.
    pub clients: Vec<usize>,
    /// Calls that each has in flight.
    pub inflights: Vec<usize>,
    /// Calls a second that each of these is called at; none for a closed loop.
    pub rate: Option<u32>,
    /// The runtime in all processes.
    pub runtimes: Vec<RuntimeKind>,
    /// Measured time for each row and round.
    pub seconds: f64,
    /// Rounds.
    pub rounds: usize,
}

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CrowdCase {
    /// What carries the calls.
    pub side: Side,
    /// Client processes.
    pub clients: usize,
    /// Calls that each has in flight.
    pub inflight: usize,
    /// Calls a second that each of these is called at; null for a closed loop.
    pub rate: Option<u32>,
    /// The runtime in all processes.
    pub runtime: RuntimeKind,
}

/// What a round measured.
#[derive(Debug)]
pub struct Round {
    /// Calls a second of each client.
    rates: Vec<f64>,
    latencies: Latencies,
    client_cpu_ns: u64,
    server_cpu_ns: u64,
}

impl Round {
    /// Calls a second of all clients together.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.rates.iter().sum()
    }

    /// The least served client's calls as a share of the most served one's.
    #[must_use]
    pub fn fairness(&self) -> f64 {
        let least = self.rates.iter().copied().fold(f64::INFINITY, f64::min);
        least / self.rates.iter().copied().fold(f64::MIN_POSITIVE, f64::max)
    }
}

impl CrowdPlan {
    /// Checks what the command line's own types cannot.
    ///
    /// # Errors
    /// [`BenchError::Refused`], naming the value and what is allowed.
    pub fn check(&self) -> Result<(), BenchError> {
        let refuse = |what: String| Err(BenchError::Refused(what));
        if let Some(count) = self.clients.iter().find(|count| !(1..=CLIENTS_MAX).contains(*count)) {
            return refuse(format!("{count} clients: must be 1 to {CLIENTS_MAX}"));
        }
        if let Some(count) = self.inflights.iter().find(|count| !(1..=INFLIGHT_MAX).contains(*count)) {
            return refuse(format!("{count} calls in flight: must be 1 to {INFLIGHT_MAX}"));
        }
        if let Some(rate) = self.rate.filter(|rate| !(1..=RATE_MAX).contains(rate)) {
            return refuse(format!("{rate} calls a second: must be 1 to {RATE_MAX}"));
        }
        if let Some(side) = self.sides.iter().find(|side| matches!(side, Side::Floor | Side::Iceoryx2)) {
            return refuse(format!("{side} has one client: it can't serve a crowd"));
        }
        if !(self.seconds >= 0.01 && self.seconds <= 3600.0) {
            return refuse(format!("{} seconds per row and round: must be 0.01 to 3600", self.seconds));
        }
        if !(1..=1000).contains(&self.rounds) {
            return refuse(format!("{} rounds: must be 1 to 1000", self.rounds));
        }
        if self.cases().is_empty() {
            return refuse("nothing to measure: an axis has no value".to_owned());
        }
        Ok(())
    }

    fn cases(&self) -> Vec<CrowdCase> {
        let mut cases = Vec::new();
        for &runtime in &self.runtimes {
            for &clients in &self.clients {
                for &inflight in &self.inflights {
                    for &side in &self.sides {
                        let case = CrowdCase { side, clients, inflight, rate: self.rate, runtime };
                        if !cases.contains(&case) {
                            cases.push(case);
                        }
                    }
                }
            }
        }
        cases
    }
}

/// One measurement that just ended.
pub type CrowdStep<'a> = rounds::Step<'a, CrowdCase, Round>;

/// Measures everything that the plan asks for; `progress` hears of each measurement. A case that fails is a row that says so.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that cannot be carried out here, [`BenchError::System`].
pub async fn run(plan: &CrowdPlan, progress: impl FnMut(&CrowdStep<'_>)) -> Result<CrowdReport, BenchError> {
    plan.check()?;
    let machine = Machine::look(&Cores::choose()?, &Malloc::Keep.settings());
    let take = async |case| measure(plan, case).await.map_err(|error| error.to_string());
    let tried = rounds::interleave(plan.cases(), plan.rounds, take, progress).await;
    let rows = tried.into_iter().map(CrowdRow::of).collect();
    Ok(CrowdReport { machine, seconds: plan.seconds, rounds: plan.rounds, rows })
}

async fn measure(plan: &CrowdPlan, case: CrowdCase) -> Result<Round, BenchError> {
    let dir = Workdir::create()?;
    let malloc = Malloc::Keep.settings();
    let CrowdCase { side, inflight, runtime, .. } = case;
    let echo = Case {
        side,
        message: Message::Probe,
        size: SIZE,
        metadata: 0,
        inflight,
        placement: Placement::Unpinned,
        runtime,
    };
    let serve = Order::Serve(Serve { case: echo, core: None, dir: dir.path().to_owned() });
    let mut server = Peer::start("server", &["bench-peer"], &malloc, &serve).await?;
    let Serving { address } = server.hear(PATIENCE).await?;
    let measure = Duration::from_secs_f64(plan.seconds);
    let warm_up = (measure / 4).clamp(Duration::from_millis(20), Duration::from_millis(500));
    let every = case.rate.map(|rate| Duration::from_secs(1) / rate);
    let mut clients = Vec::with_capacity(case.clients);
    for nth in 1..=case.clients {
        let warm_up = warm_up + START * (case.clients - nth) as u32;
        let (address, core, calls) = (address.clone(), None, None);
        let load = Order::Load(Load {
            case: echo,
            core,
            address,
            warm_up,
            measure,
            calls,
            every,
            samples: None,
            server: None,
        });
        clients.push(Peer::start("client", &["bench-peer"], &malloc, &load).await?);
    }
    // From about when the measured time begins: starting a process and a session is not what is compared here.
    tokio::time::sleep(warm_up).await;
    let (clients_before, server_before) = (taken_by_all_ns(&clients)?, taken_ns(&server)?);
    let mut round =
        Round { rates: Vec::new(), latencies: Latencies::default(), client_cpu_ns: 0, server_cpu_ns: 0 };
    for client in &mut clients {
        let within = warm_up + START * case.clients as u32 + measure + PATIENCE;
        let measured: Measured = client.hear(within).await?;
        let seconds = Duration::from_nanos(measured.elapsed_ns).as_secs_f64();
        round.rates.push(measured.latencies.count() as f64 / seconds);
        round.latencies.merge(&measured.latencies);
    }
    round.client_cpu_ns = taken_by_all_ns(&clients)?.saturating_sub(clients_before);
    round.server_cpu_ns = taken_ns(&server)?.saturating_sub(server_before);
    for client in clients {
        client.stop().await;
    }
    server.stop().await;
    Ok(round)
}

/// What a process has taken so far, with the threads that have ended.
fn taken_ns(peer: &Peer) -> Result<u64, BenchError> {
    let Some(pid) = peer.pid() else { return Ok(0) };
    Ok(process::cpu_time(pid)?.total().as_nanos() as u64)
}

fn taken_by_all_ns(peers: &[Peer]) -> Result<u64, BenchError> {
    peers.iter().map(taken_ns).sum()
}

/// A whole run.
#[derive(Debug, Serialize)]
pub struct CrowdReport {
    /// Where.
    pub machine: Machine,
    /// Measured time for each row and round.
    pub seconds: f64,
    /// Rounds.
    pub rounds: usize,
    /// The rows.
    pub rows: Vec<CrowdRow>,
}

/// What the rounds of a case measured. Null where nothing was.
#[derive(Debug, Serialize)]
pub struct CrowdRow {
    /// Which.
    #[serde(flatten)]
    pub case: CrowdCase,
    /// Calls a second of all clients together: the median of the rounds.
    pub rate_per_s: Option<f64>,
    /// The least served client's rate as a share of the most served one's: the median of the rounds.
    pub fairness: Option<f64>,
    /// Median latency in nanoseconds, of all rounds together.
    pub p50_ns: Option<u64>,
    /// 99 of 100 calls took no longer.
    pub p99_ns: Option<u64>,
    /// The call that took longest.
    pub worst_ns: Option<u64>,
    /// Calls that were measured.
    pub calls: u64,
    /// Processor time of all clients, from about when the measured time begins.
    pub client_cpu_ns: u64,
    /// Processor time of the server, likewise.
    pub server_cpu_ns: u64,
    /// Why there are no figures.
    pub not_run: Option<String>,
}

impl CrowdRow {
    fn of(tried: Tried<CrowdCase, Round>) -> CrowdRow {
        let mut all = Latencies::default();
        tried.rounds.iter().for_each(|round| all.merge(&round.latencies));
        let median = |figure: fn(&Round) -> f64| {
            let mut figures: Vec<f64> = tried.rounds.iter().map(figure).collect();
            figures.sort_by(f64::total_cmp);
            let count = figures.len();
            (count > 0).then(|| f64::midpoint(figures[(count - 1) / 2], figures[count / 2]))
        };
        let quantile = |share| (all.count() > 0).then(|| all.quantile_ns(share));
        CrowdRow {
            case: tried.case,
            rate_per_s: median(Round::rate),
            fairness: median(Round::fairness),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            worst_ns: quantile(1.0),
            calls: all.count(),
            client_cpu_ns: tried.rounds.iter().map(|round| round.client_cpu_ns).sum(),
            server_cpu_ns: tried.rounds.iter().map(|round| round.server_cpu_ns).sum(),
            not_run: tried.not_run,
        }
    }
}

impl CrowdReport {
    /// The rows that were not run.
    pub fn failures(&self) -> impl Iterator<Item = &CrowdRow> {
        self.rows.iter().filter(|row| row.not_run.is_some())
    }

    /// The figures as one JSON object.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// The figures for people; rates are also told as multiples of tonic's over a Unix socket.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = self.machine.in_words();
        let _ = writeln!(text, "{} rounds of {} s; processor time in µs a call\n", self.rounds, self.seconds);
        let _ = writeln!(
            text,
            "{:<18} {:>8} {:>7} {:>9} {:>9} {:>8} {:>9} {:>9} {:>9} {:>8} {:>8}",
            "side",
            "runtime",
            "clients",
            "in flight",
            "calls/s",
            "fairness",
            "p50 us",
            "p99 us",
            "worst ms",
            "clients",
            "server"
        );
        for row in &self.rows {
            let case = &row.case;
            let begin =
                format!("{:<18} {:>8} {:>7} {:>9}", case.side, case.runtime, case.clients, case.inflight);
            let line = match (&row.not_run, row.rate_per_s, row.fairness) {
                (None, Some(rate), Some(fairness)) => {
                    let part = |ns: Option<u64>, unit: f64| ns.unwrap_or(0) as f64 / unit;
                    let each = |ns: u64| ns as f64 / 1000.0 / row.calls.max(1) as f64;
                    let times = self
                        .rival(case)
                        .map_or_else(String::new, |theirs| format!("  {:.2} times tonic's", rate / theirs));
                    format!(
                        "{begin} {rate:>9.0} {fairness:>8.2} {:>9.1} {:>9.1} {:>9.1} {:>8.1} {:>8.1}{times}",
                        part(row.p50_ns, 1e3),
                        part(row.p99_ns, 1e3),
                        part(row.worst_ns, 1e6),
                        each(row.client_cpu_ns),
                        each(row.server_cpu_ns),
                    )
                }
                (why, ..) => format!("{begin} {}", why.as_deref().unwrap_or("nothing was measured")),
            };
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn rival(&self, case: &CrowdCase) -> Option<f64> {
        let rival = CrowdCase { side: Side::TonicUnix, ..*case };
        self.rows.iter().find(|row| row.case == rival && *case != rival)?.rate_per_s
    }

    /// Writes raw data and table into a directory.
    ///
    /// # Errors
    /// [`BenchError::Write`].
    pub fn save(&self, dir: &Path) -> Result<(), BenchError> {
        write_files(dir, &[("crowd.json", self.json()), ("crowd.txt", self.table())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> CrowdPlan {
        CrowdPlan {
            sides: vec![Side::TonicUnix, Side::Tollfree],
            clients: vec![8],
            inflights: vec![1, 8],
            rate: None,
            runtimes: vec![RuntimeKind::Multi],
            seconds: 1.0,
            rounds: 1,
        }
    }

    #[test]
    fn impossible_plans_are_refused_in_words() {
        plan().check().unwrap();
        assert_eq!(plan().cases().len(), 4);
        type Spoil = fn(&mut CrowdPlan);
        let spoil: [(&str, Spoil); 7] = [
            ("0 clients", |p| p.clients.push(0)),
            ("0 calls in flight", |p| p.inflights.push(0)),
            ("can't serve a crowd", |p| p.sides.push(Side::Floor)),
            ("seconds", |p| p.seconds = 0.0),
            ("calls a second", |p| p.rate = Some(0)),
            ("rounds", |p| p.rounds = 0),
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
    fn fairness_is_the_least_served_beside_the_most_served() {
        let (rates, latencies) = (vec![300.0, 400.0, 100.0], Latencies::default());
        let round = Round { rates, latencies, client_cpu_ns: 0, server_cpu_ns: 0 };
        assert_eq!((round.rate(), round.fairness()), (800.0, 0.25));
    }
}
