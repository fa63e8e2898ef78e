//! Objects that a shepherd hands from one session to another as they came: neither decoded nor encoded, however many processes
//! of the host a message passes.
//!
//! # Trust
//! A shepherd trusts no business process. An object lies in private memory here, copied out of the session that it came by, and is
//! verified before it goes anywhere: with the tables of the process that reads it next where that has some, whatever other
//! tables have the same fingerprint.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tollfree_layout::MethodIdx;
use tollfree_transport::{Attachment, GRPC_PREFIX_LEN, Outgoing, PeerPool};
use tonic::Status;

use crate::message::bypass::{Large, Takes};
use crate::message::fates::Fate;
use crate::message::form::unasked;
use crate::message::payloads::{Outlet, Sharing};
use crate::message::translation::{Translation, Which};

/// What a caller's session has been told of a method whose calls are handed on: which objects are taken. It is said once, when
/// a worker has turned out to take some.
pub(crate) struct Offer {
    session: Arc<Attachment>,
    method: MethodIdx,
    said: OnceLock<Arc<Translation>>,
}

impl Offer {
    pub(crate) fn new(session: Arc<Attachment>, method: MethodIdx) -> Offer {
        Offer { session, method, said: OnceLock::new() }
    }

    /// Tells the caller that objects of these types are taken, unless it has been told of some.
    pub(crate) fn say(&self, translation: &Arc<Translation>) {
        self.said.get_or_init(|| {
            self.session.take_objects(self.method, translation.types());
            translation.clone()
        });
    }

    /// What objects of the caller are.
    pub(crate) fn said(&self) -> Option<&Arc<Translation>> {
        self.said.get()
    }
}

/// An object between two sessions.
pub(crate) struct Relayed {
    object: Bytes,
    kind: Kind,
}

/// What an object is.
enum Kind {
    /// A request, by the caller's word: of the types that it was told of. It may have come before it is known whether it is wanted.
    Asked(Arc<Offer>),
    /// An answer, of these types.
    Answer(Arc<Translation>),
}

impl Relayed {
    pub(crate) fn request(object: Bytes, offer: Arc<Offer>) -> Arc<Relayed> {
        Arc::new(Relayed { object, kind: Kind::Asked(offer) })
    }

    pub(crate) fn answer(object: Bytes, translation: Arc<Translation>) -> Arc<Relayed> {
        Arc::new(Relayed { object, kind: Kind::Answer(translation) })
    }
}

impl Large for Relayed {
    fn encode(
        self: Arc<Self>,
        sharing: &Sharing,
        peer: PeerPool,
        outlet: &dyn Outlet,
        takes: Takes<'_>,
    ) -> Result<Outgoing, Status> {
        let (which, translation) = match &self.kind {
            Kind::Asked(offer) => (Which::Request, offer.said().ok_or_else(unasked)?),
            Kind::Answer(translation) => (Which::Reply, translation),
        };
        let is_taken = match takes {
            Takes::Bytes => false,
            // It has been verified, or else its reader has not been told of any tables.
            Takes::Objects => which == Which::Reply,
            Takes::ObjectsOf(reader) if reader.types() == translation.types() => {
                reader.check(which, &self.object)?;
                reader.count(Fate::Handed);
                true
            }
            Takes::ObjectsOf(_) => false,
        };
        if is_taken && let Some(object) = sharing.object(self.object.clone().into(), None, peer, outlet)? {
            return Ok(object);
        }
        let framed = translation.encoded(which, &self.object)?;
        Ok(Outgoing::plain(framed.slice(GRPC_PREFIX_LEN..).into()))
    }
}
