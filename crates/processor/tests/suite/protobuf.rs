//! What protobuf's rules ask of a decoder, one by one.

use bytes::Bytes;
use tollfree_processor::{
    Arena, Arenas, DecodeError, EncodeBuffer, Field as Known, FieldError, Limits, List, Method, MethodMap,
    OwnError, Processor, Record, Text, Value,
};
use tollfree_schema::{Enum, EnumValue, Field, Kind, Label, Message, Role, Schema};

use crate::fixture::{again, bytes, field, schemas, varint};

const T2: &str = "t2.All";
const T3: &str = "t3.All";

/// Decodes and calls `see` with the root record's debug text.
fn debug(p: &Processor, name: &str, input: &[u8]) -> String {
    let mut arena = Arena::with_limit(1 << 20);
    let object = p.decode(p.type_by_name(name).unwrap(), input, &mut arena, &Limits::default()).unwrap();
    format!("{:?}", object.root())
}

#[test]
fn the_last_of_duplicate_scalars_wins_and_messages_merge() {
    let (p, _) = schemas();
    let input = [
        varint(5, 1),
        bytes(9, b"first"),
        bytes(11, &varint(3, 7)),
        varint(5, 2),
        bytes(9, b"second"),
        bytes(11, &[varint(4, 8), varint(3, 9)].concat()),
    ]
    .concat();
    let expected =
        [varint(5, 2), bytes(9, b"second"), bytes(11, &[varint(3, 9), varint(4, 8)].concat())].concat();
    assert_eq!(again(&p, T3, &input).unwrap(), expected);
}

#[test]
fn implicit_zero_is_absence_even_after_a_value() {
    let (p, _) = schemas();
    let input =
        [varint(5, 3), bytes(9, b"x"), varint(8, 1), varint(5, 0), bytes(9, b""), varint(8, 0)].concat();
    assert_eq!(again(&p, T3, &input).unwrap(), b"");
    let input = [varint(61, 0), bytes(62, b"")].concat();
    assert_eq!(again(&p, T3, &input).unwrap(), input, "explicit zero stays");
    let minus_zero = field(1, 1, &(-0.0f64).to_le_bytes());
    assert_eq!(again(&p, T3, &minus_zero).unwrap(), minus_zero);
}

#[test]
fn unknown_fields_stay_in_order_behind_the_known() {
    let (p, _) = schemas();
    let (a, b) = (varint(900, 5), bytes(901, b"payload"));
    let c = [field(902, 3, &[]), varint(1, 2), field(902, 4, &[])].concat();
    let (d, e) = (field(903, 5, &[1, 2, 3, 4]), field(904, 1, &[9; 8]));
    let input = [&a[..], &varint(5, 1), &b, &c, &varint(3, 2), &d, &e].concat();
    let expected = [&varint(3, 2)[..], &varint(5, 1), &a, &b, &c, &d, &e].concat();
    assert_eq!(again(&p, T3, &input).unwrap(), expected);
    // A known number with another wire type is unknown, too; so is an extension.
    let input = [field(5, 5, &[1, 2, 3, 4]), varint(100, 3)].concat();
    assert_eq!(again(&p, T3, &input).unwrap(), input);
    assert_eq!(again(&p, T2, &varint(100, 3)).unwrap(), varint(100, 3));
}

#[test]
fn closed_enums_keep_unknown_values_aside() {
    let (p, _) = schemas();
    assert_eq!(
        again(&p, T2, &[varint(3, 2), varint(3, 77)].concat()).unwrap(),
        [varint(3, 2), varint(3, 77)].concat()
    );
    let input = [varint(4, 1), varint(4, 50), varint(4, 9), varint(4, 3)].concat();
    let expected = [varint(4, 1), varint(4, 9), varint(4, 50), varint(4, 3)].concat();
    assert_eq!(again(&p, T2, &input).unwrap(), expected);
    let input = bytes(5, &[1, 7, 2, 0x96, 1]);
    let expected = [bytes(5, &[1, 2]), varint(5, 7), varint(5, 150)].concat();
    assert_eq!(again(&p, T2, &input).unwrap(), expected);
    assert_eq!(again(&p, T2, &bytes(5, &[7, 8])).unwrap(), [varint(5, 7), varint(5, 8)].concat());
    assert_eq!(again(&p, T2, &varint(4, 7)).unwrap(), varint(4, 7));
    let (known, unknown) = ([varint(1, 1), varint(2, 9)].concat(), [varint(1, 2), varint(2, 3)].concat());
    let input = [bytes(6, &unknown), bytes(6, &known)].concat();
    assert_eq!(again(&p, T2, &input).unwrap(), [bytes(6, &known), bytes(6, &unknown)].concat());
    // A oneof keeps its member when the enum's value is unknown.
    let input = [bytes(13, b"kept"), varint(12, 77)].concat();
    assert_eq!(again(&p, T2, &input).unwrap(), input);
}

