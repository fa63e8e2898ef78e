//! Tables that hostile processes describe: loading them costs what their bytes cost, delays nobody, and is counted.

use tollfree::Server;
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer;
use tollfree_layout::steps;
use tollfree_layout::table::{EnumRow, Fingerprint, Table, TableHeader, Text, ValueRow};
use tollfree_schema::{Field, Kind, Label, Message, Schema};
use tollfree_stubs::probe as structs;

use super::lab::{Lab, PATIENCE, backend_connections_of};
use super::liars::lie_in;
use super::objects::objects;
use super::taker::Taker;

/// Calls of one method go to the liars, those of another to an honest process.
const ROUTES: &str = "[groups.evil]\n[groups.good]\n[routes]\n\"tollfree.probe.v1.Probe\" = \"evil\"\n\"tollfree.probe.v1.Probe/Up\" = \"good\"\n";

/// Each type leads to the next one, and the last one lacks nothing less than a required field.
fn chain() -> Vec<u8> {
    const COUNT: usize = 6000;
    let link = |idx: usize| {
        let next = Some(idx + 1).filter(|next| *next < COUNT);
        let (kind, label) =
            if next.is_some() { (Kind::Message, Label::Explicit) } else { (Kind::Bool, Label::Required) };
        let field = Field { target_idx: next, ..Field::new(1000, "", kind, label) };
        Message { name: String::new(), fields: vec![field], ..Message::default() }
    };
    let schema = Schema { messages: (0..COUNT).map(link).collect(), ..Schema::default() };
    schema.compile().unwrap().blob().to_vec()
}

/// One type without fields, and an enum whose values all have one long name.
fn names_that_overlap() -> Vec<u8> {
    const COUNT: u32 = 20_000;
    let empty = Schema { messages: vec![Message::default()], ..Schema::default() }.compile().unwrap();
    let name = Text { off: 0, len: 12 * COUNT };
    let header = TableHeader {
        type_count: 1,
        enum_count: 1,
        value_count: COUNT,
        text_len: name.len,
        ..TableHeader::default()
    };
    let mut blob = header.to_bytes().to_vec();
    blob.extend(empty.types()[0].to_bytes());
    blob.extend(EnumRow { name: Text::default(), first_value: 0, value_count: COUNT, flags: 0 }.to_bytes());
    (0..COUNT as i32).for_each(|number| blob.extend(ValueRow { number, name }.to_bytes()));
    blob.resize(header.blob_len(), b'a');
    let fingerprint = Fingerprint::of_blob(&blob);
    blob[56..64].copy_from_slice(&fingerprint.to_le_bytes());
    blob
}

/// How a process describes a method whose messages are both of the table's first type.
fn described(table: &[u8]) -> Vec<u8> {
    let mut bytes = [0, 0, table.len() as u32, 0].map(u32::to_le_bytes).concat();
    bytes.extend_from_slice(table);
    bytes
}

/// The fingerprint by which a session says so; any for a table that can't be loaded.
fn types(table: &[u8]) -> u64 {
    let of_first = Table::load(table).map_or(7, |table| table.type_fingerprint(0));
    of_first.rotate_left(32) ^ of_first
}

fn ask(body: &[u8]) -> structs::Ask {
    structs::Ask { body: body.to_vec(), ..Default::default() }
}

/// Calls the liars' method until the gateway has made up its mind about their table, and the other group's meanwhile: whether it was
/// of use.
async fn until_known(lab: &Lab) -> bool {
    let mut client = lab.client().await;
    let (handed, useless) = (objects("evil", "request", "object"), objects("evil", "request", "no_tables"));
    let before = (lab.figure(&handed).await, lab.figure(&useless).await);
    let began = tokio::time::Instant::now();
    loop {
        assert_eq!(client.unary(ask(b"ask")).await.unwrap().get_ref().body, b"bytes");
        client.up(tokio_stream::iter([ask(b"of "), ask(b"others")])).await.expect("others are served");
        if lab.figure(&handed).await > before.0 {
            return true;
        }
        if lab.figure(&useless).await > before.1 {
            return false;
        }
        assert!(began.elapsed() < PATIENCE, "nothing becomes of the table");
    }
}

