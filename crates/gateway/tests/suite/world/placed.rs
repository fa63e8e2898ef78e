//! Objects that lie in a pool of the gateway's: backend connections that would use it for more, and whom its trust doesn't reach.

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tollfree::{Payloads, Server};
use tollfree_direct_stubs::objects::probe::probe_server::ProbeServer;
use tollfree_direct_stubs::objects::views::tollfree::probe::v1::{Answer, Ask};
use tollfree_driver_tokio::{
    Attachment, Config, Ending, Incoming, Keep, Outgoing, OutgoingMessage, Registration,
};
use tollfree_layout::metadata::pairs;
use tollfree_pool::{Address, Composed, JoinError, Pool, Refusal};
use tollfree_stubs::probe as structs;
use tonic::{Code, Status};

use super::direct_connections::{GROUP, SHORT, quiet};
use super::lab::{Lab, PATIENCE, PROBE, backend_connections_of};
use super::liars::{DESCRIBE, description, types};
use super::nested::{ask, builder};
use super::nested_lies::call;
use super::taker::Taker;

const JOIN: &str = "/tollfree.Objects/Join";
/// Long enough to be placed.
const LEN: usize = 50_000;

fn long() -> structs::Ask {
    structs::Ask { body: vec![7; LEN], burn_us: 1, ..structs::Ask::default() }
}

/// Calls until requests come by ref.
pub(crate) async fn until_placed(lab: &Lab, payloads: &Payloads) {
    let (mut client, began) = (lab.client().await, Instant::now());
    while payloads.counts().received_by_ref == 0 {
        client.unary(long()).await.unwrap();
        assert!(began.elapsed() < PATIENCE, "no object came by ref: {payloads:?}");
    }
}

/// A backend connection that joins the pool of its group, and sends from there what it answers objects with: objects and encoded messages by turns.
/// What it is asked with bytes it answers so.
struct Sender {
    session: Arc<Attachment>,
    pool: Arc<OnceLock<Pool>>,
    task: JoinHandle<()>,
}

impl Sender {
    async fn attach(lab: &Lab) -> Sender {
        let registration = Registration::new("default", vec![PROBE.to_owned()]).unwrap();
        let config = Config { lending: true, ..Config::default() };
        let session = Attachment::attach(&lab.backends().parse().unwrap(), &config, registration).await;
        let (session, pool) = (Arc::new(session.unwrap()), Arc::<OnceLock<Pool>>::default());
        let task = tokio::spawn(Sender::serve(session.clone(), pool.clone()));
        lab.until_figure(&backend_connections_of("default"), |count| count == 1.0).await;
        Sender { session, pool, task }
    }

    async fn serve(session: Arc<Attachment>, joined: Arc<OnceLock<Pool>>) {
        let (mut count, mut said) = (0, HashSet::new());
        loop {
            let mut place = None;
            if poll_fn(|cx| session.poll_accept(cx, &mut place)).await.is_err() {
                return;
            }
            let call = place.unwrap().into_call(true);
            let is_object = call.first.as_ref().is_some_and(Incoming::has_object);
            let message = match (joined.get(), &*call.path) {
                (_, path) if path == DESCRIBE.as_bytes() => {
                    OutgoingMessage::new(description::<Ask, Answer>().into(), false)
                }
                (_, path) if path == JOIN.as_bytes() => {
                    let said = |wanted: &str| {
                        let found = pairs(&call.headers)
                            .flatten()
                            .find(|(name, _)| name.as_bytes() == wanted.as_bytes());
                        std::str::from_utf8(found.unwrap().1).unwrap().to_owned()
                    };
                    let address = said("tollfree-pool").parse().unwrap();
                    let invitation = said("tollfree-invitation").parse().unwrap();
                    let pool = tokio::task::spawn_blocking(move || {
                        Pool::join_by_invitation(&address, &invitation, Default::default())
                    });
                    assert!(joined.set(pool.await.unwrap().unwrap()).is_ok(), "it is asked once");
                    OutgoingMessage::new(Bytes::new(), false)
                }
                (Some(pool), _) if is_object => {
                    count += 1;
                    segmented(pool, count % 2 == 0)
                }
                _ => {
                    if let Some(method) = call.method.filter(|method| said.insert(method.0)) {
                        session.take_objects(method, types::<Ask, Answer>());
                    }
                    OutgoingMessage::new(Bytes::new(), false)
                }
            };
            let mut outgoing = Outgoing {
                headers: Some(Bytes::new()),
                message: Some(message),
                ending: Some(Ending::Trailers { code: 0, block: Bytes::new() }),
            };
            // The call may have ended, for what was said in it.
            drop(poll_fn(|cx| call.stream.poll_send(cx, &mut outgoing)).await);
        }
    }
}

