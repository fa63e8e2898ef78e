//! What a process says of a method's types, and what its gateway must not use.

use serde_json::{Value, json};
use tollfree_layout::description::{DescriptionHead, encodings, method_fingerprint};
use tollfree_layout::table::Table;
use tollfree_vectors::to_hex;

use super::{case, hold, refused, schemas};

const SECTION: &str = "wire.md, 24. Gateways, Objects";

fn head(request: (&Table, &str), reply: (&Table, &str), (accepts, sends): (u8, u8)) -> DescriptionHead {
    let idx = |(table, name): (&Table, &str)| table.type_by_name(name).expect("a type").into();
    let request_len = (request.0.blob().len() as u32).into();
    DescriptionHead {
        request_idx: idx(request),
        reply_idx: idx(reply),
        request_len,
        accepts,
        sends,
        reserved: 0.into(),
    }
}

fn good(
    name: &str,
    request: (&Table, &str),
    reply: (&Table, &str),
    (accepts, sends): (u8, u8),
    with_second: bool,
) -> Value {
    let fingerprint =
        |(table, name): (&Table, &str)| table.type_fingerprint(table.type_by_name(name).expect("a type"));
    let second = if with_second { reply.0.blob() } else { &[] };
    let bytes = [&head(request, reply, (accepts, sends)).to_bytes()[..], request.0.blob(), second].concat();
    let answer = json!({
        "request": request.1, "reply": reply.1, "accepts": accepts, "sends": sends,
        "fingerprint": format!("{:016x}", method_fingerprint(fingerprint(request), fingerprint(reply))),
    });
    case("describe", name, SECTION, json!({ "description": to_hex(&bytes) }), answer)
}

#[test]
fn descriptions_are_as_written_down() {
    let (three, two) = (schemas::three(), schemas::two());
    let (order, item, old) = ((&three, "shop.Order"), (&three, "shop.Item"), (&two, "old.Order"));
    let both = encodings::GZIP | encodings::DEFLATE;
    let mut cases = vec![
        good("one table", order, item, (0, 0), false),
        good("two tables", order, old, (encodings::GZIP, encodings::DEFLATE), true),
        good("the same table twice", item, order, (both, both), true),
    ];
    let plain = head(order, item, (0, 0));
    let types = (three.types().len() as u32).into();
    let bad = [
        ("no bytes", Vec::new()),
        ("a head cut off", plain.to_bytes()[..15].to_vec()),
        ("no table", DescriptionHead { request_len: 0.into(), ..plain }.to_bytes().to_vec()),
        ("an encoding that does not exist", with(DescriptionHead { accepts: 4, ..plain }, &three)),
        ("an encoding to send that does not exist", with(DescriptionHead { sends: 0x80, ..plain }, &three)),
        ("a reserved byte", with(DescriptionHead { reserved: 0x100.into(), ..plain }, &three)),
        (
            "a table longer than what is there",
            with(DescriptionHead { request_len: u32::MAX.into(), ..plain }, &three),
        ),
        ("a table cut off", {
            let mut bytes = with(plain, &three);
            bytes.pop();
            bytes
        }),
        (
            "a type of the request that the table lacks",
            with(DescriptionHead { request_idx: types, ..plain }, &three),
        ),
        (
            "a type of the reply that the table lacks",
            with(DescriptionHead { reply_idx: types, ..plain }, &three),
        ),
        ("a second table that is none", [with(plain, &three), vec![0]].concat()),
    ];
    cases.extend(bad.map(|(name, bytes)| {
        let words = "not a description that can be used".to_owned();
        refused("describe", name, SECTION, json!({ "description": to_hex(&bytes) }), words)
    }));
    hold("describe.json", &cases);
}

fn with(head: DescriptionHead, table: &Table) -> Vec<u8> {
    [&head.to_bytes()[..], table.blob()].concat()
}
