//! Messages, objects and tables from outside.

use std::cell::Cell;
use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage, Value};
use tollfree_layout::flat::{HEADER_LEN, Header};
use tollfree_layout::steps;
use tollfree_layout::table::{Fingerprint, HEADER_LEN as TABLE_HEADER_LEN, Table};
use tollfree_processor::thrift::Protocol;
use tollfree_processor::{Arena, DecodeError, EncodeBuffer, Limits, Processor};
use tollfree_schema::Schema;

use crate::views;
use crate::work::{hold, within};

/// Types that the first byte of an input chooses from. `t3.Plain` comes first: it is the one that prost is asked about.
const TYPES: [&str; 4] = ["t3.Plain", "t3.All", "t2.All", "t2.Must"];

static SCHEMAS: LazyLock<(Processor, DescriptorPool)> = LazyLock::new(|| {
    let schemas = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/processor/tests/fixture");
    let set = protox::compile(["all2.proto", "all3.proto"], [schemas]).expect("the schemas are valid");
    let bytes = set.encode_to_vec();
    let schema = Schema::from_descriptor_set(&bytes).expect("protox writes valid sets");
    let pool = DescriptorPool::decode(&bytes[..]).expect("protox writes valid sets");
    (Processor::new(schema.compile().expect("it has a table")), pool)
});

/// Bytes of an arena that an input may fill.
const ARENA_LIMIT: usize = 1 << 24;

fn limits() -> Limits {
    Limits { fields: 100_000, ..Limits::default() }
}

/// Decodes a message: copying and aliasing agree, the object verifies, what it encodes to decodes to the same; of
/// `t3.Plain`, prost accepts and refuses the same and sees the same in both forms. Generated views read the same, and builders build
/// it anew.
pub fn protobuf(data: &[u8]) {
    let Some((choice, input)) = data.split_first() else { return };
    let (processor, pool) = &*SCHEMAS;
    let type_name = TYPES[usize::from(*choice) % TYPES.len()];
    let ours = decode_all_ways(processor, type_name, input);
    if let Ok(encoded) = &ours {
        let again = decode_all_ways(processor, type_name, encoded);
        assert_eq!(again.as_ref(), Ok(encoded), "what was encoded is canonical");
    }
    views::message(type_name, input, &limits(), &ours);
    if type_name != TYPES[0] {
        return;
    }
    let descriptor = pool.get_message_by_name(type_name).expect("the schema has it");
    match (ours, DynamicMessage::decode(descriptor.clone(), input)) {
        (Ok(encoded), Ok(before)) => {
            let after =
                DynamicMessage::decode(descriptor, &encoded[..]).expect("prost reads what was encoded");
            assert!(same(&before, &after), "prost sees another message");
            let theirs = before.encode_to_vec();
            let ours = decode_all_ways(processor, type_name, &theirs).expect("prost's encoding is valid");
            assert_eq!(ours.len(), theirs.len(), "one encoding is longer");
            let after =
                DynamicMessage::decode(before.descriptor(), &ours[..]).expect("prost has accepted it");
            assert!(same(&before, &after), "prost's encoding is another message");
        }
        (Err(_), Err(_)) => {}
        // Bounds of ours that prost does not have.
        (Err(DecodeError::Limit { .. } | DecodeError::ArenaExhausted { .. }), Ok(_)) => {}
        // protobuf's parsers end a tag or length after five bytes, prost after ten.
        (Err(DecodeError::Varint { offset, .. }), Ok(_)) if is_long(input, offset) => {}
        // prost refuses a known field of another wire type; protobuf's rule is to keep it as unknown.
        (Ok(_), Err(error)) if error.to_string().contains("invalid wire type") => {}
        (ours, theirs) => panic!("prost: {:?}, ours: {:?}", theirs.map(|_| ()), ours.map(|_| ())),
    }
}

/// Whether a varint of more than five bytes, and at most ten, can begin from `offset` on. (Inside an unknown field, an
/// error's offset is where its value begins.)
fn is_long(input: &[u8], offset: usize) -> bool {
    let mut rest = input.get(offset..).unwrap_or(&[]).split(|byte| *byte < 0x80);
    rest.any(|more| more.len() >= 5)
}

