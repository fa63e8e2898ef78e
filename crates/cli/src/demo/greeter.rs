//! The demo's service, served on every transport at once.

use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::order::{Serve, Serving};
use proto::greeter_server::{Greeter, GreeterServer};
use proto::{GreetReply, GreetRequest};

/// The greeter's stubs as tonic users generate them.
#[expect(unreachable_pub, reason = "generated code")]
pub(super) mod proto {
    tonic::include_proto!("tollfree.demo.v1");
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

/// Serves until the process ends; `ready` is called once clients may connect.
pub(super) async fn serve(order: &Serve, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let path = order.dir.join("greeter.sock");
    let listener =
        UnixListener::bind(&path).map_err(|error| format!("cannot listen on {}: {error}", path.display()))?;
    ready(Serving { unix: format!("unix:{}", path.display()) });
    Server::builder()
        .add_service(GreeterServer::new(Polite))
        .serve_with_incoming(UnixListenerStream::new(listener))
        .await
        .map_err(|error| format!("serving on {} ended: {error}", path.display()))
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
