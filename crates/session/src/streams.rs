//! The streams of a session by their ids.
//!
//! Ids are consecutive, and most calls are short: those under way at one time mostly differ in their lowest bits. So
//! each has a place by those bits, found without hashing; one whose place is taken goes into a map beside. There are
//! more places where many calls are under way. A session that carries one call after the other never needs the map, and
//! takes memory for one stream: most sessions of a process that has thousands are idle.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use tollfree_layout::StreamId;

use crate::stream::Stream;

/// Places by the lowest bits of an id, at first and at most; powers of two.
const PLACE_COUNT: usize = 1;
const PLACE_COUNT_MAX: usize = 128;

/// Streams have consecutive ids that the receiver checks, so nobody can choose them to collide.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("stream ids hash as u64");
    }
    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[derive(Debug)]
struct Place<T> {
    /// 0 where the place is free: no stream has this id.
    id: StreamId,
    stream: Option<Stream<T>>,
}

/// Streams by id.
#[derive(Debug)]
pub(crate) struct Streams<T> {
    places: Box<[Place<T>]>,
    placed_count: usize,
    others: HashMap<StreamId, Stream<T>, BuildHasherDefault<IdHasher>>,
}

impl<T> Default for Streams<T> {
    fn default() -> Streams<T> {
        Streams { places: empty_places(PLACE_COUNT), placed_count: 0, others: HashMap::default() }
    }
}

fn empty_places<T>(count: usize) -> Box<[Place<T>]> {
    (0..count).map(|_| Place { id: StreamId(0), stream: None }).collect()
}

impl<T> Streams<T> {
    #[inline]
    fn place_of(&self, id: StreamId) -> usize {
        id.0 as usize & (self.places.len() - 1)
    }

    /// Twice as many places. What had one apart from the others has so again.
    #[cold]
    fn grow(&mut self) {
        let more = empty_places(2 * self.places.len());
        for place in std::mem::replace(&mut self.places, more) {
            let at = self.place_of(place.id);
            if place.stream.is_some() {
                self.places[at] = place;
            }
        }
    }

    #[inline]
    pub(crate) fn get(&self, id: StreamId) -> Option<&Stream<T>> {
        let place = &self.places[self.place_of(id)];
        if place.id == id {
            return place.stream.as_ref();
        }
        if self.others.is_empty() { None } else { self.others.get(&id) }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream<T>> {
        let at = self.place_of(id);
        let place = &mut self.places[at];
        if place.id == id {
            return place.stream.as_mut();
        }
        if self.others.is_empty() { None } else { self.others.get_mut(&id) }
    }

    pub(crate) fn contains(&self, id: StreamId) -> bool {
        self.get(id).is_some()
    }

    /// Adds a stream whose id is new, made in its place.
    #[inline]
    pub(crate) fn insert_with(&mut self, id: StreamId, make: impl FnOnce() -> Stream<T>) -> &mut Stream<T> {
        // Where half of the places are taken, the next calls would not find theirs free either.
        if 2 * self.placed_count >= self.places.len() && self.places.len() < PLACE_COUNT_MAX {
            self.grow();
        }
        let at = self.place_of(id);
        let place = &mut self.places[at];
        if place.stream.is_none() {
            place.id = id;
            self.placed_count += 1;
            place.stream.insert(make())
        } else {
            self.others.entry(id).or_insert_with(make)
        }
    }

    /// Takes a stream out; `false` where there is none.
    pub(crate) fn remove(&mut self, id: StreamId) -> bool {
        self.remove_if(id, |_| true).is_some()
    }

    /// Takes a stream out if it `goes`. Whether it went; `None` where there is none.
    #[inline]
    pub(crate) fn remove_if(
        &mut self,
        id: StreamId,
        goes: impl FnOnce(&mut Stream<T>) -> bool,
    ) -> Option<bool> {
        let at = self.place_of(id);
        let place = &mut self.places[at];
        if place.id == id {
            let goes = goes(place.stream.as_mut()?);
            if goes {
                // Dropped where it is: it need not be moved for that.
                place.stream = None;
                place.id = StreamId(0);
                self.placed_count -= 1;
            }
            return Some(goes);
        }
        if self.others.is_empty() {
            return None;
        }
        let goes = goes(self.others.get_mut(&id)?);
        if goes {
            self.others.remove(&id);
        }
        Some(goes)
    }

    pub(crate) fn len(&self) -> usize {
        self.placed_count + self.others.len()
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (StreamId, &Stream<T>)> {
        let placed = self.places.iter().filter_map(|place| Some((place.id, place.stream.as_ref()?)));
        placed.chain(self.others.iter().map(|(id, stream)| (*id, stream)))
    }

    /// All of them, in no order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (StreamId, &mut Stream<T>)> {
        let placed = self.places.iter_mut().filter_map(|place| Some((place.id, place.stream.as_mut()?)));
        placed.chain(self.others.iter_mut().map(|(id, stream)| (*id, stream)))
    }

    /// The ids of all of them, in no order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = StreamId> {
        self.iter().map(|(id, _)| id)
    }

