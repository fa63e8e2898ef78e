//! The Thrift engines on messages made by hand: what is refused and how errors read, limits, room, headers, dispatch.

use super::fixture::{self, again, hex, processor, to_json};
use proptest::prelude::*;
use serde_json::json;
use tollfree_processor::thrift::{MessageHeader, MessageHeaderError, MessageType, Protocol};
use tollfree_processor::{
    Arena, DecodeError, EncodeBuffer, EncodeError, Limits, Method, MethodMap, MethodMapError, Processor,
};
use tollfree_schema::Schema;

const IDL: &str = "
struct Inner { 1: required i32 number, 2: string text }
union Choice { 1: i32 number, 2: string text }
struct Node { 1: Node next, 2: list<Node> children }
struct All {
  1: bool flag, 2: i8 small, 3: string text, 4: list<Inner> inners, 5: map<string, list<i64>> map,
  6: Choice choice, 7: list<list<bool>> bools, 8: map<i32, string> names, 9: list<i32> numbers,
  10: required list<i8> bytes, 32767: i32 last,
}
struct Free { 1: bool flag, 2: list<i32> numbers, 3: map<i32, string> names, 32767: i32 last }
service Base { void ping() }
service Greeter extends Base { string greet(1: string name) throws (1: Failure failure), oneway void note(1: i32 n) }
exception Failure { 1: string why }
";

fn decode(
    p: &Processor,
    protocol: Protocol,
    name: &str,
    input: &[u8],
) -> Result<serde_json::Value, DecodeError> {
    let type_idx = p.type_by_name(&format!("test.{name}")).unwrap();
    let (object, _, end) = again(p, protocol, type_idx, input, 0, &Limits::default())?;
    assert_eq!(end, input.len());
    Ok(to_json(p, p.verify(type_idx, &object, 100).unwrap().root()))
}

/// Maps of strings to strings are read in a way of their own.
#[test]
fn maps_of_strings() {
    let p = processor("struct Texts { 1: map<string, string> map, 2: i32 behind }");
    let longest = "é".repeat(40);
    for protocol in fixture::PROTOCOLS {
        for keys in [
            &["", "a", "bc", "def"][..],
            &["a", "b", "cd"],
            &["same", "other", "same"],
            &["x", "x"],
            &["one", "two", "six", "ten", "five", "six", "a"],
            &[&longest, &longest[..64], &longest[..62]],
            &[],
        ] {
            let entries: Vec<_> =
                keys.iter().zip(0..).map(|(key, idx)| (*key, "v".repeat(idx * 11))).collect();
            let mut input = match protocol {
                Protocol::Compact if keys.is_empty() => vec![0x1b, 0],
                Protocol::Compact => vec![0x1b, keys.len() as u8, 0x88],
                _ => [&[13, 0, 1, 11, 11, 0, 0, 0][..], &[keys.len() as u8]].concat(),
            };
            for text in entries.iter().flat_map(|(key, value)| [*key, value]) {
                if protocol != Protocol::Compact {
                    input.extend([0; 3]);
                }
                input.push(text.len() as u8);
                input.extend(text.as_bytes());
            }
            input.extend(if protocol == Protocol::Compact {
                &[0x15, 8, 0][..]
            } else {
                &[8, 0, 2, 0, 0, 0, 4, 0]
            });
            // Of equal keys the last one counts.
            let last = |at: &usize| !keys[at + 1..].contains(&keys[*at]);
            let kept: Vec<_> =
                (0..keys.len()).filter(last).map(|at| json!([entries[at].0, entries[at].1])).collect();
            let decoded = decode(&p, protocol, "Texts", &input).unwrap();
            assert_eq!(decoded, json!({ "map": kept, "behind": 4 }), "{keys:?}");
            for len in 0..input.len() {
                assert!(decode(&p, protocol, "Texts", &input[..len]).is_err(), "{keys:?}, {len} bytes");
            }
        }
    }
    let refused = |input: &[u8]| decode(&p, Protocol::Compact, "Texts", input).unwrap_err().to_string();
    let wrong = refused(&[0x1b, 2, 0x88, 1, b'k', 0, 1, b'l', 1, 0xff, 0]);
    assert_eq!(wrong, "test.Texts.map[1].value: the string before byte 9 is not UTF-8");
    assert_eq!(refused(&[0x1b, 1, 0x88, 2, b'k']), "test.Texts.map[0].key: the input breaks off at byte 4");
}

