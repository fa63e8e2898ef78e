//! Addresses of several kinds: sessions and HTTP/2 side by side.

use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use crate::stubs::probe::Ask;
use crate::stubs::probe::probe_client::ProbeClient;
use crate::stubs::probe::probe_server::ProbeServer;
use tollfree::{Channel, Server};
use tonic::Status;

use super::carrier::connect;
use super::lab::{Lab, Way};
use super::probe::{Probe, Witness};

#[tokio::test]
async fn http2_and_sessions_recognise_each_other() {
    let http = Lab::start(Way::Http2).await;
    let path = http.uri.strip_prefix("unix:").unwrap();
    let began = Instant::now();
    let error = Channel::connect(format!("shm://{path}")).await.unwrap_err().to_string();
    assert!(error.contains("HTTP/2") && error.contains(path), "{error}");
    let ours = Lab::start(Way::Shm).await;
    let path = ours.uri.strip_prefix("shm://").unwrap();
    let endpoint = tonic::transport::Endpoint::try_from(format!("unix:{path}")).unwrap();
    let called = match endpoint.connect().await {
        Ok(channel) => ProbeClient::new(channel).unary(Ask::default()).await.map(drop),
        Err(error) => Err(Status::from_error(Box::new(error))),
    };
    assert!(called.is_err());
    assert!(began.elapsed() < Duration::from_secs(4), "neither waits for a handshake that never comes");
    assert!(ours.client().unary(Ask::default()).await.is_ok(), "the server goes on");
    assert!(http.client().unary(Ask::default()).await.is_ok());
}

/// A regular file, and a symbolic link to a dead server's socket, which by itself would be replaced.
#[tokio::test]
async fn what_is_no_socket_is_left_alone_at_every_kind_of_path() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("file"), "precious").unwrap();
    drop(UnixListener::bind(at("stale")).unwrap());
    std::os::unix::fs::symlink(at("stale"), at("link")).unwrap();
    for scheme in ["unix:", "unix://", "shm://"] {
        for name in ["file", "link"] {
            let uri = format!("{scheme}{}", at(name).display());
            let server = Server::builder().add_service(ProbeServer::new(Probe::new(Witness::default())));
            let error = server.serve(&uri).await.unwrap_err().to_string();
            assert!(error.contains(at(name).to_str().unwrap()) && error.contains("no socket"), "{error}");
        }
    }
    assert_eq!(std::fs::read(at("file")).unwrap(), b"precious");
    assert!(at("stale").exists() && std::fs::symlink_metadata(at("link")).unwrap().is_symlink());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 3, "and no lock is left");
}

#[tokio::test]
async fn one_server_answers_on_every_kind_of_address() {
    let directory = tempfile::tempdir().unwrap();
    let free = tollfree_testkit::free_address();
    let witness = Witness::default();
    let path = |name: &str| directory.path().join(name).display().to_string();
    // What a killed server left behind is in nobody's way, on either kind of socket.
    for name in ["s.sock", "u.sock"] {
        drop(UnixListener::bind(path(name)).unwrap());
    }
    let uris = [
        format!("shm://{}", path("s.sock")),
        format!("shm-abstract:tollfree-many-{}", std::process::id()),
        format!("unix:{}", path("u.sock")),
        format!("http://{free}"),
    ];
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn({
        let (uris, service) = (uris.clone(), ProbeServer::new(Probe::new(witness.clone())));
        async move {
            let uris = uris.iter().map(String::as_str);
            let signal = async { drop(stopped.await) };
            Server::builder().add_service(service).serve_many_with_shutdown(uris, signal).await
        }
    });
    for (uri, way) in uris.iter().zip([Way::Shm, Way::Abstract, Way::Http2, Way::Http2]) {
        let mut client = ProbeClient::new(connect(way, uri).await);
        let answer = client.unary(Ask { body: b"hello".into(), ..Ask::default() }).await.unwrap();
        assert_eq!(answer.into_inner().body, b"hello", "{uri}");
    }
    assert_eq!(witness.begun(), 4);
    drop(stop);
    server.await.unwrap().unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "no socket is left behind");
}
