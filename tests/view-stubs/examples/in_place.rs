//! Reads an order where it was decoded, and builds another one from it: the code of the guide.

use tollfree_processor::typed::{Draft, MessageView, Owned};
use tollfree_processor::{Arenas, EncodeBuffer, Limits};
use tollfree_view_stubs::everyday::shop::order::Payment;
use tollfree_view_stubs::everyday::shop::{Order, OrderView};

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

fn answer(request: &Owned<Order>, arenas: &Arenas) -> Outcome<Owned<Order>> {
    let mut reply = Draft::<Order>::new(arenas.take())?;
    let mut root = reply.edit();
    root.set_id(request.view().id())?;
    root.total_mut()?.set_units(price(request.view()))?;
    if let Some(customer) = request.view().customer() {
        root.set_customer(customer)?;
    }
    root.items_mut()?.extend(request.view().items())?;
    root.labels_mut()?.insert("shop", "corner")?;
    Ok(reply.freeze()?)
}

fn reviewed(order: OrderView<'_>, arenas: &Arenas) -> Outcome<Owned<Order>> {
    let mut order = order.to_prost()?;
    order.labels.insert("reviewed".into(), "yes".into());
    Ok(Owned::from_prost(&order, arenas.take())?)
}

fn serve(input: &[u8], arenas: &Arenas, buffer: &mut EncodeBuffer) -> Outcome<Vec<u8>> {
    let request = Owned::<Order>::decode(input, arenas.take(), &Limits::default())?;
    let reply = answer(&request, arenas)?;
    Ok(reply.view().encode(buffer)?.to_vec())
}

fn main() -> Outcome<()> {
    let arenas = Arenas::new(1 << 20, 16);
    let mut buffer = EncodeBuffer::new();
    // Of field 1 two bytes, of field 3 an item with a quantity and a price.
    let input = [10, 2, b'n', b'1', 26, 6, 24, 3, 34, 2, 16, 14];
    let reply = serve(&input, &arenas, &mut buffer)?;
    let reply = Owned::<Order>::decode(&reply, arenas.take(), &Limits::default())?;
    let reply = reviewed(reply.view(), &arenas)?;
    println!("{:?} costs {}", reply.view().id(), reply.view().total().map_or(0, |total| total.units()));
    Ok(())
}