/// Such an entry is an unknown field, but its key is a string of the schema all the same: it is checked as upb and prost check it.
#[test]
fn an_entry_kept_aside_has_its_key_checked() {
    let values = [0, 1].map(|number| EnumValue { name: format!("V{number}"), number }).into();
    let key = Field { utf8: true, ..Field::new(1, "key", Kind::String, Label::Explicit) };
    let value = Field { target_idx: Some(0), ..Field::new(2, "value", Kind::Enum, Label::Explicit) };
    let entry = Message {
        name: "Entry".into(),
        role: Role::MapEntry,
        fields: vec![key, value],
        ..Message::default()
    };
    let levels = Field { target_idx: Some(1), ..Field::new(1, "levels", Kind::Message, Label::Map) };
    let all = Message { name: "All".into(), fields: vec![levels], ..Message::default() };
    let schema = Schema {
        messages: vec![all, entry],
        enums: vec![Enum { name: "E".into(), closed: true, values }],
        ..Schema::default()
    };
    let p = Processor::new(schema.compile().unwrap());
    let (arenas, limits) = (Arenas::new(1 << 20, 1), Limits::default());
    type Way<'a> = &'a dyn Fn(&[u8]) -> Result<(), DecodeError>;
    let ways: [Way<'_>; 4] = [
        &|input| p.decode(0, input, &mut Arena::with_limit(1 << 20), &limits).map(drop),
        &|input| {
            let mut arena = Arena::with_limit(1 << 20);
            arena.stage(input.len()).unwrap().copy_from_slice(input);
            p.decode_staged(0, &mut arena, &limits).map(drop)
        },
        &|input| p.decode_owned(0, input, arenas.take(), &limits).map(drop),
        &|input| {
            let mut slot = arenas.take();
            slot.stage(input.len()).unwrap().copy_from_slice(input);
            p.decode_owned_staged(0, slot, &limits).map(drop)
        },
    ];
    let entry = |parts: &[&[u8]]| bytes(1, &parts.concat());
    let (good, bad, unknown) = (bytes(1, b"good"), bytes(1, b"\xff"), varint(2, 7));
    for decode in ways {
        for input in [
            entry(&[&bad, &unknown]),
            entry(&[&unknown, &bad]),
            entry(&[&bad, &good, &unknown]),
            [entry(&[&good, &varint(2, 1)]), entry(&[&bytes(1, b"cut \xe2\x82"), &unknown])].concat(),
        ] {
            let error = decode(&input).unwrap_err().to_string();
            assert!(error.contains(".key") && error.contains("UTF-8"), "{error}");
        }
        decode(&entry(&[&good, &unknown])).unwrap();
        decode(&entry(&[&unknown])).unwrap();
    }
    assert_eq!(again(&p, "All", &entry(&[&good, &unknown])).unwrap(), entry(&[&good, &unknown]));
}

#[test]
fn a_oneof_has_its_last_member() {
    let (p, _) = schemas();
    let message = bytes(73, &varint(3, 1));
    let input = [&varint(71, 5)[..], &bytes(72, b"text"), &message, &bytes(73, &varint(4, 2))].concat();
    let merged = bytes(73, &[varint(3, 1), varint(4, 2)].concat());
    assert_eq!(again(&p, T3, &input).unwrap(), merged);
    let input = [&message[..], &field(75, 1, &[1; 8]), &bytes(72, b"")].concat();
    assert_eq!(again(&p, T3, &input).unwrap(), bytes(72, b""));
    let input = [&message[..], &varint(71, 0), &bytes(73, b"")].concat();
    assert_eq!(again(&p, T3, &input).unwrap(), bytes(73, b""), "a message chosen again is a new one");
    assert_eq!(again(&p, T3, &varint(71, 0)).unwrap(), varint(71, 0), "a member's zero is kept");
}

