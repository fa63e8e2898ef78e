//! The client's way through the demo: a few calls to look at, then many to time.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tollfree::Channel;
use tollfree_measure::cores::CoreIdx;
use tollfree_measure::latency::Latencies;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, Bytes, StdError};
use tonic::transport::Endpoint;

use super::greeter::proto::greeter_client::GreeterClient;
use super::greeter::proto::{GreetReply, GreetRequest};
use super::order::Serving;

/// Calls before the timing begins.
const WARM_UP: Duration = Duration::from_millis(300);

/// What carries the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Transport {
    UnixHttp2,
    Tollfree,
}

impl Transport {
    pub(super) const ALL: [Self; 2] = [Self::UnixHttp2, Self::Tollfree];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::UnixHttp2 => "HTTP/2 over a Unix socket",
            Self::Tollfree => "Tollfree over shared memory",
        }
    }
}

/// The client's order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Visit {
    pub(super) core: Option<CoreIdx>,
    /// How long the calls over each transport are timed.
    pub(super) measure: Duration,
    pub(super) serving: Serving,
}

/// What was seen over one transport.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Tour {
    pub(super) transport: Transport,
    /// Where it connected, and why that means this transport.
    path: Option<Path>,
    /// Calls and their replies, as text.
    calls: Vec<Seen>,
    pub(super) timing: Option<Timing>,
    /// Why it did not get to its end.
    failed: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Path {
    address: String,
    why: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    call: String,
    replies: Vec<String>,
    server_pid: Option<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Timing {
    calls: u64,
    pub(super) p50_ns: u64,
    p99_ns: u64,
}

/// Tours every transport; `done` gets each tour as it ends.
pub(super) async fn visit(order: &Visit, mut done: impl FnMut(Tour)) {
    for transport in Transport::ALL {
        let mut tour = Tour { transport, path: None, calls: Vec::new(), timing: None, failed: None };
        if let Err(why) = take(order, &mut tour).await {
            tour.failed = Some(why);
        }
        done(tour);
    }
}

/// Connects, which is all that differs between transports, and tours.
async fn take(order: &Visit, tour: &mut Tour) -> Result<(), String> {
    match tour.transport {
        Transport::UnixHttp2 => {
            let address = order.serving.unix.clone();
            let channel = over_unix(&address).await?;
            let why =
                "the address begins with unix:, which tonic takes for HTTP/2 over that socket".to_owned();
            tour.path = Some(Path { address, why });
            walk(GreeterClient::new(channel), order.measure, tour).await
        }
        Transport::Tollfree => {
            let address = order.serving.shm.clone();
            let channel = over_rings(&address).await?;
            let why = format!("the channel says: {}", channel.path());
            tour.path = Some(Path { address, why });
            walk(GreeterClient::new(channel), order.measure, tour).await
        }
    }
}

/// HTTP/2 over a Unix socket.
pub(super) async fn over_unix(address: &str) -> Result<tonic::transport::Channel, String> {
    let endpoint = Endpoint::from_shared(address.to_owned())
        .map_err(|error| format!("{address} is no address: {error}"))?;
    endpoint.connect().await.map_err(|error| format!("cannot connect to {address}: {error}"))
}

/// Shared memory.
pub(super) async fn over_rings(address: &str) -> Result<Channel, String> {
    Channel::connect(address.to_owned()).await.map_err(|error| format!("cannot connect: {error}"))
}

/// The tour itself, the same for every channel under the stub.
async fn walk<T>(mut client: GreeterClient<T>, measure: Duration, tour: &mut Tour) -> Result<(), String>
where
    T: GrpcService<Body>,
    T::Error: Into<StdError>,
    T::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    let failed = |status: tonic::Status| format!("a call failed: {status}");
    let named = |name: &str| GreetRequest { name: name.to_owned() };

    for name in ["Ada", "Grace"] {
        let reply = client.greet(named(name)).await.map_err(failed)?.into_inner();
        tour.calls.push(seen(format!("Greet({name})"), vec![reply]));
    }
    let mut stream = client.greet_in_many_tongues(named("Barbara")).await.map_err(failed)?.into_inner();
    let mut replies = Vec::new();
    while let Some(reply) = stream.message().await.map_err(failed)? {
        replies.push(reply);
    }
    tour.calls.push(seen("GreetInManyTongues(Barbara)".to_owned(), replies));
    let refused = match client.greet(named("")).await {
        Ok(_) => return Err("a greeting without a name was not refused".to_owned()),
        Err(status) => format!("{:?}: {}", status.code(), status.message()),
    };
    tour.calls.push(Seen { call: "Greet()".to_owned(), replies: vec![refused], server_pid: None });

    let mut latencies = Latencies::default();
    let from = Instant::now() + WARM_UP;
    let mut began = Instant::now();
    while began < from + measure {
        client.greet(named("Ada")).await.map_err(failed)?;
        let ended = Instant::now();
        if began >= from {
            latencies.record(ended - began);
        }
        began = ended;
    }
    tour.timing = Some(Timing {
        calls: latencies.count(),
        p50_ns: latencies.quantile_ns(0.5),
        p99_ns: latencies.quantile_ns(0.99),
    });
    Ok(())
}

fn seen(call: String, replies: Vec<GreetReply>) -> Seen {
    let server_pid = replies.first().map(|reply| reply.server_pid);
    Seen { call, replies: replies.into_iter().map(|reply| reply.greeting).collect(), server_pid }
}

impl Tour {
    /// Whether it did not get to its end.
    pub(super) fn failed(&self) -> bool {
        self.failed.is_some()
    }

    /// The tour as lines for people.
    pub(super) fn lines(&self) -> String {
        let mut text = String::new();
        if let Some(Path { address, why }) = &self.path {
            let _ = writeln!(text, "   address  {address}\n   because  {why}");
        }
        for Seen { call, replies, server_pid } in &self.calls {
            let from = server_pid.map(|pid| format!("   (from process {pid})")).unwrap_or_default();
            let _ = writeln!(text, "   {call:<28} -> {}{from}", replies.join(" "));
        }
        if let Some(Timing { calls, p50_ns, p99_ns }) = self.timing {
            let micros = |nanos: u64| nanos as f64 / 1000.0;
            let _ = writeln!(
                text,
                "   {calls} calls of Greet, one after the other: p50 {:.2} us, p99 {:.2} us",
                micros(p50_ns),
                micros(p99_ns)
            );
        }
        if let Some(why) = &self.failed {
            let _ = writeln!(text, "   failed: {why}");
        }
        text
    }
}
