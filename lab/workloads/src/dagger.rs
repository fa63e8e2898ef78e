//! Dagger's figures 1 and 2: what share of a request's time is networking, against load, and how long messages between services are.
//!
//! Figure 1 takes networking for all that is no handler: serialization, HTTP/2 or sessions, sockets, and waiting for them. Of the latency it is
//! what passes while no handler of the request works on it; of processor time, what the services take beside their handlers.

use std::fmt::Write as _;

use serde::Serialize;
use tollfree_bench::cells;
use tollfree_bench::harness::words::{figure, micros};
use tollfree_bench::harness::{Lasting, Table, is_failure};

use crate::plan::{Case, Plan, Pressure, Shape};
use crate::report::{Report, Row};
use crate::side::Side;
use crate::sizes::Sizes;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DaggerFigure {
    /// Networking's share against load.
    Fig1,
    /// Lengths of requests and replies.
    Fig2,
}

/// Bytes of what hotels and posts say beside their texts: those of the paper are short.
const DESCRIPTION_LEN: usize = 256;
const MEDIA_LEN: usize = 64;
/// Up to which lengths the table tells shares, and the plot has marks: the paper's 64, 256 and 1280 among them.
pub(crate) const MARKS: [u64; 10] = [16, 32, 64, 128, 256, 512, 1024, 1280, 4096, 16384];

impl DaggerFigure {
    /// Its plan, with times that suit a small machine.
    #[must_use]
    pub fn plan(self) -> Plan {
        let shapes = vec![Shape::Hotel { description: DESCRIPTION_LEN }, Shape::Social { media: MEDIA_LEN }];
        let (title, pressures, sides, seconds, rounds) = match self {
            Self::Fig1 => (
                "Dagger, figure 1: the share of networking against load",
                [100.0, 200.0, 400.0, 800.0, 1600.0].map(Pressure::Rate).to_vec(),
                vec![Side::Tonic, Side::Inline],
                2.0,
                3,
            ),
            Self::Fig2 => (
                "Dagger, figure 2: lengths of requests and replies",
                vec![Pressure::Inflight(4)],
                vec![Side::Tonic],
                2.0,
                1,
            ),
        };
        Plan {
            title: title.to_owned(),
            figure: Some(self),
            shapes,
            pressures,
            sides,
            lasting: Lasting { seconds, rounds },
            ref_threshold: None,
            park: false,
            images: None,
        }
    }
}

/// The workload of a case.
pub(crate) fn workload(shape: Shape) -> &'static str {
    match shape {
        Shape::Hotel { .. } => "hotel",
        Shape::Social { .. } => "social network",
        _ => "workload",
    }
}

/// The figure's tables, with a foot that explains them.
pub(crate) fn tables(report: &Report, figure: DaggerFigure) -> String {
    match figure {
        DaggerFigure::Fig1 => shares(report),
        DaggerFigure::Fig2 => lengths(report),
    }
}

fn why(row: &Row) -> String {
    format!("not run: {}", row.not_run.as_deref().unwrap_or("nothing was measured"))
}

fn shares(report: &Report) -> String {
    let mut table = Table::new("workload|side", "offered|a second|mean us|p99 us|of latency|of cpu time");
    let mut rows: Vec<&Row> = report.rows.rows.iter().collect();
    rows.sort_by_key(|row| (workload(row.case.shape), row.case.side));
    for row in rows {
        let Case { side, shape, pressure } = row.case;
        let offered = match pressure {
            Pressure::Rate(rate) => format!("{rate}/s"),
            Pressure::Inflight(count) => format!("{count} open"),
        };
        let mut cells = cells![workload(shape), side, offered];
        let quantiles = &row.quantiles;
        let (Some(rate), Some(mean), Some(p99), Some(latency), Some(useful)) = (
            quantiles.rate_per_s,
            quantiles.mean_ns,
            quantiles.p99_ns,
            row.networking_share,
            row.useful_share,
        ) else {
            table.noted(cells, why(row));
            continue;
        };
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        cells.extend([figure(Some(rate), 0), micros(mean), micros(p99 as f64)]);
        cells.extend([percent(latency), percent(1.0 - useful)]);
        table.noted(cells, row.shed_in_words());
    }
    format!(
        "\n{table}\nNetworking is all that is no handler: serialization, HTTP/2 or sessions, sockets, waiting for them. of latency: of the mean, what is \
         no handler's\nown time; queues before a handler begins are networking's, its waits for a processor its own. of cpu time: of \
         all services, the load generator\nleft out; Tollfree's processes spin while they wait.\n"
    )
}

