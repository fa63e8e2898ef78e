//! JSON through this crate and through prost-reflect: what one reads or writes, so does the other.

use proptest::prelude::*;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use std::path::Path;
use std::sync::LazyLock;
use tollfree_json::{ReadError, Unknown, WriteError, read, write};
use tollfree_processor::{Arena, EncodeBuffer, Limits, Processor};
use tollfree_schema::Schema;

const NAME: &str = "json.Everything";

static SCHEMAS: LazyLock<(Processor, MessageDescriptor)> = LazyLock::new(|| {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture");
    let bytes = protox::compile(["everything.proto"], [dir]).unwrap().encode_to_vec();
    let table = Schema::from_descriptor_set(&bytes).unwrap().compile().unwrap();
    let pool = DescriptorPool::decode(&bytes[..]).unwrap();
    (Processor::new(table), pool.get_message_by_name(NAME).unwrap())
});

/// Reads and writes again, here: canonical bytes and text.
fn ours(text: &str) -> Result<(Vec<u8>, String), ReadError> {
    let (p, _) = &*SCHEMAS;
    let type_idx = p.type_by_name(NAME).unwrap();
    let wire = read(p, type_idx, text, Unknown::Refuse)?;
    let mut arena = Arena::with_limit(1 << 20);
    let object = p.decode(type_idx, &wire, &mut arena, &Limits::default()).unwrap();
    let bytes = object.encode(&mut EncodeBuffer::new()).unwrap().to_vec();
    Ok((bytes, write(p, object.root()).unwrap()))
}

fn theirs(text: &str) -> Result<DynamicMessage, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(text);
    let message = DynamicMessage::deserialize(SCHEMAS.1.clone(), &mut json)?;
    json.end()?;
    Ok(message)
}

/// `1` and `1.0` are one number in JSON.
fn as_doubles(tree: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match tree {
        Value::Number(number) => number.as_f64().unwrap().into(),
        Value::Array(elements) => elements.into_iter().map(as_doubles).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (name, as_doubles(value))).collect()
        }
        other => other,
    }
}

