//! Descriptor sets of each syntax and edition, and what their fields come to mean.

use tollfree_schema::{Field, Kind, Label, Role, Schema, SchemaError};

/// One field of a message on the wire: a varint, or bytes.
fn put(number: u32, value: impl Into<Put>) -> Vec<u8> {
    let mut out = Vec::new();
    match value.into() {
        Put::Varint(value) => {
            prost::encoding::encode_varint(u64::from(number << 3), &mut out);
            prost::encoding::encode_varint(value, &mut out);
        }
        Put::Bytes(bytes) => {
            prost::encoding::encode_varint(u64::from(number << 3 | 2), &mut out);
            prost::encoding::encode_varint(bytes.len() as u64, &mut out);
            out.extend(bytes);
        }
    }
    out
}

enum Put {
    Varint(u64),
    Bytes(Vec<u8>),
}

impl From<u64> for Put {
    fn from(value: u64) -> Put {
        Put::Varint(value)
    }
}

impl From<&str> for Put {
    fn from(value: &str) -> Put {
        Put::Bytes(value.into())
    }
}

impl From<Vec<u8>> for Put {
    fn from(value: Vec<u8>) -> Put {
        Put::Bytes(value)
    }
}

const EDITION_2023: u64 = 1000;

/// A descriptor set of one edition-2023 file: its features, then what else it has.
fn edition(edition: u64, features: Vec<u8>, rest: &[Vec<u8>]) -> Vec<u8> {
    let file = [
        put(1, "e.proto"),
        put(2, "e"),
        put(12, "editions"),
        put(14, edition),
        put(8, put(50, features)),
        rest.concat(),
    ];
    put(1, file.concat())
}

fn field(name: &str, number: u64, label: u64, kind: u64, more: &[Vec<u8>]) -> Vec<u8> {
    put(2, [put(1, name), put(3, number), put(4, label), put(5, kind), more.concat()].concat())
}

fn message(name: &str, parts: &[Vec<u8>]) -> Vec<u8> {
    put(4, [put(1, name), parts.concat()].concat())
}

fn fields<'s>(schema: &'s Schema, name: &str) -> Vec<&'s Field> {
    schema.messages[schema.message_by_name(name).unwrap()].fields.iter().collect()
}

const OPTIONAL: u64 = 1;
const REPEATED: u64 = 3;
const INT32: u64 = 5;
const STRING: u64 = 9;
const MESSAGE: u64 = 11;
const ENUM: u64 = 14;

#[test]
fn edition_defaults_and_overrides_at_every_level() {
    let enum_type = |name: &str, options: Vec<u8>| {
        put(5, [put(1, name), put(2, [put(1, "A"), put(2, 0)].concat()), options].concat())
    };
    let of = |name: &str| put(6, name);
    let set = edition(
        EDITION_2023,
        put(3, 2),
        &[
            message(
                "M",
                &[
                    field("a", 1, OPTIONAL, INT32, &[]),
                    field("b", 2, OPTIONAL, INT32, &[put(8, put(21, put(1, 2)))]),
                    field("c", 3, OPTIONAL, INT32, &[put(8, put(21, put(1, 3)))]),
                    field("d", 4, REPEATED, INT32, &[]),
                    field("e", 5, REPEATED, INT32, &[put(8, put(21, put(3, 1)))]),
                    field("f", 6, OPTIONAL, STRING, &[]),
                    field("g", 7, OPTIONAL, STRING, &[put(8, put(21, put(4, 3)))]),
                    field("h", 8, OPTIONAL, MESSAGE, &[of(".e.M"), put(8, put(21, put(5, 2)))]),
                    field("i", 9, OPTIONAL, MESSAGE, &[of(".e.M")]),
                    field("j", 10, OPTIONAL, ENUM, &[of(".e.Open")]),
                    field("k", 11, OPTIONAL, ENUM, &[of(".e.Closed")]),
                ],
            ),
            // The message's features hold for its fields.
            message("N", &[put(7, put(12, put(1, 2))), field("a", 1, OPTIONAL, INT32, &[])]),
            enum_type("Open", vec![]),
            enum_type("Closed", put(3, put(7, put(2, 2)))),
        ],
    );
    let schema = Schema::from_descriptor_set(&set).unwrap();
    let m = fields(&schema, "e.M");
    let labels: Vec<_> = m.iter().map(|f| f.label).collect();
    assert_eq!(labels[..5], [Label::Explicit, Label::Implicit, Label::Required, Label::List, Label::List]);
    assert_eq!((m[3].packed, m[4].packed), (false, true), "the file says expanded, one field packed");
    assert_eq!((m[5].utf8, m[6].utf8), (true, false));
    assert_eq!((m[7].delimited, m[8].delimited), (true, false));
    assert_eq!(fields(&schema, "e.N")[0].label, Label::Implicit);
    assert_eq!(schema.enums.iter().map(|item| item.closed).collect::<Vec<_>>(), [false, true]);
    schema.compile().unwrap();
}

