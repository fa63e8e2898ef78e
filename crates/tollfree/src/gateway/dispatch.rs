//! A call on its way to a backend connection that may turn it away, for it is about to leave.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use tollfree_balancer::Record;
use tollfree_driver_tokio::now_ns;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::call::afterwards::{Afterwards, CountedAttempt};
use crate::call::attempts::{Call, Failed, deadline_ns};
use crate::call::retry::{Pushback, Retries, pushback};
use crate::gateway::{Attached, CallRules};
use crate::http::call::{Replayed, RequestChange, status_alone};
use crate::http::replay::KEPT_LEN_MAX;
use crate::message::converter::Converter;
use crate::message::holdings::Holdings;
use crate::message::out_of_band::{OfClient, OfServer};
use crate::metadata::timeout;

/// A call that a gateway hands to a backend connection, and to another if that one has not looked at it.
///
/// A backend connection that is shut down, or has died, turns away calls that were on their way to it. Up to 256 KiB of the request are kept until an
/// answer begins, so that such a call can be failed over.
pub struct Dispatch {
    call: Replayed,
    holdings: Option<Arc<dyn Holdings>>,
    /// It came by a session, so its answer stays on this host, and may pass beside its body.
    is_relayed: bool,
    deadline_ns: Option<u64>,
    rules: Option<Arc<CallRules>>,
    retries: Retries,
    /// Where it is counted how its next attempt ends.
    record: Option<Arc<Record>>,
}

impl std::fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatch").finish_non_exhaustive()
    }
}

/// A backend connection has not answered a call.
#[derive(Debug)]
pub struct Unanswered {
    /// What the call ends with, unless it is handed to another.
    pub status: Status,
    /// The backend connection has not looked at the call and takes none any more, or nothing of the call was sent and it was withdrawn; and all of
    /// the request is still here.
    pub may_fail_over: bool,
    /// The call is to be made again after this time, as its [rules](Dispatch::rules) say; all of the request is still here.
    pub again_after: Option<Duration>,
}

impl Dispatch {
    /// How much of a request is kept, in bytes, until an answer begins.
    pub const KEPT_LEN_MAX: usize = KEPT_LEN_MAX;

    /// A call from outside. Its `grpc-timeout` counts from here.
    pub fn new(request: Request<Body>) -> Dispatch {
        let (mut parts, body) = request.into_parts();
        // A gateway has refused what is no timeout.
        let deadline_ns = timeout(&parts.headers).unwrap_or_default().map(deadline_ns);
        // Of a call that came by a session.
        let came = parts.extensions.remove().and_then(|OfServer(came)| came.onward());
        let is_relayed = came.is_some();
        if let Some(onward) = came {
            parts.extensions.insert(OfClient(onward));
        }
        let call = Replayed::new(parts.uri, parts.headers, parts.extensions, body, deadline_ns);
        Dispatch {
            call,
            holdings: None,
            is_relayed,
            deadline_ns,
            rules: None,
            retries: Retries::default(),
            record: None,
        }
    }

    /// The call is made again where these rules say so. Its timeout is the gateway's matter.
    pub fn rules(&mut self, rules: Option<Arc<CallRules>>) {
        self.rules = rules;
    }

    /// How the next attempt ends is counted there, unless the attempt says nothing of its backend connection.
    pub fn count_in(&mut self, record: Option<Arc<Record>>) {
        self.record = record;
    }

    /// An attempt has failed. When it is time for another, if one is to be made.
    fn again(&mut self, code: Code, pushback: Pushback) -> Option<Duration> {
        let rules = self.rules.as_ref()?;
        let pause = rules.failed(self.call.path(), &mut self.retries, code, pushback)?;
        let pause_ns = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
        let is_late = self.deadline_ns.is_some_and(|end_ns| now_ns().saturating_add(pause_ns) >= end_ns);
        (self.call.is_whole() && !is_late).then_some(pause)
    }

    /// What is done when the call has ended that now has an answer.
    fn afterwards(&self, counted: Option<CountedAttempt>) -> Option<Afterwards> {
        let throttle = self.rules.as_ref().and_then(|rules| rules.throttle().cloned());
        if throttle.is_none() && counted.is_none() {
            return None;
        }
        let codes = self.rules.as_ref().map_or(&[][..], |rules| rules.codes(self.call.path()));
        Some(Afterwards::of_gateway(throttle, codes.to_vec(), counted))
    }

