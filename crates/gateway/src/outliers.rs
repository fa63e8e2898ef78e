//! Backend connections whose calls fail: which are ejected, and when they return. The rules are the balancer's (gRFC A50).
//!
//! An ejected backend connection gets calls only while no other of its group takes any: bad answers are better than none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tollfree_balancer::{Event, List, OutlierDetection, Policy, Record, Target};

/// What is known of one backend connection's calls.
#[derive(Debug, Default)]
pub(crate) struct Conduct {
    record: ArcSwapOption<Record>,
    is_ejected: AtomicBool,
}

impl Conduct {
    /// Where it is counted how its calls end, if anybody is ejected.
    pub(crate) fn record(&self) -> Option<Arc<Record>> {
        self.record.load_full()
    }

    pub(crate) fn is_ejected(&self) -> bool {
        self.is_ejected.load(Ordering::Relaxed)
    }
}

/// The outlier detection of one group.
#[derive(Debug)]
pub(crate) struct Outliers {
    state: Mutex<State>,
    /// Whether anybody may be ejected, for those who don't want the lock.
    is_on: AtomicBool,
    began: Instant,
}

#[derive(Debug, Default)]
struct State {
    detection: Option<OutlierDetection>,
    list: Option<List<Arc<Conduct>>>,
    members: Vec<(u64, Arc<Conduct>)>,
}

impl Default for Outliers {
    fn default() -> Outliers {
        Outliers { state: Mutex::default(), is_on: AtomicBool::new(false), began: Instant::now() }
    }
}

impl Outliers {
    /// When backend connections are ejected from now on. Where that changes, those that are ejected return.
    pub(crate) fn configure(&self, detection: Option<&OutlierDetection>) {
        let detection = detection.filter(|detection| detection.is_on());
        let mut state = self.state.lock();
        if state.detection.as_ref() == detection {
            return;
        }
        for (_, conduct) in &state.members {
            conduct.record.store(None);
            conduct.is_ejected.store(false, Ordering::Relaxed);
        }
        self.is_on.store(detection.is_some(), Ordering::Relaxed);
        let seed = u64::from(std::process::id());
        state.list = detection.map(|detection| List::new(Policy::RoundRobin, Some(detection.clone()), seed));
        state.detection = detection.cloned();
        self.follow(&mut state);
    }

    /// These are the group's backend connections, by their numbers.
    pub(crate) fn members(&self, members: Vec<(u64, Arc<Conduct>)>) {
        let mut state = self.state.lock();
        state.members = members;
        self.follow(&mut state);
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn follow(&self, state: &mut State) {
        let State { list: Some(list), members, .. } = state else { return };
        let by_number: HashMap<String, &Arc<Conduct>> =
            members.iter().map(|(number, conduct)| (number.to_string(), conduct)).collect();
        let targets = members.iter().map(|(number, _)| Target::new(number.to_string())).collect();
        let made = list.replace(targets, self.now_ns(), |target, record| {
            let conduct =
                by_number.get(&*target.address).map(|conduct| Arc::clone(conduct)).unwrap_or_default();
            conduct.record.store(record.cloned());
            Ok::<_, std::convert::Infallible>(conduct)
        });
        match made {
            Ok(gone) => gone.iter().for_each(|conduct| conduct.record.store(None)),
            Err(never) => match never {},
        }
    }

    /// Ejects those whose calls fail, and lets others return. What has changed, by number, and whether any is ejected now.
    pub(crate) fn sweep(&self) -> (Vec<Event>, bool) {
        if !self.is_on.load(Ordering::Relaxed) {
            return (Vec::new(), false);
        }
        let now_ns = self.now_ns();
        let mut state = self.state.lock();
        let Some(list) = state.list.as_mut() else { return (Vec::new(), false) };
        let events = if list.is_due(now_ns) { list.sweep(now_ns) } else { Vec::new() };
        let mut any = false;
        for member in list.members() {
            any |= member.is_ejected();
            member.endpoint().is_ejected.store(member.is_ejected(), Ordering::Relaxed);
        }
        (events, any)
    }
}

#[cfg(test)]
mod tests {
    use tollfree_balancer::ConsecutiveFailureEjection;

    use super::*;

    fn detection() -> OutlierDetection {
        OutlierDetection {
            interval_ns: 1,
            base_ejection_time_ns: 20_000_000,
            consecutive_failure_ejection: Some(ConsecutiveFailureEjection {
                threshold: 3,
                ..Default::default()
            }),
            ..OutlierDetection::default()
        }
    }

    #[test]
    fn one_that_fails_is_ejected_and_returns_and_changes_keep_what_is_known() {
        let outliers = Outliers::default();
        let [first, second] = [(); 2].map(|()| Arc::<Conduct>::default());
        let both = vec![(1, first.clone()), (2, second.clone())];
        outliers.members(both.clone());
        assert!(first.record().is_none() && outliers.sweep().0.is_empty(), "nobody is ejected");
        outliers.configure(Some(&detection()));
        (0..3).for_each(|_| second.record().unwrap().failed());
        let (events, any) = outliers.sweep();
        assert!(matches!(&events[..], [Event::Ejected { address, .. }] if **address == *"2"), "{events:?}");
        assert!(any && second.is_ejected() && !first.is_ejected());
        outliers.members(vec![(1, first.clone()), (2, second.clone()), (3, Arc::default())]);
        outliers.configure(Some(&detection()));
        outliers.sweep();
        assert!(second.is_ejected(), "who comes and goes changes nothing for others");
        let began = Instant::now();
        while outliers.sweep().1 {
            assert!(began.elapsed().as_secs() < 60, "it never returns");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(!second.is_ejected());
        (0..3).for_each(|_| second.record().unwrap().failed());
        outliers.sweep();
        outliers.configure(None);
        assert!(!second.is_ejected() && second.record().is_none(), "without detection all get calls");
        outliers.members(vec![]);
    }
}
