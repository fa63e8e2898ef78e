//! How long requests and replies of calls between services are, encoded: Dagger's figure 2.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Messages by their length in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lengths(BTreeMap<u64, u64>);

/// Requests that a service got, and replies that it gave: of one call in a few.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Requests.
    pub requests: Lengths,
    /// Replies; of calls that were answered.
    pub replies: Lengths,
}

/// Lengths are kept as they are up to this one, and above it to within a part of so many.
const EXACT_LEN_MAX: u64 = 2048;
const PARTS: u64 = 64;

/// A length, or one that is a little more.
fn rounded(len: u64) -> u64 {
    match len {
        ..=EXACT_LEN_MAX => len,
        _ => len.next_multiple_of(len.next_power_of_two() / 2 / PARTS),
    }
}

impl Lengths {
    fn add(&mut self, len: usize) {
        *self.0.entry(rounded(len as u64)).or_default() += 1;
    }

    pub(crate) fn merge(&mut self, other: &Lengths) {
        for (len, count) in &other.0 {
            *self.0.entry(*len).or_default() += count;
        }
    }

    /// Messages.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.values().sum()
    }

    /// Each length, and how many messages have it.
    pub fn pairs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(len, count)| (*len, *count))
    }

    /// The share of messages of at most so many bytes; `None` where there are none.
    #[must_use]
    pub fn share_up_to(&self, len: u64) -> Option<f64> {
        let all = self.count();
        (all > 0).then(|| self.0.range(..=len).map(|(_, count)| count).sum::<u64>() as f64 / all as f64)
    }

    /// The length that a share of the messages doesn't exceed, from 0 to 1; 0 where there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (len, count) in self.pairs() {
            seen += count;
            if seen >= wanted {
                return len;
            }
        }
        0
    }
}

impl Sizes {
    pub(crate) fn merge(&mut self, other: &Sizes) {
        self.requests.merge(&other.requests);
        self.replies.merge(&other.replies);
    }
}

/// Counts as it goes.
#[derive(Debug, Default)]
pub(crate) struct SizeCounters(Mutex<Sizes>);

impl SizeCounters {
    pub(crate) fn request(&self, len: usize) {
        self.0.lock().requests.add(len);
    }

    pub(crate) fn reply(&self, len: usize) {
        self.0.lock().replies.add(len);
    }

    pub(crate) fn read(&self) -> Sizes {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_counted_and_long_ones_are_rounded_up_a_little() {
        let mut lengths = Lengths::default();
        [0, 10, 10, 64, 2048, 2049, 1_000_000].into_iter().for_each(|len| lengths.add(len));
        assert_eq!(lengths.count(), 7);
        assert_eq!(lengths.pairs().next(), Some((0, 1)));
        assert_eq!([0.0, 0.5, 0.7].map(|share| lengths.quantile(share)), [0, 64, 2048]);
        assert_eq!(lengths.share_up_to(64), Some(4.0 / 7.0));
        let longest = lengths.quantile(1.0);
        assert!((1_000_000..1_020_000).contains(&longest), "{longest}");
        assert_eq!((Lengths::default().share_up_to(1), Lengths::default().quantile(0.5)), (None, 0));
        let mut twice = lengths.clone();
        twice.merge(&lengths);
        assert_eq!((twice.count(), twice.quantile(0.5)), (14, 64));
    }
}
