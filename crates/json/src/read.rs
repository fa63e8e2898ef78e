//! JSON to protobuf bytes, driven by the table.
//!
//! Fields are written in the order in which they stand in the text, lists unpacked, zeroes too: the decoder puts
//! them in order and drops what the schema does not keep.

use crate::joined;
use crate::scalar::{base64, delimited, integer, quoted_number, tag, varint};
use crate::tree::Json;
use std::collections::HashSet;
use thiserror::Error;
use tollfree_layout::table::{FieldRow, Kind, Label};
use tollfree_processor::Processor;

/// Why JSON text is not a message of the type.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The text is not JSON.
    #[error("not JSON: {problem}")]
    Syntax {
        /// What is wrong, with line and column.
        problem: String,
    },
    /// A member's name is no field of the message.
    #[error("{path}: the message has no field {name:?}")]
    UnknownField {
        /// Field path of the message.
        path: String,
        /// The member's name.
        name: String,
    },
    /// A value does not fit its field, or stands twice.
    #[error("{path}: {problem}")]
    Value {
        /// Field path.
        path: String,
        /// What is wrong with the value.
        problem: String,
    },
}

/// What becomes of members that the message has no field for, and of enum names that the schema lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// The text is refused.
    Refuse,
    /// They are left out.
    Skip,
}

/// The protobuf bytes of the message of type `type_idx` that the text describes. They are well-formed but not in
/// canonical order; required fields are not asked for: decode them to know.
///
/// # Errors
/// [`ReadError`], with the path of the field.
///
/// # Panics
/// If the table has no such type.
pub fn read(
    processor: &Processor,
    type_idx: u32,
    text: &str,
    unknown: Unknown,
) -> Result<Vec<u8>, ReadError> {
    let tree: Json =
        serde_json::from_str(text).map_err(|error| ReadError::Syntax { problem: error.to_string() })?;
    let mut reader = Reader { processor, unknown, path: Vec::new() };
    let name = reader.type_name(type_idx).to_owned();
    reader.path.push(name);
    let mut out = Vec::new();
    reader.message(type_idx, &tree, &mut out)?;
    Ok(out)
}

pub(crate) struct Reader<'p> {
    pub(crate) processor: &'p Processor,
    pub(crate) unknown: Unknown,
    path: Vec<String>,
}

pub(crate) type ReadResult = Result<(), ReadError>;

