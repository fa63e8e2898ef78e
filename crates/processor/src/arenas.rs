//! Hot module: where arenas wait to be used again.
//!
//! Short ones wait with the thread that dropped them, not with the one that they were taken from: to take one is to look there, and it is
//! warm. The others wait for any thread, and so do those of a thread that drops what others have taken.

use crate::arena::Arena;
use crate::owned::Finished;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use tollfree_layout::flat::MAX_OBJECT_LEN;

/// An arena whose memory is longer than this is not kept: one large message would stay for good.
const KEPT_LEN: usize = 1 << 20;
/// Arenas that wait with a thread, and how long each is at most.
const LOCAL_COUNT: usize = 8;
const LOCAL_LEN: usize = 64 << 10;

thread_local! {
    /// In boxes: an object goes from hand to hand, and its arena stays where it is.
    #[expect(clippy::vec_box, reason = "the boxes are what is used again")]
    static LOCAL: RefCell<Vec<Box<Body>>> = const { RefCell::new(Vec::new()) };
}

/// Arenas that are used again, for any number of threads. Cloning shares them.
#[derive(Debug, Clone)]
pub struct Arenas {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: usize,
    kept_count: usize,
    #[expect(clippy::vec_box, reason = "the boxes are what is used again")]
    free: Mutex<Vec<Box<Body>>>,
}

impl Arenas {
    /// Arenas of at most `limit` bytes each, as by [`Arena::with_limit`]. At most `kept_count` wait for any thread, none longer than
    /// 1 MiB; beside those, each thread has up to 8 of at most 64 KiB.
    #[must_use]
    pub fn new(limit: usize, kept_count: usize) -> Arenas {
        Arenas { shared: Arc::new(Shared { limit, kept_count, free: Mutex::new(Vec::new()) }) }
    }

    /// One that waits, or else a new one.
    #[must_use]
    #[inline]
    pub fn take(&self) -> Slot {
        self.slot(Home::Counted(self.clone()))
    }

    /// As [`Arenas::take`], of arenas that stay for good: they need not be counted.
    #[must_use]
    #[inline]
    pub fn take_for_good(&'static self) -> Slot {
        self.slot(Home::ForGood(self))
    }

    #[inline]
    fn slot(&self, home: Home) -> Slot {
        let mut body = self.body();
        body.home = home;
        Slot { body: ManuallyDrop::new(body) }
    }

    #[inline]
    fn body(&self) -> Box<Body> {
        let local = LOCAL.try_with(|local| local.borrow_mut().pop()).ok().flatten();
        if let Some(mut body) = local
            && body.arena.limit_to(self.shared.limit)
        {
            return body;
        }
        self.shared_body()
    }

    #[cold]
    fn shared_body(&self) -> Box<Body> {
        let free = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(|| Body::new(Arena::with_limit(self.shared.limit)))
    }

    #[cold]
    fn give_back(&self, body: Box<Body>) {
        if body.arena.capacity() > KEPT_LEN {
            return;
        }
        let mut free = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.shared.kept_count {
            free.push(body);
        }
    }
}

/// An arena, where it was taken from, and the object that was finished in it.
#[derive(Debug)]
struct Body {
    arena: Arena<'static>,
    home: Home,
    finished: Option<Finished>,
}

impl Body {
    fn new(arena: Arena<'static>) -> Box<Body> {
        Box::new(Body { arena, home: Home::Nowhere, finished: None })
    }
}

/// An arena that waits to be used again when it is dropped.
#[derive(Debug)]
pub struct Slot {
    /// Taken out when the slot is dropped, and not before.
    body: ManuallyDrop<Box<Body>>,
}

/// Where an arena was taken from.
#[derive(Debug)]
enum Home {
    Nowhere,
    Counted(Arenas),
    ForGood(&'static Arenas),
}

impl Slot {
    /// Notes that an object was finished.
    #[inline]
    pub(crate) fn finish(&mut self, finished: Finished) {
        self.body.finished = Some(finished);
    }

    /// What was finished.
    #[inline]
    pub(crate) fn finished(&self) -> Option<&Finished> {
        self.body.finished.as_ref()
    }
}

impl Default for Slot {
    /// An arena of this thread's, for programs that name none: it grows as a `Vec` would, to 4 GiB at most. Up to 8 of at most
    /// 64 KiB wait with each thread to be used again, and 16 of at most 1 MiB for any thread.
    #[inline]
    fn default() -> Slot {
        static ARENAS: LazyLock<Arenas> = LazyLock::new(|| Arenas::new(MAX_OBJECT_LEN as usize, 16));
        ARENAS.take_for_good()
    }
}

impl From<Arena<'static>> for Slot {
    /// One that goes nowhere.
    fn from(arena: Arena<'static>) -> Slot {
        Slot { body: ManuallyDrop::new(Body::new(arena)) }
    }
}