#[test]
fn lists_in_any_mixture_come_out_in_order() {
    let (p, _) = schemas();
    let mut input = Vec::new();
    let (mut packed, mut unpacked, mut texts, mut messages) = (vec![], vec![], vec![], vec![]);
    for n in 0..100u64 {
        input.extend(if n % 3 == 0 { bytes(25, &[n as u8, 1]) } else { varint(25, n) });
        packed.extend(if n % 3 == 0 { vec![n as u8, 1] } else { vec![n as u8] });
        input.extend(if n % 5 == 0 { bytes(41, &[n as u8]) } else { varint(41, n) });
        unpacked.extend(varint(41, n));
        input.extend(bytes(29, &vec![b'a'; n as usize]));
        texts.extend(bytes(29, &vec![b'a'; n as usize]));
        input.extend(bytes(31, &varint(3, n + 1)));
        messages.extend(bytes(31, &varint(3, n + 1)));
    }
    let expected = [bytes(25, &packed), texts, messages, unpacked].concat();
    assert_eq!(again(&p, T3, &input).unwrap(), expected);
}

#[test]
fn maps_keep_the_last_value_of_each_key_and_fill_in_defaults() {
    let (p, _) = schemas();
    let entry = |key: &str, value| bytes(51, &[bytes(1, key.as_bytes()), varint(2, value)].concat());
    let input = [entry("a", 1), entry("b", 2), entry("a", 3)].concat();
    assert_eq!(again(&p, T3, &input).unwrap(), [entry("b", 2), entry("a", 3)].concat());
    let many: Vec<u8> = (0..50).flat_map(|n| entry(&format!("k{}", n % 20), n)).collect();
    let kept: Vec<u8> = (30..50).flat_map(|n| entry(&format!("k{}", n % 20), n)).collect();
    assert_eq!(again(&p, T3, &many).unwrap(), kept);
    assert_eq!(again(&p, T3, &bytes(51, b"")).unwrap(), entry("", 0));
    let empty = bytes(52, &[varint(1, 0), bytes(2, b"")].concat());
    assert_eq!(again(&p, T3, &bytes(52, b"")).unwrap(), empty);
}

/// Each merge adds an entry; looking through the whole map at each would take minutes.
#[test]
fn maps_that_are_merged_many_times_stay_linear() {
    let (p, _) = schemas();
    let entry = |n: u64| bytes(52, &[varint(1, n), bytes(2, &varint(3, n + 1))].concat());
    let input: Vec<u8> = (0..60_000).flat_map(|n| bytes(11, &entry(n % 50_000))).collect();
    let kept: Vec<u8> = (10_000..60_000)
        .flat_map(|n| {
            let body = if n % 50_000 == 0 { varint(3, 1) } else { varint(3, n % 50_000 + 1) };
            bytes(52, &[varint(1, n % 50_000), bytes(2, &body)].concat())
        })
        .collect();
    assert!(again(&p, T3, &input).unwrap() == bytes(11, &kept));
}

#[test]
fn groups_nest_and_must_match() {
    let (p, _) = schemas();
    let inner = [varint(1, 5), bytes(2, &varint(1, 6))].concat();
    let group = [field(7, 3, &inner), field(7, 4, &[])].concat();
    let list: Vec<u8> =
        (0..9).flat_map(|_| [field(8, 3, &bytes(1, b"y")), field(8, 4, &[])].concat()).collect();
    let input = [group.clone(), list].concat();
    assert_eq!(again(&p, T2, &input).unwrap(), input);
    assert!(matches!(again(&p, T2, &field(7, 3, &inner)), Err(DecodeError::Truncated { .. })));
    assert!(matches!(again(&p, T2, &field(7, 4, &[])), Err(DecodeError::Tag { offset: 1, .. })));
    let crossed = [field(7, 3, &[]), field(8, 4, &[])].concat();
    assert!(matches!(again(&p, T2, &crossed), Err(DecodeError::Tag { .. })));
    // The group may not outlive the message it is in.
    let cut = [bytes(9, &field(7, 3, &[])), field(7, 4, &[])].concat();
    assert!(matches!(again(&p, T2, &cut), Err(DecodeError::Truncated { .. })));
}

