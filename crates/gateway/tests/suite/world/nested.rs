//! Nested calls: what backends say to each other by way of the gateway travels as objects, that it only copies and
//! verifies.

use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::BoxStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tollfree::{Channel, Payloads, Server};
use tollfree_direct_stubs::later::probe::probe_client::ProbeClient as LaterClient;
use tollfree_direct_stubs::later::probe::probe_server::{Probe as LaterProbe, ProbeServer as LaterServer};
use tollfree_direct_stubs::later::views::tollfree::probe::v1 as later;
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient;
use tollfree_direct_stubs::objects::probe::probe_server::{Probe, ProbeServer};
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::{Answer, Ask};
use tollfree_direct_stubs::probe as structs;
use tollfree_processor::typed::{Builder, Message, MessageMut as _, Owned};
use tollfree_processor::{Arenas, EncodeBuffer, Limits};
use tollfree_stubs::probe as level1;
use tonic::{Code, Request, Response, Status, Streaming};

use super::lab::{Lab, PATIENCE, backend_connections_of};

/// The arenas that objects are built in, in bytes.
const ARENA_LEN_MAX: usize = 8 << 20;
/// In a frame, in several, in a payload area.
const LENS: [usize; 4] = [1, 700, 9_000, 200_000];

pub(crate) fn builder<M: Message>() -> Builder<M> {
    Builder::new(Arenas::new(ARENA_LEN_MAX, 0).take()).unwrap()
}

/// An object that no decoder would make: what stands first in its encoding lies last in it.
pub(crate) fn ask(len: usize) -> Owned<Ask> {
    let mut builder = builder::<Ask>();
    builder.edit().fault_mut().unwrap().set_message("a part of it").unwrap();
    builder.edit().lens_mut().unwrap().extend([3, 4]).unwrap();
    builder.edit().set_body(&vec![len as u8; len]).unwrap();
    builder.freeze().unwrap()
}

/// One that is longer as an object than encoded.
pub(crate) fn numbers(count: usize) -> Owned<Ask> {
    let mut builder = builder::<Ask>();
    builder.edit().lens_mut().unwrap().extend(std::iter::repeat_n(7, count)).unwrap();
    builder.edit().set_body(b"some").unwrap();
    builder.freeze().unwrap()
}

/// One that is never answered.
pub(crate) fn waiting(len: usize) -> Owned<Ask> {
    let mut builder = builder::<Ask>();
    builder.edit().set_wait_ms(1).unwrap();
    builder.edit().set_body(&vec![1; len]).unwrap();
    builder.freeze().unwrap()
}

/// Of an object's very bytes.
fn digest<M: Message>(message: &Owned<M>) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(message.object().bytes());
    hasher.finish()
}

/// Tells the body and the digest of what it gets; never answers where it is told to wait.
#[derive(Clone, Default)]
pub(crate) struct Back {
    live: Arc<AtomicUsize>,
}

struct Presence(Arc<AtomicUsize>);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn told(body: &[u8], digest: u64) -> Owned<Answer> {
    let mut builder = builder::<Answer>();
    builder.edit().headers_mut().unwrap().extend(["told"]).unwrap();
    builder.edit().set_seen_len(digest).unwrap();
    builder.edit().set_body(body).unwrap();
    builder.freeze().unwrap()
}

pub(crate) type Client = ProbeClient<Channel>;
type Answers = BoxStream<'static, Result<Owned<Answer>, Status>>;

#[tonic::async_trait]
impl Probe for Back {
    async fn unary(&self, request: Request<Owned<Ask>>) -> Result<Response<Owned<Answer>>, Status> {
        self.live.fetch_add(1, Ordering::SeqCst);
        let _presence = Presence(self.live.clone());
        let ask = request.get_ref();
        if ask.view().wait_ms() > 0 {
            std::future::pending::<()>().await;
        }
        if ask.view().body().is_empty() {
            return Err(Status::invalid_argument("without a body"));
        }
        Ok(Response::new(told(ask.view().body(), digest(ask))))
    }

    type DownStream = Answers;

    async fn down(&self, request: Request<Owned<Ask>>) -> Result<Response<Answers>, Status> {
        let ask = request.into_inner();
        Ok(Response::new(
            futures_util::stream::iter(0..5).map(move |_| Ok(told(ask.view().body(), digest(&ask)))).boxed(),
        ))
    }

