//! The codec benchmark's result: nanoseconds a message and a field first, bytes a second beside them.

use std::fmt::Write as _;

use serde::Serialize;
use tollfree_bench::cells;
use tollfree_bench::cores::Cores;
use tollfree_bench::harness::measured::{median, ratios};
use tollfree_bench::harness::words::figure;
use tollfree_bench::harness::{Machine, Report, Table};

use super::CodecPlan;

/// A whole run.
#[derive(Debug, Serialize)]
pub struct CodecReport {
    /// Where; none if the machine could not be looked at.
    pub machine: Option<Machine>,
    /// Rounds; a figure is their median.
    pub rounds: usize,
    /// Time of a row in a round, in seconds.
    pub seconds: f64,
    /// Seed of the generated messages; none if they are a corpus'.
    pub seed: Option<u64>,
    /// One for each payload.
    pub groups: Vec<Group>,
}

/// All rows of one payload.
#[derive(Debug, Serialize)]
pub struct Group {
    /// Its name.
    pub payload: String,
    /// Bytes on the wire.
    pub bytes: usize,
    /// Fields, those of inner messages and all elements of lists among them.
    pub fields: usize,
    /// Bytes of the flat message.
    pub object_len: usize,
    /// The side that the others are compared with.
    pub baseline: &'static str,
    /// The rows.
    pub rows: Vec<Row>,
}

/// One operation of one library on one payload.
#[derive(Debug, Serialize)]
pub struct Row {
    /// `copy`, `decode` (and drop), `encode`, `verify` or `access` (to every field). Of everyday messages also
    /// `copy-verify-read` (copy an object, verify it, read every field; with prost: decode, read, drop), `builder` (build an
    /// object from given values; with prost: build the structs and encode them) and `decode-read-encode`.
    pub operation: &'static str,
    /// The library and its mode.
    pub side: &'static str,
    /// Median of the rounds in nanoseconds a message; none if it was not run.
    pub ns: Option<f64>,
    /// Smallest and largest round, in nanoseconds a message.
    pub ns_range: Option<(f64, f64)>,
    /// Each round, in nanoseconds a message.
    pub rounds_ns: Vec<f64>,
    /// Median of the rounds' ratios to the baseline's same operation; 0.5 is twice as fast.
    pub vs_baseline: Option<f64>,
    /// Why there are no figures.
    pub not_run: Option<String>,
}

impl Row {
    pub(super) fn measured(operation: &'static str, side: &'static str, rounds_ns: Vec<f64>) -> Self {
        let (least, most) = rounds_ns
            .iter()
            .fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), ns| (least.min(*ns), most.max(*ns)));
        Self {
            operation,
            side,
            ns: median(rounds_ns.iter().copied()),
            ns_range: Some((least, most)),
            rounds_ns,
            vs_baseline: None,
            not_run: None,
        }
    }

    pub(super) fn not_run(operation: &'static str, side: &'static str, why: String) -> Self {
        Self {
            operation,
            side,
            ns: None,
            ns_range: None,
            rounds_ns: Vec::new(),
            vs_baseline: None,
            not_run: Some(why),
        }
    }
}

impl CodecReport {
    pub(super) fn new(plan: &CodecPlan, mut groups: Vec<Group>) -> Self {
        groups.iter_mut().for_each(compare);
        let machine = Cores::choose().ok().map(|cores| Machine::look(&cores, &[]));
        let seed = plan.corpus.is_none().then_some(plan.seed);
        Self { machine, rounds: plan.lasting.rounds, seconds: plan.lasting.seconds, seed, groups }
    }

    fn csv(&self) -> String {
        let mut text = String::from("payload,bytes,fields,operation,side,round,ns\n");
        for group in &self.groups {
            for row in &group.rows {
                for (round_idx, ns) in row.rounds_ns.iter().enumerate() {
                    let Group { payload, bytes, fields, .. } = group;
                    let (operation, side, round) = (row.operation, row.side, round_idx + 1);
                    let _ =
                        writeln!(text, "{payload},{bytes},{fields},{operation},\"{side}\",{round},{ns:.2}");
                }
            }
        }
        text
    }
}

impl Report for CodecReport {
    fn table(&self) -> String {
        let mut text = match &self.machine {
            Some(machine) => format!(
                "{}, Linux {}, {} build of Tollfree {}, one thread, medians of {} rounds of {} s\n",
                machine.cpu, machine.kernel, machine.build, machine.version, self.rounds, self.seconds
            ),
            None => format!("one thread, medians of {} rounds of {} s\n", self.rounds, self.seconds),
        };
        if let Some(seed) = self.seed {
            let _ = writeln!(text, "Messages with generated contents (seed {seed}): no corpus was given.");
        }
        for group in &self.groups {
            group.write(&mut text);
        }
        text.push_str(
            "\n: prost (or : thrift) is the median of the rounds' ratios to that library's same operation (0.50 is twice as \
             fast).\ndecode is decode and drop; aliasing reads the input where it lies. Where long blobs make most of a \
             message,\nMB/s is memcpy's figure. Time is the thread's own processor time.\n",
        );
        text
    }

