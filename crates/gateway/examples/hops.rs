//! A message through three backends, each of which takes objects, reads one field and passes the message on by way of the
//! gateway, and the answer back; or the same message decoded and encoded once. Meant to be counted, function by function:
//! [lab/bench/hops](../../../lab/bench/hops) does that. All of it is one thread, which no figure of a function depends on.
//!
//! `cargo run --release -p tollfree-gateway --example hops -- hops|once short|long [CALLS]`

use std::hint::black_box;
use std::path::Path;

use futures_util::stream::{self, BoxStream, StreamExt};
use prost::Message as _;
use tollfree::{Channel, Payloads, Server};
use tollfree_direct_stubs::objects::freight as structs;
use tollfree_direct_stubs::objects::freight::freight_client::FreightClient;
use tollfree_direct_stubs::objects::freight::freight_server::{Freight, FreightServer};
use tollfree_direct_stubs::objects::views::tollfree::freight::v1::Cargo;
use tollfree_gateway::{Config, Gateway};
use tollfree_processor::typed::Owned;
use tollfree_processor::{Arenas, EncodeBuffer, Limits};
use tollfree_stubs::freight as world;
use tonic::transport::Endpoint;
use tonic::{Request, Response, Status, Streaming};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Groups of one process each, in the order in which a message passes them.
const GROUPS: [&str; 3] = ["first", "second", "third"];
/// Longer than any object here, in bytes.
const OBJECT_LEN_MAX: usize = 1 << 24;

/// Reads one field, and passes on the message and its answer; the last one gives the message back.
struct Hop {
    next: Option<FreightClient<Channel>>,
}

fn not_here<T>() -> Result<T, Status> {
    Err(Status::unimplemented("a message there, a message back"))
}

#[tonic::async_trait]
impl Freight for Hop {
    async fn unary(&self, request: Request<Owned<Cargo>>) -> Result<Response<Owned<Cargo>>, Status> {
        let cargo = request.into_inner();
        black_box(cargo.view().number());
        match &self.next {
            Some(next) => next.clone().unary(cargo).await,
            None => Ok(Response::new(cargo)),
        }
    }

    type DownStream = BoxStream<'static, Result<structs::Cargo, Status>>;

    async fn down(&self, _: Request<structs::Cargo>) -> Result<Response<Self::DownStream>, Status> {
        not_here()
    }

    async fn up(&self, _: Request<Streaming<structs::Cargo>>) -> Result<Response<structs::Cargo>, Status> {
        not_here()
    }

    type BothStream = BoxStream<'static, Result<Owned<Cargo>, Status>>;

    async fn both(&self, _: Request<Streaming<Owned<Cargo>>>) -> Result<Response<Self::BothStream>, Status> {
        Ok(Response::new(stream::empty().boxed()))
    }
}

/// About 500 bytes, or 30 KB: texts, numbers and bytes, in messages in a message.
fn message(len: &str) -> Outcome<world::Cargo> {
    let (depth, width) = match len {
        "short" => (3, 8),
        "long" => (20, 60),
        other => return Err(format!("{other:?}: say short or long").into()),
    };
    let mut cargo = None;
    for level in 0..depth {
        cargo = Some(Box::new(world::Cargo {
            parts: (0..width).map(|part| vec![part as u8; 12].into()).collect(),
            text: format!("level {level} of the message ").repeat(width / 8),
            numbers: (0..width as u64 * 2).map(|number| number << (number % 40)).collect(),
            number: level,
            inner: cargo,
            ..world::Cargo::default()
        }));
    }
    Ok(*cargo.unwrap_or_default())
}

fn once(bytes: &[u8], count: u32) -> Outcome<()> {
    let (arenas, mut buffer) = (Arenas::new(OBJECT_LEN_MAX, 1), EncodeBuffer::new());
    for _ in 0..count {
        let cargo = Owned::<Cargo>::decode(bytes, arenas.take(), &Limits::default())?;
        black_box(cargo.object().encode(&mut buffer)?);
    }
    Ok(())
}

/// Attaches a process; what it has counted of what it gets, and of what it passes on.
async fn attach(dir: &Path, group: &'static str, next: Option<&str>) -> Outcome<Vec<Payloads>> {
    let place = format!("shm://{}", dir.join("backends.sock").display());
    let mut counts = Vec::new();
    let next = match next {
        Some(next) => {
            let channel = Channel::via(&*place, format!("group:{next}")).await?;
            counts.push(channel.payloads());
            Some(FreightClient::new(channel).max_decoding_message_size(OBJECT_LEN_MAX))
        }
        None => None,
    };
    let service = FreightServer::new(Hop { next }).max_decoding_message_size(OBJECT_LEN_MAX);
    let server = Server::builder().add_service(service);
    counts.push(server.payloads());
    tokio::spawn(async move { server.attach(place).group(group).backend_connections(1).await });
    Ok(counts)
}

async fn hops(cargo: world::Cargo, count: u32) -> Outcome<()> {
    let dir = tempfile::tempdir()?;
    let (world, place) = (dir.path().join("world.sock"), dir.path().join("backends.sock"));
    let [first, second, third] = GROUPS;
    let config = Config::from_toml(&format!(
        "listeners.world.address = \"unix:{}\"\nbackends.socket = \"shm://{}\"\n\
         [groups.{first}]\nvia = [\"group:{second}\"]\n[groups.{second}]\nvia = [\"group:{third}\"]\n[groups.{third}]\n\
         [routes]\n\"tollfree.freight.v1.Freight\" = \"{first}\"\n",
        world.display(),
        place.display(),
    ))?;
    let gateway = Gateway::bind(config).await?;
    tokio::spawn(gateway.run(std::future::pending()));
    let mut counts = attach(dir.path(), third, None).await?;
    counts.extend(attach(dir.path(), second, Some(third)).await?);
    counts.extend(attach(dir.path(), first, Some(second)).await?);
    let endpoint = Endpoint::from_shared(format!("unix:{}", world.display()))?;
    let mut client = world::freight_client::FreightClient::new(endpoint.connect().await?)
        .max_decoding_message_size(OBJECT_LEN_MAX);
    // The first calls carry bytes.
    while counts.iter().any(|counts| counts.counts().received_objects == 0) {
        client.unary(cargo.clone()).await?;
    }
    let before: u64 = counts.iter().map(|counts| counts.counts().received_objects).sum();
    for _ in 0..count {
        let answer = client.unary(cargo.clone()).await?.into_inner();
        if answer != cargo {
            return Err("another message has come back".into());
        }
    }
    let passed = counts.iter().map(|counts| counts.counts().received_objects).sum::<u64>() - before;
    // Three requests and the answers of two nested calls.
    if passed != u64::from(count) * 5 {
        return Err(format!("{passed} objects came in {count} calls").into());
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let (what, len) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let count = args.next().map_or(Ok(1000), |count| count.parse())?;
    let cargo = message(&len)?;
    match &*what {
        "hops" => hops(cargo, count).await,
        "once" => once(&cargo.encode_to_vec(), count),
        "length" => {
            println!("{}", cargo.encoded_len());
            Ok(())
        }
        other => Err(format!("{other:?}: say hops, once or length").into()),
    }
}
