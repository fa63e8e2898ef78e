//! A service and a client whose messages are read and built in place: the code of the guide.
//! `cargo run -p tollfree-direct-stubs --example objects`.

use tollfree::{Channel, Server};
use tollfree_direct_stubs::objects::greeter::greeter_client::GreeterClient;
use tollfree_direct_stubs::objects::greeter::greeter_server::{Greeter, GreeterServer};
use tollfree_direct_stubs::objects::views::tollfree::greeter::v1::{HelloReply, HelloRequest};
use tollfree_processor::typed::{Draft, Owned};
use tollfree_processor::{Arenas, DraftError};
use tonic::{Request, Response, Status};

struct Polite {
    arenas: Arenas,
}

fn full(error: DraftError) -> Status {
    Status::resource_exhausted(error.to_string())
}

#[tonic::async_trait]
impl Greeter for Polite {
    async fn hello(
        &self,
        request: Request<Owned<HelloRequest>>,
    ) -> Result<Response<Owned<HelloReply>>, Status> {
        let request = request.into_inner();
        let mut reply = Draft::<HelloReply>::new(self.arenas.take()).map_err(full)?;
        reply.edit().set_text(&format!("Hello, {}!", request.view().name())).map_err(full)?;
        Ok(Response::new(reply.freeze().map_err(full)?))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let uri = format!("shm://{}/greeter.sock", directory.path().display());
    let arenas = Arenas::new(1 << 20, 16);
    let server = Server::builder().add_service(GreeterServer::new(Polite { arenas: arenas.clone() }));
    let address = uri.clone();
    tokio::spawn(async move { server.serve(&address).await.expect("the directory is ours") });
    let channel = Channel::builder(uri).wait_for_ready(true).connect_lazy()?;
    let mut client = GreeterClient::new(channel);
    let mut name = Draft::<HelloRequest>::new(arenas.take())?;
    name.edit().set_name("world")?;
    let reply = client.hello(name.freeze()?).await?.into_inner();
    println!("{}", reply.view().text());
    Ok(())
}
