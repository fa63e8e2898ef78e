//! Messages of a social network, in both protocols and both directions: the project's own cases, and the whole
//! corpus where it is present.

use super::fixture::{PROTOCOLS, again, schema, testdata, to_json};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tollfree_processor::thrift::{MessageHeader, MessageType, Protocol};
use tollfree_processor::{Arena, Limits, Method, MethodMap, Processor};

/// A map of all services' functions, each as `service:function`; an exception of Thrift's own is no function's.
struct Setup {
    methods: MethodMap,
    processors: HashMap<&'static str, Processor>,
}

fn setup() -> Setup {
    let mut methods = Vec::new();
    let mut processors = HashMap::new();
    for file in ["socialnetwork.thrift", "supplement.thrift"] {
        let schema = schema(file);
        let processor = Processor::new(schema.compile().unwrap());
        for service in &schema.services {
            let service_name = service.name.split_once('.').unwrap().1;
            for method in &service.methods {
                methods.push(Method {
                    name: format!("{service_name}:{}", method.name),
                    processor: processor.clone(),
                    input_type_idx: method.input_idx as u32,
                    output_type_idx: method.output_idx as u32,
                    handler_idx: methods.len() as u32,
                });
            }
        }
        processors.insert(file, processor);
    }
    Setup { methods: MethodMap::new(methods).unwrap(), processors }
}

/// Runs all cases of `dir`; gives how many there were.
fn run(dir: &Path) -> usize {
    let setup = setup();
    let cases: Json = serde_json::from_slice(&std::fs::read(dir.join("expected.json")).unwrap()).unwrap();
    let cases = cases.as_array().unwrap();
    for case in cases {
        for (protocol, name) in PROTOCOLS.into_iter().zip(["compact", "binary"]) {
            let path = dir.join(case["files"][name]["path"].as_str().unwrap());
            check(&setup, case, protocol, &std::fs::read(path).unwrap());
        }
    }
    cases.len()
}

fn check(setup: &Setup, case: &Json, protocol: Protocol, message: &[u8]) {
    let name = case["case"].as_str().unwrap();
    let (header, from) = MessageHeader::read(protocol, message).unwrap();
    assert_eq!(header.name, case["method"], "{name}");
    assert_eq!(format!("{:?}", header.kind).to_uppercase(), case["message_type"].as_str().unwrap(), "{name}");
    assert_eq!(i64::from(header.seq_id), case["seqid"].as_i64().unwrap(), "{name}");
    let full = format!("{}:{}", case["service"].as_str().unwrap(), header.name);
    let method = setup.methods.by_name(&full).unwrap_or_else(|| panic!("{full} is in no service"));
    let (processor, type_idx) = match header.kind {
        MessageType::Call | MessageType::Oneway => (&method.processor, method.input_type_idx),
        MessageType::Reply => (&method.processor, method.output_type_idx),
        MessageType::Exception => {
            let processor = &setup.processors["socialnetwork.thrift"];
            (processor, processor.type_by_name("TApplicationException").unwrap())
        }
    };
    let (object, encoded, end) =
        again(processor, protocol, type_idx, message, from, &Limits::default()).unwrap();
    assert_eq!(end, message.len(), "{name}");
    let object = processor.verify(type_idx, &object, 100).unwrap();
    assert_eq!(to_json(processor, object.root()), case["value"], "{name}, {protocol:?}");
    let mut out = Vec::new();
    header.write(&mut out);
    out.extend(encoded);
    assert!(out == message, "{name}, {protocol:?} is encoded otherwise");
}

#[test]
fn the_projects_own_cases() {
    assert_eq!(run(&testdata()), 12);
}

#[test]
fn the_whole_corpus() {
    let Some(dir) = corpus() else {
        println!("skipped: no corpora (set TOLLFREE_CORPORA)");
        return;
    };
    assert_eq!(run(&dir), 68);
}

fn corpus() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpora");
    let dir = std::env::var_os("TOLLFREE_CORPORA").map_or(beside, PathBuf::from).join("thrift-socialnetwork");
    dir.is_dir().then_some(dir)
}

/// What one protocol said, the other can say: objects do not show where they came from.
#[test]
fn one_object_both_protocols() {
    let processor = Processor::new(schema("supplement.thrift").compile().unwrap());
    let type_idx = processor.type_by_name("supplement.Supplement.Echo_args").unwrap();
    let read = |dir: &str| std::fs::read(testdata().join(dir).join("supplement.AllTypes.call.bin")).unwrap();
    let (compact, binary) = (read("compact"), read("binary"));
    let (_, from) = MessageHeader::read(Protocol::Compact, &compact).unwrap();
    let mut arena = Arena::with_limit(1 << 20);
    let (object, _) = processor
        .decode_thrift(Protocol::Compact, type_idx, &compact, from, &mut arena, &Limits::default())
        .unwrap();
    let (_, struct_at) = MessageHeader::read(Protocol::Binary, &binary).unwrap();
    let mut out = Vec::new();
    object.encode_thrift(Protocol::Binary, &mut out).unwrap();
    assert_eq!(out, binary[struct_at..]);
}

#[test]
fn every_prefix_is_refused() {
    let setup = setup();
    let cases: Json =
        serde_json::from_slice(&std::fs::read(testdata().join("expected.json")).unwrap()).unwrap();
    for case in cases.as_array().unwrap() {
        let full = format!("{}:{}", case["service"].as_str().unwrap(), case["method"].as_str().unwrap());
        let method = setup.methods.by_name(&full).unwrap();
        for (protocol, name) in PROTOCOLS.into_iter().zip(["compact", "binary"]) {
            let message =
                std::fs::read(testdata().join(case["files"][name]["path"].as_str().unwrap())).unwrap();
            let (header, from) = MessageHeader::read(protocol, &message).unwrap();
            let type_idx = match header.kind {
                MessageType::Call | MessageType::Oneway => method.input_type_idx,
                MessageType::Reply => method.output_type_idx,
                MessageType::Exception => continue,
            };
            for len in 0..message.len() {
                // A copy of its own length, so that a sanitizer sees every byte read too far.
                let prefix = message[..len].to_vec();
                assert_eq!(MessageHeader::read(protocol, &prefix).is_ok(), len >= from);
                let outcome = again(&method.processor, protocol, type_idx, &prefix, from, &Limits::default());
                let error = outcome.expect_err("a struct ends with a stop").to_string();
                assert!(error.contains("breaks off"), "{full}, {len} bytes: {error}");
            }
        }
    }
}
