//! All kinds of fields, of proto3 and proto2, and unusual names.

use prost::Message as _;
use tollfree_processor::typed::{Draft, Message, MessageMut, MessageView, Owned};
use tollfree_processor::{Arena, DraftError, EncodeBuffer, Limits, Text};
use tollfree_view_stubs::kinds::prost as theirs;
use tollfree_view_stubs::kinds::{t2, t3};
use tollfree_view_stubs::names::stubs::names::v1 as names;

fn arena() -> Arena<'static> {
    Arena::with_limit(1 << 20)
}

fn owned<M: Message>(input: &[u8]) -> Owned<M> {
    let decoded = Owned::<M>::decode(input, arena(), &Limits::default()).unwrap();
    Owned::verify(decoded.object().bytes(), arena(), 1000).unwrap()
}

fn encoded<M: Message>(owned: &Owned<M>) -> Vec<u8> {
    owned.object().encode(&mut EncodeBuffer::new()).unwrap().to_vec()
}

/// A message in which each field has a value, other than its default and than that of every other field.
fn full(inner: bool) -> theirs::t3::All {
    let inner = || inner.then(|| Box::new(full(false)));
    theirs::t3::All {
        f_double: 1.5,
        f_float: -2.5,
        f_int64: i64::MIN,
        f_uint64: u64::MAX,
        f_int32: -5,
        f_fixed64: 6 << 40,
        f_fixed32: 7 << 20,
        f_bool: true,
        f_string: "nine".into(),
        f_message: inner(),
        f_bytes: vec![12, 0, 255],
        f_uint32: 13,
        f_enum: -5,
        f_sfixed32: -15,
        f_sfixed64: -16,
        f_sint32: -17,
        f_sint64: -18,
        r_double: vec![21.0, f64::INFINITY],
        r_float: vec![22.0, -0.0],
        r_int64: vec![23, -23],
        r_uint64: vec![24; 70],
        r_int32: vec![25, i32::MIN],
        r_fixed64: vec![26],
        r_fixed32: vec![27, 28],
        r_bool: vec![true, false, true],
        r_string: vec!["thirty".into(), String::new(), "ü".into()],
        r_message: inner().map(|it| vec![*it, theirs::t3::All::default()]).unwrap_or_default(),
        r_bytes: vec![vec![], vec![33]],
        r_uint32: vec![33, u32::MAX],
        r_enum: vec![1, 0, -5, 77],
        r_sfixed32: vec![-35],
        r_sfixed64: vec![36],
        r_sint32: vec![37, -37],
        r_sint64: vec![-38],
        u_int32: vec![41],
        u_fixed64: vec![42],
        m_string: [("a".to_owned(), 51), (String::new(), 0)].into(),
        m_message: [(-52, inner().map(|it| *it).unwrap_or_default())].into(),
        m_bool: [(false, vec![53])].into(),
        m_enum: [(54, 1), (55, 99)].into(),
        o_int32: Some(0),
        o_string: Some(String::new()),
        choice: Some(theirs::t3::all::Choice::CString("c".into())),
        far: 3000,
        farther: "500000000".into(),
    }
}

/// What views read, as prost's type.
fn read(view: t3::AllView<'_>) -> theirs::t3::All {
    use t3::all::Choice;
    let numbers = |view: tollfree_processor::typed::ListView<'_, _>| {
        view.iter().map(|value: t3::Color| value.0).collect::<Vec<i32>>()
    };
    theirs::t3::All {
        f_double: view.f_double(),
        f_float: view.f_float(),
        f_int64: view.f_int64(),
        f_uint64: view.f_uint64(),
        f_int32: view.f_int32(),
        f_fixed64: view.f_fixed64(),
        f_fixed32: view.f_fixed32(),
        f_bool: view.f_bool(),
        f_string: view.f_string().into(),
        f_message: view.f_message().map(|view| Box::new(read(view))),
        f_bytes: view.f_bytes().into(),
        f_uint32: view.f_uint32(),
        f_enum: view.f_enum().into(),
        f_sfixed32: view.f_sfixed32(),
        f_sfixed64: view.f_sfixed64(),
        f_sint32: view.f_sint32(),
        f_sint64: view.f_sint64(),
        r_double: view.r_double().iter().collect(),
        r_float: view.r_float().iter().collect(),
        r_int64: view.r_int64().iter().collect(),
        r_uint64: view.r_uint64().iter().collect(),
        r_int32: view.r_int32().iter().collect(),
        r_fixed64: view.r_fixed64().iter().collect(),
        r_fixed32: view.r_fixed32().iter().collect(),
        r_bool: view.r_bool().iter().collect(),
        r_string: view.r_string().iter().map(str::to_owned).collect(),
        r_message: view.r_message().iter().map(read).collect(),
        r_bytes: view.r_bytes().iter().map(<[u8]>::to_vec).collect(),
        r_uint32: view.r_uint32().iter().collect(),
        r_enum: numbers(view.r_enum()),
        r_sfixed32: view.r_sfixed32().iter().collect(),
        r_sfixed64: view.r_sfixed64().iter().collect(),
        r_sint32: view.r_sint32().iter().collect(),
        r_sint64: view.r_sint64().iter().collect(),
        u_int32: view.u_int32().iter().collect(),
        u_fixed64: view.u_fixed64().iter().collect(),
        m_string: view.m_string().iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        m_message: view.m_message().iter().map(|(key, value)| (key, read(value))).collect(),
        m_bool: view.m_bool().iter().map(|(key, value)| (key, value.to_vec())).collect(),
        m_enum: view.m_enum().iter().map(|(key, value)| (key, value.0)).collect(),
        o_int32: view.o_int32_opt(),
        o_string: view.o_string_opt().map(str::to_owned),
        choice: match view.choice() {
            Choice::NotSet => None,
            Choice::CInt32(value) => Some(theirs::t3::all::Choice::CInt32(value)),
            Choice::CString(value) => Some(theirs::t3::all::Choice::CString(value.into())),
            Choice::CMessage(value) => Some(theirs::t3::all::Choice::CMessage(Box::new(read(value)))),
            Choice::CEnum(value) => Some(theirs::t3::all::Choice::CEnum(value.0)),
            Choice::CDouble(value) => Some(theirs::t3::all::Choice::CDouble(value)),
        },
        far: view.far(),
        farther: view.farther().into(),
    }
}

