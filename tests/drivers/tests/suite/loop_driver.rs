//! The loop: a thread with a loop behind each server, and a loop in the caller's thread behind each client.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tollfree_driver_loop::{
    Address, CallError, CallId, CallStart, Event, EventLoop, LoopConfig, Message, SessionId, Waker,
};

use crate::driver::{CallNumber, Client, Driver, Log, PATIENCE, Seen, Server, Settings, Start, Told};
use crate::service::{Came, Deed, Serving};

pub(crate) struct Loop;

fn config(settings: &Settings) -> LoopConfig {
    LoopConfig { wait: settings.wait, limits: settings.limits, ..LoopConfig::default() }
}

impl Driver for Loop {
    const NAME: &'static str = "loop";

    fn serve(address: &Address, settings: &Settings, log: &Log) -> Box<dyn Server> {
        let mut events = EventLoop::new(config(settings)).unwrap();
        events.listen(address).unwrap();
        let waker = events.waker();
        let is_over = Arc::new(AtomicBool::new(false));
        let mut serving = LoopServing { events, log: log.clone(), calls: HashMap::new() };
        let ends = is_over.clone();
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                if let Some(event) = serving.events.wait(Some(PATIENCE)).unwrap() {
                    serving.on(event);
                }
            }
        });
        Box::new(LoopServer { thread: Some(thread), waker, is_over })
    }

    fn connect(address: &Address, settings: &Settings) -> Result<Box<dyn Client>, String> {
        let mut events = EventLoop::new(config(settings)).map_err(|error| error.to_string())?;
        let session = events.connect(address).map_err(|error| error.to_string())?;
        let until = Instant::now() + PATIENCE;
        loop {
            match events.wait(Some(PATIENCE)).map_err(|error| error.to_string())? {
                Some(Event::Connected { .. }) => break,
                Some(Event::NotConnected { error, .. }) => return Err(error.to_string()),
                Some(event) => return Err(format!("{event:?}, where it connects")),
                None if Instant::now() > until => return Err("nothing comes of connecting".to_owned()),
                None => {}
            }
        }
        Ok(Box::new(LoopClient {
            events,
            session,
            calls: Vec::new(),
            kept: VecDeque::new(),
            numbers: HashMap::new(),
        }))
    }
}

struct LoopServer {
    thread: Option<JoinHandle<()>>,
    waker: Waker,
    is_over: Arc<AtomicBool>,
}

impl Server for LoopServer {}

impl Drop for LoopServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.waker.wake();
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(ended, Some(Ok(()))), "the server's thread has panicked");
        }
    }
}

struct LoopServing {
    events: EventLoop,
    log: Log,
    calls: HashMap<CallId, Serving>,
}

impl LoopServing {
    fn on(&mut self, event: Event) {
        match event {
            Event::Call { call, path, metadata, deadline_ns } => {
                let mut serving = Serving::new(&path);
                self.log.add(Seen::Began { path: serving.path(), has_deadline: deadline_ns.is_some() });
                let deeds = serving.on(Came::Call { metadata });
                self.calls.insert(call, serving);
                self.act(call, deeds);
            }
            Event::Message { call, message } => {
                assert!(!message.compressed);
                self.came(call, Came::Message(message.bytes));
            }
            Event::HalfClosed { call } => self.came(call, Came::HalfClose),
            Event::Ended { call, status } => {
                if let Some(serving) = self.calls.remove(&call) {
                    self.log.add(Seen::Cancelled { path: serving.path(), code: status.code });
                }
            }
            Event::Closed { session, reason } => {
                let left = self.calls.keys().filter(|call| call.session() == session).count();
                assert_eq!(left, 0, "calls end before their session");
                self.log.add(Seen::Closed(reason.number()));
            }
            Event::Accepted { .. } | Event::Refused { .. } | Event::Sent { .. } => {}
            event => panic!("{event:?}, at a server"),
        }
    }

    fn came(&mut self, call: CallId, came: Came) {
        // A call that was answered before the client had said everything.
        let Some(serving) = self.calls.get_mut(&call) else { return };
        let deeds = serving.on(came);
        self.act(call, deeds);
    }

