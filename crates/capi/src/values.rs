//! What the fields of an object hold.

use std::ffi::c_int;

use tollfree_layout::errors;
use tollfree_processor::{List, Record, Value as Found};

use crate::error::{Failure, run};
use crate::pointers::{self, Bytes, Growing};
use crate::tables::Object;

/// The field is absent.
pub const TOLLFREE_VALUE_ABSENT: u32 = 0;
/// A bool: `integer` is 0 or 1.
pub const TOLLFREE_VALUE_BOOL: u32 = 1;
/// A signed number: `integer`.
pub const TOLLFREE_VALUE_INT: u32 = 2;
/// An unsigned number: `integer`, to be read as `uint64_t`.
pub const TOLLFREE_VALUE_UINT: u32 = 3;
/// A float or double: `number`.
pub const TOLLFREE_VALUE_DOUBLE: u32 = 4;
/// A value of an enum, also one that the schema does not list: `integer`.
pub const TOLLFREE_VALUE_ENUM: u32 = 5;
/// A string: `bytes`, which are UTF-8 where the schema demands it.
pub const TOLLFREE_VALUE_STRING: u32 = 6;
/// Bytes: `bytes`.
pub const TOLLFREE_VALUE_BYTES: u32 = 7;
/// A message: the path goes on with a field's number.
pub const TOLLFREE_VALUE_MESSAGE: u32 = 8;
/// `count` elements: the path goes on with an element's index, from 0 on.
pub const TOLLFREE_VALUE_LIST: u32 = 9;
/// `count` entries: messages with the fields 1, the key, and 2, the value. Of equal keys the last counts.
pub const TOLLFREE_VALUE_MAP: u32 = 10;

/// What a field holds. What its kind does not name is 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// `sizeof(tollfree_value)`, set by the program.
    size: usize,
    /// `TOLLFREE_VALUE_…`.
    kind: u32,
    /// How many elements a list or map has.
    count: u32,
    /// A whole number.
    integer: i64,
    /// A number of floating point.
    number: f64,
    /// They lie in the object, until that is released.
    bytes: Bytes<'static>,
}

// SAFETY: numbers and pointers; zeros are null and 0. `size` is the first.
unsafe impl Growing for Value {
    const LEN_MIN: usize = size_of::<Value>();
}

/// Where a step of a path has led.
#[derive(Clone, Copy)]
enum Place<'a> {
    Absent,
    Value(Found<'a>),
}

impl Value {
    fn of(place: Place<'_>) -> Value {
        let none = Value {
            size: 0,
            kind: TOLLFREE_VALUE_ABSENT,
            count: 0,
            integer: 0,
            number: 0.0,
            bytes: Bytes::EMPTY,
        };
        let Place::Value(found) = place else { return none };
        let int = |integer: i64| Value { kind: TOLLFREE_VALUE_INT, integer, ..none };
        let uint = |value: u64| Value { kind: TOLLFREE_VALUE_UINT, integer: value as i64, ..none };
        let list = |kind, list: List<'_>| Value { kind, count: list.len(), ..none };
        match found {
            Found::Bool(truth) => Value { kind: TOLLFREE_VALUE_BOOL, integer: truth.into(), ..none },
            Found::I8(value) => int(value.into()),
            Found::I16(value) => int(value.into()),
            Found::I32(value) => int(value.into()),
            Found::I64(value) => int(value),
            Found::U32(value) => uint(value.into()),
            Found::U64(value) => uint(value),
            Found::F32(value) => Value { kind: TOLLFREE_VALUE_DOUBLE, number: value.into(), ..none },
            Found::F64(number) => Value { kind: TOLLFREE_VALUE_DOUBLE, number, ..none },
            Found::Enum(value) => Value { kind: TOLLFREE_VALUE_ENUM, integer: value.into(), ..none },
            Found::String(text) => {
                Value { kind: TOLLFREE_VALUE_STRING, bytes: Bytes::for_c(text.as_bytes()), ..none }
            }
            Found::Bytes(bytes) => Value { kind: TOLLFREE_VALUE_BYTES, bytes: Bytes::for_c(bytes), ..none },
            Found::Message(_) => Value { kind: TOLLFREE_VALUE_MESSAGE, ..none },
            Found::List(of) => list(TOLLFREE_VALUE_LIST, of),
            Found::Map(of) => list(TOLLFREE_VALUE_MAP, of),
        }
    }
}

fn no_field(step: usize, words: &str) -> Failure {
    Failure::new(errors::OBJECT_FIELD, format!("step {step} of the path, counted from 0: {words}"))
}

/// The field of that number, if the record's type has one.
fn field<'a>(record: Record<'a>, step: usize, number: u32) -> Result<Place<'a>, Failure> {
    let is_known = record.rows().iter().any(|row| row.number == number);
    match record.by_number(number) {
        Some(value) => Ok(Place::Value(value)),
        None if is_known => Ok(Place::Absent),
        None => Err(no_field(step, &format!("{} has no field {number}", record.type_name()))),
    }
}

fn walk<'a>(root: Record<'a>, path: &[u32]) -> Result<Place<'a>, Failure> {
    let mut place = Place::Value(Found::Message(root));
    for (step, number) in path.iter().enumerate() {
        place = match place {
            Place::Absent => return Ok(Place::Absent),
            Place::Value(Found::Message(record)) => field(record, step, *number)?,
            Place::Value(Found::List(list) | Found::Map(list)) => match list.get(*number) {
                Some(value) => Place::Value(value),
                None => return Err(no_field(step, &format!("the list has {} elements", list.len()))),
            },
            Place::Value(_) => return Err(no_field(step, "what is there has no fields")),
        };
    }
    Ok(place)
}

/// Reads a field of an object by its path: numbers of fields, and behind a list's or map's the index of an element. An empty path leads to the
/// message itself. A field that is absent, or lies in a message that is, has the kind `TOLLFREE_VALUE_ABSENT`.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_object_get(
    of: Object,
    path: *const u32,
    path_len: usize,
    value: *mut Value,
) -> c_int {
    run(|| {
        // SAFETY: the header asks for `path_len` numbers there; null and impossible lengths are refused (`pointers::tests`).
        let path = unsafe { pointers::list(path, path_len) }?;
        let object = of.get()?;
        let found = Value::of(walk(object.object().root(), path)?);
        // SAFETY: the header asks for a structure of its size; others are refused (`pointers::tests`). ASan watches in the C tests.
        unsafe { pointers::write(value, &found) }
    })
}
