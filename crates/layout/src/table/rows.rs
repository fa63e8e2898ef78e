//! The rows of a table: how each lies in the blob.

use super::{HEADER_LEN, Kind, Label, MAGIC, MAX_TABLE_LEN, TableError, VERSION};

/// A range of the text section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Text {
    /// First byte, counted from the start of the text section.
    pub off: u32,
    /// Bytes.
    pub len: u32,
}

/// FNV-1a over 64 bits: names a table, guards against mix-ups, not against forgers.
#[derive(Debug, Clone, Copy)]
pub struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Fingerprint(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    /// Takes in more bytes.
    #[must_use]
    pub fn take_in(mut self, bytes: &[u8]) -> Self {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self
    }

    /// The fingerprint of all bytes taken in.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }

    /// The fingerprint of a blob: its bytes with the fingerprint field left out.
    #[must_use]
    pub fn of_blob(blob: &[u8]) -> u64 {
        let (head, rest) = blob.split_at(blob.len().min(HEADER_LEN - 8));
        Fingerprint::default().take_in(head).take_in(rest.get(8..).unwrap_or(&[])).value()
    }
}

fn word(row: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]])
}

fn text(row: &[u8], at: usize) -> Text {
    Text { off: word(row, at), len: word(row, at + 4) }
}

fn put(row: &mut [u8], at: usize, value: u32) {
    row[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put_text(row: &mut [u8], at: usize, value: Text) {
    put(row, at, value.off);
    put(row, at + 4, value.len);
}

/// The header of a table: how many rows there are, and the fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TableHeader {
    /// Type rows.
    pub type_count: u32,
    /// Field rows.
    pub field_count: u32,
    /// Enum rows.
    pub enum_count: u32,
    /// Value rows.
    pub value_count: u32,
    /// Bytes of text.
    pub text_len: u32,
    /// [`Fingerprint::of_blob`].
    pub fingerprint: u64,
}

impl TableHeader {
    /// Where type, field, enum and value rows and the text begin.
    #[must_use]
    pub fn section_offsets(&self) -> [usize; 5] {
        let types = HEADER_LEN;
        let fields = types + self.type_count as usize * TypeRow::LEN;
        let enums = fields + self.field_count as usize * FieldRow::LEN;
        let values = enums + self.enum_count as usize * EnumRow::LEN;
        [types, fields, enums, values, values + self.value_count as usize * ValueRow::LEN]
    }

    /// Bytes of the whole table.
    #[must_use]
    pub fn blob_len(&self) -> usize {
        self.section_offsets()[4] + self.text_len as usize
    }

    pub(super) fn parse(blob: &[u8]) -> Result<TableHeader, TableError> {
        if blob.len() < HEADER_LEN || blob.len() > MAX_TABLE_LEN {
            return Err(TableError::Length { expected: HEADER_LEN, found: blob.len() });
        }
        if word(blob, 0) != MAGIC {
            return Err(TableError::Magic { found: word(blob, 0) });
        }
        let (version, flags) =
            (u16::from_le_bytes([blob[4], blob[5]]), u16::from_le_bytes([blob[6], blob[7]]));
        if version != VERSION || flags != 0 {
            return Err(TableError::Version { version, flags });
        }
        let header = TableHeader {
            type_count: word(blob, 12),
            field_count: word(blob, 16),
            enum_count: word(blob, 20),
            value_count: word(blob, 24),
            text_len: word(blob, 28),
            fingerprint: u64::from(word(blob, 56)) | u64::from(word(blob, 60)) << 32,
        };
        // Five counts of 32 bits times small rows cannot overflow 64-bit sums; on 32-bit targets they could.
        let rows = [
            (header.type_count, TypeRow::LEN),
            (header.field_count, FieldRow::LEN),
            (header.enum_count, EnumRow::LEN),
            (header.value_count, ValueRow::LEN),
            (header.text_len, 1),
        ];
        let total: u64 = rows.iter().map(|(count, len)| u64::from(*count) * *len as u64).sum();
        if total + HEADER_LEN as u64 != blob.len() as u64 || word(blob, 8) as usize != blob.len() {
            let expected = usize::try_from(total).unwrap_or(usize::MAX).saturating_add(HEADER_LEN);
            return Err(TableError::Length { expected, found: blob.len() });
        }
        if blob[32..56].iter().any(|byte| *byte != 0) {
            return Err(TableError::Version { version, flags });
        }
        let computed = Fingerprint::of_blob(blob);
        if computed != header.fingerprint {
            return Err(TableError::Fingerprint { claimed: header.fingerprint, computed });
        }
        Ok(header)
    }

    /// The header as it lies in the blob.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut row = [0; HEADER_LEN];
        put(&mut row, 0, MAGIC);
        row[4..6].copy_from_slice(&VERSION.to_le_bytes());
        put(&mut row, 8, self.blob_len() as u32);
        put(&mut row, 12, self.type_count);
        put(&mut row, 16, self.field_count);
        put(&mut row, 20, self.enum_count);
        put(&mut row, 24, self.value_count);
        put(&mut row, 28, self.text_len);
        row[56..64].copy_from_slice(&self.fingerprint.to_le_bytes());
        row
    }
}

