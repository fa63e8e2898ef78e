//! Where a driver is called: by whoever leaves it something to do, from any thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// A call that one task waits for. Calls that come before it is heard are one.
#[derive(Debug, Default)]
pub(crate) struct Ear {
    is_called: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Ear {
    /// Calls.
    pub(crate) fn call(&self) {
        // The waiting task stores its waker before it looks; of the two, at least one sees the other's store.
        self.is_called.store(true, Ordering::SeqCst);
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready once for each time that it was called. One task may wait.
    pub(crate) fn poll_called(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_called.swap(false, Ordering::SeqCst) {
            return Poll::Ready(());
        }
        let mut waker = self.waker.lock();
        if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        drop(waker);
        if self.is_called.swap(false, Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_call_is_heard_once_before_and_after_somebody_waits() {
        let ear = Ear::default();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(ear.poll_called(&mut cx).is_pending());
        ear.call();
        ear.call();
        assert!(ear.poll_called(&mut cx).is_ready());
        assert!(ear.poll_called(&mut cx).is_pending());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_call_of_another_thread_is_missed() {
        let (ear, answer) = (Arc::new(Ear::default()), Arc::new(Ear::default()));
        let other = tokio::spawn({
            let (ear, answer) = (ear.clone(), answer.clone());
            async move {
                for _ in 0..1000 {
                    poll_fn(|cx| ear.poll_called(cx)).await;
                    answer.call();
                }
            }
        });
        for _ in 0..1000 {
            ear.call();
            poll_fn(|cx| answer.poll_called(cx)).await;
        }
        other.await.unwrap();
    }
}
