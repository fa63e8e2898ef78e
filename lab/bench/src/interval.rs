//! How far figures of few rounds can be trusted.

/// The 95 % interval of the mean of logarithms, taken back: for ratios, whose errors multiply. None of fewer than two, or of
/// what is no ratio.
#[must_use]
pub fn of_ratios(ratios: &[f64]) -> Option<(f64, f64)> {
    if ratios.iter().any(|ratio| !ratio.is_finite() || *ratio <= 0.0) {
        return None;
    }
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    of_mean(&logs).map(|(low, high)| (low.exp(), high.exp()))
}

/// The 95 % interval of the mean. None of fewer than two figures.
#[must_use]
pub fn of_mean(figures: &[f64]) -> Option<(f64, f64)> {
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
        let (low, high) = of_mean(&[1.0, 2.0, 3.0]).unwrap();
        assert!((low + 0.484).abs() < 1e-3 && (high - 4.484).abs() < 1e-3, "{low} {high}");
        let (low, high) = of_ratios(&[0.5, 2.0]).unwrap();
        assert!((low * high - 1.0).abs() < 1e-9 && low < 0.5, "{low} {high}");
        assert_eq!(
            (of_mean(&[1.0]), of_ratios(&[1.0, 0.0]), of_ratios(&[1.0, f64::NAN])),
            (None, None, None)
        );
    }
}
