//! Clients that die in the middle of a request.

use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tollfree_testkit::path_of;

use bytes::Bytes;
use h2::Reason;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tollfree::Server;
use tonic::{Code, Request};

use super::probe::{Probe, Witness};
use super::{connect, until};
use crate::stubs::probe::Ask;
use crate::stubs::probe::probe_client::ProbeClient;
use crate::stubs::probe::probe_server::ProbeServer;

const CHILD: &str = "TOLLFREE_TEST_CUT_CHILD";

/// Not a test: the client process of [`a_request_of_a_client_that_was_killed_is_an_error`].
#[tokio::test]
#[ignore = "run by another test, as a process to be killed"]
async fn child_client() {
    let uri = std::env::var(CHILD).expect("set by the test that starts this");
    let mut client = ProbeClient::new(connect(&uri).await);
    let (sender, receiver) = mpsc::channel(4);
    for _ in 0..3 {
        sender.send(Ask { body: vec![1; 100], ..Ask::default() }).await.unwrap();
    }
    let mut request = Request::new(ReceiverStream::new(receiver));
    request.metadata_mut().insert("x-aside", "1".parse().unwrap());
    client.up(request).await.expect("its request has not ended");
    drop(sender);
}

/// Requests that a client of HTTP/2 resets with this reason, after one message.
async fn reset(socket: UnixStream, witness: &Witness, reasons: &[Reason]) {
    let (mut client, connection) = h2::client::handshake(socket).await.unwrap();
    let connection = tokio::spawn(connection);
    for (count, reason) in reasons.iter().enumerate() {
        let request = http::Request::post("http://localhost/tollfree.probe.v1.Probe/Up")
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("x-aside", "1")
            .body(())
            .unwrap();
        let (_answer, mut body) = client.send_request(request, false).unwrap();
        body.send_data(Bytes::from_static(&[0; 5]), false).unwrap();
        until("the handler reads", || witness.read() == count + 1).await;
        body.send_reset(*reason);
        until("the end is read", || witness.ends().len() == count + 1).await;
    }
    connection.abort();
}

#[tokio::test]
async fn a_request_that_was_reset_is_an_error_whatever_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("u.sock");
    let witness = Witness::default();
    let server = Server::builder().add_service(ProbeServer::new(Probe::new(witness.clone())));
    let serving = tokio::spawn(server.serve(format!("unix:{}", path.display())));
    let socket = loop {
        match UnixStream::connect(&path).await {
            Ok(socket) => break socket,
            Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    };
    reset(socket, &witness, &[Reason::CANCEL, Reason::NO_ERROR, Reason::INTERNAL_ERROR]).await;
    assert_eq!(witness.ends(), [Code::Aborted, Code::Internal, Code::Internal].map(Some));
    serving.abort();
}

fn start_child(uri: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &path_of(module_path!(), "child_client"), "--ignored", "--quiet"])
        .env(CHILD, uri)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn a_request_of_a_client_that_was_killed_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let uris = [format!("shm://{}", at("s.sock")), format!("unix:{}", at("u.sock"))];
    let witness = Witness::default();
    let server = Server::builder().add_service(ProbeServer::new(Probe::new(witness.clone())));
    let serving = tokio::spawn(server.serve_many(uris.clone()));
    for (count, uri) in uris.iter().enumerate() {
        let mut child = start_child(uri);
        until("the handler reads", || witness.read() == 3 * (count + 1)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        until("the end is read", || witness.ends().len() == count + 1).await;
        assert_eq!(witness.ends()[count], Some(Code::Unavailable), "{uri}");
    }
    serving.abort();
}