    /// For how many streams there is memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.places.len() + self.others.capacity()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::hash::BuildHasher as _;

    use proptest::prelude::*;

    use super::*;
    use crate::stream_state::StreamState;

    fn stream(mark: u64) -> Stream<()> {
        Stream::new(StreamState::opened_here(), mark, 0)
    }

    #[test]
    fn one_call_after_the_other_takes_memory_for_one_stream() {
        let mut streams = Streams::default();
        for id in 1..100 {
            streams.insert_with(StreamId(id), || stream(id));
            assert!(streams.remove(StreamId(id)));
            assert_eq!(streams.capacity(), 1);
        }
    }

    #[test]
    fn calls_under_way_have_places_of_their_own_as_long_as_there_are_places() {
        let mut streams = Streams::default();
        for id in 1..=PLACE_COUNT_MAX as u64 / 2 {
            streams.insert_with(StreamId(id), || stream(id));
            assert!(streams.others.is_empty(), "{id}");
            assert!(streams.places.len() <= 4 * id as usize);
        }
        for id in streams.len() as u64 + 1..=1000 {
            streams.insert_with(StreamId(id), || stream(id));
        }
        assert_eq!((streams.places.len(), streams.len()), (PLACE_COUNT_MAX, 1000));
    }

    #[test]
    fn ids_that_follow_each_other_are_spread_over_a_map() {
        let hash = |id| BuildHasherDefault::<IdHasher>::default().hash_one(StreamId(id));
        let tops: BTreeSet<u64> = (1..=128).map(|id| hash(id) >> 57).collect();
        assert!(tops.len() > 100, "{}", tops.len());
    }

    proptest! {
        /// Streams that come in order and go in any are what a set says they are.
        #[test]
        fn whatever_comes_and_goes_is_found(goes in prop::collection::vec(any::<prop::sample::Index>(), 0..200)) {
            let (mut streams, mut set) = (Streams::default(), BTreeSet::new());
            for (next, goes) in (1..).zip(&goes) {
                streams.insert_with(StreamId(next), || stream(next));
                set.insert(next);
                if next % 3 != 0 {
                    let gone = *goes.get(&set.iter().copied().collect::<Vec<u64>>());
                    prop_assert!(streams.remove(StreamId(gone)));
                    prop_assert!(!streams.remove(StreamId(gone)));
                    set.remove(&gone);
                }
                prop_assert_eq!(streams.len(), set.len());
                prop_assert_eq!(streams.ids().map(|id| id.0).collect::<BTreeSet<u64>>(), set.clone());
                for id in 0..=next + 1 {
                    let found = streams.get(StreamId(id)).map(|stream| stream.send_credit);
                    prop_assert_eq!(found, set.contains(&id).then_some(id));
                    prop_assert_eq!(streams.get_mut(StreamId(id)).is_some(), set.contains(&id));
                    prop_assert_eq!(streams.contains(StreamId(id)), set.contains(&id));
                }
            }
        }
    }
}
