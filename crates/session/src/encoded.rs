//! The bytes of encoded messages.
//!
//! A short message is copied into the ring as soon as it is encoded, and decoded soon after it was copied out of one. Its buffer
//! is free again then: its thread puts the next message there, without memory being taken or anything being counted for it.

use std::cell::RefCell;
use std::ops::Deref;

use bytes::{Bytes, BytesMut};

/// Messages up to this length lie in buffers that are used again; longer ones in memory of their own.
const SHORT_LEN_MAX: usize = 1024;
/// Buffers that a thread keeps: as many as it has calls under way, mostly.
const SPARE_COUNT: usize = 64;

thread_local! {
    /// What is left of messages that are gone. The one of the last is the next.
    #[expect(clippy::vec_box, reason = "the boxes are what is used again")]
    static SPARE: RefCell<Vec<Box<Repr>>> = const { RefCell::new(Vec::new()) };
}

/// An encoded message: bytes that others may share, or a buffer that its thread uses again. No larger than a pointer, for it goes
/// from hand to hand.
#[derive(Debug)]
pub struct Encoded(Option<Box<Repr>>);

#[derive(Debug, Default)]
struct Repr {
    /// The message, if others may share it.
    shared: Option<Bytes>,
    /// The message, if not; and a buffer for the next.
    buffer: BytesMut,
    /// Lengths of what stands before the message, where something does.
    before: [u16; 2],
}

impl Encoded {
    /// An empty one, with a buffer of a message before where there is one.
    #[inline]
    fn empty() -> Box<Repr> {
        SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten().unwrap_or_default()
    }

    /// What `write` appends to a buffer; about `len` bytes.
    #[inline]
    pub fn write(len: usize, write: impl FnOnce(&mut BytesMut)) -> Encoded {
        if len > SHORT_LEN_MAX {
            let mut buffer = BytesMut::with_capacity(len);
            write(&mut buffer);
            return buffer.freeze().into();
        }
        let mut repr = Encoded::empty();
        repr.buffer.reserve(SHORT_LEN_MAX);
        write(&mut repr.buffer);
        Encoded(Some(repr))
    }

    /// Says how long the two parts are that stand before the message.
    #[inline]
    pub(crate) fn after(mut self, before: [u16; 2]) -> Encoded {
        if let Some(repr) = &mut self.0 {
            repr.before = before;
        }
        self
    }

    /// Lengths of the two parts that stand before the message.
    #[inline]
    pub(crate) fn before(&self) -> [usize; 2] {
        self.0.as_ref().map_or([0; 2], |repr| repr.before.map(usize::from))
    }

    /// The same bytes, to be shared; a copy of those in a buffer that is used again.
    pub fn into_bytes(mut self) -> Bytes {
        let shared = self.0.as_mut().and_then(|repr| repr.shared.take());
        shared.unwrap_or_else(|| Bytes::copy_from_slice(&self))
    }

    /// The bytes, if they can be shared as they are.
    #[inline]
    pub fn as_shared(&self) -> Option<&Bytes> {
        self.0.as_ref()?.shared.as_ref()
    }
}

/// Gives its buffer back, to the thread that drops it.
impl Drop for Encoded {
    #[inline]
    fn drop(&mut self) {
        let Some(mut repr) = self.0.take() else { return };
        repr.shared = None;
        repr.before = [0; 2];
        if repr.buffer.capacity() <= SHORT_LEN_MAX {
            repr.buffer.clear();
            // A thread that ends has no place for it any more.
            let _ = SPARE.try_with(|spare| {
                let mut spare = spare.borrow_mut();
                if spare.len() < SPARE_COUNT {
                    spare.push(repr);
                }
            });
        }
    }
}

impl Clone for Encoded {
    fn clone(&self) -> Encoded {
        match self.as_shared() {
            Some(bytes) => bytes.clone().into(),
            None => Encoded::write(self.len(), |buffer| buffer.extend_from_slice(self)),
        }
    }
}

impl From<Bytes> for Encoded {
    #[inline]
    fn from(bytes: Bytes) -> Encoded {
        let mut repr = Encoded::empty();
        repr.shared = Some(bytes);
        Encoded(Some(repr))
    }
}

impl Deref for Encoded {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self.0.as_deref() {
            Some(Repr { shared: Some(bytes), .. }) => bytes,
            Some(Repr { buffer, .. }) => buffer,
            None => &[],
        }
    }
}

impl AsRef<[u8]> for Encoded {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &[u8]) -> Encoded {
        Encoded::write(text.len(), |buffer| buffer.extend_from_slice(text))
    }

    #[test]
    fn a_buffer_is_used_again_when_its_message_is_gone_and_not_before() {
        let first = written(&[1; 100]);
        let second = written(&[2; 100]);
        assert_eq!((&*first, &*second), (&[1; 100][..], &[2; 100][..]));
        let place = second.as_ptr();
        drop(first);
        drop(second);
        let third = written(&[3; 50]);
        assert_eq!((third.as_ptr(), &*third), (place, &[3; 50][..]));
    }

    #[test]
    fn a_copy_has_bytes_of_its_own() {
        let first = written(b"first");
        let (copy, bytes) = (first.clone(), first.into_bytes());
        let _second = written(b"second");
        assert_eq!((&*copy, &*bytes), (&b"first"[..], &b"first"[..]));
    }

    #[test]
    fn long_messages_and_too_many_leave_nothing_behind() {
        drop(written(&[1; SHORT_LEN_MAX + 1]));
        drop(Encoded::write(1, |buffer| buffer.resize(SHORT_LEN_MAX + 1, 0)));
        SPARE.with_borrow(|spare| assert!(spare.is_empty()));
        drop((0..2 * SPARE_COUNT).map(|_| written(b"short")).collect::<Vec<_>>());
        SPARE.with_borrow(|spare| assert_eq!(spare.len(), SPARE_COUNT));
    }

    #[test]
    fn shared_bytes_are_not_copied() {
        let bytes = Bytes::from(vec![7; 100]);
        let encoded = Encoded::from(bytes.clone());
        let place = bytes.as_ptr();
        assert_eq!(encoded.as_shared().map(|bytes| bytes.as_ptr()), Some(place));
        assert_eq!(encoded.into_bytes().as_ptr(), place);
        assert!(written(b"short").as_shared().is_none());
    }
}
