//! Building objects in place: what is set, cleared, refused and left behind.

use tollfree_processor::{
    Arena, Arenas, BuildError, EncodeBuffer, Field, Limits, List, ObjectBuilder, OwnedObject, Processor,
    Record, Text, Value,
};

use crate::fixture::{bytes, schemas, varint};

const T3: &str = "t3.All";

fn place(p: &Processor, name: &str, number: u32) -> u32 {
    let rows = p.table().fields_of(p.type_by_name(name).unwrap());
    rows.iter().position(|row| row.number == number).unwrap() as u32
}

fn builder(p: &Processor) -> ObjectBuilder {
    p.builder(p.type_by_name(T3).unwrap(), Arena::with_limit(1 << 20)).unwrap()
}

fn encoded(object: &OwnedObject) -> Vec<u8> {
    object.object().encode(&mut EncodeBuffer::new()).unwrap().to_vec()
}

fn text(text: &str) -> Value<'_> {
    Value::String(Text::from(text))
}

#[test]
fn a_oneofs_member_takes_the_place_of_another() {
    let (p, _) = schemas();
    let [number, string, message] = [71, 72, 73].map(|number| place(&p, T3, number));
    let mut builder = builder(&p);
    let mut root = builder.edit();
    let kinds =
        [number, string, message].map(|idx| p.table().fields_of(root.view().type_idx())[idx as usize]);
    assert!(kinds.iter().all(|row| row.oneof_off != 0));
    root.set(string, text("first")).unwrap();
    root.message(message).unwrap().set(place(&p, T3, 9), text("inside")).unwrap();
    assert!(root.view().has(message) && !root.view().has(string));
    root.set(string, text("")).unwrap();
    assert!(root.view().has(string) && !root.view().has(message), "a member has presence, even empty");
    root.clear(string).unwrap();
    assert_eq!(root.view().fields().count(), 0);
    root.set(string, text("last")).unwrap();
    let object = builder.freeze().unwrap();
    p.verify(p.type_by_name(T3).unwrap(), object.object().bytes(), 9).unwrap();
    assert_eq!(encoded(&object), bytes(72, b"last"));
}

#[test]
fn what_was_replaced_is_not_in_the_object_any_more() {
    let (p, _) = schemas();
    let [string, list, inner] = [9, 29, 31].map(|number| place(&p, T3, number));
    let secret = "a secret of a session";
    let mut builder = builder(&p);
    let mut root = builder.edit();
    root.set(string, text(secret)).unwrap();
    root.set(string, text("x")).unwrap();
    for _ in 0..20 {
        root.list(list).unwrap().push(text(secret)).unwrap();
        let mut messages = root.list(inner).unwrap();
        messages.push_message().unwrap().set(string, text(secret)).unwrap();
    }
    let mut messages = root.list(inner).unwrap();
    messages.message(3).unwrap().clear(string).unwrap();
    messages.pop();
    assert_eq!(messages.len(), 19);
    root.clear(list).unwrap();
    root.clear(inner).unwrap();
    let object = builder.freeze().unwrap();
    let found = object.object().bytes().windows(8).filter(|part| *part == b"a secret").count();
    assert_eq!(found, 0);
    assert_eq!(encoded(&object), bytes(9, b"x"));
}

#[test]
fn of_a_maps_entries_the_last_of_each_key_stays() {
    let (p, _) = schemas();
    let map = place(&p, T3, 51);
    let mut builder = builder(&p);
    let mut root = builder.edit();
    let mut entries = root.list(map).unwrap();
    for (key, value) in [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5), ("a", 6)] {
        entries.insert(text(key), Value::I32(value)).unwrap();
    }
    assert!(matches!(entries.insert(Value::I32(1), Value::I32(1)), Err(BuildError::Kind { .. })));
    assert!(matches!(entries.insert(text("z"), text("no number")), Err(BuildError::Kind { .. })));
    assert!(matches!(entries.push_message(), Err(BuildError::Kind { .. })));
    entries.entry(text("d")).unwrap();
    let object = builder.freeze().unwrap();
    let entry = |key: &str, value: u64| bytes(51, &[bytes(1, key.as_bytes()), varint(2, value)].concat());
    assert_eq!(encoded(&object), [entry("c", 4), entry("b", 5), entry("a", 6), entry("d", 0)].concat());
}

#[test]
fn a_builder_that_is_too_long_says_so_and_can_be_gone_on_with() {
    let (p, _) = schemas();
    let type_idx = p.type_by_name(T3).unwrap();
    let [string, list, inner, blob] = [9, 29, 31, 12].map(|number| place(&p, T3, number));
    let arenas = Arenas::new(4096, 1);
    let mut builder = p.builder(type_idx, arenas.take()).unwrap();
    let mut root = builder.edit();
    root.set(string, text("kept")).unwrap();
    let error = root.set(string, text(&"long".repeat(1024))).unwrap_err();
    assert!(matches!(error, BuildError::Exhausted { need, limit: 4096 } if need > 4096), "{error}");
    assert!(root.set(blob, Value::Bytes(&[1; 5000])).is_err());
    let mut count = 0;
    while root.list(list).unwrap().push(text("element")).is_ok() {
        count += 1;
    }
    assert!(matches!(root.list(list).unwrap().reserve(u32::MAX), Err(BuildError::Exhausted { .. })));
    assert!(root.list(inner).unwrap().reserve(1000).is_err() && !root.view().has(inner));
    while root.message(place(&p, T3, 11)).and_then(|mut child| child.set(string, text("y"))).is_ok() {}
    let object = builder.freeze().unwrap();
    p.verify(type_idx, object.object().bytes(), 9).unwrap();
    let limits = Limits::default();
    let mut arena = Arena::with_limit(1 << 16);
    let read = p.decode(type_idx, &encoded(&object), &mut arena, &limits).unwrap();
    let name: Field<&'static str> = p.field(type_idx, p_name(&p, 9)).unwrap();
    assert_eq!(read.root().read(&name), Some("kept"));
    assert_eq!(
        read.root().get(list).map(|list| matches!(list, Value::List(list) if list.len() == count)),
        Some(true)
    );
    // The arena serves again.
    drop(object);
    let mut again = p.builder(type_idx, arenas.take()).unwrap();
    again.edit().set(string, text("new")).unwrap();
    assert_eq!(encoded(&again.freeze().unwrap()), bytes(9, b"new"));
    assert!(matches!(p.builder(type_idx, Arena::with_limit(64)), Err(BuildError::Exhausted { .. })));
    assert!(matches!(p.builder(u32::MAX, Arena::with_limit(64)), Err(BuildError::UnknownType { .. })));
}

