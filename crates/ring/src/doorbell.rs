//! Knowing when the other side has to be woken: two words in shared memory, no system call.
//!
//! # Layout
//! `waiting` and `cpu` in the control page, `tollfree_layout::control`.
//!
//! # States
//! Of the `waiting` word; each arrow is a store by its owner:
//!
//! ```text
//!            park(false): epoch + 1                park(true): epoch + 1
//! awake ─────────────────────────────► parked ◄──────────────────────────► parked, wants space
//!   ▲               unpark                │              unpark                    │
//!   └─────────────────────────────────────┴────────────────────────────────────────┘
//! ```
//!
//! # Who writes what
//! | step | waiter (its own word) | ringer (the same word, read-only) |
//! |---|---|---|
//! | 1 | store `parked` | store a head word or a cursor |
//! | 2 | `SeqCst` fence | `SeqCst` fence |
//! | 3 | look at the ring or the cursor again | load `parked` |
//!
//! Whichever fence comes first, the side of the other sees what was stored before it: either the waiter finds the
//! record and stays awake, or the ringer finds it parked and rings. That is the whole reason for both fences; the loom
//! models fail without either.
//!
//! # Trust
//! A peer that says it is parked when it isn't gets a doorbell, once an epoch; one that makes epochs up gets at most
//! one a call. One that sleeps without saying so isn't woken: its own loss.
//!
//! # Crash
//! A peer that dies parked is rung for once, which fails or goes unheard; one that dies awake isn't rung for at all.
//! Its death is learnt from the socket.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//! use tollfree_region::HeapMemory;
//! use tollfree_ring::{Ringer, Waiter};
//!
//! let memory = Arc::new(HeapMemory::new(4096));
//! let (mut waiter, mut ringer) = (Waiter::new(memory.clone()), Ringer::new(memory));
//! assert!(!ringer.should_ring());
//! waiter.park(false); // ... and look at the ring again, and only then sleep.
//! assert!(ringer.should_ring() && !ringer.should_ring(), "once");
//! waiter.unpark();
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollfree_layout::control::{CPU_OFF, CPU_UNKNOWN, WAITING_OFF, Waiting};
use tollfree_region::{ReadMemory, WriteMemory};

/// This side's word on whether it sleeps.
#[derive(Debug)]
pub struct Waiter<W> {
    own: Arc<W>,
    word: Waiting,
    cpu: u32,
}

impl<W: WriteMemory> Waiter<W> {
    /// Awake, on a processor not said.
    pub fn new(own: Arc<W>) -> Waiter<W> {
        own.store_u32(WAITING_OFF, Waiting::default().0, Ordering::Relaxed);
        own.store_u32(CPU_OFF, CPU_UNKNOWN, Ordering::Relaxed);
        Waiter { own, word: Waiting::default(), cpu: CPU_UNKNOWN }
    }

    /// Says that this side is about to sleep, for records and with `wants_space` for room too.
    ///
    /// Afterwards the caller looks at the peer's ring once more, and with `wants_space` at the peer's cursor; only
    /// when there is still nothing may it sleep. May be called again while parked: that arms a further doorbell.
    pub fn park(&mut self, wants_space: bool) {
        self.store(self.word.park(wants_space));
        // Pairs with the fence in `Ringer::should_ring`: of the two sides, at least one sees what the other stored.
        self.own.fence_seq_cst();
    }

    /// Says that this side is awake.
    #[inline]
    pub fn unpark(&mut self) {
        if self.is_parked() {
            self.store(self.word.unpark());
        }
    }

    /// Whether [`park`](Self::park) was called after the last [`unpark`](Self::unpark).
    #[inline]
    pub fn is_parked(&self) -> bool {
        self.word.is_parked()
    }

    /// Says which processor this side's waiting thread runs on.
    #[inline]
    pub fn set_cpu(&mut self, cpu: u32) {
        if self.cpu != cpu {
            self.cpu = cpu;
            self.own.store_u32(CPU_OFF, cpu, Ordering::Relaxed);
        }
    }

    fn store(&mut self, word: Waiting) {
        self.word = word;
        self.own.store_u32(WAITING_OFF, word.0, Ordering::Relaxed);
    }
}

/// Looks at the peer's word and says when to ring.
#[derive(Debug)]
pub struct Ringer<R> {
    peer: Arc<R>,
    /// The epoch rung for last. No epoch is as large as the first value.
    rung: u32,
}

impl<R: ReadMemory> Ringer<R> {
    /// Has rung for nothing yet.
    pub fn new(peer: Arc<R>) -> Ringer<R> {
        Ringer { peer, rung: u32::MAX }
    }

    /// After publishing: whether the peer sleeps, for who may put off asking [`should_ring`](Self::should_ring). It has to ask
    /// that later; a peer that is awake now finds all that was published before it sleeps.
    pub fn is_peer_parked(&self) -> bool {
        self.look().is_parked()
    }

    /// After publishing: whether a doorbell has to be sent now. True once an epoch.
    #[inline]
    pub fn should_ring(&mut self) -> bool {
        let word = self.look();
        word.is_parked() && self.claim(word)
    }

    /// After giving room back: whether a doorbell has to be sent now. True once an epoch, together with
    /// [`should_ring`](Self::should_ring).
    #[inline]
    pub fn should_ring_for_space(&mut self) -> bool {
        let word = self.look();
        word.is_parked() && word.wants_space() && self.claim(word)
    }

    /// The processor that the peer says its waiting thread runs on, or [`CPU_UNKNOWN`]. Any number may come.
    #[inline]
    pub fn peer_cpu(&self) -> u32 {
        self.peer.load_u32(CPU_OFF, Ordering::Relaxed)
    }

    /// The peer's word, for who compares it with an earlier one. Any number may come.
    pub fn peer_word(&self) -> u32 {
        self.peer.load_u32(WAITING_OFF, Ordering::Relaxed)
    }

    /// Whether the peer was rung since it parked last, and is still parked: it has not looked at what it was rung for.
    pub fn is_unheard(&self) -> bool {
        let word = Waiting(self.peer_word());
        word.is_parked() && self.rung == word.epoch()
    }

    /// Whether the peer says that it is awake.
    pub fn is_peer_awake(&self) -> bool {
        !Waiting(self.peer_word()).is_parked()
    }

    #[inline(always)]
    fn look(&self) -> Waiting {
        // Pairs with the fence in `Waiter::park`.
        self.peer.fence_seq_cst();
        Waiting(self.peer.load_u32(WAITING_OFF, Ordering::Relaxed))
    }

    #[inline]
    fn claim(&mut self, word: Waiting) -> bool {
        let fresh = self.rung != word.epoch();
        self.rung = word.epoch();
        fresh
    }
}
