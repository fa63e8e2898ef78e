//! A window without a stream: for those who feed it with anything there is.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollfree_layout::RingPos;
use tollfree_layout::control::{CONSUMED_OFF, LOAD_OFF, RING_OFF};
use tollfree_layout::limits::RING_LEN_MIN;
use tollfree_region::{HeapMemory, ReadMemory};
use tollfree_ring::Geometry;
use tollfree_session::Violation;

use super::window::Window;

/// One end of a stream whose peer is the code that feeds it. Its rings are as short as they may be.
#[doc(hidden)]
pub struct Feed {
    window: Window<HeapMemory>,
    ring: Geometry,
}

/// What has become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct Fed {
    /// Bytes that wait for the rest of their message.
    pub waiting_len: usize,
    /// Lines that the peer may still write.
    pub granted: u64,
    /// What the session is shown beside the ring: the peer's cursor, and its load.
    pub consumed: u64,
    /// As above.
    pub load: u32,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").finish_non_exhaustive()
    }
}

impl Feed {
    /// Lines of either ring.
    pub const LINE_COUNT: u64 = (RING_LEN_MIN / tollfree_layout::limits::LINE_LEN) as u64;

    /// Of an end that has sent, and passed, so many lines.
    pub fn new(sent: u64, passed: u64) -> Feed {
        let ring = Geometry::new(RING_OFF, RING_LEN_MIN).expect("the shortest ring is one");
        let memory = || HeapMemory::new(ring.end());
        let window =
            Window::new(Arc::new(memory()), ring, memory(), ring).after(RingPos(sent), RingPos(passed));
        Feed { window, ring }
    }

    /// Takes bytes that have come, in any pieces.
    ///
    /// # Errors
    /// What no peer does. Nothing may be taken afterwards.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        self.window.take(bytes)
    }

    /// What has become of it.
    pub fn state(&self) -> Fed {
        let mirror = self.window.mirror();
        Fed {
            waiting_len: self.window.partial_len(),
            granted: self.window.granted(),
            consumed: mirror.load_u64(CONSUMED_OFF, Ordering::Relaxed),
            load: mirror.load_u32(LOAD_OFF, Ordering::Relaxed),
        }
    }

    /// The peer's ring, as the session is shown it.
    pub fn ring(&self) -> Vec<u8> {
        let mut ring = vec![0; self.ring.ring_len];
        self.window.mirror().copy_out(self.ring.ring_off, &mut ring);
        ring
    }
}
