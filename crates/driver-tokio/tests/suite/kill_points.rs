//! Processes that are killed at every named step, on either side: the other one ends its calls, keeps nothing, and goes on.
//!
//! One of two processes arms a point ([`tollfree_kill_points`]) and lives through everything that a session does, again
//! and again, until it is gone. The test fails when it gets there never. The survivor is the test itself, so that what it
//! holds can be counted.

use std::future::poll_fn;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Notify;
use tollfree_driver_tokio::*;
use tollfree_kill_points::{Point, arm};
use tollfree_testkit::{Census, Chance, Process, Role, resident_kib};

use crate::echo::{
    self, Echo, accept, alone_for, begin, begin_at, begin_with, check_calls, quiet_call, read_message,
    read_request, reply_with,
};

/// How often each point is tried: at its first passing, and then at later ones. A release build has the time for more.
const ROUND_COUNT: u64 = if cfg!(debug_assertions) { 2 } else { 6 };
/// Within this time a process gets to its point, or never.
const PATIENCE: Duration = Duration::from_secs(20);
/// Within this time the survivor has noticed. Wide, as the machine may be busy: death is told by the kernel at once.
const NOTICED: Duration = Duration::from_secs(10);

/// Sides that sleep whenever they can, so that doorbells ring, and areas that go soon.
fn config() -> Config {
    let pool = Some([7; 16]);
    Config { wait: WaitPolicy::Park, area_idle: Duration::from_millis(15), pool, ..Config::default() }
}

/// A server that can be told by its clients to do what servers do.
#[derive(Clone, Default)]
struct Serving {
    /// Sessions that have not ended.
    live_count: Arc<AtomicUsize>,
    /// How the others have.
    ended: Arc<Mutex<Vec<Closed>>>,
    /// Calls that have come.
    call_count: Arc<AtomicUsize>,
    rebind: Arc<Notify>,
}