#[test]
fn required_fields_are_asked_for_at_the_end() {
    let (p, _) = schemas();
    let path = |input: &[u8]| match again(&p, T2, input) {
        Err(DecodeError::Required { path, offset }) => {
            assert_eq!(offset, input.len());
            path
        }
        other => panic!("{other:?}"),
    };
    let (a, b) = (varint(1, 1), bytes(3, b"b"));
    assert_eq!(path(&bytes(10, &a)), "t2.All.f_must.b");
    let whole = [a.clone(), b.clone()].concat();
    assert_eq!(path(&bytes(10, &[whole.clone(), bytes(2, &b)].concat())), "t2.All.f_must.next.a");
    assert_eq!(path(&bytes(11, &[bytes(1, b"k"), bytes(2, &a)].concat())), "t2.All.m_must[0].value.b");
    assert_eq!(path(&bytes(11, &bytes(1, b"k"))), "t2.All.m_must[0].value.a");
    // Two halves make a whole.
    let input = [bytes(10, &a), bytes(10, &b)].concat();
    assert_eq!(again(&p, T2, &input).unwrap(), bytes(10, &whole));
    let lax = Limits { require_all: false, ..Limits::default() };
    let mut arena = Arena::with_limit(1 << 20);
    let type_idx = p.type_by_name("t2.Must").unwrap();
    assert!(p.decode(type_idx, &a, &mut arena, &lax).is_ok());
}

