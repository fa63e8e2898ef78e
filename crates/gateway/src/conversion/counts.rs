//! What became of the messages of methods that take objects.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What became of one message of a method that takes objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conversion {
    /// A request was handed over as an object.
    Handed,
    /// A request went as bytes, since its call began before the process had said that the method takes objects. One is counted for each
    /// method of each backend connection.
    First,
    /// A request went as bytes, since the tables of its types were on their way.
    Asked,
    /// A request had no object, since there are no tables of its types that can be used.
    NoTables,
    /// A request went as bytes, since its call says how messages are compressed or may be, and that is left to the handler's side: the
    /// server does not take that encoding, or nobody has said that there is [`Room`](super::Room).
    Compressed,
    /// A request was compressed and can't be inflated. Its call has ended.
    Garbled,
    /// A request had no object, since that would be longer than objects travel.
    TooLong,
    /// A request went as bytes, since it is no message of its type.
    Malformed,
    /// An answer came as an object, and was encoded, or failed over as one.
    Encoded,
    /// An answer came as bytes, although its request was of a method whose tables are here.
    Bytes,
    /// An answer came as an object that is refused.
    Unsound,
}

impl Conversion {
    /// Each of them once.
    pub(crate) const ALL: [Conversion; 11] = [
        Conversion::Handed,
        Conversion::First,
        Conversion::Asked,
        Conversion::NoTables,
        Conversion::Compressed,
        Conversion::Garbled,
        Conversion::TooLong,
        Conversion::Malformed,
        Conversion::Encoded,
        Conversion::Bytes,
        Conversion::Unsound,
    ];

    /// Of which messages it is: `request` or `answer`.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Conversion::Encoded | Conversion::Bytes | Conversion::Unsound => "answer",
            _ => "request",
        }
    }

    /// In one word, for figures: `object`, or why not.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Conversion::Handed | Conversion::Encoded => "object",
            Conversion::First => "first",
            Conversion::Asked => "asked",
            Conversion::NoTables => "no_tables",
            Conversion::Compressed => "compressed",
            Conversion::Garbled => "garbled",
            Conversion::TooLong => "too_long",
            Conversion::Malformed => "malformed",
            Conversion::Bytes => "bytes",
            Conversion::Unsound => "unsound",
        }
    }
}

/// Counts messages by what became of them. Clones count the same.
#[derive(Clone, Default)]
pub(crate) struct Conversions {
    counts: Arc<[AtomicU64; Conversion::ALL.len()]>,
}

impl Conversions {
    pub(crate) fn add(&self, conversion: Conversion) {
        self.counts[conversion as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many messages had this conversion.
    pub(crate) fn count(&self, conversion: Conversion) -> u64 {
        self.counts[conversion as usize].load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Conversions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(Conversion::ALL.iter().map(|conversion| (conversion, self.count(*conversion))))
            .finish()
    }
}
