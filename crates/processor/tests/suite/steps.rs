//! Work is linear in the bytes that came, whatever the table and whatever the message: counted in steps, not in time.

use proptest::prelude::*;
use std::sync::LazyLock;
use tollfree_layout::steps;
use tollfree_layout::table::Table;
use tollfree_processor::thrift::Protocol;
use tollfree_processor::{Arena, DecodeError, EncodeBuffer, Limits, OwnError, Processor};
use tollfree_schema::{Enum, EnumValue, Field, Kind, Label, Message, Role, Schema};

use crate::fixture::{bytes, field, varint};

/// As long as objects are that travel.
const ARENA_LIMIT: usize = 4 << 20;

/// Holds steps against the bytes that there were.
fn hold(what: &str, steps: u64, bytes: usize) {
    assert!(steps <= 4 * bytes as u64 + 2000, "{what}: {steps} steps for {bytes} bytes");
}

/// The processor of a table, as from a peer.
fn load(schema: &Schema) -> Processor {
    let blob = schema.compile().unwrap().blob().to_vec();
    let (processor, taken) = steps::of(|| Processor::new(Table::load(&blob).unwrap()));
    hold("loading", taken, blob.len());
    assert!(processor.memory_len() >= blob.len() && processor.memory_len() <= 12 * blob.len() + 4096);
    processor
}

/// Decodes as type 0, verifies and encodes, with few steps each: what it encodes to.
fn through(processor: &Processor, input: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut arena = Arena::with_limit(ARENA_LIMIT);
    let (decoded, taken) = steps::of(|| {
        processor.decode(0, input, &mut arena, &Limits::default()).map(|object| object.bytes().to_vec())
    });
    hold("decoding", taken, input.len() + arena.capacity());
    let object = decoded?;
    let (verified, taken) = steps::of(|| processor.verify(0, &object, 100).unwrap());
    hold("verifying", taken, object.len());
    let mut buffer = EncodeBuffer::new();
    let (encoded, taken) = steps::of(|| verified.encode(&mut buffer).unwrap().to_vec());
    hold("encoding", taken, object.len() + encoded.len());
    Ok(encoded)
}

fn message(name: &str, fields: Vec<Field>) -> Message {
    Message { name: name.into(), fields, ..Message::default() }
}

fn of_type(number: u32, label: Label, target_idx: usize) -> Field {
    Field { target_idx: Some(target_idx), ..Field::new(number, "m", Kind::Message, label) }
}

fn schema(messages: Vec<Message>) -> Schema {
    Schema { messages, ..Schema::default() }
}

/// What only one engine has, or what has to be looked for, at the far end of a chain.
#[test]
fn chains_of_types_are_loaded_in_few_steps() {
    const COUNT: usize = 6000;
    let ends = [
        Field::new(1, "f", Kind::I8, Label::Explicit),
        Field::new(1, "f", Kind::Uint64, Label::Required),
        of_type(1, Label::Explicit, 0),
    ];
    for end in ends {
        for backwards in [false, true] {
            let mut messages: Vec<Message> = (0..COUNT)
                .map(|idx| {
                    let next = if backwards {
                        idx.checked_sub(1)
                    } else {
                        Some(idx + 1).filter(|next| *next < COUNT)
                    };
                    let field = next.map_or(end.clone(), |next| of_type(1, Label::Explicit, next));
                    message(&format!("m{idx}"), vec![field])
                })
                .collect();
            messages[COUNT / 2].fields.push(of_type(2, Label::List, COUNT / 3));
            let processor = load(&schema(messages));
            let (_, taken) =
                steps::of(|| processor.fingerprint(if backwards { COUNT as u32 - 1 } else { 0 }));
            hold("a fingerprint", taken, processor.table().blob().len());
        }
    }
}

/// 0: itself in it, and one of very many fields is required.
static WIDE: LazyLock<Processor> = LazyLock::new(|| {
    let mut fields: Vec<Field> =
        (3..20_000).map(|number| Field::new(number, "f", Kind::Bool, Label::Explicit)).collect();
    fields.push(of_type(1, Label::Explicit, 0));
    fields.push(Field::new(2, "must", Kind::Bool, Label::Required));
    load(&schema(vec![message("Wide", fields)]))
});

