//! The method map: from a method's name or id to its table and handler (Cerebros 4.2's dispatch table).

use crate::object::Object;
use crate::processor::Processor;
use crate::view::Value;
use std::collections::HashMap;
use thiserror::Error;
use tollfree_layout::table::{FieldRow, Kind};

/// A method: how its messages are described, and which handler takes them.
#[derive(Debug, Clone)]
pub struct Method {
    /// Its name as it is called: for gRPC `/package.Service/Method`, for Thrift the function's name.
    pub name: String,
    /// The table of its messages.
    pub processor: Processor,
    /// Index of the request's type in that table.
    pub input_type_idx: u32,
    /// Index of the reply's type.
    pub output_type_idx: u32,
    /// The handler's index, the caller's to choose; several methods may share one.
    pub handler_idx: u32,
}

/// Why methods do not make a map.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MethodMapError {
    /// Two methods have one name.
    #[error("method {name} is there twice")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// A method's table lacks a type.
    #[error("the table of method {name} has no type {type_idx}")]
    UnknownType {
        /// The method's name.
        name: String,
        /// Index of the type.
        type_idx: u32,
    },
}

/// Methods by name and by id, both in constant time. A method's id is its place in the order in which the map was
/// given the methods.
#[derive(Debug, Clone, Default)]
pub struct MethodMap {
    methods: Vec<Method>,
    ids: HashMap<String, u32>,
}

impl MethodMap {
    /// A map of these methods.
    ///
    /// # Errors
    /// [`MethodMapError`].
    pub fn new(methods: impl IntoIterator<Item = Method>) -> Result<MethodMap, MethodMapError> {
        let mut map = MethodMap::default();
        for method in methods {
            for type_idx in [method.input_type_idx, method.output_type_idx] {
                if type_idx as usize >= method.processor.table().types().len() {
                    return Err(MethodMapError::UnknownType { name: method.name, type_idx });
                }
            }
            if map.ids.insert(method.name.clone(), map.methods.len() as u32).is_some() {
                return Err(MethodMapError::Duplicate { name: method.name });
            }
            map.methods.push(method);
        }
        Ok(map)
    }

    /// The method with this name; none: it is not this map's, hand the call on.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Method> {
        self.by_id(*self.ids.get(name)?)
    }

    /// The method with this id.
    #[must_use]
    pub fn by_id(&self, id: u32) -> Option<&Method> {
        self.methods.get(id as usize)
    }

    /// The method that a decoded header calls: the field that its table marks for this holds a name, if it is a string,
    /// or else an id. An absent field counts as its default. None: the header's type has no such mark, or the method is
    /// not this map's.
    #[must_use]
    pub fn by_header(&self, header: &Object<'_>) -> Option<&Method> {
        let root = header.root();
        let field_idx = root.rows().iter().position(|row| row.has(FieldRow::FUNCTION))?;
        let row = &root.rows()[field_idx];
        let id = match root.get(field_idx as u32) {
            Some(Value::String(name)) => return self.by_name(name.to_str().ok()?),
            Some(value) => integer(value)?,
            None if row.kind == Kind::String => return self.by_name(root.text(row.default_text())),
            None => row.default_bits as i64,
        };
        self.by_id(u32::try_from(id).ok()?)
    }

    /// The id of the method with this name.
    #[must_use]
    pub fn id_of(&self, name: &str) -> Option<u32> {
        self.ids.get(name).copied()
    }
}

fn integer(value: Value<'_>) -> Option<i64> {
    match value {
        Value::I8(value) => Some(value.into()),
        Value::I16(value) => Some(value.into()),
        Value::I32(value) | Value::Enum(value) => Some(value.into()),
        Value::U32(value) => Some(value.into()),
        Value::I64(value) => Some(value),
        Value::U64(value) => i64::try_from(value).ok(),
        // The table's loader sees to it that no other kind names a function.
        _ => None,
    }
}
