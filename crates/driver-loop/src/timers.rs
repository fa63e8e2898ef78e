//! What a loop is to do later on.

use std::collections::{BTreeSet, HashMap};

use crate::SessionId;

/// Whose timer it is. Each has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Timer {
    /// A handshake's end, or its next attempt.
    Meeting(SessionId),
    /// What a connection wants, or a deadline.
    Session(SessionId),
    /// Something in channels.
    Channels,
    /// A listener may accept again.
    Listener(u32),
}

/// Timers by when they are due, on the monotonic clock in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    in_order: BTreeSet<(u64, Timer)>,
    due_ns: HashMap<Timer, u64>,
}

impl Timers {
    /// It is due then, and not when it was; `None`: never.
    pub(crate) fn set(&mut self, timer: Timer, due_ns: Option<u64>) {
        let before = match due_ns {
            Some(due_ns) => self.due_ns.insert(timer, due_ns),
            None => self.due_ns.remove(&timer),
        };
        if before == due_ns {
            return;
        }
        if let Some(before) = before {
            self.in_order.remove(&(before, timer));
        }
        if let Some(due_ns) = due_ns {
            self.in_order.insert((due_ns, timer));
        }
    }

    /// When the first is due.
    pub(crate) fn first_ns(&self) -> Option<u64> {
        self.in_order.first().map(|(due_ns, _)| *due_ns)
    }

    /// Takes the first, if it is due by now.
    pub(crate) fn take_due(&mut self, now_ns: u64) -> Option<Timer> {
        let (due_ns, timer) = *self.in_order.first()?;
        if due_ns > now_ns {
            return None;
        }
        self.set(timer, None);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_due_when_it_was_set_to_last() {
        let mut timers = Timers::default();
        let [one, two] = [1, 2].map(Timer::Listener);
        timers.set(one, Some(10));
        timers.set(two, Some(20));
        timers.set(one, Some(30));
        assert_eq!((timers.first_ns(), timers.take_due(19)), (Some(20), None));
        assert_eq!((timers.take_due(20), timers.take_due(20)), (Some(two), None));
        timers.set(one, None);
        assert_eq!((timers.first_ns(), timers.take_due(u64::MAX)), (None, None));
    }
}
