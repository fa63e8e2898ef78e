//! An orderly end of a server waits for calls, and not for clients that have none.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tollfree::{ServeError, Server};
use tonic::transport::server::TcpIncoming;

use super::probe::{Probe, Witness};
use super::{PATIENCE, connect, until};
use crate::stubs::probe::Ask;
use crate::stubs::probe::probe_client::ProbeClient;
use crate::stubs::probe::probe_server::ProbeServer;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A SETTINGS frame with nothing in it.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// A HEADERS frame that says to be longer than what follows.
const HALF_HEADERS: &[u8] = &[0, 0, 100, 1, 4, 0, 0, 0, 1, 0x83];

/// What clients say and do no more than that.
fn beginnings() -> [Vec<u8>; 4] {
    [
        Vec::new(),
        PREFACE[..10].to_vec(),
        [PREFACE, SETTINGS].concat(),
        [PREFACE, SETTINGS, HALF_HEADERS].concat(),
    ]
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Clients of all those kinds at an address, as soon as somebody listens.
async fn clients(uri: &str) -> Vec<Box<dyn Io>> {
    drop(connect(uri).await);
    let mut clients = Vec::new();
    for beginning in beginnings() {
        let mut socket: Box<dyn Io> = match uri.strip_prefix("unix:") {
            Some(path) => Box::new(UnixStream::connect(Path::new(path)).await.unwrap()),
            None => Box::new(TcpStream::connect(uri.strip_prefix("http://").unwrap()).await.unwrap()),
        };
        socket.write_all(&beginning).await.unwrap();
        clients.push(socket);
    }
    // Accepted in their order, and this one is served.
    let mut client = ProbeClient::new(connect(uri).await);
    client.unary(Ask::default()).await.unwrap();
    clients
}

async fn ended(began: Instant, serving: JoinHandle<Result<(), ServeError>>) {
    let ended = tokio::time::timeout(PATIENCE, serving).await;
    ended.expect("clients without a call hold it up").unwrap().unwrap();
    // Those that have begun HTTP/2 have a second to answer.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test]
async fn clients_without_a_call_do_not_hold_up_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("u.sock").display().to_string();
    for uri in [format!("unix:{path}"), format!("http://{}", tollfree_testkit::free_address())] {
        let (stop, stopped) = oneshot::channel::<()>();
        let server = Server::builder().add_service(ProbeServer::new(Probe::new(Witness::default())));
        let serving = tokio::spawn(server.serve_with_shutdown(uri.clone(), async { drop(stopped.await) }));
        let _clients = clients(&uri).await;
        drop(stop);
        ended(Instant::now(), serving).await;
    }
}

#[tokio::test]
async fn nor_do_those_that_somebody_else_accepts() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = Server::builder().add_service(ProbeServer::new(Probe::new(Witness::default())));
    let incoming = TcpIncoming::from(listener);
    let serving = tokio::spawn(server.serve_with_incoming_shutdown(incoming, async { drop(stopped.await) }));
    let _clients = clients(&uri).await;
    drop(stop);
    ended(Instant::now(), serving).await;
}

#[tokio::test]
async fn a_client_that_has_never_begun_is_gone_at_once() {
    let uri = format!("http://{}", tollfree_testkit::free_address());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = Server::builder().add_service(ProbeServer::new(Probe::new(Witness::default())));
    let serving = tokio::spawn(server.serve_with_shutdown(uri.clone(), async { drop(stopped.await) }));
    let mut clients = clients(&uri).await;
    clients.truncate(2);
    // Let go by its channel, which closes its connection, and by those that have begun.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    drop(stop);
    tokio::time::timeout(PATIENCE, serving).await.expect("it ends").unwrap().unwrap();
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
}

#[tokio::test]
async fn calls_are_answered_meanwhile() {
    let uri = format!("http://{}", tollfree_testkit::free_address());
    let witness = Witness::default();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = Server::builder().add_service(ProbeServer::new(Probe::new(witness.clone())));
    let serving = tokio::spawn(server.serve_with_shutdown(uri.clone(), async { drop(stopped.await) }));
    let _clients = clients(&uri).await;
    let mut client = ProbeClient::new(connect(&uri).await);
    let under_way = tokio::spawn(async move {
        // Longer than clients without a call are waited for.
        let ask = Ask { lens: vec![10_000; 5], pause_ms: 600, ..Ask::default() };
        let mut answers = client.down(ask).await.unwrap().into_inner();
        let mut count = 0;
        while answers.message().await.unwrap().is_some() {
            count += 1;
        }
        count
    });
    until("the call is under way", || witness.live() == 1).await;
    drop(stop);
    assert_eq!(under_way.await.unwrap(), 5);
    ended(Instant::now(), serving).await;
}
