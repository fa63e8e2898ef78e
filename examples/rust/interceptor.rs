//! tonic's interceptors at both ends, and the caller's process as the kernel knows it:
//! `cargo run --example interceptor`.

use tollfree_stubs::greeter::greeter_client::GreeterClient;
use tollfree_stubs::greeter::greeter_server::{Greeter, GreeterServer};
use tollfree_stubs::greeter::{HelloReply, HelloRequest};
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Response, Status};

struct MyGreeter;

#[tonic::async_trait]
impl Greeter for MyGreeter {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let caller = request.extensions().get::<UdsConnectInfo>().and_then(|caller| caller.peer_cred);
        let pid = caller.and_then(|caller| caller.pid());
        let is_own = pid.and_then(|pid| u32::try_from(pid).ok()) == Some(std::process::id());
        let name = request.into_inner().name;
        Ok(Response::new(HelloReply { text: format!("Hello, {name}! You are this very process: {is_own}") }))
    }
}

fn add_token(mut request: Request<()>) -> Result<Request<()>, Status> {
    request.metadata_mut().insert("authorization", "Bearer open-sesame".parse().expect("it is ASCII"));
    Ok(request)
}

fn check_token(request: Request<()>) -> Result<Request<()>, Status> {
    match request.metadata().get("authorization") {
        Some(token) if token == "Bearer open-sesame" => Ok(request),
        _ => Err(Status::unauthenticated("no valid token in the metadata `authorization`")),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let address = format!("shm://{}/greeter.sock", directory.path().display());
    let service = GreeterServer::with_interceptor(MyGreeter, check_token);
    let server = tollfree::Server::builder().add_service(service);
    let serving = address.clone();
    tokio::spawn(async move { server.serve(&serving).await.expect("the directory is ours") });
    let channel = tollfree::Channel::builder(address).wait_for_ready(true).connect_lazy()?;

    let request = HelloRequest { name: "world".into() };
    let refused = GreeterClient::new(channel.clone()).hello(request.clone()).await.expect_err("no token");
    println!("without a token: {}", refused.code());
    let reply = GreeterClient::with_interceptor(channel, add_token).hello(request).await?;
    println!("{}", reply.into_inner().text);
    Ok(())
}
