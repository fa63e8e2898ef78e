//! Header maps for blocks that are like the ones before.
//!
//! Most calls of a method carry the same names in the same order, and many of the values are the same too. To put each
//! name into a map means to hash it, byte for byte, which is most of what unpacking a block takes. So the map of an earlier
//! call is cloned, while there is nothing to do but to wait, and the next block is only compared with it: what differs is
//! replaced. A block with other names is unpacked in full.
//!
//! What is remembered is limited, whatever a peer sends: a few maps, each of a block that is not long.

use std::cell::RefCell;

use http::header::{HeaderMap, HeaderValue};
use tollfree_layout::metadata::pairs;

use crate::metadata::names::kept;
use crate::metadata::unpack_custom;

/// Methods whose calls are remembered: the last one of each place.
const PLACE_COUNT: usize = 4;
/// Longest block that is remembered, in bytes, and the most pairs.
const BLOCK_LEN_MAX: usize = 1024;
const PAIR_COUNT_MAX: usize = 16;
/// What blocks may come to that were not quite like the template, until a new one is made: a differing value counts
/// as one, other names as several.
const MISSES_MAX: u32 = 1024;
const OTHER_NAMES: u32 = 128;

/// The header maps of earlier calls, by a number that stands for their method.
#[derive(Default)]
pub(crate) struct Templates {
    places: [Option<Box<Template>>; PLACE_COUNT],
}

struct Template {
    key: usize,
    /// As an earlier call had it.
    map: HeaderMap,
    /// That call's block.
    block: Vec<u8>,
    /// The same map, for the next call.
    spare: Option<HeaderMap>,
    misses: u32,
}

impl Templates {
    /// The header map of a block, if it is like an earlier one.
    pub(crate) fn like_before(&mut self, key: usize, block: &[u8]) -> Option<HeaderMap> {
        if block.is_empty() {
            return Some(HeaderMap::new());
        }
        let template = self.places[key % PLACE_COUNT].as_deref_mut().filter(|known| known.key == key)?;
        let mut map = template.spare.take().unwrap_or_else(|| template.map.clone());
        if template.block == block {
            return Some(map);
        }
        match fill(&mut map, block) {
            Some(differing) => {
                template.misses += differing;
                if template.misses > MISSES_MAX && block.len() <= BLOCK_LEN_MAX {
                    template.learn(block, &map);
                }
                Some(map)
            }
            None => {
                template.misses += OTHER_NAMES;
                None
            }
        }
    }

    /// The header map of a block that is not like an earlier one; the next may be like this one.
    pub(crate) fn anew(&mut self, key: usize, block: &[u8]) -> HeaderMap {
        let mut map = HeaderMap::new();
        unpack_custom(block, &mut map);
        if block.len() <= BLOCK_LEN_MAX && !map.is_empty() && map.len() <= PAIR_COUNT_MAX {
            self.learn(key, block, &map);
        }
        map
    }

    fn learn(&mut self, key: usize, block: &[u8], map: &HeaderMap) {
        let place = &mut self.places[key % PLACE_COUNT];
        if let Some(known) = place.as_deref_mut()
            && known.misses <= MISSES_MAX
        {
            // Another method's is not replaced at once either: they may be called by turns.
            known.misses += if known.key == key { 0 } else { OTHER_NAMES };
            return;
        }
        let mut template = Template { key, map: HeaderMap::new(), block: Vec::new(), spare: None, misses: 0 };
        template.learn(block, map);
        *place = Some(Box::new(template));
    }

    /// Makes ready what the next call of a method is likely to need.
    pub(crate) fn prepare(&mut self, key: usize) {
        if let Some(template) = self.places[key % PLACE_COUNT].as_deref_mut()
            && template.key == key
            && template.spare.is_none()
        {
            template.spare = Some(template.map.clone());
        }
    }
}