/// What the calls of a workload have shown, on all sides and in all rounds together, by service.
fn sizes_of(report: &Report) -> Vec<(&'static str, Vec<(String, Sizes)>)> {
    let mut workloads: Vec<(&'static str, Vec<(String, Sizes)>)> = Vec::new();
    for row in &report.rows.rows {
        let name = workload(row.case.shape);
        let idx = workloads.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
            workloads.push((name, Vec::new()));
            workloads.len() - 1
        });
        let services = &mut workloads[idx].1;
        for process in row.rounds.iter().flat_map(|round| &round.processes) {
            match services.iter_mut().find(|(known, _)| *known == process.name) {
                Some((_, sizes)) => sizes.merge(&process.sizes),
                None => services.push((process.name.clone(), process.sizes.clone())),
            }
        }
        services.retain(|(_, sizes)| *sizes != Sizes::default());
    }
    workloads
}

/// Requests and replies of all services of each workload.
pub(crate) fn lengths_of(report: &Report) -> Vec<(&'static str, Sizes)> {
    let sum_up = |(name, services): (&'static str, Vec<(String, Sizes)>)| {
        let mut all = Sizes::default();
        services.iter().for_each(|(_, sizes)| all.merge(sizes));
        (name, all)
    };
    sizes_of(report).into_iter().map(sum_up).collect()
}

fn lengths(report: &Report) -> String {
    let marks = MARKS.map(|mark| format!("≤ {mark}")).join("|");
    let mut table = Table::new("workload|service|", &format!("messages|{marks}|p50 B|p95 B|max B"));
    let mut lines = |workload: &str, service: &str, sizes: &Sizes| {
        for (what, lengths) in [("requests", &sizes.requests), ("replies", &sizes.replies)] {
            let mut cells = cells![workload, service, what, lengths.count()];
            let share = |mark| match lengths.share_up_to(mark) {
                Some(share) => format!("{:.1} %", 100.0 * share),
                None => "-".to_owned(),
            };
            cells.extend(MARKS.map(share));
            cells.extend([0.5, 0.95, 1.0].map(|share| lengths.quantile(share).to_string()));
            table.row(cells);
        }
    };
    for ((workload, all), (_, services)) in lengths_of(report).iter().zip(sizes_of(report)) {
        lines(workload, "all", all);
        services.iter().for_each(|(service, sizes)| lines(workload, service, sizes));
    }
    for row in report.rows.rows.iter().filter(|row| is_failure(row.not_run.as_ref())) {
        table.noted(cells![workload(row.case.shape)], why(row));
    }
    format!(
        "\n{table}\nMessages of one call in {}, of services and of the load generator's calls to the first, as protobuf encodes them; no metadata, no framing.\n",
        crate::share::SAMPLED_EVERY
    )
}

/// The raw counts of figure 2.
pub(crate) fn sizes_csv(report: &Report) -> String {
    let mut text = String::from("workload,service,what,up_to_bytes,messages\n");
    for (workload, services) in sizes_of(report) {
        for (service, sizes) in &services {
            for (what, lengths) in [("request", &sizes.requests), ("reply", &sizes.replies)] {
                for (len, count) in lengths.pairs() {
                    let _ = writeln!(text, "{workload},{service},{what},{len},{count}");
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_possible_and_have_both_workloads() {
        for (figure, count) in [(DaggerFigure::Fig1, 2 * 5 * 2), (DaggerFigure::Fig2, 2)] {
            let plan = figure.plan();
            plan.check().unwrap();
            assert_eq!(plan.cases().len(), count);
            let names: Vec<_> = plan.shapes.iter().map(|shape| workload(*shape)).collect();
            assert_eq!(names, ["hotel", "social network"]);
        }
    }
}
