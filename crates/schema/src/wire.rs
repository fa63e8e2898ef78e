//! The little of protobuf's wire format that a descriptor set needs.

use crate::SchemaError;

/// One field of a message as it lies on the wire.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// Fixed-width values and groups: no field of descriptor.proto that is read here.
    Other,
}

/// Walks the fields of one message.
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
    place: &'static str,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8], place: &'static str) -> Self {
        Fields { bytes, at: 0, place }
    }

    fn malformed(&self) -> SchemaError {
        SchemaError::Malformed { place: self.place, offset: self.at }
    }

    fn varint(&mut self) -> Result<u64, SchemaError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or_else(|| self.malformed())?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.malformed())
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], SchemaError> {
        let end = self.at.checked_add(len).ok_or_else(|| self.malformed())?;
        let bytes = self.bytes.get(self.at..end).ok_or_else(|| self.malformed())?;
        self.at = end;
        Ok(bytes)
    }

    /// The next field: its number and value; none at the end.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, SchemaError> {
        let mut depth = 0u32;
        loop {
            if self.at == self.bytes.len() {
                return if depth == 0 { Ok(None) } else { Err(self.malformed()) };
            }
            let tag = self.varint()?;
            let number = u32::try_from(tag >> 3).ok().filter(|number| (1..1 << 29).contains(number));
            let number = number.ok_or_else(|| self.malformed())?;
            let value = match tag & 7 {
                0 => Value::Varint(self.varint()?),
                1 => self.take(8).map(|_| Value::Other)?,
                2 => {
                    let len = usize::try_from(self.varint()?).map_err(|_| self.malformed())?;
                    Value::Bytes(self.take(len)?)
                }
                // Groups are skipped with all they hold.
                3 => {
                    depth += 1;
                    Value::Other
                }
                4 => {
                    depth = depth.checked_sub(1).ok_or_else(|| self.malformed())?;
                    Value::Other
                }
                5 => self.take(4).map(|_| Value::Other)?,
                _ => return Err(self.malformed()),
            };
            if depth == 0 {
                return Ok(Some((number, value)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u32, Value<'_>)>, SchemaError> {
        let mut fields = Fields::new(bytes, "test");
        std::iter::from_fn(|| fields.next().transpose()).collect()
    }

    #[test]
    fn reads_each_wire_type_and_skips_groups() {
        let bytes = [
            0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1b, 0x20, 5, 0x1c, 0x25, 1, 2, 3, 4, 0x29, 1, 2, 3, 4,
            5, 6, 7, 8,
        ];
        let fields = all(&bytes).unwrap();
        assert_eq!(fields[0], (1, Value::Varint(150)));
        assert_eq!(fields[1], (2, Value::Bytes(b"hi")));
        assert_eq!(fields[2..], [(3, Value::Other), (4, Value::Other), (5, Value::Other)]);
    }

    #[test]
    fn refuses_what_is_malformed() {
        for bad in [
            &[0x08][..],
            &[0x08, 0x80],
            &[0x12, 3, 1, 2],
            &[0x00, 0],
            &[0x0b],
            &[0x0c],
            &[0x0e, 0],
            &[0x80; 11],
        ] {
            assert!(all(bad).is_err(), "{bad:x?}");
        }
    }
}
