//! An orderly end waits for calls, and not for clients that have none.

use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tollfree_stubs::probe::Ask;

use super::lab::{Lab, PATIENCE};
use super::tls::Authority;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A SETTINGS frame with nothing in it.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// A HEADERS frame that says to be longer than what follows.
const HALF_HEADERS: &[u8] = &[0, 0, 100, 1, 4, 0, 0, 0, 1, 0x83];

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

async fn say(mut socket: impl Io + 'static, beginning: &[u8]) -> Box<dyn Io> {
    socket.write_all(beginning).await.unwrap();
    Box::new(socket)
}

async fn unix(path: &Path, beginning: &[u8]) -> Box<dyn Io> {
    say(UnixStream::connect(path).await.unwrap(), beginning).await
}

/// With listeners of all kinds, and a drain that nobody has the patience for; where they listen.
async fn start() -> (Lab, String) {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = Authority::new().sign("localhost");
    std::fs::write(directory.path().join("certificate.pem"), certificate).unwrap();
    std::fs::write(directory.path().join("key.pem"), key).unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let tls = tollfree_testkit::free_address().to_string();
    let config = format!(
        "limits.drain_ms = 600000\nlimits.handshake_ms = 600000\nlisteners.tls.address = \"{tls}\"\nlisteners.tls.tls.certificate = \"{}\"\n\
         listeners.tls.tls.key = \"{}\"\nlisteners.unix.address = \"unix:{}\"\n",
        path("certificate.pem"),
        path("key.pem"),
        path("world.sock")
    );
    (Lab::start_in(directory, &config).await, tls)
}

async fn stops(lab: Lab) {
    let began = Instant::now();
    tokio::time::timeout(PATIENCE, lab.stopped()).await.expect("clients without a call hold it up");
    // Those that have begun HTTP/2 have a second to answer.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

/// Clients that begin in every way and do no more, at every listener.
async fn clients(lab: &Lab, tls: &str) -> Vec<Box<dyn Io>> {
    let mut clients = Vec::new();
    for beginning in [
        Vec::new(),
        PREFACE[..10].to_vec(),
        [PREFACE, SETTINGS].concat(),
        [PREFACE, SETTINGS, HALF_HEADERS].concat(),
    ] {
        let world = TcpStream::connect(lab.socket_address()).await.unwrap();
        clients.push(say(world, &beginning).await);
        clients.push(unix(&lab.file("world.sock"), &beginning).await);
        clients.push(unix(&lab.file("backends.sock"), &beginning).await);
    }
    // A record of TLS that is not complete.
    for beginning in [&[][..], &[22, 3, 1, 1, 0, 1, 0]] {
        clients.push(say(TcpStream::connect(tls).await.unwrap(), beginning).await);
    }
    clients
}

#[tokio::test]
async fn clients_without_a_call_do_not_hold_up_the_end() {
    let (lab, tls) = start().await;
    let attached = lab.attach("default").await;
    lab.client().await.unary(Ask::default()).await.unwrap();
    let _clients = clients(&lab, &tls).await;
    let _idle = lab.channel().await;
    lab.until_figure("tollfree_gateway_connections", |count| count >= 11.0).await;
    stops(lab).await;
    attached.stop().await;
}

#[tokio::test]
async fn clients_that_have_never_begun_are_gone_at_once() {
    let (lab, tls) = start().await;
    let world = lab.socket_address();
    let mut clients = Vec::new();
    for beginning in [&[][..], &PREFACE[..10]] {
        clients.push(say(TcpStream::connect(&world).await.unwrap(), beginning).await);
        clients.push(unix(&lab.file("world.sock"), beginning).await);
        clients.push(say(TcpStream::connect(&tls).await.unwrap(), beginning).await);
    }
    lab.until_figure("tollfree_gateway_connections", |count| count >= 4.0).await;
    let began = Instant::now();
    lab.stopped().await;
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
}

#[tokio::test]
async fn calls_are_answered_meanwhile() {
    let (lab, tls) = start().await;
    let attached = lab.attach("default").await;
    let _clients = clients(&lab, &tls).await;
    let mut client = lab.client().await;
    let call = tokio::spawn(async move { client.unary(Ask { wait_ms: 1, ..Ask::default() }).await });
    let begun = Instant::now();
    while attached.probe.live.load(std::sync::atomic::Ordering::SeqCst) == 0 {
        assert!(begun.elapsed() < PATIENCE, "the call does not come");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let gate = attached.probe.gate.clone();
    tokio::spawn(async move {
        // Longer than clients without a call are waited for.
        tokio::time::sleep(Duration::from_millis(2500)).await;
        gate.notify_waiters();
    });
    stops(lab).await;
    call.await.unwrap().unwrap();
    attached.stop().await;
}
