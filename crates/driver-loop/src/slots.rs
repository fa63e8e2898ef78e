//! Sessions, and sockets that are to become some, by ids that are never given twice.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::SessionId;
use crate::meeting::Meeting;
use crate::session::Session;

/// What stands under an id.
#[derive(Debug)]
enum Place {
    Meeting(Box<Meeting>),
    Session(Box<Session>),
}

/// The loops of this process that there have been.
static LOOP_COUNT: AtomicU32 = AtomicU32::new(0);
/// Generations of one loop's ids begin so far behind those of the loop before: an id of one is no id of another.
const GENERATIONS_APART: u32 = 0x9e37_79b1;

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    place: Option<Place>,
    /// It stands in the list of places to be looked at.
    is_listed: bool,
    /// When its session's timer is due, in nanoseconds.
    due_ns: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Slots {
    first_generation: u32,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The sessions to be looked at in the next turn.
    listed: Vec<u32>,
    /// The list of the turn before, for its memory.
    spare: Vec<u32>,
}

impl Default for Slots {
    fn default() -> Slots {
        let nth = LOOP_COUNT.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        Slots {
            first_generation: nth.wrapping_mul(GENERATIONS_APART).max(1),
            slots: Vec::new(),
            free: Vec::new(),
            listed: Vec::new(),
            spare: Vec::new(),
        }
    }
}

impl Slots {
    /// Gives a meeting a place.
    pub(crate) fn insert(&mut self, meeting: Meeting) -> SessionId {
        let idx = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: self.first_generation, ..Slot::default() });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[idx as usize];
        slot.place = Some(Place::Meeting(Box::new(meeting)));
        SessionId { idx, generation: slot.generation }
    }

    fn slot(&self, id: SessionId) -> Option<&Slot> {
        self.slots.get(id.idx as usize).filter(|slot| slot.generation == id.generation)
    }

    fn slot_mut(&mut self, id: SessionId) -> Option<&mut Slot> {
        self.slots.get_mut(id.idx as usize).filter(|slot| slot.generation == id.generation)
    }

    pub(crate) fn session(&self, id: SessionId) -> Option<&Session> {
        match &self.slot(id)?.place {
            Some(Place::Session(session)) => Some(session),
            _ => None,
        }
    }

    pub(crate) fn session_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        match &mut self.slot_mut(id)?.place {
            Some(Place::Session(session)) => Some(session),
            _ => None,
        }
    }

    pub(crate) fn meeting(&self, id: SessionId) -> Option<&Meeting> {
        match &self.slot(id)?.place {
            Some(Place::Meeting(meeting)) => Some(meeting),
            _ => None,
        }
    }

    pub(crate) fn meeting_mut(&mut self, id: SessionId) -> Option<&mut Meeting> {
        match &mut self.slot_mut(id)?.place {
            Some(Place::Meeting(meeting)) => Some(meeting),
            _ => None,
        }
    }

    /// The id of what stands at an index now.
    pub(crate) fn id_at(&self, idx: u32) -> Option<SessionId> {
        let slot = self.slots.get(idx as usize).filter(|slot| slot.place.is_some())?;
        Some(SessionId { idx, generation: slot.generation })
    }

    /// Takes a meeting. Its place is kept until it [becomes](Slots::becomes) a session, or is [freed](Slots::free).
    pub(crate) fn take_meeting(&mut self, id: SessionId) -> Option<Meeting> {
        self.meeting(id)?;
        match self.slot_mut(id)?.place.take()? {
            Place::Meeting(meeting) => Some(*meeting),
            Place::Session(_) => None,
        }
    }

    /// A meeting that was taken has become a session.
    pub(crate) fn becomes(&mut self, id: SessionId, session: Session) {
        if let Some(slot) = self.slot_mut(id) {
            slot.place = Some(Place::Session(Box::new(session)));
        }
    }

    /// Nothing is there any more, and the id is nobody's.
    pub(crate) fn free(&mut self, id: SessionId) {
        if let Some(slot) = self.slot_mut(id) {
            (slot.place, slot.due_ns) = (None, None);
            slot.generation = slot.generation.wrapping_add(1).max(1);
            self.free.push(id.idx);
        }
    }

    /// A session's timer is due then. `false`: that is known, as after almost every turn.
    pub(crate) fn timer_changes(&mut self, id: SessionId, due_ns: Option<u64>) -> bool {
        self.slot_mut(id).is_some_and(|slot| std::mem::replace(&mut slot.due_ns, due_ns) != due_ns)
    }

    /// A session is to be looked at in the next turn.
    pub(crate) fn list(&mut self, id: SessionId) {
        if let Some(slot) = self.slot_mut(id)
            && !std::mem::replace(&mut slot.is_listed, true)
        {
            self.listed.push(id.idx);
        }
    }

    /// The ids of all that are to be looked at, which are not any more. To be [given back](Slots::give_back).
    pub(crate) fn take_listed(&mut self) -> Vec<u32> {
        let listed = std::mem::replace(&mut self.listed, std::mem::take(&mut self.spare));
        for idx in &listed {
            self.slots[*idx as usize].is_listed = false;
        }
        listed
    }

    pub(crate) fn give_back(&mut self, mut listed: Vec<u32>) {
        listed.clear();
        self.spare = listed;
    }

    /// All sessions that are to be looked at.
    pub(crate) fn listed_sessions(&mut self, mut each: impl FnMut(&mut Session)) {
        for idx in &self.listed {
            if let Some(Place::Session(session)) = &mut self.slots[*idx as usize].place {
                each(session);
            }
        }
    }
}
