//! How a command ends when it does not end well.

use std::process::ExitCode;

use tollfree_bench::BenchError;
use tollfree_bench::interrupt::Interrupted;

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
                eprintln!("tollfree-lab: {words}");
                ExitCode::from(2)
            }
            Self::Failed(words) => {
                eprintln!("tollfree-lab: {words}");
                ExitCode::FAILURE
            }
            Self::Interrupted(Interrupted { signal }) => {
                eprintln!("tollfree-lab: interrupted; nothing is left behind");
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

impl From<Interrupted> for Failure {
    fn from(interrupted: Interrupted) -> Self {
        Self::Interrupted(interrupted)
    }
}
