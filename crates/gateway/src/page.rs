//! What can be read of a gateway by HTTP/1.1: `/metrics` on TCP; `/healthz` and `/readyz` on TCP, for probes; for its own user, at its control socket, `/state`, `/registers`, which can
//! be changed there, `/connections`, which can be closed there, and `/takeover`, where another gateway takes this one's place.

use std::any::Any;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::task::{AbortHandle, JoinSet};
use tollfree::gateway::{BindError, SocketFile, SocketMode, bind_unix, is_master_of, own_user};
use tollfree_control::{CONNECTIONS, Change, Closing, REGISTERS, STATE, State};

use crate::descriptors;
use crate::frontend::Frontend;
use crate::reload::Reloader;
use crate::takeover::{HandOver, Sockets, TAKEOVER, Takeover};

/// Readers at once; where another comes, the oldest gives way.
const READERS: usize = 64;
/// How long one may take to ask.
const HEAD_PATIENCE: Duration = Duration::from_secs(2);
/// How long one may take for everything.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long nobody is accepted after that has failed.
const PAUSE: Duration = Duration::from_millis(50);
const TEXT: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const WORDS: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const METRICS: &str = "/metrics";
/// Whether the process is alive.
const HEALTHZ: &str = "/healthz";
/// Whether it is to be sent calls.
const READYZ: &str = "/readyz";
/// A change is a name and a value.
const CHANGE_LEN_MAX: usize = 64 << 10;

/// What is to be read.
pub(crate) enum Page {
    Metrics(Arc<TcpListener>, Arc<Frontend>),
    Probes(Arc<TcpListener>, Arc<Frontend>),
    Control(Control, Arc<Frontend>, Reloader, Arc<HandOver>),
}

/// The bound control socket.
pub(crate) struct Control {
    listener: Arc<UnixListener>,
    path: PathBuf,
    begun: Instant,
}

/// What takeovers call the page of figures: its key of the config.
pub(crate) const METRICS_KEY: &str = "metrics.address";

/// What they call the page for probes.
pub(crate) const PROBES_KEY: &str = "probes.address";

/// Binds the page of a key of the config, or takes the running gateway's.
pub(crate) async fn bind(
    key: &str,
    address: &str,
    claim: Option<&mut Takeover>,
) -> io::Result<Arc<TcpListener>> {
    let passed = claim.map(|claim| claim.tokio_tcp(key, address)).transpose()?.flatten();
    Ok(Arc::new(match passed {
        Some(listener) => listener,
        None => TcpListener::bind(address).await?,
    }))
}

/// What takeovers call the control socket.
const CONTROL: &str = "control";

impl Control {
    /// Binds it, or takes the running gateway's. Gives its file too, unless that is still the running gateway's.
    pub(crate) async fn bind(
        path: PathBuf,
        claim: Option<&mut Takeover>,
    ) -> Result<(Control, Option<SocketFile>), BindError> {
        let address = path.display().to_string();
        let io = |source| BindError::Io { address: format!("unix:{address}"), source };
        let passed = claim.map(|claim| claim.unix(CONTROL, &address)).transpose().map_err(io)?.flatten();
        let (listener, file) = match passed {
            Some(listener) => (listener, None),
            None => bind_unix(&path, SocketMode::Exact(0o600)).await?,
        };
        Ok((Control { listener: Arc::new(listener), path, begun: Instant::now() }, file))
    }

