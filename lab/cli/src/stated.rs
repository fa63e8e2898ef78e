//! `tollfree-lab stated`: figures that documents state, measured again on the machine at hand.

use std::process::{Command, Stdio};

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use tollfree_bench::cells;
use tollfree_bench::harness::Table;

use crate::failure::Failure;
use crate::measuring::{print, warn_of_debug_build};

/// Measure figures that documents state, and fail where one has left its spread
#[derive(Debug, Args)]
#[command(after_help = "\
Only ratios of one run are measured: they mean something on another machine. The spread is what machines and hours have given so far.
Run it on a quiet machine with two cores or more.")]
pub(crate) struct StatedArgs {
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// A run whose rows several statements are about.
struct Run {
    arguments: &'static str,
    statements: &'static [Statement],
}

/// A ratio of two rows of a run.
struct Statement {
    /// Where it is stated, and a piece of the text that states it.
    document: &'static str,
    text: &'static str,
    what: &'static str,
    figure: Figure,
    /// Members and values by which both rows are found; then those of either.
    rows: &'static [(&'static str, &'static str)],
    over: [(&'static str, &'static str); 2],
    stated: f64,
    spread: (f64, f64),
}

/// What of a row is compared.
enum Figure {
    /// The member itself.
    Of(&'static str),
    /// The member, which is a sum, for each call.
    PerCall(&'static str),
}

const USERS: &str = "docs/performance.md";
const ALL: &str = "lab/docs/performance.md";
const ONE: [(&str, &str); 2] = [("side", "tollfree"), ("side", "tonic-unix")];
const THREADS: [(&str, &str); 2] = [("side", "tollfree-threads"), ("side", "tonic-blocking")];

const fn p50(
    text: &'static str,
    what: &'static str,
    rows: &'static [(&'static str, &'static str)],
    stated: f64,
    spread: (f64, f64),
) -> Statement {
    Statement { document: USERS, text, what, figure: Figure::Of("p50_ns"), rows, over: ONE, stated, spread }
}

const RUNS: [Run; 7] = [
    Run {
        arguments: "bench echo --size 64,65536,1048576 --inflight 1 --placement split,same-core \
                    --side tollfree,tollfree-direct,tonic-unix --seconds 0.25 --rounds 4",
        statements: &[
            p50(
                "1/13.4 |",
                "level 1 over tonic, 64 B, a core each",
                &[("size", "64"), ("placement", "split")],
                1.0 / 13.4,
                (0.04, 0.12),
            ),
            p50(
                "1/6.1 |",
                "level 1 over tonic, 64 KiB, a core each",
                &[("size", "65536"), ("placement", "split")],
                1.0 / 6.1,
                (0.1, 0.27),
            ),
            p50(
                "1/4.2 |",
                "level 1 over tonic, 1 MiB, a core each",
                &[("size", "1048576"), ("placement", "split")],
                1.0 / 4.2,
                (0.15, 0.4),
            ),
            p50(
                "1/3.6 |",
                "level 1 over tonic, 64 B, one core",
                &[("size", "64"), ("placement", "same-core")],
                1.0 / 3.6,
                (0.12, 0.42),
            ),
            Statement {
                document: USERS,
                text: "| 0.64 |",
                what: "level 2 over level 1, 64 B, a core each",
                figure: Figure::Of("p50_ns"),
                rows: &[("size", "64"), ("placement", "split")],
                over: [("side", "tollfree-direct"), ("side", "tollfree")],
                stated: 0.25,
                spread: (0.15, 0.45),
            },
        ],
    },
    Run {
        arguments: "bench echo --size 64 --inflight 64 --placement split --side tollfree,tollfree-direct,tonic-unix --seconds 0.4 --rounds 4",
        statements: &[
            Statement {
                document: USERS,
                text: "| level 1 | 604,000 |",
                what: "calls a second, level 1 over tonic, 64 in flight",
                figure: Figure::Of("rate_per_s"),
                rows: &[],
                over: ONE,
                stated: 8.3,
                spread: (5.0, 14.0),
            },
            Statement {
                document: USERS,
                text: "| level 2 | 1,840,000 |",
                what: "calls a second, level 2 over tonic, 64 in flight",
                figure: Figure::Of("rate_per_s"),
                rows: &[],
                over: [("side", "tollfree-direct"), ("side", "tonic-unix")],
                stated: 25.2,
                spread: (14.0, 45.0),
            },
        ],
    },
    Run {
        arguments: "bench echo --size 64 --inflight 1 --placement split --side tollfree,tollfree-upgrade,tollfree-direct-connection --seconds 0.25 --rounds 4",
        statements: &[
            Statement {
                document: ALL,
                text: "| level 0 against level 1, p50 | 1.15 to 1.2 |",
                what: "level 0 over level 1",
                figure: Figure::Of("p50_ns"),
                rows: &[],
                over: [("side", "tollfree-upgrade"), ("side", "tollfree")],
                stated: 1.17,
                spread: (0.9, 1.45),
            },
            Statement {
                document: ALL,
                text: "one and 64 in flight | 1.02, 1.00 |",
                what: "calls by a direct connection over a plain session",
                figure: Figure::Of("p50_ns"),
                rows: &[],
                over: [("side", "tollfree-direct-connection"), ("side", "tollfree")],
                stated: 1.02,
                spread: (0.8, 1.25),
            },
        ],
    },
    Run {
        arguments: "bench split --message echo64 --inflight 64 --busy-ns 0 --side tonic,gateway-bytes --seconds 0.7 --rounds 3",
        statements: &[Statement {
            document: USERS,
            text: "| 64 B, 64 | backend's core | 7.5 | 3.2 |",
            what: "a backend's core's time, behind a gateway over plain tonic, 64 in flight",
            figure: Figure::PerCall("host_cpu_ns"),
            rows: &[],
            over: [("side", "gateway-bytes"), ("side", "tonic")],
            stated: 0.43,
            spread: (0.25, 0.65),
        }],
    },
    Run {
        arguments: "bench stream --kind burst,ping-pong,server --streams 1 --side tonic-unix,tollfree,tollfree-direct,tollfree-blocking --seconds 0.3 --rounds 5",
        statements: &[
            Statement {
                document: ALL,
                text: "| burst, 1 at a time | rate | 1.46 | 1.37 | 1.66 | 2.60 |",
                what: "messages a second in bursts, level 1 over tonic",
                figure: Figure::Of("messages_per_s"),
                rows: &[("kind", "burst")],
                over: ONE,
                stated: 1.37,
                spread: (1.1, 2.5),
            },
            Statement {
                document: ALL,
                text: "| 1.37 | 1.66 | 2.60 |",
                what: "messages a second in bursts, level 2 blocking over tonic",
                figure: Figure::Of("messages_per_s"),
                rows: &[("kind", "burst")],
                over: [("side", "tollfree-blocking"), ("side", "tonic-unix")],
                stated: 2.60,
                spread: (1.8, 5.5),
            },
            Statement {
                document: ALL,
                text: "| ping-pong, 1 | p50 | 0.23 | 0.08 |",
                what: "a round trip on a stream, level 1 over tonic",
                figure: Figure::Of("p50_ns"),
                rows: &[("kind", "ping-pong")],
                over: ONE,
                stated: 0.08,
                spread: (0.02, 0.35),
            },
            Statement {
                document: ALL,
                text: "| server, 1 | rate | 1.21 | 1.16 | 1.33 |",
                what: "messages a second from a server, level 1 over tonic",
                figure: Figure::Of("messages_per_s"),
                rows: &[("kind", "server")],
                over: ONE,
                stated: 1.16,
                spread: (0.9, 2.2),
            },
            Statement {
                document: ALL,
                text: "| server, 1 | rate | 1.21 | 1.16 | 1.33 |",
                what: "messages a second from a server, level 2 over tonic",
                figure: Figure::Of("messages_per_s"),
                rows: &[("kind", "server")],
                over: [("side", "tollfree-direct"), ("side", "tonic-unix")],
                stated: 1.33,
                spread: (1.1, 3.2),
            },
        ],
    },
    Run {
        arguments: "bench stream --kind server --size 4096 --streams 1 --side tonic-unix,tollfree --seconds 0.3 --rounds 5",
        statements: &[Statement {
            document: ALL,
            text: "| server, 1, 4 KiB | rate | 4.54 |",
            what: "messages of 4 KiB a second from a server, level 1 over tonic",
            figure: Figure::Of("messages_per_s"),
            rows: &[],
            over: ONE,
            stated: 4.54,
            spread: (1.8, 6.0),
        }],
    },
    Run {
        arguments: "bench echo --size 64 --inflight 8,64 --placement split,unpinned,same-core --side tollfree-threads,tonic-blocking,tonic-unix --runtime multi --seconds 0.3 --rounds 3",
        statements: &[
            Statement {
                document: USERS,
                text: "| 64, a core each | 181,000 | 6.3 | 14,500 | 8.8 |",
                what: "p99 of 64 threads that share a blocking channel, over tonic's",
                figure: Figure::Of("p99_ns"),
                rows: &[("inflight", "64"), ("placement", "split")],
                over: THREADS,
                stated: 0.71,
                spread: (0.2, 1.2),
            },
            Statement {
                document: USERS,
                text: "| 64, one core for both | 46,300 | 6.8 | 9,900 | 11.4 |",
                what: "calls a second of 64 threads that share a blocking channel, over tonic's, one core for both",
                figure: Figure::Of("rate_per_s"),
                rows: &[("inflight", "64"), ("placement", "same-core")],
                over: THREADS,
                stated: 4.7,
                spread: (2.0, 9.0),
            },
        ],
    },
];

/// What came of a statement.
#[derive(Debug, Serialize)]
struct Outcome {
    what: &'static str,
    document: &'static str,
    /// As the document has it.
    text: &'static str,
    stated: f64,
    spread: (f64, f64),
    measured: Option<f64>,
    holds: bool,
}

impl StatedArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        warn_of_debug_build();
        let mut outcomes = Vec::new();
        for run in &RUNS {
            eprintln!("tollfree-lab {}", run.arguments);
            let rows = measure(run.arguments)?;
            outcomes.extend(run.statements.iter().map(|statement| statement.hold_against(&rows)));
        }
        print(&if self.json { format!("{}\n", serde_json::json!(outcomes)) } else { table(&outcomes) })?;
        match outcomes.iter().filter(|outcome| !outcome.holds).count() {
            0 => Ok(()),
            count => Err(Failure::Failed(format!("{count} of {} figures are not as stated", outcomes.len()))),
        }
    }
}

/// Runs this command again, and gives the rows of its result.
fn measure(arguments: &str) -> Result<Vec<Value>, Failure> {
    let failed = |what: String| Failure::Failed(format!("tollfree-lab {arguments}: {what}"));
    let mut command = Command::new("/proc/self/exe");
    command.args(arguments.split_ascii_whitespace()).args(["--json", "--out", "bench-out/stated"]);
    let done = command.stderr(Stdio::piped()).output().map_err(|error| failed(error.to_string()))?;
    let report = serde_json::from_slice::<Value>(&done.stdout).ok();
    let rows = report.as_ref().and_then(|report| report["rows"].as_array());
    rows.cloned().ok_or_else(|| failed(String::from_utf8_lossy(&done.stderr).trim().to_owned()))
}

impl Statement {
    fn hold_against(&self, rows: &[Value]) -> Outcome {
        let [above, below] = self.over.map(|own| self.figure_of(rows, own));
        let measured = above.zip(below).map(|(above, below)| above / below);
        let (low, high) = self.spread;
        let holds = measured.is_some_and(|ratio| (low..=high).contains(&ratio));
        let Statement { what, document, text, stated, spread, .. } = *self;
        Outcome { what, document, text, stated, spread, measured, holds }
    }

