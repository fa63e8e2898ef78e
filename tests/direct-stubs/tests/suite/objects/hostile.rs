//! Peers that send objects which are none, are of other types, or come where none was asked for: the call ends INTERNAL, in
//! words, and nothing else happens.

use std::future::poll_fn;

use bytes::Bytes;
use tollfree::{Channel, Server};
use tollfree_direct_stubs::greeter as structs;
use tollfree_direct_stubs::later::probe::probe_client::ProbeClient;
use tollfree_direct_stubs::later::probe::probe_server::{Probe, ProbeServer};
use tollfree_direct_stubs::later::views::tollfree::probe::v1::{Answer, Ask};
use tollfree_direct_stubs::objects::greeter::greeter_server::{Greeter, GreeterServer};
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer as OlderServer;
use tollfree_direct_stubs::objects::views::tollfree::greeter::v1::{HelloReply, HelloRequest};
use tollfree_driver_tokio::{
    Attachment, Call, Closed, Config, End, Ending, Listener, Opening, Outgoing, OutgoingMessage,
};
use tollfree_processor::Arenas;
use tollfree_processor::typed::{Builder, Message, Owned};
use tonic::{Code, Request, Response, Status, Streaming};

use super::place::{InPlace, Place, in_time};

pub(crate) const UNARY: &str = "/tollfree.probe.v1.Probe/Unary";
const HELLO: &str = "/tollfree.greeter.v1.Greeter/Hello";

pub(crate) fn builder<M: Message>() -> Builder<M> {
    Builder::new(Arenas::new(1 << 24, 0).take()).unwrap()
}

/// A sound object, with a message in a message in it.
pub(crate) fn sound() -> Vec<u8> {
    let mut ask = builder::<Ask>();
    ask.edit().set_body(b"sound").unwrap();
    ask.edit().lens_mut().unwrap().extend([3]).unwrap();
    ask.edit().nest_mut().unwrap().set_name("outer").unwrap();
    ask.edit().nest_mut().unwrap().inner_mut().unwrap().set_name("inner").unwrap();
    ask.freeze().unwrap().object().bytes().to_vec()
}

/// What is made of an object so that it is none of its type, and a word of what is said about each.
pub(crate) fn lies(sound: &[u8]) -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let hello = builder::<HelloRequest>().freeze().unwrap();
    let with = |at: usize, byte: u8| {
        let mut bytes = sound.to_vec();
        bytes[at] ^= byte;
        bytes
    };
    let long = [sound, &[0; 20_000]].concat();
    vec![
        ("nothing", Vec::new(), "bytes of header"),
        ("half a header", sound[..16].to_vec(), "bytes of header"),
        ("protobuf's bytes", vec![0x0a; 64], "not a flat message"),
        ("another version", with(4, 1), "version"),
        ("a flag that has no meaning yet", with(6, 1), "flags"),
        ("a fingerprint that lies", with(16, 1), "fingerprint"),
        ("another type", hello.object().bytes().to_vec(), "fingerprint"),
        ("longer than it is", with(9, 1), "object"),
        ("cut off", sound[..sound.len() - 8].to_vec(), "object"),
        ("something behind it", [sound, &[0; 8]].concat(), "behind it"),
        ("much behind it", long, "behind it"),
        ("a root beyond the end", with(14, 1), "object"),
    ]
}

/// A call of the transport with one object; code and message that it ended with.
pub(crate) async fn call(attachment: &Attachment, path: &str, object: Vec<u8>) -> (Code, String) {
    let message = OutgoingMessage::object(Bytes::from(object).into());
    let mut outgoing =
        Outgoing { headers: Some(Bytes::new()), message: Some(message), ending: Some(Ending::HalfClose) };
    let opening = Opening { path, deadline_ns: 0 };
    let mut opener = attachment.open();
    let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing)).await.unwrap();
    loop {
        if !outgoing.is_empty() {
            // A server that refuses a message need not have read it.
            drop(poll_fn(|cx| stream.poll_send(cx, &mut outgoing)).await);
            outgoing = Outgoing::default();
        }
        match poll_fn(|cx| stream.poll_incoming(cx)).await.unwrap().into_part().end {
            Some(End::Trailers { code, block }) => {
                return (Code::from_i32(code.into()), String::from_utf8_lossy(&block).replace("%20", " "));
            }
            Some(end) => panic!("{end:?}"),
            None => {}
        }
    }
}

/// Answers with a body.
struct Honest;

#[tonic::async_trait]
impl Probe for Honest {
    async fn unary(&self, request: Request<Owned<Ask>>) -> Result<Response<Owned<Answer>>, Status> {
        let mut answer = builder::<Answer>();
        // All of it is read, as deep as it goes.
        let seen = format!("{:?}", request.get_ref().object().root());
        answer.edit().set_seen_len(seen.len() as u64).unwrap();
        answer.edit().set_body(request.get_ref().view().body()).unwrap();
        Ok(Response::new(answer.freeze().unwrap()))
    }

