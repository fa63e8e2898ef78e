//! Short objects of streams travel many to a record, in order, and each is looked at by itself.

use std::future::poll_fn;

use bytes::Bytes;
use tokio_stream::StreamExt;
use tollfree::{Channel, PayloadCounts, Server};
use tollfree_direct_stubs::objects::probe::probe_blocking_client::ProbeBlockingClient;
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient;
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer;
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::{Answer, Ask};
use tollfree_direct_stubs::probe as structs;
use tollfree_driver_tokio::{Config, Ending, Listener, OBJECT_PREFIX, Outgoing, OutgoingMessage};
use tollfree_processor::typed::Owned;
use tonic::Code;

use super::hostile::{accept, attach, builder};
use super::levels::ask;
use super::place::{InPlace, Place, in_time};
use super::raw::{Heard, batch, framed, open, send};

pub(crate) const DOWN: &str = "/tollfree.probe.v1.Probe/Down";
pub(crate) const UP: &str = "/tollfree.probe.v1.Probe/Up";
pub(crate) const BOTH: &str = "/tollfree.probe.v1.Probe/Both";
/// Messages at hand, of some 60 bytes each as objects.
pub(crate) const COUNT: usize = 300;
/// The records that they may take: a stream of tokio's gives 32 at once, and the first message may go by itself.
const RECORD_COUNT_MAX: usize = COUNT.div_ceil(32) + 3;

pub(crate) fn types() -> u64 {
    Owned::<Ask>::fingerprint().rotate_left(32) ^ Owned::<Answer>::fingerprint()
}

/// A body that tells its number.
pub(crate) fn numbered(number: usize) -> [u8; 4] {
    (number as u32).to_le_bytes()
}

pub(crate) fn object(number: usize) -> Vec<u8> {
    ask(&numbered(number), &[]).object().bytes().to_vec()
}

pub(crate) fn answer(number: usize) -> Vec<u8> {
    let mut answer = builder::<Answer>();
    answer.edit().set_body(&numbered(number)).unwrap();
    answer.freeze().unwrap().object().bytes().to_vec()
}

/// Whether all but the first few of so many came as objects, and in few records.
fn is_batched(heard: &Heard, count: usize, encoded_max: usize) {
    let encoded = heard.messages.iter().take_while(|(flag, _)| *flag == 0).count();
    assert!(encoded <= encoded_max, "{encoded} of {count} are encoded");
    assert!(heard.messages[encoded..].iter().all(|(flag, _)| *flag == OBJECT_PREFIX));
    assert_eq!(heard.messages.len(), count);
    assert!(heard.record_count <= RECORD_COUNT_MAX, "{} records", heard.record_count);
}

#[tokio::test]
async fn answers_at_hand_travel_as_objects_in_few_records() {
    let place = Place::new(Server::builder().add_service(ProbeServer::new(InPlace::new()))).await;
    in_time(async {
        let attachment = attach(&place).await;
        let lens: Vec<u32> = (0..COUNT as u32).map(|number| number % 30).collect();
        let down = open(&attachment, DOWN, 0).await;
        let asked = ask(b"", &lens).object().bytes().to_vec();
        send(&down, Some(batch(&[asked])), Some(Ending::HalfClose)).await;
        let heard = Heard::all(None, &down).await;
        assert_eq!(heard.code().0, Code::Ok);
        is_batched(&heard, COUNT, 0);
        let both = open(&attachment, BOTH, 0).await;
        let objects: Vec<Vec<u8>> = (0..COUNT).map(object).collect();
        send(&both, Some(batch(&objects)), Some(Ending::HalfClose)).await;
        let heard = Heard::all(None, &both).await;
        is_batched(&heard, COUNT, 0);
        for (number, (_, answer)) in heard.messages.iter().enumerate() {
            let slot = tollfree_processor::Arenas::new(1 << 20, 0).take();
            let answer = Owned::<Answer>::verify(answer, slot, 100).unwrap();
            assert_eq!(answer.view().body(), numbered(number), "in order");
        }
    })
    .await;
}

/// Says from the second call on that it takes objects, tells what has come of each, and answers with nothing.
async fn hears(mut listener: Listener, told: std::sync::mpsc::Sender<Heard>) {
    let attachment = listener.accept().await.unwrap();
    let mut said = Vec::new();
    while let Ok(call) = accept(&attachment).await {
        if let Some(method) = call.method.filter(|method| !said.contains(method)) {
            attachment.take_objects(method, types());
            said.push(method);
        }
        told.send(Heard::all(call.first, &call.stream).await).unwrap();
        let mut outgoing = Outgoing {
            headers: Some(Bytes::new()),
            message: Some(OutgoingMessage::new(Bytes::new(), false)),
            ending: Some(Ending::Trailers { code: 0, block: Bytes::new() }),
        };
        let _ = poll_fn(|cx| call.stream.poll_send(cx, &mut outgoing)).await;
    }
}

fn asks() -> impl Iterator<Item = Owned<Ask>> + Send + 'static {
    (0..COUNT).map(|number| ask(&numbered(number), &[]))
}

fn is_all_of_it(heard: &Heard, knew: bool) {
    // The first goes with the call.
    is_batched(heard, COUNT, if knew { 0 } else { COUNT });
    for (number, (flag, message)) in heard.messages.iter().enumerate() {
        let expected = object(number);
        assert!(*flag == 0 || *message == expected, "message {number} comes in its turn");
    }
}

