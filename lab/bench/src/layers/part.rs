//! What the processes of the figure do: serve, call, or encode and decode.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use prost::Message;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tollfree_driver_tokio::Config;
use tonic::{Request, Response, Status};

use super::{Carrier, Kind, bare};
use crate::BenchError;
use crate::direct::layers_client::LayersClient as DirectClient;
use crate::direct::layers_server::{Layers as DirectLayers, LayersServer as DirectServer};
use crate::hyperprotobench::M54;
use crate::load::EchoCall;
use crate::order::{self, Serving};
use crate::peer::Starter;
use crate::plan::RuntimeKind;
use crate::process::{self, CpuTime};
use crate::proto::HelloWorld;
use crate::proto::layers_client::LayersClient;
use crate::proto::layers_server::{Layers, LayersServer};
use crate::side::{session, tollfree, tonic_tcp, tonic_unix};

/// The kernel counts in ticks of 10 ms: fewer than this say nothing, and the measurement goes on.
const COUNTED: Duration = Duration::from_millis(50);
/// Times that a measurement is made longer for this.
const STRETCHES: u32 = 50;

/// A process's order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Part {
    /// Serve until the process ends; answers [`Serving`] first.
    Serve { carrier: Carrier, dir: PathBuf },
    /// Call; answers [`Spent`].
    Call {
        carrier: Carrier,
        kind: Kind,
        message: PathBuf,
        address: String,
        server_pid: u32,
        warm_up: Duration,
        measure: Duration,
    },
    /// Encode and decode; answers [`Coded`].
    Code { kind: Kind, message: PathBuf, measure: Duration },
}

/// What calls took, both processes together.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Spent {
    pub(crate) calls: u64,
    pub(crate) user_ns: u64,
    pub(crate) system_ns: u64,
    /// Wall clock.
    pub(crate) elapsed_ns: u64,
}

/// What a message takes of prost.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Coded {
    /// Encoding it once.
    pub(crate) encode_ns: f64,
    /// Decoding it once and dropping it.
    pub(crate) decode_ns: f64,
}

/// Carries a part out.
pub(crate) fn act(part: &Part, starter: &Starter) -> Result<(), BenchError> {
    let failed = |what| BenchError::Side { side: "layers", what };
    match part {
        Part::Serve { carrier, dir } => {
            let ready = |serving: Serving| starter.say(serving);
            let serving = serve(*carrier, dir, ready);
            order::runtime(RuntimeKind::Current)?.block_on(serving).map_err(failed)
        }
        Part::Call { carrier, kind, message, address, server_pid, warm_up, measure } => {
            let bytes = read(message)?;
            let window = Window { server_pid: *server_pid, warm_up: *warm_up, measure: *measure };
            let calls = call(*carrier, *kind, bytes, address, window);
            starter.say(order::runtime(RuntimeKind::Current)?.block_on(calls).map_err(failed)?);
            Ok(())
        }
        Part::Code { kind, message, measure } => {
            let bytes = read(message)?;
            let coded = match kind {
                Kind::HelloWorld => code::<HelloWorld>(&bytes, *measure),
                Kind::M54 => code::<M54>(&bytes, *measure),
            };
            starter.say(coded.map_err(failed)?);
            Ok(())
        }
    }
}

fn read(path: &Path) -> Result<Bytes, BenchError> {
    std::fs::read(path)
        .map(Bytes::from)
        .map_err(|error| BenchError::Refused(format!("cannot read {}: {error}", path.display())))
}

/// The service: gives back what it gets.
struct Echo;

/// The same for both generators' traits.
macro_rules! echoes {
    ($($service:path;)+) => {$(
        #[tonic::async_trait]
        impl $service for Echo {
            async fn hello(&self, request: Request<HelloWorld>) -> Result<Response<HelloWorld>, Status> {
                Ok(Response::new(request.into_inner()))
            }

            async fn large(&self, request: Request<M54>) -> Result<Response<M54>, Status> {
                Ok(Response::new(request.into_inner()))
            }
        }
    )+};
}

echoes! {
    Layers;
    DirectLayers;
}

