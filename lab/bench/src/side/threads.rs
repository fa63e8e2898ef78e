//! The driver for threads: the same calls as a bare session's, as bytes; threads that call share a session.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tollfree_driver_blocking::{
    Address, CallStart, Client, LoopConfig, Message, ServedCall, Server, Session,
};

use crate::load::{self, EchoCall};
use crate::order::{Load, Measured, Serve, Serving};
use crate::plan::{INFLIGHT_MAX, SIZE_MAX};

/// The method, as the stubs would name it.
const PATH: &str = "/tollfree.bench.v1.Echo/Call";

fn config() -> LoopConfig {
    LoopConfig { message_len_max: SIZE_MAX, ..LoopConfig::default() }
}

/// Serves on threads, and calls `listens` once clients may connect.
pub(super) fn serve(order: &Serve, listens: impl FnOnce(Serving)) -> Result<(), String> {
    let text = format!("shm://{}", order.dir.join("threads.sock").display());
    let address: Address = text.parse().map_err(|error| format!("{error}"))?;
    let server = Server::new(config(), INFLIGHT_MAX, |call: &ServedCall| {
        if let Some(message) = call.receive() {
            // A client that has gone does not get its answer.
            let _ = call.answer(message);
        }
    });
    let server = server.map_err(|error| format!("no server can be had: {error}"))?;
    server.listen(&address).map_err(|error| format!("cannot listen on {address}: {error}"))?;
    listens(Serving { address: text });
    loop {
        std::thread::park();
    }
}

/// Calls with a thread for each call in flight, which share a session.
pub(super) fn measure(load: &Load) -> Result<Measured, String> {
    let address = load.address.parse().map_err(|error| format!("{error}"))?;
    let client = Client::new(config()).map_err(|error| format!("no client can be had: {error}"))?;
    let session = client.connect(&address).map_err(|error| format!("cannot connect: {error}"))?;
    let caller = Caller(Arc::new(session));
    load::run_on_threads(|| Ok(caller.clone()), load)
}

/// One session, which threads share.
#[derive(Clone)]
struct Caller(Arc<Session>);

impl EchoCall for Caller {
    type Body = Bytes;

    async fn call(&mut self, body: Bytes) -> Result<Bytes, String> {
        let start = CallStart { message: Some(Message::from(body)), is_last: true, ..CallStart::new(PATH) };
        let call = self.0.call(start).map_err(|error| format!("a call could not begin: {error}"))?;
        let answer = call.answer();
        answer
            .map(Message::into_bytes)
            .map_err(|status| format!("a call ended with {}: {}", status.code, status.words()))
    }

    async fn rest(&self, until: Instant) {
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}
