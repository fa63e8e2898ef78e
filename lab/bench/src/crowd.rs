//! More processes than cores: many clients that call one server, in closed loops or at a rate, nothing pinned.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::harness::measured::{each, median, quantile, together};
use crate::harness::words::{figure, micros_of};
use crate::harness::{
    self, Crew, Lasting, Machine, Report, Rows, Table, Told, Tried, each_once, is_failure, refuse, rounds,
    some, within,
};
use crate::latency::Latencies;
use crate::order::{self, Load, Measured, Order, Serve, Serving};
use crate::peer::Peer;
use crate::plan::{Case, INFLIGHT_MAX, Malloc, RuntimeKind, Side};
use crate::{BenchError, cells, process};

/// Body of each call.
const SIZE: usize = 64;
/// The most clients that may be asked for.
const CLIENTS_MAX: usize = 512;
/// The most calls a second of a client that may be asked for.
const RATE_MAX: u32 = 10_000;
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
    /// How long and how often.
    pub lasting: Lasting,
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

impl fmt::Display for CrowdCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CrowdCase { side, clients, inflight, runtime, .. } = self;
        write!(f, "{side} · {clients} clients, {inflight} in flight, {runtime}")
    }
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
        within(&self.clients, 1..=CLIENTS_MAX, "clients")?;
        within(&self.inflights, 1..=INFLIGHT_MAX, "calls in flight")?;
        within(self.rate.as_slice(), 1..=RATE_MAX, "calls a second")?;
        if let Some(side) = self.sides.iter().find(|side| matches!(side, Side::Floor | Side::Iceoryx2)) {
            return refuse(format!("{side} has one client: it can't serve a crowd"));
        }
        self.lasting.check()?;
        some(&self.cases())
    }

    fn cases(&self) -> Vec<CrowdCase> {
        let mut cases = Vec::new();
        for &runtime in &self.runtimes {
            for &clients in &self.clients {
                for &inflight in &self.inflights {
                    for &side in &self.sides {
                        cases.push(CrowdCase { side, clients, inflight, rate: self.rate, runtime });
                    }
                }
            }
        }
        each_once(cases)
    }
}

/// Measures everything that the plan asks for; `progress` hears of each measurement. A case that fails is a row that says so.
///
/// # Errors
/// [`BenchError::Refused`] for a plan that cannot be carried out here, [`BenchError::System`].
pub async fn run(plan: &CrowdPlan, progress: impl FnMut(&Told)) -> Result<Rows<CrowdRow>, BenchError> {
    plan.check()?;
    let machine = Machine::look(&harness::seats([])?, &Malloc::Keep.settings());
    let take = async |case| measure(plan, case).await;
    let outcome = |round: &Round| format!("{:.0} calls/s, fairness {:.2}", round.rate(), round.fairness());
    let tried = rounds::interleave(plan.cases(), plan.lasting.rounds, take, outcome, progress).await;
    Ok(Rows::of(machine, plan.lasting, tried, CrowdRow::of))
}

