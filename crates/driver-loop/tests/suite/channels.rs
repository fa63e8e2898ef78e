//! Channels: connecting and reconnecting, several servers, calls that wait, move, and are made again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tollfree_driver_loop::{
    Address, CallId, CallTerms, ChannelConfig, ChannelId, ChannelState, Event, EventLoop, LoopConfig, Policy,
    RetryPolicy, SessionId, Target, Throttling,
};
use tollfree_layout::metadata;
use tollfree_os::clock::now_ns;
use tollfree_testkit::alone;

use crate::support::{Told, echoes, place, tell, unary};

/// A loop with servers, and a channel to them.
struct Case {
    events: EventLoop,
    channel: ChannelId,
    states: Vec<ChannelState>,
    accepted: Vec<SessionId>,
}

impl Case {
    fn new(config: ChannelConfig) -> Case {
        let mut events = EventLoop::new(LoopConfig::default()).unwrap();
        let channel = events.open_channel(config).unwrap();
        Case { events, channel, states: Vec::new(), accepted: Vec::new() }
    }

    fn call(&mut self, deadline: Option<Duration>, terms: CallTerms) -> CallId {
        let deadline_ns = deadline.map(|time| now_ns() + time.as_nanos() as u64);
        let start = tollfree_driver_loop::CallStart { deadline_ns, ..unary("hello") };
        self.events.channel_call(self.channel, start, terms).unwrap()
    }

    /// Lets servers do their part by `serve` until a call has ended.
    fn until_ended(&mut self, call: CallId, mut serve: impl FnMut(&mut EventLoop, &Event) -> bool) -> Told {
        let mut told = Told::default();
        let until = Instant::now() + Duration::from_secs(20);
        while told.status.is_none() {
            assert!(Instant::now() < until, "it does not end");
            let Some(event) = self.events.wait(Some(Duration::from_secs(1))).unwrap() else { continue };
            match event {
                Event::ChannelChanged { channel, state } if channel == self.channel => {
                    self.states.push(state)
                }
                Event::Accepted { session, .. } => self.accepted.push(session),
                Event::Closed { .. } => {}
                Event::Headers { call: of, .. } | Event::Message { call: of, .. }
                    if of != call && !self.events.serves(of) => {}
                event if serve(&mut self.events, &event) => {}
                event => tell(&mut told, event, call),
            }
        }
        told
    }

    fn code(&mut self, call: CallId) -> u16 {
        self.until_ended(call, echoes).status.unwrap().code
    }

    /// Lets everything happen that happens by itself.
    fn settle(&mut self, time: Duration) -> Vec<Event> {
        let until = Instant::now() + time;
        let mut events = Vec::new();
        while Instant::now() < until {
            match self.events.wait(Some(Duration::from_millis(5))).unwrap() {
                Some(Event::ChannelChanged { state, .. }) => self.states.push(state),
                Some(Event::Accepted { session, .. }) => self.accepted.push(session),
                event => events.extend(event),
            }
        }
        events
    }
}

fn waits() -> CallTerms {
    CallTerms { waits_for_ready: true, ..CallTerms::default() }
}

/// A policy of three attempts at most, after UNAVAILABLE.
fn thrice() -> CallTerms {
    let retry = RetryPolicy {
        attempts_max: 3,
        backoff_first: Duration::from_millis(2),
        backoff_max: Duration::from_millis(4),
        multiplier: 2.0,
        codes: vec![14],
    };
    CallTerms { retry: Some(Arc::new(retry)), ..CallTerms::default() }
}

#[test]
fn a_call_connects_and_names_the_socket_where_nobody_is() {
    let (_directory, address) = place();
    let mut case = Case::new(ChannelConfig::new(&address));
    let call = case.call(None, CallTerms::default());
    let status = case.until_ended(call, echoes).status.unwrap();
    assert_eq!(status.code, 14);
    assert!(status.words().contains("s.sock"), "{}", status.words());
    case.events.listen(&address).unwrap();
    let call = case.call(None, CallTerms::default());
    let told = case.until_ended(call, echoes);
    assert_eq!((told.status.unwrap().code, &told.messages[..]), (0, &[Bytes::from("hello")][..]));
    use ChannelState::{Connecting, Ready, TransientFailure};
    assert_eq!(case.states, [Connecting, TransientFailure, Ready]);
    case.settle(Duration::from_millis(20));
    assert_eq!(case.events.timeout(), None, "nothing is left that is due");
}

