//! The processes of one measurement: this executable started anew, each on a core of its placement, with a directory and the
//! allocator's settings that they share.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tollfree_measure::cores::{self, CoreIdx};
use tollfree_measure::peer::{Peer, Starter};
use tollfree_measure::workdir::Workdir;
use tollfree_measure::{BenchError, process};

/// Where the processes of one measurement come from. A directory of its own goes when it is dropped.
#[derive(Debug)]
pub struct Crew {
    command: &'static str,
    settings: Vec<(&'static str, &'static str)>,
    dir: PathBuf,
    _own: Option<Workdir>,
}

/// What a process is told first.
#[derive(Debug, Serialize, Deserialize)]
struct Order<P> {
    /// Where it runs, if that is not left to the kernel.
    core: Option<CoreIdx>,
    part: P,
}

impl Crew {
    /// Time that a process may take to start, or to end its measurement beyond the measured time.
    pub const PATIENCE: Duration = Duration::from_secs(60);

    /// A crew whose processes run a hidden command, with settings in their environment.
    ///
    /// # Errors
    /// [`BenchError::System`] where no directory can be made.
    pub fn gather(
        command: &'static str,
        settings: Vec<(&'static str, &'static str)>,
    ) -> Result<Crew, BenchError> {
        let own = Workdir::create()?;
        Ok(Crew { command, settings, dir: own.path().to_owned(), _own: Some(own) })
    }

    /// A crew that a process of another crew starts, in the directory and environment of that process. It may end without a word.
    #[must_use]
    pub fn within(command: &'static str, dir: &Path) -> Crew {
        Crew { command, settings: Vec::new(), dir: dir.to_owned(), _own: None }
    }

    /// Where sockets may be made.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a file into the directory.
    ///
    /// # Errors
    /// [`BenchError::Write`].
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, BenchError> {
        let path = self.dir.join(name);
        match std::fs::write(&path, bytes) {
            Ok(()) => Ok(path),
            Err(source) => Err(BenchError::Write { path, source }),
        }
    }

    /// Starts a process that plays a part.
    ///
    /// # Errors
    /// [`BenchError::Peer`].
    pub async fn start(
        &self,
        name: &'static str,
        core: Option<CoreIdx>,
        part: impl Serialize,
    ) -> Result<Peer, BenchError> {
        Ok(Peer::start(name, &[self.command], &self.settings, &Order { core, part }).await?)
    }

    /// Starts one, and waits for its first words: that it serves, most often.
    ///
    /// # Errors
    /// [`BenchError::Peer`].
    pub async fn ready<T: DeserializeOwned>(
        &self,
        name: &'static str,
        core: Option<CoreIdx>,
        part: impl Serialize,
    ) -> Result<(Peer, T), BenchError> {
        let mut peer = self.start(name, core, part).await?;
        let said = peer.hear(Crew::PATIENCE).await?;
        Ok((peer, said))
    }

    /// Starts a process that answers when it has measured, and ends it.
    ///
    /// # Errors
    /// [`BenchError::Peer`].
    pub async fn measure<T: DeserializeOwned>(
        &self,
        name: &'static str,
        core: Option<CoreIdx>,
        part: impl Serialize,
        lasts: Duration,
    ) -> Result<T, BenchError> {
        let mut peer = self.start(name, core, part).await?;
        let measured = peer.hear(lasts + Crew::PATIENCE).await?;
        peer.stop().await;
        Ok(measured)
    }
}

/// A process's number, while it runs.
pub(crate) fn pid_of(peer: &Peer) -> Result<u32, BenchError> {
    peer.pid().ok_or_else(|| BenchError::Refused("a measured process has ended already".to_owned()))
}

/// What a process is told first, once it runs where it was told to.
///
/// # Errors
/// [`BenchError::Refused`] for words that make no sense, [`BenchError::System`] where the kernel refuses.
pub fn take_order<P: DeserializeOwned>(starter: &Starter) -> Result<P, BenchError> {
    let Order { core, part } = starter.hear().map_err(BenchError::Refused)?;
    process::raise_file_limit()?;
    // Before any runtime exists: threads inherit it.
    core.map_or(Ok(()), cores::pin)?;
    Ok(part)
}

/// Plays the part that the starter gives, and waits for the end.
///
/// # Errors
/// Whatever kept it from playing; the starter was told.
pub fn attend<P: DeserializeOwned>(
    act: impl FnOnce(P, &Starter) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let starter = Starter::listen();
    match take_order(&starter).and_then(|part| act(part, &starter)) {
        Ok(()) => starter.wait_for_the_end(),
        Err(error) => {
            starter.fail(&error);
            Err(error)
        }
    }
}
