//! A service whose messages are objects, and its client, for implementations of other languages to meet.

use tokio_stream::Empty;
use tokio_stream::wrappers::ReceiverStream;
use tollfree::pool::Pool;
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
        Err(Status::unimplemented("only Unary and Both are served"))
    }

    async fn up(&self, _: Request<Streaming<Cargo>>) -> Result<Response<Cargo>, Status> {
        Err(Status::unimplemented("only Unary and Both are served"))
    }

    type BothStream = Streaming<Owned<views::Cargo>>;

    async fn both(
        &self,
        request: Request<Streaming<Owned<views::Cargo>>>,
    ) -> Result<Response<Self::BothStream>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

/// Serves the service, or attaches it to a gateway at `address`, until `over`. Large objects go by the pool, if there is one.
pub(crate) async fn serve(
    address: &str,
    is_gateway: bool,
    pool: Option<Pool>,
    over: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let mut server = Server::builder();
    if let Some(pool) = pool {
        server = server.pool(pool);
    }
    let server = server.add_service(FreightServer::new(Echo));
    if is_gateway {
        server.attach(address).until(over).await?;
    } else {
        server.serve_many_with_shutdown([address], over).await?;
    }
    Ok(())
}

/// A cargo with a body of one of several lengths.
fn cargo(round: usize) -> Result<Owned<views::Cargo>, Error> {
    let body = body(round);
    Ok(Owned::<views::Cargo>::build(|cargo| {
        cargo.set_body(&body)?;
        cargo.set_text("käse")?;
        cargo.set_number(round as u32)
    })?)
}

fn body(round: usize) -> Vec<u8> {
    let len = [0, 1, 64, 5_000, 300_000][round % 5];
    (0..len).map(|at| (at * 7 + round) as u8).collect()
}

/// That a cargo has come back as it was.
fn check(round: usize, reply: &Owned<views::Cargo>) -> Result<(), Error> {
    let reply = reply.view();
    if reply.body() != body(round) || reply.text() != "käse" || reply.number() as usize != round {
        return Err(format!("round {round}: another cargo of {} bytes came back", reply.body().len()).into());
    }
    Ok(())
}

/// Calls a server that echoes, with bodies of many lengths, and says how many objects have come back.
pub(crate) async fn call(address: &str, via: Option<String>, pool: Option<Pool>) -> Result<(), Error> {
    let mut builder = Channel::builder(address).wait_for_ready(true);
    if let Some(target) = via {
        builder = builder.via(target);
    }
    if let Some(pool) = pool {
        builder = builder.pool(pool);
    }
    let channel = builder.connect_lazy()?;
    let mut client = FreightClient::new(channel.clone());
    for round in 0..40 {
        let reply = client.unary(cargo(round)?).await?.into_inner();
        check(round, &reply)?;
    }
    println!("{:?}", channel.payloads().counts());
    let mut streamed = 0;
    // The server says with the first call that it takes objects of the method, a gateway with a later one.
    for count in [1, 1, 1, 40] {
        let before = channel.payloads().counts().received_objects;
        let (sender, requests) = tokio::sync::mpsc::channel(1);
        sender.send(cargo(0)?).await?;
        let mut replies = client.both(ReceiverStream::new(requests)).await?.into_inner();
        for round in 0..count {
            let reply = replies.message().await?.ok_or("the stream has ended")?;
            check(round, &reply)?;
            if round + 1 < count {
                sender.send(cargo(round + 1)?).await?;
            }
        }
        drop(sender);
        if replies.message().await?.is_some() {
            return Err("more came back than was sent".into());
        }
        streamed = channel.payloads().counts().received_objects - before;
    }
    println!("objects of the last stream: {streamed}");
    if streamed < 38 {
        return Err("most of 40 were encoded".into());
    }
    Ok(())
}
