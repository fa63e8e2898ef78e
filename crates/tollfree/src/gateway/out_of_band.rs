//! What a gateway sees of messages that pass its bodies.

use http::Request;

use crate::message::converter::Which;
use crate::message::out_of_band::{OfServer, OutOfBand};

/// Messages of one call that pass beside its bodies: they came as objects, and are failed over as they are. An empty message stands in
/// for each of them.
#[derive(Clone, Debug)]
pub struct OutOfBandMessages(OutOfBand);

impl OutOfBandMessages {
    /// Of a call of a [`ViaSession`](crate::gateway::ViaSession) whose objects may pass. From here on those of more than `len_max`
    /// bytes don't: they are encoded, and in the bodies like all other messages. To be said before the call's body is read.
    pub fn of<B>(request: &Request<B>, len_max: usize) -> Option<OutOfBandMessages> {
        let OfServer(came) = request.extensions().get()?;
        came.is_relay().then(|| {
            came.relay_up_to(len_max);
            OutOfBandMessages(came.clone())
        })
    }

    /// Has objects of the request wait beside its body until it is known whether its backend connection takes them, so that the body can be read before
    /// the backend connection is chosen. To be said only of a call that is [handed](crate::gateway::Attached::hand) to a backend connection.
    pub fn hold(&self) {
        self.0.hold();
    }

    /// The length of the request's message of that number, from 0, if it passes beside the body and has not been sent yet.
    pub fn request_len(&self, number: u64) -> Option<usize> {
        self.0.relayed_len(Which::Request, number)
    }

    /// The same of the answer's.
    pub fn answer_len(&self, number: u64) -> Option<usize> {
        self.0.relayed_len(Which::Reply, number)
    }
}
