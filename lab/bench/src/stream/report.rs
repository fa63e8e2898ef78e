//! The result of `tollfree-lab bench stream`.

use std::fmt::Write as _;

use serde::Serialize;

use super::{StreamCase, StreamKind, StreamSide, Streamed};
use crate::cells;
use crate::harness::measured::{each, interval_of_ratios, median, quantile, ratios, together};
use crate::harness::words::{figure, micros_of};
use crate::harness::{
    Axis, COLORS, Chart, Lasting, Line, Machine, Panel, Report, Rows, Table, Tried, is_failure,
};

/// What all rounds of a case measured. Null where nothing was.
#[derive(Debug, Serialize)]
pub struct StreamRow {
    /// Which.
    #[serde(flatten)]
    pub case: StreamCase,
    /// Messages of both directions that were received in a second: the median of the rounds.
    pub messages_per_s: Option<f64>,
    /// The median, over all rounds, in nanoseconds: of round trips (ping-pong, burst), else of the gaps between two messages, as their
    /// receiver sees them. One gap in 31 is timed, of messages of 16 KiB and more every other.
    pub p50_ns: Option<u64>,
    /// What 99 of 100 did not exceed.
    pub p99_ns: Option<u64>,
    /// Processor time of a message at the client, in nanoseconds: the median of the rounds. Of a pipe, that of both ends.
    pub client_cpu_ns: Option<f64>,
    /// The same of what serves the client, a gateway included. 0 for a pipe.
    pub server_cpu_ns: Option<f64>,
    /// Messages in all rounds.
    pub messages: u64,
    /// Beside stock tonic over a Unix socket in the same setting.
    pub vs_tonic_unix: Option<Against>,
    /// Beside stock tonic over a pipe.
    pub vs_tonic_pipe: Option<Against>,
    /// Each round.
    pub rounds: Vec<StreamRound>,
    /// Why there are no figures.
    pub not_run: Option<String>,
}

/// One round of a case; the fields are the row's.
#[derive(Debug, Clone, Copy, Serialize)]
#[allow(missing_docs, reason = "they are the row's")]
pub struct StreamRound {
    pub messages_per_s: f64,
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub client_cpu_ns: f64,
    pub server_cpu_ns: Option<f64>,
}

/// A row by another one: the medians of the rounds' ratios, and the 95 % intervals of those, which need two rounds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Against {
    /// Messages a second: above 1 is faster.
    pub rate: Option<f64>,
    /// Its interval.
    pub rate_interval: Option<(f64, f64)>,
    /// Medians of round trips or gaps: below 1 is faster.
    pub p50: Option<f64>,
    /// Its interval.
    pub p50_interval: Option<(f64, f64)>,
    /// Processor time of both ends: below 1 is less.
    pub cpu: Option<f64>,
    /// Its interval.
    pub cpu_interval: Option<(f64, f64)>,
}

impl StreamRound {
    fn of(round: &Streamed) -> StreamRound {
        StreamRound {
            messages_per_s: round.rate(),
            p50_ns: quantile(&round.latencies, 0.5),
            p99_ns: quantile(&round.latencies, 0.99),
            client_cpu_ns: tenths(each(round.client_cpu_ns, round.messages)),
            server_cpu_ns: round.server_cpu_ns.map(|ns| tenths(each(ns, round.messages))),
        }
    }

    /// Of both ends; no number if one is not known.
    fn cpu_ns(&self) -> f64 {
        self.client_cpu_ns + self.server_cpu_ns.unwrap_or(f64::NAN)
    }
}

fn tenths(figure: f64) -> f64 {
    (figure * 10.0).round() / 10.0
}

impl Against {
    fn of(ours: &[StreamRound], theirs: &[StreamRound]) -> Against {
        let paired = |of: fn(&StreamRound) -> f64| {
            let ratios = ratios(ours, theirs, of);
            let ratio = median(ratios.iter().copied()).filter(|ratio| ratio.is_finite());
            (ratio, interval_of_ratios(&ratios))
        };
        let (rate, rate_interval) = paired(|round| round.messages_per_s);
        let (p50, p50_interval) = paired(|round| round.p50_ns.map_or(f64::NAN, |ns| ns as f64));
        let (cpu, cpu_interval) = paired(StreamRound::cpu_ns);
        Against { rate, rate_interval, p50, p50_interval, cpu, cpu_interval }
    }
}