#[test]
fn errors_name_the_field_and_the_offset() {
    let (p, _) = schemas();
    let error = |input: &[u8]| again(&p, T3, input).unwrap_err();
    let bad = [varint(3, 1), bytes(31, b""), bytes(31, &bytes(11, &bytes(9, b"a\xffb")))].concat();
    assert_eq!(
        error(&bad),
        DecodeError::Utf8 { path: "t3.All.r_message[1].f_message.f_string".into(), offset: bad.len() }
    );
    assert_eq!(error(&[0x00, 0x00]), DecodeError::Tag { path: "t3.All".into(), offset: 1 });
    assert_eq!(error(&[0x0e, 0x00]), DecodeError::Tag { path: "t3.All.f_double".into(), offset: 1 });
    assert_eq!(error(&[0xff; 6]), DecodeError::Varint { path: "t3.All".into(), offset: 0 });
    let long = field(3, 0, &[0xff; 11]);
    assert_eq!(error(&long), DecodeError::Varint { path: "t3.All.f_int64".into(), offset: 1 });
    let cut = field(9, 2, &[5, b'a']);
    assert_eq!(error(&cut), DecodeError::Truncated { path: "t3.All.f_string".into(), offset: 2 });
    let huge = field(9, 2, &[0xff, 0xff, 0xff, 0xff, 0x07]);
    assert_eq!(error(&huge), DecodeError::Truncated { path: "t3.All.f_string".into(), offset: 6 });
    let beyond = field(9, 2, &[0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert!(matches!(error(&beyond), DecodeError::Varint { .. }));
    assert!(matches!(error(&field(26, 2, &[3, 1, 2, 3])), DecodeError::Truncated { .. }));
    assert!(matches!(error(&field(25, 2, &[1, 0x80])), DecodeError::Truncated { .. }));
    assert_eq!(bad[0], 0x18);
    // proto2 strings are not checked.
    assert_eq!(again(&p, T2, &bytes(2, b"\xff")).unwrap(), bytes(2, b"\xff"));
}

#[test]
fn limits_hold() {
    let (p, _) = schemas();
    let nest = |levels: usize| (0..levels).fold(varint(3, 1), |inner, _| bytes(11, &inner));
    assert!(again(&p, T3, &nest(100)).is_ok());
    assert!(matches!(again(&p, T3, &nest(101)), Err(DecodeError::Limit { what: "levels of messages", .. })));
    let unknown = [field(999, 3, &[]).repeat(101), field(999, 4, &[]).repeat(101)].concat();
    assert!(matches!(again(&p, T3, &unknown), Err(DecodeError::Limit { .. })));
    let type_idx = p.type_by_name(T3).unwrap();
    let mut arena = Arena::with_limit(1 << 20);
    let few = Limits { fields: 3, ..Limits::default() };
    assert!(p.decode(type_idx, &varint(41, 1).repeat(3), &mut arena, &few).is_ok());
    let error = p.decode(type_idx, &varint(41, 1).repeat(4), &mut arena, &few).unwrap_err();
    assert!(matches!(error, DecodeError::Limit { what: "fields", limit: 3, .. }));
    let short = Limits { input_len: 3, ..Limits::default() };
    assert!(matches!(
        p.decode(type_idx, &[8; 4], &mut arena, &short),
        Err(DecodeError::Limit { limit: 3, .. })
    ));
    assert!(matches!(
        p.decode(999, &[], &mut arena, &short),
        Err(DecodeError::UnknownType { type_idx: 999 })
    ));
}

#[test]
fn an_exhausted_arena_is_told_and_serves_again() {
    let (p, _) = schemas();
    let type_idx = p.type_by_name(T3).unwrap();
    let input = bytes(31, b"").repeat(1000);
    let mut memory = vec![0u8; 16 << 10];
    let mut arena = Arena::with_limit(32 << 10).over(&mut memory);
    let limits = Limits::default();
    let error = p.decode(type_idx, &input, &mut arena, &limits).unwrap_err();
    assert!(matches!(error, DecodeError::ArenaExhausted { need, .. } if need > 32 << 10));
    assert!(p.decode(type_idx, &varint(5, 1), &mut arena, &limits).is_ok());
    let mut owned = Arena::with_limit(64 << 10);
    assert!(matches!(
        p.decode(type_idx, &input, &mut owned, &limits),
        Err(DecodeError::ArenaExhausted { .. })
    ));
    assert!(owned.capacity() <= 64 << 10);
}

#[test]
fn recycled_memory_does_not_show() {
    let (p, _) = schemas();
    let type_idx = p.type_by_name(T3).unwrap();
    let input = [
        bytes(29, &[b'q'; 37]),
        bytes(31, &[bytes(9, b"abc"), varint(999, 3), bytes(11, b"")].concat()),
        bytes(29, &[b'r'; 41]),
        bytes(25, &[1, 2, 3]),
        bytes(31, &bytes(12, &[7; 45])),
    ]
    .concat();
    let object = |fill: u8| {
        let mut memory = vec![fill; 1 << 16];
        let mut arena = Arena::with_limit(0).over(&mut memory);
        p.decode(type_idx, &input, &mut arena, &Limits::default()).unwrap().bytes().to_vec()
    };
    assert_eq!(object(0), object(0xee));
}

#[test]
fn lent_memory_needs_the_objects_length_and_no_second_try() {
    let (p, _) = schemas();
    let type_idx = p.type_by_name(T3).unwrap();
    let nested = [bytes(31, &varint(41, 7).repeat(30)), bytes(29, b"text")].concat();
    let input = [bytes(11, &nested.repeat(9)), bytes(31, &nested).repeat(20), nested.repeat(3)].concat();
    let limits = Limits::default();
    let mut owned = Arena::with_limit(1 << 20);
    let whole = p.decode(type_idx, &input, &mut owned, &limits).unwrap().bytes().to_vec();
    let mut arena = Arena::with_limit(1 << 20);
    for len in [0, 100, input.len(), whole.len() - 8, whole.len(), whole.len() + 3000] {
        for staged in [false, true] {
            // What an earlier message left must not show. Words, so that all of it is used.
            let mut memory = vec![u64::MAX; len / 8];
            let mut lent = arena.over(zerocopy::IntoBytes::as_mut_bytes(&mut memory[..]));
            let expected = if staged {
                let mut other = Arena::with_limit(1 << 20);
                other.stage(input.len()).unwrap().copy_from_slice(&input);
                p.decode_staged(type_idx, &mut other, &limits).unwrap().bytes().to_vec()
            } else {
                whole.clone()
            };
            let outcome = if staged {
                lent.stage(input.len()).unwrap().copy_from_slice(&input);
                p.decode_staged(type_idx, &mut lent, &limits)
            } else {
                p.decode(type_idx, &input, &mut lent, &limits)
            };
            match outcome {
                Ok(object) => assert_eq!(object.bytes(), expected),
                Err(DecodeError::ArenaExhausted { need, .. }) => {
                    assert_eq!(need, expected.len(), "the error says how much is needed");
                    assert!(len < need);
                }
                Err(error) => panic!("{error}"),
            }
            arena = lent.on_its_own();
            if len >= expected.len() {
                assert_eq!(zerocopy::IntoBytes::as_bytes(&memory[..expected.len() / 8]), expected);
            }
        }
    }
}

#[test]
fn an_owned_object_is_read_by_other_threads_and_gives_its_arena_back() {
    fn shared<T: Send + Sync + 'static>(value: T) -> T {
        value
    }
    let (p, _) = schemas();
    let type_idx = p.type_by_name(T3).unwrap();
    let input = [bytes(9, b"a name"), bytes(31, &varint(5, 7)).repeat(3)].concat();
    let (arenas, limits) = (Arenas::new(1 << 16, 4), Limits::default());
    let mut staged = arenas.take();
    staged.stage(input.len()).unwrap().copy_from_slice(&input);
    let decoded = p.decode_owned(type_idx, &input, arenas.take(), &limits).unwrap();
    let aliasing = p.decode_owned_staged(type_idx, staged, &limits).unwrap();
    let copied = p.verify_owned(type_idx, decoded.object().bytes(), arenas.take(), 100).unwrap();
    // Anywhere: readers ask for no alignment.
    let elsewhere = Bytes::from([&[0; 3], decoded.object().bytes()].concat()).slice(3..);
    let place = elsewhere.as_ptr();
    let held = p.verify_held(type_idx, elsewhere, 100).unwrap();
    assert_eq!(held.object().bytes().as_ptr(), place, "it is read where it lies");
    let text = format!("{decoded:?}");
    drop(p);
    for owned in [decoded, aliasing, copied, held].map(shared) {
        let text = text.clone();
        let reader = std::thread::spawn(move || {
            assert_eq!(format!("{:?}", owned.object().root()), text);
            owned.object().encode(&mut EncodeBuffer::new()).unwrap().to_vec()
        });
        assert_eq!(reader.join().unwrap(), input);
    }
    let (p, _) = schemas();
    let refused = p.decode_owned(type_idx, &input[..3], arenas.take(), &limits);
    assert!(matches!(refused, Err(DecodeError::Truncated { .. })));
    let short = Arenas::new(64, 1);
    let object = p.decode_owned(type_idx, &input, arenas.take(), &limits).unwrap();
    let refused = p.verify_owned(type_idx, object.object().bytes(), short.take(), 100).unwrap_err();
    assert!(matches!(refused, OwnError::Exhausted { limit: 64, .. }), "{refused}");
    let mut forged = object.object().bytes().to_vec();
    forged[16] ^= 1;
    let refused = p.verify_owned(type_idx, &forged, arenas.take(), 100).unwrap_err();
    assert!(matches!(refused, OwnError::Verify(_)), "{refused}");
    let refused = p.verify_held(type_idx, forged.into(), 100).unwrap_err();
    assert!(matches!(refused, OwnError::Verify(_)), "{refused}");
}

#[test]
fn a_shared_object_stays_where_it_is_and_its_arena_goes_back_after_the_last_reader() {
    let (p, _) = schemas();
    let type_idx = p.type_by_name(T3).unwrap();
    let (arenas, limits) = (Arenas::new(1 << 16, 4), Limits::default());
    let warm = |arenas: &Arenas| arenas.take().capacity() > 0;
    let mut object = p.decode_owned(type_idx, &bytes(9, b"a name"), arenas.take(), &limits).unwrap();
    let (place, text) = (object.object().bytes().as_ptr(), format!("{object:?}"));
    let (first, second) = (object.share(), object.share());
    assert_eq!([first.as_ptr(), second.as_ptr(), object.object().bytes().as_ptr()], [place; 3]);
    assert_eq!((format!("{object:?}"), &first[..]), (text, object.object().bytes()));
    drop((object, first));
    assert!(!warm(&arenas), "somebody reads it");
    drop(second);
    assert!(warm(&arenas));
}

#[test]
fn every_prefix_is_decoded_or_refused_like_a_whole() {
    let (p, pool) = schemas();
    let input = [
        varint(5, 300),
        bytes(9, "añ€😀".repeat(9).as_bytes()),
        bytes(31, &[varint(3, 1 << 40), bytes(25, &[1, 2, 0x80, 1])].concat()),
        bytes(51, &[bytes(1, b"k"), varint(2, 5)].concat()),
        varint(41, 7).repeat(5),
        field(6, 1, &[1; 8]),
    ]
    .concat();
    let descriptor = pool.get_message_by_name(T3).unwrap();
    let mut accepted = 0;
    for len in 0..=input.len() {
        let theirs = prost_reflect::DynamicMessage::decode(descriptor.clone(), &input[..len]);
        let ours = again(&p, T3, &input[..len]);
        assert_eq!(ours.is_ok(), theirs.is_ok(), "{len} bytes: {ours:?}");
        accepted += usize::from(ours.is_ok());
    }
    assert!(accepted > 5);
}

#[test]
fn values_are_read_by_number_and_name() {
    let (p, _) = schemas();
    let input =
        [varint(5, -3i64 as u64), bytes(9, b"text"), varint(17, 5), bytes(500_000_000, b"far")].concat();
    let mut arena = Arena::with_limit(1 << 20);
    let object = p.decode(p.type_by_name(T3).unwrap(), &input, &mut arena, &Limits::default()).unwrap();
    let root = object.root();
    assert!(matches!(root.by_number(5), Some(Value::I32(-3))));
    assert!(matches!(root.by_name("f_sint32"), Some(Value::I32(-3))));
    assert!(matches!(root.by_name("farther"), Some(Value::String(text)) if text.to_str() == Ok("far")));
    assert!(root.by_number(6).is_none() && root.by_number(10).is_none() && root.by_name("nothing").is_none());
    assert!(debug(&p, T3, &input).contains("f_int32: I32(-3)"));
}

#[test]
fn known_fields_are_read() {
    let (p, _) = schemas();
    let type_idx = p.type_by_name(T3).unwrap();
    let inner = varint(17, 5);
    let input = [
        field(1, 1, &1.5f64.to_le_bytes()),
        varint(8, 1),
        bytes(9, b"text"),
        bytes(11, &inner),
        bytes(25, &[1, 2, 3]),
        bytes(51, &[bytes(1, b"k"), varint(2, 5)].concat()),
        bytes(500_000_000, b"far"),
    ]
    .concat();
    let mut arena = Arena::with_limit(1 << 20);
    let object = p.decode(type_idx, &input, &mut arena, &Limits::default()).unwrap();
    let root = object.root();
    let names = |number| {
        let row = p.table().fields_of(type_idx).iter().find(|row| row.number == number).unwrap();
        p.table().text(row.name).to_owned()
    };
    let message: Known<Record<'static>> = p.field(type_idx, &names(11)).unwrap();
    let number: Known<i32> = p.clone().field(type_idx, "f_sint32").unwrap();
    let text: Known<Text<'static>> = p.field(type_idx, &names(9)).unwrap();
    let far: Known<Text<'static>> = p.field(type_idx, "farther").unwrap();
    let list: Known<List<'static>> = p.field(type_idx, &names(25)).unwrap();
    let map: Known<List<'static>> = p.field(type_idx, &names(51)).unwrap();
    assert_eq!(root.read(&p.field::<f64>(type_idx, &names(1)).unwrap()), Some(1.5));
    assert_eq!(root.read(&p.field::<bool>(type_idx, &names(8)).unwrap()), Some(true));
    assert_eq!(root.read(&text).unwrap().as_bytes(), b"text");
    assert_eq!(root.read(&far).unwrap().as_bytes(), b"far");
    assert_eq!((root.read(&list).unwrap().len(), root.read(&map).unwrap().len()), (3, 1));
    assert_eq!(root.read(&number), None);
    let child = root.read(&message).unwrap();
    assert_eq!(
        (child.type_idx(), child.read(&number), child.read(&text).is_none()),
        (type_idx, Some(-3), true)
    );

    // What is wrong is said when a field is looked up, and panics where it would be read.
    let no_field = p.field::<i32>(type_idx, "nothing").unwrap_err();
    assert_eq!(no_field.to_string(), format!("{T3} has no field nothing"));
    assert_eq!(p.field::<i32>(u32::MAX, "f").unwrap_err(), FieldError::NoType { type_idx: u32::MAX });
    let width = p.field::<i64>(type_idx, "f_sint32").unwrap_err().to_string();
    assert_eq!(width, format!("{T3}.f_sint32 is Implicit Sint32 in the table and cannot be read as i64"));
    assert!(matches!(p.field::<i32>(type_idx, &names(25)), Err(FieldError::Kind { .. })));
    let panics = |read: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).is_err();
    let (stranger, _) = schemas();
    let strange: Known<i32> = stranger.field(type_idx, "f_sint32").unwrap();
    assert!(panics(&|| assert_eq!(child.read(&strange), None)));
    let entry = match root.read(&map).unwrap().get(0) {
        Some(Value::Message(entry)) => entry,
        other => panic!("{other:?}"),
    };
    assert!(panics(&|| assert_eq!(entry.read(&number), None)));
}

