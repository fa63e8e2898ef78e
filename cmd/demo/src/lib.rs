//! The same calls with the same generated stub over two transports, and what each costs: a demo to look at, an echo to compare.
//!
//! Behind `tollfree demo` and `tollfree echo`; the demo is a program of its own, too, that is quick to build (`make demo`).
#![forbid(unsafe_code)]

mod echo;
mod greeter;
mod order;
mod tour;

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tollfree_measure::BenchError;
use tollfree_measure::axis::Placement;
use tollfree_measure::cores::{Cores, Seats};
use tollfree_measure::interrupt::{Interrupted, until_interrupted};
use tollfree_measure::peer::Peer;
use tollfree_measure::workdir::Workdir;

pub use echo::Echo;
pub use order::attend;
use order::{Order, Serve, Serving};
use tour::{Tour, Transport, Visit};

/// Time that either process may take to start, and a tour beyond the time it measures.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long the calls over each transport are timed.
const MEASURE: Duration = Duration::from_secs(3);

/// Options of the demo.
#[derive(Debug, Args)]
pub struct Demo {
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Why the demo did not come to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum DemoError {
    /// A process or the system failed.
    Bench(BenchError),
    /// A transport did not work; the demo's output says how.
    Transport,
    /// Standard output did not take the result.
    Output(std::io::Error),
    /// A signal asked for the end.
    Interrupted(Interrupted),
}

impl std::fmt::Display for DemoError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bench(error) => error.fmt(f),
            Self::Transport => f.write_str("a transport did not work; see above"),
            Self::Output(error) => write!(f, "cannot write the result: {error}"),
            Self::Interrupted(_) => f.write_str("interrupted; nothing is left behind"),
        }
    }
}

impl std::error::Error for DemoError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Bench(error) => Some(error),
            Self::Output(error) => Some(error),
            Self::Transport | Self::Interrupted(_) => None,
        }
    }
}

impl<E: Into<BenchError>> From<E> for DemoError {
    fn from(error: E) -> Self {
        Self::Bench(error.into())
    }
}

/// What the demo found.
#[derive(Debug, Serialize)]
struct Findings {
    server_pid: Option<u32>,
    client_pid: Option<u32>,
    tours: Vec<Tour>,
    /// The median over Tollfree divided by the median over the Unix socket.
    p50_ratio: Option<f64>,
}

impl Demo {
    /// Runs it in this process, which starts its own executable twice more with the argument `demo-peer`: that process
    /// must call [`attend`].
    ///
    /// # Errors
    /// Each kind of [`DemoError`].
    pub fn run(self) -> Result<(), DemoError> {
        let quiet = self.json;
        let shown = until_interrupted(show(seats()?, |text| if quiet { Ok(()) } else { print(text) }))?;
        let findings = shown.map_err(DemoError::Interrupted)??;
        if self.json {
            let json = serde_json::to_string_pretty(&findings).expect("findings are plain data");
            print(&(json + "\n"))?;
        }
        match findings.tours.iter().any(Tour::failed) {
            false => Ok(()),
            true => Err(DemoError::Transport),
        }
    }
}

/// Each on its own core where there are two: what the transport does is to be seen, not the scheduler.
fn seats() -> Result<Seats, BenchError> {
    let cores = Cores::choose()?;
    let placement = if cores.client().is_some() { Placement::Split } else { Placement::SameCore };
    cores.seats(placement)
}

/// Starts the process that serves, on both transports.
async fn server(dir: &Workdir, seats: Seats) -> Result<(Peer, Serving), DemoError> {
    let serve = Serve { dir: dir.path().to_owned(), core: seats.server };
    let mut server = Peer::start("server", &["demo-peer"], &[], &Order::Serve(serve)).await?;
    let serving = server.hear(PATIENCE).await?;
    Ok((server, serving))
}

async fn show(
    seats: Seats,
    mut tell: impl FnMut(&str) -> Result<(), DemoError>,
) -> Result<Findings, DemoError> {
    let dir = Workdir::create()?;
    let (server, serving) = server(&dir, seats).await?;
    let visit = Visit { core: seats.client, measure: MEASURE, serving };
    let mut client = Peer::start("client", &["demo-peer"], &[], &Order::Visit(visit)).await?;
    tell(&registration(seats, &server, &client))?;

    let mut tours = Vec::new();
    for (number, transport) in (1..).zip(Transport::ALL) {
        tell(&format!("\n{number}. {}\n", transport.title()))?;
        let tour: Tour = client.hear(MEASURE + PATIENCE).await?;
        tell(&tour.lines())?;
        tours.push(tour);
    }
    let (server_pid, client_pid) = (server.pid(), client.pid());
    client.stop().await;
    server.stop().await;
    let findings = Findings { server_pid, client_pid, p50_ratio: ratio(&tours), tours };
    tell(&conclusion(&findings))?;
    Ok(findings)
}

fn print(text: &str) -> Result<(), DemoError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(DemoError::Output)
}

fn registration(seats: Seats, server: &Peer, client: &Peer) -> String {
    let seat = |core: Option<tollfree_measure::cores::CoreIdx>| match core {
        Some(core) => format!("core {}", core.0),
        None => "any core".to_owned(),
    };
    let pid = |peer: &Peer| peer.pid().map_or_else(|| "(ended)".to_owned(), |pid| pid.to_string());
    format!(
        "One greeter service, one generated tonic stub, two transports.\n\
         Server: process {} on {}. Client: process {} on {}.\n",
        pid(server),
        seat(seats.server),
        pid(client),
        seat(seats.client),
    )
}

fn ratio(tours: &[Tour]) -> Option<f64> {
    let p50 = |transport| {
        let tour = tours.iter().find(|tour| tour.transport == transport)?;
        Some(tour.timing.as_ref()?.p50_ns as f64)
    };
    Some(p50(Transport::Tollfree)? / p50(Transport::UnixHttp2)?)
}

fn conclusion(findings: &Findings) -> String {
    let mut text = String::from("\n");
    match findings.p50_ratio {
        Some(ratio) if ratio < 1.0 => {
            let _ = writeln!(text, "The median call over Tollfree took 1/{:.1} of the time.", 1.0 / ratio);
        }
        Some(ratio) => {
            let _ = writeln!(text, "The median call over Tollfree took {ratio:.2} times as long.");
        }
        None => text.push_str("No ratio: one of the two transports failed.\n"),
    }
    text.push_str("What your machine gains: tollfree echo. Your own sizes and settings: make bench\n");
    text
}
