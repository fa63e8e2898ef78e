//! Messages that are deferred to a session, which encodes them while it sends them: the bytes of a long field go from there into shared
//! memory, and nowhere else.
//!
//! A deferred message is shared, so that it is still there when a call is made again.

use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use tollfree_driver_tokio::{DeferredEncoding, Encoded, OutgoingMessage, PeerPool, RangeWriter, Written};
use tonic::Status;

use crate::message::batching::Row;
use crate::message::encoding::encode;
use crate::message::form::{Form, Ready as _};
use crate::message::out_of_band::{Large, Takes};
use crate::message::payloads::{Outlet, Sharing};

/// A message in form `F` that doesn't change any more.
pub(crate) struct Deferred<F, M> {
    pub(crate) message: M,
    /// Its bytes, where it travels as an object.
    object: Option<Encoded>,
    /// How long it may be in bytes.
    len_max: Option<usize>,
    form: PhantomData<F>,
}

impl<F, M> Deferred<F, M> {
    pub(crate) fn new(message: M, object: Option<Encoded>, len_max: Option<usize>) -> Arc<Deferred<F, M>> {
        Arc::new(Deferred { message, object, len_max, form: PhantomData })
    }
}

impl<F: Form<M>, M: Send + Sync + 'static> Large for Deferred<F, M> {
    fn encode(
        self: Arc<Self>,
        sharing: &Sharing,
        peer: PeerPool,
        outlet: &dyn Outlet,
        takes: Takes<'_>,
    ) -> Result<OutgoingMessage, Status> {
        if let Some(object) = self.object.as_ref().filter(|_| !matches!(takes, Takes::Bytes))
            && let Some(object) = sharing.object(object.clone(), self.len_max, peer, outlet)?
        {
            return Ok(object);
        }
        let deferred = F::TAKE.map(|_| -> Arc<dyn DeferredEncoding> { self.clone() });
        F::ready(&self.message, |ready| sharing.encode(ready, self.len_max, peer, outlet, deferred))
    }

    fn append_object(&self, row: &mut Row<'_>, takes: Takes<'_>) -> bool {
        let object = self.object.as_deref().filter(|_| !matches!(takes, Takes::Bytes));
        object.is_some_and(|object| row.push(object))
    }
}

/// A longer object is deferred: it would be copied once more.
const SHORT_LEN_MAX: usize = 1024;

/// A short object on its way to a session. Its message is gone: the arena that it was built in is free for the next.
pub(crate) struct Short<F, M> {
    object: Box<[u8]>,
    /// How long its encoding may be in bytes.
    len_max: Option<usize>,
    form: PhantomData<fn(F, M)>,
}

impl<F: Form<M>, M: Send + Sync + 'static> Short<F, M> {
    /// `None`: the message is no object, or not a short one within the limit.
    pub(crate) fn of(message: &M, len_max: Option<usize>) -> Option<Arc<Short<F, M>>> {
        let limit = SHORT_LEN_MAX.min(len_max.unwrap_or(usize::MAX));
        let object = F::object_bytes(message).filter(|object| object.len() <= limit)?.into();
        Some(Arc::new(Short { object, len_max, form: PhantomData }))
    }

    pub(crate) fn len(&self) -> usize {
        self.object.len()
    }
}

impl<F: Form<M>, M: Send + Sync + 'static> Large for Short<F, M> {
    fn encode(
        self: Arc<Self>,
        sharing: &Sharing,
        peer: PeerPool,
        outlet: &dyn Outlet,
        takes: Takes<'_>,
    ) -> Result<OutgoingMessage, Status> {
        if !matches!(takes, Takes::Bytes) {
            let object = Encoded::write(self.len(), |buffer| buffer.extend_from_slice(&self.object));
            if let Some(object) = sharing.object(object, self.len_max, peer, outlet)? {
                return Ok(object);
            }
        }
        // It goes to another session than it was made for.
        let message = F::read_object(&self.object, usize::MAX, None)?;
        F::ready(&message, |ready| sharing.encode(ready, self.len_max, peer, outlet, None))
    }

    fn append_object(&self, row: &mut Row<'_>, takes: Takes<'_>) -> bool {
        !matches!(takes, Takes::Bytes) && row.push(&self.object)
    }
}

