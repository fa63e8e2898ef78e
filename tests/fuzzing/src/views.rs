//! Messages and objects from outside through generated views, and builders that are built by any steps.

use std::fmt::Debug;

use tollfree_processor::typed::{Builder, InProst, MessageMut, MessageView, Owned};
use tollfree_processor::{Arena, BuildError, DecodeError, EncodeBuffer, Limits, OwnError};
use tollfree_view_stubs::kinds::prost::t3::All;
use tollfree_view_stubs::kinds::prost::t3::all::Choice;
use tollfree_view_stubs::kinds::t2;
use tollfree_view_stubs::kinds::t3::{self, AllMut};

use crate::work::within;

const ARENA_LIMIT: usize = 1 << 24;

/// The message of an input by its type's generated views: `ours` is what the processor alone makes of it.
pub(crate) fn message(type_name: &str, input: &[u8], limits: &Limits, ours: &Result<Vec<u8>, DecodeError>) {
    // A closed enum of prost's holds any number, so prost sees other messages in proto2.
    match type_name {
        "t3.Plain" => decoded::<t3::Plain>(input, limits, ours, true),
        "t3.All" => decoded::<t3::All>(input, limits, ours, true),
        "t2.All" => decoded::<t2::All>(input, limits, ours, false),
        "t2.Must" => decoded::<t2::Must>(input, limits, ours, true),
        other => panic!("{other} has no views"),
    }
}

/// Decodes, reads by all getters and builds anew by all setters. Where prost reads the input, it reads the same.
fn decoded<M>(input: &[u8], limits: &Limits, ours: &Result<Vec<u8>, DecodeError>, is_asked: bool)
where
    M: InProst<Struct: prost::Message + Default + PartialEq + Debug>,
    for<'a> M::View<'a>: MessageView<'a, Message = M>,
{
    let decoded = match (Owned::<M>::decode(input, Arena::with_limit(ARENA_LIMIT), limits), ours) {
        (Ok(decoded), Ok(encoded)) => {
            let again = decoded.object().encode(&mut EncodeBuffer::new()).map(<[u8]>::to_vec);
            assert_eq!(again.as_ref(), Ok(encoded), "views encode to something else");
            decoded
        }
        // Of two ways to decode, one may have needed more memory.
        (_, Err(DecodeError::ArenaExhausted { .. })) => return,
        (Err(error), Err(other)) => return assert_eq!(error, *other),
        (found, ours) => panic!("by views: {:?}, and: {ours:?}", found.map(|_| ())),
    };
    let Some(read) = built_anew(&decoded) else { return };
    if is_asked && let Ok(theirs) = <M::Struct as prost::Message>::decode(input) {
        assert!(same(&read, &theirs), "prost reads something else: {theirs:?}, and not {read:?}");
    }
}

/// Reads the message by all getters, and builds it anew by all setters, of which prost reads the same. `None`: a string is not
/// UTF-8.
fn built_anew<M>(message: &Owned<M>) -> Option<M::Struct>
where
    M: InProst<Struct: prost::Message + Default + PartialEq + Debug>,
    for<'a> M::View<'a>: MessageView<'a, Message = M>,
{
    let read = message.view().to_prost().ok()?;
    let built = Owned::<M>::from_prost_in(Arena::with_limit(2 * ARENA_LIMIT), &read).expect("there is room");
    let verified = Owned::<M>::verify(built.object().bytes(), Arena::with_limit(2 * ARENA_LIMIT), 1000);
    let mut buffer = EncodeBuffer::new();
    let encoded = verified.expect("a builder is sound").object().encode(&mut buffer).map(<[u8]>::to_vec);
    let encoded = encoded.expect("the input was short");
    // What lacks a required field is read by prost with its default, and so is what is nested deeper than prost goes.
    if let Ok(theirs) = <M::Struct as prost::Message>::decode(&encoded[..]) {
        assert!(same(&read, &theirs), "prost reads {theirs:?} of what was built of {read:?}");
    }
    Some(read)
}

/// What has a NaN is not equal to itself.
fn same<T: PartialEq + Debug>(one: &T, other: &T) -> bool {
    one == other || format!("{one:?}").contains("NaN")
}

/// An object from outside, by its type's generated views; `is_sound` is what the processor alone says of it.
pub(crate) fn object(type_name: &str, bytes: &[u8], is_sound: bool) {
    match type_name {
        "t3.Plain" => verified::<t3::Plain>(bytes, is_sound),
        "t3.All" => verified::<t3::All>(bytes, is_sound),
        "t2.All" => verified::<t2::All>(bytes, is_sound),
        "t2.Must" => verified::<t2::Must>(bytes, is_sound),
        other => panic!("{other} has no views"),
    }
}

