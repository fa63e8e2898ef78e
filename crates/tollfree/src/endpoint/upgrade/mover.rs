//! The client's end: asks, checks what is offered, moves over, and notices when it is over.

use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tollfree_driver_tokio::{
    Attachment, Config, ConnectError, ConnectErrorKind, Ends, FileId, HandshakeError, OfferedSocket, Ticket,
    Token,
};
use tollfree_layout::handshake::reason;
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use crate::endpoint::upgrade::{ANSWER, ASK, CONFIRM, FILE, OFFER, Plan, TOKEN};
use crate::endpoint::{Connection, Subchannel, chance};
use crate::metadata::GRPC;
use crate::status;

/// Asking, the handshake and confirming must be over within this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// Before the next attempt after one that failed; doubled each time up to the maximum. A new connection over TCP, which may
/// be to another server, ends a pause.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The maximum where calls fail meanwhile.
const PAUSE_MAX_REQUIRED: Duration = Duration::from_secs(5);
/// The longest header of an offer: an address with the longest path that a socket can have is shorter.
const HEADER_LEN_MAX: usize = 128;
/// A session that lasted at least this long has not failed.
const PROVEN: Duration = Duration::from_millis(50);

/// What an endpoint on TCP knows about moving over.
pub(crate) struct Mover {
    pub(crate) required: bool,
    directories: Vec<std::path::PathBuf>,
    through_proxies: bool,
    config: Config,
    /// Of the TCP connection that was made last.
    ends: watch::Sender<Option<Ends>>,
    state: Mutex<State>,
}

struct State {
    session: Option<Arc<Attachment>>,
    /// Why calls take the way that they take.
    why: String,
    /// The last attempt has failed.
    failed: bool,
}

impl Mover {
    /// `Err`: for this reason there is nothing to do.
    pub(crate) fn new(plan: &Plan, config: &Config) -> Result<Mover, &'static str> {
        match plan {
            Plan::Stay(why) => Err(why),
            Plan::Move { required, directories, through_proxies } => Ok(Mover {
                required: *required,
                directories: directories.clone(),
                through_proxies: *through_proxies,
                config: config.clone(),
                ends: watch::Sender::new(None),
                state: Mutex::new(State {
                    session: None,
                    why: "the server has not been asked yet whether it offers shared memory".into(),
                    failed: false,
                }),
            }),
        }
    }

    /// The session that new calls use. It may have ended without anybody having noticed yet.
    pub(crate) fn live(&self) -> Option<Arc<Attachment>> {
        self.state.lock().session.clone()
    }

    /// Why calls take the way that they take.
    pub(crate) fn why(&self) -> String {
        self.state.lock().why.clone()
    }

    /// Why there is no way, where TCP won't do.
    pub(crate) fn failing(&self, name: &str) -> Option<Status> {
        let state = self.state.lock();
        let fails = self.required && state.failed && state.session.is_none();
        fails.then(|| {
            Status::unavailable(format!(
                "{name}: shared memory is required, and is not to be had: {}",
                state.why
            ))
        })
    }

    /// A session turned out to be of no use for new calls.
    pub(crate) fn retire(&self, attachment: &Arc<Attachment>) {
        let mut state = self.state.lock();
        if state.session.as_ref().is_some_and(|known| Arc::ptr_eq(known, attachment)) {
            state.session = None;
            state.why = match attachment.closed() {
                Some(closed) => format!("the session has ended ({closed}); the server is asked again"),
                None => {
                    "the session takes no more calls, for its server shuts down; it is asked again".into()
                }
            };
        }
    }

    /// Where the ends of each connection are noted.
    pub(crate) fn ends(&self) -> watch::Sender<Option<Ends>> {
        self.ends.clone()
    }

    /// Notes what an attempt came to, and says it if it is news.
    fn settle(
        &self,
        name: &str,
        outcome: Result<(Arc<Attachment>, String), String>,
    ) -> Option<Arc<Attachment>> {
        let (session, why) = match outcome {
            Ok((session, socket)) => {
                let why = format!("the server on TCP offered {socket}, and is the one behind it");
                (Some(session), why)
            }
            Err(why) => (None, why),
        };
        let is_news = {
            let mut state = self.state.lock();
            let is_news = session.is_some() || !state.failed || state.why != why;
            *state = State { session: session.clone(), why: why.clone(), failed: session.is_none() };
            is_news
        };
        match &session {
            Some(session) => {
                tracing::info!(address = name, peer = ?session.peer(), "calls go over shared memory: {why}");
            }
            None if is_news => self.say_without(name, &why),
            None => {}
        }
        session
    }

    /// Says what becomes of calls while there is no session.
    fn say_without(&self, name: &str, why: &str) {
        if self.required {
            tracing::warn!(
                address = name,
                "calls fail: shared memory is required, and is not to be had: {why}"
            );
        } else {
            tracing::info!(address = name, "calls go over HTTP/2, not over shared memory: {why}");
        }
    }

    /// Waits before the next attempt.
    async fn rest(&self, pause: Duration) {
        let mut connections = self.ends.subscribe();
        let pause = pause.mul_f64(0.8 + 0.4 * chance());
        tokio::time::sleep(pause.min(PAUSE_FIRST)).await;
        let rest = tokio::time::sleep(pause.saturating_sub(PAUSE_FIRST));
        tokio::select! {
            () = rest => {}
            // Never an error: this holds the sender.
            _ = connections.changed() => {}
        }
    }

    /// One attempt to move over. `Err`: why not.
    async fn attempt(&self, endpoint: &Arc<Subchannel>) -> Result<(Arc<Attachment>, String), String> {
        let connection = endpoint.connection().await.map_err(|status| status.message().to_owned())?;
        let Connection::Http2(mut channel, _) = connection else {
            return Err("the server is not reached over TCP".into());
        };
        let name = &endpoint.name;
        let offer = Offered::read(&say(&mut channel, name, ASK, None).await?)?;
        let ends = match self.through_proxies {
            true => None,
            // Without any the server would have nothing to compare.
            false => Some((*self.ends.borrow()).ok_or("the ends of the connection are not known here")?),
        };
        let path = offer.address.strip_prefix("shm://").unwrap_or_default();
        let socket = OfferedSocket::find(&self.directories, Path::new(path), offer.file)
            .map_err(|error| format!("the server's offer is no good: {error}"))?;
        let config = Config { pool: endpoint.sharing.pool_id(), ..self.config.clone() };
        let ticket = Ticket { token: offer.token, ends };
        let met = Attachment::connect_with(&socket, &config, &ticket).await;
        let (session, answer) = met.map_err(|error| refused(error, ends))?;
        let answer = HeaderValue::try_from(answer.to_string()).map_err(|_| "not a header")?;
        let confirmed = say(&mut channel, name, CONFIRM, Some((ANSWER, answer))).await?;
        if confirmed.get(TOKEN).is_none_or(|token| token.as_bytes() != offer.token.to_string().as_bytes()) {
            return Err(format!(
                "the server at {name} does not know the answer that {} gave to its token: another server listens there",
                offer.address
            ));
        }
        Ok((Arc::new(session), offer.address))
    }
}

