//! A message with 5,000 fields: read by all its getters, built by all its setters, and what prost's reflection makes of it.

use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage as _,
    Value,
};
use tollfree_processor::typed::{Builder, Message, Owned};
use tollfree_processor::{Arena, Arenas, BuildError, EncodeBuffer, Limits};
use views::wide::Wide;

/// What `tollfree-build` generates. (It stands here because no other program has a use for it.)
#[allow(unreachable_pub)]
mod views {
    include!(concat!(env!("OUT_DIR"), "/wide/views.rs"));
}

/// The message built anew by all its getters and setters.
#[allow(clippy::all, unreachable_pub)]
mod rebuild {
    use super::views::wide::{WideMut, WideView};

    type Built = Result<(), tollfree_processor::BuildError>;
    type Part = fn(WideView<'_>, &mut WideMut<'_>) -> Built;

    include!(concat!(env!("OUT_DIR"), "/rebuild.rs"));
}

/// The message's descriptors.
const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/wide.binpb"));

fn descriptor() -> MessageDescriptor {
    DescriptorPool::decode(DESCRIPTORS).unwrap().get_message_by_name("wide.Wide").unwrap()
}

/// A value that says which field it is of.
fn value(field: &FieldDescriptor, inner: &DynamicMessage) -> Value {
    let number = field.number();
    let one = |kind: &Kind| match kind {
        Kind::Int64 => Value::I64(-i64::from(number)),
        Kind::String => Value::String(format!("field {number}")),
        Kind::Sint32 => Value::I32(-(number as i32)),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(number),
        Kind::Bytes => Value::Bytes(number.to_be_bytes().to_vec().into()),
        Kind::Double => Value::F64(f64::from(number)),
        Kind::Bool => Value::Bool(true),
        Kind::Enum(_) => Value::EnumNumber(number as i32),
        Kind::Message(_) => Value::Message(inner.clone()),
        other => panic!("{other:?} is in no field"),
    };
    if field.is_map() {
        let entry = (MapKey::String(format!("key {number}")), Value::I32(number as i32));
        Value::Map([entry].into_iter().collect())
    } else if field.is_list() {
        Value::List(vec![one(&field.kind()), one(&field.kind())])
    } else {
        one(&field.kind())
    }
}

fn full() -> DynamicMessage {
    let descriptor = descriptor();
    let mut inner = DynamicMessage::new(descriptor.clone());
    inner.set_field_by_name("f_5000", value(&descriptor.get_field_by_name("f_5000").unwrap(), &inner));
    let mut message = DynamicMessage::new(descriptor.clone());
    for field in descriptor.fields() {
        message.set_field(&field, value(&field, &inner));
    }
    message
}

fn rebuilt(from: &Owned<Wide>, arena: Arena<'static>) -> Result<Owned<Wide>, BuildError> {
    let mut builder = Builder::<Wide>::new(arena)?;
    for part in rebuild::PARTS {
        part(from.view(), &mut builder.edit())?;
    }
    builder.freeze()
}

#[test]
fn each_of_5000_fields_is_read_and_built() {
    let theirs = full();
    assert_eq!(theirs.fields().count(), 5000);
    let arenas = Arenas::new(64 << 20, 2);
    let decoded = Owned::<Wide>::decode(&theirs.encode_to_vec(), arenas.take(), &Limits::default()).unwrap();
    let built = rebuilt(&decoded, Arena::with_limit(64 << 20)).unwrap();
    assert!(built == decoded);
    let built = Owned::<Wide>::verify(built.object().bytes(), arenas.take(), 100).unwrap();
    let encoded = built.object().encode(&mut EncodeBuffer::new()).unwrap().to_vec();
    assert!(DynamicMessage::decode(theirs.descriptor(), &encoded[..]).unwrap() == theirs);
    let (view, empty) = (built.view(), Builder::<Wide>::new(arenas.take()).unwrap().freeze().unwrap());
    assert_eq!((view.f_1(), view.f_2(), view.f_4999(), view.f_5000()), (-1, "field 2", -4999, "field 5000"));
    assert!(empty.view() != view && rebuilt(&empty, Arena::with_limit(1 << 20)).unwrap() == empty);
}

#[test]
fn a_wide_message_needs_its_room_and_nests() {
    let refused = Builder::<Wide>::new(Arena::with_limit(4096)).map(|_| ());
    assert!(matches!(refused, Err(BuildError::Exhausted { limit: 4096, .. })), "{refused:?}");
    let mut builder = Builder::<Wide>::new(Arena::with_limit(64 << 20)).unwrap();
    fn dig(mut to: <Wide as Message>::Mut<'_>, levels: u32) {
        if levels > 0 {
            dig(to.f_5_mut().unwrap(), levels - 1);
        }
    }
    dig(builder.edit(), 100);
    let deep = builder.freeze().unwrap();
    let encoded = deep.object().encode(&mut EncodeBuffer::new()).unwrap().to_vec();
    let again = Owned::<Wide>::decode(&encoded, Arena::with_limit(64 << 20), &Limits::default()).unwrap();
    assert!(again == deep);
    let limits = Limits { depth: 99, ..Limits::default() };
    assert!(Owned::<Wide>::decode(&encoded, Arena::with_limit(64 << 20), &limits).is_err());
}
