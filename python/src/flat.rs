//! Tables of message types, and flat messages that are read by them where they lie.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use pyo3::exceptions::{PyAttributeError, PyIndexError, PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use tollfree_layout::flat::MAX_OBJECT_LEN;
use tollfree_layout::table::{self, FieldRow, Kind, Label};
use tollfree_pool::Pool;
use tollfree_processor::{Arenas, EncodeBuffer, Limits, OwnedObject, Processor, Value};
use tollfree_schema::Schema;

use crate::buffer::Buffer;
use crate::memory::check_pool;
use crate::pieces::Outgoing;

/// Memory of objects that were decoded, used again.
static ARENAS: LazyLock<Arenas> = LazyLock::new(|| Arenas::new(MAX_OBJECT_LEN as usize, 4));

fn wrong(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Message types, by whose rows flat messages are checked and read. Any thread may use it.
#[pyclass(frozen, module = "tollfree.flat")]
pub(crate) struct Table {
    processor: Processor,
}

#[pymethods]
impl Table {
    /// Of a table's bytes, which are checked.
    #[staticmethod]
    fn load(blob: &[u8]) -> PyResult<Table> {
        Ok(Table { processor: Processor::new(table::Table::load(blob).map_err(wrong)?) })
    }

    /// Of a descriptor set, encoded.
    #[staticmethod]
    fn compile(descriptor_set: &[u8]) -> PyResult<Table> {
        let compiled = Schema::from_descriptor_set(descriptor_set).and_then(|schema| schema.compile());
        Ok(Table { processor: Processor::new(compiled.map_err(wrong)?) })
    }

    /// Its bytes, for another program to load.
    fn blob<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.processor.table().blob())
    }

    /// Names of its message types, in order.
    #[getter]
    fn types(&self) -> Vec<String> {
        let table = self.processor.table();
        table.types().iter().map(|row| table.text(row.name).to_owned()).collect()
    }

    /// Numbers and names of a type's fields, in order.
    fn fields(&self, name: &str) -> PyResult<Vec<(u32, String)>> {
        let (table, idx) = (self.processor.table(), self.type_idx(name)?);
        Ok(table.fields_of(idx).iter().map(|row| (row.number, table.text(row.name).to_owned())).collect())
    }

    /// What tables with the same types have in common; of a type, if it is named.
    #[pyo3(signature = (name = None))]
    fn fingerprint(&self, name: Option<&str>) -> PyResult<u64> {
        match name {
            None => Ok(self.processor.table().fingerprint()),
            Some(name) => Ok(self.processor.fingerprint(self.type_idx(name)?)),
        }
    }

    /// A flat message of a type, checked once and then read where it lies: `bytes`, or a buffer, which is frozen.
    ///
    /// ValueError: it is not sound, or of another type.
    fn verify(&self, py: Python<'_>, name: &str, flat: Outgoing) -> PyResult<Record> {
        let (idx, pool) = (self.type_idx(name)?, flat.pool());
        let bytes = flat.message(false).into_bytes();
        let object = py.detach(|| self.processor.verify_held(idx, bytes, Limits::default().depth));
        Ok(Record::root(object.map_err(wrong)?, pool))
    }

    /// The flat message of an encoded one, as protobuf has it.
    ///
    /// ValueError: it can't be decoded; the message names the field.
    fn decode(&self, py: Python<'_>, name: &str, message: Outgoing) -> PyResult<Record> {
        let idx = self.type_idx(name)?;
        let bytes = message.message(false).into_bytes();
        let object =
            py.detach(|| self.processor.decode_owned(idx, &bytes, ARENAS.take(), &Limits::default()));
        Ok(Record::root(object.map_err(wrong)?, None))
    }
}

impl Table {
    fn type_idx(&self, name: &str) -> PyResult<u32> {
        let none = || PyKeyError::new_err(format!("the table has no message type {name:?}"));
        self.processor.type_by_name(name).ok_or_else(none)
    }
}

/// A place in an object: numbers of fields, and behind a list's the index of an element.
#[derive(Clone)]
struct Place {
    object: Arc<OwnedObject>,
    path: Box<[u32]>,
    /// The pool that the object lies in.
    pool: Option<Pool>,
}

impl Place {
    fn then(&self, step: u32) -> Place {
        Place { path: self.path.iter().copied().chain([step]).collect(), ..self.clone() }
    }

