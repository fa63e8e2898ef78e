//! How a client's calls begin.
//!
//! # Turns
//! A call that can't be opened, since too many are under way or the ring is full, waits for its turn. Those that wait go in the
//! order in which they came, and a newcomer behind them: for each that waits before it, one more call must be possible. Room is
//! the first one's; where that waits for room, another goes before it only once the peer has read nearly all of the ring, so
//! that there is room for both. A task that was told of its turn and does not take it therefore keeps a call's place, and
//! never the ring.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};

use smallvec::SmallVec;
use tollfree_layout::StreamId;
use tollfree_session::{Opening, Outgoing, Progress, SendError, SingleFrame};

use crate::attachment::Attachment;
use crate::call::{CANCELLED, Stream};
use crate::core::Core;
use crate::room::NEWEST;
use crate::runtime_waiters::{Slot, WaitKey};
use crate::shared::{Shared, Socket};

/// Calls that are told of their turn and have not tried yet, beyond which one more is told at a time; senders likewise.
pub(crate) const TOLD_COUNT_MAX: usize = 16;

/// How a call has begun.
#[derive(Debug)]
pub enum Started {
    /// The answer has come, all of it in one frame. The call is over.
    Answered(SingleFrame),
    /// The call is open.
    Open(Stream),
    /// The same, and the task is woken when something has come for it.
    Waits(Stream),
    /// It can't be opened now, and nothing was sent: it has to [wait](Attachment::open).
    MustWait,
}

impl Attachment {
    /// Begins a call with as much of `outgoing` as fits (client); what is left over goes by [`Stream::poll_send`]. Where that
    /// is everything, and nobody else looks at the ring, looks for the answer too, for as long as a task looks within one
    /// `poll`.
    ///
    /// `meanwhile` is done while the request is on its way, without the session's lock, before the look for the answer. Not
    /// done where there is none.
    ///
    /// # Errors
    /// [`SendError`]; nothing of the call was sent then, so it may be made elsewhere.
    #[inline]
    pub fn start(
        &self,
        cx: &mut Context<'_>,
        opening: Opening<'_>,
        outgoing: &mut Outgoing,
        meanwhile: Option<&mut dyn FnMut()>,
    ) -> Result<Started, SendError> {
        let (shared, socket) = (&self.shared, &self.shared.socket);
        let says_all = outgoing.ending.is_some();
        let mut core = shared.enter()?;
        if core.is_queue() {
            let before = core.opens.len();
            if core.must_queue(before, NEWEST).is_some() {
                return Ok(Started::MustWait);
            }
        }
        let opened = core.connection.open(opening, outgoing);
        // Who polls looks for all, and who gathers publishes later.
        let alone = !core.waiters.is_polled() && core.connection.goes_alone();
        let is_first = core.turns.begins();
        let looks = says_all && outgoing.is_empty() && alone && is_first && core.looks_long();
        let id = match opened {
            Ok(Ok(id)) if looks => id,
            opened => {
                // Small frames that waited may have gone, though the call did not.
                core.flush_soon(socket);
                let Ok(id) = opened? else { return Ok(Started::MustWait) };
                let key = WaitKey::Read(id);
                let waits =
                    outgoing.is_empty() && (core.follow(cx, key) || (!is_first && core.give_way(cx, key)));
                let stream = Stream::new(shared.clone(), id);
                return Ok(if waits { Started::Waits(stream) } else { Started::Open(stream) });
            }
        };
        core.flush(socket);
        if let Some(meanwhile) = meanwhile
            && let Err(panic) = catch_unwind(AssertUnwindSafe(|| core.without_lock(meanwhile)))
        {
            // Nobody would look after the call.
            core.forget(id, CANCELLED, socket);
            resume_unwind(panic);
        }
        Ok(match shared.look_for_answer(&mut core, id) {
            Some(answer) => Started::Answered(answer),
            None => Started::Open(Stream::new(shared.clone(), id)),
        })
    }

    /// Opens a call that may have to wait until it can be (client).
    pub fn open(&self) -> Opener {
        Opener { shared: self.shared.clone(), number: None }
    }
}

/// A call that is being opened (client).
#[derive(Debug)]
pub struct Opener {
    shared: Arc<Shared>,
    /// Set while the call waits for its turn.
    number: Option<u64>,
}

impl Opener {
    /// Opens the call with as much of `outgoing` as fits; what is left over goes by [`Stream::poll_send`].
    ///
    /// # Errors
    /// [`SendError`]; nothing of the call was sent then, so it may be made elsewhere.
    pub fn poll_open(
        &mut self,
        cx: &mut Context<'_>,
        opening: Opening<'_>,
        outgoing: &mut Outgoing,
    ) -> Poll<Result<Stream, SendError>> {
        let number = match self.number {
            Some(number) => number,
            None => {
                let mut core = self.shared.enter()?;
                let newest = core.opens.len();
                match core.open_in_turn(newest, NEWEST, opening, outgoing, &self.shared.socket)? {
                    Ok(id) => return Poll::Ready(Ok(Stream::new(self.shared.clone(), id))),
                    Err(progress) => *self.number.insert(core.queue_opener(progress)),
                }
            }
        };
        let mut is_settled = false;
        let polled = self.shared.poll_wait(cx, WaitKey::Open(number), false, |core, socket| {
            let place = core.opens.range(..number).count();
            let opened = match core.open_in_turn(place, number, opening, outgoing, socket) {
                Ok(Ok(id)) => Ok(id),
                Err(error) => Err(error),
                Ok(Err(progress)) => {
                    core.refuse_opener(number, progress);
                    return None;
                }
            };
            core.leave_queue(number);
            is_settled = true;
            Some(opened)
        });
        if is_settled {
            self.number = None;
        }
        polled.map(|result| Ok(Stream::new(self.shared.clone(), result??)))
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        if let Some(number) = self.number
            && let Ok(mut core) = self.shared.enter()
        {
            core.leave(WaitKey::Open(number));
            core.leave_queue(number);
        }
    }
}

