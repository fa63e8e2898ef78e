//! The result of `tollfree-lab bench split`.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Split, SplitCase, SplitMessage, SplitPlan, SplitSide};
use crate::cells;
use crate::harness::chart::side_by_side;
use crate::harness::measured::{each, quantile};
use crate::harness::words::{figure, micros_of};
use crate::harness::{Chart, Machine, Report, Rows, Table, Tried, is_failure};

/// A backend's core that is busy for this share of the time has nothing left.
const SATURATED: f64 = 0.95;

/// A whole run.
#[derive(Debug, Serialize)]
pub struct SplitReport {
    /// Where messages come from: a corpus, or generated.
    pub messages: &'static str,
    /// The rows.
    #[serde(flatten)]
    pub rows: Rows<SplitRow>,
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
    /// Processor time of the backend in all.
    pub host_cpu_ns: u64,
    /// Processor time of what stands between in all.
    pub infra_cpu_ns: u64,
    /// Processor time of the client in all.
    pub client_cpu_ns: u64,
    /// Measured time in all.
    pub elapsed_ns: u64,
    /// Calls that were measured.
    pub calls: u64,
    /// Modelled, for sides whose gateway decodes and encodes: `infra_cpu_ns` of a call, less what a decode and an encode of the
    /// message take (measured in the same run); as if an accelerator did these in no time.
    pub modelled_infra_accelerated_ns: Option<f64>,
    /// Why there are no figures.
    pub not_run: Option<String>,
}

impl SplitRow {
    fn of(tried: Tried<SplitCase, Split>, message_bytes: usize, codec_ns: f64) -> SplitRow {
        let Tried { case, rounds, not_run } = tried;
        let all = Split::sum(&rounds);
        let calls = all.latencies.count();
        let is_accelerated = calls > 0 && case.side.has_objects();
        let accelerated = || (each(all.infra_cpu_ns, calls) - codec_ns).max(0.0);
        SplitRow {
            case,
            message_bytes,
            rate_per_s: (calls > 0).then(|| all.rate()),
            p50_ns: quantile(&all.latencies, 0.5),
            p75_ns: quantile(&all.latencies, 0.75),
            p90_ns: quantile(&all.latencies, 0.9),
            p99_ns: quantile(&all.latencies, 0.99),
            host_cpu_ns: all.host_cpu_ns,
            infra_cpu_ns: all.infra_cpu_ns,
            client_cpu_ns: all.client_cpu_ns,
            elapsed_ns: all.elapsed_ns,
            calls,
            modelled_infra_accelerated_ns: is_accelerated.then(accelerated),
            not_run,
        }
    }

    /// Microseconds of processor time a call: the backend, and in between.
    fn cpu_us(&self) -> (f64, f64) {
        let us = |ns: u64| each(ns, self.calls) / 1000.0;
        (us(self.host_cpu_ns), us(self.infra_cpu_ns))
    }

    /// How much of its core the backend used.
    fn host_share(&self) -> f64 {
        each(self.host_cpu_ns, self.elapsed_ns)
    }

    fn infra_share(&self) -> f64 {
        each(self.infra_cpu_ns, self.elapsed_ns)
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
        let rows = Rows::of(machine, plan.lasting, tried, |tried| {
            let message = tried.case.message;
            let codec_ns = codecs.iter().find(|(known, _)| *known == message).map_or(0.0, |(_, ns)| *ns);
            SplitRow::of(tried, len_of(message), codec_ns)
        });
        SplitReport { messages: if plan.corpus.is_some() { "corpus" } else { "generated" }, rows }
    }

    fn all(&self) -> impl Iterator<Item = &SplitRow> {
        self.rows.rows.iter()
    }

    /// The row of another side, all else alike.
    fn rival(&self, case: SplitCase, side: SplitSide) -> Option<&SplitRow> {
        let wanted = SplitCase { side, ..case };
        self.all().find(|row| row.case == wanted && row.not_run.is_none())
    }

    /// The shortest application work in the sweep that fills the backend's core, for each line of the figure.
    fn knees(&self) -> Vec<(String, Option<u64>)> {
        let knee = |rows: &[&SplitRow]| {
            let full = rows.iter().filter(|row| row.host_share() >= SATURATED);
            full.map(|row| row.case.busy_ns).min()
        };
        self.lines().into_iter().map(|(name, rows)| (name, knee(&rows))).collect()
    }

