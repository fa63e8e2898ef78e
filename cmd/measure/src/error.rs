//! What can go wrong with a measurement.

use std::io;
use std::path::PathBuf;

/// Why a measurement did not take place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The plan asks for what this machine or this build cannot do.
    #[error("{0}")]
    Refused(String),
    /// A server or client process misbehaved.
    #[error(transparent)]
    Peer(#[from] crate::peer::PeerError),
    /// A side could not serve, connect or call.
    #[error("{side}: {what}")]
    Side {
        /// The side's name.
        side: &'static str,
        /// What failed, in words.
        what: String,
    },
    /// The operating system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
    /// A result could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl BenchError {
    /// Wraps an answer of the operating system, for `map_err`.
    pub fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what, source: source.into() }
    }
}
