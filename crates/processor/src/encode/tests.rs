//! The encoder with few levels on its stack and a short longest message, and what its buffer remembers.

use super::*;
use crate::{Arena, Limits, Processor};
use tollfree_schema::{Field, Kind, Label, Message, Schema};

/// Also where the buffer, which doubles, has room for more than a message may have.
#[test]
fn no_message_is_longer_than_the_longest() {
    let fields = vec![Field::new(1, "parts", Kind::Bytes, Label::List)];
    let message = Message { name: "M".into(), fields, ..Message::default() };
    let schema = Schema { messages: vec![message], ..Schema::default() };
    let processor = Processor::new(schema.compile().unwrap());
    let mut buffer = EncodeBuffer::new();
    // Lengths are those for a longest message of a megabyte.
    let scaled = |len: usize| (len * LONGEST) >> 20;
    let mut encode = |parts: &[usize]| {
        let mut input = Vec::new();
        for len in parts {
            input.push(0x0a);
            prost::encoding::encode_varint(*len as u64, &mut input);
            input.resize(input.len() + len, 7);
        }
        let mut arena = Arena::with_limit(1 << 24);
        let object = processor.decode(0, &input, &mut arena, &Limits::default()).unwrap();
        object.encode(&mut buffer).map(|out| assert!(out == input))
    };
    assert_eq!(encode(&[scaled(600_000)]), Ok(()));
    assert_eq!(encode(&[scaled(350_000); 2]), Ok(()));
    assert_eq!(encode(&[LONGEST - 4]), Ok(()));
    assert_eq!(encode(&[LONGEST - 3]), Err(EncodeError::TooLong));
    assert_eq!(encode(&[scaled(1_100_000)]), Err(EncodeError::TooLong));
    // Fewer and longer ones under Miri, which takes minutes for more.
    let many = if cfg!(miri) { vec![13; scaled(80_000)] } else { vec![1; 400_000] };
    assert_eq!(encode(&many), Err(EncodeError::TooLong));
}

/// Encodes what the message decodes to, and compares.
fn round_trip(processor: &Processor, buffer: &mut EncodeBuffer, input: &[u8]) {
    let mut arena = Arena::with_limit(1 << 24);
    let object = processor.decode(0, input, &mut arena, &Limits::default()).unwrap();
    assert_eq!(object.encode(buffer).unwrap(), input);
}

/// A message that has itself inside it, in each way that there is, and more than one presence word if so.
fn tree(wide: bool) -> Processor {
    let mut fields: Vec<Field> = [Kind::Uint64, Kind::String, Kind::Message, Kind::Message, Kind::Message]
        .iter()
        .zip([Label::Explicit, Label::List, Label::Explicit, Label::List, Label::List])
        .zip(1..)
        .map(|((kind, label), number)| Field {
            target_idx: (*kind == Kind::Message).then_some(0),
            delimited: number == 5,
            ..Field::new(number, &format!("f{number}"), *kind, label)
        })
        .collect();
    for number in if wide { 20..90 } else { 20..24 } {
        fields.push(Field::new(number, &format!("f{number}"), Kind::Uint32, Label::Explicit));
    }
    let message = Message { name: "Tree".into(), fields, ..Message::default() };
    let schema = Schema { messages: vec![message], ..Schema::default() };
    Processor::new(schema.compile().unwrap())
}

/// One of `tree`'s messages: `dice` says of each field whether it is there.
fn branch(dice: &mut impl FnMut() -> u32, depth: u32, wide: bool) -> Vec<u8> {
    use prost::encoding::encode_varint;
    let mut out = Vec::new();
    if dice().is_multiple_of(2) {
        out.push(0x08);
        encode_varint(u64::from(dice()) >> (dice() % 32), &mut out);
    }
    for _ in 0..dice() % 3 {
        out.extend([0x12, 2, b'o', b'k']);
    }
    let inner = if depth == 0 { 0 } else { 3 };
    for (tag, most) in [(0x1au8, 2), (0x22, inner), (0x2b, inner)] {
        for _ in 0..dice() % (if depth == 0 { 1 } else { most }).max(1) {
            let bytes = branch(dice, depth - 1, wide);
            out.push(tag);
            if tag == 0x2b {
                out.extend(bytes);
                out.push(0x2c);
            } else {
                encode_varint(bytes.len() as u64, &mut out);
                out.extend(bytes);
            }
        }
    }
    for number in if wide { 20u64..90 } else { 20..24 } {
        if dice().is_multiple_of(3) {
            encode_varint(number << 3, &mut out);
            encode_varint(u64::from(dice()), &mut out);
        }
    }
    // An unknown field.
    if dice().is_multiple_of(4) {
        out.extend([0x98, 0x06, 7]);
    }
    out
}

/// Each record has other fields than the last one of its type, which may be one that it lies in.
#[test]
fn records_inside_records_of_their_own_type() {
    for wide in [false, true] {
        let (processor, mut buffer) = (tree(wide), EncodeBuffer::new());
        let mut state = 1u64;
        let mut dice = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u32
        };
        let mut deepest = 0;
        // Miri takes its time: small trees only.
        for depth in if cfg!(miri) { (0..4).cycle().take(8) } else { (0..7).cycle().take(210) } {
            let input = branch(&mut dice, depth, wide);
            deepest = deepest.max(input.len());
            round_trip(&processor, &mut buffer, &input);
        }
        assert!(deepest > if cfg!(miri) { 200 } else { 1000 }, "the dice made no tree");
    }
}

/// More plans than a buffer remembers, of types that differ in nothing but their fields' numbers; also plans that
/// lie where another one has lain.
#[test]
fn one_buffer_serves_several_plans() {
    let plan = |number| {
        let fields = vec![Field::new(number, "f", Kind::Uint64, Label::Explicit)];
        let message = Message { name: "M".into(), fields, ..Message::default() };
        Processor::new(Schema { messages: vec![message], ..Schema::default() }.compile().unwrap())
    };
    let mut buffer = EncodeBuffer::new();
    let plans: Vec<Processor> = (1..=12).map(plan).collect();
    for (idx, number) in (0..12).chain(0..12).chain([3, 4, 3, 4, 11, 0].into_iter().cycle().take(60)).zip(1..)
    {
        round_trip(&plans[idx], &mut buffer, &[8 * (idx as u8 + 1), number]);
    }
    for number in (1..=12).cycle().take(100) {
        round_trip(&plan(number), &mut buffer, &[8 * number as u8, 1]);
    }
}

#[test]
fn a_buffer_goes_to_another_thread() {
    let (processor, mut buffer) = (tree(false), EncodeBuffer::new());
    round_trip(&processor, &mut buffer, &[8, 1]);
    std::thread::scope(|scope| {
        let moved = scope.spawn(|| {
            round_trip(&processor, &mut buffer, &[8, 2]);
            buffer
        });
        let mut buffer = moved.join().unwrap();
        round_trip(&processor, &mut buffer, &[8, 3]);
    });
}