fn verified<M>(bytes: &[u8], is_sound: bool)
where
    M: InProst<Struct: prost::Message + Default + PartialEq + Debug>,
    for<'a> M::View<'a>: MessageView<'a, Message = M>,
{
    match Owned::<M>::verify(bytes, Arena::with_limit(bytes.len()), 100) {
        Ok(found) => {
            assert!(is_sound, "views took an object that is not sound");
            built_anew(&found);
        }
        // Such an object is sound, and no message.
        Err(OwnError::Required { path }) => {
            assert!(is_sound, "{path} is missing in an object that is not sound")
        }
        Err(error) => assert!(!is_sound, "{error}"),
    }
}

/// Builds a builder by steps that the input says, in an arena whose limit it says, too, and one of prost's structs by the same
/// steps. A step that fails leaves the builder as it was; in the end both are the same message.
pub fn builder(data: &[u8]) {
    let mut steps = Steps { left: data };
    let limit = usize::from(steps.byte().unwrap_or(0)) * 256;
    let Ok(mut builder) = Builder::<t3::All>::new(Arena::with_limit(limit)) else { return };
    let mut model = All::default();
    let kept_model = All { f_string: "kept".into(), r_string: vec!["é".into()], ..All::default() };
    let kept =
        Owned::<t3::All>::from_prost_in(Arena::with_limit(1 << 16), &kept_model).expect("there is room");
    // Each byte of the input may have a few hundred copied.
    within("building", limit + 256 * data.len(), || {
        build(&mut builder.edit(), &mut model, &mut steps, &(kept, kept_model), 0);
    });
    assert_eq!(builder.edit().view().to_prost().as_ref(), Ok(&model), "while it is built");
    let built = match within("completing", 2 * limit, || builder.freeze()) {
        Ok(built) => built,
        Err(BuildError::Exhausted { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    let built = Owned::<t3::All>::verify(built.object().bytes(), Arena::with_limit(1 << 20), 1000);
    let built = built.expect("a builder is sound");
    assert_eq!(built.view().to_prost().as_ref(), Ok(&model));
    let mut buffer = EncodeBuffer::new();
    let encoded = built.object().encode(&mut buffer).expect("it is short");
    assert_eq!(<All as prost::Message>::decode(encoded).as_ref(), Ok(&model), "prost reads something else");
}

/// What is to be done, byte by byte; nothing more at the end of the input.
struct Steps<'a> {
    left: &'a [u8],
}

impl Steps<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.left.split_first()?;
        self.left = rest;
        Some(*first)
    }

    fn number(&mut self) -> i64 {
        let byte = i64::from(self.byte().unwrap_or(0) as i8);
        // Every third one is long.
        if byte % 3 == 0 { byte << 40 } else { byte }
    }

    /// A string of a few bytes or a few hundred.
    fn text(&mut self) -> String {
        let byte = usize::from(self.byte().unwrap_or(0));
        ["", "a", "text", "é€😀"][byte % 4].repeat(1 + if byte > 240 { byte } else { byte % 3 })
    }
}

