//! Gateways whose objects are read as they come, and those whose objects are verified first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tollfree::{PeerPolicy, Server};
use tollfree_direct_stubs::later::probe::probe_server::{Probe, ProbeServer};
use tollfree_direct_stubs::later::views::tollfree::probe::v1::{Answer, Ask};
use tollfree_driver_tokio::{Accepts, Attachment, Config, Listener};
use tollfree_layout::frame::{events, flags};
use tollfree_processor::typed::Owned;
use tollfree_testkit::{Door, Frame};
use tonic::{Code, Request, Response, Status, Streaming};

use super::hostile::{UNARY, attach, builder, call, lies, sound};
use super::place::{Place, in_time};

const UP: &str = "/tollfree.probe.v1.Probe/Up";

/// The user that these tests run as, and gateways with them.
fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// An object that its readers get along with, and that no verifier lets pass: it says of a field that its type lacks that it
/// is there.
fn odd(sound: &[u8]) -> Vec<u8> {
    let mut odd = sound.to_vec();
    let root = u32::from_le_bytes(odd[12..16].try_into().unwrap()) as usize;
    odd[root + 7] |= 0x80;
    odd
}

/// Reads the field that each object has.
struct Brief;

#[tonic::async_trait]
impl Probe for Brief {
    async fn unary(&self, request: Request<Owned<Ask>>) -> Result<Response<Owned<Answer>>, Status> {
        let mut answer = builder::<Answer>();
        answer.edit().set_body(request.get_ref().view().body()).unwrap();
        Ok(Response::new(answer.freeze().unwrap()))
    }

    async fn up(&self, request: Request<Streaming<Owned<Ask>>>) -> Result<Response<Owned<Answer>>, Status> {
        let ask = request.into_inner().message().await?.ok_or_else(|| Status::invalid_argument("nothing"))?;
        self.unary(Request::new(ask)).await
    }
}

fn with_body(len: usize) -> Vec<u8> {
    let mut ask = builder::<Ask>();
    ask.edit().set_body(&vec![7; len]).unwrap();
    ask.freeze().unwrap().object().bytes().to_vec()
}

/// A server that has attached to a gateway of this process, in which the gateway does as it likes.
async fn attached(server: Server) -> (Attachment, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", directory.path().join("gateway").display());
    let config = Config { accepts: Accepts::Backends, ..Config::default() };
    let mut listener = Listener::bind(&uri.parse().unwrap(), config).unwrap();
    // It ends with the test's runtime.
    tokio::spawn_for_test(async move { drop(server.attach(uri).await) });
    (listener.accept().await.unwrap(), directory)
}

fn server() -> Server {
    Server::builder().add_service(ProbeServer::new(Brief))
}

