//! The types of `google.protobuf` that have a JSON form of their own, as they are written.

use crate::write::{Writer, string};
use crate::{LONGEST_DURATION, NANOS, TIMES, WriteError};
use std::fmt::Write;
use tollfree_layout::flat::MAX_OBJECT_LEN;
use tollfree_layout::table::Kind;
use tollfree_processor::{Arena, Limits, Record, Value};

type Done = Result<(), WriteError>;

impl Writer<'_> {
    /// Writes the message if its type is a special one; says whether it was.
    pub(crate) fn well_known(&mut self, record: Record<'_>) -> Result<bool, WriteError> {
        let Some(name) = record.type_name().strip_prefix("google.protobuf.") else { return Ok(false) };
        match name {
            "Any" => self.any(record)?,
            "Timestamp" => self.timestamp(record)?,
            "Duration" => self.duration(record)?,
            "FieldMask" => self.field_mask(record)?,
            "Struct" | "ListValue" => self.container(record, name == "Struct")?,
            "Value" => self.dynamic(record)?,
            "DoubleValue" | "FloatValue" | "Int64Value" | "UInt64Value" | "Int32Value" | "UInt32Value"
            | "BoolValue" | "StringValue" | "BytesValue" => self.wrapper(record)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn problem(&self, problem: impl Into<String>) -> WriteError {
        WriteError::WellKnown { path: self.path(), problem: problem.into() }
    }

    /// The fields `seconds` and `nanos`.
    fn moment(record: Record<'_>) -> (i64, i32) {
        let seconds = match record.by_number(1) {
            Some(Value::I64(seconds)) => seconds,
            _ => 0,
        };
        let nanos = match record.by_number(2) {
            Some(Value::I32(nanos)) => nanos,
            _ => 0,
        };
        (seconds, nanos)
    }

    /// A fraction of a second: none, or as few groups of three digits as say it.
    fn fraction(&mut self, nanos: u32) {
        match nanos {
            0 => Ok(()),
            _ if nanos.is_multiple_of(1_000_000) => write!(self.out, ".{:03}", nanos / 1_000_000),
            _ if nanos.is_multiple_of(1000) => write!(self.out, ".{:06}", nanos / 1000),
            _ => write!(self.out, ".{nanos:09}"),
        }
        .ok();
    }

    /// RFC 3339, in UTC.
    fn timestamp(&mut self, record: Record<'_>) -> Done {
        let (seconds, nanos) = Self::moment(record);
        if !TIMES.contains(&seconds) || !(0..NANOS).contains(&nanos) {
            return Err(
                self.problem(format!("{seconds} s and {nanos} ns are no time from the year 1 to 9999"))
            );
        }
        let (year, month, day) = date(seconds.div_euclid(86_400));
        let second = seconds.rem_euclid(86_400);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(self.out, "\"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}").ok();
        self.fraction(nanos.unsigned_abs());
        self.out.push_str("Z\"");
        Ok(())
    }

    fn duration(&mut self, record: Record<'_>) -> Done {
        let (seconds, nanos) = Self::moment(record);
        let fits =
            seconds.unsigned_abs() <= LONGEST_DURATION.unsigned_abs() && nanos.abs_diff(0) < NANOS as u32;
        if !fits || seconds.signum() * i64::from(nanos.signum()) < 0 {
            return Err(self.problem(format!(
                "{seconds} s and {nanos} ns are no duration of one sign within 10,000 years"
            )));
        }
        let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
        write!(self.out, "\"{sign}{}", seconds.unsigned_abs()).ok();
        self.fraction(nanos.unsigned_abs());
        self.out.push_str("s\"");
        Ok(())
    }

    /// The paths in camel case, with commas.
    fn field_mask(&mut self, record: Record<'_>) -> Done {
        let mut text = String::new();
        if let Some(Value::List(paths)) = record.by_number(1) {
            for (idx, path) in paths.iter().enumerate() {
                let Value::String(path) = path else { continue };
                let path = self.utf8(path.as_bytes())?;
                let Some(camel) = camel_case(path) else {
                    return Err(
                        self.problem(format!("the path {path:?} does not survive the change of case"))
                    );
                };
                text.push_str(if idx > 0 { "," } else { "" });
                text.push_str(&camel);
            }
        }
        string(&mut self.out, &text);
        Ok(())
    }

    /// `Struct` is the object of its only field, `ListValue` the array.
    fn container(&mut self, record: Record<'_>, object: bool) -> Done {
        match record.fields().find(|(row, _)| row.number == 1) {
            Some((row, value)) => self.value(row, value),
            None => {
                self.out.push_str(if object { "{}" } else { "[]" });
                Ok(())
            }
        }
    }

    /// `Value` is whatever it holds.
    fn dynamic(&mut self, record: Record<'_>) -> Done {
        match record.fields().next() {
            Some((_, Value::F64(number))) if !number.is_finite() => {
                Err(self.problem(format!("{number} is no number in JSON")))
            }
            Some((row, value)) => self.value(row, value),
            None => Err(self.problem("the Value holds nothing")),
        }
    }

    /// A wrapper is the value in it, zero if that is absent.
    fn wrapper(&mut self, record: Record<'_>) -> Done {
        if let Some((row, value)) = record.fields().find(|(row, _)| row.number == 1) {
            return self.value(row, value);
        }
        let zero = match record.rows().first().map(|row| row.kind) {
            Some(Kind::String | Kind::Bytes) => "\"\"",
            Some(Kind::Bool) => "false",
            Some(Kind::Int64 | Kind::Uint64) => "\"0\"",
            _ => "0",
        };
        self.out.push_str(zero);
        Ok(())
    }

    /// The message inside, beside its type; an empty `Any` is an empty object.
    fn any(&mut self, record: Record<'_>) -> Done {
        let url = match record.by_number(1) {
            Some(Value::String(url)) => self.utf8(url.as_bytes())?,
            _ => "",
        };
        let packed = match record.by_number(2) {
            Some(Value::Bytes(packed)) => packed,
            _ => b"",
        };
        if url.is_empty() && packed.is_empty() {
            self.out.push_str("{}");
            return Ok(());
        }
        let name = url.rsplit_once('/').map_or("", |(_, name)| name);
        let processor = self.processor;
        let Some(type_idx) = processor.type_by_name(name) else {
            return Err(self.problem(format!("the table has no type for {url:?}")));
        };
        let mut arena = Arena::with_limit(MAX_OBJECT_LEN as usize);
        let inner = processor
            .decode(type_idx, packed, &mut arena, &Limits::default())
            .map_err(|error| WriteError::Packed { path: self.path(), error })?;
        self.out.push_str("{\"@type\":");
        string(&mut self.out, url);
        self.at(&format!("({name})"), |writer| writer.deeper(|writer| writer.packed(inner.root())))?;
        self.out.push('}');
        Ok(())
    }

    /// What follows the type of a packed message: its fields, or its special form as `value`.
    fn packed(&mut self, record: Record<'_>) -> Done {
        let start = self.out.len();
        self.out.push_str(",\"value\":");
        if self.well_known(record)? {
            return Ok(());
        }
        self.out.truncate(start);
        self.fields(record)
    }
}

/// Year, month and day of a day counted from 1 January 1970, in the Gregorian calendar.
///
/// Years are counted from March, so that the leap day is a year's last one; 400 of them are 146,097 days.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (400 * era + year + i64::from(month <= 2), month, day)
}

/// `foo_bar.baz` as `fooBar.baz`; none if it would not come back as it was.
fn camel_case(path: &str) -> Option<String> {
    let mut out = String::with_capacity(path.len());
    let mut chars = path.chars();
    while let Some(char) = chars.next() {
        match char {
            '_' => out.push(chars.next().filter(char::is_ascii_lowercase)?.to_ascii_uppercase()),
            'A'..='Z' => return None,
            _ => out.push(char),
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_count_from_year_1_to_9999() {
        let cases = [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (TIMES.start() / 86_400, (1, 1, 1)),
            (TIMES.end() / 86_400, (9999, 12, 31)),
        ];
        for (days, expected) in cases {
            assert_eq!(date(days), expected, "day {days}");
        }
    }

    #[test]
    fn camel_case_refuses_what_it_could_not_undo() {
        assert_eq!(camel_case("foo_bar.b_a_z1").as_deref(), Some("fooBar.bAZ1"));
        assert_eq!(camel_case("").as_deref(), Some(""));
        for path in ["fooBar", "foo__bar", "foo_3", "foo_", "foo_.x"] {
            assert_eq!(camel_case(path), None, "{path}");
        }
    }
}
