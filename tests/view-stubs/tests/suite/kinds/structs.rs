//! prost's structs made of views, and builders made of structs: what prost decodes and encodes, through generated code alone.

use prost::Message as _;
use tollfree_processor::typed::{
    Builder, InProst, Message, MessageMut, MessageView, Owned, ProstError, processor,
};
use tollfree_processor::{Arenas, BuildError, Limits, Text};
use tollfree_view_stubs::kinds::prost::{t2 as theirs2, t3 as theirs};
use tollfree_view_stubs::kinds::{ViewsTable, t2, t3};
use tollfree_view_stubs::names::prost::stubs::names::v1 as their_names;
use tollfree_view_stubs::names::stubs::names::v1 as names;
use tollfree_view_stubs::special::json;
use tollfree_view_stubs::special::prost::json as their_json;

use super::fields::{full, read};
use super::{arena, encoded, owned};

/// The struct, by way of a decoded object and of a builder.
#[track_caller]
fn there_and_back<M, P>(theirs: &P) -> Owned<M>
where
    M: InProst<Struct = P>,
    for<'a> M::View<'a>: MessageView<'a, Message = M>,
    P: prost::Message + Default + PartialEq + std::fmt::Debug,
{
    let decoded = owned::<M>(&theirs.encode_to_vec());
    assert_eq!(decoded.view().to_prost().as_ref(), Ok(theirs));
    let built = Owned::<M>::from_prost_in(arena(), theirs).unwrap();
    let built = Owned::<M>::verify(built.object().bytes(), arena(), 1000).unwrap();
    assert!(built == decoded, "{built:?} is not {decoded:?}");
    assert_eq!(built.view().to_prost().as_ref(), Ok(theirs));
    assert_eq!(&P::decode(&encoded(&built)[..]).unwrap(), theirs);
    built
}

#[test]
fn structs_of_every_kind_of_field() {
    use theirs::all::Choice;
    let choices = [
        None,
        Some(Choice::CInt32(0)),
        Some(Choice::CString(String::new())),
        Some(Choice::CMessage(Box::new(full(true)))),
        Some(Choice::CEnum(-5)),
        Some(Choice::CDouble(0.0)),
    ];
    for choice in choices {
        for theirs in [full(true), theirs::All::default()] {
            let theirs = theirs::All { choice: choice.clone(), ..theirs };
            let built = there_and_back::<t3::All, _>(&theirs);
            assert_eq!(read(built.view()), theirs);
        }
    }
    let plain = theirs::Plain { choice: Some(theirs::plain::Choice::CInt64(7)), ..Default::default() };
    there_and_back::<t3::Plain, _>(&plain);
}

#[test]
fn structs_of_proto2() {
    use theirs2::all::{Choice, Part, Parts};
    let must = theirs2::Must { a: 0, b: String::new(), next: None };
    let must = theirs2::Must { a: -1, b: "b".into(), next: Some(Box::new(must)) };
    for choice in
        [None, Some(Choice::CEnum(-1)), Some(Choice::CString("s".into())), Some(Choice::CBytes(vec![]))]
    {
        let inner = theirs2::All { f_string: Some(String::new()), ..Default::default() };
        let theirs = theirs2::All {
            f_int32: Some(0),
            f_enum: Some(9),
            r_enum: vec![0, 9, -1],
            p_enum: vec![1, 2],
            m_enum: [(0, 2), (1, 0)].into(),
            part: Some(Box::new(Part { x: Some(1), deep: Some(inner.clone()) })),
            parts: vec![Parts { y: None }, Parts { y: Some("y".into()) }],
            f_message: Some(Box::new(inner.clone())),
            f_must: Some(must.clone()),
            m_must: [("k".to_owned(), must.clone())].into(),
            choice,
            r_int64: vec![i64::MIN],
            f_bytes: Some(vec![0]),
            r_string: vec![String::new(), "r".into()],
            ..inner
        };
        there_and_back::<t2::All, _>(&theirs);
    }
    there_and_back::<t2::All, _>(&theirs2::All::default());
}

