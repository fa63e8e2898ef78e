//! The types of `google.protobuf` that have a JSON form of their own, as they are read.

use crate::read::{ReadResult, Reader};
use crate::scalar::{delimited, tag, varint};
use crate::tree::Json;
use crate::{LONGEST_DURATION, NANOS, TIMES};
use tollfree_layout::table::FieldRow;

const SPECIAL: [&str; 16] = [
    "Any",
    "Timestamp",
    "Duration",
    "FieldMask",
    "Struct",
    "ListValue",
    "Value",
    "DoubleValue",
    "FloatValue",
    "Int64Value",
    "UInt64Value",
    "Int32Value",
    "UInt32Value",
    "BoolValue",
    "StringValue",
    "BytesValue",
];

impl Reader<'_> {
    /// The short name of the type, if it is a special one.
    fn special_name(&self, type_idx: u32) -> Option<&'static str> {
        let name = self.type_name(type_idx).strip_prefix("google.protobuf.")?;
        SPECIAL.into_iter().find(|special| *special == name)
    }

    /// Reads the message if its type is a special one; says whether it was.
    pub(crate) fn special(
        &mut self,
        type_idx: u32,
        json: &Json,
        out: &mut Vec<u8>,
    ) -> Result<bool, crate::ReadError> {
        let Some(name) = self.special_name(type_idx) else { return Ok(false) };
        match (name, json) {
            ("Any", Json::Object(members)) => self.any(members, out)?,
            ("Any", other) => return Err(self.expected("an object", other)),
            ("Timestamp", Json::String(text)) => match timestamp(text) {
                Some(moment) => put_moment(moment, out),
                None => return Err(self.expected("a time like 2006-01-02T15:04:05.5Z", json)),
            },
            ("Timestamp", other) => return Err(self.expected("a time in a string", other)),
            ("Duration", Json::String(text)) => match duration(text) {
                Some(moment) => put_moment(moment, out),
                None => return Err(self.expected("a duration like 1.5s within 10,000 years", json)),
            },
            ("Duration", other) => return Err(self.expected("a duration in a string", other)),
            ("FieldMask", Json::String(text)) => {
                for path in text.split(',').filter(|_| !text.is_empty()) {
                    let path = snake_case(path).ok_or_else(|| self.expected("paths in camel case", json))?;
                    delimited(1, path.as_bytes(), out);
                }
            }
            ("FieldMask", other) => return Err(self.expected("paths in a string", other)),
            ("Value", json) => self.dynamic(type_idx, json, out)?,
            // Struct, ListValue and the wrappers stand for their only field.
            (_, json) => {
                let row = self.row(type_idx, 1)?;
                self.field(&row, json, out)?;
            }
        }
        Ok(true)
    }

    /// The field with this number; a schema may have types of its own under these names.
    fn row(&self, type_idx: u32, number: u32) -> Result<FieldRow, crate::ReadError> {
        let mut rows = self.processor.table().fields_of(type_idx).iter();
        rows.find(|row| row.number == number)
            .copied()
            .ok_or_else(|| self.problem(format!("{} has no field {number}", self.type_name(type_idx))))
    }

    /// `Value`: the member that the kind of JSON calls for.
    fn dynamic(&mut self, type_idx: u32, json: &Json, out: &mut Vec<u8>) -> ReadResult {
        let number = match json {
            Json::Null => 1,
            Json::Number(_) => 2,
            Json::String(_) => 3,
            Json::Bool(_) => 4,
            Json::Object(_) => 5,
            Json::Array(_) => 6,
        };
        let row = self.row(type_idx, number)?;
        self.field(&row, json, out)
    }

    /// `Any`: the type's URL in `@type`, and the message beside it or, of a special type, in `value`.
    fn any(&mut self, members: &[(String, Json)], out: &mut Vec<u8>) -> ReadResult {
        if members.is_empty() {
            return Ok(());
        }
        let mut urls = members.iter().filter(|(name, _)| name == "@type");
        let (Some((_, Json::String(url))), None) = (urls.next(), urls.next()) else {
            return Err(self.problem("expected one member \"@type\" with the type's URL"));
        };
        let name = url.rsplit_once('/').map_or("", |(_, name)| name);
        let Some(type_idx) = self.processor.type_by_name(name) else {
            return Err(self.problem(format!("the table has no type for {url:?}")));
        };
        let mut packed = Vec::new();
        self.at(&format!("({name})"), |reader| {
            if reader.special_name(type_idx).is_none() {
                return reader.members(type_idx, members, Some("@type"), &mut packed);
            }
            let mut values = members.iter().filter(|(name, _)| name != "@type");
            match (values.next(), values.next()) {
                (Some((name, json)), None) if name == "value" => reader.message(type_idx, json, &mut packed),
                _ => Err(reader.problem("expected \"@type\" and one member \"value\"")),
            }
        })?;
        delimited(1, url.as_bytes(), out);
        delimited(2, &packed, out);
        Ok(())
    }
}

/// Seconds and nanoseconds, as Timestamp and Duration hold them.
fn put_moment((seconds, nanos): (i64, i32), out: &mut Vec<u8>) {
    tag(1, 0, out);
    varint(seconds as u64, out);
    tag(2, 0, out);
    varint(i64::from(nanos) as u64, out);
}

