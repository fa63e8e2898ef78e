//! Numbers that stand for what the library keeps: each of them once, and of no use after it was released, in any thread.

use std::sync::OnceLock;

use sharded_slab::Slab;
use tollfree_layout::errors;

use crate::error::Failure;

/// Things of one kind. A number names at most one of them in the life of a process: reused places count their users.
pub(crate) struct Handles<T> {
    things: OnceLock<Slab<T>>,
    /// The error of a number that names nothing.
    unknown: (u16, &'static str),
}

impl<T: Clone> Handles<T> {
    pub(crate) const fn new(number: u16, words: &'static str) -> Handles<T> {
        Handles { things: OnceLock::new(), unknown: (number, words) }
    }

    fn things(&self) -> &Slab<T> {
        self.things.get_or_init(Slab::new)
    }

    fn unknown(&self) -> Failure {
        Failure::new(self.unknown.0, self.unknown.1)
    }

    /// Never 0, which stands for none.
    pub(crate) fn insert(&self, thing: T) -> Result<u64, Failure> {
        self.insert_with(|| thing)
    }

    /// The same of what is made once nothing can fail any more.
    pub(crate) fn insert_with(&self, thing: impl FnOnce() -> T) -> Result<u64, Failure> {
        let full = || Failure::new(errors::USE_LENGTH, "no more handles can be had: release some");
        let place = self.things().vacant_entry().ok_or_else(full)?;
        let id = place.key() as u64 + 1;
        place.insert(thing());
        Ok(id)
    }

    pub(crate) fn get(&self, id: u64) -> Result<T, Failure> {
        let key = id.checked_sub(1).ok_or_else(|| self.unknown())?;
        let found = self.things().get(key as usize).ok_or_else(|| self.unknown())?;
        Ok(found.clone())
    }

    pub(crate) fn remove(&self, id: u64) -> Result<T, Failure> {
        let key = id.checked_sub(1).ok_or_else(|| self.unknown())?;
        self.things().take(key as usize).ok_or_else(|| self.unknown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_released_names_nothing_however_often_its_place_is_used_again() {
        let handles: Handles<u32> = Handles::new(errors::USE_BUFFER, "none");
        let first = handles.insert(1).unwrap();
        assert_eq!((handles.get(first).unwrap(), handles.remove(first).unwrap()), (1, 1));
        for nth in 2..1_000 {
            let id = handles.insert(nth).unwrap();
            assert_ne!(id, first);
            assert_eq!(handles.remove(id).unwrap(), nth);
            assert_eq!(handles.remove(id).unwrap_err().number, errors::USE_BUFFER);
        }
        for id in [0, first, u64::MAX, 1 << 40] {
            assert_eq!(handles.get(id).unwrap_err().number, errors::USE_BUFFER);
        }
    }

    #[test]
    fn other_threads_release_what_this_one_made() {
        static HANDLES: Handles<u32> = Handles::new(errors::USE_BUFFER, "none");
        let ids: Vec<u64> = (0..1_000).map(|nth| HANDLES.insert(nth).unwrap()).collect();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let ids = ids.clone();
                std::thread::spawn(move || ids.iter().filter(|id| HANDLES.remove(**id).is_ok()).count())
            })
            .collect();
        assert_eq!(
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>(),
            1_000,
            "each once"
        );
    }
}
