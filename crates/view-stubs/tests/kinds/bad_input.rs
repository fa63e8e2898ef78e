//! What is wrong with an input or an object, through generated views and drafts: refused with the same words as by the
//! processor alone, and the arena serves again. What is accepted is read as prost reads it.

use prost::Message as _;
use prost::encoding::encode_varint;
use tollfree_processor::typed::{Draft, MessageMut, Owned};
use tollfree_processor::{Arena, Arenas, DraftError, EncodeBuffer, Limits};
use tollfree_view_stubs::kinds::prost::t3 as theirs;
use tollfree_view_stubs::kinds::{t2, t3};

use crate::fields::{full, put, read};

/// Field `number` with this wire type, then what `value` says.
fn field(number: u32, wire_type: u32, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode_varint(u64::from(number << 3 | wire_type), &mut out);
    out.extend_from_slice(value);
    out
}

fn varint(number: u32, value: u64) -> Vec<u8> {
    let mut out = field(number, 0, &[]);
    encode_varint(value, &mut out);
    out
}

fn bytes(number: u32, value: &[u8]) -> Vec<u8> {
    let mut out = field(number, 2, &[]);
    encode_varint(value.len() as u64, &mut out);
    out.extend_from_slice(value);
    out
}

/// A message in the message, so many levels deep.
fn nest(levels: usize) -> Vec<u8> {
    (0..levels).fold(Vec::new(), |inner, _| bytes(11, &inner))
}

/// Inputs of `t3.All` that break a rule, and what is said of each.
fn broken() -> Vec<(Vec<u8>, String)> {
    let eleven = [&[0x80; 10][..], &[0]].concat();
    let six = [0x80, 0x80, 0x80, 0x80, 0x80, 0x00];
    let most = [0xff, 0xff, 0xff, 0xff, 0x07];
    let more = [0x80, 0x80, 0x80, 0x80, 0x08];
    let mut rows = vec![
        (vec![0x80], ": the input breaks off at byte 1"),
        (field(6, 1, &[1; 7]), ".f_fixed64: the input breaks off at byte 8"),
        (field(9, 2, &[4, b'a', b'b', b'c']), ".f_string: the input breaks off at byte 2"),
        (bytes(25, &[1, 0x80]), ".r_int32[1]: the input breaks off at byte 5"),
        (bytes(26, &[1; 9]), ".r_fixed64[1]: the input breaks off at byte 12"),
        (field(999, 2, &[3, 1, 2]), ": the input breaks off at byte 2"),
        (bytes(11, &[0x4a]), ".f_message.f_string: the input breaks off at byte 3"),
        (bytes(51, &[0x0a, 5, b'k']), ".m_string[0].key: the input breaks off at byte 5"),
        (field(3, 0, &eleven), ".f_int64: the varint at byte 1 is too long"),
        (bytes(11, &field(4, 0, &eleven)), ".f_message.f_uint64: the varint at byte 3 is too long"),
        (bytes(23, &eleven), ".r_int64[0]: the varint at byte 3 is too long"),
        (vec![0xa8, 0x80, 0x80, 0x80, 0x80, 0x00, 1], ": the varint at byte 0 is too long"),
        (field(31, 2, &six), ".r_message[0]: the varint at byte 2 is too long"),
        (field(12, 2, &most), ".f_bytes: the input breaks off at byte 6"),
        (field(12, 2, &more), ".f_bytes: the varint at byte 1 is too long"),
        (field(5, 6, &[0; 8]), ".f_int32: the tag at byte 1 is not valid"),
        (field(5, 7, &[0; 8]), ".f_int32: the tag at byte 1 is not valid"),
        (field(0, 0, &[1]), ": the tag at byte 1 is not valid"),
        (bytes(31, &field(0, 0, &[1])), ".r_message[0]: the tag at byte 4 is not valid"),
        ([field(900, 3, &[]), field(901, 4, &[])].concat(), ": the tag at byte 2 is not valid"),
        ([bytes(31, b""), field(31, 2, &[5])].concat(), ".r_message[1]: the input breaks off at byte 6"),
    ];
    for wrong in [&b"\xff"[..], b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"a\x80"] {
        rows.push((bytes(9, wrong), ".f_string: the string before byte "));
        rows.push(([bytes(29, b"ok"), bytes(29, wrong)].concat(), ".r_string[1]: the string before byte "));
        rows.push((bytes(72, wrong), ".c_string: the string before byte "));
        rows.push((bytes(51, &bytes(1, wrong)), ".m_string[0].key: the string before byte "));
    }
    rows.into_iter().map(|(input, said)| (input, format!("t3.All{said}"))).collect()
}

