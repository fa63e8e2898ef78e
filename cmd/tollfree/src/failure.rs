//! How a command ends: with a result that it prints, or with a failure in words and a status.

use std::io::Write;
use std::process::ExitCode;

use tollfree_demo::DemoError;
use tollfree_measure::BenchError;
use tollfree_measure::interrupt::Interrupted;

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Asked for what cannot be: exit status 2, as for arguments that make no sense.
    Refused(String),
    /// Something failed: exit status 1.
    Failed(String),
    /// A signal asked for the end: the status that a shell expects.
    Interrupted(Interrupted),
}

impl Failure {
    /// Tells the user, and gives the exit status.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Self::Refused(words) => {
                eprintln!("tollfree: {words}");
                ExitCode::from(2)
            }
            Self::Failed(words) => {
                eprintln!("tollfree: {words}");
                ExitCode::FAILURE
            }
            Self::Interrupted(Interrupted { signal }) => {
                eprintln!("tollfree: interrupted; nothing is left behind");
                ExitCode::from(128 + signal as u8)
            }
        }
    }
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        match error {
            BenchError::Refused(words) => Self::Refused(words),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<DemoError> for Failure {
    fn from(error: DemoError) -> Self {
        match error {
            DemoError::Bench(error) => error.into(),
            DemoError::Interrupted(interrupted) => interrupted.into(),
            error => Self::Failed(error.to_string()),
        }
    }
}

impl From<Interrupted> for Failure {
    fn from(interrupted: Interrupted) -> Self {
        Self::Interrupted(interrupted)
    }
}

/// Writes a result. A reader that has gone is no reason to fail loudly, but one to fail.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::Failed(format!("cannot write the result: {error}")))
}
