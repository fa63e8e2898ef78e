//! The running gateway's side.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tollfree_layout::moving::MOVE;
use tonic::{Code, Status};
use tower_service::Service as _;

use super::wire::{Heard, TakeoverMessage, Wire};
use super::{PROTOCOL, VERSION};
use crate::backend_connection::BackendConnection;
use crate::backend_connections::BackendConnections;
use crate::backends::{BackendsError, SocketOrder};
use crate::conversion::control_request;

/// The new gateway answers within this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// A backend attaches anew within this time.
const MOVE_PATIENCE: Duration = Duration::from_secs(5);
/// How often the calls are looked at of a backend connection that is to be let go.
const LOOK: Duration = Duration::from_millis(5);
/// Looks in a row at which it has no call.
const IDLE_LOOKS: u32 = 20;
/// The longest answer of a backend that is asked to attach anew.
const ANSWER_LEN_MAX: usize = 4096;
/// What a backend is told whose gateway another has replaced.
const REPLACED: &str = "another gateway has taken the place of this one";
/// What a backend is told that has attached to a gateway that did not take the place in the end.
const STAYED: &str = "the gateway goes on after all";

/// A listening socket, as long as it is accepted from.
enum Listening {
    Tcp(Weak<TcpListener>),
    Unix(Weak<UnixListener>),
}

impl Listening {
    /// Another descriptor of it. `None`: it is closed.
    fn duplicate(&self) -> io::Result<Option<OwnedFd>> {
        match self {
            Listening::Tcp(listener) => {
                listener.upgrade().map(|listener| listener.as_fd().try_clone_to_owned()).transpose()
            }
            Listening::Unix(listener) => {
                listener.upgrade().map(|listener| listener.as_fd().try_clone_to_owned()).transpose()
            }
        }
    }
}

/// The listening sockets of a gateway, by their keys of the config and with the addresses that it has for them.
#[derive(Default)]
pub(crate) struct Sockets(Vec<(String, String, Listening)>);

impl Sockets {
    pub(crate) fn add_tcp(&mut self, key: String, address: &str, listener: Weak<TcpListener>) {
        self.0.push((key, address.to_owned(), Listening::Tcp(listener)));
    }

    pub(crate) fn add_unix(&mut self, key: String, address: &str, listener: &Arc<UnixListener>) {
        self.0.push((key, address.to_owned(), Listening::Unix(Arc::downgrade(listener))));
    }
}

/// Gives the gateway's place to another process that asks for it.
pub(crate) struct HandOver {
    sockets: Sockets,
    backend_connections: Arc<BackendConnections>,
    orders: mpsc::Sender<SocketOrder>,
    /// One at a time.
    turn: Arc<tokio::sync::Mutex<()>>,
    taken: watch::Sender<bool>,
    tasks: Mutex<JoinSet<()>>,
}

/// The backend connections that have attached anew, and the ones that have not.
#[derive(Default)]
struct Moves {
    moved: Mutex<Vec<Arc<BackendConnection>>>,
    unmoved: Mutex<Vec<Arc<BackendConnection>>>,
}

/// How far it has come, where it must be undone.
enum Failure {
    /// Nothing has changed.
    Before(String),
    /// Backends may find the other gateway, and these are there.
    Entered(String, Vec<Arc<BackendConnection>>),
}

impl HandOver {
    pub(crate) fn new(
        sockets: Sockets,
        backend_connections: Arc<BackendConnections>,
        orders: mpsc::Sender<SocketOrder>,
    ) -> HandOver {
        let (turn, taken) = (Arc::default(), watch::Sender::new(false));
        HandOver { sockets, backend_connections, orders, turn, taken, tasks: Mutex::default() }
    }

    /// Resolves when another gateway has taken the place.
    pub(crate) fn taken(&self) -> impl Future<Output = ()> + use<> {
        let mut taken = self.taken.subscribe();
        async move {
            if taken.wait_for(|taken| *taken).await.is_err() {
                std::future::pending().await
            }
        }
    }

    pub(crate) fn is_taken(&self) -> bool {
        *self.taken.borrow()
    }

    /// Gives nothing more.
    pub(crate) async fn end(&self) {
        if !self.is_taken() {
            let mut tasks = std::mem::take(&mut *self.tasks.lock());
            tasks.shutdown().await;
        }
    }

