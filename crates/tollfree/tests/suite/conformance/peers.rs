//! Peers that are not there, not what they should be, or gone: over shared memory only.

use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};
use tollfree_testkit::path_of;

use crate::stubs::probe::Ask;
use crate::stubs::probe::probe_client::ProbeClient;
use crate::stubs::probe::probe_server::ProbeServer;
use tollfree::{Channel, Server};
use tonic::{Code, Status};

use super::carrier::connect;
use super::lab::{Lab, Way, until};
use super::probe::{Probe, Witness};

const CHILD_URI: &str = "TOLLFREE_TEST_CHILD_URI";

/// Not a test: the server process of [`a_killed_server_is_unavailable_and_its_successor_is_found`].
#[tokio::test]
#[ignore = "run by another test, as a process to be killed"]
async fn child_server() {
    let uri = std::env::var(CHILD_URI).expect("set by the test that starts this");
    let service = ProbeServer::new(Probe::new(Witness::default()));
    Server::builder().add_service(service).serve(&uri).await.unwrap();
}

pub(crate) fn start_child(uri: &str) -> std::process::Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &path_of(module_path!(), "child_server"), "--ignored", "--quiet"])
        .env(CHILD_URI, uri)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn a_killed_server_is_unavailable_and_its_successor_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", directory.path().join("s.sock").display());
    let mut child = start_child(&uri);
    let channel = connect(Way::Shm, &uri).await;
    let mut client = ProbeClient::new(channel);
    assert!(client.unary(Ask::default()).await.is_ok());
    let under_way = tokio::spawn({
        let mut client = client.clone();
        async move { client.unary(Ask { wait_ms: 60_000, ..Ask::default() }).await }
    });
    let endless = Ask { lens: vec![10; 100_000], pause_ms: 1, ..Ask::default() };
    let mut stream = client.down(endless).await.unwrap().into_inner();
    assert!(stream.message().await.unwrap().is_some());
    child.kill().unwrap();
    let killed = Instant::now();
    child.wait().unwrap();
    let expect = |status: Status| {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("s.sock"), "{status}");
    };
    expect(under_way.await.unwrap().unwrap_err());
    expect(loop {
        match stream.message().await {
            Ok(message) => assert!(message.is_some(), "cut off, not ended"),
            Err(status) => break status,
        }
    });
    assert!(killed.elapsed() < Duration::from_secs(2), "death is noticed at once");
    // The socket is stale now: that is said, and a successor takes it over.
    expect(client.unary(Ask::default()).await.unwrap_err());
    let error = Channel::connect(&*uri).await.unwrap_err().to_string();
    assert!(error.contains("nobody listens") && error.contains("s.sock"), "{error}");
    let mut child = start_child(&uri);
    drop(connect(Way::Shm, &uri).await);
    let mut last = None;
    for _ in 0..200 {
        // Calls fail at once for a while after an attempt to connect has failed.
        match client.unary(Ask::default()).await {
            Ok(_) => {
                last = None;
                break;
            }
            Err(status) => last = Some(status),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(last.is_none(), "{last:?}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn addresses_that_are_none_say_how_to_write_one() {
    for uri in ["", "ftp://localhost:1", "/run/x.sock", "shm://relative", "shm-abstract:", "http://"] {
        let error = Channel::connect(uri).await.unwrap_err().to_string();
        assert!(error.contains(&format!("\"{uri}\"")), "{error}");
        let hints = ["shm", "names no socket", "write http://host:port"];
        assert!(hints.iter().any(|hint| error.contains(hint)), "{error}");
        assert!(Channel::builder(uri).connect_lazy().is_err());
    }
    for uri in ["", "tcp:1", "shm://relative", "/run/x.sock"] {
        let error = Server::builder().serve(uri).await.unwrap_err().to_string();
        assert!(error.contains(&format!("\"{uri}\"")), "{error}");
    }
    let error = Server::builder().serve("shm:///no/such/directory/s.sock").await.unwrap_err().to_string();
    assert!(error.contains("directory") && error.contains("/no/such/directory/s.sock"), "{error}");
}

#[tokio::test]
async fn nobody_there_is_unavailable_until_somebody_is() {
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", directory.path().join("s.sock").display());
    let error = Channel::connect(&*uri).await.unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
    let mut client = ProbeClient::new(Channel::builder(&*uri).connect_lazy().unwrap());
    for _ in 0..3 {
        let status = client.unary(Ask::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("s.sock"), "{status}");
    }
    let service = ProbeServer::new(Probe::new(Witness::default()));
    let server = tokio::spawn({
        let uri = uri.clone();
        async move { Server::builder().add_service(service).serve(&uri).await }
    });
    let mut answered = false;
    for _ in 0..300 {
        answered = client.unary(Ask::default()).await.is_ok();
        if answered {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(answered);
    server.abort();
}

#[tokio::test]
async fn a_second_server_is_told_that_there_is_one() {
    let lab = Lab::start(Way::Shm).await;
    let error = Server::builder().serve(&lab.uri).await.unwrap_err().to_string();
    assert!(error.contains("in use by a running server"), "{error}");
    assert!(lab.client().unary(Ask::default()).await.is_ok(), "the first goes on");
}

#[tokio::test]
async fn a_socket_that_never_answers_is_given_up() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let mut client =
        ProbeClient::new(Channel::builder(format!("shm://{}", path.display())).connect_lazy().unwrap());
    let mut request = tonic::Request::new(Ask::default());
    request.set_timeout(Duration::from_millis(50));
    let began = Instant::now();
    let status = client.unary(request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn when_one_address_is_taken_none_is_served() {
    let lab = Lab::start(Way::Shm).await;
    let directory = tempfile::tempdir().unwrap();
    let free = directory.path().join("free.sock");
    let uris = [format!("shm://{}", free.display()), lab.uri.clone()];
    let error = Server::builder().serve_many(uris.iter().map(String::as_str)).await.unwrap_err();
    assert!(error.to_string().contains(&lab.uri), "{error}");
    until("the other is free again", || !free.exists()).await;
}

/// Calls that a draining server has refused unseen are made again on its successor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_move_over_to_a_successor() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let uri = format!("shm://{}", path.display());
    let witness = Witness::default();
    let start = || {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (uri, service) = (uri.clone(), ProbeServer::new(Probe::new(witness.clone())));
        let server = tokio::spawn(async move {
            let signal = async { drop(stopped.await) };
            Server::builder().add_service(service).serve_with_shutdown(&uri, signal).await
        });
        (stop, server)
    };
    let mut running = start();
    let channel = connect(Way::Shm, &uri).await;
    let mut client = ProbeClient::new(channel.clone());
    for _ in 0..10 {
        // Under way on the old server while it drains: it must stay until this is answered.
        let before = witness.begun();
        let slow = tokio::spawn({
            let mut client = client.clone();
            async move { client.unary(Ask { wait_ms: 100, ..Ask::default() }).await }
        });
        until("the slow call is under way", || witness.begun() > before).await;
        drop(running.0);
        until("the old server has let go of the socket", || !path.exists()).await;
        let next = start();
        // A socket is there a moment before anybody listens on it.
        until("the new server listens", || UnixStream::connect(&path).is_ok()).await;
        // Not one of them fails: none was seen by the old server, or it answers.
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(30) {
            client.unary(Ask::default()).await.expect("moves over");
        }
        slow.await.unwrap().expect("the old server answers what it has taken");
        running.1.await.unwrap().unwrap();
        running = next;
    }
}

/// The narrow case of the above, on purpose: the request is on its way when the server drains.
#[tokio::test]
async fn a_call_refused_unseen_moves_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let uri = format!("shm://{}", path.display());
    let mut old = tollfree_driver_tokio::Listener::bind(&uri.parse().unwrap(), Default::default()).unwrap();
    let channel = Channel::connect(&*uri).await.unwrap();
    let session = old.accept().await.unwrap();
    std::fs::rename(&path, directory.path().join("old.sock")).unwrap();
    let witness = Witness::default();
    let service = ProbeServer::new(Probe::new(witness.clone()));
    let server = tokio::spawn(async move { Server::builder().add_service(service).serve(&uri).await });
    until("the successor listens", || path.exists()).await;
    let mut client = ProbeClient::new(channel);
    // On one thread nobody tells the client before it has sent.
    session.drain();
    let ask = Ask { body: vec![9; 5_000], ..Ask::default() };
    let answer = client.unary(ask).await.unwrap().into_inner();
    assert_eq!((answer.body, witness.begun()), (vec![9; 5_000], 1));
    assert!(!session.try_accept(&mut None), "the old server has not seen it");
    server.abort();
}

/// As tonic's handlers know it behind a Unix socket. This test is both ends.
#[tokio::test]
async fn handlers_know_the_process_and_user_that_call() {
    for way in [Way::Shm, Way::Abstract, Way::Moved] {
        let lab = Lab::start(way).await;
        let answer = lab.client().unary(Ask::default()).await.unwrap().into_inner();
        assert_eq!(answer.peer_pid, std::process::id());
        assert_eq!(answer.peer_uid, rustix::process::geteuid().as_raw());
    }
}
