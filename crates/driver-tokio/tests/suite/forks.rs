//! Processes that fork while they have sessions: the child can't touch them, doesn't keep its parent's death from anybody,
//! and takes nothing away from its parent.

use std::path::Path;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::process::Signal;
use tokio::runtime::{Builder, Runtime};
use tollfree_driver_tokio::*;
use tollfree_testkit::{Census, Process, Role, fork};

use crate::echo::{self, Echo, alone_for, call, check_calls, quiet_call, read_message, soon};

/// A forked child is done within this time.
const PATIENCE: Duration = Duration::from_secs(20);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// What the children do. Not a test of itself.
#[test]
#[ignore = "runs in processes that other tests start"]
fn as_child() {
    let Some(role) = Role::of_this_process() else { return };
    let address = Address::Path(role.socket.clone());
    match role.name.as_str() {
        "client that forks in mid-call" => fork_in_mid_call(&role, &address),
        "client with a child" => {
            let runtime = runtime();
            let client = runtime.block_on(Attachment::connect(&address, &Config::default())).unwrap();
            runtime.block_on(check_calls(&client, 3));
            outlive(&role);
            runtime.block_on(std::future::pending::<()>());
        }
        "server with a child" => {
            let runtime = runtime();
            let mut listener =
                runtime.block_on(async { Listener::bind(&address, Config::default()) }).unwrap();
            let attachment = runtime.block_on(listener.accept()).unwrap();
            outlive(&role);
            runtime.block_on(echo::serve(&attachment));
        }
        "server whose child lets go of everything" => {
            let runtime = runtime();
            let mut listener =
                runtime.block_on(async { Listener::bind(&address, Config::default()) }).unwrap();
            role.ready();
            // One session that exists, and one client in the middle of its handshake.
            let attachment = runtime.block_on(listener.accept()).unwrap();
            runtime.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
            let mut owned = Some((listener, attachment, runtime));
            let child = fork(|| {
                drop(owned.take());
                i32::from(!role.socket.exists())
            });
            assert_eq!(child.wait(PATIENCE), 0, "the socket's file is its parent's");
            let (mut listener, attachment, runtime) = owned.unwrap();
            std::fs::write(beside(&role, "forked"), "").unwrap();
            runtime.block_on(async {
                tokio::spawn(async move { drop(echo::serve(&attachment).await) });
                while let Some(attachment) = listener.accept().await {
                    tokio::spawn(async move { drop(echo::serve(&attachment).await) });
                }
            });
        }
        other => panic!("no role {other}"),
    }
}

/// A file by which processes of a test tell each other things.
fn beside(role: &Role, name: &str) -> std::path::PathBuf {
    role.socket.with_file_name(name)
}

