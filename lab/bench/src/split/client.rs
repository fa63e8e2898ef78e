//! The client: stock tonic over a Unix socket, with messages that were encoded before.
//!
//! It neither encodes nor decodes, so that its core has time for what stands between it and the backend.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use prost::Message;
use rustix::time::{ClockId, clock_gettime};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::{Calls, Split, SplitMessage};
use crate::certificates;
use crate::fds::FileDescriptorSet;
use crate::harness::Crew;
use crate::hyperprotobench::{M3, M34, M43};
use crate::latency::Latencies;
use crate::process::run_time_ns;
use crate::shop::Order;
use crate::side::tonic_unix;

/// Longer than any message here.
const LEN_MAX: usize = 64 << 20;

/// Messages as they are.
#[derive(Clone, Copy)]
struct AsIs;

impl Codec for AsIs {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = AsIs;
    type Decoder = AsIs;

    fn encoder(&mut self) -> AsIs {
        AsIs
    }

    fn decoder(&mut self) -> AsIs {
        AsIs
    }
}

impl Encoder for AsIs {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for AsIs {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// The method whose message it is.
pub(super) fn method(message: SplitMessage) -> &'static str {
    match message {
        SplitMessage::Echo64 => "Echo64",
        SplitMessage::Order => "Order",
        SplitMessage::Fds => "Fds",
        message => message.name(),
    }
}

/// A way to make the calls; cheap to clone.
#[derive(Clone)]
pub(super) struct Caller {
    grpc: Grpc<Channel>,
    path: PathAndQuery,
    message: Bytes,
}

impl Caller {
    pub(super) async fn connect(
        address: &str,
        message: SplitMessage,
        bytes: Bytes,
    ) -> Result<Caller, String> {
        Caller::over(tonic_unix::connect(address).await?, message, bytes)
    }

    /// The same with TLS, where the address asks for that: certificates lie in `dir`.
    async fn connect_from(
        dir: &Path,
        address: &str,
        message: SplitMessage,
        bytes: Bytes,
    ) -> Result<Caller, String> {
        if !address.starts_with("https://") {
            return Caller::connect(address, message, bytes).await;
        }
        let failed = |error: tonic::transport::Error| format!("cannot connect to {address}: {error}");
        let endpoint = Endpoint::from_shared(address.to_owned()).map_err(failed)?;
        let endpoint = endpoint.tls_config(certificates::of_client(dir)?).map_err(failed)?;
        Caller::over(endpoint.connect().await.map_err(failed)?, message, bytes)
    }

    fn over(channel: Channel, message: SplitMessage, bytes: Bytes) -> Result<Caller, String> {
        let grpc = Grpc::new(channel).max_decoding_message_size(LEN_MAX);
        let path = PathAndQuery::from_maybe_shared(format!("/tollfree.bench.v1.Split/{}", method(message)));
        Ok(Caller { grpc, path: path.map_err(|error| error.to_string())?, message: bytes })
    }

    /// The same connection and message, another method.
    pub(super) fn at(&self, path: &'static str) -> Result<Caller, String> {
        let path = PathAndQuery::from_maybe_shared(path).map_err(|error| error.to_string())?;
        Ok(Caller { path, ..self.clone() })
    }

    pub(super) fn message(&self) -> &[u8] {
        &self.message
    }

    pub(super) async fn call(&mut self) -> Result<Bytes, Status> {
        self.grpc
            .ready()
            .await
            .map_err(|error| Status::unavailable(format!("the connection is lost: {error}")))?;
        let request = Request::new(self.message.clone());
        Ok(self.grpc.unary(request, self.path.clone(), AsIs).await?.into_inner())
    }