#[test]
fn a_delimited_file_keeps_its_maps_length_prefixed() {
    let entry = put(
        3,
        [
            put(1, "ItemsEntry"),
            field("key", 1, OPTIONAL, INT32, &[]),
            field("value", 2, OPTIONAL, MESSAGE, &[put(6, ".e.M")]),
            put(7, put(7, 1)),
        ]
        .concat(),
    );
    let set = edition(
        EDITION_2023,
        put(5, 2),
        &[message(
            "M",
            &[
                field("items", 1, REPEATED, MESSAGE, &[put(6, ".e.M.ItemsEntry")]),
                field("next", 2, OPTIONAL, MESSAGE, &[put(6, ".e.M")]),
                entry,
            ],
        )],
    );
    let schema = Schema::from_descriptor_set(&set).unwrap();
    let m = fields(&schema, "e.M");
    assert_eq!((m[0].label, m[0].delimited, m[1].delimited), (Label::Map, false, true));
    let entry = &schema.messages[m[0].target_idx.unwrap()];
    assert_eq!(entry.role, Role::MapEntry);
    assert!(entry.fields.iter().all(|f| f.label == Label::Explicit && !f.delimited));
    schema.compile().unwrap();
}

/// Compiles one file with protox.
fn compiled(source: &str) -> Schema {
    let dir = std::env::temp_dir().join(format!("tollfree-schema-{}-{:p}", std::process::id(), source));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("a.proto"), source).unwrap();
    let set = protox::compile(["a.proto"], [&dir]).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    Schema::from_descriptor_set(&prost::Message::encode_to_vec(&set)).unwrap()
}

#[test]
fn proto2_and_proto3_differ_where_they_do() {
    let two = compiled(
        "syntax = \"proto2\"; package p; enum E { X = 3; Y = 1; }
         message M { required int32 a = 1; optional string b = 2 [default = \"q\"]; repeated int32 c = 3;
           repeated int32 d = 4 [packed = true]; optional group G = 5 { optional E e = 1; }
           optional double f = 6 [default = -inf]; oneof o { int32 u = 7; string v = 8; } extensions 10 to 20; }
         extend M { optional int32 x = 10; }",
    );
    let m = fields(&two, "p.M");
    assert_eq!(m.iter().map(|f| f.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8], "no extension");
    assert_eq!(
        (m[0].label, m[1].label, m[2].packed, m[3].packed),
        (Label::Required, Label::Explicit, false, true)
    );
    assert!(m[4].delimited && m[4].kind == Kind::Message && !m[1].utf8);
    assert_eq!(m[1].default.as_deref(), Some(&b"q"[..]));
    assert_eq!(m[6].oneof_idx, Some(0));
    let table = two.compile().unwrap();
    let rows = table.fields_of(table.type_by_name("p.M").unwrap());
    assert_eq!(rows[5].default_bits, f64::NEG_INFINITY.to_bits());
    assert_eq!(table.text(rows[1].default_text()), "q");
    assert_eq!(rows[6].slot_off, rows[7].slot_off, "members of a oneof share their place");
    // Of an enum without a stated default, the first value of the schema, not the lowest.
    let group = table.fields_of(table.type_by_name("p.M.G").unwrap());
    assert_eq!(group[0].default_bits, 3);
    assert_eq!(table.values_of(0)[0].number, 1);

    let three = compiled(
        "syntax = \"proto3\"; package p; message M { int32 a = 1; optional int32 b = 2; repeated int32 c = 3;
         string some_long_name = 4; M m = 5; map<string, M> n = 6; repeated int32 d = 7 [packed = false]; }
         service S { rpc Do(M) returns (stream M); }",
    );
    let m = fields(&three, "p.M");
    assert_eq!((m[0].label, m[1].label, m[1].oneof_idx), (Label::Implicit, Label::Explicit, None));
    assert_eq!((m[2].packed, m[6].packed, m[3].utf8, m[4].label), (true, false, true, Label::Explicit));
    assert_eq!(m[3].json_name, "someLongName");
    let method = &three.services[0].methods[0];
    assert_eq!(
        (three.services[0].name.as_str(), method.server_streaming, method.client_streaming),
        ("p.S", true, false)
    );
    assert_eq!(three.compile().unwrap().blob(), three.compile().unwrap().blob());
}