#[test]
fn errors_name_the_field_and_the_offset() {
    let p = processor(IDL);
    let cases: [(&[u8], &str); 14] = [
        (&[0x38], "test.All.text: the input breaks off at byte 1"),
        (&[0x38, 9, b'x'], "test.All.text: the input breaks off at byte 2"),
        (&[0x38, 2, 0xc3, 0x28, 0], "test.All.text: the string before byte 2 is not UTF-8"),
        (&[0x49, 0x1c, 0x28, 0, 0], "test.All.inners[0].number is required and missing (seen at byte 5)"),
        (
            &[0x5b, 1, 0x89, 1, b'k', 0x26, 2, 0x80],
            "test.All.map[0].value[1]: the input breaks off at byte 7",
        ),
        (&[0x5b, 1, 0x88, 0], "test.All.map: the elements at byte 3 are of another type than the schema's"),
        (
            &[0x79, 0x19, 0x31, 1, 2, 9],
            "test.All.bools[0].elements[2]: the bool before byte 6 is neither true nor false",
        ),
        (&[0x6c, 0], "test.All.choice: the union before byte 2 has not exactly one known field"),
        (
            &[0x6c, 0x15, 2, 0x05, 2, 4, 0, 0],
            "test.All.choice: the union before byte 7 has not exactly one known field",
        ),
        (
            &[0x99, 0xf5, 0xff, 0xff, 0xff, 0xff, 0x0f],
            "test.All.numbers: the length before byte 7 is negative",
        ),
        (&[0x1e], "test.All: the type code before byte 1 is not valid"),
        (&[0x05, 0xfe, 0xff, 3, 0, 0x15, 0], "test.All: the field id before byte 6 passes 32767"),
        (&[0x05, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 0], "test.All: the varint at byte 1 is too long"),
        (&[0], "test.All.bytes is required and missing (seen at byte 1)"),
    ];
    for (input, expected) in cases {
        let error = decode(&p, Protocol::Compact, "All", input).unwrap_err();
        assert_eq!(error.to_string(), expected, "{}", hex(input));
    }
    let negative = [11, 0, 3, 0xff, 0xff, 0xff, 0xff];
    let error = decode(&p, Protocol::Binary, "All", &negative).unwrap_err().to_string();
    assert_eq!(error, "test.All.text: the length before byte 7 is negative");
}

#[test]
fn what_is_not_known_is_read_over() {
    let p = processor(IDL);
    // A uuid, a list of maps, an id below zero, the wrong type for a known id; then a known field.
    let compact = [
        &[0xad][..],
        &[7; 16],
        &[0x19, 0x2b, 1, 0x55, 2, 4, 0],
        &[0x06, 9, 2],
        &[0x08, 2, 1, b'x'],
        &[0x05, 0xfe, 0xff, 3, 10, 0],
    ]
    .concat();
    assert_eq!(decode(&p, Protocol::Compact, "Free", &compact).unwrap(), json!({ "last": 5 }));
    let binary = [
        &[16, 0, 9][..],
        &[7; 16],
        &[15, 0, 1, 13, 0, 0, 0, 1, 8, 8, 0, 0, 0, 0],
        &[2, 0xff, 0xff, 1],
        &[8, 0x7f, 0xff, 0, 0, 0, 5, 0],
    ]
    .concat();
    assert_eq!(decode(&p, Protocol::Binary, "Free", &binary).unwrap(), json!({ "last": 5 }));
    // A type without values cannot be read over.
    assert!(matches!(decode(&p, Protocol::Binary, "Free", &[1, 0, 9, 0]), Err(DecodeError::TypeCode { .. })));
}

#[test]
fn the_last_one_counts_and_empty_ones_stay() {
    let p = processor(IDL);
    let twice = [0x29, 0x25, 2, 4, 0x09, 4, 0x15, 6, 0x1b, 3, 0x58, 2, 1, b'a', 4, 1, b'b', 2, 1, b'c', 0];
    let expected = json!({ "numbers": [3], "names": [[2, "b"], [1, "c"]] });
    assert_eq!(decode(&p, Protocol::Compact, "Free", &twice).unwrap(), expected);
    let empty = [0x29, 0x05, 0x1b, 0, 0];
    assert_eq!(decode(&p, Protocol::Compact, "Free", &empty).unwrap(), json!({ "numbers": [], "names": [] }));
    let type_idx = p.type_by_name("test.Free").unwrap();
    let (_, encoded, _) = again(&p, Protocol::Compact, type_idx, &empty, 0, &Limits::default()).unwrap();
    assert_eq!(encoded, empty);
}

