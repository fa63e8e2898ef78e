//! What a shepherd does at this moment, for `tollfree top` and other programs.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::{Device, Policy};
use crate::ctl;

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
    /// How calls are announced to them, by group.
    pub devices: BTreeMap<String, DeviceState>,
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

/// How the calls of a group are announced to its workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DeviceState {
    /// As the registers have it.
    pub registers: Device,
    /// Times that something was published for those who are attached.
    pub publications: u64,
    /// What was published then: requests, parts of them, and the like.
    pub emissions: u64,
    /// Times that one of them was rung for that, since it slept.
    pub rings: u64,
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

/// Why a shepherd's state can't be read or changed.
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
    /// The shepherd does not do what it was asked for; all stays as it was.
    #[error("{0}")]
    Refused(String),
    /// What answers is no shepherd, or one of another version.
    #[error("what answers at {path} is no shepherd of this version: {problem}", path = .path.display())]
    Answer {
        /// The control socket.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl State {
    /// Asks the shepherd at whose `socket`, as `shm:///run/tollfree/shepherd.sock`, business processes attach. Needs a tokio runtime
    /// with IO and time. Only the shepherd's own user, and root, get an answer.
    ///
    /// # Errors
    /// [`StateError`], after at most 10 s.
    pub async fn read(socket: &str) -> Result<State, StateError> {
        ctl::get(socket, ctl::STATE).await
    }
}
