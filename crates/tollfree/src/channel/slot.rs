//! A call's way through interceptors: they see a request's metadata and extensions, never its message.
//!
//! tonic's `InterceptedService` hides what it wraps. So a request without a message goes through it, with a [`Slot`] in
//! its extensions. Who is wrapped (a [`Channel`], a generated server) finds the slot and puts in it what
//! the interceptors made of the request, instead of serving it. A slot that stays empty was refused on its way.

use std::sync::Arc;

use http::{Extensions, HeaderMap, Request};
use parking_lot::Mutex;

use crate::channel::Channel;

/// What the interceptors let through.
pub(crate) struct Handed {
    pub(crate) headers: HeaderMap,
    pub(crate) extensions: Extensions,
    /// The channel that was wrapped (client).
    pub(crate) channel: Option<Channel>,
}

/// Where a request is laid down that has passed the interceptors.
#[derive(Clone, Default)]
pub(crate) struct Slot {
    handed: Arc<Mutex<Option<Handed>>>,
}

impl Slot {
    /// The slot of a request, if it has one; it is not in the request any more then.
    pub(crate) fn of<B>(request: &mut Request<B>) -> Option<Slot> {
        if request.extensions().is_empty() {
            return None;
        }
        request.extensions_mut().remove()
    }

    /// Lays down what is left of a request.
    pub(crate) fn fill<B>(&self, request: &mut Request<B>, channel: Option<Channel>) {
        *self.handed.lock() = Some(Handed {
            headers: std::mem::take(request.headers_mut()),
            extensions: std::mem::take(request.extensions_mut()),
            channel,
        });
    }

    /// What was laid down.
    pub(crate) fn take(&self) -> Option<Handed> {
        self.handed.lock().take()
    }
}

/// For generated servers: whether a request was only on its way through interceptors. It must be answered with an empty
/// response then, which nobody looks at.
pub fn pass<B>(request: &mut Request<B>) -> bool {
    match Slot::of(request) {
        Some(slot) => {
            slot.fill(request, None);
            true
        }
        None => false,
    }
}
