//! What one more call in a chain costs, and one more KiB of what is passed: least squares over the rows that differ in
//! nothing else, for each round by itself.

use std::fmt;

use serde::Serialize;
use tollfree_bench::harness::measured::{interval_of_mean, interval_of_ratios, ratios};
use tollfree_bench::harness::words::{bytes_in_words, fraction};

use crate::plan::Shape;
use crate::report::{Round, Row};
use crate::side::Side;
use crate::table::brackets;

/// What grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cost {
    /// The median latency.
    Latency,
    /// Wall-clock time divided by calls: with many in flight, what the busiest core does for each.
    Turn,
    /// Processor time of all processes for each call, spinning included.
    Processor,
}

impl Cost {
    fn of(self, round: &Round) -> f64 {
        match self {
            Cost::Latency => round.p50_ns as f64,
            Cost::Turn => 1e9 / round.rate_per_s,
            Cost::Processor => round.cpu_ns_per_call(),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Cost::Latency => "of latency",
            Cost::Turn => "of time",
            Cost::Processor => "of processor time",
        }
    }
}

/// How a cost grows.
#[derive(Debug, Clone, Serialize)]
pub struct Slope {
    /// The side.
    pub side: Side,
    /// What grows.
    pub cost: Cost,
    /// With what: `call` or `KiB`.
    pub per: &'static str,
    /// What stayed the same.
    pub at: String,
    /// Nanoseconds for one more: the mean of the rounds.
    pub ns: f64,
    /// 95 % interval of that mean; needs two rounds.
    pub interval_ns: Option<(f64, f64)>,
    /// Beside tonic's, and the 95 % interval of the ratio; none where either isn't above 0.
    pub vs_tonic: Option<(f64, Option<(f64, f64)>)>,
    #[serde(skip)]
    rounds_ns: Vec<f64>,
}

impl fmt::Display for Slope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Slope { at, per, side, ns, cost, .. } = self;
        write!(f, "{at}: one {per} more costs {side} {ns:.1} ns {}", cost.words())?;
        if let Some((low, high)) = self.interval_ns {
            write!(f, " ({low:.1}..{high:.1})")?;
        }
        if let Some((ratio, interval)) = self.vs_tonic.filter(|_| self.side != Side::Tonic) {
            write!(f, ", {} of tonic's{}", fraction(ratio), brackets(interval))?;
        }
        Ok(())
    }
}

/// Rows of one side that differ in one number alone, and that number.
struct Line<'a> {
    side: Side,
    per: &'static str,
    at: String,
    points: Vec<(f64, &'a Row)>,
}

/// The slopes that rows of chains have, by length and by size.
pub(crate) fn slopes(rows: &[Row]) -> Vec<Slope> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for row in rows.iter().filter(|row| row.not_run.is_none()) {
        let Shape::Chain { length, size, whole } = row.case.shape else { continue };
        let touched = if whole { "" } else { ", untouched" };
        let same = |what: String| format!("{what}{touched}, {}", row.case.pressure);
        let by_length = (same(bytes_in_words(size)), "call", length as f64);
        let by_size = (same(format!("{length} calls")), "KiB", size as f64 / 1024.0);
        for (at, per, number) in [by_length, by_size] {
            let side = row.case.side;
            match lines.iter_mut().find(|line| (line.side, line.per, &line.at) == (side, per, &at)) {
                Some(line) => line.points.push((number, row)),
                None => lines.push(Line { side, per, at, points: vec![(number, row)] }),
            }
        }
    }
    lines.sort_by(|one, other| (one.per, &one.at, one.side).cmp(&(other.per, &other.at, other.side)));
    let costs = [Cost::Latency, Cost::Turn, Cost::Processor];
    let mut slopes: Vec<Slope> =
        lines.iter().flat_map(|line| costs.into_iter().filter_map(|cost| slope(line, cost))).collect();
    let of_tonic: Vec<Option<(f64, Vec<f64>)>> = slopes
        .iter()
        .map(|slope| {
            let same = |other: &&Slope| {
                other.side == Side::Tonic
                    && (other.per, &other.at, other.cost) == (slope.per, &slope.at, slope.cost)
            };
            slopes.iter().find(same).map(|tonic| (tonic.ns, tonic.rounds_ns.clone()))
        })
        .collect();
    for (slope, tonic) in slopes.iter_mut().zip(of_tonic) {
        // Where noise hides a slope, there is no ratio.
        slope.vs_tonic = tonic.filter(|(ns, _)| *ns > 0.0 && slope.ns > 0.0).map(|(ns, rounds)| {
            (slope.ns / ns, interval_of_ratios(&ratios(&slope.rounds_ns, &rounds, |ns| *ns)))
        });
    }
    slopes
}