#[test]
fn required_fields_may_be_waived() {
    let p = processor(IDL);
    let type_idx = p.type_by_name("test.All").unwrap();
    let limits = Limits { require_all: false, ..Limits::default() };
    assert!(again(&p, Protocol::Compact, type_idx, &[0], 0, &limits).is_ok());
}

/// `levels` structs inside one another.
fn nest(protocol: Protocol, levels: usize) -> Vec<u8> {
    let field: &[u8] = if protocol == Protocol::Compact { &[0x1c] } else { &[12, 0, 1] };
    [field.repeat(levels), vec![0; levels + 1]].concat()
}

#[test]
fn limits_hold() {
    let p = processor(IDL);
    let type_idx = p.type_by_name("test.Node").unwrap();
    let free = p.type_by_name("test.Free").unwrap();
    let read = |protocol, type_idx, input: &[u8], limits: &Limits| {
        let mut arena = Arena::with_limit(1 << 20);
        p.decode_thrift(protocol, type_idx, input, 0, &mut arena, limits).map(|_| ())
    };
    for protocol in fixture::PROTOCOLS {
        let limits = Limits { depth: 5000, ..Limits::default() };
        assert_eq!(read(protocol, type_idx, &nest(protocol, 250), &limits), Ok(()), "the deepest there is");
        let mut arena = Arena::with_limit(1 << 20);
        let deep = nest(protocol, 250);
        let (object, _) = p.decode_thrift(protocol, type_idx, &deep, 0, &mut arena, &limits).unwrap();
        let mut out = Vec::new();
        object.encode_thrift(protocol, &mut out).unwrap();
        assert_eq!(out, deep);
        for limits in [limits, Limits::default()] {
            let error = read(protocol, type_idx, &nest(protocol, 100_000), &limits).unwrap_err();
            let expected = limits.depth.min(250);
            assert!(matches!(error, DecodeError::Limit { limit, .. } if limit == expected), "{error}");
            // The same levels in a type that does not know them.
            let error = read(protocol, free, &nest(protocol, 100_000), &limits).unwrap_err();
            assert!(matches!(error, DecodeError::Limit { .. }), "{error}");
        }
    }
    let limits = Limits { fields: 3, ..Limits::default() };
    assert_eq!(read(Protocol::Compact, free, &[0x11, 0x01, 2, 0x01, 2, 0], &limits), Ok(()));
    let error = read(Protocol::Compact, free, &[0x11, 0x01, 2, 0x01, 2, 0x01, 2, 0], &limits).unwrap_err();
    assert!(matches!(error, DecodeError::Limit { what: "fields", offset: 7, .. }), "{error}");
    let limits = Limits { input_len: 3, ..Limits::default() };
    let error = read(Protocol::Compact, free, &[0; 4], &limits).unwrap_err();
    assert!(matches!(error, DecodeError::Limit { what: "bytes of input", .. }));
    let mut arena = Arena::with_limit(999);
    let error = p.decode_thrift(Protocol::Compact, free, &[0], 2, &mut arena, &limits);
    assert!(matches!(error.unwrap_err(), DecodeError::Truncated { .. }));
}

/// A peer's object may nest deeper than the decoder would have made it.
#[test]
fn an_object_that_is_too_deep_is_not_encoded() {
    let p = processor("struct Node { 1: Node next }");
    let mut bytes = {
        let mut arena = Arena::with_limit(4096);
        let (object, _) =
            p.decode_thrift(Protocol::Compact, 0, &[0], 0, &mut arena, &Limits::default()).unwrap();
        object.bytes().to_vec()
    };
    let record_len = bytes.len() - 32;
    let slot = p.table().fields_of(0)[0].slot_off as usize;
    for level in 0..251 {
        let rec = 32 + level * record_len;
        bytes[rec + 4] = 1;
        bytes[rec + slot..rec + slot + 4].copy_from_slice(&((rec + record_len) as u32).to_le_bytes());
        bytes.extend(vec![0; record_len]);
    }
    let len = bytes.len() as u32;
    bytes[8..12].copy_from_slice(&len.to_le_bytes());
    let object = p.verify(0, &bytes, 300).unwrap();
    let mut out = vec![7];
    let outcome = object.encode_thrift(Protocol::Binary, &mut out);
    assert_eq!((outcome, out), (Err(EncodeError::TooDeep { limit: 250 }), vec![7]));
}

