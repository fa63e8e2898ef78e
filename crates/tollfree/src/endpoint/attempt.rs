//! An attempt to connect, in a task of its own: it goes on when the call that began it has ended, and serves the next one.
//!
//! A channel whose calls all have less time than a handshake takes would have no connection otherwise. In a blocking channel the task goes
//! on whenever a thread waits for a call.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tonic::Status;

use crate::endpoint::{Connection, Subchannel, Unreached};

/// The time that an attempt has, as gRPC has it, unless it was given more.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// An attempt that is under way, or over. It ends when it is dropped.
pub(crate) struct Attempt(JoinHandle<Option<Result<Connection, Status>>>);

impl Drop for Attempt {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Attempt {
    /// Begins one. It keeps nobody else from dropping the endpoint. Must be called in a tokio runtime.
    pub(crate) fn begin(endpoint: &Arc<Subchannel>) -> Attempt {
        let (dialing, patience, name) = (endpoint.dial(), endpoint.patience(), endpoint.name.clone());
        let endpoint = Arc::downgrade(endpoint);
        Attempt(tokio::spawn(async move {
            let dialed = tokio::time::timeout(patience, dialing).await.unwrap_or_else(|_| {
                let words = format!(
                    "{name}: nobody has answered within the {patience:?} that an attempt to connect has"
                );
                Err(Unreached::Status(Status::unavailable(words)))
            });
            Some(endpoint.upgrade()?.settle(dialed, true).map_err(|unreached| unreached.status()))
        }))
    }

    /// What it brings. `None`: it has ended with the runtime that it was in.
    pub(crate) async fn outcome(&mut self) -> Option<Result<Connection, Status>> {
        match (&mut self.0).await {
            Ok(outcome) => outcome,
            Err(error) if error.is_panic() => {
                Some(Err(Status::internal(format!("connecting has failed: {error}"))))
            }
            Err(_) => None,
        }
    }
}
