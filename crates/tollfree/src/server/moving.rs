//! A gateway whose place another takes asks its backends to attach anew, and lets them go when its own calls are over.
//!
//! The process attaches at the same address, where it meets the new gateway, and serves both sessions until the old one ends. So at no
//! time is there a gateway with calls and no backend.

use tokio::sync::{mpsc, oneshot};
use tonic::Status;

/// What one session's gateway asks by.
#[derive(Clone)]
pub(crate) struct Moving(mpsc::Sender<MoveRequest>);

/// A gateway wants the process to attach anew. Dropped without [`attached`](MoveRequest::attached), the process does not.
pub(crate) struct MoveRequest(oneshot::Sender<()>);

impl MoveRequest {
    /// The process has attached again.
    pub(crate) fn attached(self) {
        _ = self.0.send(());
    }
}

impl Moving {
    /// For one session: it moves once.
    pub(crate) fn new() -> (Moving, mpsc::Receiver<MoveRequest>) {
        let (asks, asked) = mpsc::channel(1);
        (Moving(asks), asked)
    }

    /// Has the process attach anew, and resolves when it has.
    ///
    /// # Errors
    /// It is about to already, or is being shut down.
    pub(crate) async fn move_on(self) -> Result<(), Status> {
        let (attached, done) = oneshot::channel();
        let again = |_| Status::already_exists("this session has moved, or is about to");
        self.0.try_send(MoveRequest(attached)).map_err(again)?;
        done.await.map_err(|_| Status::unavailable("the process is being shut down"))
    }
}
