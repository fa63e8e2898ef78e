//! Tollfree's rows.

use std::hint::black_box;

use tollfree_bench::BenchError;
use tollfree_bench::message::ends;
use tollfree_processor::thrift::Protocol;
use tollfree_processor::{Arena, DecodeError, EncodeBuffer, Limits, Object, Processor, Record, Value};
use tollfree_schema::Schema;

use super::known;
use super::measure::Runner;
use super::payload::Payload;

/// Largest object that is measured, in bytes.
const ARENA_LIMIT: usize = 1 << 30;

/// What is between message and object.
#[derive(Debug, Clone, Copy)]
pub(super) enum Codec {
    Protobuf,
    Thrift(Protocol),
}

/// A message with its processor, and the object that it decodes to.
pub(super) struct Ours<'p> {
    name: &'p str,
    input: &'p [u8],
    processor: Processor,
    type_idx: u32,
    codec: Codec,
    object: Vec<u8>,
    fields: usize,
}

impl<'p> Ours<'p> {
    pub(super) fn new(payload: &'p Payload) -> Result<Self, BenchError> {
        Self::with_schema(payload, &payload.descriptor_set)
    }

    /// The same payload after another schema.
    pub(super) fn with_schema(payload: &'p Payload, set: &[u8]) -> Result<Self, BenchError> {
        let refused = |what: &dyn std::fmt::Display| BenchError::Refused(format!("{}: {what}", payload.name));
        let schema = Schema::from_descriptor_set(set).map_err(|error| refused(&error))?;
        let processor = Processor::new(schema.compile().map_err(|error| refused(&error))?);
        let type_idx = processor
            .type_by_name(&payload.type_name)
            .ok_or_else(|| refused(&format!("the schema has no type {}", payload.type_name)))?;
        Self::of(&payload.name, &payload.bytes, processor, type_idx, Codec::Protobuf)
            .map_err(|error| refused(&error))
    }

    pub(super) fn of(
        name: &'p str,
        input: &'p [u8],
        processor: Processor,
        type_idx: u32,
        codec: Codec,
    ) -> Result<Self, DecodeError> {
        let mut ours = Self { name, input, processor, type_idx, codec, object: Vec::new(), fields: 0 };
        let mut arena = Arena::with_limit(ARENA_LIMIT);
        let decoded = ours.object(&mut arena)?;
        let (object, fields) = (decoded.bytes().to_vec(), count(decoded.root()));
        (ours.object, ours.fields) = (object, fields);
        Ok(ours)
    }

    /// Fields of the message and of those in it; every element of a list counts.
    pub(super) fn field_count(&self) -> usize {
        self.fields
    }

    /// Bytes of the flat message.
    pub(super) fn object_len(&self) -> usize {
        self.object.len()
    }

