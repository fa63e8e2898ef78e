//! From which length on a payload is better passed by ref: one thread that is client and server echoes payloads inline and by
//! ref, and says what the quickest of many rounds took. There is no waiting on another processor in it, so that a busy
//! machine does little harm.
//!
//! `cargo run --release -p tollfree-direct-stubs --example threshold`

use std::time::Instant;

use bytes::Bytes;
use tollfree::pool::{Address, Capacity, Config, Pool};
use tollfree::{Channel, Server};
use tollfree_direct_stubs::freight::Cargo;
use tollfree_direct_stubs::freight::freight_client::FreightClient;
use tollfree_direct_stubs::freight::freight_server::{Freight, FreightServer};
use tonic::{Request, Response, Status, Streaming};

const LENS: [usize; 12] =
    [64, 1024, 4096, 8192, 12_288, 16_384, 24_576, 32_768, 65_536, 131_072, 262_144, 1 << 20];
const ROUND_COUNT: usize = 40;
/// Bytes that a round echoes, about.
const ROUND_LEN: usize = 2_000_000;

/// Says back what it gets.
struct Parrot;

type Nothing = tokio_stream::Empty<Result<Cargo, Status>>;

#[tonic::async_trait]
impl Freight for Parrot {
    async fn unary(&self, request: Request<Cargo>) -> Result<Response<Cargo>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    type DownStream = Nothing;

    async fn down(&self, _: Request<Cargo>) -> Result<Response<Nothing>, Status> {
        Err(Status::unimplemented("only unary calls are timed"))
    }

    async fn up(&self, _: Request<Streaming<Cargo>>) -> Result<Response<Cargo>, Status> {
        Err(Status::unimplemented("only unary calls are timed"))
    }

    type BothStream = Nothing;

    async fn both(&self, _: Request<Streaming<Cargo>>) -> Result<Response<Nothing>, Status> {
        Err(Status::unimplemented("only unary calls are timed"))
    }
}

/// Where the payload is before the call and after it.
#[derive(Clone, Copy)]
enum Field {
    /// `Bytes`, which the receiver reads where they lie.
    Bytes,
    /// A `Vec` on either side.
    Vec,
}

fn cargo(field: Field, body: &Bytes) -> Cargo {
    match field {
        Field::Bytes => Cargo { body: body.clone(), ..Cargo::default() },
        Field::Vec => Cargo { raw: body.to_vec(), ..Cargo::default() },
    }
}

/// Nanoseconds a call.
async fn time(client: &FreightClient<Channel>, field: Field, body: &Bytes) -> f64 {
    let count = (ROUND_LEN / (body.len() + 4000)).max(10);
    let mut client = client.clone();
    let began = Instant::now();
    for _ in 0..count {
        let echo = client.unary(cargo(field, body)).await.expect("it is served").into_inner();
        assert_eq!(echo.body.len() + echo.raw.len(), body.len());
    }
    began.elapsed().as_nanos() as f64 / count as f64
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let directory = tempfile::tempdir().expect("a directory for the sockets");
    let address = format!("shm://{}/pool.sock", directory.path().display());
    let address: Address = address.parse().expect("an address");
    let pool = Pool::create(&address, Capacity::default(), Config::default()).expect("a pool");
    let there = Pool::join(&address, Config::default()).expect("a member");
    // Both have memory from the start.
    drop((pool.buffer(1), there.buffer(1)));
    let uri = format!("shm://{}/freight.sock", directory.path().display());
    let serving = uri.clone();
    tokio::spawn(async move {
        let parrot = FreightServer::new(Parrot).max_decoding_message_size(usize::MAX);
        Server::builder().pool(there).ref_threshold(1).add_service(parrot).serve(&serving).await
    });
    // Both ends are tasks: a runtime's first future has its turn only after many of theirs.
    tokio::spawn(compare(uri, pool)).await.expect("calls end");
}

async fn connect(uri: &str, pool: Option<&Pool>) -> FreightClient<Channel> {
    loop {
        let builder = Channel::builder(uri).ref_threshold(1);
        let builder = if let Some(pool) = pool { builder.pool(pool.clone()) } else { builder };
        match builder.connect().await {
            Ok(channel) => return FreightClient::new(channel).max_decoding_message_size(usize::MAX),
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

async fn compare(uri: String, pool: Pool) {
    let (inline, by_ref) = (connect(&uri, None).await, connect(&uri, Some(&pool)).await);
    println!("   bytes | inline: Bytes      Vec | by ref: in the pool    Bytes      Vec   (ns a call)");
    for len in LENS {
        let private = Bytes::from(vec![7; len]);
        let pooled = Bytes::from(pool.copy_from_slice(&private).expect("there is room"));
        let ways = [
            (&inline, Field::Bytes, &private),
            (&inline, Field::Vec, &private),
            (&by_ref, Field::Bytes, &pooled),
            (&by_ref, Field::Bytes, &private),
            (&by_ref, Field::Vec, &private),
        ];
        let mut least = [f64::MAX; 5];
        for _ in 0..ROUND_COUNT {
            for (least, (client, field, body)) in least.iter_mut().zip(ways) {
                *least = least.min(time(client, field, body).await);
            }
        }
        let [bytes, vec, pooled, ref_bytes, ref_vec] = least;
        println!("{len:>8} | {bytes:>13.0} {vec:>8.0} | {pooled:>19.0} {ref_bytes:>8.0} {ref_vec:>8.0}");
    }
}