    async fn up(&self, request: Request<Streaming<Owned<Ask>>>) -> Result<Response<Owned<Answer>>, Status> {
        let mut asks = request.into_inner();
        let mut count = 0;
        while asks.message().await?.is_some() {
            count += 1;
        }
        let mut answer = builder::<Answer>();
        answer.edit().set_seen_count(count).unwrap();
        Ok(Response::new(answer.freeze().unwrap()))
    }
}

async fn call_honestly(channel: &Channel) {
    let mut ask = builder::<Ask>();
    ask.edit().set_body(b"honest").unwrap();
    let answer = ProbeClient::new(channel.clone()).unary(ask.freeze().unwrap()).await.unwrap();
    assert_eq!(answer.into_inner().view().body(), b"honest");
}

pub(crate) async fn attach(place: &Place) -> Attachment {
    Attachment::connect(&place.address.parse().unwrap(), &Config::default()).await.unwrap()
}

#[tokio::test]
async fn a_client_that_sends_broken_objects_ends_its_own_calls() {
    let place = Place::new(Server::builder().add_service(ProbeServer::new(Honest))).await;
    in_time(async {
        let attachment = attach(&place).await;
        assert_eq!(call(&attachment, UNARY, sound()).await.0, Code::Ok);
        for (what, object, word) in lies(&sound()) {
            let (code, text) = call(&attachment, UNARY, object).await;
            assert!(code == Code::Internal && text.contains(word), "{what}: {code:?}: {text}");
            assert!(text.contains("flat message"), "{what}: {text}");
        }
        assert!(attachment.is_open());
        assert_eq!(call(&attachment, UNARY, sound()).await.0, Code::Ok);
        call_honestly(&place.shm).await;
    })
    .await;
}

