//! Figures for Prometheus: `cargo run --example metrics`.
//!
//! A channel and a server count into one registry of the process, whose page is printed here and served by most programs.

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;
use tollfree::metrics::Metrics;
use tollfree::{Channel, Server};
use tollfree_direct_stubs::greeter::greeter_client::GreeterClient;
use tollfree_direct_stubs::greeter::greeter_server::{Greeter, GreeterServer};
use tollfree_direct_stubs::greeter::{HelloReply, HelloRequest};
use tonic::{Request, Response, Status};

struct Polite;

#[tonic::async_trait]
impl Greeter for Polite {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let text = format!("Hello, {}!", request.into_inner().name);
        Ok(Response::new(HelloReply { text }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let address = format!("shm://{}/greeter.sock", directory.path().display());

    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry); // one for the process
    let server = Server::builder().metrics(&metrics).add_service(GreeterServer::new(Polite));
    let channel = Channel::builder(&address).metrics(&metrics).wait_for_ready(true).connect_lazy()?;

    let serving = address.clone();
    tokio::spawn(async move { server.serve(serving).await.expect("the directory is ours") });
    let mut client = GreeterClient::new(channel);
    for name in ["world", "you"] {
        client.hello(HelloRequest { name: name.into() }).await?;
    }

    let mut page = String::new();
    text::encode(&mut page, &registry)?;
    print!("{page}");
    Ok(())
}
