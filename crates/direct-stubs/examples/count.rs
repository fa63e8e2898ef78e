//! One thread that is client and server: what a unary call costs without any waiting on another processor. Meant to be
//! counted (`make bench-check`), since instructions are the same on a busy machine.
//!
//! `cargo run --release -p tollfree-direct-stubs --example count -- stubs|direct [CALLS]`

use std::time::{Duration, Instant};

use tollfree::{Channel, Server, WaitPolicy};
use tollfree_direct_stubs::greeter as direct;
use tollfree_stubs::greeter as stubs;
use tonic::{Request, Response, Status};

/// A name that makes a request of 64 bytes.
const NAME_LEN: usize = 62;

struct Polite;

#[tonic::async_trait]
impl direct::greeter_server::Greeter for Polite {
    async fn hello(
        &self,
        request: Request<direct::HelloRequest>,
    ) -> Result<Response<direct::HelloReply>, Status> {
        Ok(Response::new(direct::HelloReply { text: request.into_inner().name }))
    }
}

#[tonic::async_trait]
impl stubs::greeter_server::Greeter for Polite {
    async fn hello(
        &self,
        request: Request<stubs::HelloRequest>,
    ) -> Result<Response<stubs::HelloReply>, Status> {
        Ok(Response::new(stubs::HelloReply { text: request.into_inner().name }))
    }
}

async fn connect(uri: &str) -> Channel {
    loop {
        match Channel::builder(uri).wait(WaitPolicy::Poll).connect().await {
            Ok(channel) => return channel,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let level = std::env::args().nth(1).unwrap_or_default();
    let count: u32 = std::env::args().nth(2).and_then(|arg| arg.parse().ok()).unwrap_or(100_000);
    let uri = format!("shm-abstract:tollfree-count-{}", std::process::id());
    let server = Server::builder().wait(WaitPolicy::Poll);
    let server = match level.as_str() {
        "stubs" => server.add_service(stubs::greeter_server::GreeterServer::new(Polite)),
        "direct" => server.add_service(direct::greeter_server::GreeterServer::new(Polite)),
        _ => {
            eprintln!("count: say which stubs: stubs (tonic's) or direct (our own)");
            std::process::exit(2);
        }
    };
    let serving = uri.clone();
    tokio::spawn(async move { server.serve(&serving).await });
    // Both ends are tasks: a runtime's first future has its turn only after many of theirs.
    let took = tokio::spawn(call(uri, level == "stubs", count)).await.expect("calls end");
    println!("{} ns a call", took.as_nanos() / u128::from(count));
}

async fn call(uri: String, stubs: bool, count: u32) -> Duration {
    let channel = connect(&uri).await;
    // From here on timers stand still, and nobody goes to sleep: the counts don't depend on how fast the machine is.
    tokio::time::pause();
    let name = "n".repeat(NAME_LEN);
    let began = Instant::now();
    if stubs {
        let mut client = stubs::greeter_client::GreeterClient::new(channel);
        for _ in 0..count {
            let reply = client.hello(stubs::HelloRequest { name: name.clone() }).await.expect("it is served");
            assert_eq!(reply.get_ref().text.len(), NAME_LEN);
        }
    } else {
        let mut client = direct::greeter_client::GreeterClient::new(channel);
        for _ in 0..count {
            let reply =
                client.hello(direct::HelloRequest { name: name.clone() }).await.expect("it is served");
            assert_eq!(reply.get_ref().text.len(), NAME_LEN);
        }
    }
    began.elapsed()
}