/// Builds what prost's type holds.
fn put(mut to: t3::AllMut<'_>, from: &theirs::t3::All) -> Result<(), DraftError> {
    use theirs::t3::all::Choice;
    to.set_f_double(from.f_double)?;
    to.set_f_float(from.f_float)?;
    to.set_f_int64(from.f_int64)?;
    to.set_f_uint64(from.f_uint64)?;
    to.set_f_int32(from.f_int32)?;
    to.set_f_fixed64(from.f_fixed64)?;
    to.set_f_fixed32(from.f_fixed32)?;
    to.set_f_bool(from.f_bool)?;
    to.set_f_string(&from.f_string)?;
    if let Some(from) = &from.f_message {
        put(to.f_message_mut()?, from)?;
    }
    to.set_f_bytes(&from.f_bytes)?;
    to.set_f_uint32(from.f_uint32)?;
    to.set_f_enum(t3::Color(from.f_enum))?;
    to.set_f_sfixed32(from.f_sfixed32)?;
    to.set_f_sfixed64(from.f_sfixed64)?;
    to.set_f_sint32(from.f_sint32)?;
    to.set_f_sint64(from.f_sint64)?;
    to.r_double_mut()?.extend(from.r_double.iter().copied())?;
    to.r_float_mut()?.extend(from.r_float.iter().copied())?;
    to.r_int64_mut()?.extend(from.r_int64.iter().copied())?;
    to.r_uint64_mut()?.extend(from.r_uint64.iter().copied())?;
    to.r_int32_mut()?.extend(from.r_int32.iter().copied())?;
    to.r_fixed64_mut()?.extend(from.r_fixed64.iter().copied())?;
    to.r_fixed32_mut()?.extend(from.r_fixed32.iter().copied())?;
    to.r_bool_mut()?.extend(from.r_bool.iter().copied())?;
    to.r_string_mut()?.extend(from.r_string.iter().map(String::as_str))?;
    for from in &from.r_message {
        put(to.r_message_mut()?.push_new()?, from)?;
    }
    to.r_bytes_mut()?.extend(from.r_bytes.iter().map(Vec::as_slice))?;
    to.r_uint32_mut()?.extend(from.r_uint32.iter().copied())?;
    to.r_enum_mut()?.extend(from.r_enum.iter().map(|number| t3::Color(*number)))?;
    to.r_sfixed32_mut()?.extend(from.r_sfixed32.iter().copied())?;
    to.r_sfixed64_mut()?.extend(from.r_sfixed64.iter().copied())?;
    to.r_sint32_mut()?.extend(from.r_sint32.iter().copied())?;
    to.r_sint64_mut()?.extend(from.r_sint64.iter().copied())?;
    to.u_int32_mut()?.extend(from.u_int32.iter().copied())?;
    to.u_fixed64_mut()?.extend(from.u_fixed64.iter().copied())?;
    for (key, value) in &from.m_string {
        to.m_string_mut()?.insert(key, *value)?;
    }
    for (key, value) in &from.m_message {
        put(to.m_message_mut()?.insert_new(*key)?, value)?;
    }
    for (key, value) in &from.m_bool {
        to.m_bool_mut()?.insert(*key, value)?;
    }
    for (key, value) in &from.m_enum {
        to.m_enum_mut()?.insert(*key, t3::Color(*value))?;
    }
    if let Some(value) = from.o_int32 {
        to.set_o_int32(value)?;
    }
    if let Some(value) = &from.o_string {
        to.set_o_string(value)?;
    }
    match &from.choice {
        Some(Choice::CInt32(value)) => to.set_c_int32(*value)?,
        Some(Choice::CString(value)) => to.set_c_string(value)?,
        Some(Choice::CMessage(value)) => put(to.c_message_mut()?, value)?,
        Some(Choice::CEnum(value)) => to.set_c_enum(t3::Color(*value))?,
        Some(Choice::CDouble(value)) => to.set_c_double(*value)?,
        None => {}
    }
    to.set_far(from.far)?;
    to.set_farther(&from.farther)
}

