//! A server of the soak: says back what it gets, or what it got from somebody else before; checks both.

use std::sync::Mutex;

use tollfree::Server;
use tollfree_direct_stubs::freight::Cargo;
use tollfree_direct_stubs::freight::freight_server::{Freight, FreightServer};
use tollfree_testkit::Role;
use tonic::{Request, Response, Status, Streaming};

use super::content::Stamp;
use super::station::Station;

/// A request whose reply is to be another payload than its own.
pub(crate) const SWAP: u32 = 1;
const KEPT_COUNT: usize = 6;
/// Longer than any message.
pub(crate) const MESSAGE_LEN_MAX: usize = 8 << 20;

#[derive(Clone)]
struct Carrier {
    seed: u64,
    kept: std::sync::Arc<Mutex<Vec<bytes::Bytes>>>,
}

#[tonic::async_trait]
impl Freight for Carrier {
    async fn unary(&self, request: Request<Cargo>) -> Result<Response<Cargo>, Status> {
        let mut cargo = request.into_inner();
        let stamp = Stamp::read(&cargo.body, self.seed);
        if cargo.number == SWAP {
            let mut kept = self.kept.lock().unwrap();
            kept.push(cargo.body.clone());
            let at = stamp.number as usize % kept.len();
            cargo.body = if kept.len() > KEPT_COUNT { kept.swap_remove(at) } else { kept[at].clone() };
            drop(kept);
            Stamp::read(&cargo.body, self.seed);
        }
        Ok(Response::new(cargo))
    }

    type DownStream = tokio_stream::Empty<Result<Cargo, Status>>;

    async fn down(&self, _: Request<Cargo>) -> Result<Response<Self::DownStream>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    async fn up(&self, _: Request<Streaming<Cargo>>) -> Result<Response<Cargo>, Status> {
        Err(Status::unimplemented("not asked for"))
    }

    type BothStream = tokio_stream::Empty<Result<Cargo, Status>>;

    async fn both(&self, _: Request<Streaming<Cargo>>) -> Result<Response<Self::BothStream>, Status> {
        Err(Status::unimplemented("not asked for"))
    }
}

pub(crate) fn run(role: &Role) {
    let station = Station::new(role);
    let pool = station.join();
    let carrier = Carrier { seed: station.seed, kept: std::sync::Arc::default() };
    let service = FreightServer::new(carrier.clone())
        .max_decoding_message_size(MESSAGE_LEN_MAX)
        .max_encoding_message_size(MESSAGE_LEN_MAX);
    let server = Server::builder().pool(pool.clone()).add_service(service);
    let address = format!("shm://{}", role.socket.display());
    let runtime =
        tokio::uncounted::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.spawn(async move { server.serve(&address).await.unwrap() });
    while !station.is("over") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // Last calls may still come.
    station.drain(&pool, || carrier.kept.lock().unwrap().clear());
    drop(runtime);
}
