//! What surrounds a process: filters of system calls, signals, users and namespaces, clocks. Each gets in the way of one
//! session at most, and says so in words.

use std::fs::Permissions;
use std::future::poll_fn;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::io::Errno;
use rustix::process::{Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tollfree_driver_tokio::*;
use tollfree_layout::frame::{events, flags};
use tollfree_testkit::{Call as SystemCall, Chance, Door, Frame, Process, Role, forbid};

use crate::echo::{self, Echo, alone_for, call, check_calls, quiet_call, soon};

/// A child has done its part within this time.
const PATIENCE: Duration = Duration::from_secs(40);

fn address(role: &Role) -> Address {
    Address::Path(role.socket.clone())
}

async fn connect(role: &Role) -> Result<Attachment, ConnectError> {
    Attachment::connect(&address(role), &Config::default()).await
}

/// What the children do. Not a test of itself.
#[test]
#[ignore = "runs in processes that other tests start"]
fn as_child() {
    let Some(role) = Role::of_this_process() else { return };
    // What a process may not do it may not do from its start; the test's own runtime comes first only where it is not what
    // the test is about.
    let early = role.name.starts_with("from the start: ");
    if early {
        match role.name.as_str() {
            "from the start: no memfd" => forbid(SystemCall::MemfdCreate, Errno::PERM),
            "from the start: memfd unknown" => forbid(SystemCall::MemfdCreate, Errno::NOSYS),
            "from the start: no memory" => forbid(SystemCall::Fallocate(0), Errno::NOSPC),
            "from the start: no eventfd" => {
                forbid(SystemCall::Eventfd, Errno::PERM);
                let error = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
                return;
            }
            other => panic!("no role {other}"),
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match role.name.as_str() {
            _ if early => refused_at_the_start(&role).await,
            "client without eventfd" => works_without(&role, SystemCall::Eventfd, Errno::PERM).await,
            "client without preadv2" => works_without(&role, SystemCall::Preadv, Errno::NOSYS).await,
            "client without pidfd" => works_without(&role, SystemCall::PidfdOpen, Errno::NOSYS).await,
            "client without room for areas" => {
                works_without(&role, SystemCall::Fallocate(60_000), Errno::NOSPC).await;
            }
            "client under signals" => calls_under_signals(&role).await,
            "server under signals" => {
                let _handler = signal(SignalKind::user_defined1()).unwrap();
                let mut listener = Listener::bind(&address(&role), Config::default()).unwrap();
                role.ready();
                while let Some(attachment) = listener.accept().await {
                    tokio::spawn(async move { drop(echo::serve(&attachment).await) });
                }
            }
            "client that is refused" => {
                let anyone = Config { peers: PeerPolicy::Anyone, ..Config::default() };
                let error = Attachment::connect(&address(&role), &anyone).await.unwrap_err();
                assert!(error.to_string().contains(&role.detail), "{error}");
            }
            "client that refuses" => {
                let error = connect(&role).await.unwrap_err();
                assert!(error.to_string().contains(&role.detail), "{error}");
            }
            "client of anyone" => {
                let anyone = Config { peers: PeerPolicy::Anyone, ..Config::default() };
                let client = Attachment::connect(&address(&role), &anyone).await.unwrap();
                check_calls(&client, 10).await;
                assert_eq!(call(&client, Bytes::from(vec![1; 300_000])).await.unwrap().len(), 300_000);
            }
            "client that waits to be killed" => {
                let client = connect(&role).await.unwrap();
                check_calls(&client, 10).await;
                let _quiet = quiet_call(&client).await;
                role.ready();
                std::future::pending::<()>().await;
            }
            "client with a deadline" => {
                let outside: u64 = role.detail.parse().unwrap();
                assert!(now_ns() > outside + 50_000 * 1_000_000_000, "the clock is another one");
                let anyone = Config { peers: PeerPolicy::Anyone, ..Config::default() };
                let client = Attachment::connect(&address(&role), &anyone).await.unwrap();
                let deadline_ns = now_ns() + 100 * 1_000_000_000;
                let (mut opener, mut none) = (client.open(), Outgoing::default());
                let opening = Opening { path: "/test.Echo/Call", deadline_ns };
                let stream = poll_fn(|cx| opener.poll_open(cx, opening, &mut none)).await.unwrap();
                let arrived = poll_fn(|cx| stream.poll_incoming(cx)).await.unwrap().into_part();
                assert!(arrived.end.is_some(), "{arrived:?}");
            }
            other => panic!("no role {other}"),
        }
    });
}

/// Server and client are told at their start what is missing, and what to do.
async fn refused_at_the_start(role: &Role) {
    let at = |name: &str| Address::Path(role.socket.with_file_name(name));
    let error = Listener::bind(&at("other.sock"), Config::default()).unwrap_err().to_string();
    assert!(error.contains("other.sock") && error.contains(&role.detail), "{error}");
    assert!(!role.socket.with_file_name("other.sock").exists(), "nothing is left behind");
    let error = connect(role).await.unwrap_err();
    assert!(error.to_string().contains("s.sock") && error.to_string().contains(&role.detail), "{error}");
    // Policy doesn't change by waiting; memory does.
    assert_eq!(error.kind.is_transient(), role.name.ends_with("no memory"), "{error}");
}

/// Sessions work where a call that they can do without fails from now on.
async fn works_without(role: &Role, missing: SystemCall, errno: Errno) {
    forbid(missing, errno);
    let client = connect(role).await.unwrap();
    check_calls(&client, 20).await;
    let large = Bytes::from(vec![8; 1 << 20]);
    assert_eq!(call(&client, large.clone()).await, Some(large));
    check_calls(&client, 5).await;
}

fn socket_of(server: &Echo) -> PathBuf {
    // Roles are told the path of their server.
    let path = server.directory.path().join("s.sock");
    if !path.exists() {
        std::os::unix::fs::symlink(server.path(), &path).unwrap();
    }
    path
}

/// Runs a role to its end.
fn run(role: &str, socket: &Path, detail: &str) {
    tokio::task::block_in_place(|| {
        let mut child = Process::start(&format!("surroundings::{role}"), socket, detail);
        let status = child.wait_end(PATIENCE).unwrap_or_else(|| panic!("{role}: does not end"));
        assert!(status.success(), "{role}: {status}");
    });
}

#[test]
fn a_filter_that_forbids_shared_memory_is_found_at_the_start_and_named() {
    alone_for(100, async {
        let server = Echo::start(Config::default());
        let honest = server.connect().await;
        check_calls(&honest, 3).await;
        let socket = socket_of(&server);
        run("from the start: no memfd", &socket, "memfd_create is forbidden");
        run("from the start: memfd unknown", &socket, "let its seccomp profile");
        run("from the start: no eventfd", &socket, "");
        check_calls(&honest, 3).await;
    });
}

#[test]
fn a_filter_that_forbids_what_can_be_done_without_is_no_hindrance() {
    alone_for(100, async {
        let server = Echo::start(Config::default());
        let socket = socket_of(&server);
        run("client without eventfd", &socket, "");
        run("client without preadv2", &socket, "");
        run("client without pidfd", &socket, "");
        for _ in 0..3 {
            let closed = server.next_end().await;
            assert!(!matches!(closed, Closed::Violation(_)), "{closed}");
        }
    });
}

#[test]
fn without_room_for_memory_a_start_says_so_and_a_session_goes_on() {
    alone_for(100, async {
        let server = Echo::start(Config::default());
        let honest = server.connect().await;
        check_calls(&honest, 3).await;
        let socket = socket_of(&server);
        run("from the start: no memory", &socket, "free memory");
        // A session's ring is there; payload areas are not to be had, and large messages take the ring.
        run("client without room for areas", &socket, "");
        check_calls(&honest, 3).await;
    });
}

/// Calls until told to stop; the process is interrupted all the while.
async fn calls_under_signals(role: &Role) {
    static HEARD: AtomicUsize = AtomicUsize::new(0);
    let mut signals = signal(SignalKind::user_defined1()).unwrap();
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            HEARD.fetch_add(1, Ordering::Relaxed);
        }
    });
    role.ready();
    let (done, large) = (role.socket.with_file_name("done"), Bytes::from(vec![2; 400_000]));
    let mut round_count = 0;
    while !done.exists() || round_count < 5 {
        let client = connect(role).await.unwrap();
        check_calls(&client, 20).await;
        assert_eq!(call(&client, large.clone()).await, Some(large.clone()));
        // Both sides sleep in between.
        tokio::time::sleep(Duration::from_millis(1)).await;
        check_calls(&client, 1).await;
        round_count += 1;
    }
    let heard = HEARD.load(Ordering::Relaxed);
    assert!(heard > 20, "{heard} signals: the test misses what it is about");
}

