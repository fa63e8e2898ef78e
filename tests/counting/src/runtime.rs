//! Runtimes that count the tasks that are left when a test is over.

use std::io;
use std::ops::Deref;
use std::time::Instant;

pub use tokio::runtime::{Handle, Id, RuntimeMetrics};

use crate::under_way::{PATIENCE, PAUSE, UnderWay, counts_tasks, look};

/// Builds a [`Runtime`].
#[derive(Debug)]
pub struct Builder(tokio::runtime::Builder);

impl Builder {
    /// As [`tokio::runtime::Builder::new_current_thread`].
    pub fn new_current_thread() -> Builder {
        Builder(tokio::runtime::Builder::new_current_thread())
    }

    /// As [`tokio::runtime::Builder::new_multi_thread`].
    pub fn new_multi_thread() -> Builder {
        Builder(tokio::runtime::Builder::new_multi_thread())
    }

    /// As [`tokio::runtime::Builder::enable_all`].
    pub fn enable_all(&mut self) -> &mut Builder {
        self.0.enable_all();
        self
    }

    /// As [`tokio::runtime::Builder::worker_threads`].
    pub fn worker_threads(&mut self, count: usize) -> &mut Builder {
        self.0.worker_threads(count);
        self
    }

    /// As [`tokio::runtime::Builder::build`].
    ///
    /// # Errors
    /// As that says.
    pub fn build(&mut self) -> io::Result<Runtime> {
        let under_way = UnderWay::begin();
        Ok(Runtime { runtime: self.0.build()?, _under_way: under_way })
    }
}

/// A runtime of a test.
#[derive(Debug)]
pub struct Runtime {
    runtime: tokio::runtime::Runtime,
    _under_way: UnderWay,
}

impl Runtime {
    /// Runs a test to its end, and waits until no more tasks are left than there were before.
    ///
    /// # Panics
    /// When some never end.
    pub fn block_on<F: Future>(&self, test: F) -> F::Output {
        let before = self.runtime.metrics().num_alive_tasks();
        self.runtime.block_on(async {
            let output = test.await;
            look().await;
            if !counts_tasks() {
                return output;
            }
            let began = Instant::now();
            loop {
                let alive = self.runtime.metrics().num_alive_tasks();
                if alive <= before {
                    return output;
                }
                assert!(
                    began.elapsed() < PATIENCE,
                    "the test has left {alive} tasks, and there were {before} before"
                );
                tokio::time::sleep(PAUSE).await;
            }
        })
    }

    /// As [`tokio::runtime::Runtime::shutdown_background`].
    pub fn shutdown_background(self) {
        self.runtime.shutdown_background();
    }
}

impl Deref for Runtime {
    type Target = tokio::runtime::Runtime;

    fn deref(&self) -> &tokio::runtime::Runtime {
        &self.runtime
    }
}
