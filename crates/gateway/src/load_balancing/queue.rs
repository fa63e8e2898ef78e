//! The central queue of a group: requests that wait in the gateway for a backend connection with room.
//!
//! Who waits has an entry. Clients have their turns one after the other, and the requests of one client in order of arrival
//! (start-time fair queueing, Goyal, Vin and Cheng 1997, in which each request costs the same). Whoever makes room takes entries out, each with a place at a
//! backend connection, and sends each its place when the lock is free again. An entry whose request has gone is taken out by that request.
//!
//! No request is forgotten: one enters the queue and looks for room after that, and a backend connection has room and looks at the queue after that. Both
//! are sequentially consistent, so one of them sees the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

/// Before which others a request is: in which round of the clients, when it began, and a number that no other has.
pub(crate) type Rank = (u64, Instant, u64);

/// The round of a client's last request in a queue.
#[derive(Debug, Default)]
pub(crate) struct Order(AtomicU64);

/// A request that waits.
pub(crate) struct Waiting<P> {
    pub(crate) path: Box<str>,
    pub(crate) connection: u64,
    /// Takes its place at a backend connection.
    pub(crate) grant: oneshot::Sender<P>,
}

/// All that wait, in the order of their turns.
pub(crate) struct Entries<P> {
    by_rank: BTreeMap<Rank, Waiting<P>>,
    /// The round of the last that was served.
    round: u64,
    next: u64,
}

/// A group's queue, for places of one kind.
pub(crate) struct Queue<P> {
    entries: Mutex<Entries<P>>,
    /// How many there are, for those who don't want the lock.
    len: AtomicU32,
}

impl<P> Default for Queue<P> {
    fn default() -> Queue<P> {
        let entries = Entries { by_rank: BTreeMap::new(), round: 0, next: 0 };
        Queue { entries: Mutex::new(entries), len: AtomicU32::new(0) }
    }
}

impl<P> Queue<P> {
    pub(crate) fn len(&self) -> u32 {
        self.len.load(Ordering::SeqCst)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lets a request wait, until the entry is dropped, behind others of its client's, and those of the same round that began before it; without
    /// an `order`, behind no others than such.
    pub(crate) fn enter(
        self: &Arc<Queue<P>>,
        path: &str,
        connection: u64,
        began: Instant,
        order: Option<&Order>,
    ) -> Entry<P> {
        let (grant, granted) = oneshot::channel();
        let mut entries = self.lock();
        let round = order.map_or(0, |Order(last)| {
            let round = entries.round.max(last.load(Ordering::Relaxed) + 1);
            last.store(round, Ordering::Relaxed);
            round
        });
        let rank = (round, began, entries.next);
        entries.next += 1;
        entries.by_rank.insert(rank, Waiting { path: path.into(), connection, grant });
        self.len.store(entries.by_rank.len() as u32, Ordering::SeqCst);
        Entry { queue: self.clone(), rank, granted }
    }

    /// Does what `place` does unless somebody waits; until it is done, nobody enters the queue or leaves it.
    pub(crate) fn if_nobody_waits<R>(&self, place: impl FnOnce() -> Option<R>) -> Option<R> {
        let entries = self.lock();
        if entries.by_rank.is_empty() { place() } else { None }
    }

    fn lock(&self) -> MutexGuard<'_, Entries<P>> {
        self.entries.lock()
    }

    /// Gives places to those who wait: `place` finds one, and `is_full` says that nobody would get one. Places are sent after the lock
    /// is free again.
    pub(crate) fn serve(
        &self,
        mut place: impl FnMut(&Waiting<P>) -> Option<P>,
        mut is_full: impl FnMut() -> bool,
    ) {
        let mut granted = Vec::new();
        let mut entries = self.lock();
        let mut passed_over = None;
        loop {
            let from = passed_over.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
            let Some((rank, waiting)) = entries.by_rank.range((from, std::ops::Bound::Unbounded)).next()
            else {
                break;
            };
            let rank = *rank;
            match place(waiting) {
                Some(place) => {
                    let waiting = entries.by_rank.remove(&rank);
                    entries.round = entries.round.max(rank.0);
                    self.len.store(entries.by_rank.len() as u32, Ordering::SeqCst);
                    granted.extend(waiting.map(|waiting| (waiting.grant, place)));
                }
                None if is_full() => break,
                None => passed_over = Some(rank),
            }
        }
        drop(entries);
        for (grant, place) in granted {
            // Whose request has gone meanwhile gives its place back by dropping it.
            _ = grant.send(place);
        }
    }
}

/// That a request waits, until this is dropped.
pub(crate) struct Entry<P> {
    queue: Arc<Queue<P>>,
    rank: Rank,
    /// Its place, once it has one.
    pub(crate) granted: oneshot::Receiver<P>,
}

impl<P> Drop for Entry<P> {
    fn drop(&mut self) {
        let mut entries = self.queue.lock();
        let waiting = entries.by_rank.remove(&self.rank);
        self.queue.len.store(entries.by_rank.len() as u32, Ordering::SeqCst);
        drop(entries);
        drop(waiting);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_that_fits_goes_first_and_who_has_gone_is_passed_over() {
        let queue: Arc<Queue<u32>> = Arc::new(Queue::default());
        let (now, client) = (Instant::now(), Order::default());
        let mut first = queue.enter("a", 0, now, Some(&client));
        let mut second = queue.enter("b", 0, now, Some(&client));
        // Handed on by a backend connection that has left it: before both.
        let mut older = queue.enter("b", 0, now, None);

        let mut left = 1;
        queue.serve(
            |waiting| {
                (waiting.path.as_ref() == "b" && left > 0).then(|| {
                    left -= 1;
                    7
                })
            },
            || false,
        );
        assert_eq!(older.granted.try_recv(), Ok(7));
        assert!(first.granted.try_recv().is_err() && second.granted.try_recv().is_err());
        assert_eq!(queue.len(), 2);
        drop(first);
        assert_eq!(queue.len(), 1);
        let mut asked = 0;
        queue.serve(
            |_| {
                asked += 1;
                None
            },
            || true,
        );
        assert_eq!(asked, 1, "nobody is asked any more when all is full");
        queue.serve(|_| Some(8), || false);
        assert_eq!(second.granted.try_recv(), Ok(8));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_place_for_a_request_that_has_gone_is_given_back() {
        struct Place(Arc<AtomicU32>);
        impl Drop for Place {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let queue: Arc<Queue<Place>> = Arc::new(Queue::default());
        let given_back = Arc::new(AtomicU32::new(0));
        let entry = queue.enter("a", 0, Instant::now(), None);
        queue.serve(|_| Some(Place(given_back.clone())), || false);
        drop(entry);
        assert_eq!(given_back.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_client_with_many_requests_holds_up_no_other() {
        let queue: Arc<Queue<u32>> = Arc::new(Queue::default());
        let (now, greedy, other) = (Instant::now(), Order::default(), Order::default());
        let mut many: Vec<_> = (0..50).map(|_| queue.enter("a", 0, now, Some(&greedy))).collect();
        let serve = || {
            let mut left = 1;
            queue.serve(
                |_| {
                    left -= 1;
                    (left == 0).then_some(7)
                },
                || true,
            );
        };
        (0..3).for_each(|_| serve());
        assert!(many[2].granted.try_recv().is_ok() && many[3].granted.try_recv().is_err());
        let mut one = queue.enter("a", 0, now + Duration::from_secs(1), Some(&other));
        (0..2).for_each(|_| serve());
        assert!(one.granted.try_recv().is_ok(), "its turn is the next but one, at the latest");
        assert!(many[4].granted.try_recv().is_err());
    }
}