/// A call that waits for its turn to be opened.
#[derive(Debug, Default)]
pub(crate) struct OpeningTurn {
    pub(crate) slot: Slot,
    /// What it lacked when it tried last is room in the ring.
    wants_room: bool,
    /// It was told to try again.
    is_told: bool,
}

impl OpeningTurn {
    /// It waits for room in the ring.
    pub(crate) fn lacks_room(&self) -> bool {
        self.wants_room
    }

    pub(crate) fn is_told(&self) -> bool {
        self.is_told
    }

    fn refused(&mut self, progress: Progress) {
        (self.wants_room, self.is_told) = (progress == Progress::NeedRoom, false);
    }
}

impl Core {
    /// Whether somebody waits to open a call, or for room.
    #[inline]
    pub(crate) fn is_queue(&self) -> bool {
        !self.room.is_empty() || !self.opens.is_empty()
    }

    /// The number of the next to queue up.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// Puts a call behind those that wait to be opened, and gives the number under which it waits.
    fn queue_opener(&mut self, progress: Progress) -> u64 {
        let number = self.next_number();
        self.opens.entry(number).or_default().refused(progress);
        number
    }

    /// It was not a call's turn, or something was lacking again.
    fn refuse_opener(&mut self, number: u64, progress: Progress) {
        if let Some(turn) = self.opens.get_mut(&number) {
            self.told_count -= usize::from(turn.is_told);
            turn.refused(progress);
        }
    }

    /// A call waits no more: those behind it have moved up.
    fn leave_queue(&mut self, number: u64) {
        if let Some(turn) = self.opens.remove(&number) {
            self.told_count -= usize::from(turn.is_told);
        }
        self.wake_ready();
    }

    /// What a call with this number has to wait for that so many wait before.
    fn must_queue(&mut self, before: usize, number: u64) -> Option<Progress> {
        if !self.is_queue() || self.is_over() {
            return None;
        }
        if before > 0 && self.session().may_open_count() <= before {
            return Some(Progress::NeedStream);
        }
        if self.is_claimed_by_sender(number) {
            return Some(Progress::NeedRoom);
        }
        let is_short =
            !self.connection.is_nearly_read() && self.opens.values().take(before).any(|turn| turn.wants_room);
        is_short.then_some(Progress::NeedRoom)
    }

    /// Opens a call, unless it's the turn of some of those that wait before it.
    fn open_in_turn(
        &mut self,
        before: usize,
        number: u64,
        opening: Opening<'_>,
        outgoing: &mut Outgoing,
        socket: &Socket,
    ) -> Result<Result<StreamId, Progress>, SendError> {
        if let Some(progress) = self.must_queue(before, number) {
            return Ok(Err(progress));
        }
        let opened = self.connection.open(opening, outgoing);
        // Small frames that waited may have gone, though the call did not.
        self.flush_soon(socket);
        opened
    }

    /// Whether a call that waits to be opened lacks room, and was not told of any.
    pub(crate) fn opener_wants_room(&self) -> bool {
        let may_open = self.session().may_open_count();
        self.opens.values().take(may_open).any(|turn| turn.wants_room && !turn.is_told)
    }

    /// Those who wait to open a call, whose turn it is, and who were not told so: a few of them, since each that opens a call
    /// has the next ones told. Were all told whenever there is room, hundreds would try for every few that find some.
    pub(crate) fn due_openers(&mut self) -> SmallVec<[u64; 8]> {
        let may_open = self.session().may_open_count();
        let has_room = self.is_over() || self.connection.has_room();
        let has_much = self.is_over() || self.connection.is_nearly_read();
        let most = TOLD_COUNT_MAX.saturating_sub(self.told_count).max(1);
        let mut due = SmallVec::new();
        for (idx, (number, turn)) in self.opens.iter().take(may_open).enumerate() {
            let is_last = turn.wants_room && !has_much;
            let is_behind = turn.wants_room && self.room.has_untold_before(*number);
            if !turn.is_told && !is_behind && (!is_last || (idx == 0 && has_room)) {
                due.push(*number);
            }
            // Those behind one that lacks room would be refused.
            if is_last || due.len() == most {
                break;
            }
        }
        due
    }

    /// Tells those whose turn it is to open a call.
    pub(crate) fn wake_openers(&mut self) {
        for number in self.due_openers() {
            if let Some(turn) = self.opens.get_mut(&number) {
                turn.is_told = true;
                self.told_count += 1;
            }
            self.wake(WaitKey::Open(number));
        }
    }
}
