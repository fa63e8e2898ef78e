//! The schemas of the vectors, as tables.

use tollfree_layout::table::Table;
use tollfree_schema::Schema;

const THREE: &str = "syntax = \"proto3\"; package shop;
enum State { UNKNOWN = 0; OPEN = 1; DONE = 5; }
message Item { string name = 1; Item child = 2; sint32 count = 3; }
message Order {
  string id = 1; int64 amount = 2; Item item = 3; repeated Item items = 4; repeated int32 numbers = 5;
  map<string, int32> counts = 6;
  oneof pay { string card = 7; bytes cash = 8; Item barter = 9; }
  State state = 10; optional double rate = 11; bool paid = 12; fixed32 code = 13; repeated string tags = 14;
}";

const TWO: &str = "syntax = \"proto2\"; package old;
enum Size { SMALL = 3; LARGE = 1; }
message Order {
  required int32 id = 1; optional Size size = 2 [default = LARGE]; optional string note = 3 [default = \"none\"];
  optional group Part = 4 { optional bool whole = 1; }
  repeated Size sizes = 5; repeated sint64 packed = 6 [packed = true]; map<int32, Size> by_id = 7;
  optional int32 less = 8 [default = -1];
}";

const THRIFT: &str = "enum Way { AIR = 1, SEA = 2 }
struct Load { 1: required i32 id, 2: list<list<i64>> rows, 3: map<string, Way> ways, 4: set<i16> marks, 5: optional string note = \"x\" }
exception Lost { 1: string why }
service Port { Load find(1: i32 id, 2: list<string> names) throws (1: Lost lost), oneway void forget(1: i32 id) }";

fn protobuf(source: &str) -> Table {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("a.proto"), source).expect("it can be written");
    let set = protox::compile(["a.proto"], [directory.path()]).expect("it is a proto");
    let set = prost::Message::encode_to_vec(&set);
    Schema::from_descriptor_set(&set).and_then(|schema| schema.compile()).expect("it has a table")
}

/// A schema of proto3: implicit fields, a oneof, a map, a type that contains itself.
pub(super) fn three() -> Table {
    protobuf(THREE)
}

/// A schema of proto2: required fields, defaults, closed enums, a group.
pub(super) fn two() -> Table {
    protobuf(TWO)
}

/// A Thrift file: boxes, maps, sets, functions.
pub(super) fn thrift() -> Table {
    Schema::from_thrift("port.thrift", THRIFT).and_then(|schema| schema.compile()).expect("it has a table")
}
