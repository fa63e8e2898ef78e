//! What C passes by pointer: bytes, lists, and structures whose first member is their size.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use tollfree_layout::errors;

use crate::error::Failure;

/// Bytes somewhere in memory. `data` may be null where `len` is 0. What a function is passed it reads before it returns, and does not
/// keep; how long bytes stay that the library gives is said where it gives them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a> {
    data: *const u8,
    len: usize,
    lifetime: PhantomData<&'a [u8]>,
}

impl<'a> Bytes<'a> {
    pub(crate) const EMPTY: Bytes<'static> = Bytes { data: std::ptr::null(), len: 0, lifetime: PhantomData };

    /// What C reads while the owner of these bytes keeps them.
    pub(crate) fn for_c(bytes: &[u8]) -> Bytes<'static> {
        match bytes {
            [] => Bytes::EMPTY,
            bytes => Bytes { data: bytes.as_ptr(), len: bytes.len(), lifetime: PhantomData },
        }
    }

    pub(crate) fn get(&self) -> Result<&'a [u8], Failure> {
        // SAFETY: `data` has `len` bytes: the header asks C for this, and no code of this crate reads what it makes by `for_c`. Null and
        // lengths beyond memory are refused (enforced by `list`; `pointers::tests`), and ASan watches in the C tests.
        unsafe { list(self.data, self.len) }
    }

    /// As text: what is none is refused by the name of it.
    pub(crate) fn text(&self, what: &str) -> Result<&'a str, Failure> {
        std::str::from_utf8(self.get()?)
            .map_err(|error| Failure::new(errors::USE_VALUE, format!("{what} is no UTF-8: {error}")))
    }

    pub(crate) fn address(&self) -> usize {
        self.data.addr()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// A list of C's.
///
/// # Safety
/// `data` points to `len` values that nobody changes meanwhile, unless it is null or `len` is 0.
pub(crate) unsafe fn list<'a, T>(data: *const T, len: usize) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Failure::null("a list with a length"));
    }
    if len > isize::MAX as usize / size_of::<T>().max(1) || !data.is_aligned() {
        let words = format!("{len} values at {data:p} can't be in memory: pass the length that there is");
        return Err(Failure::new(errors::USE_LENGTH, words));
    }
    // SAFETY: not null, aligned, and no longer than memory, as just seen; the rest is the caller's promise. The C tests run under ASan.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// A list of C's to be written.
///
/// # Safety
/// `data` points to `len` values that nobody else uses meanwhile, unless it is null or `len` is 0.
pub(crate) unsafe fn list_mut<'a, T>(data: *mut T, len: usize) -> Result<&'a mut [T], Failure> {
    // SAFETY: the caller's promise, passed on: this checks, and what it gives is dropped at once.
    unsafe { list(data.cast_const(), len) }?;
    if len == 0 {
        return Ok(&mut []);
    }
    // SAFETY: not null, aligned, and no longer than memory, as `list` has seen; the rest is the caller's promise. The C tests run under ASan.
    Ok(unsafe { std::slice::from_raw_parts_mut(data, len) })
}

/// A structure that grows: its first member is `size_t size`, as the program knows it.
///
/// # Safety
/// It is `repr(C)`, begins with a `usize`, and any bytes are a value of it, zeros among them.
pub(crate) unsafe trait Growing: Copy {
    /// Its size in the first version that had it.
    const LEN_MIN: usize;
}

/// What no structure is as long as: a program that forgot to set the size is most likely found by it.
const LEN_MAX: usize = 4096;

fn check_size<T: Growing>(size: usize) -> Result<(), Failure> {
    if (T::LEN_MIN..=LEN_MAX).contains(&size) {
        return Ok(());
    }
    let words = format!(
        "a structure whose size is {size}: set its first member to its sizeof, from {} on",
        T::LEN_MIN
    );
    Err(Failure::new(errors::USE_SIZE, words))
}

/// Reads a structure: members that the program's version lacks are zero. Members that this version lacks must be zero.
///
/// # Safety
/// `from` is null or points to a structure that has as many bytes as its first member says.
pub(crate) unsafe fn read<T: Growing>(from: *const T) -> Result<T, Failure> {
    if from.is_null() {
        return Err(Failure::null("a structure"));
    }
    // SAFETY: the caller's promise: a size is there in any case.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    check_size::<T>(size)?;
    let mut value = MaybeUninit::<T>::zeroed();
    let known = size.min(size_of::<T>());
    // SAFETY: `from` has `size` bytes (the caller's promise), `value` those of its type, and any of them are a value (`Growing`).
    let (value, rest) = unsafe {
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), value.as_mut_ptr().cast::<u8>(), known);
        (value.assume_init(), list(from.cast::<u8>().add(known), size - known)?)
    };
    match rest.iter().all(|byte| *byte == 0) {
        true => Ok(value),
        false => Err(Failure::new(
            errors::USE_SIZE,
            "a structure says what this version of the library does not know: update the library",
        )),
    }
}

