//! Clients that have connected and not said HELLO yet: they hold no place that others want.

use std::collections::VecDeque;

use tollfree_rendezvous::descriptor_limit;

/// At most so many of all descriptors are silent clients'; at least, and at most, so many.
const SHARE: u64 = 8;
const COUNT_MIN: usize = 16;
const COUNT_MAX: usize = 256;
/// Of these, one process's.
const PROCESS_SHARE: usize = 4;

/// Clients that may still be silent, in the order of their coming; `C` is what a driver knows one by.
#[derive(Debug)]
pub struct PendingHandshakes<C> {
    clients: VecDeque<(i32, C)>,
    count_max: usize,
}

impl<C> Default for PendingHandshakes<C> {
    fn default() -> PendingHandshakes<C> {
        let count_max = usize::try_from(descriptor_limit() / SHARE).unwrap_or(COUNT_MAX);
        PendingHandshakes { clients: VecDeque::new(), count_max: count_max.clamp(COUNT_MIN, COUNT_MAX) }
    }
}

impl<C> PendingHandshakes<C> {
    /// A client of a process has come. Where there are too many that say nothing, returns the oldest, which is to make place: that of its own
    /// process, if that has more than its share.
    pub fn add(&mut self, pid: i32, client: C, is_silent: impl Fn(&C) -> bool) -> Option<C> {
        self.clients.retain(|(_, client)| is_silent(client));
        let of_process = self.clients.iter().filter(|(other, _)| *other == pid).count();
        let oldest = if of_process >= self.count_max / PROCESS_SHARE {
            self.clients.iter().position(|(other, _)| *other == pid)
        } else {
            (self.clients.len() >= self.count_max).then_some(0)
        };
        let oldest = oldest.and_then(|idx| self.clients.remove(idx));
        self.clients.push_back((pid, client));
        oldest.map(|(_, client)| client)
    }

    /// All that may still be silent.
    pub fn clients(&self) -> impl Iterator<Item = &C> {
        self.clients.iter().map(|(_, client)| client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_keeps_no_other_out() {
        let mut silent = PendingHandshakes { clients: VecDeque::new(), count_max: 16 };
        for client in 0..4 {
            assert_eq!(silent.add(7, client, |_| true), None);
        }
        assert_eq!(silent.add(7, 4, |_| true), Some(0), "it has its share");
        for client in 5..17 {
            assert_eq!(silent.add(100 + client, client, |_| true), None);
        }
        assert_eq!(silent.add(999, 17, |_| true), Some(1), "there are too many, and this is the oldest");
        assert_eq!(silent.add(999, 18, |client| *client >= 17), None, "the others have said something");
        assert_eq!(silent.clients().copied().collect::<Vec<_>>(), [17, 18]);
    }
}
