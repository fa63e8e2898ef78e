//! What rounds measured, summed up: medians, quantiles, paired ratios, and how far figures of few rounds can be trusted.

use tollfree_measure::latency::Latencies;

/// The middle figure, or the mean of the middle two. None of none.
#[must_use]
pub fn median(figures: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let last = figures.len().checked_sub(1)?;
    Some(f64::midpoint(figures[last / 2], figures[figures.len() / 2]))
}

/// The same of whole figures.
#[must_use]
pub fn median_of(figures: impl IntoIterator<Item = u64>) -> Option<u64> {
    median(figures.into_iter().map(|figure| figure as f64)).map(|figure| figure.round() as u64)
}

/// All rounds' calls together.
#[must_use]
pub fn together<'l>(rounds: impl IntoIterator<Item = &'l Latencies>) -> Latencies {
    let mut all = Latencies::default();
    rounds.into_iter().for_each(|round| all.merge(round));
    all
}

/// The latency in nanoseconds that a share of the calls did not exceed. None of no calls.
#[must_use]
pub fn quantile(latencies: &Latencies, share: f64) -> Option<u64> {
    (latencies.count() > 0).then(|| latencies.quantile_ns(share))
}

/// A sum for each of so many calls.
#[must_use]
pub fn each(sum: u64, calls: u64) -> f64 {
    sum as f64 / calls.max(1) as f64
}

/// The figures of rounds, by those of another row in the same rounds: what a noisy minute does to both is in neither.
#[must_use]
pub fn ratios<'r, R>(ours: &'r [R], theirs: &'r [R], of: impl Fn(&R) -> f64) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| of(ours) / of(theirs)).collect()
}

/// The 95 % interval of the mean of logarithms, taken back: for ratios, whose errors multiply. None of fewer than two, or of
/// what is no ratio.
#[must_use]
pub fn interval_of_ratios(ratios: &[f64]) -> Option<(f64, f64)> {
    if ratios.iter().any(|ratio| !ratio.is_finite() || *ratio <= 0.0) {
        return None;
    }
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    interval_of_mean(&logs).map(|(low, high)| (low.exp(), high.exp()))
}

/// The 95 % interval of the mean. None of fewer than two figures.
#[must_use]
pub fn interval_of_mean(figures: &[f64]) -> Option<(f64, f64)> {
    let count = figures.len();
    if count < 2 || figures.iter().any(|figure| !figure.is_finite()) {
        return None;
    }
    let mean = figures.iter().sum::<f64>() / count as f64;
    let variance = figures.iter().map(|figure| (figure - mean).powi(2)).sum::<f64>() / (count - 1) as f64;
    let reach = student_t_975(count - 1) * (variance / count as f64).sqrt();
    Some((mean - reach, mean + reach))
}

/// The 97.5 % point of Student's t; beyond ten degrees of freedom a series good to 0.003.
fn student_t_975(freedom: usize) -> f64 {
    const FEW: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    let n = freedom as f64;
    FEW.get(freedom.wrapping_sub(1)).copied().unwrap_or(1.96 + 2.37 / n + 2.8 / (n * n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_the_books() {
        let (low, high) = interval_of_mean(&[1.0, 2.0, 3.0]).unwrap();
        assert!((low + 0.484).abs() < 1e-3 && (high - 4.484).abs() < 1e-3, "{low} {high}");
        let (low, high) = interval_of_ratios(&[0.5, 2.0]).unwrap();
        assert!((low * high - 1.0).abs() < 1e-9 && low < 0.5, "{low} {high}");
        assert_eq!((median([]), median([3.0, 1.0, 2.0]), median_of([1, 2])), (None, Some(2.0), Some(2)));
        assert_eq!(ratios(&[1.0, 9.0], &[2.0, 3.0, 4.0], |figure| *figure), [0.5, 3.0]);
        assert_eq!(
            (interval_of_mean(&[1.0]), interval_of_ratios(&[1.0, 0.0]), interval_of_ratios(&[1.0, f64::NAN])),
            (None, None, None)
        );
    }
}
