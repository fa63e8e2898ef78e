//! A proxy that passes on calls of any method, and says what it has passed: `proxy <from> <to>`, addresses as everywhere. It knows no message type.
//!
//! `cargo run --example proxy shm:///tmp/front.sock shm:///tmp/back.sock`

use bytes::Bytes;
use futures_util::StreamExt as _;
use tollfree::by_bytes::{AnyMethod, Client, Method};
use tollfree::{Channel, Server, Streaming};
use tonic::{Request, Response, Status};

type Answers = Response<Streaming<Bytes>>;

async fn pass_on(
    mut back: Client<Channel>,
    method: Method,
    request: Request<Streaming<Bytes>>,
) -> Result<Answers, Status> {
    println!("{method}");
    // Where the client goes away this whole call is dropped, and with it the one behind. Until then its messages are not complete, so their end
    // must not be said.
    let messages = |messages: Streaming<Bytes>| {
        messages.then(async |message| match message {
            Ok(message) => message,
            Err(_) => std::future::pending().await,
        })
    };
    back.streaming(&method, request.map(messages)).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut addresses = std::env::args().skip(1);
    let (Some(from), Some(to)) = (addresses.next(), addresses.next()) else {
        return Err("two addresses are needed: where clients call, and where the service is".into());
    };
    let back = Client::new(Channel::builder(to).connect_lazy()?);
    let front = AnyMethod::new(move |method, request| pass_on(back.clone(), method, request));
    println!("listening on {from}");
    Server::builder().fallback(front).serve(from).await?;
    Ok(())
}
