//! One hop, one way: a payload filled in place by one process, every byte of it read by the other.
//!
//! What counts is the time from the first store to the last load. The sender writes the time of the first store into the
//! payload's first bytes; both processes read the same monotonic clock. The next payload is begun when the receiver has
//! said that it is done; both ends look for what comes (`WaitPolicy::LowLatency`), as iceoryx2's do. Memory is taken and zeroed before the clock starts, on all sides.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tollfree::pool::{Address, Capacity, Config, Pool};
use tollfree::{Channel, Server, WaitPolicy};
use tonic::{Request, Response, Status};

use super::iceoryx2_hop;
use super::trouble;
use crate::BenchError;
use crate::direct::hop_client::HopClient;
use crate::direct::hop_server::{Hop, HopServer};
use crate::direct::{HopReply, HopRequest};
use crate::peer::Starter;

/// Hops before those that count.
const WARM_COUNT: usize = 30;
/// What is stored at once.
const CHUNK_LEN: usize = 4096;

/// How payloads travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Carrier {
    /// Level 2, by ref through a pool.
    Tollfree,
    /// iceoryx2's publish-subscribe.
    Iceoryx2,
}

impl Carrier {
    pub(super) fn name(self) -> &'static str {
        match self {
            Carrier::Tollfree => "tollfree-ref",
            Carrier::Iceoryx2 => "iceoryx2",
        }
    }
}

/// Which end.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum End {
    Receiver,
    Sender,
}

/// The first order of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HopPart {
    pub(crate) end: End,
    pub(crate) carrier: Carrier,
    /// Where both ends meet.
    pub(crate) dir: PathBuf,
    pub(crate) size: usize,
}

/// The orders that follow: so many hops. The receiver answers with what each took, in nanoseconds, the sender with nothing.
pub(crate) type Hops = usize;

/// All of a round, with those before that don't count.
pub(super) fn with_warm_up(count: Hops) -> usize {
    count + WARM_COUNT
}

/// The monotonic clock, which is the same in both processes.
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Fills a payload in place: its first bytes say when that was begun.
pub(super) fn fill(payload: &mut [u8]) {
    let mut chunk = [0x5a_u8; CHUNK_LEN];
    chunk[..8].copy_from_slice(&now_ns().to_le_bytes());
    for room in payload.chunks_mut(CHUNK_LEN) {
        room.copy_from_slice(&chunk[..room.len()]);
    }
}

/// Reads every byte; how long ago the first one was stored.
pub(super) fn age_ns(payload: &[u8]) -> Result<u64, String> {
    let (words, rest) = payload.as_chunks::<8>();
    let sum = words.iter().fold(0_u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    std::hint::black_box((sum, rest.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte))));
    let now = now_ns();
    let began = words.first().ok_or("a payload has eight bytes at least")?;
    Ok(now.saturating_sub(u64::from_le_bytes(*began)))
}

/// Plays an end until the starter is gone.
pub(crate) fn act(part: &HopPart, starter: &Starter) -> Result<(), BenchError> {
    match (part.carrier, part.end) {
        (Carrier::Tollfree, End::Receiver) => receive(part, starter),
        (Carrier::Tollfree, End::Sender) => send(part, starter),
        (Carrier::Iceoryx2, End::Receiver) => iceoryx2_hop::receive(part, starter),
        (Carrier::Iceoryx2, End::Sender) => iceoryx2_hop::send(part, starter),
    }
}

fn pool_address(dir: &Path) -> Result<Address, BenchError> {
    format!("shm://{}/pool.sock", dir.display()).parse().map_err(trouble)
}

/// What the receiver has seen so far.
#[derive(Default)]
struct Seen {
    ages: Mutex<Vec<u64>>,
    more: Condvar,
}

struct Receiver(Arc<Seen>);

#[tonic::async_trait]
impl Hop for Receiver {
    async fn pass(&self, request: Request<HopRequest>) -> Result<Response<HopReply>, Status> {
        let age = age_ns(&request.into_inner().body).map_err(Status::invalid_argument)?;
        self.0.ages.lock().unwrap_or_else(PoisonError::into_inner).push(age);
        self.0.more.notify_one();
        Ok(Response::new(HopReply {}))
    }
}

fn receive(part: &HopPart, starter: &Starter) -> Result<(), BenchError> {
    let pool = Pool::create(&pool_address(&part.dir)?, Capacity::default(), Config::default());
    let seen = Arc::new(Seen::default());
    let service = HopServer::new(Receiver(seen.clone())).max_decoding_message_size(2 * part.size);
    let server =
        Server::builder().wait(WaitPolicy::LowLatency).pool(pool.map_err(trouble)?).add_service(service);
    let address = format!("shm://{}/hop.sock", part.dir.display());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.map_err(BenchError::system("cannot start the async runtime"))?;
    runtime.spawn(async move { server.serve(&address).await });
    starter.say(());
    loop {
        let count: Hops = starter.hear().map_err(BenchError::Refused)?;
        let mut ages = seen.ages.lock().unwrap_or_else(PoisonError::into_inner);
        while ages.len() < with_warm_up(count) {
            ages = seen.more.wait(ages).unwrap_or_else(PoisonError::into_inner);
        }
        starter.say(std::mem::take(&mut *ages));
    }
}

fn send(part: &HopPart, starter: &Starter) -> Result<(), BenchError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(BenchError::system("cannot start the async runtime"))?;
    let pool = Pool::join(&pool_address(&part.dir)?, Config::default()).map_err(trouble)?;
    let address = format!("shm://{}/hop.sock", part.dir.display());
    let builder =
        Channel::builder(address).wait(WaitPolicy::LowLatency).pool(pool.clone()).wait_for_ready(true);
    let client = runtime.block_on(async { builder.connect_lazy().map(HopClient::new) }).map_err(trouble)?;
    let mut client = client.max_encoding_message_size(2 * part.size);
    starter.say(());
    loop {
        let count: Hops = starter.hear().map_err(BenchError::Refused)?;
        for _ in 0..with_warm_up(count) {
            let mut buffer = pool.buffer(part.size).map_err(trouble)?;
            fill(buffer.resize_zeroed(part.size));
            let body = Bytes::from(buffer.freeze().map_err(trouble)?);
            runtime.block_on(client.pass(HopRequest { body })).map_err(trouble)?;
        }
        starter.say(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_say_when_they_were_begun() {
        let mut payload = vec![0; 10_000];
        fill(&mut payload);
        assert_eq!((payload[8], payload[9_999]), (0x5a, 0x5a));
        let age = age_ns(&payload).unwrap();
        assert!(age < 60_000_000_000, "{age} ns");
        assert!(age_ns(&payload[..7]).is_err());
    }
}