#[track_caller]
fn same(text: &str) {
    let (bytes, written) = ours(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let message = theirs(text).unwrap_or_else(|error| panic!("prost-reflect, {text}: {error}"));
    let read = DynamicMessage::decode(SCHEMAS.1.clone(), &bytes[..]).unwrap();
    assert_eq!(read, message, "{text}");
    let tree = as_doubles(serde_json::from_str(&written).unwrap());
    assert_eq!(tree, as_doubles(serde_json::to_value(&message).unwrap()), "{text}");
    assert_eq!(ours(&written).unwrap(), (bytes, written), "{text}");
}

#[test]
fn values_of_every_kind() {
    for text in [
        "{}",
        r#"{"aDouble":1.5,"aFloat":-0.25,"anInt64":"-7","aUint64":"18446744073709551615","anInt32":-1}"#,
        r#"{"aFixed64":"1","aFixed32":2,"aBool":true,"aString":"é\n\"\\ \u0001","someBytes":"/+8=","aUint32":3}"#,
        r#"{"aSfixed32":-4,"aSfixed64":"-5","aSint32":-6,"aSint64":"-7","color":"BLUE","inner":{"inner":{}}}"#,
        r#"{"a_double":1e300,"an_int64":7,"some_bytes":"_-8","color":1,"anInt32":1e2,"aUint32":"5"}"#,
        r#"{"aDouble":"NaN"}"#.replace("NaN", "Infinity").as_str(),
        r#"{"aDouble":"-Infinity","aFloat":6.5,"other name":"x","color":77}"#,
        r#"{"renamed":"by its own name","inner":null,"aString":null}"#,
        r#"{"numbers":[1,"2",-3],"texts":["a",""],"inners":[{},{"aBool":true}],"colors":["RED",0]}"#,
        r#"{"byText":{"a":{"aBool":true},"":{}},"byBool":{"true":1,"false":2},"byNumber":{"-9":"RED"}}"#,
        r#"{"chosenNumber":0}"#,
        r#"{"chosenText":"","maybe":0}"#,
        r#"{"chosenNull":null}"#,
    ] {
        same(text);
    }
}

#[test]
fn well_known_types() {
    for text in [
        r#"{"time":"2024-02-29T23:59:59Z","duration":"-1.500s"}"#,
        r#"{"time":"1969-12-31T23:59:59.000001Z","duration":"0.000000001s"}"#,
        r#"{"time":"2024-01-01T01:00:00+01:30","duration":"315576000000s"}"#,
        r#"{"mask":"aB.cD,e","empty":{}}"#,
        r#"{"struct":{"a":1.5,"b":[true,null,"x"],"c":{"d":{}}},"value":null}"#,
        r#"{"value":[1,{"a":"b"}],"list":[[],{}],"values":[null,1]}"#,
        r#"{"wDouble":0,"wInt64":"0","wBool":false,"wString":"","wBytes":"","wUint32":0}"#,
        r#"{"wDouble":1.5,"wInt64":"5","wBool":true,"wString":"s","wBytes":"AA==","wUint32":7}"#,
        r#"{"any":{"@type":"type.googleapis.com/json.Everything","aBool":true,"texts":["x"]}}"#,
        r#"{"any":{"value":"1.500s","@type":"type.googleapis.com/google.protobuf.Duration"}}"#,
        r#"{"any":{"@type":"x/google.protobuf.Any","value":{"@type":"x/google.protobuf.Int32Value","value":5}}}"#
            .replace("Int32", "Int64")
            .replace(":5", ":\"5\"")
            .as_str(),
    ] {
        same(text);
    }
}

#[test]
fn what_does_not_fit_is_refused_with_its_path() {
    let cases = [
        (
            r#"{"inners":[{},{"anInt32":2147483648}]}"#,
            "json.Everything.inners[1].an_int32: expected a whole number",
        ),
        (r#"{"aUint32":-1}"#, "a_uint32: expected a whole number from 0 to 4294967295, found -1"),
        (r#"{"anInt32":1.5}"#, "an_int32: expected a whole number"),
        (r#"{"aBool":"true"}"#, "a_bool: expected true or false, found \"true\""),
        (r#"{"aString":1}"#, "a_string: expected a string, found 1"),
        (r#"{"someBytes":"?"}"#, "some_bytes: expected bytes in base64"),
        (r#"{"aFloat":1e39}"#, "a_float: expected a number that a float can hold"),
        (r#"{"color":"GREEN"}"#, "color: expected a name of json.Color"),
        (r#"{"numbers":5}"#, "numbers: expected an array, found 5"),
        (r#"{"numbers":[null]}"#, "numbers[0]: expected a whole number"),
        (r#"{"inner":[]}"#, "inner: expected an object, found an array"),
        (r#"{"byBool":{"maybe":1}}"#, "by_bool[\"maybe\"]: the key is neither true nor false"),
        (r#"{"chosenNumber":1,"chosenText":"x"}"#, "chosen_text: another member of the same oneof"),
        (r#"{"aBool":true,"aBool":false}"#, "a_bool: the field stands twice"),
        (r#"{"none":1}"#, "json.Everything: the message has no field \"none\""),
        (r#"{"time":"yesterday"}"#, "time: expected a time like"),
        (r#"{"duration":"1"}"#, "duration: expected a duration like"),
        (r#"{"mask":"a_b"}"#, "mask: expected paths in camel case"),
        (r#"{"any":{"@type":"x/none.Such"}}"#, "any: the table has no type for"),
        (r#"{"any":{"aBool":true}}"#, "any: expected one member \"@type\""),
        (r#"{"aBool":true"#, "not JSON: EOF"),
        (r#"[]"#, "json.Everything: expected an object, found an array"),
    ];
    for (text, words) in cases {
        let error = ours(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
        // prost-reflect lets the last one of a member's two values count; protobuf refuses.
        assert_eq!(theirs(text).is_ok(), words.contains("stands twice"), "{text}");
    }
    let (p, _) = &*SCHEMAS;
    let deep = "[".repeat(100_000);
    assert!(matches!(
        read(p, p.type_by_name(NAME).unwrap(), &deep, Unknown::Refuse),
        Err(ReadError::Syntax { .. })
    ));
}

#[test]
fn unknown_members_can_be_skipped() {
    let (p, _) = &*SCHEMAS;
    let text = r#"{"none":{"x":[1]},"aBool":true,"color":"GREEN","colors":["RED","GREEN"],"byNumber":{"1":"GREEN"}}"#;
    let skipped = read(p, p.type_by_name(NAME).unwrap(), text, Unknown::Skip).unwrap();
    let expected =
        read(p, p.type_by_name(NAME).unwrap(), r#"{"aBool":true,"colors":["RED"]}"#, Unknown::Refuse);
    assert_eq!(skipped, expected.unwrap());
}

#[test]
fn what_has_no_json_form_is_told_with_its_path() {
    let (p, _) = &*SCHEMAS;
    let type_idx = p.type_by_name(NAME).unwrap();
    let told = |input: &[u8]| {
        let mut arena = Arena::with_limit(1 << 20);
        let object = p.decode(type_idx, input, &mut arena, &Limits::default()).unwrap();
        write(p, object.root()).unwrap_err()
    };
    let field = |number: u32, body: &[u8]| {
        let tag = number << 3 | 2;
        [&[tag as u8 | 0x80, (tag >> 7) as u8, body.len() as u8], body].concat()
    };
    // A second beyond the year 9999; nanoseconds of the other sign; a path with a capital; an empty Value.
    let mut late = vec![8];
    prost::encoding::encode_varint(253_402_300_800, &mut late);
    let late = field(51, &late);
    let at_path = |error: WriteError, end: &str, words: &str| {
        let said = error.to_string();
        assert!(said.starts_with(&format!("json.Everything.{end}: ")) && said.contains(words), "{said}");
    };
    at_path(told(&late), "time", "253402300800 s and 0 ns are no time");
    at_path(
        told(&field(52, &[8, 1, 16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1])),
        "duration",
        "no duration",
    );
    at_path(told(&field(53, &[10, 2, b'a', b'B'])), "mask", "does not survive");
    at_path(told(&field(55, &[])), "value", "holds nothing");
    at_path(told(&field(22, &field(55, &[]))), "inners[0].value", "holds nothing");
    at_path(told(&field(50, b"\x0a\x10x/json.Everythin")), "any", "no type");
    let broken = field(50, b"\x0a\x11x/json.Everything\x12\x02\x48\x80");
    at_path(told(&broken), "any", "does not decode: json.Everything");
}

/// An `Any` in an `Any` and so on: each is a message of its own for the decoder, which cannot see how deep it goes.
#[test]
fn packed_messages_cannot_exhaust_the_stack() {
    let (p, _) = &*SCHEMAS;
    let type_idx = p.type_by_name("google.protobuf.Any").unwrap();
    let nested = |levels: usize| {
        (0..levels).fold(b"\x0a\x11x/json.Everything".to_vec(), |inner, _| {
            let mut any = b"\x0a\x15x/google.protobuf.Any\x12".to_vec();
            prost::encoding::encode_varint(inner.len() as u64, &mut any);
            [any, inner].concat()
        })
    };
    let written = |levels| {
        let mut arena = Arena::with_limit(1 << 20);
        let input = nested(levels);
        write(p, p.decode(type_idx, &input, &mut arena, &Limits::default()).unwrap().root())
    };
    assert!(written(90).unwrap().ends_with(&"}".repeat(91)));
    for levels in [200, 3000] {
        assert!(matches!(written(levels), Err(WriteError::Depth { .. })));
    }
}

/// A message with most of what can be said.
const RICH: &str = r#"{"aDouble":1.5,"anInt64":"-7","aString":"é","someBytes":"/+8=","color":"BLUE","inner":{"maybe":0},
    "numbers":[1,"2"],"byText":{"a":{"aBool":true}},"byBool":{"true":1},"time":"2024-02-29T23:59:59.5Z",
    "duration":"-1.500s","mask":"aB.cD,e","struct":{"a":[1,null,{"b":true}]},"wInt64":"5",
    "any":{"@type":"x/json.Everything","any":{"@type":"x/google.protobuf.Duration","value":"1s"}}}"#;

proptest! {
    #[test]
    fn damaged_text_is_read_or_refused(at: prop::sample::Index, byte in 0x20u8..0x7f, cut: prop::sample::Index) {
        let mut text = RICH.as_bytes().to_vec();
        let at = at.index(text.len());
        if text[at].is_ascii() {
            text[at] = byte;
        }
        if byte < 0x28 {
            text.truncate(cut.index(text.len()));
        }
        let text = String::from_utf8_lossy(&text);
        if let Ok((_, written)) = ours(&text) {
            prop_assert_eq!(ours(&written).unwrap().1, written);
        }
    }

    #[test]
    fn damaged_messages_are_written_or_refused(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let (p, _) = &*SCHEMAS;
        let type_idx = p.type_by_name(NAME).unwrap();
        let mut wire = ours(RICH).unwrap().0;
        for (at, byte) in changes {
            let at = at.index(wire.len());
            wire[at] = byte;
        }
        let mut arena = Arena::with_limit(1 << 20);
        if let Ok(object) = p.decode(type_idx, &wire, &mut arena, &Limits::default())
            && let Ok(written) = write(p, object.root())
        {
            prop_assert_eq!(ours(&written).unwrap().1, written);
        }
    }

    #[test]
    fn numbers_and_texts_survive(
        double in any::<f64>(), float in any::<f32>(), int in any::<i64>(), uint in any::<u64>(), text in any::<String>(),
        bytes in any::<Vec<u8>>(),
    ) {
        let (p, descriptor) = &*SCHEMAS;
        let mut message = DynamicMessage::new(descriptor.clone());
        use prost_reflect::Value;
        message.set_field_by_name("a_double", Value::F64(double));
        message.set_field_by_name("a_float", Value::F32(float));
        message.set_field_by_name("an_int64", Value::I64(int));
        message.set_field_by_name("a_fixed64", Value::U64(uint));
        message.set_field_by_name("a_string", Value::String(text));
        message.set_field_by_name("some_bytes", Value::Bytes(bytes.into()));
        let type_idx = p.type_by_name(NAME).unwrap();
        let mut arena = Arena::with_limit(1 << 20);
        let wire = message.encode_to_vec();
        let object = p.decode(type_idx, &wire, &mut arena, &Limits::default()).unwrap();
        let written = write(p, object.root()).unwrap();
        let back = read(p, type_idx, &written, Unknown::Refuse).unwrap();
        let mut other = Arena::with_limit(1 << 20);
        let again = p.decode(type_idx, &back, &mut other, &Limits::default()).unwrap();
        prop_assert_eq!(again.encode(&mut EncodeBuffer::new()).unwrap().to_vec(), &wire[..]);
        prop_assert_eq!(theirs(&written).unwrap().encode_to_vec(), wire);
    }
}