    /// A row's figures; the last two are beside those of tonic's row, the application's own time left out.
    fn figures(&self, row: &SplitRow) -> Vec<String> {
        let (backends, between) = row.cpu_us();
        let mut cells = vec![figure(row.rate_per_s, 0)];
        cells.extend([row.p50_ns, row.p75_ns, row.p90_ns, row.p99_ns].map(micros_of));
        cells.extend([format!("{backends:.2}"), format!("{:.0}%", row.host_share() * 100.0)]);
        cells.extend([format!("{between:.2}"), format!("{:.0}%", row.infra_share() * 100.0)]);
        let rival = self.rival(row.case, SplitSide::Tonic).filter(|_| row.case.side != SplitSide::Tonic);
        if let Some(rival) = rival {
            let busy = row.case.busy_ns as f64 / 1000.0;
            // Backends itself is the same on both sides.
            let rpc = |cpu: f64| (cpu - busy).max(0.0);
            let share = rpc(backends) / rpc(rival.cpu_us().0).max(f64::MIN_POSITIVE);
            let p50 = row.p50_ns.zip(rival.p50_ns).map(|(ours, theirs)| ours as f64 / theirs.max(1) as f64);
            cells.extend([figure(p50, 2), format!("{share:.2}")]);
        }
        cells
    }

    /// The lines of the figure: rows of a side, a message and a number of calls in flight, by how long application code takes.
    fn lines(&self) -> Vec<(String, Vec<&SplitRow>)> {
        let mut lines: Vec<(String, Vec<&SplitRow>)> = Vec::new();
        for row in self.all().filter(|row| row.not_run.is_none()) {
            let SplitCase { side, message, inflight, .. } = row.case;
            let name = format!("{side}, {message}, {inflight} in flight");
            match lines.iter_mut().find(|(known, _)| *known == name) {
                Some((_, rows)) => rows.push(row),
                None => lines.push((name, vec![row])),
            }
        }
        lines
    }
}

impl Report for SplitReport {
    fn table(&self) -> String {
        let mut text = self.rows.heading(&format!(
            ", messages {}; the backend has a core, all else the other; processor time in µs a call; the last columns: of tonic's\n",
            self.messages
        ));
        let setting = |row: &SplitRow| (row.case.message, row.case.inflight);
        for group in self.rows.rows.chunk_by(|one, next| setting(one) == setting(next)) {
            let mut table = Table::new(
                "busy us|side",
                "calls/s|p50 us|p75 us|p90 us|p99 us|backends|core|between|core|p50|backends",
            );
            for row in group {
                let mut cells = cells![row.case.busy_ns as f64 / 1e3, row.case.side];
                match &row.not_run {
                    Some(why) => table.noted(cells, why),
                    None => {
                        cells.extend(self.figures(row));
                        table.row(cells);
                    }
                }
            }
            let ((message, inflight), bytes) = (setting(&group[0]), group[0].message_bytes);
            let _ = write!(text, "{message}, {bytes} bytes, {inflight} in flight\n{table}");
        }
        text.push('\n');
        for row in self.all() {
            let Some(ns) = row.modelled_infra_accelerated_ns else { continue };
            let _ = writeln!(
                text,
                "modelled, {}: with decoding and encoding in no time {:.2} µs between, of {:.2}",
                row.case,
                ns / 1e3,
                row.cpu_us().1
            );
        }
        for (name, knee) in self.knees() {
            let since = knee.map(|ns| format!("full from {} µs of application code on", ns as f64 / 1e3));
            let _ =
                writeln!(text, "{name}: the backend's core is {}", since.as_deref().unwrap_or("never full"));
        }
        text
    }

    fn began(&self) -> &str {
        &self.rows.machine.started_at
    }

    fn failed_count(&self) -> usize {
        self.all().filter(|row| is_failure(row.not_run.as_ref())).count()
    }

    fn files(&self) -> Vec<(&'static str, String)> {
        let point = |row: &SplitRow| {
            let p99_us = row.p99_ns.unwrap_or(0) as f64 / 1000.0;
            // A sweep begins with no application work at all, which has no place on such an axis.
            ((row.case.busy_ns as f64 / 1000.0).max(0.1), [row.rate_per_s.unwrap_or(0.0), p99_us])
        };
        let lines = self.lines().into_iter();
        let lines: Vec<_> = lines.map(|(name, rows)| (name, rows.into_iter().map(point).collect())).collect();
        let titles = ["calls a second", "99 of 100 calls took no longer, µs"];
        let panels = side_by_side("application work in a call, µs", titles, &lines);
        let title = "RPC work beside application code, and outside";
        vec![("plot.svg", Chart { title, machine: &self.rows.machine, panels }.draw())]
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
        assert_eq!(row(SplitSide::GatewayObjects).modelled_infra_accelerated_ns, Some(3500.0));
        assert_eq!(row(SplitSide::GatewayBytes).modelled_infra_accelerated_ns, None);
    }
}