#[test]
fn signals_and_stops_make_calls_slower_and_nothing_else() {
    alone_for(100, async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        tokio::task::block_in_place(|| {
            let server = Process::start_ready("surroundings::server under signals", &path, "");
            let mut client = Process::start_ready("surroundings::client under signals", &path, "");
            let (mut chance, began) = (Chance::new(36), Instant::now());
            while began.elapsed() < Duration::from_secs(2) {
                for process in [&server, &client] {
                    kill_process(process.pid(), Signal::USR1).unwrap();
                    if chance.below(100) == 0 {
                        process.signal(Signal::STOP);
                        std::thread::sleep(Duration::from_micros(chance.below(20_000)));
                        process.signal(Signal::CONT);
                    }
                }
                std::thread::sleep(Duration::from_micros(chance.below(200)));
            }
            std::fs::write(directory.path().join("done"), "").unwrap();
            let status = client.wait_end(PATIENCE).expect("it ends");
            assert!(status.success(), "{status}");
        });
    });
}

/// A copy of this program where every user may run it, and a server that every user may reach. `None` where this process
/// may not become another user.
fn for_everybody(config: Config) -> Option<(Echo, PathBuf)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT RUN: only root can start a process of another user");
        return None;
    }
    let server = Echo::start(config);
    let open = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let program = server.directory.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    open(&program, 0o755);
    open(server.directory.path(), 0o755);
    open(&server.path(), 0o777);
    Some((server, program))
}

