//! Tables that are wrong at one place: one for each rule that a loader holds a table to.
//!
//! Two rules have none, since only very long tables break them: a type with more than 65,535 fields, and a table of more than 2^28 bytes.

use tollfree_layout::table::{
    EnumRow, FieldRow, Fingerprint, HEADER_LEN, Kind, Label, Table, TypeRow, ValueRow,
};

const HEADER: &str = "table.md, Header";
const SECTIONS: &str = "table.md, Sections";
const TYPE: &str = "table.md, Type row";
const FIELD: &str = "table.md, Field row";
const LOADER: &str = "table.md, What a loader checks";
const ENUM: &str = "table.md, Enum and value rows";

/// A table that is wrong at one place: what is wrong, where that is written down, and the blob.
type Broken = (&'static str, &'static str, Vec<u8>);

/// The blob with its fingerprint made right, so that only what a case is about is wrong.
pub(super) fn sealed(mut blob: Vec<u8>) -> Vec<u8> {
    let fingerprint = Fingerprint::of_blob(&blob).to_le_bytes();
    blob[HEADER_LEN - 8..HEADER_LEN].copy_from_slice(&fingerprint);
    blob
}

fn put(blob: &mut [u8], at: usize, value: u32) {
    blob[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn get(blob: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(blob[at..at + 4].try_into().expect("four bytes"))
}

/// A good table, to be changed; and where its rows lie.
struct Sample<'t> {
    table: &'t Table,
    fields: usize,
    enums: usize,
    values: usize,
    text: usize,
}

impl<'t> Sample<'t> {
    fn new(table: &'t Table) -> Sample<'t> {
        let fields = HEADER_LEN + table.types().len() * TypeRow::LEN;
        let enums = fields + table.fields().len() * FieldRow::LEN;
        let values = enums + table.enums().len() * EnumRow::LEN;
        let value_count: usize = table.enums().iter().map(|row| row.value_count as usize).sum();
        Sample { table, fields, enums, values, text: values + value_count * ValueRow::LEN }
    }

    fn blob(&self) -> &[u8] {
        self.table.blob()
    }

    fn idx(&self, name: &str) -> u32 {
        self.table.type_by_name(name).expect("a type")
    }

    /// Where a type's row lies.
    fn type_row(&self, name: &str) -> usize {
        HEADER_LEN + self.idx(name) as usize * TypeRow::LEN
    }

    fn row(&self, type_name: &str, number: u32) -> &FieldRow {
        let rows = self.table.fields_of(self.idx(type_name));
        rows.iter().find(|row| row.number == number).expect("a field")
    }

    /// Where a field's row lies.
    fn field(&self, type_name: &str, number: u32) -> usize {
        let first = self.table.types()[self.idx(type_name) as usize].first_field as usize;
        let rows = self.table.fields_of(self.idx(type_name));
        let place = rows.iter().position(|row| row.number == number).expect("a field");
        self.fields + (first + place) * FieldRow::LEN
    }

    fn with(&self, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut blob = self.blob().to_vec();
        change(&mut blob);
        sealed(blob)
    }

    fn word(&self, at: usize, value: u32) -> Vec<u8> {
        self.with(|blob| put(blob, at, value))
    }

    fn byte(&self, at: usize, value: u8) -> Vec<u8> {
        self.with(|blob| blob[at] = value)
    }

    /// With one more row at the end of a section, which is like the last one; `counted` is where the header counts them.
    fn with_row(&self, end: usize, len: usize, counted: usize) -> Vec<u8> {
        self.with(|blob| {
            let row = blob[end - len..end].to_vec();
            drop(blob.splice(end..end, row));
            let count = get(blob, counted) + 1;
            put(blob, counted, count);
            let blob_len = blob.len() as u32;
            put(blob, 8, blob_len);
        })
    }

    /// With a long text behind the others, and what refers to all of that.
    fn with_long_text(&self, refer: impl FnOnce(&mut [u8], u32)) -> Vec<u8> {
        self.with(|blob| {
            blob.resize(blob.len() + 4000, b'a');
            let (blob_len, text_len) = (blob.len() as u32, (blob.len() - self.text) as u32);
            put(blob, 8, blob_len);
            put(blob, 28, text_len);
            refer(blob, text_len);
        })
    }
}

fn headers(three: &Sample<'_>) -> Vec<Broken> {
    let blob = three.blob();
    let mut damaged = blob.to_vec();
    *damaged.last_mut().expect("a byte") ^= 1;
    let one_more = |at: usize| three.word(at, get(blob, at) + 1);
    vec![
        ("no bytes", HEADER, Vec::new()),
        ("a header cut off", HEADER, blob[..63].to_vec()),
        ("a byte too few", HEADER, blob[..blob.len() - 1].to_vec()),
        ("a byte too much", HEADER, sealed([blob, &[0]].concat())),
        ("other magic", HEADER, three.byte(0, b'X')),
        ("version 2", HEADER, three.byte(4, 2)),
        ("a flag", HEADER, three.byte(6, 1)),
        ("a length that is not the blob's", HEADER, one_more(8)),
        ("a type row that is not there", LOADER, one_more(12)),
        ("a field row that is not there", LOADER, one_more(16)),
        ("an enum row that is not there", LOADER, one_more(20)),
        ("a value row that is not there", LOADER, one_more(24)),
        ("text that is not there", LOADER, one_more(28)),
        ("a reserved byte", HEADER, three.byte(32, 1)),
        ("the last reserved byte", HEADER, three.byte(55, 1)),
        ("a damaged byte", HEADER, damaged),
    ]
}

fn texts(three: &Sample<'_>, two: &Sample<'_>) -> Vec<Broken> {
    const LONG: u32 = 1 << 20;
    let (order, amount) = (three.type_row("shop.Order"), three.field("shop.Order", 2));
    let name = get(three.blob(), three.field("shop.Order", 1) + 32) as usize;
    let note = two.field("old.Order", 3);
    let default = get(two.blob(), note + 24) as usize;
    let strings = [("shop.Order", 1), ("shop.Order", 7), ("shop.Item", 1), ("shop.Order.CountsEntry", 1)];
    let strings = strings.map(|(of, number)| three.field(of, number));
    vec![
        ("a text that begins beyond the end", LOADER, three.word(order, u32::MAX)),
        ("a type's name that ends beyond the end", LOADER, three.word(order + 4, LONG)),
        ("a field's name that ends beyond the end", LOADER, three.word(amount + 36, LONG)),
        ("a JSON name that ends beyond the end", LOADER, three.word(amount + 44, LONG)),
        ("an enum's name that ends beyond the end", LOADER, three.word(three.enums + 4, LONG)),
        ("a value's name that ends beyond the end", LOADER, three.word(three.values + 8, LONG)),
        ("a default that ends beyond the end", LOADER, two.word(note + 28, LONG)),
        ("a name that is not UTF-8", SECTIONS, three.byte(three.text + name, 0xff)),
        ("a default that is not UTF-8", SECTIONS, two.byte(two.text + default, 0xff)),
        (
            "names that are longer together than 8 times the table",
            SECTIONS,
            three.with_long_text(|blob, text_len| {
                for row in (three.fields..three.enums).step_by(FieldRow::LEN) {
                    [32, 40].into_iter().for_each(|at| {
                        put(blob, row + at, 0);
                        put(blob, row + at + 4, text_len);
                    });
                }
            }),
        ),
        (
            "defaults that are longer together than the table",
            SECTIONS,
            three.with_long_text(|blob, text_len| {
                for row in strings {
                    blob[row + 6] |= 64;
                    put(blob, row + 28, text_len);
                }
            }),
        ),
    ]
}

fn types(three: &Sample<'_>, thrift: &Sample<'_>) -> Vec<Broken> {
    const ENTRY: &str = "shop.Order.CountsEntry";
    const BOX: &str = "box<list<i64>>";
    let order = three.type_row("shop.Order");
    let last = three.table.types().len() - 1;
    let record_len = three.table.types()[three.idx("shop.Order") as usize].record_len;
    let (key, value) = (three.field(ENTRY, 1), three.field(ENTRY, 2));
    let elements = thrift.field(BOX, 1);
    vec![
        ("a type's fields that begin elsewhere", TYPE, three.word(order + 8, 1_000)),
        ("more fields than there are rows", LOADER, three.word(HEADER_LEN + last * TypeRow::LEN + 12, 1_000)),
        ("a field row that belongs to no type", TYPE, three.with_row(three.enums, FieldRow::LEN, 16)),
        ("a record's length that is no multiple of 8", TYPE, three.word(order + 16, record_len + 4)),
        ("a record longer than any", TYPE, three.word(order + 16, (1 << 20) + 8)),
        ("a record shorter than its head", TYPE, three.word(order + 16, 0)),
        ("an unknown flag of a type", TYPE, three.word(order + 20, 16)),
        ("a map entry and a box", TYPE, three.word(order + 20, 3)),
        ("a map entry without field 2", TYPE, three.word(value, 3)),
        ("a map entry whose key is implicit", TYPE, three.byte(key + 5, 0)),
        ("a map entry whose key is required", TYPE, three.byte(key + 5, 2)),
        ("a map entry whose key is in a oneof", TYPE, three.word(key + 16, 8)),
        ("a box without field 1", TYPE, thrift.word(elements, 2)),
        (
            "a box that contains itself",
            TYPE,
            thrift.with(|blob| {
                (blob[elements + 4], blob[elements + 6]) = (Kind::Message as u8, 0);
                put(blob, elements + 12, thrift.idx(BOX));
            }),
        ),
    ]
}

fn fields(three: &Sample<'_>, thrift: &Sample<'_>) -> Vec<Broken> {
    let row = |number| three.field("shop.Order", number);
    let flags = |number, flags| three.byte(row(number) + 6, flags);
    let slot = |number: u32| three.row("shop.Order", number).slot_off;
    let tag = three.row("shop.Order", 7).oneof_off;
    let record_len = three.table.types()[three.idx("shop.Order") as usize].record_len;
    let rows_of = thrift.field("port.Load", 2);
    let success = thrift.field("port.Port.find_result", 0);
    vec![
        ("fields out of order", TYPE, three.word(row(2), 1)),
        ("a field's number above the largest", FIELD, three.word(row(14), 1 << 29)),
        ("a kind that is none", FIELD, three.byte(row(2) + 4, 10)),
        ("a kind above the last", FIELD, three.byte(row(2) + 4, 21)),
        ("a label that is none", FIELD, three.byte(row(2) + 5, 5)),
        ("an unknown flag of a field", FIELD, three.byte(row(2) + 7, 1)),
        ("a packed field that is no list", FIELD, flags(2, 1)),
        ("a packed list of strings", FIELD, flags(14, 1)),
        ("an integer that is checked for UTF-8", FIELD, flags(2, 2)),
        ("an integer that is closed", FIELD, flags(2, 4)),
        ("an integer that is delimited", FIELD, flags(2, 8)),
        ("a map that is delimited", FIELD, flags(6, 8)),
        ("a function that a list names", FIELD, flags(5, 16)),
        ("a function that a bool names", FIELD, flags(12, 16)),
        ("a set that is no list", FIELD, flags(2, 32)),
        ("a list with a default", FIELD, flags(5, 64)),
        ("a message with a default", FIELD, flags(3, 64)),
        ("an integer that must be sent", FIELD, flags(2, 128)),
        ("a default that is not stated", FIELD, three.word(row(2) + 24, 1)),
        ("a message that is implicit", FIELD, three.byte(row(3) + 5, Label::Implicit as u8)),
        ("a message of a type that is not there", FIELD, three.word(row(3) + 12, 1_000)),
        ("an enum that is not there", FIELD, three.word(row(10) + 12, 1_000)),
        ("an integer with a type", FIELD, three.word(row(2) + 12, 0)),
        ("a reserved word of a field", FIELD, three.word(row(2) + 20, 1)),
        ("a map whose type is no entry", FIELD, three.word(row(6) + 12, three.idx("shop.Item"))),
        ("a list of map entries", FIELD, three.word(row(4) + 12, three.idx("shop.Order.CountsEntry"))),
        (
            "a map of integers",
            FIELD,
            three.with(|blob| (blob[row(5) + 5], blob[row(5) + 6]) = (Label::Map as u8, 0)),
        ),
        ("a box that is no element of a list", FIELD, thrift.byte(rows_of + 5, Label::Explicit as u8)),
        ("a oneof's member that is implicit", FIELD, three.byte(row(7) + 5, Label::Implicit as u8)),
        ("a oneof's member that is required", FIELD, three.byte(row(7) + 5, Label::Required as u8)),
        ("a oneof's member with the number 0", FIELD, thrift.word(success + 16, 8)),
        ("a slot in the record's head", LOADER, three.word(row(2) + 8, 0)),
        ("a slot beyond the record", LOADER, three.word(row(2) + 8, 1 << 16)),
        ("a slot that ends beyond the record", LOADER, three.word(row(1) + 8, record_len - 4)),
        ("a slot that is not aligned", LOADER, three.word(row(2) + 8, slot(2) + 1)),
        ("slots that overlap", LOADER, three.word(row(10) + 8, slot(13))),
        ("a tag word in the record's head", LOADER, three.word(row(7) + 16, 4)),
        ("a tag word beyond the record", LOADER, three.word(row(7) + 16, record_len)),
        ("a tag word that is not aligned", LOADER, three.word(row(7) + 16, tag + 2)),
        (
            "a tag word that overlaps a slot",
            LOADER,
            three.with(|blob| [7, 8, 9].into_iter().for_each(|member| put(blob, row(member) + 16, slot(13)))),
        ),
        ("a slot that overlaps one of a oneof's", LOADER, three.word(row(13) + 8, slot(7))),
    ]
}

fn enums(three: &Sample<'_>) -> Vec<Broken> {
    let Sample { enums, values, text, .. } = *three;
    vec![
        ("values that begin elsewhere", ENUM, three.word(enums + 8, 1)),
        ("more values than there are rows", LOADER, three.word(enums + 12, 1_000)),
        ("a value row that belongs to no enum", ENUM, three.with_row(text, ValueRow::LEN, 24)),
        ("an unknown flag of an enum", ENUM, three.word(enums + 16, 2)),
        ("a reserved word of an enum", ENUM, three.word(enums + 20, 1)),
        ("values out of order", ENUM, three.word(values, 2)),
    ]
}

/// A table for each rule, made of good ones.
pub(super) fn broken(three: &Table, two: &Table, thrift: &Table) -> Vec<Broken> {
    let [three, two, thrift] = [three, two, thrift].map(Sample::new);
    [headers(&three), texts(&three, &two), types(&three, &thrift), fields(&three, &thrift), enums(&three)]
        .concat()
}
