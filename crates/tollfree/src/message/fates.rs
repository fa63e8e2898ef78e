//! What became of the messages of methods that take objects, at a shepherd.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What became of one message of a method that takes objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// A request was handed over as an object.
    Handed,
    /// A request went as bytes, since its call began before the process had said that the method takes objects. One is counted for each
    /// method of each worker.
    First,
    /// A request went as bytes, since the tables of its types were on their way.
    Asked,
    /// A request had no object, since there are no tables of its types that can be used.
    NoTables,
    /// A request went as bytes, since its call says how messages are compressed or may be, and that is left to the handler's side: the
    /// server does not take that encoding, or nobody has said that there is room ([`Handing::room`](crate::shepherd::Handing::room)).
    Compressed,
    /// A request was compressed and can't be inflated. Its call has ended.
    Garbled,
    /// A request had no object, since that would be longer than objects travel.
    TooLong,
    /// A request went as bytes, since it is no message of its type.
    Malformed,
    /// An answer came as an object, and was encoded, or handed on as one.
    Encoded,
    /// An answer came as bytes, although its request was of a method whose tables are here.
    Bytes,
    /// An answer came as an object that is refused.
    Unsound,
}

impl Fate {
    /// Each of them once.
    pub const ALL: [Fate; 11] = [
        Fate::Handed,
        Fate::First,
        Fate::Asked,
        Fate::NoTables,
        Fate::Compressed,
        Fate::Garbled,
        Fate::TooLong,
        Fate::Malformed,
        Fate::Encoded,
        Fate::Bytes,
        Fate::Unsound,
    ];

    /// Of which messages it is: `request` or `answer`.
    pub fn message(self) -> &'static str {
        match self {
            Fate::Encoded | Fate::Bytes | Fate::Unsound => "answer",
            _ => "request",
        }
    }

    /// In one word, for figures: `object`, or why not.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Handed | Fate::Encoded => "object",
            Fate::First => "first",
            Fate::Asked => "asked",
            Fate::NoTables => "no_tables",
            Fate::Compressed => "compressed",
            Fate::Garbled => "garbled",
            Fate::TooLong => "too_long",
            Fate::Malformed => "malformed",
            Fate::Bytes => "bytes",
            Fate::Unsound => "unsound",
        }
    }
}

/// Counts messages by what became of them. Clones count the same.
#[derive(Clone, Default)]
pub struct Fates {
    counts: Arc<[AtomicU64; Fate::ALL.len()]>,
}

impl Fates {
    pub(crate) fn add(&self, fate: Fate) {
        self.counts[fate as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many messages had this fate.
    pub fn count(&self, fate: Fate) -> u64 {
        self.counts[fate as usize].load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Fates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(Fate::ALL.iter().map(|fate| (fate, self.count(*fate)))).finish()
    }
}

/// What becomes of a request that can't be handed over as an object to a handler that takes those: its object would be too long, or
/// there are no tables of its types that can be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unfit {
    /// It is handed over as bytes, which the business process decodes.
    #[default]
    Bytes,
    /// Its call ends RESOURCE_EXHAUSTED: the business process is to decode nothing.
    Refuse,
}
