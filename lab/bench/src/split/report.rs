//! The result of `tollfree-lab bench split`.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::{Split, SplitCase, SplitMessage, SplitPlan, SplitSide};
use crate::lines::{self, Drawing, Point};
use crate::rounds::Tried;
use crate::{BenchError, Machine, write_files};

/// A business core that is busy for this share of the time has nothing left.
const SATURATED: f64 = 0.95;

/// A whole run.
#[derive(Debug, Serialize)]
pub struct SplitReport {
    /// Where.
    pub machine: Machine,
    /// Measured time for each row and round.
    pub seconds: f64,
    /// Rounds.
    pub rounds: usize,
    /// Where messages come from: a corpus, or generated.
    pub messages: &'static str,
    /// The rows.
    pub rows: Vec<SplitRow>,
}

/// What all rounds of a case measured together. Null where nothing was.
#[derive(Debug, Serialize)]
pub struct SplitRow {
    /// Which.
    #[serde(flatten)]
    pub case: SplitCase,
    /// Bytes of the message.
    pub message_bytes: usize,
    /// Calls a second.
    pub rate_per_s: Option<f64>,
    /// Median latency in nanoseconds.
    pub p50_ns: Option<u64>,
    /// 75 of 100 calls took no longer.
    pub p75_ns: Option<u64>,
    /// 90 of 100 calls took no longer.
    pub p90_ns: Option<u64>,
    /// 99 of 100 calls took no longer.
    pub p99_ns: Option<u64>,
    /// Processor time of the business process in all.
    pub host_cpu_ns: u64,
    /// Processor time of what stands between in all.
    pub infra_cpu_ns: u64,
    /// Processor time of the client in all.
    pub client_cpu_ns: u64,
    /// Measured time in all.
    pub elapsed_ns: u64,
    /// Calls that were measured.
    pub calls: u64,
    /// Modelled, for sides whose shepherd decodes and encodes: `infra_cpu_ns` of a call, less what a decode and an encode of the
    /// message take (measured in the same run); as if an accelerator did these in no time.
    pub modelled_infra_accelerated_ns: Option<f64>,
    /// Why there are no figures.
    pub not_run: Option<String>,
}

impl SplitRow {
    fn of(tried: Tried<SplitCase, Split>, message_bytes: usize, codec_ns: f64) -> SplitRow {
        let mut all = Split::default();
        for round in &tried.rounds {
            all.latencies.merge(&round.latencies);
            all.elapsed_ns += round.elapsed_ns;
            all.host_cpu_ns += round.host_cpu_ns;
            all.infra_cpu_ns += round.infra_cpu_ns;
            all.client_cpu_ns += round.client_cpu_ns;
        }
        let is_run = all.latencies.count() > 0;
        let accelerated = || {
            let each = all.infra_cpu_ns as f64 / all.latencies.count() as f64;
            (each - codec_ns).max(0.0)
        };
        let is_accelerated = is_run && tried.case.side.has_objects();
        let quantile = |share| is_run.then(|| all.latencies.quantile_ns(share));
        SplitRow {
            case: tried.case,
            message_bytes,
            rate_per_s: is_run.then(|| all.rate()),
            p50_ns: quantile(0.5),
            p75_ns: quantile(0.75),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            host_cpu_ns: all.host_cpu_ns,
            infra_cpu_ns: all.infra_cpu_ns,
            client_cpu_ns: all.client_cpu_ns,
            elapsed_ns: all.elapsed_ns,
            calls: all.latencies.count(),
            modelled_infra_accelerated_ns: is_accelerated.then(accelerated),
            not_run: tried.not_run,
        }
    }

    /// Microseconds of processor time a call: business, and in between.
    fn cpu_us(&self) -> (f64, f64) {
        let each = |ns: u64| ns as f64 / self.calls.max(1) as f64 / 1000.0;
        (each(self.host_cpu_ns), each(self.infra_cpu_ns))
    }

    /// How much of its core the business process used.
    fn host_share(&self) -> f64 {
        self.host_cpu_ns as f64 / self.elapsed_ns.max(1) as f64
    }

    fn infra_share(&self) -> f64 {
        self.infra_cpu_ns as f64 / self.elapsed_ns.max(1) as f64
    }
}

impl SplitReport {
    pub(super) fn new(
        machine: Machine,
        plan: &SplitPlan,
        tried: Vec<Tried<SplitCase, Split>>,
        codecs: &[(SplitMessage, f64)],
        len_of: impl Fn(SplitMessage) -> usize,
    ) -> SplitReport {
        let rows = tried.into_iter().map(|tried| {
            let message = tried.case.message;
            let codec_ns = codecs.iter().find(|(known, _)| *known == message).map_or(0.0, |(_, ns)| *ns);
            SplitRow::of(tried, len_of(message), codec_ns)
        });
        let messages = if plan.corpus.is_some() { "corpus" } else { "generated" };
        SplitReport { machine, seconds: plan.seconds, rounds: plan.rounds, messages, rows: rows.collect() }
    }

    /// The rows that were not run.
    pub fn failures(&self) -> impl Iterator<Item = &SplitRow> {
        self.rows.iter().filter(|row| row.not_run.is_some())
    }

    /// The row of another side, all else alike.
    fn rival(&self, case: SplitCase, side: SplitSide) -> Option<&SplitRow> {
        let wanted = SplitCase { side, ..case };
        self.rows.iter().find(|row| row.case == wanted && row.not_run.is_none())
    }

