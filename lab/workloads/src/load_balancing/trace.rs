//! Requests as they arrive: when, for which function, for how long, and by which connection.

use crate::dice::Dice;

/// Connections that requests come by.
const CONNECTIONS: u64 = 64;

/// What functions there are, and how often each is called.
#[derive(Debug, Clone)]
pub(super) struct Mix {
    pub(super) name: &'static str,
    /// Of each function, its share of requests and its mean time in microseconds.
    pub(super) functions: Vec<(f64, f64)>,
    /// Whether times vary, with an exponential distribution.
    pub(super) varies: bool,
}

impl Mix {
    /// The service User of DeathStarBench, as far as Cerebros' section 6.3 prints it: three of six functions have 70 % of requests,
    /// and two take 180 times as long as those. Assumed are equal shares among the three and among the rest, 1 us for the short ones, and
    /// 20 us for the one whose time is not printed.
    pub(super) fn user() -> Mix {
        let (rare, common) = (0.3 / 3.0, 0.7 / 3.0);
        let functions =
            vec![(rare, 180.0), (rare, 180.0), (rare, 20.0), (common, 1.0), (common, 1.0), (common, 1.0)];
        Mix { name: "user", functions, varies: false }
    }

    /// Functions whose shares fall as Zipf's law says, with an exponent of 1, and that take 100 us in the mean.
    pub(super) fn zipf(name: &'static str, count: u32) -> Mix {
        let sum: f64 = (1..=count).map(|rank| 1.0 / f64::from(rank)).sum();
        let functions = (1..=count).map(|rank| (1.0 / f64::from(rank) / sum, 100.0)).collect();
        Mix { name, functions, varies: true }
    }

    /// The share of requests for those functions of which so many are called the most.
    pub(super) fn most_called(&self, count: usize) -> f64 {
        let mut shares: Vec<f64> = self.functions.iter().map(|(share, _)| *share).collect();
        shares.sort_by(|one, other| other.total_cmp(one));
        shares.iter().take(count).sum()
    }

    fn mean_us(&self) -> f64 {
        self.functions.iter().map(|(share, time)| share * time).sum()
    }
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    pub(super) at_us: f64,
    pub(super) function: usize,
    pub(super) takes_us: f64,
    pub(super) connection: u64,
}

/// Requests that arrive at random, independently of each other, and keep `workers` busy for the share `load` of the time.
pub(super) fn trace(mix: &Mix, workers: usize, load: f64, count: usize, seed: u64) -> Vec<Arrival> {
    let mut dice = Dice::new(seed);
    let exponential = |dice: &mut Dice| -(1.0 - dice.share()).ln();
    let between_us = mix.mean_us() / (workers as f64 * load);
    let mut at_us = 0.0;
    let mut arrive = || {
        at_us += exponential(&mut dice) * between_us;
        let mut drawn = dice.share();
        let found = mix.functions.iter().position(|(share, _)| {
            drawn -= share;
            drawn < 0.0
        });
        let function = found.unwrap_or(mix.functions.len() - 1);
        let mean = mix.functions[function].1;
        let takes_us = if mix.varies { exponential(&mut dice) * mean } else { mean };
        Arrival { at_us, function, takes_us, connection: dice.below(CONNECTIONS) }
    };
    (0..count).map(|_| arrive()).collect()
}
