//! How many sessions the certificates of one subject may have at once.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use tollfree_host::HandshakeError;

/// Sessions at once, by subject.
#[derive(Debug)]
pub(crate) struct Places {
    most: u32,
    taken: Mutex<HashMap<Arc<str>, u32>>,
}

/// One of them, until it is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    subject: Arc<str>,
}

impl Places {
    pub(crate) fn new(most: u32) -> Arc<Places> {
        Arc::new(Places { most, taken: Mutex::default() })
    }

    /// Gives a subject one more.
    ///
    /// # Errors
    /// It has all that it may have.
    pub(crate) fn take(self: &Arc<Self>, subject: &Arc<str>) -> Result<Place, HandshakeError> {
        let mut taken = self.taken.lock();
        let count = taken.get(subject).copied().unwrap_or_default();
        if count >= self.most {
            return Err(HandshakeError::Quota {
                whose: "this certificate's subject",
                what: "sessions at once",
                most: self.most.into(),
                setting: "sessions_per_user",
            });
        }
        taken.insert(subject.clone(), count + 1);
        Ok(Place { places: self.clone(), subject: subject.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        if let Some(count) = taken.get_mut(&self.subject) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.subject);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_has_its_share_and_those_who_left_are_forgotten() {
        let places = Places::new(2);
        let (a, b): (Arc<str>, Arc<str>) = ("CN=a".into(), "CN=b".into());
        let held = [places.take(&a).unwrap(), places.take(&a).unwrap()];
        assert!(matches!(places.take(&a), Err(HandshakeError::Quota { most: 2, .. })));
        let _other = places.take(&b).unwrap();
        drop(held);
        drop(places.take(&a).unwrap());
        assert_eq!(places.taken.lock().len(), 1);
    }
}