fn slope(line: &Line<'_>, cost: Cost) -> Option<Slope> {
    if line.points.len() < 2 {
        return None;
    }
    let round_count = line.points.iter().map(|(_, row)| row.rounds.len()).min()?;
    let of_round = |round_idx: usize| {
        least_squares(line.points.iter().map(|(x, row)| (*x, cost.of(&row.rounds[round_idx]))))
    };
    let rounds_ns: Vec<f64> = (0..round_count).map(of_round).collect();
    Some(Slope {
        side: line.side,
        cost,
        per: line.per,
        at: line.at.clone(),
        ns: rounds_ns.iter().sum::<f64>() / rounds_ns.len() as f64,
        interval_ns: interval_of_mean(&rounds_ns),
        vs_tonic: None,
        rounds_ns,
    })
}

/// The slope of the line through points that comes nearest to them all.
fn least_squares(points: impl Iterator<Item = (f64, f64)> + Clone) -> f64 {
    let count = points.clone().count() as f64;
    let (x_sum, y_sum) = points.clone().fold((0.0, 0.0), |(x_sum, y_sum), (x, y)| (x_sum + x, y_sum + y));
    let (x_mean, y_mean) = (x_sum / count, y_sum / count);
    let (over, under) = points.fold((0.0, 0.0), |(over, under), (x, y)| {
        (over + (x - x_mean) * (y - y_mean), under + (x - x_mean).powi(2))
    });
    over / under
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tollfree_bench::harness::Tried;
    use tollfree_bench::latency::Latencies;

    use super::*;
    use crate::load::Measured;
    use crate::plan::{Case, Pressure};

    fn row(side: Side, length: usize, size: usize, rounds_us: &[u64]) -> Row {
        let shape = Shape::Chain { length, size, whole: true };
        let case = Case { side, shape, pressure: Pressure::Inflight(1) };
        let round = |us: &u64| {
            let mut latencies = Latencies::default();
            latencies.record(Duration::from_micros(*us));
            Round::new(Measured { latencies, elapsed_ns: 1, shed: 0 }, Vec::new())
        };
        Row::of(Tried { case, rounds: rounds_us.iter().map(round).collect(), not_run: None })
    }

    #[test]
    fn slopes_are_taken_along_one_number_and_within_rounds() {
        let rows = [
            row(Side::Tonic, 1, 4096, &[100, 110]),
            row(Side::Tonic, 3, 4096, &[300, 310]),
            row(Side::Ref, 1, 4096, &[20, 30]),
            row(Side::Ref, 3, 4096, &[30, 40]),
            row(Side::Ref, 3, 8192, &[30, 40]),
        ];
        let slopes = slopes(&rows);
        let find = |side, per| {
            let is_it = |slope: &&Slope| (slope.side, slope.per, slope.cost) == (side, per, Cost::Latency);
            slopes.iter().find(is_it).unwrap()
        };
        let (tonic, by_ref) = (find(Side::Tonic, "call"), find(Side::Ref, "call"));
        // Histograms keep three digits.
        assert!((tonic.ns / 100_000.0 - 1.0).abs() < 0.01 && (by_ref.ns / 5_000.0 - 1.0).abs() < 0.02);
        let (ratio, interval) = by_ref.vs_tonic.unwrap();
        let (low, high) = interval.unwrap();
        assert!((ratio - 0.05).abs() < 0.002 && low <= 0.051 && high >= 0.049, "{ratio} {low} {high}");
        let by_size = find(Side::Ref, "KiB");
        assert_eq!((by_size.ns, by_size.interval_ns, slopes.len()), (0.0, Some((0.0, 0.0)), 9));
    }
}
