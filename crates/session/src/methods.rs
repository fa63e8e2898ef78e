//! The methods that a session has named: their indices, and of which types the server takes objects.
//!
//! A path is spelled out once; both ends give it the next index, as long as there is room. Each end keeps its own table, and both decide alike.

use std::collections::HashMap;

use bytes::Bytes;
use tollfree_layout::MethodIdx;
use tollfree_layout::limits::{METHOD_COUNT_MAX, METHOD_PATHS_LEN_MAX};

/// See the module.
#[derive(Debug)]
pub(crate) struct Methods {
    /// By index.
    paths: Vec<Bytes>,
    /// Bytes of all of them together.
    paths_len: usize,
    /// Client: indices by path, and the one used last.
    by_path: HashMap<Bytes, MethodIdx>,
    last: MethodIdx,
    /// By index, as far as the server has said something of them (client).
    types: Vec<Types>,
}

/// What is known of a method's types.
#[derive(Clone, Copy, Debug, Default)]
struct Types {
    /// As the server has said.
    fingerprint: Option<u64>,
    /// Somebody here has other types (client).
    differ: bool,
}

impl Methods {
    pub(crate) fn new() -> Methods {
        Methods {
            paths: Vec::new(),
            paths_len: 0,
            by_path: HashMap::new(),
            last: MethodIdx(0),
            types: Vec::new(),
        }
    }

    /// How many have an index.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.paths.len()
    }

    #[inline]
    pub(crate) fn path(&self, method: MethodIdx) -> Option<&Bytes> {
        self.paths.get(usize::from(method.0))
    }

    #[cfg(test)]
    pub(crate) fn paths(&self) -> &[Bytes] {
        &self.paths
    }

    /// The index that one more path of this length gets, if there is room for it.
    pub(crate) fn next_index(&self, path_len: usize) -> Option<MethodIdx> {
        let has_room =
            self.paths.len() < METHOD_COUNT_MAX && self.paths_len + path_len <= METHOD_PATHS_LEN_MAX;
        has_room.then_some(MethodIdx(self.paths.len() as u16))
    }

    /// The index of a method that this end has named. Calls come in runs of one method: the last is compared before any is looked up.
    pub(crate) fn index_of(&mut self, path: &str) -> Option<MethodIdx> {
        if self.path(self.last).is_some_and(|last| last == path) {
            return Some(self.last);
        }
        self.last = *self.by_path.get(path.as_bytes())?;
        Some(self.last)
    }

    /// The peer has named a method, which has the next index from now on.
    pub(crate) fn named_by_peer(&mut self, path: Bytes) {
        self.paths_len += path.len();
        self.paths.push(path);
    }

    /// This end has named a method, which has the next index from now on.
    pub(crate) fn named_here(&mut self, path: &str) {
        let path = Bytes::copy_from_slice(path.as_bytes());
        self.by_path.insert(path.clone(), MethodIdx(self.paths.len() as u16));
        self.named_by_peer(path);
    }

    /// The server says that it takes objects of a method, and of which types. Whether it may: of a method that was named, once.
    pub(crate) fn takes_objects(&mut self, idx: usize, fingerprint: u64) -> bool {
        if idx >= self.paths.len() {
            return false;
        }
        if self.types.len() <= idx {
            self.types.resize_with(idx + 1, Types::default);
        }
        self.types[idx].fingerprint.replace(fingerprint).is_none()
    }

    /// The fingerprint of a method's types, if the server takes objects of it.
    pub(crate) fn object_types(&mut self, path: &str) -> Option<u64> {
        // Most servers take none.
        if self.types.is_empty() {
            return None;
        }
        let method = self.index_of(path)?;
        self.types.get(usize::from(method.0))?.fingerprint
    }

    /// Somebody here has other types than the server for a method.
    pub(crate) fn types_differ(&mut self, path: &str) {
        if let Some(method) = self.index_of(path)
            && let Some(types) = self.types.get_mut(usize::from(method.0))
        {
            types.differ = true;
        }
    }

    /// Paths of the methods of which that is so.
    pub(crate) fn differing(&self) -> impl Iterator<Item = &Bytes> {
        let methods = self.types.iter().zip(&self.paths);
        methods.filter(|(types, _)| types.differ).map(|(_, path)| path)
    }
}
