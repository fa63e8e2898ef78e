//! The page for probes: whether the gateway lives, and whether it is to be sent calls.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tollfree_gateway::{Config, Gateway};
use tollfree_stubs::probe::probe_server::ProbeServer;

use super::lab::PATIENCE;
use super::probe::Probe;

/// The status of an answer, and its body.
async fn ask(address: &str, method: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{method} {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
}

#[tokio::test]
async fn a_gateway_is_alive_at_once_and_ready_while_a_backend_takes_calls() {
    let directory = tempfile::tempdir().unwrap();
    let socket = format!("shm://{}", directory.path().join("backends.sock").display());
    let text = format!("backends.socket = \"{socket}\"\nprobes.address = \"127.0.0.1:0\"\n");
    let gateway = Gateway::bind(Config::from_toml(&text).unwrap()).await.unwrap();
    let address = gateway.addresses()["probes"].strip_prefix("http://").unwrap().to_owned();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(gateway.run(async { drop(stopped.await) }));
    assert_eq!(ask(&address, "GET", "/healthz").await, ("200".to_owned(), "ok\n".to_owned()));
    let (status, words) = ask(&address, "GET", "/readyz").await;
    assert_eq!(status, "503");
    assert!(words.contains("no backend takes calls"), "{words}");
    assert_eq!(ask(&address, "GET", "/metrics").await.0, "404", "figures are elsewhere");
    assert_eq!(ask(&address, "PUT", "/healthz").await.0, "405");
    let (leave, left) = tokio::sync::oneshot::channel::<()>();
    let server = tollfree::Server::builder().add_service(ProbeServer::new(Probe::default()));
    let backend = tokio::spawn(server.attach(socket).until(async { drop(left.await) }).into_future());
    let began = tokio::time::Instant::now();
    while ask(&address, "GET", "/readyz").await.0 != "200" {
        assert!(began.elapsed() < PATIENCE, "it is never ready");
    }
    assert_eq!(ask(&address, "HEAD", "/readyz").await, ("200".to_owned(), String::new()));
    drop(leave);
    tokio::time::timeout(PATIENCE, backend).await.unwrap().unwrap().unwrap();
    while ask(&address, "HEAD", "/readyz").await.0 != "503" {
        assert!(began.elapsed() < PATIENCE, "it stays ready without a backend");
    }
    drop(stop);
    tokio::time::timeout(PATIENCE, running).await.unwrap().unwrap();
}