#[test]
fn every_kind_of_field_is_read_and_built_as_by_prost() {
    use theirs::t3::all::Choice;
    let choices = [
        None,
        Some(Choice::CInt32(0)),
        Some(Choice::CString("x".into())),
        Some(Choice::CMessage(Box::new(full(false)))),
        Some(Choice::CEnum(-5)),
        Some(Choice::CDouble(0.0)),
    ];
    for choice in choices {
        for theirs in [full(true), theirs::t3::All::default()] {
            let theirs = theirs::t3::All { choice: choice.clone(), ..theirs };
            let ours = owned::<t3::All>(&theirs.encode_to_vec());
            assert_eq!(read(ours.view()), theirs);
            let mut draft = Draft::<t3::All>::new(arena()).unwrap();
            put(draft.edit(), &theirs).unwrap();
            let built = draft.freeze().unwrap();
            let built = Owned::<t3::All>::verify(built.object().bytes(), arena(), 1000).unwrap();
            assert_eq!(built.view(), ours.view());
            assert_eq!(read(built.view()), theirs);
            assert_eq!(theirs::t3::All::decode(&encoded(&built)[..]).unwrap(), theirs);
        }
    }
}

#[test]
fn maps_are_looked_up_and_unknown_fields_stay() {
    let mut input = full(true).encode_to_vec();
    input.extend([0xf8, 0x3f, 1]);
    let message = owned::<t3::All>(&input);
    let view = message.view();
    assert_eq!((view.m_string().get("a"), view.m_string().get("")), (Some(51), Some(0)));
    assert_eq!(view.m_bool().get(false), Some(&[53][..]));
    assert_eq!((view.m_bool().get(true), view.m_string().get("b")), (None, None));
    assert_eq!(view.m_enum().get(54), Some(t3::Color::RED));
    assert_eq!(view.m_message().get(-52).unwrap().f_int32(), -5);
    assert_eq!(format!("{:?} {:?}", view.m_enum().get(55).unwrap(), t3::Color::BLUE), "Color(99) BLUE");
    assert_eq!(view.record().unknown().collect::<Vec<_>>(), [[0xf8, 0x3f, 1]]);
    let mut draft = Draft::<t3::All>::new(arena()).unwrap();
    draft.edit().set_f_message(view).unwrap();
    let around = draft.freeze().unwrap();
    let inner = around.view().f_message().unwrap();
    assert_eq!(inner, view);
    let mut buffer = EncodeBuffer::new();
    assert!(inner.encode(&mut buffer).unwrap().ends_with(&[0xf8, 0x3f, 1]));
    assert_ne!(around.view().f_message(), owned::<t3::All>(&full(true).encode_to_vec()).view().f_message());
}

/// A map's entry of a peer's object may lack its value, though no decoder makes it so.
#[test]
fn an_entry_without_its_value_reads_as_an_empty_one() {
    let message = owned::<t3::All>(&[0xa2, 3, 4, 8, 7, 0x12, 0]);
    let mut forged = message.object().bytes().to_vec();
    // The entry's presence word: key and value.
    let words: Vec<usize> =
        (32..forged.len() - 4).step_by(4).filter(|at| forged[*at..at + 4] == [3, 0, 0, 0]).collect();
    let found = words.into_iter().find_map(|at| {
        forged[at] = 1;
        let owned = Owned::<t3::All>::verify(&forged, arena(), 9).ok();
        forged[at] = 3;
        owned.filter(|owned| !format!("{:?}", owned.view()).contains("value"))
    });
    let found = found.expect("an entry lost its value");
    let value = found.view().m_message().get(7).expect("the entry is there");
    assert_eq!(read(value), theirs::t3::All::default());
}

