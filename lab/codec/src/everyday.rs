//! Everyday messages in proto3, many different ones by turns: generated views and builders beside prost's structs.

use std::hint::black_box;

use tollfree_bench::BenchError;
use tollfree_bench::message::{ORDERS, delimited, ends};
use tollfree_processor::typed::{Builder, Message, Owned, processor};
use tollfree_processor::{Arenas, BuildError, EncodeBuffer, Limits};

use super::measure::{self, Runner};
use super::ours::count;
use super::peers::PROST;
use super::report::Group;
use super::{CodecPlan, at_each_seat};
use crate::shop as theirs;
use crate::views::shop::{
    AddressView, Hello, HelloMut, HelloView, ItemView, Kind, MoneyMut, MoneyView, Order, OrderMut, OrderView,
    Profile, ProfileMut, ProfileView, StampMut, StampView, order::Payment,
};

/// One kind of message.
#[derive(Clone, Copy)]
pub(super) struct Everyday {
    pub name: &'static str,
    group: fn(&str, &CodecPlan, usize) -> Result<Group, BenchError>,
}

impl Everyday {
    pub(super) fn group(&self, plan: &CodecPlan) -> Result<Group, BenchError> {
        at_each_seat(plan.lasting.rounds, |rounds| (self.group)(self.name, plan, rounds))
    }
}

pub(super) const PAYLOADS: [Everyday; 3] = [
    Everyday { name: "shop/hello", group: group::<theirs::Hello> },
    Everyday { name: "shop/profile", group: group::<theirs::Profile> },
    Everyday { name: "shop/order", group: group::<theirs::Order> },
];

const GROWS: &str = "an arena of this size takes the message";
const DEPTH: u32 = 100;

/// prost's type of a message, and what the rows do with it and with ours. All fields are read: numbers are summed, of
/// strings the first and last byte are looked at.
trait Sample: prost::Message + Default + Clone + PartialEq {
    type Ours: Message;
    /// Different messages, each behind its length.
    const MESSAGES: &'static [u8];

