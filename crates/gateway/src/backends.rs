//! The socket of backends: who may attach as what.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tollfree::PeerPolicy;
use tollfree::gateway::{
    Accepted, Admits, Attached, BackendListener, Limits, StreamPolicy, is_listed, is_same_user, own_user,
};

use crate::backend_connections::BackendConnections;
use crate::client::Client;
use crate::config::{BackendsConfig, Config, FileMode, UserGroup};
use crate::egress::{Egress, Via};
use crate::metrics::Metrics;
use crate::notices::Notices;
use crate::peer::Peer;
use crate::refusal::Refusal;
use crate::reload::Current;
use crate::tls::{Certificates, Protocol, TlsError};

/// Services that servers have beside their own, and that each group may attach with. The gateway answers for health itself.
const EVERYBODYS: [&str; 3] = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
];
/// What a process is told that may not stay attached.
pub(crate) const NOT_ANY_MORE: &str = "the gateway's config does not let it attach so any more: its log, and the error of attaching anew, say why";

/// Which users may attach to which groups, and with what.
pub(crate) struct Tenants {
    config: Current,
    /// Whom the socket was bound for.
    peers: PeerPolicy,
    version: watch::Sender<u64>,
}

/// Everybody who is in some group.
fn peers(config: &Config) -> PeerPolicy {
    let mut users: Vec<u32> = config.groups.values().flat_map(|group| group.users.iter().copied()).collect();
    if users.is_empty() {
        return PeerPolicy::SameUser;
    }
    // Not where it is an id that others have too: nobody listed them.
    users.extend(Some(own_user()).filter(|user| is_same_user(*user, own_user())));
    PeerPolicy::Users(users)
}

impl Tenants {
    pub(crate) fn new(config: Current) -> Tenants {
        let peers = peers(&config.load());
        Tenants { config, peers, version: watch::Sender::new(0) }
    }

    /// Whether the socket lets in a user's processes.
    pub(crate) fn may_come(&self) -> impl Fn(u32) -> bool {
        |user| self.peers.allows(user)
    }

    /// The config that holds now.
    pub(crate) fn config(&self) -> &Current {
        &self.config
    }

    /// Another config holds.
    pub(crate) fn changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// Tells when another config holds.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Which of the configs that have held this is.
    pub(crate) fn version(&self) -> u64 {
        *self.version.borrow()
    }