    fn began(&self) -> &str {
        self.machine.as_ref().map_or("now", |machine| &machine.started_at)
    }

    fn files(&self) -> Vec<(&'static str, String)> {
        vec![("rounds.csv", self.csv()), ("plot.svg", super::plot::ratios(self))]
    }
}

impl Group {
    /// Takes in the rounds of the same rows, measured again; a row that was not run once counts as not run.
    pub(super) fn append(&mut self, other: Group) {
        for (row, other) in self.rows.iter_mut().zip(other.rows) {
            let (operation, side) = (row.operation, row.side);
            *row = match (row.not_run.take(), other.not_run) {
                (Some(why), _) | (None, Some(why)) => Row::not_run(operation, side, why),
                _ => {
                    row.rounds_ns.extend(other.rounds_ns);
                    Row::measured(operation, side, std::mem::take(&mut row.rounds_ns))
                }
            };
        }
    }

    fn write(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "\n{}: {} bytes, {} fields, object of {} bytes",
            self.payload, self.bytes, self.fields, self.object_len
        );
        let mut table = Table::new("|", &format!("ns|ns a field|(rounds)|: {}|MB/s", self.baseline));
        for row in &self.rows {
            let (Some(ns), Some((least, most))) = (row.ns, row.ns_range) else {
                let why = row.not_run.as_deref().unwrap_or("no reason known");
                table.noted(cells![row.operation, row.side], format!("not run: {why}"));
                continue;
            };
            table.row(cells![
                row.operation,
                row.side,
                format!("{ns:.1}"),
                format!("{:.2}", ns / self.fields.max(1) as f64),
                format!("({least:.1}..{most:.1})"),
                figure(row.vs_baseline, 2),
                format!("{:.0}", self.bytes as f64 * 1000.0 / ns),
            ]);
        }
        let _ = write!(text, "{table}");
    }
}

/// Sets every row beside the baseline's of the same operation, round by round.
pub(super) fn compare(group: &mut Group) {
    let baseline: Vec<_> = group
        .rows
        .iter()
        .filter(|row| row.side == group.baseline)
        .map(|row| (row.operation, row.rounds_ns.clone()))
        .collect();
    for row in &mut group.rows {
        let Some((_, theirs)) = baseline.iter().find(|(operation, _)| *operation == row.operation) else {
            continue;
        };
        row.vs_baseline = median(ratios(&row.rounds_ns, theirs, |ns| *ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_add_up_and_are_set_beside_the_baseline() {
        let rows = vec![
            Row::measured("decode", "tollfree", vec![1.0, 2.0, 4.0]),
            Row::measured("decode", "prost", vec![2.0, 8.0, 8.0]),
            Row::not_run("decode", "C++ protobuf, arena", "not built".to_owned()),
        ];
        let mut more = Group {
            payload: "p".to_owned(),
            bytes: 10,
            fields: 0,
            object_len: 40,
            baseline: "prost",
            rows: Vec::new(),
        };
        more.rows = vec![
            Row::measured("decode", "tollfree", vec![5.0]),
            Row::not_run("decode", "prost", "refused".to_owned()),
        ];
        let mut first = Group {
            payload: "p".to_owned(),
            bytes: 10,
            fields: 0,
            object_len: 40,
            baseline: "prost",
            rows: vec![
                Row::measured("decode", "tollfree", vec![1.0, 2.0]),
                Row::measured("decode", "prost", vec![9.0]),
            ],
        };
        first.append(more);
        assert_eq!((first.rows[0].ns, first.rows[0].ns_range), (Some(2.0), Some((1.0, 5.0))));
        assert_eq!((first.rows[1].ns, first.rows[1].not_run.as_deref()), (None, Some("refused")));
        let mut group =
            Group { payload: "p".to_owned(), bytes: 10, fields: 0, object_len: 40, baseline: "prost", rows };
        compare(&mut group);
        assert_eq!(group.rows[0].vs_baseline, Some(0.5));
        assert_eq!(group.rows[2].vs_baseline, None);
        let mut text = String::new();
        group.write(&mut text);
        assert!(text.contains("not run: not built") && text.contains("0.50"), "{text}");
    }
}