/// Runs a role as another user.
fn run_as(user: u32, program: &Path, role: &str, socket: &Path, detail: &str) {
    tokio::task::block_in_place(|| {
        let mut command = Process::command(program, &format!("surroundings::{role}"), socket, detail);
        let child = command.uid(user).gid(user).current_dir("/").spawn().unwrap();
        let status = Process::of(child).wait_end(PATIENCE).expect("it ends");
        assert!(status.success(), "{role} as {user}: {status}");
    });
}

#[test]
fn another_user_is_refused_unless_policy_says_otherwise() {
    const STRANGER: u32 = 12_345;
    alone_for(100, async {
        let Some((server, program)) = for_everybody(Config::default()) else { return };
        let honest = server.connect().await;
        check_calls(&honest, 3).await;
        let (path, me) = (server.path(), rustix::process::geteuid().as_raw());
        run_as(STRANGER, &program, "client that is refused", &path, "the client runs as user 12345");
        run_as(STRANGER, &program, "client that refuses", &path, &format!("the server runs as user {me}"));
        check_calls(&honest, 3).await;
        let listed = Config { peers: PeerPolicy::Users(vec![STRANGER]), ..Config::default() };
        let (server, program) = for_everybody(listed).unwrap();
        run_as(STRANGER, &program, "client of anyone", &server.path(), "");
        let peer = server.sessions.lock().unwrap()[0].0;
        assert_eq!((peer.uid, peer.gid), (STRANGER, STRANGER));
        // Not even root, where it isn't listed.
        run("client that is refused", &server.path(), "the client runs as user");
    });
}

/// A command in namespaces of its own, or `None` where that is not to be had.
fn unshare(options: &[&str]) -> Option<Command> {
    let mut command = Command::new("unshare");
    command.args(options);
    let trial = Command::new("unshare").args(options).arg("true").status();
    if !trial.is_ok_and(|status| status.success()) {
        eprintln!("NOT RUN: namespaces can't be had here (unshare {options:?})");
        return None;
    }
    Some(command)
}

/// The same role, started by another command.
fn within(mut outer: Command, role: &str, socket: &Path, detail: &str) -> Process {
    let program = std::env::current_exe().unwrap();
    let inner = Process::command(&program, &format!("surroundings::{role}"), socket, detail);
    outer.arg(inner.get_program()).args(inner.get_args()).stdout(std::process::Stdio::piped());
    for (name, value) in inner.get_envs() {
        outer.env(name, value.unwrap());
    }
    Process::of(outer.spawn().unwrap())
}

