//! Records, lists and scalars as JSON text.

use crate::{WriteError, joined};
use std::collections::HashMap;
use std::fmt::Write;
use tollfree_layout::table::{FieldRow, Label, TypeRow};
use tollfree_processor::{List, Processor, Record, Value};

/// Messages in messages, those packed into `Any` included, which a decoder does not count.
const DEEPEST: u32 = 200;

/// The text so far, and where in the object the writer is.
pub(crate) struct Writer<'p> {
    pub(crate) processor: &'p Processor,
    pub(crate) out: String,
    /// Steps from the root, the root type's name first.
    path: Vec<String>,
    /// Messages in messages, up to [`DEEPEST`].
    depth: u32,
}

impl<'p> Writer<'p> {
    pub(crate) fn new(processor: &'p Processor, root: Record<'_>) -> Writer<'p> {
        Writer { processor, out: String::new(), path: vec![root.type_name().to_owned()], depth: 0 }
    }

    pub(crate) fn path(&self) -> String {
        joined(&self.path)
    }

    pub(crate) fn utf8<'t>(&self, bytes: &'t [u8]) -> Result<&'t str, WriteError> {
        std::str::from_utf8(bytes).map_err(|_| WriteError::Utf8 { path: self.path() })
    }

    /// Calls `write` with the step on the path.
    pub(crate) fn at(
        &mut self,
        step: &str,
        write: impl FnOnce(&mut Self) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        self.path.push(step.to_owned());
        write(self)?;
        self.path.pop();
        Ok(())
    }

    /// A message in its own form: an object, or what is special to its type.
    pub(crate) fn message(&mut self, record: Record<'_>) -> Result<(), WriteError> {
        self.deeper(|writer| if writer.well_known(record)? { Ok(()) } else { writer.plain(record) })
    }

    /// Calls `write` a level deeper, if there is one.
    pub(crate) fn deeper(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        if self.depth == DEEPEST {
            return Err(WriteError::Depth { path: self.path() });
        }
        self.depth += 1;
        write(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn plain(&mut self, record: Record<'_>) -> Result<(), WriteError> {
        if record.type_row().flags & TypeRow::BOX != 0 {
            return match record.by_number(1) {
                Some(value) => self.value(&record.rows()[0], value),
                None => {
                    self.out.push_str(if record.rows()[0].label == Label::Map { "{}" } else { "[]" });
                    Ok(())
                }
            };
        }
        self.out.push('{');
        self.fields(record)?;
        self.out.push('}');
        Ok(())
    }

    /// The fields that are present, with commas; after a comma if something stands before them.
    pub(crate) fn fields(&mut self, record: Record<'_>) -> Result<(), WriteError> {
        for (row, value) in record.fields() {
            self.comma();
            string(&mut self.out, record.text(row.json_name));
            self.out.push(':');
            self.at(record.text(row.name), |writer| writer.value(row, value))?;
        }
        Ok(())
    }

    fn comma(&mut self) {
        if !self.out.ends_with(['{', '[', ':']) {
            self.out.push(',');
        }
    }

    /// A field's value, or an element's.
    pub(crate) fn value(&mut self, row: &FieldRow, value: Value<'_>) -> Result<(), WriteError> {
        match value {
            Value::Message(record) => self.message(record),
            Value::List(list) => self.list(row, list),
            Value::Map(entries) => self.map(entries),
            Value::String(text) => {
                let text = self.utf8(text.as_bytes())?;
                string(&mut self.out, text);
                Ok(())
            }
            Value::Enum(number) => {
                self.enumeration(row, number);
                Ok(())
            }
            scalar => {
                self.scalar(scalar);
                Ok(())
            }
        }
    }

    fn list(&mut self, row: &FieldRow, list: List<'_>) -> Result<(), WriteError> {
        self.out.push('[');
        for (idx, element) in list.iter().enumerate() {
            self.comma();
            let last = self.path.len() - 1;
            let step_len = self.path[last].len();
            write!(self.path[last], "[{idx}]").ok();
            self.value(row, element)?;
            self.path[last].truncate(step_len);
        }
        self.out.push(']');
        Ok(())
    }

    /// The entries as an object; of equal keys the last one counts.
    pub(crate) fn map(&mut self, entries: List<'_>) -> Result<(), WriteError> {
        let mut keys = Vec::with_capacity(entries.len() as usize);
        for entry in entries.iter() {
            if let Value::Message(entry) = entry {
                keys.push((self.key(entry)?, entry));
            }
        }
        let last: HashMap<String, usize> =
            keys.iter().enumerate().map(|(idx, (key, _))| (key.clone(), idx)).collect();
        self.out.push('{');
        for (idx, (key, entry)) in keys.iter().enumerate() {
            if last[key] != idx {
                continue;
            }
            self.comma();
            string(&mut self.out, key);
            self.out.push(':');
            let Some((row, value)) = entry.fields().find(|(row, _)| row.number == 2) else {
                self.out.push_str("null");
                continue;
            };
            self.at(&format!("[{key:?}]"), |writer| writer.value(row, value))?;
        }
        self.out.push('}');
        Ok(())
    }

    /// An entry's key, as the text between the quotes.
    fn key(&mut self, entry: Record<'_>) -> Result<String, WriteError> {
        let Some((row, value)) = entry.fields().find(|(row, _)| row.number == 1) else {
            return Ok(String::new());
        };
        if let Value::String(text) = value {
            return self.utf8(text.as_bytes()).map(str::to_owned);
        }
        let start = self.out.len();
        self.value(row, value)?;
        let text = self.out.split_off(start);
        // Numbers and names that are strings by themselves have quotes already.
        Ok(text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(&text).to_owned())
    }

    fn enumeration(&mut self, row: &FieldRow, number: i32) {
        let table = self.processor.table();
        let enum_row = table.enums()[row.aux_idx as usize];
        if table.text(enum_row.name) == "google.protobuf.NullValue" {
            self.out.push_str("null");
            return;
        }
        let values = table.values_of(row.aux_idx);
        // Of aliases, the schema's first one stands first.
        let idx = values.partition_point(|value| value.number < number);
        match values.get(idx).filter(|value| value.number == number) {
            Some(value) => string(&mut self.out, table.text(value.name)),
            None => {
                write!(self.out, "{number}").ok();
            }
        }
    }

    /// What is neither text nor enum nor made of parts. (Writing to a string cannot fail.)
    pub(crate) fn scalar(&mut self, value: Value<'_>) {
        let out = &mut self.out;
        match value {
            Value::Bool(value) => write!(out, "{value}"),
            Value::I8(value) => write!(out, "{value}"),
            Value::I16(value) => write!(out, "{value}"),
            Value::I32(value) => write!(out, "{value}"),
            Value::U32(value) => write!(out, "{value}"),
            Value::I64(value) => write!(out, "\"{value}\""),
            Value::U64(value) => write!(out, "\"{value}\""),
            Value::F32(value) => {
                float(out, f64::from(value), format_args!("{value}"), format_args!("{value:e}"))
            }
            Value::F64(value) => float(out, value, format_args!("{value}"), format_args!("{value:e}")),
            Value::Bytes(bytes) => {
                base64(out, bytes);
                Ok(())
            }
            _ => Ok(()),
        }
        .ok();
    }
}

/// A float's shortest decimal form, with an exponent where it would be long without; names for what is no number.
fn float(
    out: &mut String,
    value: f64,
    plain: std::fmt::Arguments<'_>,
    exponent: std::fmt::Arguments<'_>,
) -> std::fmt::Result {
    match value.abs() {
        _ if value.is_nan() => write!(out, "\"NaN\""),
        f64::INFINITY => write!(out, "\"{}Infinity\"", if value < 0.0 { "-" } else { "" }),
        0.0 | 1e-5..1e17 => out.write_fmt(plain),
        _ => out.write_fmt(exponent),
    }
}

/// A JSON string.
pub(crate) fn string(out: &mut String, text: &str) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // The last two end lines in JavaScript.
            '\0'..=' ' | '\u{7f}' | '\u{2028}' | '\u{2029}' if char != ' ' => {
                write!(out, "\\u{:04x}", u32::from(char)).ok();
            }
            _ => out.push(char),
        }
    }
    out.push('"');
}