/// Decodes, copying and aliasing, verifies both objects and encodes them; all must agree.
fn decode_all_ways(processor: &Processor, type_name: &str, input: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let type_idx = processor.type_by_name(type_name).expect("the schema has it");
    let (mut copied, mut staged) = (Arena::with_limit(ARENA_LIMIT), Arena::with_limit(ARENA_LIMIT));
    // The same for all inputs, so that what it remembers of one meets the others.
    let mut buffer = BUFFER.take();
    staged.stage(input.len()).expect("inputs are short").copy_from_slice(input);
    let taken = steps::of(|| drop(processor.decode_staged(type_idx, &mut staged, &limits()).map(|_| ()))).1;
    hold("decoding", taken, input.len() + staged.capacity());
    staged.stage(input.len()).expect("inputs are short").copy_from_slice(input);
    let taken = steps::of(|| drop(processor.decode(type_idx, input, &mut copied, &limits()).map(|_| ()))).1;
    hold("decoding", taken, input.len() + copied.capacity());
    let other = processor.decode_staged(type_idx, &mut staged, &limits());
    let object = match (processor.decode(type_idx, input, &mut copied, &limits()), &other) {
        (Ok(object), Ok(_)) => object,
        // The two fill their arenas differently, and may find different ends of them.
        (Err(error), Err(_)) => return Err(error),
        (ours @ Err(DecodeError::ArenaExhausted { .. }), _) => return ours.map(|_| Vec::new()),
        (_, Err(error @ DecodeError::ArenaExhausted { .. })) => return Err(error.clone()),
        (copying, aliasing) => {
            panic!("copying: {:?}, aliasing: {:?}", copying.map(|_| ()), aliasing.as_ref().map(|_| ()))
        }
    };
    let (bytes, taken) = steps::of(|| object.encode(&mut buffer).expect("it is short").to_vec());
    hold("encoding", taken, object.bytes().len() + bytes.len());
    let other = other.expect("looked at above");
    assert_eq!(other.encode(&mut buffer).expect("it is short"), bytes, "aliasing differs from copying");
    for object in [object, other] {
        let moved = object.bytes().to_vec();
        let verified = within("verifying", moved.len(), || processor.verify(type_idx, &moved, 1000));
        let verified = verified.expect("the decoder's object is sound");
        assert_eq!(verified.encode(&mut buffer).expect("it is short"), bytes);
        assert_eq!(format!("{:?}", verified.root()), format!("{:?}", object.root()));
    }
    BUFFER.set(buffer);
    Ok(bytes)
}

thread_local! {
    static BUFFER: Cell<EncodeBuffer> = Cell::default();
}

/// Verifies an object behind a header that is right in all but the place of the root, which the input's first word
/// says. What is accepted is read and encoded without leaving it.
pub fn object(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else { return };
    let Some((root, body)) = rest.split_first_chunk::<4>() else { return };
    let (processor, _) = &*SCHEMAS;
    let type_idx =
        processor.type_by_name(TYPES[usize::from(*choice) % TYPES.len()]).expect("the schema has it");
    let mut bytes = vec![0; HEADER_LEN as usize];
    bytes.extend_from_slice(body);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let header = Header {
        object_len: bytes.len() as u32,
        root_off: u32::from_le_bytes(*root),
        fingerprint: processor.table().type_fingerprint(type_idx),
    };
    bytes[..HEADER_LEN as usize].copy_from_slice(&header.to_bytes());
    let verified = within("verifying", bytes.len(), || processor.verify(type_idx, &bytes, 100));
    let owned = || processor.verify_held(type_idx, bytes.clone().into(), 100).map(|_| ());
    _ = within("looking for what is missing", 2 * bytes.len(), owned);
    views::object(TYPES[usize::from(*choice) % TYPES.len()], &bytes, verified.is_ok());
    let Ok(object) = verified else { return };
    let text = format!("{:?}", object.root());
    assert_eq!(text, format!("{:?}", object.root()));
    let mut buffer = BUFFER.take();
    let (encoded, taken) = steps::of(|| object.encode(&mut buffer).map(<[u8]>::len));
    hold("encoding", taken, bytes.len() + encoded.expect("an object of a few bytes encodes to a few"));
    BUFFER.set(buffer);
}

