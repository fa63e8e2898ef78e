//! A client that stands still: its runtime runs only while it is told to.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

/// The runtime of such a client. What was begun in it is kept, and nothing of it goes on between two turns.
pub(crate) struct Still(Option<Arc<Runtime>>);

impl Still {
    pub(crate) fn new() -> Still {
        Still(Some(Arc::new(Builder::new_current_thread().enable_all().build().unwrap())))
    }

    /// Runs the client until `what` has come to its end.
    pub(crate) async fn runs<T: Send + 'static>(&self, what: impl Future<Output = T> + Send + 'static) -> T {
        let runtime = self.0.clone().unwrap();
        // Not as a test is run: that would wait for its tasks.
        tokio::task::spawn_blocking(move || (**runtime).block_on(what)).await.unwrap()
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        let runtime = self.0.take().and_then(Arc::into_inner);
        runtime.expect("nobody runs it").shutdown_background();
    }
}