impl Deref for Slot {
    type Target = Arena<'static>;

    #[inline]
    fn deref(&self) -> &Arena<'static> {
        &self.body.arena
    }
}

impl DerefMut for Slot {
    #[inline]
    fn deref_mut(&mut self) -> &mut Arena<'static> {
        &mut self.body.arena
    }
}

impl Drop for Slot {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it is taken once, here, and nobody looks at the slot after it was dropped. Noticed by the tests below under Miri.
        let mut body = unsafe { ManuallyDrop::take(&mut self.body) };
        body.finished = None;
        let home = std::mem::replace(&mut body.home, Home::Nowhere);
        let left = match (&home, body.arena.capacity()) {
            // What was never used is not worth a place.
            (Home::Nowhere, _) | (_, 0) => None,
            (_, 1..=LOCAL_LEN) => keep_here(body),
            _ => Some(body),
        };
        match (left, &home) {
            (Some(body), Home::Counted(home)) => home.give_back(body),
            (Some(body), Home::ForGood(home)) => home.give_back(body),
            _ => {}
        }
    }
}

/// Has an arena wait with this thread, if there is a place: gives it back if there is none.
#[inline]
fn keep_here(body: Box<Body>) -> Option<Box<Body>> {
    let mut body = Some(body);
    // A thread that ends has no place any more.
    let _ = LOCAL.try_with(|local| {
        let mut local = local.borrow_mut();
        if local.len() < LOCAL_COUNT
            && let Some(body) = body.take()
        {
            local.push(body);
        }
    });
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(arenas: &Arenas, len: usize) -> Slot {
        let mut slot = arenas.take();
        slot.stage(len).unwrap();
        slot
    }

    fn waiting(arenas: &Arenas) -> [usize; 2] {
        [LOCAL.with_borrow(Vec::len), arenas.shared.free.lock().unwrap().len()]
    }

    #[test]
    fn arenas_come_back_as_far_as_they_are_kept() {
        let arenas = Arenas::new(1 << 22, 2);
        drop(used(&arenas, KEPT_LEN + 1));
        drop(arenas.take());
        drop(Slot::from(Arena::with_limit(1)));
        assert_eq!(waiting(&arenas), [0, 0], "too long, never used, from nowhere");
        let slots: Vec<Slot> = (0..4).map(|_| used(&arenas, LOCAL_LEN)).collect();
        drop(slots);
        assert_eq!(waiting(&arenas), [0, 2], "long ones, as many as are kept");
        assert!(arenas.take().capacity() > LOCAL_LEN);
        let slots: Vec<Slot> = (0..LOCAL_COUNT + 5).map(|_| used(&arenas, 9000)).collect();
        assert_eq!(waiting(&arenas), [0, 0]);
        drop(slots);
        assert_eq!(waiting(&arenas), [LOCAL_COUNT, 2]);
    }

    #[test]
    fn an_arena_that_comes_from_elsewhere_keeps_the_limit_of_its_taker() {
        let (large, small) = (Arenas::new(1 << 20, 0), Arenas::new(6000, 0));
        drop(used(&large, 9000));
        let mut slot = small.take();
        assert!(slot.stage(9000).is_none() && slot.limit() == 6000 && slot.capacity() <= 6000);
        slot.stage(5000).unwrap();
        drop(slot);
        let mut slot = large.take();
        assert!(slot.capacity() >= 5000, "warm");
        slot.stage(500_000).unwrap();
    }

    #[test]
    fn a_thread_that_drops_what_others_take_gives_it_back_to_them() {
        let arenas = Arenas::new(1 << 20, 100);
        let slots: Vec<Slot> = (0..20).map(|_| used(&arenas, 9000)).collect();
        std::thread::spawn(move || drop(slots)).join().unwrap();
        assert_eq!(waiting(&arenas), [0, 20 - LOCAL_COUNT]);
        assert!(arenas.take().capacity() > 0);
    }

    #[test]
    fn what_is_moved_with_each_object_is_small() {
        // Requests and responses with longer ones are moved by calls of `memcpy`.
        assert_eq!(size_of::<crate::OwnedObject>(), 8);
    }
}
