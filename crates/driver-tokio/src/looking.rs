//! Looking for what is waited for, within one `poll`: for the answer to a call, for the next message of a stream, for the next call.
//!
//! A task that waits looks first: so long as that is worth it ([`tollfree_connection`]) a quick peer is met without a task being put to sleep, woken, or
//! given its turn. How long a look is depends on who else wants the thread.

use tokio::runtime::{self, RuntimeFlavor};
use tollfree_connection::constants::GLANCES_AT_ONCE;
use tollfree_layout::StreamId;
use tollfree_session::SingleFrame;

use crate::core::{Core, current_cpu};
use crate::runtime_waiters::WaitKey;
use crate::shared::{Entered, Shared};
use tollfree_host::Here;
use tollfree_os::clock::now_ns;

/// Times that one `poll` may poll, before others have their turn.
const ROUND_COUNT: usize = 8;

/// How far a task will look within one `poll`.
pub(crate) struct Search {
    /// Glances at an empty ring.
    glances: usize,
    /// There may be more of them, where that costs nobody anything.
    may_go_on: bool,
    /// Times that it polls.
    rounds: usize,
    /// It has had something to do, and looks from now on instead of another.
    pub(crate) takes_over: bool,
}

impl Shared {
    /// A task is about to look for what it waits for; `speaks`: it has something to say before anything more can come.
    // Where this is called the kind of the key is known, and most of this goes: shared by all kinds it takes 100 instructions more a call.
    #[inline(always)]
    pub(crate) fn begin_search(&self, core: &mut Core, key: WaitKey, speaks: bool) -> Search {
        // While this task looks itself, records for it need not wake it.
        let has_waited = core.slot(key).is_some_and(|slot| std::mem::take(&mut slot.waiting));
        // Where both ends of a stream look, each on a thread of its own, they find each other without end: who has had something goes behind those
        // that were woken and have not run.
        let gives_way = !has_waited && matches!(key, WaitKey::Read(_)) && core.turns.is_owed();
        let polled_at_ns = core.waiters.polled_by(key).map(|runtime_waiters| runtime_waiters.looked_at_ns);
        // Glances are for the one who polls: the others' time is better spent on their own work.
        let polls = polled_at_ns.is_some() || !core.waiters.is_polled();
        let looked_at_ns = match key {
            WaitKey::Read(_) if !has_waited && !polls && !speaks => core.looks_instead(key),
            _ => polled_at_ns,
        };
        // A server's accepting task is the one that most records are for.
        let takes_over = !has_waited && (key == WaitKey::Accept || (!polls && looked_at_ns.is_some()));
        // While another task sends, which may do so on another thread, it is not to wait for this one.
        let other_sends =
            core.turns.looks().is_some_and(|id| key != WaitKey::Read(id) && key != WaitKey::Write(id));
        let looks = !gives_way && !speaks && !other_sends && (polls || takes_over);
        let glances = match looks {
            true if self.is_dedicated() => core.dedicated_glances(),
            true => core.glances(looked_at_ns.unwrap_or(0)),
            false => 0,
        };
        Search {
            glances,
            may_go_on: glances > 0 && core.waiters.may_have_threads(),
            rounds: if gives_way { 0 } else { ROUND_COUNT },
            takes_over,
        }
    }

    /// Pumps, with a few glances at the ring when it is empty, until there may be something for the task that looks.
    /// `false`: it has looked for long enough.
    pub(crate) fn finds_news(&self, core: &mut Entered<'_>, search: &mut Search, key: WaitKey) -> bool {
        if !core.wakes.is_empty() || (key != WaitKey::Accept && core.session().has_accepted()) {
            // What has come is for others, who are woken once the lock is released.
            (search.glances, search.may_go_on) = (0, false);
        }
        while search.rounds > 0 {
            search.rounds -= 1;
            let seen = core.news;
            if core.poll(&self.socket) > 0 || core.news != seen {
                return true;
            }
            if core.session().closed().is_some() {
                search.rounds = 0;
                return true;
            }
            while !core.connection.has_record() {
                if search.glances == 0 && std::mem::take(&mut search.may_go_on) {
                    search.glances = core.further_glances();
                }
                if search.glances == 0 {
                    return false;
                }
                let others_turn = core.glance(&mut search.glances);
                if others_turn && search.glances > 0 {
                    let seen = core.news;
                    core.let_others_in();
                    // While another had the lock, what came for this task woke nobody, for this task was looking.
                    if core.news != seen {
                        return true;
                    }
                }
            }
            if key == WaitKey::Accept {
                // It may be a call that can be taken at once.
                return true;
            }
        }
        false
    }

