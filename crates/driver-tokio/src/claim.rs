//! SegmentedMessages that were received, and what their readers owe the peer.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tollfree_kill_points::{Point, here};
use tollfree_layout::SegmentedIdx;
use tollfree_session::{Asked, Closed};

use crate::shared::Shared;

/// A claim on the peer to keep the parts of a segmented message. Dropped, it tells the peer that it need not any longer: when hold was
/// taken of them, or when nobody wants them.
pub struct Claim {
    shared: Arc<Shared>,
    segmented: SegmentedIdx,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(&self.segmented).finish()
    }
}

impl Claim {
    pub(crate) fn new(shared: &Arc<Shared>, segmented: SegmentedIdx) -> Claim {
        Claim { shared: shared.clone(), segmented }
    }

    /// Why the session is over, and with it what the peer kept, if it is. Looks whether the peer has hung up: one system call.
    pub fn session_closed(&self) -> Option<Closed> {
        self.shared.attend();
        match self.shared.enter() {
            Ok(core) => core.session().closed().cloned(),
            Err(closed) => Some(closed),
        }
    }

    /// Asks the peer for the bytes of the segmented message's refs, which are `len` and not more than this side is willing to have: for a
    /// receiver that can't take hold of them. To be called once; [`poll_bytes`](Self::poll_bytes) waits.
    pub fn want_bytes(&self, len: u32) {
        if let Ok(mut core) = self.shared.enter() {
            core.session_mut().want_segmented(self.segmented, len);
            core.flush(&self.shared.socket);
            core.leave_to_driver();
        }
    }

    /// Waits for the bytes that were asked for, one ref's after the other's. `None`: the peer doesn't give them.
    ///
    /// # Errors
    /// Ready with the reason why the session is over.
    pub fn poll_bytes(&self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Closed>> {
        let mut core = self.shared.enter()?;
        if let Some(closed) = core.session().closed() {
            return Poll::Ready(Err(closed.clone()));
        }
        match core.session_mut().asked_segmented(self.segmented) {
            Asked::Here(bytes) => Poll::Ready(Ok(Some(bytes))),
            Asked::Refused => Poll::Ready(Ok(None)),
            Asked::Coming => {
                core.segmented_waits.insert(self.segmented, cx.waker().clone());
                core.leave_to_driver();
                Poll::Pending
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        here(Point::SegmentedTaken);
        if let Ok(mut core) = self.shared.enter() {
            core.segmented_waits.remove(&self.segmented);
            core.session_mut().take_segmented(self.segmented);
            core.flush_soon(&self.shared.socket);
        }
    }
}
