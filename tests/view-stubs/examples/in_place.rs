//! Reads an order where it was decoded, and builds another one from it: the code of the guide.

use tollfree_processor::typed::{MessageMut, MessageView, Owned};
use tollfree_processor::{Arenas, BuildError, EncodeBuffer, Limits, Slot};
use tollfree_view_stubs::everyday::prost::shop as prost;
use tollfree_view_stubs::everyday::shop::order::Payment;
use tollfree_view_stubs::everyday::shop::{Kind, Order, OrderMut, OrderView};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn price(order: OrderView<'_>) -> i64 {
    let mut sum = 0;
    for item in order.items() {
        let price = item.price().map_or(0, |price| price.units());
        sum += price * i64::from(item.quantity());
    }
    let reduced = order.labels().get("reduced") == Some("yes");
    match order.payment() {
        Payment::Card(_) if reduced => sum - 1,
        Payment::Card(_) | Payment::Iban(_) | Payment::NotSet => sum,
    }
}

fn answer(request: OrderView<'_>) -> Result<Owned<Order>, BuildError> {
    Owned::<Order>::build(|reply| {
        reply.set_id(request.id())?;
        reply.total_mut()?.fill(|total| {
            total.set_currency("EUR")?;
            total.set_units(price(request))
        })?;
        if let Some(customer) = request.customer() {
            reply.set_customer(customer)?;
        }
        reply.items_mut()?.extend(request.items())?;
        reply.labels_mut()?.insert("shop", "corner")
    })
}

fn change(order: &mut OrderMut<'_>) -> Result<(), BuildError> {
    let mut items = order.items_mut()?;
    items.push_new()?.fill(|item| {
        item.set_sku("gift")?;
        item.price_mut()?.set_units(0)?;
        item.options_mut()?.push("wrapped")
    })?;
    if let Some(mut first) = items.get_mut(0)? {
        let quantity = first.view().quantity();
        first.set_quantity(quantity + 1)?;
    }
    order.labels_mut()?.insert("changed", "yes")?;
    order.set_card("1234")?;
    order.clear_placed();
    order.customer_mut()?.set_kind(Kind::KIND_WORK)?;
    order.customer_mut()?.addresses_mut()?.push_new()?.set_kind(Kind::from(2))
}

fn kinds(order: OrderView<'_>) -> &'static str {
    match order.customer().map(|customer| customer.kind()) {
        Some(Kind::KIND_HOME) => "at home",
        Some(Kind::KIND_WORK) => "at work",
        Some(Kind(number)) if number > 3 => "of a later version",
        _ => "somewhere",
    }
}

fn copied(order: &Owned<Order>) -> Result<Owned<Order>, BuildError> {
    Owned::<Order>::build(|copy| {
        copy.copy_from(order.view())?;
        change(copy)
    })
}

fn reviewed(order: OrderView<'_>) -> Outcome<Owned<Order>> {
    let mut order = order.to_prost()?;
    order.labels.insert("reviewed".into(), "yes".into());
    Ok(Owned::from_prost(&order)?)
}

fn serve(input: &[u8], arenas: &Arenas, buffer: &mut EncodeBuffer) -> Outcome<Vec<u8>> {
    let request = Owned::<Order>::decode(input, arenas.take(), &Limits::default())?;
    let reply = answer(request.view())?;
    Ok(reply.view().encode(buffer)?.to_vec())
}

fn main() -> Outcome<()> {
    let arenas = Arenas::new(1 << 20, 16);
    let mut buffer = EncodeBuffer::new();
    // Of field 1 two bytes, of field 3 an item with a quantity and a price.
    let input = [10, 2, b'n', b'1', 26, 6, 24, 3, 34, 2, 16, 14];
    let reply = serve(&input, &arenas, &mut buffer)?;
    let reply = Owned::<Order>::decode(&reply, Slot::default(), &Limits::default())?;
    let reply = copied(&reviewed(reply.view())?)?;
    println!("{:?} costs {}, {}", reply.view().id(), price(reply.view()), kinds(reply.view()));

    let expected = Owned::<Order>::from_prost(&prost::Order {
        id: "n1".into(),
        total: Some(prost::Money { units: 42, ..Default::default() }),
        ..Default::default()
    })?;
    assert_eq!(expected.view().total().map(|total| total.units()), Some(42));
    Ok(())
}