fn p_name(p: &Processor, number: u32) -> &str {
    let row =
        p.table().fields_of(p.type_by_name(T3).unwrap()).iter().find(|row| row.number == number).unwrap();
    p.table().text(row.name)
}

#[test]
fn what_does_not_belong_is_refused_by_name() {
    let (p, _) = schemas();
    let (other, _) = schemas();
    let [string, list, inner] = [9, 29, 31].map(|number| place(&p, T3, number));
    let foreign = other.builder(other.type_by_name(T3).unwrap(), Arena::with_limit(1 << 16)).unwrap();
    let foreign = foreign.freeze().unwrap();
    let mut builder = builder(&p);
    let mut root = builder.edit();
    let error = root.copy_from(foreign.object().root()).unwrap_err();
    assert!(matches!(&error, BuildError::Foreign { found, .. } if found == T3), "{error}");
    assert!(root.list(inner).unwrap().push(Value::Message(foreign.object().root())).is_err());
    assert!(!root.view().has(inner));
    let error = root.set(string, Value::String(Text::new(&[0xff]))).unwrap_err();
    assert!(matches!(&error, BuildError::Utf8 { path } if path.ends_with(p_name(&p, 9))), "{error}");
    assert!(matches!(
        root.list(list).unwrap().push(Value::String(Text::new(&[0xff]))),
        Err(BuildError::Utf8 { .. })
    ));
    assert!(matches!(root.set(u32::MAX, Value::Bool(true)), Err(BuildError::UnknownField { .. })));
    assert!(matches!(root.message(string), Err(BuildError::Kind { .. })));
    assert!(matches!(root.list(string), Err(BuildError::Kind { .. })));
    assert_eq!(builder.freeze().unwrap().object().root().fields().count(), 0);
}

/// On a thread with a large stack: debug builds recurse in large steps.
#[test]
fn messages_nest_as_deep_as_readers_go_and_no_deeper() {
    let deep = || {
        let (p, _) = schemas();
        let type_idx = p.type_by_name(T3).unwrap();
        let inner: Field<Record<'static>> = p.field(type_idx, p_name(&p, 11)).unwrap();
        let list: Field<List<'static>> = p.field(type_idx, p_name(&p, 31)).unwrap();
        let mut builder = p.builder(type_idx, Arena::with_limit(1 << 22)).unwrap();
        let mut levels = 0;
        fn descend(
            mut at: tollfree_processor::Edit<'_>,
            inner: &Field<Record<'static>>,
            levels: &mut u32,
        ) -> BuildError {
            match at.message_of(inner) {
                Ok(child) => {
                    *levels += 1;
                    descend(child, inner, levels)
                }
                Err(error) => error,
            }
        }
        let error = descend(builder.edit(), &inner, &mut levels);
        assert!(matches!(error, BuildError::Depth { limit, .. } if limit == levels), "{error}");
        let object = builder.freeze().unwrap();
        let verified = p.verify(type_idx, object.object().bytes(), levels).unwrap();
        let mut builder = p.builder(type_idx, Arena::with_limit(1 << 22)).unwrap();
        builder.edit().copy_from(verified.root()).unwrap();
        let mut root = builder.edit();
        let error = root.list_of(&list).unwrap().push(Value::Message(verified.root())).unwrap_err();
        assert!(matches!(error, BuildError::Depth { .. }), "{error}");
        assert!(!root.view().has(place(&p, T3, 31)));
        assert_eq!(encoded(&builder.freeze().unwrap()), encoded(&object));
    };
    std::thread::Builder::new().stack_size(64 << 20).spawn(deep).unwrap().join().unwrap();
}

#[test]
fn strings_that_are_checked_read_as_str() {
    let (p, _) = schemas();
    let type_idx = p.type_by_name(T3).unwrap();
    let checked: Field<&'static str> = p.field(type_idx, p_name(&p, 9)).unwrap();
    let t2 = p.type_by_name("t2.All").unwrap();
    let row = p.table().fields_of(t2).iter().find(|row| row.number == 9).unwrap();
    let unchecked = p.field::<&'static str>(t2, p.table().text(row.name));
    assert!(unchecked.is_err(), "proto2 checks nothing");
    let mut builder = p.builder(type_idx, Arena::with_limit(1 << 16)).unwrap();
    builder.edit().write(&checked, "añ€😀").unwrap();
    assert_eq!(builder.edit().view().read(&checked), Some("añ€😀"));
    let mut forged = builder.freeze().unwrap().object().bytes().to_vec();
    let at = forged.windows(2).position(|part| part == "ñ".as_bytes()).unwrap();
    assert!(p.verify(type_idx, &forged, 1).unwrap().root().read(&checked).is_some());
    forged[at] = 0xff;
    assert!(p.verify(type_idx, &forged, 1).unwrap_err().to_string().contains("UTF-8"));
}
