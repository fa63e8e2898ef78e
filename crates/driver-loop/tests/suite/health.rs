//! Channels that ask servers for their health (gRFC A17): one that does not serve gets no calls.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;
use tollfree_driver_loop::{
    Address, CallId, CallTerms, ChannelConfig, ChannelId, ChannelState, Event, EventLoop, LoopConfig,
    Message, Policy, SessionId, Status, Target,
};
use tollfree_os::clock::now_ns;

use crate::support::{LONG, echoes, place, unary};

const WATCH: &[u8] = b"/grpc.health.v1.Health/Watch";
const SERVING: &[u8] = b"\x08\x01";
const NOT_SERVING: &[u8] = b"\x08\x02";

/// A loop with servers and a channel to them. Its servers leave watches to the test.
struct World {
    events: EventLoop,
    channel: ChannelId,
    states: Vec<ChannelState>,
    /// Watches under way, with what they asked for.
    watches: HashMap<CallId, Bytes>,
    watch_count: usize,
    /// Watches that were cancelled.
    left: HashSet<CallId>,
    served: Vec<SessionId>,
    ended: HashMap<CallId, Status>,
    _places: Vec<TempDir>,
}

impl World {
    fn new(policy: Policy, server_count: usize, service: Option<&str>) -> World {
        let (places, addresses): (Vec<TempDir>, Vec<Address>) = (0..server_count).map(|_| place()).unzip();
        let mut events = EventLoop::new(LoopConfig::default()).unwrap();
        let targets = addresses.iter().map(|address| {
            events.listen(address).unwrap();
            Target::new(address.to_string())
        });
        let targets = targets.collect();
        let config = ChannelConfig {
            targets,
            policy,
            health_service: service.map(Into::into),
            ..ChannelConfig::new(&addresses[0])
        };
        let channel = events.open_channel(config).unwrap();
        events.connect_channel(channel);
        World {
            events,
            channel,
            states: Vec::new(),
            watches: HashMap::new(),
            watch_count: 0,
            left: HashSet::new(),
            served: Vec::new(),
            ended: HashMap::new(),
            _places: places,
        }
    }