async fn measure(plan: &CrowdPlan, case: CrowdCase) -> Result<Round, BenchError> {
    let crew = order::crew(Malloc::Keep)?;
    let echo = Case::probe(case.side, SIZE, case.inflight, case.runtime);
    let serve = Order::Serve(Serve { case: echo, dir: crew.dir().to_owned() });
    let (server, Serving { address }) = crew.ready("server", None, serve).await?;
    let (warm_up, measure) = (plan.lasting.warm_up(), plan.lasting.measure());
    let every = case.rate.map(|rate| Duration::from_secs(1) / rate);
    let mut clients = Vec::with_capacity(case.clients);
    for nth in 1..=case.clients {
        let warm_up = warm_up + START * (case.clients - nth) as u32;
        let load = Load { every, ..Load::new(echo, address.clone(), warm_up, measure) };
        clients.push(crew.start("client", None, Order::Load(load)).await?);
    }
    // From about when the measured time begins: starting a process and a session is not what is compared here.
    tokio::time::sleep(warm_up).await;
    let (clients_before, server_before) = (taken_by_all_ns(&clients)?, taken_ns(&server)?);
    let mut round =
        Round { rates: Vec::new(), latencies: Latencies::default(), client_cpu_ns: 0, server_cpu_ns: 0 };
    for client in &mut clients {
        let within = warm_up + START * case.clients as u32 + measure + Crew::PATIENCE;
        let measured: Measured = client.hear(within).await?;
        round.rates.push(measured.rate());
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
        let Tried { case, rounds, not_run } = tried;
        let all = together(rounds.iter().map(|round| &round.latencies));
        CrowdRow {
            case,
            rate_per_s: median(rounds.iter().map(Round::rate)),
            fairness: median(rounds.iter().map(Round::fairness)),
            p50_ns: quantile(&all, 0.5),
            p99_ns: quantile(&all, 0.99),
            worst_ns: quantile(&all, 1.0),
            calls: all.count(),
            client_cpu_ns: rounds.iter().map(|round| round.client_cpu_ns).sum(),
            server_cpu_ns: rounds.iter().map(|round| round.server_cpu_ns).sum(),
            not_run,
        }
    }
}

impl Rows<CrowdRow> {
    fn rival(&self, case: &CrowdCase) -> Option<f64> {
        let rival = CrowdCase { side: Side::TonicUnix, ..*case };
        self.rows.iter().find(|row| row.case == rival && *case != rival)?.rate_per_s
    }
}

impl Report for Rows<CrowdRow> {
    /// Rates are also told as multiples of tonic's over a Unix socket.
    fn table(&self) -> String {
        let mut table = Table::new(
            "side|runtime",
            "clients|in flight|calls/s|fairness|p50 us|p99 us|worst ms|clients|server|of tonic's",
        );
        for row in &self.rows {
            let CrowdCase { side, clients, inflight, runtime, .. } = row.case;
            let mut cells = cells![side, runtime, clients, inflight];
            if let Some(why) = &row.not_run {
                table.noted(cells, why);
                continue;
            }
            let cpu = |ns: u64| format!("{:.1}", each(ns, row.calls) / 1000.0);
            let times = row.rate_per_s.zip(self.rival(&row.case)).map(|(ours, theirs)| ours / theirs);
            cells.extend([
                figure(row.rate_per_s, 0),
                figure(row.fairness, 2),
                micros_of(row.p50_ns),
                micros_of(row.p99_ns),
                figure(row.worst_ns.map(|ns| ns as f64 / 1e6), 1),
                cpu(row.client_cpu_ns),
                cpu(row.server_cpu_ns),
                figure(times, 2),
            ]);
            table.row(cells);
        }
        self.heading("; processor time in µs a call\n") + &table.to_string()
    }

    fn began(&self) -> &str {
        &self.machine.started_at
    }

    fn failed_count(&self) -> usize {
        self.rows.iter().filter(|row| is_failure(row.not_run.as_ref())).count()
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
            lasting: Lasting { seconds: 1.0, rounds: 1 },
        }
    }

    #[test]
    fn impossible_plans_are_refused_in_words() {
        plan().check().unwrap();
        assert_eq!(plan().cases().len(), 4);
        type Spoil = fn(&mut CrowdPlan);
        let spoil: [(&str, Spoil); 6] = [
            ("0 clients", |p| p.clients.push(0)),
            ("0 calls in flight", |p| p.inflights.push(0)),
            ("can't serve a crowd", |p| p.sides.push(Side::Floor)),
            ("calls a second", |p| p.rate = Some(0)),
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
    fn fairness_is_the_least_served_beside_the_most_served() {
        let (rates, latencies) = (vec![300.0, 400.0, 100.0], Latencies::default());
        let round = Round { rates, latencies, client_cpu_ns: 0, server_cpu_ns: 0 };
        assert_eq!((round.rate(), round.fairness()), (800.0, 0.25));
    }
}
