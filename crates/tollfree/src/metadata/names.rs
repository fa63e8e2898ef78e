//! Names of metadata that are known from earlier calls.
//!
//! A name is checked, and memory taken for it, once and not for each call. One that comes again is kept for as long as the
//! process lives: it is a constant from then on, and nothing is counted when it is cloned and dropped. How much is kept
//! so is limited, or peers that make up names could fill memory with them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex, PoisonError};

use http::header::HeaderName;
use tollfree_layout::metadata::{Name, STATIC_NAMES};

/// Names that a thread remembers.
const SEEN_COUNT: usize = 32;
/// Names that a process keeps.
const KEPT_COUNT_MAX: usize = 256;
/// Longest name that is kept, in bytes.
const KEPT_LEN_MAX: usize = 64;

/// A name that came lately.
struct Seen {
    name: HeaderName,
    /// It has come again, and was kept if there was room.
    again: bool,
}

thread_local! {
    static SEEN: RefCell<[Option<Seen>; SEEN_COUNT]> = const { RefCell::new([const { None }; SEEN_COUNT]) };
}

static NAMES: LazyLock<[HeaderName; STATIC_NAMES.len()]> =
    LazyLock::new(|| STATIC_NAMES.map(HeaderName::from_static));

static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// A pair's name, if HTTP allows it.
pub(crate) fn name_of(name: Name<'_>) -> Option<HeaderName> {
    match name {
        Name::Static(idx) => Some(NAMES[idx].clone()),
        Name::Literal(bytes) => SEEN.with_borrow_mut(|seen| {
            let place = &mut seen[place_of(bytes)];
            match place {
                Some(known) if known.name.as_str().as_bytes() == bytes => {
                    if !known.again {
                        known.again = true;
                        known.name = kept(&known.name);
                    }
                    Some(known.name.clone())
                }
                _ => {
                    let name = HeaderName::from_bytes(bytes).ok()?;
                    *place = Some(Seen { name: name.clone(), again: false });
                    Some(name)
                }
            }
        }),
    }
}

/// Where a name is remembered: those of one application mostly differ in length, or in their last letter.
fn place_of(name: &[u8]) -> usize {
    let last = name.last().copied().unwrap_or_default();
    (name.len() * 5 + usize::from(last)) % SEEN_COUNT
}

/// The same name, as a constant if there is room for one more.
pub(crate) fn kept(name: &HeaderName) -> HeaderName {
    keep(&mut KEPT.lock().unwrap_or_else(PoisonError::into_inner), name)
}

fn keep(all: &mut BTreeSet<&'static str>, name: &HeaderName) -> HeaderName {
    let text = name.as_str();
    if let Some(known) = all.get(text) {
        return HeaderName::from_static(known);
    }
    if all.len() >= KEPT_COUNT_MAX || text.len() > KEPT_LEN_MAX {
        return name.clone();
    }
    let text: &'static str = Box::leak(text.into());
    all.insert(text);
    HeaderName::from_static(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HeaderName {
        HeaderName::from_bytes(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_name_is_the_same_however_often_it_comes() {
        for _ in 0..4 {
            assert_eq!(name_of(Name::Literal(b"x-often")).unwrap(), "x-often");
            // The same place as the one before.
            assert_eq!(name_of(Name::Literal(b"y-often")).unwrap(), "y-often");
            assert_eq!(name_of(Name::Static(7)).unwrap(), "authorization");
            assert_eq!(name_of(Name::Literal(b"authorization")).unwrap(), http::header::AUTHORIZATION);
        }
    }

    #[test]
    fn capitals_become_small_and_what_http_forbids_is_no_name() {
        for _ in 0..4 {
            assert_eq!(name_of(Name::Literal(b"X-Capital")).unwrap(), "x-capital");
            for bad in [&b""[..], b"x y", b"x\0", "x-\u{e4}".as_bytes(), b"x:\n"] {
                assert!(name_of(Name::Literal(bad)).is_none(), "{bad:?}");
            }
        }
    }

    #[test]
    fn names_that_never_end_are_not_kept_for_ever() {
        let mut all = BTreeSet::new();
        for number in 0..10 * KEPT_COUNT_MAX {
            let made_up = name(&format!("x-{number}"));
            assert_eq!(keep(&mut all, &made_up), made_up);
        }
        assert_eq!(all.len(), KEPT_COUNT_MAX);
        let mut all = BTreeSet::new();
        let long = name(&"n".repeat(KEPT_LEN_MAX + 1));
        assert_eq!(keep(&mut all, &long), long);
        assert!(all.is_empty());
    }
}
