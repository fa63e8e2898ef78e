//! Everyday messages: what views read is what prost reads, what builders build is what prost builds.

use prost::Message as _;
use tollfree_processor::typed::{Builder, Message, MessageMut, MessageView, Owned};
use tollfree_processor::{Arena, Arenas, BuildError, EncodeBuffer, Limits};
use tollfree_view_stubs::everyday::prost::shop as theirs;
use tollfree_view_stubs::everyday::shop::order::Payment;
use tollfree_view_stubs::everyday::shop::*;

const HELLOS: &[u8] = include_bytes!("../../samples/hello.bin");
const PROFILES: &[u8] = include_bytes!("../../samples/profile.bin");
const ORDERS: &[u8] = include_bytes!("../../samples/order.bin");

/// The messages of a sample, each behind its length.
fn samples(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let len = prost::decode_length_delimiter(&mut bytes).unwrap();
        let (one, rest) = bytes.split_at(len);
        found.push(one);
        bytes = rest;
    }
    assert!(found.len() >= 48);
    found
}

fn owned<M: Message>(input: &[u8]) -> Owned<M> {
    let decoded = Owned::<M>::decode(input, Arena::with_limit(1 << 20), &Limits::default()).unwrap();
    let verified = Owned::<M>::verify(decoded.object().bytes(), Arena::with_limit(1 << 20), 100).unwrap();
    assert_eq!(verified.object().bytes(), decoded.object().bytes());
    verified
}

/// What prost reads of the builder's own bytes.
fn built<M: Message, P: prost::Message + Default>(builder: Builder<M>) -> P
where
    for<'a> M::View<'a>: MessageView<'a, Message = M>,
{
    let object = builder.freeze().unwrap();
    let again: Owned<M> = Owned::verify(object.object().bytes(), Arena::with_limit(1 << 20), 100).unwrap();
    let mut buffer = EncodeBuffer::new();
    P::decode(again.view().encode(&mut buffer).unwrap()).unwrap()
}

fn builder<M: Message>() -> Builder<M> {
    Builder::new(Arena::with_limit(1 << 20)).unwrap()
}

fn stamp(view: StampView<'_>) -> theirs::Stamp {
    theirs::Stamp { seconds: view.seconds(), nanos: view.nanos() }
}

fn money(view: MoneyView<'_>) -> theirs::Money {
    theirs::Money { currency: view.currency().into(), units: view.units(), nanos: view.nanos() }
}

fn profile(view: ProfileView<'_>) -> theirs::Profile {
    let address = |view: AddressView<'_>| theirs::Address {
        street: view.street().into(),
        city: view.city().into(),
        country: view.country().into(),
        zip: view.zip().into(),
        kind: view.kind().into(),
    };
    theirs::Profile {
        id: view.id(),
        user: view.user().into(),
        email: view.email().into(),
        bio: view.bio().into(),
        created: view.created().map(stamp),
        updated: view.updated().map(stamp),
        addresses: view.addresses().iter().map(address).collect(),
        tags: view.tags().iter().map(str::to_owned).collect(),
        kind: view.kind().0,
        active: view.active(),
        score: view.score(),
    }
}

fn order(view: OrderView<'_>) -> theirs::Order {
    let item = |view: ItemView<'_>| theirs::Item {
        sku: view.sku().into(),
        title: view.title().into(),
        quantity: view.quantity(),
        price: view.price().map(money),
        options: view.options().iter().map(str::to_owned).collect(),
    };
    theirs::Order {
        id: view.id().into(),
        customer: view.customer().map(profile),
        items: view.items().iter().map(item).collect(),
        labels: view.labels().iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        placed: view.placed().map(stamp),
        payment: match view.payment() {
            Payment::NotSet => None,
            Payment::Card(card) => Some(theirs::order::Payment::Card(card.into())),
            Payment::Iban(iban) => Some(theirs::order::Payment::Iban(iban.into())),
        },
        total: view.total().map(money),
    }
}

