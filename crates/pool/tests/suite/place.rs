//! Where pools of tests are, and how large.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tollfree_pool::{Address, Capacity, Config, Pool, Usage, WhenShort};

pub(crate) const KIB: u64 = 1024;
pub(crate) const BATCH: u64 = 64 * KIB;

/// A directory with room for a coordinator's socket.
pub(crate) struct Place {
    _directory: tempfile::TempDir,
    pub(crate) address: Address,
}

impl Place {
    pub(crate) fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        let address = format!("shm://{}/pool.sock", directory.path().display()).parse().unwrap();
        Place { _directory: directory, address }
    }

    /// A small pool: 16 batches of 64 KiB, 4 a member.
    pub(crate) fn create(&self) -> Pool {
        Pool::create(&self.address, capacity(), config()).unwrap()
    }

    pub(crate) fn join(&self) -> Pool {
        Pool::join(&self.address, config()).unwrap()
    }
}

pub(crate) fn capacity() -> Capacity {
    Capacity { total: 16 * BATCH, member_quota: 4 * BATCH, batch: BATCH }
}

/// Nothing is asked for before it is needed; waits are long enough for a busy machine.
pub(crate) fn config() -> Config {
    Config {
        when_short: WhenShort::Wait(Duration::from_secs(60)),
        low_watermark: 0,
        high_watermark: u64::MAX,
        reader_limit: None,
        patience: Duration::from_secs(60),
    }
}

/// Waits until `is_so`, a minute at the most.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until all of a member's own memory is free.
pub(crate) fn until_all_is_free(pool: &Pool) -> Usage {
    until("all memory is free", || {
        pool.sweep();
        pool.usage().free_bytes == pool.usage().total_bytes && pool.usage().limbo_count == 0
    });
    pool.usage()
}

/// Polls a future, as a runtime does that has other things to do as well.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(value) => return value,
            // No time limit: a wake-up that is lost stops the test.
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}
