//! `make demo`: the demo as a program of its own.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tollfree_demo::{Demo, DemoError};

/// Make the same calls over a Unix socket and over Tollfree, with the same stub.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Program {
    #[command(flatten)]
    demo: Demo,

    #[command(subcommand)]
    peer: Option<Peer>,
}

#[derive(Debug, Subcommand)]
enum Peer {
    /// A process that the demo starts
    #[command(hide = true)]
    DemoPeer,
}

fn main() -> ExitCode {
    let program = Program::parse();
    if program.peer.is_some() {
        // A failure was told to the starter, and so to the user.
        return if tollfree_demo::attend().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let Err(error) = program.demo.run() else { return ExitCode::SUCCESS };
    eprintln!("tollfree-demo: {error}");
    match error {
        DemoError::Interrupted(interrupted) => ExitCode::from(128 + interrupted.signal as u8),
        _ => ExitCode::FAILURE,
    }
}