    fn read(&self) -> u64;
    fn read_view(view: <Self::Ours as Message>::View<'_>) -> u64;
    fn put(&self, to: <Self::Ours as Message>::Mut<'_>) -> Result<(), BuildError>;
}

fn sum(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::wrapping_add)
}

fn text(text: &str) -> u64 {
    ends(text.as_bytes())
}

fn read_stamp(view: Option<StampView<'_>>) -> u64 {
    view.map_or(0, |stamp| sum([stamp.seconds() as u64, stamp.nanos() as u64]))
}

fn read_money(view: Option<MoneyView<'_>>) -> u64 {
    view.map_or(0, |money| sum([text(money.currency()), money.units() as u64, money.nanos() as u64]))
}

fn read_their_stamp(stamp: &Option<theirs::Stamp>) -> u64 {
    stamp.as_ref().map_or(0, |stamp| sum([stamp.seconds as u64, stamp.nanos as u64]))
}

fn read_their_money(money: &Option<theirs::Money>) -> u64 {
    money.as_ref().map_or(0, |money| sum([text(&money.currency), money.units as u64, money.nanos as u64]))
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

impl Sample for theirs::Hello {
    type Ours = Hello;
    const MESSAGES: &'static [u8] = include_bytes!("../../../tests/view-stubs/samples/hello.bin");

    fn read(&self) -> u64 {
        let texts = [&self.name, &self.locale, &self.token].map(|field| text(field));
        sum([sum(texts), self.id, self.page as u64, self.verbose.into()])
    }

    fn read_view(view: HelloView<'_>) -> u64 {
        let texts = [view.name(), view.locale(), view.token()].map(text);
        sum([sum(texts), view.id(), view.page() as u64, view.verbose().into()])
    }

    fn put(&self, mut to: HelloMut<'_>) -> Result<(), BuildError> {
        to.set_name(&self.name)?;
        to.set_locale(&self.locale)?;
        to.set_id(self.id)?;
        to.set_page(self.page)?;
        to.set_verbose(self.verbose)?;
        to.set_token(&self.token)
    }
}

impl Sample for theirs::Profile {
    type Ours = Profile;
    const MESSAGES: &'static [u8] = include_bytes!("../../../tests/view-stubs/samples/profile.bin");

    fn read(&self) -> u64 {
        let address = |from: &theirs::Address| {
            let texts = [&from.street, &from.city, &from.country, &from.zip].map(|field| text(field));
            sum(texts).wrapping_add(from.kind as u64)
        };
        let texts = [&self.user, &self.email, &self.bio].map(|field| text(field));
        sum([
            sum(texts),
            sum([self.id, self.kind as u64, self.active.into(), self.score.to_bits()]),
            sum([read_their_stamp(&self.created), read_their_stamp(&self.updated)]),
            sum(self.addresses.iter().map(address)),
            sum(self.tags.iter().map(|tag| text(tag))),
        ])
    }

    fn read_view(view: ProfileView<'_>) -> u64 {
        let address = |from: AddressView<'_>| {
            let texts = [from.street(), from.city(), from.country(), from.zip()].map(text);
            sum(texts).wrapping_add(from.kind().0 as u64)
        };
        let texts = [view.user(), view.email(), view.bio()].map(text);
        sum([
            sum(texts),
            sum([view.id(), view.kind().0 as u64, view.active().into(), view.score().to_bits()]),
            sum([read_stamp(view.created()), read_stamp(view.updated())]),
            sum(view.addresses().iter().map(address)),
            sum(view.tags().iter().map(text)),
        ])
    }

    fn put(&self, mut to: ProfileMut<'_>) -> Result<(), BuildError> {
        to.set_id(self.id)?;
        to.set_user(&self.user)?;
        to.set_email(&self.email)?;
        to.set_bio(&self.bio)?;
        if let Some(from) = &self.created {
            put_stamp(to.created_mut()?, from)?;
        }
        if let Some(from) = &self.updated {
            put_stamp(to.updated_mut()?, from)?;
        }
        let mut addresses = to.addresses_mut()?;
        addresses.reserve(self.addresses.len())?;
        for from in &self.addresses {
            let mut to = addresses.push_new()?;
            to.set_street(&from.street)?;
            to.set_city(&from.city)?;
            to.set_country(&from.country)?;
            to.set_zip(&from.zip)?;
            to.set_kind(Kind(from.kind))?;
        }
        put_texts(to.tags_mut()?, &self.tags)?;
        to.set_kind(Kind(self.kind))?;
        to.set_active(self.active)?;
        to.set_score(self.score)
    }
}

type Texts<'d> = tollfree_processor::typed::ListMut<'d, tollfree_processor::typed::Str>;

fn put_texts(mut to: Texts<'_>, from: &[String]) -> Result<(), BuildError> {
    to.reserve(from.len())?;
    to.extend(from.iter().map(String::as_str))
}

impl Sample for theirs::Order {
    type Ours = Order;
    const MESSAGES: &'static [u8] = ORDERS;

    fn read(&self) -> u64 {
        let item = |from: &theirs::Item| {
            let options = sum(from.options.iter().map(|option| text(option)));
            let texts = [text(&from.sku), text(&from.title), options];
            sum([sum(texts), from.quantity.into(), read_their_money(&from.price)])
        };
        let payment = match &self.payment {
            Some(theirs::order::Payment::Card(paid) | theirs::order::Payment::Iban(paid)) => text(paid),
            None => 0,
        };
        sum([
            sum([text(&self.id), payment, read_their_stamp(&self.placed), read_their_money(&self.total)]),
            self.customer.as_ref().map_or(0, Sample::read),
            sum(self.items.iter().map(item)),
            sum(self.labels.iter().map(|(key, value)| text(key) + text(value))),
        ])
    }