#[test]
fn a_message_that_is_merged_again_and_again_is_asked_once_for_what_it_must_have() {
    let (must, part) = (varint(2, 1), bytes(1, b""));
    let lacking = [must.clone(), part.repeat(20_000)].concat();
    assert!(
        matches!(through(&WIDE, &lacking), Err(DecodeError::Required { path, .. }) if path == "Wide.m.must")
    );
    let complete = [lacking, bytes(1, &must)].concat();
    assert_eq!(through(&WIDE, &complete), Ok([bytes(1, &must), must.clone()].concat()));
    // With something in it, and by way of the slow loop.
    let parts = [bytes(1, &varint(19_000, 1)), bytes(1, &must), field(1, 2, &[0x80, 0])].concat();
    assert!(through(&WIDE, &[must, parts.repeat(2000)].concat()).is_ok());
}

#[test]
fn what_an_object_lacks_is_looked_for_in_few_steps() {
    let mut arena = Arena::with_limit(ARENA_LIMIT);
    let limits = Limits { require_all: false, ..Limits::default() };
    let object = WIDE.decode(0, &bytes(1, b""), &mut arena, &limits).unwrap().bytes().to_vec();
    let len = object.len();
    let (owned, taken) = steps::of(|| WIDE.verify_held(0, object.into(), 100));
    hold("verifying", taken, len);
    assert!(matches!(owned, Err(OwnError::Required { ref path }) if path == "Wide.must"), "{owned:?}");
}

/// 0: a list of 1, which has a oneof with more members than its record has bytes, a map and a required field far below.
static CHOICES: LazyLock<Processor> = LazyLock::new(|| {
    let mut fields: Vec<Field> = (10..30_000)
        .map(|number| Field { oneof_idx: Some(0), ..Field::new(number, "f", Kind::Uint32, Label::Explicit) })
        .collect();
    fields.push(Field { oneof_idx: Some(0), ..of_type(3, Label::Explicit, 2) });
    fields.push(of_type(1, Label::Map, 3));
    fields.push(of_type(2, Label::List, 2));
    let choice = Message { oneofs: vec!["choice".into()], ..message("Choice", fields) };
    let key = Field::new(1, "key", Kind::Uint32, Label::Explicit);
    let value = Field::new(2, "value", Kind::Uint32, Label::Explicit);
    let entry = Message { role: Role::MapEntry, ..message("Entry", vec![key, value]) };
    let must = message("Must", vec![Field::new(1, "must", Kind::Bool, Label::Required)]);
    let top = message("Top", vec![of_type(1, Label::List, 1), of_type(2, Label::Explicit, 1)]);
    load(&schema(vec![top, choice, must, entry]))
});

#[test]
fn members_of_a_oneof_that_a_record_does_not_have_cost_nothing() {
    let chosen = |number| bytes(1, &varint(number, 1));
    let all = [bytes(1, b"").repeat(500), chosen(10), chosen(29_999), chosen(3000).repeat(300)].concat();
    assert_eq!(through(&CHOICES, &all), Ok(all.clone()));
    // Below a record that lacks something.
    let lacking = [all, bytes(1, &bytes(2, b""))].concat();
    assert!(matches!(through(&CHOICES, &lacking), Err(DecodeError::Required { .. })));
}

#[test]
fn a_oneof_that_changes_again_and_again_costs_what_the_bytes_cost() {
    let (number, part) = (varint(20_000, 7), bytes(3, &varint(1, 1)));
    let changing = bytes(2, &[number.clone(), part.clone()].concat().repeat(5000));
    assert_eq!(through(&CHOICES, &changing), Ok(bytes(2, &part)));
    let merged = bytes(2, &[number, part.clone()].concat()).repeat(5000);
    assert_eq!(through(&CHOICES, &merged), Ok(bytes(2, &part)));
}