fn put_stamp(mut to: StampMut<'_>, from: &theirs::Stamp) -> Result<(), BuildError> {
    to.set_seconds(from.seconds)?;
    to.set_nanos(from.nanos)
}

fn put_money(mut to: MoneyMut<'_>, from: &theirs::Money) -> Result<(), BuildError> {
    to.set_currency(&from.currency)?;
    to.set_units(from.units)?;
    to.set_nanos(from.nanos)
}

fn put_profile(mut to: ProfileMut<'_>, from: &theirs::Profile) -> Result<(), BuildError> {
    to.set_score(from.score)?;
    let mut addresses = to.addresses_mut()?;
    addresses.reserve(from.addresses.len())?;
    for from in &from.addresses {
        let mut to = addresses.push_new()?;
        to.set_street(&from.street)?;
        to.set_city(&from.city)?;
        to.set_country(&from.country)?;
        to.set_zip(&from.zip)?;
        to.set_kind(Kind(from.kind))?;
    }
    to.tags_mut()?.extend(from.tags.iter().map(String::as_str))?;
    to.set_id(from.id)?;
    to.set_user(&from.user)?;
    to.set_email(&from.email)?;
    to.set_bio(&from.bio)?;
    if let Some(from) = &from.created {
        put_stamp(to.created_mut()?, from)?;
    }
    if let Some(from) = &from.updated {
        put_stamp(to.updated_mut()?, from)?;
    }
    to.set_kind(from.kind.into())?;
    to.set_active(from.active)
}

fn put_order(mut to: OrderMut<'_>, from: &theirs::Order) -> Result<(), BuildError> {
    to.set_id(&from.id)?;
    if let Some(from) = &from.customer {
        put_profile(to.customer_mut()?, from)?;
    }
    let mut items = to.items_mut()?;
    for from in &from.items {
        let mut to = items.push_new()?;
        to.set_sku(&from.sku)?;
        to.set_title(&from.title)?;
        to.set_quantity(from.quantity)?;
        if let Some(from) = &from.price {
            put_money(to.price_mut()?, from)?;
        }
        to.options_mut()?.extend(from.options.iter().map(String::as_str))?;
    }
    let mut labels = to.labels_mut()?;
    for (key, value) in &from.labels {
        labels.insert(key, "replaced below")?;
        labels.insert(key, value)?;
    }
    if let Some(from) = &from.placed {
        put_stamp(to.placed_mut()?, from)?;
    }
    match &from.payment {
        Some(theirs::order::Payment::Card(card)) => {
            to.set_iban("is cleared by the other member")?;
            to.set_card(card)?;
        }
        Some(theirs::order::Payment::Iban(iban)) => to.set_iban(iban)?,
        None => {}
    }
    if let Some(from) = &from.total {
        put_money(to.total_mut()?, from)?;
    }
    Ok(())
}

#[test]
fn hellos_are_read_as_by_prost() {
    for input in samples(HELLOS) {
        let (ours, theirs) = (owned::<Hello>(input), theirs::Hello::decode(input).unwrap());
        let view = ours.view();
        assert_eq!((view.name(), view.locale(), view.id()), (&*theirs.name, &*theirs.locale, theirs.id));
        assert_eq!(
            (view.page(), view.verbose(), view.token()),
            (theirs.page, theirs.verbose, &*theirs.token)
        );
    }
}

#[test]
fn profiles_are_read_and_built_as_by_prost() {
    for input in samples(PROFILES) {
        let (ours, theirs) = (owned::<Profile>(input), theirs::Profile::decode(input).unwrap());
        assert_eq!(profile(ours.view()), theirs);
        let mut new = builder::<Profile>();
        put_profile(new.edit(), &theirs).unwrap();
        assert_eq!(new.edit().view(), ours.view());
        assert_eq!(built::<_, theirs::Profile>(new), theirs);
    }
}