/// A header type of which one field is marked: by it a call finds its method.
#[test]
fn a_header_names_its_function_in_the_marked_field() {
    let header = |marked, kind, label| {
        let mut schema = Schema {
            messages: vec![Message {
                name: "Header".into(),
                fields: vec![
                    Field::new(1, "trace", Kind::Uint64, Label::Implicit),
                    Field::new(7, "method", kind, label),
                ],
                ..Message::default()
            }],
            ..Schema::default()
        };
        if marked {
            schema.mark_function("Header", "method").unwrap();
        }
        schema.compile().map(Processor::new)
    };
    let (p, _) = schemas();
    let methods = ["/a.B/First", "/a.B/Second"].into_iter().zip(20..).map(|(name, handler_idx)| Method {
        name: name.into(),
        processor: p.clone(),
        input_type_idx: 0,
        output_type_idx: 0,
        handler_idx,
    });
    let map = MethodMap::new(methods).unwrap();
    let called = |header: &Processor, input: &[u8]| {
        let mut arena = Arena::with_limit(4096);
        let object = header.decode(0, input, &mut arena, &Limits::default()).unwrap();
        map.by_header(&object).map(|method| method.handler_idx)
    };
    let by_name = header(true, Kind::String, Label::Implicit).unwrap();
    assert_eq!(called(&by_name, &[varint(1, 9), bytes(7, b"/a.B/Second")].concat()), Some(21));
    assert_eq!(called(&by_name, &bytes(7, b"/a.B/Third")), None);
    assert_eq!(called(&by_name, &varint(1, 9)), None);
    for kind in [Kind::Uint32, Kind::Int32, Kind::Int64, Kind::Uint64] {
        let by_id = header(true, kind, Label::Implicit).unwrap();
        assert_eq!(called(&by_id, &varint(7, 1)), Some(21));
        // Zero is not sent.
        assert_eq!(called(&by_id, &varint(1, 9)), Some(20));
        assert_eq!(called(&by_id, &varint(7, 2)), None);
        assert_eq!(called(&by_id, &varint(7, -1i64 as u64)), None);
    }
    // Without a mark nothing is called; what cannot name a function cannot be marked.
    let unmarked = header(false, Kind::Uint32, Label::Implicit).unwrap();
    assert_eq!(called(&unmarked, &varint(7, 1)), None);
    for (kind, label) in [(Kind::Double, Label::Implicit), (Kind::Uint32, Label::List)] {
        let error = header(true, kind, label).unwrap_err().to_string();
        assert!(error.starts_with("Header.method: a function is named by"), "{error}");
    }
    assert!(Schema::default().mark_function("Header", "method").is_err());
}
