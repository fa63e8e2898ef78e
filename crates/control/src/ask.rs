//! What is said at the control socket: HTTP/1.1, with JSON in the bodies.

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
use tollfree::gateway::{is_master_of, own_user};

use crate::{ConnectionState, StateError};

/// Where the state is.
pub const STATE: &str = "/state";
/// Where registers are read and changed.
pub const REGISTERS: &str = "/registers";
/// Where connections are listed and closed.
pub const CONNECTIONS: &str = "/connections";
/// How long a gateway may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// More than a thousand methods and ten thousand backend connections need.
const ANSWER_LEN_MAX: usize = 64 << 20;

/// What a register is to be: the body of a `PUT` at [`REGISTERS`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Change {
    /// As [`Register::name`](crate::Register::name).
    pub name: String,
    /// A number, or a name.
    pub value: String,
}

/// Which connection is to be closed: the body of a `PUT` at [`CONNECTIONS`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Closing {
    /// As [`ConnectionState::id`].
    pub close: String,
}

/// Closes a connection.
pub(crate) async fn close(socket: &str, id: &str) -> Result<ConnectionState, StateError> {
    let body = serde_json::to_vec(&Closing { close: id.to_owned() }).unwrap_or_default();
    ask(socket, Method::PUT, CONNECTIONS, body.into()).await
}

/// Where a gateway whose backends attach at `socket`, as `shm:///run/tollfree/gateway.sock`, can be asked. None where they
/// attach at no path.
pub fn control_path(socket: &str) -> Option<PathBuf> {
    let path = socket.strip_prefix("shm://").filter(|path| path.starts_with('/'))?;
    Some(PathBuf::from(format!("{path}.control")))
}

/// Reads what is at a path of a gateway.
pub(crate) async fn get<T: DeserializeOwned>(socket: &str, path: &'static str) -> Result<T, StateError> {
    ask(socket, Method::GET, path, Bytes::new()).await
}

pub(crate) async fn ask<T: DeserializeOwned>(
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
    // Whom a gateway answers, by the same rule: what somebody else's process says here is not the gateway's.
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
        let request = Request::builder().method(method).uri(path).header("host", "gateway");
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