    /// Resolves when it is not any more as `may_call` said.
    async fn decided_otherwise(&self, peer: &Peer, target: &str, before: bool) {
        let mut version = self.version.subscribe();
        while self.may_call(peer, target) == before {
            if version.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// Whether a process is a group's: by its user, or by its certificate's subject.
    pub(crate) fn is_of(&self, peer: &Peer, group: &str) -> bool {
        let config = self.config.load();
        match (config.groups.get(group), peer) {
            (Some(group), Peer::Remote(remote)) => {
                group.subjects.iter().any(|subject| **subject == *remote.subject)
            }
            (None, Peer::Remote(_)) => false,
            (Some(group), Peer::Local(peer)) if !group.users.is_empty() => is_listed(peer.uid, &group.users),
            (Some(_), Peer::Local(peer)) => PeerPolicy::SameUser.allows(peer.uid),
            (None, Peer::Local(_)) => config.groups.is_empty(),
        }
    }

    /// Whether processes that call a group may do so without the gateway between.
    pub(crate) fn has_direct_connections(&self, group: &str) -> bool {
        self.config.load().groups.get(group).is_some_and(|group| group.direct_connections)
    }

    /// Whether some group of a process may call there.
    pub(crate) fn may_call(&self, peer: &Peer, target: &str) -> bool {
        !self.callers(peer, target).is_empty()
    }

    /// The groups of a process that may call there: the one that is called, if it's one of them, then others by name.
    pub(crate) fn callers(&self, peer: &Peer, target: &str) -> Vec<String> {
        let called = target.strip_prefix("group:").filter(|group| self.is_of(peer, group));
        let config = self.config.load();
        let others = config.groups.iter().filter(|(name, group)| {
            called != Some(name.as_str())
                && group.via.iter().any(|via| via == target)
                && self.is_of(peer, name)
        });
        called.map(str::to_owned).into_iter().chain(others.map(|(name, _)| name.clone())).collect()
    }

    /// Whether a process may attach, or stay so, as it says.
    ///
    /// # Errors
    /// Which group or service it may not have, and why.
    pub(crate) fn check_attached(&self, attached: &Attached) -> Result<(), String> {
        self.check(&Peer::of_attached(attached), attached.group(), attached.services())
    }

    /// Whether a process may attach as it says; the words are told to it, which a handshake has room for 120 bytes of.
    pub(crate) fn check(&self, peer: &Peer, group: &str, services: &[String]) -> Result<(), String> {
        let config = self.config.load();
        if !config.groups.is_empty() && !config.groups.contains_key(group) {
            return Err(format!("the gateway's config has no group {group}"));
        }
        if !self.is_of(peer, group) {
            return Err(match peer {
                Peer::Local(peer) => {
                    format!("user {} is not in the users of group {group} in the gateway's config", peer.uid)
                }
                Peer::Remote(remote) => format!(
                    "{} is not in the subjects of group {group} in the gateway's config",
                    remote.subject
                ),
            });
        }
        let allowed = config.groups.get(group).map_or(&[][..], |group| &group.services);
        for service in services.iter().filter(|service| !EVERYBODYS.contains(&service.as_str())) {
            let owner = config.groups.iter().find(|(_, group)| group.services.contains(service));
            match owner {
                Some((owner, _)) if owner == group => {}
                Some((owner, _)) => {
                    return Err(format!("service {service} is group {owner}'s, not {group}'s"));
                }
                None if allowed.is_empty() => {}
                None => return Err(format!("service {service} is not in the services of group {group}")),
            }
        }
        Ok(())
    }
}

/// Why there is no socket for backends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendsError {
    /// That of this host's.
    #[error("backends.socket: {0}")]
    Socket(tollfree::ServeError),
    /// Its file can't be given to those who are to use it.
    #[error("{0}")]
    File(String),
    /// That of other hosts'.
    #[error("backends.stream: {0}")]
    Stream(tollfree::ServeError),
    /// Its certificates.
    #[error("backends.stream: {0}")]
    Certificates(#[from] TlsError),
}

/// Refuses backends that may not attach, before they have a session: so their attempts end with an error.
fn admits(tenants: Arc<Tenants>, metrics: Arc<Metrics>) -> Admits {
    Admits::new(move |who, registration| {
        let peer = Peer::of_attacher(who);
        tenants.check(&peer, &registration.group, &registration.services).inspect_err(|reason| {
            metrics.refused_inside(Refusal::Attach, &(&peer, &registration.group), reason);
        })
    })
}

async fn bind_stream(
    stream: &crate::config::Stream,
    limits: Limits,
) -> Result<(BackendListener, Arc<Certificates>), BackendsError> {
    let certificates = Arc::new(Certificates::read(&stream.files(), Protocol::Device).await?);
    let current = certificates.clone();
    let policy = StreamPolicy {
        tls: Arc::new(move || current.current()),
        subject: Arc::new(|certificate| Client::subject_of(certificate).map(Into::into)),
    };
    let backend_listener =
        BackendListener::bind_stream(&stream.address, policy, limits).await.map_err(BackendsError::Stream)?;
    Ok((backend_listener, certificates))
}

/// Gives the socket's file the group of users and the mode that the config says.
///
/// # Errors
/// The key that can't be followed, and why.
fn own_socket(backends: &BackendsConfig) -> Result<(), String> {
    let Some(path) = backends.socket.strip_prefix("shm://").filter(|path| path.starts_with('/')) else {
        return Ok(());
    };
    if let Some(UserGroup(group)) = backends.group {
        let owned = std::os::unix::fs::chown(path, None, Some(group));
        owned.map_err(|error| {
            format!(
                "backends.group: {path} can't be given to group {group}: {error}; the gateway has to be in it"
            )
        })?;
    }
    if let Some(FileMode(mode)) = backends.mode {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, permissions)
            .map_err(|error| format!("backends.mode: {path} can't have mode {mode:04o}: {error}"))?;
    }
    Ok(())
}

/// The bound sockets.
pub(crate) struct Backends {
    backend_listener: BackendListener,
    /// For processes of other hosts, with the certificates that it shows.
    stream: Option<(BackendListener, Arc<Certificates>)>,
    socket: String,
    tenants: Arc<Tenants>,
    backend_connections: Arc<BackendConnections>,
    metrics: Arc<Metrics>,
    egress: Arc<Egress>,
    arrivals: Notices,
    departures: Arc<Notices>,
}

impl Backends {
    pub(crate) async fn bind(
        config: &Config,
        tenants: Arc<Tenants>,
        backend_connections: Arc<BackendConnections>,
        metrics: Arc<Metrics>,
        egress: Arc<Egress>,
    ) -> Result<Backends, BackendsError> {
        let (backends, profile) = (&config.backends, &config.profile);
        let (socket, wait) = (backends.socket.as_str(), backends.wait.into());
        let limits = Limits {
            peers: tenants.peers.clone(),
            admits: Some(admits(tenants.clone(), metrics.clone())),
            wait,
            objects: backends.objects,
            ring_len: profile.ring_bytes as usize,
            area_len: profile.area_bytes as usize,
            ..Limits::default()
        };
        let stream = match &backends.stream {
            None => None,
            Some(stream) => Some(bind_stream(stream, limits.clone()).await?),
        };
        let backend_listener = BackendListener::bind(socket, limits).await.map_err(BackendsError::Socket)?;
        own_socket(backends).map_err(BackendsError::File)?;
        for backend_listener in std::iter::once(&backend_listener)
            .chain(stream.as_ref().map(|(backend_listener, _)| backend_listener))
        {
            backend_listener.metrics(&metrics.common);
        }
        let (socket, arrivals, departures) = (socket.into(), Notices::default(), Arc::default());
        Ok(Backends {
            backend_listener,
            stream,
            socket,
            tenants,
            backend_connections,
            metrics,
            egress,
            arrivals,
            departures,
        })
    }

