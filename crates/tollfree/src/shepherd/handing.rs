//! A call on its way to a worker that may turn it away, for it is about to leave.

use std::sync::Arc;

use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;

use crate::call::attempts::{Call, Failed, deadline_ns};
use crate::endpoint::Connection;
use crate::endpoint::balance::Picked;
use crate::http::call::Replayed;
use crate::http::replay::KEPT_LEN_MAX;
use crate::message::bypass::{OfClient, OfServer};
use crate::message::encoding::headers_say_encoding;
use crate::message::holdings::Holdings;
use crate::message::repacking::{Repacking, Room};
use crate::metadata::timeout;
use crate::shepherd::Attached;
use crate::shepherd::objects::Way;

/// A call that a shepherd hands to a worker, and to another if that one has not looked at it.
///
/// A worker that is shut down, or has died, turns away calls that were on their way to it. Up to 256 KiB of the request are kept until an
/// answer begins, so that such a call can be handed on.
pub struct Handing {
    call: Replayed,
    room: Option<Arc<dyn Room>>,
    holdings: Option<Arc<dyn Holdings>>,
    /// It came by a session, so its answer stays on this host, and may pass beside its body.
    is_relayed: bool,
}

impl std::fmt::Debug for Handing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handing").finish_non_exhaustive()
    }
}

/// A worker has not answered a call.
#[derive(Debug)]
pub struct Unanswered {
    /// What the call ends with, unless it is handed to another.
    pub status: Status,
    /// The worker has not looked at the call and takes none any more, and all of the request is still here.
    pub may_be_handed_on: bool,
}

impl Handing {
    /// How much of a request is kept, in bytes, until an answer begins.
    pub const KEPT_LEN_MAX: usize = KEPT_LEN_MAX;

    /// A call from outside. Its `grpc-timeout` counts from here.
    pub fn new(request: Request<Body>) -> Handing {
        let (mut parts, body) = request.into_parts();
        // A shepherd has refused what is no timeout.
        let deadline_ns = timeout(&parts.headers).unwrap_or_default().map(deadline_ns);
        // Of a call that came by a session.
        let came = parts.extensions.remove().and_then(|OfServer(came)| came.onward());
        let is_relayed = came.is_some();
        if let Some(onward) = came {
            parts.extensions.insert(OfClient(onward));
        }
        Handing {
            call: Replayed::new(parts.uri, parts.headers, parts.extensions, body, deadline_ns),
            room: None,
            holdings: None,
            is_relayed,
        }
    }

    /// Whether the call says how its messages are compressed, or how those of its answer may be.
    pub fn says_encoding(&self) -> bool {
        headers_say_encoding(self.call.headers())
    }

    /// Has compressed messages inflated, and answers deflated, where the handler takes objects, as long as there is room. Without it, that is
    /// the business process's, which gets such messages as bytes. Answers to a call that came by a session are not deflated.
    #[must_use]
    pub fn room(self, room: Arc<dyn Room>) -> Handing {
        Handing { room: Some(room), ..self }
    }

    /// Counts what is held of objects of the answer that are longer than a frame, or long to verify. A call for whose answer there is no
    /// room ends RESOURCE_EXHAUSTED.
    #[must_use]
    pub fn count_holdings(self, holdings: Arc<dyn Holdings>) -> Handing {
        Handing { holdings: Some(holdings), ..self }
    }
}

impl Attached {
    /// Has this worker answer a call. Dropping the future, or the body that it gives, cancels the call.
    ///
    /// # Errors
    /// [`Unanswered`] says whether another worker may have the call.
    pub async fn hand(&self, handing: &mut Handing) -> Result<Response<Body>, Unanswered> {
        let (endpoint, connection) = (self.endpoint.clone(), Connection::Session(self.attachment.clone()));
        let way = self.objects.of(handing.call.path(), handing.call.headers(), handing.room.as_ref(), self);
        let (translation, repacking, fate) = match way {
            Way::Plain => (None, None, None),
            Way::Objects(translation, repacking) => (Some(translation), repacking, None),
            Way::Bytes(fate) => (None, None, Some((self.objects.fates().clone(), fate))),
            Way::Refused(status) => return Err(Unanswered { status, may_be_handed_on: false }),
        };
        handing.call.translate(translation, handing.holdings.clone());
        handing.call.repack(match handing.is_relayed {
            true => repacking.map(Repacking::of_request),
            false => repacking,
        });
        handing.call.count(fate);
        // An attempt that no server has looked at is none to the one that answers.
        match handing.call.attempt(&Picked { endpoint, connection }, 0).await {
            Ok(response) => {
                handing.call.commit();
                Ok(handing.call.repacked(response.map(Body::new)))
            }
            Err(Failed { status, unseen }) => {
                let may_be_handed_on = unseen && !self.is_open() && handing.call.is_whole();
                Err(Unanswered { status, may_be_handed_on })
            }
        }
    }
}
