//! Bytes that belong to the program until it releases them: messages and metadata that came, and memory of its own that it lends.

use std::ffi::{c_int, c_void};

use tollfree_driver_loop::Message;
use tollfree_layout::errors;

use crate::error::{Failure, run};
use crate::handles::Handles;
use crate::pointers::Bytes;

/// A share in bytes that the library keeps: `{0}` stands for none. Each is released once, in any thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    id: u64,
}

/// Bytes, and who keeps them. What an event gives is the program's to release, unless `buffer` is `{0}`. What a function is passed is
/// copied where `buffer` is `{0}`; else `bytes` lie in the buffer, of which the library takes a share of its own: the program's is the
/// program's to release, before or after.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    bytes: Bytes<'a>,
    buffer: Buffer,
}

/// Called once, when nobody needs the memory any more: in the function of the library in which the last share in it goes, so in a thread
/// that the program called in. It may release buffers and wake loops; it must neither throw nor jump out.
pub type Release = Option<extern "C" fn(argument: *mut c_void)>;

static BUFFERS: Handles<bytes::Bytes> =
    Handles::new(errors::USE_BUFFER, "this buffer was released, or never was: release each share once");

impl Buffer {
    const NONE: Buffer = Buffer { id: 0 };
}

impl Payload<'_> {
    pub(crate) const EMPTY: Payload<'static> = Payload { bytes: Bytes::EMPTY, buffer: Buffer::NONE };

    /// Keeps what came for the program.
    pub(crate) fn keep(bytes: bytes::Bytes) -> Result<Payload<'static>, Failure> {
        if bytes.is_empty() {
            return Ok(Payload::EMPTY);
        }
        let seen = Bytes::for_c(&bytes);
        Ok(Payload { bytes: seen, buffer: Buffer { id: BUFFERS.insert(bytes)? } })
    }

    /// What the program passes.
    pub(crate) fn get(&self) -> Result<bytes::Bytes, Failure> {
        if self.buffer == Buffer::NONE {
            return Ok(bytes::Bytes::copy_from_slice(self.bytes.get()?));
        }
        let kept = BUFFERS.get(self.buffer.id)?;
        let at = self.bytes.address().wrapping_sub(kept.as_ptr().addr());
        if self.bytes.len() == 0 {
            return Ok(bytes::Bytes::new());
        }
        let end = at.checked_add(self.bytes.len()).filter(|end| *end <= kept.len());
        let Some(end) = end else {
            return Err(Failure::new(
                errors::USE_LENGTH,
                "the bytes do not lie in the buffer that is said to keep them",
            ));
        };
        Ok(kept.slice(at..end))
    }

    /// Keeps a message that came, piece by piece: the first, and those behind it.
    pub(crate) fn keep_pieces(
        message: Message,
    ) -> Result<(Payload<'static>, Vec<Payload<'static>>), Failure> {
        let mut kept = Vec::with_capacity(message.more.len());
        let first = Payload::keep(message.bytes)?;
        for piece in message.more {
            match Payload::keep(piece) {
                Ok(piece) => kept.push(piece),
                Err(failure) => {
                    kept.iter().chain([&first]).for_each(|kept| drop(BUFFERS.remove(kept.buffer.id)));
                    return Err(failure);
                }
            }
        }
        Ok((first, kept))
    }

    /// A message of these pieces.
    pub(crate) fn message_of(pieces: &[Payload<'_>], compressed: bool) -> Result<Message, Failure> {
        let pieces: Result<Vec<bytes::Bytes>, Failure> = pieces.iter().map(Payload::get).collect();
        Ok(Message { compressed, ..Message::of_pieces(pieces?) })
    }

    pub(crate) fn message(&self, compressed: bool) -> Result<Message, Failure> {
        Ok(Message { compressed, ..Message::from(self.get()?) })
    }
}

/// A program's memory.
struct Foreign {
    bytes: Bytes<'static>,
    release: Release,
    argument: *mut c_void,
}

// SAFETY: the header asks that the memory may be read, and the function be called, in any thread. The library reads the memory, and calls
// the function once: there is one owner, which is dropped once. `threads.c` releases in many threads under ASan.
unsafe impl Send for Foreign {}

impl AsRef<[u8]> for Foreign {
    fn as_ref(&self) -> &[u8] {
        // What could not be had was refused before.
        self.bytes.get().unwrap_or_default()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            release(self.argument);
        }
    }
}

