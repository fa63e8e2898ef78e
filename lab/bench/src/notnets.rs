//! NotNets' table 1: what a hello call takes over HTTP/2, and how much of that is left at each level of Tollfree.
//!
//! The paper's figures (mean / 99 % / 99.9 %, in µs): HTTP/2 209 / 507 / 1430; its own path 26.2 / 138 / 335; its own path
//! without serialization 9.67 / 44.1 / 231. Other machines give other times: what compares is each row's part of HTTP/2's.

use crate::cells;
use crate::echo::{EchoPlan, Row};
use crate::harness::words::micros;
use crate::harness::{Lasting, Rows, Table};
use crate::plan::{Malloc, Message, Placement, RuntimeKind, Side};

/// Calls of each side, as in the paper.
pub const CALL_COUNT: u64 = 200_000;

/// Bytes of a hello.
const HELLO_LEN: usize = 64;

/// The sides, and what the paper has in their place.
const SIDES: [(Side, &str); 3] = [
    (Side::TonicTcp, "HTTP/2"),
    (Side::Tollfree, "level 1: tonic's stubs"),
    (Side::TollfreeDirect, "level 2: own stubs"),
];

/// What to measure for the table.
pub fn table1_plan(calls: u64, placement: Placement) -> EchoPlan {
    EchoPlan {
        messages: vec![Message::Probe],
        corpus: None,
        sizes: vec![HELLO_LEN],
        metadata: vec![0],
        inflights: vec![1],
        placements: vec![placement],
        sides: SIDES.iter().map(|(side, _)| *side).collect(),
        runtimes: vec![RuntimeKind::Current],
        lasting: Lasting { seconds: 1.0, rounds: 1 },
        calls: Some(calls),
        malloc: Malloc::Keep,
    }
}

/// The table for people.
pub fn table1(report: &Rows<Row>) -> String {
    let mut table = Table::new("", "calls|mean||p99||p99.9|");
    let find = |side| report.rows.iter().find(|row| row.case.side == side);
    for (side, name) in SIDES {
        match find(side).zip(find(Side::TonicTcp)).and_then(|(row, http)| cells(name, row, http)) {
            Some(cells) => table.row(cells),
            None => {
                let why = find(side).and_then(|row| row.not_run.as_deref()).unwrap_or_default();
                table.noted(cells![name], format!("not run: {why}"));
            }
        }
    }
    format!(
        "{}\nNotNets' table 1, measured: calls of {HELLO_LEN} B, one after the other; microseconds, and HTTP/2's in terms of them\n{table}",
        report.heading("")
    )
}

fn cells(name: &str, row: &Row, http: &Row) -> Option<Vec<String>> {
    let figures = |Row { quantiles, .. }: &Row| {
        Some([quantiles.mean_ns?, quantiles.p99_ns? as f64, quantiles.p999_ns? as f64])
    };
    let (own, theirs) = (figures(row)?, figures(http)?);
    let mut cells = cells![name, row.quantiles.calls];
    for (own, theirs) in own.into_iter().zip(theirs) {
        cells.extend([micros(own), format!("{:.1}x", theirs / own)]);
    }
    Some(cells)
}
