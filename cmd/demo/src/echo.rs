//! `tollfree echo`: what one's own machine gains, in ten seconds. The same echo with the same stub over both transports, by turns.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use tollfree_measure::cores::{CoreIdx, Seats};
use tollfree_measure::interrupt::until_interrupted;
use tollfree_measure::latency::{Latencies, Quantiles};
use tollfree_measure::peer::Peer;
use tollfree_measure::workdir::Workdir;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codegen::{Body as HttpBody, Bytes, StdError};

use super::greeter::proto::Payload;
use super::greeter::proto::echo_client::EchoClient;
use super::order::{Order, Serving};
use super::tour::{self, Transport};
use super::{DemoError, PATIENCE, print, seats, server};

/// What calls carry, in bytes each way.
const SIZES: [usize; 3] = [64, 4096, 65_536];
/// How many are under way at any time.
const INFLIGHTS: [usize; 2] = [1, 64];
/// Each row is measured so often over each transport, by turns: a busy moment meets both. Figures of a debug build mean nothing, however
/// often they are measured.
const ROUNDS: usize = if cfg!(debug_assertions) { 1 } else { 4 };
const WARM_UP: Duration = Duration::from_millis(50);
const MEASURE: Duration = Duration::from_millis(150);

/// Options of `tollfree echo`.
#[derive(Debug, Args)]
pub struct Echo {
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// The client's order.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Calls {
    pub(super) core: Option<CoreIdx>,
    pub(super) serving: Serving,
}

/// What the client process measured for one size and number of calls in flight, over one transport.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Measured {
    transport: Transport,
    size: usize,
    inflight: usize,
    latencies: Latencies,
    elapsed: Duration,
}

/// A row of the result.
#[derive(Debug, Serialize)]
struct Row {
    transport: Transport,
    /// Bytes in the request's and the reply's body.
    size: usize,
    /// Calls outstanding at any time.
    inflight: usize,
    #[serde(flatten)]
    quantiles: Quantiles,
    /// Of Tollfree's rows: the median over that of the Unix socket.
    p50_ratio: Option<f64>,
    /// Of Tollfree's rows: calls a second over those of the Unix socket.
    rate_ratio: Option<f64>,
}

/// The whole result.
#[derive(Debug, Serialize)]
struct Report {
    server_pid: Option<u32>,
    client_pid: Option<u32>,
    server_core: Option<CoreIdx>,
    client_core: Option<CoreIdx>,
    rows: Vec<Row>,
}

impl Echo {
    /// Runs it in this process, which starts its own executable as its peers: see [`super::Demo::run`].
    ///
    /// # Errors
    /// Each kind of [`DemoError`].
    pub fn run(self) -> Result<(), DemoError> {
        if cfg!(debug_assertions) {
            eprintln!("tollfree: this is a debug build; its figures mean nothing");
        }
        let report = until_interrupted(measure(seats()?))?.map_err(DemoError::Interrupted)??;
        match self.json {
            true => print(&(serde_json::to_string_pretty(&report).expect("a report is plain data") + "\n")),
            false => print(&report.table()),
        }
    }
}

async fn measure(seats: Seats) -> Result<Report, DemoError> {
    let dir = Workdir::create()?;
    let (server, serving) = server(&dir, seats).await?;
    let calls = Calls { core: seats.client, serving };
    let mut client = Peer::start("client", &["demo-peer"], &[], &Order::Echo(calls)).await?;
    let mut rows: Vec<Row> = Vec::new();
    for size in SIZES {
        for inflight in INFLIGHTS {
            eprintln!("{size} bytes, {inflight} in flight");
            for _ in Transport::ALL {
                let measured: Measured =
                    client.hear((WARM_UP + MEASURE) * 2 * ROUNDS as u32 + PATIENCE).await?;
                let row = Row::of(measured, rows.last());
                rows.push(row);
            }
        }
    }
    let (server_pid, client_pid) = (server.pid(), client.pid());
    client.stop().await;
    server.stop().await;
    Ok(Report { server_pid, client_pid, server_core: seats.server, client_core: seats.client, rows })
}

impl Row {
    /// With ratios, if the row before it is that of the other transport.
    fn of(measured: Measured, before: Option<&Row>) -> Self {
        let Measured { transport, size, inflight, latencies, elapsed } = measured;
        let quantiles = Quantiles::of(&latencies, elapsed);
        let socket = before
            .filter(|row| transport == Transport::Tollfree && (row.size, row.inflight) == (size, inflight));
        let socket = socket.map(|row| row.quantiles);
        let p50 = |quantiles: Quantiles| Some(quantiles.p50_ns? as f64);
        Self {
            transport,
            size,
            inflight,
            quantiles,
            p50_ratio: socket.and_then(|socket| Some(p50(quantiles)? / p50(socket)?)),
            rate_ratio: socket.and_then(|socket| Some(quantiles.rate_per_s? / socket.rate_per_s?)),
        }
    }
}

