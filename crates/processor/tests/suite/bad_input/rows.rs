//! What is wrong with an input, row by row: refused or put up with as protobuf does, where prost agrees with
//! protobuf compared to it, and told with the field's path and the offset.
//!
//! Objects that a peer has forged (offsets that overlap, lead backwards or in a circle, lists that claim more
//! than there is) are the verifier's rows; `hostile.rs` forges every word of an object besides.

use super::{again, bytes, decoded, field, schemas, varint, verified};
use prost_reflect::{DescriptorPool, DynamicMessage};
use tollfree_processor::{DecodeError, Limits, Processor, VerifyError};

const T2: &str = "t2.All";
const T3: &str = "t3.All";

fn theirs(pool: &DescriptorPool, name: &str, input: &[u8]) -> Result<DynamicMessage, prost::DecodeError> {
    DynamicMessage::decode(pool.get_message_by_name(name).unwrap(), input)
}

/// Both refuse the input; ours says `expected`.
#[track_caller]
fn refused(name: &str, input: &[u8], expected: &str) {
    let (p, pool) = schemas();
    assert_eq!(again(&p, name, input).unwrap_err().to_string(), expected);
    assert!(theirs(&pool, name, input).is_err(), "prost accepts what we refuse: {expected}");
}

/// Only ours refuses the input, as protobuf does.
#[track_caller]
fn refused_though_prost_accepts(name: &str, input: &[u8], expected: &str) {
    let (p, pool) = schemas();
    assert_eq!(again(&p, name, input).unwrap_err().to_string(), expected);
    assert!(theirs(&pool, name, input).is_ok(), "prost has changed its mind: compare with it again");
}

/// Both accept the input; what we make of it is `expected`, and prost reads both alike.
#[track_caller]
fn accepted(name: &str, input: &[u8], expected: &[u8]) {
    let (p, pool) = schemas();
    assert_eq!(again(&p, name, input).unwrap(), expected);
    assert_eq!(theirs(&pool, name, input).unwrap(), theirs(&pool, name, expected).unwrap());
}

/// Only ours accepts the input, as protobuf does.
#[track_caller]
fn accepted_though_prost_refuses(name: &str, input: &[u8], expected: &[u8]) {
    let (p, pool) = schemas();
    assert_eq!(again(&p, name, input).unwrap(), expected);
    assert!(theirs(&pool, name, input).is_err(), "prost has changed its mind: compare with it again");
}

#[test]
fn truncated_in_each_kind_of_value() {
    refused(T3, &[0x80], "t3.All: the input breaks off at byte 1");
    refused(T3, &varint(3, 300)[..2], "t3.All.f_int64: the input breaks off at byte 2");
    refused(T3, &field(6, 1, &[1; 7]), "t3.All.f_fixed64: the input breaks off at byte 8");
    refused(T3, &field(2, 5, &[1; 3]), "t3.All.f_float: the input breaks off at byte 4");
    refused(T3, &field(9, 2, &[]), "t3.All.f_string: the input breaks off at byte 1");
    refused(T3, &field(9, 2, &[4, b'a', b'b', b'c']), "t3.All.f_string: the input breaks off at byte 2");
    refused(T3, &field(25, 2, &[2, 1]), "t3.All.r_int32: the input breaks off at byte 3");
    refused(T3, &bytes(25, &[1, 0x80]), "t3.All.r_int32[1]: the input breaks off at byte 5");
    refused(T3, &bytes(26, &[1; 9]), "t3.All.r_fixed64[1]: the input breaks off at byte 12");
    refused(T3, &field(999, 0, &[0x80]), "t3.All: the input breaks off at byte 2");
    refused(T3, &field(999, 2, &[3, 1, 2]), "t3.All: the input breaks off at byte 2");
    refused(T2, &field(7, 3, &varint(1, 5)), "t2.All.part: the input breaks off at byte 3");
}

