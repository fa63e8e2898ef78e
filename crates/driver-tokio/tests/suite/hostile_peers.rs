//! Processes of the same machine that mean harm: what they pass, how many they are, and what they leave unsaid.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tollfree_driver_tokio::*;
use tollfree_layout::frame::{control, events};
use tollfree_layout::handshake::{feature, kind};
use tollfree_layout::limits;
use tollfree_region::closing_count;
use tollfree_testkit::{Door, Frame, HostilePeer, LingeringSocket, Process, Role, SilentFile};
use zerocopy::IntoBytes;

use crate::echo::{self, Apart, Echo, alone_for, check_calls};

/// Longest that anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for something that a runtime which stands still would never give.
async fn at_last<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what}: held up"))
}

/// All the ways in which a client can pass a descriptor that is of no use. Each one is left as soon as it was sent.
fn pass_in_every_way(path: &Path, given: BorrowedFd<'_>) {
    let hello = || Door::hello(kind::HELLO, limits::RING_LEN_DEFAULT);
    // For a region; with more of them than anybody may send; and where nobody asks for any.
    Door::knock(path).unwrap().send(hello().as_bytes(), &[given]).unwrap();
    Door::knock(path).unwrap().send(hello().as_bytes(), &[given; 6]).unwrap();
    let early = Door::knock(path).unwrap();
    early.send(b"HTTP", &[given]).unwrap();
    let _ = early.send(b"more", &[given]);
    // For a doorbell, which is the first thing to come.
    let with_doorbell = Door::knock(path).unwrap();
    let _ =
        with_doorbell.enter(|hello| hello.features = feature::DOORBELL.into()).unwrap().send_fds(&[given]);
    // For a payload area.
    let mut peer = HostilePeer::client(path).unwrap();
    let _ = peer.send_fds(&[given]);
    let offer = Frame::new(events::CONTROL, 0, 0).code(control::AREA_OFFER);
    let _ = peer.send(&offer.chunk_len(limits::AREA_LEN_MIN as u32));
    let _ = peer.door().wait_for_hang_up();
    // For nothing, and left where it lies.
    let mut peer = HostilePeer::client(path).unwrap();
    let _ = peer.send_fds(&[given]);
    let _ = peer.send_fds(&[given; 3]);
}

#[test]
fn descriptors_that_never_answer_hold_up_nobody() {
    alone_for(300, async {
        // One thread for all sessions: whatever holds it up holds up everybody.
        let server = tokio::task::block_in_place(|| Apart::start(Config::default()));
        let path = server.echo().path();
        let honest = server.echo().connect().await;
        check_calls(&honest, 3).await;
        let file = SilentFile::open();
        if let Err(error) = &file {
            println!("skipped the file system of one's own: {error}");
        }
        let socket = LingeringSocket::open().unwrap();
        let mut given = vec![socket.as_fd()];
        given.extend(file.as_ref().ok().map(SilentFile::as_fd));
        for given in given {
            tokio::task::block_in_place(|| pass_in_every_way(&path, given));
            at_last("calls of others", check_calls(&honest, 10)).await;
            let newcomer = at_last("a newcomer", server.echo().connect()).await;
            at_last("a newcomer's calls", check_calls(&newcomer, 3)).await;
        }
        if let Ok(file) = file {
            until("some of them wait for the file system", || closing_count() > 0).await;
            // More than there are places for: nobody is let in who may bring more, and those who are in notice nothing.
            let door = Door::knock(&path).unwrap();
            door.send(b"TOLLFREE", &[file.as_fd(); 200]).unwrap();
            until("too many wait", || closing_count() >= tollfree_region::CLOSING_COUNT_MAX).await;
            at_last("calls of others", check_calls(&honest, 10)).await;
            let impatient = Config { handshake_timeout: Duration::from_millis(200), ..Config::default() };
            let error = Attachment::connect(&server.echo().address, &impatient).await.unwrap_err();
            assert!(error.kind.is_transient(), "{error}");
            drop(file);
        }
        drop(socket);
        until("all are closed", || closing_count() == 0).await;
        let newcomer = at_last("a newcomer", server.echo().connect()).await;
        at_last("its calls", check_calls(&newcomer, 3)).await;
        at_last("calls of others", check_calls(&honest, 3)).await;
    });
}

