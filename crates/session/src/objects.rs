//! Objects: of which methods the server takes requests as flat messages, and of which types.
//!
//! ```text
//! client                                   server
//!   first call of a method, encoded ─────►
//!   notes it ◄──── OBJECTS: this method's types have the fingerprint F; the answer, encoded
//!   next call: F is its own, so an object ►
//!            ◄──────────────────────────── the answer, an object
//! ```
//! Only a call in which an object came is answered with one: so other users of the same session, and of the same method, notice
//! nothing. Streams go over to objects between two messages. What types are is not known here, but for the fingerprint of both together; the receiver of an object
//! verifies it.

use bytes::Bytes;
use tollfree_layout::MethodIdx;
use tollfree_layout::frame::{control, events};

use crate::frame::{Frame, head};
use crate::stream::Watched;
use crate::{Role, Session, Violation};

impl<T: Watched> Session<T> {
    /// Says that requests of a method are taken as objects, and answered so (server). To be said once a method.
    pub fn take_objects(&mut self, method: MethodIdx, fingerprint: u64) {
        if self.role != Role::Server || self.closed.is_some() {
            return;
        }
        let mut frame = head(fingerprint);
        frame.events = events::CONTROL;
        frame.code = control::OBJECTS.into();
        frame.chunk_len = u32::from(method.0).into();
        self.pending.push(frame);
    }

    /// Whether the server takes a method's requests as objects (client): `Some(false)` where it does so of other types than
    /// these, `None` while it has said nothing.
    pub fn takes_objects(&mut self, path: &str, fingerprint: u64) -> Option<bool> {
        let is_same = self.methods.object_types(path)? == fingerprint;
        if !is_same {
            self.methods.types_differ(path);
        }
        Some(is_same)
    }

    /// The fingerprint of a method's types, where the server takes its requests as objects and has said so (client).
    pub fn object_types(&mut self, path: &str) -> Option<u64> {
        self.methods.object_types(path)
    }

    /// Paths of the methods that were called with objects of other types than the server takes (client).
    pub fn differing(&self) -> impl Iterator<Item = &Bytes> {
        self.methods.differing()
    }

    pub(crate) fn receive_objects(&mut self, frame: &Frame) -> Result<(), Violation> {
        // At most as many as this side has named.
        let may = self.methods.takes_objects(frame.chunk_len as usize, frame.stream);
        may.then_some(()).ok_or(Violation::Control { code: frame.code })
    }
}
