//! The result as a table for people: a group for each setting, its sides below each other, and how they compare.

use std::fmt::Write as _;

use tollfree_bench::cells;
use tollfree_bench::harness::Table;
use tollfree_bench::harness::words::{figure, fraction, micros, micros_of, or_dash};

use crate::report::{Comparison, Report, Row};

/// The tables, with a foot that explains them.
pub(crate) fn tables(report: &Report) -> String {
    let mut text = String::new();
    let heading = |row: &Row| format!("{}, {}", row.case.shape.setting(), row.case.pressure);
    for group in report.rows.rows.chunk_by(|one, next| heading(one) == heading(next)) {
        let mut table = Table::new(
            "side",
            "a second|p50 us|mean us|p99 us|p99.9 us|cpu us|less codec|useful %|copied B|in movers|sent B",
        );
        group.iter().for_each(|row| figures(&mut table, row));
        let _ = write!(text, "\n{}\n{table}", heading(&group[0]));
        group.iter().for_each(|row| comparisons(&mut text, row));
    }
    if !report.slopes.is_empty() {
        text.push('\n');
    }
    for slope in &report.slopes {
        let _ = writeln!(text, "  {slope}");
    }
    text.push_str(
        "\nAll for each call. cpu: of all processes, waiting by spinning included; less codec: without the image library; useful: handlers without the calls \
         that they make, in percent of all processes but the load generator; in movers: of \
         those that only pass on. \
         copied: by the library\nfor large messages, in all processes, and in those that only pass on; tonic's own copies are \
         not counted. sent: by system calls,\ncopied into the kernel and out of it. Ratios: below 1 is less; in brackets, \
         95 % intervals over rounds.\n",
    );
    text
}

fn figures(table: &mut Table, row: &Row) {
    let (Some(all), Some(movers)) = (row.all, row.movers) else {
        let why = row.not_run.as_deref().unwrap_or("nothing was measured");
        return table.noted(cells![row.case.side], format!("not run: {why}"));
    };
    let quantiles = &row.quantiles;
    let cells = cells![
        row.case.side,
        figure(quantiles.rate_per_s, 0),
        micros_of(quantiles.p50_ns),
        or_dash(quantiles.mean_ns.map(micros)),
        micros_of(quantiles.p99_ns),
        micros_of(quantiles.p999_ns),
        micros(all.cpu_ns),
        micros(all.cpu_outside_codec_ns),
        figure(row.useful_share.map(|share| 100.0 * share), 1),
        figure(all.copied_bytes, 0),
        figure(movers.copied_bytes, 0),
        figure(Some(all.sent_bytes), 0),
    ];
    table.noted(cells, row.shed_in_words());
}

/// A line for each side that this one is compared with, but itself.
fn comparisons(text: &mut String, row: &Row) {
    use crate::Side;
    let side = row.case.side;
    for (yardstick, compared) in [(Side::Tonic, row.vs_tonic), (Side::Inline, row.vs_inline)] {
        // By value beside by value is one line; tonic beside Tollfree would say the same again.
        let Some(compared) = compared.filter(|_| side > yardstick) else { continue };
        let Comparison { p50, p50_interval, rate, rate_interval, .. } = compared;
        let _ = write!(
            text,
            "  {:<18} p50 {}{}, rate {rate:.2}{}, cpu less codec {}{}",
            format!("{side} / {yardstick}:"),
            fraction(p50),
            brackets(p50_interval),
            brackets(rate_interval),
            fraction(compared.cpu_outside_codec),
            brackets(compared.cpu_outside_codec_interval),
        );
        if let Some(ratio) = compared.cpu_in_movers {
            let _ =
                write!(text, ", in movers {}{}", fraction(ratio), brackets(compared.cpu_in_movers_interval));
        }
        text.push('\n');
    }
}

/// An interval as it stands behind a ratio.
pub(crate) fn brackets(interval: Option<(f64, f64)>) -> String {
    interval.map_or_else(String::new, |(low, high)| format!(" ({low:.3}..{high:.3})"))
}
