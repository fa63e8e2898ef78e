//! What needs Linux says so, once, with the address and with what to write in its place.

use std::time::Duration;

use tollfree::{Channel, Server, Upgrade, blocking, pool};

/// Addresses of sessions, well written.
const ADDRESSES: [&str; 2] = ["shm:///run/app/greeter.sock", "shm-abstract:greeter"];

fn says_what_to_do(what: &str, error: &dyn std::error::Error) {
    let text = error.to_string();
    assert!(text.contains(what), "{text} doesn't name {what}");
    assert_eq!(text.matches("need Linux").count(), 1, "{text}");
    assert!(text.contains("use unix:/path or http://host:port"), "{text}");
}

#[tokio::test]
async fn channels_to_shared_memory_are_refused() {
    for address in ADDRESSES {
        says_what_to_do(address, &Channel::connect(address).await.unwrap_err());
        says_what_to_do(address, &Channel::builder(address).connect_lazy().unwrap_err());
        says_what_to_do(
            address,
            &Channel::builder(address).wait_for_ready(true).connect().await.unwrap_err(),
        );
        let several = Channel::builder("http://127.0.0.1:1").endpoint(address);
        says_what_to_do(address, &several.connect_lazy().unwrap_err());
        says_what_to_do(address, &Channel::via(address, "greeters").await.unwrap_err());
    }
    let required =
        Channel::builder("http://127.0.0.1:1").upgrade(Upgrade::Required).upgrade_directory("/run/app");
    says_what_to_do("required", &required.connect_lazy().unwrap_err());
}

#[test]
fn blocking_channels_and_servers_at_shared_memory_are_refused() {
    for address in ADDRESSES {
        says_what_to_do(address, &blocking::Channel::connect(address).unwrap_err());
        says_what_to_do(address, &Server::builder().serve_blocking(address).unwrap_err());
    }
}

#[tokio::test]
async fn servers_at_shared_memory_are_refused() {
    let (_, health) = tonic_health::server::health_reporter();
    let server = || Server::builder().add_service(health.clone());
    for address in ADDRESSES {
        says_what_to_do(address, &server().serve(address).await.unwrap_err());
        says_what_to_do(address, &server().serve_many(["http://127.0.0.1:0", address]).await.unwrap_err());
        says_what_to_do(address, &server().attach(address).await.unwrap_err());
    }
    let directory = tempfile::tempdir().unwrap();
    let passed = std::os::unix::net::UnixListener::bind(directory.path().join("s.sock")).unwrap();
    says_what_to_do("passed", &server().serve_listener(passed).await.unwrap_err());
}

#[test]
fn pools_are_refused() {
    for address in ADDRESSES {
        says_what_to_do(address, &address.parse::<pool::Address>().unwrap_err());
    }
    let address = pool::Address::Path("/run/app/pool.sock".into());
    let refused = pool::Pool::create(&address, pool::Capacity::default(), pool::Config::default());
    says_what_to_do("pool.sock", &refused.unwrap_err());
}

/// The error comes at once, whatever the channel would wait for.
#[tokio::test]
async fn nobody_waits_for_what_never_comes() {
    let connecting = Channel::builder(ADDRESSES[0]).wait_for_ready(true).connect();
    let refused = tokio::time::timeout(Duration::from_secs(5), connecting).await.unwrap();
    assert!(refused.is_err());
}
