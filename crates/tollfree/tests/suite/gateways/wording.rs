//! What is said where attaching, or calling via a gateway, can't work.

use tollfree::gateway::Limits;
use tollfree::{Channel, PeerPolicy, Server};
use tonic::Code;

use super::{Place, client, in_time, next_attached, server};
use crate::stubs::probe::Ask;

/// Why a server does not attach.
async fn refusal(attaching: tollfree::Attaching) -> String {
    in_time("a refusal", attaching.into_future()).await.unwrap_err().to_string()
}

fn check(said: &str, words: &[&str]) {
    assert!(words.iter().all(|word| said.contains(word)), "{said:?} lacks some of {words:?}");
}

#[tokio::test]
async fn what_can_never_work_is_said_at_once() {
    let place = Place::new();
    let _backend_listener = place.backend_listener().await;
    let attach = || server().0.attach(place.uri());
    check(&refusal(attach().group("two words")).await, &["Server::attach", "1 to 64 visible"]);
    check(&refusal(attach().group("")).await, &["1 to 64 visible"]);
    check(&refusal(server().0.attach("http://localhost:50051")).await, &["can't be served"]);
    let strangers = Server::builder().peers(PeerPolicy::Users(Vec::new()));
    check(&refusal(strangers.attach(place.uri())).await, &["gateway.sock", "Server::peers"]);

    let via = async |uri: &str, target: &str| Channel::via(uri, target).await.unwrap_err().to_string();
    check(
        &via("http://localhost:50051", "https://inventory:443").await,
        &["no gateway's address", "shm:///path"],
    );
    check(&via(&place.uri(), "").await, &["via a gateway", "1 to 1024 visible"]);
    let plain = Channel::connect(place.uri()).await.unwrap_err().to_string();
    check(&plain, &["gateway.sock", "a gateway listens", "Channel::via"]);
}

/// What a gateway's config does not allow is said in its words.
#[tokio::test]
async fn a_user_that_a_gateway_does_not_know_is_told_so() {
    let place = Place::new();
    let limits = Limits { peers: PeerPolicy::Users(Vec::new()), ..Limits::default() };
    let _backend_listener = tollfree::gateway::BackendListener::bind(place.uri(), limits).await.unwrap();
    let own = format!(
        "user {} is in no group's users in the gateway's config",
        rustix::process::geteuid().as_raw()
    );
    check(&refusal(server().0.attach(place.uri())).await, &["gateway.sock", &own]);
    let via = Channel::via(place.uri(), "https://inventory:443").await.unwrap_err().to_string();
    check(&via, &["gateway.sock", &own]);
}

#[tokio::test]
async fn a_server_is_no_gateway() {
    let place = Place::new();
    let serving = tokio::spawn(server().0.serve(place.uri()));
    in_time("it serves", async {
        while Channel::connect(place.uri()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    check(
        &refusal(server().0.attach(place.uri())).await,
        &["can't attach", "gateway.sock", "no gateway listens"],
    );
    let via = Channel::via(place.uri(), "https://inventory:443").await.unwrap_err().to_string();
    check(&via, &["gateway.sock", "no gateway listens"]);
    serving.abort();
}

/// A backend connection beyond its share waits for its turn, and is counted.
#[tokio::test]
async fn backend_connections_and_channels_count_as_sessions() {
    let place = Place::new();
    let limits = Limits { sessions_per_process: Some(2), ..Limits::default() };
    let mut backend_listener = tollfree::gateway::BackendListener::bind(place.uri(), limits).await.unwrap();
    let serving = tokio::spawn(server().0.attach(place.uri()).backend_connections(3).into_future());
    let first = next_attached(&mut backend_listener).await;
    let second = next_attached(&mut backend_listener).await;
    let via = in_time("a refusal", Channel::via(place.uri(), "https://inventory:443")).await;
    check(&via.unwrap_err().to_string(), &["2 sessions at once"]);
    assert!(backend_listener.refusals().count() > 0);
    assert!(!serving.is_finished(), "its third backend connection tries again");
    drop(first);
    let third = next_attached(&mut backend_listener).await;
    assert_eq!(third.process(), second.process());
    serving.abort();
}

/// A gateway that does not want a process ends the session, and the process comes again.
#[tokio::test]
async fn a_backend_connection_that_a_gateway_turns_away_comes_again() {
    let place = Place::new();
    let mut backend_listener = place.backend_listener().await;
    let serving = tokio::spawn(server().0.attach(place.uri()).into_future());
    for _ in 0..3 {
        let backend_connection = next_attached(&mut backend_listener).await;
        backend_connection.close("this group is not served here");
        in_time("it is closed", backend_connection.closed()).await;
        let said = in_time("a call", client(&backend_connection).unary(Ask::default())).await.unwrap_err();
        assert_eq!(said.code(), Code::Unavailable, "{said}");
    }
    assert!(!serving.is_finished());
    serving.abort();
}