    fn figure_of(&self, rows: &[Value], own: (&str, &str)) -> Option<f64> {
        let is = |row: &Value, (member, value): (&str, &str)| match &row[member] {
            Value::String(text) => text == value,
            other => serde_json::from_str::<Value>(value).is_ok_and(|value| value == *other),
        };
        let row = rows.iter().find(|row| is(row, own) && self.rows.iter().all(|pair| is(row, *pair)))?;
        match self.figure {
            Figure::Of(member) => row[member].as_f64(),
            Figure::PerCall(member) => Some(row[member].as_f64()? / row["calls"].as_f64()?),
        }
    }
}

fn table(outcomes: &[Outcome]) -> String {
    let mut table = Table::new("", "stated|least|most|now");
    for Outcome { what, stated, spread: (low, high), measured, holds, .. } in outcomes {
        let mut cells = cells![what];
        cells.extend([*stated, *low, *high].map(|ratio| format!("{ratio:.3}")));
        cells.push(measured.map_or_else(|| "not run".to_owned(), |ratio| format!("{ratio:.3}")));
        table.noted(cells, if *holds { "" } else { "<- not as stated" });
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_state_what_is_measured_here_and_each_spread_has_it() {
        for statement in RUNS.iter().flat_map(|run| run.statements) {
            let text = match statement.document {
                USERS => include_str!("../../../docs/performance.md"),
                _ => include_str!("../../docs/performance.md"),
            };
            assert!(text.contains(statement.text), "{} does not say {}", statement.document, statement.text);
            let (low, high) = statement.spread;
            assert!(low < statement.stated && statement.stated < high, "{}", statement.what);
        }
    }

    #[test]
    fn a_figure_beyond_its_spread_and_one_that_is_missing_do_not_hold() {
        let statement = &RUNS[3].statements[0];
        let row = |side: &str, cpu: u64| json!({"side": side, "host_cpu_ns": cpu, "calls": 10});
        let outcome = |rows: &[Value]| statement.hold_against(rows);
        assert!(outcome(&[row("tonic", 100), row("gateway-bytes", 43)]).holds);
        let slow = outcome(&[row("tonic", 100), row("gateway-bytes", 90)]);
        assert!(!slow.holds && slow.measured == Some(0.9) && table(&[slow]).contains("not as stated"));
        assert!(!outcome(&[row("tonic", 100)]).holds);
    }
}
