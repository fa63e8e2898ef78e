//! Metadata of calls that have some: the same pairs in each request, and in each reply.

use std::sync::Arc;

use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};

/// The pairs of a case. Made once, and cloned into each call as an application does that keeps its own.
#[derive(Clone)]
pub(super) struct Pairs {
    list: Arc<[(AsciiMetadataKey, AsciiMetadataValue)]>,
}

impl Pairs {
    pub(super) fn new(count: usize) -> Self {
        let pair = |idx: usize| {
            let key =
                format!("x-bench-pair-{idx:02}").parse().expect("lower-case letters and digits are a key");
            let value = format!("value of pair {idx:02}").parse().expect("visible characters are a value");
            (key, value)
        };
        Self { list: (0..count).map(pair).collect() }
    }

    /// Adds all of them.
    pub(super) fn put(&self, metadata: &mut MetadataMap) {
        for (key, value) in self.list.iter() {
            metadata.insert(key.clone(), value.clone());
        }
    }

    /// Looks for the last one, as an application does that wants one of them. What is wrong is in words.
    pub(super) fn look(&self, metadata: &MetadataMap) -> Result<(), &'static str> {
        match self.list.last() {
            Some((key, value)) if metadata.get(key) != Some(value) => Err("the metadata did not arrive"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_is_found_and_what_is_missing_is_missed() {
        let mut metadata = MetadataMap::new();
        Pairs::new(0).put(&mut metadata);
        assert!(metadata.is_empty() && Pairs::new(0).look(&metadata).is_ok());
        Pairs::new(4).put(&mut metadata);
        assert_eq!(metadata.len(), 4);
        assert!(Pairs::new(4).look(&metadata).is_ok());
        assert!(Pairs::new(5).look(&metadata).is_err());
    }
}
