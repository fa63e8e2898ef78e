//! Work that would hold a thread for longer than others there should wait: done on threads that serve no calls.

use std::sync::LazyLock;

use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinHandle};

/// As much is done at once as the machine has processors. The rest waits in the order in which it came.
static TURNS: LazyLock<Semaphore> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Semaphore::new(processors)
});

/// Does the work on a thread that serves no calls. Must be called in a tokio runtime.
///
/// # Errors
/// [`JoinError`] where the work panics, or the runtime ends before it.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, JoinError> {
    let turn = TURNS.acquire().await;
    let done = tokio::task::spawn_blocking(work).await;
    drop(turn);
    done
}

/// As [`run`], begun at once.
pub(crate) fn begin<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<Result<T, JoinError>> {
    tokio::spawn(run(work))
}
