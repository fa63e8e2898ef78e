//! How the calls of a channel go: its endpoints, and what was said about its calls.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tollfree_driver_tokio::Attachment;
use tonic::{Code, Status};

use crate::call::retry::Throttle;
use crate::endpoint::balance::{Balancer, Picked};
use crate::endpoint::{CallGuard, Connection, Subchannel};
use crate::message::payloads::Sharing;
use crate::metrics::{Metrics, Outcome};
use tollfree_balancer::ServiceConfig;

/// A call with this in its request's extensions waits for a server instead of failing where none can be reached
/// (gRPC's wait-for-ready), or, with `false`, doesn't where the channel would. It waits until its deadline.
///
/// # Example
/// ```
/// let mut request = tonic::Request::new(());
/// request.extensions_mut().insert(tollfree::WaitForReady(true));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitForReady(pub bool);

/// What all clones of a channel share.
pub(crate) struct Routing {
    /// The only endpoint, where it is a session and nothing has to be decided for a call.
    pub(crate) plain: Option<Arc<Subchannel>>,
    pub(crate) balancer: Balancer,
    pub(crate) sharing: Arc<Sharing>,
    /// Set where endpoints come and go while the channel is used.
    pub(crate) changes: OnceLock<Changes>,
    pub(crate) config: ServiceConfig,
    pub(crate) throttle: Option<Arc<Throttle>>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) waits: bool,
    /// Answers of direct calls show what HTTP/2 would have carried with the metadata.
    pub(crate) http_details: bool,
    /// Where its calls are counted, and what they are said to go to.
    pub(crate) metrics: Option<(Metrics, Arc<str>)>,
}

/// The task that changes a channel's endpoints. It ends with the channel, and with it the sender is told.
#[derive(Debug)]
pub(crate) struct Changes(pub(crate) tokio::task::AbortHandle);

impl Drop for Changes {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Routing {
    /// Counts a call that begins, where that is wanted.
    #[inline]
    pub(crate) fn begin(&self, path: &str) -> Option<Outcome> {
        self.metrics.as_ref().map(|(metrics, target)| Outcome(metrics.make(path, target)))
    }

    /// The connection for a call's first attempt, where one is there. It may have ended without anybody having noticed yet.
    #[inline]
    pub(crate) fn pick_now(&self) -> Option<(Cow<'_, Arc<Subchannel>>, Connection)> {
        match &self.plain {
            Some(endpoint) => {
                let attachment = endpoint.live()?;
                Some((Cow::Borrowed(endpoint), Connection::Session(attachment)))
            }
            None => {
                let (endpoint, connection) = self.balancer.pick_now()?;
                Some((Cow::Owned(endpoint), connection))
            }
        }
    }

    /// The sessions that its calls use now.
    pub(crate) fn sessions(&self) -> Vec<Arc<Attachment>> {
        self.balancer.endpoints().iter().filter_map(|member| member.endpoint().live()).collect()
    }

    /// A call has succeeded at its first attempt.
    #[inline]
    pub(crate) fn succeeded(&self, guard: &mut Option<CallGuard>) {
        if let Some(guard) = guard {
            guard.tell(Code::Ok);
        }
        if let Some(throttle) = &self.throttle {
            throttle.succeeded();
        }
    }

    /// The connection for a call's next attempt, not one to `avoid` if there is another.
    ///
    /// # Errors
    /// The status that says why there is none.
    pub(crate) async fn pick(&self, waits: bool, avoid: Option<&Arc<Subchannel>>) -> Result<Picked, Status> {
        match &self.plain {
            Some(endpoint) => {
                let connection = endpoint.acquire(waits).await?;
                Ok(Picked { endpoint: endpoint.clone(), connection })
            }
            None => self.balancer.pick(waits, avoid).await,
        }
    }
}