#[test]
fn maps_with_many_equal_keys_cost_what_the_bytes_cost() {
    let entry = |key, value| bytes(1, &[varint(1, key), varint(2, value)].concat());
    let one_message = bytes(2, &(0..20_000).flat_map(|nth| entry(nth % 3, nth)).collect::<Vec<u8>>());
    let last = bytes(2, &[entry(0, 19_998), entry(1, 19_999), entry(2, 19_997)].concat());
    let sorted = |mut bytes: Vec<u8>| {
        bytes.sort_unstable();
        bytes
    };
    assert_eq!(through(&CHOICES, &one_message).map(sorted), Ok(sorted(last.clone())));
    // One entry in each part of a message that is merged: the map is not looked through each time.
    let merged: Vec<u8> = (0..20_000).flat_map(|nth| bytes(2, &entry(nth % 3, nth))).collect();
    assert_eq!(through(&CHOICES, &merged).map(sorted), Ok(sorted(last)));
}

/// Of each kind of field some, and itself in most ways that there are.
static MIXED: LazyLock<Processor> = LazyLock::new(|| {
    let mut fields: Vec<Field> = (100..3000)
        .map(|number| {
            let label = if number == 2999 { Label::Required } else { Label::Explicit };
            let oneof_idx = (number < 2900).then_some(0);
            Field { oneof_idx, ..Field::new(number, "f", Kind::Uint32, label) }
        })
        .collect();
    let closed = Field { target_idx: Some(0), ..Field::new(9, "e", Kind::Enum, Label::List) };
    fields.extend([
        of_type(1, Label::Explicit, 0),
        of_type(2, Label::List, 0),
        Field { delimited: true, ..of_type(3, Label::Explicit, 0) },
        Field { delimited: true, ..of_type(4, Label::List, 0) },
        of_type(5, Label::Map, 1),
        Field { packed: true, ..Field::new(6, "f", Kind::Sint64, Label::List) },
        Field::new(7, "f", Kind::Fixed32, Label::List),
        Field { utf8: true, ..Field::new(8, "f", Kind::String, Label::List) },
        closed,
        Field { oneof_idx: Some(0), ..of_type(10, Label::Explicit, 0) },
        Field { utf8: true, ..Field::new(11, "f", Kind::String, Label::Explicit) },
    ]);
    let mixed = Message { oneofs: vec!["choice".into()], ..message("Mixed", fields) };
    let key = Field { utf8: true, ..Field::new(1, "key", Kind::String, Label::Explicit) };
    let entry =
        Message { role: Role::MapEntry, ..message("Entry", vec![key, of_type(2, Label::Explicit, 0)]) };
    let values = [0, 1, 2, 1000].map(|number| EnumValue { name: format!("V{number}"), number }).into();
    let closed = Enum { name: "E".into(), closed: true, values };
    load(&Schema { enums: vec![closed], ..schema(vec![mixed, entry]) })
});

