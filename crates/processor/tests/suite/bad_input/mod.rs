//! What is wrong with an input, and objects that a peer has forged: through objects whose fields are found while the program runs.
//! (`tollfree-view-stubs` tests the same rows through generated views.)

mod rows;

use tollfree_processor::{Arena, DecodeError, EncodeBuffer, Limits, Processor, VerifyError};

use crate::fixture::{again, bytes, field, schemas, varint};

/// The object of a message.
fn decoded(p: &Processor, name: &str, input: &[u8], limits: &Limits) -> Result<Vec<u8>, DecodeError> {
    let mut arena = Arena::with_limit(1 << 16);
    let object = p.decode(p.type_by_name(name).unwrap(), input, &mut arena, limits)?;
    Ok(object.bytes().to_vec())
}

/// The message of an object.
fn verified(p: &Processor, name: &str, object: &[u8]) -> Result<Vec<u8>, VerifyError> {
    let object = p.verify(p.type_by_name(name).unwrap(), object, 100)?;
    Ok(object.encode(&mut EncodeBuffer::new()).unwrap().to_vec())
}

/// The arena stays as small as the input asks for, whatever lengths it names.
#[test]
fn lengths_that_are_claimed_take_no_memory() {
    let (p, _) = schemas();
    let type_idx = p.type_by_name("t3.All").unwrap();
    let mut arena = Arena::with_limit(1 << 30);
    for number in [9, 12, 25, 26, 29, 31, 51, 999] {
        let input = field(number, 2, &[0xff, 0xff, 0xff, 0xff, 0x07]).repeat(3);
        assert!(p.decode(type_idx, &input, &mut arena, &Limits::default()).is_err());
    }
    assert!(arena.capacity() <= 8192, "{arena:?}");
}