#[test]
fn orders_are_read_and_built_as_by_prost() {
    let mut cases = [0; 3];
    for input in samples(ORDERS) {
        let (ours, theirs) = (owned::<Order>(input), theirs::Order::decode(input).unwrap());
        let view = ours.view();
        assert_eq!(order(view), theirs);
        assert_eq!(view.to_prost().as_ref(), Ok(&theirs));
        assert_eq!(Owned::<Order>::from_prost_in(Arena::with_limit(1 << 20), &theirs).unwrap().view(), view);
        for (key, value) in &theirs.labels {
            assert_eq!(view.labels().get(key), Some(&**value));
        }
        assert_eq!(view.labels().get("no such label"), None);
        cases[match view.payment() {
            Payment::NotSet => 0,
            Payment::Card(card) => 1 + usize::from(view.card() != card),
            Payment::Iban(_) => 2,
        }] += 1;
        let mut new = builder::<Order>();
        put_order(new.edit(), &theirs).unwrap();
        let copied = new.freeze().unwrap();
        assert_eq!(copied.view(), view, "but for the order of labels");
        let mut new = builder::<Order>();
        put_order(new.edit(), &theirs).unwrap();
        assert_eq!(built::<_, theirs::Order>(new), theirs);
    }
    assert!(cases.iter().filter(|count| **count > 0).count() >= 2, "both ways to pay were met: {cases:?}");
}

#[test]
fn a_reply_takes_parts_of_its_request_and_of_others() {
    let request = owned::<Order>(samples(ORDERS)[0]);
    let (order_view, mut reply) = (request.view(), builder::<Order>());
    let mut to = reply.edit();
    to.set_customer(order_view.customer().unwrap()).unwrap();
    to.set_id(order_view.id()).unwrap();
    to.items_mut().unwrap().extend(order_view.items()).unwrap();
    to.items_mut().unwrap().get_mut(0).unwrap().unwrap().set_quantity(7).unwrap();
    assert!(to.items_mut().unwrap().get_mut(999).unwrap().is_none());
    let reply = reply.freeze().unwrap();
    let view = reply.view();
    assert_eq!(view.customer(), request.view().customer());
    assert_eq!(view.items().len(), request.view().items().len());
    assert_eq!(view.items().get(0).unwrap().quantity(), 7);
    assert!(view.items().get(view.items().len()).is_none());
    assert_ne!(view, request.view());
    assert!(format!("{view:?}").contains("customer"), "{view:?}");
    let mut copy = builder::<Order>();
    copy.edit().copy_from(view).unwrap();
    let mut to = copy.edit();
    assert_eq!(to.view(), view);
    to.clear_customer();
    to.clear_items();
    to.clear_labels();
    to.clear_id();
    assert!(!to.view().has_customer() && to.view().items().is_empty() && to.view().id().is_empty());
    assert_eq!(to.view().items().iter().len(), 0);
}

#[test]
fn a_builder_that_outgrows_its_arena_says_so_and_the_arena_serves_again() {
    let arenas = Arenas::new(4096, 1);
    for _ in 0..3 {
        let mut builder = Builder::<Profile>::new(arenas.take()).unwrap();
        let mut to = builder.edit();
        to.set_user("somebody").unwrap();
        let mut added = 0;
        let error = loop {
            match to.tags_mut().unwrap().push("a tag that takes some room") {
                Ok(()) => added += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, BuildError::Exhausted { limit: 4096, .. }), "{error}");
        assert!(
            to.set_bio(&"x".repeat(5000)).is_err() && to.created_mut().is_err() == to.updated_mut().is_err()
        );
        assert!(to.addresses_mut().unwrap().reserve(usize::MAX).is_err());
        let view = to.view();
        assert!(
            added > 10 && view.tags().len() == added && view.user() == "somebody" && view.bio().is_empty()
        );
        let object = builder.freeze().unwrap();
        assert_eq!(object.view().tags().len(), added);
    }
    let large = [(7 << 3) | 2, 0].repeat(4000);
    assert!(Owned::<Profile>::decode(&large, arenas.take(), &Limits::default()).is_err());
    assert!(Owned::<Profile>::decode(samples(PROFILES)[0], arenas.take(), &Limits::default()).is_ok());
}

