//! `tollfree-lab against`: the same measurement by two builds of this command, by turns, and how their figures compare.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use serde::Serialize;
use serde_json::{Map, Value};
use tollfree_bench::cells;
use tollfree_bench::harness::measured::{interval_of_ratios, median, ratios};
use tollfree_bench::harness::{Table, rounds, within};

use crate::failure::Failure;
use crate::measuring::{print, warn_of_debug_build};

/// Run a measurement with another build and with this one, by turns, and compare row by row
#[derive(Debug, Args)]
#[command(after_help = "\
A round is one run of each, of one round itself; the builds take turns at going first. A ratio is this build's figure over the other's in
the same round: below 1 is faster for times, above 1 for rates. The table has the median of the ratios, and the 95 % interval of their
mean (Student's t, on logarithms). `make bench-against REV=…` builds the other one.

Example:
  tollfree-lab against --base old/tollfree-lab -- bench echo --size 64 --inflight 1 --side tollfree")]
pub(crate) struct AgainstArgs {
    /// The other build's command
    #[arg(long, value_name = "PROGRAM")]
    base: PathBuf,

    /// Rounds
    #[arg(long, value_name = "R", default_value_t = 10)]
    rounds: usize,

    /// Directory for what each run writes [default: bench-out/against]
    #[arg(long, value_name = "DIR", default_value = "bench-out/against")]
    out: PathBuf,

    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,

    /// The measurement, without --rounds, --out and --json
    #[arg(last = true, required = true, value_name = "ARGUMENT")]
    arguments: Vec<String>,
}

/// A figure that rows may have.
struct Kind {
    name: &'static str,
    /// The row's members that may hold it: benches name it differently.
    members: &'static [&'static str],
    /// Whether rows without rounds of their own hold the sum over all calls.
    is_summed: bool,
}

const KINDS: [Kind; 9] = [
    Kind { name: "p50, ns", members: &["p50_ns"], is_summed: false },
    Kind { name: "p99, ns", members: &["p99_ns"], is_summed: false },
    Kind { name: "an operation, ns", members: &["ns"], is_summed: false },
    Kind { name: "calls a second", members: &["rate_per_s", "calls_per_s"], is_summed: false },
    Kind { name: "messages a second", members: &["messages_per_s"], is_summed: false },
    Kind { name: "cpu of client, ns a call", members: &["client_cpu_ns"], is_summed: true },
    Kind { name: "cpu of server, ns a call", members: &["server_cpu_ns"], is_summed: true },
    Kind { name: "cpu of backends, ns a call", members: &["host_cpu_ns"], is_summed: true },
    Kind { name: "cpu between, ns a call", members: &["infra_cpu_ns"], is_summed: true },
];

/// How one figure of one row compares.
#[derive(Debug, Serialize)]
struct Compared {
    figure: &'static str,
    /// Medians of the rounds.
    base: f64,
    this: f64,
    /// The median of the rounds' ratios.
    ratio: f64,
    /// 95 % interval of the ratio; needs two rounds.
    interval: Option<(f64, f64)>,
    /// Each round.
    ratios: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct Row {
    /// What is measured: members that are the same in all runs of both builds.
    case: Map<String, Value>,
    figures: Vec<Compared>,
    /// Why there are none.
    not_run: Option<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    base: PathBuf,
    rounds: usize,
    arguments: Vec<String>,
    rows: Vec<Row>,
}

/// One run's rows.
type Rows = Vec<Map<String, Value>>;

impl AgainstArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        within(&[self.rounds], 1..=1000, "rounds")?;
        warn_of_debug_build();
        let (mut base, mut this) = (Vec::new(), Vec::new());
        for round in 1..=self.rounds {
            for build in rounds::order(2, round) {
                match build {
                    0 => base.push(self.measure(&self.base, "base", round)?),
                    _ => this.push(self.measure(Path::new("/proc/self/exe"), "this", round)?),
                }
            }
            eprintln!("round {round} of {}", self.rounds);
        }
        let rows = compare(&base, &this).map_err(Failure::Failed)?;
        let report = Report { base: self.base, rounds: self.rounds, arguments: self.arguments, rows };
        print(&if self.json { format!("{}\n", serde_json::json!(report)) } else { report.table() })
    }

    /// Runs one build once.
    fn measure(&self, program: &Path, name: &str, round: usize) -> Result<Rows, Failure> {
        let failed = |what: String| Failure::Failed(format!("{}: {what}", program.display()));
        let mut command = Command::new(program);
        command.args(&self.arguments).args(["--rounds", "1", "--json", "--out"]);
        command.arg(self.out.join(format!("{name}-{round}"))).stderr(Stdio::piped());
        let done = command.output().map_err(|error| failed(format!("cannot be run: {error}")))?;
        let report = serde_json::from_slice::<Value>(&done.stdout);
        let rows = report.ok().and_then(|mut report| serde_json::from_value(report["rows"].take()).ok());
        // Rows that could not be run say so themselves.
        rows.ok_or_else(|| failed(format!("gave no rows: {}", String::from_utf8_lossy(&done.stderr).trim())))
    }
}

/// What a row says of a figure.
fn figure(kind: &Kind, row: &Map<String, Value>) -> Option<f64> {
    let value = kind.members.iter().find_map(|member| row.get(*member)?.as_f64())?;
    let is_sum = kind.is_summed && !row.contains_key("rounds");
    let calls = if is_sum { row.get("calls")?.as_f64()? } else { 1.0 };
    Some(value / calls).filter(|figure| figure.is_finite() && *figure > 0.0)
}

