//! Values that can be changed one by one while a gateway runs.

use http::Method;
use serde::{Deserialize, Serialize};

use crate::StateError;
use crate::ask::{self, Change, REGISTERS};

/// A value that can be changed while a gateway runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// Its key in the config, as `load_balancing.policy`.
    pub name: String,
    /// What holds now: a number or a name.
    pub value: serde_json::Value,
    /// What a number counts; `name` where the value is none.
    pub unit: String,
    /// The engine that obeys it, where the other doesn't: `memory` for what only backend connections of this host do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Where the value was said: a line of a file, a variable, a flag, `ctl`, another register, or `default`.
    pub origin: String,
}

impl Register {
    /// All registers of the gateway at whose `socket`, as `shm:///run/tollfree/gateway.sock`, backends attach. Needs a tokio
    /// runtime with IO and time. Only the gateway's own user, and root, get an answer.
    ///
    /// # Errors
    /// [`StateError`], after at most 10 s.
    pub async fn read_all(socket: &str) -> Result<Vec<Register>, StateError> {
        ask::get(socket, REGISTERS).await
    }

    /// Gives a register another value, until it is changed again or the gateway reads its config again. Returns what holds then. As above.
    ///
    /// # Errors
    /// [`StateError::Refused`] where the value makes no sense or there is no such register: all stays as it was.
    pub async fn set(socket: &str, name: &str, value: &str) -> Result<Register, StateError> {
        let change = Change { name: name.to_owned(), value: value.to_owned() };
        let body = serde_json::to_vec(&change).unwrap_or_default();
        ask::ask(socket, Method::PUT, REGISTERS, body.into()).await
    }
}