    async fn up(&self, request: Request<Streaming<Owned<Ask>>>) -> Result<Response<Owned<Answer>>, Status> {
        let mut asks = request.into_inner();
        let (mut body, mut digests) = (Vec::new(), 0);
        while let Some(ask) = asks.message().await? {
            body.extend_from_slice(ask.view().body());
            digests ^= digest(&ask);
        }
        Ok(Response::new(told(&body, digests)))
    }

    type BothStream = Answers;

    async fn both(&self, request: Request<Streaming<Owned<Ask>>>) -> Result<Response<Answers>, Status> {
        let asks = request.into_inner();
        Ok(Response::new(asks.map(|ask| ask.map(|ask| told(ask.view().body(), digest(&ask)))).boxed()))
    }
}

/// The same by another version of the schema.
#[tonic::async_trait]
impl LaterProbe for Back {
    async fn unary(
        &self,
        request: Request<Owned<later::Ask>>,
    ) -> Result<Response<Owned<later::Answer>>, Status> {
        let mut builder = builder::<later::Answer>();
        builder.edit().set_body(request.get_ref().view().body()).unwrap();
        Ok(Response::new(builder.freeze().unwrap()))
    }

    async fn up(
        &self,
        _: Request<Streaming<Owned<later::Ask>>>,
    ) -> Result<Response<Owned<later::Answer>>, Status> {
        Err(Status::unimplemented("these tests make unary calls"))
    }
}

/// Has another process answer: all of the request but its body, which is built anew, and all of the answer, are copied in blocks.
struct Front {
    back: Client,
}

#[tonic::async_trait]
impl Probe for Front {
    async fn unary(&self, request: Request<Owned<Ask>>) -> Result<Response<Owned<Answer>>, Status> {
        let request = request.into_inner();
        let mut onward = builder::<Ask>();
        let fault = request.view().fault().ok_or_else(|| Status::invalid_argument("without a part"))?;
        onward.edit().set_fault(fault).unwrap();
        onward.edit().lens_mut().unwrap().extend(request.view().lens().iter()).unwrap();
        onward.edit().set_body(request.view().body()).unwrap();
        let onward = onward.freeze().unwrap();
        let expected = digest(&onward);
        let told = self.back.clone().unary(onward).await?.into_inner();
        let mut answer = builder::<Answer>();
        answer.edit().copy_from(told.view()).unwrap();
        let is_same = told.view().seen_len() == expected;
        answer.edit().set_seen_count(u32::from(is_same)).unwrap();
        Ok(Response::new(answer.freeze().unwrap()))
    }

    type DownStream = Answers;

    async fn down(&self, _: Request<Owned<Ask>>) -> Result<Response<Answers>, Status> {
        Err(Status::unimplemented("it passes on unary calls"))
    }

    async fn up(&self, _: Request<Streaming<Owned<Ask>>>) -> Result<Response<Owned<Answer>>, Status> {
        Err(Status::unimplemented("it passes on unary calls"))
    }

    type BothStream = Answers;

    async fn both(&self, _: Request<Streaming<Owned<Ask>>>) -> Result<Response<Answers>, Status> {
        Err(Status::unimplemented("it passes on unary calls"))
    }
}

/// A process that has attached.
pub(crate) struct Backends {
    pub(crate) payloads: Payloads,
    task: JoinHandle<()>,
}

impl Drop for Backends {
    /// Ends as a process does that dies.
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) async fn attach(lab: &Lab, group: &str, server: Server) -> Backends {
    let before = lab.figure(&backend_connections_of(group)).await;
    let payloads = server.payloads();
    let attaching = server.attach(lab.backends()).group(group).backend_connections(1);
    let task = tokio::spawn(async move { drop(attaching.await) });
    lab.until_figure(&backend_connections_of(group), |count| count > before).await;
    Backends { payloads, task }
}

pub(crate) async fn via(lab: &Lab, group: &str) -> Channel {
    Channel::via(lab.backends(), format!("group:{group}")).await.unwrap()
}

/// Calls until objects go out.
pub(crate) async fn until_objects(client: &mut Client, payloads: &Payloads) {
    let (began, before) = (Instant::now(), payloads.counts().sent_objects);
    while payloads.counts().sent_objects == before {
        client.unary(ask(1)).await.unwrap();
        assert!(began.elapsed() < PATIENCE, "no request goes as an object");
    }
}

