//! `tollfree top`: what a gateway does at this moment.

mod rates;
mod screen;

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use tokio::runtime::Runtime;
use tollfree_control::State;

use crate::failure::{Failure, print};
use rates::Rates;

/// Show a gateway's groups, backend connections, methods, rates and times
#[derive(Debug, Args)]
#[command(after_help = "\
Rates and times are those of one interval. A time is interpolated between the bounds of the gateway's histogram.
With --json, a time is null if no call has ended.")]
pub(crate) struct TopArgs {
    /// Address at which backends attach to the gateway (backends.socket of its config)
    #[arg(value_name = "SOCKET", default_value = "shm:///run/tollfree/gateway.sock")]
    socket: String,

    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,

    /// Measure for one interval, print, and exit
    #[arg(long)]
    once: bool,

    /// Print one JSON object instead of tables
    #[arg(long, requires = "once")]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("write seconds, from 0.05 to 3600".into()),
    }
}

impl TopArgs {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if !self.once && !std::io::stdout().is_terminal() {
            return Err(Failure::Refused(
                "standard output is no terminal: add --once, and --json for programs".into(),
            ));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let gateway = Asked {
            runtime: runtime.map_err(|error| Failure::Failed(error.to_string()))?,
            socket: self.socket,
        };
        let interval = Duration::from_secs_f64(self.interval);
        if !self.once {
            return screen::show(&gateway, interval);
        }
        let before = gateway.state()?;
        std::thread::sleep(interval);
        let rates = Rates::between(&before, &gateway.state()?);
        match self.json {
            true => print(&format!("{}\n", serde_json::json!(rates))),
            false => print(&rates.text()),
        }
    }
}

/// A gateway that is asked now and then.
struct Asked {
    runtime: Runtime,
    socket: String,
}

impl Asked {
    fn state(&self) -> Result<State, Failure> {
        let state = self.runtime.block_on(State::read(&self.socket));
        state.map_err(|error| Failure::Failed(error.to_string()))
    }
}