impl StreamRow {
    fn of(tried: Tried<StreamCase, Streamed>) -> StreamRow {
        let Tried { case, rounds, not_run } = tried;
        let all = together(rounds.iter().map(|round| &round.latencies));
        let each: Vec<StreamRound> = rounds.iter().map(StreamRound::of).collect();
        let servers: Option<Vec<f64>> = each.iter().map(|round| round.server_cpu_ns).collect();
        StreamRow {
            case,
            messages_per_s: median(each.iter().map(|round| round.messages_per_s)).map(tenths),
            p50_ns: quantile(&all, 0.5),
            p99_ns: quantile(&all, 0.99),
            client_cpu_ns: median(each.iter().map(|round| round.client_cpu_ns)).map(tenths),
            server_cpu_ns: servers.and_then(median).map(tenths),
            messages: rounds.iter().map(|round| round.messages).sum(),
            vs_tonic_unix: None,
            vs_tonic_pipe: None,
            rounds: each,
            not_run,
        }
    }

    /// Processor time of both ends.
    fn cpu_ns(&self) -> Option<f64> {
        Some(self.client_cpu_ns? + self.server_cpu_ns?)
    }

    fn against(&self, side: StreamSide, rows: &[StreamRow]) -> Option<Against> {
        let other = rows.iter().find(|row| row.case == self.case.on(side))?;
        (!self.rounds.is_empty() && !other.rounds.is_empty())
            .then(|| Against::of(&self.rounds, &other.rounds))
    }
}

/// What the cases of a plan came to.
pub(super) fn report(
    machine: Machine,
    lasting: Lasting,
    tried: Vec<Tried<StreamCase, Streamed>>,
) -> Rows<StreamRow> {
    let mut report = Rows::of(machine, lasting, tried, StreamRow::of);
    let against = |side| report.rows.iter().map(|row| row.against(side, &report.rows)).collect::<Vec<_>>();
    let (unix, pipe) = (against(StreamSide::TonicUnix), against(StreamSide::TonicPipe));
    for (row, (unix, pipe)) in report.rows.iter_mut().zip(unix.into_iter().zip(pipe)) {
        (row.vs_tonic_unix, row.vs_tonic_pipe) = (unix, pipe);
    }
    report
}

impl Rows<StreamRow> {
    /// Rows of one setting, in the plan's order.
    fn groups(&self) -> impl Iterator<Item = &[StreamRow]> {
        self.rows.chunk_by(|one, next| one.case.on(next.case.side) == next.case)
    }

    /// A panel for each kind of stream and placement: a line for each side, a place for each size and number of streams.
    fn panel(&self, rows: &[StreamRow]) -> Panel {
        let setting = |row: &StreamRow| row.case.setting().split_once(", ").map(|(_, rest)| rest.to_owned());
        let mut settings: Vec<String> = rows.iter().filter_map(setting).collect();
        settings.dedup();
        let place = |row: &StreamRow| settings.iter().position(|known| Some(known) == setting(row).as_ref());
        let point = |row: &StreamRow| Some((place(row)? as f64, row.messages_per_s?));
        let line = |(idx, side): (usize, &StreamSide)| Line {
            name: side.name().to_owned(),
            color: COLORS.get(idx).copied().unwrap_or("#8c564b"),
            points: rows.iter().filter(|row| row.case.side == *side).filter_map(point).collect(),
            has_dots: true,
        };
        let StreamCase { kind, placement, .. } = rows[0].case;
        let lines: Vec<Line> = StreamSide::ALL.iter().enumerate().map(line).collect();
        Panel {
            title: format!("{kind}, {placement}: messages a second"),
            x: Axis::named(&settings),
            x_words: "",
            y: Axis::decades(rows.iter().filter_map(|row| row.messages_per_s), |value| value.to_string()),
            lines: lines.into_iter().filter(|line| !line.points.is_empty()).collect(),
            note: String::new(),
        }
    }
}