#[test]
fn a_call_that_waits_for_ready_outlives_failures_and_its_deadline_ends_it() {
    let (_directory, address) = place();
    let mut case = Case::new(ChannelConfig::new(&address));
    let call = case.call(Some(Duration::from_millis(60)), waits());
    let status = case.until_ended(call, echoes).status.unwrap();
    assert_eq!(status.code, 4);
    assert!(status.words().contains("s.sock"), "{}", status.words());
    let call = case.call(None, waits());
    assert!(case.settle(Duration::from_millis(100)).is_empty());
    case.events.listen(&address).unwrap();
    assert_eq!(case.code(call), 0);
}

#[test]
fn a_channel_whose_server_is_gone_connects_to_the_next_at_once() {
    let (_directory, address) = place();
    let mut case = Case::new(ChannelConfig::new(&address));
    case.events.listen(&address).unwrap();
    for round in 0..20 {
        let call = case.call(None, CallTerms::default());
        assert_eq!(case.code(call), 0, "round {round}");
        let session = case.accepted[round];
        case.events.close(session);
        case.settle(Duration::from_millis(2));
        assert_ne!(case.events.channel_state(case.channel), Some(ChannelState::Ready));
    }
}

#[test]
fn calls_go_on_elsewhere_when_a_server_drains_and_its_session_ends_with_its_last_call() {
    let (_directory, address) = place();
    let mut case = Case::new(ChannelConfig::new(&address));
    case.events.listen(&address).unwrap();
    // One call stays open in the first session.
    let open = tollfree_driver_loop::CallStart::new("/test.Echo/Stream");
    let open = case.events.channel_call(case.channel, open, CallTerms::default()).unwrap();
    let call = case.call(None, CallTerms::default());
    assert_eq!(case.code(call), 0);
    let first = case.accepted[0];
    case.events.drain(first);
    let call = case.call(None, CallTerms::default());
    assert_eq!(case.code(call), 0, "it was opened in neither, or moved");
    let call = case.call(None, CallTerms::default());
    assert_eq!(case.code(call), 0);
    assert_eq!(case.accepted.len(), 2);
    assert_eq!(case.events.call_count(first), 1);
    case.events.finish(open).unwrap();
    assert_eq!(case.code(open), 0);
    case.settle(Duration::from_millis(20));
    assert_eq!(case.events.peer(first), None, "the session has ended");
    assert!(case.events.peer(case.accepted[1]).is_some());
}

#[test]
fn several_servers_have_their_turns_and_one_that_is_gone_costs_no_call() {
    let places: Vec<_> = (0..3).map(|_| place()).collect();
    let config = ChannelConfig {
        targets: places.iter().map(|(_, address)| Target::new(address.to_string())).collect(),
        policy: Policy::RoundRobin,
        outlier_detection: None,
        throttling: None,
        health_service: None,
    };
    let mut case = Case::new(config);
    for (_, address) in &places[..2] {
        case.events.listen(address).unwrap();
    }
    case.events.connect_channel(case.channel);
    case.settle(Duration::from_millis(30));
    assert_eq!(case.accepted.len(), 2);
    let mut served = Vec::new();
    for _ in 0..10 {
        let call = case.call(None, CallTerms::default());
        let told = case.until_ended(call, |events, event| {
            if let Event::Call { call, .. } = event {
                served.push(call.session());
            }
            echoes(events, event)
        });
        assert_eq!(told.status.unwrap().code, 0);
    }
    assert_eq!(served.iter().collect::<BTreeSet<_>>().len(), 2);
    assert!(served.windows(2).all(|two| two[0] != two[1]), "{served:?}");
    // The third comes later.
    case.events.listen(&places[2].1).unwrap();
    case.settle(Duration::from_millis(50));
    assert_eq!(case.accepted.len(), 3);
}

