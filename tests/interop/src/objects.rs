//! A service whose messages are objects, and its client, for implementations of other languages to meet.

use tokio_stream::Empty;
use tollfree::{Channel, Server};
use tollfree_direct_stubs::objects::freight::Cargo;
use tollfree_direct_stubs::objects::freight::freight_client::FreightClient;
use tollfree_direct_stubs::objects::freight::freight_server::{Freight, FreightServer};
use tollfree_direct_stubs::objects::views::tollfree::freight::v1 as views;
use tollfree_processor::typed::Owned;
use tonic::{Request, Response, Status, Streaming};

use crate::Error;

/// Sends back what comes.
struct Echo;

#[tonic::async_trait]
impl Freight for Echo {
    async fn unary(
        &self,
        request: Request<Owned<views::Cargo>>,
    ) -> Result<Response<Owned<views::Cargo>>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    type DownStream = Empty<Result<Cargo, Status>>;

    async fn down(&self, _: Request<Cargo>) -> Result<Response<Self::DownStream>, Status> {
        Err(Status::unimplemented("only Unary is served"))
    }

    async fn up(&self, _: Request<Streaming<Cargo>>) -> Result<Response<Cargo>, Status> {
        Err(Status::unimplemented("only Unary is served"))
    }

    type BothStream = Empty<Result<Owned<views::Cargo>, Status>>;

    async fn both(
        &self,
        _: Request<Streaming<Owned<views::Cargo>>>,
    ) -> Result<Response<Self::BothStream>, Status> {
        Err(Status::unimplemented("only Unary is served"))
    }
}

/// Serves the service, or attaches it to a gateway at `address`, until `over`.
pub(crate) async fn serve(
    address: &str,
    is_gateway: bool,
    over: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let server = Server::builder().add_service(FreightServer::new(Echo));
    if is_gateway {
        server.attach(address).until(over).await?;
    } else {
        server.serve_many_with_shutdown([address], over).await?;
    }
    Ok(())
}

/// Calls a server that echoes, with bodies of many lengths, and says how many objects have come back.
pub(crate) async fn call(address: &str, via: Option<String>) -> Result<(), Error> {
    let mut builder = Channel::builder(address).wait_for_ready(true);
    if let Some(target) = via {
        builder = builder.via(target);
    }
    let channel = builder.connect_lazy()?;
    let mut client = FreightClient::new(channel.clone());
    for round in 0..40_usize {
        let len = [0, 1, 64, 5_000, 300_000][round % 5];
        let body: Vec<u8> = (0..len).map(|at| (at * 7 + round) as u8).collect();
        let request = Owned::<views::Cargo>::build(|cargo| {
            cargo.set_body(&body)?;
            cargo.set_text("käse")?;
            cargo.set_number(round as u32)
        })?;
        let reply = client.unary(request).await?.into_inner();
        let reply = reply.view();
        if reply.body() != body || reply.text() != "käse" || reply.number() as usize != round {
            return Err(
                format!("round {round}: another cargo of {} bytes came back", reply.body().len()).into()
            );
        }
    }
    println!("{:?}", channel.payloads().counts());
    Ok(())
}