/// Compares rows that stand at the same place: the runs of both builds had the same arguments.
fn compare(base: &[Rows], this: &[Rows]) -> Result<Vec<Row>, String> {
    let first = base.first().ok_or("there is no run")?;
    if base.iter().chain(this).any(|rows| rows.len() != first.len()) {
        return Err("the two builds do not have the same rows".to_owned());
    }
    let row = |idx: usize| {
        let all: Vec<&Map<String, Value>> = base.iter().chain(this).map(|rows| &rows[idx]).collect();
        let is_known = |member: &str| KINDS.iter().any(|kind| kind.members.contains(&member));
        let is_case = |member: &str, value: &Value| {
            let is_scalar =
                value.is_string() || value.is_boolean() || value.as_f64().is_some_and(|it| it != 0.0);
            let is_same = all.iter().all(|row| row.get(member) == Some(value));
            is_scalar && is_same && !is_known(member) && !matches!(member, "not_run" | "calls" | "messages")
        };
        let case = all[0].iter().filter(|(member, value)| is_case(member, value));
        let case: Map<String, Value> = case.map(|(member, value)| (member.clone(), value.clone())).collect();
        let not_run = all.iter().find_map(|row| Some(row.get("not_run")?.as_str()?.to_owned()));
        let figures = match &not_run {
            Some(_) => Vec::new(),
            None => KINDS.iter().filter_map(|kind| compared(kind, base, this, idx)).collect(),
        };
        Row { case, figures, not_run }
    };
    Ok((0..first.len()).map(row).collect())
}

fn compared(kind: &Kind, base: &[Rows], this: &[Rows], idx: usize) -> Option<Compared> {
    let figures =
        |runs: &[Rows]| -> Option<Vec<f64>> { runs.iter().map(|rows| figure(kind, &rows[idx])).collect() };
    let (base, this) = (figures(base)?, figures(this)?);
    let ratios = ratios(&this, &base, |figure| *figure);
    Some(Compared {
        figure: kind.name,
        base: median(base)?,
        this: median(this)?,
        ratio: median(ratios.iter().copied())?,
        interval: interval_of_ratios(&ratios),
        ratios,
    })
}

impl Report {
    fn table(&self) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let words = row.case.iter().map(|(member, value)| {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                format!("{member}={value}")
            });
            let _ = writeln!(text, "{}", words.collect::<Vec<_>>().join(" "));
            if let Some(why) = &row.not_run {
                let _ = writeln!(text, "  not run: {why}");
            }
            let mut table = Table::new("", "base|this|this/base|95 % interval");
            for Compared { figure, base, this, ratio, interval, .. } in &row.figures {
                let interval = interval.map_or(String::new(), |(low, high)| format!("{low:.3} to {high:.3}"));
                let [base, this] = [base, this].map(|figure| format!("{figure:.0}"));
                table.row(cells![figure, base, this, format!("{ratio:.3}"), interval]);
            }
            let _ = write!(text, "{table}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn runs(rows: &[Value]) -> Vec<Rows> {
        rows.iter().map(|row| serde_json::from_value(json!([row])).unwrap()).collect()
    }

    #[test]
    fn ratios_are_of_rounds_and_sums_of_calls_are_divided() {
        let row = |p50: u64, calls: u64, cpu: u64| {
            json!({"side": "tollfree", "size": 64, "metadata": 0, "p50_ns": p50, "calls": calls, "host_cpu_ns": cpu,
                "quota": null, "not_run": null})
        };
        // A minute in which all takes twice as long is in both.
        let base = runs(&[row(100, 10, 1000), row(200, 5, 1000), row(100, 10, 1000)]);
        let this = runs(&[row(110, 20, 1000), row(220, 10, 1000), row(110, 20, 1000)]);
        let rows = compare(&base, &this).unwrap();
        assert_eq!(Value::Object(rows[0].case.clone()), json!({"side": "tollfree", "size": 64}));
        let [p50, cpu] = &rows[0].figures[..] else { panic!("two figures: {rows:?}") };
        assert!((p50.ratio - 1.1).abs() < 1e-9 && (p50.base, p50.this) == (100.0, 110.0), "{p50:?}");
        let (low, high) = p50.interval.unwrap();
        assert!((low - 1.1).abs() < 1e-6 && (high - 1.1).abs() < 1e-6, "{p50:?}");
        assert!((cpu.ratio - 0.5).abs() < 1e-9 && cpu.base == 100.0, "{cpu:?}");
    }

    #[test]
    fn figures_of_a_row_with_rounds_are_of_one_call() {
        let row = |cpu: u64| json!({"calls": 10, "client_cpu_ns": cpu, "rounds": []});
        let rows = compare(&runs(&[row(100)]), &runs(&[row(150)])).unwrap();
        assert_eq!((rows[0].figures[0].base, rows[0].figures[0].interval), (100.0, None));
    }

    #[test]
    fn rows_that_were_not_run_and_builds_that_differ_are_said() {
        let failed = runs(&[json!({"side": "tonic", "p50_ns": null, "not_run": "no core"})]);
        let rows = compare(&failed, &failed).unwrap();
        assert_eq!((rows[0].not_run.as_deref(), rows[0].figures.len()), (Some("no core"), 0));
        assert!(compare(&failed, &[Vec::new()]).is_err());
    }
}
