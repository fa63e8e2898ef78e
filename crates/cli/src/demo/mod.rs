//! `tollfree demo`: the same calls with the same generated stub over two transports, and what each costs.

mod greeter;
mod order;
mod tour;

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tollfree_bench::BenchError;
use tollfree_bench::cores::{Cores, Seats};
use tollfree_bench::interrupt::until_interrupted;
use tollfree_bench::peer::Peer;
use tollfree_bench::plan::Placement;
use tollfree_bench::workdir::Workdir;

use crate::bench::print;
use crate::failure::Failure;
pub(crate) use order::attend;
use order::{Order, Serve, Serving};
use tour::{Tour, Transport, Visit};

/// Time that either process may take to start, and a tour beyond the time it measures.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long the calls over each transport are timed.
const MEASURE: Duration = Duration::from_secs(3);

/// Options of `tollfree demo`.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
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
    pub(crate) fn run(self) -> Result<(), Failure> {
        let cores = Cores::choose()?;
        // Each on its own core where there are two: a demo should show what the transport does, not the scheduler.
        let placement = if cores.client().is_some() { Placement::Split } else { Placement::SameCore };
        let seats = cores.seats(placement)?;
        let quiet = self.json;
        let findings = until_interrupted(show(seats, |text| if quiet { Ok(()) } else { print(text) }))???;
        if self.json {
            let json = serde_json::to_string_pretty(&findings).expect("findings are plain data");
            print(&(json + "\n"))?;
        }
        match findings.tours.iter().any(Tour::failed) {
            false => Ok(()),
            true => Err(Failure::Failed("a transport did not work; see above".to_owned())),
        }
    }
}

async fn show(seats: Seats, mut tell: impl FnMut(&str) -> Result<(), Failure>) -> Result<Findings, Failure> {
    let dir = Workdir::create()?;
    let serve = Serve { dir: dir.path().to_owned(), core: seats.server };
    let mut server =
        Peer::start("server", &["demo-peer"], &[], &Order::Serve(serve)).await.map_err(failed)?;
    let serving: Serving = server.hear(PATIENCE).await.map_err(failed)?;
    let visit = Visit { core: seats.client, measure: MEASURE, serving };
    let mut client =
        Peer::start("client", &["demo-peer"], &[], &Order::Visit(visit)).await.map_err(failed)?;
    tell(&introduction(seats, &server, &client))?;

    let mut tours = Vec::new();
    for (number, transport) in (1..).zip(Transport::ALL) {
        tell(&format!("\n{number}. {}\n", transport.title()))?;
        let tour: Tour = client.hear(MEASURE + PATIENCE).await.map_err(failed)?;
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

fn failed(error: impl Into<BenchError>) -> Failure {
    error.into().into()
}

fn introduction(seats: Seats, server: &Peer, client: &Peer) -> String {
    let seat = |core: Option<tollfree_bench::cores::CoreIdx>| match core {
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
    text.push_str("For your own sizes and settings: tollfree bench echo\n");
    text
}
