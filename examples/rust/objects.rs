//! A service and a client whose messages are read and built in place: the code of the guide.
//! `cargo run --example objects`.

use tollfree::{Channel, Server};
use tollfree_direct_stubs::objects::greeter::greeter_client::GreeterClient;
use tollfree_direct_stubs::objects::greeter::greeter_server::{Greeter, GreeterServer};
use tollfree_direct_stubs::objects::views::tollfree::greeter::v1::{HelloReply, HelloRequest};
use tollfree_processor::typed::Owned;
use tonic::{Request, Response, Status};

struct Polite;

#[tonic::async_trait]
impl Greeter for Polite {
    async fn hello(
        &self,
        request: Request<Owned<HelloRequest>>,
    ) -> Result<Response<Owned<HelloReply>>, Status> {
        let text = format!("Hello, {}!", request.get_ref().view().name());
        Ok(Response::new(Owned::<HelloReply>::build(|reply| reply.set_text(&text))?))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let uri = format!("shm://{}/greeter.sock", directory.path().display());
    let server = Server::builder().add_service(GreeterServer::new(Polite));
    let address = uri.clone();
    tokio::spawn(async move { server.serve(&address).await.expect("the directory is ours") });
    let channel = Channel::builder(uri).wait_for_ready(true).connect_lazy()?;
    let mut client = GreeterClient::new(channel);
    let name = Owned::<HelloRequest>::build(|request| request.set_name("world"))?;
    let reply = client.hello(name).await?.into_inner();
    println!("{}", reply.view().text());
    Ok(())
}
