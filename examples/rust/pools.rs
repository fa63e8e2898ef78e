//! Large payloads by reference: `cargo run --example pools`.
//!
//! Client and server are members of one pool. A field of 1 MiB is written once, into the pool, and read where it lies.
//! Both members are in this process, so that the example runs by itself.

use bytes::Bytes;
use tollfree::pool::{Address, Capacity, Config, Pool};
use tollfree::{Channel, Server};
use tollfree_direct_stubs::freight::Cargo;
use tollfree_direct_stubs::freight::freight_client::FreightClient;
use tollfree_direct_stubs::freight::freight_server::{Freight, FreightServer};
use tonic::{Request, Response, Status, Streaming};

/// Sends back what it gets. Bytes that came by reference go back by reference.
struct Forwarder;

type Nothing = tokio_stream::Empty<Result<Cargo, Status>>;

#[tonic::async_trait]
impl Freight for Forwarder {
    async fn unary(&self, request: Request<Cargo>) -> Result<Response<Cargo>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    type DownStream = Nothing;

    async fn down(&self, _: Request<Cargo>) -> Result<Response<Nothing>, Status> {
        Err(Status::unimplemented("this example makes unary calls"))
    }

    async fn up(&self, _: Request<Streaming<Cargo>>) -> Result<Response<Cargo>, Status> {
        Err(Status::unimplemented("this example makes unary calls"))
    }

    type BothStream = Nothing;

    async fn both(&self, _: Request<Streaming<Cargo>>) -> Result<Response<Nothing>, Status> {
        Err(Status::unimplemented("this example makes unary calls"))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let place: Address = format!("shm://{}/pool.sock", directory.path().display()).parse()?;
    let servers_pool = Pool::create(&place, Capacity::default(), Config::default())?;
    let address = format!("shm://{}/freight.sock", directory.path().display());
    let server = Server::builder().pool(servers_pool).add_service(FreightServer::new(Forwarder));
    let serving = address.clone();
    tokio::spawn(async move { server.serve(&serving).await.expect("the directory is ours") });

    let pool = Pool::join(&place, Config::default())?;
    let builder = Channel::builder(address).pool(pool.clone()).wait_for_ready(true);
    let channel = builder.connect_lazy()?;
    let mut client = FreightClient::new(channel.clone());

    let mut buffer = pool.buffer(1 << 20)?; // memory of the pool, to produce into
    buffer.resize_zeroed(1 << 20).fill(7);
    let body = Bytes::from(buffer.freeze()?);
    let reply = client.unary(Cargo { body: body.clone(), ..Cargo::default() }).await?.into_inner();
    println!("{} bytes came back, equal: {}", reply.body.len(), reply.body == body);
    println!("{}", channel.path());
    Ok(())
}