impl Template {
    fn learn(&mut self, block: &[u8], map: &HeaderMap) {
        self.block = block.to_vec();
        self.map = HeaderMap::with_capacity(map.keys_len());
        for (name, value) in map {
            self.map.append(kept(name), value.clone());
        }
        self.spare = None;
        self.misses = 0;
    }
}

/// Makes a map that of a block, if its names are the block's, in this order. How many values were others.
fn fill(map: &mut HeaderMap, block: &[u8]) -> Option<u32> {
    let mut pairs = pairs(block);
    let mut differing = 0;
    for (name, value) in map.iter_mut() {
        let (came, bytes) = pairs.next()?.ok()?;
        if came.as_bytes() != name.as_str().as_bytes() {
            return None;
        }
        if value.as_bytes() != bytes {
            *value = HeaderValue::from_bytes(bytes).ok()?;
            differing += 1;
        }
    }
    pairs.next().is_none().then_some(differing)
}

thread_local! {
    /// Those of replies, by their methods' paths.
    static OF_REPLIES: RefCell<Templates> = RefCell::default();
}

/// The header map of a reply to a call of the method with this path.
pub(crate) fn of_method(path: &str, block: &[u8]) -> HeaderMap {
    if block.is_empty() {
        return HeaderMap::new();
    }
    let key = path.as_ptr().addr();
    OF_REPLIES.with_borrow_mut(|templates| {
        templates.like_before(key, block).unwrap_or_else(|| templates.anew(key, block))
    })
}

/// Makes ready what the reply to a call of the method with this path is likely to need.
pub(crate) fn prepare(path: &str) {
    OF_REPLIES.with_borrow_mut(|templates| templates.prepare(path.as_ptr().addr()));
}

#[cfg(test)]
mod tests {
    use http::header::HeaderName;
    use proptest::prelude::*;
    use tollfree_layout::metadata::pack;

    use super::*;

