//! Buffers for received messages, of which others can copy fields quickly.
//!
//! Some x86 processors (AMD's Zen 3 and Zen 4) copy with `rep movsb` at a sixteenth of their speed where, counted within a page,
//! the destination lies 1 to 15 bytes behind the source; glibc before 2.39 uses that for copies from 4 or 8 KiB on. A field
//! as long as a power of two is copied out of a message to the allocation behind it, and that is just how far it lies: 16
//! bytes behind the message's beginning, which the field follows after a few. Measured: 20 µs for 64 KiB in place of 1.2.
//! So a long message's allocation is longer than the message.

//!
//! A message in several chunks is put together in one buffer while it comes: each chunk lies right behind the one before, so that
//! [`join`] needs no copy.

use bytes::BytesMut;

/// Shorter copies are made in another way.
const LONG_LEN: usize = 4 * 1024;
/// By how much: far more than what stands before a message's first field.
const GAP_LEN: usize = 240;

/// An empty buffer for a message of `len` bytes, or for a part of one.
#[must_use]
pub(crate) fn message_buffer(len: usize) -> BytesMut {
    BytesMut::with_capacity(if len < LONG_LEN { len } else { len + GAP_LEN })
}

/// Appends a chunk to those before it of a message of `len` bytes: no copy where it lies right behind them, as the session puts it
/// if the buffer has room. How many bytes were copied.
pub fn join(before: &mut BytesMut, chunk: BytesMut, len: usize) -> usize {
    if before.as_ptr_range().end == chunk.as_ptr() {
        before.unsplit(chunk);
        return 0;
    }
    let moved = if before.capacity() < len { before.len() } else { 0 };
    before.reserve(len.saturating_sub(before.len()));
    before.extend_from_slice(&chunk);
    moved + chunk.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_behind_a_long_message_is_not_a_few_bytes_behind_its_field() {
        // What malloc puts before each allocation, and what it rounds to.
        let next = |len: usize| (message_buffer(len).capacity() + 8).next_multiple_of(16);
        for field_len in [1 << 12, 1 << 16, 1 << 18] {
            for field_at in 2..16 {
                let behind = (next(field_at + field_len) - field_at) % 4096;
                assert!(behind >= 64, "{behind} bytes behind a field of {field_len} at {field_at}");
            }
        }
        assert_eq!(message_buffer(100).capacity(), 100);
    }

    #[test]
    fn chunks_of_one_buffer_are_joined_without_a_copy_and_others_with_one() {
        let mut buffer = message_buffer(10_000);
        let mut cut = |byte: u8| {
            buffer.extend_from_slice(&[byte; 3000]);
            buffer.split()
        };
        let (mut all, second, third) = (cut(1), cut(2), cut(3));
        let place = all.as_ptr();
        assert_eq!([join(&mut all, second, 9000), join(&mut all, third, 9000)], [0, 0]);
        assert!(all.as_ptr() == place && all == [[1; 3000], [2; 3000], [3; 3000]].concat()[..]);
        let (mut all, second, third) = (BytesMut::from("ab"), BytesMut::from("cd"), BytesMut::from("efg"));
        assert_eq!([join(&mut all, second, 7), join(&mut all, third, 7)], [2 + 2, 3]);
        assert_eq!(all, "abcdefg");
    }
}