    pub(crate) fn offer(&self, sockets: &mut Sockets) {
        sockets.add_unix(CONTROL.into(), &self.path.display().to_string(), &self.listener);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The next reader whom the gateway answers, and who it is. The file's mode keeps others out; this does so where they reach it all the same.
    async fn accept(&self) -> io::Result<(UnixStream, String)> {
        let (stream, _) = self.listener.accept().await?;
        let reader = stream.peer_cred()?;
        if !is_master_of(reader.uid(), own_user()) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let who = match reader.pid() {
            Some(pid) => format!("process {pid} of user {}", reader.uid()),
            None => format!("user {}", reader.uid()),
        };
        Ok((stream, who))
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin + Any {
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + Any> Io for T {
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

/// The control socket's connection that is HTTP no more, and what has come beyond that.
pub(crate) fn unix_stream_of(upgraded: Upgraded) -> Option<(UnixStream, Bytes)> {
    let parts = upgraded.downcast::<TokioIo<Box<dyn Io>>>().ok()?;
    let stream = parts.io.into_inner().into_any().downcast::<UnixStream>().ok()?;
    Some((*stream, parts.read_buf))
}

impl Page {
    /// The next reader, and who it is as far as the kernel says.
    async fn accept(&self) -> io::Result<(Box<dyn Io>, String)> {
        match self {
            Page::Metrics(listener, _) | Page::Probes(listener, _) => {
                Ok((Box::new(listener.accept().await?.0), String::new()))
            }
            Page::Control(control, ..) => {
                let (stream, who) = control.accept().await?;
                Ok((Box::new(stream), who))
            }
        }
    }

    /// What is at a path, if anything is.
    fn content(&self, path: &str) -> Option<(HeaderValue, Bytes)> {
        match self {
            Page::Metrics(_, frontend) if path == METRICS => {
                let (backend_connections, metrics) = (&frontend.backend_connections, &frontend.metrics);
                backend_connections.forget_departed();
                Some((
                    TEXT,
                    metrics
                        .text(
                            backend_connections.spreads(),
                            &backend_connections.devices(),
                            &backend_connections.state(),
                        )
                        .into(),
                ))
            }
            // It answers: its threads run.
            Page::Probes(..) if path == HEALTHZ => Some((WORDS, "ok\n".into())),
            Page::Probes(..) if path == READYZ => Some((WORDS, "ready\n".into())),
            Page::Control(control, frontend, ..) if path == STATE => {
                let state = State {
                    pid: std::process::id(),
                    uptime_ms: control.begun.elapsed().as_millis() as u64,
                    groups: frontend.backend_connections.state(),
                    load_balancing: frontend.backend_connections.load_balancing(),
                    devices: frontend.backend_connections.devices(),
                    connections_max: descriptors::connections_max(&frontend.config.load()),
                    ..frontend.metrics.state()
                };
                Some((JSON, json(&state)))
            }
            Page::Control(_, frontend, ..) if path == CONNECTIONS => {
                Some((JSON, json(&frontend.connections.list(&frontend.backend_connections))))
            }
            Page::Control(_, frontend, ..) if path == REGISTERS => {
                Some((JSON, json(&frontend.config.load().registers())))
            }
            _ => None,
        }
    }

    fn paths(&self) -> &'static str {
        match self {
            Page::Metrics(..) => METRICS,
            Page::Probes(..) => "/healthz and /readyz",
            Page::Control(..) => "/state, /registers and /connections",
        }
    }
}

fn json(content: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(content).unwrap_or_default().into()
}

/// Those who read, the oldest first.
#[derive(Default)]
struct Readers {
    tasks: JoinSet<()>,
    /// With whether it has asked for something.
    list: VecDeque<(AbortHandle, Arc<AtomicBool>)>,
}

impl Readers {
    /// Makes room for one more: the oldest that has asked for nothing yet gives way, or else the oldest.
    fn make_room(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.list.retain(|(task, _)| !task.is_finished());
        if self.list.len() >= READERS {
            let silent = self.list.iter().position(|(_, has_asked)| !has_asked.load(Ordering::Relaxed));
            if let Some((task, _)) = self.list.remove(silent.unwrap_or(0)) {
                task.abort();
            }
        }
    }

    fn add(&mut self, (stream, who): (Box<dyn Io>, String), page: &Arc<Page>) {
        self.make_room();
        let (page, who, has_asked) = (page.clone(), Arc::<str>::from(who), Arc::<AtomicBool>::default());
        let asks = has_asked.clone();
        let service = service_fn(move |request| {
            asks.store(true, Ordering::Relaxed);
            let (page, who) = (page.clone(), who.clone());
            async move { Ok::<_, Infallible>(answer(request, &page, &who).await) }
        });
        let task = self.tasks.spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_PATIENCE)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades();
            _ = tokio::time::timeout(PATIENCE, connection).await;
        });
        self.list.push_back((task, has_asked));
    }
}

/// Serves until it is dropped.
pub(crate) async fn serve(page: Page) {
    let (page, mut readers) = (Arc::new(page), Readers::default());
    loop {
        match page.accept().await {
            Ok(reader) => readers.add(reader, &page),
            // Another user's process: the next may be the own user's.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            // As without a free descriptor.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
        // It has its turn before others that come can take its place.
        tokio::task::yield_now().await;
    }
}

async fn answer(request: Request<Incoming>, page: &Page, who: &str) -> Response<Full<Bytes>> {
    let refused = |status, words: String| {
        let mut response = Response::new(Full::new(words.into()));
        *response.status_mut() = status;
        response
    };
    if let (Page::Control(.., hand_over), TAKEOVER) = (page, request.uri().path()) {
        return hand_over.answer(request, who);
    }
    let Some((kind, mut content)) = page.content(request.uri().path()) else {
        return refused(StatusCode::NOT_FOUND, format!("there is {}, and nothing else\n", page.paths()));
    };
    match (page, request.method()) {
        (Page::Probes(_, frontend), &Method::GET | &Method::HEAD)
            if request.uri().path() == READYZ && !frontend.health.is_serving() =>
        {
            let words = "not ready: the gateway is stopping, or no backend takes calls\n".to_owned();
            return refused(StatusCode::SERVICE_UNAVAILABLE, words);
        }
        (Page::Probes(..), &Method::HEAD) | (_, &Method::GET) => {}
        (Page::Control(_, frontend, reloader, _), &Method::PUT) if request.uri().path() != STATE => {
            let is_register = request.uri().path() == REGISTERS;
            let body = Limited::new(request.into_body(), CHANGE_LEN_MAX).collect().await;
            let body = body.map(|body| body.to_bytes()).map_err(|error| error.to_string());
            let changed = body.and_then(|body| match is_register {
                true => change(reloader, &body, who),
                false => close(frontend, &body, who),
            });
            match changed {
                Ok(changed) => content = changed,
                Err(words) => return refused(StatusCode::UNPROCESSABLE_ENTITY, words),
            }
        }
        _ => {
            return refused(
                StatusCode::METHOD_NOT_ALLOWED,
                "only GET, and PUT for registers and connections\n".to_owned(),
            );
        }
    }
    let mut response = Response::new(Full::new(content));
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

/// Gives a register another value.
fn change(reloader: &Reloader, body: &[u8], who: &str) -> Result<Bytes, String> {
    let Change { name, value } =
        serde_json::from_slice(body).map_err(|error| format!("no change of a register: {error}"))?;
    reloader.set_for(&name, &value, who).map(|register| json(&register)).map_err(|error| error.to_string())
}

/// Closes a connection.
fn close(frontend: &Frontend, body: &[u8], who: &str) -> Result<Bytes, String> {
    let Closing { close } =
        serde_json::from_slice(body).map_err(|error| format!("no connection to be closed: {error}"))?;
    frontend.connections.close(&close, &frontend.backend_connections, who).map(|closed| json(&closed))
}