/// A count is held against what is left before room is taken for it.
#[test]
fn a_list_that_claims_more_than_there_is_takes_no_memory() {
    let p = processor(IDL);
    let type_idx = p.type_by_name("test.Node").unwrap();
    let all = p.type_by_name("test.All").unwrap();
    let billion = [0x80, 0x94, 0xeb, 0xdc, 3];
    let compact: [(u32, Vec<u8>); 4] = [
        (type_idx, [&[0x29, 0xfc], &billion[..], &[0; 20]].concat()),
        (all, [&[0x99, 0xf5], &billion[..], &[0; 20]].concat()),
        (all, [&[0x5b], &billion[..], &[0x89], &[0; 20]].concat()),
        (all, [&[0x38], &billion[..], &[0; 20]].concat()),
    ];
    for (type_idx, input) in compact {
        let mut arena = Arena::with_limit(1 << 30);
        let limits = Limits::default();
        let error = p.decode_thrift(Protocol::Compact, type_idx, &input, 0, &mut arena, &limits).unwrap_err();
        assert!(matches!(error, DecodeError::Truncated { .. }), "{error}");
        assert!(arena.capacity() < 10_000);
    }
    // One byte each can be a record each: the arena's limit bounds that.
    let many = [&[0x29, 0xfc, 0xff, 0xff, 3][..], &[0; 0x1_0000]].concat();
    let mut arena = Arena::with_limit(100_000);
    let limits = Limits::default();
    let error = p.decode_thrift(Protocol::Compact, type_idx, &many, 0, &mut arena, &limits).unwrap_err();
    assert!(matches!(error, DecodeError::ArenaExhausted { need, .. } if need > 1 << 20), "{error}");
    assert!(arena.capacity() <= 100_000);
    assert!(p.decode_thrift(Protocol::Compact, type_idx, &[0], 0, &mut arena, &limits).is_ok());
}

