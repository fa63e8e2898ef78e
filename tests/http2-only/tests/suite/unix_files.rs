//! Socket files of HTTP/2 servers.

use tollfree::{Channel, Server};

use crate::{addresses, until_served};

fn server() -> Server {
    let (_, health) = tonic_health::server::health_reporter();
    Server::builder().add_service(health)
}

#[test]
fn a_dead_servers_socket_is_replaced_and_the_file_goes_with_its_server() {
    let directory = tempfile::tempdir().unwrap();
    let [_, address] = addresses(directory.path());
    let path = directory.path().join("s.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let serving = address.clone();
    let serving = std::thread::spawn(move || {
        server().serve_blocking_with_shutdown(serving, async move { ended.await.unwrap_or_default() })
    });
    drop(until_served(|| Channel::builder(address.as_str()).connect_blocking()));
    let second = server().serve_blocking(address.as_str()).unwrap_err().to_string();
    assert!(second.contains("in use"), "{second}");
    drop(end);
    serving.join().unwrap().unwrap();
    assert!(!path.exists());
}