/// Checks that a structure can be written.
///
/// # Safety
/// As for [`write()`].
pub(crate) unsafe fn check_writable<T: Growing>(to: *mut T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::null("a structure"));
    }
    // SAFETY: the caller's promise: a size is there in any case.
    check_size::<T>(unsafe { to.cast::<usize>().read_unaligned() })
}

/// Writes as much of a structure as the program knows of. Its size stays.
///
/// # Safety
/// `to` is null or points to a structure that has as many bytes as its first member says; of the rest nothing need be set.
pub(crate) unsafe fn write<T: Growing>(to: *mut T, value: &T) -> Result<(), Failure> {
    // SAFETY: the caller's promise, passed on.
    unsafe { check_writable(to) }?;
    let head = size_of::<usize>();
    // SAFETY: `to` has `size` bytes (the caller's promise), and `value` lies elsewhere: it is Rust's. Both are longer than a size,
    // which `check_size` has seen. The C tests run under ASan, with a structure of the first version's length.
    unsafe {
        let size = to.cast::<usize>().read_unaligned();
        let known = size.min(size_of::<T>());
        let from = std::ptr::from_ref(value).cast::<u8>();
        std::ptr::copy_nonoverlapping(from.add(head), to.cast::<u8>().add(head), known - head);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq, Default)]
    struct Two {
        size: usize,
        first: u64,
        second: u64,
    }

    // SAFETY: numbers alone.
    unsafe impl Growing for Two {
        const LEN_MIN: usize = 16;
    }

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Longer {
        known: Two,
        third: u64,
    }

    fn read_two<T>(from: &T) -> Result<Two, u16> {
        // SAFETY: a `T` has the size that it says, or less than the least.
        unsafe { read(std::ptr::from_ref(from).cast::<Two>()) }.map_err(|failure| failure.number)
    }

    #[test]
    fn structures_grow_in_both_directions() {
        let whole = Two { size: 24, first: 1, second: 2 };
        assert_eq!(read_two(&whole), Ok(whole));
        assert_eq!(read_two(&[16_u64, 1]), Ok(Two { size: 16, first: 1, second: 0 }), "an older program");
        let mut newer = Longer { known: Two { size: 32, ..whole }, third: 0 };
        assert_eq!(read_two(&newer), Ok(newer.known));
        newer.third = 3;
        assert_eq!(read_two(&newer), Err(errors::USE_SIZE), "what is not known is not left out");
        for size in [0, 15, LEN_MAX + 1, usize::MAX] {
            assert_eq!(read_two(&Two { size, ..whole }), Err(errors::USE_SIZE), "{size}");
        }
        // SAFETY: null is refused.
        assert_eq!(unsafe { read::<Two>(std::ptr::null()) }.unwrap_err().number, errors::USE_NULL);
    }

    #[test]
    fn no_more_is_written_than_the_program_has_room_for() {
        let value = Two { size: 0, first: 1, second: 2 };
        for (size, seen) in [(16, [16, 1, 9, 9]), (24, [24, 1, 2, 9]), (32, [32, 1, 2, 9])] {
            let mut room = [size, 9, 9, 9_u64];
            // SAFETY: there is room for as much as the size says.
            unsafe { write(room.as_mut_ptr().cast::<Two>(), &value) }.unwrap();
            assert_eq!(room, seen);
        }
        // SAFETY: null and a size that is none are refused.
        let [null, size] = unsafe {
            let mut room = [1_u64; 4];
            [write(std::ptr::null_mut(), &value), write(room.as_mut_ptr().cast::<Two>(), &value)]
        };
        assert_eq!(
            (null.unwrap_err().number, size.unwrap_err().number),
            (errors::USE_NULL, errors::USE_SIZE)
        );
    }

    #[test]
    fn lists_that_can_not_be_are_refused() {
        let number = |data: *const u32, len| {
            // SAFETY: what is not there is refused, or has no length.
            unsafe { list(data, len) }.map(<[u32]>::len).map_err(|failure| failure.number)
        };
        let there = [1_u32, 2];
        assert_eq!(number(there.as_ptr(), 2), Ok(2));
        assert_eq!(number(std::ptr::null(), 0), Ok(0));
        assert_eq!(number(std::ptr::null(), 1), Err(errors::USE_NULL));
        assert_eq!(number(there.as_ptr(), usize::MAX), Err(errors::USE_LENGTH));
        assert_eq!(number(there.as_ptr().wrapping_byte_add(1), 1), Err(errors::USE_LENGTH));
        let bad = Bytes::for_c(&[0xff]);
        assert_eq!(bad.text("a name").unwrap_err().number, errors::USE_VALUE);
    }
}