    /// The first call that is answered: the backend may be on its way to what stands between.
    pub(super) async fn first(&mut self) -> Result<Bytes, String> {
        let began = Instant::now();
        loop {
            match self.call().await {
                Ok(reply) => return Ok(reply),
                Err(status)
                    if matches!(status.code(), Code::Unavailable | Code::Unimplemented)
                        && began.elapsed() < Crew::PATIENCE =>
                {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(status) => return Err(failed(&status)),
            }
        }
    }
}

/// Does something with the type of a message.
macro_rules! of_type {
    ($message:expr, $act:ident($($argument:expr),+)) => {
        match $message {
            SplitMessage::Echo64 => $act::<crate::proto::Bytes>($($argument),+),
            SplitMessage::M3 => $act::<M3>($($argument),+),
            SplitMessage::M43 => $act::<M43>($($argument),+),
            SplitMessage::M34 => $act::<M34>($($argument),+),
            SplitMessage::Order => $act::<Order>($($argument),+),
            SplitMessage::Fds => $act::<FileDescriptorSet>($($argument),+),
        }
    };
}

fn read<M: Message + Default>(bytes: &[u8]) -> Result<M, String> {
    M::decode(bytes).map_err(|error| format!("this is no such message: {error}"))
}

/// The same message as prost encodes it.
pub(super) fn canonical(message: SplitMessage, bytes: &[u8]) -> Result<Vec<u8>, String> {
    fn again<M: Message + Default>(bytes: &[u8]) -> Result<Vec<u8>, String> {
        Ok(read::<M>(bytes)?.encode_to_vec())
    }
    of_type!(message, again(bytes))
}

/// Whether a reply says the same as the request.
pub(super) fn check(message: SplitMessage, request: &[u8], reply: &[u8]) -> Result<(), String> {
    fn same<M: Message + Default + PartialEq>(request: &[u8], reply: &[u8]) -> Result<(), String> {
        if read::<M>(request)? == read::<M>(reply)? {
            Ok(())
        } else {
            Err("the reply is not what was sent".to_owned())
        }
    }
    of_type!(message, same(request, reply))
}

pub(super) fn failed(status: &Status) -> String {
    format!("a call failed: {status}")
}

/// Processor time so far: of the backend, of what stands between, and of this one.
pub(super) fn used(window: &Calls) -> Result<[u64; 3], String> {
    let of = |pid| run_time_ns(pid).map_err(|error| error.to_string());
    let own = clock_gettime(ClockId::ProcessCPUTime);
    let own = own.tv_sec as u64 * 1_000_000_000 + own.tv_nsec as u64;
    Ok([of(window.backends)?, window.between.map_or(Ok(0), of)?, own])
}

/// Calls, and measures.
pub(super) async fn measure(
    message: SplitMessage,
    bytes: Vec<u8>,
    window: &Calls,
    inflight: usize,
) -> Result<Split, String> {
    let dir = window.message.parent().unwrap_or(Path::new(""));
    let mut caller = Caller::connect_from(dir, &window.address, message, bytes.into()).await?;
    let reply = caller.first().await?;
    check(message, &caller.message, &reply)?;
    let (counts, stops) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let common = Arc::new(Mutex::new(Latencies::default()));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..inflight {
        let (mut caller, counts, stops, common) =
            (caller.clone(), counts.clone(), stops.clone(), common.clone());
        tasks.spawn(async move {
            let mut own = Latencies::default();
            while !stops.load(Ordering::Relaxed) {
                let (counted, began) = (counts.load(Ordering::Relaxed), Instant::now());
                caller.call().await.map_err(|status| failed(&status))?;
                if counted && !stops.load(Ordering::Relaxed) {
                    own.record(began.elapsed());
                }
            }
            common.lock().unwrap_or_else(PoisonError::into_inner).merge(&own);
            Ok::<_, String>(())
        });
    }
    tokio::time::sleep(window.warm_up).await;
    let (before, began) = (used(window)?, Instant::now());
    counts.store(true, Ordering::Relaxed);
    tokio::time::sleep(window.measure).await;
    stops.store(true, Ordering::Relaxed);
    let (after, elapsed) = (used(window)?, began.elapsed());
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| format!("a calling task came to grief: {error}"))??;
    }
    let latencies = std::mem::take(&mut *common.lock().unwrap_or_else(PoisonError::into_inner));
    if latencies.count() == 0 {
        return Err("no call began and ended in the measured time: give more --seconds".to_owned());
    }
    let [host_cpu_ns, infra_cpu_ns, client_cpu_ns] =
        std::array::from_fn(|at| after[at].saturating_sub(before[at]));
    let elapsed_ns = elapsed.as_nanos() as u64;
    Ok(Split { latencies, elapsed_ns, host_cpu_ns, infra_cpu_ns, client_cpu_ns })
}