/// Bytes in base64, with the standard alphabet and padding (RFC 4648, section 4).
fn base64(out: &mut String, bytes: &[u8]) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    out.push('"');
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().enumerate().fold(0, |word, (idx, byte)| word | u32::from(*byte) << (16 - 8 * idx));
        for place in 0..4 {
            let char = ALPHABET[(word >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= chunk.len() { char.into() } else { '=' });
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_pads() {
        let encoded = |bytes: &[u8]| {
            let mut out = String::new();
            base64(&mut out, bytes);
            out
        };
        let cases: [(&[u8], &str); 5] = [
            (b"", "\"\""),
            (b"f", "\"Zg==\""),
            (b"fo", "\"Zm8=\""),
            (b"foo", "\"Zm9v\""),
            (&[0xff, 0xfe, 0xfd, 0xfb], "\"//79+w==\""),
        ];
        for (bytes, text) in cases {
            assert_eq!(encoded(bytes), text);
        }
    }

    #[test]
    fn strings_escape_what_json_must() {
        let mut out = String::new();
        string(&mut out, "a\"b\\c\n\r\t\u{1}\u{7f} é\u{2028}");
        assert_eq!(out, "\"a\\\"b\\\\c\\n\\r\\t\\u0001\\u007f é\\u2028\"");
    }
}
