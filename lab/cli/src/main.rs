//! The `tollfree-lab` command: what measures, models and compares Tollfree.
#![forbid(unsafe_code)]

mod against;
mod bench;
#[cfg(feature = "slow-to-build")]
mod bench_codec;
mod bench_device;
mod bench_fault;
mod bench_hostile;
mod bench_paced;
mod bench_pool;
mod bench_split;
mod bench_stream;
mod codec;
mod failure;
#[cfg(feature = "slow-to-build")]
mod figure;
#[cfg(feature = "slow-to-build")]
mod figure_dagger;
#[cfg(feature = "slow-to-build")]
mod figure_dmrpc;
#[cfg(feature = "slow-to-build")]
mod figure_notnets;
#[cfg(any(test, not(feature = "slow-to-build")))]
mod left_out;
mod measuring;
#[cfg(feature = "slow-to-build")]
mod model;
mod stated;
#[cfg(feature = "slow-to-build")]
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[cfg(not(feature = "slow-to-build"))]
use crate::left_out::{Figure, Model, Workload};
#[cfg(feature = "slow-to-build")]
use crate::{figure::Figure, model::Model, workload::Workload};

/// Tollfree's laboratory: benches, workloads, figures of papers, models
#[derive(Debug, Parser)]
#[command(name = "tollfree-lab", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Examples:
  tollfree-lab bench echo                      compare all sides on this machine, in about a minute
  tollfree-lab bench echo --size 64 --json     the same for programs
  tollfree-lab workload images                 an image pipeline of seven processes, by value and by ref

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
    Against(against::AgainstArgs),

    /// Measure calls and sessions on this machine
    #[command(subcommand)]
    Bench(bench::Bench),

    /// Decode, encode and verify messages by hand
    #[command(subcommand)]
    Codec(codec::Codec),

    /// Repeat the figures of papers
    #[cfg_attr(feature = "slow-to-build", command(subcommand))]
    Figure(Figure),

    /// Work out what can't be measured on this machine
    #[cfg_attr(feature = "slow-to-build", command(subcommand))]
    Model(Model),

    Stated(stated::StatedArgs),

    /// Run services as separate processes, with payloads by value and by ref
    #[cfg_attr(feature = "slow-to-build", command(subcommand))]
    Workload(Workload),

    /// A process that `bench` starts
    #[command(hide = true)]
    BenchPeer,

    /// A process that `workload` starts
    #[cfg(feature = "slow-to-build")]
    #[command(hide = true)]
    WorkloadPeer,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt().with_max_level(level(cli.verbose)).with_writer(std::io::stderr).init();
    let done = match cli.command {
        Command::Against(against) => against.run(),
        Command::Bench(bench) => bench.run(),
        Command::Codec(codec) => codec.run(),
        Command::Figure(figure) => figure.run(),
        Command::Model(model) => model.run(),
        Command::Stated(stated) => stated.run(),
        Command::Workload(workload) => workload.run(),
        // These told their starter, and so the user, what went wrong.
        Command::BenchPeer => return silently(tollfree_bench::attend().is_ok()),
        #[cfg(feature = "slow-to-build")]
        Command::WorkloadPeer => return silently(tollfree_workloads::attend().is_ok()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn silently(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn level(verbose: u8) -> tracing_subscriber::filter::LevelFilter {
    use tracing_subscriber::filter::LevelFilter;
    match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
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
