//! How long to wait before an endpoint that failed is tried again.
//!
//! An attempt on this host costs microseconds, so the pauses are short there. Chance spreads the attempts of clients that lost the same
//! server at the same time.

use std::time::Duration;

/// The pause after the first attempts that found nobody at an address of this host. It doubles after each [`LOCAL_STEP`] failures up to
/// [`LOCAL_MAX`]; a pause is half of it at least.
const LOCAL_FIRST: Duration = Duration::from_millis(2);
/// The longest pause after attempts that found nobody at an address of this host. Calls wait as long as this for the next attempt.
pub const LOCAL_MAX: Duration = Duration::from_millis(8);
const LOCAL_STEP: u32 = 64;
/// The pause after the first failed attempt elsewhere. It doubles after each failure up to the maximum.
pub const REMOTE_FIRST: Duration = Duration::from_millis(20);
const REMOTE_MAX: Duration = Duration::from_secs(1);
/// After so many failures, more than half a second, attempts that no call needs get rarer than a call's.
const RESTART_COUNT: u32 = 3 * LOCAL_STEP;
/// A connection that lasted at least this long has not failed. A shorter one counts as a failed attempt.
pub const PROVEN: Duration = Duration::from_millis(50);

/// How dear an attempt is, by where the address leads. `chance` of its methods is a random number from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// To a socket of this host.
    Local,
    /// Over a network.
    Remote,
}

/// What became of an attempt to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody was there.
    Absent,
    /// A server was there; it refused, hung up, or said nothing.
    Refused,
}

impl Pace {
    /// The pause after so many attempts that found nobody.
    pub fn delay(self, failures: u32, chance: f64) -> Duration {
        match self {
            Pace::Local => jittered(LOCAL_FIRST, failures / LOCAL_STEP, LOCAL_MAX, chance),
            Pace::Remote => {
                let full = REMOTE_FIRST.saturating_mul(1 << failures.min(16)).min(REMOTE_MAX);
                full.mul_f64(0.8 + 0.4 * chance)
            }
        }
    }

    /// The pause after so many attempts that a server refused. It has to spend time on each.
    pub fn delay_of_refused(self, refusals: u32, chance: f64) -> Duration {
        match self {
            Pace::Local => jittered(LOCAL_FIRST, refusals, REMOTE_MAX, chance),
            Pace::Remote => self.delay(refusals, chance),
        }
    }

    /// The pause where no call needs the connection: as for a call while a restart may last, then up to a second.
    pub fn delay_unasked(self, failures: u32, chance: f64) -> Duration {
        match failures.checked_sub(RESTART_COUNT) {
            None => self.delay(failures, chance),
            Some(further) => Pace::Remote.delay(further / 4, chance),
        }
    }
}

/// From half of a pause that doubles to all of it.
fn jittered(first: Duration, doublings: u32, max: Duration, chance: f64) -> Duration {
    first.saturating_mul(1 << doublings.min(16)).min(max).mul_f64(0.5 + 0.5 * chance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_failures_and_are_bounded() {
        let ms = Duration::from_millis;
        for (pace, failures, least, most) in [
            (Pace::Local, 0, ms(1), ms(2)),
            (Pace::Local, LOCAL_STEP, ms(2), ms(4)),
            (Pace::Local, 4_000_000, ms(4), ms(8)),
            (Pace::Remote, 0, ms(16), ms(24)),
            (Pace::Remote, 2, ms(64), ms(96)),
            (Pace::Remote, 40, ms(800), ms(1200)),
        ] {
            assert_eq!(
                (pace.delay(failures, 0.0), pace.delay(failures, 1.0)),
                (least, most),
                "{pace:?} {failures}"
            );
        }
        assert_eq!(Pace::Local.delay_of_refused(3, 1.0), ms(16));
        assert_eq!(Pace::Local.delay_of_refused(40, 1.0), ms(1000));
        assert_eq!(Pace::Local.delay_unasked(0, 1.0), ms(2));
        assert_eq!(Pace::Local.delay_unasked(RESTART_COUNT + 400, 1.0), ms(1200));
    }
}