#[test]
fn a_failed_call_is_made_again_by_its_policy_and_servers_are_told_how_often() {
    let (_directory, address) = place();
    let mut case = Case::new(ChannelConfig::new(&address));
    case.events.listen(&address).unwrap();
    let (mut first, mut second, mut third) = (Vec::new(), Vec::new(), Vec::new());
    let call = case.call(None, thrice());
    let told = case.until_ended(call, failing(2, &mut first));
    assert_eq!((told.status.unwrap().code, &told.messages[..]), (0, &[Bytes::from("hello")][..]));
    assert_eq!(first, ["", "1", "2"]);
    let call = case.call(None, thrice());
    assert_eq!(case.until_ended(call, failing(3, &mut second)).status.unwrap().code, 14);
    assert_eq!(second.len(), 3, "three attempts, no more");
    let call = case.call(None, CallTerms::default());
    assert_eq!(case.until_ended(call, failing(1, &mut third)).status.unwrap().code, 14);
    assert_eq!(third.len(), 1, "no policy");
}

/// A server that fails so many calls, then echoes; what each was told of attempts before.
fn failing(count: usize, seen: &mut Vec<String>) -> impl FnMut(&mut EventLoop, &Event) -> bool {
    move |events, event| match event {
        Event::Call { call, metadata, .. } => {
            let before = metadata::pairs(metadata)
                .flatten()
                .find(|(name, _)| name.as_bytes() == b"grpc-previous-rpc-attempts")
                .map(|(_, value)| String::from_utf8(value.to_vec()).unwrap());
            seen.push(before.unwrap_or_default());
            match seen.len() <= count {
                true => events.answer_end(*call, 14, Bytes::new()).unwrap(),
                false => events.answer_headers(*call, Bytes::new()).unwrap(),
            }
            true
        }
        event => echoes(events, event),
    }
}

#[test]
fn a_call_that_was_answered_in_part_is_not_made_again() {
    let (_directory, address) = place();
    let mut case = Case::new(ChannelConfig::new(&address));
    case.events.listen(&address).unwrap();
    let call = case.call(None, thrice());
    let mut count = 0;
    let told = case.until_ended(call, |events, event| {
        if let Event::Call { call, .. } = event {
            count += 1;
            events.answer_headers(*call, Bytes::new()).unwrap();
            events.answer_end(*call, 14, Bytes::new()).unwrap();
            return true;
        }
        echoes(events, event)
    });
    assert_eq!((told.status.unwrap().code, count), (14, 1));
}

#[test]
fn failures_of_many_calls_stop_their_retries() {
    let (_directory, address) = place();
    let throttling = Some(Throttling { tokens_max: 4000, ratio: 1000 });
    let mut case = Case::new(ChannelConfig { throttling, ..ChannelConfig::new(&address) });
    case.events.listen(&address).unwrap();
    let mut count = 0;
    for _ in 0..4 {
        let call = case.call(None, thrice());
        case.until_ended(call, |events, event| {
            if let Event::Call { call, .. } = event {
                count += 1;
                events.answer_end(*call, 14, Bytes::new()).unwrap();
                return true;
            }
            echoes(events, event)
        });
    }
    assert_eq!(count, 5, "the first is made twice, with half of the tokens gone no other is");
}

#[test]
fn a_channel_that_is_closed_cancels_its_calls_and_leaves_nothing() {
    let (_directory, address) = place();
    let mut case = Case::new(ChannelConfig::new(&address));
    case.events.listen(&address).unwrap();
    let call = case.call(None, CallTerms::default());
    assert_eq!(case.code(call), 0);
    let calls = [case.call(None, waits()), case.call(None, waits())];
    case.events.close_channel(case.channel);
    for call in calls {
        let served = |_: &mut EventLoop, event: &Event| !matches!(event, Event::Ended { .. });
        assert_eq!(case.until_ended(call, served).status.unwrap().code, 1);
    }
    let later = case.events.channel_call(case.channel, unary("x"), CallTerms::default());
    assert_eq!(later, Err(tollfree_driver_loop::CallError::Over));
    case.settle(Duration::from_millis(20));
    assert_eq!(case.events.peer(case.accepted[0]), None);
    assert_eq!(case.events.timeout(), None);
}

