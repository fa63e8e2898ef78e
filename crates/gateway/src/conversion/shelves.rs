//! Tables that processes described: loaded away from the threads that serve calls, and held once for each group.
//!
//! # Trust
//! Loading costs what the description's bytes cost, some tens of milliseconds for the longest. A group has one turn at a time, so however
//! many of its processes have tables loaded, those of another group wait for few of them; so it is with its long messages. What is held is
//! counted ([`Holdings`]).

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tollfree::gateway::{Held, Holdings, Turns, run_aside};
use tollfree_processor::Processor;

use crate::conversion::asking::Description;
use crate::conversion::converter::{TableConverter, load};

/// Bytes of one backend connection's tables together, as they came.
const TABLES_LEN_MAX: usize = 16 << 20;

/// A table that is made ready, for all backend connections of a group that have it.
#[derive(Debug)]
pub(super) struct Shelved {
    processor: Processor,
    _held: Held,
}

/// The tables of one group, and the turns of its messages.
pub(super) struct Shelf {
    turn: Semaphore,
    messages: Turns,
    tables: Mutex<Vec<Weak<Shelved>>>,
}

impl Default for Shelf {
    fn default() -> Shelf {
        Shelf { turn: Semaphore::new(1), messages: Turns::default(), tables: Mutex::default() }
    }
}

impl Shelf {
    /// The turns in which long messages of the group's methods are changed.
    pub(super) fn turns(&self) -> &Turns {
        &self.messages
    }

    /// Reads a description on a thread that serves nobody else. The tables that it has are added to the backend connection's `own`.
    ///
    /// # Errors
    /// What is wrong with it, or that there is no room for its tables.
    pub(super) async fn read(
        self: &Arc<Self>,
        description: Description,
        own: Arc<Mutex<Vec<Arc<Shelved>>>>,
        holdings: Option<Arc<dyn Holdings>>,
    ) -> Result<TableConverter, String> {
        // A group that has many to load waits here, and not before those of others.
        let turn = self.turn.acquire().await.map_err(|error| error.to_string())?;
        let shelf = self.clone();
        let read = run_aside(move || {
            TableConverter::read(description.bytes.clone(), |table| {
                shelf.table(&table, &own, holdings.as_ref())
            })
        })
        .await;
        drop(turn);
        read.map_err(|error| format!("reading the description has failed: {error}"))?
    }

    /// The processor of a table, which methods of one schema and backend connections of one group have in common.
    fn table(
        &self,
        table: &[u8],
        own: &Mutex<Vec<Arc<Shelved>>>,
        holdings: Option<&Arc<dyn Holdings>>,
    ) -> Result<Processor, String> {
        let is_it = |shelved: &Arc<Shelved>| shelved.processor.table().blob() == table;
        let mut own = own.lock();
        if let Some(shelved) = own.iter().find(|shelved| is_it(shelved)) {
            return Ok(shelved.processor.clone());
        }
        let len: usize = own.iter().map(|shelved| shelved.processor.table().blob().len()).sum();
        if len + table.len() > TABLES_LEN_MAX {
            return Err(format!(
                "the tables of this backend connection would have more than {TABLES_LEN_MAX} bytes"
            ));
        }
        // Only one thread at a time comes here, so nobody waits for this lock.
        let mut tables = self.tables.lock();
        tables.retain(|shelved| shelved.strong_count() > 0);
        let shelved = match tables.iter().filter_map(Weak::upgrade).find(is_it) {
            Some(shelved) => shelved,
            None => {
                let processor = load(table)?;
                let mut held = Held::nothing(holdings);
                held.add(processor.memory_len())?;
                let shelved = Arc::new(Shelved { processor, _held: held });
                tables.push(Arc::downgrade(&shelved));
                shelved
            }
        };
        own.push(shelved.clone());
        Ok(shelved.processor.clone())
    }
}

/// The shelves of all groups that have backend connections.
#[derive(Default)]
pub(super) struct Shelves {
    by_group: Mutex<HashMap<Arc<str>, Weak<Shelf>>>,
}