#[test]
fn a_broken_input_is_refused_by_name_and_its_arena_serves_again() {
    let arenas = Arenas::new(1 << 20, 1);
    let whole = full(true);
    let sound = whole.encode_to_vec();
    for (input, said) in broken() {
        let refused = Owned::<t3::All>::decode(&input, arenas.take(), &Limits::default());
        let told = refused.unwrap_err().to_string();
        assert!(told.starts_with(&said), "{told}, and not {said}");
        let next = Owned::<t3::All>::decode(&sound, arenas.take(), &Limits::default()).unwrap();
        assert_eq!(read(next.view()), whole);
    }
}

#[test]
fn each_beginning_of_a_message_is_read_as_by_prost_or_refused_by_both() {
    let arenas = Arenas::new(1 << 20, 1);
    let input = full(true).encode_to_vec();
    let (mut accepted, mut refused) = (0, 0);
    for end in 0..=input.len() {
        let theirs = theirs::All::decode(&input[..end]);
        let ours = Owned::<t3::All>::decode(&input[..end], arenas.take(), &Limits::default());
        match (&ours, &theirs) {
            (Ok(ours), Ok(theirs)) => {
                assert_eq!(read(ours.view()), *theirs, "the first {end} bytes");
                accepted += 1;
            }
            (Err(_), Err(_)) => refused += 1,
            _ => panic!("the first {end} bytes: {:?}, and prost: {theirs:?}", ours.map(|_| ())),
        }
    }
    assert!(accepted > 40 && refused > 40, "{accepted} accepted, {refused} refused");
}

#[test]
fn doubled_fields_and_other_wire_types_are_read_as_protobuf_says() {
    let entry = |value| bytes(51, &[bytes(1, b"k"), varint(2, value)].concat());
    let inputs = [
        [varint(5, 1), bytes(9, b"a"), varint(5, 2), bytes(9, b"b")].concat(),
        [
            bytes(11, &[varint(3, 1), varint(25, 1)].concat()),
            bytes(11, &[varint(4, 2), varint(25, 2)].concat()),
        ]
        .concat(),
        [varint(71, 5), bytes(72, b"x"), varint(71, 6)].concat(),
        [entry(1), entry(2)].concat(),
        bytes(51, &[bytes(1, b"j"), varint(2, 1), bytes(1, b"k"), varint(2, 2)].concat()),
        varint(14, 77),
        varint(14, -77i64 as u64),
        varint(14, 1 << 32 | 1),
        varint((1 << 29) - 1, 7),
    ];
    for input in inputs {
        let ours = Owned::<t3::All>::decode(&input, Arena::with_limit(1 << 16), &Limits::default()).unwrap();
        assert_eq!(read(ours.view()), theirs::All::decode(&input[..]).unwrap(), "{input:?}");
    }
    // A known field with the wire type of another kind is an unknown one. prost refuses it.
    let input = [field(5, 5, &[1, 2, 3, 4]), field(9, 0, &[7]), varint(11, 1), varint(51, 1)].concat();
    let ours = Owned::<t3::All>::decode(&input, Arena::with_limit(1 << 16), &Limits::default()).unwrap();
    assert_eq!(read(ours.view()), theirs::All::default());
    assert_eq!(ours.object().encode(&mut EncodeBuffer::new()).unwrap(), input);
}

#[test]
fn depth_bombs_and_too_many_fields_are_refused_with_the_limit() {
    let arenas = Arenas::new(1 << 20, 1);
    let refused = |input: &[u8], limits: &Limits| {
        let three = Owned::<t3::All>::decode(input, arenas.take(), limits).unwrap_err().to_string();
        let two = Owned::<t2::All>::decode(input, arenas.take(), limits).map(|_| ());
        (three, two.map_err(|error| error.to_string()))
    };
    let (told, _) = refused(&nest(20_000), &Limits::default());
    assert!(told.contains("more than 100 levels of messages"), "{told}");
    let (three, two) = refused(&field(900, 3, &[]).repeat(100_000), &Limits::default());
    for told in [three, two.unwrap_err()] {
        assert!(told.contains("more than 100 levels of messages"), "{told}");
    }
    let many = varint(5, 1).repeat(11);
    let limits = Limits { fields: 10, ..Limits::default() };
    assert!(refused(&many, &limits).0.starts_with("t3.All: more than 10 fields"));
    assert!(Owned::<t3::All>::decode(&many[2..], arenas.take(), &limits).is_ok());
    let half = Owned::<t2::Must>::decode(&varint(1, 1), arenas.take(), &Limits::default());
    assert!(half.unwrap_err().to_string().starts_with("t2.Must.b is required and missing"));
}

