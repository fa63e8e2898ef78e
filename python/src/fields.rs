//! Fields of type `bytes` in encoded messages: taken out of messages that came, and put into messages that go, by marks in their places.
//!
//! A mark is a secret of this process with the number of a field's bytes behind it: no peer can send one.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use tollfree_driver_blocking::Message;

use crate::buffer::Buffer;
use crate::pieces::Pieces;
use crate::wire::{Assembly, Cursor, DEPTH_MAX, Malformed, Source};

/// Shorter fields stay where they are.
const LEN_MIN: usize = 4 << 10;
/// Bytes of a mark behind its secret.
const NUMBER_LEN: usize = 4;

/// Where the fields of type `bytes` of a message type are: its own, and those of the types that it holds.
#[pyclass(frozen)]
pub(crate) struct Shape {
    types: Vec<HashMap<u32, Field>>,
}

#[derive(Clone, Copy)]
enum Field {
    Bytes,
    /// A message of the type with this index.
    Message {
        idx: usize,
        form: Form,
    },
}

/// How a message stands in another.
#[derive(Clone, Copy)]
enum Form {
    /// Behind its length.
    Prefixed,
    /// Between the tags of a group.
    Group,
    /// As an entry of a map whose keys are encoded so. protobuf keeps an entry that has anything else as an unknown field of the message with the map.
    Entry { key_wire: u8 },
}

/// A field as Python describes it: its number; none for `bytes`, or the index of a message's type; whether that stands between the tags of a group; and of a map's
/// entries how keys are encoded.
type Described = (u32, Option<usize>, bool, Option<u8>);

#[pymethods]
impl Shape {
    /// Of each type its fields. The first type is the message's own. Fields that hold no `bytes` are left out.
    #[new]
    fn new(types: Vec<Vec<Described>>) -> PyResult<Shape> {
        let count = types.len();
        let field = |(number, idx, is_group, key_wire): Described| match idx {
            None => Ok((number, Field::Bytes)),
            Some(idx) if idx >= count => {
                Err(PyValueError::new_err(format!("field {number} has type {idx} of {count}")))
            }
            Some(idx) => {
                let form = match key_wire {
                    Some(key_wire) => Form::Entry { key_wire },
                    None if is_group => Form::Group,
                    None => Form::Prefixed,
                };
                Ok((number, Field::Message { idx, form }))
            }
        };
        let types = types.into_iter().map(|fields| fields.into_iter().map(field).collect());
        Ok(Shape { types: types.collect::<PyResult<_>>()? })
    }

    /// The message without what long fields of it hold, with marks in their places; and the bytes of these, by the numbers in the marks. `None`: it is malformed.
    fn take_out<'py>(
        &self,
        py: Python<'py>,
        message: &Bound<'py, Pieces>,
        secret: &[u8],
    ) -> PyResult<Option<(Bound<'py, PyBytes>, Vec<Buffer>)>> {
        let message = message.get();
        let source = Source::new(message.pieces());
        let mut taken = Vec::new();
        let rewritten = self.rewrite(&source, 0..source.len(), LEN_MIN, &mut |content| {
            taken.push(source.bytes(content));
            Some(mark(secret, taken.len() - 1))
        });
        let Ok(rewritten) = rewritten else { return Ok(None) };
        let rest = match rewritten {
            Some(assembly) => assembly.finish().into_bytes(),
            None => source.bytes(0..source.len()),
        };
        let buffers = taken.into_iter().map(|bytes| Buffer::frozen(bytes, message.pool())).collect();
        Ok(Some((PyBytes::new(py, &rest), buffers)))
    }

    /// The message with the bytes of buffers in the places of marks.
    ///
    /// ValueError: a mark is not there exactly once.
    fn put_in(
        &self,
        encoded: PyBackedBytes,
        secret: &[u8],
        buffers: Vec<Bound<'_, Buffer>>,
    ) -> PyResult<Pieces> {
        let pool = buffers.iter().find_map(|buffer| buffer.get().pool().cloned());
        let mut left = Vec::new();
        for buffer in &buffers {
            left.push(Some(buffer.get().bytes()?));
        }
        let source = Source::new(vec![Bytes::from_owner(encoded)]);
        let mark_len = secret.len() + NUMBER_LEN;
        let rewritten = self.rewrite(&source, 0..source.len(), mark_len, &mut |content| {
            let content = source.bytes(content);
            let number = content.strip_prefix(secret)?;
            let number = u32::from_le_bytes(number.try_into().ok()?) as usize;
            left.get_mut(number)?.take()
        });
        let assembly = rewritten
            .map_err(|Malformed| PyValueError::new_err("what protobuf has encoded is no message"))?;
        if let Some(number) = left.iter().position(Option::is_some) {
            let words = format!(
                "the place of array {number} is not in the encoded message: does another field of a oneof replace it?"
            );
            return Err(PyValueError::new_err(words));
        }
        let message = assembly.map_or_else(|| Message::from(source.bytes(0..source.len())), Assembly::finish);
        Ok(Pieces::new(message, pool))
    }
}