#[test]
fn strings_are_utf8_or_refused() {
    let input = [1 << 3 | 2, 2, 0xff, 0xfe];
    let refused = Owned::<Order>::decode(&input, Arena::with_limit(4096), &Limits::default());
    assert!(refused.unwrap_err().to_string().contains("UTF-8"));
    let sound = owned::<Order>(&[1 << 3 | 2, 2, b'o', b'k']);
    let mut forged = sound.object().bytes().to_vec();
    let at = forged.windows(2).rposition(|bytes| bytes == b"ok").unwrap();
    forged[at] = 0xff;
    assert!(Owned::<Order>::verify(&forged, Arena::with_limit(4096), 9).is_err());
}

/// Every byte of an object changed, one after the other: what is accepted is read to the end.
#[test]
fn forged_objects_are_refused_or_read() {
    let sound = owned::<Order>(samples(ORDERS)[1]);
    let arenas = Arenas::new(1 << 16, 1);
    let (mut accepted, mut refused) = (0, 0);
    for at in 0..sound.object().bytes().len() {
        for change in [1, 0x80, 0xff] {
            let mut forged = sound.object().bytes().to_vec();
            forged[at] ^= change;
            match Owned::<Order>::verify(&forged, arenas.take(), 100) {
                Ok(found) => {
                    accepted += 1;
                    let read = order(found.view());
                    assert!(found.view().labels().iter().len() >= read.labels.len());
                    assert_eq!(found.view(), found.view());
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(accepted > 100 && refused > 100, "{accepted} accepted, {refused} refused");
}

#[test]
fn an_object_of_another_type_is_refused() {
    let hello = owned::<Hello>(samples(HELLOS)[0]);
    let refused = Owned::<Order>::verify(hello.object().bytes(), Arena::with_limit(1 << 16), 100);
    assert!(refused.unwrap_err().to_string().contains("shop.Order"));
    for cut in 0..hello.object().bytes().len() {
        let bytes = &hello.object().bytes()[..cut];
        assert!(Owned::<Hello>::verify(bytes, Arena::with_limit(1 << 16), 100).is_err(), "{cut}");
    }
}

/// Why a closure did not build its message, in a handler's own words.
#[derive(Debug, PartialEq)]
enum Refused {
    Builder(BuildError),
    Empty,
}

impl From<BuildError> for Refused {
    fn from(error: BuildError) -> Refused {
        Refused::Builder(error)
    }
}

#[test]
fn a_message_is_built_in_one_expression() {
    let order = Owned::<Order>::build(|order| {
        order.set_id("o1")?;
        order.total_mut()?.fill(|total| {
            total.set_currency("EUR")?;
            total.set_units(42)
        })?;
        order.items_mut()?.push_new()?.fill(|item| item.price_mut()?.fill(|price| price.set_nanos(7)))
    });
    let order = order.unwrap();
    let theirs = theirs::Order {
        id: "o1".into(),
        total: Some(theirs::Money { currency: "EUR".into(), units: 42, nanos: 0 }),
        items: vec![theirs::Item {
            price: Some(theirs::Money { nanos: 7, ..Default::default() }),
            ..Default::default()
        }],
        ..Default::default()
    };
    assert_eq!(order.view(), Owned::<Order>::from_prost(&theirs).unwrap().view());
    // An error of the closure's own, and one of the arena's.
    let built = Owned::<Order>::build(|_| Err(Refused::Empty));
    assert_eq!(built.unwrap_err(), Refused::Empty);
    let long = "x".repeat(5000);
    let built =
        Owned::<Order>::build_in(Arena::with_limit(4096), |order| Ok::<_, Refused>(order.set_id(&long)?));
    assert!(matches!(built, Err(Refused::Builder(BuildError::Exhausted { limit: 4096, .. }))), "{built:?}");
}