/// All of this test, the gateway included, is on one thread. Loading takes no step there, so it delays nobody who is.
#[tokio::test]
async fn hostile_tables_are_loaded_beside_the_calls_of_others_and_do_not_delay_the_end() {
    let lab = Lab::start(ROUTES).await;
    let honest = lab.attach("good").await;
    for (table, is_sound) in [(chain(), true), (names_that_overlap(), false)] {
        let liar = lie_in(&lab, "evil", types(&table), Some(described(&table)), Vec::new()).await;
        lab.until_figure(&backend_connections_of("evil"), |count| count == 1.0).await;
        let before = steps::taken();
        assert_eq!(until_known(&lab).await, is_sound);
        let taken = steps::taken() - before;
        assert!(taken < 5000, "{taken} steps on the thread that serves calls, for {} bytes", table.len());
        liar.abort();
        lab.until_figure(&backend_connections_of("evil"), |count| count == 0.0).await;
    }
    honest.abort();
    lab.stopped().await;
}

#[tokio::test]
async fn tables_are_counted_and_given_back() {
    let memory = "tollfree_gateway_memory_bytes{group=\"evil\"}";
    let lab = Lab::start(ROUTES).await;
    let honest = lab.attach("good").await;
    let table = chain();
    let liar = lie_in(&lab, "evil", types(&table), Some(described(&table)), Vec::new()).await;
    assert!(until_known(&lab).await);
    let len = table.len() as f64;
    lab.until_figure(memory, |held| held > 2.0 * len && held < 12.0 * len).await;
    liar.abort();
    lab.until_figure(memory, |held| held == 0.0).await;
    honest.abort();
}

#[tokio::test]
async fn tables_that_would_hold_more_than_the_groups_part_are_refused() {
    let memory = "tollfree_gateway_memory_bytes{group=\"evil\"}";
    // A quarter of it holds the description, and not what is made of it.
    let table = chain();
    let limit = 4 * (table.len() + 100_000);
    let lab = Lab::start(&format!("limits.memory_bytes = {limit}\n{ROUTES}")).await;
    let honest = lab.attach("good").await;
    let liar = lie_in(&lab, "evil", types(&table), Some(described(&table)), Vec::new()).await;
    assert!(!until_known(&lab).await);
    assert_eq!(lab.refused("memory").await, 1.0);
    lab.until_figure(memory, |held| held < 10_000.0).await;
    liar.abort();
    honest.abort();
}

/// They may hold a thread for as long as a table does. (The handler reads none of it, and answers nothing, so all steps would be the gateway's.)
#[tokio::test]
async fn long_messages_are_decoded_beside_the_calls_of_others() {
    let lab = Lab::start("").await;
    let server = Server::builder().add_service(ProbeServer::new(Taker).max_decoding_message_size(8 << 20));
    let payloads = server.payloads();
    let attaching = server.attach(lab.backends()).group("default").backend_connections(1);
    let attached = tokio::spawn(async move { drop(attaching.await) });
    lab.until_figure(&backend_connections_of("default"), |count| count == 1.0).await;
    let mut client = lab.client().await;
    let began = tokio::time::Instant::now();
    while payloads.counts().received_objects == 0 {
        assert!(client.down(ask(b"short")).await.unwrap().get_mut().message().await.unwrap().is_none());
        assert!(began.elapsed() < PATIENCE, "no request came as an object");
    }
    let before = (steps::taken(), payloads.counts().received_objects);
    let mut answers = client.down(ask(&vec![7; 3_000_000])).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().is_none());
    assert_eq!(payloads.counts().received_objects, before.1 + 1);
    let taken = steps::taken() - before.0;
    assert!(taken < 5000, "{taken} steps on the thread that serves calls");
    attached.abort();
}
