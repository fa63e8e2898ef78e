//! Fields of the service config: how they are read, and how it is said what is wrong with one.

use std::time::Duration;

use crate::ServiceConfigError;

pub(super) fn wrong(field: &'static str, problem: impl Into<String>) -> ServiceConfigError {
    ServiceConfigError::Field { field, problem: problem.into() }
}

/// A duration in protobuf's JSON form: seconds with up to nine decimals, and an `s`.
pub(super) fn duration(field: &'static str, text: &str) -> Result<Duration, ServiceConfigError> {
    let parse = || {
        let seconds = text.strip_suffix('s')?;
        let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(fraction) || whole.len() > 12 || fraction.len() > 9 {
            return None;
        }
        let nanos: u32 = format!("{fraction:0<9}").parse().ok()?;
        Some(Duration::new(whole.parse().ok()?, nanos))
    };
    parse().ok_or_else(|| wrong(field, format!("is \"{text}\", and not a duration such as \"0.5s\"")))
}

/// At most a hundred.
pub(super) fn percent(
    field: &'static str,
    value: Option<u32>,
    default: u32,
) -> Result<u32, ServiceConfigError> {
    match value.unwrap_or(default) {
        value @ 0..=100 => Ok(value),
        value => Err(wrong(field, format!("is {value}, and has to be at most 100"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_protobuf() {
        for (text, nanos) in [("0s", 0), ("1s", 1_000_000_000), ("0.000000001s", 1), ("1.5s", 1_500_000_000)]
        {
            assert_eq!(duration("timeout", text).unwrap(), Duration::from_nanos(nanos), "{text}");
        }
        for text in ["", "s", "1", "1.s", ".5s", "-1s", "1e3s", "0.0000000001s", "1 s"] {
            assert!(duration("timeout", text).is_err(), "{text}");
        }
    }
}
