//! Greets each caller: `cargo run --example greeter-server`, then `greeter-client`.

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

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = tollfree::Server::builder().add_service(GreeterServer::new(MyGreeter));
    Ok(server.serve("shm:///tmp/greeter.sock").await?)
}