    fn block(pairs: &[(&str, &[u8])]) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in pairs {
            pack(&mut block, name, value).unwrap();
        }
        block
    }

    /// The map that unpacking alone gives, and what the templates make of the same block.
    fn both(templates: &mut Templates, key: usize, block: &[u8]) -> (HeaderMap, HeaderMap) {
        let mut plain = HeaderMap::new();
        unpack_custom(block, &mut plain);
        let made = templates.like_before(key, block).unwrap_or_else(|| templates.anew(key, block));
        templates.prepare(key);
        (plain, made)
    }

    /// In the order in which they are iterated.
    fn list(map: &HeaderMap) -> Vec<(&str, &[u8])> {
        map.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
    }

    #[test]
    fn a_block_like_the_one_before_is_not_unpacked() {
        let mut templates = Templates::default();
        let sent = [("x-a", &b"1"[..]), ("authorization", b"b"), ("x-b-bin", b"AAE")];
        assert!(templates.like_before(1, &block(&sent)).is_none());
        assert_eq!(list(&templates.anew(1, &block(&sent))), sent);
        for value in [&b"1"[..], b"2", b"", b"\xe4\xff", b"1"] {
            let sent = [("x-a", value), ("authorization", b"b"), ("x-b-bin", b"AAE")];
            assert_eq!(list(&templates.like_before(1, &block(&sent)).unwrap()), sent);
            templates.prepare(1);
        }
        for other in [
            &[("x-a", &b"1"[..]), ("x-b-bin", b"AAE"), ("authorization", b"b")][..],
            &[("x-a", b"1"), ("authorization", b"b")],
            &[("x-a", b"1"), ("authorization", b"b"), ("x-b-bin", b"AAE"), ("x-c", b"")],
            &[("X-a", b"1"), ("authorization", b"b"), ("x-b-bin", b"AAE")],
            &[("x-a", b"a\nb"), ("authorization", b"b"), ("x-b-bin", b"AAE")],
        ] {
            assert!(templates.like_before(1, &block(other)).is_none(), "{other:?}");
        }
        assert!(templates.like_before(2, &block(&sent)).is_none(), "another method's");
        assert!(templates.like_before(1 + PLACE_COUNT, &block(&sent)).is_none(), "another method's");
        assert_eq!(list(&templates.like_before(1, &block(&sent)).unwrap()), sent);
    }

    #[test]
    fn names_that_have_changed_are_learnt_after_some_calls() {
        let mut templates = Templates::default();
        let (first, then) = (block(&[("x-a", b"1")]), block(&[("x-b", b"1")]));
        both(&mut templates, 0, &first);
        let mut count = 0;
        while templates.like_before(0, &then).is_none() {
            templates.anew(0, &then);
            count += 1;
            assert!(count < 100);
        }
        assert!(templates.like_before(0, &first).is_none());
    }

    #[test]
    fn what_is_remembered_is_limited() {
        let mut templates = Templates::default();
        for number in 0..10_000 {
            let name = format!("x-made-up-{number}");
            let (plain, made) = both(&mut templates, number, &block(&[(&name, b"1")]));
            assert_eq!(list(&plain), list(&made));
        }
        let long = block(&[("x-long", &[b'v'; BLOCK_LEN_MAX])]);
        let names: Vec<_> = (0..=PAIR_COUNT_MAX).map(|number| format!("x-{number}")).collect();
        let many: Vec<_> = names.iter().map(|name| (&**name, &b"1"[..])).collect();
        let mut templates = Templates::default();
        both(&mut templates, 0, &block(&[("x-long", b"1")]));
        for _ in 0..2 * MISSES_MAX {
            both(&mut templates, 0, &long);
        }
        assert!(templates.places[0].as_ref().unwrap().block.len() < BLOCK_LEN_MAX);
        let mut templates = Templates::default();
        for large in [long, block(&many)] {
            for _ in 0..3 {
                let (plain, made) = both(&mut templates, 0, &large);
                assert_eq!(list(&plain), list(&made));
            }
            assert!(templates.places.iter().all(Option::is_none));
        }
    }

    #[test]
    fn a_name_that_comes_twice_keeps_the_order_of_its_values() {
        let mut templates = Templates::default();
        for sent in [
            &[("x-a", &b"1"[..]), ("x-a", b"2"), ("x-b", b"3")][..],
            &[("x-a", b"1"), ("x-b", b"3"), ("x-a", b"2")],
            &[("x-a", b"2"), ("x-a", b"1"), ("x-b", b"3")],
        ] {
            for _ in 0..20 {
                let (plain, made) = both(&mut templates, 0, &block(sent));
                assert_eq!(list(&plain), list(&made));
            }
        }
    }

    proptest! {
        /// Few names and values, so that blocks are often like the one before, or almost.
        #[test]
        fn whatever_comes_is_what_unpacking_alone_gives(
            blocks in prop::collection::vec(
                (0..6_usize, prop::collection::vec((0..9_usize, 0..5_usize), 0..5), 1..4_usize),
                1..60,
            )
        ) {
            let names = ["x-a", "x-b", "x-C", "authorization", "content-type", "k-bin", "bad name", "grpc-status", "te"];
            let values: [&[u8]; 5] = [b"", b"1", b"two", b"\xe4", b"a\r\n"];
            let mut templates = Templates::default();
            for (key, pairs, times) in blocks {
                let pairs: Vec<_> = pairs.iter().map(|(name, value)| (names[*name], values[*value])).collect();
                for _ in 0..times {
                    let (plain, made) = both(&mut templates, key, &block(&pairs));
                    prop_assert_eq!(list(&plain), list(&made));
                    for name in plain.keys().map(HeaderName::as_str) {
                        prop_assert_eq!(plain.get_all(name).iter().collect::<Vec<_>>(),
                            made.get_all(name).iter().collect::<Vec<_>>());
                    }
                }
            }
        }
    }
}
