//! `tollfree shepherd`: the shepherd, and its config.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tollfree_shepherd::{Config, ConfigError, Shepherd, Source, raise_descriptor_limit};

use crate::bench::print;
use crate::failure::Failure;

/// Serve gRPC to the world, and hand calls to the business processes that attach.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ShepherdCommand {
    #[command(subcommand)]
    command: Option<ShepherdSubcommand>,

    #[command(flatten)]
    said: Said,
}

/// Where the config comes from: the file, then TOLLFREE_SHEPHERD_* of the environment, then flags.
#[derive(Debug, Args)]
struct Said {
    /// The config, a TOML file; without it, defaults
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Let business processes of other hosts attach here, as tcp+tls://host:port: sets business.stream.address
    #[arg(long, value_name = "ADDRESS", value_parser = device)]
    device: Option<String>,

    /// A key of the config and its value, as limits.streams=64; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,
}

#[derive(Debug, Subcommand)]
enum ShepherdSubcommand {
    /// Look at a config
    #[command(subcommand)]
    Config(ConfigCommand),
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Say whether a shepherd could use it
    Check(Said),

    /// Print the config
    Show(Show),
}

#[derive(Debug, Args)]
struct Show {
    #[command(flatten)]
    said: Said,

    /// With everything that was not said; there is no other form yet
    #[arg(long, required = true)]
    effective: bool,

    /// Print JSON; there is no other form yet
    #[arg(long, required = true)]
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

impl Said {
    fn sources(self) -> Vec<Source> {
        let file = self.config.map(Source::File);
        let device = self.device.map(|value| Source::Flag { key: "business.stream.address".into(), value });
        let flags = self.set.into_iter().map(|(key, value)| Source::Flag { key, value });
        file.into_iter().chain([Source::Environment]).chain(device).chain(flags).collect()
    }

    fn read(self) -> Result<Config, ConfigError> {
        Config::read(&self.sources())
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::Refused(error.to_string())
    }
}

impl ShepherdCommand {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            None => serve(&self.said.sources()),
            Some(ShepherdSubcommand::Config(ConfigCommand::Check(said))) => {
                let config = said.read()?;
                config.check_files().map_err(|error| Failure::Refused(error.to_string()))?;
                print("the config can be used\n")
            }
            Some(ShepherdSubcommand::Config(ConfigCommand::Show(show))) => {
                debug_assert!(show.effective && show.json, "clap asks for both");
                print(&format!("{}\n", show.said.read()?.to_json()))
            }
        }
    }
}

fn serve(sources: &[Source]) -> Result<(), Failure> {
    let config = Config::read(sources)?;
    raise_descriptor_limit(&config);
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if config.profile.threads > 0 {
        runtime.worker_threads(config.profile.threads as usize);
    }
    let runtime = runtime.enable_all().build().map_err(|error| failed(&error))?;
    runtime.block_on(async {
        // From here on a signal is an orderly end, even one that comes before the first client.
        let mut signals =
            [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
        let [Ok(terminate), Ok(interrupt), Ok(hangup)] = &mut signals else {
            return Err(Failure::Failed("cannot listen for signals".into()));
        };
        let shepherd = tokio::select! {
            bound = Shepherd::bind(config) => bound.map_err(|error| failed(&error))?,
            // Files that the config names may take their time.
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        };
        let reloader = shepherd.reloader();
        let addresses = serde_json::json!(shepherd.addresses());
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
        shepherd.run(stop).await;
        tracing::info!("stopped");
        Ok(())
    })
}