    /// Looks for the answer to a call, as long as a task looks within one `poll`. `None`: it has not come, or not in one frame.
    pub(crate) fn look_for_answer(&self, core: &mut Entered<'_>, id: StreamId) -> Option<SingleFrame> {
        core.offer_now_and_then();
        let mut glances = match self.is_dedicated() {
            true => core.dedicated_glances(),
            // Nobody polls under the key of a call that has just begun.
            false => core.glances(0),
        };
        let mut may_go_on = glances > 0 && core.waiters.may_have_threads();
        while core.session().closed().is_none() {
            if glances == 0 && std::mem::take(&mut may_go_on) && core.wakes.is_empty() {
                glances = core.further_glances();
            }
            if glances == 0 {
                break;
            }
            if core.connection.has_record() {
                glances -= 1;
                if core.take_next_of(id, &self.socket) {
                    break;
                }
                continue;
            }
            if core.glance(&mut glances) {
                let seen = core.news;
                core.let_others_in();
                // Another thread may have taken it meanwhile.
                if core.news != seen && core.session().has_incoming(id) {
                    break;
                }
            }
        }
        core.take_answer(id)
    }
}

impl Core {
    /// Whether the reader of a stream, which has just had a message, looks for the next one instead of the task that looks out for calls: that
    /// one waits meanwhile, and looks again when the reader has something to do. When it looked last, if so.
    #[inline(never)]
    fn looks_instead(&mut self, key: WaitKey) -> Option<u64> {
        self.waiters.polled_by(WaitKey::Accept)?;
        if !self.connection.wait().is_worth_a_look(&Here) || !self.turns.begins() {
            return None;
        }
        let runtime_waiters = self.waiters.polled_by(WaitKey::Accept)?;
        if runtime::Handle::try_current().map(|handle| handle.id()).ok() != Some(runtime_waiters.runtime) {
            return None;
        }
        runtime_waiters.looked_for_by(key);
        runtime_waiters.queue(WaitKey::Accept, &mut self.accept);
        Some(runtime_waiters.looked_at_ns)
    }

    /// Looks at the empty ring a few times, as long as one look is quick. Whether nothing came, so that others may have the lock
    /// for a moment.
    #[inline]
    fn glance(&self, glances: &mut usize) -> bool {
        let round = (*glances).min(GLANCES_AT_ONCE);
        let left = self.connection.glance(round);
        *glances -= round - left;
        left == 0
    }

    /// How often a thread that has nothing else to do may look within one `poll`.
    fn dedicated_glances(&mut self) -> usize {
        self.connection.dedicated_glances(current_cpu)
    }

    /// How often a task may look within one `poll` whose thread may have other tasks too. `looked_at_ns`: when the task that polls looked
    /// last; 0 where none has.
    #[inline(never)]
    fn glances(&mut self, looked_at_ns: u64) -> usize {
        // Nobody answers what is not published yet.
        if !self.connection.wait().is_worth_a_look(&Here) || self.connection.is_gathering() {
            return 0;
        }
        if looked_at_ns != 0 {
            self.connection.wait_mut().turn_came(now_ns().saturating_sub(looked_at_ns));
        }
        self.connection.wait_mut().glances()
    }

    /// How often a task looks on within one `poll` that has not found anything so far. In a runtime of several threads another of them takes
    /// what this one leaves lying; and to come again would wake that one, which costs more than the look.
    #[cold]
    fn further_glances(&mut self) -> usize {
        let Ok(handle) = runtime::Handle::try_current() else { return 0 };
        if handle.runtime_flavor() != RuntimeFlavor::MultiThread || self.shares_cpu() {
            return 0;
        }
        let now = now_ns();
        if !self.connection.wait().may_spin(now, &Here) {
            return 0;
        }
        let Some(runtime_waiters) = self.waiters.find(handle.id()) else { return 0 };
        if runtime_waiters.begins_to_wait(now) {
            self.connection.wait_mut().wait_begins(now);
        }
        self.connection.wait_mut().further_glances()
    }

    /// Whether a look within one `poll` is long enough for a quick peer to answer.
    #[inline]
    pub(crate) fn looks_long(&self) -> bool {
        self.connection.wait().is_alone() && self.connection.wait().is_worth_a_look(&Here)
    }
}
