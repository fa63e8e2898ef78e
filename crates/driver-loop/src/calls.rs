//! The calls of a session by their numbers: which are to be opened, which have something to say, and when they have to be over.

use std::collections::{BTreeSet, HashMap, VecDeque};

use bytes::Bytes;
use tollfree_layout::StreamId;

use crate::CallError;
use crate::call::{Call, Opening};

/// See the module.
#[derive(Debug)]
pub(crate) struct Calls {
    calls: HashMap<u64, Call>,
    /// When calls of this end have to be over, with their numbers.
    deadlines: BTreeSet<(u64, u64)>,
    /// Client: calls that wait to be opened. Numbers are in the order in which they came.
    opens: BTreeSet<u64>,
    /// Calls that have something to say and did not lack credit, in the order of their turns; some may be over.
    writers: VecDeque<u64>,
    /// How many of these are over.
    gone_count: usize,
    /// Calls that are to be read though nothing has come since.
    resumed: Vec<u64>,
    next_number: u64,
    message_len_max: usize,
}

impl Calls {
    pub(crate) fn new(message_len_max: usize) -> Calls {
        Calls {
            calls: HashMap::new(),
            deadlines: BTreeSet::new(),
            opens: BTreeSet::new(),
            writers: VecDeque::new(),
            gone_count: 0,
            resumed: Vec::new(),
            next_number: 0,
            message_len_max,
        }
    }

    /// Calls under way, and calls that wait to be opened.
    pub(crate) fn len(&self) -> usize {
        self.calls.len()
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Call> {
        self.calls.get_mut(&number)
    }

    /// A client's call begins; it is to be opened.
    pub(crate) fn begin(&mut self, opening: Opening, metadata: Bytes) -> u64 {
        self.next_number += 1;
        self.begin_as(self.next_number, opening, metadata);
        self.next_number
    }

    /// The same, by a number that was none of a call here.
    pub(crate) fn begin_as(&mut self, number: u64, opening: Opening, metadata: Bytes) {
        let deadline_ns = opening.deadline_ns;
        self.calls.insert(number, Call::outgoing(opening, metadata, self.message_len_max));
        if deadline_ns != 0 {
            self.deadlines.insert((deadline_ns, number));
        }
        self.opens.insert(number);
    }

    /// A client's call has come to a server.
    pub(crate) fn came(&mut self, id: StreamId) -> u64 {
        self.next_number += 1;
        self.calls.insert(self.next_number, Call::incoming(id, self.message_len_max));
        self.next_number
    }

    /// Has an application say something on a call.
    pub(crate) fn say(
        &mut self,
        number: u64,
        what: impl FnOnce(&mut Call) -> Result<(), CallError>,
    ) -> Result<(), CallError> {
        what(self.calls.get_mut(&number).ok_or(CallError::Ended)?)?;
        self.wants_to_say(number);
        Ok(())
    }

    /// The longest message that is taken.
    pub(crate) fn message_len_max(&self) -> usize {
        self.message_len_max
    }

    /// An open call has something to say: its turn comes behind all others.
    pub(crate) fn wants_to_say(&mut self, number: u64) {
        if let Some(call) = self.calls.get_mut(&number)
            && call.opening().is_none()
            && call.lists()
        {
            self.writers.push_back(number);
        }
    }

    /// The application takes no messages of a call for now.
    pub(crate) fn pause(&mut self, number: u64) {
        if let Some(call) = self.calls.get_mut(&number) {
            call.pause();
        }
    }

    /// The application takes messages of a call again. Whether some may be there.
    pub(crate) fn resume(&mut self, number: u64) -> bool {
        let has_unread = self.calls.get_mut(&number).is_some_and(Call::resume);
        if has_unread {
            self.resumed.push(number);
        }
        has_unread
    }

    /// A call that is to be read though nothing has come.
    pub(crate) fn next_resumed(&mut self) -> Option<u64> {
        self.resumed.pop()
    }

    /// The first call that is to be opened.
    pub(crate) fn first_to_open(&mut self) -> Option<(u64, &mut Call)> {
        let number = *self.opens.first()?;
        self.calls.get_mut(&number).map(|call| (number, call))
    }

    /// A call is open, and may have more to say.
    pub(crate) fn opened(&mut self, number: u64, id: StreamId) {
        self.opens.remove(&number);
        if let Some(call) = self.calls.get_mut(&number) {
            call.opened(id);
        }
        self.wants_to_say(number);
    }

    pub(crate) fn has_to_open(&self) -> bool {
        !self.opens.is_empty()
    }

    /// How many turns there are to be had. Some may be those of calls that are over.
    pub(crate) fn turn_count(&self) -> usize {
        self.writers.len()
    }

    /// Takes the next turn: the number of a call that has something to say.
    pub(crate) fn next_turn(&mut self) -> Option<u64> {
        while let Some(number) = self.writers.pop_front() {
            match self.calls.get_mut(&number) {
                Some(call) => {
                    call.unlists();
                    return Some(number);
                }
                None => self.gone_count -= 1,
            }
        }
        None
    }

    /// A call could not say anything for want of room: the next turn is its own.
    pub(crate) fn turn_is_kept(&mut self, number: u64) {
        if let Some(call) = self.calls.get_mut(&number)
            && call.lists()
        {
            self.writers.push_front(number);
        }
    }

    /// A call is over.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Call> {
        let call = self.calls.remove(&number)?;
        self.deadlines.remove(&(call.deadline_ns(), number));
        self.opens.remove(&number);
        if call.is_listed() {
            self.gone_count += 1;
            if self.gone_count > self.writers.len() / 2 {
                self.writers.retain(|number| self.calls.contains_key(number));
                self.gone_count = 0;
            }
        }
        Some(call)
    }

