//! Objects that cross between two ends whose schemas are not the same.

use prost::Message;
use tollfree_processor::{Arena, Limits, Processor, VerifyError};
use tollfree_schema::Schema;

const OLD: &str = r#"
    syntax = "proto2";
    package p;
    enum Color { RED = 0; BLUE = 3; }
    message Price { optional string currency = 1 [default = "EUR"]; optional int64 units = 2; repeated Price parts = 3; }
    message Order { optional Price total = 1; repeated string lines = 2; optional Color color = 3; oneof way { string card = 4; Price cash = 5; } }
"#;

fn processor(source: &str) -> Processor {
    let name = "p.proto";
    let file = protox::file::File::from_source(name, source).unwrap();
    let mut compiler = protox::Compiler::with_file_resolver(One(file));
    compiler.include_imports(true).open_file(name).unwrap();
    let set = compiler.file_descriptor_set().encode_to_vec();
    Processor::new(Schema::from_descriptor_set(&set).unwrap().compile().unwrap())
}

struct One(protox::file::File);

impl protox::file::FileResolver for One {
    fn open_file(&self, _: &str) -> Result<protox::file::File, protox::Error> {
        Ok(self.0.clone())
    }
}

fn fingerprint(p: &Processor, name: &str) -> u64 {
    p.table().type_fingerprint(p.type_by_name(name).unwrap())
}

#[test]
fn what_a_type_does_not_reach_and_what_it_is_called_does_not_part_two_ends() {
    let old = processor(OLD);
    let new = OLD
        .replace("message Price", "message Unrelated { optional Order order = 1; } message Price")
        .replace("units", "amount")
        .replace("message Order {", "message Order { message Inner { optional int32 x = 1; }");
    let new = processor(&new);
    let (old_idx, new_idx) = (old.type_by_name("p.Order").unwrap(), new.type_by_name("p.Order").unwrap());
    assert_ne!(old_idx, new_idx);
    assert_ne!(old.table().fingerprint(), new.table().fingerprint());
    // total { units: 7 parts {} } lines: "a" cash { units: 1 }
    let input = [10, 4, 16, 7, 26, 0, 18, 1, b'a', 42, 2, 16, 1];
    let mut arena = Arena::with_limit(1 << 16);
    let object = old.decode(old_idx, &input, &mut arena, &Limits::default()).unwrap();
    let read = new.verify(new_idx, object.bytes(), 100).unwrap();
    assert_eq!(read.encode(&mut tollfree_processor::EncodeBuffer::new()).unwrap(), input);
    assert!(format!("{:?}", read.root()).contains("amount: I64(7)"), "{:?}", read.root());
    let price = new.type_by_name("p.Price").unwrap();
    let refused = new.verify(price, object.bytes(), 100).unwrap_err();
    assert!(matches!(&refused, VerifyError::Type { type_name, .. } if type_name == "p.Price"), "{refused}");
}

#[test]
fn whatever_a_type_reaches_shows_in_its_fingerprint() {
    let old = processor(OLD);
    for (what, with) in [
        ("int64 units = 2", "uint64 units = 2"),
        ("int64 units = 2", "int64 units = 4"),
        ("repeated Price parts", "optional Price parts"),
        ("optional Price total = 1;", "optional Price total = 1; optional bool more = 9;"),
        ("\"EUR\"", "\"USD\""),
        ("BLUE = 3", "BLUE = 4"),
        ("BLUE = 3;", "BLUE = 3; GREEN = 5;"),
        ("repeated string lines", "repeated bytes lines"),
        (
            "oneof way { string card = 4; Price cash = 5; }",
            "optional string card = 4; optional Price cash = 5;",
        ),
        ("repeated Price parts = 3", "repeated Order parts = 3"),
    ] {
        let changed = OLD.replace(what, with);
        assert_ne!(changed, OLD, "{what}");
        assert_ne!(fingerprint(&processor(&changed), "p.Order"), fingerprint(&old, "p.Order"), "{with}");
    }
    let only_order = OLD.replace("string card = 4", "string card = 7");
    assert_eq!(fingerprint(&processor(&only_order), "p.Price"), fingerprint(&old, "p.Price"));
    assert_ne!(fingerprint(&processor(&only_order), "p.Order"), fingerprint(&old, "p.Order"));
}

/// `spec/table.md` says what goes in; other implementations have to come to the same.
#[test]
fn the_fingerprint_is_the_one_written_down() {
    let p = processor("syntax = \"proto3\"; package p; message Pair { string key = 1; int32 value = 2; }");
    // Version; record of 24 bytes, no flags, two fields; number, kind and label and flags, slot, oneof, aux, default.
    let words = [2, 24, 0, 2, 1, 9 | 2 << 16, 8, 0, u32::MAX, 0, 2, 5, 16, 0, u32::MAX, 0, 0u32];
    let print =
        words.iter().flat_map(|word| word.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    assert_eq!(fingerprint(&p, "p.Pair"), print);
}