#[test]
fn lent_memory_of_every_length() {
    let p = processor(IDL);
    let type_idx = p.type_by_name("test.Free").unwrap();
    let input = [0x11, 0x19, 0x35, 2, 4, 6, 0x1b, 1, 0x58, 2, 3, b'a', b'b', b'c', 0];
    let limits = Limits::default();
    let mut owned = Arena::with_limit(4096);
    let (whole, _) = p.decode_thrift(Protocol::Compact, type_idx, &input, 0, &mut owned, &limits).unwrap();
    for len in 0..400 {
        // What an earlier message left must not show.
        let mut memory = vec![0xee; len];
        let usable = len.saturating_sub(memory.as_ptr().align_offset(8));
        let mut arena = Arena::with_limit(4096).over(&mut memory);
        match p.decode_thrift(Protocol::Compact, type_idx, &input, 0, &mut arena, &limits) {
            Ok((object, _)) => {
                assert_eq!(object.bytes(), whole.bytes());
                assert!(usable >= whole.bytes().len());
            }
            Err(DecodeError::ArenaExhausted { need, .. }) => {
                assert!(need == whole.bytes().len() && usable < need, "{need}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn types_of_the_other_protocols() {
    let idl = processor(IDL);
    let (number, arena) = (idl.type_by_name("test.All").unwrap(), &mut Arena::with_limit(4096));
    let outcome = idl.decode(number, &[], arena, &Limits::default());
    assert!(matches!(outcome, Err(DecodeError::UnsupportedLayout { .. })), "i8 has no protobuf form");
    // Their keys would be compared as what they are not.
    let keys = processor("struct Keys { 1: map<list<string>, i32> m } struct Around { 1: Keys keys }");
    for name in ["test.Keys", "test.Around"] {
        let type_idx = keys.type_by_name(name).unwrap();
        let outcome = keys.decode(type_idx, &[0x0a, 2, 0x10, 1], arena, &Limits::default());
        assert_eq!(outcome.map(|_| ()), Err(DecodeError::UnsupportedLayout { type_idx }));
        let object = keys.decode_thrift(Protocol::Compact, type_idx, &[0], 0, arena, &Limits::default());
        let outcome = object.unwrap().0.encode(&mut EncodeBuffer::new()).map(|_| ());
        assert_eq!(outcome, Err(EncodeError::UnsupportedLayout { type_idx }));
    }
    let mut schema = Schema::from_thrift("a.thrift", "struct A { 1: i32 a } struct B { 1: A a }").unwrap();
    schema.messages[0].fields[0].kind = tollfree_schema::Kind::Uint32;
    let p = Processor::new(schema.compile().unwrap());
    let outcome = p.decode_thrift(Protocol::Binary, 1, &[0], 0, arena, &Limits::default());
    assert_eq!(outcome.map(|_| ()), Err(DecodeError::UnsupportedLayout { type_idx: 1 }));
    let object = p.decode(1, &[], arena, &Limits::default()).unwrap();
    let mut out = vec![1, 2];
    let outcome = object.encode_thrift(Protocol::Binary, &mut out);
    assert_eq!((outcome, out), (Err(EncodeError::UnsupportedLayout { type_idx: 1 }), vec![1, 2]));
    let outcome = p.decode_thrift(Protocol::Binary, 9, &[0], 0, arena, &Limits::default());
    assert_eq!(outcome.map(|_| ()), Err(DecodeError::UnknownType { type_idx: 9 }));
}

#[test]
fn headers_read_and_written() {
    let all = [
        (Protocol::Compact, vec![0x82, 0x21, 0xff, 0xff, 0xff, 0xff, 0x0f, 2, b'h', b'i']),
        (Protocol::Binary, vec![0x80, 1, 0, 1, 0, 0, 0, 2, b'h', b'i', 0xff, 0xff, 0xff, 0xff]),
        (Protocol::BinaryOld, vec![0, 0, 0, 2, b'h', b'i', 1, 0xff, 0xff, 0xff, 0xff]),
    ];
    for (protocol, bytes) in &all {
        let expected = MessageHeader { name: "hi", kind: MessageType::Call, seq_id: -1, protocol: *protocol };
        assert_eq!(MessageHeader::read(*protocol, bytes), Ok((expected, bytes.len())));
        let mut out = Vec::new();
        expected.write(&mut out);
        assert_eq!(out, *bytes);
    }
    // A reader of the old form takes both, and says which it was; a strict one does not.
    let (new, _) = MessageHeader::read(Protocol::BinaryOld, &all[1].1).unwrap();
    assert_eq!(new.protocol, Protocol::Binary);
    let refused = |protocol, bytes: &[u8]| MessageHeader::read(protocol, bytes).unwrap_err();
    assert!(matches!(refused(Protocol::Binary, &all[2].1), MessageHeaderError::Version { .. }));
    assert!(matches!(refused(Protocol::Compact, &all[1].1), MessageHeaderError::Version { .. }));
    assert!(matches!(refused(Protocol::BinaryOld, &[0x80, 2, 0, 1]), MessageHeaderError::Version { .. }));
    assert_eq!(refused(Protocol::Compact, &[0x82, 0xa1, 0, 0]), MessageHeaderError::Type { found: 5 });
    assert_eq!(refused(Protocol::Compact, &[0x82, 0x21, 0, 1, 0xff]), MessageHeaderError::Utf8);
    assert_eq!(refused(Protocol::Binary, &[0x80, 1, 0, 1, 0x80, 0, 0, 0]), MessageHeaderError::Length);
    assert_eq!(refused(Protocol::Compact, &[0x82, 0x21, 0x80]), MessageHeaderError::Truncated { offset: 3 });
}

fn greeter() -> (Processor, MethodMap) {
    let schema = Schema::from_thrift("test.thrift", IDL).unwrap();
    let processor = Processor::new(schema.compile().unwrap());
    let service = schema.services.iter().find(|service| service.name == "test.Greeter").unwrap();
    let methods = service.methods.iter().zip(10..).map(|(method, handler_idx)| Method {
        name: method.name.clone(),
        processor: processor.clone(),
        input_type_idx: method.input_idx as u32,
        output_type_idx: method.output_idx as u32,
        handler_idx,
    });
    let map = MethodMap::new(methods).unwrap();
    (processor, map)
}

#[test]
fn a_message_finds_its_method() {
    let (_, map) = greeter();
    let call = [0x82, 0x21, 7, 5, b'g', b'r', b'e', b'e', b't', 0x18, 3, b'A', b'd', b'a', 0];
    let dispatch = map.dispatch_thrift(Protocol::Compact, &call).unwrap();
    let method = dispatch.method.unwrap();
    assert_eq!((method.name.as_str(), method.handler_idx, dispatch.header.seq_id), ("greet", 11, 7));
    assert_eq!(map.by_id(map.id_of("greet").unwrap()).unwrap().handler_idx, 11);
    let mut arena = Arena::with_limit(4096);
    let (object, end) = method
        .processor
        .decode_thrift(
            Protocol::Compact,
            method.input_type_idx,
            &call,
            dispatch.struct_at,
            &mut arena,
            &Limits::default(),
        )
        .unwrap();
    assert_eq!(
        (fixture::object_json(&method.processor, &object), end),
        (json!({ "name": "Ada" }), call.len())
    );
    // The base's functions are the service's, too; what it does not have is the caller's to hand on.
    assert_eq!(map.by_name("ping").unwrap().handler_idx, 10);
    let unknown = [0x82, 0x21, 7, 2, b'n', b'o', 0];
    let dispatch = map.dispatch_thrift(Protocol::Compact, &unknown).unwrap();
    assert!(dispatch.method.is_none());
    assert_eq!((dispatch.header.name, dispatch.struct_at), ("no", 6));
    assert!(map.dispatch_thrift(Protocol::Binary, &unknown).is_err());
    assert!(map.by_id(99).is_none());
}

#[test]
fn a_map_of_methods_is_checked() {
    let (processor, map) = greeter();
    let method = map.by_id(0).unwrap().clone();
    let twice = MethodMap::new([method.clone(), method.clone()]).unwrap_err();
    assert_eq!(twice, MethodMapError::Duplicate { name: "ping".into() });
    let type_idx = processor.table().types().len() as u32;
    let wrong = MethodMap::new([Method { output_type_idx: type_idx, ..method }]).unwrap_err();
    assert_eq!(wrong, MethodMapError::UnknownType { name: "ping".into(), type_idx });
}

/// An object with every kind of part.
fn object(p: &Processor) -> Vec<u8> {
    let input = [
        0x11, 0x13, 5, 0x18, 3, b'a', b'b', b'c', 0x19, 0x2c, 0x15, 2, 0, 0x15, 4, 0x18, 1, b'x', 0, 0x1b, 1,
        0x89, 1, b'k', 0x26, 2, 4, 0x1c, 0x15, 2, 0, 0x19, 0x29, 0x11, 1, 0x21, 1, 2, 0x1b, 2, 0x58, 2, 1,
        b'p', 4, 0, 0x19, 0x35, 2, 4, 6, 0x19, 0x13, 9, 0,
    ];
    let type_idx = p.type_by_name("test.All").unwrap();
    again(p, Protocol::Compact, type_idx, &input, 0, &Limits::default()).unwrap().0
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever the verifier accepts, the encoders can walk; what they write can be read (but for what the verifier
    /// does not ask: required fields, unions, UTF-8 is its).
    #[test]
    fn forged_objects_are_encoded_or_refused(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        thread_local! { static GOOD: (Processor, Vec<u8>) = { let p = processor(IDL); let o = object(&p); (p, o) } }
        GOOD.with(|(p, good)| {
            let type_idx = p.type_by_name("test.All").unwrap();
            let mut bytes = good.clone();
            for (at, byte) in changes {
                let at = 32 + at.index(good.len() - 32);
                bytes[at] = byte;
            }
            let Ok(object) = p.verify(type_idx, &bytes, 100) else { return };
            for protocol in fixture::PROTOCOLS {
                let mut out = Vec::new();
                object.encode_thrift(protocol, &mut out).unwrap();
                let limits = Limits { require_all: false, ..Limits::default() };
                let mut arena = Arena::with_limit(1 << 20);
                match p.decode_thrift(protocol, type_idx, &out, 0, &mut arena, &limits) {
                    Ok((_, end)) => assert_eq!(end, out.len()),
                    Err(error) => assert!(matches!(error, DecodeError::Union { .. }), "{error}"),
                }
            }
        });
    }
}