    fn read_view(view: OrderView<'_>) -> u64 {
        let item = |from: ItemView<'_>| {
            let options = sum(from.options().iter().map(text));
            let texts = [text(from.sku()), text(from.title()), options];
            sum([sum(texts), from.quantity().into(), read_money(from.price())])
        };
        let payment = match view.payment() {
            Payment::Card(paid) | Payment::Iban(paid) => text(paid),
            Payment::NotSet => 0,
        };
        sum([
            sum([text(view.id()), payment, read_stamp(view.placed()), read_money(view.total())]),
            view.customer().map_or(0, theirs::Profile::read_view),
            sum(view.items().iter().map(item)),
            sum(view.labels().iter().map(|(key, value)| text(key) + text(value))),
        ])
    }

    fn put(&self, mut to: OrderMut<'_>) -> Result<(), BuildError> {
        to.set_id(&self.id)?;
        if let Some(from) = &self.customer {
            from.put(to.customer_mut()?)?;
        }
        let mut items = to.items_mut()?;
        items.reserve(self.items.len())?;
        for from in &self.items {
            let mut to = items.push_new()?;
            to.set_sku(&from.sku)?;
            to.set_title(&from.title)?;
            to.set_quantity(from.quantity)?;
            if let Some(from) = &from.price {
                put_money(to.price_mut()?, from)?;
            }
            put_texts(to.options_mut()?, &from.options)?;
        }
        let mut labels = to.labels_mut()?;
        labels.reserve(self.labels.len())?;
        for (key, value) in &self.labels {
            labels.insert(key, value)?;
        }
        if let Some(from) = &self.placed {
            put_stamp(to.placed_mut()?, from)?;
        }
        match &self.payment {
            Some(theirs::order::Payment::Card(card)) => to.set_card(card)?,
            Some(theirs::order::Payment::Iban(iban)) => to.set_iban(iban)?,
            None => {}
        }
        if let Some(from) = &self.total {
            put_money(to.total_mut()?, from)?;
        }
        Ok(())
    }
}

/// A row that takes the next of its values each time.
fn by_turns<'r, T>(
    operation: &'static str,
    side: &'static str,
    values: &'r [T],
    mut run: impl FnMut(&'r T) + 'r,
) -> Runner<'r> {
    let mut next = 0;
    Runner::new(operation, side, move || {
        run(black_box(&values[next]));
        next = if next + 1 == values.len() { 0 } else { next + 1 };
    })
}

/// The messages in all forms that the rows begin with.
struct Forms<S: Sample> {
    arenas: Arenas,
    messages: Vec<&'static [u8]>,
    structs: Vec<S>,
    owned: Vec<Owned<S::Ours>>,
    objects: Vec<Vec<u8>>,
}

impl<S: Sample> Forms<S> {
    fn new() -> Result<Self, prost::DecodeError> {
        let (messages, arenas) = (delimited(S::MESSAGES)?, Arenas::new(1 << 20, 4));
        let structs = messages.iter().map(|message| S::decode(*message)).collect::<Result<_, _>>()?;
        let mut forms = Forms { arenas, messages, structs, owned: Vec::new(), objects: Vec::new() };
        forms.owned = forms.messages.iter().map(|message| forms.decode(message)).collect();
        forms.objects = forms.owned.iter().map(|owned| owned.object().bytes().to_vec()).collect();
        for (owned, theirs) in forms.owned.iter().zip(&forms.structs) {
            assert_eq!(S::read_view(owned.view()), theirs.read(), "both read all fields");
            let mut buffer = EncodeBuffer::new();
            let built = forms.builder(theirs);
            let bytes = built.object().encode(&mut buffer).expect("it is short");
            let again = S::decode(bytes);
            assert!(again.is_ok_and(|again| again == *theirs), "what is built is the message");
        }
        Ok(forms)
    }

