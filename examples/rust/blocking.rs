//! A client for programs without a runtime: `cargo run --example blocking`.
//!
//! `tollfree_build::configure().build_blocking_client(true)` generates it.

use std::thread;
use std::time::Duration;

use tollfree::blocking::Channel;
use tollfree_direct_stubs::greeter::greeter_blocking_client::GreeterBlockingClient;
use tollfree_direct_stubs::greeter::greeter_server::{Greeter, GreeterServer};
use tollfree_direct_stubs::greeter::{HelloReply, HelloRequest};
use tonic::{Request, Response, Status};

struct MyGreeter;

#[tonic::async_trait]
impl Greeter for MyGreeter {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let text = format!("Hello, {}!", request.into_inner().name);
        Ok(Response::new(HelloReply { text }))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let address = format!("shm://{}/greeter.sock", directory.path().display());
    let serving = address.clone();
    // A thread that does nothing but serve; pin it to a core where the lowest latency is wanted.
    thread::spawn(move || {
        let server = tollfree::Server::builder().add_service(GreeterServer::new(MyGreeter));
        server.serve_blocking(&serving).expect("the directory is ours");
    });
    let channel = loop {
        match Channel::connect(address.as_str()) {
            Ok(channel) => break channel,
            Err(_) => thread::sleep(Duration::from_millis(10)), // the server is not there yet
        }
    };
    let mut client = GreeterBlockingClient::new(channel);
    let reply = client.hello(HelloRequest { name: "world".into() })?;
    println!("{}", reply.into_inner().text);
    Ok(())
}