#[test]
fn what_is_wrong_is_named() {
    let error = |set: &[u8]| Schema::from_descriptor_set(set).unwrap_err();
    let one = |field: Vec<u8>| edition(EDITION_2023, vec![], &[message("M", &[field])]);
    assert!(matches!(error(&[0x0a, 5, 1]), SchemaError::Malformed { .. }));
    assert!(error(&edition(1500, vec![], &[])).to_string().contains("edition number 1500"));
    let missing = error(&one(field("a", 1, OPTIONAL, MESSAGE, &[put(6, ".e.Gone")])));
    assert!(missing.to_string().contains("e.M.a") && missing.to_string().contains(".e.Gone"), "{missing}");
    assert!(matches!(error(&one(field("a", 0, OPTIONAL, INT32, &[]))), SchemaError::Invalid { .. }));
    assert!(matches!(error(&one(field("a", 1, OPTIONAL, 19, &[]))), SchemaError::Invalid { .. }));
    let default = error(&one(field("a", 1, OPTIONAL, INT32, &[put(7, "many")])));
    assert!(default.to_string().contains("many"), "{default}");
    let twice = edition(EDITION_2023, vec![], &[message("M", &[]), message("M", &[])]);
    assert!(matches!(error(&twice), SchemaError::Duplicate { name } if name == "e.M"));
    let same_number =
        one([field("a", 1, OPTIONAL, INT32, &[]), field("b", 1, OPTIONAL, INT32, &[])].concat());
    let schema = Schema::from_descriptor_set(&same_number).unwrap();
    assert!(matches!(schema.compile(), Err(SchemaError::Invalid { name, .. }) if name == "e.M.b"));
}

/// What a Thrift front end builds: containers in containers, ids from 0, narrow integers.
#[test]
fn thrift_shapes_compile() {
    let message = |name: &str, role, fields| tollfree_schema::Message {
        name: name.into(),
        role,
        fields,
        oneofs: vec![],
    };
    let refer = |number, name: &str, kind, label, target| Field {
        target_idx: Some(target),
        ..Field::new(number, name, kind, label)
    };
    let schema = Schema {
        messages: vec![
            message(
                "Struct",
                Role::Plain,
                vec![
                    Field::new(0, "success", Kind::I16, Label::Explicit),
                    Field::new(300, "tiny", Kind::I8, Label::Required),
                    Field { set: true, ..Field::new(1, "names", Kind::String, Label::List) },
                    refer(2, "rows", Kind::Message, Label::List, 1),
                    refer(3, "index", Kind::Message, Label::Map, 2),
                ],
            ),
            message("list<i32>", Role::Box, vec![Field::new(1, "value", Kind::Int32, Label::List)]),
            message(
                "map<string, list<list<i32>>>",
                Role::MapEntry,
                vec![
                    Field::new(1, "key", Kind::String, Label::Explicit),
                    refer(2, "value", Kind::Message, Label::List, 1),
                ],
            ),
        ],
        ..Schema::default()
    };
    let table = schema.compile().unwrap();
    let rows = table.fields_of(0);
    assert_eq!(rows.iter().map(|row| row.number).collect::<Vec<_>>(), [0, 1, 2, 3, 300]);
    assert_eq!(table.types()[0].record_len, 24);
}
