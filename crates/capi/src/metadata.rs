//! Blocks of metadata: built in the program's memory, and read pair by pair.

use std::ffi::c_int;

use tollfree_layout::{errors, metadata};

use crate::error::{Failure, run};
use crate::pointers::Bytes;

/// Appends a pair to a block of metadata that is built in memory of the program's: `room` bytes at `block`, of which `*len` are used.
/// No call carries more than `TOLLFREE_METADATA_LEN_MAX` bytes, unless both ends are configured otherwise.
///
/// Names have digits, lower-case letters, `_`, `-` and `.`. Values have printable ASCII characters; those of names that end in `-bin` are
/// base64, as on HTTP/2.
///
/// @return 0, or an error's number: nothing is appended then.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_metadata_put(
    block: *mut u8,
    room: usize,
    len: Option<&mut usize>,
    name: Bytes<'_>,
    value: Bytes<'_>,
) -> c_int {
    run(|| {
        let len = len.ok_or_else(|| Failure::null("the length"))?;
        let mut pair = Vec::new();
        metadata::pack(&mut pair, checked(name)?, checked_value(value)?)?;
        if block.is_null() {
            return Err(Failure::null("the block"));
        }
        let end = len.checked_add(pair.len()).filter(|end| *end <= room && room <= isize::MAX as usize);
        let Some(end) = end else {
            let words = format!("{} bytes do not go behind {len} of {room}: make more room", pair.len());
            return Err(Failure::new(errors::USE_LENGTH, words));
        };
        // SAFETY: `block` has `room` bytes, as the header asks, and the pair ends within them, as just seen; it lies elsewhere, being
        // Rust's. The C tests fill a block to its last byte under ASan.
        unsafe { std::ptr::copy_nonoverlapping(pair.as_ptr(), block.add(*len), pair.len()) };
        *len = end;
        Ok(())
    })
}

fn checked(name: Bytes<'_>) -> Result<&str, Failure> {
    let name = name.text("a name of metadata")?;
    let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.".contains(&byte);
    match name.bytes().all(is_good) {
        true => Ok(name),
        false => Err(Failure::new(
            errors::METADATA_PAIR,
            format!("metadata name {name:?}: 0-9 a-z _ - . are possible"),
        )),
    }
}

fn checked_value(value: Bytes<'_>) -> Result<&[u8], Failure> {
    let value = value.get()?;
    match value.iter().all(|byte| (0x20..0x7f).contains(byte)) {
        true => Ok(value),
        false => Err(Failure::new(
            errors::METADATA_PAIR,
            "a metadata value has what is no printable ASCII: use base64 and a name in -bin",
        )),
    }
}

/// Reads the pair of a block that begins at `*at`, and moves `*at` behind it; begin with 0. At the end, `name->data` is null. Names and
/// values lie in the block: what a peer has sent is any bytes.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_metadata_next(
    block: Bytes<'_>,
    at: Option<&mut usize>,
    name: Option<&mut Bytes<'static>>,
    value: Option<&mut Bytes<'static>>,
) -> c_int {
    run(|| {
        let (Some(at), Some(name), Some(value)) = (at, name, value) else {
            return Err(Failure::null("at, name or value"));
        };
        let block = block.get()?;
        let Some(rest) = block.get(*at..) else {
            return Err(Failure::new(
                errors::USE_LENGTH,
                "the place lies behind the block's end: begin with 0",
            ));
        };
        let Some(pair) = metadata::pairs(rest).next() else {
            (*name, *value) = (Bytes::EMPTY, Bytes::EMPTY);
            return Ok(());
        };
        let (found, bytes) = pair?;
        *at = bytes.as_ptr_range().end.addr() - block.as_ptr().addr();
        (*name, *value) = (Bytes::for_c(found.as_bytes()), Bytes::for_c(bytes));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::tests::text;

    fn put(block: &mut [u8], len: &mut usize, name: &[u8], value: &[u8]) -> c_int {
        put_at(block.as_mut_ptr(), block.len(), Some(len), name, value)
    }

    fn put_at(block: *mut u8, room: usize, len: Option<&mut usize>, name: &[u8], value: &[u8]) -> c_int {
        // SAFETY: the tests pass a block with its room, or null.
        unsafe { tollfree_metadata_put(block, room, len, Bytes::for_c(name), Bytes::for_c(value)) }
    }

    type Pair = (Vec<u8>, Vec<u8>);

    fn next(block: &[u8], at: &mut usize) -> Result<Option<Pair>, c_int> {
        let (mut name, mut value) = (Bytes::EMPTY, Bytes::EMPTY);
        match tollfree_metadata_next(Bytes::for_c(block), Some(at), Some(&mut name), Some(&mut value)) {
            0 if name.len() == 0 => Ok(None),
            0 => Ok(Some((name.get().unwrap().to_vec(), value.get().unwrap().to_vec()))),
            number => Err(number),
        }
    }

    #[test]
    fn what_is_put_is_read_in_order() {
        let (mut block, mut len) = ([0; 64], 0);
        let pairs: [(&[u8], &[u8]); 3] =
            [(b"x-name", b"one"), (b"grpc-message", b""), (b"x-bytes-bin", b"AP8")];
        for (name, value) in pairs {
            assert_eq!(put(&mut block, &mut len, name, value), 0);
        }
        let mut at = 0;
        for (name, value) in pairs {
            assert_eq!(next(&block[..len], &mut at), Ok(Some((name.to_vec(), value.to_vec()))));
        }
        assert_eq!((next(&block[..len], &mut at), at), (Ok(None), len));
        assert_eq!(next(&block[..len], &mut (len + 1)), Err(506));
        assert_eq!(next(&block[..len - 1], &mut { 0 }).unwrap().unwrap().0, b"x-name");
        assert_eq!(next(&block[..5], &mut { 0 }), Err(512));
    }

    #[test]
    fn what_grpc_does_not_carry_or_has_no_room_is_refused_and_changes_nothing() {
        let (mut block, mut len) = ([7; 10], 0);
        for (name, value, number) in [
            (&b"X-Name"[..], &b""[..], 511),
            (b"", b"", 511),
            (b"a b", b"", 511),
            (b"a", b"\n", 511),
            (b"a", b"\xff", 511),
            (b"\xff", b"", 509),
            (b"name", b"longer", 506),
        ] {
            assert_eq!(put(&mut block, &mut len, name, value), number, "{}", text());
            assert_eq!((len, block), (0, [7; 10]));
        }
        assert_eq!(put_at(std::ptr::null_mut(), 9, Some(&mut len), b"a", b"b"), 505);
        assert_eq!(put_at(block.as_mut_ptr(), 9, None, b"a", b"b"), 505);
        let mut beyond = usize::MAX;
        assert_eq!(put(&mut block, &mut beyond, b"a", b"b"), 506, "a length that overflows");
        assert_eq!(put(&mut block, &mut len, b"name", b"12"), 0, "to the last byte");
        assert_eq!(len, 10);
    }
}
