//! The connection manager: who is connected from the world, and which sessions lead to backends; listed, looked up and closed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tollfree_control::ConnectionState;

use crate::backend_connections::BackendConnections;
use crate::connection::Meter;

/// What a process is told whose session was closed so.
const CLOSED: &str = "the gateway's operator has closed the session";

/// A connection from the world.
pub(crate) struct Connected {
    listener: String,
    peer: String,
    is_tls: bool,
    since: Instant,
    pub(crate) meter: Arc<Meter>,
    /// It takes no further call.
    pub(crate) is_draining: AtomicBool,
    /// It is to take none.
    pub(crate) closing: Notify,
}

/// All that are open.
#[derive(Default)]
pub(crate) struct Connections(Mutex<BTreeMap<u64, Arc<Connected>>>);

/// A connection's place in the list, until it is dropped.
pub(crate) struct Listed {
    connections: Arc<Connections>,
    id: u64,
    pub(crate) connected: Arc<Connected>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.connections.0.lock().remove(&self.id);
    }
}

impl Connections {
    /// Lists one. `id` is a number that no other has.
    pub(crate) fn add(
        self: &Arc<Self>,
        id: u64,
        listener: &str,
        peer: String,
        is_tls: bool,
        meter: Arc<Meter>,
    ) -> Listed {
        let connected = Arc::new(Connected {
            listener: listener.to_owned(),
            peer,
            is_tls,
            since: Instant::now(),
            meter,
            is_draining: AtomicBool::new(false),
            closing: Notify::new(),
        });
        self.0.lock().insert(id, connected.clone());
        Listed { connections: self.clone(), id, connected }
    }

    /// Connections from the world in the order in which they came, then sessions inward in the order in which they attached.
    pub(crate) fn list(&self, backend_connections: &BackendConnections) -> Vec<ConnectionState> {
        let of = |(id, connected): (&u64, &Arc<Connected>)| {
            let (calls, calls_total, received_bytes, sent_bytes) = connected.meter.counts();
            ConnectionState {
                id: format!("c{id}"),
                kind: if connected.is_tls { "world, TLS" } else { "world" }.to_owned(),
                place: connected.listener.clone(),
                peer: connected.peer.clone(),
                open_ms: connected.since.elapsed().as_millis() as u64,
                calls,
                calls_total,
                received_bytes: Some(received_bytes),
                sent_bytes: Some(sent_bytes),
                is_closing: connected.is_draining.load(Ordering::Relaxed),
            }
        };
        let mut list: Vec<_> = self.0.lock().iter().map(of).collect();
        list.extend(
            backend_connections.all().iter().map(|backend_connection| backend_connection.connection()),
        );
        list
    }

    /// Closes one: a connection takes no further call, and ends when those under way are answered, or after `limits.drain_ms`; a session
    /// ends at once, and its process attaches again.
    ///
    /// # Errors
    /// In words: there is none by that name.
    pub(crate) fn close(
        &self,
        id: &str,
        backend_connections: &BackendConnections,
        who: &str,
    ) -> Result<ConnectionState, String> {
        let found = self.list(backend_connections).into_iter().find(|connection| connection.id == id);
        let found = found.ok_or_else(|| {
            format!("there is no connection \"{id}\" at the moment; `tollfree ctl connections` lists all")
        })?;
        let number = id.get(1..).and_then(|number| number.parse::<u64>().ok());
        if let Some(backend_connection) = backend_connections
            .all()
            .iter()
            .find(|backend_connection| backend_connection.connection_id() == id)
        {
            backend_connection.attached().close(CLOSED);
        } else if let Some(connected) = number.and_then(|number| self.0.lock().get(&number).cloned()) {
            connected.closing.notify_one();
        }
        tracing::info!(id, who, "a connection is closed, as was asked for");
        Ok(ConnectionState { is_closing: true, ..found })
    }
}