impl Serving {
    /// Binds, serves, and binds anew when told to; until it is killed.
    async fn run(self, address: Address) {
        loop {
            let mut listener = loop {
                match Listener::bind(&address, config()) {
                    Ok(listener) => break listener,
                    // The last one's socket file was just being removed.
                    Err(BindError::Directory { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            };
            loop {
                tokio::select! {
                    attachment = listener.accept() => {
                        self.live_count.fetch_add(1, Ordering::SeqCst);
                        tokio::spawn(self.clone().serve(Arc::new(attachment.expect("it listens"))));
                    }
                    () = self.rebind.notified() => break,
                }
            }
        }
    }

    async fn serve(self, attachment: Arc<Attachment>) {
        let closed = loop {
            match accept(&attachment).await {
                Ok(call) => drop(tokio::spawn(self.clone().answer(attachment.clone(), call))),
                Err(closed) => break closed,
            }
        };
        self.ended.lock().unwrap().push(closed);
        drop(attachment);
        self.live_count.fetch_sub(1, Ordering::SeqCst);
    }

    async fn answer(self, attachment: Arc<Attachment>, mut call: Call) {
        self.call_count.fetch_add(1, Ordering::SeqCst);
        let Some(message) = read_request(&mut call).await else { return };
        match &call.path[..] {
            b"/test.Echo/Slow" => tokio::time::sleep(Duration::from_millis(5)).await,
            b"/test.Echo/Rebind" => self.rebind.notify_one(),
            b"/test.Echo/Close" => attachment.close("told to"),
            _ => {}
        }
        reply_with(&call, outgoing(&call.path, message)).await;
        if &call.path[..] == b"/test.Echo/Drain" {
            attachment.drain();
        }
    }
}

/// Whose messages are segmented messages.
const SEGMENTED: &str = "/test.Echo/SegmentedMessage";

fn outgoing(path: &[u8], message: Bytes) -> OutgoingMessage {
    if path == SEGMENTED.as_bytes() {
        OutgoingMessage::segmented(message, false, Keep::new(()))
    } else {
        OutgoingMessage::new(message, false)
    }
}

/// Everything that a session does, once. `Err`: how far it came, when the server was gone.
async fn live(address: &Address, rebinds: bool) -> Result<(), String> {
    let client = Attachment::connect(address, &config()).await.map_err(|error| error.to_string())?;
    let lived = live_with(&client, rebinds).await;
    if let Some(Closed::Violation(violation)) = client.closed() {
        panic!("death looks like a violation: {violation}");
    }
    lived
}

async fn live_with(client: &Attachment, rebinds: bool) -> Result<(), String> {
    let call = async |path: &'static str, len: usize| {
        let message = Bytes::from(vec![7; len]);
        let outgoing = outgoing(path.as_bytes(), message.clone());
        let stream = begin_with(client, path, outgoing).await.map_err(|error| error.to_string())?;
        match read_message(&stream).await {
            Some(answer) if answer == message => Ok(()),
            Some(_) => panic!("another answer than was sent"),
            None => Err(format!("{path}: {:?}", client.closed())),
        }
    };
    call("/test.Echo/Call", 10).await?;
    call("/test.Echo/Slow", 100).await?;
    // Payload areas and credit, both ways.
    call("/test.Echo/Call", 300_000).await?;
    // A message of which the session believes that parts of it lie in a pool, both ways.
    call(SEGMENTED, 100).await?;
    // A call that is given up.
    let stream = begin(client, Bytes::from_static(b"x")).await.map_err(|error| error.to_string())?;
    drop(stream);
    // Areas go when nobody uses them.
    tokio::time::sleep(Duration::from_millis(60)).await;
    call("/test.Echo/Call", 10).await?;
    // Calls that are a frame each way.
    for _ in 0..3 {
        match echo::call(client, Bytes::from_static(b"asked")).await {
            Some(answer) => assert_eq!(answer, "asked"),
            None => return Err(format!("a call that was asked: {:?}", client.closed())),
        }
    }
    if rebinds {
        call("/test.Echo/Rebind", 0).await?;
    }
    // No further call can be made then.
    call("/test.Echo/Drain", 10).await
}

/// Lives again and again. The server closes, and is told to bind anew, in every other life.
async fn live_on(address: &Address) {
    for life in 0.. {
        if live(address, life % 2 == 1).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if life % 2 == 1
            && let Ok(client) = Attachment::connect(address, &config()).await
            && let Ok(stream) = begin_at(&client, "/test.Echo/Close", Bytes::new()).await
        {
            let _ = read_message(&stream).await;
        }
    }
}

/// What the children do. Not a test of itself.
#[test]
#[ignore = "runs in processes that other tests start"]
fn as_child() {
    let Some(role) = Role::of_this_process() else { return };
    let (point, nth) = role.detail.split_once(' ').unwrap();
    arm(Point::ALL[point.parse::<usize>().unwrap()].0, nth.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = Address::Path(role.socket);
    // Ends by itself when the test that counts on its death is gone.
    let lived = runtime.block_on(async {
        let life = live_as(&role.name, &address);
        tokio::time::timeout(2 * PATIENCE, life).await
    });
    assert!(lived.is_err());
}

async fn live_as(role: &str, address: &Address) {
    match role {
        "client" => live_on(address).await,
        "server" => Serving::default().run(address.clone()).await,
        "client of one call" => {
            let client = Attachment::connect(address, &config()).await.unwrap();
            check_calls(&client, 1).await;
            // Gone without a word, should the point not have been reached.
            std::process::exit(1);
        }
        other => panic!("no role {other}"),
    }
}

/// Which passing of a point to be killed at.
fn nth(round: u64, chance: &mut Chance) -> u64 {
    if round == 0 { 1 } else { 2 + chance.below(4) }
}

/// Waits until the process has killed itself.
fn expect_killed(victim: &mut Process, what: &str) {
    let status = victim.wait_end(PATIENCE).unwrap_or_else(|| panic!("{what} was never reached"));
    assert_eq!(status.signal(), Some(9), "{what}: {status}");
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < NOTICED, "{what}: not noticed");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_client_killed_at_any_point_harms_nobody() {
    alone_for(400, async {
        let directory = tempfile::tempdir().unwrap();
        let address = Address::Path(directory.path().join("s.sock"));
        let serving = Serving::default();
        let server = tokio::spawn(serving.clone().run(address.clone()));
        let honest = Echo::start(Config::default());
        let second = honest.connect().await;
        check_calls(&second, 3).await;
        until("the server listens", || directory.path().join("s.sock").exists()).await;
        let (before, mut resident, mut chance) = (Census::take(), 0, Chance::new(1));
        let points: Vec<_> =
            Point::ALL.iter().enumerate().filter(|(_, (_, sides))| sides.has_client()).collect();
        for round in 0..ROUND_COUNT {
            for (idx, (point, _)) in &points {
                let nth = nth(round, &mut chance);
                let what = format!("client at {point:?}, {nth}");
                tokio::task::block_in_place(|| {
                    let mut victim = Process::start(
                        "kill_points::client",
                        &directory.path().join("s.sock"),
                        &format!("{idx} {nth}"),
                    );
                    expect_killed(&mut victim, &what);
                });
                until(&what, || serving.live_count.load(Ordering::SeqCst) == 0).await;
                for closed in serving.ended.lock().unwrap().drain(..) {
                    assert!(!matches!(closed, Closed::Violation(_)), "{what}: {closed}");
                }
                check_calls(&second, 2).await;
                let began = Instant::now();
                // The victim may have told the server to bind anew a moment ago.
                let fresh = loop {
                    match Attachment::connect(&address, &Config::default()).await {
                        Ok(fresh) => break fresh,
                        Err(error) => assert!(began.elapsed() < NOTICED, "{what}: {error}"),
                    }
                };
                check_calls(&fresh, 2).await;
                drop(fresh);
                until(&what, || serving.live_count.load(Ordering::SeqCst) == 0).await;
                before.assert_back();
            }
            resident = if round == 0 { resident_kib() } else { resident };
        }
        println!("{} points, {ROUND_COUNT} rounds", points.len());
        let grown = resident_kib().saturating_sub(resident);
        assert!(grown < 8 * 1024, "{grown} KiB more than after the first round");
        server.abort();
    });
}

#[test]
fn a_server_killed_at_any_point_harms_nobody() {
    alone_for(400, async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let address = Address::Path(path.clone());
        let honest = Echo::start(Config::default());
        let second = honest.connect().await;
        check_calls(&second, 3).await;
        let (before, mut resident, mut chance) = (Census::take(), 0, Chance::new(2));
        let points: Vec<_> =
            Point::ALL.iter().enumerate().filter(|(_, (_, sides))| sides.has_server()).collect();
        for round in 0..ROUND_COUNT {
            for (idx, (point, _)) in &points {
                let nth = nth(round, &mut chance);
                let what = format!("server at {point:?}, {nth}");
                let mut victim = tokio::task::block_in_place(|| {
                    Process::start("kill_points::server", &path, &format!("{idx} {nth}"))
                });
                let client = tokio::spawn({
                    let address = address.clone();
                    async move { live_on(&address).await }
                });
                tokio::task::block_in_place(|| expect_killed(&mut victim, &what));
                drop(victim);
                // Whatever the survivor was doing is over, and it lives on: it finds nobody, again and again.
                until(&what, || !client.is_finished()).await;
                client.abort();
                assert!(client.await.unwrap_err().is_cancelled(), "{what}: the survivor panicked");
                // A life that the server's death has cut off comes to its end by itself.
                let cut = tokio::time::timeout(NOTICED, live(&address, false)).await;
                assert!(cut.expect("a call to a dead server ends").is_err(), "{what}");
                check_calls(&second, 2).await;
                let mut successor = Listener::bind(&address, Config::default())
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                let fresh = Attachment::connect(&address, &Config::default()).await.unwrap();
                let attachment = successor.accept().await.unwrap();
                let serving = tokio::spawn(async move { echo::serve(&attachment).await });
                check_calls(&fresh, 2).await;
                drop(fresh);
                assert!(!matches!(serving.await.unwrap(), Closed::Violation(_)), "{what}");
                drop(successor);
                before.assert_back();
            }
            resident = if round == 0 { resident_kib() } else { resident };
        }
        println!("{} points, {ROUND_COUNT} rounds", points.len());
        let grown = resident_kib().saturating_sub(resident);
        assert!(grown < 8 * 1024, "{grown} KiB more than after the first round");
    });
}

#[test]
fn calls_under_way_end_when_the_server_is_killed_at_a_point() {
    alone_for(100, async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let address = Address::Path(path.clone());
        let points = [Point::RecordSeen, Point::MidRecord, Point::Publishing, Point::Released];
        for point in points {
            let mut victim = Process::start("kill_points::server", &path, &format!("{} 5", place(point)));
            let client = connect_when_there(&address).await;
            // Calls that wait for an answer which the server was never going to give, and one that brings it to its point.
            let mut quiet = Vec::new();
            for _ in 0..3 {
                quiet.push(quiet_call(&client).await);
            }
            while let Ok(stream) = begin(&client, Bytes::from_static(b"on")).await {
                let _ = tokio::time::timeout(NOTICED, read_message(&stream)).await.expect("it ends");
            }
            for stream in &quiet {
                let ended = tokio::time::timeout(NOTICED, poll_fn(|cx| stream.poll_incoming(cx))).await;
                let ended = ended.unwrap_or_else(|_| panic!("{point:?}: a call hangs"));
                let end = ended.map(|incoming| incoming.into_part().end);
                assert!(matches!(end, Ok(Some(End::SessionClosed))), "{point:?}: {end:?}");
            }
            assert_eq!(client.closed(), Some(Closed::HungUp), "{point:?}");
            tokio::task::block_in_place(|| expect_killed(&mut victim, "the server's point"));
        }
    });
}

/// The place of a point, as children are told it.
fn place(point: Point) -> usize {
    Point::ALL.iter().position(|(known, _)| *known == point).unwrap()
}

async fn connect_when_there(address: &Address) -> Attachment {
    let began = Instant::now();
    loop {
        match Attachment::connect(address, &config()).await {
            Ok(client) => return client,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_call_that_was_not_published_is_not_seen() {
    alone_for(100, async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let serving = Serving::default();
        let server = tokio::spawn(serving.clone().run(Address::Path(path.clone())));
        until("the server listens", || path.exists()).await;
        for point in [Point::RoomReserved, Point::MidRecord, Point::RecordStaged, Point::Publishing] {
            serving.ended.lock().unwrap().clear();
            tokio::task::block_in_place(|| {
                let mut victim =
                    Process::start("kill_points::client of one call", &path, &format!("{} 1", place(point)));
                expect_killed(&mut victim, &format!("{point:?}"));
            });
            until("the client's death", || !serving.ended.lock().unwrap().is_empty()).await;
            assert_eq!(*serving.ended.lock().unwrap(), [Closed::HungUp], "{point:?}");
            assert_eq!(serving.call_count.load(Ordering::SeqCst), 0, "calls seen of {point:?}");
        }
        server.abort();
    });
}

#[test]
fn an_answer_arrives_when_it_was_published_and_not_otherwise() {
    alone_for(100, async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let address = Address::Path(path.clone());
        for (point, arrives) in [
            (Point::RoomReserved, false),
            (Point::MidRecord, false),
            (Point::RecordStaged, false),
            (Point::Publishing, false),
            (Point::Published, true),
            (Point::DoorbellDue, true),
            (Point::DoorbellRung, true),
        ] {
            let victim = Process::start("kill_points::server", &path, &format!("{} 1", place(point)));
            let client = connect_when_there(&address).await;
            let message = Bytes::from_static(b"the final status");
            let stream = begin_at(&client, "/test.Echo/Slow", message.clone()).await.unwrap();
            let answer = tokio::time::timeout(NOTICED, read_message(&stream)).await;
            let answer = answer.unwrap_or_else(|_| panic!("{point:?}: the call hangs"));
            assert_eq!(answer, arrives.then_some(message), "{point:?}");
            let mut victim = victim;
            tokio::task::block_in_place(|| expect_killed(&mut victim, &format!("{point:?}")));
        }
    });
}
