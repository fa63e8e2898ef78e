//! The time that a call is given, what is left of it, and waiting no longer than that.

use std::time::{Duration, Instant};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use tonic::Status;

use crate::refusal::{Refusal, Refused};

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Shrinks a request's timeout by the time since `began`. False where nothing is left.
pub(crate) fn shrink(headers: &mut HeaderMap, began: Instant) -> bool {
    // What is no timeout is left to the server, which answers it as it would without a shepherd.
    let Some(given) = headers.get(&GRPC_TIMEOUT).and_then(timeout_of) else { return true };
    let Some(left) = given.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) else { return false };
    headers.insert(GRPC_TIMEOUT, value_of(left));
    true
}

/// When the time of a call that `began` is over.
pub(crate) fn end_of(headers: &HeaderMap, began: Instant) -> Option<Instant> {
    began.checked_add(headers.get(&GRPC_TIMEOUT).and_then(timeout_of)?)
}

/// What a call ends with whose time was over before somebody could have it.
pub(crate) fn late() -> Refused {
    let status = Status::deadline_exceeded("the call's time was over before it could be handed on");
    Refused { why: Refusal::Late, status }
}

/// Waits for what a call waits for, and no longer than its deadline.
///
/// # Errors
/// [`late`].
pub(crate) async fn in_time<T>(
    deadline: Option<Instant>,
    what: impl Future<Output = T>,
) -> Result<T, Refused> {
    tokio::select! {
        biased;
        done = what => Ok(done),
        () = until(deadline) => Err(late()),
    }
}

/// Resolves at a time; never without one.
pub(crate) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time.into()).await,
        None => std::future::pending().await,
    }
}

/// Up to eight digits and a unit.
fn timeout_of(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

/// The finest unit in which the time fits into eight digits.
fn value_of(left: Duration) -> HeaderValue {
    let units = [(1, 'n'), (1_000, 'u'), (1_000_000, 'm'), (1_000_000_000, 'S'), (3_600_000_000_000, 'H')];
    let nanos = left.as_nanos();
    let (count, unit) = units
        .into_iter()
        .map(|(unit_nanos, unit)| (nanos / unit_nanos, unit))
        .find(|(count, _)| *count < 100_000_000)
        .unwrap_or((99_999_999, 'H'));
    HeaderValue::from_str(&format!("{count}{unit}")).unwrap_or(HeaderValue::from_static("99999999H"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_shrink_and_end() {
        let began = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
        let shrunk = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(GRPC_TIMEOUT, HeaderValue::from_static(value));
            let left = shrink(&mut headers, began);
            left.then(|| timeout_of(&headers[GRPC_TIMEOUT])).flatten()
        };
        let left = shrunk("100S").unwrap();
        assert!(left <= Duration::from_secs(98) && left > Duration::from_secs(10), "{left:?}");
        assert!(shrunk("99999999H").unwrap() > Duration::from_secs(99_999_997 * 3600));
        assert_eq!((shrunk("1S"), shrunk("2000m"), shrunk("5n")), (None, None, None));
        assert!(shrink(&mut HeaderMap::new(), began), "no timeout at all");
    }

    #[test]
    fn what_is_no_timeout_stays_as_it_is() {
        for value in ["", "S", "1", "123456789S", "-1S", "1s", "1 S"] {
            let mut headers = HeaderMap::new();
            headers.insert(GRPC_TIMEOUT, HeaderValue::from_static(value));
            assert!(shrink(&mut headers, Instant::now()), "{value}");
            assert_eq!(headers[GRPC_TIMEOUT], value);
        }
    }
}
