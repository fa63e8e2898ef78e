//! The verifier against objects that a hostile peer has changed: whatever it accepts can be read and encoded without leaving the
//! object (the reader asserts bounds in debug builds, which these tests are). Here it is read by fields that are found while the
//! program runs; `tollfree-view-stubs` tests the same rows through generated views.

mod rows;

use tollfree_processor::{EncodeBuffer, Processor, Record, Value, VerifyError};

use crate::fixture::{bytes, field, schemas, varint};

/// Reads all there is; gives how many bytes and values that was.
fn read(record: Record<'_>) -> usize {
    let mut seen: usize = record.unknown().map(<[u8]>::len).sum();
    for (_, value) in record.fields() {
        seen += read_value(value);
    }
    seen
}

fn read_value(value: Value<'_>) -> usize {
    1 + match value {
        Value::String(text) => std::hint::black_box(text.as_bytes().to_vec()).len(),
        Value::Bytes(bytes) => std::hint::black_box(bytes.to_vec()).len(),
        Value::Message(record) => read(record),
        Value::List(list) | Value::Map(list) => list.iter().map(read_value).sum(),
        _ => 0,
    }
}

/// Verifies a `t3.All`, reads it to the end and encodes it.
fn verified(p: &Processor, bytes: &[u8], depth: u32) -> Result<(), VerifyError> {
    let object = p.verify(p.type_by_name("t3.All").unwrap(), bytes, depth)?;
    // Nothing is visited more often than the object is long.
    assert!(read(object.root()) <= 2 * bytes.len());
    object.encode(&mut EncodeBuffer::new()).unwrap();
    Ok(())
}

#[test]
fn a_type_that_there_is_not_and_one_that_it_is_not() {
    let (p, _) = schemas();
    let (good, type_idx) = (rows::object(&p), p.type_by_name("t3.All").unwrap());
    assert!(matches!(p.verify(u32::MAX, &good, 100), Err(VerifyError::UnknownType { type_idx: u32::MAX })));
    assert!(matches!(p.verify(type_idx + 1, &good, 100), Err(VerifyError::Type { .. })));
}
