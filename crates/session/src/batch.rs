//! Several messages of a stream in one frame: gRPC's length-prefixed messages, one after another. All of them are encoded, or all of
//! them are flat messages.
//!
//! Both ends walk the prefixes, and never look at what is behind them.

use crate::{GRPC_PREFIX_LEN, OBJECT_PREFIX};

/// Walks whole messages with gRPC's prefix: the length of each, its prefix included. Ends before the first that is not whole, or is
/// not of the batch's sort.
pub(crate) struct Walk<'a> {
    rest: &'a [u8],
    /// The least first byte of a message of this sort, and how much more it may be.
    least: u8,
    beyond: u8,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(bytes: &'a [u8], of_objects: bool) -> Walk<'a> {
        let (least, beyond) = if of_objects { (OBJECT_PREFIX, 0) } else { (0, 1) };
        Walk { rest: bytes, least, beyond }
    }
}

impl Iterator for Walk<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let [flag, len @ ..] = *self.rest.first_chunk::<GRPC_PREFIX_LEN>()?;
        if flag.wrapping_sub(self.least) > self.beyond {
            return None;
        }
        let len = GRPC_PREFIX_LEN.checked_add(u32::from_be_bytes(len) as usize)?;
        self.rest = self.rest.get(len..)?;
        Some(len)
    }
}

/// How many bytes of the front of a batch, in whole messages, are no more than `max`, and how many messages that are.
pub(crate) fn fitting(bytes: &[u8], max: usize, of_objects: bool) -> (usize, u32) {
    let (mut len, mut count) = (0, 0);
    for message in Walk::new(bytes, of_objects) {
        if len + message > max {
            break;
        }
        len += message;
        count += 1;
    }
    (len, count)
}

/// Whether these are exactly `count` messages of that sort.
pub(crate) fn holds(bytes: &[u8], count: u32, of_objects: bool) -> bool {
    fitting(bytes, bytes.len(), of_objects) == (bytes.len(), count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(messages: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (flag, message) in messages {
            bytes.push(*flag);
            bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
            bytes.extend_from_slice(message);
        }
        bytes
    }

    #[test]
    fn a_batch_is_cut_between_messages() {
        let bytes = framed(&[(0, b"one"), (1, b""), (0, b"three")]);
        assert_eq!(bytes.len(), 8 + 5 + 10);
        for (max, fits) in
            [(0, (0, 0)), (7, (0, 0)), (8, (8, 1)), (12, (8, 1)), (13, (13, 2)), (22, (13, 2)), (23, (23, 3))]
        {
            assert_eq!(fitting(&bytes, max, false), fits, "{max}");
        }
        let mixed = framed(&[(2, b"one"), (2, b""), (0, b"two"), (2, b"three")]);
        assert_eq!(fitting(&mixed, usize::MAX, true), (13, 2), "another sort ends it");
        assert_eq!(fitting(&mixed, usize::MAX, false), (0, 0));
    }

    #[test]
    fn a_batch_holds_what_it_says() {
        for (of_objects, flags, others) in
            [(false, [0, 1], [2, 3, 0x80, 0xff]), (true, [2, 2], [0, 1, 3, 0xff])]
        {
            let holds = |bytes: &[u8], count| holds(bytes, count, of_objects);
            let bytes = framed(&[(flags[0], b"one"), (flags[1], b"")]);
            assert!(holds(&bytes, 2));
            for count in [0, 1, 3, u32::MAX] {
                assert!(!holds(&bytes, count), "{count}");
            }
            for len in 0..bytes.len() {
                assert!(!holds(&bytes[..len], 2), "cut after {len}");
            }
            for flag in others {
                assert!(!holds(&framed(&[(flags[0], b"one"), (flag, b"two")]), 2), "{flag}");
                assert!(!holds(&framed(&[(flag, b"one"), (flags[0], b"two")]), 2), "{flag}");
            }
            let mut lies = bytes.clone();
            lies[1..5].fill(0xff);
            assert!(!holds(&lies, 2), "a length beyond all");
        }
    }
}
