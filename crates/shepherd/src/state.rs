//! What a shepherd does at this moment, for `tollfree top` and other programs.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use crate::config::Policy;

/// How long a shepherd may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than a thousand methods and ten thousand workers need.
const ANSWER_LEN_MAX: usize = 64 << 20;

/// What a shepherd counts. All counts are since its start; two states make a rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct State {
    /// Its process.
    pub pid: u32,
    /// Milliseconds since its start.
    pub uptime_ms: u64,
    /// Connections from the world at this moment.
    pub connections: i64,
    /// Upper bounds of [`MethodState::latency_counts`], in seconds.
    pub latency_bounds_s: Vec<f64>,
    /// Who is attached, by group.
    pub groups: BTreeMap<String, Vec<WorkerState>>,
    /// How calls are spread among them, by group.
    pub steering: BTreeMap<String, SteeringState>,
    /// Calls from the world by method, in the order of their names. Methods that nobody has served are `other`.
    pub methods: Vec<MethodState>,
    /// What was refused or ended, by reason.
    pub refusals: BTreeMap<String, u64>,
}

/// A worker that is attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkerState {
    /// Its process, as the kernel says.
    pub pid: i32,
    /// That process' user.
    pub uid: u32,
    /// Which of the process' workers, from 0 on.
    pub worker: u32,
    /// What it serves.
    pub services: Vec<String>,
    /// Calls that it has and hasn't answered.
    pub outstanding: u32,
    /// Calls that it was given.
    pub calls: u64,
    /// Milliseconds since it attached.
    pub attached_ms: u64,
}

/// How the calls of a group are spread among its workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SteeringState {
    /// By what a worker is chosen.
    pub policy: Policy,
    /// Calls that wait for a worker with room.
    pub waiting: u32,
    /// The most calls under way at a worker, less the mean.
    pub imbalance: f64,
}

/// Calls of one method.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MethodState {
    /// As `acme.v1.Orders/Get`.
    pub method: String,
    /// Calls that have begun.
    pub started: u64,
    /// Calls that have ended, by the name of their status.
    pub ended: BTreeMap<String, u64>,
    /// How many calls took how long: up to each of [`State::latency_bounds_s`], and beyond.
    pub latency_counts: Vec<u64>,
}

/// Why a shepherd's state can't be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The address isn't one of a shepherd that can be asked.
    #[error(
        "\"{0}\" is no address of a shepherd that can be asked: write shm:///path, as business.socket has it"
    )]
    Address(String),
    /// Nobody answers there.
    #[error("no shepherd answers at {path}: {source}; is it running, and are you its user?", path = .path.display())]
    Absent {
        /// The control socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What answers is no shepherd, or one of another version.
    #[error("what answers at {path} is no shepherd of this version: {problem}", path = .path.display())]
    Answer {
        /// The control socket.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

/// Where a shepherd whose business processes attach at `socket` can be asked.
pub(crate) fn control_path(socket: &str) -> Option<PathBuf> {
    let path = socket.strip_prefix("shm://").filter(|path| path.starts_with('/'))?;
    Some(PathBuf::from(format!("{path}.control")))
}

impl State {
    /// Asks the shepherd at whose `socket`, as `shm:///run/tollfree/shepherd.sock`, business processes attach. Needs a tokio runtime
    /// with IO and time. Only the shepherd's own user, and root, get an answer.
    ///
    /// # Errors
    /// [`StateError`], after at most 10 s.
    pub async fn read(socket: &str) -> Result<State, StateError> {
        let path = control_path(socket).ok_or_else(|| StateError::Address(socket.to_owned()))?;
        let late = || io::Error::from(io::ErrorKind::TimedOut);
        let read = tokio::time::timeout(PATIENCE, ask(&path)).await;
        read.unwrap_or_else(|_| Err(StateError::Absent { path, source: late() }))
    }
}

async fn ask(path: &Path) -> Result<State, StateError> {
    let absent = |source| StateError::Absent { path: path.to_owned(), source };
    let stream = UnixStream::connect(path).await.map_err(absent)?;
    let body = exchange(stream).await;
    body.map_err(|problem| StateError::Answer { path: path.to_owned(), problem })
}

async fn exchange(stream: UnixStream) -> Result<State, String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| words(&error))?;
    let asked = async {
        let request = Request::get("/state").header("host", "shepherd").body(Empty::<Bytes>::new());
        let request = request.map_err(|error| words(&error))?;
        let response = sender.send_request(request).await.map_err(|error| words(&error))?;
        if response.status() != StatusCode::OK {
            return Err(format!("it says {}", response.status()));
        }
        let body = Limited::new(response.into_body(), ANSWER_LEN_MAX).collect().await;
        let body = body.map_err(|error| words(&error))?.to_bytes();
        serde_json::from_slice(&body).map_err(|error| words(&error))
    };
    tokio::pin!(asked);
    tokio::pin!(connection);
    tokio::select! {
        state = &mut asked => state,
        ended = &mut connection => match ended {
            Ok(()) => asked.await,
            Err(error) => Err(words(&error)),
        },
    }
}