/// Every word of an object with every kind of part, changed to every value that tells something.
#[test]
fn every_forged_word_of_an_object_is_refused_or_read() {
    let message = theirs::All {
        r_uint64: vec![24, 25],
        f_message: Some(Box::new(theirs::All { f_string: "inner".into(), ..Default::default() })),
        r_message: vec![theirs::All::default()],
        m_message: [(-52, theirs::All { f_int32: 7, ..Default::default() })].into(),
        ..full(false)
    };
    let input = [message.encode_to_vec(), varint(998, 1)].concat();
    let sound = Owned::<t3::All>::decode(&input, Arena::with_limit(1 << 20), &Limits::default()).unwrap();
    let sound = sound.object().bytes().to_vec();
    let (arenas, mut buffer) = (Arenas::new(1 << 16, 1), EncodeBuffer::new());
    let len = sound.len() as u32;
    let (mut accepted, mut tried) = (0, 0);
    let mut forged = sound.clone();
    for at in (0..sound.len() - 3).step_by(4) {
        let old = u32::from_le_bytes(sound[at..at + 4].try_into().unwrap());
        let telling = [0, 1, 7, 8, 32, len - 8, len - 1, len, len + 8, 1 << 31, u32::MAX, u32::MAX - 7];
        let near = [old ^ 1, old ^ 8, old.wrapping_add(1), old.wrapping_add(8), old.wrapping_sub(8)];
        for value in telling.into_iter().chain(near) {
            forged[at..at + 4].copy_from_slice(&value.to_le_bytes());
            tried += 1;
            if let Ok(found) = Owned::<t3::All>::verify(&forged, arenas.take(), 100) {
                accepted += 1;
                std::hint::black_box(read(found.view()));
                found.object().encode(&mut buffer).unwrap();
            }
        }
        forged[at..at + 4].copy_from_slice(&sound[at..at + 4]);
    }
    assert!(accepted > 1000 && accepted < tried, "{accepted} of {tried} accepted");
}

/// Arenas of every size up to that which is enough: whatever step of a draft is the one too many, it says so, what was
/// built until then is whole, and the arena serves the next draft as it served this one.
#[test]
fn a_draft_that_outgrows_its_arena_at_any_step_leaves_it_usable() {
    let whole = full(true);
    let small = theirs::All { far: 5, ..Default::default() };
    let (mut full_at, mut begun) = (None, 0);
    for limit in (0..64 << 10).step_by(64) {
        let arenas = Arenas::new(limit, 1);
        let attempt = |message: &theirs::All| -> Result<Vec<u8>, Option<Vec<u8>>> {
            let mut draft = Draft::<t3::All>::new(arenas.take()).map_err(|error| {
                assert!(matches!(error, DraftError::Exhausted { .. }), "{error}");
                None
            })?;
            let done = put(draft.edit(), message);
            let so_far = read(draft.edit().view());
            if let Err(error) = &done {
                assert!(matches!(error, DraftError::Exhausted { .. }), "{error}");
                assert_ne!(so_far, *message);
            }
            let object = match draft.freeze() {
                Ok(object) => object,
                Err(error) => {
                    assert!(matches!(error, DraftError::Exhausted { .. }), "{error}");
                    return Err(None);
                }
            };
            let object = object.object();
            let verified = Owned::<t3::All>::verify(object.bytes(), Arena::with_limit(1 << 20), 100).unwrap();
            assert_eq!(read(verified.view()), so_far);
            let encoded = object.encode(&mut EncodeBuffer::new()).unwrap().to_vec();
            assert_eq!(theirs::All::decode(&encoded[..]).unwrap(), so_far);
            done.map(|()| encoded.clone()).map_err(|_| Some(encoded))
        };
        let first = attempt(&whole);
        let between = attempt(&small);
        assert_eq!(first, attempt(&whole), "a limit of {limit}: the arena serves again as it served");
        if let Err(Some(_)) = &first {
            begun += 1;
            assert!(between.is_ok(), "a limit of {limit}: a small message has room");
        }
        if first.is_ok() {
            full_at = Some(limit);
            break;
        }
    }
    assert!(full_at.is_some() && begun > 10, "{begun} drafts ended on the way; enough was {full_at:?}");
}
