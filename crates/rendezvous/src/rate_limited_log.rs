//! Lines of the log that others can cause as often as they like, and that are written now and then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Said one after the other before there is a pause.
const BURST: u32 = 10;
/// What one more costs in time.
const PAUSE: Duration = Duration::from_secs(1);
/// Lines of this process that were not written, at all places together.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// How often one line was written, and how often it was not. One for each place that writes, as a `static`; or one for each of those
/// that cause it, where these are few.
///
/// # Example
/// ```
/// static REFUSED: tollfree_rendezvous::RateLimitedLog = tollfree_rendezvous::RateLimitedLog::new();
/// if let Some(unsaid) = REFUSED.turn() {
///     println!("a client was refused (and {unsaid} before it)");
/// }
/// ```
#[derive(Debug)]
pub struct RateLimitedLog {
    said: Mutex<Said>,
}

#[derive(Debug)]
struct Said {
    /// What may be said now.
    left: u32,
    /// When `left` was last made more.
    since: Option<Instant>,
    unsaid: u64,
}

impl Default for RateLimitedLog {
    fn default() -> RateLimitedLog {
        RateLimitedLog::new()
    }
}

impl RateLimitedLog {
    /// Nothing was said yet.
    pub const fn new() -> RateLimitedLog {
        RateLimitedLog { said: Mutex::new(Said { left: BURST, since: None, unsaid: 0 }) }
    }

    /// Whether it is to be said this time; if so, how often it was not since the last time.
    pub fn turn(&self) -> Option<u64> {
        self.turn_at(Instant::now())
    }

    /// How many lines this process has not written, at all places together, since it began.
    pub fn left_out() -> u64 {
        LEFT_OUT.load(Ordering::Relaxed)
    }

    fn turn_at(&self, now: Instant) -> Option<u64> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *said.since.get_or_insert(now);
        let earned = now.saturating_duration_since(since).as_secs() / PAUSE.as_secs();
        if earned > 0 {
            said.left = said.left.saturating_add(earned.try_into().unwrap_or(BURST)).min(BURST);
            said.since = Some(now);
        }
        if said.left == 0 {
            said.unsaid += 1;
            LEFT_OUT.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        said.left -= 1;
        Some(std::mem::take(&mut said.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_said_now_and_then_and_counted() {
        let (rate_limited_log, now, before) =
            (RateLimitedLog::new(), Instant::now(), RateLimitedLog::left_out());
        let said = (0..1000).filter(|_| rate_limited_log.turn_at(now).is_some()).count();
        assert_eq!(said, BURST as usize);
        assert!(RateLimitedLog::left_out() >= before + 1000 - u64::from(BURST));
        let second = now + PAUSE;
        assert_eq!(rate_limited_log.turn_at(second), Some(1000 - u64::from(BURST)));
        assert_eq!(rate_limited_log.turn_at(second), None);
        // After a long silence no more is said at once than at first.
        let later = second + PAUSE * 3600;
        assert_eq!((0..1000).filter(|_| rate_limited_log.turn_at(later).is_some()).count(), BURST as usize);
    }
}
