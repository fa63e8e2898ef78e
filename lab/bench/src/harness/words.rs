//! Figures as people write them.

/// A size: `64 B`, `4 KiB`, `1 MiB`.
#[must_use]
pub fn bytes_in_words(size: usize) -> String {
    match size {
        0 => "0 B".to_owned(),
        _ if size.is_multiple_of(1 << 20) => format!("{} MiB", size >> 20),
        _ if size.is_multiple_of(1 << 10) => format!("{} KiB", size >> 10),
        _ => format!("{size} B"),
    }
}

/// Nanoseconds as microseconds with three significant digits or more.
#[must_use]
pub fn micros(nanos: f64) -> String {
    let micros = nanos / 1000.0;
    match micros {
        ..10.0 => format!("{micros:.2}"),
        ..100.0 => format!("{micros:.1}"),
        _ => format!("{micros:.0}"),
    }
}

/// The same of a figure that may be missing.
#[must_use]
pub fn micros_of(nanos: Option<u64>) -> String {
    or_dash(nanos.map(|ns| micros(ns as f64)))
}

/// A ratio the way people say it: `1/15.2`, `0.83`, `1.70`.
#[must_use]
pub fn fraction(ratio: f64) -> String {
    if ratio < 0.5 { format!("1/{:.1}", 1.0 / ratio) } else { format!("{ratio:.2}") }
}

/// With so many digits, or a dash where there is none.
#[must_use]
pub fn figure(figure: Option<f64>, digits: usize) -> String {
    or_dash(figure.map(|figure| format!("{figure:.digits$}")))
}

/// A figure in words, or a dash where there is none.
#[must_use]
pub fn or_dash(words: Option<String>) -> String {
    words.unwrap_or_else(|| "-".to_owned())
}

/// A time with its unit: `20 µs`.
#[must_use]
pub fn time_in_words(nanos: f64) -> String {
    match nanos {
        ..1e3 => format!("{nanos:.0} ns"),
        ..1e6 => format!("{:.0} µs", nanos / 1e3),
        ..1e9 => format!("{:.0} ms", nanos / 1e6),
        _ => format!("{:.0} s", nanos / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_times_and_ratios_in_words() {
        let sizes = [0, 64, 1025, 4096, 1 << 20].map(bytes_in_words);
        assert_eq!(sizes, ["0 B", "64 B", "1025 B", "4 KiB", "1 MiB"]);
        assert_eq!([1234.0, 12_340.0, 1_234_000.0].map(micros), ["1.23", "12.3", "1234"]);
        assert_eq!([0.0625, 0.83].map(fraction), ["1/16.0", "0.83"]);
        assert_eq!((figure(Some(1.25), 1), figure(None, 1)), ("1.2".to_owned(), "-".to_owned()));
        assert_eq!([5.0, 2e4, 3e6, 1e9].map(time_in_words), ["5 ns", "20 µs", "3 ms", "1 s"]);
    }
}