#[test]
fn truncated_inside_a_message_that_ends_before_its_field() {
    // The bytes go on, but not within the inner message.
    let input = [bytes(11, &field(9, 2, &[2, b'a'])), varint(5, 1)].concat();
    refused(T3, &input, "t3.All.f_message.f_string: the input breaks off at byte 4");
    let input = [bytes(31, b""), bytes(31, &[0x18]), varint(5, 1)].concat();
    refused(T3, &input, "t3.All.r_message[1].f_int64: the input breaks off at byte 7");
    let input = [bytes(11, &[0x4a]), varint(5, 1)].concat();
    refused(T3, &input, "t3.All.f_message.f_string: the input breaks off at byte 3");
    let input = [bytes(51, &[0x0a, 5, b'k']), varint(5, 1), varint(5, 1)].concat();
    refused(T3, &input, "t3.All.m_string[0].key: the input breaks off at byte 5");
}

#[test]
fn varint_of_eleven_bytes() {
    let eleven = [&[0x80; 10][..], &[0]].concat();
    refused(T3, &field(3, 0, &eleven), "t3.All.f_int64: the varint at byte 1 is too long");
    refused(T3, &field(999, 0, &eleven), "t3.All: the varint at byte 2 is too long");
    let inner = field(4, 0, &eleven);
    refused(T3, &bytes(11, &inner), "t3.All.f_message.f_uint64: the varint at byte 3 is too long");
    refused(T3, &bytes(23, &eleven), "t3.All.r_int64[0]: the varint at byte 3 is too long");
}

#[test]
fn tag_of_more_than_five_bytes() {
    let six = [0xa8, 0x80, 0x80, 0x80, 0x80, 0x00, 1];
    refused_though_prost_accepts(T3, &six, "t3.All: the varint at byte 0 is too long");
    refused(T3, &[0xf8, 0xff, 0xff, 0xff, 0x7f, 1], "t3.All: the varint at byte 0 is too long");
}

#[test]
fn length_of_more_than_five_bytes() {
    let six = [0x80, 0x80, 0x80, 0x80, 0x80, 0x00];
    refused_though_prost_accepts(T3, &field(9, 2, &six), "t3.All.f_string: the varint at byte 1 is too long");
    refused_though_prost_accepts(
        T3,
        &field(31, 2, &six),
        "t3.All.r_message[0]: the varint at byte 2 is too long",
    );
    refused_though_prost_accepts(T3, &field(999, 2, &six), "t3.All: the varint at byte 2 is too long");
}

#[test]
fn length_of_gigabytes() {
    // 2^31 - 1 can be a length, if not here; 2^31 cannot.
    let most = [0xff, 0xff, 0xff, 0xff, 0x07];
    let more = [0x80, 0x80, 0x80, 0x80, 0x08];
    refused(T3, &field(12, 2, &most), "t3.All.f_bytes: the input breaks off at byte 6");
    refused(T3, &field(31, 2, &most), "t3.All.r_message[0]: the input breaks off at byte 7");
    refused(T3, &field(25, 2, &most), "t3.All.r_int32: the input breaks off at byte 7");
    refused(T3, &field(999, 2, &most), "t3.All: the input breaks off at byte 2");
    refused(T3, &field(12, 2, &more), "t3.All.f_bytes: the varint at byte 1 is too long");
    refused(T3, &field(999, 2, &more), "t3.All: the varint at byte 2 is too long");
}

#[test]
fn known_field_of_another_wire_type_is_unknown() {
    let input = [field(5, 5, &[1, 2, 3, 4]), field(9, 0, &[7]), bytes(1, b"12345678")].concat();
    accepted_though_prost_refuses(T3, &input, &input);
    // Neither a map nor a message has a number's wire type.
    let input = [varint(11, 1), varint(51, 1)].concat();
    accepted_though_prost_refuses(T3, &input, &input);
}

#[test]
fn wire_types_that_do_not_exist() {
    refused(T3, &field(5, 6, &[0; 8]), "t3.All.f_int32: the tag at byte 1 is not valid");
    refused(T3, &field(5, 7, &[0; 8]), "t3.All.f_int32: the tag at byte 1 is not valid");
    refused(T3, &field(999, 6, &[0; 8]), "t3.All: the tag at byte 2 is not valid");
    refused(T3, &bytes(11, &field(999, 7, &[])), "t3.All.f_message: the tag at byte 4 is not valid");
}

#[test]
fn field_number_zero() {
    for wire_type in [0, 1, 2, 3, 5] {
        refused(T3, &field(0, wire_type, &[0; 8]), "t3.All: the tag at byte 1 is not valid");
    }
    refused(T3, &bytes(31, &field(0, 0, &[1])), "t3.All.r_message[0]: the tag at byte 4 is not valid");
}

