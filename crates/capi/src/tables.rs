//! Tables of message types, and flat messages read by them.

use std::ffi::c_int;
use std::sync::{Arc, LazyLock};

use tollfree_layout::errors;
use tollfree_layout::flat::MAX_OBJECT_LEN;
use tollfree_layout::table;
use tollfree_processor::{Arenas, EncodeBuffer, Limits, OwnedObject, Processor};
use tollfree_schema::Schema;

use crate::buffer::Payload;
use crate::error::{Failure, run};
use crate::handles::Handles;
use crate::pointers::Bytes;
use crate::types::check_type;

/// Message types of a schema. `{0}` is none. Any thread; released once.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Table {
    id: u64,
}

/// A message that is read where it lies. `{0}` is none. Any thread; released once.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Object {
    id: u64,
}

static TABLES: Handles<Processor> =
    Handles::new(errors::TABLE_HANDLE, "this table was released, or never was: release each once");
static OBJECTS: Handles<Arc<OwnedObject>> =
    Handles::new(errors::TABLE_HANDLE, "this object was released, or never was: release each once");

/// Memory of objects that were decoded, used again.
static ARENAS: LazyLock<Arenas> = LazyLock::new(|| Arenas::new(MAX_OBJECT_LEN as usize, 16));

impl Table {
    pub(crate) fn get(self) -> Result<Processor, Failure> {
        TABLES.get(self.id)
    }
}

impl Object {
    pub(crate) fn get(self) -> Result<Arc<OwnedObject>, Failure> {
        OBJECTS.get(self.id)
    }
}

fn keep(table: table::Table, made: &mut Table) -> Result<(), Failure> {
    made.id = TABLES.insert(Processor::new(table))?;
    Ok(())
}

fn unsound(error: impl std::fmt::Display) -> Failure {
    Failure::new(errors::OBJECT_UNSOUND, error.to_string())
}

/// Loads a table from its bytes, which are copied and checked.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_table_load(blob: Bytes<'_>, made: Option<&mut Table>) -> c_int {
    run(|| {
        let made = made.ok_or_else(|| Failure::null("the table"))?;
        let no_table = |error: table::TableError| Failure::new(errors::TABLE_BLOB, error.to_string());
        keep(table::Table::load(blob.get()?).map_err(no_table)?, made)
    })
}

/// Makes a table of a descriptor set, as `protoc --include_imports --descriptor_set_out` writes it.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_table_compile(descriptor_set: Bytes<'_>, made: Option<&mut Table>) -> c_int {
    run(|| {
        let made = made.ok_or_else(|| Failure::null("the table"))?;
        let schema = Schema::from_descriptor_set(descriptor_set.get()?).and_then(|schema| schema.compile());
        keep(schema.map_err(|error| Failure::new(errors::TABLE_BLOB, error.to_string()))?, made)
    })
}

/// A table's bytes, for another program to load. The payload's buffer is to be released.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_table_blob(of: Table, payload: Option<&mut Payload<'static>>) -> c_int {
    run(|| {
        let payload = payload.ok_or_else(|| Failure::null("the payload"))?;
        *payload = Payload::keep(bytes::Bytes::copy_from_slice(TABLES.get(of.id)?.table().blob()))?;
        Ok(())
    })
}

/// The index of a message type in a table, by its full name, as `package.Message`.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_table_type(of: Table, name: Bytes<'_>, index: Option<&mut u32>) -> c_int {
    run(|| {
        let index = index.ok_or_else(|| Failure::null("the index"))?;
        let name = name.text("the name")?;
        let none = || Failure::new(errors::TABLE_TYPE, format!("the table has no message type {name:?}"));
        *index = TABLES.get(of.id)?.type_by_name(name).ok_or_else(none)?;
        Ok(())
    })
}

/// Ends the use of a table. Objects that were made by it stay.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_table_release(of: Table) -> c_int {
    run(|| TABLES.remove(of.id).map(drop))
}

/// Takes a flat message of a type, if it is a sound one. It is read where it lies, if the payload has a buffer: what is wrapped there must stay as it is
/// until the object is released. Else it is copied.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_object_verify(
    of: Table,
    index: u32,
    flat: Payload<'_>,
    made: Option<&mut Object>,
) -> c_int {
    run(|| {
        let made = made.ok_or_else(|| Failure::null("the object"))?;
        let object = TABLES.get(of.id)?.verify_held(index, flat.get()?, Limits::default().depth);
        made.id = OBJECTS.insert(Arc::new(object.map_err(unsound)?))?;
        Ok(())
    })
}

/// Makes an object of an encoded message, as protobuf has it.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_object_decode(
    of: Table,
    index: u32,
    message: Bytes<'_>,
    made: Option<&mut Object>,
) -> c_int {
    run(|| {
        let made = made.ok_or_else(|| Failure::null("the object"))?;
        let processor = TABLES.get(of.id)?;
        check_type(&processor, index)?;
        let object = processor.decode_owned(index, message.get()?, ARENAS.take(), &Limits::default());
        made.id = OBJECTS.insert(Arc::new(object.map_err(unsound)?))?;
        Ok(())
    })
}

/// The message that an object is, encoded as protobuf has it. The payload's buffer is to be released.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_object_encode(of: Object, payload: Option<&mut Payload<'static>>) -> c_int {
    run(|| {
        let payload = payload.ok_or_else(|| Failure::null("the payload"))?;
        let (object, mut buffer) = (of.get()?, EncodeBuffer::new());
        let encoded = object.object().encode(&mut buffer).map_err(unsound)?;
        *payload = Payload::keep(bytes::Bytes::copy_from_slice(encoded))?;
        Ok(())
    })
}

/// The flat message that an object is. It lies in the object, until that is released.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_object_bytes(of: Object, flat: Option<&mut Bytes<'static>>) -> c_int {
    run(|| {
        let flat = flat.ok_or_else(|| Failure::null("the bytes"))?;
        *flat = Bytes::for_c(of.get()?.object().bytes());
        Ok(())
    })
}

/// Ends the use of an object, and of all that was read of it.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_object_release(of: Object) -> c_int {
    run(|| OBJECTS.remove(of.id).map(drop))
}