#[test]
fn a_decoder_would_not_make_what_the_tests_send() {
    let ask = ask(100);
    let mut buffer = EncodeBuffer::new();
    let bytes = ask.object().encode(&mut buffer).unwrap();
    let decoded =
        Owned::<Ask>::decode(bytes, Arenas::new(ARENA_LEN_MAX, 0).take(), &Limits::default()).unwrap();
    assert!(decoded == ask && digest(&decoded) != digest(&ask));
}

#[tokio::test]
async fn a_caller_s_objects_reach_the_callee_as_they_are_and_its_answers_the_caller() {
    let lab = Lab::start("").await;
    let backends =
        attach(&lab, "default", Server::builder().add_service(ProbeServer::new(Back::default()))).await;
    let channel = via(&lab, "default").await;
    let mut client = ProbeClient::new(channel.clone());
    let payloads = channel.payloads();
    until_objects(&mut client, &payloads).await;
    let counts = || [payloads.counts(), backends.payloads.counts()];
    let [caller, callee] = counts();
    for len in LENS {
        let (ask, body) = (ask(len), vec![len as u8; len]);
        let expected = digest(&ask);
        let answer = client.unary(ask).await.unwrap().into_inner();
        assert_eq!(answer.view().seen_len(), expected, "{len}: the callee has read the very bytes");
        assert_eq!(digest(&answer), digest(&told(&body, expected)), "{len}: and so has the caller");
    }
    let status = client.unary(builder::<Ask>().freeze().unwrap()).await.expect_err("it has no body");
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "without a body"));
    let [caller_now, callee_now] = counts();
    assert_eq!(
        [
            caller_now.sent_objects - caller.sent_objects,
            callee_now.received_objects - callee.received_objects,
            callee_now.sent_objects - callee.sent_objects,
            caller_now.received_objects - caller.received_objects,
        ],
        [5, 5, 4, 4]
    );
}

