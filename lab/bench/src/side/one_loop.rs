//! The driver of one thread: the same calls as a bare session's, as bytes, by events.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use tollfree_driver_loop::{CallId, CallStart, Event, EventLoop, LoopConfig, Message, SessionId};

use crate::load::{self, EchoCall};
use crate::order::{Load, Measured, Serve, Serving};
use crate::plan::SIZE_MAX;

/// The method, as the stubs would name it.
const PATH: &str = "/tollfree.bench.v1.Echo/Call";

fn config() -> LoopConfig {
    LoopConfig { message_len_max: SIZE_MAX, ..LoopConfig::default() }
}

/// What happens next.
fn next(events: &mut EventLoop) -> Result<Event, String> {
    loop {
        if let Some(event) = events.wait(None).map_err(|error| format!("waiting failed: {error}"))? {
            return Ok(event);
        }
    }
}

/// Serves on this thread, and calls `listens` once clients may connect.
pub(super) fn serve(order: &Serve, listens: impl FnOnce(Serving)) -> Result<(), String> {
    let text = format!("shm://{}", order.dir.join("loop.sock").display());
    let address = text.parse().map_err(|error| format!("{error}"))?;
    let mut events = EventLoop::new(config()).map_err(|error| format!("no loop can be had: {error}"))?;
    events.listen(&address).map_err(|error| format!("cannot listen on {address}: {error}"))?;
    listens(Serving { address: text });
    loop {
        if let Event::Message { call, message } = next(&mut events)? {
            // A client that has gone does not get its answer.
            let _ = answer(&mut events, call, message);
        }
    }
}

fn answer(
    events: &mut EventLoop,
    call: CallId,
    message: Message,
) -> Result<(), tollfree_driver_loop::CallError> {
    events.answer_headers(call, Bytes::new())?;
    events.send(call, message)?;
    events.answer_end(call, 0, Bytes::new())
}

/// Calls with a thread, a loop and a session for each call in flight.
pub(super) fn measure(load: &Load) -> Result<Measured, String> {
    load::run_on_threads(|| connect(&load.address), load)
}

fn connect(address: &str) -> Result<Caller, String> {
    let address = address.parse().map_err(|error| format!("{error}"))?;
    let mut events = EventLoop::new(config()).map_err(|error| format!("no loop can be had: {error}"))?;
    let session = events.connect(&address).map_err(|error| format!("cannot connect: {error}"))?;
    match next(&mut events)? {
        Event::Connected { .. } => Ok(Caller { session, events: Arc::new(Mutex::new(events)) }),
        event => Err(format!("instead of a session came {event:?}")),
    }
}

/// One session of a loop; no two threads call at once.
#[derive(Clone)]
pub(crate) struct Caller {
    session: SessionId,
    events: Arc<Mutex<EventLoop>>,
}

impl EchoCall for Caller {
    type Body = Bytes;

    async fn call(&mut self, body: Bytes) -> Result<Bytes, String> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let start = CallStart { message: Some(Message::from(body)), is_last: true, ..CallStart::new(PATH) };
        events.call(self.session, start).map_err(|error| format!("a call could not begin: {error}"))?;
        let mut answer = Bytes::new();
        loop {
            match next(&mut events)? {
                Event::Message { message, .. } => answer = message.bytes,
                Event::Ended { status, .. } if status.code == 0 => return Ok(answer),
                Event::Ended { status, .. } => {
                    return Err(format!("a call ended with {}: {}", status.code, status.words()));
                }
                Event::Closed { reason, .. } => return Err(format!("the session ended: {reason}")),
                _ => {}
            }
        }
    }

    async fn rest(&self, until: Instant) {
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}
