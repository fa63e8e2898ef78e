//! What plans of all benches say: how long, how often, where, and which values are possible.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use tollfree_measure::BenchError;
use tollfree_measure::axis::Placement;
use tollfree_measure::cores::Cores;

/// The longest that a row may be measured in a round, in seconds.
const SECONDS_MAX: f64 = 3600.0;
/// Most rounds.
const ROUNDS_MAX: usize = 1000;

/// How long and how often each row is measured.
#[derive(Debug, Clone, Copy)]
pub struct Lasting {
    /// Measured time for each row and round in seconds; a warm-up comes before it.
    pub seconds: f64,
    /// Rounds; every row runs once in each.
    pub rounds: usize,
}

impl Lasting {
    /// Checks what the command line's own types cannot.
    ///
    /// # Errors
    /// [`BenchError::Refused`], naming the value and what is allowed.
    pub fn check(&self) -> Result<(), BenchError> {
        if !(self.seconds > 0.0 && self.seconds <= SECONDS_MAX) {
            let seconds = self.seconds;
            return refuse(format!(
                "{seconds} seconds for each row and round: must be above 0 and at most {SECONDS_MAX}"
            ));
        }
        within(&[self.rounds], 1..=ROUNDS_MAX, "rounds")
    }

    /// Measured time for each row and round.
    #[must_use]
    pub fn measure(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Time that each round runs before it counts: long enough for page faults and learnt spin budgets.
    #[must_use]
    pub fn warm_up(&self) -> Duration {
        (self.measure() / 4).clamp(Duration::from_millis(20), Duration::from_millis(500))
    }
}

/// What can't be.
///
/// # Errors
/// [`BenchError::Refused`], always.
pub fn refuse<T>(what: impl Into<String>) -> Result<T, BenchError> {
    Err(BenchError::Refused(what.into()))
}

/// Checks each value of an axis.
///
/// # Errors
/// [`BenchError::Refused`], naming the first that is out of bounds and what is allowed.
pub fn within<T: PartialOrd + Display>(
    values: &[T],
    bounds: RangeInclusive<T>,
    what: &str,
) -> Result<(), BenchError> {
    match values.iter().find(|value| !bounds.contains(*value)) {
        Some(value) => refuse(format!("{value} {what}: must be {} to {}", bounds.start(), bounds.end())),
        None => Ok(()),
    }
}

/// Checks that there is something to measure.
///
/// # Errors
/// [`BenchError::Refused`] if not.
pub fn some<C>(cases: &[C]) -> Result<(), BenchError> {
    if cases.is_empty() { refuse("nothing to measure: an axis has no value") } else { Ok(()) }
}

/// Cases, each once: values of an axis may be given twice.
#[must_use]
pub fn each_once<C: PartialEq>(cases: impl IntoIterator<Item = C>) -> Vec<C> {
    let mut all = Vec::new();
    for case in cases {
        if !all.contains(&case) {
            all.push(case);
        }
    }
    all
}

/// The cores of this machine, if it has what the placements need.
///
/// # Errors
/// [`BenchError::Refused`] if not, [`BenchError::System`].
pub fn seats(placements: impl IntoIterator<Item = Placement>) -> Result<Cores, BenchError> {
    let cores = Cores::choose()?;
    placements.into_iter().try_for_each(|placement| cores.seats(placement).map(drop))?;
    Ok(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused_in_words() {
        let good = Lasting { seconds: 0.4, rounds: 3 };
        good.check().unwrap();
        assert_eq!(good.warm_up(), Duration::from_millis(100));
        for (words, bad) in [
            ("0 seconds", Lasting { seconds: 0.0, ..good }),
            ("NaN seconds", Lasting { seconds: f64::NAN, ..good }),
            ("3601 seconds", Lasting { seconds: 3601.0, ..good }),
            ("0 rounds: must be 1 to 1000", Lasting { rounds: 0, ..good }),
        ] {
            let error = bad.check().unwrap_err().to_string();
            assert!(error.contains(words), "{error:?} lacks {words:?}");
        }
        assert!(some::<u8>(&[]).is_err() && some(&[1]).is_ok());
        assert_eq!(each_once([3, 1, 3, 2, 1]), [3, 1, 2]);
    }
}