/// One message or struct type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeRow {
    /// Full name, without a leading dot.
    pub name: Text,
    /// Index of its first field row; the rows of one type stand together, by ascending number.
    pub first_field: u32,
    /// Its fields.
    pub field_count: u32,
    /// Bytes of its record, a multiple of eight.
    pub record_len: u32,
    /// `MAP_ENTRY` and so on.
    pub flags: u32,
}

impl TypeRow {
    /// Bytes of a row.
    pub const LEN: usize = 24;
    /// The entry of a map: field 1 is the key, field 2 the value.
    pub const MAP_ENTRY: u32 = 1;
    /// A box around a container that is itself an element (Thrift's `list<list<i32>>`): one field, number 1.
    pub const BOX: u32 = 2;
    /// Exactly one field is set (Thrift).
    pub const UNION: u32 = 4;
    /// An exception (Thrift).
    pub const EXCEPTION: u32 = 8;
    pub(super) const KNOWN_FLAGS: u32 = 15;

    pub(super) fn parse(row: &[u8]) -> TypeRow {
        TypeRow {
            name: text(row, 0),
            first_field: word(row, 8),
            field_count: word(row, 12),
            record_len: word(row, 16),
            flags: word(row, 20),
        }
    }

    /// The row as it lies in the blob.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut row = [0; Self::LEN];
        put_text(&mut row, 0, self.name);
        put(&mut row, 8, self.first_field);
        put(&mut row, 12, self.field_count);
        put(&mut row, 16, self.record_len);
        put(&mut row, 20, self.flags);
        row
    }
}

/// One field of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldRow {
    /// Field number, or Thrift field id.
    pub number: u32,
    /// What it holds.
    pub kind: Kind,
    /// How often.
    pub label: Label,
    /// `PACKED` and so on.
    pub flags: u16,
    /// Where its slot lies in the record.
    pub slot_off: u32,
    /// Index of its message or enum type, or [`super::NO_AUX`].
    pub aux_idx: u32,
    /// Where its oneof's tag word lies in the record; 0 outside a oneof.
    pub oneof_off: u32,
    /// Value when absent: bits of a scalar (32-bit ones sign-extended), or a text's offset and, in the upper
    /// half, its length.
    pub default_bits: u64,
    /// Name in the schema.
    pub name: Text,
    /// Name in JSON.
    pub json_name: Text,
}