impl<'p> Reader<'p> {
    pub(crate) fn type_name(&self, type_idx: u32) -> &'p str {
        let table = self.processor.table();
        table.text(table.types()[type_idx as usize].name)
    }

    pub(crate) fn problem(&self, problem: impl Into<String>) -> ReadError {
        ReadError::Value { path: joined(&self.path), problem: problem.into() }
    }

    pub(crate) fn expected(&self, what: &str, found: &Json) -> ReadError {
        self.problem(format!("expected {what}, found {}", found.words()))
    }

    /// Calls `read` with the step on the path.
    pub(crate) fn at(&mut self, step: &str, read: impl FnOnce(&mut Self) -> ReadResult) -> ReadResult {
        self.path.push(step.to_owned());
        read(self)?;
        self.path.pop();
        Ok(())
    }

    /// The fields of a message of this type, without tag and length.
    pub(crate) fn message(&mut self, type_idx: u32, json: &Json, out: &mut Vec<u8>) -> ReadResult {
        if self.special(type_idx, json, out)? {
            return Ok(());
        }
        match json {
            Json::Object(members) => self.members(type_idx, members, None, out),
            other => Err(self.expected("an object", other)),
        }
    }

    /// The members of an object, but for one name, as fields of a message.
    pub(crate) fn members(
        &mut self,
        type_idx: u32,
        members: &[(String, Json)],
        except: Option<&str>,
        out: &mut Vec<u8>,
    ) -> ReadResult {
        let table = self.processor.table();
        let rows = table.fields_of(type_idx);
        let mut seen = HashSet::new();
        let mut chosen = HashSet::new();
        for (name, json) in members.iter().filter(|(name, _)| Some(name.as_str()) != except) {
            let is_named =
                |row: &&FieldRow| table.text(row.json_name) == name || table.text(row.name) == name;
            let Some(row) = rows.iter().find(is_named) else {
                if self.unknown == Unknown::Skip {
                    continue;
                }
                return Err(ReadError::UnknownField { path: joined(&self.path), name: name.clone() });
            };
            self.at(table.text(row.name), |reader| {
                if !seen.insert(row.number) {
                    return Err(reader.problem("the field stands twice"));
                }
                if *json == Json::Null && !reader.takes_null(row) {
                    return Ok(());
                }
                if row.oneof_off != 0 && !chosen.insert(row.oneof_off) {
                    return Err(reader.problem("another member of the same oneof has a value, too"));
                }
                reader.field(row, json, out)
            })?;
        }
        Ok(())
    }

    /// Whether null is a value of the field, rather than its absence.
    fn takes_null(&self, row: &FieldRow) -> bool {
        let table = self.processor.table();
        !row.label.is_list()
            && match row.kind {
                Kind::Message => self.type_name(row.aux_idx) == "google.protobuf.Value",
                Kind::Enum => {
                    table.text(table.enums()[row.aux_idx as usize].name) == "google.protobuf.NullValue"
                }
                _ => false,
            }
    }

    /// A field with its tags.
    pub(crate) fn field(&mut self, row: &FieldRow, json: &Json, out: &mut Vec<u8>) -> ReadResult {
        match (row.label, json) {
            (Label::Map, Json::Object(members)) => self.entries(row, members, out),
            (Label::Map, other) => Err(self.expected("an object", other)),
            (Label::List, Json::Array(elements)) => {
                for (idx, element) in elements.iter().enumerate() {
                    self.at(&format!("[{idx}]"), |reader| reader.value(row, element, out))?;
                }
                Ok(())
            }
            (Label::List, other) => Err(self.expected("an array", other)),
            _ => self.value(row, json, out),
        }
    }

    fn entries(&mut self, row: &FieldRow, members: &[(String, Json)], out: &mut Vec<u8>) -> ReadResult {
        let [key_row, value_row] = self.processor.table().fields_of(row.aux_idx) else {
            return Err(self.problem("this map has no form in protobuf"));
        };
        let mut seen = HashSet::new();
        for (key, json) in members {
            self.at(&format!("[{key:?}]"), |reader| {
                let mut key_bytes = Vec::new();
                match (key_row.kind, key.as_str()) {
                    (Kind::Bool, "true") => reader.value(key_row, &Json::Bool(true), &mut key_bytes)?,
                    (Kind::Bool, "false") => reader.value(key_row, &Json::Bool(false), &mut key_bytes)?,
                    (Kind::Bool, _) => return Err(reader.problem("the key is neither true nor false")),
                    _ => reader.value(key_row, &Json::String(key.clone()), &mut key_bytes)?,
                }
                if !seen.insert(key_bytes.clone()) {
                    return Err(reader.problem("the key stands twice"));
                }
                let mut entry = key_bytes;
                let key_len = entry.len();
                reader.value(value_row, json, &mut entry)?;
                // An enum's name that was skipped takes its entry with it.
                if entry.len() > key_len {
                    delimited(row.number, &entry, out);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// One value with its tag.
    fn value(&mut self, row: &FieldRow, json: &Json, out: &mut Vec<u8>) -> ReadResult {
        if row.kind == Kind::Message {
            let mut inner = Vec::new();
            if *json == Json::Null && !self.takes_null(&FieldRow { label: Label::Explicit, ..*row }) {
                return Err(self.expected("a message", json));
            }
            self.message(row.aux_idx, json, &mut inner)?;
            if row.has(FieldRow::DELIMITED) {
                tag(row.number, 3, out);
                out.extend(inner);
                tag(row.number, 4, out);
            } else {
                delimited(row.number, &inner, out);
            }
            return Ok(());
        }
        match row.kind {
            Kind::String => match json {
                Json::String(text) => delimited(row.number, text.as_bytes(), out),
                other => return Err(self.expected("a string", other)),
            },
            Kind::Bytes => {
                let bytes = match json {
                    Json::String(text) => base64(text),
                    _ => None,
                };
                delimited(row.number, &bytes.ok_or_else(|| self.expected("bytes in base64", json))?, out);
            }
            Kind::Double => {
                tag(row.number, 1, out);
                out.extend(self.float(json)?.to_le_bytes());
            }
            Kind::Float => {
                let wide = self.float(json)?;
                let value = wide as f32;
                if wide.is_finite() && value.is_infinite() {
                    return Err(self.expected("a number that a float can hold", json));
                }
                tag(row.number, 5, out);
                out.extend(value.to_le_bytes());
            }
            Kind::Enum => {
                if let Some(number) = self.enumeration(row, json)? {
                    tag(row.number, 0, out);
                    varint(i64::from(number) as u64, out);
                }
            }
            Kind::Bool => match json {
                Json::Bool(value) => {
                    tag(row.number, 0, out);
                    out.push(u8::from(*value));
                }
                other => return Err(self.expected("true or false", other)),
            },
            kind => self.integer_field(row.number, kind, json, out)?,
        }
        Ok(())
    }

    fn integer_field(&mut self, number: u32, kind: Kind, json: &Json, out: &mut Vec<u8>) -> ReadResult {
        let range = match kind {
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => i32::MIN.into()..=i32::MAX.into(),
            Kind::Uint32 | Kind::Fixed32 => 0..=u32::MAX.into(),
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => i64::MIN.into()..=i64::MAX.into(),
            Kind::Uint64 | Kind::Fixed64 => 0..=u64::MAX.into(),
            _ => return Err(self.problem("the field's type has no form in protobuf")),
        };
        let value: i128 = match integer(json) {
            Some(value) if range.contains(&value) => value,
            _ => {
                let what = format!("a whole number from {} to {}", range.start(), range.end());
                return Err(self.expected(&what, json));
            }
        };
        // Two's complement of 64 bits is what all forms are made from.
        let bits = value as u64;
        match kind {
            Kind::Fixed32 | Kind::Sfixed32 => {
                tag(number, 5, out);
                out.extend((bits as u32).to_le_bytes());
            }
            Kind::Fixed64 | Kind::Sfixed64 => {
                tag(number, 1, out);
                out.extend(bits.to_le_bytes());
            }
            Kind::Sint32 | Kind::Sint64 => {
                tag(number, 0, out);
                varint(bits << 1 ^ (bits as i64 >> 63) as u64, out);
            }
            _ => {
                tag(number, 0, out);
                varint(bits, out);
            }
        }
        Ok(())
    }

    fn float(&self, json: &Json) -> Result<f64, ReadError> {
        let value = match json {
            Json::Number(number) => number.as_f64(),
            Json::String(text) => match text.as_str() {
                "NaN" => Some(f64::NAN),
                "Infinity" => Some(f64::INFINITY),
                "-Infinity" => Some(f64::NEG_INFINITY),
                text => quoted_number(text).and_then(|number| number.as_f64()),
            },
            _ => None,
        };
        value.ok_or_else(|| self.expected("a number", json))
    }

    /// The number of an enum's value; none if its name is unknown and is to be skipped.
    fn enumeration(&self, row: &FieldRow, json: &Json) -> Result<Option<i32>, ReadError> {
        let table = self.processor.table();
        let enum_name = table.text(table.enums()[row.aux_idx as usize].name);
        match json {
            Json::Null if enum_name == "google.protobuf.NullValue" => Ok(Some(0)),
            Json::String(name) => {
                let mut values = table.values_of(row.aux_idx).iter();
                match values.find(|value| table.text(value.name) == name) {
                    Some(value) => Ok(Some(value.number)),
                    None if self.unknown == Unknown::Skip => Ok(None),
                    None => Err(self.expected(&format!("a name of {enum_name}"), json)),
                }
            }
            Json::Number(_) => match integer(json).and_then(|number| i32::try_from(number).ok()) {
                Some(number) => Ok(Some(number)),
                None => Err(self.expected("a number of 32 bits", json)),
            },
            other => Err(self.expected(&format!("a name of {enum_name}"), other)),
        }
    }
}
