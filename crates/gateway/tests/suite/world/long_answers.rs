//! Long answers of backends are verified and encoded beside the calls of others, and counted meanwhile.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tollfree_driver_tokio::{Attachment, Config, Ending, Outgoing, OutgoingMessage, Registration};
use tollfree_layout::steps;
use tollfree_processor::{Arena, Limits, Processor};
use tollfree_schema::{Field, Kind, Label, Message, Schema};
use tollfree_stubs::probe as structs;
use tollfree_stubs::probe::probe_client::ProbeClient;
use tonic::Code;

use super::lab::{Lab, PATIENCE, PROBE, backend_connections_of};
use super::liars::DESCRIBE;
use super::nested::via;
use super::nested_lies::{call, session};
use super::objects::objects;

/// Strings of an object that takes many steps, each of which is verified and encoded by itself.
const STRINGS: usize = 30_000;
/// More than a call takes on the thread that serves it without its answer's message.
const STEPS_MAX: u64 = 5_000;

/// A probe's answer has such a body too. Its strings a client does not know.
fn processor() -> Processor {
    let fields = vec![
        Field::new(1, "body", Kind::Bytes, Label::Explicit),
        Field { utf8: true, ..Field::new(1000, "strings", Kind::String, Label::List) },
    ];
    let message = Message { name: "Answer".into(), fields, ..Message::default() };
    Processor::new(Schema { messages: vec![message], ..Schema::default() }.compile().unwrap())
}

/// An object with a body of one byte and so many strings.
fn object(body: u8, strings: usize) -> Bytes {
    // Field 1, and then field 1000 again and again, of four bytes each.
    let encoded = [vec![0x0a, 1, body], [0xc2, 0x3e, 4, b's', b'o', b'm', b'e'].repeat(strings)].concat();
    let mut arena = Arena::with_limit(4 << 20);
    Bytes::copy_from_slice(processor().decode(0, &encoded, &mut arena, &Limits::default()).unwrap().bytes())
}

/// What a backend connection does about calls that reach it as objects.
#[derive(Clone)]
enum Behavior {
    /// Answers each with all of these, or with the first where one is wanted.
    Answers(Vec<Bytes>),
    /// Begins this answer, and says no more.
    Begins(Bytes),
}

/// A backend connection of a group that answers without decoding or verifying anything, so that all steps are the gateway's.
async fn work(lab: &Lab, group: &str, behavior: Behavior) -> JoinHandle<()> {
    let table = processor().table().blob().to_vec();
    let of_first = processor().fingerprint(0);
    let types = of_first.rotate_left(32) ^ of_first;
    let description = [&[0, 0, table.len() as u32, 0].map(u32::to_le_bytes).concat(), &table[..]].concat();
    let registration = Registration::new(group, vec![PROBE.to_owned()]).unwrap();
    let address = lab.backends().parse().unwrap();
    let attachment = Attachment::attach(&address, &Config::default(), registration).await.unwrap();
    let task = tokio::spawn(async move {
        let (mut kept, mut said) = (Vec::new(), Vec::new());
        loop {
            let mut place = None;
            if poll_fn(|cx| attachment.poll_accept(cx, &mut place)).await.is_err() {
                return;
            }
            let mut call = place.unwrap().into_call(true);
            let is_object = call.first.take().is_some_and(|first| first.has_object());
            let is_unary = call.path.ends_with(b"/Unary");
            let mut messages = Vec::new();
            if call.path == DESCRIBE {
                messages.push(OutgoingMessage::new(description.clone().into(), false));
            } else {
                if let Some(method) = call.method.filter(|method| !said.contains(method)) {
                    said.push(method);
                    attachment.take_objects(method, types);
                }
                match &behavior {
                    _ if !is_object => messages.push(OutgoingMessage::new(Bytes::new(), false)),
                    Behavior::Answers(objects) => {
                        let count = if is_unary { 1 } else { objects.len() };
                        messages.extend(
                            objects[..count]
                                .iter()
                                .map(|object| OutgoingMessage::object(object.clone().into())),
                        );
                    }
                    Behavior::Begins(object) => {
                        let (headers, message) =
                            (Some(Bytes::new()), Some(OutgoingMessage::object(object.clone().into())));
                        let mut outgoing = Outgoing { headers, message, ending: None };
                        let is_sent =
                            poll_fn(|cx| Poll::Ready(call.stream.poll_send(cx, &mut outgoing).is_ready()))
                                .await;
                        assert!(!is_sent, "nothing was left of it");
                        kept.push((call, outgoing));
                        continue;
                    }
                }
            }
            let mut outgoing = Outgoing { headers: Some(Bytes::new()), ..Outgoing::default() };
            let count = messages.len();
            for (nth, message) in messages.into_iter().enumerate() {
                outgoing.message = Some(message);
                if nth + 1 == count {
                    outgoing.ending = Some(Ending::Trailers { code: 0, block: Bytes::new() });
                }
                // The one who asked may have had enough.
                if poll_fn(|cx| call.stream.poll_send(cx, &mut outgoing)).await.is_err() {
                    break;
                }
            }
        }
    });
    lab.until_figure(&backend_connections_of(group), |count| count == 1.0).await;
    task
}

fn ask() -> structs::Ask {
    structs::Ask { body: b"ask".to_vec(), ..Default::default() }
}