/// Forks a child that lives on after its parent, and says so when it is alone, until it is told to go.
fn outlive(role: &Role) {
    let parent = std::process::id();
    let (alone, done) = (beside(role, "alone"), beside(role, "done"));
    let child = fork(|| {
        let began = Instant::now();
        while !done.exists() && began.elapsed() < Duration::from_secs(60) {
            if std::os::unix::process::parent_id() != parent {
                let _ = std::fs::write(&alone, "");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        0
    });
    child.leave();
    role.ready();
}

fn fork_in_mid_call(role: &Role, address: &Address) {
    let runtime = runtime();
    let client = runtime.block_on(Attachment::connect(address, &Config::default())).unwrap();
    let large = Bytes::from(vec![5; 300_000]);
    assert_eq!(runtime.block_on(call(&client, large.clone())), Some(large.clone()));
    let quiet = runtime.block_on(quiet_call(&client));
    let before = Census::take();
    let mut owned = Some((client, quiet, runtime));
    let child = fork(|| {
        let (client, quiet, runtime) = owned.take().unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        let told = |closed: &Closed| closed.to_string().contains("forked");
        let mut opener = client.open();
        let opening = Opening { path: "/test.Echo/Call", deadline_ns: 0 };
        let opened = opener.poll_open(&mut cx, opening, &mut Outgoing::default());
        let checks = [
            client.closed().is_some_and(|closed| told(&closed)),
            !client.is_open(),
            matches!(opened, Poll::Ready(Err(SendError::Closed(closed))) if told(&closed)),
            matches!(quiet.poll_incoming(&mut cx), Poll::Ready(Err(closed)) if told(&closed)),
            Census::take().map_count == 0,
        ];
        quiet.cancel(1);
        client.close("not this process's to say");
        drop((opener, quiet, client, runtime));
        if let Some(failed) = checks.iter().position(|ok| !ok) {
            return failed as i32 + 1;
        }
        // A session of its own works.
        let runtime = self::runtime();
        let own = runtime.block_on(Attachment::connect(address, &Config::default())).unwrap();
        runtime.block_on(check_calls(&own, 5));
        assert_eq!(runtime.block_on(call(&own, large.clone())), Some(large.clone()));
        0
    });
    assert_eq!(child.wait(PATIENCE), 0, "the check of this number failed in the child");
    // The parent's session is as it was.
    let (client, quiet, runtime) = owned.take().unwrap();
    assert_eq!(client.closed(), None);
    assert_eq!(client.live_count(), 1);
    runtime.block_on(check_calls(&client, 5));
    assert_eq!(runtime.block_on(call(&client, large.clone())), Some(large));
    assert_eq!(Census::take(), before);
    drop(quiet);
    role.ready();
}

#[test]
fn a_fork_in_mid_call_leaves_the_session_to_the_parent() {
    alone_for(60, async {
        let server = Echo::start(Config::default());
        let honest = server.connect().await;
        check_calls(&honest, 3).await;
        let path = server.path();
        tokio::task::block_in_place(|| {
            let mut child = Process::start("forks::client that forks in mid-call", &path, "");
            let status = child.wait_end(2 * PATIENCE).expect("it ends");
            assert!(status.success(), "{status}");
        });
        // The parent's session and the child's own.
        for _ in 0..2 {
            let closed = server.next_end().await;
            assert!(!matches!(closed, Closed::Violation(_)), "{closed}");
        }
        check_calls(&honest, 3).await;
    });
}

/// Waits until the child of a killed process has noticed that it is alone.
async fn until_alone(directory: &Path) {
    let began = Instant::now();
    while !directory.join("alone").exists() {
        assert!(began.elapsed() < PATIENCE, "the child is gone with its parent");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[test]
fn a_clients_child_does_not_hide_its_death() {
    alone_for(60, async {
        let server = Echo::start(Config::default());
        let honest = server.connect().await;
        check_calls(&honest, 3).await;
        let before = Census::take();
        let path = server.path();
        let client =
            tokio::task::block_in_place(|| Process::start_ready("forks::client with a child", &path, ""));
        client.signal(Signal::KILL);
        until_alone(server.directory.path()).await;
        assert_eq!(server.next_end().await, Closed::HungUp);
        check_calls(&honest, 3).await;
        check_calls(&server.connect().await, 3).await;
        // It also holds the pipe to this process.
        std::fs::write(server.directory.path().join("done"), "").unwrap();
        drop(client);
        server.next_end().await;
        before.assert_back();
    });
}

#[test]
fn a_servers_child_does_not_hide_its_death_nor_keep_its_address() {
    // The child looks for a file there, until after the test.
    let directory = tempfile::tempdir().unwrap();
    alone_for(60, async {
        let path = directory.path().join("s.sock");
        let address = Address::Path(path.clone());
        let mut server = Process::start("forks::server with a child", &path, "");
        let began = Instant::now();
        let client = loop {
            match Attachment::connect(&address, &Config::default()).await {
                Ok(client) => break client,
                Err(error) => assert!(began.elapsed() < PATIENCE, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        };
        tokio::task::block_in_place(|| server.wait_ready());
        check_calls(&client, 3).await;
        let quiet = quiet_call(&client).await;
        server.signal(Signal::KILL);
        until_alone(directory.path()).await;
        assert_eq!(soon("a call to a dead server", read_message(&quiet)).await, None);
        assert_eq!(client.closed(), Some(Closed::HungUp));
        // The child keeps the socket that listens open, and nobody will ever accept there.
        let error = Attachment::connect(&address, &Config::default()).await.unwrap_err();
        assert!(error.to_string().contains("process has died"), "{error}");
        assert!(error.kind.is_transient());
        let mut successor = Listener::bind(&address, Config::default()).unwrap();
        let client = Attachment::connect(&address, &Config::default()).await.unwrap();
        let attachment = successor.accept().await.unwrap();
        tokio::spawn(async move { drop(echo::serve(&attachment).await) });
        check_calls(&client, 3).await;
        assert!(!directory.path().join("done").exists(), "the child is still there");
        std::fs::write(directory.path().join("done"), "").unwrap();
    });
}

#[test]
fn a_child_that_lets_go_of_everything_takes_nothing_from_its_parent() {
    alone_for(60, async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let address = Address::Path(path.clone());
        let _server = tokio::task::block_in_place(|| {
            Process::start_ready("forks::server whose child lets go of everything", &path, "")
        });
        let client = Attachment::connect(&address, &Config::default()).await.unwrap();
        let door = tollfree_testkit::Door::knock(&path).unwrap();
        let began = Instant::now();
        while !directory.path().join("forked").exists() {
            assert!(began.elapsed() < PATIENCE, "the server never forked");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        soon("the session from before", check_calls(&client, 5)).await;
        let peer = tokio::task::block_in_place(|| door.enter(|_| {}));
        peer.expect("the handshake that was under way goes on");
        let fresh = soon("a new client", Attachment::connect(&address, &Config::default())).await.unwrap();
        soon("a new session", check_calls(&fresh, 5)).await;
    });
}
