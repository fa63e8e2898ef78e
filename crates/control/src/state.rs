//! What a gateway does at this moment, for `tollfree top` and other programs.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ask::{self, CONNECTIONS, STATE};
use crate::{Device, Policy};

/// What a gateway counts. All counts are since its start; two states make a rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Its process.
    pub pid: u32,
    /// Milliseconds since its start.
    pub uptime_ms: u64,
    /// Connections from the world at this moment.
    pub connections: i64,
    /// How many there may be.
    pub connections_max: u32,
    /// Upper bounds of [`MethodState::latency_counts`], in seconds.
    pub latency_bounds_s: Vec<f64>,
    /// Who is attached, by group.
    pub groups: BTreeMap<String, Vec<BackendConnectionState>>,
    /// How calls are spread among them, by group.
    pub load_balancing: BTreeMap<String, LoadBalancingState>,
    /// What became of messages whose handlers take objects, by group.
    pub objects: BTreeMap<String, ObjectState>,
    /// How calls are announced to them, by group.
    pub devices: BTreeMap<String, DeviceState>,
    /// Calls from the world by method, in the order of their names. Methods that nobody has served are `other`.
    pub methods: Vec<MethodState>,
    /// What was refused or ended, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// Upper bounds of [`StageState::counts`], in seconds.
    pub stage_bounds_s: Vec<f64>,
    /// How long calls took from stage to stage, in the order of the stages.
    pub stages: Vec<StageState>,
    /// What went wrong last, the latest first: 32 at most.
    pub errors: Vec<ErrorState>,
}

/// How long calls took up to a stage from the one before, of one call in sixteen: `checked` (headers looked at), `placed` (a backend connection
/// found, and waited for), `handed` (to the session), `answered` (the backend connection's answer began), `written` (all of it given to
/// HTTP/2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StageState {
    /// Its name.
    pub stage: String,
    /// How many took how long: up to each of [`State::stage_bounds_s`], and beyond.
    pub counts: Vec<u64>,
    /// All together.
    pub sum_s: f64,
}

/// Something that went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorState {
    /// Milliseconds since then.
    pub ago_ms: u64,
    /// Why, as in [`State::refusals`]; `backend_connection` where a call came to no answer of its backend connection's.
    pub reason: String,
    /// Of which method; empty where it was no call.
    pub method: String,
    /// What the client was told, where it was told something.
    pub words: String,
}

/// A connection from the world, or a session with a backend connection of a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionState {
    /// By which it is closed.
    pub id: String,
    /// `world`, `world, TLS` or `backend_connection`.
    pub kind: String,
    /// The listener, or the group.
    pub place: String,
    /// Who is at the other end.
    pub peer: String,
    /// Milliseconds since it was opened.
    pub open_ms: u64,
    /// Calls under way.
    pub calls: u32,
    /// Calls that there were, those under way included.
    pub calls_total: u64,
    /// Bytes that came, HTTP/2's own included; of connections from the world.
    pub received_bytes: Option<u64>,
    /// Bytes that went; of connections from the world.
    pub sent_bytes: Option<u64>,
    /// It takes no further call.
    pub is_closing: bool,
}

/// A backend connection that is attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendConnectionState {
    /// By which it can be closed, as in [`ConnectionState::id`].
    #[serde(default)]
    pub id: String,
    /// Where it is and whose its certificate is, if it is of another host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// Its process, as the kernel says; 0 for one of another host.
    pub pid: i32,
    /// That process' user.
    pub uid: u32,
    /// Which of the process' backend connections, from 0 on.
    pub backend_connection: u32,
    /// What it serves.
    pub services: Vec<String>,
    /// Calls that it has and hasn't answered.
    pub outstanding: u32,
    /// Calls that it was given.
    pub calls: u64,
    /// It gets no new calls: it hangs, is ejected or is leaving.
    #[serde(default)]
    pub gets_no_calls: bool,
    /// Milliseconds since it attached.
    pub attached_ms: u64,
}

/// How the calls of a group are spread among its backend connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadBalancingState {
    /// By what a backend connection is chosen.
    pub policy: Policy,
    /// Calls that wait for a backend connection with room.
    pub waiting: u32,
    /// The most calls under way at a backend connection, less the mean.
    pub imbalance: f64,
}

/// What became of a group's messages whose handlers take objects: `object`, or why not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectState {
    /// Messages to handlers.
    pub requests: BTreeMap<String, u64>,
    /// Their messages.
    pub answers: BTreeMap<String, u64>,
}

/// How the calls of a group are announced to its backend connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceState {
    /// As the registers have it.
    pub registers: Device,
    /// Times that something was published for those who are attached.
    pub publications: u64,
    /// What was published then: requests, parts of them, and the like.
    pub sends: u64,
    /// Times that one of them was rung for that, since it slept.
    pub rings: u64,
}

/// Calls of one method.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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

/// Why a gateway's state can't be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The address isn't one of a gateway that can be asked.
    #[error(
        "\"{0}\" is no address of a gateway that can be asked: write shm:///path, as backends.socket has it"
    )]
    Address(String),
    /// Nobody answers there.
    #[error("no gateway answers at {path}: {source}; is it running, and are you its user?", path = .path.display())]
    Absent {
        /// The control socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The gateway does not do what it was asked for; all stays as it was.
    #[error("{0}")]
    Refused(String),
    /// What answers is no gateway, or one of another version.
    #[error("what answers at {path} is no gateway of this version: {problem}", path = .path.display())]
    Answer {
        /// The control socket.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl State {
    /// Asks the gateway at whose `socket`, as `shm:///run/tollfree/gateway.sock`, backends attach. Needs a tokio runtime
    /// with IO and time. Only the gateway's own user, and root, get an answer.
    ///
    /// # Errors
    /// [`StateError`], after at most 10 s.
    pub async fn read(socket: &str) -> Result<State, StateError> {
        ask::get(socket, STATE).await
    }
}

impl ConnectionState {
    /// All connections of a gateway: from the world in the order in which they came, then to backend connections. As [`State::read`].
    ///
    /// # Errors
    /// [`StateError`], after at most 10 s.
    pub async fn read_all(socket: &str) -> Result<Vec<ConnectionState>, StateError> {
        ask::get(socket, CONNECTIONS).await
    }

    /// Closes one by its [`id`](ConnectionState::id). One from the world takes no further call, and ends when those under way are
    /// answered, or after `limits.drain_ms`. A session with a backend connection ends at once, calls under way UNAVAILABLE; its process attaches again.
    ///
    /// # Errors
    /// [`StateError::Refused`] where there is none of that name.
    pub async fn close(socket: &str, id: &str) -> Result<ConnectionState, StateError> {
        ask::close(socket, id).await
    }
}
