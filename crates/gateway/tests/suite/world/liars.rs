//! Backends that lie about their objects: their own calls end in words or go as bytes, and nobody else notices.

use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::Bytes;
use prost::Message as _;
use tokio::task::JoinHandle;
use tollfree::Server;
use tollfree::direct::{Direct, Objects, Run, Types};
use tollfree_direct_stubs::later::probe::probe_server::{Probe as Later, ProbeServer as LaterServer};
use tollfree_direct_stubs::later::views::tollfree::probe::v1 as later;
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer;
use tollfree_direct_stubs::objects::views::tollfree::greeter::v1::{HelloReply, HelloRequest};
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::{Answer, Ask};
use tollfree_driver_tokio::{Attachment, Config, Ending, Incoming, Outgoing, OutgoingMessage, Registration};
use tollfree_processor::Arenas;
use tollfree_processor::typed::{Builder, Compiled, Message, Owned};
use tollfree_stubs::probe as structs;
use tonic::body::Body;
use tonic::{Code, Request, Response, Status, Streaming};
use tower_service::Service;

use super::lab::{Lab, PATIENCE, PROBE, backend_connections_of};
use super::objects::{objects, until_objects};
use super::taker::Taker;

pub(crate) const DESCRIBE: &str = "/tollfree.Objects/Describe";
/// What stands before a description's tables.
const HEAD_LEN: usize = 16;

/// What a process says of the types of its methods.
pub(crate) fn description<M1: Message, M2: Message>() -> Vec<u8> {
    let table = M1::Compiled::BLOB;
    let len = table.len() as u32;
    // The last of them: no encodings.
    let mut bytes = [M1::TYPE_IDX, M2::TYPE_IDX, len, 0].map(u32::to_le_bytes).concat();
    bytes.extend_from_slice(table);
    bytes
}

/// The fingerprint by which a session says so.
pub(crate) fn types<M1: Message, M2: Message>() -> u64 {
    Owned::<M1>::fingerprint().rotate_left(32) ^ Owned::<M2>::fingerprint()
}

/// A liar in the default group, which has no other backend connection.
async fn lie(lab: &Lab, types: u64, description: Option<Vec<u8>>, answers: Vec<Vec<u8>>) -> JoinHandle<()> {
    let task = lie_in(lab, "default", types, description, answers).await;
    lab.until_figure(&backend_connections_of("default"), |count| count == 1.0).await;
    task
}

/// A backend connection of a group that speaks the session's protocol by itself: it says of which types it takes objects, describes them by any
/// bytes (or never), and answers each object with the next one of its own. Bytes it answers with bytes.
pub(crate) async fn lie_in(
    lab: &Lab,
    group: &str,
    types: u64,
    description: Option<Vec<u8>>,
    answers: Vec<Vec<u8>>,
) -> JoinHandle<()> {
    let registration = Registration::new(group, vec![PROBE.to_owned()]).unwrap();
    let address = lab.backends().parse().unwrap();
    let attachment = Attachment::attach(&address, &Config::default(), registration).await.unwrap();
    tokio::spawn(async move {
        let (mut kept, mut answers, mut said) = (Vec::new(), answers.into_iter().cycle(), false);
        loop {
            let mut place = None;
            if poll_fn(|cx| attachment.poll_accept(cx, &mut place)).await.is_err() {
                return;
            }
            let call = place.unwrap().into_call(true);
            let message = if call.path == DESCRIBE {
                match &description {
                    Some(bytes) => OutgoingMessage::new(bytes.clone().into(), false),
                    None => {
                        kept.push(call);
                        continue;
                    }
                }
            } else {
                if let Some(method) = call.method.filter(|_| !std::mem::replace(&mut said, true)) {
                    attachment.take_objects(method, types);
                }
                let is_object = call.first.as_ref().is_some_and(Incoming::has_object);
                match answers.next().filter(|_| is_object) {
                    Some(object) => OutgoingMessage::object(Bytes::from(object).into()),
                    None => {
                        let answer = structs::Answer { body: b"bytes".to_vec(), ..Default::default() };
                        OutgoingMessage::new(answer.encode_to_vec().into(), false)
                    }
                }
            };
            let mut outgoing = Outgoing {
                headers: Some(Bytes::new()),
                message: Some(message),
                ending: Some(Ending::Trailers { code: 0, block: Bytes::new() }),
            };
            // The one who asked may have had enough.
            drop(poll_fn(|cx| call.stream.poll_send(cx, &mut outgoing)).await);
        }
    })
}

