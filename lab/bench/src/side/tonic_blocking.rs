//! Stock tonic for threads that block: a channel that they share, in a runtime of tokio's that each waits in.

use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Runtime;
use tonic::transport::Channel;

use super::stub::Stub;
use super::tonic_unix;
use crate::load::{self, EchoCall};
use crate::message::Message;
use crate::order::{self, Load, Measured};

/// Calls with a thread for each call in flight.
pub(super) fn measure(load: &Load) -> Result<Measured, String> {
    let runtime = Arc::new(order::runtime(load.case.runtime).map_err(|error| error.to_string())?);
    let channel = runtime.block_on(tonic_unix::connect(&load.address))?;
    let stub = Stub::new(channel, load.case);
    load::run_on_threads(|| Ok(Caller { stub: stub.clone(), runtime: runtime.clone() }), load)
}

#[derive(Clone)]
struct Caller {
    stub: Stub<Channel>,
    runtime: Arc<Runtime>,
}

impl EchoCall for Caller {
    type Body = Vec<u8>;

    async fn call(&mut self, body: Vec<u8>) -> Result<Vec<u8>, String> {
        self.runtime.block_on(self.stub.call(body))
    }

    fn take(&mut self, message: Message, samples: &[Vec<u8>]) -> Result<(), String> {
        self.stub.take(message, samples)
    }

    async fn rest(&self, until: Instant) {
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}
