//! The endpoints of a channel: whole lists that replace each other.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::outlier::{Event, OutlierDetection, Suspect, Sweep};
use crate::random::Random;
use crate::record::Record;
use crate::target::{Target, shares};
use crate::turn::Turn;

/// How an endpoint is chosen among those of a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The first that can be used.
    PickFirst,
    /// Each in turn, as often as its weight says.
    RoundRobin,
    /// The one with the fewest calls under way, beside its weight; equals in turn.
    LeastOutstanding,
}

/// One endpoint of a list.
#[derive(Debug)]
pub struct Member<E> {
    pub(crate) target: Target,
    /// Its share of its priority's calls; 0: it gets none.
    pub(crate) share: u32,
    pub(crate) endpoint: E,
    /// Where endpoints may be ejected.
    suspect: Option<Suspect>,
}

impl<E> Member<E> {
    /// As its source describes it.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// What its owner has made of it.
    pub fn endpoint(&self) -> &E {
        &self.endpoint
    }

    /// Whether it gets no calls now for how its calls have ended.
    pub fn is_ejected(&self) -> bool {
        self.suspect.as_ref().is_some_and(Suspect::is_ejected)
    }
}

/// The endpoints of one priority.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) priority: u32,
    pub(crate) members: Range<usize>,
    /// Shares differ.
    pub(crate) is_weighted: bool,
    pub(crate) turn: Turn,
    /// When the last sweep was made, or the first interval began.
    swept_ns: u64,
}

#[derive(Debug)]
struct Detection {
    config: OutlierDetection,
    alarm: Arc<AtomicBool>,
    random: Random,
}

/// The endpoints of a channel, and how one is chosen. `E` is what the owner makes of each.
#[derive(Debug)]
pub struct List<E> {
    pub(crate) policy: Policy,
    /// By priority, and as they were given.
    pub(crate) members: Vec<Member<E>>,
    pub(crate) groups: Vec<Group>,
    detection: Option<Detection>,
    /// When the next sweep is due.
    due_ns: u64,
}

impl<E> List<E> {
    /// A list without endpoints. `seed` decides where an ejection is enforced in some cases only.
    pub fn new(policy: Policy, detection: Option<OutlierDetection>, seed: u64) -> List<E> {
        let detection = detection.filter(OutlierDetection::is_on).map(|config| Detection {
            config,
            alarm: Arc::default(),
            random: Random::new(seed),
        });
        List { policy, members: Vec::new(), groups: Vec::new(), detection, due_ns: u64::MAX }
    }

