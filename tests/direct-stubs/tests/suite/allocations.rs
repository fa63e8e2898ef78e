//! What a direct unary call costs in allocations, both sides together.

use std::path::Path;
use std::time::Duration;

use tokio::uncounted::Runtime;
use tollfree::{Balance, Channel, EndpointState, Generated as _, Server, Way};
use tollfree_direct_stubs::greeter::greeter_client::GreeterClient;
use tollfree_direct_stubs::greeter::greeter_server::{Greeter, GreeterServer};
use tollfree_direct_stubs::greeter::{HelloReply, HelloRequest};
use tonic::{Request, Response, Status};

/// Two copies out of shared memory, the two strings that are decoded, the boxed future that `async_trait` makes, and three
/// for the request's extensions. Without optimization a handler's step may take so long that each call is served in a task of
/// its own, which is three more.
const COUNT_MAX: u64 = if cfg!(debug_assertions) { 12 } else { 8 };
const CALL_COUNT: u64 = 2_000;

struct Polite;

#[tonic::async_trait]
impl Greeter for Polite {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(Response::new(HelloReply { text: request.into_inner().name }))
    }
}

/// A server at two addresses in a runtime, and channels to the first and to both.
fn channels(runtime: &Runtime, directory: &Path) -> [Channel; 2] {
    let uris = ["a", "b"].map(|name| format!("shm://{}", directory.join(name).display()));
    let server = Server::builder().add_service(GreeterServer::new(Polite));
    let serving = uris.clone();
    runtime.spawn(async move { server.serve_many(serving.iter().map(String::as_str)).await });
    runtime.block_on(async {
        let plain = loop {
            match Channel::connect(&*uris[0]).await {
                Ok(channel) => break channel,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let several = Channel::builder(&*uris[0]).endpoint(&*uris[1]).balance(Balance::RoundRobin);
        let several = several.connect().await.unwrap();
        while several.path().endpoints.iter().any(|endpoint| endpoint.state != EndpointState::Ready) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        [plain, several]
    })
}

/// The fewest allocations of a call by this channel: one that something else of the runtime's falls into counts more.
fn fewest(runtime: &Runtime, channel: Channel) -> u64 {
    let mut client = GreeterClient::new(channel);
    assert_eq!(client.way(), Way::Direct);
    let (mut count, mut len) = (u64::MAX, 0);
    for _ in 0..CALL_COUNT {
        let request = HelloRequest { name: "sixteen letters.".into() };
        let mut reply = None;
        let info = allocation_counter::measure(|| reply = Some(runtime.block_on(client.hello(request))));
        assert_eq!(reply.unwrap().unwrap().into_inner().text.len(), 16);
        if info.count_total < count {
            (count, len) = (info.count_total, info.bytes_total);
        }
    }
    println!("{count} allocations, {len} bytes a call, both sides together");
    count
}

#[test]
fn a_direct_call_allocates_little_more_than_its_messages_also_where_an_endpoint_is_chosen() {
    let runtime = tokio::uncounted::Builder::new_current_thread().enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let [plain, several] = channels(&runtime, directory.path());
    for (what, channel) in [("one endpoint", plain), ("two endpoints", several)] {
        let count = fewest(&runtime, channel);
        assert!(count <= COUNT_MAX, "{what}: {count} allocations a call");
    }
}

#[test]
fn a_large_message_is_allocated_where_it_is_received_and_nowhere_else() {
    const LEN: usize = 1 << 20;
    let runtime = tokio::uncounted::Builder::new_current_thread().enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let [channel, _] = channels(&runtime, directory.path());
    let mut client = GreeterClient::new(channel);
    let mut fewest = u64::MAX;
    for _ in 0..200 {
        let request = HelloRequest { name: "x".repeat(LEN) };
        let mut reply = None;
        let info = allocation_counter::measure(|| reply = Some(runtime.block_on(client.hello(request))));
        assert_eq!(reply.unwrap().unwrap().into_inner().text.len(), LEN);
        fewest = fewest.min(info.bytes_total);
    }
    println!("{fewest} bytes allocated for {LEN} that go to and fro");
    // What came out of shared memory, and the string that is decoded from it, at each end.
    let received = 4 * LEN as u64;
    assert!((received..received + LEN as u64 / 4).contains(&fewest), "{fewest} bytes are allocated");
}