    /// Where processes of other hosts attach.
    pub(crate) fn stream_address(&self) -> Option<String> {
        self.stream.as_ref().map(|(backend_listener, _)| backend_listener.address())
    }

    /// The next that has come, of this host or another.
    async fn arrival(&mut self) -> Option<Accepted> {
        match &mut self.stream {
            None => self.backend_listener.accept().await,
            Some((stream, _)) => tokio::select! {
                arrival = self.backend_listener.accept() => arrival,
                arrival = stream.accept() => arrival,
            },
        }
    }

    pub(crate) fn address(&self) -> &str {
        &self.socket
    }

    /// Lets processes in until `closed`, then waits for `let_go`, at which those who are in are let go.
    pub(crate) async fn serve(mut self, mut closed: watch::Receiver<bool>, let_go: watch::Receiver<bool>) {
        let (mut members, mut follow) = (JoinSet::new(), JoinSet::new());
        if let Some((_, certificates)) = &self.stream {
            follow.spawn(certificates.clone().follow("backends.stream".into(), self.metrics.clone()));
        }
        loop {
            let arrival = tokio::select! {
                arrival = self.arrival() => arrival,
                Some(_) = members.join_next() => continue,
                _ = closed.wait_for(|closed| *closed) => break,
            };
            match arrival {
                Some(Accepted::Attached(attached)) => self.attach(attached, let_go.clone(), &mut members),
                Some(Accepted::Session(session)) => {
                    let (peer, target) = (Peer::of_session(&session), session.target().to_owned());
                    let before = self.tenants.may_call(&peer, &target);
                    let via = Via::new(&self.egress, peer.clone(), session.target(), let_go.clone());
                    let (mut let_go, tenants) = (let_go.clone(), self.tenants.clone());
                    let stop = async move {
                        tokio::select! {
                            _ = let_go.wait_for(|go| *go) => {}
                            () = tenants.decided_otherwise(&peer, &target, before) => {}
                        }
                    };
                    members.spawn(session.serve(via, stop));
                }
                Some(_) => {}
                None => break,
            }
        }
        self.backend_listener.close();
        if let Some((stream, _)) = &mut self.stream {
            stream.close();
        }
        while members.join_next().await.is_some() {}
    }

