//! The result: for each attack, what it left of the good client's service.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::{Attack, HostileCase, HostilePlan, Round};
use crate::rounds::Tried;
use crate::{BenchError, Machine, write_files};

/// What is left to a good client at least of its rate, and how many times as long its slow calls may take at most.
const RATE_RATIO_MIN: f64 = 0.9;
const P99_RATIO_MAX: f64 = 2.0;

/// A whole run.
#[derive(Debug, Serialize)]
pub struct HostileReport {
    /// Where.
    pub machine: Machine,
    /// Measured time for each row and round.
    pub seconds: f64,
    /// Rounds.
    pub rounds: usize,
    /// The rows.
    pub rows: Vec<HostileRow>,
}

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

fn median(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let count = figures.len();
    (count > 0).then(|| f64::midpoint(figures[(count - 1) / 2], figures[count / 2]))
}

impl HostileRow {
    fn of(quiet: Tried<HostileCase, Round>, attacked: Tried<HostileCase, Round>) -> HostileRow {
        let pairs = || attacked.rounds.iter().zip(&quiet.rounds);
        let whole = |figure: Option<f64>| figure.map(|figure| figure.round() as u64);
        let ratio = |part: f64, whole: f64| part / whole.max(f64::MIN_POSITIVE);
        HostileRow {
            attack: attacked.case.attack,
            rate_ratio: median(pairs().map(|(under, quiet)| ratio(under.rate_per_s, quiet.rate_per_s))),
            p99_ratio: median(pairs().map(|(under, quiet)| ratio(under.p99_ns as f64, quiet.p99_ns as f64))),
            rate_per_s: median(pairs().map(|(under, _)| under.rate_per_s)),
            quiet_rate_per_s: median(pairs().map(|(_, quiet)| quiet.rate_per_s)),
            p99_ns: whole(median(pairs().map(|(under, _)| under.p99_ns as f64))),
            quiet_p99_ns: whole(median(pairs().map(|(_, quiet)| quiet.p99_ns as f64))),
            held: whole(median(pairs().map(|(under, _)| under.held as f64))),
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

impl HostileReport {
    pub(super) fn new(
        machine: Machine,
        plan: &HostilePlan,
        tried: Vec<Tried<HostileCase, Round>>,
    ) -> HostileReport {
        let mut rows = Vec::new();
        let mut tried = tried.into_iter();
        while let (Some(quiet), Some(attacked)) = (tried.next(), tried.next()) {
            rows.push(HostileRow::of(quiet, attacked));
        }
        HostileReport { machine, seconds: plan.seconds, rounds: plan.rounds, rows }
    }

    /// The rows that were not run.
    pub fn failures(&self) -> impl Iterator<Item = &HostileRow> {
        self.rows.iter().filter(|row| row.not_run.is_some())
    }

    /// The rows whose good client got less than it must.
    pub fn starved(&self) -> impl Iterator<Item = &HostileRow> {
        self.rows.iter().filter(|row| row.is_starved())
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
        let _ = writeln!(
            text,
            "{} rounds of {} s, each with the attack and without\n",
            self.rounds, self.seconds
        );
        let _ = writeln!(
            text,
            "{:<20} {:>6} {:>11} {:>9} {:>10} {:>12} {:>9}",
            "attack", "held", "rate ratio", "p99 ratio", "calls/s", "quiet", "p99 us"
        );
        for row in &self.rows {
            let line = match (&row.not_run, row.rate_ratio, row.p99_ratio) {
                (None, Some(rate), Some(p99)) => format!(
                    "{:<20} {:>6} {rate:>11.2} {p99:>9.2} {:>10.0} {:>12.0} {:>9.1}{}",
                    row.attack,
                    row.held.unwrap_or(0),
                    row.rate_per_s.unwrap_or(0.0),
                    row.quiet_rate_per_s.unwrap_or(0.0),
                    row.p99_ns.unwrap_or(0) as f64 / 1e3,
                    if row.is_starved() { "  less than it must be" } else { "" },
                ),
                (why, ..) => {
                    format!("{:<20} {}", row.attack, why.as_deref().unwrap_or("nothing was measured"))
                }
            };
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// Writes raw data and table into a directory.
    ///
    /// # Errors
    /// [`BenchError::Write`].
    pub fn save(&self, dir: &Path) -> Result<(), BenchError> {
        write_files(dir, &[("hostile.json", self.json()), ("hostile.txt", self.table())])
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