    /// Puts another list in the place of this one. An endpoint whose address was in the list stays, with what is known of it. Of the others
    /// `make` makes one each; where calls are to be counted, it is given the record to count in.
    ///
    /// Gives the endpoints that are in the list no more.
    ///
    /// # Errors
    /// What `make` says first; the list is what it was then.
    pub fn replace<X>(
        &mut self,
        mut targets: Vec<Target>,
        now_ns: u64,
        mut make: impl FnMut(&Target, Option<&Arc<Record>>) -> Result<E, X>,
    ) -> Result<Vec<E>, X> {
        targets.sort_by_key(|target| target.priority);
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, member) in self.members.iter().enumerate().rev() {
            places.entry(&member.target.address).or_default().push(at);
        }
        // Either the place in the old list or a new one.
        let mut found: Vec<Result<usize, (E, Option<Suspect>)>> = Vec::with_capacity(targets.len());
        for target in &targets {
            found.push(match places.get_mut(&*target.address).and_then(Vec::pop) {
                Some(place) => Ok(place),
                None => {
                    let record = self.detection.as_ref().map(|detection| {
                        Arc::new(Record::new(detection.config.consecutive_threshold(), &detection.alarm))
                    });
                    let endpoint = make(target, record.as_ref())?;
                    Err((endpoint, record.map(|record| Suspect::new(&target.address, record))))
                }
            });
        }
        let mut old: Vec<Option<Member<E>>> =
            std::mem::take(&mut self.members).into_iter().map(Some).collect();
        for (target, found) in targets.into_iter().zip(found) {
            let (endpoint, suspect) = match found {
                Ok(place) => {
                    let Some(member) = old[place].take() else { continue };
                    (member.endpoint, member.suspect)
                }
                Err(made) => made,
            };
            self.members.push(Member { target, share: 0, endpoint, suspect });
        }
        self.regroup(now_ns);
        Ok(old.into_iter().flatten().map(|member| member.endpoint).collect())
    }

    /// Finds the priorities of the list. Turns and intervals go on.
    fn regroup(&mut self, now_ns: u64) {
        let old = std::mem::take(&mut self.groups);
        let mut begin = 0;
        while let Some(first) = self.members.get(begin) {
            let priority = first.target.priority;
            let members = &mut self.members[begin..];
            let count = members.iter().take_while(|member| member.target.priority == priority).count();
            let members = &mut members[..count];
            let shares = shares(&members.iter().map(|member| &member.target).collect::<Vec<_>>());
            let mut differing = shares.iter().filter(|share| **share > 0);
            let first_share = differing.next().copied();
            let is_weighted = differing.any(|share| Some(*share) != first_share);
            members.iter_mut().zip(shares).for_each(|(member, share)| member.share = share);
            let known = old.iter().find(|group| group.priority == priority);
            self.groups.push(Group {
                priority,
                members: begin..begin + count,
                is_weighted,
                turn: known.map_or_else(Turn::default, |known| Turn::following(&known.turn)),
                swept_ns: known.map_or(now_ns, |known| known.swept_ns),
            });
            begin += count;
        }
        self.settle_due();
    }

    fn settle_due(&mut self) {
        let Some(detection) = &self.detection else { return };
        let interval_ns = detection.config.interval_ns();
        let due = self.groups.iter().map(|group| group.swept_ns.saturating_add(interval_ns)).min();
        self.due_ns = due.unwrap_or(u64::MAX);
    }

    /// Whether calls are counted and endpoints may be ejected.
    pub fn is_detecting(&self) -> bool {
        self.detection.is_some()
    }

    /// Whether [`List::sweep`] has something to do: an interval is over, or an endpoint's calls fail one after the other. To be asked before a
    /// choice. A sweep that comes late decides as it would have in time: nobody has been chosen meanwhile.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.detection
            .as_ref()
            .is_some_and(|detection| now_ns >= self.due_ns || detection.alarm.load(Ordering::Acquire))
    }

    /// When the next interval is over, where an endpoint is ejected: one who waits for it is to make a sweep then.
    pub fn returns_ns(&self) -> Option<u64> {
        self.members.iter().any(Member::is_ejected).then_some(self.due_ns)
    }

    /// Ejects endpoints and lets them return. Gives what has changed.
    pub fn sweep(&mut self, now_ns: u64) -> Vec<Event> {
        let mut events = Vec::new();
        let Some(Detection { config, alarm, random }) = &mut self.detection else { return events };
        let has_alarm = alarm.swap(false, Ordering::AcqRel);
        let interval_ns = config.interval_ns();
        let mut members = &mut self.members[..];
        for group in &mut self.groups {
            let (of_group, rest) = members.split_at_mut(group.members.len());
            members = rest;
            let suspects = of_group.iter_mut().filter_map(|member| member.suspect.as_mut()).collect();
            let mut sweep = Sweep { config, random, suspects, events: &mut events };
            let since_ns = now_ns.saturating_sub(group.swept_ns);
            if let Some(missed) = (since_ns / interval_ns).checked_sub(1) {
                sweep.end_interval(group.swept_ns + interval_ns, missed);
                group.swept_ns += since_ns / interval_ns * interval_ns;
            }
            if has_alarm {
                sweep.look_at_alarms(now_ns);
            }
        }
        self.settle_due();
        events
    }

    /// The endpoints: by priority, and as they were given.
    pub fn members(&self) -> &[Member<E>] {
        &self.members
    }

    /// The endpoints of the highest priority that may get calls.
    pub fn first_priority(&self) -> impl Iterator<Item = &E> {
        let group = self.groups.first().map_or(0..0, |group| group.members.clone());
        self.members[group].iter().filter(|member| member.share > 0).map(Member::endpoint)
    }
}
