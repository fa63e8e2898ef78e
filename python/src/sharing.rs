//! A loop that an interpreter's threads share.

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tollfree_driver_blocking::{CallMailbox, CallNews, Host, Leader, LoopConfig, Pool, SharedLoop, Told};
use tollfree_os::rustix;

/// For so long a thread that waits keeps the interpreter's lock: an answer of a server that is awake comes sooner than other threads would give
/// the lock back.
const HOLD: Duration = Duration::from_micros(20);
/// A thread that waits looks this often for signals of its process, which are Python's main thread's to handle.
const SIGNALS: Duration = Duration::from_millis(100);

/// A thread of an interpreter, which has its lock.
pub(crate) struct Interpreter<'py>(pub(crate) Python<'py>);

impl Host for Interpreter<'_> {
    type Interrupt = PyErr;

    fn hold(&self) -> Duration {
        HOLD
    }

    fn check_every(&self) -> Duration {
        if is_main_thread() { SIGNALS } else { Duration::MAX }
    }

    fn away<R: Send>(&self, wait: impl FnOnce() -> R + Send) -> R {
        self.0.detach(wait)
    }

    fn check(&self) -> PyResult<()> {
        self.0.check_signals()
    }
}

/// Whether this is the thread that handles the process's signals.
fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// See the module. Knows the process that made it.
pub(crate) struct Sharing {
    shared: Arc<SharedLoop>,
    fork_count: u32,
    pool: Option<Pool>,
}

impl Deref for Sharing {
    type Target = SharedLoop;

    fn deref(&self) -> &SharedLoop {
        &self.shared
    }
}

impl Sharing {
    pub(crate) fn new(config: LoopConfig, told: Told) -> io::Result<Arc<Sharing>> {
        let pool = config.pool.clone();
        Ok(Arc::new(Sharing {
            shared: SharedLoop::new(config, told)?,
            fork_count: crate::fork_count(),
            pool,
        }))
    }

    /// The pool that messages may lie in.
    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    /// Starts the thread beside.
    pub(crate) fn watch(&self) -> io::Result<()> {
        self.shared.watch()
    }

    /// # Errors
    /// This process was forked from the one that has the loop: its locks may be another thread's for good.
    pub(crate) fn check(&self) -> PyResult<()> {
        match self.fork_count == crate::fork_count() {
            true => Ok(()),
            false => Err(PyRuntimeError::new_err(
                "this process was forked, and the channel, call or server is its parent's: make another in the child",
            )),
        }
    }

    /// Has something done with the loop, and gives what came of it. Waits for a thread that has the loop.
    pub(crate) fn ask<R: Send + 'static>(
        &self,
        py: Python<'_>,
        command: impl FnOnce(&mut Leader) -> R + Send + 'static,
    ) -> PyResult<R> {
        let answer = self.shared.ask(&Interpreter(py), command);
        answer.map_err(|_| PyRuntimeError::new_err("the loop has ended"))
    }

    /// Has something done, and waits until `is_done` of a call's mailbox, or for so long. Handles signals meanwhile. `false`: the time is over.
    pub(crate) fn wait_for(
        &self,
        py: Python<'_>,
        first: Option<impl FnOnce(&mut Leader) + Send + 'static>,
        mailbox: &Arc<CallMailbox>,
        is_done: impl Fn(&CallNews) -> bool + Sync,
        most: Option<Duration>,
    ) -> PyResult<bool> {
        self.shared.wait_for(&Interpreter(py), first, mailbox, is_done, most)
    }
}
