//! Files with options of their own, a oneof and a type of one name, and names that views would have for themselves.

use prost::Message as _;
use tollfree_processor::typed::{InProst, Message, Owned};
use tollfree_processor::{Arena, Limits};
use tollfree_view_stubs::options::google::protobuf::{FieldOptions, FileDescriptorProto};
use tollfree_view_stubs::options::prost::stubs::options as theirs;
use tollfree_view_stubs::options::stubs::options::{
    Level, Order, OrderMut, OrderView, OrderView_, Rule, order, rule,
};

/// The message that a struct of prost's holds, read from its bytes and made of it: both are the same, and lead back to it.
fn both<M: Message + InProst>(from: &M::Struct) -> Owned<M>
where
    M::Struct: prost::Message + PartialEq + std::fmt::Debug,
{
    let decoded =
        Owned::<M>::decode(&from.encode_to_vec(), Arena::with_limit(1 << 20), &Limits::default()).unwrap();
    let built = Owned::<M>::from_prost(from).unwrap();
    assert!(decoded == built);
    assert_eq!(&M::to_struct(built.view().into()).unwrap(), from);
    built
}

#[test]
fn a_oneof_and_a_type_of_one_name() {
    let kind = theirs::rule::Kind {
        number: Some(3),
        place: Some(theirs::rule::kind::Where::There as i32),
        r#where: Some(theirs::rule::kind::WhereOneOf::Text("there".into())),
    };
    let found: Owned<Rule> = both(&theirs::Rule { kind: Some(theirs::rule::KindOneOf::Other(kind)) });
    let rule::KindOneOf::Other(kind) = found.view().kind() else { panic!("another member") };
    assert_eq!(kind.place(), rule::kind::Where::THERE);
    let rule::kind::WhereOneOf::Text(text) = kind.r#where() else { panic!("another member") };
    assert_eq!(text.to_str(), Ok("there"));
}

#[test]
fn names_of_the_proto_are_had_and_those_of_views_yield() {
    let from = theirs::Order {
        name: Some("it".into()),
        has_name: Some(true),
        name_opt: Some("other".into()),
        set_name: vec![1, 2],
        choice: Some(theirs::order::Choice::NotSet(4)),
        ..Default::default()
    };
    let order: Owned<Order> = both(&from);
    let view: OrderView_<'_> = order.view();
    assert!(view.has_name() && view.has_name_());
    assert_eq!(
        (view.name_opt().to_str(), view.name_opt_().map(|name| name.to_str())),
        (Ok("other"), Some(Ok("it")))
    );
    assert!(matches!(view.choice(), order::Choice::NotSet(4)));
    let empty = Owned::<Order>::build(|_| Ok::<_, tollfree_processor::BuildError>(())).unwrap();
    assert!(matches!(empty.view().choice(), order::Choice::NotSet_));
    assert_eq!(empty.view().level(), Level::TOP, "a default by the value's second name");
    assert_eq!(theirs::Order::default().level(), theirs::Level::High);
    let nested = theirs::OrderMut { view: Some(theirs::OrderView::default().into()), ..Default::default() };
    let nested: Owned<OrderMut> = both(&nested);
    let _: Option<tollfree_view_stubs::options::stubs::options::OrderViewView<'_>> = nested.view().view();
    let _: Option<Owned<OrderView>> = None;
}

/// Of what descriptor.proto has, prost-types has a part. The rest is not in the structs.
#[test]
fn descriptors_are_as_in_prost_types() {
    let file = prost_types::FileDescriptorProto {
        name: Some("a.proto".into()),
        options: Some(prost_types::FileOptions { java_package: Some("a".into()), ..Default::default() }),
        ..Default::default()
    };
    let order: Owned<Order> = both(&theirs::Order { file: Some(file.clone()), ..Default::default() });
    assert_eq!(order.view().file().and_then(|file| file.name().to_str().ok()), Some("a.proto"));
    let _: Owned<FileDescriptorProto> = both(&file);
    let options = prost_types::FieldOptions { packed: Some(true), ..Default::default() };
    let read: Owned<FieldOptions> = both(&options);
    assert!(read.view().packed());
}
