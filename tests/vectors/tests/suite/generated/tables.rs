//! Tables that a loader takes, tables that it has to refuse, and fingerprints.

use serde_json::{Value, json};
use tollfree_layout::table::{Table, TableHeader};
use tollfree_vectors::to_hex;

use super::broken_tables::{broken, sealed};
use super::{case, hold, refused, schemas};

fn good(name: &str, table: &Table) -> Value {
    let types: Vec<&str> = table.types().iter().map(|row| table.text(row.name)).collect();
    let rows = (0..types.len()).flat_map(|type_idx| table.fields_of(type_idx as u32));
    let fields: Vec<String> = rows.map(|row| format!("{} {}", row.number, table.text(row.name))).collect();
    let answer =
        json!({ "fingerprint": format!("{:016x}", table.fingerprint()), "types": types, "fields": fields });
    case("table", name, "table.md, Sections", json!({ "table": to_hex(table.blob()) }), answer)
}

#[test]
fn tables_are_as_written_down() {
    let (three, two, thrift) = (schemas::three(), schemas::two(), schemas::thrift());
    let empty = sealed(TableHeader::default().to_bytes().to_vec());
    let empty = Table::load(&empty).expect("an empty table");
    let mut cases =
        vec![good("proto3", &three), good("proto2", &two), good("Thrift", &thrift), good("nothing", &empty)];
    let mut taken = Vec::new();
    for (name, section, blob) in broken(&three, &two, &thrift) {
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
