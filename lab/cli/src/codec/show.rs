//! An object as text for people: a line for each field, with its number.

use std::fmt::Write;

use tollfree_layout::table::FieldRow;
use tollfree_processor::{List, Object, Processor, Record, Value};

/// Bytes that are shown of a string of bytes, and characters of text.
const SHOWN: usize = 64;

/// The object, one line a field. (Writing to a string cannot fail.)
pub(super) fn text(processor: &Processor, object: &Object<'_>) -> String {
    let mut show = Show { processor, out: String::new() };
    let root = object.root();
    writeln!(show.out, "{}, an object of {} bytes", root.type_name(), object.bytes().len()).ok();
    show.record(root, 1);
    show.out
}

struct Show<'p> {
    processor: &'p Processor,
    out: String,
}

impl Show<'_> {
    fn record(&mut self, record: Record<'_>, level: usize) {
        for (row, value) in record.fields() {
            let name = record.text(row.name);
            match value {
                Value::List(list) | Value::Map(list) => self.list(row, name, list, level),
                value => {
                    write!(self.out, "{:1$}{name} ({2}): ", "", 2 * level, row.number).ok();
                    self.value(row, value, level);
                }
            }
        }
        let unknown: Vec<u8> = record.unknown().flatten().copied().collect();
        if !unknown.is_empty() {
            write!(self.out, "{:1$}unknown fields: ", "", 2 * level).ok();
            self.bytes(&unknown);
        }
    }

    fn list(&mut self, row: &FieldRow, name: &str, list: List<'_>, level: usize) {
        for (idx, element) in list.iter().enumerate() {
            write!(self.out, "{:1$}{name}[{idx}] ({2}): ", "", 2 * level, row.number).ok();
            self.value(row, element, level);
        }
    }

    /// The rest of the line, and the lines of a message inside.
    fn value(&mut self, row: &FieldRow, value: Value<'_>, level: usize) {
        let table = self.processor.table();
        match value {
            Value::Message(record) => {
                writeln!(self.out, "{}", record.type_name()).ok();
                self.record(record, level + 1);
                return;
            }
            Value::String(text) => match text.to_str() {
                Ok(text) if text.chars().nth(SHOWN).is_none() => writeln!(self.out, "{text:?}"),
                Ok(text) => {
                    let start: String = text.chars().take(SHOWN).collect();
                    writeln!(self.out, "{start:?}... {} bytes", text.len())
                }
                Err(_) => {
                    self.bytes(text.as_bytes());
                    return;
                }
            },
            Value::Bytes(bytes) => {
                self.bytes(bytes);
                return;
            }
            Value::Enum(number) => {
                let mut values = table.values_of(row.aux_idx).iter();
                match values.find(|value| value.number == number) {
                    Some(value) => writeln!(self.out, "{} ({number})", table.text(value.name)),
                    None => writeln!(self.out, "{number}, which the schema does not name"),
                }
            }
            Value::Bool(value) => writeln!(self.out, "{value}"),
            Value::I8(value) => writeln!(self.out, "{value}"),
            Value::I16(value) => writeln!(self.out, "{value}"),
            Value::I32(value) => writeln!(self.out, "{value}"),
            Value::I64(value) => writeln!(self.out, "{value}"),
            Value::U32(value) => writeln!(self.out, "{value}"),
            Value::U64(value) => writeln!(self.out, "{value}"),
            Value::F32(value) => writeln!(self.out, "{value:?}"),
            Value::F64(value) => writeln!(self.out, "{value:?}"),
            // Lists do not stand in lists: a box, which is a message, is between them.
            Value::List(_) | Value::Map(_) => Ok(()),
        }
        .ok();
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().take(SHOWN) {
            write!(self.out, "{byte:02x}").ok();
        }
        let more = if bytes.len() > SHOWN { "..." } else { "" };
        let space = if bytes.is_empty() { "" } else { " " };
        writeln!(self.out, "{more}{space}({} bytes)", bytes.len()).ok();
    }
}