/// Whether the step was made; it may fail for want of memory alone.
fn made(done: Result<(), BuildError>) -> bool {
    match done {
        Ok(()) => true,
        Err(BuildError::Exhausted { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

/// The part of a builder that a step gives, if there was memory for it.
fn given<T>(part: Result<T, BuildError>) -> Option<T> {
    match part {
        Ok(part) => Some(part),
        Err(BuildError::Exhausted { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

type Kept = (Owned<t3::All>, All);

/// Messages in messages that steps may go down to.
const DEEPEST: u32 = 40;

fn build(to: &mut AllMut<'_>, model: &mut All, steps: &mut Steps<'_>, kept: &Kept, depth: u32) {
    while let Some(step) = steps.byte() {
        match step % 32 {
            0..12 => scalars(step % 32, to, model, steps),
            12..22 => lists(step % 32, to, model, steps),
            22..30 if depth < DEEPEST => messages(step % 32, to, model, steps, kept, depth),
            30 => {
                if made(MessageMut::copy_from(to, kept.0.view())) {
                    *model = kept.1.clone();
                }
            }
            _ => return,
        }
    }
}

fn scalars(step: u8, to: &mut AllMut<'_>, model: &mut All, steps: &mut Steps<'_>) {
    let number = steps.number();
    match step {
        0 if made(to.set_f_int64(number)) => model.f_int64 = number,
        1 if made(to.set_f_double(number as f64)) => model.f_double = number as f64,
        2 if made(to.set_f_enum(t3::Color(number as i32))) => model.f_enum = number as i32,
        3 if made(to.set_o_int32(number as i32)) => model.o_int32 = Some(number as i32),
        4 => {
            to.clear_o_int32();
            model.o_int32 = None;
        }
        5 => {
            let text = steps.text();
            if made(to.set_f_string(&text)) {
                model.f_string = text;
            }
        }
        6 => {
            let bytes = steps.text().into_bytes();
            if made(to.set_f_bytes(&bytes)) {
                model.f_bytes = bytes;
            }
        }
        7 => {
            let text = steps.text();
            if made(to.set_o_string(&text)) {
                model.o_string = Some(text);
            }
        }
        8 => {
            to.clear_f_string();
            model.f_string.clear();
        }
        9 if made(to.set_c_int32(number as i32)) => model.choice = Some(Choice::CInt32(number as i32)),
        10 => {
            let text = steps.text();
            if made(to.set_c_string(&text)) {
                model.choice = Some(Choice::CString(text));
            }
        }
        11 => {
            to.clear_c_int32();
            model.choice = model.choice.take().filter(|choice| !matches!(choice, Choice::CInt32(_)));
        }
        _ => {}
    }
}

fn lists(step: u8, to: &mut AllMut<'_>, model: &mut All, steps: &mut Steps<'_>) {
    match step {
        12 => {
            let (mut list, text) = (to.r_string_mut().expect("it nests no deeper"), steps.text());
            if made(list.push(&text)) {
                model.r_string.push(text);
            }
            assert_eq!(list.len(), model.r_string.len());
        }
        13 => {
            to.r_string_mut().expect("it nests no deeper").pop();
            model.r_string.pop();
        }
        14 => {
            to.clear_r_string();
            model.r_string.clear();
        }
        15 => {
            let (mut list, number) = (to.r_int64_mut().expect("it nests no deeper"), steps.number());
            for number in (0..5).map(|step| number.wrapping_mul(step)) {
                if made(list.push(number)) {
                    model.r_int64.push(number);
                }
            }
        }
        16 => {
            let more = usize::from(steps.byte().unwrap_or(0)) * 8;
            made(to.r_int64_mut().expect("it nests no deeper").reserve(more));
        }
        17 => {
            let (mut list, is_set) = (to.r_bool_mut().expect("it nests no deeper"), steps.number() > 0);
            if made(list.push(is_set)) {
                model.r_bool.push(is_set);
            }
        }
        18 => {
            let mut map = to.m_string_mut().expect("it nests no deeper");
            let (key, value) = (steps.text(), steps.number() as i32);
            if made(map.insert(&key, value)) {
                model.m_string.insert(key, value);
            }
        }
        19 => {
            to.clear_m_string();
            model.m_string.clear();
        }
        20 => {
            let mut map = to.m_enum_mut().expect("it nests no deeper");
            let (key, value) = (steps.number() as i32, steps.number() as i32);
            if made(map.insert(key, t3::Color(value))) {
                model.m_enum.insert(key, value);
            }
        }
        _ => {
            to.r_message_mut().expect("it nests no deeper").pop();
            model.r_message.pop();
        }
    }
}

fn messages(step: u8, to: &mut AllMut<'_>, model: &mut All, steps: &mut Steps<'_>, kept: &Kept, depth: u32) {
    let depth = depth + 1;
    match step {
        22 => {
            if let Some(mut inner) = given(to.f_message_mut()) {
                build(&mut inner, model.f_message.get_or_insert_default(), steps, kept, depth);
            }
        }
        23 => {
            if made(to.set_f_message(kept.0.view())) {
                model.f_message = Some(Box::new(kept.1.clone()));
            }
        }
        24 => {
            to.clear_f_message();
            model.f_message = None;
        }
        25 => {
            if let Some(mut inner) = given(to.r_message_mut().expect("it nests no deeper").push_new()) {
                model.r_message.push(All::default());
                let last = model.r_message.last_mut().expect("just pushed");
                build(&mut inner, last, steps, kept, depth);
            }
        }
        26 => {
            let idx = usize::from(steps.byte().unwrap_or(0) % 4);
            let mut list = to.r_message_mut().expect("it nests no deeper");
            let found = list.get_mut(idx).expect("it nests no deeper");
            assert_eq!(found.is_some(), idx < model.r_message.len());
            if let (Some(mut inner), Some(model)) = (found, model.r_message.get_mut(idx)) {
                build(&mut inner, model, steps, kept, depth);
            }
        }
        27 => {
            let (mut map, key) = (to.m_message_mut().expect("it nests no deeper"), steps.number() % 5);
            if let Some(mut inner) = given(map.insert_new(key)) {
                let mut built = All::default();
                build(&mut inner, &mut built, steps, kept, depth);
                model.m_message.insert(key, built);
            }
        }
        28 => {
            let key = steps.number() % 5;
            if made(to.m_message_mut().expect("it nests no deeper").insert(key, kept.0.view())) {
                model.m_message.insert(key, kept.1.clone());
            }
        }
        _ => {
            let Some(mut inner) = given(to.c_message_mut()) else { return };
            if !matches!(model.choice, Some(Choice::CMessage(_))) {
                model.choice = Some(Choice::CMessage(Box::default()));
            }
            let Some(Choice::CMessage(chosen)) = &mut model.choice else { return };
            build(&mut inner, chosen, steps, kept, depth);
        }
    }
}
