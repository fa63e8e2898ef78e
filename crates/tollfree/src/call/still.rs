//! The runtimes of blocking channels, which stand still while no thread waits in them.
//!
//! What is left to be sent of a request is sent by a task. Its call may end while nobody waits: the program has read enough of a stream, and
//! drops it. The task is woken then, and would stay until the next call, with the request that it has. So who ends a call with
//! such a task has its runtime turned.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::runtime::{Builder, EnterGuard, Handle, Id, Runtime, RuntimeFlavor};

/// All that there are: a task is spawned where the calling thread is, which knows its runtime by a number.
static ALL: Mutex<Vec<(Id, Weak<StillRuntime>)>> = Mutex::new(Vec::new());
/// A runtime that is turned gives so many tasks their turn at least before the task that turns it has its own.
const TURN_COUNT: usize = 32;

/// A runtime of a blocking channel.
#[derive(Debug)]
pub(crate) struct StillRuntime {
    runtime: Runtime,
    /// Tasks that have been woken to end, while a thread waited that is to turn it afterwards.
    owed: AtomicUsize,
}

impl StillRuntime {
    pub(crate) fn new() -> io::Result<Arc<StillRuntime>> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let still = Arc::new(StillRuntime { runtime, owed: AtomicUsize::new(0) });
        let mut all = ALL.lock();
        all.retain(|(_, one)| one.strong_count() > 0);
        all.push((still.runtime.handle().id(), Arc::downgrade(&still)));
        Ok(still)
    }

    /// The one that the calling thread spawns tasks in.
    pub(crate) fn current() -> Option<Weak<StillRuntime>> {
        let current = Handle::try_current().ok()?;
        if current.runtime_flavor() != RuntimeFlavor::CurrentThread {
            return None;
        }
        let all = ALL.lock();
        all.iter().find(|(id, _)| *id == current.id()).map(|(_, one)| one.clone())
    }

    /// Has the calling thread spawn tasks in it. It does not run them.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    /// Runs it until the future is ready.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// A task in it was woken to end: it has its turn now, or when the thread does not wait in it any more.
    #[cold]
    pub(crate) fn turn(self: Arc<StillRuntime>) {
        self.owed.fetch_add(1, Ordering::Relaxed);
        match Handle::try_current() {
            Err(_) => self.turn_now(),
            Ok(within) if within.id() == self.runtime.handle().id() => {}
            // No thread of a runtime may wait in another but those that it keeps for that.
            Ok(other) => drop(other.spawn_blocking(move || self.turn_now())),
        }
    }

    /// Gives the tasks that are owed one their turn, when a thread has ceased to wait in it.
    pub(crate) fn pay(&self) {
        if self.owed.load(Ordering::Relaxed) > 0 {
            self.turn_now();
        }
    }

    #[cold]
    fn turn_now(&self) {
        let owed = self.owed.swap(0, Ordering::Relaxed);
        self.runtime.block_on(async {
            for _ in 0..=owed / TURN_COUNT {
                tokio::task::yield_now().await;
            }
        });
    }
}
