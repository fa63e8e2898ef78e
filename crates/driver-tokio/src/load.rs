//! How busy a server is, for clients that choose between several.
//!
//! # Layout
//! `load` in the control page, `tollfree_layout::control`.
//!
//! # Who writes what
//! The server stores its word, the client loads it; no order is needed, for the word stands for itself. Nobody is woken
//! for it, and it costs no record: a client reads it when it chooses (NotNets, section 4.1).
//!
//! # Trust
//! Any value may come. It says how many calls the peer claims to have, and what follows from it is only which of several
//! servers gets a call.
//!
//! # Crash
//! The word of a dead server stays as it was; its session's end is learnt from the socket.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollfree_layout::control::{LOAD_OFF, load_of_word, load_word};
use tollfree_region::{PeerRegion, ReadMemory, Region, WriteMemory};

/// Both sides' words on their load.
#[derive(Debug)]
pub(crate) struct Load {
    /// Without the feature the words mean nothing.
    shared: Option<(Arc<Region>, Arc<PeerRegion>)>,
}

impl Load {
    pub(crate) fn new(shares: bool, own: Arc<Region>, peer: Arc<PeerRegion>) -> Load {
        Load { shared: shares.then_some((own, peer)) }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Says so many calls. Callers see to it that two threads don't say something at once.
    pub(crate) fn report(&self, count: u32) {
        if let Some((own, _)) = &self.shared
            && !own.is_inherited()
        {
            own.store_u32(LOAD_OFF, load_word(count), Ordering::Relaxed);
        }
    }

    /// What the peer says; nothing in a child of `fork`, where its memory is not mapped.
    pub(crate) fn peer(&self) -> Option<u32> {
        let (_, peer) = self.shared.as_ref()?;
        if peer.is_inherited() {
            return None;
        }
        load_of_word(peer.load_u32(LOAD_OFF, Ordering::Relaxed))
    }
}
