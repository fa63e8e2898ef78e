//! A handler that keeps objects, and lets go of them when it is told to.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tollfree::Payloads;
use tollfree_direct_stubs::later::probe::probe_server::{Probe, ProbeServer};
use tollfree_direct_stubs::later::views::tollfree::probe::v1::{Answer, Ask};
use tollfree_processor::Arenas;
use tollfree_processor::typed::{Builder, Owned};
use tonic::{Request, Response, Status, Streaming};

/// What an ask's first length tells the handler to do.
pub(crate) const READ: u32 = 0;
pub(crate) const KEEP: u32 = 1;
/// Lets go of every second object that it keeps.
pub(crate) const DROP_HALF: u32 = 2;

/// The body of the object with that number.
pub(crate) fn body(number: u32, len: usize) -> Vec<u8> {
    vec![number as u8 | 1; len]
}

#[derive(Clone, Default)]
pub(crate) struct Keeper {
    kept: Arc<Mutex<Vec<Owned<Ask>>>>,
    payloads: Arc<OnceLock<Payloads>>,
}

impl Keeper {
    pub(crate) fn serve(&self) -> ProbeServer<Keeper> {
        ProbeServer::new(self.clone())
    }

    /// What it tells its callers of.
    pub(crate) fn counts(&self, payloads: Payloads) {
        self.payloads.set(payloads).unwrap();
    }

    /// An object's second length is its number, by which its body is known.
    fn check(ask: &Owned<Ask>) -> Result<(), Status> {
        let view = ask.view();
        let number = view.lens().get(1).unwrap_or_default();
        if view.body() == body(number, view.body().len()) {
            return Ok(());
        }
        Err(Status::data_loss(format!("object {number} has changed")))
    }
}

#[tonic::async_trait]
impl Probe for Keeper {
    /// Answers with what came so far: by ref, as objects; and its process.
    async fn unary(&self, request: Request<Owned<Ask>>) -> Result<Response<Owned<Answer>>, Status> {
        let ask = request.into_inner();
        Keeper::check(&ask)?;
        let mut kept = self.kept.lock();
        // It may say for which process it is meant.
        let is_meant = ask.view().lens().get(2).is_none_or(|pid| pid == std::process::id());
        let what = ask.view().lens().get(0).filter(|_| is_meant);
        // Not with each that is to be kept: that is the square of their number.
        if what.is_some_and(|what| what != KEEP) {
            kept.iter().try_for_each(Keeper::check)?;
        }
        match what {
            Some(KEEP) => kept.push(ask),
            Some(DROP_HALF) => {
                let mut idx = 0;
                kept.retain(|_| {
                    idx += 1;
                    idx % 2 == 0
                });
            }
            _ => {}
        }
        drop(kept);
        let counts = self.payloads.get().map(Payloads::counts).unwrap_or_default();
        let mut answer = Builder::<Answer>::new(Arenas::new(1 << 20, 0).take()).unwrap();
        answer.edit().set_seen_count(counts.received_by_ref as u32).unwrap();
        answer.edit().set_seen_len(counts.received_objects).unwrap();
        answer.edit().set_body(&std::process::id().to_le_bytes()).unwrap();
        Ok(Response::new(answer.freeze().unwrap()))
    }

    async fn up(&self, _: Request<Streaming<Owned<Ask>>>) -> Result<Response<Owned<Answer>>, Status> {
        Err(Status::unimplemented("only single ones are kept"))
    }
}
