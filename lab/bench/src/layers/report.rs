//! The figure's result: for programs as JSON, for people as a table, and drawn.

use std::fmt::Write as _;

use serde::Serialize;

use super::part::{Coded, Spent};
use super::{Carrier, Case, Kind, STACKS, Took, plot};
use crate::cells;
use crate::harness::measured::interval_of_mean;
use crate::harness::words::micros;
use crate::harness::{Lasting, Machine, Report, Rows, Table, Tried, is_failure};

/// A whole run.
#[derive(Debug, Serialize)]
pub struct LayersReport {
    /// How the figures came to be.
    pub label: &'static str,
    /// One row for each message and stack.
    #[serde(flatten)]
    pub rows: Rows<Row>,
}

/// A message over a stack. Figures are of all rounds together.
#[derive(Debug, Serialize)]
pub struct Row {
    /// What was echoed.
    pub message: Kind,
    /// Its encoded length.
    pub bytes: usize,
    /// What carried it.
    pub stack: Carrier,
    /// Calls measured.
    pub calls: u64,
    /// Processor time of a call, both processes together, in nanoseconds.
    pub cpu_ns: Option<f64>,
    /// Wall clock of a call in nanoseconds.
    pub elapsed_ns: Option<f64>,
    /// Where the processor time went, in the order of [`LAYERS`].
    pub layers: Vec<Layer>,
    /// Why there are no figures.
    pub not_run: Option<String>,
}

/// A layer's part in a call.
#[derive(Debug, Clone, Serialize)]
pub struct Layer {
    /// Its name.
    pub name: &'static str,
    /// Nanoseconds of a call. What is a difference may come out below zero, where a layer is smaller than the noise.
    pub ns: f64,
    /// The same as a part of the whole.
    pub share: f64,
    /// 95 % interval of the share, from rounds; needs two.
    pub share_interval: Option<(f64, f64)>,
}

/// The layers, from the application's side to the wire's.
pub const LAYERS: [&str; 4] = ["serialization", "core", "transport", "kernel"];

/// Nanoseconds of a call, by layer.
type Split = [f64; LAYERS.len()];

/// What was measured of a message in one round.
#[derive(Debug)]
struct Round {
    coded: Coded,
    spent: Vec<(Carrier, Result<Spent, String>)>,
}

impl Round {
    /// What all measurements of a message came to in a round. None where it could not even be encoded and decoded.
    fn of(idx: usize, kind: Kind, tried: &[Tried<Case, Took>]) -> Option<Round> {
        let mut coded = None;
        let mut spent = Vec::new();
        for tried in tried.iter().filter(|tried| tried.case.kind == kind) {
            let why = || tried.not_run.clone().unwrap_or_default();
            match (tried.case.carrier, tried.rounds.get(idx)) {
                (Some(carrier), Some(Took::Spent(calls))) => spent.push((carrier, Ok(*calls))),
                (Some(carrier), _) => spent.push((carrier, Err(why()))),
                (None, Some(Took::Coded(codec))) => coded = Some(*codec),
                (None, _) => {}
            }
        }
        Some(Round { coded: coded?, spent })
    }

    fn spent(&self, carrier: Carrier) -> Result<Spent, String> {
        let found = self.spent.iter().find(|(known, _)| *known == carrier);
        found.map_or_else(|| Err("it was not measured".to_owned()), |(_, spent)| spent.clone())
    }

    /// A stack's layers in this round, and what of it is left without stubs.
    fn split(&self, stack: Carrier, bare: Carrier) -> Result<Split, String> {
        let each = |spent: Spent| {
            let calls = spent.calls.max(1) as f64;
            (spent.user_ns as f64 / calls, spent.system_ns as f64 / calls)
        };
        let (user, system) = each(self.spent(stack)?);
        let (transport, _) = each(self.spent(bare).map_err(|why| format!("{bare}: {why}"))?);
        // There and back, each once at either end.
        let serialization = 2.0 * (self.coded.encode_ns + self.coded.decode_ns);
        Ok([serialization, user - transport - serialization, transport, system])
    }
}

impl Row {
    fn new(kind: Kind, bytes: usize, stack: Carrier, bare: Carrier, rounds: &[Round]) -> Self {
        let mut row = Self {
            message: kind,
            bytes,
            stack,
            calls: 0,
            cpu_ns: None,
            elapsed_ns: None,
            layers: Vec::new(),
            not_run: None,
        };
        match row.sum_up(bare, rounds) {
            Ok(()) => row,
            Err(why) => {
                Self { layers: Vec::new(), cpu_ns: None, elapsed_ns: None, not_run: Some(why), ..row }
            }
        }
    }

    fn sum_up(&mut self, bare: Carrier, rounds: &[Round]) -> Result<(), String> {
        if rounds.is_empty() {
            return Err("the message could not be encoded and decoded".to_owned());
        }
        let splits =
            rounds.iter().map(|round| round.split(self.stack, bare)).collect::<Result<Vec<_>, _>>()?;
        let spent = rounds.iter().map(|round| round.spent(self.stack)).collect::<Result<Vec<_>, _>>()?;
        self.calls = spent.iter().map(|spent| spent.calls).sum();
        let elapsed_ns: u64 = spent.iter().map(|spent| spent.elapsed_ns).sum();
        self.elapsed_ns = Some(elapsed_ns as f64 / self.calls.max(1) as f64);
        let mean = |of: &dyn Fn(&Split) -> f64| splits.iter().map(of).sum::<f64>() / splits.len() as f64;
        let whole = mean(&|split| split.iter().sum());
        self.cpu_ns = Some(whole);
        self.layers = LAYERS
            .iter()
            .enumerate()
            .map(|(idx, name)| {
                let ns = mean(&|split| split[idx]);
                let shares: Vec<f64> =
                    splits.iter().map(|split| split[idx] / split.iter().sum::<f64>()).collect();
                Layer { name, ns, share: ns / whole, share_interval: interval_of_mean(&shares) }
            })
            .collect();
        Ok(())
    }
}

