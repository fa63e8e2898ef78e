//! Random messages, well-formed and not, through this decoder and through prost-reflect.

use proptest::prelude::*;
use proptest::test_runner::TestRng;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MessageDescriptor, Value as Theirs};
use std::cell::OnceCell;
use tollfree_processor::{Arena, Edit, EncodeBuffer, Limits, Processor, Record, Text, Value};

use crate::fixture::{self, again, schemas};

thread_local! {
    static SCHEMAS: OnceCell<(Processor, DescriptorPool)> = const { OnceCell::new() };
}

fn with_schemas<T>(run: impl FnOnce(&Processor, &DescriptorPool) -> T) -> T {
    SCHEMAS.with(|cell| {
        let (processor, pool) = cell.get_or_init(schemas);
        run(processor, pool)
    })
}

/// A varint, now and then longer than it need be.
fn put_varint(rng: &mut TestRng, value: u64, out: &mut Vec<u8>) {
    prost::encoding::encode_varint(value, out);
    if rng.random_ratio(1, 30) {
        *out.last_mut().unwrap() |= 0x80;
        out.push(0);
        if value >> 63 == 1 {
            // Ten bytes is the limit.
            out.pop();
            *out.last_mut().unwrap() &= 0x7f;
        }
    }
}

fn scalar(rng: &mut TestRng, kind: &Kind, out: &mut Vec<u8>) {
    let wide = rng.random::<u64>() >> rng.random_range(0..64);
    match kind {
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => out.extend(wide.to_le_bytes()),
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => out.extend((wide as u32).to_le_bytes()),
        Kind::Enum(item) => {
            let values: Vec<_> = item.values().collect();
            let number = values[rng.random_range(0..values.len())].number();
            put_varint(rng, i64::from(number) as u64, out);
        }
        Kind::Int32 => put_varint(rng, i64::from(wide as i32) as u64, out),
        Kind::Bool => put_varint(rng, wide & 1, out),
        _ => put_varint(rng, if wide & 1 == 0 { wide.wrapping_neg() } else { wide }, out),
    }
}

fn wire_type(kind: &Kind) -> u32 {
    match kind {
        Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => 1,
        Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => 5,
        Kind::String | Kind::Bytes | Kind::Message(_) => 2,
        _ => 0,
    }
}

/// A message's bytes: its fields in random order, some twice, some unknown.
fn message(rng: &mut TestRng, descriptor: &MessageDescriptor, depth: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let fields: Vec<_> = descriptor.fields().collect();
    let count = if depth == 0 { rng.random_range(0..40) } else { rng.random_range(0..8) };
    for _ in 0..count {
        if rng.random_ratio(1, 25) {
            let number = rng.random_range(4000u32..5000);
            out.extend(fixture::bytes(number, &rng.random::<u64>().to_le_bytes()));
            continue;
        }
        let field = &fields[rng.random_range(0..fields.len())];
        let kind = field.kind();
        let number = field.number();
        let times = if field.is_list() { rng.random_range(1..5) } else { 1 };
        if field.is_list() && !matches!(kind, Kind::String | Kind::Bytes | Kind::Message(_)) && rng.random() {
            let mut run = Vec::new();
            (0..times).for_each(|_| scalar(rng, &kind, &mut run));
            out.extend(fixture::bytes(number, &run));
            continue;
        }
        for _ in 0..times {
            match &kind {
                Kind::Message(_) if depth > 4 => {}
                Kind::Message(inner) => {
                    let body = message(rng, inner, depth + 1);
                    if field.is_group() {
                        out.extend(
                            [fixture::field(number, 3, &body), fixture::field(number, 4, &[])].concat(),
                        );
                    } else {
                        out.extend(fixture::bytes(number, &body));
                    }
                }
                Kind::String => {
                    let len = rng.random_range(0..50);
                    let text: String =
                        (0..len).map(|_| if rng.random_ratio(1, 20) { '€' } else { 'x' }).collect();
                    out.extend(fixture::bytes(number, text.as_bytes()));
                }
                Kind::Bytes => {
                    let len = rng.random_range(0..50);
                    out.extend(fixture::bytes(number, &vec![0xf7; len]));
                }
                _ => {
                    out.extend(fixture::field(number, wire_type(&kind), &[]));
                    scalar(rng, &kind, &mut out);
                }
            }
        }
    }
    out
}

/// Equality by bits, so that a NaN equals itself.
fn same(a: &DynamicMessage, b: &DynamicMessage) -> bool {
    a.fields().count() == b.fields().count()
        && a.fields()
            .zip(b.fields())
            .all(|((fa, va), (fb, vb))| fa.number() == fb.number() && same_value(va, vb))
        && a.unknown_fields().eq(b.unknown_fields())
}