#[tokio::test]
async fn requests_at_hand_travel_as_objects_in_few_records() {
    in_time(async {
        let directory = tempfile::tempdir().unwrap();
        let uri = format!("shm://{}", directory.path().join("s").display());
        let listener = Listener::bind(&uri.parse().unwrap(), Config::default()).unwrap();
        let (telling, told) = std::sync::mpsc::channel();
        let task = tokio::spawn(hears(listener, telling));
        let channel = Channel::connect(&*uri).await.unwrap();
        let mut client = ProbeClient::new(channel.clone());
        for knew in [false, true, true] {
            client.up(tokio_stream::iter(asks())).await.unwrap();
            is_all_of_it(&told.recv().unwrap(), knew);
            let both = client.both(tokio_stream::iter(asks())).await.unwrap().into_inner();
            assert_eq!(both.map(Result::unwrap).collect::<Vec<_>>().await.len(), 1);
            is_all_of_it(&told.recv().unwrap(), knew);
        }
        drop((client, channel));
        task.await.unwrap();
    })
    .await;
}

#[test]
fn a_blocking_caller_sends_and_reads_objects_in_few_records() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", directory.path().join("s").display());
    let (telling, told) = std::sync::mpsc::channel();
    let listener = {
        let _within = runtime.enter();
        Listener::bind(&uri.parse().unwrap(), Config::default()).unwrap()
    };
    let task = runtime.spawn(hears(listener, telling));
    let channel = tollfree::blocking::Channel::connect(&*uri).unwrap();
    let mut client = ProbeBlockingClient::new(channel);
    for knew in [false, true, true] {
        client.up(asks()).unwrap();
        is_all_of_it(&told.recv().unwrap(), knew);
        assert_eq!(client.both(asks()).unwrap().into_inner().count(), 1);
        is_all_of_it(&told.recv().unwrap(), knew);
    }
    drop(client);
    runtime.block_on(task).unwrap();
}

/// Objects, and what is encoded, as they follow each other.
#[tokio::test]
async fn both_sorts_in_turns_come_in_order() {
    let place = Place::new(Server::builder().add_service(ProbeServer::new(InPlace::new()))).await;
    in_time(async {
        let attachment = attach(&place).await;
        let both = open(&attachment, BOTH, 0).await;
        let number = |from: usize, count: usize| (from..from + count).collect::<Vec<_>>();
        let encoded = |number: &usize| {
            let ask = structs::Ask { body: numbered(*number).to_vec(), ..structs::Ask::default() };
            prost::Message::encode_to_vec(&ask)
        };
        for from in (0..COUNT).step_by(10) {
            let mut bytes = framed(0, &number(from, 4).iter().map(encoded).collect::<Vec<_>>());
            send(&both, OutgoingMessage::batch_off(&mut bytes, 1000, usize::MAX), None).await;
            let objects: Vec<Vec<u8>> = number(from + 4, 5).into_iter().map(object).collect();
            send(&both, Some(batch(&objects)), None).await;
            send(&both, Some(OutgoingMessage::object(Bytes::from(object(from + 9)).into())), None).await;
        }
        send(&both, None, Some(Ending::HalfClose)).await;
        let heard = Heard::all(None, &both).await;
        assert_eq!((heard.code().0, heard.messages.len()), (Code::Ok, COUNT));
        for (number, (flag, message)) in heard.messages.iter().enumerate() {
            let body = if *flag == 0 {
                let answer: structs::Answer = prost::Message::decode(&message[..]).unwrap();
                answer.body
            } else {
                let slot = tollfree_processor::Arenas::new(1 << 20, 0).take();
                Owned::<Answer>::verify(message, slot, 100).unwrap().view().body().to_vec()
            };
            assert_eq!(body, numbered(number));
        }
    })
    .await;
}

fn received(counts: PayloadCounts) -> u64 {
    counts.received_objects
}

#[tokio::test]
async fn a_limit_ends_a_batch_behind_the_objects_before_it() {
    // Encoded, a body has two bytes before it.
    let limit = 100;
    let service = ProbeServer::new(InPlace::new());
    let place = Place::new(Server::builder().add_service(service.clone())).await;
    let limited = Server::builder().add_service(service.max_decoding_message_size(limit));
    let there = limited.payloads();
    let limited = Place::new(limited).await;
    in_time(async {
        let mut client = ProbeClient::new(limited.shm.clone());
        client.both(tokio_stream::empty()).await.unwrap().into_inner().message().await.unwrap();
        let mut small = ProbeClient::new(place.shm.clone()).max_decoding_message_size(limit);
        small.down(ask(b"", &[])).await.unwrap();
        let lens = |at: usize, len: usize| (0..COUNT).map(move |number| if number == at { len } else { 10 });
        for at in [0, 1, 2, COUNT / 2, COUNT - 1] {
            let before = received(there.counts());
            let asks = lens(at, limit).map(|len| ask(&vec![3; len], &[])).collect::<Vec<_>>();
            let mut both = client.both(tokio_stream::iter(asks)).await.unwrap().into_inner();
            let mut count = 0;
            let refused = loop {
                match both.message().await {
                    Ok(answer) => assert_eq!(answer.expect("it is refused").view().body().len(), 10),
                    Err(refused) => break refused,
                }
                count += 1;
            };
            assert_eq!((count, refused.code()), (at, Code::OutOfRange), "{refused}");
            assert!(received(there.counts()) > before || at == 0, "they came as objects");
            // An answer says how long the body was, too.
            let lens: Vec<u32> = lens(at, limit).map(|len| len as u32).collect();
            let mut down = small.down(ask(b"", &lens)).await.unwrap().into_inner();
            for number in 0..at {
                assert_eq!(down.message().await.unwrap().unwrap().view().body().len(), 10, "{number}");
            }
            assert_eq!(down.message().await.unwrap_err().code(), Code::OutOfRange, "{at}");
        }
    })
    .await;
}
