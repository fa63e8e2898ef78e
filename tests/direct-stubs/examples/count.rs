//! One thread that is client and server: what a unary call costs without any waiting on another processor. Meant to be
//! counted (`make bench-check`), since instructions are the same on a busy machine.
//!
//! `cargo run --release -p tollfree-direct-stubs --example count -- stubs|direct|objects|two-endpoints[-pairs] [CALLS]`
//!
//! `two-endpoints` is `direct` on a channel that takes turns between two addresses of the server.
//!
//! With `-pairs`, five metadata pairs go each way, one of them with another value each time, as in the bench.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollfree::{Balance, Channel, Server, WaitPolicy};
use tollfree_direct_stubs::greeter as direct;
use tollfree_direct_stubs::objects::greeter as objects;
use tollfree_direct_stubs::objects::views::tollfree::greeter::v1::{HelloReply, HelloRequest};
use tollfree_processor::typed::{Builder, Owned};
use tollfree_processor::{Arenas, BuildError};
use tollfree_stubs::greeter as stubs;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::{Request, Response, Status};

/// A name that makes a request of 64 bytes.
const NAME_LEN: usize = 62;
/// Metadata pairs each way, where there are some.
const PAIR_COUNT: usize = 5;

/// Pairs that are cloned into each call.
#[derive(Clone)]
struct Pairs(Vec<(AsciiMetadataKey, AsciiMetadataValue)>);

impl Pairs {
    fn new(count: usize) -> Pairs {
        let pair = |idx: usize| {
            let key = AsciiMetadataKey::from_static(format!("x-bench-pair-{idx:02}").leak());
            (key, format!("value of pair {idx:02}").parse().expect("visible characters are a value"))
        };
        Pairs((0..count).map(pair).collect())
    }

    fn put(&self, metadata: &mut MetadataMap) {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let Some(((first, _), others)) = self.0.split_first() else { return };
        metadata.insert(first.clone(), NUMBER.fetch_add(1, Ordering::Relaxed).into());
        for (key, value) in others {
            metadata.insert(key.clone(), value.clone());
        }
    }

    /// Looks for the last one.
    fn look(&self, metadata: &MetadataMap) {
        if let Some((key, value)) = self.0.last() {
            assert_eq!(metadata.get(key), Some(value), "the pairs have come");
        }
    }
}

/// Gives the name back, and pairs with it.
struct Polite {
    pairs: Pairs,
    arenas: Arenas,
}

impl Polite {
    fn answer<T>(&self, metadata: &MetadataMap, reply: T) -> Result<Response<T>, Status> {
        self.pairs.look(metadata);
        let mut response = Response::new(reply);
        self.pairs.put(response.metadata_mut());
        Ok(response)
    }
}

#[tonic::async_trait]
impl direct::greeter_server::Greeter for Polite {
    async fn hello(
        &self,
        request: Request<direct::HelloRequest>,
    ) -> Result<Response<direct::HelloReply>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.answer(&metadata, direct::HelloReply { text: message.name })
    }
}

#[tonic::async_trait]
impl objects::greeter_server::Greeter for Polite {
    async fn hello(
        &self,
        request: Request<Owned<HelloRequest>>,
    ) -> Result<Response<Owned<HelloReply>>, Status> {
        let (metadata, _, message) = request.into_parts();
        let full = |error: BuildError| Status::resource_exhausted(error.to_string());
        let mut reply = Builder::<HelloReply>::new(self.arenas.take()).map_err(full)?;
        reply.edit().set_text(message.view().name()).map_err(full)?;
        self.answer(&metadata, reply.freeze().map_err(full)?)
    }
}

#[tonic::async_trait]
impl stubs::greeter_server::Greeter for Polite {
    async fn hello(
        &self,
        request: Request<stubs::HelloRequest>,
    ) -> Result<Response<stubs::HelloReply>, Status> {
        let (metadata, _, message) = request.into_parts();
        self.answer(&metadata, stubs::HelloReply { text: message.name })
    }
}