/// What a server offers.
struct Offered {
    address: String,
    file: FileId,
    token: Token,
}

impl Offered {
    fn read(headers: &HeaderMap) -> Result<Offered, String> {
        // Long enough for whatever there can be; it is shown to people.
        let text = |name: HeaderName| {
            let value = headers.get(name)?.to_str().ok()?;
            (value.len() <= HEADER_LEN_MAX).then_some(value)
        };
        if !headers.contains_key(OFFER) {
            return Err("the server offers no local socket".into());
        }
        let bad = |name: HeaderName| format!("the server's offer has no {name}, or one that can't be read");
        let file = text(FILE).and_then(|file| file.parse().ok()).ok_or_else(|| bad(FILE))?;
        let token = text(TOKEN).and_then(|token| token.parse().ok()).ok_or_else(|| bad(TOKEN))?;
        let address =
            text(OFFER).filter(|address| address.starts_with("shm:///")).ok_or_else(|| bad(OFFER))?;
        Ok(Offered { address: address.into(), file, token })
    }
}

/// Why a server that was offered can't be met.
fn refused(error: ConnectError, ends: Option<Ends>) -> String {
    match (&error.kind, ends) {
        (ConnectErrorKind::Handshake(HandshakeError::Refused { reason: reason::ENDS, text }), Some(ends)) => {
            format!(
                "something stands between the client and the server, a proxy, a translation of addresses, or a server that offers \
             another's socket: the connection has the ends {ends} here, and {text}"
            )
        }
        _ => format!("the server's offer is no good: {error}"),
    }
}

/// Says something to the server over TCP; its headers, where it agrees.
async fn say(
    channel: &mut tonic::transport::Channel,
    name: &str,
    path: &'static str,
    header: Option<(HeaderName, HeaderValue)>,
) -> Result<HeaderMap, String> {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = http::Method::POST;
    *request.version_mut() = http::Version::HTTP_2;
    *request.uri_mut() = Uri::from_static(path);
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    request.headers_mut().insert(CONTENT_TYPE, GRPC);
    request.headers_mut().extend(header);
    let failed = |error| status::http2(error, name).message().to_owned();
    poll_fn(|cx| channel.poll_ready(cx)).await.map_err(failed)?;
    let response = channel.call(request).await.map_err(failed)?;
    Ok(response.into_parts().0.headers)
}

/// Moves an endpoint's calls over, whenever that is possible, for as long as it is polled. Does nothing where it is not wanted.
pub(crate) async fn keep(endpoint: &Arc<Subchannel>, changed: &Notify) {
    let Some(mover) = endpoint.mover() else { return };
    let mut pause = PAUSE_FIRST;
    loop {
        let attempted = tokio::time::timeout(PATIENCE, mover.attempt(endpoint)).await;
        let outcome =
            attempted.unwrap_or_else(|_| Err(format!("moving over has taken longer than {PATIENCE:?}")));
        let session = mover.settle(&endpoint.name, outcome);
        changed.notify_waiters();
        if let Some(session) = session {
            let began = Instant::now();
            poll_fn(|cx| session.poll_over(cx)).await;
            mover.retire(&session);
            mover.say_without(&endpoint.name, &mover.why());
            changed.notify_waiters();
            if began.elapsed() >= PROVEN {
                pause = PAUSE_FIRST;
                continue;
            }
        }
        mover.rest(pause).await;
        let longest = if mover.required { PAUSE_MAX_REQUIRED } else { PAUSE_MAX };
        pause = (pause * 2).min(longest);
    }
}