impl Report {
    /// One line a size and number of calls in flight.
    fn table(&self) -> String {
        let cores = match (self.server_core, self.client_core) {
            (Some(server), Some(client)) if server != client => "a core each",
            _ => "one core for both",
        };
        let mut text = format!(
            "Echo calls with tonic's stubs between two processes, {cores}.\n\n\
             {:>8} {:>9} {:>26} {:>33}\n{:>8} {:>9} {:>12} {:>13} {:>6} {:>12} {:>13} {:>6}\n",
            "",
            "",
            "median, us",
            "calls a second",
            "bytes",
            "in flight",
            "Unix socket",
            "Tollfree",
            "",
            "Unix socket",
            "Tollfree",
            "",
        );
        for pair in self.rows.chunks(2) {
            let [socket, rings] = pair else { continue };
            let micros = |row: &Row| row.quantiles.p50_ns.unwrap_or(0) as f64 / 1000.0;
            let rate = |row: &Row| row.quantiles.rate_per_s.unwrap_or(0.0);
            let _ = writeln!(
                text,
                "{:>8} {:>9} {:>12.1} {:>13.1} {:>6} {:>12.0} {:>13.0} {:>6}",
                socket.size,
                socket.inflight,
                micros(socket),
                micros(rings),
                times(rings.p50_ratio),
                rate(socket),
                rate(rings),
                times(rings.rate_ratio),
            );
        }
        text.push_str("\nOther sizes, levels and placements: make bench, or tollfree-lab bench echo\n");
        text
    }
}

/// A ratio as people read it: `1/13.4`, or `8.3`.
fn times(ratio: Option<f64>) -> String {
    match ratio {
        Some(ratio) if ratio > 0.0 && ratio < 1.0 => format!("1/{:.1}", 1.0 / ratio),
        Some(ratio) => format!("{ratio:.1}"),
        None => String::new(),
    }
}

/// Makes the calls, in the client process; `done` is told of each row over each transport.
pub(super) async fn call(order: &Calls, mut done: impl FnMut(Measured)) -> Result<(), String> {
    let unix = EchoClient::new(tour::over_unix(&order.serving.unix).await?);
    let rings = EchoClient::new(tour::over_rings(&order.serving.shm).await?);
    for size in SIZES {
        for inflight in INFLIGHTS {
            let rows = Transport::ALL.map(|transport| Measured {
                transport,
                size,
                inflight,
                latencies: Latencies::default(),
                elapsed: Duration::ZERO,
            });
            let [mut over_unix, mut over_rings] = rows;
            for _ in 0..ROUNDS {
                round(&unix, &mut over_unix).await?;
                round(&rings, &mut over_rings).await?;
            }
            done(over_unix);
            done(over_rings);
        }
    }
    Ok(())
}

/// As many loops as calls are to be under way, for a while, over one transport.
async fn round<T>(client: &EchoClient<T>, row: &mut Measured) -> Result<(), String>
where
    T: GrpcService<Body> + Clone + Send + 'static,
    T::Error: Into<StdError>,
    T::Future: Send,
    T::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <T::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
{
    let from = Instant::now() + WARM_UP;
    let mut loops = tokio::task::JoinSet::new();
    for _ in 0..row.inflight {
        let (mut client, mut bytes) = (client.clone(), vec![0x5a; row.size]);
        loops.spawn(async move {
            let mut latencies = Latencies::default();
            let mut began = Instant::now();
            while began < from + MEASURE {
                let reply = client.echo(Payload { bytes }).await?;
                bytes = reply.into_inner().bytes;
                let ended = Instant::now();
                if began >= from {
                    latencies.record(ended - began);
                }
                began = ended;
            }
            Ok::<_, tonic::Status>((latencies, bytes.len()))
        });
    }
    while let Some(ended) = loops.join_next().await {
        let ended = ended.map_err(|error| error.to_string())?;
        let (latencies, len) = ended.map_err(|status| format!("a call failed: {status}"))?;
        if len != row.size {
            return Err(format!("an echo of {} bytes had {len}", row.size));
        }
        row.latencies.merge(&latencies);
    }
    row.elapsed += from.elapsed();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(transport: Transport, micros: &[u64], before: Option<&Row>) -> Row {
        let mut latencies = Latencies::default();
        micros.iter().for_each(|micros| latencies.record(Duration::from_micros(*micros)));
        let elapsed = Duration::from_micros(micros.iter().sum());
        Row::of(Measured { transport, size: 64, inflight: 1, latencies, elapsed }, before)
    }

    #[test]
    fn ratios_are_of_the_same_calls_over_the_socket() {
        let socket = row(Transport::UnixHttp2, &[40, 40, 40], None);
        let rings = row(Transport::Tollfree, &[4, 4, 4], Some(&socket));
        assert_eq!((socket.p50_ratio, socket.rate_ratio), (None, None));
        let near = |ratio: Option<f64>, wanted: f64| (ratio.unwrap() / wanted - 1.0).abs() < 0.01;
        assert!(near(rings.p50_ratio, 0.1) && near(rings.rate_ratio, 10.0), "{rings:?}");
        let report = Report {
            server_pid: None,
            client_pid: None,
            server_core: None,
            client_core: None,
            rows: vec![socket, rings],
        };
        let table = report.table();
        assert!(table.contains("1/10.0") && table.contains("one core for both"), "{table}");
    }
}
