//! Direct connections as a gateway arranges them: a backend connection lets a process in, and the process is told where.

use http::{HeaderValue, Request, Response};
use http_body::Body as _;
use tollfree_driver_tokio::PeerIdentity;
use tonic::Status;
use tonic::body::Body;

use crate::endpoint::Connection;
use crate::endpoint::balance::Picked;
use crate::endpoint::direct_connection::{ADMIT, ASK, PROCESS, process_value};
use crate::endpoint::upgrade::OFFER;
use crate::gateway::Attached;
use crate::http::call::attempt;
use crate::http::direct_connection;
use crate::http::response_body::ResponseBody;
use crate::server::direct_connection::standing;

/// The longest address that is failed over: there is none that is longer.
const OFFER_LEN_MAX: usize = 128;

/// A backend connection's word that it lets in one process, by a socket that is there for it alone. It holds until this is dropped.
pub struct Admission {
    offer: HeaderValue,
    process: HeaderValue,
    body: ResponseBody,
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission").finish_non_exhaustive()
    }
}

impl Attached {
    /// Has the backend connection's process let in one that would call it by way of the gateway, and that calls it directly then: without the
    /// gateway's limits, metrics and choice of backend connections.
    ///
    /// # Errors
    /// The process' status, or UNAVAILABLE where it names no socket.
    pub async fn admit(&self, caller: PeerIdentity) -> Result<Admission, Status> {
        let elsewhere = || Status::failed_precondition("the process that is called is on another host");
        let called = self.attachment.local_peer().ok_or_else(elsewhere)?.identity();
        let is_known = caller.pid > 0 && called.pid > 0;
        let named = |process| process_value(process).filter(|_| is_known);
        let unseen = || Status::failed_precondition("the two processes are not of one pid namespace");
        let (caller, process) = named(caller).zip(named(called)).ok_or_else(unseen)?;
        let connection = Connection::Session(self.attachment.clone());
        let picked = Picked { endpoint: self.endpoint.clone(), connection };
        let asked = attempt(&picked, None, direct_connection::request(ADMIT, Some((PROCESS, caller)))).await;
        let (mut parts, body) = asked.map_err(|failed| failed.status)?.into_parts();
        if let Some(status) = Status::from_header_map(&parts.headers) {
            return Err(status);
        }
        let offer = parts.headers.remove(OFFER).filter(|offer| offer.len() <= OFFER_LEN_MAX);
        let offer = offer.ok_or_else(|| Status::unavailable("the process names no socket to meet it at"))?;
        Ok(Admission { offer, process, body })
    }
}

impl Admission {
    /// Whether a call of a [`ViaSession`](crate::gateway::ViaSession) asks for a direct connection, and is to be answered by
    /// [`Admission::answer`] or with a status that says why there is none.
    pub fn is_asked_for<B>(request: &Request<B>) -> bool {
        request.uri().path() == ASK
    }

    /// Tells the process that is let in. The direct connection is over when `until` resolves, the process that asked doesn't want it any
    /// more, or the one that was to let it in says so.
    pub fn answer(self, until: impl Future<Output = ()> + Send + 'static) -> Response<Body> {
        let mut body = Box::pin(self.body);
        let mut response = standing(async move {
            tokio::select! {
                () = until => {}
                // It brings no messages: whatever comes is its end.
                _ = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)) => {}
            }
        });
        response.headers_mut().insert(OFFER, self.offer);
        response.headers_mut().insert(PROCESS, self.process);
        response
    }
}