#[tokio::test]
async fn any_word_of_an_object_may_lead_anywhere_also_back_to_itself() {
    let place = Place::new(Server::builder().add_service(ProbeServer::new(Honest))).await;
    in_time(async {
        let attachment = attach(&place).await;
        let sound = sound();
        let (mut refused, mut taken) = (0, 0);
        for at in (24..sound.len()).step_by(4) {
            let offsets = (0..=sound.len() as u32).step_by(8);
            for word in offsets.chain([1, 3, u32::MAX, u32::MAX - 7, 1 << 31]) {
                let mut object = sound.clone();
                let end = (at + 4).min(object.len());
                object[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
                match call(&attachment, UNARY, object).await {
                    (Code::Ok, _) => taken += 1,
                    (Code::Internal, text) if text.contains("flat message") => refused += 1,
                    other => panic!("{word:#x} at {at}: {other:?}"),
                }
            }
        }
        // Where an offset may lead to another record of its type, or a number is one, it is as sound as before.
        assert!(refused > 100 && taken > 10, "{refused} refused, {taken} taken");
        assert!(attachment.is_open());
        call_honestly(&place.shm).await;
    })
    .await;
}

/// A service of structs, as any level makes it.
struct Polite;

#[tonic::async_trait]
impl structs::greeter_server::Greeter for Polite {
    async fn hello(
        &self,
        request: Request<structs::HelloRequest>,
    ) -> Result<Response<structs::HelloReply>, Status> {
        Ok(Response::new(structs::HelloReply { text: request.into_inner().name }))
    }
}

#[tonic::async_trait]
impl tollfree_stubs::greeter::greeter_server::Greeter for Polite {
    async fn hello(
        &self,
        request: Request<tollfree_stubs::greeter::HelloRequest>,
    ) -> Result<Response<tollfree_stubs::greeter::HelloReply>, Status> {
        Ok(Response::new(tollfree_stubs::greeter::HelloReply { text: request.into_inner().name }))
    }
}

#[tonic::async_trait]
impl Greeter for Polite {
    async fn hello(&self, _: Request<Owned<HelloRequest>>) -> Result<Response<Owned<HelloReply>>, Status> {
        Ok(Response::new(builder::<HelloReply>().freeze().unwrap()))
    }
}

#[tokio::test]
async fn an_object_where_none_was_asked_for_is_internal() {
    let mut hello = builder::<HelloRequest>();
    hello.edit().set_name("Ada").unwrap();
    let hello = hello.freeze().unwrap().object().bytes().to_vec();
    let level1 =
        Server::builder().add_service(tollfree_stubs::greeter::greeter_server::GreeterServer::new(Polite));
    let level2 = Server::builder().add_service(structs::greeter_server::GreeterServer::new(Polite));
    let streams = Server::builder().add_service(OlderServer::new(InPlace::new()));
    let takes = Server::builder().add_service(GreeterServer::new(Polite));
    in_time(async {
        for (what, server, path, expected) in [
            ("a service of tonic's", level1, HELLO, Code::Internal),
            ("a service of structs", level2, HELLO, Code::Internal),
            ("a method that streams", streams, "/tollfree.probe.v1.Probe/Down", Code::Internal),
            ("a method that takes it", takes, HELLO, Code::Ok),
        ] {
            let place = Place::new(server).await;
            let attachment = attach(&place).await;
            for len in [hello.len(), 100_000] {
                let mut object = hello.clone();
                object.resize(len, 0);
                let (code, text) = call(&attachment, path, object).await;
                let expected = if len == hello.len() { expected } else { Code::Internal };
                assert_eq!(code, expected, "{what}, {len} bytes: {text}");
            }
            assert!(attachment.is_open(), "{what}");
        }
    })
    .await;
}

pub(crate) async fn accept(attachment: &Attachment) -> Result<Call, Closed> {
    let mut place = None;
    poll_fn(|cx| attachment.poll_accept(cx, &mut place)).await?;
    Ok(place.expect("a call is there").into_call(false))
}

/// Says that it takes objects of a method, and answers every call with the next one.
pub(crate) async fn lying_server(mut listener: Listener, fingerprint: u64, objects: Vec<Vec<u8>>) {
    let attachment = listener.accept().await.unwrap();
    let mut next = objects.into_iter();
    let mut said = false;
    while let Ok(call) = accept(&attachment).await {
        if let Some(method) = call.method.filter(|_| !std::mem::replace(&mut said, true)) {
            attachment.take_objects(method, fingerprint);
        }
        let Some(object) = next.next() else { return };
        let mut outgoing = Outgoing {
            headers: Some(Bytes::new()),
            message: Some(OutgoingMessage::object(Bytes::from(object).into())),
            ending: Some(Ending::Trailers { code: 0, block: Bytes::new() }),
        };
        let _ = poll_fn(|cx| call.stream.poll_send(cx, &mut outgoing)).await;
    }
}

#[tokio::test]
async fn a_server_that_answers_with_broken_objects_ends_the_calls_made_to_it() {
    let mut answer = builder::<Answer>();
    answer.edit().set_body(b"sound").unwrap();
    let answer = answer.freeze().unwrap().object().bytes().to_vec();
    let fingerprint = Owned::<Ask>::fingerprint().rotate_left(32) ^ Owned::<Answer>::fingerprint();
    in_time(async {
        let directory = tempfile::tempdir().unwrap();
        for (round, fingerprint) in [fingerprint, !fingerprint].into_iter().enumerate() {
            let uri = format!("shm://{}", directory.path().join(round.to_string()).display());
            let listener = Listener::bind(&uri.parse().unwrap(), Config::default()).unwrap();
            let all = lies(&answer);
            let objects = all.iter().map(|(_, object, _)| object.clone()).chain([answer.clone()]).collect();
            let task = tokio::spawn(lying_server(listener, fingerprint, objects));
            let channel = Channel::connect(&*uri).await.unwrap();
            let mut client = ProbeClient::new(channel.clone());
            for (what, _, word) in &all {
                let refused = client.unary(builder::<Ask>().freeze().unwrap()).await.unwrap_err();
                let is_told = refused.message().contains(word) && refused.message().contains("flat message");
                assert!(refused.code() == Code::Internal && is_told, "{what}: {refused}");
            }
            let sound = client.unary(builder::<Ask>().freeze().unwrap()).await.unwrap().into_inner();
            assert_eq!(sound.view().body(), b"sound");
            let counts = channel.payloads().counts();
            let knew = all.len() as u64;
            // The first call was made before anything was said.
            assert_eq!(
                [counts.sent_objects, counts.other_schema],
                if round == 0 { [knew, 0] } else { [0, knew] }
            );
            drop((client, channel));
            task.await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn an_answer_that_is_an_object_is_internal_to_clients_of_structs() {
    in_time(async {
        let directory = tempfile::tempdir().unwrap();
        let uri = format!("shm://{}", directory.path().join("s").display());
        let listener = Listener::bind(&uri.parse().unwrap(), Config::default()).unwrap();
        let hello = builder::<HelloReply>().freeze().unwrap().object().bytes().to_vec();
        let mut long = hello.clone();
        long.resize(100_000, 0);
        let objects = [&hello, &hello, &long, &long].map(Clone::clone).to_vec();
        let task = tokio::spawn(lying_server(listener, 1, objects));
        let channel = Channel::connect(&*uri).await.unwrap();
        let mut level1 = tollfree_stubs::greeter::greeter_client::GreeterClient::new(channel.clone());
        let mut level2 = structs::greeter_client::GreeterClient::new(channel.clone());
        for _ in 0..2 {
            let refused = level1.hello(tollfree_stubs::greeter::HelloRequest::default()).await.unwrap_err();
            assert_eq!(refused.code(), Code::Internal, "{refused}");
            let refused = level2.hello(structs::HelloRequest::default()).await.unwrap_err();
            assert!(
                refused.code() == Code::Internal && refused.message().contains("flat message"),
                "{refused}"
            );
        }
        drop((level1, level2, channel));
        task.await.unwrap();
    })
    .await;
}