/// Such a backend connection goes.
async fn leave(lab: &Lab, liar: JoinHandle<()>) {
    liar.abort();
    lab.until_figure(&backend_connections_of("default"), |count| count == 0.0).await;
}

fn ask() -> structs::Ask {
    structs::Ask { body: b"ask".to_vec(), ..Default::default() }
}

/// Descriptions that are none, and bombs: words that promise millions of types and fields, and more bytes than are read.
fn bad_descriptions() -> Vec<(String, Vec<u8>)> {
    let sound = description::<Ask, Answer>();
    let head = sound[..HEAD_LEN].to_vec();
    let with = |at: usize, byte: u8| {
        let mut bytes = sound.clone();
        bytes[at] = byte;
        bytes
    };
    let mut bad = vec![
        ("nothing".to_owned(), Vec::new()),
        ("half a head".to_owned(), head[..6].to_vec()),
        ("no table".to_owned(), head.clone()),
        ("a head without encodings".to_owned(), head[..12].to_vec()),
        ("a head that breaks off in its last byte".to_owned(), head[..HEAD_LEN - 1].to_vec()),
        ("requests in an encoding that does not exist".to_owned(), with(12, 4)),
        ("answers in an encoding that does not exist".to_owned(), with(13, 0x80)),
        ("something where zeros are to stand".to_owned(), with(15, 1)),
        (
            "half a table".to_owned(),
            [&head[..8], &100_u32.to_le_bytes(), &[0; 4], &sound[HEAD_LEN..HEAD_LEN + 100]].concat(),
        ),
        ("zeros".to_owned(), [&[0; 8][..], &4096_u32.to_le_bytes(), &[0; 4], &[0; 4096]].concat()),
        ("a type that is not there".to_owned(), [&[0xff; 4], &sound[4..]].concat()),
        ("other types".to_owned(), description::<HelloRequest, HelloReply>()),
        ("too much".to_owned(), [&sound[..], &vec![0; 5 << 20]].concat()),
    ];
    // Each word of the table's head, as large as it can be: what it counts or where it leads.
    for at in (HEAD_LEN..HEAD_LEN + 64).step_by(4) {
        let mut bytes = sound.clone();
        bytes[at..at + 4].fill(0xff);
        bad.push((format!("a huge word at {at}"), bytes));
    }
    bad
}

#[tokio::test]
async fn a_description_that_is_none_or_a_bomb_leaves_calls_with_bytes() {
    let lab = Lab::start("").await;
    let mut client = lab.client().await;
    let useless = objects("default", "request", "no_tables");
    for (what, description) in bad_descriptions() {
        let before = lab.figure(&useless).await;
        let liar = lie(&lab, types::<Ask, Answer>(), Some(description), Vec::new()).await;
        let began = tokio::time::Instant::now();
        loop {
            let answer = client.unary(ask()).await.unwrap_or_else(|status| panic!("{what}: {status}"));
            assert_eq!(answer.get_ref().body, b"bytes", "{what}");
            if lab.figure(&useless).await > before {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: was taken for sound");
        }
        leave(&lab, liar).await;
    }
    assert_eq!(lab.figure(&objects("default", "request", "object")).await, 0.0);
}

#[tokio::test]
async fn calls_whose_tables_are_of_no_use_are_refused_where_the_config_says_so() {
    let lab = Lab::start("backends.on_unconvertible = \"refuse\"\n").await;
    let mut client = lab.client().await;
    let liar = lie(&lab, types::<Ask, Answer>(), Some(vec![7; 100]), Vec::new()).await;
    let began = tokio::time::Instant::now();
    let refused = loop {
        match client.unary(ask()).await {
            // While nobody knows yet.
            Ok(answer) => assert_eq!(answer.get_ref().body, b"bytes"),
            Err(status) => break status,
        }
        assert!(began.elapsed() < PATIENCE, "nothing was refused");
    };
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("no tables"), "{refused}");
    assert!(lab.figure(&objects("default", "request", "no_tables")).await >= 1.0);
    leave(&lab, liar).await;
}