/// Loads a table whose length and fingerprint are made right, which no input would find. What is accepted serves for
/// decoding, verifying, reading and encoding, in protobuf and in Thrift.
pub fn table(data: &[u8]) {
    let Some((len, rest)) = data.split_first() else { return };
    let message_len = usize::from(*len).min(rest.len());
    let (message, blob) = rest.split_at(message_len);
    let mut blob = blob.to_vec();
    if blob.len() >= TABLE_HEADER_LEN {
        let len = blob.len() as u32;
        blob[8..12].copy_from_slice(&len.to_le_bytes());
        let fingerprint = Fingerprint::of_blob(&blob);
        blob[56..64].copy_from_slice(&fingerprint.to_le_bytes());
    }
    let Ok(table) = within("loading", blob.len(), || Table::load(&blob)) else { return };
    assert_eq!(Table::load(table.blob()).map(|again| again.fingerprint()), Ok(table.fingerprint()));
    let processor = within("making ready", blob.len(), || Processor::new(table));
    for type_idx in 0..processor.table().types().len().min(8) as u32 {
        within("a fingerprint", blob.len(), || processor.fingerprint(type_idx));
        let mut arena = Arena::with_limit(1 << 20);
        let taken =
            steps::of(|| drop(processor.decode(type_idx, message, &mut arena, &limits()).map(|_| ()))).1;
        hold("decoding", taken, message.len() + arena.capacity());
        if let Ok(object) = processor.decode(type_idx, message, &mut arena, &limits()) {
            let verified =
                processor.verify(type_idx, object.bytes(), 1000).expect("the decoder's object is sound");
            assert_eq!(format!("{:?}", verified.root()), format!("{:?}", object.root()));
            let mut buffer = EncodeBuffer::new();
            let (encoded, taken) = steps::of(|| verified.encode(&mut buffer).map(<[u8]>::len));
            hold("encoding", taken, object.bytes().len() + encoded.expect("it was decoded from protobuf"));
        }
        for protocol in [Protocol::Compact, Protocol::Binary] {
            let mut decode = || {
                drop(
                    processor
                        .decode_thrift(protocol, type_idx, message, 0, &mut arena, &limits())
                        .map(|_| ()),
                );
            };
            let taken = steps::of(&mut decode).1;
            hold("decoding Thrift", taken, message.len() + arena.capacity());
            let decoded = processor.decode_thrift(protocol, type_idx, message, 0, &mut arena, &limits());
            let Ok((object, _)) = decoded else { continue };
            let verified =
                processor.verify(type_idx, object.bytes(), 1000).expect("the decoder's object is sound");
            assert_eq!(format!("{:?}", verified.root()), format!("{:?}", object.root()));
            let mut out = Vec::new();
            let (encoded, taken) = steps::of(|| verified.encode_thrift(protocol, &mut out));
            encoded.expect("it was decoded from Thrift");
            hold("encoding Thrift", taken, object.bytes().len() + out.len());
        }
    }
}

/// Equality by bits, so that a NaN equals itself.
fn same(a: &DynamicMessage, b: &DynamicMessage) -> bool {
    a.fields().count() == b.fields().count()
        && a.fields()
            .zip(b.fields())
            .all(|((fa, va), (fb, vb))| fa.number() == fb.number() && same_value(va, vb))
        && a.unknown_fields().eq(b.unknown_fields())
}

fn same_value(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::F64(a), Value::F64(b)) => a.to_bits() == b.to_bits(),
        (Value::F32(a), Value::F32(b)) => a.to_bits() == b.to_bits(),
        (Value::Message(a), Value::Message(b)) => same(a, b),
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b))
        }
        _ => a == b,
    }
}
