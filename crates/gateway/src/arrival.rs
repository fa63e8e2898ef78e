//! Requests on their way in: how long one may take, and when it gets a place at a backend connection.
//!
//! A request whose first message has begun to come gets its place when that message is here: half a message is nothing that a backend connection
//! could begin with. One of which nothing has come but headers gets its place at once, since the server of a stream may be the first
//! to speak.
//!
//! This holds for requests that come by HTTP/2, and for requests of backends by way of the gateway, from this host or another.
//! A message that comes as an object is here with its last record: it waits beside the body, and nobody looks into it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::Body;
use tokio::time::Sleep;

use crate::backend_connections::{BackendConnections, Place, Wanted};
use crate::bodies::{Asked, Passage};
use crate::config::Limits;
use crate::deadline;
use crate::memory::Charge;
use crate::refusal::Refused;

/// Holds messages to a pace, from the moment on at which one has begun and more of it is waited for.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    period: Option<Period>,
}

#[derive(Debug)]
struct Period {
    end: Pin<Box<Sleep>>,
    bytes: u64,
}

impl Pace {
    /// More of a message has come.
    pub(crate) fn came(&mut self, bytes: u64) {
        if let Some(period) = &mut self.period {
            period.bytes += bytes;
        }
    }

    /// No message is waited for.
    pub(crate) fn rest(&mut self) {
        self.period = None;
    }

    /// Waits for more of a message; ready when it comes too slowly.
    pub(crate) fn poll_too_slow(&mut self, cx: &mut Context<'_>, limits: &Limits) -> Poll<()> {
        let grace = Duration::from_millis(limits.arrival_grace_ms);
        let least = limits.min_bytes_per_s.saturating_mul(limits.arrival_grace_ms) / 1000;
        let period =
            self.period.get_or_insert_with(|| Period { end: Box::pin(tokio::time::sleep(grace)), bytes: 0 });
        loop {
            ready!(period.end.as_mut().poll(cx));
            if period.bytes < least {
                return Poll::Ready(());
            }
            period.bytes = 0;
            period.end.as_mut().reset(tokio::time::Instant::now() + grace);
        }
    }
}

/// Finds a place for a call. `asked` makes the request's body.
///
/// # Errors
/// The request breaks a limit on its way, its time is over, or there is no place for it.
pub(crate) async fn place<B>(
    backend_connections: &Arc<BackendConnections>,
    wanted: &mut Wanted<'_>,
    (passage, limits): (&Passage, &Limits),
    asked: impl FnOnce(Charge) -> Asked<B>,
) -> Result<(Place, Asked<B>), Refused>
where
    B: Body<Data = bytes::Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
{
    // While nobody is there whose memory it would be, nothing of the body is read.
    let mut asked = asked(backend_connections.charge_before(wanted).await?);
    wanted.has_message = deadline::in_time(wanted.deadline, asked.arrive()).await?;
    if let Some(refused) = passage.refused(limits) {
        return Err(refused);
    }
    let place = backend_connections.place_in_time(wanted).await?;
    Ok((place, asked))
}