impl LayersReport {
    pub(super) fn new(
        machine: Machine,
        lasting: Lasting,
        lengths: &[(Kind, usize)],
        tried: &[Tried<Case, Took>],
    ) -> Self {
        let rows_of = |(kind, bytes): &(Kind, usize)| {
            let rounds: Vec<Round> =
                (0..lasting.rounds).filter_map(|idx| Round::of(idx, *kind, tried)).collect();
            STACKS.map(|(stack, bare)| Row::new(*kind, *bytes, stack, bare, &rounds))
        };
        let rows = lengths.iter().flat_map(rows_of).collect();
        Self { label: "measured", rows: Rows::of(machine, lasting, rows, |row| row) }
    }

    /// Rows of each message.
    pub(super) fn groups(&self) -> impl Iterator<Item = &[Row]> {
        self.rows.rows.chunk_by(|one, next| one.message == next.message)
    }
}

impl Report for LayersReport {
    fn table(&self) -> String {
        let mut text = self.rows.heading("");
        let _ = writeln!(
            text,
            "\nNotNets' figure 1a, measured: processor time of an echo call, both processes on one core; microseconds and shares"
        );
        for group in self.groups() {
            let mut table = Table::new("", &format!("a call|{}", LAYERS.join("|")));
            group.iter().for_each(|row| line(&mut table, row));
            let _ = write!(text, "\n{}, {} bytes\n{table}", group[0].message, group[0].bytes);
        }
        text.push_str(
            "\nserialization: prost, twice each way, timed alone. transport: user time of the same bytes without stubs (h2, or a \
             bare session).\nkernel: the kernel's own count. core: the rest of the user time; a difference, so that less than the \
             noise may come out below 0.\nIn brackets: half of the 95 % interval over rounds, in points.\n",
        );
        text
    }

    fn began(&self) -> &str {
        &self.rows.machine.started_at
    }

    fn failed_count(&self) -> usize {
        self.rows.rows.iter().filter(|row| is_failure(row.not_run.as_ref())).count()
    }

    fn files(&self) -> Vec<(&'static str, String)> {
        vec![("plot.svg", plot::draw(self))]
    }
}

fn line(table: &mut Table, row: &Row) {
    let Some(whole) = row.cpu_ns else {
        let why = row.not_run.as_deref().unwrap_or("no reason known");
        return table.noted(cells![row.stack], format!("not run: {why}"));
    };
    let layer = |layer: &Layer| {
        let sure = layer
            .share_interval
            .map_or_else(String::new, |(low, high)| format!(" (±{:.1})", (high - low) * 50.0));
        format!("{} {:>5.1} %{sure}", micros(layer.ns), layer.share * 100.0)
    };
    let mut cells = cells![row.stack, micros(whole)];
    cells.extend(row.layers.iter().map(layer));
    table.row(cells);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(stack_user_ns: u64) -> Round {
        let spent = |user_ns, system_ns| Ok(Spent { calls: 10, user_ns, system_ns, elapsed_ns: 100_000 });
        Round {
            coded: Coded { encode_ns: 100.0, decode_ns: 150.0 },
            spent: vec![
                (Carrier::Level2, spent(stack_user_ns, 5_000)),
                (Carrier::Session, spent(20_000, 4_000)),
                (Carrier::Level1, Err("it fell over".to_owned())),
            ],
        }
    }

    #[test]
    fn layers_are_what_is_left_when_others_are_taken_away() {
        let row =
            Row::new(Kind::HelloWorld, 7, Carrier::Level2, Carrier::Session, &[round(40_000), round(40_000)]);
        let ns: Vec<f64> = row.layers.iter().map(|layer| layer.ns).collect();
        // 4000 of user time: 500 for prost, 2000 for the session, 1500 that are left; 500 in the kernel.
        assert_eq!(ns, [500.0, 1500.0, 2000.0, 500.0]);
        assert_eq!((row.calls, row.cpu_ns, row.elapsed_ns), (20, Some(4500.0), Some(10_000.0)));
        let shares: f64 = row.layers.iter().map(|layer| layer.share).sum();
        assert!((shares - 1.0).abs() < 1e-9, "{shares}");
        assert_eq!(row.layers[3].share_interval.map(|(low, high)| high - low), Some(0.0));
    }

    #[test]
    fn what_failed_says_why_and_has_no_figures() {
        let row = Row::new(Kind::M54, 9, Carrier::Level1, Carrier::Session, &[round(40_000)]);
        assert_eq!((row.not_run.as_deref(), row.cpu_ns, row.layers.len()), (Some("it fell over"), None, 0));
        let row = Row::new(Kind::M54, 9, Carrier::Level2, Carrier::Level1, &[round(40_000)]);
        assert_eq!(row.not_run.as_deref(), Some("level 1: tonic's stubs: it fell over"));
        let mut table = Table::new("", "a call");
        line(&mut table, &row);
        let text = table.to_string();
        assert!(text.contains("not run: level 1"), "{text}");
    }
}
