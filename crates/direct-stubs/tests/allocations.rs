//! What a direct unary call costs in allocations, both sides together.

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

#[test]
fn a_direct_call_allocates_little_more_than_its_messages() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let uri = format!("shm://{}", directory.path().join("s.sock").display());
    let server = tollfree::Server::builder().add_service(GreeterServer::new(Polite));
    let serving = uri.clone();
    let server = runtime.spawn(async move { server.serve(&serving).await });
    let channel = runtime.block_on(async {
        loop {
            match tollfree::Channel::connect(&*uri).await {
                Ok(channel) => break channel,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    });
    let mut client = GreeterClient::new(channel);
    // The fewest: a call that something else of the runtime's falls into counts more.
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
    server.abort();
    println!("{count} allocations, {len} bytes a call, both sides together");
    assert!(count <= COUNT_MAX, "{count} allocations a call");
}
