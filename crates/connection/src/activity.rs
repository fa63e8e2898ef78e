//! What one end sees of the other's work without asking: words in shared memory, and what came.
//!
//! A peer that takes nothing looks the same for as long as that lasts. Who wants to know compares two looks, and decides how much time between
//! them is too much: there is no clock here.
//!
//! # Trust
//! A peer may write anything into its words. All that follows is that the peer counts as working, or as hanging.

/// How far a peer has come at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerActivity {
    /// Something was published that the peer has not taken, as far as this end can see: the peer was rung and sleeps on, or it is awake and
    /// has not given back all of the ring. A peer that is awake keeps a part back while it works.
    pub is_due: bool,
    pub(crate) consumed: u64,
    pub(crate) received: u64,
    pub(crate) word: u32,
}

impl PeerActivity {
    /// Whether the peer has done nothing between an earlier look and this one.
    pub fn stands_still_since(&self, earlier: &PeerActivity) -> bool {
        let marks = |activity: &PeerActivity| (activity.consumed, activity.received, activity.word);
        marks(self) == marks(earlier)
    }
}
