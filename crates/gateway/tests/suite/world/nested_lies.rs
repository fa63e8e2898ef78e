//! Backends that mean no good: their objects are none, and only their own calls end of it.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tollfree::{Channel, Server};
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient;
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer;
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::{Answer, Ask};
use tollfree_direct_stubs::probe as structs;
use tollfree_driver_tokio::{
    Attachment, Config, End, Ending, Opening, Outgoing, OutgoingMessage, Registration, Stream,
};
use tollfree_processor::typed::{Compiled, Message, Owned};
use tonic::{Code, Status};

use super::lab::{Lab, PATIENCE, PROBE, backend_connections_of};
use super::nested::{Back, Client, Plain, ask, attach, builder, until_all_are_objects, until_objects, via};

/// What is made of an object so that it is none of its type, and a word of what is said about each.
pub(crate) fn lies(sound: &[u8]) -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let with = |at: usize, byte: u8| {
        let mut bytes = sound.to_vec();
        bytes[at] ^= byte;
        bytes
    };
    vec![
        ("nothing", Vec::new(), "bytes of header"),
        ("protobuf's bytes", vec![0x0a; 64], "not a flat message"),
        ("a fingerprint that lies", with(16, 1), "fingerprint"),
        ("cut off", sound[..sound.len() - 8].to_vec(), "object"),
        ("something behind it", [sound, &[0; 8]].concat(), "behind it"),
        ("much behind it", [sound, &[0; 20_000]].concat(), "behind it"),
        ("a root beyond the end", with(14, 1), "object"),
    ]
}

/// A call with these objects; code and words that it ended with.
pub(crate) async fn call(session: &Attachment, method: &str, objects: &[&[u8]]) -> (Code, String) {
    let path = format!("/{PROBE}/{method}");
    let mut outgoing = Outgoing { headers: Some(Bytes::new()), ..Outgoing::default() };
    let opening = Opening { path: &path, deadline_ns: 0 };
    let mut opener = session.open();
    let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing)).await.unwrap();
    for object in objects {
        let message = Some(OutgoingMessage::object(Bytes::copy_from_slice(object).into()));
        // Who refuses one message need not read the next.
        say(&stream, Outgoing { message, ..Outgoing::default() }).await;
    }
    say(&stream, Outgoing { ending: Some(Ending::HalfClose), ..Outgoing::default() }).await;
    loop {
        match poll_fn(|cx| stream.poll_incoming(cx)).await.unwrap().into_part().end {
            Some(End::Trailers { code, block }) => {
                let words = String::from_utf8_lossy(&block).replace("%20", " ");
                return (Code::from_i32(code.into()), words);
            }
            Some(end) => panic!("{end:?}"),
            None => {}
        }
    }
}

async fn say(stream: &Stream, mut outgoing: Outgoing) {
    drop(poll_fn(|cx| stream.poll_send(cx, &mut outgoing)).await);
}

pub(crate) async fn session(lab: &Lab) -> Attachment {
    let config = Config { via: Some("group:default".into()), ..Config::default() };
    Attachment::connect(&lab.backends().parse().unwrap(), &config).await.unwrap()
}

#[tokio::test]
async fn a_caller_that_lies_ends_its_own_calls() {
    let lab = Lab::start("").await;
    let backends =
        attach(&lab, "default", Server::builder().add_service(ProbeServer::new(Back::default()))).await;
    let channel = via(&lab, "default").await;
    let mut honest = ProbeClient::new(channel.clone());
    until_all_are_objects(&mut honest, &channel).await;
    let session = session(&lab).await;
    let sound = ask(5_000).object().bytes().to_vec();
    for method in ["Unary", "Down", "Up", "Both"] {
        assert_eq!(call(&session, method, &[&sound]).await.0, Code::Ok, "{method}");
        for (what, object, word) in lies(&sound) {
            let before = backends.payloads.counts().received_objects;
            let (code, words) = call(&session, method, &[&object]).await;
            assert!(code == Code::Internal && words.contains(word), "{method}, {what}: {code:?}: {words}");
            assert!(words.contains("flat message"), "{method}, {what}: {words}");
            assert_eq!(backends.payloads.counts().received_objects, before, "{what}: nobody else sees it");
            if matches!(method, "Up" | "Both") {
                let (code, words) = call(&session, method, &[&sound, &object]).await;
                assert!(code == Code::Internal && words.contains(word), "{method}, {what}: {words}");
            }
        }
        assert_eq!(call(&session, method, &[&sound]).await.0, Code::Ok, "{method}");
        until_objects(&mut honest, &channel.payloads()).await;
    }
    assert!(session.is_open());
}