fn mark(secret: &[u8], number: usize) -> Bytes {
    [secret, &(number as u32).to_le_bytes()].concat().into()
}

impl Shape {
    /// The message in a range with other bytes in fields of type `bytes`, those that `replace` gives. `None`: it gives none. Shorter fields than `len_min` are not looked at.
    fn rewrite(
        &self,
        source: &Source,
        range: Range<usize>,
        len_min: usize,
        replace: &mut dyn FnMut(Range<usize>) -> Option<Bytes>,
    ) -> Result<Option<Assembly>, Malformed> {
        self.rewrite_type(source, range, Visit { type_idx: 0, depth: 0, len_min }, replace)
    }

    fn rewrite_type(
        &self,
        source: &Source,
        range: Range<usize>,
        visit: Visit,
        replace: &mut dyn FnMut(Range<usize>) -> Option<Bytes>,
    ) -> Result<Option<Assembly>, Malformed> {
        let Some(fields) = self.types.get(visit.type_idx) else { return Ok(None) };
        let mut cursor = Cursor::new(source, range.clone());
        let (mut assembly, mut copied) = (None::<Assembly>, range.start);
        while !cursor.is_at_end() {
            let Some(found) = cursor.next_field()?.filter(|found| found.content.len() >= visit.len_min)
            else {
                continue;
            };
            // What has another form than its field is unknown to protobuf, which keeps it as it is.
            let replaced = match (fields.get(&found.number), found.len_at) {
                (Some(Field::Bytes), Some(_)) => replace(found.content.clone()).map(Assembly::of),
                (Some(Field::Message { idx, form }), len_at) => {
                    let content = found.content.clone();
                    let is_known = match form {
                        Form::Prefixed => len_at.is_some(),
                        Form::Group => len_at.is_none(),
                        Form::Entry { key_wire } => {
                            len_at.is_some() && Cursor::new(source, content.clone()).reads_entry(*key_wire)?
                        }
                    };
                    match is_known {
                        true => self.rewrite_type(source, content, visit.within(*idx)?, replace)?,
                        false => None,
                    }
                }
                _ => None,
            };
            if let Some(replaced) = replaced {
                let assembly = assembly.get_or_insert_default();
                match found.len_at {
                    Some(len_at) => {
                        assembly.copy(source, copied..len_at);
                        assembly.varint(replaced.len() as u64);
                    }
                    None => assembly.copy(source, copied..found.content.start),
                }
                assembly.append(replaced);
                copied = found.content.end;
            }
        }
        if let Some(assembly) = &mut assembly {
            assembly.copy(source, copied..range.end);
        }
        Ok(assembly)
    }
}

/// Which type's fields are looked at, and how deep in the message.
#[derive(Clone, Copy)]
struct Visit {
    type_idx: usize,
    depth: usize,
    len_min: usize,
}

impl Visit {
    fn within(self, type_idx: usize) -> Result<Visit, Malformed> {
        match self.depth < DEPTH_MAX {
            true => Ok(Visit { type_idx, depth: self.depth + 1, ..self }),
            false => Err(Malformed),
        }
    }
}