/// A sound answer that lies in a pool, as an object or encoded.
fn segmented(pool: &Pool, is_object: bool) -> OutgoingMessage {
    let mut answer = builder::<Answer>();
    answer.edit().set_body(&[7; LEN]).unwrap();
    let answer = answer.freeze().unwrap();
    let encoded =
        prost::Message::encode_to_vec(&structs::Answer { body: vec![7; LEN], ..Default::default() });
    let bytes = if is_object { answer.object().bytes() } else { &encoded };
    let composed = loop {
        match Composed::whole(pool, bytes) {
            Ok(composed) => break composed,
            // It grows.
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let keep = Keep::new(Held(composed.refs.into_iter().collect()));
    if is_object {
        OutgoingMessage::object_segmented(composed.bytes, keep)
    } else {
        OutgoingMessage::segmented(composed.bytes, false, keep)
    }
}

struct Held(Vec<tollfree_pool::Ref>);

impl tollfree_driver_tokio::Parts for Held {
    fn part(&self, idx: usize) -> Option<&[u8]> {
        self.0.get(idx).map(|part| &**part)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_segmented_message_from_a_backend_connection_ends_its_call_and_nothing_of_it_is_read() {
    let lab = Lab::start("").await;
    let sender = Sender::attach(&lab).await;
    let mut client = lab.client().await;
    let (mut refused, began) = ([0; 2], Instant::now());
    let check = |answered: Result<(), Status>, count: &mut usize| match answered {
        // While it is asked with bytes.
        Ok(()) => {}
        Err(status) => {
            assert_eq!(status.code(), Code::Internal, "{status}");
            assert!(status.message().contains("there is no pool here"), "{status}");
            *count += 1;
        }
    };
    while refused.iter().any(|count| *count < 6) {
        let unary = client.unary(long()).await.map(|answer| assert!(answer.get_ref().body.is_empty()));
        check(unary, &mut refused[0]);
        let down = async {
            let mut answers = client.down(long()).await?.into_inner();
            while let Some(answer) = answers.message().await? {
                assert!(answer.body.is_empty());
            }
            Ok(())
        };
        check(down.await, &mut refused[1]);
        assert!(began.elapsed() < PATIENCE, "{refused:?}");
    }
    assert!(sender.session.is_open(), "the session goes on");
    let pool = sender.pool.get().unwrap();
    // It may let go of what it sent.
    while sender.session.segmented_messages_in_flight() > 0 {
        sender.session.look_for_taken();
        assert!(
            began.elapsed() < PATIENCE,
            "{} are in flight",
            sender.session.segmented_messages_in_flight()
        );
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    pool.sweep();
    assert!(pool.room().holders.iter().all(|holder| holder.bytes == 0), "{:?}", pool.room());
    sender.task.abort();
}

/// A process with a handler that takes objects, and trusts the gateway.
async fn attach(lab: &Lab) -> (Payloads, JoinHandle<()>) {
    let server = Server::builder().add_service(ProbeServer::new(Taker));
    let payloads = server.payloads();
    let attaching = server.attach(lab.backends()).group("default").backend_connections(1);
    let task = tokio::spawn_for_test(async move { drop(attaching.await) });
    lab.until_figure(&backend_connections_of("default"), |count| count == 1.0).await;
    (payloads, task)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_by_a_direct_connection_is_not_trusted_as_the_gateway_is() {
    let lab = Lab::start(SHORT).await;
    let (payloads, _backends) = attach(&lab).await;
    until_placed(&lab, &payloads).await;
    let mut channel = quiet(&lab, GROUP).await;
    let led = super::direct_connections::ask(&mut channel).await.unwrap();
    let address = led.headers()["tollfree-offer"].to_str().unwrap().parse().unwrap();
    // It says that it lends, as a gateway does.
    let config = Config { lending: true, ..Config::default() };
    let session = Attachment::connect(&address, &config).await.unwrap();
    assert!(!session.lends());
    let sound = ask(LEN).object().bytes().to_vec();
    let before = payloads.counts();
    assert_eq!(call(&session, "Unary", &[&sound]).await.0, Code::Ok);
    let after = payloads.counts();
    assert_eq!(after.received_objects - before.received_objects, 1, "it came as an object");
    assert_eq!(after.received_by_ref, before.received_by_ref, "and as a copy");
    // Words of it lead elsewhere: what trust would read, or crash of. The first 24 bytes are looked at in any case.
    let mut unsound = 0;
    for at in (24..200).step_by(4) {
        let mut object = sound.clone();
        object[at + 3] ^= 0x7f;
        let (code, words) = call(&session, "Unary", &[&object]).await;
        assert!(matches!(code, Code::Ok | Code::InvalidArgument | Code::Internal), "{at}: {code:?}: {words}");
        if code == Code::Internal {
            assert!(words.contains("flat message"), "{at}: {words}");
            unsound += 1;
        }
    }
    assert!(unsound >= 5, "{unsound} words are looked at");
    // There are no segmented messages in this session, of whatever pool.
    let mut outgoing = Outgoing {
        headers: Some(Bytes::new()),
        message: Some(OutgoingMessage::object_segmented(Bytes::from_static(&[0; 100]), Keep::new(()))),
        ending: Some(Ending::HalfClose),
    };
    let opening = tollfree_driver_tokio::Opening { path: &format!("/{PROBE}/Unary"), deadline_ns: 0 };
    let mut opener = session.open();
    let opened = poll_fn(|cx| opener.poll_open(cx, opening, &mut outgoing)).await;
    assert!(opened.is_err(), "it can't even be said");
    drop(opener);
    assert_eq!(payloads.counts().refused_refs, 0);
    // The gateway's session is another one.
    lab.client().await.unary(long()).await.unwrap();
}

/// Where a group's pool is can be read in `/proc/net/unix`. A process of the gateway's own user that never attached joins none of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_not_invited_joins_no_groups_pool() {
    let lab = Lab::start("").await;
    let (payloads, _backends) = attach(&lab).await;
    until_placed(&lab, &payloads).await;
    let listed = std::fs::read_to_string("/proc/net/unix").unwrap();
    let names = listed.lines().filter_map(|line| line.split_once('@'));
    let names: HashSet<_> =
        names.map(|(_, name)| name).filter(|name| name.starts_with("tollfree-objects-")).collect();
    let mut refused = 0;
    for name in names {
        let address: Address = format!("shm-abstract:{name}").parse().unwrap();
        let joined = tokio::task::spawn_blocking(move || Pool::join(&address, Default::default())).await;
        match joined.unwrap() {
            Err(JoinError::Refused { reason, .. }) => {
                assert_eq!(reason, Refusal::Invitation);
                refused += 1;
            }
            // Another test's, which has ended meanwhile.
            Err(JoinError::Connect { .. } | JoinError::NotACoordinator(_)) => {}
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(refused > 0, "this gateway's is among them");
    lab.client().await.unary(long()).await.unwrap();
}