/// What other processes do. Not a test of itself.
#[test]
#[ignore = "runs in processes that other tests start"]
fn as_child() {
    let Some(role) = Role::of_this_process() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let address = Address::Path(role.socket.clone());
    match role.name.as_str() {
        "client" => runtime.block_on(async {
            let client = at_last("a session", Attachment::connect(&address, &patient())).await.unwrap();
            at_last("calls", check_calls(&client, 3)).await;
            role.ready();
            std::future::pending::<()>().await;
        }),
        "server of a thousand descriptors" => runtime.block_on(async {
            let limit = Rlimit { current: Some(1024), ..getrlimit(Resource::Nofile) };
            setrlimit(Resource::Nofile, limit).unwrap();
            let quotas = Quotas {
                sessions_per_process: Some(2000),
                sessions_per_user: Some(2000),
                ..Quotas::default()
            };
            let mut listener = Listener::bind(&address, Config { quotas, ..Config::default() }).unwrap();
            role.ready();
            while let Some(attachment) = listener.accept().await {
                tokio::spawn(async move { drop(echo::serve(&attachment).await) });
            }
        }),
        // As many silent connections as its detail says, and a new one whenever one of them is hung up on.
        "silent crowd" => {
            let count: usize = role.detail.parse().unwrap();
            let mut crowd = std::collections::VecDeque::new();
            let mut was_ready = false;
            loop {
                if let Ok(socket) = std::os::unix::net::UnixStream::connect(&role.socket) {
                    crowd.push_back(socket);
                }
                if crowd.len() >= count {
                    if !std::mem::replace(&mut was_ready, true) {
                        role.ready();
                    }
                    crowd.pop_front();
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        other => panic!("no role {other}"),
    }
}

/// Settings of a client that waits for as long as the machine takes.
fn patient() -> Config {
    Config { handshake_timeout: PATIENCE, ..Config::default() }
}

/// What a newcomer from this process is told.
async fn refusal(server: &Echo) -> String {
    let error = at_last("a refusal", Attachment::connect(&server.address, &patient())).await.unwrap_err();
    assert!(error.kind.is_transient(), "{error}");
    error.to_string()
}

/// Connects, as soon as what went before has ended at the server.
async fn get_in(server: &Echo) -> Attachment {
    let began = Instant::now();
    loop {
        match Attachment::connect(&server.address, &patient()).await {
            Ok(client) => return client,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_process_and_a_user_have_no_more_sessions_than_their_share() {
    alone_for(300, async {
        let quotas =
            Quotas { sessions_per_process: Some(4), sessions_per_user: Some(5), ..Quotas::default() };
        let config = Config { quotas, ..Config::default() };
        let server = Echo::start(config.clone());
        let mut own = Vec::new();
        for _ in 0..4 {
            own.push(server.connect().await);
        }
        let words = refusal(&server).await;
        assert!(
            words.contains("this process has its 4 sessions") && words.contains("sessions_per_process"),
            "{words}"
        );
        // Another process is not this one, but it is the same user's.
        let path = server.path();
        let other = tokio::task::block_in_place(|| Process::start_ready("hostile_peers::client", &path, ""));
        own.pop();
        until("a session has ended", || server.ended.lock().unwrap().len() == 1).await;
        own.push(get_in(&server).await);
        own.pop();
        own.push(get_in(&server).await);
        let words = refusal(&server).await;
        assert!(
            words.contains("this user has its 5 sessions") && words.contains("sessions_per_user"),
            "{words}"
        );
        assert!(config.refusals.count() >= 2);
        for client in &own {
            at_last("calls of those who are in", check_calls(client, 3)).await;
        }
        // What ends makes room.
        own.pop();
        drop(other);
        own.push(get_in(&server).await);
        at_last("its calls", check_calls(&own[3], 3)).await;
    });
}

#[test]
fn what_sessions_leave_behind_is_bounded() {
    alone_for(300, async {
        let quotas = Quotas { ended_memory_per_process: 10 * 36 * 1024, ..Quotas::default() };
        let server = Echo::start(Config { quotas, ..Config::default() });
        let honest = server.connect().await;
        let (began, mut let_in_count) = (Instant::now(), 0);
        let words = loop {
            match Attachment::connect(&server.address, &patient()).await {
                Ok(_) => let_in_count += 1,
                Err(error) => break error.to_string(),
            }
            assert!(began.elapsed() < PATIENCE, "nobody counts");
        };
        assert!(words.contains("ended_memory_per_process"), "{words}");
        assert!(let_in_count >= 10, "ten of them may end, and {let_in_count} came");
        at_last("calls of those who are in", check_calls(&honest, 3)).await;
        // A large message goes all the same.
        let large = bytes::Bytes::from(vec![1; 1 << 20]);
        assert_eq!(at_last("a large call", echo::call(&honest, large.clone())).await, Some(large));
        // Another process has left nothing behind.
        let path = server.path();
        tokio::task::block_in_place(|| drop(Process::start_ready("hostile_peers::client", &path, "")));
    });
}

/// Areas of a server's length that are mapped in this process.
fn area_count(len: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_one = |line: &&str| {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [from, to] = [from, to].map(|at| usize::from_str_radix(at, 16).unwrap());
        line.contains("tollfree-area") && to - from == len
    };
    maps.lines().filter(is_one).count()
}

/// Areas of three sessions spend the process's share of them, and are given up.
#[test]
fn areas_that_were_given_up_keep_no_session_out_and_later_messages_go_through_the_ring() {
    alone_for(300, async {
        let area_len = Config::default().area_len;
        let quotas = Quotas { ended_memory_per_process: 6 * area_len as u64, ..Quotas::default() };
        let short = Config { area_idle: Duration::from_millis(100), quotas, ..Config::default() };
        let server = Echo::start(short);
        let large = bytes::Bytes::from(vec![1; 1 << 20]);
        // Its own areas have another length.
        let client = Config { area_len: area_len / 2, ..patient() };
        let (mut clients, mut had_count) = (Vec::new(), 0);
        for idx in 0..6 {
            let client = Attachment::connect(&server.address, &client).await.unwrap();
            let answered = at_last("a large call", echo::call(&client, large.clone())).await;
            assert_eq!(answered, Some(large.clone()));
            let had_area = area_count(area_len) > 0;
            assert!(!had_area || idx < 3, "session {idx} has an area that nobody pays for");
            had_count += usize::from(had_area);
            until("the area is given up", || area_count(area_len) == 0).await;
            clients.push(client);
        }
        assert!(had_count > 0, "no session had an area");
        for client in &clients {
            at_last("calls of those who are in", check_calls(client, 3)).await;
        }
    });
}

#[test]
fn silent_connections_by_the_thousand_keep_no_newcomer_out() {
    alone_for(300, async {
        let config = Config { handshake_timeout: Duration::from_secs(600), ..Config::default() };
        let server = Echo::start(config);
        let path = server.path();
        // No more of them than there is place for lose it to newcomers who do say something.
        let silent: Vec<Door> = (0..60).map(|_| Door::knock(&path).unwrap()).collect();
        for _ in 0..100 {
            let client =
                at_last("a newcomer", Attachment::connect(&server.address, &patient())).await.unwrap();
            at_last("its calls", check_calls(&client, 1)).await;
        }
        assert!(silent.iter().all(|door| !door.is_closed()), "a silent one was in the way");
        // As many as descriptors allow, without end, from another process.
        let count = getrlimit(Resource::Nofile).current.map_or(4000, |limit| (limit / 2).min(4000));
        let crowd = tokio::task::block_in_place(|| {
            Process::start_ready("hostile_peers::silent crowd", &path, &count.to_string())
        });
        for _ in 0..30 {
            let client =
                at_last("a newcomer", Attachment::connect(&server.address, &patient())).await.unwrap();
            at_last("its calls", check_calls(&client, 1)).await;
        }
        assert!(silent.iter().all(|door| !door.is_closed()), "one process crowds out another's");
        drop(crowd);
    });
}

#[test]
fn three_hundred_clients_fit_a_thousand_descriptors() {
    alone_for(300, async {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s.sock");
        let address = Address::Path(socket.clone());
        let _server = tokio::task::block_in_place(|| {
            Process::start_ready("hostile_peers::server of a thousand descriptors", &socket, "")
        });
        let mut clients = Vec::new();
        for _ in 0..300 {
            let client = at_last("a session", Attachment::connect(&address, &patient())).await;
            clients.push(client.expect("there are descriptors for it"));
        }
        // When there are none left, newcomers are told so, and nobody else notices.
        let words = loop {
            match at_last("an answer", Attachment::connect(&address, &patient())).await {
                Ok(client) => clients.push(client),
                Err(error) => break error.to_string(),
            }
            assert!(clients.len() < 1024, "a session without a descriptor");
        };
        assert!(words.contains("descriptors") && words.contains("ulimit -n"), "{words}");
        for client in &clients {
            at_last("calls of those who are in", check_calls(client, 1)).await;
        }
        println!("{} sessions under 1024 descriptors", clients.len());
    });
}
