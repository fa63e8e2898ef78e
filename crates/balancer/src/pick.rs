//! Choosing an endpoint for a call.

use crate::list::{Group, List, Member, Policy};

/// How an endpoint fares, as its owner sees it at this moment.
#[derive(Debug)]
pub enum Look<R, F> {
    /// Calls can be made there, by this.
    Ready(R),
    /// It is being connected, and has not failed.
    Waits,
    /// Calls can't be made there, for this reason.
    Fails(F),
}

/// An endpoint that was chosen.
#[derive(Debug)]
pub struct Chosen<'l, E, R> {
    /// The endpoint.
    pub endpoint: &'l E,
    /// What it is reached by.
    pub reached: R,
    /// Its priority.
    pub priority: u32,
    /// Its place in the list.
    pub place: usize,
}

/// What a choice came to.
#[derive(Debug)]
pub enum Pick<'l, E, R, F> {
    /// The call goes there.
    Chosen(Chosen<'l, E, R>),
    /// There is none yet: the list is empty, or one is being connected.
    Wait,
    /// None can be used. The reason of the first that fails; nothing where all are ejected, or out of use by their source's word.
    Failing(Option<F>),
}

/// What a look at the endpoints of one priority came to.
enum Found<R> {
    Chosen(R),
    Wait,
    Nothing,
}

/// What was seen of the endpoints that were not chosen.
struct Seen<'l, E, R, F> {
    failure: Option<F>,
    waits: bool,
    /// The endpoint to avoid is being connected again, and is not waited for.
    passed_over: bool,
    /// The endpoint to avoid, where it can be used.
    spare: Option<(&'l Member<E>, usize, R)>,
}

impl<E> List<E> {
    /// Chooses an endpoint, not one to `avoid` if its priority has another that can be used. `look` says how an endpoint fares; it is asked
    /// of no more endpoints than needed. `load` gives the calls under way at one that is ready, where the policy counts them.
    pub fn pick<R, F>(
        &self,
        avoid: impl Fn(&E) -> bool,
        mut look: impl FnMut(&E) -> Look<R, F>,
        load: impl Fn(&E) -> u32,
    ) -> Pick<'_, E, R, F> {
        if self.members.is_empty() {
            return Pick::Wait;
        }
        let mut seen = Seen { failure: None, waits: false, passed_over: false, spare: None };
        for group in &self.groups {
            let found = match self.policy {
                Policy::PickFirst => self.first_of(group, &avoid, &mut look, &mut seen),
                _ => self.one_of(group, &avoid, &mut look, &load, &mut seen),
            };
            match found {
                Found::Chosen((member, place, reached)) => {
                    let (endpoint, priority) = (&member.endpoint, group.priority);
                    return Pick::Chosen(Chosen { endpoint, reached, priority, place });
                }
                Found::Wait => return Pick::Wait,
                Found::Nothing => {}
            }
        }
        match seen.failure {
            None if seen.passed_over => Pick::Wait,
            failure => Pick::Failing(failure),
        }
    }

    fn first_of<'l, R, F>(
        &'l self,
        group: &Group,
        avoid: &impl Fn(&E) -> bool,
        look: &mut impl FnMut(&E) -> Look<R, F>,
        seen: &mut Seen<'l, E, R, F>,
    ) -> Found<(&'l Member<E>, usize, R)> {
        for place in group.members.clone() {
            let member = &self.members[place];
            if !member.is_open() {
                continue;
            }
            match look(&member.endpoint) {
                Look::Ready(reached) => return Found::Chosen((member, place, reached)),
                Look::Fails(why) => drop(seen.failure.get_or_insert(why)),
                // Just lost: while it is tried again, a call that was there already goes on to the next.
                Look::Waits if self.members.len() > 1 && avoid(&member.endpoint) => seen.passed_over = true,
                Look::Waits => return Found::Wait,
            }
        }
        Found::Nothing
    }

    fn one_of<'l, R, F>(
        &'l self,
        group: &Group,
        avoid: &impl Fn(&E) -> bool,
        look: &mut impl FnMut(&E) -> Look<R, F>,
        load: &impl Fn(&E) -> u32,
        seen: &mut Seen<'l, E, R, F>,
    ) -> Found<(&'l Member<E>, usize, R)> {
        let places = group.members.clone();
        let is_weighted_turn = group.is_weighted && self.policy == Policy::RoundRobin;
        let mut usable = |place: usize| {
            let member = &self.members[place];
            if !member.is_open() {
                return None;
            }
            match look(&member.endpoint) {
                Look::Ready(reached) if avoid(&member.endpoint) => {
                    seen.spare = Some((member, place, reached));
                    None
                }
                Look::Ready(reached) => Some((member, place, reached)),
                Look::Waits => {
                    seen.waits = true;
                    None
                }
                Look::Fails(why) => {
                    seen.failure.get_or_insert(why);
                    None
                }
            }
        };
        let chosen = match self.policy {
            _ if is_weighted_turn => group.turn.next_by_share(places, |place| {
                let (member, place, reached) = usable(place)?;
                Some((member.share, (member, place, reached)))
            }),
            Policy::LeastOutstanding => group.turn.least(places, |place| {
                let (member, place, reached) = usable(place)?;
                Some((load(&member.endpoint), member.share, (member, place, reached)))
            }),
            _ => group.turn.next(places, usable),
        };
        match chosen.or_else(|| seen.spare.take()) {
            Some(chosen) => Found::Chosen(chosen),
            None if seen.waits => Found::Wait,
            None => Found::Nothing,
        }
    }
}

impl<E> Member<E> {
    /// Whether it gets calls as far as its source and the detection say.
    fn is_open(&self) -> bool {
        self.share > 0 && !self.is_ejected()
    }
}
