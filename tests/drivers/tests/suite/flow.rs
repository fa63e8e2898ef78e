//! Too many calls, a full ring, credit that is spent.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tollfree_testkit::Chance;

use crate::driver::{CallNumber, Client, Place, Seen, Settings, Start, Told};
use crate::service::{
    CANCEL, CANCELLED, COUNT, ECHO, FAIL, FAILED, REFUSE, REFUSED, SILENT, SLOW, SOURCE, count_of, pattern,
    source_of,
};

pub(crate) fn calls_beyond_the_limit_wait_in_order(place: &Place) {
    let mut settings = Settings::default();
    settings.limits.stream_count = 3;
    let (_server, mut client) = place.both(&settings);
    let calls: Vec<u64> =
        (0..100).map(|nth| client.begin(Start::unary(ECHO, pattern(nth, 100))).unwrap()).collect();
    let mut ended = Vec::new();
    while ended.len() < calls.len() {
        if let Told::Ended { call, code, .. } = client.next() {
            assert_eq!(code, 0);
            ended.push(call);
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, calls);
}

/// More than the ring holds several times over, on many streams.
pub(crate) fn a_full_ring_is_waited_for(place: &Place) {
    let (_server, mut client) = place.both(&Settings::default());
    let calls: Vec<u64> = (0..8).map(|_| client.begin(Start::open(COUNT)).unwrap()).collect();
    // Below what goes by a payload area.
    let (count, len) = (60, 7_000);
    for nth in 0..count {
        calls.iter().for_each(|call| client.send(*call, pattern(nth, len)));
    }
    calls.iter().for_each(|call| client.finish(*call));
    let (mut counted, mut ended) = (0, 0);
    while ended < calls.len() {
        match client.next() {
            Told::Message(_, message) => {
                assert_eq!(message, count_of(count.into(), u64::from(count) * len as u64));
                counted += 1;
            }
            Told::Ended { code, .. } => {
                assert_eq!(code, 0);
                ended += 1;
            }
            _ => {}
        }
    }
    assert_eq!(counted, calls.len());
}

/// A server that does not read for a while: all that is sent comes, and a client beside it, in a session of its own, is answered meanwhile where
/// the server has another thread.
pub(crate) fn a_slow_reader_stops_its_sender_and_nobody_else(place: &Place) {
    let (_server, mut client) = place.both(&Settings::default());
    let began = Instant::now();
    let call = client.begin(Start::open(SLOW)).unwrap();
    // More than all credit that the session has for it.
    let (count, len) = (200, 40_000);
    (0..count).for_each(|nth| client.send(call, pattern(nth, len)));
    client.finish(call);
    let beside = client.begin(Start::unary(ECHO, "beside")).unwrap();
    let (mut answers, mut ended) = (Vec::new(), 0);
    while ended < 2 {
        match client.next() {
            Told::Message(of, message) => answers.push((of, message)),
            Told::Ended { code, .. } => {
                assert_eq!(code, 0);
                ended += 1;
            }
            _ => {}
        }
    }
    assert!(began.elapsed() >= Duration::from_millis(90), "the server has paused");
    answers.sort_by_key(|(of, _)| *of);
    let expected = [(call, count_of(count.into(), u64::from(count) * len as u64)), (beside, "beside".into())];
    assert_eq!(answers, expected);
}

/// A message that is longer than any window, where windows are as small as may be.
pub(crate) fn a_long_message_passes_a_small_window(place: &Place) {
    let mut settings = Settings::default();
    settings.limits.stream_window = tollfree_session::STREAM_WINDOW_MIN;
    settings.limits.session_window = tollfree_session::STREAM_WINDOW_MIN;
    let (_server, mut client) = place.both(&settings);
    for len in [100, 5_000, 30_000] {
        let answer = client.call(Start::unary(ECHO, pattern(1, len)));
        assert!(answer.code == 0 && answer.messages == [pattern(1, len)], "{len}");
    }
}

/// A client that does anything at any time, in small windows, by seed: each call that it doesn't cancel ends as its method says, and nothing of
/// the others is told behind their end.
pub(crate) fn calls_by_chance_all_end(place: &Place) {
    for seed in 0..6 {
        let mut chance = Chance::new(seed);
        let mut settings = Settings::default();
        settings.limits.stream_count = chance.pick(&[1, 4, 100]);
        settings.limits.stream_window = chance.pick(&[tollfree_session::STREAM_WINDOW_MIN, 20_000, 1 << 20]);
        settings.limits.session_window = settings.limits.stream_window * chance.pick(&[1, 8]);
        let (server, mut client) = place.both(&settings);
        let mut crowd = Crowd { is_narrow: settings.limits.stream_count < 100, ..Crowd::default() };
        for _ in 0..400 {
            crowd.act(&mut *client, &mut chance);
        }
        crowd.finish(&mut *client);
        assert_eq!(crowd.cancelled.len() + crowd.ended, crowd.begun, "seed {seed}");
        assert_eq!(client.call(Start::unary(ECHO, "goes on")).code, 0, "seed {seed}");
        // Cancelled or not: the server remembers none of them.
        let began = Instant::now();
        let silent = |seen: &Seen| matches!(seen, Seen::Began { path, .. } if path == SILENT);
        let over = |seen: &Seen| matches!(seen, Seen::Cancelled { path, .. } if path == SILENT);
        while server.log.count(over) < server.log.count(silent) {
            assert!(began.elapsed() < crate::driver::PATIENCE, "seed {seed}");
            client.go_on();
        }
    }
}

/// gRPC's UNAVAILABLE.
const UNAVAILABLE: u16 = 14;

/// Calls under way, and what their methods make of them.
#[derive(Default)]
struct Crowd {
    begun: usize,
    ended: usize,
    open: BTreeMap<CallNumber, &'static str>,
    /// Open, and the client has more to say.
    talking: Vec<CallNumber>,
    cancelled: Vec<CallNumber>,
    /// So few calls are taken at once that a server may hold twice as many that are over, and that its application has yet to hear of: it refuses
    /// the next one.
    is_narrow: bool,
}

impl Crowd {
    fn act(&mut self, client: &mut dyn Client, chance: &mut Chance) {
        match chance.below(10) {
            0..=3 => self.begin(client, chance),
            4 | 5 if !self.talking.is_empty() => {
                let call = chance.pick(&self.talking);
                client.send(call, pattern(1, chance.below(12_000) as usize));
            }
            6 if !self.talking.is_empty() => {
                let call = self.talking.swap_remove(chance.below(self.talking.len() as u64) as usize);
                client.finish(call);
            }
            7 if !self.open.is_empty() && chance.below(3) == 0 => {
                let calls: Vec<CallNumber> = self.open.keys().copied().collect();
                self.cancel(client, chance.pick(&calls));
            }
            _ => self.hear(client.next_within(Duration::from_micros(chance.below(400)))),
        }
    }

    fn begin(&mut self, client: &mut dyn Client, chance: &mut Chance) {
        let path = chance.pick(&[ECHO, ECHO, COUNT, SOURCE, REFUSE, FAIL, CANCEL, SILENT]);
        let message = match path {
            SOURCE => source_of(chance.below(20) as u32, chance.below(9_000) as u32),
            _ => pattern(2, chance.below(6_000) as usize),
        };
        let is_last = path == SOURCE || chance.below(2) == 0;
        let call = client.begin(Start { is_last, ..Start::unary(path, message) }).unwrap();
        self.begun += 1;
        self.open.insert(call, path);
        if !is_last {
            self.talking.push(call);
        }
    }

    fn cancel(&mut self, client: &mut dyn Client, call: CallNumber) {
        client.cancel(call, 1);
        self.open.remove(&call);
        self.talking.retain(|other| *other != call);
        self.cancelled.push(call);
    }

    fn hear(&mut self, told: Option<Told>) {
        let Some(Told::Ended { call, code, unprocessed }) = told else { return };
        assert!(!unprocessed || (self.is_narrow && code == UNAVAILABLE), "call {call} is refused");
        let Some(path) = self.open.remove(&call) else {
            assert!(self.cancelled.contains(&call), "call {call} ends twice");
            return;
        };
        self.talking.retain(|other| *other != call);
        self.ended += 1;
        let expected = match path {
            _ if unprocessed => UNAVAILABLE,
            REFUSE => REFUSED,
            FAIL => FAILED,
            CANCEL => CANCELLED,
            _ => 0,
        };
        assert_eq!(code, expected, "{path}");
    }

    /// Says everything, cancels what is never answered, and waits for the rest.
    fn finish(&mut self, client: &mut dyn Client) {
        std::mem::take(&mut self.talking).into_iter().for_each(|call| client.finish(call));
        let silent = |(call, path): (&CallNumber, &&str)| (**path == *SILENT).then_some(*call);
        let silent: Vec<CallNumber> = self.open.iter().filter_map(silent).collect();
        silent.into_iter().for_each(|call| self.cancel(client, call));
        while !self.open.is_empty() {
            let told = client.next();
            self.hear(Some(told));
        }
    }
}
