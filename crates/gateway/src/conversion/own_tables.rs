//! The tables of one backend connection, among those of its group.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tollfree::gateway::{Held, Holdings};

use crate::config::OnUnconvertible;
use crate::conversion::asking::Description;
use crate::conversion::converter::TableConverter;
use crate::conversion::counts::Conversions;
use crate::conversion::group_pools::{GroupPool, GroupPools};
use crate::conversion::shelves::{Shelf, Shelved, Shelves};

/// What the conversions of all backend connections have in common.
#[derive(Default)]
pub(crate) struct Common {
    /// Whether messages are converted at all.
    is_wanted: bool,
    on_unconvertible: OnUnconvertible,
    /// Where large objects are placed.
    places: GroupPools,
    shelves: Shelves,
}

impl Common {
    pub(crate) fn new(is_wanted: bool, on_unconvertible: OnUnconvertible) -> Common {
        Common { is_wanted, on_unconvertible, ..Common::default() }
    }
}

/// The tables of one backend connection. Another process's are others, even where it calls its types by the same names.
pub(super) struct OwnTables {
    group: Arc<str>,
    common: Arc<Common>,
    conversions: Conversions,
    /// Those of its group, once it takes objects.
    shelf: OnceLock<Arc<Shelf>>,
    tables: Arc<Mutex<Vec<Arc<Shelved>>>>,
    /// Counts what it makes the gateway hold.
    holdings: Option<Arc<dyn Holdings>>,
}

impl OwnTables {
    pub(super) fn new(
        group: &str,
        common: Arc<Common>,
        conversions: Conversions,
        holdings: Arc<dyn Holdings>,
    ) -> OwnTables {
        let (shelf, tables) = (OnceLock::new(), Arc::default());
        OwnTables { group: group.into(), common, conversions, shelf, tables, holdings: Some(holdings) }
    }

    /// Whether messages are converted at all.
    pub(super) fn are_wanted(&self) -> bool {
        self.common.is_wanted
    }

    /// Whether calls end whose requests can't be converted.
    pub(super) fn refuses_bytes(&self) -> bool {
        self.common.on_unconvertible == OnUnconvertible::Refuse
    }

    /// Where it is counted what becomes of messages.
    pub(super) fn conversions(&self) -> &Conversions {
        &self.conversions
    }

    /// For what is held of the backend connection from now on.
    pub(super) fn held(&self) -> Held {
        Held::nothing(self.holdings.as_ref())
    }

    fn shelf(&self) -> &Arc<Shelf> {
        self.shelf.get_or_init(|| self.common.shelves.of(&self.group))
    }

    /// A converter of the backend connection's messages, which are counted and have the turns of its group.
    pub(super) fn converter(&self, converter: TableConverter) -> TableConverter {
        converter
            .counted(self.conversions.clone(), self.common.on_unconvertible)
            .in_turns(self.shelf().turns())
    }

    /// Reads a description, whose tables are held from then on.
    ///
    /// # Errors
    /// What is wrong with it, or that there is no room for its tables.
    pub(super) async fn read(&self, description: Description) -> Result<TableConverter, String> {
        self.shelf().read(description, self.tables.clone(), self.holdings.clone()).await
    }

    /// The pool of its group.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) async fn place(&self) -> Result<Arc<GroupPool>, String> {
        self.common.places.of(&self.group).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use tollfree::gateway::Converter as _;

    use super::*;
    use crate::conversion::shelves::tests::{counted, description};

    #[tokio::test]
    async fn backend_connections_of_a_group_have_its_tables_and_turns_in_common() {
        let (common, counted) = (Arc::new(Common::new(true, OnUnconvertible::Bytes)), counted(usize::MAX));
        let owns = ["shop", "shop", "other"]
            .map(|group| OwnTables::new(group, common.clone(), Conversions::default(), counted.clone()));
        let (mut turns, mut held) = (Vec::new(), Vec::new());
        // One after the other, as they come.
        for own in &owns {
            let read = own.read(description(1000)).await.unwrap();
            turns.push(own.converter(read).turns().clone());
            held.push(counted.held.load(Ordering::Relaxed));
        }
        assert!(turns[0].are(&turns[1]) && !turns[0].are(&turns[2]));
        assert_eq!((held[1], held[2]), (held[0], 2 * held[0]));
    }
}
