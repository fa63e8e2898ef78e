//! The time that a call is given, what is left of it, and waiting no longer than that.

use std::time::{Duration, Instant};

use http::header::{HeaderMap, HeaderName};
use tollfree::gateway::{timeout, timeout_value};
use tonic::Status;

use crate::refusal::{Refusal, Refused};

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The time that a request asks for.
///
/// # Errors
/// The refusal of a call whose `grpc-timeout` is malformed.
fn asked(headers: &HeaderMap) -> Result<Option<Duration>, Refused> {
    timeout(headers).map_err(|status| Refused { why: Refusal::Timeout, status })
}

/// Leaves a request the time that it has left of what it was given when it `began`.
///
/// # Errors
/// [`late`] where nothing is left, and for a time that can't be read.
pub(crate) fn shrink(headers: &mut HeaderMap, began: Instant) -> Result<(), Refused> {
    let Some(given) = asked(headers)? else { return Ok(()) };
    let left = given.checked_sub(began.elapsed()).filter(|left| !left.is_zero()).ok_or_else(late)?;
    headers.insert(GRPC_TIMEOUT, timeout_value(left));
    Ok(())
}

/// Gives a request no more time than `limit`, if there is one.
///
/// # Errors
/// As [`end_of`].
pub(crate) fn limit(headers: &mut HeaderMap, limit: Option<Duration>) -> Result<(), Refused> {
    if let Some(limit) = limit
        && asked(headers)?.is_none_or(|asked| asked > limit)
    {
        headers.insert(GRPC_TIMEOUT, timeout_value(limit));
    }
    Ok(())
}

/// When the time of a call that `began` is over.
///
/// # Errors
/// [`late`] where it has none, and for a time that can't be read.
pub(crate) fn end_of(headers: &HeaderMap, began: Instant) -> Result<Option<Instant>, Refused> {
    match asked(headers)? {
        Some(Duration::ZERO) => Err(late()),
        given => Ok(given.and_then(|given| began.checked_add(given))),
    }
}

/// What a call ends with whose time was over before somebody could have it.
pub(crate) fn late() -> Refused {
    let status = Status::deadline_exceeded("the call's time was over before it could be failed over");
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(GRPC_TIMEOUT, http::HeaderValue::from_static(value));
        headers
    }

    #[test]
    fn timeouts_shrink_and_end() {
        let began = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
        let shrunk = |value: &'static str| {
            let mut headers = of(value);
            shrink(&mut headers, began).map(|()| timeout(&headers).unwrap().unwrap()).map_err(|late| late.why)
        };
        let left = shrunk("100S").unwrap();
        assert!(left <= Duration::from_secs(98) && left > Duration::from_secs(10), "{left:?}");
        assert!(shrunk("99999999H").unwrap() > Duration::from_secs(99_999_997 * 3600));
        for over in ["1S", "2000m", "5n", "0n"] {
            assert_eq!(shrunk(over), Err(Refusal::Late), "{over}");
        }
        assert!(shrink(&mut HeaderMap::new(), began).is_ok(), "no timeout at all");
        assert_eq!(end_of(&of("0m"), began).unwrap_err().why, Refusal::Late);
        assert_eq!(end_of(&of("5S"), began).unwrap(), began.checked_add(Duration::from_secs(5)));
    }

    #[test]
    fn a_limit_holds_where_no_shorter_time_is_asked_for() {
        let limited = |mut headers: HeaderMap, seconds: Option<u64>| {
            limit(&mut headers, seconds.map(Duration::from_secs)).map_err(|refused| refused.why)?;
            Ok(timeout(&headers).unwrap())
        };
        assert_eq!(limited(HeaderMap::new(), None), Ok(None));
        assert_eq!(limited(HeaderMap::new(), Some(3)), Ok(Some(Duration::from_secs(3))));
        assert_eq!(limited(of("5S"), Some(3)), Ok(Some(Duration::from_secs(3))));
        assert_eq!(limited(of("2S"), Some(3)), Ok(Some(Duration::from_secs(2))));
        assert_eq!(limited(of("2"), Some(3)), Err(Refusal::Timeout));
    }

    #[test]
    fn what_is_no_timeout_is_refused() {
        for value in ["", "S", "1", "123456789S", "-1S", "1s", "1 S"] {
            let whys = [
                shrink(&mut of(value), Instant::now()).unwrap_err(),
                end_of(&of(value), Instant::now()).unwrap_err(),
            ];
            for Refused { why, status } in whys {
                assert_eq!((why, status.code()), (Refusal::Timeout, tonic::Code::InvalidArgument), "{value}");
            }
        }
    }
}
