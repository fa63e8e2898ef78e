//! Deadlines and cancellation: `cargo run --example deadlines`.
//!
//! A call that takes too long ends at both ends. A call that its client drops ends at the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tollfree_stubs::greeter::greeter_client::GreeterClient;
use tollfree_stubs::greeter::greeter_server::{Greeter, GreeterServer};
use tollfree_stubs::greeter::{HelloReply, HelloRequest};
use tonic::{Request, Response, Status};

/// A greeter that never gets around to it.
struct SlowGreeter {
    given_up: Arc<Notify>,
}

/// Tells that a handler has ended, however it ended.
struct TellsTheEnd(Arc<Notify>);

impl Drop for TellsTheEnd {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tonic::async_trait]
impl Greeter for SlowGreeter {
    async fn hello(&self, _: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let _tells_the_end = TellsTheEnd(self.given_up.clone());
        std::future::pending().await
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let address = format!("shm://{}/greeter.sock", directory.path().display());
    let given_up = Arc::new(Notify::new());
    let greeter = SlowGreeter { given_up: given_up.clone() };
    let server = tollfree::Server::builder().add_service(GreeterServer::new(greeter));
    let serving = address.clone();
    tokio::spawn(async move { server.serve(&serving).await.expect("the directory is ours") });

    // `timeout` is for calls that bring none, or a longer one.
    let channel = tollfree::Channel::builder(address).wait_for_ready(true).timeout(Duration::from_secs(60));
    let mut client = GreeterClient::new(channel.connect_lazy()?);

    let mut request = Request::new(HelloRequest { name: "world".into() });
    request.set_timeout(Duration::from_millis(100));
    let status = client.hello(request).await.expect_err("the greeter is slow");
    println!("the deadline passed: {}", status.code());
    given_up.notified().await;
    println!("the server gave up, too");

    let mut dropped = Box::pin(client.hello(HelloRequest { name: "world".into() }));
    let waited = tokio::time::timeout(Duration::from_millis(500), &mut dropped).await;
    println!("answered: {}", waited.is_ok());
    drop(dropped);
    given_up.notified().await;
    println!("dropping the call canceled it at the server");
    Ok(())
}