    fn decode(&self, message: &[u8]) -> Owned<S::Ours> {
        Owned::decode(message, self.arenas.take(), &Limits::default()).expect(GROWS)
    }

    fn builder(&self, from: &S) -> Owned<S::Ours> {
        let mut builder = Builder::<S::Ours>::new(self.arenas.take()).expect(GROWS);
        from.put(builder.edit()).expect(GROWS);
        builder.freeze().expect(GROWS)
    }

    fn ours(&self) -> Vec<Runner<'_>> {
        let (mut encoded, mut again) = (EncodeBuffer::new(), EncodeBuffer::new());
        let table = processor::<<S::Ours as Message>::Compiled>();
        let side = "tollfree";
        vec![
            by_turns("decode", side, &self.messages, |message| drop(black_box(self.decode(message)))),
            by_turns("encode", side, &self.owned, move |owned| {
                black_box(owned.object().encode(&mut encoded).expect("it is short"));
            }),
            by_turns("verify", side, &self.objects, move |object| {
                black_box(table.verify(S::Ours::TYPE_IDX, object, DEPTH).expect("the decoder made it"));
            }),
            by_turns("access", side, &self.owned, |owned| {
                black_box(S::read_view(owned.view()));
            }),
            by_turns("copy-verify-read", side, &self.objects, |object| {
                let owned = Owned::<S::Ours>::verify(object, self.arenas.take(), DEPTH).expect("it is sound");
                black_box(S::read_view(owned.view()));
            }),
            by_turns("builder", side, &self.structs, |from| drop(black_box(self.builder(from)))),
            by_turns("decode-read-encode", side, &self.messages, move |message| {
                let owned = self.decode(message);
                black_box(S::read_view(owned.view()));
                black_box(owned.object().encode(&mut again).expect("it is short"));
            }),
        ]
    }

    fn theirs(&self) -> Vec<Runner<'_>> {
        let (mut encoded, mut built, mut again) = (Vec::new(), Vec::new(), Vec::new());
        let decode = |message: &[u8]| S::decode(message).expect("it decoded before");
        vec![
            by_turns("decode", PROST, &self.messages, move |message| drop(black_box(decode(message)))),
            by_turns("encode", PROST, &self.structs, move |from| encode(from, &mut encoded)),
            by_turns("access", PROST, &self.structs, |from| {
                black_box(from.read());
            }),
            by_turns("copy-verify-read", PROST, &self.messages, move |message| {
                black_box(decode(message).read());
            }),
            by_turns("builder", PROST, &self.structs, move |from| {
                // A copy takes the same allocations as building the structs does.
                encode(&black_box(from.clone()), &mut built);
            }),
            by_turns("decode-read-encode", PROST, &self.messages, move |message| {
                let decoded = decode(message);
                black_box(decoded.read());
                encode(&decoded, &mut again);
            }),
        ]
    }
}

fn encode(from: &impl prost::Message, out: &mut Vec<u8>) {
    out.clear();
    from.encode(out).expect("a vector grows");
    black_box(out);
}

fn group<S: Sample>(name: &str, plan: &CodecPlan, rounds: usize) -> Result<Group, BenchError> {
    let forms = Forms::<S>::new().map_err(|error| BenchError::Refused(format!("{name}: {error}")))?;
    let kinds = forms.messages.len();
    let fields: usize = forms.owned.iter().map(|owned| count(owned.object().root())).sum();
    let mut rows = forms.ours();
    rows.extend(forms.theirs());
    Ok(Group {
        payload: name.to_owned(),
        bytes: forms.messages.iter().map(|message| message.len()).sum::<usize>() / kinds,
        fields: fields / kinds,
        object_len: forms.objects.iter().map(Vec::len).sum::<usize>() / kinds,
        baseline: PROST,
        rows: measure::interleaved(rows, rounds, plan.lasting.measure()),
    })
}