/// Makes calls of one of the two methods, and lets go of their answers, until the backend connection gets them as objects.
async fn until_objects(lab: &Lab, is_unary: bool) {
    let (mut client, handed) = (lab.client().await, objects("default", "request", "object"));
    let (began, before) = (Instant::now(), lab.figure(&handed).await);
    while lab.figure(&handed).await == before {
        let mut other = client.clone();
        let call = async {
            match is_unary {
                true => drop(client.unary(ask()).await),
                false => drop(other.down(ask()).await),
            }
        };
        drop(tokio::time::timeout(Duration::from_millis(20), call).await);
        assert!(began.elapsed() < PATIENCE, "no request goes as an object");
    }
}

/// All of this test, the gateway included, is on one thread: what it takes there delays all calls.
#[tokio::test]
async fn long_answers_are_verified_and_encoded_beside_the_calls_of_others() {
    let lab = Lab::start("").await;
    // Short ones between, which would overtake a long one that is not waited for.
    let bodies: Vec<u8> = (1..9).collect();
    let answers = bodies.iter().map(|body| object(*body, if body % 2 == 1 { STRINGS } else { 1 })).collect();
    let backend_connection = work(&lab, "default", Behavior::Answers(answers)).await;
    until_objects(&lab, true).await;
    until_objects(&lab, false).await;
    let mut client = lab.client().await;
    let before = steps::taken();
    let answer = client.unary(ask()).await.unwrap().into_inner();
    let taken = steps::taken() - before;
    assert_eq!(answer.body, [1]);
    assert!(taken < STEPS_MAX, "{taken} steps on the thread that serves calls, for an answer of one call");
    let mut answers = client.down(ask()).await.unwrap().into_inner();
    let mut came = Vec::new();
    while let Some(answer) = answers.message().await.unwrap() {
        came.extend(answer.body);
    }
    let taken = steps::taken() - before - taken;
    assert_eq!(came, bodies);
    assert!(taken < STEPS_MAX, "{taken} steps on the thread that serves calls, for a stream");
    backend_connection.abort();
}

#[tokio::test]
async fn short_answers_stay_on_the_thread_of_their_call() {
    const SHORT: usize = 3_000;
    let lab = Lab::start("").await;
    let backend_connection = work(&lab, "default", Behavior::Answers(vec![object(1, SHORT)])).await;
    until_objects(&lab, true).await;
    let mut client = lab.client().await;
    let before = steps::taken();
    assert_eq!(client.unary(ask()).await.unwrap().into_inner().body, [1]);
    let taken = steps::taken() - before;
    assert!(taken >= 2 * SHORT as u64, "{taken} steps: it was verified and encoded elsewhere");
    backend_connection.abort();
}

/// What one process says to another by way of the gateway: requests and answers as objects, and answers that are encoded for a caller that
/// takes none.
#[tokio::test]
async fn long_messages_between_processes_are_verified_beside_the_calls_of_others() {
    let lab = Lab::start("").await;
    let long = object(1, STRINGS);
    let backend_connection = work(&lab, "default", Behavior::Answers(vec![long.clone(), object(2, 1)])).await;
    until_objects(&lab, true).await;
    until_objects(&lab, false).await;
    let (session, mut plain) = (session(&lab).await, ProbeClient::new(via(&lab, "default").await));
    let before = steps::taken();
    for method in ["Unary", "Down", "Both"] {
        let (code, words) = call(&session, method, &[&long]).await;
        assert_eq!(code, Code::Ok, "{method}: {words}");
    }
    let taken = steps::taken() - before;
    assert!(taken < 3 * STEPS_MAX, "{taken} steps on the thread that serves calls, for objects");
    assert_eq!(plain.unary(ask()).await.unwrap().into_inner().body, [1]);
    let (mut answers, mut came) = (plain.down(ask()).await.unwrap().into_inner(), Vec::new());
    while let Some(answer) = answers.message().await.unwrap() {
        came.extend(answer.body);
    }
    assert_eq!(came, [1, 2]);
    let taken = steps::taken() - before - taken;
    assert!(taken < 2 * STEPS_MAX, "{taken} steps on the thread that serves calls, for bytes");
    backend_connection.abort();
}

/// Also while it comes, of which its backend connection may take as long as the call lasts.
#[tokio::test]
async fn a_long_answer_is_counted_until_it_has_gone_on() {
    let memory = "tollfree_gateway_memory_bytes{group=\"default\"}";
    let lab = Lab::start("").await;
    let long = object(1, 200_000);
    let backend_connection = work(&lab, "default", Behavior::Begins(long.clone())).await;
    until_objects(&lab, true).await;
    let mut client = lab.client().await;
    let call = tokio::spawn(async move { client.unary(ask()).await.map(drop) });
    lab.until_figure(memory, |held| held >= long.len() as f64).await;
    call.abort();
    lab.until_figure(memory, |held| held < 10_000.0).await;
    backend_connection.abort();
}

#[tokio::test]
async fn a_long_answer_for_which_there_is_no_room_ends_its_call() {
    let long = object(1, STRINGS);
    let limit = long.len() - 1;
    let config = format!("limits.message_bytes = 100000\nlimits.memory_bytes = {limit}\n");
    let lab = Lab::start(&config).await;
    let backend_connection = work(&lab, "default", Behavior::Answers(vec![long])).await;
    let mut client = lab.client().await;
    until_objects(&lab, true).await;
    let refused = lab.refused_memory().await;
    let status = client.unary(ask()).await.expect_err("there is no room");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("limits.memory_bytes"), "{status}");
    assert_eq!(lab.refused_memory().await, refused + 1.0);
    until_objects(&lab, false).await;
    let refused = lab.refused_memory().await;
    let mut answers = client.down(ask()).await.unwrap().into_inner();
    let status = answers.message().await.expect_err("there is no room");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert_eq!(lab.refused_memory().await, refused + 1.0);
    backend_connection.abort();
}
