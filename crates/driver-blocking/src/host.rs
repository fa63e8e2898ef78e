//! What a program has beside its threads.

use std::convert::Infallible;
use std::time::Duration;

/// What a thread that waits has to see to in a program: an interpreter's lock, and signals.
pub trait Host {
    /// Why a wait ends before its time.
    type Interrupt;

    /// For so long a thread that waits keeps what others of the program need, since an answer comes sooner than it could be given up and
    /// taken back.
    fn hold(&self) -> Duration;

    /// A thread that waits calls [`check`](Host::check) this often.
    fn check_every(&self) -> Duration;

    /// Gives up what others need while `wait` runs.
    fn away<R: Send>(&self, wait: impl FnOnce() -> R + Send) -> R;

    /// Sees to what has come up meanwhile.
    ///
    /// # Errors
    /// The wait is to end.
    fn check(&self) -> Result<(), Self::Interrupt>;
}

/// A program that has nothing beside its threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Threads;

impl Host for Threads {
    type Interrupt = Infallible;

    fn hold(&self) -> Duration {
        Duration::ZERO
    }

    fn check_every(&self) -> Duration {
        Duration::MAX
    }

    fn away<R: Send>(&self, wait: impl FnOnce() -> R + Send) -> R {
        wait()
    }

    fn check(&self) -> Result<(), Infallible> {
        Ok(())
    }
}