#[test]
fn a_peer_in_another_pid_namespace_is_served_and_its_death_noticed() {
    alone_for(100, async {
        let own = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child"];
        let Some(command) = unshare(&own) else { return };
        let server = Echo::start(Config { peers: PeerPolicy::Anyone, ..Config::default() });
        let honest = server.connect().await;
        check_calls(&honest, 3).await;
        let anyone = "client of anyone";
        let mut child = within(command, anyone, &server.path(), "");
        let status = tokio::task::block_in_place(|| child.wait_end(PATIENCE)).expect("it ends");
        assert!(status.success(), "it can't see the server's process: {status}");
        assert!(!matches!(server.next_end().await, Closed::Violation(_)));
        let Some(command) = unshare(&own) else { return };
        let mut child = within(command, "client that waits to be killed", &server.path(), "");
        tokio::task::block_in_place(|| child.wait_ready());
        let before = peer_deaths();
        drop(child);
        assert_eq!(server.next_end().await, Closed::HungUp);
        assert!(peer_deaths() > before, "it is counted");
        check_calls(&honest, 3).await;
    });
}

#[test]
fn a_user_namespace_that_maps_nobody_makes_nobody_the_same_user() {
    alone_for(100, async {
        let Some(command) = unshare(&["--user"]) else { return };
        let server = Echo::start(Config { peers: PeerPolicy::Anyone, ..Config::default() });
        let honest = server.connect().await;
        check_calls(&honest, 3).await;
        let words = "its own user only, who is not known in this user namespace";
        let mut child = within(command, "client that refuses", &server.path(), words);
        let status = tokio::task::block_in_place(|| child.wait_end(PATIENCE)).expect("it ends");
        assert!(status.success(), "{status}");
        check_calls(&honest, 3).await;
    });
}

#[test]
fn deadlines_are_of_the_monotonic_clock_whatever_the_peers_clock_says() {
    alone_for(60, async {
        const SECOND: u64 = 1_000_000_000;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let mut listener = Listener::bind(&Address::Path(path.clone()), Config::default()).unwrap();
        // Clocks of the peer: this one, and those of other time namespaces.
        for clock in [now_ns(), 1, SECOND, now_ns() + 1000 * SECOND, u64::MAX / 2] {
            let opened = {
                let path = path.clone();
                std::thread::spawn(move || {
                    let mut peer = Door::knock(&path)?.enter(|hello| hello.clock_ns = clock.into())?;
                    let (call, all) = ("/test.Echo/Call", events::HEADERS | events::HALF_CLOSE);
                    let deadline = (clock + 30 * SECOND).to_le_bytes();
                    let mut frame = Frame::new(all, flags::NAMES_METHOD | flags::HAS_DEADLINE, 1);
                    frame.body.extend_from_slice(&deadline);
                    peer.send(&frame.headers(&(call.len() as u16).to_le_bytes()).headers(call.as_bytes()))?;
                    std::io::Result::Ok(peer)
                })
            };
            let attachment = soon("a session", listener.accept()).await.unwrap();
            let call = soon("a call", echo::accept(&attachment)).await.unwrap();
            let _peer = tokio::task::block_in_place(|| opened.join().unwrap()).unwrap();
            let left = call.deadline_ns.unwrap().saturating_sub(now_ns());
            assert!((15 * SECOND..=30 * SECOND).contains(&left), "clock {clock}: {left} ns are left");
        }
    });
}

#[test]
fn a_client_in_another_time_namespace_has_the_same_deadlines() {
    alone_for(100, async {
        let shifted = ["--user", "--map-root-user", "--time", "--monotonic", "100000"];
        let Some(command) = unshare(&shifted) else { return };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let anyone = Config { peers: PeerPolicy::Anyone, ..Config::default() };
        let mut listener = Listener::bind(&Address::Path(path.clone()), anyone).unwrap();
        // Where the child's clock starts from shows that it is another.
        let mut child = within(command, "client with a deadline", &path, &now_ns().to_string());
        let attachment = soon("a session", listener.accept()).await.unwrap();
        let call = soon("a call", echo::accept(&attachment)).await.unwrap();
        let left = Duration::from_nanos(call.deadline_ns.unwrap().saturating_sub(now_ns()));
        // By as much as HELLO was under way the clocks are taken to differ more than they do.
        assert!(left > Duration::from_secs(50) && left < Duration::from_secs(110), "{left:?} are left");
        call.stream.cancel(1);
        let status = tokio::task::block_in_place(|| child.wait_end(PATIENCE)).expect("it ends");
        assert!(status.success(), "{status}");
    });
}