#[test]
fn messages_nest_as_deep_as_limits_say() {
    let nested = |depth: u32| {
        (0..depth).fold(vec![], |inner, _| {
            let mut outer = vec![11 << 3 | 2];
            prost::encode_length_delimiter(inner.len(), &mut outer).unwrap();
            outer.extend(inner);
            outer
        })
    };
    let limits = Limits { depth: 50, ..Limits::default() };
    assert!(Owned::<t3::All>::decode(&nested(51), arena(), &limits).is_err());
    let deep = Owned::<t3::All>::decode(&nested(50), arena(), &limits).unwrap();
    let mut view = deep.view();
    let mut levels = 0;
    while let Some(inner) = view.f_message() {
        (view, levels) = (inner, levels + 1);
    }
    assert_eq!(levels, 50);
    assert!(Owned::<t3::All>::verify(deep.object().bytes(), arena(), 49).is_err());

    fn dig(mut to: t3::AllMut<'_>, level: u32) -> (u32, DraftError) {
        match to.f_message_mut() {
            Ok(inner) => dig(inner, level + 1),
            Err(error) => (level, error),
        }
    }
    let mut draft = Draft::<t3::All>::new(arena()).unwrap();
    let (level, error) = dig(draft.edit(), 0);
    assert!(matches!(error, DraftError::Depth { .. }), "{error}");
    assert_eq!(level, 1000);
    draft.edit().set_far(1).unwrap();
    assert_eq!(draft.freeze().unwrap().view().far(), 1);
}

#[test]
fn proto2_has_defaults_groups_and_closed_enums() {
    let empty = owned::<t2::All>(&[]);
    let view = empty.view();
    assert_eq!((view.f_int32(), view.f_int32_opt(), view.has_f_int32()), (42, None, false));
    assert_eq!((view.f_string(), view.f_enum()), (Text::from("hi"), t2::Closed::TWO));
    assert!(view.part().is_none() && view.parts().is_empty() && view.f_bytes().is_empty());
    assert_eq!(view.choice(), t2::all::Choice::NotSet);
    let mut draft = Draft::<t2::All>::new(arena()).unwrap();
    let mut to = draft.edit();
    to.set_f_int32(42).unwrap();
    to.set_f_string(Text::new(b"not \xff UTF-8")).unwrap();
    to.part_mut().unwrap().set_x(5).unwrap();
    to.parts_mut().unwrap().push_new().unwrap().set_y(Text::from("y")).unwrap();
    to.set_c_bytes(&[1]).unwrap();
    to.set_c_enum(t2::Closed::MINUS).unwrap();
    to.m_enum_mut().unwrap().insert(1, t2::Closed::NINE).unwrap();
    assert!(!to.view().has_c_bytes());
    let object = draft.freeze().unwrap();
    let view = object.view();
    assert_eq!((view.f_int32_opt(), view.f_string().as_bytes()), (Some(42), &b"not \xff UTF-8"[..]));
    assert_eq!(view.choice(), t2::all::Choice::CEnum(t2::Closed::MINUS));
    assert_eq!(view.parts().get(0).unwrap().y(), Text::from("y"));
    assert_eq!(view.m_enum().get(1), Some(t2::Closed::NINE));
    assert_eq!(owned::<t2::All>(&encoded(&object)).view(), view);
    // A closed enum keeps what it does not list as an unknown field.
    let kept = owned::<t2::All>(&[3 << 3, 5]);
    assert!(!kept.view().has_f_enum() && kept.view().f_enum() == t2::Closed::TWO);
    assert_eq!(encoded(&kept), [3 << 3, 5]);
}

#[test]
fn names_that_rust_has_are_escaped() {
    let mut draft = Draft::<names::Self_>::new(arena()).unwrap();
    let mut to = draft.edit();
    to.set_type("t").unwrap();
    to.set_self(2).unwrap();
    to.set_match(false).unwrap();
    to.super_mut().unwrap().push_new().unwrap().set_record("r").unwrap();
    let mut entries = to.crate_mut().unwrap();
    let mut entry = entries.insert_new("k").unwrap();
    entry.set_option(names::self_::result::Option::SOME).unwrap();
    entry.set_ok(names::Type::self_).unwrap();
    to.encode_mut().unwrap().set_seconds(9).unwrap();
    to.set_view(b"v").unwrap();
    let object = draft.freeze().unwrap();
    let view = object.view();
    assert_eq!((view.r#type(), view.self_(), view.match_opt()), ("t", 2, Some(false)));
    assert_eq!((view.super_().get(0).unwrap().record(), view.view()), ("r", &b"v"[..]));
    assert_eq!(MessageView::record(view).type_name(), "stubs.names.v1.Self");
    assert_eq!(view.encode().unwrap().seconds(), 9);
    let result = view.crate_().get("k").unwrap();
    assert_eq!(result.some(), names::self_::result::Some::Ok(names::Type(0)));
}