async fn connect(uris: &[String; 2], level: &str) -> Channel {
    loop {
        let builder = Channel::builder(&*uris[0]).wait(WaitPolicy::Poll);
        let builder = match level {
            "two-endpoints" => builder.endpoint(&*uris[1]).balance(Balance::RoundRobin),
            _ => builder,
        };
        match builder.connect().await {
            Ok(channel) => return channel,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let what = std::env::args().nth(1).unwrap_or_default();
    let count: u32 = std::env::args().nth(2).and_then(|arg| arg.parse().ok()).unwrap_or(100_000);
    let (level, pairs) = match what.strip_suffix("-pairs") {
        Some(level) => (level, Pairs::new(PAIR_COUNT)),
        None => (&*what, Pairs::new(0)),
    };
    let uris = [1, 2].map(|nth| format!("shm-abstract:tollfree-count-{}-{nth}", std::process::id()));
    let server = Server::builder().wait(WaitPolicy::Poll);
    let polite = Polite { pairs: pairs.clone(), arenas: arenas() };
    let server = match level {
        "stubs" => server.add_service(stubs::greeter_server::GreeterServer::new(polite)),
        "direct" | "two-endpoints" => server.add_service(direct::greeter_server::GreeterServer::new(polite)),
        "objects" => server.add_service(objects::greeter_server::GreeterServer::new(polite)),
        _ => {
            eprintln!(
                "count: say what: stubs (tonic's), direct (our own), objects or two-endpoints, with -pairs or without"
            );
            std::process::exit(2);
        }
    };
    let serving = uris.clone();
    tokio::spawn(async move { server.serve_many(serving.iter().map(String::as_str)).await });
    let level = level.to_owned();
    // Both ends are tasks: a runtime's first future has its turn only after many of theirs.
    let took = tokio::spawn(call(uris, level, pairs, count)).await.expect("calls end");
    println!("{} ns a call", took.as_nanos() / u128::from(count));
}

/// Where messages are built.
fn arenas() -> Arenas {
    Arenas::new(1 << 20, 4)
}

async fn call(uris: [String; 2], level: String, pairs: Pairs, count: u32) -> Duration {
    let channel = connect(&uris, &level).await;
    // From here on timers stand still, and nobody goes to sleep: the counts don't depend on how fast the machine is.
    tokio::time::pause();
    let name = "n".repeat(NAME_LEN);
    let began = Instant::now();
    if level == "objects" {
        let (mut client, arenas) = (objects::greeter_client::GreeterClient::new(channel), arenas());
        for _ in 0..count {
            let mut builder = Builder::<HelloRequest>::new(arenas.take()).expect("there is room");
            builder.edit().set_name(&name).expect("there is room");
            let mut request = Request::new(builder.freeze().expect("it is whole"));
            pairs.put(request.metadata_mut());
            let reply = client.hello(request).await.expect("it is served");
            pairs.look(reply.metadata());
            assert_eq!(reply.get_ref().view().text().len(), NAME_LEN);
        }
    } else if level == "stubs" {
        let mut client = stubs::greeter_client::GreeterClient::new(channel);
        for _ in 0..count {
            let mut request = Request::new(stubs::HelloRequest { name: name.clone() });
            pairs.put(request.metadata_mut());
            let reply = client.hello(request).await.expect("it is served");
            pairs.look(reply.metadata());
            assert_eq!(reply.get_ref().text.len(), NAME_LEN);
        }
    } else {
        let mut client = direct::greeter_client::GreeterClient::new(channel);
        for _ in 0..count {
            let mut request = Request::new(direct::HelloRequest { name: name.clone() });
            pairs.put(request.metadata_mut());
            let reply = client.hello(request).await.expect("it is served");
            pairs.look(reply.metadata());
            assert_eq!(reply.get_ref().text.len(), NAME_LEN);
        }
    }
    began.elapsed()
}
