//! Objects that a gateway hands from one session to another as they came: neither decoded nor encoded, however many processes
//! of the host a message passes.
//!
//! # Trust
//! A gateway trusts no backend. An object lies in private memory here, copied out of the session that it came by, and is
//! verified before it goes anywhere: with the tables of the process that reads it next where that has some, whatever other
//! tables have the same fingerprint. A long request is made [ready](Relayed::ready) for that process on a thread that serves no calls.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tollfree_driver_tokio::{Attachment, Encoded, GRPC_PREFIX_LEN, OutgoingMessage, PeerPool};
use tollfree_layout::MethodIdx;
use tonic::Status;

use crate::message::aside::Turns;
use crate::message::batching::Row;
use crate::message::converter::{Converter, Which};
use crate::message::form::unasked;
use crate::message::out_of_band::{Large, Takes};
use crate::message::payloads::{Outlet, Sharing};

/// What a caller's session has been told of a method whose calls are failed over: which objects are taken. It is said once, when
/// a backend connection has turned out to take some.
pub(crate) struct Offer {
    session: Arc<Attachment>,
    method: MethodIdx,
    said: OnceLock<Arc<dyn Converter>>,
}

impl Offer {
    pub(crate) fn new(session: Arc<Attachment>, method: MethodIdx) -> Offer {
        Offer { session, method, said: OnceLock::new() }
    }

    /// Tells the caller that objects of these types are taken, unless it has been told of some.
    pub(crate) fn say(&self, converter: &Arc<dyn Converter>) {
        self.said.get_or_init(|| {
            self.session.take_objects(self.method, converter.types());
            converter.clone()
        });
    }

    /// What objects of the caller are.
    pub(crate) fn said(&self) -> Option<&Arc<dyn Converter>> {
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
    /// A request. Its caller says that it is of the types that it was told of. It may have come before it is known whether it is wanted.
    Asked(Arc<Offer>),
    /// An object of these types that has been verified.
    Verified(Which, Arc<dyn Converter>),
    /// What a request is encoded, for a reader that does not take it as an object.
    Encoded,
}

/// A request that has been made ready for the session that it goes to.
pub(crate) struct ReadyRequest {
    pub(crate) relayed: Arc<Relayed>,
    /// The object that it was made anew, with the reader's tables.
    pub(crate) anew: Option<Encoded>,
}

impl Relayed {
    pub(crate) fn request(object: Bytes, offer: Arc<Offer>) -> Arc<Relayed> {
        Arc::new(Relayed { object, kind: Kind::Asked(offer) })
    }

    pub(crate) fn answer(object: Bytes, converter: Arc<dyn Converter>) -> Arc<Relayed> {
        Arc::new(Relayed { object, kind: Kind::Verified(Which::Reply, converter) })
    }

    pub(crate) fn len(&self) -> usize {
        self.object.len()
    }

    /// The turns in which a request is made ready, where it has to be.
    pub(crate) fn turns(&self) -> Option<&Turns> {
        match &self.kind {
            Kind::Asked(offer) => offer.said().map(|said| said.turns()),
            _ => None,
        }
    }

    /// A request for a session whose other end takes objects with a reader's tables, or takes bytes. As much work as it is long.
    ///
    /// # Errors
    /// As [`Large::encode`].
    pub(crate) fn ready(self: Arc<Self>, reader: Option<&dyn Converter>) -> Result<ReadyRequest, Status> {
        let Kind::Asked(offer) = &self.kind else { return Ok(ReadyRequest { relayed: self, anew: None }) };
        let said = offer.said().ok_or_else(unasked)?;
        if let Some(reader) = reader.filter(|reader| reader.types() == said.types()) {
            reader.check(Which::Request, &self.object)?;
            reader.passed(Which::Request);
            let kind = Kind::Verified(Which::Request, said.clone());
            return Ok(ReadyRequest {
                relayed: Arc::new(Relayed { object: self.object.clone(), kind }),
                anew: None,
            });
        }
        let message = said.encoded(Which::Request, &self.object)?.slice(GRPC_PREFIX_LEN..);
        let anew = reader.map(|reader| reader.flat(&message)).transpose()?.flatten();
        Ok(ReadyRequest { relayed: Arc::new(Relayed { object: message, kind: Kind::Encoded }), anew })
    }
}

impl Large for Relayed {
    fn encode(
        self: Arc<Self>,
        sharing: &Sharing,
        peer: PeerPool,
        outlet: &dyn Outlet,
        takes: Takes<'_>,
    ) -> Result<OutgoingMessage, Status> {
        match &self.kind {
            Kind::Asked(_) => {
                let reader = match takes {
                    Takes::ObjectsOf(reader) => Some(&**reader),
                    Takes::Objects | Takes::Bytes => None,
                };
                self.ready(reader)?.relayed.encode(sharing, peer, outlet, takes)
            }
            Kind::Verified(which, converter) => {
                if !matches!(takes, Takes::Bytes)
                    && let Some(object) = sharing.object(self.object.clone().into(), None, peer, outlet)?
                {
                    return Ok(object);
                }
                let framed = converter.encoded(*which, &self.object)?;
                Ok(OutgoingMessage::plain(framed.slice(GRPC_PREFIX_LEN..).into()))
            }
            Kind::Encoded => Ok(OutgoingMessage::plain(self.object.clone().into())),
        }
    }

    fn append_object(&self, row: &mut Row<'_>, takes: Takes<'_>) -> bool {
        match (&self.kind, takes) {
            (Kind::Verified(..), Takes::Objects | Takes::ObjectsOf(_)) => row.push(&self.object),
            (Kind::Asked(offer), Takes::ObjectsOf(reader)) => {
                let is_of_reader = offer.said().is_some_and(|said| said.types() == reader.types());
                // An object that is not sound goes by itself, and its call ends with what is wrong with it.
                let is_ready = is_of_reader
                    && row.takes(self.len())
                    && row.may_work_on(self.len())
                    && reader.check(Which::Request, &self.object).is_ok();
                if is_ready {
                    reader.passed(Which::Request);
                }
                is_ready && row.push(&self.object)
            }
            _ => false,
        }
    }

    fn relayed(self: Arc<Self>) -> Option<Arc<Relayed>> {
        Some(self)
    }
}
