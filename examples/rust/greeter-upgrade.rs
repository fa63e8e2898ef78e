//! A server on TCP that also has a local socket, and a client that leaves TCP for it by itself.

use std::time::Duration;

use tollfree::{Channel, Server};
use tollfree_stubs::greeter::greeter_client::GreeterClient;
use tollfree_stubs::greeter::greeter_server::{Greeter, GreeterServer};
use tollfree_stubs::greeter::{HelloReply, HelloRequest};
use tonic::{Request, Response, Status};

struct MyGreeter;

#[tonic::async_trait]
impl Greeter for MyGreeter {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let text = format!("Hello, {}!", request.into_inner().name);
        Ok(Response::new(HelloReply { text }))
    }
}

async fn serve() -> Result<(), tollfree::ServeError> {
    let server = Server::builder().add_service(GreeterServer::new(MyGreeter));
    server.serve_many(["http://localhost:50051", "shm:///tmp/greeter.sock"]).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tokio::spawn(async { serve().await.expect("both addresses are free") });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let channel = Channel::builder("http://localhost:50051").upgrade_directory("/tmp").connect().await?;
    for _ in 0..3 {
        let mut client = GreeterClient::new(channel.clone());
        let reply = client.hello(HelloRequest { name: "world".into() }).await?;
        println!("{}", reply.into_inner().text);
        println!("{}", channel.path()); // which way calls take, and why not the other
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
