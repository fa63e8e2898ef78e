//! Cerebros' figure 6: what is left of the RPC layer on a backend's core when parts of it are offloaded.

use std::fmt::Write as _;

use serde::Serialize;

use crate::cells;
use crate::harness::chart::side_by_side;
use crate::harness::{Chart, Machine, Report, Table};

/// What is offloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Offload {
    /// Nothing.
    None,
    /// Payloads: the core asks for each and waits.
    Payload,
    /// Payloads and headers, each asked for by itself, since the core dispatches between them.
    PayloadHeader,
    /// The same, with the two optimizations of the paper's section 6.1: data go with what asks, and the network on the chip is short.
    Coalesced,
    /// The same by an accelerator of the core's own: nothing to cross.
    Private,
    /// All of it, by what gets requests before the core does.
    Full,
}

impl Offload {
    /// Each, in the figure's order.
    pub const ALL: [Offload; 6] = [
        Offload::None,
        Offload::Payload,
        Offload::PayloadHeader,
        Offload::Coalesced,
        Offload::Private,
        Offload::Full,
    ];

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Offload::None => "none",
            Offload::Payload => "payload",
            Offload::PayloadHeader => "payload+header",
            Offload::Coalesced => "the same, coalesced",
            Offload::Private => "private",
            Offload::Full => "full",
        }
    }
}

/// What the parts of one request cost, in one unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OffloadCosts {
    /// `cycles` or `ns`.
    pub unit: &'static str,
    /// All headers of a request, read and written by the core.
    pub headers: f64,
    /// All payloads of a request, by the core.
    pub payloads: f64,
    /// Looking up whom it is for.
    pub dispatch: f64,
    /// Headers and payloads of a request: as many of each, and each is asked for by itself.
    pub tasks: f64,
    /// Asking for one, and hearing that it is done.
    pub offload: f64,
    /// The same where it is optimized; none where nobody says how.
    pub offload_coalesced: Option<f64>,
    /// All headers by the accelerator.
    pub headers_offloaded: f64,
    /// All payloads by the accelerator.
    pub payloads_offloaded: f64,
    /// What a request costs the core that gets and gives all of its messages ready.
    pub handed: f64,
}

impl OffloadCosts {
    /// The paper's, for the service UniqueId. From its text: five traversals of 40 cycles an offload, four headers and four payloads a request, 90 cycles
    /// of the accelerator for these; payloads are 60 % of the RPC layer, the dispatch 5 %; an optimized offload costs 60 cycles. Fitted: 4,450 cycles of
    /// the RPC layer in all. Assumed: the accelerator's time is one half headers.
    #[must_use]
    pub fn paper() -> OffloadCosts {
        let all = 4450.0;
        OffloadCosts {
            unit: "cycles",
            headers: 0.35 * all,
            payloads: 0.60 * all,
            dispatch: 0.05 * all,
            tasks: 4.0,
            offload: 5.0 * 40.0,
            offload_coalesced: Some(60.0),
            headers_offloaded: 45.0,
            payloads_offloaded: 45.0,
            handed: 90.0,
        }
    }

    /// What a request costs with an offload. None where nobody says what that costs.
    fn cost(&self, offload: Offload) -> Option<f64> {
        let offloaded = self.headers_offloaded + self.payloads_offloaded;
        Some(match offload {
            Offload::None => self.headers + self.payloads + self.dispatch,
            Offload::Payload => {
                self.headers + self.dispatch + self.tasks * self.offload + self.payloads_offloaded
            }
            Offload::PayloadHeader => self.dispatch + 2.0 * self.tasks * self.offload + offloaded,
            Offload::Coalesced => self.dispatch + 2.0 * self.tasks * self.offload_coalesced? + offloaded,
            Offload::Private => self.dispatch + offloaded,
            Offload::Full => self.handed,
        })
    }
}

/// A bar of the figure.
#[derive(Debug, Clone, Serialize)]
pub struct OffloadRow {
    /// `modelled`.
    pub kind: &'static str,
    /// `paper`, or `here`: the costs.
    pub costs: &'static str,
    /// What is offloaded.
    pub offload: Offload,
    /// What a request costs the backend's core, waiting included.
    pub cost: f64,
    /// The unit.
    pub unit: &'static str,
    /// How many times less that is than without any offload.
    pub speedup: f64,
    /// The paper's figure, where it prints one.
    pub printed: Option<f64>,
}

/// The figure.
#[derive(Debug, Clone, Serialize)]
pub struct OffloadModel {
    /// Where the costs that are not the paper's were measured.
    pub machine: Machine,
    /// The paper's costs, and those of this machine if they were measured.
    pub costs: Vec<OffloadCosts>,
    /// The bars.
    pub rows: Vec<OffloadRow>,
}

