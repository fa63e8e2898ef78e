//! How other processes ask a shepherd, and change its registers: HTTP/1.1 at the control socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tollfree::shepherd::{is_master_of, own_user};

use crate::config::Register;
use crate::state::{ConnectionState, StateError};

/// Where the state is.
pub(crate) const STATE: &str = "/state";
/// Where registers are read and changed.
pub(crate) const REGISTERS: &str = "/registers";
/// Where connections are listed and closed.
pub(crate) const CONNECTIONS: &str = "/connections";
/// How long a shepherd may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than a thousand methods and ten thousand workers need.
const ANSWER_LEN_MAX: usize = 64 << 20;

/// What a register is to be.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Which connection is to be closed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Closing {
    pub(crate) close: String,
}

/// Closes a connection.
pub(crate) async fn close(socket: &str, id: &str) -> Result<ConnectionState, StateError> {
    let body = serde_json::to_vec(&Closing { close: id.to_owned() }).unwrap_or_default();
    ask(socket, Method::PUT, CONNECTIONS, body.into()).await
}

impl Register {
    /// All registers of the shepherd at whose `socket`, as `shm:///run/tollfree/shepherd.sock`, business processes attach. Needs a tokio
    /// runtime with IO and time. Only the shepherd's own user, and root, get an answer.
    ///
    /// # Errors
    /// [`StateError`], after at most 10 s.
    pub async fn read_all(socket: &str) -> Result<Vec<Register>, StateError> {
        get(socket, REGISTERS).await
    }

    /// Gives a register another value, until it is changed again or the shepherd reads its config again. Returns what holds then. As above.
    ///
    /// # Errors
    /// [`StateError::Refused`] where the value makes no sense or there is no such register: all stays as it was.
    pub async fn set(socket: &str, name: &str, value: &str) -> Result<Register, StateError> {
        let change = Change { name: name.to_owned(), value: value.to_owned() };
        let body = serde_json::to_vec(&change).unwrap_or_default();
        ask(socket, Method::PUT, REGISTERS, body.into()).await
    }
}

/// Where a shepherd whose business processes attach at `socket` can be asked.
pub(crate) fn control_path(socket: &str) -> Option<PathBuf> {
    let path = socket.strip_prefix("shm://").filter(|path| path.starts_with('/'))?;
    Some(PathBuf::from(format!("{path}.control")))
}

/// Reads what is at a path of a shepherd.
pub(crate) async fn get<T: DeserializeOwned>(socket: &str, path: &'static str) -> Result<T, StateError> {
    ask(socket, Method::GET, path, Bytes::new()).await
}

async fn ask<T: DeserializeOwned>(
    socket: &str,
    method: Method,
    path: &'static str,
    body: Bytes,
) -> Result<T, StateError> {
    let control = control_path(socket).ok_or_else(|| StateError::Address(socket.to_owned()))?;
    let late = || io::Error::from(io::ErrorKind::TimedOut);
    let answered = tokio::time::timeout(PATIENCE, connect(&control, method, path, body)).await;
    let wrong = |problem| StateError::Answer { path: control.clone(), problem };
    let (status, body) = match answered {
        Ok(Ok(answer)) => answer.map_err(&wrong)?,
        Ok(Err(source)) => return Err(StateError::Absent { path: control, source }),
        Err(_) => return Err(StateError::Absent { path: control, source: late() }),
    };
    match status {
        StatusCode::OK => serde_json::from_slice(&body).map_err(|error| wrong(error.to_string())),
        StatusCode::UNPROCESSABLE_ENTITY => {
            Err(StateError::Refused(String::from_utf8_lossy(&body).into_owned()))
        }
        status => Err(wrong(format!("it says {status}"))),
    }
}

type Answer = Result<(StatusCode, Bytes), String>;

async fn connect(control: &Path, method: Method, path: &'static str, body: Bytes) -> io::Result<Answer> {
    let stream = UnixStream::connect(control).await?;
    // Whom a shepherd answers, by the same rule: what somebody else's process says here is not the shepherd's.
    let user = stream.peer_cred()?.uid();
    if !is_master_of(own_user(), user) {
        let words = format!("a process of user {user} listens there, and only that user and root may ask it");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, words));
    }
    Ok(exchange(stream, method, path, body).await)
}

async fn exchange(stream: UnixStream, method: Method, path: &'static str, body: Bytes) -> Answer {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| words(&error))?;
    let asked = async {
        let request = Request::builder().method(method).uri(path).header("host", "shepherd");
        let request = request.body(Full::new(body)).map_err(|error| words(&error))?;
        let response = sender.send_request(request).await.map_err(|error| words(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_LEN_MAX).collect().await;
        Ok((status, body.map_err(|error| words(&error))?.to_bytes()))
    };
    tokio::pin!(asked);
    tokio::pin!(connection);
    tokio::select! {
        answer = &mut asked => answer,
        ended = &mut connection => match ended {
            Ok(()) => asked.await,
            Err(error) => Err(words(&error)),
        },
    }
}
