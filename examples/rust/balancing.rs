//! One channel to several servers: `cargo run --example balancing`.
//!
//! The servers may be of any kind: here one is reached through shared memory, the other over a Unix socket.

use tollfree::{Balance, Channel, Server};
use tollfree_stubs::greeter::greeter_client::GreeterClient;
use tollfree_stubs::greeter::greeter_server::{Greeter, GreeterServer};
use tollfree_stubs::greeter::{HelloReply, HelloRequest};
use tonic::{Request, Response, Status};

struct Named(&'static str);

#[tonic::async_trait]
impl Greeter for Named {
    async fn hello(&self, _: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        Ok(Response::new(HelloReply { text: self.0.into() }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let first = format!("shm://{}/first.sock", directory.path().display());
    let second = format!("unix:{}/second.sock", directory.path().display());
    for (name, address) in [("first", first.clone()), ("second", second.clone())] {
        let server = Server::builder().add_service(GreeterServer::new(Named(name)));
        tokio::spawn(async move { server.serve(&address).await.expect("the directory is ours") });
    }

    let channel = Channel::builder(first)
        .endpoint(second)
        .balance(Balance::RoundRobin)
        .wait_for_ready(true) // calls wait until a server is there
        .connect_lazy()?;
    let mut client = GreeterClient::new(channel.clone());
    let mut seen = [false; 2];
    // A server gets calls from the moment on in which it is connected.
    while seen != [true; 2] {
        let reply = client.hello(HelloRequest::default()).await?.into_inner();
        seen[usize::from(reply.text == "second")] = true;
    }
    println!("both servers have answered");
    println!("{}", channel.path()); // which servers are used, and why not the others
    Ok(())
}
