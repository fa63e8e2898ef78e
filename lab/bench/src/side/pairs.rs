//! Metadata of calls that have some: the same names in each request, and in each reply, and values of which one is another each
//! time, as the number of a request is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};

/// The pairs of a case. Made once, and cloned into each call as an application does that keeps its own. Their keys are
/// constants, as those of an application are.
#[derive(Clone)]
pub(super) struct Pairs {
    list: Arc<[(AsciiMetadataKey, AsciiMetadataValue)]>,
    /// The value of the first one in the next call.
    number: Arc<AtomicU64>,
}

impl Pairs {
    pub(super) fn new(count: usize) -> Self {
        let pair = |idx: usize| {
            let key = AsciiMetadataKey::from_static(format!("x-bench-pair-{idx:02}").leak());
            let value = format!("value of pair {idx:02}").parse().expect("visible characters are a value");
            (key, value)
        };
        Self { list: (0..count).map(pair).collect(), number: Arc::default() }
    }

    /// Adds all of them, the first with a value that no call before had.
    pub(super) fn put(&self, metadata: &mut MetadataMap) {
        let Some(((first, _), others)) = self.list.split_first() else { return };
        metadata.insert(first.clone(), self.number.fetch_add(1, Ordering::Relaxed).into());
        for (key, value) in others {
            metadata.insert(key.clone(), value.clone());
        }
    }

    /// Looks for the last one, as an application does that wants one of them. What is wrong is in words.
    pub(super) fn look(&self, metadata: &MetadataMap) -> Result<(), &'static str> {
        let arrived = match &*self.list {
            [] => true,
            [(first, _)] => metadata.contains_key(first),
            [.., (last, value)] => metadata.get(last) == Some(value),
        };
        if arrived { Ok(()) } else { Err("the metadata did not arrive") }
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
        let four = Pairs::new(4);
        four.put(&mut metadata);
        assert_eq!(metadata.len(), 4);
        let first = metadata.get("x-bench-pair-00").cloned();
        four.put(&mut metadata);
        assert!(
            metadata.len() == 4 && metadata.get("x-bench-pair-00") != first.as_ref(),
            "a number of its own"
        );
        assert!(Pairs::new(1).look(&metadata).is_ok() && Pairs::new(1).look(&MetadataMap::new()).is_err());
        assert!(Pairs::new(4).look(&metadata).is_ok());
        assert!(Pairs::new(5).look(&metadata).is_err());
    }
}