    /// Answers a process that asks for the place. `who` it is, as the kernel says.
    pub(crate) fn answer(self: &Arc<Self>, request: Request<Incoming>, who: &str) -> Response<Full<Bytes>> {
        let asked = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
        let mut response = Response::new(Full::default());
        response.headers_mut().insert(header::UPGRADE, HeaderValue::from_static(PROTOCOL));
        let mut refuse = |status, words: String| {
            tracing::warn!(who, words, "a takeover is refused");
            *response.status_mut() = status;
            *response.body_mut() = Full::new(words.into());
        };
        match (asked, self.turn.clone().try_lock_owned()) {
            (Some(PROTOCOL), Ok(turn)) if !self.is_taken() => {
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
                let (own, who, upgraded) = (self.clone(), who.to_owned(), hyper::upgrade::on(request));
                let mut tasks = self.tasks.lock();
                while tasks.try_join_next().is_some() {}
                tasks.spawn(async move {
                    let _turn = turn;
                    let stream = upgraded.await.ok().and_then(crate::page::unix_stream_of);
                    if let Some((stream, heard)) = stream {
                        own.hand_over(Wire::new(stream, heard.into()), &who).await;
                    }
                });
            }
            (Some(PROTOCOL), _) => {
                refuse(StatusCode::CONFLICT, "another process is taking the place of this gateway".into());
            }
            (asked, _) => refuse(
                StatusCode::UPGRADE_REQUIRED,
                format!(
                    "this gateway, version {VERSION}, hands over by {PROTOCOL}, and {} was asked for: stop it, and start the other then",
                    asked.unwrap_or("nothing")
                ),
            ),
        }
        response
    }

    async fn hand_over(&self, mut wire: Wire, who: &str) {
        tracing::info!(who, "it is about to take the place of this gateway");
        let (words, moved) = match self.steps(&mut wire).await {
            Ok(unmoved) => {
                tracing::info!(who, "it has taken the place of this gateway");
                for backend_connection in unmoved {
                    tokio::spawn(let_go(backend_connection, REPLACED));
                }
                self.taken.send_replace(true);
                return;
            }
            Err(Failure::Before(words)) => (words, None),
            Err(Failure::Entered(words, moved)) => (words, Some(moved)),
        };
        // Before anything else: it must not serve.
        _ = wire.say(&TakeoverMessage::Refused { words: words.clone() }, None).await;
        drop(wire);
        let Some(moved) = moved else {
            return tracing::warn!(who, reason = words, "a takeover has failed; this gateway goes on");
        };
        match self.resume().await {
            Ok(()) => tracing::warn!(who, reason = words, "a takeover has failed; this gateway goes on"),
            Err(error) => tracing::error!(
                who,
                reason = words,
                %error,
                "a takeover has failed, and backends can't attach here any more: restart the gateway"
            ),
        }
        for backend_connection in moved {
            tokio::spawn(let_go(backend_connection, STAYED));
        }
    }

    /// Gives the backend connections that have not moved.
    async fn steps(&self, wire: &mut Wire) -> Result<Vec<Arc<BackendConnection>>, Failure> {
        let before = Failure::Before;
        expect(wire, |message| matches!(message, TakeoverMessage::Begin { .. })).await.map_err(before)?;
        for (key, address, socket) in &self.sockets.0 {
            let socket = socket.duplicate().map_err(|error| before(format!("{key}: {error}")))?;
            let Some(socket) = socket else { continue };
            let message = TakeoverMessage::Socket { key: key.clone(), address: address.clone() };
            say(wire, &message, Some(&socket)).await.map_err(before)?;
        }
        say(wire, &TakeoverMessage::Offered { version: VERSION.into() }, None).await.map_err(before)?;
        expect(wire, |message| *message == TakeoverMessage::Ready).await.map_err(before)?;
        let entered = |words| Failure::Entered(words, Vec::new());
        self.order(SocketOrder::Yield).await.map_err(entered)?;
        say(wire, &TakeoverMessage::Enter, None).await.map_err(entered)?;
        expect(wire, |message| *message == TakeoverMessage::Entered).await.map_err(entered)?;
        let moves = Moves::default();
        // Where the other one is gone meanwhile, nobody waits for backends that look for it.
        let gone = tokio::select! {
            () = self.move_backends(&moves) => None,
            said = wire.hear(PATIENCE) => Some(match said {
                Ok(Heard::Gone) => "it has ended in the middle".to_owned(),
                Ok(Heard::Message(other)) => format!("it says {other:?} at the wrong time"),
                Err(words) => words,
            }),
        };
        let Moves { moved, unmoved } = moves;
        let (moved, unmoved) = (moved.into_inner(), unmoved.into_inner());
        let entered = |words| Failure::Entered(words, moved.clone());
        if let Some(words) = gone {
            return Err(entered(words));
        }
        say(wire, &TakeoverMessage::Moved, None).await.map_err(entered)?;
        expect(wire, |message| *message == TakeoverMessage::Serving).await.map_err(entered)?;
        // It serves from here on, whatever becomes of this.
        _ = wire.say(&TakeoverMessage::Left, None).await;
        Ok(unmoved)
    }