    fn act(&mut self, call: CallId, deeds: Vec<Deed>) {
        for deed in deeds {
            let done = match deed {
                Deed::Headers(block) => self.events.answer_headers(call, block),
                Deed::Send(message) => self.events.send(call, Message::from(message)),
                Deed::End(code) => {
                    self.calls.remove(&call);
                    self.events.answer_end(call, code, Bytes::new())
                }
                Deed::Cancel(code) => {
                    self.calls.remove(&call);
                    self.events.cancel(call, code);
                    Ok(())
                }
                Deed::Drain => {
                    self.events.drain(call.session());
                    Ok(())
                }
                Deed::Close => {
                    self.events.close(call.session());
                    Ok(())
                }
                // A loop has one thread: all its sessions wait.
                Deed::Pause(time) => {
                    std::thread::sleep(time);
                    Ok(())
                }
            };
            // It may have ended by now, which another event tells.
            assert!(matches!(done, Ok(()) | Err(CallError::Ended)), "{done:?}");
        }
    }
}

struct LoopClient {
    events: EventLoop,
    session: SessionId,
    calls: Vec<CallId>,
    kept: VecDeque<Told>,
    numbers: HashMap<CallId, CallNumber>,
}

impl LoopClient {
    fn id(&self, call: CallNumber) -> CallId {
        self.calls[call as usize - 1]
    }

    fn told(&self, event: Event) -> Option<Told> {
        let number = |call| self.numbers[&call];
        Some(match event {
            Event::Headers { call, metadata } => Told::Headers(number(call), metadata),
            Event::Message { call, message } => {
                assert!(!message.compressed);
                Told::Message(number(call), message.bytes)
            }
            Event::Ended { call, status } => {
                let (code, unprocessed) = (status.code, status.unprocessed);
                Told::Ended { call: number(call), code, unprocessed }
            }
            Event::Draining { .. } => Told::Draining,
            Event::Closed { reason, .. } => Told::Closed(reason.number()),
            Event::Sent { .. } => return None,
            event => panic!("{event:?}, at a client"),
        })
    }
}

/// What is said on a call that has ended is for nobody.
fn said(said: Result<(), CallError>) {
    assert!(matches!(said, Ok(()) | Err(CallError::Ended)), "{said:?}");
}

impl Client for LoopClient {
    fn begin(&mut self, start: Start<'_>) -> Option<CallNumber> {
        let deadline_ns = start.deadline.map(|time| tollfree_driver_tokio::now_ns() + time.as_nanos() as u64);
        let start = CallStart {
            metadata: start.metadata,
            message: start.message.map(Message::from),
            is_last: start.is_last,
            deadline_ns,
            ..CallStart::new(start.path)
        };
        let call = match self.events.call(self.session, start) {
            Ok(call) => call,
            Err(CallError::Over) => return None,
            Err(error) => panic!("{error}"),
        };
        self.calls.push(call);
        let number = self.calls.len() as CallNumber;
        self.numbers.insert(call, number);
        Some(number)
    }

    fn send(&mut self, call: CallNumber, message: Bytes) {
        said(self.events.send(self.id(call), Message::from(message)));
    }

    fn finish(&mut self, call: CallNumber) {
        said(self.events.finish(self.id(call)));
    }

    fn cancel(&mut self, call: CallNumber, code: u16) {
        self.events.cancel(self.id(call), code);
    }

    fn go_on(&mut self) {
        if let Some(event) = self.events.wait(Some(Duration::from_millis(1))).unwrap() {
            let told = self.told(event);
            self.kept.extend(told);
        }
    }

    fn next_within(&mut self, time: Duration) -> Option<Told> {
        if let Some(told) = self.kept.pop_front() {
            return Some(told);
        }
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.events.wait(Some(left)).unwrap() {
                Some(event) => {
                    if let Some(told) = self.told(event) {
                        return Some(told);
                    }
                }
                None if left.is_zero() => return None,
                None => {}
            }
        }
    }
}