/// A share in memory of the program's, which is not copied: it must stay as it is until `release` is called with `argument`. Memory that
/// needs no release may go without the function. Where this fails, nothing is released.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_buffer_wrap(
    bytes: Bytes<'static>,
    release: Release,
    argument: *mut c_void,
    payload: Option<&mut Payload<'static>>,
) -> c_int {
    run(|| {
        let payload = payload.ok_or_else(|| Failure::null("the payload"))?;
        bytes.get()?;
        let id = BUFFERS.insert_with(|| bytes::Bytes::from_owner(Foreign { bytes, release, argument }))?;
        *payload = Payload { bytes, buffer: Buffer { id } };
        Ok(())
    })
}

/// A copy of bytes, to be sent more than once or kept.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_buffer_copy(bytes: Bytes<'_>, payload: Option<&mut Payload<'static>>) -> c_int {
    run(|| {
        let payload = payload.ok_or_else(|| Failure::null("the payload"))?;
        *payload = Payload::keep(bytes::Bytes::copy_from_slice(bytes.get()?))?;
        Ok(())
    })
}

/// Another share in the same bytes, to be released on its own. Any thread.
///
/// @return 0, or an error's number.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_buffer_retain(buffer: Buffer, another: Option<&mut Buffer>) -> c_int {
    run(|| {
        let another = another.ok_or_else(|| Failure::null("the other buffer"))?;
        another.id = match buffer {
            Buffer::NONE => 0,
            buffer => BUFFERS.insert(BUFFERS.get(buffer.id)?)?,
        };
        Ok(())
    })
}

/// Ends a share in bytes, which are not to be read by it any more. Any thread. Of `{0}` there is nothing to release.
///
/// @return 0, or an error's number: `TOLLFREE_ERROR_USE_BUFFER` for a share that was released before.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_buffer_release(buffer: Buffer) -> c_int {
    run(|| match buffer {
        Buffer::NONE => Ok(()),
        // Dropped here, not within the table of them: a release function may release others.
        buffer => BUFFERS.remove(buffer.id).map(drop),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    extern "C" fn count(argument: *mut c_void) {
        // SAFETY: the tests pass a counter that outlives the buffer.
        unsafe { &*argument.cast::<AtomicU32>() }.fetch_add(1, Ordering::Relaxed);
    }

    fn wrapped(bytes: &'static [u8], counter: &AtomicU32) -> Payload<'static> {
        let mut payload = Payload::EMPTY;
        let argument = std::ptr::from_ref(counter).cast_mut().cast();
        assert_eq!(tollfree_buffer_wrap(Bytes::for_c(bytes), Some(count), argument, Some(&mut payload)), 0);
        payload
    }

    #[test]
    fn wrapped_memory_is_released_once_with_the_last_share() {
        let counter = AtomicU32::new(0);
        let payload = wrapped(b"lent", &counter);
        let sent = payload.get().unwrap();
        assert_eq!(sent.as_ptr().addr(), payload.bytes.address(), "nothing was copied");
        let mut another = Buffer::NONE;
        assert_eq!(tollfree_buffer_retain(payload.buffer, Some(&mut another)), 0);
        assert_eq!(tollfree_buffer_release(payload.buffer), 0);
        assert_eq!(tollfree_buffer_release(payload.buffer), 508, "twice");
        assert_eq!(tollfree_buffer_retain(payload.buffer, Some(&mut another)), 508, "too late");
        drop(sent);
        assert_eq!(counter.load(Ordering::Relaxed), 0);
        assert_eq!(tollfree_buffer_release(another), 0);
        assert_eq!(counter.load(Ordering::Relaxed), 1);
        assert_eq!((tollfree_buffer_release(Buffer::NONE), tollfree_buffer_retain(another, None)), (0, 505));
    }

    #[test]
    fn parts_of_a_buffer_are_sent_without_a_copy_and_other_bytes_are_refused() {
        let counter = AtomicU32::new(0);
        let payload = wrapped(b"abcdef", &counter);
        let part = Payload { bytes: Bytes::for_c(&payload.bytes.get().unwrap()[2..4]), ..payload };
        assert_eq!(&part.get().unwrap()[..], b"cd");
        let elsewhere = Payload { bytes: Bytes::for_c(b"cd"), ..payload };
        assert_eq!(elsewhere.get().unwrap_err().number, errors::USE_LENGTH);
        let empty = Payload { bytes: Bytes::EMPTY, ..payload };
        assert!(empty.get().unwrap().is_empty());
        assert_eq!(tollfree_buffer_release(payload.buffer), 0);
        assert_eq!(part.get().unwrap_err().number, errors::USE_BUFFER);
    }
}