    /// What is there. `None`: nothing.
    fn value(&self) -> Option<Value<'_>> {
        let mut value = Value::Message(self.object.object().root());
        for step in &self.path {
            value = match value {
                Value::Message(record) => record.by_number(*step)?,
                Value::List(list) | Value::Map(list) => list.get(*step)?,
                _ => return None,
            };
        }
        Some(value)
    }

    fn record(&self) -> PyResult<tollfree_processor::Record<'_>> {
        check_pool(self.pool.as_ref())?;
        match self.value() {
            Some(Value::Message(record)) => Ok(record),
            _ => Err(PyValueError::new_err("the message is not there")),
        }
    }

    fn shown<'py>(&self, py: Python<'py>, value: Value<'_>) -> PyResult<Bound<'py, PyAny>> {
        Ok(match value {
            Value::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
            Value::I8(value) => value.into_pyobject(py)?.into_any(),
            Value::I16(value) => value.into_pyobject(py)?.into_any(),
            Value::I32(value) | Value::Enum(value) => value.into_pyobject(py)?.into_any(),
            Value::I64(value) => value.into_pyobject(py)?.into_any(),
            Value::U32(value) => value.into_pyobject(py)?.into_any(),
            Value::U64(value) => value.into_pyobject(py)?.into_any(),
            Value::F32(value) => value.into_pyobject(py)?.into_any(),
            Value::F64(value) => value.into_pyobject(py)?.into_any(),
            Value::String(text) => match text.to_str() {
                Ok(text) => PyString::new(py, text).into_any(),
                // The schema allows it.
                Err(_) => PyBytes::new(py, text.as_bytes()).into_any(),
            },
            Value::Bytes(_) => {
                let bytes = Bytes::from_owner(Held(self.clone()));
                Bound::new(py, Buffer::frozen(bytes, self.pool.as_ref()))?.into_any()
            }
            Value::Message(_) => Bound::new(py, Record(self.clone()))?.into_any(),
            Value::List(_) => Bound::new(py, Elements(self.clone()))?.into_any(),
            Value::Map(entries) => {
                let found = PyDict::new(py);
                for (idx, entry) in entries.iter().enumerate() {
                    let Value::Message(entry) = entry else { continue };
                    let entry_at = self.then(idx as u32);
                    let side = |number| entry_at.then(number).field_of(py, entry, number);
                    found.set_item(side(1)?, side(2)?)?;
                }
                found.into_any()
            }
        })
    }

    /// A field of a record, at this place, as a program sees it: its value, or what an absent one counts as.
    fn field_of<'py>(
        &self,
        py: Python<'py>,
        record: tollfree_processor::Record<'_>,
        number: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(value) = record.by_number(number) {
            return self.shown(py, value);
        }
        let Some(row) = record.rows().iter().find(|row| row.number == number) else {
            return Ok(py.None().into_bound(py));
        };
        match (row.label, row.kind) {
            (Label::Map, _) => Ok(PyDict::new(py).into_any()),
            (Label::List, _) => Ok(Bound::new(py, Elements(self.clone()))?.into_any()),
            (_, Kind::Message) => Ok(py.None().into_bound(py)),
            _ => self.default_of(py, row),
        }
    }

    fn default_of<'py>(&self, py: Python<'py>, row: &FieldRow) -> PyResult<Bound<'py, PyAny>> {
        let bits = row.default_bits;
        let value = match row.kind {
            Kind::Double => Value::F64(f64::from_bits(bits)),
            Kind::Float => Value::F32(f32::from_bits(bits as u32)),
            Kind::Bool => Value::Bool(bits != 0),
            Kind::Uint64 | Kind::Fixed64 => Value::U64(bits),
            Kind::Uint32 | Kind::Fixed32 => Value::U32(bits as u32),
            Kind::String | Kind::Bytes => {
                let text = table::Text { off: bits as u32, len: (bits >> 32) as u32 };
                let text = self.object.processor().table().text_bytes(text);
                return match row.kind {
                    Kind::Bytes => {
                        Ok(Bound::new(py, Buffer::frozen(Bytes::copy_from_slice(text), None))?.into_any())
                    }
                    _ => self.shown(py, Value::String(tollfree_processor::Text::new(text))),
                };
            }
            Kind::Int64 | Kind::Sfixed64 | Kind::Sint64 => Value::I64(bits as i64),
            _ => Value::I32(bits as i32),
        };
        self.shown(py, value)
    }
}

/// Bytes of an object, which hold it. An object does not move.
struct Held(Place);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        match self.0.value() {
            Some(Value::Bytes(bytes)) => bytes,
            _ => &[],
        }
    }
}

