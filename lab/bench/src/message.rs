//! The messages of `tollfree-lab bench echo`: what a call carries, where its bytes come from, and what reads every field of it.

use std::path::Path;

use tollfree_measure::axis;
use tollfree_processor::typed::{Key, Kind, ListView, MapView};

use crate::BenchError;
use crate::schemas;
use crate::split::SplitMessage;

axis! {
    /// What a call carries, there and back.
    Message, "message", {
        /// Bytes in one field, which the reply brings back: nothing is read.
        Probe = "probe",
        /// bench3's M3 of HyperProtoBench, 845 bytes in the corpus.
        M3 = "M3",
        /// Different orders of a shop by turns, 1.1 KB each.
        Order = "order",
        /// A descriptor set of 80 KB and 14,621 fields: bench2's of HyperProtoBench.
        Fds = "fds",
        /// The same; the reply is not built of fields, but is a copy of the request.
        FdsCopy = "fds-copy",
    }
}

/// The descriptor set that is a message itself.
const FDS_SCHEMA: &str = "bench2";

impl Message {
    /// The messages' bytes: those of the corpus in `dir` or in a directory there, else kept or generated ones. None of the probe, whose
    /// bytes are made by their number.
    pub(crate) fn samples(self, dir: Option<&Path>) -> Result<Vec<Vec<u8>>, BenchError> {
        let unreadable = |error| BenchError::Refused(format!("the orders cannot be read: {error}"));
        match self {
            Message::Probe => Ok(Vec::new()),
            Message::M3 => match found(dir, "bench3/M3.binpb")? {
                Some(bytes) => Ok(vec![bytes]),
                None => Ok(vec![SplitMessage::M3.bytes(None)?]),
            },
            Message::Order => {
                let bytes = found(dir, "order.bin")?;
                let orders = delimited(bytes.as_deref().unwrap_or(ORDERS)).map_err(unreadable)?;
                Ok(orders.into_iter().map(<[u8]>::to_vec).collect())
            }
            Message::Fds | Message::FdsCopy => {
                let kept = || schemas::kept(FDS_SCHEMA).map(<[u8]>::to_vec);
                Ok(vec![found(dir, &format!("{FDS_SCHEMA}.fds.binpb"))?.map_or_else(kept, Ok)?])
            }
        }
    }
}

/// A file of a corpus, which lies in `dir` or in one of its directories. None if no corpus was named, or that one does not have the file.
fn found(dir: Option<&Path>, name: &str) -> Result<Option<Vec<u8>>, BenchError> {
    let Some(dir) = dir else { return Ok(None) };
    let unreadable =
        |path: &Path, error| BenchError::Refused(format!("cannot read {}: {error}", path.display()));
    let entries = std::fs::read_dir(dir).map_err(|error| unreadable(dir, error))?;
    let inner = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let mut places = vec![dir.to_owned()];
    places.extend(inner.filter(|path| path.is_dir()));
    let Some(path) = places.iter().map(|place| place.join(name)).find(|path| path.is_file()) else {
        return Ok(None);
    };
    std::fs::read(&path).map(Some).map_err(|error| unreadable(&path, error))
}

/// Different orders of a shop, each behind its length.
pub const ORDERS: &[u8] = include_bytes!("../../../tests/view-stubs/samples/order.bin");

/// Messages that lie one behind another, each behind its length.
///
/// # Errors
/// A length that is none.
pub fn delimited(mut rest: &[u8]) -> Result<Vec<&[u8]>, prost::DecodeError> {
    let mut all = Vec::new();
    while !rest.is_empty() {
        let len = prost::decode_length_delimiter(&mut rest)?;
        let (message, behind) = rest.split_at(len.min(rest.len()));
        all.push(message);
        rest = behind;
    }
    Ok(all)
}

/// What is read of a string: its first and its last byte.
#[inline]
#[must_use]
pub fn ends(bytes: &[u8]) -> u64 {
    bytes.first().map_or(0, |byte| u64::from(*byte)) + bytes.last().map_or(0, |byte| u64::from(*byte))
}

/// Reads every field: numbers are summed, and of strings the first and the last byte. Structs and views of one message give the same sum.
pub(crate) trait Read {
    fn read(&self) -> u64;
}

/// Numbers, as 64 bits.
macro_rules! numbers {
    ($($ty:ty: $value:ident => $bits:expr;)+) => { $(
        impl Read for $ty {
            #[inline]
            fn read(&self) -> u64 {
                let $value = *self;
                $bits
            }
        }
    )+ };
}

numbers! {
    bool: value => value.into();
    i32: value => i64::from(value) as u64;
    i64: value => value as u64;
    u32: value => value.into();
    u64: value => value;
    f32: value => value.to_bits().into();
    f64: value => value.to_bits();
    &str: value => ends(value.as_bytes());
    &[u8]: value => ends(value);
    tollfree_processor::Text<'_>: value => ends(value.as_bytes());
}

