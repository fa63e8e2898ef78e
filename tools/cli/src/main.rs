//! The `tollfree` command: one entrance to everything that Tollfree offers on a command line.
#![forbid(unsafe_code)]

mod bench;
mod bench_codec;
mod bench_dagger;
mod bench_device;
mod bench_notnets;
mod bench_paced;
mod bench_pool;
mod bench_split;
mod codec;
mod ctl;
mod failure;
mod model;
mod pool;
mod shepherd;
mod shepherd_log;
mod top;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// gRPC without the RPC tax: measure what this machine would gain, and see it work.
#[derive(Debug, Parser)]
#[command(name = "tollfree", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Examples:
  tollfree demo                            see the same calls over a socket and over Tollfree
  tollfree bench echo                      compare all sides on this machine, in about a minute
  tollfree bench echo --size 64 --json     the same for programs
  tollfree workload images                 an image pipeline of seven processes, by value and by ref

Results go to standard output, progress to standard error. Exit status: 0 done, 1 something failed,
2 bad arguments or not possible on this machine, 128 + n ended by signal n.")]
struct Cli {
    /// Say more on standard error; twice, even more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure calls and sessions on this machine
    #[command(subcommand)]
    Bench(bench::Bench),

    /// Decode, encode and verify messages by hand
    #[command(subcommand)]
    Codec(codec::Codec),

    Ctl(ctl::CtlCommand),

    /// Make the same calls over a Unix socket and over Tollfree, with the same stub
    Demo(tollfree_demo::Demo),

    /// Work out what can't be measured on this machine
    #[command(subcommand)]
    Model(model::Model),

    /// Coordinate a memory pool
    #[command(subcommand)]
    Pool(pool::PoolCommand),

    Shepherd(shepherd::ShepherdCommand),

    Top(top::TopArgs),

    /// Run services as separate processes, with payloads by value and by ref
    #[command(subcommand)]
    Workload(workload::Workload),

    /// A process that `bench` starts
    #[command(hide = true)]
    BenchPeer,

    /// A process that `demo` starts
    #[command(hide = true)]
    DemoPeer,

    /// A process that `workload` starts
    #[command(hide = true)]
    WorkloadPeer,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = level(cli.verbose);
    match &cli.command {
        Command::Shepherd(_) => shepherd_log::begin(level),
        _ => tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init(),
    }
    let done = match cli.command {
        Command::Bench(bench) => bench.run(),
        Command::Codec(codec) => codec.run(),
        Command::Ctl(ctl) => ctl.run(),
        Command::Demo(demo) => demo.run().map_err(Failure::from),
        Command::Model(model) => model.run(),
        Command::Pool(pool) => pool.run(),
        Command::Shepherd(shepherd) => shepherd.run(),
        Command::Top(top) => top.run(),
        Command::Workload(workload) => workload.run(),
        // These told their starter, and so the user, what went wrong.
        Command::BenchPeer => return silently(tollfree_bench::attend().is_ok()),
        Command::WorkloadPeer => return silently(tollfree_workloads::attend().is_ok()),
        Command::DemoPeer => return silently(tollfree_demo::attend().is_ok()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn silently(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
