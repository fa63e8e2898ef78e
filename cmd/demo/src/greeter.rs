//! The services of demo and echo, served on every transport at once.

use std::path::Path;
use std::time::Duration;

use tollfree::{ServeError, Server};
use tonic::{Request, Response, Status};

use super::order::{Serve, Serving};
use proto::echo_server::{Echo, EchoServer};
use proto::greeter_server::{Greeter, GreeterServer};
use proto::{GreetReply, GreetRequest, Payload};

/// The greeter's stubs as tonic users generate them. They are kept, and held to their proto by a test, since a generator takes
/// as long to build as half of the rest.
#[expect(unreachable_pub, reason = "generated code")]
pub(super) mod proto {
    include!("generated/tollfree.demo.v1.rs");
}

/// Greets, and says which process does.
#[derive(Clone, Copy)]
struct Polite;

impl Polite {
    fn reply(greeting: String) -> GreetReply {
        GreetReply { greeting, server_pid: std::process::id() }
    }

    fn name(request: Request<GreetRequest>) -> Result<String, Status> {
        let name = request.into_inner().name;
        if name.is_empty() {
            return Err(Status::invalid_argument("whom shall I greet? the name is empty"));
        }
        Ok(name)
    }
}

#[tonic::async_trait]
impl Greeter for Polite {
    async fn greet(&self, request: Request<GreetRequest>) -> Result<Response<GreetReply>, Status> {
        let name = Self::name(request)?;
        Ok(Response::new(Self::reply(format!("Hello, {name}!"))))
    }

    type GreetInManyTonguesStream = tokio_stream::Iter<std::vec::IntoIter<Result<GreetReply, Status>>>;

    async fn greet_in_many_tongues(
        &self,
        request: Request<GreetRequest>,
    ) -> Result<Response<Self::GreetInManyTonguesStream>, Status> {
        let name = Self::name(request)?;
        let greetings = [format!("Hello, {name}!"), format!("Bonjour, {name}!"), format!("Hallo, {name}!")];
        let replies: Vec<_> = greetings.into_iter().map(|greeting| Ok(Self::reply(greeting))).collect();
        Ok(Response::new(tokio_stream::iter(replies)))
    }
}

#[tonic::async_trait]
impl Echo for Polite {
    async fn echo(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

/// Serves until the process ends, on both transports at once; `ready` is called once clients may connect.
pub(super) async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let (http2, rings) = (order.dir.join("http2.sock"), order.dir.join("tollfree.sock"));
    let addresses =
        Serving { unix: format!("unix:{}", http2.display()), shm: format!("shm://{}", rings.display()) };
    let uris = [addresses.unix.clone(), addresses.shm.clone()];
    let server =
        Server::builder().add_service(GreeterServer::new(Polite)).add_service(EchoServer::new(Polite));
    let serving = server.serve_many(uris.iter().map(String::as_str));
    tokio::pin!(serving);
    // Both in one task: where the sockets are seen, the server's turn is over and it listens.
    tokio::select! {
        biased;
        ended = &mut serving => return Err(ending(ended)),
        () = appear([&http2, &rings]) => ready(addresses),
    }
    Err(ending(serving.await))
}

async fn appear(paths: [&Path; 2]) {
    while !paths.iter().all(|path| path.exists()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn ending(ended: Result<(), ServeError>) -> String {
    match ended {
        Ok(()) => "serving ended".to_owned(),
        Err(error) => format!("serving ended: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_cannot_be_greeted() {
        let request = Request::new(GreetRequest { name: String::new() });
        let status = Polite.greet(request).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
    }
}
