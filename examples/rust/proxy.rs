//! A proxy that passes on calls of any method, and says what it has passed: `proxy <from> <to>`, addresses as everywhere. It knows no message type.
//!
//! `cargo run --example proxy shm:///tmp/front.sock shm:///tmp/back.sock`

use tollfree::by_bytes::{AnyMethod, Client};
use tollfree::{Channel, Server};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut addresses = std::env::args().skip(1);
    let (Some(from), Some(to)) = (addresses.next(), addresses.next()) else {
        return Err("two addresses are needed: where clients call, and where the service is".into());
    };
    let back = Client::new(Channel::builder(to).connect_lazy()?);
    let front = AnyMethod::new(move |method, request| {
        println!("{method}");
        let mut back = back.clone();
        async move { back.pass_on(&method, request).await }
    });
    println!("listening on {from}");
    Server::builder().fallback(front).serve(from).await?;
    Ok(())
}
