//! What is not about single calls: sessions and their rings, waiting, peers that die.

use std::time::{Duration, Instant};

use tollfree::{Server, WaitPolicy};
use tollfree_stubs::greeter::HelloRequest;
use tollfree_stubs::greeter::greeter_client::GreeterClient;

use super::place::{PATIENCE, Place};

#[tokio::test]
async fn rings_and_waits_are_told() {
    let (_, health) = tonic_health::server::health_reporter();
    let place = Place::start(true, Server::builder().add_service(health).wait(WaitPolicy::Park));
    let channel = place.channel(|builder| builder.wait(WaitPolicy::Park)).await;
    for figures in [&place.server, &place.client] {
        figures.until("tollfree_sessions", &[], 1.0).await;
        assert!(figures.sum("tollfree_ring_bytes", &[]) > 0.0);
        assert!(figures.sum("tollfree_ring_used_bytes", &[]) <= figures.sum("tollfree_ring_bytes", &[]));
    }
    let begun = Instant::now();
    loop {
        let hello = GreeterClient::new(channel.clone()).hello(HelloRequest::default()).await;
        assert_eq!(hello.unwrap_err().code(), tonic::Code::Unimplemented);
        if place.client.sum("tollfree_woken_total", &[]) > 0.0 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "nobody was ever woken: {:#?}", place.client.page());
    }
    // Names that nobody serves have no label of their own.
    let other = ["\"other\"", "\"UNIMPLEMENTED\""];
    place.server.at_least("grpc_server_call_duration_seconds_count", &other, 1.0).await;
    assert_eq!(place.server.sum("grpc_server_call_started_total", &["Greeter"]), 0.0);
    let names = ["looked_seconds", "parked", "rung", "peer_deaths", "refusals"];
    let page = place.server.page();
    for name in names.map(|name| format!("tollfree_{name}_total")) {
        assert!(page.keys().any(|series| series.starts_with(&name)), "{name}: {page:#?}");
    }
    drop(channel);
    let begun = Instant::now();
    while place.server.sum("tollfree_sessions", &[]) > 0.0 {
        assert!(begun.elapsed() < PATIENCE, "the session is still counted: {:#?}", place.server.page());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