#[tokio::test]
async fn all_kinds_of_nested_calls_carry_objects() {
    let lab = Lab::start("").await;
    let backends =
        attach(&lab, "default", Server::builder().add_service(ProbeServer::new(Back::default()))).await;
    let channel = via(&lab, "default").await;
    let mut client = ProbeClient::new(channel.clone());
    let bodies = LENS.map(|len| vec![len as u8; len]);
    let digests = LENS.map(|len| digest(&ask(len)));
    let began = Instant::now();
    // Each method says for itself, when the gateway has its tables.
    loop {
        let [caller, callee] = [channel.payloads().counts(), backends.payloads.counts()];
        let mut exact = 0;
        let mut answers = client.down(ask(LENS[2])).await.unwrap().into_inner();
        while let Some(answer) = answers.message().await.unwrap() {
            assert_eq!(answer.view().body(), bodies[2]);
            exact += usize::from(answer.view().seen_len() == digests[2]);
        }
        let asks = || futures_util::stream::iter(LENS.map(ask));
        let answer = client.up(asks()).await.unwrap().into_inner();
        assert!(answer.view().body() == bodies.concat());
        exact += usize::from(answer.view().seen_len() == digests.iter().fold(0, |all, one| all ^ one));
        let mut answers = client.both(asks()).await.unwrap().into_inner();
        for (body, digest) in bodies.iter().zip(digests) {
            let answer = answers.message().await.unwrap().unwrap();
            assert!(answer.view().body() == body);
            exact += usize::from(answer.view().seen_len() == digest);
        }
        assert!(answers.message().await.unwrap().is_none());
        let [caller_now, callee_now] = [channel.payloads().counts(), backends.payloads.counts()];
        let passed = [
            caller_now.sent_objects - caller.sent_objects,
            callee_now.received_objects - callee.received_objects,
            callee_now.sent_objects - callee.sent_objects,
            caller_now.received_objects - caller.received_objects,
        ];
        if (passed, exact) == ([9, 9, 10, 10], 10) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{passed:?}, {exact}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_call_of_the_world_is_decoded_once_however_many_hops_follow() {
    let groups = "[groups.front]\nvia = [\"group:back\"]\n[groups.back]\n\
                  [routes]\n\"tollfree.probe.v1.Probe\" = \"front\"\n";
    let lab = Lab::start(groups).await;
    let back = attach(&lab, "back", Server::builder().add_service(ProbeServer::new(Back::default()))).await;
    let channel = via(&lab, "back").await;
    let passes_on = Front { back: ProbeClient::new(channel.clone()) };
    let front = attach(&lab, "front", Server::builder().add_service(ProbeServer::new(passes_on))).await;
    let mut client = lab.client().await;
    let fault = level1::Fault { message: "a part of it".into(), ..level1::Fault::default() };
    let ask = |len: usize| level1::Ask {
        body: vec![len as u8; len],
        lens: vec![3, 4],
        fault: Some(fault.clone()),
        ..level1::Ask::default()
    };
    let counts = || [&front.payloads, &channel.payloads(), &back.payloads].map(Payloads::counts);
    let began = Instant::now();
    while counts().iter().any(|counts| counts.received_objects == 0) {
        client.unary(ask(1)).await.unwrap();
        assert!(began.elapsed() < PATIENCE, "no nested call carries objects");
    }
    let before = counts();
    for len in LENS {
        let answer = client.unary(ask(len)).await.unwrap().into_inner();
        assert!(answer.body == vec![len as u8; len], "{len}");
        assert_eq!((answer.seen_count, &*answer.headers), (1, &["told".to_owned()][..]), "{len}");
    }
    for (now, before) in counts().iter().zip(before) {
        let passed = [now.received_objects - before.received_objects, now.sent_objects - before.sent_objects];
        assert_eq!(passed, [4, 4]);
    }
}

/// Answers at the lower levels: the body that came.
pub(crate) struct Plain;

macro_rules! plain {
    ($stubs:ident) => {
        #[tonic::async_trait]
        impl $stubs::probe_server::Probe for Plain {
            async fn unary(&self, request: Request<$stubs::Ask>) -> Result<Response<$stubs::Answer>, Status> {
                let body = request.into_inner().body;
                Ok(Response::new($stubs::Answer { body, ..Default::default() }))
            }

            type DownStream = BoxStream<'static, Result<$stubs::Answer, Status>>;

            async fn down(
                &self,
                request: Request<$stubs::Ask>,
            ) -> Result<Response<Self::DownStream>, Status> {
                let body = request.into_inner().body;
                let answer = move |_| Ok($stubs::Answer { body: body.clone(), ..Default::default() });
                Ok(Response::new(futures_util::stream::iter(0..5).map(answer).boxed()))
            }

            async fn up(
                &self,
                request: Request<Streaming<$stubs::Ask>>,
            ) -> Result<Response<$stubs::Answer>, Status> {
                let (mut asks, mut body) = (request.into_inner(), Vec::new());
                while let Some(ask) = asks.message().await? {
                    body.extend(ask.body);
                }
                Ok(Response::new($stubs::Answer { body, ..Default::default() }))
            }

            type BothStream = BoxStream<'static, Result<$stubs::Answer, Status>>;

            async fn both(
                &self,
                request: Request<Streaming<$stubs::Ask>>,
            ) -> Result<Response<Self::BothStream>, Status> {
                let answer = |ask: Result<$stubs::Ask, Status>| {
                    ask.map(|ask| $stubs::Answer { body: ask.body, ..Default::default() })
                };
                Ok(Response::new(request.into_inner().map(answer).boxed()))
            }
        }
    };
}

plain!(level1);
plain!(structs);

/// All kinds of calls by a client that takes objects: the answers are right, whichever backend connection gives them.
async fn exercise(client: &mut Client) {
    for len in LENS {
        let answer = client.unary(ask(len)).await.unwrap().into_inner();
        assert!(answer.view().body() == vec![len as u8; len], "{len}");
    }
    let bodies = LENS.map(|len| vec![len as u8; len]);
    let mut answers = client.down(ask(LENS[1])).await.unwrap().into_inner();
    for _ in 0..5 {
        assert!(answers.message().await.unwrap().unwrap().view().body() == bodies[1]);
    }
    assert!(answers.message().await.unwrap().is_none());
    let asks = || futures_util::stream::iter(LENS.map(ask));
    assert!(client.up(asks()).await.unwrap().into_inner().view().body() == bodies.concat());
    let mut answers = client.both(asks()).await.unwrap().into_inner();
    for body in &bodies {
        assert!(answers.message().await.unwrap().unwrap().view().body() == body);
    }
    assert!(answers.message().await.unwrap().is_none());
}

/// Until all of its messages are objects.
pub(crate) async fn until_all_are_objects(client: &mut Client, channel: &Channel) {
    let began = Instant::now();
    loop {
        let before = channel.payloads().counts().sent_objects;
        exercise(client).await;
        if channel.payloads().counts().sent_objects - before == 4 + 1 + 4 + 4 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "not all methods carry objects");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_of_all_levels_run_side_by_side_behind_one_gateway() {
    let lab = Lab::start("load_balancing.policy = \"round_robin\"\n").await;
    let objects = ProbeServer::new(Back::default());
    let level3 = attach(&lab, "default", Server::builder().add_service(objects)).await;
    let level2 = structs::probe_server::ProbeServer::new(Plain);
    let _level2 = attach(&lab, "default", Server::builder().add_service(level2)).await;
    let level1 = level1::probe_server::ProbeServer::new(Plain);
    let _level1 = attach(&lab, "default", Server::builder().add_service(level1)).await;
    let later = LaterServer::new(Back::default());
    let other = attach(&lab, "default", Server::builder().add_service(later)).await;
    let (channel, began) = (via(&lab, "default").await, Instant::now());
    let mut client = ProbeClient::new(channel.clone());
    // Which of the two schemas the session takes depends on which turns up first.
    let is_settled = || {
        let counts = channel.payloads().counts();
        counts.sent_objects + counts.other_schema > 20
    };
    while !is_settled() {
        client.unary(ask(1)).await.unwrap();
        assert!(began.elapsed() < PATIENCE, "{:?}", channel.payloads());
    }
    let mut world = lab.client().await;
    for _ in 0..4 {
        for _ in 0..4 {
            let of_the_world = level1::Ask { body: vec![5; 5000], ..level1::Ask::default() };
            assert_eq!(world.unary(of_the_world).await.unwrap().into_inner().body, [5; 5000]);
            let answer = client.unary(ask(LENS[2])).await.unwrap().into_inner();
            assert!(answer.view().body() == vec![LENS[2] as u8; LENS[2]]);
            let mut newer = builder::<later::Ask>();
            newer.edit().set_added("later").unwrap();
            newer.edit().set_body(&[9; 3000]).unwrap();
            let answer = LaterClient::new(channel.clone()).unary(newer.freeze().unwrap()).await.unwrap();
            assert_eq!(answer.into_inner().view().body(), [9; 3000]);
        }
    }
    for backends in [&level3, &other] {
        assert!(backends.payloads.counts().received_objects > 0, "{:?}", backends.payloads);
    }
}

#[tokio::test]
async fn a_backend_connection_that_takes_no_objects_gets_bytes_of_the_same_call() {
    let lab = Lab::start("load_balancing.policy = \"round_robin\"\n").await;
    let level3 =
        attach(&lab, "default", Server::builder().add_service(ProbeServer::new(Back::default()))).await;
    let channel = via(&lab, "default").await;
    let mut client = ProbeClient::new(channel.clone());
    until_all_are_objects(&mut client, &channel).await;
    for server in [
        Server::builder().add_service(structs::probe_server::ProbeServer::new(Plain)),
        Server::builder().add_service(level1::probe_server::ProbeServer::new(Plain)),
    ] {
        let plain = attach(&lab, "default", server).await;
        let (before, received) = (channel.payloads().counts(), level3.payloads.counts().received_objects);
        // Each call goes to the other backend connection than the one before.
        for _ in 0..4 {
            exercise(&mut client).await;
        }
        let after = channel.payloads().counts();
        assert_eq!(after.sent_objects - before.sent_objects, 4 * 13, "the caller notices nothing");
        let share = level3.payloads.counts().received_objects - received;
        assert!((1..4 * 13).contains(&share), "{share} of them came as objects");
        drop(plain);
        lab.until_figure(&backend_connections_of("default"), |count| count == 1.0).await;
    }
}

#[tokio::test]
async fn ends_of_different_schemas_talk_in_bytes() {
    let lab = Lab::start("[groups.old]\n[groups.new]\nvia = [\"group:old\"]\n").await;
    let old = attach(&lab, "old", Server::builder().add_service(ProbeServer::new(Back::default()))).await;
    let channel = via(&lab, "old").await;
    let (began, mut client) = (Instant::now(), LaterClient::new(channel.clone()));
    while channel.payloads().counts().other_schema < 5 {
        let mut ask = builder::<later::Ask>();
        ask.edit().set_added("later").unwrap();
        ask.edit().set_body(b"by another schema").unwrap();
        let answer = client.unary(ask.freeze().unwrap()).await.unwrap().into_inner();
        assert_eq!(answer.view().body(), b"by another schema");
        assert!(began.elapsed() < PATIENCE, "{:?}", channel.payloads());
    }
    assert_eq!(channel.payloads().counts().sent_objects, 0);
    assert!(old.payloads.counts().received_objects > 0, "the gateway decodes for it");
    assert!(channel.path().to_string().contains("Probe/Unary"), "{}", channel.path());
}

#[tokio::test]
async fn without_objects_in_the_config_nested_calls_carry_bytes() {
    let lab = Lab::start("backends.objects = false\n").await;
    let backends =
        attach(&lab, "default", Server::builder().add_service(ProbeServer::new(Back::default()))).await;
    let channel = via(&lab, "default").await;
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..30 {
        client.unary(ask(10)).await.unwrap();
    }
    assert_eq!(
        [channel.payloads().counts().sent_objects, backends.payloads.counts().received_objects],
        [0; 2]
    );
}

#[tokio::test]
async fn a_callee_that_dies_in_mid_call_is_unavailable_and_another_answers_the_next() {
    let lab = Lab::start("").await;
    let doomed = Back::default();
    let backends =
        attach(&lab, "default", Server::builder().add_service(ProbeServer::new(doomed.clone()))).await;
    let channel = via(&lab, "default").await;
    let mut client = ProbeClient::new(channel.clone());
    until_objects(&mut client, &channel.payloads()).await;
    let waiting = |mut client: Client| async move {
        let mut ask = builder::<Ask>();
        ask.edit().set_wait_ms(1).unwrap();
        client.unary(ask.freeze().unwrap()).await
    };
    let calls: Vec<_> = (0..3).map(|_| tokio::spawn(waiting(client.clone()))).collect();
    until(|| doomed.live.load(Ordering::SeqCst) == 3).await;
    drop(backends);
    for call in join_all(calls).await {
        let status = call.unwrap().expect_err("nobody is left to answer");
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    }
    lab.until_figure(&backend_connections_of("default"), |count| count == 0.0).await;
    let next =
        attach(&lab, "default", Server::builder().add_service(ProbeServer::new(Back::default()))).await;
    let began = Instant::now();
    while next.payloads.counts().received_objects == 0 {
        let answer = client.unary(ask(700)).await.unwrap().into_inner();
        assert!(answer.view().body() == vec![700_usize as u8; 700]);
        assert!(began.elapsed() < PATIENCE, "{:?}", next.payloads);
    }
}

#[tokio::test]
async fn a_caller_that_dies_takes_its_calls_with_it_and_no_others() {
    let lab = Lab::start("").await;
    let back = Back::default();
    let _backends =
        attach(&lab, "default", Server::builder().add_service(ProbeServer::new(back.clone()))).await;
    let (steady, doomed) = (via(&lab, "default").await, via(&lab, "default").await);
    let mut steady = (ProbeClient::new(steady.clone()), steady.payloads());
    until_objects(&mut steady.0, &steady.1).await;
    let mut client = ProbeClient::new(doomed.clone());
    until_objects(&mut client, &doomed.payloads()).await;
    let call = tokio::spawn(async move {
        let mut ask = builder::<Ask>();
        ask.edit().set_wait_ms(1).unwrap();
        drop(client.unary(ask.freeze().unwrap()).await);
    });
    until(|| back.live.load(Ordering::SeqCst) == 1).await;
    call.abort();
    drop(doomed);
    until(|| back.live.load(Ordering::SeqCst) == 0).await;
    let answer = steady.0.unary(ask(9_000)).await.unwrap().into_inner();
    assert_eq!(answer.view().seen_len(), digest(&ask(9_000)));
}

async fn until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE);
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}
