//! Where threads wait for what concerns them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, MappedMutexGuard, Mutex, MutexGuard};

/// What has come, and the threads that wait for it. Any number of threads may wait.
#[derive(Debug, Default)]
pub struct Mailbox<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State<T> {
    news: T,
    /// A thread that waits here is to lead.
    is_promoted: bool,
}

/// A place where a thread waits, which may be told to lead.
pub(crate) trait Seat: Send + Sync {
    /// The thread that waits here leads from now on.
    fn promote(&self);
}

impl<T: Send> Seat for Mailbox<T> {
    fn promote(&self) {
        self.state.lock().is_promoted = true;
        self.changed.notify_all();
    }
}

/// Stands in line without what has come for it.
#[derive(Clone)]
pub(crate) struct Place(Arc<dyn Seat>);

impl Place {
    pub(crate) fn promote(&self) {
        self.0.promote();
    }

    pub(crate) fn is_same(&self, other: &Place) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.0), Arc::as_ptr(&other.0))
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place")
    }
}

impl<T: Send + 'static> Mailbox<T> {
    /// With what is known at first.
    pub fn new(news: T) -> Mailbox<T> {
        Mailbox { state: Mutex::new(State { news, is_promoted: false }), changed: Condvar::new() }
    }

    /// What has come so far.
    pub fn lock(&self) -> MappedMutexGuard<'_, T> {
        MutexGuard::map(self.state.lock(), |state| &mut state.news)
    }

    /// Changes what has come, and has the threads look that wait here.
    pub(crate) fn tell<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let told = change(&mut self.state.lock().news);
        self.changed.notify_all();
        told
    }

    /// Waits until `is_done`, or until this thread is to lead, or for so long. `true`: it is to lead.
    pub(crate) fn wait(&self, is_done: impl Fn(&T) -> bool, most: Duration) -> bool {
        let mut state = self.state.lock();
        let goes_on = |state: &mut State<T>| !is_done(&state.news) && !state.is_promoted;
        if goes_on(&mut state) {
            self.changed.wait_while_for(&mut state, goes_on, most);
        }
        std::mem::take(&mut state.is_promoted)
    }

    /// Whether a thread that waited here is to lead; asked once.
    pub(crate) fn takes_lead(&self) -> bool {
        std::mem::take(&mut self.state.lock().is_promoted)
    }

    pub(crate) fn place(self: &Arc<Self>) -> Place {
        Place(self.clone())
    }
}
