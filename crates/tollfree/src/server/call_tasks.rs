//! The calls of a session that go on in tasks of their own.
//!
//! A task takes itself out of the set when it ends, so that an idle session holds nothing of calls that are over, and nobody is
//! woken to take them out.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use pin_project_lite::pin_project;
use slab::Slab;
use tokio::task::AbortHandle;

use crate::server::load::CountedCall;

/// Room for so many tasks is kept when all have ended: what a burst of them took is not.
const KEPT_COUNT: usize = 4;

/// Tasks under way. When the set is dropped they are called off.
#[derive(Debug, Default)]
pub(crate) struct CallTasks {
    under_way: Arc<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// `None` for one that is being made.
    handles: Slab<Option<AbortHandle>>,
    /// Whether a task has ended since somebody asked for ends.
    has_ended: bool,
    /// Woken when a task ends.
    awaiting_end: Option<Waker>,
}

impl CallTasks {
    /// Goes on with a call, for as long as the set lives. `counted` is dropped when the call is over.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub(crate) fn spawn<F>(&mut self, serving: F, counted: Option<CountedCall>)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let key = self.under_way.0.lock().handles.insert(None);
        let end = End { under_way: self.under_way.clone(), key, _counted: counted };
        let handle = tokio::spawn(CallTask { serving, end }).abort_handle();
        // Its end may have come before; the key is no other task's then, as only this set's owner adds some.
        if let Some(place) = self.under_way.0.lock().handles.get_mut(key) {
            *place = Some(handle);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.under_way.0.lock().handles.is_empty()
    }

    /// Ready once a task has ended since the last time this was ready.
    pub(crate) fn poll_end(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.under_way.0.lock();
        if std::mem::take(&mut state.has_ended) {
            return Poll::Ready(());
        }
        match &mut state.awaiting_end {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for CallTasks {
    fn drop(&mut self) {
        let mut state = self.under_way.0.lock();
        state.awaiting_end = None;
        let handles: Vec<AbortHandle> =
            state.handles.iter_mut().filter_map(|(_, handle)| handle.take()).collect();
        // A task that has not begun may end within.
        drop(state);
        for handle in handles {
            handle.abort();
        }
    }
}

pin_project! {
    struct CallTask<F> {
        #[pin]
        serving: F,
        // Dropped after what it tells the end of.
        end: End,
    }
}

impl<F: Future<Output = ()>> Future for CallTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.project().serving.poll(cx)
    }
}

/// Takes a task out of the set, however it ends.
struct End {
    under_way: Arc<UnderWay>,
    key: usize,
    _counted: Option<CountedCall>,
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.under_way.0.lock();
        let handle = state.handles.try_remove(self.key);
        if state.handles.is_empty() && state.handles.capacity() > KEPT_COUNT {
            state.handles = Slab::new();
        }
        state.has_ended = true;
        let waker = state.awaiting_end.take();
        drop(state);
        // Neither a task nor who waits for its end is met under the lock.
        drop(handle);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    /// Counts those that are dropped.
    struct Guard(Arc<AtomicUsize>);

    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn all_ended(tasks: &CallTasks) {
        while !tasks.is_empty() {
            poll_fn(|cx| tasks.poll_end(cx)).await;
        }
    }

    #[tokio::test]
    async fn nothing_is_left_of_tasks_that_have_ended() {
        let mut tasks = CallTasks::default();
        let mut ends = Vec::new();
        for _ in 0..100 {
            let (end, ended) = oneshot::channel::<()>();
            ends.push(end);
            tasks.spawn(async move { drop(ended.await) }, None);
        }
        assert!(!tasks.is_empty());
        drop(ends);
        all_ended(&tasks).await;
        assert!(tasks.under_way.0.lock().handles.capacity() <= KEPT_COUNT);
        // The set and nobody else holds it.
        assert_eq!(Arc::strong_count(&tasks.under_way), 1);
    }

    #[tokio::test]
    async fn tasks_are_called_off_with_their_set() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let mut tasks = CallTasks::default();
        for _ in 0..3 {
            let guard = Guard(dropped.clone());
            tasks.spawn(
                async move {
                    let _guard = guard;
                    pending::<()>().await;
                },
                None,
            );
        }
        tokio::task::yield_now().await;
        assert_eq!(dropped.load(Ordering::Relaxed), 0);
        drop(tasks);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert_eq!(dropped.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn tasks_that_end_while_they_are_made_leave_nothing() {
        let mut tasks = CallTasks::default();
        for _ in 0..2_000 {
            tasks.spawn(async {}, None);
        }
        all_ended(&tasks).await;
        // The last of them may be about to let go.
        while Arc::strong_count(&tasks.under_way) > 1 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_panic_takes_its_task_out() {
        let mut tasks = CallTasks::default();
        tasks.spawn(async { panic!("as the test wants it") }, None);
        all_ended(&tasks).await;
    }
}
