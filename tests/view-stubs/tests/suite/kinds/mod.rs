//! All kinds of fields, of proto3 and proto2, and unusual names.

mod bad_input;
mod fields;
#[path = "../../../../../crates/processor/tests/fixture/mod.rs"]
mod fixture;
mod hostile;
mod structs;

use fields::{full, put, read};
use prost::Message as _;
use tollfree_processor::typed::{Builder, Message, MessageMut, MessageView, Owned};
use tollfree_processor::{Arena, BuildError, EncodeBuffer, Limits, Text};
use tollfree_view_stubs::kinds::prost as theirs;
use tollfree_view_stubs::kinds::{t2, t3};
use tollfree_view_stubs::names::stubs::names::v1 as names;

fn arena() -> Arena<'static> {
    Arena::with_limit(1 << 20)
}

fn owned<M: Message>(input: &[u8]) -> Owned<M> {
    let decoded = Owned::<M>::decode(input, arena(), &Limits::default()).unwrap();
    let copied: Owned<M> = Owned::verify(decoded.object().bytes(), arena(), 1000).unwrap();
    // Where it lies, at an odd address.
    let odd = bytes::Bytes::from([&[0], copied.object().bytes()].concat()).slice(1..);
    Owned::verify_held(odd, 1000).unwrap()
}

fn encoded<M: Message>(owned: &Owned<M>) -> Vec<u8> {
    owned.object().encode(&mut EncodeBuffer::new()).unwrap().to_vec()
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
            let mut builder = Builder::<t3::All>::new(arena()).unwrap();
            put(builder.edit(), &theirs).unwrap();
            let built = builder.freeze().unwrap();
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
    let mut builder = Builder::<t3::All>::new(arena()).unwrap();
    builder.edit().set_f_message(view).unwrap();
    let around = builder.freeze().unwrap();
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

    fn dig(mut to: t3::AllMut<'_>, level: u32) -> (u32, BuildError) {
        match to.f_message_mut() {
            Ok(inner) => dig(inner, level + 1),
            Err(error) => (level, error),
        }
    }
    let mut builder = Builder::<t3::All>::new(arena()).unwrap();
    let (level, error) = dig(builder.edit(), 0);
    assert!(matches!(error, BuildError::Depth { .. }), "{error}");
    assert_eq!(level, 1000);
    builder.edit().set_far(1).unwrap();
    assert_eq!(builder.freeze().unwrap().view().far(), 1);
}

#[test]
fn proto2_has_defaults_groups_and_closed_enums() {
    let empty = owned::<t2::All>(&[]);
    let view = empty.view();
    assert_eq!((view.f_int32(), view.f_int32_opt(), view.has_f_int32()), (42, None, false));
    assert_eq!((view.f_string(), view.f_enum()), (Text::from("hi"), t2::Closed::TWO));
    assert!(view.part().is_none() && view.parts().is_empty() && view.f_bytes().is_empty());
    assert_eq!(view.choice(), t2::all::Choice::NotSet);
    let mut builder = Builder::<t2::All>::new(arena()).unwrap();
    let mut to = builder.edit();
    to.set_f_int32(42).unwrap();
    to.set_f_string(Text::new(b"not \xff UTF-8")).unwrap();
    to.part_mut().unwrap().set_x(5).unwrap();
    to.parts_mut().unwrap().push_new().unwrap().set_y(Text::from("y")).unwrap();
    to.set_c_bytes(&[1]).unwrap();
    to.set_c_enum(t2::Closed::MINUS).unwrap();
    to.m_enum_mut().unwrap().insert(1, t2::Closed::NINE).unwrap();
    assert!(!to.view().has_c_bytes());
    let object = builder.freeze().unwrap();
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
    let mut builder = Builder::<names::Self_>::new(arena()).unwrap();
    let mut to = builder.edit();
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
    let object = builder.freeze().unwrap();
    let view = object.view();
    assert_eq!((view.r#type(), view.self_(), view.match_opt()), ("t", 2, Some(false)));
    assert_eq!((view.super_().get(0).unwrap().record(), view.view()), ("r", &b"v"[..]));
    assert_eq!(MessageView::record(view).type_name(), "stubs.names.v1.Self");
    assert_eq!(view.encode().unwrap().seconds(), 9);
    let result = view.crate_().get("k").unwrap();
    assert_eq!(result.some(), names::self_::result::Some::Ok(names::Type(0)));
}