    fn attach(&self, attached: Attached, mut let_go: watch::Receiver<bool>, members: &mut JoinSet<()>) {
        if let Err(reason) = self.tenants.check_attached(&attached) {
            let who = (attached.process(), attached.group());
            self.metrics.refused_inside(Refusal::Attach, &who, &reason);
            attached.close(NOT_ANY_MORE);
            return;
        }
        let most = self
            .tenants
            .config()
            .load()
            .groups
            .get(attached.group())
            .and_then(|group| group.backend_connections);
        if most.is_some_and(|most| self.backend_connections.count_of(attached.group()) >= most as usize) {
            let reason = "the group has as many backend connections as its backend_connections in the gateway's config allows";
            self.metrics.refused_inside(Refusal::Attach, &(attached.process(), attached.group()), reason);
            attached.close(reason);
            return;
        }
        let backend_connection = self.backend_connections.add(attached);
        let attached = backend_connection.attached();
        if let Some(unsaid) = self.arrivals.turn(&self.tenants.config().load(), attached.group()) {
            tracing::info!(
                process = ?attached.process(),
                backend_connection = attached.backend_connection(),
                group = attached.group(),
                services = ?attached.services(),
                unsaid,
                "attached"
            );
        }
        let (backend_connections, departures, tenants) =
            (self.backend_connections.clone(), self.departures.clone(), self.tenants.clone());
        members.spawn(async move {
            let attached = backend_connection.attached();
            tokio::select! {
                () = attached.closed() => {}
                _ = let_go.wait_for(|go| *go) => {}
            }
            backend_connections.remove(&backend_connection);
            if let Some(unsaid) = departures.turn(&tenants.config().load(), attached.group()) {
                tracing::info!(process = ?attached.process(), backend_connection = attached.backend_connection(), unsaid, "gone");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use arc_swap::ArcSwap;
    use tollfree::PeerIdentity;
    use tollfree::gateway::RemoteIdentity;

    use super::*;

    fn user(uid: u32) -> Peer {
        Peer::Local(PeerIdentity { pid: 1, uid, gid: 0 })
    }

    fn subject(subject: &str) -> Peer {
        Peer::Remote(RemoteIdentity { subject: subject.into(), address: ([192, 0, 2, 1], 1).into() })
    }

    fn tenants(text: &str) -> Tenants {
        Tenants::new(Arc::new(ArcSwap::from_pointee(Config::from_toml(text).unwrap())))
    }

    fn own() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn groups_are_what_the_config_says() {
        let text = format!(
            "[groups.a]\nusers = [4000000000]\nservices = [\"x.A\"]\nvia = [\"group:b\", \"https://localhost:443\"]\n\
             [groups.b]\nsubjects = [\"CN=b\"]\n[egress]\nca = \"{}\"\n",
            file!()
        );
        let tenants = tenants(&text);
        let services = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let other = user(4_000_000_000);
        tenants.check(&other, "a", &services(&["x.A"])).unwrap();
        tenants.check(&user(own()), "b", &services(&["x.B"])).unwrap();
        tenants.check(&user(own()), "a", &services(&["x.A"])).expect_err("not this user");
        tenants.check(&user(own()), "c", &services(&["x.B"])).expect_err("no such group");
        tenants.check(&other, "a", &services(&["x.B"])).expect_err("not its service");
        tenants.check(&user(own()), "b", &services(&["x.A"])).expect_err("another's service");
        let remote = |name, group| tenants.check(&subject(name), group, &services(&["x.B"]));
        remote("CN=b", "b").unwrap();
        remote("CN=a", "b").expect_err("not this certificate, whatever user it would be here");
        remote("CN=b", "a").expect_err("a group that names none");
        let may = |peer: &Peer, targets: &[&str]| {
            targets.iter().map(|target| tenants.may_call(peer, target)).collect::<Vec<_>>()
        };
        let targets = ["group:a", "group:b", "https://localhost:443", "https://localhost:4433"];
        assert_eq!(may(&other, &targets), [true, true, true, false]);
        assert_eq!(may(&user(own()), &targets), [false, true, false, false]);
        assert_eq!(
            may(&subject("CN=b"), &targets),
            [false, true, false, false],
            "as what its certificate says"
        );
        assert_eq!(may(&subject("CN=a"), &targets), [false; 4]);
        let callers = |target| tenants.callers(&other, target);
        assert_eq!([callers("group:a"), callers("group:b")], [["a"], ["a"]]);
    }

    #[test]
    fn the_groups_of_a_user_that_may_call_are_the_called_one_and_others_by_name() {
        let via = "via = [\"group:c\", \"http://localhost:80\"]";
        let text = format!("[groups.d]\n{via}\n[groups.b]\n{via}\n[groups.a]\n[groups.c]\n{via}\n");
        let tenants = tenants(&text);
        assert_eq!(tenants.callers(&user(own()), "group:c"), ["c", "b", "d"]);
        assert_eq!(tenants.callers(&user(own()), "http://localhost:80"), ["b", "c", "d"]);
        assert_eq!(tenants.callers(&user(own()), "group:a"), ["a"]);
        assert_eq!(tenants.callers(&user(4_000_000_000), "group:c"), [""; 0]);
    }

    #[test]
    fn without_groups_nobody_calls_out() {
        let tenants = tenants("");
        tenants.check(&subject("CN=b"), "default", &[]).expect_err("nor does another host's process attach");
        assert!(!tenants.may_call(&subject("CN=b"), "group:any"));
        let own = user(own());
        assert!(tenants.may_call(&own, "group:any") && !tenants.may_call(&own, "https://localhost:443"));
        assert_eq!(tenants.peers, PeerPolicy::SameUser);
    }
}
