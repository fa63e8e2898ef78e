//! A flat message to Thrift bytes. No unsafe code: it walks the object by its views.

use super::plan::{ThriftField, code};
use super::wire::binary_number;
use super::{DEEPEST, Protocol};
use crate::encode::EncodeError;
use crate::object::Object;
use crate::plan::Plan;
use crate::view::{Record, Value};
use tollfree_layout::steps;

/// Longest message, and longest string or container: Thrift's lengths are signed.
const LONGEST: usize = i32::MAX as usize;

impl Object<'_> {
    /// Appends the object, a struct in Thrift's encoding, to `out`, for example behind a message's header. Fields come
    /// in ascending order of their ids. On an error `out` is as it was.
    ///
    /// Required fields are not asked for, nor unions counted: what is present is written. An object that came
    /// from a peer may have entries or boxes without parts: these are written as zero or empty.
    ///
    /// # Errors
    /// [`EncodeError`].
    pub fn encode_thrift(&self, protocol: Protocol, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if !self.plan.thrift.types[self.type_idx as usize].supported {
            return Err(EncodeError::UnsupportedLayout { type_idx: self.type_idx });
        }
        let start = out.len();
        let mut writer = Writer { plan: self.plan, out, depth: DEEPEST };
        let outcome = match protocol {
            Protocol::Compact => writer.record::<CompactWriter>(self.root()),
            _ => writer.record::<BinaryWriter>(self.root()),
        };
        let fits = if out.len() - start > LONGEST { Err(EncodeError::TooLong) } else { Ok(()) };
        outcome.and(fits).inspect_err(|_| out.truncate(start))
    }
}

/// How a protocol writes.
pub(super) trait Emit {
    const BOOL_IN_HEADER: bool;
    fn field(out: &mut Vec<u8>, code: u8, id: u16, last: u16);
    fn bool(out: &mut Vec<u8>, value: bool);
    fn i16(out: &mut Vec<u8>, value: i16);
    fn i32(out: &mut Vec<u8>, value: i32);
    fn i64(out: &mut Vec<u8>, value: i64);
    fn double(out: &mut Vec<u8>, value: f64);
    fn length(out: &mut Vec<u8>, len: u32);
    fn list(out: &mut Vec<u8>, elem: u8, count: u32);
    fn map(out: &mut Vec<u8>, key: u8, value: u8, count: u32);
}

pub(super) struct CompactWriter;
pub(super) struct BinaryWriter;

#[inline]
pub(super) fn varint(out: &mut Vec<u8>, mut value: u64) {
    let mut bytes = [0; 10];
    let mut len = 0;
    while value >= 0x80 {
        bytes[len] = value as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    // A copy of fixed length, cut afterwards: two stores instead of a call.
    let start = out.len();
    out.extend_from_slice(&bytes);
    out.truncate(start + len + 1);
}

impl Emit for CompactWriter {
    const BOOL_IN_HEADER: bool = true;

    fn field(out: &mut Vec<u8>, code: u8, id: u16, last: u16) {
        match id.wrapping_sub(last) {
            delta @ 1..=15 => out.push((delta as u8) << 4 | code),
            _ => {
                out.push(code);
                Self::i16(out, id as i16);
            }
        }
    }

    fn bool(out: &mut Vec<u8>, value: bool) {
        out.push(if value { 1 } else { 2 });
    }

    fn i16(out: &mut Vec<u8>, value: i16) {
        Self::i32(out, i32::from(value));
    }

    fn i32(out: &mut Vec<u8>, value: i32) {
        varint(out, u64::from((value << 1 ^ value >> 31) as u32));
    }

    fn i64(out: &mut Vec<u8>, value: i64) {
        varint(out, (value << 1 ^ value >> 63) as u64);
    }

    fn double(out: &mut Vec<u8>, value: f64) {
        out.extend_from_slice(&value.to_le_bytes());
    }

    fn length(out: &mut Vec<u8>, len: u32) {
        varint(out, u64::from(len));
    }

    fn list(out: &mut Vec<u8>, elem: u8, count: u32) {
        if count < 15 {
            out.push((count as u8) << 4 | elem);
        } else {
            out.push(0xf0 | elem);
            varint(out, u64::from(count));
        }
    }

    fn map(out: &mut Vec<u8>, key: u8, value: u8, count: u32) {
        varint(out, u64::from(count));
        if count > 0 {
            out.push(key << 4 | value);
        }
    }
}

impl Emit for BinaryWriter {
    const BOOL_IN_HEADER: bool = false;

    fn field(out: &mut Vec<u8>, code: u8, id: u16, _last: u16) {
        let [high, low] = id.to_be_bytes();
        out.extend_from_slice(&[binary_number(code), high, low]);
    }

    fn bool(out: &mut Vec<u8>, value: bool) {
        out.push(u8::from(value));
    }

    fn i16(out: &mut Vec<u8>, value: i16) {
        out.extend_from_slice(&value.to_be_bytes());
    }

    fn i32(out: &mut Vec<u8>, value: i32) {
        out.extend_from_slice(&value.to_be_bytes());
    }

    fn i64(out: &mut Vec<u8>, value: i64) {
        out.extend_from_slice(&value.to_be_bytes());
    }

    fn double(out: &mut Vec<u8>, value: f64) {
        out.extend_from_slice(&value.to_be_bytes());
    }

    fn length(out: &mut Vec<u8>, len: u32) {
        out.extend_from_slice(&len.to_be_bytes());
    }

    fn list(out: &mut Vec<u8>, elem: u8, count: u32) {
        out.push(binary_number(elem));
        Self::length(out, count);
    }

    fn map(out: &mut Vec<u8>, key: u8, value: u8, count: u32) {
        out.extend_from_slice(&[binary_number(key), binary_number(value)]);
        Self::length(out, count);
    }
}

struct Writer<'w> {
    plan: &'w Plan,
    out: &'w mut Vec<u8>,
    /// Levels of records that may still nest.
    depth: u32,
}