async fn serve(carrier: Carrier, dir: &Path, ready: impl FnOnce(Serving)) -> Result<(), String> {
    let stock = || tonic::transport::Server::builder().add_service(LayersServer::new(Echo));
    let ours = ::tollfree::Server::builder;
    match carrier {
        Carrier::TonicTcp => tonic_tcp::serve(stock(), ready).await,
        Carrier::TonicUnix => tonic_unix::serve(stock(), dir, ready).await,
        Carrier::Level1 => tollfree::serve(ours().add_service(LayersServer::new(Echo)), dir, ready).await,
        Carrier::Level2 => tollfree::serve(ours().add_service(DirectServer::new(Echo)), dir, ready).await,
        Carrier::BareTcp => bare::serve_tcp(ready).await,
        Carrier::BareUnix => bare::serve_unix(dir, ready).await,
        Carrier::Session => session::serve(dir, Config::default(), ready).await,
    }
}

/// A way to have one message echoed. The error is in words.
trait Caller: Send + 'static {
    type Message: Send + 'static;

    fn echo(&mut self, message: Self::Message) -> impl Future<Output = Result<Self::Message, String>> + Send;

    /// The message of these bytes.
    fn message(bytes: &Bytes) -> Result<Self::Message, String>;

    /// The bytes of a message, to be compared.
    fn bytes(message: &Self::Message) -> Bytes;
}

struct Hellos<C>(C);
struct Larges<C>(C);

/// Callers of stubs.
macro_rules! callers {
    ($($caller:ident<$client:ty> = $method:ident($message:ty);)+) => {$(
        impl Caller for $caller<$client> {
            type Message = $message;

            async fn echo(&mut self, message: $message) -> Result<$message, String> {
                let reply = self.0.$method(message).await;
                Ok(reply.map_err(|status| format!("a call failed: {status}"))?.into_inner())
            }

            fn message(bytes: &Bytes) -> Result<$message, String> {
                <$message>::decode(&bytes[..]).map_err(|error| error.to_string())
            }

            fn bytes(message: &$message) -> Bytes {
                message.encode_to_vec().into()
            }
        }
    )+};
}

callers! {
    Hellos<LayersClient<tonic::transport::Channel>> = hello(HelloWorld);
    Larges<LayersClient<tonic::transport::Channel>> = large(M54);
    Hellos<LayersClient<::tollfree::Channel>> = hello(HelloWorld);
    Larges<LayersClient<::tollfree::Channel>> = large(M54);
    Hellos<DirectClient<::tollfree::Channel>> = hello(HelloWorld);
    Larges<DirectClient<::tollfree::Channel>> = large(M54);
}

/// Callers without stubs: their messages are bytes.
struct Plain<C>(C);

impl<C: EchoCall<Body = Bytes>> Caller for Plain<C> {
    type Message = Bytes;

    fn echo(&mut self, message: Bytes) -> impl Future<Output = Result<Bytes, String>> + Send {
        self.0.call(message)
    }

    fn message(bytes: &Bytes) -> Result<Bytes, String> {
        Ok(bytes.clone())
    }

    fn bytes(message: &Bytes) -> Bytes {
        message.clone()
    }
}

/// When calls count, and whose time.
#[derive(Clone, Copy)]
struct Window {
    server_pid: u32,
    warm_up: Duration,
    measure: Duration,
}

async fn call(
    carrier: Carrier,
    kind: Kind,
    bytes: Bytes,
    address: &str,
    window: Window,
) -> Result<Spent, String> {
    macro_rules! of_kind {
        ($client:expr) => {
            match kind {
                Kind::HelloWorld => run(Hellos($client), bytes, window).await,
                Kind::M54 => run(Larges($client), bytes, window).await,
            }
        };
    }
    let refused = |error: ::tollfree::ChannelError| format!("cannot connect: {error}");
    match carrier {
        Carrier::TonicTcp => of_kind!(LayersClient::new(tonic_tcp::connect(address).await?)),
        Carrier::TonicUnix => of_kind!(LayersClient::new(tonic_unix::connect(address).await?)),
        Carrier::Level1 => {
            let channel = ::tollfree::Channel::connect(address).await.map_err(refused)?;
            of_kind!(LayersClient::new(channel))
        }
        Carrier::Level2 => {
            use ::tollfree::Generated as _;
            let client = DirectClient::new(::tollfree::Channel::connect(address).await.map_err(refused)?);
            match client.way() {
                ::tollfree::Way::Direct => of_kind!(client),
                way => Err(format!("calls would go {way}")),
            }
        }
        Carrier::BareTcp => run(Plain(bare::connect_tcp(address).await?), bytes, window).await,
        Carrier::BareUnix => run(Plain(bare::connect_unix(address).await?), bytes, window).await,
        Carrier::Session => {
            let caller = session::connect(address, &Config::default()).await?;
            run(Plain(caller), bytes, window).await
        }
    }
}