#[test]
fn a_call_that_is_cancelled_while_it_waits_is_never_made() {
    let (_directory, address) = place();
    let mut case = Case::new(ChannelConfig::new(&address));
    let call = case.call(None, waits());
    case.events.cancel(call, 1);
    case.events.listen(&address).unwrap();
    case.events.connect_channel(case.channel);
    assert!(case.settle(Duration::from_millis(50)).is_empty());
    assert_eq!(case.accepted.len(), 1);
}

/// A server that takes its leave of each connection at once, or never lets a handshake end.
#[test]
fn servers_that_hang_up_again_and_again_end_calls_in_bounded_time_without_a_busy_loop() {
    let (_directory, address) = place();
    let mut case = Case::new(ChannelConfig::new(&address));
    case.events.listen(&address).unwrap();
    let call = case.call(None, CallTerms::default());
    let before = crate::support::thread_time();
    let mut told = None;
    let until = Instant::now() + Duration::from_secs(10);
    let mut accepted = 0;
    while told.is_none() && Instant::now() < until {
        match case.events.wait(Some(Duration::from_millis(100))).unwrap() {
            Some(Event::Accepted { session, .. }) => {
                accepted += 1;
                case.events.drain(session);
                case.events.close(session);
            }
            Some(Event::Ended { call: ended, status }) if ended == call => told = Some(status),
            _ => {}
        }
    }
    assert_eq!(told.expect("an end").code, 14);
    assert!((1..40).contains(&accepted), "{accepted} connections");
    assert!(crate::support::thread_time() - before < Duration::from_secs(2));
}

#[test]
fn an_address_that_is_none_is_refused_when_the_channel_is_made() {
    let mut events = EventLoop::new(LoopConfig::default()).unwrap();
    let config = ChannelConfig {
        targets: vec![Target::new("nonsense")],
        ..ChannelConfig::new(&Address::Path("/x".into()))
    };
    assert!(events.open_channel(config).is_err());
}

/// The server is elsewhere, so that the client's loop sleeps: a call that is placed while an attempt at another server fails must be sent before.
#[test]
fn a_call_that_falls_back_to_a_server_that_sleeps_is_sent_at_once() {
    let (_directory, address) = place();
    let (_nobody, absent) = place();
    let (ends, ended) = std::sync::mpsc::channel::<()>();
    let serving = {
        let address = address.clone();
        std::thread::spawn(move || {
            let mut events = EventLoop::new(LoopConfig::default()).unwrap();
            events.listen(&address).unwrap();
            while !matches!(ended.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected)) {
                if let Some(event) = events.wait(Some(Duration::from_millis(50))).unwrap() {
                    echoes(&mut events, &event);
                }
            }
        })
    };
    let second = Target { priority: 1, ..Target::new(address.to_string()) };
    let targets = vec![Target::new(absent.to_string()), second];
    let mut case = Case::new(ChannelConfig { targets, ..ChannelConfig::new(&address) });
    case.events.connect_channel(case.channel);
    for _ in 0..30 {
        let call = case.call(None, waits());
        let began = Instant::now();
        assert_eq!(case.code(call), 0);
        assert!(began.elapsed() < Duration::from_secs(15));
        // Until the absent server may be tried again, and the session sleeps.
        std::thread::sleep(Duration::from_millis(6));
    }
    drop(ends);
    serving.join().unwrap();
}

/// Without a descriptor no attempt begins, and no event tells of that: the call must not wait for one.
#[test]
fn a_call_ends_where_no_descriptor_is_left_for_a_connection_and_the_next_connects() {
    alone!();
    use std::os::fd::AsRawFd as _;
    use tollfree_os::rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let (_directory, address) = place();
    let mut case = Case::new(ChannelConfig::new(&address));
    case.events.listen(&address).unwrap();
    let lowest_free = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(lowest_free), ..before }).unwrap();
    let fails = case.call(None, CallTerms::default());
    let status = case.until_ended(fails, echoes).status.unwrap();
    let waiting = case.call(None, waits());
    setrlimit(Resource::Nofile, before).unwrap();
    assert_eq!(status.code, 14);
    assert!(status.words().contains("os error 24"), "{}", status.words());
    assert_eq!(case.code(waiting), 0, "it has waited for a descriptor");
}