impl<F: Form<M>, M: Send + Sync + 'static> DeferredEncoding for Deferred<F, M> {
    fn write_range(&self, len: usize, from: usize, range: &mut [u8]) -> Written {
        let mut writer = RangeWriter::new(len, from, range);
        // A message that has no encoding writes nothing, and is refused for its length.
        let _ = F::ready(&self.message, |ready| {
            ready.write(&mut writer);
            Ok(())
        });
        let (len, is_crumbly) = (writer.written_len(), writer.is_crumbly());
        Written { len, is_crumbly, whole: writer.into_whole().map(Bytes::from) }
    }

    fn encode(&self, len: usize) -> Bytes {
        F::ready(&self.message, |ready| Ok(encode(ready, len).into_bytes())).unwrap_or_default()
    }
}

/// Makes a program's message ready for a session. A large one is taken out of its place for that where it can be, and is `deferred`
/// from then on.
///
/// # Errors
/// As [`Sharing::encode`].
#[inline]
pub(crate) fn send<F: Form<M>, M: Send + Sync + 'static>(
    message: &mut M,
    deferred: &mut Option<Arc<Deferred<F, M>>>,
    sharing: &Sharing,
    len_max: Option<usize>,
    peer: PeerPool,
    outlet: &dyn Outlet,
) -> Result<OutgoingMessage, Status> {
    if let Some(deferred) = deferred {
        return Large::encode(deferred.clone(), sharing, peer, outlet, Takes::Bytes);
    }
    let sent = F::ready(message, |ready| match (sharing.encode_short(ready, len_max)?, F::TAKE) {
        (Some(short), _) => Ok(Ok(OutgoingMessage::plain(short))),
        (None, Some(take)) => Ok(Err(take)),
        (None, None) => sharing.encode(ready, len_max, peer, outlet, None).map(Ok),
    })?;
    match sent {
        Ok(outgoing) => Ok(outgoing),
        Err(take) => {
            let deferred = deferred.insert(Deferred::new(take(message), None, len_max)).clone();
            Large::encode(deferred, sharing, peer, outlet, Takes::Bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    use super::*;
    use crate::message::codec::Prost;

    /// A field of every kind that prost writes in a way of its own.
    #[derive(Clone, PartialEq, prost::Message)]
    struct Mixed {
        #[prost(bytes = "vec", tag = "1")]
        long: Vec<u8>,
        #[prost(bytes = "bytes", tag = "2")]
        shared: Bytes,
        #[prost(string, repeated, tag = "3")]
        texts: Vec<String>,
        #[prost(uint64, repeated, tag = "4")]
        packed: Vec<u64>,
        #[prost(double, repeated, packed = "false", tag = "5")]
        apart: Vec<f64>,
        #[prost(btree_map = "string, message", tag = "6")]
        named: BTreeMap<String, Mixed>,
        #[prost(message, optional, boxed, tag = "7")]
        inner: Option<Box<Mixed>>,
        #[prost(fixed32, tag = "8")]
        last: u32,
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let len = prop_oneof![0..20usize, 100..3000usize];
        (len, any::<u8>()).prop_map(|(len, salt)| (0..len).map(|at| (at as u8).wrapping_mul(salt)).collect())
    }

    fn mixed() -> impl Strategy<Value = Mixed> {
        let flat = (
            bytes(),
            bytes(),
            vec(".{0,40}", 0..4),
            vec(any::<u64>(), 0..200),
            vec(any::<f64>(), 0..9),
            any::<u32>(),
        );
        let flat = flat.prop_map(|(long, shared, texts, packed, apart, last)| {
            let apart = apart.into_iter().filter(|value| !value.is_nan()).collect();
            Mixed { long, shared: shared.into(), texts, packed, apart, last, ..Mixed::default() }
        });
        flat.prop_recursive(3, 12, 3, |leaf| {
            (leaf.clone(), btree_map("[a-z]{1,9}", leaf.clone(), 0..3), proptest::option::of(leaf))
                .prop_map(|(flat, named, inner)| Mixed { named, inner: inner.map(Box::new), ..flat })
        })
    }

    fn deferred(message: Mixed) -> (Arc<Deferred<Prost, Mixed>>, Vec<u8>) {
        let encoding = prost::Message::encode_to_vec(&message);
        (Deferred::new(message, None, None), encoding)
    }

    proptest! {
        #[test]
        fn ranges_of_any_length_are_those_of_the_encoding(message in mixed(), lens in vec(1..5000usize, 1..6)) {
            let (deferred, encoding) = deferred(message);
            let len = encoding.len();
            let (mut from, mut lens) = (0, lens.iter().cycle());
            while from < len {
                let mut range = vec![0xaa; (len - from).min(*lens.next().unwrap())];
                let written = deferred.write_range(len, from, &mut range);
                prop_assert_eq!(&range, &encoding[from..from + range.len()]);
                prop_assert_eq!(written.len, len);
                if let Some(whole) = written.whole {
                    prop_assert_eq!(whole, &encoding);
                }
                from += range.len();
            }
            prop_assert_eq!(DeferredEncoding::encode(&*deferred, len), encoding);
        }
    }

    #[test]
    fn what_consists_of_long_fields_is_written_by_ranges_and_what_does_not_is_gathered() {
        let long = Mixed { long: vec![1; 1 << 20], shared: vec![2; 1 << 20].into(), ..Mixed::default() };
        let short = Mixed { packed: vec![u64::MAX; 100_000], ..Mixed::default() };
        for (message, is_crumbly) in [(long, false), (short, true)] {
            let (deferred, encoding) = deferred(message);
            let mut range = vec![0; 100_000];
            let written = deferred.write_range(encoding.len(), 0, &mut range);
            assert_eq!((written.is_crumbly, written.whole.is_some()), (is_crumbly, is_crumbly));
        }
    }

    #[test]
    fn a_large_message_is_deferred_once_and_a_short_one_stays() {
        struct Nowhere;
        impl Outlet for Nowhere {
            fn segmented_messages_in_flight(&self) -> usize {
                0
            }
            fn look_for_taken(&self) -> bool {
                false
            }
            fn process(&self) -> u32 {
                0
            }
        }
        let sharing = Sharing::default();
        let (mut message, mut deferred) =
            (Mixed { long: vec![1; 1000], ..Mixed::default() }, None::<Arc<Deferred<Prost, _>>>);
        let sent = send(&mut message, &mut deferred, &sharing, None, PeerPool::None, &Nowhere).unwrap();
        assert_eq!((sent.len(), message.long.len(), deferred.is_none()), (1003, 1000, true));
        message.long = vec![2; 100_000];
        let expected = prost::Message::encode_to_vec(&message);
        for _ in 0..2 {
            let sent = send(&mut message, &mut deferred, &sharing, None, PeerPool::None, &Nowhere).unwrap();
            assert_eq!((sent.to_bytes(), message.long.len()), (expected.clone().into(), 0), "it was taken");
            assert_eq!(deferred.as_ref().map(|deferred| deferred.message.long.len()), Some(100_000));
        }
        let mut message = Mixed { long: vec![2; 100_000], ..Mixed::default() };
        let refused =
            send::<Prost, _>(&mut message, &mut None, &sharing, Some(99_999), PeerPool::None, &Nowhere);
        assert_eq!(refused.unwrap_err().code(), tonic::Code::OutOfRange);
    }
}