/// Calls in a task: a runtime's first future would have the runtime look for IO at each of its turns.
async fn run<C: Caller>(caller: C, bytes: Bytes, window: Window) -> Result<Spent, String> {
    let calls = tokio::spawn(call_on(caller, bytes, window));
    calls.await.map_err(|error| format!("the calling task came to grief: {error}"))?
}

async fn call_on<C: Caller>(mut caller: C, bytes: Bytes, window: Window) -> Result<Spent, String> {
    let times = || {
        let both = process::cpu_time(window.server_pid)
            .and_then(|server| Ok(server + process::cpu_time(std::process::id())?));
        both.map_err(|error| error.to_string())
    };
    let mut message = C::message(&bytes)?;
    let began = Instant::now();
    while began.elapsed() < window.warm_up {
        message = caller.echo(message).await?;
    }
    let (before, began) = (times()?, Instant::now());
    let (mut calls, mut spent) = (0, CpuTime::default());
    for stretch in 1..=STRETCHES {
        while began.elapsed() < window.measure * stretch {
            message = caller.echo(message).await?;
            calls += 1;
        }
        spent = times()? - before;
        if spent.total() >= COUNTED {
            break;
        }
    }
    let elapsed = began.elapsed();
    if C::bytes(&message) != bytes {
        return Err("what came back is not what was sent".to_owned());
    }
    if spent.total().is_zero() {
        return Err("the kernel has counted no processor time for these calls".to_owned());
    }
    let ns = |time: Duration| time.as_nanos().try_into().unwrap_or(u64::MAX);
    Ok(Spent { calls, user_ns: ns(spent.user), system_ns: ns(spent.system), elapsed_ns: ns(elapsed) })
}

/// Encodes and decodes by turns for about `measure`, by the thread's own clock.
fn code<M: Message + Default>(bytes: &[u8], measure: Duration) -> Result<Coded, String> {
    let message = M::decode(bytes).map_err(|error| error.to_string())?;
    let mut buffer = BytesMut::with_capacity(2 * bytes.len());
    let mut encode = || {
        buffer.clear();
        message.encode(&mut buffer).expect("the buffer grows");
        black_box(&mut buffer);
    };
    let mut decode = || drop(black_box(M::decode(black_box(bytes))));
    // Long enough for the clock, short enough to take turns.
    let batch = (100_000 / bytes.len().max(1)).clamp(1, 1000) as u32;
    let (mut encoding, mut decoding, mut count) = (Duration::ZERO, Duration::ZERO, 0);
    let began = Instant::now();
    let warm = measure / 4;
    while began.elapsed() < measure || count == 0 {
        let spent = (timed(batch, &mut encode), timed(batch, &mut decode));
        if began.elapsed() >= warm {
            encoding += spent.0;
            decoding += spent.1;
            count += batch;
        }
    }
    let each = |total: Duration| total.as_nanos() as f64 / f64::from(count);
    Ok(Coded { encode_ns: each(encoding), decode_ns: each(decoding) })
}

fn timed(count: u32, work: &mut impl FnMut()) -> Duration {
    let clock = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let began = clock();
    (0..count).for_each(|_| work());
    clock() - began
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_message_takes_longer_to_code() {
        let code = |len: usize| {
            let message = HelloWorld { name: "n".repeat(len) };
            super::code::<HelloWorld>(&message.encode_to_vec(), Duration::from_millis(40)).unwrap()
        };
        let (short, long) = (code(5), code(1 << 20));
        assert!(short.encode_ns > 0.0 && short.decode_ns > 0.0);
        assert!(long.encode_ns > short.encode_ns && long.decode_ns > short.decode_ns);
    }
}
