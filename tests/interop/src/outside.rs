//! What `make interop` doesn't ask of a gateway: HTTP/2's own rules (h2spec), and another proxy in front (Envoy).

use std::path::PathBuf;
use std::time::Instant;

use tokio::process::Command;
use tollfree_interop::Target;
use tollfree_interop::cases::{CASES, Load};

use crate::foreign::{Lab, TIME_MAX, free_port, spawn};
use crate::pairings::Column;
use crate::table::Versions;
use crate::{Error, envoy, h2spec, pairings, table};

/// How to go about it.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Where grpc-go's `client` and `server`, and `h2spec` are
    #[arg(long)]
    tools: PathBuf,
    /// The go.mod that pins them
    #[arg(long)]
    versions: PathBuf,
    /// Envoy
    #[arg(long)]
    envoy: PathBuf,
    /// The document that shows the results
    #[arg(long)]
    document: PathBuf,
    /// Put the results into the document instead of comparing
    #[arg(long)]
    write: bool,
    /// Don't fail where Envoy isn't there
    #[arg(long, conflicts_with = "write")]
    allow_not_run: bool,
}

/// Runs it all, and compares the results with the document.
pub(crate) async fn run(options: Options) -> Result<(), Error> {
    let lab = Lab::start(&options.tools)?;
    let tonic_port = free_port()?;
    let mut tonic = Command::new(std::env::current_exe()?);
    tonic.arg("tonic").arg(format!("127.0.0.1:{tonic_port}"));
    let tonic = spawn(&mut tonic)?;
    let ports = [tonic_port, lab.plain_port, lab.gateway_plain_port];
    for port in ports {
        until_it_answers(&lab.target(format!("http://localhost:{port}"))).await?;
    }
    let cases = h2spec::run(&options.tools.join("h2spec"), lab.directory.path(), ports).await?;
    drop(tonic);
    let columns = through_envoy(&options, &lab).await?;
    lab.stop().await?;

    let mut failures = h2spec::failures(&cases);
    failures.extend(table::failures(columns.as_deref().unwrap_or_default(), &[]));
    if !failures.is_empty() {
        return Err(format!("not as it should be:\n  {}", failures.join("\n  ")).into());
    }
    let mut by_h2spec = String::new();
    h2spec::render(&mut by_h2spec, &cases);
    let Some(columns) = columns else {
        return table::compare_part(&options.document, &by_h2spec, COMMAND);
    };
    let modules = [("h2spec", "github.com/summerwind/h2spec"), ("grpc-go", "google.golang.org/grpc")];
    let mut versions = Versions::read(&options.versions, &modules)?;
    versions.push("Envoy", envoy::version(&options.envoy).await?);
    let mut results = versions.line() + &by_h2spec;
    table::render_cases(&mut results, &columns);
    results.push('\n');
    match options.write {
        true => table::write(&options.document, &results),
        false => table::compare(&options.document, &results, COMMAND),
    }
}

/// Puts the results into the document.
const COMMAND: &str = "make gateway-outside OUTSIDE_FLAGS=--write";

/// A server starts, and a process attaches, when they get to it.
async fn until_it_answers(target: &Target) -> Result<(), Error> {
    let begun = Instant::now();
    loop {
        match CASES[0].run(target, Load { parallel_count: 1, soak_count: 1 }).await {
            Ok(()) => return Ok(()),
            Err(failure) if begun.elapsed() > TIME_MAX => {
                return Err(format!("{} doesn't answer: {failure}", target.uri).into());
            }
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
        }
    }
}

/// Every case by both clients; nothing if there is no Envoy, and that is allowed.
async fn through_envoy(options: &Options, lab: &Lab) -> Result<Option<Vec<Column>>, Error> {
    if !options.envoy.exists() {
        println!("not run: Envoy → gateway, since there is no {}", options.envoy.display());
        return match options.allow_not_run {
            true => Ok(None),
            false => Err("Envoy is missing; OUTSIDE_FLAGS=--allow-not-run goes on without it".into()),
        };
    }
    let port = free_port()?;
    let _envoy = envoy::start(&options.envoy, lab, port)?;
    until_it_answers(&lab.target(format!("http://localhost:{port}"))).await?;
    Ok(Some(pairings::run(lab, pairings::through_envoy(lab, port)).await))
}