    /// The shortest business in the sweep that fills the business core, for each line of the figure.
    fn knees(&self) -> Vec<(String, Option<u64>)> {
        let knee = |rows: &[&SplitRow]| {
            let full = rows.iter().filter(|row| row.host_share() >= SATURATED);
            full.map(|row| row.case.busy_ns).min()
        };
        self.lines().into_iter().map(|(name, rows)| (name, knee(&rows))).collect()
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
            "{} rounds of {} s, messages {}; business has a core, all else the other; processor time in µs a call\n",
            self.rounds, self.seconds, self.messages
        );
        let mut last = None;
        for row in &self.rows {
            let this = (row.case.message, row.case.inflight);
            if last != Some(this) {
                let _ = writeln!(
                    text,
                    "{}, {} bytes, {} in flight\n{:>9}  {:<20} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6} {:>9} {:>6}  p50, business: of tonic's",
                    row.case.message,
                    row.message_bytes,
                    row.case.inflight,
                    "busy us",
                    "side",
                    "calls/s",
                    "p50 us",
                    "p75 us",
                    "p90 us",
                    "p99 us",
                    "business",
                    "core",
                    "between",
                    "core"
                );
                last = Some(this);
            }
            let _ = writeln!(text, "{}", self.line(row));
        }
        text.push('\n');
        for row in &self.rows {
            let Some(ns) = row.modelled_infra_accelerated_ns else { continue };
            let SplitCase { side, message, inflight, busy_ns } = row.case;
            let _ = writeln!(
                text,
                "modelled, {side}, {message}, {inflight} in flight, busy {} µs: with decoding and encoding in no time {:.2} µs between, of {:.2}",
                busy_ns as f64 / 1e3,
                ns / 1e3,
                row.cpu_us().1
            );
        }
        for (name, knee) in self.knees() {
            let _ = match knee {
                Some(ns) => writeln!(
                    text,
                    "{name}: the business core is full from {} µs of business on",
                    ns as f64 / 1e3
                ),
                None => writeln!(text, "{name}: the business core is never full"),
            };
        }
        text
    }

    fn line(&self, row: &SplitRow) -> String {
        let begin = format!("{:>9}  {:<20}", row.case.busy_ns as f64 / 1e3, row.case.side);
        if let Some(why) = &row.not_run {
            return format!("{begin} {why}");
        }
        let us = |ns: Option<u64>| ns.unwrap_or(0) as f64 / 1000.0;
        let (business, between) = row.cpu_us();
        let mut line = format!(
            "{begin} {:>9.0} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {business:>9.2} {:>5.0}% {between:>9.2} {:>5.0}%",
            row.rate_per_s.unwrap_or(0.0),
            us(row.p50_ns),
            us(row.p75_ns),
            us(row.p90_ns),
            us(row.p99_ns),
            row.host_share() * 100.0,
            row.infra_share() * 100.0,
        );
        if let Some(rival) =
            self.rival(row.case, SplitSide::Tonic).filter(|_| row.case.side != SplitSide::Tonic)
        {
            let busy = row.case.busy_ns as f64 / 1000.0;
            // Business itself is the same on both sides.
            let rpc = |cpu: f64| (cpu - busy).max(0.0);
            let share = rpc(business) / rpc(rival.cpu_us().0).max(f64::MIN_POSITIVE);
            let _ =
                write!(line, "  {:.2} {share:.2}", us(row.p50_ns) / us(rival.p50_ns).max(f64::MIN_POSITIVE));
        }
        line
    }

    /// Writes raw data, table and plot into a directory.
    ///
    /// # Errors
    /// [`BenchError::Write`].
    pub fn save(&self, dir: &Path) -> Result<(), BenchError> {
        write_files(
            dir,
            &[("split.json", self.json()), ("split.txt", self.table()), ("split.svg", self.draw())],
        )
    }

    /// The lines of the figure: rows of a side, a message and a number of calls in flight, by how long business takes.
    fn lines(&self) -> Vec<(String, Vec<&SplitRow>)> {
        let mut lines: Vec<(String, Vec<&SplitRow>)> = Vec::new();
        for row in self.rows.iter().filter(|row| row.not_run.is_none()) {
            let SplitCase { side, message, inflight, .. } = row.case;
            let name = format!("{side}, {message}, {inflight} in flight");
            match lines.iter_mut().find(|(known, _)| *known == name) {
                Some((_, rows)) => rows.push(row),
                None => lines.push((name, vec![row])),
            }
        }
        lines
    }

    fn draw(&self) -> String {
        let lines: Vec<_> = self.lines();
        let figure = |row: &SplitRow| Point {
            // A sweep begins with no business at all, which has no place on such an axis.
            x: (row.case.busy_ns as f64 / 1000.0).max(0.1),
            panels: [row.rate_per_s.unwrap_or(0.0), row.p99_ns.unwrap_or(0) as f64 / 1000.0],
        };
        let lines = lines.into_iter().map(|(name, rows)| (name, rows.into_iter().map(figure).collect()));
        lines::draw(&Drawing {
            title: "RPC work beside business, and outside",
            machine: &self.machine,
            axis: "business in a call, µs",
            panels: ["calls a second", "99 of 100 calls took no longer, µs"],
            lines: lines.collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_accelerator_takes_off_what_the_codec_takes_where_there_is_one() {
        let row = |side| {
            let case = SplitCase { side, message: SplitMessage::M3, inflight: 1, busy_ns: 0 };
            let mut round = Split { infra_cpu_ns: 10_000, elapsed_ns: 1, ..Split::default() };
            round.latencies.record(Duration::from_nanos(7));
            round.latencies.record(Duration::from_nanos(9));
            SplitRow::of(Tried { case, rounds: vec![round], not_run: None }, 845, 1500.0)
        };
        assert_eq!(row(SplitSide::ShepherdObjects).modelled_infra_accelerated_ns, Some(3500.0));
        assert_eq!(row(SplitSide::ShepherdBytes).modelled_infra_accelerated_ns, None);
    }
}
