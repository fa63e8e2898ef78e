//! What can be read of a shepherd by HTTP/1.1: `/metrics` on TCP, `/state` for its own user at its control socket.

use std::convert::Infallible;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tollfree::PeerPolicy;

use crate::gateway::Gateway;
use crate::listeners::bind_unix;
use crate::state::State;

/// Readers at once; further ones wait.
const READERS: usize = 16;
/// How long one may take for everything.
const PATIENCE: Duration = Duration::from_secs(10);
const TEXT: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// What is to be read.
pub(crate) enum Page {
    Metrics(TcpListener, Arc<Gateway>),
    State(Control, Arc<Gateway>),
}

/// The bound control socket.
pub(crate) struct Control {
    listener: UnixListener,
    path: PathBuf,
    begun: Instant,
}

impl Control {
    pub(crate) async fn bind(path: PathBuf) -> io::Result<Control> {
        let listener = bind_unix(&path).await?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        Ok(Control { listener, path, begun: Instant::now() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The next reader whom the shepherd answers. The file's mode keeps others out once it is set; this keeps them out before.
    async fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.listener.accept().await?;
        let user = stream.peer_cred()?.uid();
        match user == 0 || PeerPolicy::SameUser.allows(user) {
            true => Ok(stream),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.path);
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Page {
    async fn accept(&self) -> io::Result<Box<dyn Io>> {
        match self {
            Page::Metrics(listener, _) => Ok(Box::new(listener.accept().await?.0)),
            Page::State(control, _) => Ok(Box::new(control.accept().await?)),
        }
    }

    fn path(&self) -> &'static str {
        match self {
            Page::Metrics(..) => "/metrics",
            Page::State(..) => "/state",
        }
    }

    fn content(&self) -> (HeaderValue, Bytes) {
        match self {
            Page::Metrics(_, gateway) => (TEXT, gateway.metrics.text(gateway.workers.spreads()).into()),
            Page::State(control, gateway) => {
                let state = State {
                    pid: std::process::id(),
                    uptime_ms: control.begun.elapsed().as_millis() as u64,
                    groups: gateway.workers.state(),
                    steering: gateway.workers.steering(),
                    ..gateway.metrics.state()
                };
                (JSON, serde_json::to_vec(&state).unwrap_or_default().into())
            }
        }
    }
}

/// Serves until it is dropped.
pub(crate) async fn serve(page: Page) {
    let page = Arc::new(page);
    let readers = Arc::new(Semaphore::new(READERS));
    let mut connections = JoinSet::new();
    loop {
        // The semaphore is never closed.
        let Ok(permit) = readers.clone().acquire_owned().await else { return };
        let stream = tokio::select! {
            accepted = page.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok(stream) = stream else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let page = page.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let answer = answer(&request, &page);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), service);
            _ = tokio::time::timeout(PATIENCE, connection).await;
            drop(permit);
        });
    }
}

fn answer(request: &Request<Incoming>, page: &Page) -> Response<Full<Bytes>> {
    let refused = |status, words: String| {
        let mut response = Response::new(Full::new(words.into()));
        *response.status_mut() = status;
        response
    };
    if request.uri().path() != page.path() {
        return refused(StatusCode::NOT_FOUND, format!("there is {}, and nothing else\n", page.path()));
    }
    if request.method() != Method::GET {
        return refused(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
    }
    let (kind, content) = page.content();
    let mut response = Response::new(Full::new(content));
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}
