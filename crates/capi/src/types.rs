//! What a table says of its types: names, fields, fingerprints.

use std::ffi::c_int;

use tollfree_layout::errors;
use tollfree_processor::Processor;

use crate::error::{Failure, run};
use crate::pointers::{self, Bytes, Growing};
use crate::tables::Table;

/// A message type of a table.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Type {
    /// `sizeof(tollfree_type)`, set by the program.
    size: usize,
    /// Its full name, without a leading dot. It lies in the table, until that is released.
    name: Bytes<'static>,
    /// Names the type and all that it reaches: flat messages carry it.
    fingerprint: u64,
    /// How many fields it has.
    field_count: u32,
    /// 0.
    reserved: u32,
}

// SAFETY: numbers and pointers; zeros are null and 0. `size` is the first.
unsafe impl Growing for Type {
    const LEN_MIN: usize = size_of::<Type>();
}

/// A field of a message type.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// `sizeof(tollfree_field)`, set by the program.
    size: usize,
    /// Its name in the schema. It lies in the table, until that is released.
    name: Bytes<'static>,
    /// Its number, as paths have it.
    number: u32,
    /// 0.
    reserved: u32,
}

// SAFETY: numbers and pointers; zeros are null and 0. `size` is the first.
unsafe impl Growing for Field {
    const LEN_MIN: usize = size_of::<Field>();
}

/// The type of that index, if the table has one.
pub(crate) fn check_type(processor: &Processor, index: u32) -> Result<(), Failure> {
    let type_count = processor.table().types().len();
    if (index as usize) < type_count {
        return Ok(());
    }
    let words = format!("the table has {type_count} message types, and none of the index {index}");
    Err(Failure::new(errors::TABLE_TYPE, words))
}

/// The fingerprint of a table: of all of its bytes.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_table_fingerprint(of: Table, fingerprint: Option<&mut u64>) -> c_int {
    run(|| {
        let fingerprint = fingerprint.ok_or_else(|| Failure::null("the fingerprint"))?;
        *fingerprint = of.get()?.table().fingerprint();
        Ok(())
    })
}

/// How many message types a table has: their indexes are from 0 on.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_table_type_count(of: Table, count: Option<&mut u32>) -> c_int {
    run(|| {
        let count = count.ok_or_else(|| Failure::null("the count"))?;
        *count = of.get()?.table().types().len() as u32;
        Ok(())
    })
}

/// What a table says of the type of an index.
///
/// @return 0, or an error's number.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_table_type_at(of: Table, index: u32, found: *mut Type) -> c_int {
    run(|| {
        let processor = of.get()?;
        check_type(&processor, index)?;
        let table = processor.table();
        let row = &table.types()[index as usize];
        let value = Type {
            size: 0,
            name: Bytes::for_c(table.text_bytes(row.name)),
            fingerprint: table.type_fingerprint(index),
            field_count: row.field_count,
            reserved: 0,
        };
        // SAFETY: the header asks for a structure of its size; others are refused (`pointers::tests`). ASan watches in the C tests.
        unsafe { pointers::write(found, &value) }
    })
}

/// What a table says of a field of the type of an index: the `nth`, from 0 on, in the order of their numbers.
///
/// @return 0, or an error's number.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_table_field_at(
    of: Table,
    index: u32,
    nth: u32,
    found: *mut Field,
) -> c_int {
    run(|| {
        let processor = of.get()?;
        check_type(&processor, index)?;
        let (table, fields) = (processor.table(), processor.table().fields_of(index));
        let row = fields.get(nth as usize).ok_or_else(|| {
            let words = format!("the type has {} fields, and none of the index {nth}", fields.len());
            Failure::new(errors::OBJECT_FIELD, words)
        })?;
        let name = Bytes::for_c(table.text_bytes(row.name));
        let value = Field { size: 0, name, number: row.number, reserved: 0 };
        // SAFETY: the header asks for a structure of its size; others are refused (`pointers::tests`). ASan watches in the C tests.
        unsafe { pointers::write(found, &value) }
    })
}