#[test]
fn field_numbers_up_to_and_above_two_to_the_29th() {
    let highest = varint((1 << 29) - 1, 7);
    accepted(T3, &highest, &highest);
    // A tag of 33 bits would name 2^29.
    refused(T3, &[0x80, 0x80, 0x80, 0x80, 0x10, 7], "t3.All: the varint at byte 0 is too long");
}

#[test]
fn groups_that_do_not_match() {
    refused(T2, &field(7, 4, &[]), "t2.All.part: the tag at byte 1 is not valid");
    refused(
        T2,
        &[field(7, 3, &[]), field(8, 4, &[])].concat(),
        "t2.All.part: the tag at byte 2 is not valid",
    );
    // Of an unknown field the offset is where its value begins.
    refused(T3, &[field(900, 3, &[]), field(901, 4, &[])].concat(), "t3.All: the tag at byte 2 is not valid");
    refused(T3, &field(900, 3, &[]), "t3.All: the input breaks off at byte 2");
}

#[test]
fn depth_bombs() {
    let nest = |levels: usize| (0..levels).fold(Vec::new(), |inner, _| bytes(11, &inner));
    let (p, pool) = schemas();
    assert!(again(&p, T3, &nest(100)).is_ok() && theirs(&pool, T3, &nest(100)).is_ok());
    let deep = again(&p, T3, &nest(101)).unwrap_err();
    let DecodeError::Limit { path, offset, what: "levels of messages", limit: 100 } = &deep else {
        panic!("{deep}")
    };
    assert_eq!(path, &format!("t3.All{}", ".f_message".repeat(101)));
    assert_eq!(*offset, nest(101).len());
    assert!(theirs(&pool, T3, &nest(101)).is_err());
    // A hundred thousand levels are no harder to refuse; groups, known or not, and lists neither.
    let unknown = field(900, 3, &[]).repeat(100_000);
    let known = (0..2000)
        .fold(Vec::new(), |inner, _| [field(7, 3, &[]), bytes(2, &inner), field(7, 4, &[])].concat());
    for (name, bomb) in [(T3, nest(20_000)), (T3, unknown.clone()), (T2, unknown), (T2, known)] {
        let error = again(&p, name, &bomb);
        assert!(matches!(error, Err(DecodeError::Limit { limit: 100, .. })), "{error:?}");
    }
}

#[test]
fn invalid_utf8() {
    for wrong in [&b"\xff"[..], b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"a\x80"] {
        let at = |tag_len: usize| tag_len + 1 + wrong.len();
        let said = |path: &str, end| format!("t3.All.{path}: the string before byte {end} is not UTF-8");
        refused(T3, &bytes(9, wrong), &said("f_string", at(1)));
        refused(T3, &[bytes(29, b"ok"), bytes(29, wrong)].concat(), &said("r_string[1]", 5 + at(2)));
        refused(T3, &bytes(72, wrong), &said("c_string", at(2)));
        refused(T3, &bytes(51, &bytes(1, wrong)), &said("m_string[0].key", 3 + at(1)));
        let long = ["é".repeat(40).as_bytes(), wrong].concat();
        refused(T3, &bytes(9, &long), &said("f_string", 2 + long.len()));
        // Bytes are bytes.
        accepted(T3, &bytes(12, wrong), &bytes(12, wrong));
    }
    // proto2 does not check; prost does, where protobuf does not.
    accepted_though_prost_refuses(T2, &bytes(2, b"\xff"), &bytes(2, b"\xff"));
}