/// All of `text` as decimal digits.
fn digits(text: &str) -> Option<i64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Up to nine digits behind a point, in nanoseconds; 0 without a point.
fn fraction(text: &str) -> Option<i32> {
    let Some(text) = text.strip_prefix('.') else { return Some(0).filter(|_| text.is_empty()) };
    let value = digits(text).filter(|_| text.len() <= 9)?;
    i32::try_from(value * 10i64.pow(9 - text.len() as u32)).ok()
}

/// A moment after RFC 3339, with any offset; letters in upper case.
fn timestamp(text: &str) -> Option<(i64, i32)> {
    let (date, time) = text.split_once('T')?;
    let (time, offset) = match time.strip_suffix('Z') {
        Some(time) => (time, 0),
        None => {
            let at = time.rfind(['+', '-'])?;
            let (hours, minutes) = time[at + 1..].split_once(':').filter(|(h, m)| h.len() + m.len() == 4)?;
            let (hours, minutes) = (digits(hours)?, digits(minutes)?);
            let offset = (hours <= 23 && minutes <= 59).then_some(3600 * hours + 60 * minutes)?;
            (&time[..at], if time[at..].starts_with('-') { -offset } else { offset })
        }
    };
    let part = |text: &str, at: usize, len: usize| digits(text.get(at..at + len)?);
    let shaped = date.len() == 10 && date.get(4..5) == Some("-") && date.get(7..8) == Some("-");
    let timed = time.get(2..3) == Some(":") && time.get(5..6) == Some(":");
    let (year, month, day) = (part(date, 0, 4)?, part(date, 5, 2)?, part(date, 8, 2)?);
    let (hour, minute, second) = (part(time, 0, 2)?, part(time, 3, 2)?, part(time, 6, 2)?);
    let nanos = fraction(time.get(8..)?)?;
    let in_range = (1..=12).contains(&month)
        && (1..=days_in(year, month)).contains(&day)
        && hour <= 23
        && minute <= 59
        && second <= 59;
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
    (shaped && timed && in_range && TIMES.contains(&seconds)).then_some((seconds, nanos))
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1 January 1970 to this one; the inverse of what `write_special` counts.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    365 * year + year.div_euclid(4) - year.div_euclid(100)
        + year.div_euclid(400)
        + (153 * month + 2) / 5
        + day
        - 719_469
}

/// `-1.5s`.
fn duration(text: &str) -> Option<(i64, i32)> {
    let text = text.strip_suffix('s')?;
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (seconds, nanos) = (digits(whole)?, fraction(rest)?);
    debug_assert!((0..NANOS).contains(&nanos));
    let sign = if negative { -1 } else { 1 };
    (seconds <= LONGEST_DURATION).then_some((sign * seconds, sign as i32 * nanos))
}

/// `fooBar.baz` as `foo_bar.baz`; none if it holds what camel case does not.
fn snake_case(path: &str) -> Option<String> {
    let mut out = String::with_capacity(path.len() + 4);
    for char in path.chars() {
        match char {
            '_' => return None,
            'A'..='Z' => out.extend(['_', char.to_ascii_lowercase()]),
            _ => out.push(char),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(timestamp("1970-01-01T00:00:00Z"), Some((0, 0)));
        assert_eq!(timestamp("1969-12-31T23:59:59.5Z"), Some((-1, 500_000_000)));
        assert_eq!(timestamp("2000-02-29T12:00:00+02:30"), Some((951_816_600, 0)));
        assert_eq!(timestamp("0001-01-01T00:00:00Z"), Some((*TIMES.start(), 0)));
        assert_eq!(timestamp("9999-12-31T23:59:59.999999999Z"), Some((*TIMES.end(), NANOS - 1)));
        for text in [
            "",
            "1970-01-01",
            "1970-01-01t00:00:00Z",
            "1970-01-01T00:00:00z",
            "1970-01-01T00:00:00",
            "1970-13-01T00:00:00Z",
            "1970-02-29T00:00:00Z",
            "1970-01-01T24:00:00Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00.1234567890Z",
            "1970-01-01T00:00:00+2:300",
            "1970-01-01T00:00:00+24:00",
            "0001-01-01T00:00:00+00:01",
            "é970-01-01T00:00:00Z",
            "1970-01-01T00:é:00Z",
        ] {
            assert_eq!(timestamp(text), None, "{text}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("1.5s"), Some((1, 500_000_000)));
        assert_eq!(duration("-0.000000001s"), Some((0, -1)));
        assert_eq!(duration("315576000000s"), Some((LONGEST_DURATION, 0)));
        for text in [
            "",
            "s",
            "1",
            "-s",
            "+1s",
            "1.s",
            ".5s",
            "315576000001s",
            "1.0000000000s",
            "--1s",
            "99999999999999999999s",
        ] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn snake_case_undoes_camel_case() {
        assert_eq!(snake_case("fooBar.bAZ1").as_deref(), Some("foo_bar.b_a_z1"));
        assert_eq!(snake_case("foo_bar"), None);
    }
}
