//! What is wrong with an input or an object, through generated views and builders: refused with the same words as by the
//! processor alone, whose tests have the rows, and the arena serves again. What is accepted is read as prost reads it.

use prost::Message as _;
use tollfree_processor::typed::{Builder, InProst, Message, MessageMut, MessageView, Owned};
use tollfree_processor::{
    Arena, Arenas, BuildError, DecodeError, EncodeBuffer, Limits, OwnError, Processor, VerifyError,
};
use tollfree_view_stubs::kinds::prost::t3 as theirs;
use tollfree_view_stubs::kinds::{t2, t3};

use super::fields::{full, put, read};
use super::fixture::{bytes, field, schemas, varint};

#[path = "../../../../../crates/processor/tests/suite/bad_input/rows.rs"]
mod rows;

/// An input decoded in two ways, and verified; what is accepted is read by all getters and built anew by all setters.
fn through<M>(input: &[u8], limits: &Limits) -> Result<Owned<M>, DecodeError>
where
    M: InProst<Struct: PartialEq + std::fmt::Debug>,
    for<'a> M::View<'a>: MessageView<'a, Message = M>,
{
    let mut staged = Arena::with_limit(1 << 27);
    staged.stage(input.len()).unwrap().copy_from_slice(input);
    let staged = Owned::<M>::decode_staged(staged, limits);
    let decoded = Owned::<M>::decode(input, Arena::with_limit(1 << 27), limits);
    let decoded = match (decoded, staged) {
        (Ok(decoded), Ok(staged)) => {
            assert!(decoded == staged, "{decoded:?}, staged {staged:?}");
            decoded
        }
        (decoded, staged) => {
            assert_eq!(decoded.as_ref().err(), staged.err().as_ref());
            return decoded;
        }
    };
    let verified = Owned::<M>::verify(decoded.object().bytes(), Arena::with_limit(1 << 27), 100).unwrap();
    again_by_struct(&verified);
    assert!(verified == decoded);
    Ok(verified)
}

/// Reads all that a struct holds, and builds it anew. Gives the struct, unless a string is not UTF-8.
pub(crate) fn again_by_struct<M>(message: &Owned<M>) -> Option<M::Struct>
where
    M: InProst<Struct: PartialEq + std::fmt::Debug>,
    for<'a> M::View<'a>: MessageView<'a, Message = M>,
{
    let read = message.view().to_prost().ok()?;
    let built = Owned::<M>::from_prost_in(Arena::with_limit(1 << 27), &read).unwrap();
    let again = built.view().to_prost().unwrap();
    // What has a NaN is not equal to itself.
    assert!(again == read || format!("{again:?}").contains("NaN"), "{again:?} is not {read:?}");
    Some(read)
}

fn encoded<M: Message>(message: &Owned<M>) -> Vec<u8> {
    message.object().encode(&mut EncodeBuffer::new()).unwrap().to_vec()
}

/// What is made of an input, by its type's name: the same as by the processor alone, in the same words.
fn again(p: &Processor, name: &str, input: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let limits = Limits::default();
    let ours = match name {
        "t3.All" => through::<t3::All>(input, &limits).map(|message| encoded(&message)),
        "t2.All" => through::<t2::All>(input, &limits).map(|message| encoded(&message)),
        "t2.Must" => through::<t2::Must>(input, &limits).map(|message| encoded(&message)),
        other => panic!("{other} has no row here"),
    };
    assert_eq!(ours, super::fixture::again(p, name, input));
    ours
}

/// The object of an input.
fn decoded(_: &Processor, name: &str, input: &[u8], limits: &Limits) -> Result<Vec<u8>, DecodeError> {
    match name {
        "t3.All" => through::<t3::All>(input, limits).map(|message| message.object().bytes().to_vec()),
        "t2.All" => through::<t2::All>(input, limits).map(|message| message.object().bytes().to_vec()),
        other => panic!("{other} has no row here"),
    }
}

/// The message of an object of a peer's.
fn verified(_: &Processor, name: &str, object: &[u8]) -> Result<Vec<u8>, VerifyError> {
    assert_eq!(name, "t3.All");
    match Owned::<t3::All>::verify(object, Arena::with_limit(1 << 20), 100) {
        Ok(message) => {
            again_by_struct(&message);
            Ok(encoded(&message))
        }
        Err(OwnError::Verify(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}

/// A message in the message, so many levels deep.
fn nest(levels: usize) -> Vec<u8> {
    (0..levels).fold(Vec::new(), |inner, _| bytes(11, &inner))
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

#[test]
fn an_object_that_lacks_a_required_field_is_sound_and_no_message() {
    let verified = |nested: bool, complete: bool| {
        let mut builder = Builder::<t2::Must>::new(Arena::with_limit(1 << 10)).unwrap();
        let mut root = builder.edit();
        root.set_a(1).unwrap();
        root.set_b("there".into()).unwrap();
        let mut last = if nested { root.next_mut().unwrap() } else { builder.edit() };
        last.set_a(2).unwrap();
        if complete {
            last.set_b("there".into()).unwrap();
        } else {
            last.clear_b();
        }
        let built = builder.freeze().unwrap();
        Owned::<t2::Must>::verify(built.object().bytes(), Arena::with_limit(1 << 10), 100)
            .map(|message| (message.view().a(), message.view().next().map(|next| next.a())))
    };
    let missing = |path: &str| Err(OwnError::Required { path: path.to_owned() });
    assert_eq!(verified(false, true), Ok((2, None)));
    assert_eq!(verified(false, false), missing("t2.Must.b"));
    assert_eq!(verified(true, true), Ok((1, Some(2))));
    assert_eq!(verified(true, false), missing("t2.Must.next.b"));
}

/// Arenas of every size up to that which is enough: whatever step of a builder is the one too many, it says so, what was
/// built until then is whole, and the arena serves the next builder as it served this one.
#[test]
fn a_builder_that_outgrows_its_arena_at_any_step_leaves_it_usable() {
    let whole = full(true);
    let small = theirs::All { far: 5, ..Default::default() };
    let (mut full_at, mut begun) = (None, 0);
    for limit in (0..64 << 10).step_by(64) {
        let arenas = Arenas::new(limit, 1);
        let attempt = |message: &theirs::All| -> Result<Vec<u8>, Option<Vec<u8>>> {
            let mut builder = Builder::<t3::All>::new(arenas.take()).map_err(|error| {
                assert!(matches!(error, BuildError::Exhausted { .. }), "{error}");
                None
            })?;
            let done = put(builder.edit(), message);
            let so_far = read(builder.edit().view());
            if let Err(error) = &done {
                assert!(matches!(error, BuildError::Exhausted { .. }), "{error}");
                assert_ne!(so_far, *message);
            }
            let object = match builder.freeze() {
                Ok(object) => object,
                Err(error) => {
                    assert!(matches!(error, BuildError::Exhausted { .. }), "{error}");
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
    assert!(full_at.is_some() && begun > 10, "{begun} builders ended on the way; enough was {full_at:?}");
}
