//! A quick look at structured messages, this processor against prost in one run: `google.protobuf.FileDescriptorSet`
//! decoded, encoded, verified and read. `cargo bench -p tollfree-processor`. Steers work on the engines; published
//! figures come from `tollfree-lab bench`.
//!
//! The payload is descriptor.proto's own descriptor set, or the file that `TOLLFREE_PAYLOAD` names.

use prost::Message;
use prost_reflect::prost_types::FileDescriptorSet;
use std::hint::black_box;
use std::time::{Duration, Instant};
use tollfree_processor::{Arena, EncodeBuffer, Limits, Processor, Record, Value};
use tollfree_schema::Schema;

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(20);

/// Nanoseconds a call, one figure a round.
fn round(run: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    let mut count = 0u32;
    while start.elapsed() < ROUND {
        run();
        count += 1;
    }
    start.elapsed().as_nanos() as f64 / f64::from(count)
}

/// Fields of the message and of those in it, counting every element.
fn count(record: Record<'_>) -> usize {
    record.fields().map(|(_, value)| count_value(value)).sum()
}

fn count_value(value: Value<'_>) -> usize {
    match value {
        Value::Message(record) => 1 + count(record),
        Value::List(list) | Value::Map(list) => list.iter().map(count_value).sum(),
        _ => 1,
    }
}

fn main() {
    let set =
        protox::compile(["google/protobuf/descriptor.proto"], ["."]).expect("descriptor.proto is built in");
    let schema = Schema::from_descriptor_set(&set.encode_to_vec()).expect("a valid descriptor set");
    let processor = Processor::new(schema.compile().expect("a valid table"));
    let payload = match std::env::var_os("TOLLFREE_PAYLOAD") {
        Some(path) => std::fs::read(path).expect("TOLLFREE_PAYLOAD names a file"),
        None => set.encode_to_vec(),
    };
    let type_idx =
        processor.type_by_name("google.protobuf.FileDescriptorSet").expect("descriptor.proto has it");
    let limits = Limits::default();
    let (mut arena, mut other, mut buffer) =
        (Arena::with_limit(1 << 28), Arena::with_limit(1 << 28), EncodeBuffer::new());
    let object = processor.decode(type_idx, &payload, &mut other, &limits).expect("the payload decodes");
    let peer = FileDescriptorSet::decode(&payload[..]).expect("prost decodes it, too");
    let fields = count(object.root());
    let mut out = Vec::with_capacity(payload.len());
    type Row<'r> = (&'static str, Box<dyn FnMut() + 'r>);
    let mut rows: [Row<'_>; 6] = [
        (
            "decode and drop, prost",
            Box::new(|| {
                black_box(FileDescriptorSet::decode(black_box(&payload[..])).expect("decoded before"));
            }),
        ),
        (
            "decode and drop, copying",
            Box::new(|| {
                black_box(
                    processor
                        .decode(type_idx, black_box(&payload), &mut arena, &limits)
                        .expect("decoded before"),
                );
            }),
        ),
        (
            "encode, prost",
            Box::new(|| {
                out.clear();
                black_box(&peer).encode(&mut out).expect("a vector grows");
                black_box(&mut out);
            }),
        ),
        (
            "encode",
            Box::new(|| {
                black_box(black_box(&object).encode(&mut buffer).expect("encodes"));
            }),
        ),
        (
            "verify",
            Box::new(|| {
                black_box(processor.verify(type_idx, black_box(object.bytes()), 100).expect("sound"));
            }),
        ),
        (
            "read every field",
            Box::new(|| {
                black_box(count(black_box(&object).root()));
            }),
        ),
    ];
    let mut times = vec![Vec::with_capacity(ROUNDS); rows.len()];
    for _ in 0..ROUNDS {
        for ((_, run), times) in rows.iter_mut().zip(&mut times) {
            times.push(round(run));
        }
    }
    println!(
        "{} bytes, {fields} fields, object of {} bytes; medians of {ROUNDS} rounds",
        payload.len(),
        object.bytes().len()
    );
    for ((name, _), mut times) in rows.iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let median = times[ROUNDS / 2];
        println!("{name:<28}{median:>12.0} ns{:>9.2} ns a field", median / fields as f64);
    }
}
