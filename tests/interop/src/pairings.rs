//! Every client with every server, every case.

use std::io::Write as _;
use std::path::Path;

use tollfree::pool::Pool;
use tollfree_interop::cases::{CASES, Case, Failure, Load};
use tollfree_interop::{Target, Via};

use crate::foreign::{self, Lab, TIME_MAX};

/// As much as gRPC's description says.
const LOAD: Load = Load { parallel_count: 1000, soak_count: 10 };

/// How a case went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// The other side doesn't have what the case is about, and said so when the case was run.
    Absent,
    Failed(String),
}

/// A client and a server.
pub(crate) struct Pairing {
    /// Heads the column.
    pub(crate) client: &'static str,
    pub(crate) server: &'static str,
    pub(crate) way: &'static str,
    by: By,
}

enum By {
    /// Our client; whether the server is ours too, and so has everything.
    Us(Target),
    /// grpc-go's client against our server.
    GrpcGo { port: u16, tls: bool },
}

/// All outcomes of one pairing, in the order of [`CASES`].
pub(crate) struct Column {
    pub(crate) pairing: Pairing,
    pub(crate) outcomes: Vec<Outcome>,
}

const OURS: &str = "Tollfree";
/// Attached to a gateway, which the client calls.
const BEHIND: &str = "Tollfree behind a gateway";
/// The same with Envoy in front of the gateway.
const THROUGH: &str = "Envoy, gateway";
const THEIRS: &str = "grpc-go";

impl Pairing {
    /// Whether the other side is known not to have what a case is about. Everything else must pass.
    pub(crate) fn lacks(&self, case: &str) -> bool {
        let compressed = case.contains("_compressed_");
        match (&self.by, self.server) {
            (By::Us(_), OURS | BEHIND | THROUGH) => false,
            // Its server neither checks nor makes compressed messages, and has no id.
            (By::Us(_), _) => compressed || case == "pick_first_unary",
            (By::GrpcGo { .. }, _) => compressed || case == "concurrent_large_unary",
        }
    }
}

#[cfg(test)]
impl Pairing {
    /// Our client against grpc-go's server, nowhere.
    pub(crate) fn with_grpc_go() -> Pairing {
        let target = Target { uri: String::new(), ca: None, patience: TIME_MAX, pool: None, via: None };
        Pairing { client: OURS, server: THEIRS, way: "http", by: By::Us(target) }
    }
}

pub(crate) fn all(lab: &Lab) -> Vec<Pairing> {
    let path = lab.directory.path().display();
    let us = |server, way, uri: String| Pairing { client: OURS, server, way, by: By::Us(lab.target(uri)) };
    let go = |server, way, port, tls| Pairing { client: THEIRS, server, way, by: By::GrpcGo { port, tls } };
    vec![
        us(OURS, "shm", format!("shm://{path}/shm.sock")),
        us(OURS, "shm-abstract", format!("shm-abstract:tollfree-interop-{}", lab.plain_port)),
        us(OURS, "unix", format!("unix:{path}/unix.sock")),
        us(OURS, "http", format!("http://localhost:{}", lab.plain_port)),
        us(OURS, "https", format!("https://localhost:{}", lab.tls_port)),
        go(OURS, "http", lab.plain_port, false),
        go(OURS, "https", lab.tls_port, true),
        us(BEHIND, "http", format!("http://localhost:{}", lab.gateway_plain_port)),
        us(BEHIND, "https", format!("https://localhost:{}", lab.gateway_tls_port)),
        go(BEHIND, "http", lab.gateway_plain_port, false),
        go(BEHIND, "https", lab.gateway_tls_port, true),
        us(THEIRS, "http", format!("http://localhost:{}", lab.go_plain_port)),
        us(THEIRS, "https", format!("https://localhost:{}", lab.go_tls_port)),
    ]
}

/// Both clients through an Envoy, which calls the gateway.
pub(crate) fn through_envoy(lab: &Lab, port: u16) -> Vec<Pairing> {
    let (server, way) = (THROUGH, "http");
    vec![
        Pairing { client: OURS, server, way, by: By::Us(lab.target(format!("http://localhost:{port}"))) },
        Pairing { client: THEIRS, server, way, by: By::GrpcGo { port, tls: false } },
    ]
}

/// Runs them, one after the other, and says on the terminal how far it is.
pub(crate) async fn run(lab: &Lab, pairings: Vec<Pairing>) -> Vec<Column> {
    let mut columns = Vec::new();
    for pairing in pairings {
        let title = format!("{} client, {} server, {}", pairing.client, pairing.server, pairing.way);
        print!("  {title:<56} ");
        let mut outcomes = Vec::new();
        for case in CASES {
            let outcome = match &pairing.by {
                By::Us(target) => ours(case, target).await,
                By::GrpcGo { port, tls } => theirs(case, lab, *port, *tls).await,
            };
            print!(
                "{}",
                match outcome {
                    Outcome::Passed => ".",
                    Outcome::Absent => "-",
                    Outcome::Failed(_) => "F",
                }
            );
            let _ = std::io::stdout().flush();
            outcomes.push(outcome);
        }
        println!();
        columns.push(Column { pairing, outcomes });
    }
    columns
}

/// Runs all cases of our client against a server, but for some. What is not as it should be.
pub(crate) async fn call(
    uri: String,
    except: &[String],
    pool: Option<Pool>,
    via: Option<Via>,
) -> Vec<String> {
    let target = Target { uri, ca: None, patience: TIME_MAX, pool, via };
    let mut failures = Vec::new();
    for case in CASES.iter().filter(|case| !except.iter().any(|name| name == case.name)) {
        match ours(case, &target).await {
            Outcome::Passed => println!("{}: passed", case.name),
            Outcome::Absent => failures.push(format!("{}: the server does not have it", case.name)),
            Outcome::Failed(why) => failures.push(format!("{}: {why}", case.name)),
        }
    }
    failures
}

async fn ours(case: &Case, target: &Target) -> Outcome {
    match tokio::time::timeout(TIME_MAX, case.run(target, LOAD)).await {
        Ok(Ok(())) => Outcome::Passed,
        Ok(Err(Failure::NotOffered(_))) => Outcome::Absent,
        Ok(Err(failure)) => Outcome::Failed(failure.to_string()),
        Err(_) => Outcome::Failed(format!("it did not end in {} s", TIME_MAX.as_secs())),
    }
}

async fn theirs(case: &Case, lab: &Lab, port: u16, tls: bool) -> Outcome {
    let mut args = vec![
        "-server_host=localhost".to_owned(),
        format!("-server_port={port}"),
        format!("-test_case={}", case.name),
        // No case is about speed.
        "-soak_per_iteration_max_acceptable_latency_ms=30000".to_owned(),
        format!("-soak_overall_timeout_seconds={}", TIME_MAX.as_secs()),
    ];
    if tls {
        args.push("-use_tls".to_owned());
        args.push("-use_test_ca".to_owned());
        args.push(format!("-ca_file={}", lab.path("ca.pem").display()));
    }
    if case.name.starts_with("orca_") {
        let config = r#"{"loadBalancingConfig":[{"test_backend_metrics_load_balancer":{}}]}"#;
        args.push(format!("-service_config_json={config}"));
    }
    match foreign::run(&lab.tools.join(Path::new("client")), args).await {
        Ok(said) if said.code == Some(0) => Outcome::Passed,
        Ok(said) if said.err.contains("Unsupported test case") => Outcome::Absent,
        Ok(said) => Outcome::Failed(said.final_status()),
        Err(reason) => Outcome::Failed(reason),
    }
}