    /// As `/acme.v1.Orders/Get`.
    pub fn path(&self) -> &str {
        self.call.path()
    }

    /// The request's headers, as they came.
    pub fn headers(&self) -> &HeaderMap {
        self.call.headers()
    }

    /// Whether it came by a [`ViaSession`](crate::gateway::ViaSession), and its flat messages may pass as they are.
    pub fn is_relayed(&self) -> bool {
        self.is_relayed
    }

    /// Counts what is held of objects of the answer that are longer than a frame, or long to verify. A call for whose answer there is no
    /// room ends RESOURCE_EXHAUSTED. To be said before the converter.
    #[must_use]
    pub fn count_holdings(self, holdings: Arc<dyn Holdings>) -> Dispatch {
        Dispatch { holdings: Some(holdings), ..self }
    }

    /// Has messages changed for the backend connection that the call is handed to next. `None`: they go as they are.
    pub fn convert(&mut self, converter: Option<Arc<dyn Converter>>) {
        self.call.convert(converter, self.holdings.clone());
    }

    /// Has the request changed for the backend connection that the call is handed to next. `None`: it goes as it is.
    pub fn change_request(&mut self, change: Option<Arc<RequestChange>>) {
        self.call.change(change);
    }
}

impl Attached {
    /// Has this backend connection answer a call. Dropping the future, or the body that it gives, cancels the call.
    ///
    /// # Errors
    /// [`Unanswered`] says whether another backend connection may have the call.
    pub async fn hand(&self, dispatch: &mut Dispatch) -> Result<Response<Body>, Unanswered> {
        self.hand_unless(dispatch, std::future::pending()).await
    }

    /// The same for a call that is withdrawn when `withdrawn` resolves while nothing of it was sent: it waits for room, or for another call to
    /// end. A call of which something was sent is not withdrawn.
    ///
    /// # Errors
    /// As [`hand`](Attached::hand).
    pub async fn hand_unless(
        &self,
        dispatch: &mut Dispatch,
        withdrawn: impl Future<Output = ()> + Send,
    ) -> Result<Response<Body>, Unanswered> {
        let mut is_withdrawn = false;
        let withdrawn = async {
            withdrawn.await;
            is_withdrawn = true;
        };
        let deadline_ns = dispatch.deadline_ns;
        let mut counted = dispatch.record.take().map(|record| CountedAttempt::new(record, deadline_ns));
        let failed = dispatch.retries.failed();
        match dispatch.call.attempt_unless(&self.endpoint, &self.attachment, failed, withdrawn).await {
            Ok(mut response) => {
                let alone = status_alone(&response);
                if let (Some(code), Some(counted)) = (alone, &mut counted) {
                    counted.tell(code);
                }
                if let Some(code) = alone.filter(|code| *code != Code::Ok) {
                    let pushback = pushback(response.headers());
                    if let Some(pause) = dispatch.again(code, pushback) {
                        let status = Status::from_header_map(response.headers());
                        let status = status.unwrap_or_else(|| Status::new(code, ""));
                        return Err(Unanswered { status, may_fail_over: false, again_after: Some(pause) });
                    }
                }
                dispatch.call.commit();
                if let (Some(Code::Ok), Some(rules)) = (alone, &dispatch.rules) {
                    rules.succeeded();
                }
                if alone.is_none() {
                    let afterwards = dispatch.afterwards(counted);
                    afterwards.into_iter().for_each(|afterwards| response.body_mut().afterwards(afterwards));
                }
                Ok(response.map(Body::new))
            }
            Err(Failed { status, unseen }) => {
                let may_fail_over = unseen && (is_withdrawn || !self.is_open()) && dispatch.call.is_whole();
                if let Some(counted) = &mut counted {
                    // No server has looked at it, or what failed is in the call.
                    if unseen { counted.forget() } else { counted.tell(status.code()) }
                }
                let again_after = match may_fail_over {
                    true => None,
                    false => {
                        let pushback = pushback(status.metadata().as_ref());
                        dispatch.again(status.code(), pushback)
                    }
                };
                Err(Unanswered { status, may_fail_over, again_after })
            }
        }
    }
}