/// Whatever a list is of, and however it came, the path says which element is wrong.
#[test]
fn errors_name_the_element() {
    let breaks = |path: &str, at: usize| format!("{path}: the input breaks off at byte {at}");
    let eleven = [&[0x80; 10][..], &[0]].concat();
    // Strings and bytes; a second run of the same field goes on counting.
    let texts = [bytes(29, b"a"), bytes(29, b"b"), varint(5, 1), bytes(29, b"c")].concat();
    let at = texts.len() + 3;
    refused(T3, &[texts, field(29, 2, &[9, b'd'])].concat(), &breaks("t3.All.r_string[3]", at));
    refused(T3, &field(32, 2, &[1]), &breaks("t3.All.r_bytes[0]", 3));
    // One by one.
    let input = [varint(41, 1), varint(41, 2), field(41, 0, &eleven)].concat();
    refused(T3, &input, "t3.All.u_int32[2]: the varint at byte 8 is too long");
    let input = bytes(11, &[field(42, 1, &[7; 8]), field(42, 1, &[7; 4])].concat());
    refused(T3, &[input.clone(), vec![0; 9]].concat(), &breaks("t3.All.f_message.u_fixed64[1]", input.len()));
    let input = [varint(4, 1), varint(4, 77), varint(4, 2), field(4, 0, &eleven)].concat();
    refused(T2, &input, "t2.All.r_enum[2]: the varint at byte 7 is too long");
    let cut = bytes(9, &[varint(4, 1), field(4, 0, &[0x80])].concat());
    refused(T2, &[cut, varint(1, 1)].concat(), &breaks("t2.All.f_message.r_enum[1]", 6));
    // Packed, behind others of the same list.
    let input = [bytes(25, &[1, 2, 3]), bytes(25, &[&[4][..], &eleven].concat())].concat();
    refused(T3, &input, "t3.All.r_int32[4]: the varint at byte 10 is too long");
    refused(T3, &[varint(25, 1), bytes(25, &[4, 0x80])].concat(), &breaks("t3.All.r_int32[2]", 8));
    refused(T3, &bytes(27, &[0; 7]), &breaks("t3.All.r_fixed32[1]", 10));
    let input = bytes(5, &[&[1, 77, 2][..], &eleven].concat());
    refused(T2, &input, "t2.All.p_enum[2]: the varint at byte 5 is too long");
    // Messages, groups, entries of maps.
    refused(T3, &[bytes(31, b""), field(31, 2, &[5])].concat(), &breaks("t3.All.r_message[1]", 6));
    refused(T3, &[bytes(51, b""), field(51, 2, &[5])].concat(), &breaks("t3.All.m_string[1]", 6));
    let input = [field(8, 3, &[]), field(8, 4, &[]), field(8, 3, &bytes(1, b"y"))].concat();
    refused(T2, &input, &breaks("t2.All.parts[1]", input.len()));
    let deep = (0..101).fold(Vec::new(), |inner, _| [bytes(31, b""), bytes(31, &inner)].concat());
    let (p, _) = schemas();
    let DecodeError::Limit { path, .. } = again(&p, T3, &deep).unwrap_err() else { panic!("it is too deep") };
    assert_eq!(path, format!("t3.All{}.r_message[0]", ".r_message[1]".repeat(100)));
}

/// The verifier does the same.
#[test]
fn a_forged_string_of_a_list_is_named() {
    let mut forge = Forge::of(&[bytes(29, b"first"), bytes(29, b"second")].concat());
    let block = forge.word(forge.slot(29)) as usize;
    let len = forge.object.len() as u32;
    forge.set(block + 8 + 8, len);
    forge.refused(".r_string[1]", "out of the object");
    let mut forge = Forge::of(&[bytes(29, b"first"), bytes(29, b"second")].concat());
    let second = forge.word(block + 8 + 8) as usize;
    forge.object[second] = 0xff;
    forge.refused(".r_string[1]", "not UTF-8");
}

#[test]
fn duplicate_fields() {
    let input = [varint(5, 1), bytes(9, b"a"), varint(5, 2), bytes(9, b"b")].concat();
    accepted(T3, &input, &[varint(5, 2), bytes(9, b"b")].concat());
    let halves = [
        bytes(11, &[varint(3, 1), varint(25, 1)].concat()),
        bytes(11, &[varint(4, 2), varint(25, 2)].concat()),
    ];
    let merged = bytes(11, &[varint(3, 1), varint(4, 2), bytes(25, &[1, 2])].concat());
    accepted(T3, &halves.concat(), &merged);
    let input = [varint(71, 5), bytes(72, b"x"), varint(71, 6)].concat();
    accepted(T3, &input, &varint(71, 6));
    let entry = |value| bytes(51, &[bytes(1, b"k"), varint(2, value)].concat());
    accepted(T3, &[entry(1), entry(2)].concat(), &entry(2));
    // Inside one entry, too.
    let twice = bytes(51, &[bytes(1, b"j"), varint(2, 1), bytes(1, b"k"), varint(2, 2)].concat());
    accepted(T3, &twice, &entry(2));
}