    /// Has backends attach to the new gateway.
    async fn move_backends(&self, moves_so_far: &Moves) {
        let mut moves = JoinSet::new();
        for backend_connection in self.backend_connections.all() {
            moves.spawn(async move {
                let moved = move_on(&backend_connection).await;
                if let Err(reason) = &moved {
                    let name = backend_connection.attached().name();
                    tracing::warn!(
                        backend_connection = name,
                        reason,
                        "it attaches anew only when it is let go"
                    );
                }
                (backend_connection, moved.is_ok())
            });
        }
        while let Some(ended) = moves.join_next().await {
            let Ok((backend_connection, is_moved)) = ended else { continue };
            let of_its_kind = if is_moved { &moves_so_far.moved } else { &moves_so_far.unmoved };
            of_its_kind.lock().push(backend_connection);
        }
    }

    async fn order(
        &self,
        order: impl FnOnce(oneshot::Sender<Result<(), BackendsError>>) -> SocketOrder,
    ) -> Result<(), String> {
        let (done, answer) = oneshot::channel();
        let ending = || "this gateway is about to end".to_owned();
        self.orders.send(order(done)).await.map_err(|_| ending())?;
        answer.await.map_err(|_| ending())?.map_err(|error| error.to_string())
    }

    /// Has backends find this gateway again.
    async fn resume(&self) -> Result<(), String> {
        self.order(SocketOrder::Resume).await
    }
}

async fn say(wire: &Wire, message: &TakeoverMessage, socket: Option<&OwnedFd>) -> Result<(), String> {
    let said = wire.say(message, socket.map(AsFd::as_fd)).await;
    said.map_err(|error| format!("it is not there any more: {error}"))
}

async fn expect(wire: &mut Wire, is_expected: impl FnOnce(&TakeoverMessage) -> bool) -> Result<(), String> {
    match wire.hear(PATIENCE).await? {
        Heard::Message(message) if is_expected(&message) => Ok(()),
        Heard::Message(TakeoverMessage::Refused { words }) => Err(words),
        Heard::Message(other) => Err(format!("it says {other:?} at the wrong time")),
        Heard::Gone => Err("it has ended in the middle".into()),
    }
}

/// Asks a process to attach anew.
///
/// # Errors
/// Why it has not.
async fn move_on(backend_connection: &BackendConnection) -> Result<(), String> {
    let mut channel = backend_connection.attached().channel();
    let asked = async {
        let response = channel.call(control_request(MOVE, [])).await.map_err(|status| status.to_string())?;
        let (parts, body) = response.into_parts();
        let status = Status::from_header_map(&parts.headers);
        let body = Limited::new(body, ANSWER_LEN_MAX).collect().await.map_err(|error| error.to_string())?;
        let status = status.or_else(|| body.trailers().and_then(Status::from_header_map));
        match status {
            Some(status) if status.code() == Code::Ok => Ok(()),
            Some(status) => Err(status.to_string()),
            None => Err("its answer has no status".into()),
        }
    };
    let asked = tokio::time::timeout(MOVE_PATIENCE, asked).await;
    asked.unwrap_or_else(|_| Err(format!("it has not attached anew within {MOVE_PATIENCE:?}")))
}

/// Ends a backend connection once it has had no call for a while.
async fn let_go(backend_connection: Arc<BackendConnection>, reason: &'static str) {
    let attached = backend_connection.attached();
    let mut idle = 0;
    while attached.is_open() && idle < IDLE_LOOKS {
        tokio::time::sleep(LOOK).await;
        idle = if attached.live_count() == 0 { idle + 1 } else { 0 };
    }
    attached.close(reason);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_socket_is_not_offered() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = Arc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
            let listening = Listening::Tcp(Arc::downgrade(&listener));
            assert!(listening.duplicate().unwrap().is_some());
            drop(listener);
            assert!(listening.duplicate().unwrap().is_none());
        });
    }
}