/// A flat message, or a message in one. Its fields are attributes, read when they are asked for. Any thread may use it.
#[pyclass(frozen, module = "tollfree.flat")]
pub(crate) struct Record(Place);

impl Record {
    fn root(object: OwnedObject, pool: Option<Pool>) -> Record {
        Record(Place { object: Arc::new(object), path: Box::default(), pool })
    }
}

#[pymethods]
impl Record {
    fn __getattr__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let record = self.0.record()?;
        let number = number_of(record, name)?;
        self.0.then(number).field_of(py, record, number)
    }

    /// The same, also of a field that has the name of a method here.
    fn __getitem__<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        self.__getattr__(py, name)
    }

    /// The type's full name.
    #[getter]
    fn type_name(&self) -> PyResult<String> {
        Ok(self.0.record()?.type_name().to_owned())
    }

    /// Whether a field is present; of a repeated one, whether it has elements.
    #[expect(non_snake_case, reason = "it is protobuf's name")]
    fn HasField(&self, field_name: &str) -> PyResult<bool> {
        let record = self.0.record()?;
        Ok(record.by_number(number_of(record, field_name)?).is_some())
    }

    /// Names and values of the fields that are present.
    #[expect(non_snake_case, reason = "it is protobuf's name")]
    fn ListFields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let record = self.0.record()?;
        let found = PyList::empty(py);
        for (row, value) in record.fields() {
            let name = PyString::new(py, record.text(row.name)).into_any();
            found.append(PyTuple::new(py, [name, self.0.then(row.number).shown(py, value)?])?)?;
        }
        Ok(found)
    }

    /// The message as protobuf encodes it. Only of a whole one.
    #[expect(non_snake_case, reason = "it is protobuf's name")]
    fn SerializeToString<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.is_whole()?;
        let mut buffer = EncodeBuffer::new();
        Ok(PyBytes::new(py, self.0.object.object().encode(&mut buffer).map_err(wrong)?))
    }

    /// The flat message's own bytes, where they lie. Only of a whole one.
    fn flat(&self) -> PyResult<Buffer> {
        self.is_whole()?;
        Ok(Buffer::frozen(Bytes::from_owner(Whole(self.0.object.clone())), self.0.pool.as_ref()))
    }

    fn __dir__(&self) -> PyResult<Vec<String>> {
        let record = self.0.record()?;
        let own = ["HasField", "ListFields", "SerializeToString", "flat", "type_name"].map(str::to_owned);
        Ok(record.rows().iter().map(|row| record.text(row.name).to_owned()).chain(own).collect())
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("<tollfree.flat.Record of {}>", self.0.record()?.type_name()))
    }
}

impl Record {
    fn is_whole(&self) -> PyResult<()> {
        let record = self.0.record()?;
        match self.0.path.is_empty() {
            true => Ok(()),
            false => {
                let words = format!(
                    "this {} is a part of another message: only a whole one can be",
                    record.type_name()
                );
                Err(PyValueError::new_err(words + " encoded, or had as bytes"))
            }
        }
    }
}

fn number_of(record: tollfree_processor::Record<'_>, name: &str) -> PyResult<u32> {
    let row = record.rows().iter().find(|row| record.text(row.name) == name);
    row.map(|row| row.number)
        .ok_or_else(|| PyAttributeError::new_err(format!("{} has no field {name:?}", record.type_name())))
}

/// All bytes of an object, which hold it.
struct Whole(Arc<OwnedObject>);

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        self.0.object().bytes()
    }
}

/// A repeated field of a flat message.
#[pyclass(frozen, sequence, module = "tollfree.flat")]
pub(crate) struct Elements(Place);

#[pymethods]
impl Elements {
    fn __len__(&self) -> PyResult<usize> {
        check_pool(self.0.pool.as_ref())?;
        Ok(match self.0.value() {
            Some(Value::List(list)) => list.len() as usize,
            _ => 0,
        })
    }

    fn __getitem__<'py>(&self, py: Python<'py>, idx: isize) -> PyResult<Bound<'py, PyAny>> {
        let len = self.__len__()? as isize;
        let at = if idx < 0 { idx + len } else { idx };
        let found = match self.0.value() {
            Some(Value::List(list)) => u32::try_from(at).ok().and_then(|at| Some((at, list.get(at)?))),
            _ => None,
        };
        match found {
            Some((at, value)) => self.0.then(at).shown(py, value),
            None => Err(PyIndexError::new_err(format!("the list has {len} elements, and none at {idx}"))),
        }
    }
}
