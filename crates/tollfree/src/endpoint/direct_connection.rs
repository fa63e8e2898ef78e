//! A direct connection: the session in which a channel by way of a gateway calls the process that the gateway would hand its calls to.
//!
//! The gateway is asked for one in the session with it, where calls go while there is none. What both say is in section 24 of
//! `spec/wire.md`.

use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};

use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tollfree_driver_tokio::{Attachment, Config, PeerIdentity, is_same_user};

use crate::endpoint::Subchannel;

/// By which a channel asks its gateway for a direct connection.
pub(crate) const ASK: &str = "/tollfree.DirectConnection/Ask";
/// By which a gateway has a backend let a caller in.
pub(crate) const ADMIT: &str = "/tollfree.DirectConnection/Admit";
/// The process that is to be let in, or that is met.
pub(crate) const PROCESS: HeaderName = HeaderName::from_static("tollfree-process");

/// Asks for a direct connection in a session with a gateway, and has an endpoint use it, again and again while the session stands.
pub(crate) type Asking = fn(Weak<Subchannel>, Arc<Attachment>) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// What an endpoint by way of a gateway knows of its direct connection.
pub(crate) struct DirectConnection {
    asking: Asking,
    /// Of the session with the process that is met.
    pub(crate) config: Config,
    endpoint: OnceLock<Weak<Subchannel>>,
    state: Mutex<State>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    gateway: Option<Arc<Attachment>>,
    direct: Option<Arc<Attachment>>,
    /// Why there is none.
    why: String,
}

impl DirectConnection {
    pub(crate) fn new(asking: Asking, config: &Config) -> DirectConnection {
        let state = State { why: "the gateway has not been asked yet".into(), ..State::default() };
        DirectConnection {
            asking,
            config: Config { via: None, ..config.clone() },
            endpoint: OnceLock::new(),
            state: Mutex::new(state),
            task: Mutex::default(),
        }
    }

    /// Whose it is.
    pub(crate) fn of(&self, endpoint: &Arc<Subchannel>) {
        self.endpoint.get_or_init(|| Arc::downgrade(endpoint));
    }

    /// There is a session with the gateway, in which it can be asked. Must be called in a tokio runtime.
    pub(crate) fn begin(&self, gateway: &Arc<Attachment>) {
        let Some(endpoint) = self.endpoint.get() else { return };
        *self.state.lock() = State {
            gateway: Some(gateway.clone()),
            why: "the gateway has not been asked yet".into(),
            ..State::default()
        };
        let task = tokio::spawn((self.asking)(endpoint.clone(), gateway.clone()));
        if let Some(old) = self.task.lock().replace(task) {
            old.abort();
        }
    }

    /// A session of the endpoint is of no use any more: what calls go by instead, if there is something.
    pub(crate) fn instead_of(&self, attachment: &Arc<Attachment>) -> Option<Arc<Attachment>> {
        let mut state = self.state.lock();
        let is_it = |known: &mut Arc<Attachment>| Arc::ptr_eq(known, attachment);
        if state.direct.take_if(is_it).is_some() {
            state.why =
                "the process takes no more calls by it, or has ended; the gateway is asked again".into();
        }
        state.gateway.take_if(is_it);
        state.gateway.clone().filter(|gateway| gateway.is_open())
    }

    /// Notes what asking came to. `false`: that was known.
    pub(crate) fn settle(&self, outcome: Result<&Arc<Attachment>, &str>) -> bool {
        let mut state = self.state.lock();
        match outcome {
            Ok(direct) => {
                state.direct = Some(direct.clone());
                true
            }
            Err(why) => {
                let is_news = state.why != why;
                state.why = why.into();
                is_news
            }
        }
    }

    /// Which way calls go, and why, for people.
    pub(crate) fn words(&self, target: &str, gateway: &str) -> String {
        let state = self.state.lock();
        match &state.direct {
            Some(_) => {
                format!("calls {target} by a direct connection that the gateway at {gateway} has named")
            }
            None => {
                format!(
                    "calls {target} via the gateway at {gateway}, without a direct connection: {}",
                    state.why
                )
            }
        }
    }
}

impl Drop for DirectConnection {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().take() {
            task.abort();
        }
    }
}

/// A process as [`PROCESS`] has it.
pub(crate) fn process_value(process: PeerIdentity) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("pid={},uid={}", process.pid, process.uid)).ok()
}

/// The number of a process and that of its user, of `pid=…,uid=…`.
pub(crate) fn read_process(text: &str) -> Option<(i32, u32)> {
    let (pid, uid) = text.strip_prefix("pid=")?.split_once(",uid=")?;
    Some((pid.parse().ok()?, uid.parse().ok()?))
}

/// Whether somebody is a process that was named. A number of 0 names none: the kernel shows it for what it can't show.
pub(crate) fn is_process(peer: PeerIdentity, (pid, uid): (i32, u32)) -> bool {
    pid > 0 && peer.pid == pid && is_same_user(peer.uid, uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_in_one_form_and_0_is_none() {
        let peer = PeerIdentity { pid: 7, uid: 8, gid: 9 };
        let value = process_value(peer).unwrap();
        assert_eq!(read_process(value.to_str().unwrap()), Some((7, 8)));
        assert!(is_process(peer, (7, 8)) && !is_process(peer, (7, 9)) && !is_process(peer, (6, 8)));
        assert!(!is_process(PeerIdentity { pid: 0, ..peer }, (0, 8)));
        for text in ["", "pid=7", "pid=7,uid=", "pid=x,uid=8", "uid=8,pid=7", "pid=7,uid=-1"] {
            assert_eq!(read_process(text), None, "{text:?}");
        }
    }
}
