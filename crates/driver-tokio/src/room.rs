//! Whose turn it is while the ring has no room.
//!
//! Senders that find no room wait in the order in which they came, and calls that wait to be opened stand in the same order. A sender that
//! comes later waits behind them, though there may be room for what it has to say: room comes a bit at a time, and would else go to
//! newcomers for as long as there are some. A sender that has filled the ring and has more to say goes to the end of the queue.
//!
//! When half of the ring is free the first few are told, and each that has sent has the next one told, until the ring is full again. A sender
//! that was told and does not come is passed over once tasks that were woken after it have run, and the peer has read nearly all of the ring; and
//! in any case once others have tried in vain a great many times because of it, for a peer may have stopped reading.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use tollfree_layout::StreamId;
use tollfree_session::{Outgoing, Progress, SendError};

use crate::core::Core;
use crate::opening::TOLD_COUNT_MAX;
use crate::runtime_waiters::WaitKey;
use crate::turns::Stamp;

/// The number of a sender that does not wait yet: behind all that do.
pub(crate) const NEWEST: u64 = u64::MAX;

/// Attempts of others that are refused for a sender that was told and does not come, at most: a millisecond's.
const REFUSED_MAX: u32 = 1024;

/// Senders that wait for room, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct RoomQueue {
    waiting: BTreeMap<u64, StreamId>,
    /// Those that were told to send, and have not tried yet.
    told: BTreeMap<u64, StreamId>,
    /// Half of the ring was free, and since then no sender has found it full.
    has_room: bool,
    /// Attempts that were refused for the first one that was told, since it is that.
    refused_count: u32,
}

impl RoomQueue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.told.is_empty()
    }

    /// Whether a sender is to be told of room.
    #[inline]
    pub(crate) fn has_untold(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a sender that came before this number was not told.
    pub(crate) fn has_untold_before(&self, number: u64) -> bool {
        self.waiting.first_key_value().is_some_and(|(first, _)| *first < number)
    }

    fn first(&self) -> Option<(u64, StreamId)> {
        let first =
            |queue: &BTreeMap<u64, StreamId>| queue.first_key_value().map(|(number, id)| (*number, *id));
        match (first(&self.told), first(&self.waiting)) {
            (Some(told), Some(waiting)) => Some(if told.0 < waiting.0 { told } else { waiting }),
            (told, waiting) => told.or(waiting),
        }
    }

    fn remove(&mut self, number: u64) -> bool {
        self.refused_count = 0;
        self.told.remove(&number).is_some() || self.waiting.remove(&number).is_some()
    }
}

impl Core {
    /// What a sender waits for while it is others' turn. `None`: it may send.
    #[cold]
    pub(crate) fn waits_behind(
        &mut self,
        id: StreamId,
        outgoing: &Outgoing,
    ) -> Result<Option<Progress>, SendError> {
        let number = self.room_number(id);
        if self.session().closed().is_some() || !self.is_room_claimed(number) {
            return Ok(None);
        }
        let progress = self.session().needs_room(id, outgoing)?;
        if progress == Progress::NeedRoom {
            self.queue_sender(id, number);
        }
        Ok(Some(progress))
    }

    /// Notes what came of an attempt to send while there is a queue, or where there is to be one.
    #[cold]
    pub(crate) fn tried_to_send(&mut self, id: StreamId, progress: &Result<Progress, SendError>) {
        let number = self.room_number(id);
        match progress {
            Ok(Progress::NeedRoom) => {
                self.room.has_room = false;
                self.queue_sender(id, number);
            }
            Ok(Progress::RanOut) => {
                self.room.has_room = false;
                self.room.remove(number);
                self.queue_sender(id, NEWEST);
            }
            _ => self.leave_room_queue(id),
        }
    }

    /// The number under which a sender waits, or has waited.
    fn room_number(&mut self, id: StreamId) -> u64 {
        match self.slot(WaitKey::Write(id)) {
            Some(slot) if slot.room_number != 0 => slot.room_number,
            _ => NEWEST,
        }
    }

    fn queue_sender(&mut self, id: StreamId, number: u64) {
        let number = if number == NEWEST { self.next_number() } else { number };
        if let Some(slot) = self.slot(WaitKey::Write(id)) {
            slot.room_number = number;
            self.room.told.remove(&number);
            self.room.waiting.insert(number, id);
        }
    }

    /// A sender waits for no room any more: those behind have moved up.
    pub(crate) fn leave_room_queue(&mut self, id: StreamId) {
        let number = self.room_number(id);
        if let Some(slot) = self.slot(WaitKey::Write(id)) {
            slot.room_number = 0;
        }
        if self.room.remove(number) {
            self.wake_ready();
        }
    }

    /// Whether room is that of somebody who came before this number.
    pub(crate) fn is_room_claimed(&mut self, number: u64) -> bool {
        self.is_claimed_by_sender(number) || self.is_claimed_by_opener(number)
    }

    /// The same of a sender alone. Those whose calls have ended, or were told and did not come, are taken out.
    pub(crate) fn is_claimed_by_sender(&mut self, number: u64) -> bool {
        let is_nearly_read = self.connection.is_nearly_read();
        while let Some((first, id)) = self.room.first()
            && first < number
        {
            let is_told = self.room.told.contains_key(&first);
            let woken = self.slot(WaitKey::Write(id)).map(|slot| slot.woken_at());
            let woken = woken.filter(|_| self.session().is_live(id));
            let is_late = |woken: Stamp| is_told && is_nearly_read && !self.turns.owes(woken);
            if !woken.is_none_or(is_late) {
                self.room.refused_count += u32::from(is_told);
                if self.room.refused_count <= REFUSED_MAX {
                    return true;
                }
            }
            self.room.remove(first);
        }
        false
    }

    fn is_claimed_by_opener(&self, number: u64) -> bool {
        let is_nearly_read = self.connection.is_nearly_read();
        self.opens.range(..number).take(self.session().may_open_count()).any(|(_, turn)| {
            turn.lacks_room() && !(turn.is_told() && is_nearly_read && !self.turns.owes(turn.slot.woken_at()))
        })
    }

    /// Senders whose turn it is, and who were not told so.
    pub(crate) fn due_senders(&mut self) -> SmallVec<[(u64, StreamId); TOLD_COUNT_MAX]> {
        let is_over = self.session().closed().is_some();
        self.room.has_room = self.room.has_room || self.connection.has_room();
        if !is_over && !self.room.has_room {
            return SmallVec::new();
        }
        let opener = self.opens.iter().take(self.session().may_open_count());
        let opener =
            opener.filter(|(_, turn)| turn.lacks_room() && !turn.is_told()).map(|(number, _)| *number).next();
        let last = opener.filter(|_| !is_over).unwrap_or(NEWEST);
        let most = match TOLD_COUNT_MAX.saturating_sub(self.room.told.len()) {
            _ if is_over => usize::MAX,
            // The others do not come.
            0 => usize::from(self.connection.is_nearly_read()),
            most => most,
        };
        self.room.waiting.range(..last).take(most).map(|(number, id)| (*number, *id)).collect()
    }

    /// Tells those whose turn it is to send.
    pub(crate) fn wake_senders(&mut self) {
        for (number, id) in self.due_senders() {
            self.room.waiting.remove(&number);
            self.room.told.insert(number, id);
            self.wake(WaitKey::Write(id));
        }
    }
}
