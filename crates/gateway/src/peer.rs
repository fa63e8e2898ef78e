//! Who a backend is: as the kernel says, or its certificate.

use std::fmt;

use tollfree::PeerIdentity;
use tollfree::gateway::{Attached, Attacher, RemoteIdentity, ViaSession, is_same_user};

use crate::client::{Class, Client};

/// One that has come to a backend listener. Nothing of it is its own word.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Peer {
    /// Of this host.
    Local(PeerIdentity),
    /// Of another.
    Remote(RemoteIdentity),
}

impl Peer {
    fn of(identity: PeerIdentity, remote: Option<&RemoteIdentity>) -> Peer {
        remote.map_or(Peer::Local(identity), |remote| Peer::Remote(remote.clone()))
    }

    pub(crate) fn of_session(session: &ViaSession) -> Peer {
        Peer::of(session.peer(), session.remote())
    }

    pub(crate) fn of_attached(attached: &Attached) -> Peer {
        Peer::of(attached.process().identity, attached.remote())
    }

    pub(crate) fn of_attacher(attacher: Attacher<'_>) -> Peer {
        match attacher {
            Attacher::Local(identity) => Peer::Local(identity),
            Attacher::Remote(subject, address) => {
                Peer::Remote(RemoteIdentity { subject: subject.clone(), address })
            }
        }
    }

    /// Whether the two are one process, as far as can be told: of another host's, those of one subject are. A process that the
    /// gateway's pid namespace has no number for is like no other.
    pub(crate) fn is_same_process(&self, other: &Peer) -> bool {
        match (self, other) {
            (Peer::Local(one), Peer::Local(other)) => {
                one.pid != 0 && one.pid == other.pid && is_same_user(one.uid, other.uid)
            }
            (Peer::Remote(one), Peer::Remote(other)) => one.subject == other.subject,
            _ => false,
        }
    }

    /// As those are told of it whom it calls.
    pub(crate) fn client(&self) -> Client {
        match self {
            Peer::Local(process) => {
                Client::at(&format!("shm:pid={},uid={}", process.pid, process.uid), Class::Backend)
            }
            Peer::Remote(remote) => Client::at(&format!("device:{}", remote.address), Class::Backend)
                .with_subject(&remote.subject),
        }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Local(process) => write!(f, "process {} of user {}", process.pid, process.uid),
            Peer::Remote(remote) => {
                write!(f, "a process at {} with the certificate of {}", remote.address, remote.subject)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_told_apart_by_what_they_can_not_choose() {
        let local = |pid, uid| Peer::Local(PeerIdentity { pid, uid, gid: 0 });
        let remote = |subject: &str, port| {
            Peer::Remote(RemoteIdentity { subject: subject.into(), address: ([192, 0, 2, 1], port).into() })
        };
        assert!(local(7, 8).is_same_process(&local(7, 8)) && !local(7, 8).is_same_process(&local(7, 9)));
        assert!(!local(0, 8).is_same_process(&local(0, 8)));
        assert!(remote("CN=a", 1).is_same_process(&remote("CN=a", 2)));
        assert!(!remote("CN=a", 1).is_same_process(&remote("CN=b", 1)));
        assert!(!remote("CN=a", 1).is_same_process(&local(0, u32::MAX)));
    }
}
