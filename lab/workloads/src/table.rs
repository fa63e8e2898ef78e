//! The result as a table for people: a group for each setting, its sides below each other, and how they compare.

use std::fmt::Write as _;

use tollfree_bench::report::{fraction, micros};

use crate::report::{Comparison, PerCall, Report, Row};

/// The table, with a head that says where it comes from and a foot that explains it.
pub(crate) fn table(report: &Report) -> String {
    let machine = &report.machine;
    let mut text = format!(
        "{} ({})\n{}, {} cores, Linux {}, {} build of Tollfree {}, {} rounds of {} s, processes pinned in turn\n",
        report.title,
        report.label,
        machine.cpu,
        machine.cores,
        machine.kernel,
        machine.build,
        machine.version,
        report.rounds,
        report.seconds
    );
    let heading = |row: &Row| format!("{}, {}", row.case.shape.setting(), row.case.pressure);
    for group in report.rows.chunk_by(|one, next| heading(one) == heading(next)) {
        let _ = writeln!(
            text,
            "\n{}\n  {:<10}{:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10} {:>10} {:>10} {:>10}",
            heading(&group[0]),
            "",
            "a second",
            "p50 us",
            "mean us",
            "p99 us",
            "p99.9 us",
            "cpu us",
            "less codec",
            "useful %",
            "copied B",
            "in movers",
            "sent B"
        );
        group.iter().for_each(|row| figures(&mut text, row));
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

fn figures(text: &mut String, row: &Row) {
    let side = row.case.side;
    let (Some(p50), Some(p99), Some(p999), Some(mean), Some(rate), Some(all), Some(movers)) = (
        row.quantiles.p50_ns,
        row.quantiles.p99_ns,
        row.quantiles.p999_ns,
        row.quantiles.mean_ns,
        row.quantiles.rate_per_s,
        row.all,
        row.movers,
    ) else {
        let why = row.not_run.as_deref().unwrap_or("nothing was measured");
        let _ = writeln!(text, "  {side:<10}not run: {why}");
        return;
    };
    let copied =
        |counts: PerCall| counts.copied_bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{bytes:.0}"));
    let shed = if row.shed == 0 { String::new() } else { format!("  {} calls shed", row.shed) };
    let _ = writeln!(
        text,
        "  {side:<10}{rate:>9.0} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10.1} {:>10} {:>10} {:>10.0}{shed}",
        micros(p50 as f64),
        micros(mean),
        micros(p99 as f64),
        micros(p999 as f64),
        micros(all.cpu_ns),
        micros(all.cpu_outside_codec_ns),
        100.0 * row.useful_share.unwrap_or(0.0),
        copied(all),
        copied(movers),
        all.sent_bytes
    );
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