/// The wait is bounded, and no call waits.
#[tokio::test]
async fn a_description_that_never_comes_leaves_calls_with_bytes() {
    let lab = Lab::start("").await;
    let mut client = lab.client().await;
    let liar = lie(&lab, types::<Ask, Answer>(), None, Vec::new()).await;
    for _ in 0..10 {
        assert_eq!(client.unary(ask()).await.unwrap().get_ref().body, b"bytes");
    }
    assert_eq!(lab.figure(&objects("default", "request", "asked")).await, 9.0);
    let began = tokio::time::Instant::now();
    while lab.figure(&objects("default", "request", "no_tables")).await == 0.0 {
        client.unary(ask()).await.unwrap();
        assert!(began.elapsed() < PATIENCE, "it is waited for without end");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    leave(&lab, liar).await;
}

/// What a process answers with is verified in memory of the gateway's own, whatever its tables say.
#[tokio::test]
async fn an_answer_that_is_no_sound_object_is_internal_and_ends_that_call_only() {
    let lab = Lab::start("").await;
    let mut client = lab.client().await;
    let mut builder = Builder::<Answer>::new(Arenas::new(1 << 20, 0).take()).unwrap();
    builder.edit().set_body(b"sound").unwrap();
    let sound = builder.freeze().unwrap().object().bytes().to_vec();
    let with = |at: usize, byte: u8| {
        let mut bytes = sound.clone();
        bytes[at] ^= byte;
        bytes
    };
    let hello = Builder::<HelloReply>::new(Arenas::new(1 << 20, 0).take()).unwrap().freeze().unwrap();
    let mut answers = vec![
        Vec::new(),
        sound[..sound.len() - 8].to_vec(),
        [&sound[..], &[0; 8]].concat(),
        with(4, 1),
        with(9, 1),
        with(14, 1),
        with(16, 1),
        hello.object().bytes().to_vec(),
    ];
    // Every word of it leads nowhere.
    answers.extend((24..sound.len()).step_by(4).map(|at| with(at + 3, 0x7f)));
    let lies = answers.len() as f64;
    answers.push(sound);
    let liar = lie(&lab, types::<Ask, Answer>(), Some(description::<Ask, Answer>()), answers).await;
    let unsound = objects("default", "answer", "unsound");
    let (mut refused, mut taken) = (0.0, 0);
    let began = tokio::time::Instant::now();
    while taken == 0 || refused < 8.0 {
        match client.unary(ask()).await {
            Ok(answer) if answer.get_ref().body == b"sound" => taken += 1,
            Ok(_) => {}
            Err(status) => {
                assert_eq!(status.code(), Code::Internal, "{status}");
                assert!(status.message().contains("flat message"), "{status}");
                refused += 1.0;
            }
        }
        assert!(began.elapsed() < PATIENCE, "{refused} of {lies} refused, {taken} taken");
    }
    assert_eq!(lab.figure(&unsound).await, refused);
    assert!(!liar.is_finished(), "the session goes on");
    leave(&lab, liar).await;
}

/// A service that takes messages of one type, and says that they are of another.
#[derive(Clone)]
struct Liar(ProbeServer<Taker>);

impl Service<http::Request<Body>> for Liar {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = <ProbeServer<Taker> as Service<http::Request<Body>>>::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        tollfree::direct::register(self);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.0.call(request)
    }
}

impl tonic::server::NamedService for Liar {
    const NAME: &'static str = PROBE;
}

impl Direct for Liar {
    fn method(&self, name: &str) -> Option<Box<dyn Run>> {
        self.0.method(name)
    }

    fn types(&self, _: &str) -> Option<Types> {
        tollfree::direct::types::<_, Owned<HelloRequest>, Owned<HelloReply>>(Objects)
    }

    fn max_decoding_message_size(&self) -> Option<usize> {
        Direct::max_decoding_message_size(&self.0)
    }

