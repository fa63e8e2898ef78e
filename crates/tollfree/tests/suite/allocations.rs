//! What a unary call costs in allocations, both sides together: tonic's own layers, and what comes on top of them.

use tollfree_stubs::greeter::greeter_client::GreeterClient;
use tollfree_stubs::greeter::greeter_server::{Greeter, GreeterServer};
use tollfree_stubs::greeter::{HelloReply, HelloRequest};
use tollfree_testkit::alone;
use tonic::{Request, Response, Status};

/// Measured: see the test's own output with `--nocapture`.
const ON_TOP_MAX: u64 = 20;
const CALL_COUNT: u64 = 1_000;

struct Polite;

#[tonic::async_trait]
impl Greeter for Polite {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(Response::new(HelloReply { text: request.into_inner().name }))
    }
}

/// Allocations of one call, on average, and their bytes.
macro_rules! measure {
    ($runtime:expr, $client:expr) => {{
        let mut client = $client;
        let mut run = |count| {
            $runtime.block_on(async {
                for _ in 0..count {
                    let request = HelloRequest { name: "sixteen letters.".into() };
                    assert_eq!(client.hello(request).await.unwrap().into_inner().text.len(), 16);
                }
            })
        };
        run(CALL_COUNT);
        let info = allocation_counter::measure(|| run(CALL_COUNT));
        (info.count_total.div_ceil(CALL_COUNT), info.bytes_total / CALL_COUNT)
    }};
}

#[test]
fn a_unary_call_allocates_little_more_than_tonic_does() {
    alone!();
    let runtime = tokio::uncounted::Builder::new_current_thread().enable_all().build().unwrap();
    let (tonic_count, tonic_len) = measure!(runtime, GreeterClient::new(GreeterServer::new(Polite)));
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
    let (count, len) = measure!(runtime, GreeterClient::new(channel));
    server.abort();
    println!(
        "tonic alone: {tonic_count} allocations, {tonic_len} bytes a call; over sessions: {count}, {len} bytes"
    );
    let on_top = count.saturating_sub(tonic_count);
    assert!(on_top <= ON_TOP_MAX, "{on_top} allocations on top of tonic's {tonic_count}");
}
