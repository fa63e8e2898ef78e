//! The `tollfree` command: see Tollfree work, and look into what runs.
#![forbid(unsafe_code)]

mod ctl;
mod event_file;
mod events;
mod failure;
mod pool;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// gRPC over shared memory: try it, and inspect gateways and pools
#[derive(Debug, Parser)]
#[command(name = "tollfree", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Examples:
  tollfree demo            make the same calls over a socket and over Tollfree
  tollfree echo            measure what your machine gains, in ten seconds
  tollfree top             show what the gateway of this machine does
  tollfree ctl show        list the settings that you can change while it runs
  tollfree events DIR      show recorded events of sessions; TOLLFREE_EVENTS=DIR makes a process record them

The gateway itself is tollfree-gateway. Results go to standard output, progress to standard error. Exit status: 0 done,
1 failed, 2 bad arguments or not possible on this machine, 128 + n ended by signal n.")]
struct Cli {
    /// Print more on standard error; give it twice for even more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Ctl(ctl::CtlCommand),

    /// Make the same calls over a Unix socket and over Tollfree, with the same stub
    Demo(tollfree_demo::Demo),

    /// Measure echo calls over a Unix socket and over Tollfree, alternating, in ten seconds
    Echo(tollfree_demo::Echo),

    Events(events::EventsArgs),

    /// Coordinate a memory pool
    #[command(subcommand)]
    Pool(pool::PoolCommand),

    Top(top::TopArgs),

    /// A process that `demo` and `echo` start
    #[command(hide = true)]
    DemoPeer,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt().with_max_level(level(cli.verbose)).with_writer(std::io::stderr).init();
    let done = match cli.command {
        Command::Ctl(ctl) => ctl.run(),
        Command::Demo(demo) => demo.run().map_err(Failure::from),
        Command::Echo(echo) => echo.run().map_err(Failure::from),
        Command::Events(events) => events.run(),
        Command::Pool(pool) => pool.run(),
        Command::Top(top) => top.run(),
        // It told its starter, and so the user, what went wrong.
        Command::DemoPeer if tollfree_demo::attend().is_ok() => return ExitCode::SUCCESS,
        Command::DemoPeer => return ExitCode::FAILURE,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn level(verbose: u8) -> tracing::Level {
    match verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        2 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    }
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
