//! Messages of a stream taken and sent together, as one buffer with their lengths: a call of the library for many, not for each.

use std::ffi::c_int;

use bytes::BytesMut;
use tollfree_driver_loop::Message;
use tollfree_layout::errors;

use crate::buffer::Payload;
use crate::call::Call;
use crate::error::Failure;
use crate::loops::Loop;
use crate::pointers;

/// The messages whose lengths these are, one behind the other.
fn split(mut bytes: bytes::Bytes, lens: &[usize]) -> Result<Vec<Message>, Failure> {
    let total = lens.iter().try_fold(0_usize, |total, len| total.checked_add(*len));
    if total != Some(bytes.len()) {
        let words =
            format!("the lengths of the messages do not add up to the {} bytes that there are", bytes.len());
        return Err(Failure::new(errors::USE_LENGTH, words));
    }
    Ok(lens.iter().map(|len| Message::from(bytes.split_to(*len))).collect())
}

/// Sends messages of a stream together: `messages` has their bytes, one behind the other, and `lens` how long each is. Else as
/// `tollfree_call_send` for each. Where this fails, none is sent.
///
/// @return 0, or an error's number.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_call_send_batch(
    of: Loop,
    call: Call,
    messages: Payload<'_>,
    lens: *const usize,
    count: usize,
) -> c_int {
    call.with(of, |kept, call| {
        // SAFETY: the header asks for `count` lengths there; null and impossible lengths are refused (`pointers::tests`).
        let lens = unsafe { pointers::list(lens, count) }?;
        for message in split(messages.get()?, lens)? {
            kept.events.send(call, message)?;
        }
        Ok(())
    })
}

/// Takes messages of a call that have come together with the event that was taken last, in the order of their arrival, as one buffer: call this
/// after a `TOLLFREE_EVENT_MESSAGE`. `messages` has their bytes, one behind the other, and `lens` gets how long each is; `*count` is how many there
/// are, `lens_max` at most, and 0 where none has come. Messages that are compressed or in several pieces come as events of their own. The buffer is
/// to be released. Text and pieces of the last event stay.
///
/// @return 0, or an error's number.
///
/// # Safety
/// Pointers that are not null point to as much as is said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tollfree_call_take_batch(
    of: Loop,
    call: Call,
    lens: *mut usize,
    lens_max: usize,
    messages: Option<&mut Payload<'static>>,
    count: Option<&mut usize>,
) -> c_int {
    call.with(of, |kept, call| {
        let (Some(messages), Some(count)) = (messages, count) else {
            return Err(Failure::null("the messages or the count"));
        };
        // SAFETY: the header asks for room for `lens_max` lengths there; null and impossible lengths are refused (`pointers::tests`).
        let lens = unsafe { pointers::list_mut(lens, lens_max) }?;
        let (mut whole, mut taken) = (BytesMut::new(), 0);
        while let Some(len) = lens.get_mut(taken)
            && let Some(message) =
                kept.events.next_message(call, |message| message.more.is_empty() && !message.compressed)
        {
            *len = message.bytes.len();
            whole.extend_from_slice(&message.bytes);
            taken += 1;
        }
        (*messages, *count) = (Payload::keep(whole.freeze())?, taken);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_to_add_up_to_the_bytes() {
        let split = |lens: &[usize]| split(bytes::Bytes::from_static(b"abcdef"), lens);
        let lens: Vec<usize> = split(&[1, 0, 5]).unwrap().iter().map(Message::len).collect();
        assert_eq!(lens, [1, 0, 5]);
        for bad in [&[][..], &[5], &[1, 6], &[7], &[usize::MAX, 7]] {
            assert_eq!(split(bad).unwrap_err().number, errors::USE_LENGTH, "{bad:?}");
        }
    }
}