    #[inline(always)]
    fn object<'a>(&'a self, arena: &'a mut Arena<'_>) -> Result<Object<'a>, DecodeError> {
        let (input, limits) = (black_box(self.input), Limits::default());
        match self.codec {
            Codec::Protobuf => self.processor.decode(self.type_idx, input, arena, &limits),
            Codec::Thrift(protocol) => self
                .processor
                .decode_thrift(protocol, self.type_idx, input, 0, arena, &limits)
                .map(|(object, _)| object),
        }
    }

    fn decode_and_drop(&self, arena: &mut Arena<'_>) {
        black_box(self.object(arena).expect("it decoded before"));
    }

    fn verified(&self) -> Object<'_> {
        self.processor.verify(self.type_idx, &self.object, 1000).expect("the decoder made it")
    }

    pub(super) fn decode(&self, side: &'static str) -> Runner<'_> {
        let mut arena = Arena::with_limit(ARENA_LIMIT);
        // Peers are called through a vtable: neither they nor we are made one with the loop around.
        let decode = black_box(Self::decode_and_drop as fn(&Self, &mut Arena<'_>));
        Runner::new("decode", side, move || decode(self, &mut arena))
    }

    /// Decoding where the input lies: it is staged once, and stays in its place behind each object's header.
    fn decode_aliasing(&self) -> Runner<'_> {
        let (input, limits) = (self.input, Limits::default());
        let mut arena = Arena::with_limit(ARENA_LIMIT);
        arena.stage(input.len()).expect("it fits, as it did before").copy_from_slice(input);
        Runner::new("decode", "tollfree, aliasing", move || {
            black_box(arena.stage(input.len()).expect("it fitted before"));
            let decoded = match self.codec {
                Codec::Protobuf => self.processor.decode_staged(self.type_idx, &mut arena, &limits),
                Codec::Thrift(protocol) => self
                    .processor
                    .decode_thrift_staged(protocol, self.type_idx, 0, &mut arena, &limits)
                    .map(|(object, _)| object),
            };
            black_box(decoded.expect("it decoded before"));
        })
    }

    fn encode(&self) -> Runner<'_> {
        let object = self.verified();
        match self.codec {
            Codec::Protobuf => {
                let mut buffer = EncodeBuffer::new();
                let encode = black_box(encode as fn(&Object<'_>, &mut EncodeBuffer));
                Runner::new("encode", "tollfree", move || encode(black_box(&object), &mut buffer))
            }
            Codec::Thrift(protocol) => {
                let mut out = Vec::new();
                Runner::new("encode", "tollfree", move || {
                    out.clear();
                    black_box(&object).encode_thrift(protocol, &mut out).expect("it was decoded");
                    black_box(&mut out);
                })
            }
        }
    }

    pub(super) fn rows(&self) -> Vec<Runner<'_>> {
        let object = self.verified();
        let mut rows = vec![
            self.decode("tollfree"),
            self.decode_aliasing(),
            self.encode(),
            Runner::new("verify", "tollfree", || {
                black_box(self.verified());
            }),
            Runner::new("access", "tollfree", move || {
                black_box(read(black_box(&object).root()));
            }),
        ];
        if self.processor.type_by_name(known::NAME) == Some(self.type_idx) && self.name == known::PAYLOAD {
            rows.push(self.access_known());
        }
        rows
    }

    /// Access where the program knows the message's fields, and has looked them up.
    fn access_known(&self) -> Runner<'_> {
        let side = "tollfree, known fields";
        let (object, known) = match known::M3::new(&self.processor) {
            Ok(known) => (self.verified(), known),
            Err(why) => return Runner::not_run("access", side, why.to_string()),
        };
        assert_eq!(known.read(object.root()), read(object.root()), "both read all fields");
        Runner::new("access", side, move || {
            black_box(black_box(&known).read(black_box(&object).root()));
        })
    }
}

fn encode(object: &Object<'_>, buffer: &mut EncodeBuffer) {
    black_box(object.encode(buffer).expect("it was decoded"));
}

pub(super) fn count(record: Record<'_>) -> usize {
    record.fields().map(|(_, value)| count_value(value)).sum()
}

fn count_value(value: Value<'_>) -> usize {
    match value {
        Value::Message(record) => 1 + count(record),
        Value::List(list) | Value::Map(list) => list.iter().map(count_value).sum(),
        _ => 1,
    }
}

/// Reads every field: numbers are summed, of strings the first and last byte are looked at.
fn read(record: Record<'_>) -> u64 {
    let mut sum = 0u64;
    for (_, value) in record.fields() {
        match value {
            Value::List(list) | Value::Map(list) => {
                for element in list.iter() {
                    sum = sum.wrapping_add(read_one(element));
                }
            }
            value => sum = sum.wrapping_add(read_one(value)),
        }
    }
    sum
}

/// A value that is no list; elements of lists are none.
#[inline(always)]
pub(super) fn read_one(value: Value<'_>) -> u64 {
    match value {
        Value::Bool(value) => value.into(),
        Value::I8(value) => value as u64,
        Value::I16(value) => value as u64,
        Value::I32(value) | Value::Enum(value) => value as u64,
        Value::I64(value) => value as u64,
        Value::U32(value) => value.into(),
        Value::U64(value) => value,
        Value::F32(value) => value.to_bits().into(),
        Value::F64(value) => value.to_bits(),
        Value::String(text) => ends(text.as_bytes()),
        Value::Bytes(bytes) => ends(bytes),
        Value::Message(record) => read(record),
        Value::List(_) | Value::Map(_) => 0,
    }
}
