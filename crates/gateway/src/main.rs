//! The `tollfree-gateway` command: a gateway in a process of its own, and its config.
#![forbid(unsafe_code)]

mod log;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tollfree_gateway::{Config, ConfigErrors, Gateway, Source, raise_descriptor_limit};

/// Serve gRPC to the world, and dispatch calls to backends that attach
#[derive(Debug, Parser)]
#[command(name = "tollfree-gateway", version, max_term_width = 100, args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Examples:
  tollfree-gateway --config /etc/tollfree/gateway.toml          serve until SIGTERM; SIGHUP reads the config again
  tollfree-gateway --take-over --config …                       take the place of the gateway that runs, which ends
  tollfree-gateway check --config /etc/tollfree/gateway.toml    check that config

The log goes to standard error, a JSON object a line. Exit status: 0 done, 1 failed, 2 bad arguments or an invalid
config.")]
struct Cli {
    /// Log more; give it twice for even more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,

    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    origin: Origin,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check a config, and the files that it names
    Check(Origin),

    /// Print a config
    Show(Show),

    /// Print the JSON schema of config files, for editors
    Schema,
}

/// Where the config comes from: the file, then TOLLFREE_GATEWAY_* of the environment, then flags.
#[derive(Debug, Args)]
struct Origin {
    /// Config file in TOML; without it, the defaults apply
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Address at which backends of other hosts attach, such as tcp+tls://host:port: sets backends.stream.address
    #[arg(long, value_name = "ADDRESS", value_parser = device)]
    device: Option<String>,

    /// Take the place of the gateway that runs with the same backends.socket, without losing a call: sets take_over
    #[arg(long)]
    take_over: bool,

    /// A key of the config and its value, such as limits.streams=64; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
}

#[derive(Debug, Args)]
struct Show {
    #[command(flatten)]
    origin: Origin,

    /// Include defaults, as is done without this flag too
    #[arg(long)]
    effective: bool,

    /// Print JSON, as is done without this flag too
    #[arg(long)]
    json: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').ok_or_else(|| format!("\"{text}\" is no KEY=VALUE"))?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

fn device(text: &str) -> Result<String, String> {
    let address =
        text.strip_prefix("tcp+tls://").ok_or_else(|| format!("\"{text}\" is no tcp+tls://host:port"))?;
    Ok(address.to_owned())
}

impl Origin {
    fn sources(self) -> Vec<Source> {
        let file = self.config.map(Source::File);
        let device = self.device.map(|value| Source::Flag { key: "backends.stream.address".into(), value });
        let take_over =
            self.take_over.then(|| Source::Flag { key: "take_over".into(), value: "true".into() });
        let flags = self.set.into_iter().map(|(key, value)| Source::Flag { key, value });
        file.into_iter().chain([Source::Environment]).chain(device).chain(take_over).chain(flags).collect()
    }

    fn read(self) -> Result<Config, ConfigErrors> {
        Config::read(&self.sources())
    }
}

/// Why a command did not do what it was asked for.
enum Failure {
    /// The config can't be used: exit status 2, as for arguments that make no sense.
    Refused(String),
    /// Something failed: exit status 1.
    Failed(String),
}

impl Failure {
    fn failed(error: impl std::fmt::Display) -> Failure {
        Failure::Failed(error.to_string())
    }
}

impl From<ConfigErrors> for Failure {
    fn from(error: ConfigErrors) -> Failure {
        Failure::Refused(error.to_string())
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    log::begin(level(cli.verbose));
    let done = match cli.command {
        None => serve(&cli.origin.sources()),
        Some(Command::Check(origin)) => check(origin),
        Some(Command::Schema) => print(Config::json_schema()),
        Some(Command::Show(show)) => {
            // There is no other form.
            let Show { origin, effective: _, json: _ } = show;
            origin.read().map_err(Failure::from).and_then(|config| print(&format!("{}\n", config.to_json())))
        }
    };
    let (words, status) = match done {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Refused(words)) => (words, ExitCode::from(2)),
        Err(Failure::Failed(words)) => (words, ExitCode::FAILURE),
    };
    eprintln!("tollfree-gateway: {words}");
    status
}

fn check(origin: Origin) -> Result<(), Failure> {
    let findings = origin.read()?.check_surroundings();
    let (errors, warnings): (Vec<_>, Vec<_>) = findings.into_iter().partition(|finding| finding.is_error);
    for warning in warnings {
        eprintln!("tollfree-gateway: warning: {warning}");
    }
    if !errors.is_empty() {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        return Err(Failure::Refused(lines.join("\n")));
    }
    print("the config can be used\n")
}

/// Writes a result. A reader that has gone is no reason to fail loudly, but one to fail.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| Failure::Failed(format!("cannot write the result: {error}")))
}

fn level(verbose: u8) -> tracing::Level {
    match verbose {
        0 | 1 => tracing::Level::INFO,
        2 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    }
}

fn serve(sources: &[Source]) -> Result<(), Failure> {
    let config = Config::read(sources)?;
    raise_descriptor_limit(&config);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if config.profile.threads > 0 {
        runtime.worker_threads(config.profile.threads as usize);
    }
    let runtime = runtime.enable_all().build().map_err(Failure::failed)?;
    runtime.block_on(async {
        // From here on a signal is an orderly end, even one that comes before the first client.
        let mut signals =
            [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
        let [Ok(terminate), Ok(interrupt), Ok(hangup)] = &mut signals else {
            return Err(Failure::Failed("cannot listen for signals".into()));
        };
        let gateway = tokio::select! {
            bound = Gateway::bind(config) => bound.map_err(Failure::failed)?,
            // Files that the config names may take their time.
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        };
        let reloader = gateway.reloader();
        let addresses = serde_json::json!(gateway.addresses());
        tracing::info!(%addresses, "ready");
        let stop = async {
            let reloads = async {
                loop {
                    // Where no more signals come, none will.
                    if hangup.recv().await.is_none() {
                        std::future::pending::<()>().await;
                    }
                    // The outcome is in the log, whatever it is. The end waits for no file.
                    _ = reloader.reload(sources).await;
                }
            };
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = reloads => {}
            }
            tracing::info!("stopping");
        };
        gateway.run(stop).await;
        tracing::info!("stopped");
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