#[test]
fn unknown_enum_values() {
    // Open enums keep any number.
    accepted(T3, &varint(14, 77), &varint(14, 77));
    accepted(T3, &varint(14, -77i64 as u64), &varint(14, -77i64 as u64));
    // A closed one does not have it: an unknown field, behind the known ones.
    let (p, _) = schemas();
    let input = [varint(3, 77), varint(1, 5)].concat();
    assert_eq!(again(&p, T2, &input).unwrap(), [varint(1, 5), varint(3, 77)].concat());
    let object = decoded(&p, T2, &input, &Limits::default()).unwrap();
    let object = p.verify(p.type_by_name(T2).unwrap(), &object, 100).unwrap();
    assert!(object.root().by_name("f_enum").is_none());
    assert_eq!(object.root().unknown().collect::<Vec<_>>(), [varint(3, 77)]);
    // More bits than an enum has: the low 32 count, as for every parser.
    accepted(T3, &varint(14, 1 << 32 | 1), &varint(14, 1));
}

#[test]
fn required_fields_that_are_missing() {
    let half = varint(1, 1);
    refused_though_prost_accepts("t2.Must", b"", "t2.Must.a is required and missing (seen at byte 0)");
    refused_though_prost_accepts("t2.Must", &half, "t2.Must.b is required and missing (seen at byte 2)");
    let said = "t2.All.f_must.b is required and missing (seen at byte 4)";
    refused_though_prost_accepts(T2, &bytes(10, &half), said);
    let in_map = bytes(11, &[bytes(1, b"k"), bytes(2, &half)].concat());
    let said = "t2.All.m_must[0].value.b is required and missing (seen at byte 9)";
    refused_though_prost_accepts(T2, &in_map, said);
    let whole = [half, bytes(3, b"b")].concat();
    accepted(T2, &bytes(10, &whole), &bytes(10, &whole));
}

#[test]
fn more_fields_than_the_limit() {
    // The field before the one too many is of another type, and in it has a higher place than the other type has.
    let (p, _) = schemas();
    let inner = [varint(1, 1), bytes(3, b"b")].concat();
    let input = [bytes(17, b"x"), bytes(17, b"y"), bytes(10, &inner), varint(15, 1)].concat();
    let said = |fields| {
        let limits = Limits { fields, ..Limits::default() };
        decoded(&p, T2, &input, &limits).map(|_| ()).map_err(|error| error.to_string())
    };
    let paths = ["t2.All", "t2.All", "t2.All", "t2.All.f_must", "t2.All.f_must", "t2.All"];
    let offsets = [0, 4, 8, 10, 12, 15];
    for (limit, (path, offset)) in paths.into_iter().zip(offsets).enumerate() {
        let expected = format!("{path}: more than {limit} fields at byte {offset}");
        assert_eq!(said(limit as u32), Err(expected));
    }
    assert_eq!(said(6), Ok(()));
}

#[test]
fn unknown_enum_values_in_a_run_that_outgrows_the_arena() {
    // Each becomes an unknown field that is longer than it was; the arena moves while the staged input lies in it.
    let values = [vec![77u8; 3000], vec![1]].concat();
    let input = [bytes(5, &values), bytes(2, b"behind"), varint(15, 9), bytes(5, &[77; 900])].concat();
    let unknown = [vec![varint(5, 77); 3900].concat()].concat();
    let known = [bytes(2, b"behind"), bytes(5, &[1]), varint(15, 9), unknown].concat();
    let (p, _) = schemas();
    assert_eq!(again(&p, T2, &input).unwrap(), known);
}

/// An object of `t3.All` with lists, a message and bytes, and where its parts lie.
struct Forge {
    processor: Processor,
    object: Vec<u8>,
}

impl Forge {
    fn new() -> Forge {
        let parts =
            [bytes(12, b"some bytes"), bytes(11, &bytes(9, b"inner")), bytes(25, &[1, 2, 3]), bytes(31, b"")];
        Forge::of(&parts.concat())
    }

    /// The object that this message decodes to.
    fn of(input: &[u8]) -> Forge {
        let (processor, _) = schemas();
        let object = decoded(&processor, T3, input, &Limits::default()).unwrap();
        let forge = Forge { processor, object };
        forge.verify().unwrap();
        forge
    }

