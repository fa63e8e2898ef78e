//! Servers that answer, fail, or are not there, and a client that chooses among them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;

use tollfree_balancer::{Event, List, Look, OutlierDetection, Pick, Policy, Record, Target};

pub(crate) const SECOND: u64 = 1_000_000_000;

/// splitmix64.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % bound
    }
}

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Ready,
    Connecting,
    Absent,
}

/// What the client has made of an address.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: String,
    /// Which one it is, of those that were made.
    pub(crate) number: usize,
    pub(crate) record: Option<Arc<Record>>,
    pub(crate) state: RefCell<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) reach: Reach,
    /// Of a hundred calls, so many fail.
    pub(crate) fails: u64,
    pub(crate) calls: u32,
    /// Calls that it was chosen for.
    pub(crate) chosen: u64,
}

pub(crate) struct World {
    pub(crate) list: List<Rc<Server>>,
    pub(crate) now_ns: u64,
    pub(crate) rng: Rng,
    pub(crate) events: Vec<(u64, Event)>,
    made: usize,
}

impl World {
    pub(crate) fn new(policy: Policy, detection: Option<OutlierDetection>, seed: u64) -> World {
        let list = List::new(policy, detection, seed);
        World { list, now_ns: 1000 * SECOND, rng: Rng(seed), events: Vec::new(), made: 0 }
    }

    /// With so many servers, `0`, `1` and so on.
    pub(crate) fn with(count: usize, policy: Policy, detection: Option<OutlierDetection>) -> World {
        let mut world = World::new(policy, detection, 7);
        world.replace((0..count).map(|number| Target::new(number.to_string())).collect());
        world
    }

    /// Gives the addresses of the servers that are in the list no more.
    pub(crate) fn replace(&mut self, targets: Vec<Target>) -> Vec<String> {
        let World { list, now_ns, made, .. } = self;
        let make = |target: &Target, record: Option<&Arc<Record>>| {
            *made += 1;
            let state = RefCell::new(State { reach: Reach::Ready, fails: 0, calls: 0, chosen: 0 });
            let (address, record) = (target.address.to_string(), record.cloned());
            Ok::<_, Infallible>(Rc::new(Server { address, number: *made - 1, record, state }))
        };
        let gone = list.replace(targets, *now_ns, make).unwrap();
        gone.iter().map(|server| server.address.clone()).collect()
    }

    pub(crate) fn server(&self, address: &str) -> Rc<Server> {
        let found = self.list.members().iter().find(|member| member.endpoint().address == address);
        found.unwrap_or_else(|| panic!("{address} is in the list")).endpoint().clone()
    }

    pub(crate) fn set(&self, address: &str, reach: Reach) {
        self.server(address).state.borrow_mut().reach = reach;
    }

    pub(crate) fn set_failing(&self, address: &str, fails: u64) {
        self.server(address).state.borrow_mut().fails = fails;
    }

    pub(crate) fn ejected(&self) -> Vec<String> {
        let ejected = self.list.members().iter().filter(|member| member.is_ejected());
        ejected.map(|member| member.endpoint().address.clone()).collect()
    }

    pub(crate) fn sweep(&mut self) {
        if self.list.is_due(self.now_ns) {
            let events = self.list.sweep(self.now_ns);
            self.events.extend(events.into_iter().map(|event| (self.now_ns, event)));
        }
    }

    pub(crate) fn pick_but(&mut self, avoid: &str) -> Result<Rc<Server>, Failed> {
        self.sweep();
        let look = |server: &Rc<Server>| match server.state.borrow().reach {
            Reach::Ready => Look::Ready(server.clone()),
            Reach::Connecting => Look::Waits,
            Reach::Absent => Look::Fails(server.address.clone()),
        };
        let load = |server: &Rc<Server>| server.state.borrow().calls;
        match self.list.pick(|server| server.address == avoid, look, load) {
            Pick::Chosen(chosen) => {
                assert!(Rc::ptr_eq(chosen.endpoint, &chosen.reached));
                assert!(Rc::ptr_eq(chosen.endpoint, self.list.members()[chosen.place].endpoint()));
                assert_eq!(self.list.members()[chosen.place].target().priority, chosen.priority);
                chosen.reached.state.borrow_mut().chosen += 1;
                Ok(chosen.reached)
            }
            Pick::Wait => Err(Failed::Waits),
            Pick::Failing(why) => Err(Failed::Because(why)),
        }
    }

    pub(crate) fn pick(&mut self) -> Result<Rc<Server>, Failed> {
        self.pick_but("")
    }

    /// The address of who is chosen, or `wait`, or `failing`.
    pub(crate) fn choose(&mut self) -> String {
        match self.pick() {
            Ok(server) => server.address.clone(),
            Err(Failed::Waits) => "wait".to_owned(),
            Err(Failed::Because(_)) => "failing".to_owned(),
        }
    }

    /// A call that ends at once. Gives where it was made and whether it succeeded.
    pub(crate) fn call(&mut self) -> Option<(String, bool)> {
        let server = self.pick().ok()?;
        let fails = server.state.borrow().fails;
        let succeeds = self.rng.below(100) >= fails;
        server.end(succeeds);
        Some((server.address.clone(), succeeds))
    }

    /// How often each address is chosen in so many calls.
    pub(crate) fn count(&mut self, calls: usize) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for _ in 0..calls {
            let address = self.call().map_or("none".to_owned(), |(address, _)| address);
            *counts.entry(address).or_default() += 1;
        }
        counts
    }
}

impl Server {
    pub(crate) fn end(&self, succeeds: bool) {
        match (&self.record, succeeds) {
            (Some(record), true) => record.succeeded(),
            (Some(record), false) => record.failed(),
            (None, _) => {}
        }
    }
}

/// Why none was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    Waits,
    Because(Option<String>),
}
