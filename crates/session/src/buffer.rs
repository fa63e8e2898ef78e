//! Buffers for received messages, of which others can copy fields quickly.
//!
//! Some x86 processors (AMD's Zen 3 and Zen 4) copy with `rep movsb` at a sixteenth of their speed where, counted within a page,
//! the destination lies 1 to 15 bytes behind the source; glibc before 2.39 uses that for copies from 4 or 8 KiB on. A field
//! as long as a power of two is copied out of a message to the allocation behind it, and that is just how far it lies: 16
//! bytes behind the message's beginning, which the field follows after a few. Measured: 20 µs for 64 KiB in place of 1.2.
//! So a long message's allocation is longer than the message.

use bytes::BytesMut;

/// Shorter copies are made in another way.
const LONG_LEN: usize = 4 * 1024;
/// By how much: far more than what stands before a message's first field.
const GAP_LEN: usize = 240;

/// An empty buffer for a message of `len` bytes, or for a part of one.
#[must_use]
pub fn message_buffer(len: usize) -> BytesMut {
    BytesMut::with_capacity(if len < LONG_LEN { len } else { len + GAP_LEN })
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
}