fn same_value(a: &Theirs, b: &Theirs) -> bool {
    match (a, b) {
        (Theirs::F64(a), Theirs::F64(b)) => a.to_bits() == b.to_bits(),
        (Theirs::F32(a), Theirs::F32(b)) => a.to_bits() == b.to_bits(),
        (Theirs::Message(a), Theirs::Message(b)) => same(a, b),
        (Theirs::List(a), Theirs::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b))
        }
        (Theirs::Map(a), Theirs::Map(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same_value(a, b)))
        }
        _ => a == b,
    }
}

/// Required fields are prost's to ignore: messages that lack them are not generated.
fn descriptor(pool: &DescriptorPool, name: &str) -> MessageDescriptor {
    pool.get_message_by_name(name).unwrap()
}

fn generate(name: &'static str) -> impl Strategy<Value = Vec<u8>> {
    any::<()>().prop_perturb(move |(), mut rng| {
        with_schemas(|_, pool| message(&mut rng, &descriptor(pool, name), 0))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn what_prost_reads_from_both_forms_is_the_same(input in generate("t3.All")) {
        with_schemas(|p, pool| {
            let ours = again(p, "t3.All", &input).expect("a well-formed message decodes");
            let before = DynamicMessage::decode(descriptor(pool, "t3.All"), &input[..]).unwrap();
            let after = DynamicMessage::decode(descriptor(pool, "t3.All"), &ours[..]).unwrap();
            assert!(same(&before, &after));
            // Encoding is canonical: a second round changes nothing.
            assert_eq!(again(p, "t3.All", &ours).unwrap(), ours);
        });
    }

    /// What prost encodes is the same message here, and neither form has a byte more. (Bytes cannot be compared: prost
    /// orders unknown fields by number.)
    #[test]
    fn prost_encodes_the_same(input in generate("t3.Plain")) {
        with_schemas(|p, pool| {
            let before = DynamicMessage::decode(descriptor(pool, "t3.Plain"), &input[..]).unwrap();
            let theirs = before.encode_to_vec();
            let ours = again(p, "t3.Plain", &theirs).unwrap();
            let after = DynamicMessage::decode(descriptor(pool, "t3.Plain"), &ours[..]).unwrap();
            assert!(same(&before, &after));
            assert_eq!(ours.len(), theirs.len());
        });
    }

    #[test]
    fn proto2_too(input in generate("t2.All")) {
        with_schemas(|p, pool| match again(p, "t2.All", &input) {
            Ok(ours) => {
                let before = DynamicMessage::decode(descriptor(pool, "t2.All"), &input[..]).unwrap();
                let after = DynamicMessage::decode(descriptor(pool, "t2.All"), &ours[..]).unwrap();
                assert!(same(&before, &after));
            }
            Err(error) => assert!(matches!(error, tollfree_processor::DecodeError::Required { .. }), "{error}"),
        });
    }

    #[test]
    fn damaged_messages_are_accepted_or_refused_alike(
        input in generate("t3.Plain"), at: prop::sample::Index, byte: u8, cut: bool,
    ) {
        with_schemas(|p, pool| {
            let mut input = input;
            if input.is_empty() {
                return;
            }
            let at = at.index(input.len());
            input[at] = byte;
            if cut {
                input.truncate(at + 1);
            }
            let theirs = DynamicMessage::decode(descriptor(pool, "t3.Plain"), &input[..]);
            match (again(p, "t3.Plain", &input), theirs) {
                (Ok(ours), Ok(theirs)) => {
                    let after = DynamicMessage::decode(descriptor(pool, "t3.Plain"), &ours[..]).unwrap();
                    assert!(same(&theirs, &after));
                }
                (Err(_), Err(_)) => {}
                // prost refuses a known field of another wire type; protobuf's rule, and ours, is to keep it as unknown.
                (Ok(_), Err(error)) if error.to_string().contains("invalid wire type") => {}
                (ours, theirs) => {
                    panic!("theirs {:?}, ours {:?}, input {input:x?}", theirs.map(|_| ()), ours.map(|_| ()))
                }
            }
        });
    }
}

/// Builds the record anew: each field by itself, the last one first, some after something else was there.
fn rebuild(rng: &mut TestRng, from: Record<'_>, to: &mut Edit<'_>) {
    let places: Vec<u32> = (0..from.rows().len() as u32).filter(|idx| from.has(*idx)).collect();
    for idx in places.into_iter().rev() {
        let value = from.get(idx).unwrap();
        let again = match rng.random_range(0..6) {
            0 => to.set(idx, value).is_ok(),
            1 => to.set(idx, value).and_then(|()| to.clear(idx)).is_ok(),
            2 => {
                // Of another kind, or not UTF-8: refused, and nothing has changed.
                let before = format!("{:?}", to.view());
                let refused = to.set(idx, Value::String(Text::new(b"\xff\xfe"))).is_err()
                    || to.clear(idx).is_ok() && to.set(idx, Value::I8(1)).is_err();
                refused && (!to.view().has(idx) || before == format!("{:?}", to.view()))
            }
            _ => true,
        };
        assert!(again);
        rebuild_field(rng, idx, value, to);
    }
}

fn rebuild_field(rng: &mut TestRng, idx: u32, value: Value<'_>, to: &mut Edit<'_>) {
    match value {
        Value::Message(inner) => {
            let mut child = to.message(idx).unwrap();
            rebuild(rng, inner, &mut child);
        }
        Value::List(list) => {
            to.clear(idx).unwrap();
            let mut out = to.list(idx).unwrap();
            if rng.random() {
                out.reserve(list.len()).unwrap();
            }
            for (element_idx, element) in (0..).zip(list.iter()) {
                if rng.random_ratio(1, 8) {
                    out.push(element).unwrap();
                    out.pop();
                }
                match element {
                    Value::Message(inner) if rng.random() => {
                        out.push_message().unwrap();
                        rebuild(rng, inner, &mut out.message(element_idx).unwrap());
                    }
                    element => out.push(element).unwrap(),
                }
            }
            assert_eq!(out.len(), list.len());
        }
        Value::Map(map) => {
            to.clear(idx).unwrap();
            let mut out = to.list(idx).unwrap();
            for entry in map.iter() {
                let Value::Message(entry) = entry else { unreachable!("entries are messages") };
                let (key, value) = (entry.get(0).unwrap(), entry.get(1).unwrap());
                if rng.random_ratio(1, 4) {
                    // Another value for the same key, which the last one replaces.
                    out.entry(key).unwrap();
                }
                match value {
                    Value::Message(inner) if rng.random() => {
                        rebuild(rng, inner, &mut out.entry(key).unwrap().message(1).unwrap());
                    }
                    value => out.insert(key, value).unwrap(),
                }
            }
        }
        value => to.set(idx, value).unwrap(),
    }
}

fn has_unknown(record: Record<'_>) -> bool {
    let inner = |value| match value {
        Value::Message(record) => has_unknown(record),
        Value::List(list) | Value::Map(list) => {
            list.iter().any(|value| matches!(value, Value::Message(record) if has_unknown(record)))
        }
        _ => false,
    };
    record.unknown().next().is_some() || record.fields().any(|(_, value)| inner(value))
}

/// Builds the message in a builder, in two ways, and compares both with what was decoded; whether prost has been asked, too.
fn built(p: &Processor, pool: &DescriptorPool, name: &str, input: &[u8], rng: &mut TestRng) -> bool {
    let type_idx = p.type_by_name(name).unwrap();
    let limits = Limits { require_all: false, ..Limits::default() };
    let source = p.decode_owned(type_idx, input, Arena::with_limit(1 << 24).into(), &limits).unwrap();
    let (root, mut buffer) = (source.object().root(), EncodeBuffer::new());
    let expected = source.object().encode(&mut buffer).unwrap().to_vec();

    let mut builder = p.builder(type_idx, Arena::with_limit(1 << 24)).unwrap();
    builder.edit().copy_from(root).unwrap();
    let copy = builder.freeze().unwrap();
    p.verify(type_idx, copy.object().bytes(), 100).expect("a builder is sound");
    assert_eq!(copy.object().encode(&mut buffer).unwrap(), expected, "a copy has the unknown fields, too");

    let mut builder = p.builder(type_idx, Arena::with_limit(1 << 24)).unwrap();
    rebuild(rng, root, &mut builder.edit());
    assert_eq!(builder.edit().view().fields().count(), root.fields().count());
    let built = builder.freeze().unwrap();
    p.verify(type_idx, built.object().bytes(), 100).expect("a builder is sound");
    assert_eq!(format!("{built:?}"), format!("{source:?}"));
    if has_unknown(root) {
        return false;
    }
    let ours = built.object().encode(&mut buffer).unwrap();
    assert_eq!(ours, expected);
    let theirs = DynamicMessage::decode(descriptor(pool, name), input).unwrap();
    assert!(same(&theirs, &DynamicMessage::decode(descriptor(pool, name), ours).unwrap()));
    true
}

#[test]
fn what_is_built_is_what_prost_reads() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    with_schemas(|p, pool| {
        for name in ["t3.All", "t3.Plain", "t2.All"] {
            let mut asked = 0;
            for _ in 0..250 {
                let mut rng = runner.new_rng();
                let input = message(&mut rng, &descriptor(pool, name), 0);
                asked += usize::from(built(p, pool, name, &input, &mut rng));
            }
            assert!(asked > 20, "prost was asked {asked} times");
        }
    });
}

#[test]
fn the_generator_reaches_every_field() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    with_schemas(|_, pool| {
        let descriptor = descriptor(pool, "t3.All");
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let mut rng = runner.new_rng();
            let input = message(&mut rng, &descriptor, 0);
            let decoded = DynamicMessage::decode(descriptor.clone(), &input[..]).unwrap();
            seen.extend(decoded.fields().map(|(field, _)| field.number()));
            assert_eq!(decoded.encoded_len(), decoded.encode_to_vec().len());
        }
        assert_eq!(seen.len(), descriptor.fields().count());
    });
}