impl Writer<'_> {
    fn fields_of(&self, type_idx: u32) -> &[ThriftField] {
        let t = &self.plan.types[type_idx as usize];
        &self.plan.thrift.fields[t.first_field as usize..(t.first_field + t.field_count) as usize]
    }

    fn record<E: Emit>(&mut self, record: Record<'_>) -> Result<(), EncodeError> {
        let mut last = 0;
        for idx in 0..record.rows().len() {
            steps::take(1);
            let Some(value) = record.get(idx as u32) else { continue };
            let f = self.fields_of(record.type_idx())[idx];
            if let (true, Value::Bool(value)) = (E::BOOL_IN_HEADER, value) {
                // The compact protocol's number of false is true's plus one.
                E::field(self.out, code::BOOL + u8::from(!value), f.id, last);
            } else {
                E::field(self.out, f.code, f.id, last);
                self.value::<E>(&f, value)?;
            }
            last = f.id;
        }
        self.out.push(code::STOP);
        Ok(())
    }

    /// One level down. Who fails does not come up again.
    fn descend(&mut self) -> Result<(), EncodeError> {
        self.depth = self.depth.checked_sub(1).ok_or(EncodeError::TooDeep { limit: DEEPEST })?;
        Ok(())
    }

    fn count(&self, count: u32) -> Result<u32, EncodeError> {
        if count as usize > LONGEST - self.out.len().min(LONGEST) {
            Err(EncodeError::TooLong)
        } else {
            Ok(count)
        }
    }

    fn value<E: Emit>(&mut self, f: &ThriftField, value: Value<'_>) -> Result<(), EncodeError> {
        match value {
            Value::Bool(value) => E::bool(self.out, value),
            Value::I8(value) => self.out.push(value as u8),
            Value::I16(value) => E::i16(self.out, value),
            Value::I32(value) | Value::Enum(value) => E::i32(self.out, value),
            Value::I64(value) => E::i64(self.out, value),
            Value::F64(value) => E::double(self.out, value),
            Value::String(text) => return self.bytes::<E>(text.as_bytes()),
            Value::Bytes(bytes) => return self.bytes::<E>(bytes),
            Value::Message(record) => {
                self.descend()?;
                if f.boxed {
                    self.part::<E>(record, 0)?;
                } else {
                    self.record::<E>(record)?;
                }
                self.depth += 1;
            }
            Value::List(list) => {
                E::list(self.out, f.elem, self.count(list.len())?);
                return list.iter().try_for_each(|element| self.value::<E>(f, element));
            }
            Value::Map(entries) => {
                let (key, value) = self.codes(f);
                E::map(self.out, key, value, self.count(entries.len())?);
                self.descend()?;
                for entry in entries.iter() {
                    if let Value::Message(entry) = entry {
                        self.part::<E>(entry, 0)?;
                        self.part::<E>(entry, 1)?;
                    }
                }
                self.depth += 1;
            }
            // A supported type has no such fields.
            Value::U32(_) | Value::U64(_) | Value::F32(_) => {}
        }
        Ok(())
    }

    fn bytes<E: Emit>(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        let len = u32::try_from(bytes.len()).map_err(|_| EncodeError::TooLong)?;
        E::length(self.out, self.count(len)?);
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// The types of a map's keys and values.
    fn codes(&self, f: &ThriftField) -> (u8, u8) {
        let parts = self.fields_of(f.aux_idx);
        (parts[0].code, parts[1].code)
    }

    /// The part at this place of an entry or box, without a header.
    fn part<E: Emit>(&mut self, record: Record<'_>, idx: u32) -> Result<(), EncodeError> {
        let f = self.fields_of(record.type_idx())[idx as usize];
        if let Some(value) = record.get(idx) {
            return self.value::<E>(&f, value);
        }
        match f.code {
            code::BOOL => E::bool(self.out, false),
            code::I8 => self.out.push(0),
            code::I16 => E::i16(self.out, 0),
            code::I32 => E::i32(self.out, record.rows()[idx as usize].default_bits as i32),
            code::I64 => E::i64(self.out, 0),
            code::DOUBLE => E::double(self.out, 0.0),
            code::STRING => E::length(self.out, 0),
            code::STRUCT => self.out.push(code::STOP),
            code::MAP => {
                let (key, value) = self.codes(&f);
                E::map(self.out, key, value, 0);
            }
            _ => E::list(self.out, f.elem, 0),
        }
        Ok(())
    }
}
