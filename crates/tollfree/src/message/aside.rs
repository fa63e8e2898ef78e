//! Work that would hold a thread for longer than others there should wait: done on threads that serve no calls.

use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};

use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinHandle};
use tonic::Status;

/// Bytes of messages that one direction of a call may have converted or verified on the thread that serves it, between two of its waits.
/// More is done aside. To verify and encode an object takes up to 6 ns a byte (lists of short strings), so half a millisecond; to decode
/// one takes up to 15 ns a byte. A message of 64 KiB that is mostly text or bytes takes some 30 µs, about as long as the way to another
/// thread and back.
const HERE_LEN_MAX: usize = 80 * 1024;

/// Bytes of messages that were worked on here since the thread last waited.
#[derive(Debug, Default)]
pub(crate) struct Worked(usize);

impl Worked {
    /// Whether `len` bytes more are to be worked on aside, for it would be too many. There are none then.
    pub(crate) fn is_too_much(&mut self, len: usize) -> bool {
        self.0 += len;
        let is_too_much = self.0 > HERE_LEN_MAX;
        if is_too_much {
            self.0 = 0;
        }
        is_too_much
    }

    /// Whether `len` bytes more may be worked on here, as they are then. Else nothing is counted.
    pub(crate) fn takes(&mut self, len: usize) -> bool {
        let fits = self.0 + len <= HERE_LEN_MAX;
        if fits {
            self.0 += len;
        }
        fits
    }

    /// The thread waits.
    pub(crate) fn waits(&mut self) {
        self.0 = 0;
    }
}

/// Processors that this process has.
static PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, usize::from));

/// As much is done at once as there are processors. The rest waits in the order in which it came.
static TURNS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(*PROCESSORS));

/// Does the work on a thread that serves no calls. Must be called in a tokio runtime. Work that has begun ends, also where nobody waits for
/// it any more, and has its turn until then.
///
/// # Errors
/// [`JoinError`] where the work panics, or the runtime ends before it.
pub async fn run_aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    let turn = TURNS.acquire().await;
    let work = move || {
        let done = work();
        drop(turn);
        done
    };
    tokio::task::spawn_blocking(work).await
}

/// The turns of one group's messages. However many wait, those of another group wait for few of them. Clones are of the same group.
#[derive(Clone, Debug)]
pub struct Turns(Arc<Semaphore>);

impl Default for Turns {
    /// On half of the processors at once, so that the other half is free for others.
    fn default() -> Turns {
        Turns(Arc::new(Semaphore::new(PROCESSORS.div_ceil(2))))
    }
}

impl Turns {
    /// Whether they are the same group's.
    pub fn are(&self, others: &Turns) -> bool {
        Arc::ptr_eq(&self.0, &others.0)
    }

    /// Begins to do the work as [`run_aside`] does, once it has its turn. Must be called in a tokio runtime.
    pub(crate) fn begin<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Aside<T> {
        let turns = self.0.clone();
        Aside(tokio::spawn(async move {
            let turn = turns.acquire_owned().await;
            run_aside(move || {
                let done = work();
                drop(turn);
                done
            })
            .await
        }))
    }
}

/// Work that is done aside. Dropping it calls it off, unless it has begun.
#[derive(Debug)]
pub(crate) struct Aside<T>(JoinHandle<Result<T, JoinError>>);

impl<T> Aside<T> {
    /// What has come of it.
    ///
    /// # Errors
    /// INTERNAL where the work has panicked, or its runtime ends.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Status>> {
        let joined = ready!(Pin::new(&mut self.0).poll(cx)).flatten();
        Poll::Ready(
            joined.map_err(|error| Status::internal(format!("work on a message has failed: {error}"))),
        )
    }
}

impl<T> Drop for Aside<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    use super::*;

    async fn done<T>(mut aside: Aside<T>) -> T {
        poll_fn(|cx| aside.poll(cx)).await.unwrap()
    }

    #[tokio::test]
    async fn a_group_whose_messages_wait_does_not_have_those_of_others_wait() {
        let (busy, other) = (Turns::default(), Turns::default());
        let (release, wait) = mpsc::channel::<()>();
        let wait = Arc::new(parking_lot::Mutex::new(wait));
        // On one processor, all turns are the group's that was first.
        let taken = busy.0.available_permits().min(*PROCESSORS - 1);
        let begun: Vec<_> = (0..taken)
            .map(|_| {
                let wait = wait.clone();
                busy.begin(move || wait.lock().recv().is_err())
            })
            .collect();
        let turn = busy.0.clone().acquire_many_owned((busy.0.available_permits() - taken) as u32).await;
        let mut waiting: Vec<_> = (0..100).map(|nth| busy.begin(move || nth)).collect();
        assert_eq!(done(other.begin(|| "others'")).await, "others'");
        assert!(poll_fn(|cx| Poll::Ready(waiting[0].poll(cx).is_pending())).await);
        drop((turn, release));
        for aside in begun {
            assert!(done(aside).await);
        }
        for (nth, aside) in waiting.into_iter().enumerate() {
            assert_eq!(done(aside).await, nth);
        }
    }

    #[test]
    fn what_is_worked_on_between_two_waits_counts_together() {
        let mut worked = Worked::default();
        let aside: Vec<bool> = (0..7).map(|_| worked.is_too_much(HERE_LEN_MAX / 2)).collect();
        assert_eq!(aside, [false, false, true, false, false, true, false]);
        let alone = |len| Worked::default().is_too_much(len);
        assert!(!alone(HERE_LEN_MAX) && alone(HERE_LEN_MAX + 1));
        assert!(!Worked::default().takes(HERE_LEN_MAX + 1) && Worked::default().takes(HERE_LEN_MAX));
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_any_more_is_not_begun() {
        let turns = Turns::default();
        let all = turns.0.clone().acquire_many_owned(turns.0.available_permits() as u32).await;
        let is_begun = Arc::new(AtomicBool::new(false));
        let begun = is_begun.clone();
        drop(turns.begin(move || begun.store(true, Ordering::Relaxed)));
        drop(all);
        while Arc::strong_count(&is_begun) > 1 {
            tokio::task::yield_now().await;
        }
        assert!(!is_begun.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn work_that_panics_is_internal() {
        let mut aside = Turns::default().begin(|| panic!("of this test"));
        let failed = poll_fn(|cx| aside.poll(cx)).await.unwrap_err();
        assert_eq!(failed.code(), tonic::Code::Internal, "{failed}");
    }
}