    fn wrapper(&self) -> Option<std::any::TypeId> {
        self.0.wrapper()
    }
}

/// The table is sound, and so are the objects that are made by it; the handler's side sees that they are of another type.
#[tokio::test]
async fn a_table_that_lies_gives_errors_and_never_a_wrong_answer() {
    let lab = Lab::start("").await;
    let server = Server::builder().add_service(Liar(ProbeServer::new(Taker)));
    let payloads = server.payloads();
    let attaching = server.attach(lab.backends()).group("default").backend_connections(1);
    let task = tokio::spawn(async move { drop(attaching.await) });
    lab.until_figure(&backend_connections_of("default"), |count| count == 1.0).await;
    let mut client = lab.client().await;
    let began = tokio::time::Instant::now();
    let (mut failed, mut answered) = (0, 0);
    while failed < 5 {
        match client.unary(ask()).await {
            Ok(answer) => {
                assert_eq!(answer.get_ref().body, b"ask");
                answered += 1;
            }
            Err(status) => {
                assert_eq!(status.code(), Code::Internal, "{status}");
                assert!(status.message().contains("fingerprint"), "{status}");
                failed += 1;
            }
        }
        assert!(began.elapsed() < PATIENCE, "no object came: {answered} were answered, {payloads:?}");
    }
    assert!(answered >= 1, "the first call goes as bytes");
    assert!(lab.figure(&objects("default", "request", "object")).await >= 5.0);
    task.abort();
}

/// A handler of the later schema, which has a field more.
struct Nested;

#[tonic::async_trait]
impl Later for Nested {
    async fn unary(&self, _: Request<Owned<later::Ask>>) -> Result<Response<Owned<later::Answer>>, Status> {
        Err(Status::internal("this method is the other group's"))
    }

    async fn up(
        &self,
        request: Request<Streaming<Owned<later::Ask>>>,
    ) -> Result<Response<Owned<later::Answer>>, Status> {
        let mut asks = request.into_inner();
        let mut count = 0;
        while let Some(ask) = asks.message().await? {
            assert_eq!(ask.view().body(), b"ask");
            count += 1;
        }
        let mut answer = Builder::<later::Answer>::new(Arenas::new(1 << 20, 0).take()).unwrap();
        answer.edit().set_seen_count(count).unwrap();
        Ok(Response::new(answer.freeze().unwrap()))
    }
}

#[tokio::test]
async fn two_groups_have_the_same_type_names_and_other_tables() {
    assert_ne!(Owned::<Ask>::fingerprint(), Owned::<later::Ask>::fingerprint());
    let routes = "[groups.older]\n[groups.later]\n[routes]\n\"tollfree.probe.v1.Probe/Unary\" = \"older\"\n\
                  \"tollfree.probe.v1.Probe/Up\" = \"later\"\n";
    let lab = Lab::start(routes).await;
    let older = Server::builder().add_service(ProbeServer::new(Taker));
    let payloads = older.payloads();
    let servers = [("older", older), ("later", Server::builder().add_service(LaterServer::new(Nested)))];
    for (group, server) in servers {
        let attaching = server.attach(lab.backends()).group(group).backend_connections(1);
        tokio::spawn_for_test(async move { drop(attaching.await) });
        lab.until_figure(&backend_connections_of(group), |count| count == 1.0).await;
    }
    let mut client = lab.client().await;
    until_objects(&mut client, &payloads).await;
    let began = tokio::time::Instant::now();
    while lab.figure(&objects("later", "request", "object")).await == 0.0 {
        let answer = client.up(tokio_stream::iter([ask(), ask()])).await.unwrap();
        assert_eq!(answer.get_ref().seen_count, 2);
        assert!(began.elapsed() < PATIENCE, "no object came");
    }
    assert_eq!(client.unary(ask()).await.unwrap().get_ref().body, b"ask");
    for group in ["older", "later"] {
        assert_eq!(lab.figure(&objects(group, "answer", "unsound")).await, 0.0);
        assert!(lab.figure(&objects(group, "answer", "object")).await >= 1.0);
    }
}
