//! The same as in `hostile`, in streams.

use std::future::poll_fn;

use bytes::Bytes;
use tokio_stream::StreamExt;
use tollfree::{Channel, Server};
use tollfree_direct_stubs::objects::probe::probe_client::ProbeClient;
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer;
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::{Answer, Ask};
use tollfree_direct_stubs::probe as structs;
use tollfree_driver_tokio::{
    Config, End, Listener, OBJECT_PREFIX, Opening, Outgoing, OutgoingMessage, Stream,
};
use tollfree_processor::Arenas;
use tollfree_processor::typed::{Builder, Owned};
use tollfree_stubs::probe as level1;
use tonic::{Code, Request, Response, Status, Streaming};

use super::hostile::{attach, call, lies, lying_server};
use super::levels::{ask, by_level3};
use super::place::{InPlace, Place, in_time};

const DOWN: &str = "/tollfree.probe.v1.Probe/Down";
const UP: &str = "/tollfree.probe.v1.Probe/Up";
const BOTH: &str = "/tollfree.probe.v1.Probe/Both";

fn sound() -> Vec<u8> {
    ask(b"sound", &[3]).object().bytes().to_vec()
}

#[tokio::test]
async fn a_client_that_streams_broken_objects_ends_its_own_calls() {
    let place = Place::new(Server::builder().add_service(ProbeServer::new(InPlace::new()))).await;
    in_time(async {
        let attachment = attach(&place).await;
        for path in [DOWN, UP, BOTH] {
            assert_eq!(call(&attachment, path, sound()).await.0, Code::Ok, "{path}");
            for (what, object, word) in lies(&sound()) {
                let (code, text) = call(&attachment, path, object).await;
                assert!(code == Code::Internal && text.contains(word), "{path}, {what}: {code:?}: {text}");
                assert!(text.contains("flat message"), "{path}, {what}: {text}");
            }
            // It is not gathered to find that out.
            let (code, text) = call(&attachment, path, vec![0; 5 << 20]).await;
            assert!(code == Code::OutOfRange && text.contains("found 5242880 bytes"), "{path}: {text}");
            assert_eq!(call(&attachment, path, sound()).await.0, Code::Ok, "{path}");
        }
        assert!(attachment.is_open());
        by_level3(place.shm.clone()).await;
    })
    .await;
}

/// Sends one more message of a call, as an object or not.
async fn send(stream: &Stream, bytes: Vec<u8>, is_object: bool) {
    let bytes = Bytes::from(bytes);
    let message =
        if is_object { OutgoingMessage::object(bytes.into()) } else { OutgoingMessage::new(bytes, false) };
    let mut outgoing = Outgoing { message: Some(message), ..Outgoing::default() };
    poll_fn(|cx| stream.poll_send(cx, &mut outgoing)).await.unwrap();
}

/// What comes next of an answer: the first byte of a message's prefix, or the call's code.
async fn next(stream: &Stream) -> Result<u8, Code> {
    loop {
        let part = poll_fn(|cx| stream.poll_incoming(cx)).await.unwrap().into_part();
        if let Some(chunk) = part.chunk.filter(|chunk| chunk.first) {
            return Ok(chunk.bytes[0]);
        }
        match part.end {
            Some(End::Trailers { code, .. }) => return Err(Code::from_i32(code.into())),
            Some(end) => panic!("{end:?}"),
            None => {}
        }
    }
}

#[tokio::test]
async fn objects_and_bytes_may_follow_each_other_until_an_object_is_broken() {
    let place = Place::new(Server::builder().add_service(ProbeServer::new(InPlace::new()))).await;
    in_time(async {
        let attachment = attach(&place).await;
        let mut opener = attachment.open();
        let mut outgoing = Outgoing { headers: Some(Bytes::new()), ..Outgoing::default() };
        let opening = Opening { path: BOTH, deadline_ns: 0 };
        let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing)).await.unwrap();
        send(&stream, Vec::new(), false).await;
        assert_eq!(next(&stream).await, Ok(0), "nothing says that the client takes objects");
        send(&stream, sound(), true).await;
        assert_eq!(next(&stream).await, Ok(OBJECT_PREFIX));
        send(&stream, Vec::new(), false).await;
        assert_eq!(next(&stream).await, Ok(OBJECT_PREFIX), "it has sent one");
        send(&stream, sound(), true).await;
        assert_eq!(next(&stream).await, Ok(OBJECT_PREFIX));
        let mut broken = sound();
        broken.truncate(broken.len() - 8);
        send(&stream, broken, true).await;
        assert_eq!(next(&stream).await, Err(Code::Internal));
        assert!(attachment.is_open());
    })
    .await;
}