impl FieldRow {
    /// Bytes of a row.
    pub const LEN: usize = 48;
    /// Encoded as one packed run (protobuf lists of scalars).
    pub const PACKED: u16 = 1;
    /// Strings are checked for UTF-8 when decoded.
    pub const UTF8: u16 = 2;
    /// Values that the enum does not list are kept as unknown fields.
    pub const CLOSED: u16 = 4;
    /// Encoded between group tags.
    pub const DELIMITED: u16 = 8;
    /// In a header type: names the function that is called (Cerebros' marker).
    pub const FUNCTION: u16 = 16;
    /// A Thrift set.
    pub const SET: u16 = 32;
    /// The schema states the default.
    pub const DEFAULT: u16 = 64;
    /// A list, set or map that must be sent, if only as an empty one (Thrift).
    pub const SENT: u16 = 128;
    pub(super) const KNOWN_FLAGS: u16 = 255;

    /// Whether this flag is set.
    #[must_use]
    #[inline]
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// The text of a string or bytes default.
    #[must_use]
    pub fn default_text(&self) -> Text {
        Text { off: self.default_bits as u32, len: (self.default_bits >> 32) as u32 }
    }

    pub(super) fn parse(row: &[u8]) -> Result<FieldRow, &'static str> {
        if word(row, 20) != 0 {
            return Err("its reserved word is not zero");
        }
        Ok(FieldRow {
            number: word(row, 0),
            kind: Kind::from_number(row[4]).ok_or("its kind is not known")?,
            label: Label::from_number(row[5]).ok_or("its label is not known")?,
            flags: u16::from_le_bytes([row[6], row[7]]),
            slot_off: word(row, 8),
            aux_idx: word(row, 12),
            oneof_off: word(row, 16),
            default_bits: u64::from(word(row, 24)) | u64::from(word(row, 28)) << 32,
            name: text(row, 32),
            json_name: text(row, 40),
        })
    }

    /// The row as it lies in the blob.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut row = [0; Self::LEN];
        put(&mut row, 0, self.number);
        row[4] = self.kind as u8;
        row[5] = self.label as u8;
        row[6..8].copy_from_slice(&self.flags.to_le_bytes());
        put(&mut row, 8, self.slot_off);
        put(&mut row, 12, self.aux_idx);
        put(&mut row, 16, self.oneof_off);
        row[24..32].copy_from_slice(&self.default_bits.to_le_bytes());
        put_text(&mut row, 32, self.name);
        put_text(&mut row, 40, self.json_name);
        row
    }
}

/// One enum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EnumRow {
    /// Full name, without a leading dot.
    pub name: Text,
    /// Index of its first value row.
    pub first_value: u32,
    /// Its values.
    pub value_count: u32,
    /// [`EnumRow::CLOSED`] or 0.
    pub flags: u32,
}

impl EnumRow {
    /// Bytes of a row.
    pub const LEN: usize = 24;
    /// Values that are not listed do not belong to it.
    pub const CLOSED: u32 = 1;

    pub(super) fn parse(row: &[u8]) -> EnumRow {
        EnumRow {
            name: text(row, 0),
            first_value: word(row, 8),
            value_count: word(row, 12),
            // A reserved word that is not zero is a flag that nobody knows.
            flags: word(row, 16) | u32::from(word(row, 20) != 0) << 31,
        }
    }

    /// The row as it lies in the blob.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut row = [0; Self::LEN];
        put_text(&mut row, 0, self.name);
        put(&mut row, 8, self.first_value);
        put(&mut row, 12, self.value_count);
        put(&mut row, 16, self.flags);
        row
    }
}

/// One value of an enum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueRow {
    /// Its number.
    pub number: i32,
    /// Its name.
    pub name: Text,
}

impl ValueRow {
    /// Bytes of a row.
    pub const LEN: usize = 12;

    pub(super) fn parse(row: &[u8]) -> ValueRow {
        ValueRow { number: word(row, 0) as i32, name: text(row, 4) }
    }

    /// The row as it lies in the blob.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut row = [0; Self::LEN];
        put(&mut row, 0, self.number as u32);
        put_text(&mut row, 4, self.name);
        row
    }
}
