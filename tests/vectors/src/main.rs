//! Checks an implementation against the specifications' test vectors.
//!
//! `spec/runner.md` says what the implementation's program has to do.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tollfree_vectors::{Settings, cases, run};

/// Checks an implementation against the specifications' test vectors. Exits with 0 if it passes, 1 if it does not, 2 if it
/// can't be asked.
#[derive(Parser)]
#[command(name = "tollfree-vectors")]
struct Arguments {
    /// Ask about this topic only (repeatable).
    #[arg(long)]
    topic: Vec<String>,
    /// A topic that the implementation may leave out (repeatable).
    #[arg(long)]
    allow_missing: Vec<String>,
    /// Seconds for each answer.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// The implementation's program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

fn main() -> ExitCode {
    match checked(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(words) => {
            eprintln!("tollfree-vectors: {words}");
            ExitCode::from(2)
        }
    }
}

fn checked(arguments: Arguments) -> Result<bool, String> {
    let mut cases = cases().map_err(|error| error.to_string())?;
    for topic in arguments.topic.iter().chain(&arguments.allow_missing) {
        if !cases.iter().any(|case| case.topic == *topic) {
            let mut known: Vec<&str> = cases.iter().map(|case| case.topic.as_str()).collect();
            known.dedup();
            return Err(format!("there is no topic {topic}; there are {}", known.join(", ")));
        }
    }
    if !arguments.topic.is_empty() {
        cases.retain(|case| arguments.topic.contains(&case.topic));
    }
    let program = arguments.command.join(" ");
    let settings = Settings {
        command: arguments.command,
        time: Duration::from_secs(arguments.timeout),
        allowed: arguments.allow_missing,
    };
    let report = run(&cases, &settings).map_err(|error| format!("can't start {program}: {error}"))?;
    if arguments.json {
        println!("{:#}", report.to_json())
    } else {
        println!("{report}")
    }
    Ok(report.is_right())
}