/// An object each way that it may come: with all else in a frame, in a payload area, and in a stream.
fn ways() -> [(&'static str, Vec<u8>); 3] {
    [(UNARY, sound()), (UNARY, with_body(50_000)), (UP, sound())]
}

#[tokio::test]
async fn a_gateway_of_a_trusted_user_is_believed_and_no_other() {
    in_time(async {
        let default = server();
        let listed = server().trusted_gateways(PeerPolicy::Users(vec![user() + 1, user()]));
        let nobody = server().trusted_gateways(PeerPolicy::Users(Vec::new()));
        let another = server().trusted_gateways(PeerPolicy::Users(vec![user() + 1]));
        for (what, server, is_trusted) in [
            ("its own user's", default, true),
            ("a user's that is listed", listed, true),
            ("nobody's", nobody, false),
            ("another user's", another, false),
        ] {
            let (gateway, _directory) = attached(server).await;
            for (path, object) in ways() {
                let len = object.len();
                assert_eq!(call(&gateway, path, object.clone()).await.0, Code::Ok, "{what}: {path}, {len}");
                let (code, text) = call(&gateway, path, odd(&object)).await;
                match is_trusted {
                    true => assert_eq!(code, Code::Ok, "{what}: {path}, {len}: {text}"),
                    false => assert!(
                        code == Code::Internal && text.contains("flat message that is refused"),
                        "{what}: {path}, {len}: {code:?}: {text}"
                    ),
                }
            }
            assert!(gateway.is_open());
        }
    })
    .await;
}

#[tokio::test]
async fn an_object_of_another_type_is_refused_whoever_sends_it() {
    in_time(async {
        let (gateway, _directory) = attached(server()).await;
        for (what, object, word) in lies(&sound()) {
            let (code, text) = call(&gateway, UNARY, object).await;
            assert!(code == Code::Internal && text.contains(word), "{what}: {code:?}: {text}");
        }
        assert_eq!(call(&gateway, UNARY, sound()).await.0, Code::Ok);
    })
    .await;
}

#[tokio::test]
async fn clients_that_are_no_gateway_are_never_trusted() {
    let place = Place::new(server().trusted_gateways(PeerPolicy::Anyone)).await;
    in_time(async {
        let client = attach(&place).await;
        for (path, object) in ways() {
            assert_eq!(call(&client, path, object.clone()).await.0, Code::Ok);
            let (code, text) = call(&client, path, odd(&object)).await;
            assert!(code == Code::Internal && text.contains("flat message that is refused"), "{text}");
        }
    })
    .await;
}

/// Reads each object as deep as it goes, twice.
struct Twice {
    read: Arc<AtomicUsize>,
    changed: Arc<AtomicUsize>,
}

#[tonic::async_trait]
impl Probe for Twice {
    async fn unary(&self, request: Request<Owned<Ask>>) -> Result<Response<Owned<Answer>>, Status> {
        let read = || format!("{:?}", request.get_ref().object().root());
        let first = read();
        // The sender gets its turn.
        tokio::time::sleep(Duration::from_micros(100)).await;
        self.read.fetch_add(1, Ordering::Relaxed);
        self.changed.fetch_add(usize::from(read() != first), Ordering::Relaxed);
        Ok(Response::new(builder::<Answer>().freeze().unwrap()))
    }

    async fn up(&self, _: Request<Streaming<Owned<Ask>>>) -> Result<Response<Owned<Answer>>, Status> {
        Err(Status::unimplemented("only single ones are read"))
    }
}

/// Accepts a server, and hands it an object again and again while the object is rewritten. How many words were.
fn rewrite(listener: &std::os::unix::net::UnixListener, object: &[u8], seed: u64) -> u64 {
    let door = Door::over(listener.accept().unwrap().0).unwrap();
    let Ok(mut peer) = door.welcome(|_| {}) else { return 0 };
    let flipper = peer.flip(seed);
    for stream in 1..400_u64 {
        let named = if stream == 1 { flags::NAMES_METHOD } else { 0 };
        let is_all = flags::FIRST | flags::LAST | flags::OBJECT | named;
        let mut frame =
            Frame::new(events::HEADERS | events::MESSAGE | events::HALF_CLOSE, is_all, stream).code(0);
        if named != 0 {
            frame = frame.headers(&(UNARY.len() as u16).to_le_bytes()).headers(UNARY.as_bytes());
        }
        let frame = frame.message_len(object.len() as u32).chunk(object);
        if peer.send_within(&frame, Duration::from_millis(50)).is_err() {
            break;
        }
        while peer.try_read().is_some() {}
    }
    flipper.stop()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_a_gateway_rewrites_while_it_is_read_stays_what_was_verified() {
    let (read, changed) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let service = Twice { read: read.clone(), changed: changed.clone() };
    let nobody = PeerPolicy::Users(Vec::new());
    let server = Server::builder().trusted_gateways(nobody).add_service(ProbeServer::new(service));
    let payloads = server.payloads();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gateway");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    tokio::spawn_for_test(async move { drop(server.attach(format!("shm://{}", path.display())).await) });
    in_time(async {
        let object = with_body(500);
        let (mut rewritten, mut seed) = (0, 0);
        while seed < 20 || (read.load(Ordering::Relaxed) < 100 && seed < 200) {
            seed += 2;
            rewritten += tokio::task::block_in_place(|| rewrite(&listener, &object, seed));
        }
        let (read, objects) = (read.load(Ordering::Relaxed), payloads.counts().received_objects);
        println!("{rewritten} words rewritten, {objects} objects came, {read} were read");
        assert!(rewritten > 100 && read >= 100, "{rewritten} words rewritten, {read} objects read");
        assert_eq!(changed.load(Ordering::Relaxed), 0, "of {read} objects");
    })
    .await;
}
