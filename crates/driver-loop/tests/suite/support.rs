//! A server that echoes, and a client that gathers what comes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;
use tollfree_driver_loop::{
    Address, CallError, CallId, CallStart, Event, EventLoop, LoopConfig, Message, SessionId, Status,
};
use tollfree_os::rustix::time::{ClockId, clock_gettime};

/// Longer than anything takes.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) fn place() -> (TempDir, Address) {
    let directory = tempfile::tempdir().unwrap();
    let address = Address::Path(directory.path().join("s.sock"));
    (directory, address)
}

/// What a client was told of one call.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) headers: Option<Bytes>,
    pub(crate) messages: Vec<Bytes>,
    pub(crate) status: Option<Status>,
}

/// A client and a server in one loop.
pub(crate) struct Both {
    pub(crate) events: EventLoop,
    pub(crate) client: SessionId,
    pub(crate) server: SessionId,
    address: Address,
    _directory: TempDir,
}

impl Both {
    pub(crate) fn new(config: LoopConfig) -> Both {
        let (directory, address) = place();
        let mut events = EventLoop::new(config).unwrap();
        events.listen(&address).unwrap();
        let client = events.connect(&address).unwrap();
        let mut server = None;
        let mut is_connected = false;
        while server.is_none() || !is_connected {
            match next(&mut events) {
                Event::Connected { session } => is_connected = session == client,
                Event::Accepted { session, .. } => server = Some(session),
                event => panic!("{event:?}"),
            }
        }
        Both { events, client, server: server.unwrap(), address, _directory: directory }
    }

    /// Where the server listens.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Lets the server echo until a client's call has ended; what it was told.
    pub(crate) fn until_ended(&mut self, call: CallId) -> Told {
        let mut told = Told::default();
        while told.status.is_none() {
            let event = next(&mut self.events);
            if !echoes(&mut self.events, &event) {
                tell(&mut told, event, call);
            }
        }
        told
    }
}

/// What happens next.
pub(crate) fn next(events: &mut EventLoop) -> Event {
    let until = Instant::now() + LONG;
    loop {
        if let Some(event) = events.wait(Some(LONG)).unwrap() {
            return event;
        }
        assert!(Instant::now() < until, "nothing happens");
    }
}

/// A server's part of an event, if it is one: each message is sent back, and status 0 at the end.
pub(crate) fn echoes(events: &mut EventLoop, event: &Event) -> bool {
    match answer(events, event) {
        // It may have ended by now, which the next event tells.
        Some(said) => assert!(matches!(said, Ok(()) | Err(CallError::Ended)), "{said:?}"),
        None => return false,
    }
    true
}

fn answer(events: &mut EventLoop, event: &Event) -> Option<Result<(), CallError>> {
    Some(match event {
        Event::Call { call, metadata, .. } => events.answer_headers(*call, metadata.clone()),
        Event::Message { call, message } if events.serves(*call) => events.send(*call, message.clone()),
        Event::HalfClosed { call } => events.answer_end(*call, 0, Bytes::new()),
        Event::Sent { call } if events.serves(*call) => Ok(()),
        _ => return None,
    })
}

pub(crate) fn tell(told: &mut Told, event: Event, of: CallId) {
    match event {
        Event::Headers { call, metadata } if call == of => told.headers = Some(metadata),
        Event::Message { call, message } if call == of => told.messages.push(message.bytes),
        Event::Ended { call, status } if call == of => told.status = Some(status),
        Event::Sent { .. } | Event::Ended { .. } => {}
        event => panic!("{event:?}"),
    }
}

pub(crate) fn unary(message: impl Into<Bytes>) -> CallStart<'static> {
    let message = Some(Message::from(message.into()));
    CallStart { message, is_last: true, ..CallStart::new("/test.Echo/Call") }
}

/// Processor time of this thread.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