/// Some bytes of a `Mixed`, most of them fields of it.
fn part() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        (100u32..3100, 0u64..4).prop_map(|(number, value)| varint(number, value)),
        Just(varint(2999, 1)),
        (0usize..20).prop_map(|len| bytes(6, &vec![1; len])),
        Just(varint(6, 5)),
        (0usize..9).prop_map(|count| bytes(7, &vec![1; 4 * count])),
        Just(field(7, 5, &[1; 4])),
        "[a-c]{0,40}".prop_map(|text| bytes(8, text.as_bytes())),
        "[a-c]{0,40}".prop_map(|text| bytes(11, text.as_bytes())),
        (0u64..4).prop_map(|value| varint(9, value)),
        prop::collection::vec(0u8..4, 0..20).prop_map(|values| bytes(9, &values)),
        (4000u32..4010)
            .prop_map(|number| [field(number, 3, &[]), varint(1, 1), field(number, 4, &[])].concat()),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        let parts = (prop::collection::vec(inner, 0..6), 1usize..60)
            .prop_map(|(parts, times)| parts.concat().repeat(times));
        (parts, 0u32..7, "[ab]").prop_map(|(parts, way, key)| match way {
            0 => bytes(1, &parts),
            1 => bytes(2, &parts),
            2 => [field(3, 3, &[]), parts, field(3, 4, &[])].concat(),
            3 => [field(4, 3, &[]), parts, field(4, 4, &[])].concat(),
            4 => bytes(5, &[bytes(1, key.as_bytes()), bytes(2, &parts)].concat()),
            5 => bytes(10, &parts),
            _ => parts,
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn no_message_costs_more_than_its_bytes(parts in prop::collection::vec((part(), 1usize..300), 1..6)) {
        let mut input: Vec<u8> = parts.iter().flat_map(|(part, times)| part.repeat(*times)).collect();
        input.truncate(50_000);
        // Most lack something somewhere, which is found in few steps, too.
        let _ = through(&MIXED, &input);
        let limits = Limits { require_all: false, ..Limits::default() };
        let mut arena = Arena::with_limit(ARENA_LIMIT);
        if let Ok(object) = MIXED.decode(0, &input, &mut arena, &limits) {
            let len = object.bytes().len();
            let mut buffer = EncodeBuffer::new();
            let (encoded, taken) = steps::of(|| object.encode(&mut buffer).map(<[u8]>::len));
            hold("encoding", taken, len + encoded.unwrap());
            let object = object.bytes().to_vec();
            hold("verifying", steps::of(|| MIXED.verify(0, &object, 100).map(|_| ()).unwrap()).1, len);
        }
    }
}

#[test]
fn structs_of_thrift_cost_what_their_bytes_cost() {
    let mut fields: Vec<Field> =
        (3..20_000).map(|number| Field::new(number, "f", Kind::Bool, Label::Explicit)).collect();
    fields.push(of_type(1, Label::Explicit, 0));
    fields.push(Field::new(2, "must", Kind::Bool, Label::Required));
    fields.push(of_type(20_001, Label::List, 0));
    let processor = load(&schema(vec![message("Wide", fields)]));
    // A struct inside, again and again, each with what it must have: the arena is full in the end.
    let inside = [12, 0, 1, 2, 0, 2, 1, 0];
    for times in [20, 20_000] {
        let input = [inside.repeat(times), vec![2, 0, 2, 1, 0]].concat();
        let mut arena = Arena::with_limit(ARENA_LIMIT);
        let limits = Limits::default();
        let (decoded, taken) = steps::of(|| {
            let decoded = processor.decode_thrift(Protocol::Binary, 0, &input, 0, &mut arena, &limits);
            decoded.map(|(object, _)| object.bytes().to_vec())
        });
        assert_eq!(decoded.is_ok(), times == 20, "{decoded:?}");
        hold("decoding", taken, input.len() + arena.capacity());
        if let Ok(object) = decoded {
            let verified = processor.verify(0, &object, 100).unwrap();
            let mut out = Vec::new();
            hold(
                "encoding",
                steps::of(|| verified.encode_thrift(Protocol::Binary, &mut out).unwrap()).1,
                object.len(),
            );
        }
    }
}

/// More tables than a buffer remembers, one after the other: their sizes make no difference to short messages.
#[test]
fn short_messages_of_many_large_tables_are_encoded_in_few_steps() {
    let messages = || {
        (0..3000)
            .map(|idx| message(&format!("m{idx}"), vec![Field::new(1, "f", Kind::Uint32, Label::Explicit)]))
    };
    let processors: Vec<Processor> = (0..10).map(|_| load(&schema(messages().collect()))).collect();
    let mut buffer = EncodeBuffer::new();
    for processor in processors.iter().cycle().take(30) {
        let mut arena = Arena::with_limit(ARENA_LIMIT);
        let object = processor.decode(2000, &[8, 1], &mut arena, &Limits::default()).unwrap();
        let (encoded, taken) = steps::of(|| object.encode(&mut buffer).unwrap().to_vec());
        assert!(encoded == [8, 1] && taken < 100, "{taken}");
    }
}

/// They may be megabytes long, and a path leads through many.
#[test]
fn errors_show_no_more_than_the_beginnings_of_long_names() {
    let name = "é".repeat(100_000);
    let itself = Field { name: format!("x{name}"), json_name: "x".into(), ..of_type(1, Label::Explicit, 0) };
    let processor = load(&schema(vec![message(&name, vec![itself])]));
    let input = (0..90).fold(vec![0xff], |inner, _| bytes(1, &inner));
    let error =
        processor.decode(0, &input, &mut Arena::with_limit(ARENA_LIMIT), &Limits::default()).unwrap_err();
    let shown = error.to_string();
    assert!(shown.len() < 4096 && shown.starts_with("éé") && shown.contains("….xé"), "{shown}");
}