#[tokio::test]
async fn an_object_that_nobody_has_asked_for_is_internal() {
    let lab = Lab::start("").await;
    let level2 = structs::probe_server::ProbeServer::new(Plain);
    let _level2 = attach(&lab, "default", Server::builder().add_service(level2)).await;
    let session = session(&lab).await;
    let sound = ask(5_000).object().bytes().to_vec();
    for method in ["Unary", "Down", "Up", "Both"] {
        let (code, words) = call(&session, method, &[&sound]).await;
        assert!(code == Code::Internal && words.contains("flat message"), "{method}: {code:?}: {words}");
    }
    let channel = via(&lab, "default").await;
    let answer = ProbeClient::new(channel).unary(ask(700)).await.unwrap().into_inner();
    assert_eq!(answer.view().body(), vec![700_usize as u8; 700]);
}

/// How the types of the probe's methods are told (spec/wire.md, "Objects").
pub(crate) fn description() -> Vec<u8> {
    let table = <<Ask as Message>::Compiled as Compiled>::BLOB;
    let head = [Ask::TYPE_IDX, Answer::TYPE_IDX, table.len() as u32, 0].map(u32::to_le_bytes).concat();
    [&head, table].concat()
}

/// A process that attaches, takes objects, and answers the first calls encoded, then each with the next object.
async fn lying_callee(lab: &Lab, objects: Vec<Vec<u8>>) -> JoinHandle<()> {
    let registration = Registration::new("default", vec![PROBE.to_owned()]).unwrap();
    let address = lab.backends().parse().unwrap();
    let session = Attachment::attach(&address, &Config::default(), registration).await.unwrap();
    let types = Owned::<Ask>::fingerprint().rotate_left(32) ^ Owned::<Answer>::fingerprint();
    let (mut is_said, mut objects) = (false, objects.into_iter());
    let task = tokio::spawn(async move {
        loop {
            let mut place = None;
            if poll_fn(|cx| session.poll_accept(cx, &mut place)).await.is_err() {
                return;
            }
            let mut call = place.expect("a call is there").into_call(true);
            let is_object = call.first.take().is_some_and(|first| first.has_object());
            let message = if call.path.starts_with(b"/tollfree.Objects/") {
                OutgoingMessage::new(description().into(), false)
            } else if is_object {
                let Some(object) = objects.next() else { return };
                OutgoingMessage::object(Bytes::from(object).into())
            } else {
                OutgoingMessage::new(Bytes::new(), false)
            };
            if let Some(method) = call.method.filter(|_| !call.path.starts_with(b"/tollfree.Objects/"))
                && !std::mem::replace(&mut is_said, true)
            {
                session.take_objects(method, types);
            }
            let trailers = Ending::Trailers { code: 0, block: Bytes::new() };
            let (headers, ending) = (Some(Bytes::new()), Some(trailers));
            say(&call.stream, Outgoing { headers, message: Some(message), ending }).await;
        }
    });
    lab.until_figure(&backend_connections_of("default"), |count| count == 1.0).await;
    task
}

/// One call, of which an object reaches the callee.
async fn answered(client: &mut Client, channel: &Channel) -> Result<Owned<Answer>, Status> {
    let began = Instant::now();
    loop {
        let before = channel.payloads().counts().sent_objects;
        let answer = client.unary(ask(300)).await.map(|answer| answer.into_inner());
        if channel.payloads().counts().sent_objects > before {
            return answer;
        }
        answer.unwrap();
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_callee_s_broken_answers_do_not_reach_the_caller() {
    let mut sound = builder::<Answer>();
    sound.edit().set_body(b"sound").unwrap();
    let sound = sound.freeze().unwrap().object().bytes().to_vec();
    let all = lies(&sound);
    let objects = all.iter().map(|(_, object, _)| object.clone());
    // What the gateway decodes itself before the caller sends objects, and the first of those.
    let lab = Lab::start("").await;
    let first = std::iter::repeat_n(sound.clone(), 2);
    let callee = lying_callee(&lab, first.chain(objects).chain([sound.clone()]).collect()).await;
    let channel = via(&lab, "default").await;
    let mut client = ProbeClient::new(channel.clone());
    let received = || channel.payloads().counts().received_objects;
    assert_eq!(answered(&mut client, &channel).await.unwrap().view().body(), b"sound");
    let before = received();
    for (what, _, word) in &all {
        let refused = answered(&mut client, &channel).await.expect_err("it lies");
        assert_eq!(refused.code(), Code::Internal, "{what}: {refused}");
        assert!(refused.message().contains(word) && refused.message().contains("flat message"), "{refused}");
    }
    assert_eq!(received(), before, "the gateway has kept them all");
    assert_eq!(answered(&mut client, &channel).await.unwrap().view().body(), b"sound");
    callee.abort();
}
