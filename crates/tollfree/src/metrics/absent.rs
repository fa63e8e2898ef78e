//! What is in the place of `metrics` without the feature of that name: nothing,
//! which no value can be made of. An `Option` of it takes no room, and what is done with one is left out.

use std::sync::Arc;

use tollfree_driver_tokio::{Attachment, Refusals};
use tonic::Code;
use tonic::body::Body;

use crate::message::out_of_band::OutOfBand;

/// See `metrics/mod.rs`.
#[derive(Clone, Debug)]
enum Nothing {}

/// See `metrics/mod.rs`.
#[derive(Clone, Debug)]
pub(crate) struct Metrics(Nothing);

impl Metrics {
    pub(crate) fn serve(&self, _: &str) -> ServedCall {
        match self.0 {}
    }

    pub(crate) fn make(&self, _: &str, _: &Arc<str>) -> MadeCall {
        match self.0 {}
    }

    pub(crate) fn watch_session(&self, _: &Arc<Attachment>) {
        match self.0 {}
    }

    pub(crate) fn watch_channel(&self, _: Box<dyn Fn() -> Option<Vec<Arc<Attachment>>> + Send + Sync>) {
        match self.0 {}
    }

    pub(crate) fn watch_clients(&self, _: Refusals) {
        match self.0 {}
    }

    pub(crate) fn watch_calls(&self, _: Box<dyn Fn() -> u64 + Send + Sync>) {
        match self.0 {}
    }
}

/// See `metrics/mod.rs`.
#[derive(Debug)]
pub(crate) struct ServedCall(Nothing);

impl ServedCall {
    pub(crate) fn is_served(&self) {
        match self.0 {}
    }

    pub(crate) fn sent(&self, _: usize) {
        match self.0 {}
    }

    pub(crate) fn received(&self, _: usize) {
        match self.0 {}
    }

    pub(crate) fn end(&self, _: Code) {
        match self.0 {}
    }

    pub(crate) fn tell_received(&self, _: Body, _: Option<OutOfBand>) -> Body {
        match self.0 {}
    }

    pub(crate) fn tell_sent(&self, _: Body) -> Body {
        match self.0 {}
    }
}

/// See `metrics/mod.rs`.
#[derive(Clone, Debug)]
pub(crate) struct MadeCall(Nothing);

impl MadeCall {
    pub(crate) fn attempt(&self) {
        match self.0 {}
    }

    pub(crate) fn attempt_ended(&self, _: Code) {
        match self.0 {}
    }

    pub(crate) fn sent(&self, _: usize) {
        match self.0 {}
    }

    pub(crate) fn received(&self, _: usize) {
        match self.0 {}
    }

    pub(crate) fn tell_sent(&self, _: Body, _: Option<OutOfBand>) -> Body {
        match self.0 {}
    }
}

/// See `metrics/mod.rs`.
#[derive(Debug)]
pub(crate) struct Outcome(pub(crate) MadeCall);

impl Outcome {
    pub(crate) fn is(&self, _: Code) {
        match self.0.0 {}
    }
}