#[test]
fn structs_of_well_known_types() {
    use prost_types::value::Kind;
    use prost_types::{Any, Duration, ListValue, Struct, Timestamp, Value};
    use their_names::known::Gen;
    let value = |kind| Value { kind: Some(kind) };
    let list = ListValue { values: vec![value(Kind::NullValue(0)), value(Kind::NumberValue(1.5))] };
    let fields = [("l".to_owned(), value(Kind::ListValue(list))), ("e".to_owned(), Value { kind: None })];
    let inner = their_names::Known { null: 1, ..Default::default() };
    for r#gen in [None, Some(Gen::Uint64(0)), Some(Gen::Nothing(())), Some(Gen::Known(Box::new(inner)))] {
        let theirs = their_names::Known {
            when: Some(Timestamp { seconds: -1, nanos: 5 }),
            spans: vec![Duration { seconds: 3, nanos: 0 }, Duration::default()],
            tree: Some(Struct { fields: fields.clone().into() }),
            any: Some(Any { type_url: "u".into(), value: vec![1] }),
            empty: Some(()),
            bool: Some(false),
            bytes: Some(vec![7]),
            double: Some(0.5),
            float: Some(0.0),
            int32: Some(-3),
            int64: None,
            strings: vec![String::new(), "s".into()],
            numbers: [("n".to_owned(), 0), ("m".to_owned(), 4)].into(),
            null: 0,
            r#gen,
        };
        there_and_back::<names::Known, _>(&theirs);
    }
    there_and_back::<names::Known, _>(&their_names::Known::default());
    let theirs = their_json::Everything {
        choice: Some(their_json::everything::Choice::ChosenNull(0)),
        by_text: [("k".to_owned(), their_json::Everything { maybe: Some(0), ..Default::default() })].into(),
        w_bytes: Some(vec![]),
        values: vec![value(Kind::BoolValue(true)), Value { kind: None }],
        mask: Some(prost_types::FieldMask { paths: vec!["a.b".into()] }),
        ..Default::default()
    };
    there_and_back::<json::Everything, _>(&theirs);
    let theirs =
        their_names::Self_ { self_: 1, r#type: "t".into(), r#match: Some(false), ..Default::default() };
    there_and_back::<names::Self_, _>(&theirs);
}

#[test]
fn strings_that_no_struct_can_hold_are_named() {
    let tried = |put: fn(&mut t2::AllMut<'_>)| {
        let mut builder = Builder::<t2::All>::new(arena()).unwrap();
        put(&mut builder.edit());
        let message = builder.freeze().unwrap();
        match message.view().to_prost() {
            Err(ProstError::Utf8 { path }) => path,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(tried(|to| to.set_f_string(Text::new(b"\xff")).unwrap()), "t2.All.f_string");
    assert_eq!(tried(|to| to.r_string_mut().unwrap().push(Text::new(b"\xff")).unwrap()), "t2.All.r_string");
    assert_eq!(tried(|to| to.set_c_string(Text::new(b"\xff")).unwrap()), "t2.All.c_string");
    let inner = |to: &mut t2::AllMut<'_>| {
        to.parts_mut().unwrap().push_new().unwrap().set_y(Text::new(b"\xff")).unwrap();
    };
    assert_eq!(tried(inner), "t2.All.Parts.y");
    let key = |to: &mut t2::AllMut<'_>| {
        to.m_must_mut().unwrap().insert_new(Text::new(b"\xff")).unwrap();
    };
    assert_eq!(tried(key), "t2.All.m_must");
    let error = ProstError::Utf8 { path: "t2.All.f_string".into() }.to_string();
    assert!(error.starts_with("t2.All.f_string: the string is not UTF-8"), "{error}");
}

