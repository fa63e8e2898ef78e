//! Where clients come to.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use tollfree_host::{PendingHandshakes, QuotaUsage, Quotas};
use tollfree_region::{CLOSING_COUNT_MAX, closing_count};
use tollfree_rendezvous::{Address, BindError, Rendezvous};

use crate::poller::{Poller, Source};
use crate::{ListenerId, SessionId};

/// A socket that listens, and who has come to it.
#[derive(Debug)]
struct Listening {
    rendezvous: Rendezvous,
    quota_usage: Arc<QuotaUsage>,
    silent: PendingHandshakes<SessionId>,
    /// The last attempt to accept has failed, and the application knows.
    fails: bool,
}

/// What a look for a client came to.
#[derive(Debug)]
pub(crate) enum Accepted {
    /// A client has come, and is counted there.
    Client(UnixStream, Arc<QuotaUsage>),
    Nobody,
    /// Out of descriptors or memory, most likely. The application is to be told, where it does not know.
    Failed(Option<io::Error>),
}

/// All of a loop's. A number is never given twice.
#[derive(Debug, Default)]
pub(crate) struct Listeners(Vec<Option<Listening>>);

impl Listeners {
    /// Listens at an address.
    pub(crate) fn add(
        &mut self,
        address: &Address,
        quotas: &Quotas,
        poller: &Poller,
    ) -> Result<ListenerId, BindError> {
        let io = |source| BindError::Io { address: address.to_string(), source };
        let rendezvous = Rendezvous::bind(address)?;
        rendezvous.listener().set_nonblocking(true).map_err(io)?;
        let idx = self.0.len() as u32;
        poller.watch_reads(rendezvous.listener(), Source::Listener(idx)).map_err(io)?;
        let (quota_usage, silent) = (QuotaUsage::new(quotas), PendingHandshakes::default());
        self.0.push(Some(Listening { rendezvous, quota_usage, silent, fails: false }));
        Ok(ListenerId(idx))
    }

    fn get_mut(&mut self, idx: u32) -> Option<&mut Listening> {
        self.0.get_mut(idx as usize)?.as_mut()
    }

    /// Removes one, if there is such, and its socket. Clients that may have said nothing yet.
    pub(crate) fn remove(&mut self, listener: ListenerId, poller: &Poller) -> Option<Vec<SessionId>> {
        let listening = self.0.get_mut(listener.0 as usize).and_then(Option::take)?;
        poller.forget(listening.rendezvous.listener());
        Some(listening.silent.clients().copied().collect())
    }

    pub(crate) fn accept(&mut self, idx: u32) -> Accepted {
        let Some(listening) = self.get_mut(idx) else { return Accepted::Nobody };
        let accepted = match closing_count() < CLOSING_COUNT_MAX {
            true => listening.rendezvous.listener().accept(),
            // Newcomers may bring more of what nobody can close.
            false => Err(io::Error::other("too many descriptors that clients passed can't be closed")),
        };
        match accepted {
            Ok((socket, _)) => {
                listening.fails = false;
                Accepted::Client(socket, listening.quota_usage.clone())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Accepted::Nobody,
            Err(error) => Accepted::Failed((!std::mem::replace(&mut listening.fails, true)).then_some(error)),
        }
    }

    /// Looks for no clients until [`resume`](Listeners::resume): they wait in the backlog.
    pub(crate) fn pause(&mut self, idx: u32, poller: &Poller) {
        if let Some(listening) = self.get_mut(idx) {
            poller.forget(listening.rendezvous.listener());
        }
    }

    pub(crate) fn resume(&mut self, idx: u32, poller: &Poller) {
        if let Some(listening) = self.get_mut(idx) {
            let _ = poller.watch_reads(listening.rendezvous.listener(), Source::Listener(idx));
        }
    }

    /// A client of a process has come. Where too many clients say nothing, which of them is to make place for it.
    pub(crate) fn came(
        &mut self,
        listener: ListenerId,
        pid: i32,
        client: SessionId,
        is_silent: impl Fn(&SessionId) -> bool,
    ) -> Option<SessionId> {
        self.get_mut(listener.0)?.silent.add(pid, client, is_silent)
    }
}