    /// When the first has to be over.
    pub(crate) fn first_deadline_ns(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline_ns, _)| *deadline_ns)
    }

    /// All of them, in the order of their numbers: the session is over.
    pub(crate) fn take_all(&mut self) -> Vec<(u64, Call)> {
        self.deadlines.clear();
        self.opens.clear();
        self.writers.clear();
        self.resumed.clear();
        self.gone_count = 0;
        let mut calls: Vec<_> = self.calls.drain().collect();
        calls.sort_unstable_by_key(|(number, _)| *number);
        calls
    }

    /// The first call whose deadline has passed.
    pub(crate) fn late(&self, now_ns: u64) -> Option<u64> {
        self.deadlines.first().filter(|(deadline_ns, _)| *deadline_ns <= now_ns).map(|(_, number)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Message;

    #[test]
    fn turns_go_round_and_those_of_calls_that_are_over_take_no_memory() {
        let mut calls = Calls::new(100);
        let numbers: Vec<_> = (0..100).map(|id| calls.came(StreamId(id))).collect();
        for number in &numbers {
            for _ in 0..2 {
                calls.say(*number, |call| call.say(Message::default().into_inline())).unwrap();
            }
        }
        assert_eq!(calls.turn_count(), 100, "each once");
        assert_eq!(calls.next_turn(), Some(numbers[0]));
        calls.wants_to_say(numbers[0]);
        assert_eq!(calls.next_turn(), Some(numbers[1]));
        calls.turn_is_kept(numbers[1]);
        assert_eq!(calls.next_turn(), Some(numbers[1]));
        for number in &numbers[2..99] {
            calls.remove(*number).unwrap();
        }
        assert!(calls.turn_count() <= 4);
        assert_eq!(
            [calls.next_turn(), calls.next_turn(), calls.next_turn()],
            [Some(numbers[99]), Some(numbers[0]), None]
        );
    }

    #[test]
    fn calls_that_wait_to_be_opened_are_opened_in_order_or_forgotten() {
        let mut calls = Calls::new(100);
        let opening = |deadline_ns| Opening { path: "/x".into(), deadline_ns };
        let numbers = [3, 2, 0].map(|deadline_ns| calls.begin(opening(deadline_ns), Bytes::new()));
        assert_eq!(
            (calls.first_deadline_ns(), calls.late(1), calls.late(2)),
            (Some(2), None, Some(numbers[1]))
        );
        calls.say(numbers[0], |call| call.say(Message::default().into_inline())).unwrap();
        assert_eq!(calls.turn_count(), 0, "it is not open");
        calls.remove(numbers[0]);
        assert_eq!(calls.first_to_open().unwrap().0, numbers[1]);
        calls.opened(numbers[1], StreamId(7));
        assert_eq!((calls.first_to_open().unwrap().0, calls.next_turn()), (numbers[2], Some(numbers[1])));
        assert_eq!(calls.take_all().len(), 2);
        assert!(!calls.has_to_open() && calls.first_deadline_ns().is_none() && calls.len() == 0);
    }
}
