//! The result: for each attack, what it left of the good client's service.

use serde::Serialize;

use super::{Attack, HostileCase, Round};
use crate::cells;
use crate::harness::measured::{median, median_of, ratios};
use crate::harness::words::{figure, micros_of};
use crate::harness::{Lasting, Machine, Report, Rows, Table, Tried, is_failure};

/// What is left to a good client at least of its rate, and how many times as long its slow calls may take at most.
const RATE_RATIO_MIN: f64 = 0.9;
const P99_RATIO_MAX: f64 = 2.0;

/// What the rounds of an attack measured: medians. Null where nothing was.
#[derive(Debug, Serialize)]
pub struct HostileRow {
    /// Which.
    pub attack: Attack,
    /// The good client's rate, as a share of that of the same round without the attack.
    pub rate_ratio: Option<f64>,
    /// How many times as long 99 of 100 of its calls took at most.
    pub p99_ratio: Option<f64>,
    /// Calls a second with the attack, and without.
    pub rate_per_s: Option<f64>,
    /// As above.
    pub quiet_rate_per_s: Option<f64>,
    /// 99 of 100 calls took no longer, with the attack, and without.
    pub p99_ns: Option<u64>,
    /// As above.
    pub quiet_p99_ns: Option<u64>,
    /// Requests, connections or calls that the attacker held as the measurement began.
    pub held: Option<u64>,
    /// Why there are no figures.
    pub not_run: Option<String>,
}

impl HostileRow {
    fn of(quiet: Tried<HostileCase, Round>, attacked: Tried<HostileCase, Round>) -> HostileRow {
        // Of rounds that have both.
        let count = quiet.rounds.len().min(attacked.rounds.len());
        let (calm, under) = (&quiet.rounds[..count], &attacked.rounds[..count]);
        let rate = |round: &Round| round.rate_per_s.max(f64::MIN_POSITIVE);
        let p99 = |round: &Round| round.p99_ns.max(1) as f64;
        HostileRow {
            attack: attacked.case.attack,
            rate_ratio: median(ratios(under, calm, rate)),
            p99_ratio: median(ratios(under, calm, p99)),
            rate_per_s: median(under.iter().map(rate)),
            quiet_rate_per_s: median(calm.iter().map(rate)),
            p99_ns: median_of(under.iter().map(|round| round.p99_ns)),
            quiet_p99_ns: median_of(calm.iter().map(|round| round.p99_ns)),
            held: median_of(under.iter().map(|round| round.held as u64)),
            not_run: attacked.not_run.or(quiet.not_run),
        }
    }

    /// Whether the good client got less than it must.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.rate_ratio.is_some_and(|ratio| ratio < RATE_RATIO_MIN)
            || self.p99_ratio.is_some_and(|ratio| ratio > P99_RATIO_MAX)
    }
}

/// What the attacks of a plan came to, each tried without it first.
pub(super) fn report(
    machine: Machine,
    lasting: Lasting,
    tried: Vec<Tried<HostileCase, Round>>,
) -> Rows<HostileRow> {
    let mut pairs = Vec::new();
    let mut tried = tried.into_iter();
    while let (Some(quiet), Some(attacked)) = (tried.next(), tried.next()) {
        pairs.push((quiet, attacked));
    }
    Rows::of(machine, lasting, pairs, |(quiet, attacked)| HostileRow::of(quiet, attacked))
}

impl Rows<HostileRow> {
    /// The rows whose good client got less than it must.
    pub fn starved(&self) -> impl Iterator<Item = &HostileRow> {
        self.rows.iter().filter(|row| row.is_starved())
    }
}

impl Report for Rows<HostileRow> {
    fn table(&self) -> String {
        let mut table = Table::new("attack", "held|rate ratio|p99 ratio|calls/s|quiet|p99 us");
        for row in &self.rows {
            let cells = cells![
                row.attack,
                figure(row.held.map(|held| held as f64), 0),
                figure(row.rate_ratio, 2),
                figure(row.p99_ratio, 2),
                figure(row.rate_per_s, 0),
                figure(row.quiet_rate_per_s, 0),
                micros_of(row.p99_ns),
            ];
            let starved = if row.is_starved() { "less than it must be" } else { "" };
            table.noted(cells, row.not_run.as_deref().unwrap_or(starved));
        }
        self.heading(", each with the attack and without\n") + &table.to_string()
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

    fn tried(is_quiet: bool, figures: &[(f64, u64)]) -> Tried<HostileCase, Round> {
        let round = |&(rate_per_s, p99_ns): &(f64, u64)| Round { rate_per_s, p99_ns, held: 9 };
        let case = HostileCase { attack: Attack::Via, is_quiet };
        Tried { case, rounds: figures.iter().map(round).collect(), not_run: None }
    }

    #[test]
    fn ratios_are_those_of_each_round() {
        let quiet = tried(true, &[(100.0, 10), (1000.0, 100), (100.0, 10)]);
        let row = HostileRow::of(quiet, tried(false, &[(100.0, 20), (900.0, 100), (95.0, 15)]));
        assert_eq!((row.rate_ratio, row.p99_ratio, row.held), (Some(0.95), Some(1.5), Some(9)));
        assert!(!row.is_starved());
        for figures in [[(80.0, 10)], [(100.0, 21)]] {
            assert!(HostileRow::of(tried(true, &[(100.0, 10)]), tried(false, &figures)).is_starved());
        }
    }
}