impl Report for Rows<StreamRow> {
    fn table(&self) -> String {
        let mut text = self.heading("");
        for group in self.groups() {
            let case = group[0].case;
            let trips = matches!(case.kind, StreamKind::PingPong | StreamKind::Burst);
            let what = if trips { "round trips" } else { "gaps" };
            let mut table = Table::new(
                "side",
                "messages/s|p50 us|p99 us|client ns|server ns|both ns|rate : unix|p50|cpu|rate : pipe|cpu",
            );
            for row in group {
                match &row.not_run {
                    Some(why) => table.noted(cells![row.case.side], why),
                    None => table.row(line(row)),
                }
            }
            let _ = write!(text, "\n{}, {}; p50 and p99 of {what}\n{table}", case.setting(), case.placement);
        }
        text + "\nmessages/s sums both directions. Processor time is a message's; a pipe's is that of both ends, a gateway's is with its \
                server's.\n: unix and : pipe are ratios against tonic-unix and tonic-pipe in the same setting, paired by round, medians: \
                rates above 1 are faster, p50 and\nprocessor time below 1 are less. Both ends have tokio's multi-thread runtime with 2 \
                workers, but tollfree-blocking.\n"
    }

    fn began(&self) -> &str {
        &self.machine.started_at
    }

    fn failed_count(&self) -> usize {
        self.rows.iter().filter(|row| is_failure(row.not_run.as_ref())).count()
    }

    fn files(&self) -> Vec<(&'static str, String)> {
        let same = |one: &StreamRow, next: &StreamRow| {
            (one.case.kind, one.case.placement) == (next.case.kind, next.case.placement)
        };
        let panels = self.rows.chunk_by(same).map(|rows| self.panel(rows)).collect();
        vec![("plot.svg", Chart { title: "Streams", machine: &self.machine, panels }.draw())]
    }
}

fn line(row: &StreamRow) -> Vec<String> {
    let mut cells = cells![
        row.case.side,
        figure(row.messages_per_s, 0),
        micros_of(row.p50_ns),
        micros_of(row.p99_ns),
        figure(row.client_cpu_ns, 0),
        figure(row.server_cpu_ns, 0),
        figure(row.cpu_ns(), 0),
    ];
    let unix = row.vs_tonic_unix;
    cells.extend([unix.map(|it| it.rate), unix.map(|it| it.p50), unix.map(|it| it.cpu)].map(ratio));
    let pipe = row.vs_tonic_pipe;
    cells.extend([pipe.map(|it| it.rate), pipe.map(|it| it.cpu)].map(ratio));
    cells
}

/// Nothing beside a side that was not run.
fn ratio(ratio: Option<Option<f64>>) -> String {
    ratio.map_or_else(String::new, |ratio| figure(ratio, 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::Cores;
    use crate::plan::Placement;

    #[test]
    fn rounds_are_compared_in_pairs_with_both_yardsticks() {
        let case = StreamCase {
            side: StreamSide::Tollfree,
            kind: StreamKind::Server,
            size: 64,
            streams: 1,
            placement: Placement::Unpinned,
        };
        let tried = |side, messages: [u64; 3], server_cpu_ns| {
            let round = |messages| Streamed {
                messages,
                elapsed_ns: 1_000_000_000,
                client_cpu_ns: 1000 * messages,
                server_cpu_ns,
                ..Streamed::default()
            };
            Tried { case: case.on(side), rounds: messages.map(round).to_vec(), not_run: None }
        };
        let unix = tried(StreamSide::TonicUnix, [100, 1000, 10], Some(0));
        let ours = tried(StreamSide::Tollfree, [200, 1500, 10], None);
        let lasting = Lasting { seconds: 1.0, rounds: 3 };
        let report = report(Machine::look(&Cores::choose().unwrap(), &[]), lasting, vec![unix, ours]);
        let [unix, ours] = &report.rows[..] else { panic!("two rows") };
        assert_eq!((unix.messages_per_s, unix.messages), (Some(100.0), 1110));
        assert_eq!((ours.client_cpu_ns, ours.server_cpu_ns, ours.p50_ns), (Some(1000.0), None, None));
        let against = ours.vs_tonic_unix.unwrap();
        // Not the ratio of the medians, which is 2.
        assert_eq!((against.rate, against.cpu, against.p50), (Some(1.5), None, None));
        assert!(against.rate_interval.is_some() && ours.vs_tonic_pipe.is_none());
        let table = report.table();
        assert!(table.contains("server, 64 B, 1 at a time, unpinned; p50 and p99 of gaps"), "{table}");
        assert!(report.files()[0].1.contains("messages a second"));
    }
}
