//! What a C function returns: a number of `spec/errors.md`, whose text waits in its thread. And how no panic leaves the library.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tollfree_driver_loop::{BindError, CallError};
use tollfree_layout::errors;
use tollfree_layout::metadata::BlockError;

/// Why a function could not do what it was called for.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) number: u16,
    text: String,
}

impl Failure {
    pub(crate) fn new(number: u16, text: impl Into<String>) -> Failure {
        Failure { number, text: text.into() }
    }

    /// A pointer is null that must not be.
    pub(crate) fn null(what: &str) -> Failure {
        Failure::new(errors::USE_NULL, format!("{what} is null: pass a pointer"))
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        Failure::new(error.number(), error.to_string())
    }
}

impl From<BindError> for Failure {
    fn from(error: BindError) -> Failure {
        Failure::new(error.number(), error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(errors::SYSTEM_REFUSED, error.to_string())
    }
}

impl From<BlockError> for Failure {
    fn from(error: BlockError) -> Failure {
        let number = match error {
            BlockError::NameLen(_) | BlockError::ValueLen(_) => errors::METADATA_PAIR,
            _ => errors::METADATA_BLOCK,
        };
        Failure::new(number, error.to_string())
    }
}

thread_local! {
    /// The text of the last failure in this thread.
    static TEXT: RefCell<CString> = RefCell::default();
}

fn keep(text: String) {
    // A text ends at its first NUL in C.
    let text = text.split('\0').next().unwrap_or_default().to_owned();
    // A thread that ends has no texts any more.
    let _ = TEXT.try_with(|kept| *kept.borrow_mut() = CString::new(text).unwrap_or_default());
}

/// Runs what a function does. Its number, 0 for success.
pub(crate) fn run(what: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(what)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
        let words = words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Failure::new(errors::LIBRARY_FAULT, format!("the library has failed within itself: {words}")))
    });
    match outcome {
        Ok(()) => 0,
        Err(Failure { number, text }) => {
            keep(text);
            number.into()
        }
    }
}

/// The text of this thread's last error, for people: it names what failed and what to do. Valid until the next function of the
/// library fails in this thread. Empty before the first.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_error_text() -> *const c_char {
    // The memory of the text stays where it is until another is kept.
    TEXT.try_with(|kept| kept.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// The name of an error's number, as `CALL_ENDED` for 401: a static text, empty for a number that has none.
#[unsafe(no_mangle)]
pub extern "C" fn tollfree_error_name(number: c_int) -> *const c_char {
    name(number).as_ptr()
}

fn name(number: c_int) -> &'static CStr {
    static NAMES: std::sync::OnceLock<Vec<CString>> = std::sync::OnceLock::new();
    let all = NAMES.get_or_init(|| {
        errors::ALL.iter().map(|(_, name)| CString::new(*name).unwrap_or_default()).collect()
    });
    let found = errors::ALL.iter().position(|(known, _)| c_int::from(*known) == number);
    found.and_then(|idx| all.get(idx)).map_or(c"", CString::as_c_str)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The text that a C program would read.
    pub(crate) fn text() -> String {
        TEXT.with(|kept| kept.borrow().to_string_lossy().into_owned())
    }

    #[test]
    fn a_panic_is_a_number_with_its_words() {
        assert_eq!(run(|| panic!("in here")), 514);
        assert!(text().ends_with("in here"), "{}", text());
        assert_eq!(run(|| panic!("{}", 7)), 514);
        assert!(text().ends_with(": 7"));
        assert_eq!(run(|| Err(Failure::null("the loop"))), 505);
        assert_eq!(text(), "the loop is null: pass a pointer");
        assert_eq!(run(|| Ok(())), 0);
        assert_eq!(text(), "the loop is null: pass a pointer", "success leaves it");
    }

    #[test]
    fn numbers_have_names_and_texts_end_at_a_nul() {
        assert_eq!([name(401), name(0), name(-1)], [c"CALL_ENDED", c"", c""]);
        keep("a\0b".to_owned());
        assert_eq!(text(), "a");
    }
}