    /// Lets things happen until something is so.
    fn until(&mut self, mut is_so: impl FnMut(&World) -> bool) {
        let end = Instant::now() + LONG;
        while !is_so(self) {
            assert!(Instant::now() < end, "it does not come to it");
            if let Some(event) = self.events.wait(Some(Duration::from_millis(20))).unwrap() {
                self.take(event);
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Call { call, path, .. } if path == WATCH => {
                self.watches.insert(call, Bytes::new());
                self.watch_count += 1;
            }
            Event::Message { call, message } if self.watches.contains_key(&call) => {
                self.watches.insert(call, message.bytes);
            }
            Event::HalfClosed { call } | Event::Sent { call } if self.watches.contains_key(&call) => {}
            Event::Ended { call, .. } if self.watches.remove(&call).is_some() => {
                self.left.insert(call);
            }
            Event::ChannelChanged { state, .. } => self.states.push(state),
            Event::Ended { call, status } => {
                self.ended.insert(call, status);
            }
            event => {
                if let Event::Call { call, .. } = &event {
                    self.served.push(call.session());
                }
                echoes(&mut self.events, &event);
            }
        }
    }

    fn all_watches(&self) -> Vec<CallId> {
        let mut watches: Vec<_> = self.watches.keys().copied().collect();
        watches.sort_unstable();
        watches
    }

    fn tell(&mut self, watch: CallId, answer: &'static [u8]) {
        self.events.send(watch, Message::from(answer)).unwrap();
    }

    fn breaks_off(&mut self, watch: CallId, code: u16) {
        self.watches.remove(&watch);
        self.events.answer_end(watch, code, Bytes::new()).unwrap();
    }

    fn begin(&mut self, waits_for_ready: bool, time: Duration) -> CallId {
        let deadline_ns = Some(now_ns() + time.as_nanos() as u64);
        let start = tollfree_driver_loop::CallStart { deadline_ns, ..unary("hello") };
        let terms = CallTerms { waits_for_ready, ..CallTerms::default() };
        self.events.channel_call(self.channel, start, terms).unwrap()
    }

    fn call(&mut self) -> Status {
        let call = self.begin(false, LONG);
        self.until(|world| world.ended.contains_key(&call));
        self.ended[&call].clone()
    }
}

#[test]
fn calls_go_to_a_server_only_while_it_serves() {
    let mut world = World::new(Policy::RoundRobin, 1, Some("db"));
    let waiting = world.begin(false, LONG);
    world.until(|world| world.watches.values().any(|asked| asked == "\x0a\x02db"));
    assert!(world.ended.is_empty() && world.served.is_empty(), "its health is not known");
    let watch = world.all_watches()[0];
    world.tell(watch, SERVING);
    world.until(|world| world.ended.contains_key(&waiting));
    assert_eq!(world.ended[&waiting].code, 0);
    world.tell(watch, NOT_SERVING);
    world.until(|world| world.states.last() == Some(&ChannelState::TransientFailure));
    let status = world.call();
    assert_eq!(status.code, 14);
    for word in ["NOT_SERVING", "\"db\"", "s.sock", "Health/Watch"] {
        assert!(status.words().contains(word), "{}", status.words());
    }
    let patient = world.begin(true, LONG);
    let late = world.begin(true, Duration::from_millis(30));
    world.until(|world| world.ended.contains_key(&late));
    assert_eq!(world.ended[&late].code, 4);
    assert!(world.ended[&late].words().contains("NOT_SERVING"), "{}", world.ended[&late].words());
    world.tell(watch, SERVING);
    world.until(|world| world.ended.contains_key(&patient));
    assert_eq!((world.ended[&patient].code, world.served.len(), world.watch_count), (0, 2, 1));
    use ChannelState::{Connecting, Ready, TransientFailure};
    assert_eq!(world.states, [Connecting, Ready, TransientFailure, Ready]);
}

#[test]
fn of_several_servers_those_that_serve_get_the_calls() {
    let mut world = World::new(Policy::RoundRobin, 3, Some(""));
    world.until(|world| world.watches.len() == 3);
    let watches = world.all_watches();
    world.tell(watches[0], NOT_SERVING);
    world.tell(watches[1], SERVING);
    world.tell(watches[2], SERVING);
    for _ in 0..12 {
        assert_eq!(world.call().code, 0);
    }
    // The first calls may come before the third server's health is known.
    let served: HashSet<_> = world.served.iter().copied().collect();
    assert!(!served.contains(&watches[0].session()) && served.len() == 2, "{served:?}");
}

#[test]
fn a_server_without_a_health_service_serves() {
    let mut world = World::new(Policy::LeastOutstanding, 1, Some("x"));
    world.until(|world| !world.watches.is_empty());
    let watch = world.all_watches()[0];
    world.breaks_off(watch, 12);
    assert_eq!(world.call().code, 0);
    world.until(|world| world.events.timeout().is_none());
    assert_eq!(world.watch_count, 1, "it is not asked again");
}

#[test]
fn a_watch_that_breaks_off_is_begun_again_and_calls_fail_once_it_never_answers() {
    let mut world = World::new(Policy::RoundRobin, 1, Some(""));
    world.until(|world| !world.watches.is_empty());
    let first = world.all_watches()[0];
    world.tell(first, SERVING);
    assert_eq!(world.call().code, 0);
    world.breaks_off(first, 13);
    // Its health is not known now: calls wait.
    world.until(|world| world.states.last() == Some(&ChannelState::Connecting));
    let waiting = world.begin(false, LONG);
    world.until(|world| !world.watches.is_empty());
    assert!(world.ended.len() == 1 && world.watch_count == 2);
    let second = world.all_watches()[0];
    world.breaks_off(second, 13);
    world.until(|world| world.ended.contains_key(&waiting));
    assert_eq!(world.ended[&waiting].code, 14);
    assert!(world.ended[&waiting].words().contains("code 13"), "{}", world.ended[&waiting].words());
    world.until(|world| !world.watches.is_empty());
    let third = world.all_watches()[0];
    world.tell(third, SERVING);
    world.until(|world| world.states.last() == Some(&ChannelState::Ready));
    assert_eq!(world.call().code, 0);
}

#[test]
fn answers_that_are_no_health_fail_calls() {
    let mut world = World::new(Policy::RoundRobin, 1, Some(""));
    world.until(|world| !world.watches.is_empty());
    let watch = world.all_watches()[0];
    for (answer, word) in
        [(&b"\x08"[..], "read"), (b"", "UNKNOWN"), (b"\x08\x03", "SERVICE_UNKNOWN"), (b"\x08\x63", "99")]
    {
        world.tell(watch, SERVING);
        world.until(|world| world.states.last() == Some(&ChannelState::Ready));
        world.tell(watch, answer);
        world.until(|world| world.states.last() == Some(&ChannelState::TransientFailure));
        let status = world.call();
        assert!(status.code == 14 && status.words().contains(word), "{}", status.words());
    }
}

#[test]
fn pick_first_and_channels_without_a_service_ask_nothing() {
    for (policy, service) in [(Policy::PickFirst, Some("x")), (Policy::RoundRobin, None)] {
        let mut world = World::new(policy, 1, service);
        assert_eq!(world.call().code, 0);
        assert_eq!(world.watch_count, 0);
    }
}

#[test]
fn a_watch_ends_with_its_session_and_its_channel() {
    let mut world = World::new(Policy::RoundRobin, 1, Some(""));
    world.until(|world| !world.watches.is_empty());
    let first = world.all_watches()[0];
    world.tell(first, SERVING);
    assert_eq!(world.call().code, 0);
    // The server takes no calls any more: the session ends once its calls have, of which the watch is none.
    world.events.drain(first.session());
    world.until(|world| world.left.contains(&first));
    world.until(|world| !world.watches.is_empty());
    let second = world.all_watches()[0];
    assert_ne!(second.session(), first.session(), "in the next session");
    world.tell(second, SERVING);
    assert_eq!(world.call().code, 0);
    world.events.close_channel(world.channel);
    world.until(|world| world.watches.is_empty());
    world.until(|world| world.events.timeout().is_none());
}