    /// Offset in the object of the root's slot for this field.
    fn slot(&self, number: u32) -> usize {
        let type_idx = self.processor.type_by_name(T3).unwrap();
        let row = self.processor.table().fields_of(type_idx).iter().find(|row| row.number == number).unwrap();
        self.word(12) as usize + row.slot_off as usize
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.object[at..at + 4].try_into().unwrap())
    }

    fn set(&mut self, at: usize, value: u32) {
        self.object[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn verify(&self) -> Result<Vec<u8>, VerifyError> {
        verified(&self.processor, T3, &self.object)
    }

    /// What the verifier says: which field of which record broke which rule.
    #[track_caller]
    fn refused(&self, field_name: &str, words: &str) {
        let Err(VerifyError::Record { path, offset, rule }) = self.verify() else {
            panic!("{:?}", self.verify())
        };
        assert_eq!(path, format!("{T3}{field_name}"), "{rule}");
        assert!(rule.contains(words), "{rule}");
        assert!((offset as usize) < self.object.len() && offset.is_multiple_of(8));
    }
}

#[test]
fn object_with_overlapping_parts() {
    let mut forge = Forge::new();
    // The bytes of all other parts, too.
    let (text, len) = (forge.slot(12), forge.object.len() as u32);
    forge.set(text, 0);
    forge.set(text + 4, len);
    forge.refused(".f_bytes", "overlap");
    // The list's block is the message's record.
    let mut forge = Forge::new();
    let (message, list) = (forge.word(forge.slot(11)), forge.slot(31));
    forge.set(list, message - 8);
    assert!(forge.verify().is_err());
}

#[test]
fn object_with_a_backward_offset() {
    // Backwards is allowed, as long as nothing is reached twice too often; into the header is not.
    let mut forge = Forge::new();
    let slot = forge.slot(11);
    for header in [8, 16, 24] {
        forge.set(slot, header);
        forge.refused(".f_message", "into the header");
    }
    forge.set(slot, 33);
    forge.refused(".f_message", "not aligned");
    let beyond = forge.object.len() as u32;
    forge.set(slot, beyond);
    forge.refused(".f_message", "out of the object");
    forge.set(slot, u32::MAX - 7);
    forge.refused(".f_message", "out of the object");
}

#[test]
fn object_that_is_wrong_further_down() {
    // The path leads from the root to where the rule is broken.
    let mut forge = Forge::new();
    let inner = forge.word(forge.slot(11)) + forge.slot(9) as u32 - forge.word(12);
    let len = forge.object.len() as u32;
    forge.set(inner as usize, len);
    forge.refused(".f_message.f_string", "out of the object");
    // The first element's list of unknown fields.
    let mut forge = Forge::new();
    let element = forge.word(forge.slot(31)) as usize + 8;
    forge.set(element, 4);
    forge.refused(".r_message[0]", "into the header");
}

#[test]
fn object_with_a_oneof_that_contradicts_itself() {
    let (processor, _) = schemas();
    let rows = processor.table().fields_of(processor.type_by_name(T3).unwrap());
    let member = *rows.iter().find(|row| row.number == 71).unwrap();
    // A member that is not present; a field that is no member; no field at all.
    for (number, words) in [(71, "differ"), (5, "none of its members"), (4000, "none of its members")] {
        let mut forge = Forge::new();
        let tag = forge.word(12) + member.oneof_off;
        forge.set(tag as usize, number);
        forge.refused("", words);
    }
}

#[test]
fn object_with_a_circle() {
    let mut forge = Forge::new();
    let (slot, root) = (forge.slot(11), forge.word(12));
    forge.set(slot, root);
    // Three times round, then the object is used up.
    forge.refused(".f_message.f_message.f_message", "circle");
}

#[test]
fn object_with_a_list_that_claims_more_than_there_is() {
    for number in [25, 31] {
        let name = if number == 25 { ".r_int32" } else { ".r_message" };
        let mut forge = Forge::new();
        let block = forge.word(forge.slot(number)) as usize;
        let capacity = forge.word(block + 4);
        forge.set(block, capacity + 1);
        forge.refused(name, "more elements than room");
        for claimed in [capacity + 4096, 1 << 30, u32::MAX] {
            forge.set(block, claimed);
            forge.set(block + 4, claimed);
            forge.refused(name, "out of the object");
        }
    }
}