#[test]
fn a_struct_takes_the_place_of_what_there_was_and_a_required_field_may_be_missing() {
    let mut builder = Builder::<t3::All>::new(arena()).unwrap();
    let mut to = builder.edit();
    to.copy_from_prost(&full(true)).unwrap();
    to.copy_from_prost(&theirs::All { far: 1, ..Default::default() }).unwrap();
    assert_eq!(to.view().to_prost().unwrap(), theirs::All { far: 1, ..Default::default() });
    let mut builder = Builder::<t2::Must>::new(arena()).unwrap();
    builder.edit().next_mut().unwrap().set_a(5).unwrap();
    let inner = Some(Box::new(theirs2::Must { a: 5, ..Default::default() }));
    let expected = theirs2::Must { next: inner, ..Default::default() };
    assert_eq!(builder.edit().view().to_prost().unwrap(), expected);
}

#[test]
fn a_struct_that_outgrows_its_arena_is_told_and_the_arena_serves_again() {
    let (whole, arenas) = (full(true), Arenas::new(4096, 1));
    for _ in 0..3 {
        let refused = Owned::<t3::All>::from_prost_in(arenas.take(), &whole);
        assert!(matches!(refused, Err(BuildError::Exhausted { limit: 4096, .. })), "{refused:?}");
        let small = theirs::All { far: 7, ..Default::default() };
        assert_eq!(Owned::<t3::All>::from_prost_in(arenas.take(), &small).unwrap().view().far(), 7);
    }
}

#[test]
fn structs_nest_as_deep_as_messages_may() {
    let nested = |levels: u32| {
        (0..levels).fold(theirs::All::default(), |inner, level| theirs::All {
            f_int32: level as i32,
            f_message: Some(Box::new(inner)),
            ..Default::default()
        })
    };
    // As deep as both decoders go.
    there_and_back::<t3::All, _>(&nested(99));
    // As deep as builders go, with the memory that it takes to get there.
    let deep = std::thread::Builder::new().stack_size(256 << 20).spawn(move || {
        let built = Owned::<t3::All>::from_prost_in(arena(), &nested(1000)).unwrap();
        assert_eq!(built.view().to_prost().unwrap(), nested(1000));
        Owned::<t3::All>::from_prost_in(arena(), &nested(1001)).map(|_| ())
    });
    let refused = deep.unwrap().join().unwrap();
    assert!(matches!(refused, Err(BuildError::Depth { limit: 1000, .. })), "{refused:?}");
}

#[test]
fn views_have_the_json_of_their_objects() {
    let message = owned::<t3::All>(&full(true).encode_to_vec());
    let view = message.view();
    let tables = processor::<ViewsTable>();
    let text = tollfree_json::write(tables, view.record()).unwrap();
    let inner = tollfree_json::write(tables, view.f_message().unwrap().record()).unwrap();
    assert!(
        text.contains(&inner) && inner.starts_with('{') && inner.contains(r#""fString":"nine""#),
        "{text}"
    );
    let wire = tollfree_json::read(tables, t3::All::TYPE_IDX, &text, tollfree_json::Unknown::Refuse).unwrap();
    let again = Owned::<t3::All>::decode(&wire, arena(), &Limits::default()).unwrap();
    assert_eq!(again.view(), view);
}

#[test]
fn lists_maps_and_objects_are_compared_by_what_they_hold() {
    let (one, other) =
        (owned::<t3::All>(&full(true).encode_to_vec()), Owned::from_prost_in(arena(), &full(true)).unwrap());
    assert!(one == other && one.view().r_string() == other.view().r_string());
    assert!(
        one.view().m_enum() == other.view().m_enum() && one.view().r_message() == other.view().r_message()
    );
    let mut changed = full(true);
    changed.m_enum.insert(54, 2);
    changed.r_string.pop();
    let changed = Owned::<t3::All>::from_prost_in(arena(), &changed).unwrap();
    assert!(one != changed && one.view().m_enum() != changed.view().m_enum());
    assert!(
        one.view().r_string() != changed.view().r_string() && one.view().m_bool() == changed.view().m_bool()
    );
    let shown = format!("{:?} {:?}", one.view().m_bool(), one.view().m_bool().iter());
    assert!(shown.contains("false"), "{shown}");
}