impl Shelves {
    /// The shelf of a group, which is there for as long as a backend connection keeps it.
    pub(super) fn of(&self, group: &Arc<str>) -> Arc<Shelf> {
        let mut by_group = self.by_group.lock();
        by_group.retain(|_, shelf| shelf.strong_count() > 0);
        if let Some(shelf) = by_group.get(group).and_then(Weak::upgrade) {
            return shelf;
        }
        let shelf = Arc::<Shelf>::default();
        by_group.insert(group.clone(), Arc::downgrade(&shelf));
        shelf
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tollfree_layout::steps;
    use tollfree_layout::table::{Fingerprint, TableHeader, Text, TypeRow};

    use super::*;

    /// Counts up to a limit.
    pub(crate) struct Counted {
        pub(crate) held: AtomicUsize,
        limit: usize,
    }

    impl Holdings for Counted {
        fn add(&self, bytes: usize) -> Result<(), String> {
            let within = |held: usize| Some(held + bytes).filter(|held| *held <= self.limit);
            let added = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
            added.map(|_| ()).map_err(|held| format!("{held} bytes are held"))
        }

        fn remove(&self, bytes: usize) {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    pub(crate) fn counted(limit: usize) -> Arc<Counted> {
        Arc::new(Counted { held: AtomicUsize::new(0), limit })
    }

    fn holdings(limit: usize) -> (Arc<Counted>, Option<Arc<dyn Holdings>>) {
        let counted = counted(limit);
        (counted.clone(), Some(counted))
    }

    /// A description of a table of so many empty types.
    pub(crate) fn description(type_count: u32) -> Description {
        let name = Text::default();
        let row = TypeRow { name, first_field: 0, field_count: 0, record_len: 8, flags: 0 };
        let mut table = TableHeader { type_count, ..TableHeader::default() }.to_bytes().to_vec();
        (0..type_count).for_each(|_| table.extend(row.to_bytes()));
        let fingerprint = Fingerprint::of_blob(&table);
        table[56..64].copy_from_slice(&fingerprint.to_le_bytes());
        let mut bytes = [0, 0, table.len() as u32, 0].map(u32::to_le_bytes).concat();
        bytes.extend(table);
        Description { bytes: bytes.into(), _held: Held::nothing(None) }
    }

    #[tokio::test]
    async fn a_table_is_loaded_on_another_thread_and_held_once_for_a_group() {
        let shelves = Shelves::default();
        let shelf = shelves.of(&"shop".into());
        let ((counted, holdings), owns) = (holdings(usize::MAX), [(); 2].map(|()| Arc::default()));
        let before = steps::taken();
        let mut held = Vec::new();
        for own in &owns {
            shelf.read(description(1000), Arc::clone(own), holdings.clone()).await.unwrap();
            // Again, as for another method.
            shelf.read(description(1000), Arc::clone(own), holdings.clone()).await.unwrap();
            held.push(counted.held.load(Ordering::Relaxed));
        }
        assert_eq!(steps::taken(), before, "on this thread");
        assert!(held[0] > 24_000 && held[1] == held[0], "{held:?}");
        // Another table, and another group.
        shelf.read(description(999), owns[0].clone(), holdings.clone()).await.unwrap();
        let two = counted.held.load(Ordering::Relaxed);
        assert!(two > held[0] && owns[0].lock().len() == 2);
        let (other, own) = (shelves.of(&"other".into()), Arc::default());
        other.read(description(1000), Arc::clone(&own), holdings.clone()).await.unwrap();
        assert_eq!(counted.held.load(Ordering::Relaxed), two + held[0]);
        drop((owns, own));
        assert_eq!(counted.held.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn tables_without_room_are_refused_and_nothing_of_them_is_held() {
        let shelf = Arc::new(Shelf::default());
        let ((counted, holdings), own) = (holdings(24_000), Arc::default());
        let refused = shelf.read(description(1000), Arc::clone(&own), holdings).await.unwrap_err();
        assert_eq!((refused.as_str(), counted.held.load(Ordering::Relaxed)), ("0 bytes are held", 0));
        assert!(own.lock().is_empty());
    }

    #[tokio::test]
    async fn a_group_that_has_its_turn_does_not_have_those_of_others() {
        let shelves = Shelves::default();
        let (busy, other) = (shelves.of(&"busy".into()), shelves.of(&"other".into()));
        let turn = busy.turn.acquire().await.unwrap();
        let waiting = busy.read(description(3), Arc::default(), None);
        tokio::pin!(waiting);
        tokio::select! {
            biased;
            _ = &mut waiting => panic!("two at a time"),
            read = other.read(description(3), Arc::default(), None) => drop(read.unwrap()),
        }
        drop(turn);
        waiting.await.unwrap();
    }
}