impl Read for String {
    #[inline]
    fn read(&self) -> u64 {
        ends(self.as_bytes())
    }
}

impl Read for Vec<u8> {
    #[inline]
    fn read(&self) -> u64 {
        ends(self)
    }
}

impl<T: Read> Read for Option<T> {
    #[inline]
    fn read(&self) -> u64 {
        self.as_ref().map_or(0, Read::read)
    }
}

/// Adds up what reading each gives.
fn sum<T: Read>(parts: impl Iterator<Item = T>) -> u64 {
    parts.fold(0, |sum, part| sum.wrapping_add(part.read()))
}

impl<T: Read> Read for &T {
    #[inline]
    fn read(&self) -> u64 {
        T::read(self)
    }
}

impl<K: Read, V: Read> Read for (K, V) {
    #[inline]
    fn read(&self) -> u64 {
        self.0.read().wrapping_add(self.1.read())
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(&self) -> u64 {
        sum(self.iter())
    }
}

impl<K: Read, V: Read> Read for std::collections::HashMap<K, V> {
    fn read(&self) -> u64 {
        sum(self.iter())
    }
}

impl<'a, K: Kind> Read for ListView<'a, K>
where
    K::Value<'a>: Read,
{
    fn read(&self) -> u64 {
        sum(self.iter())
    }
}

impl<'a, K: Key, V: Kind> Read for MapView<'a, K, V>
where
    K::Value<'a>: Read,
    V::Value<'a>: Read,
{
    fn read(&self) -> u64 {
        sum(self.iter())
    }
}

/// Reads and builds each type of the messages.
#[allow(clippy::all, deprecated, unused_mut, unused_variables, reason = "generated code")]
pub(crate) mod walks {
    use tollfree_processor::BuildError;

    use super::Read;

    include!(concat!(env!("OUT_DIR"), "/walks.rs"));
}

#[cfg(test)]
mod tests {
    use tollfree_processor::typed::{self, Builder, Owned};
    use tollfree_processor::{Arenas, Limits};

    use super::*;
    use crate::objects::views;

    /// Decodes, reads and builds each message of a kind by prost's structs and by views.
    fn both_agree<P, V>(
        message: Message,
        build: impl for<'v, 'd> Fn(V::View<'v>, V::Mut<'d>) -> Result<(), tollfree_processor::BuildError>,
        read: impl for<'v> Fn(V::View<'v>) -> u64,
    ) where
        P: prost::Message + Default + PartialEq + Read,
        V: typed::Message,
    {
        let arenas = Arenas::new(4 << 20, 4);
        let samples = message.samples(None).unwrap();
        assert!(!samples.is_empty());
        for bytes in samples {
            let theirs = P::decode(&bytes[..]).unwrap();
            let ours = Owned::<V>::decode(&bytes, arenas.take(), &Limits::default()).unwrap();
            assert_eq!(read(ours.view()), theirs.read(), "{message}");
            let mut builder = Builder::<V>::new(arenas.take()).unwrap();
            build(ours.view(), builder.edit()).unwrap();
            let built = builder.freeze().unwrap();
            let mut buffer = tollfree_processor::EncodeBuffer::new();
            assert!(P::decode(built.object().encode(&mut buffer).unwrap()).unwrap() == theirs, "{message}");
        }
    }

    #[test]
    fn structs_and_views_read_and_build_the_same() {
        both_agree::<crate::hyperprotobench::M3, views::hyperprotobench::M3>(
            Message::M3,
            walks::build_hyperprotobench_m3,
            |view| view.read(),
        );
        both_agree::<crate::shop::Order, views::shop::Order>(
            Message::Order,
            walks::build_shop_order,
            |view| view.read(),
        );
        both_agree::<crate::fds::FileDescriptorSet, views::fds::FileDescriptorSet>(
            Message::Fds,
            walks::build_fds_filedescriptorset,
            |view| view.read(),
        );
    }

    #[test]
    fn a_corpus_is_looked_for_where_it_was_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("inner/bench3")).unwrap();
        std::fs::write(dir.path().join("inner/bench3/M3.binpb"), b"\x08\x01").unwrap();
        assert_eq!(Message::M3.samples(Some(dir.path())).unwrap(), [b"\x08\x01"]);
        assert!(Message::Order.samples(Some(dir.path())).unwrap().len() > 1, "it has none: kept ones");
        let away = Message::M3.samples(Some(Path::new("/nowhere"))).unwrap_err().to_string();
        assert!(away.contains("/nowhere"), "{away}");
    }
}
