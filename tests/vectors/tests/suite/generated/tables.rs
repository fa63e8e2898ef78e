//! Tables that a loader takes, tables that it has to refuse, and fingerprints.

use serde_json::{Value, json};
use tollfree_layout::table::{EnumRow, FieldRow, Fingerprint, HEADER_LEN, Table, TableHeader, TypeRow};
use tollfree_vectors::to_hex;

use super::{case, hold, refused, schemas};

/// Where the rows of a table lie.
struct Places {
    types: usize,
    fields: usize,
    enums: usize,
    values: usize,
}

fn places(table: &Table) -> Places {
    let fields = HEADER_LEN + table.types().len() * TypeRow::LEN;
    let enums = fields + table.fields().len() * FieldRow::LEN;
    Places { types: HEADER_LEN, fields, enums, values: enums + table.enums().len() * EnumRow::LEN }
}

fn put(blob: &mut [u8], at: usize, value: u32) {
    blob[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// The blob with its fingerprint made right, so that only what a case is about is wrong.
fn sealed(mut blob: Vec<u8>) -> Vec<u8> {
    let fingerprint = Fingerprint::of_blob(&blob).to_le_bytes();
    blob[HEADER_LEN - 8..HEADER_LEN].copy_from_slice(&fingerprint);
    blob
}

fn good(name: &str, table: &Table) -> Value {
    let types: Vec<&str> = table.types().iter().map(|row| table.text(row.name)).collect();
    let rows = (0..types.len()).flat_map(|type_idx| table.fields_of(type_idx as u32));
    let fields: Vec<String> = rows.map(|row| format!("{} {}", row.number, table.text(row.name))).collect();
    let answer =
        json!({ "fingerprint": format!("{:016x}", table.fingerprint()), "types": types, "fields": fields });
    case("table", name, "table.md, Sections", json!({ "table": to_hex(table.blob()) }), answer)
}

/// A table that is wrong at one place.
type Bad = (&'static str, &'static str, Vec<u8>);

fn bad(table: &Table) -> Vec<Bad> {
    let at = places(table);
    let field = |type_name: &str, number: u32| {
        let type_idx = table.type_by_name(type_name).expect("a type");
        let first = table.types()[type_idx as usize].first_field as usize;
        let place = table.fields_of(type_idx).iter().position(|row| row.number == number).expect("a field");
        at.fields + (first + place) * FieldRow::LEN
    };
    let order = at.types + table.type_by_name("shop.Order").expect("a type") as usize * TypeRow::LEN;
    let row = |number| field("shop.Order", number);
    let blob = table.blob();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut blob = blob.to_vec();
        change(&mut blob);
        sealed(blob)
    };
    let word = |at: usize, value: u32| with(&|blob| put(blob, at, value));
    let byte = |at: usize, value: u8| with(&|blob| blob[at] = value);
    let slot = |number: u32| {
        let type_idx = table.type_by_name("shop.Order").expect("a type");
        table.fields_of(type_idx).iter().find(|row| row.number == number).expect("a field").slot_off
    };
    const HEADER: &str = "table.md, Header";
    const TYPE: &str = "table.md, Type row";
    const FIELD: &str = "table.md, Field row";
    const LOADER: &str = "table.md, What a loader checks";
    const ENUM: &str = "table.md, Enum and value rows";
    let mut damaged = blob.to_vec();
    *damaged.last_mut().expect("a byte") ^= 1;
    vec![
        ("no bytes", HEADER, Vec::new()),
        ("a header cut off", HEADER, blob[..63].to_vec()),
        ("a byte too few", HEADER, blob[..blob.len() - 1].to_vec()),
        ("a byte too much", HEADER, sealed([blob, &[0]].concat())),
        ("other magic", HEADER, byte(0, b'X')),
        ("version 2", HEADER, byte(4, 2)),
        ("a flag", HEADER, byte(6, 1)),
        ("a length that is not the blob's", HEADER, word(8, blob.len() as u32 + 1)),
        ("a type row that is not there", LOADER, word(12, table.types().len() as u32 + 1)),
        ("a reserved byte", HEADER, byte(32, 1)),
        ("a damaged byte", HEADER, damaged),
        ("a text that begins beyond the end", LOADER, word(order, u32::MAX)),
        ("a type's fields that begin elsewhere", TYPE, word(order + 8, 1_000)),
        ("a record's length that is no multiple of 8", TYPE, {
            let len = table.types()[table.type_by_name("shop.Order").expect("a type") as usize].record_len;
            word(order + 16, len + 4)
        }),
        ("a record longer than any", TYPE, word(order + 16, (1 << 20) + 8)),
        ("an unknown flag of a type", TYPE, word(order + 20, 16)),
        ("a map entry and a box", TYPE, word(order + 20, 3)),
        ("fields out of order", TYPE, word(row(2), 1)),
        ("a field's number above the largest", FIELD, word(row(14), 1 << 29)),
        ("a kind that is none", FIELD, byte(row(2) + 4, 10)),
        ("a label that is none", FIELD, byte(row(2) + 5, 5)),
        ("an unknown flag of a field", FIELD, byte(row(2) + 7, 1)),
        ("a packed field that is no list", FIELD, byte(row(2) + 6, 1)),
        ("an integer that is checked for UTF-8", FIELD, byte(row(2) + 6, 2)),
        ("a message that is implicit", FIELD, byte(row(3) + 5, 0)),
        ("a message of a type that is not there", FIELD, word(row(3) + 12, 1_000)),
        ("an integer with a type", FIELD, word(row(2) + 12, 0)),
        ("a reserved word of a field", FIELD, word(row(2) + 20, 1)),
        (
            "a map whose type is no entry",
            FIELD,
            word(row(6) + 12, table.type_by_name("shop.Item").expect("a type")),
        ),
        ("a oneof's member that is implicit", FIELD, byte(row(7) + 5, 0)),
        ("a slot in the record's head", LOADER, word(row(2) + 8, 0)),
        ("a slot beyond the record", LOADER, word(row(2) + 8, 1 << 16)),
        ("a slot that is not aligned", LOADER, word(row(2) + 8, slot(2) + 1)),
        ("slots that overlap", LOADER, word(row(10) + 8, slot(13))),
        ("a tag word in the record's head", LOADER, word(row(7) + 16, 4)),
        ("a name that is not UTF-8", "table.md, Sections", {
            let name = table.fields_of(table.type_by_name("shop.Order").expect("a type"))[0].name;
            byte(
                at.values
                    + table.enums().iter().map(|row| row.value_count as usize * 12).sum::<usize>()
                    + name.off as usize,
                0xff,
            )
        }),
        ("values that begin elsewhere", ENUM, word(at.enums + 8, 1)),
        ("an unknown flag of an enum", ENUM, word(at.enums + 16, 2)),
        ("a reserved word of an enum", ENUM, word(at.enums + 20, 1)),
        ("values out of order", ENUM, word(at.values, 2)),
    ]
}

#[test]
fn tables_are_as_written_down() {
    let (three, two, thrift) = (schemas::three(), schemas::two(), schemas::thrift());
    let empty = sealed(TableHeader::default().to_bytes().to_vec());
    let empty = Table::load(&empty).expect("an empty table");
    let mut cases =
        vec![good("proto3", &three), good("proto2", &two), good("Thrift", &thrift), good("nothing", &empty)];
    let mut taken = Vec::new();
    for (name, section, blob) in bad(&three) {
        match Table::load(&blob) {
            Ok(_) => taken.push(name),
            Err(words) => {
                cases.push(refused(
                    "table",
                    name,
                    section,
                    json!({ "table": to_hex(&blob) }),
                    words.to_string(),
                ));
            }
        }
    }
    assert!(taken.is_empty(), "these were not refused: {taken:?}");
    for table in [&three, &two, &thrift] {
        for (type_idx, row) in table.types().iter().enumerate() {
            let name = table.text(row.name);
            let input = json!({ "table": to_hex(table.blob()), "type": name });
            let fingerprint = format!("{:016x}", table.type_fingerprint(type_idx as u32));
            let section = "table.md, The fingerprint of a type";
            cases.push(case("fingerprint", name, section, input, json!({ "fingerprint": fingerprint })));
        }
    }
    hold("tables.json", &cases);
}
