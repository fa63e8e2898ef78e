//! Ctrl-C and SIGTERM as an orderly end: what runs is dropped, and with it its processes and files.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};

use crate::BenchError;

/// The user, or the system, asked for an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted {
    /// The signal's number; a shell expects the exit status 128 plus this.
    pub signal: i32,
}

/// Runs `work` on a runtime of its own until it is done or a signal asks for the end.
///
/// On a signal, `work` is dropped where it waits, before this returns.
///
/// # Errors
/// [`BenchError::System`] when the runtime or the signal handlers cannot be set up.
pub fn until_interrupted<T>(work: impl Future<Output = T>) -> Result<Result<T, Interrupted>, BenchError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(BenchError::system("cannot start the async runtime"))?;
    runtime.block_on(async {
        let listen = |kind| signal(kind).map_err(BenchError::system("cannot listen for signals"));
        let mut interrupt = listen(SignalKind::interrupt())?;
        let mut terminate = listen(SignalKind::terminate())?;
        Ok(tokio::select! {
            biased;
            _ = interrupt.recv() => Err(Interrupted { signal: SignalKind::interrupt().as_raw_value() }),
            _ = terminate.recv() => Err(Interrupted { signal: SignalKind::terminate().as_raw_value() }),
            done = work => Ok(done),
        })
    })
}