fn rows(name: &'static str, costs: &OffloadCosts) -> Vec<OffloadRow> {
    let printed = |offload| match (name, offload) {
        ("paper", Offload::None) => Some(1.0),
        ("paper", Offload::Payload) => Some(1.7),
        ("paper", Offload::PayloadHeader) => Some(2.3),
        ("paper", Offload::Full) => Some(50.0),
        _ => None,
    };
    let none = costs.headers + costs.payloads + costs.dispatch;
    let row = |offload| {
        let cost = costs.cost(offload)?;
        let (kind, unit) = ("modelled", costs.unit);
        let printed = printed(offload);
        Some(OffloadRow { kind, costs: name, offload, cost, unit, speedup: none / cost, printed })
    };
    Offload::ALL.into_iter().filter_map(row).collect()
}

impl OffloadModel {
    /// With the paper's costs, and with those of this machine if they were measured.
    #[must_use]
    pub fn new(machine: Machine, here: Option<OffloadCosts>) -> OffloadModel {
        let paper = OffloadCosts::paper();
        let mut all = rows("paper", &paper);
        all.extend(here.iter().flat_map(|costs| rows("here", costs)));
        OffloadModel { machine, costs: [paper].into_iter().chain(here).collect(), rows: all }
    }
}

impl Report for OffloadModel {
    fn table(&self) -> String {
        let mut text = String::new();
        for (costs, name) in self.costs.iter().zip(["paper", "here"]) {
            let OffloadCosts { unit, headers, payloads, dispatch, tasks, offload, .. } = costs;
            let mut table = Table::new("offload", &format!("{unit}/request|times less|printed"));
            for row in self.rows.iter().filter(|row| row.costs == name) {
                let printed = row.printed.map_or("-".to_owned(), |times| times.to_string());
                let (cost, times) = (format!("{:.0}", row.cost), format!("{:.2}", row.speedup));
                table.row(cells![row.offload.name(), cost, times, printed]);
            }
            let _ = write!(
                text,
                "modelled, costs {name}: headers {headers:.0}, payloads {payloads:.0}, dispatch {dispatch:.0}; {tasks} headers and as many payloads a \
                 request; {offload:.0} an offload; accelerator {:.0}; handed {:.0} {unit}\n{table}",
                costs.headers_offloaded + costs.payloads_offloaded,
                costs.handed,
            );
        }
        text
    }

    fn began(&self) -> &str {
        &self.machine.started_at
    }

    fn files(&self) -> Vec<(&'static str, String)> {
        let line = |name: &'static str| {
            let rows = self.rows.iter().filter(move |row| row.costs == name);
            let place = |offload| Offload::ALL.iter().position(|it| *it == offload).unwrap_or(0) + 1;
            let points = rows.map(|row| (place(row.offload) as f64, [row.cost, row.speedup]));
            (format!("costs: {name}, modelled"), points.collect::<Vec<_>>())
        };
        let lines: Vec<_> =
            ["paper", "here"].map(line).into_iter().filter(|(_, points)| !points.is_empty()).collect();
        let titles = ["cycles (paper) or ns (here) a request", "times less than without"];
        let axis = "1 none, 2 payload, 3 and header, 4 coalesced, 5 private, 6 full";
        let panels = side_by_side(axis, titles, &lines);
        let title = "RPC work left on a backend's core (modelled)";
        vec![("plot.svg", Chart { title, machine: &self.machine, panels }.draw())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Within 2 %: 1, 1.7, 2.3 and 50 times, some 1,600 cycles of offloads, 21.5 times from headers and payloads to all of it, and the optimized
    /// offload between the shared and the private accelerator.
    #[test]
    fn the_papers_figures_come_out() {
        let costs = OffloadCosts::paper();
        for row in rows("paper", &costs) {
            let Some(printed) = row.printed else { continue };
            assert!((row.speedup / printed - 1.0).abs() < 0.02, "{row:?}");
        }
        assert_eq!(2.0 * costs.tasks * costs.offload, 1600.0);
        let cost = |offload| costs.cost(offload).unwrap();
        let last_step = cost(Offload::PayloadHeader) / cost(Offload::Full);
        assert!((last_step / 21.5 - 1.0).abs() < 0.02, "{last_step}");
        assert!(cost(Offload::Coalesced) < cost(Offload::PayloadHeader));
        assert!(cost(Offload::Coalesced) > cost(Offload::Private));
    }

    #[test]
    fn what_nobody_says_the_cost_of_has_no_bar() {
        let costs = OffloadCosts { offload_coalesced: None, ..OffloadCosts::paper() };
        let rows = rows("here", &costs);
        assert_eq!(rows.len(), Offload::ALL.len() - 1);
        assert!(rows.iter().all(|row| row.printed.is_none() && row.kind == "modelled"));
    }
}