/// A service of structs, as either level makes it; it reads what comes.
pub(crate) struct Reader;

type Empty<T> = tokio_stream::Empty<Result<T, Status>>;

macro_rules! reader {
    ($stubs:ident) => {
        #[tonic::async_trait]
        impl $stubs::probe_server::Probe for Reader {
            async fn unary(&self, _: Request<$stubs::Ask>) -> Result<Response<$stubs::Answer>, Status> {
                Ok(Response::new($stubs::Answer::default()))
            }

            type DownStream = Empty<$stubs::Answer>;

            async fn down(&self, _: Request<$stubs::Ask>) -> Result<Response<Self::DownStream>, Status> {
                Ok(Response::new(tokio_stream::empty()))
            }

            async fn up(
                &self,
                request: Request<Streaming<$stubs::Ask>>,
            ) -> Result<Response<$stubs::Answer>, Status> {
                let mut asks = request.into_inner();
                while asks.message().await?.is_some() {}
                Ok(Response::new($stubs::Answer::default()))
            }

            type BothStream =
                std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<$stubs::Answer, Status>> + Send>>;

            async fn both(
                &self,
                request: Request<Streaming<$stubs::Ask>>,
            ) -> Result<Response<Self::BothStream>, Status> {
                let answers = request.into_inner().map(|ask| ask.map(|_| $stubs::Answer::default()));
                Ok(Response::new(Box::pin(answers)))
            }
        }
    };
}

reader!(level1);
reader!(structs);

#[tokio::test]
async fn an_object_in_a_stream_of_structs_is_internal() {
    let tonics = Server::builder().add_service(level1::probe_server::ProbeServer::new(Reader));
    let ours = Server::builder().add_service(structs::probe_server::ProbeServer::new(Reader));
    in_time(async {
        for server in [tonics, ours] {
            let place = Place::new(server).await;
            let attachment = attach(&place).await;
            for path in [DOWN, UP, BOTH] {
                for len in [sound().len(), 100_000] {
                    let mut object = sound();
                    object.resize(len, 0);
                    let (code, text) = call(&attachment, path, object).await;
                    assert_eq!(code, Code::Internal, "{path}, {len} bytes: {text}");
                }
            }
            assert!(attachment.is_open());
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_streams_broken_objects_ends_the_calls_made_to_it() {
    let mut answer = Builder::<Answer>::new(Arenas::new(1 << 24, 0).take()).unwrap();
    answer.edit().set_body(b"sound").unwrap();
    let answer = answer.freeze().unwrap().object().bytes().to_vec();
    let fingerprint = Owned::<Ask>::fingerprint().rotate_left(32) ^ Owned::<Answer>::fingerprint();
    in_time(async {
        let directory = tempfile::tempdir().unwrap();
        let uri = format!("shm://{}", directory.path().join("s").display());
        let listener = Listener::bind(&uri.parse().unwrap(), Config::default()).unwrap();
        let all = lies(&answer);
        let broken = || all.iter().map(|(_, object, _)| object.clone());
        let objects =
            broken().chain([answer.clone()]).chain(broken()).chain([answer.clone(), answer.clone()]);
        let task = tokio::spawn(lying_server(listener, fingerprint, objects.collect()));
        let channel = Channel::connect(&*uri).await.unwrap();
        let mut client = ProbeClient::new(channel.clone());
        let is_told = |status: &Status, what: &str, word: &str| {
            assert!(status.code() == Code::Internal && status.message().contains(word), "{what}: {status}");
            assert!(status.message().contains("flat message"), "{what}: {status}");
        };
        for (what, _, word) in &all {
            let mut answers = client.down(ask(b"", &[])).await.unwrap().into_inner();
            is_told(&answers.message().await.unwrap_err(), what, word);
        }
        let mut answers = client.down(ask(b"", &[])).await.unwrap().into_inner();
        assert_eq!(answers.message().await.unwrap().unwrap().view().body(), b"sound");
        for (what, _, word) in &all {
            is_told(&client.up(tokio_stream::empty()).await.unwrap_err(), what, word);
        }
        let seen = client.up(tokio_stream::empty()).await.unwrap().into_inner();
        assert_eq!(seen.view().body(), b"sound");
        // A client of structs has asked for none.
        let mut of_structs = structs::probe_client::ProbeClient::new(channel.clone());
        let answered = async { of_structs.down(structs::Ask::default()).await?.into_inner().message().await };
        is_told(&answered.await.unwrap_err(), "asked for by nobody", "not said that it takes those");
        drop((client, answers, of_structs, channel));
        task.await.unwrap();
    })
    .await;
}
